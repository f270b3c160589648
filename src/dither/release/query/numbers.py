"""Questions about one number that was collected in cells: the share in a range, quantiles, mean, variance, all with intervals.

The answers are about the people who took part; who they are a sample of is not in the intervals, as for histograms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dither.checks import check_between, check_finite
from dither.errors import ParameterError
from dither.methods.histogram.estimates import CellEstimates
from dither.methods.histogram.late import (
    Functional,
    Stretch,
    ask,
    at_the_end,
    before_the_end,
    inside,
    is_fine,
    number,
    quantiles,
    squared_distance,
)
from dither.notice import Notice
from dither.release.intervals import Basis
from dither.release.query.answer import Answer, AnswerRow, AnswerTable, Unit

COARSE = Notice(
    "coarse-cells",
    "people may lie anywhere inside the cells that were asked, and the interval allows for that; method 'ranges' asks finer cells",
)


@dataclass(frozen=True)
class NumberInquiry:
    """Answers from the cells of one number."""

    cells: CellEstimates

    @property
    def _basis(self) -> Basis:
        return "reports" if self.cells.smoothed is None else "model and reports"

    @property
    def _ends(self) -> tuple[float, float]:
        return self.cells.partition.edges[0], self.cells.partition.edges[-1]

    def share(self, low: float, high: float, level: float) -> Answer:
        """The share of people in [low, high); everybody where that is the whole range, whose end is closed."""
        low, high = (float(check_finite("a range's end", _plain(end))) for end in (low, high))
        check_between("level", level, 0, 1, ends="()")
        first, last = self._ends
        if not low < high:
            raise ParameterError(
                f"a range runs from a smaller to a larger number, not from {low:g} to {high:g}",
                where="range",
            )
        if high <= first or low > last:
            raise ParameterError(
                f"the range from {low:g} to {high:g} lies outside [{first:g}, {last:g}], where numbers were asked",
                where="range",
                value=(low, high),
            )
        asked = f"share in [{low:,.10g}, {high:,.10g})"
        if low <= first and high >= last:
            people = float(self.cells.population)
            return Answer(asked, 1.0, 1.0, 1.0, 0.0, level, people, self._basis)
        partition = self.cells.partition
        question = at_the_end(partition) if low == last else inside(partition, low, high)
        (known,) = ask(self.cells, [question])
        return self._answer(asked, known, level, (0.0, 1.0), self._notes(question), "share")

    def below(self, value: float, level: float) -> Answer:
        """The share of people with a smaller number."""
        value = float(check_finite("the value", _plain(value)))
        check_between("level", level, 0, 1, ends="()")
        first, last = self._ends
        asked = f"share below {value:,.10g}"
        if value <= first or value > last:
            share = float(value > last)
            return Answer(
                asked, share, share, share, 0.0, level, share * self.cells.population, self._basis
            )
        partition = self.cells.partition
        question = before_the_end(partition) if value == last else inside(partition, first, value)
        (known,) = ask(self.cells, [question])
        return self._answer(asked, known, level, (0.0, 1.0), self._notes(question), "share")

    def mean(self, level: float) -> Answer:
        """The mean number."""
        check_between("level", level, 0, 1, ends="()")
        question = number(self.cells.partition)
        (known,) = ask(self.cells, [question])
        return self._answer("mean", known, level, self._ends, self._notes(question), "number")

    def variance(self, level: float) -> Answer:
        """The variance of the numbers, over all people.

        As a sum it is the mean squared distance from the estimated mean, less the square of that mean's error, whose expectation
        is known. That square varies about its expectation with a variance of twice its square, which counts where the mean is
        known badly.
        """
        check_between("level", level, 0, 1, ends="()")
        partition = self.cells.partition
        (mean,) = ask(self.cells, [number(partition)])
        middle = (mean.least + mean.most) / 2
        raw = float(np.clip(middle, *self._ends))
        (known,) = ask(self.cells, [squared_distance(partition, raw)])
        noise = max(mean.errors) ** 2 - (middle - raw) ** 2
        slack = (
            (mean.most - mean.least) / 2
        ) ** 2  # the squared distance of any mean that the cells allow from the middle one
        estimate = known.estimate - (mean.estimate - raw) ** 2
        if self.cells.smoothed is None:
            estimate = known.estimate + noise
        square = math.sqrt(2) * max(mean.errors) ** 2
        errors = (math.hypot(known.errors[0], square), math.hypot(known.errors[1], square))
        known = Stretch(estimate, known.least + noise - slack, known.most + noise, errors)
        most = ((self._ends[1] - self._ends[0]) / 2) ** 2  # half of the people at each end
        return self._answer(
            "variance", known, level, (0.0, most), self._notes(number(partition)), "number"
        )

    def quantiles(self, levels: Sequence[float] | float, level: float) -> AnswerTable:
        """The numbers below which these shares of the people lie."""
        check_between("level", level, 0, 1, ends="()")
        given = [levels] if isinstance(levels, int | float) else levels
        if not isinstance(given, Sequence | np.ndarray):
            raise ParameterError(
                f"levels are a list such as [0.25, 0.5, 0.75], not {levels!r:.80}", where="levels"
            )
        wanted = [
            check_between("a quantile's level", _plain(one), 0, 1, ends="()") for one in given
        ]
        if not wanted:
            raise ParameterError("name at least one level, such as 0.5", where="levels")
        rows = [
            AnswerRow((float(one),), estimate, low, high, None)
            for one, (estimate, low, high) in zip(
                wanted, quantiles(self.cells, wanted, level), strict=True
            )
        ]
        warnings = () if is_fine(self.cells.partition).all() else (COARSE,)
        return AnswerTable(
            "quantiles",
            ("level",),
            tuple(rows),
            level,
            self._basis,
            unit="number",
            warnings=warnings,
        )

    def _notes(self, question: Functional) -> tuple[Notice, ...]:
        vague = ~is_fine(self.cells.partition) & (question.most > question.least)
        return (COARSE,) if vague.any() else ()

    def _answer(
        self,
        asked: str,
        known: Stretch,
        level: float,
        ends: tuple[float, float],
        notes: tuple[Notice, ...],
        unit: Unit,
    ) -> Answer:
        """The interval within what is possible at all, and the estimate within the interval."""
        low, high = (float(np.clip(end, *ends)) for end in known.interval(level))
        estimate = min(max(known.estimate, low), high)
        people = estimate * self.cells.population if unit == "share" else None
        error = known.standard_error
        return Answer(asked, estimate, low, high, error, level, people, self._basis, unit, notes)


def _plain(value: Any) -> Any:
    """A NumPy number as a Python one."""
    return value.item() if isinstance(value, np.generic) else value
