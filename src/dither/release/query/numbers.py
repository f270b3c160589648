"""Questions about one number that was collected in cells: shares, quantiles, mean, variance.

All answers have intervals. They are about the people who took part: the sampling of participants
from a population is not in the intervals, as for histograms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dither.checks import check_between, check_finite
from dither.errors import ParameterError, QuestionError
from dither.methods.histogram.consumer import Consumer
from dither.methods.histogram.estimates import CellEstimates
from dither.methods.histogram.late import (
    Functional,
    LateAnswer,
    Stretch,
    ask,
    ask_shares,
    inside,
    is_fine,
    late_answer,
    number,
    quantiles,
    squared_distance,
)
from dither.methods.histogram.machine import partition_of
from dither.methods.mean import MeanAnswer
from dither.notice import Notice
from dither.release.intervals import Basis
from dither.release.query.answer import Answer, AnswerRow, AnswerTable, Unit
from dither.release.query.ask import counted
from dither.release.query.expression import (
    All,
    Condition,
    Constant,
    Node,
    Not,
    Reader,
    Where,
    conditions,
    question_words,
)
from dither.release.query.quantities import Difference, Quantity, Share
from dither.schema import Attribute, Schema
from dither.schema.attribute import MAX_VALUES
from dither.types import Floats

# Disjoint sets of numbers from one end up to another, in order. An infinite upper end includes
# the end of the range, so that (last, inf) has this one number alone.
Spans = Sequence[tuple[float, float]]

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
        return self.cells.partition.low, self.cells.partition.high

    def share(self, low: float, high: float, level: float) -> Answer:
        """The share of people in [low, high); the end of the whole range is included."""
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
        return self.share_of([(max(low, first), math.inf if high >= last else high)], level, asked)

    def share_of(self, spans: Spans, level: float, asked: str) -> Answer:
        """The share of people in a union of sets of numbers within the range."""
        check_between("level", level, 0, 1, ends="()")
        if not spans or self._is_whole(spans):
            share = float(len(spans))
            people = share * self.cells.population
            answer = Answer(asked, share, share, share, 0.0, level, people, self._basis)
        else:
            answer = self._share(asked, self._gain(spans, ()), level)
        where = Condition("", spans=tuple(spans))
        return replace(answer, _quantity=Share(where), _source=self)

    def answer(self, quantity: Quantity, level: float, asked: str) -> Answer:
        """See `Source`. The difference of two shares is a sum over cells, as each of them is."""
        if not isinstance(quantity, Difference):
            raise ParameterError(
                "answers about one number can be subtracted, not divided: a share that is known "
                "up to an interval inside its cells has no interval for a quotient",
                where="/",
            )
        first, second = (self._spans(part) for part in (quantity.first, quantity.second))
        # The share of all people is one, whatever the noisy cells add up to.
        constant = float(self._is_whole(first)) - float(self._is_whole(second))
        gained = () if self._is_whole(first) else first
        lost = () if self._is_whole(second) else second
        question = self._gain(_only_in(gained, lost), _only_in(lost, gained))
        (known,) = ask_shares(self.cells, [question])
        known = Stretch(
            known.estimate + constant,
            known.least + constant,
            known.most + constant,
            known.errors,
        )
        answer = self._answer(asked, known, level, (-1.0, 1.0), self._notes(question), "share")
        return replace(answer, people=None, _source=self)

    def _spans(self, quantity: Quantity) -> Spans:
        if isinstance(quantity, Share) and isinstance(quantity.where, Condition):
            return quantity.where.spans
        raise ParameterError(
            "only two shares can be subtracted, not differences of further answers", where="-"
        )

    def _is_whole(self, spans: Spans) -> bool:
        return list(spans) == [(self._ends[0], math.inf)]

    def _gain(self, gained: Spans, lost: Spans) -> Functional:
        """1 for a number inside `gained`, -1 inside `lost`, 0 elsewhere; both are disjoint."""
        more, less = (self._parts(spans) for spans in (gained, lost))
        least = np.where(less > 0, -1.0, (more == 1).astype(float))
        most = np.where(more > 0, 1.0, -(less == 1).astype(float))
        spread = more * (1 - more) + less * (1 - less) + 2 * more * less
        if self.cells.partition.unit is not None:
            return Functional(more - less, spread, least, most)
        # The last cell holds the end of the range, where anyone of it may be.
        before = self._gain_at(gained, lost, np.nextafter(self._ends[1], -math.inf))
        end = self._gain_at(gained, lost, self._ends[1])
        if before == end:
            return Functional(more - less, spread, least, most)
        least[-1], most[-1] = min(least[-1], end), max(most[-1], end)
        return Functional(more - less, spread, least, most, (len(least) - 1,))

    def _gain_at(self, gained: Spans, lost: Spans, place: float) -> float:
        """The value of the function of `_gain` at one number."""
        return float(_in_spans(gained, place)) - float(_in_spans(lost, place))

    def _parts(self, spans: Spans) -> Floats:
        """The part of each cell that lies in disjoint intervals."""
        parts = np.zeros(self.cells.partition.cells)
        for low, high in spans:
            parts += inside(self.cells.partition, low, high).mean
        return np.clip(parts, 0.0, 1.0)

    def _share(self, asked: str, question: Functional, level: float) -> Answer:
        (known,) = ask_shares(self.cells, [question])
        return self._answer(asked, known, level, (0.0, 1.0), self._notes(question), "share")

    def below(self, value: float, level: float) -> Answer:
        """The share of people with a smaller number."""
        value = float(check_finite("the value", _plain(value)))
        check_between("level", level, 0, 1, ends="()")
        first, last = self._ends
        asked = f"share below {value:,.10g}"
        spans = [(first, math.inf if value > last else value)] if value > first else []
        return self.share_of(spans, level, asked)

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
        # Largest squared distance of a mean that the cells allow from the middle one.
        slack = ((mean.most - mean.least) / 2) ** 2
        estimate = known.estimate - (mean.estimate - raw) ** 2
        if self.cells.smoothed is None:
            estimate = known.estimate + noise
        square = math.sqrt(2) * max(mean.errors) ** 2
        errors = (math.hypot(known.errors[0], square), math.hypot(known.errors[1], square))
        known = Stretch(estimate, known.least + noise - slack, known.most + noise, errors)
        # The variance is largest with half of the people at each end.
        most = ((self._ends[1] - self._ends[0]) / 2) ** 2
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
        """A figure between two ends."""
        known = replace(known, estimate=float(np.clip(known.estimate, *ends)))
        estimate, (low, high) = known.estimate, known.interval_within(level, ends)
        people = estimate * self.cells.population if unit == "share" else None
        error = known.standard_error
        return Answer(asked, estimate, low, high, error, level, people, self._basis, unit, notes)


def _only_in(first: Spans, second: Spans) -> Spans:
    """The numbers in the first of two sets of intervals and not in the second."""
    ends = sorted({end for span in (*first, *second) for end in span})

    return [
        (low, high)
        for low, high in pairwise(ends)
        if _in_spans(first, low) and not _in_spans(second, low)
    ]


def _in_spans(spans: Spans, place: float) -> bool:
    return any(low <= place < high for low, high in spans)


def _plain(value: Any) -> Any:
    """A NumPy number as a Python one."""
    return value.item() if isinstance(value, np.generic) else value


def number_schema(name: str, edges: Sequence[float], unit: float | None = None) -> Schema:
    """The schema of one number: its cells as bins if an attribute allows it, else two halves."""
    ends = tuple(map(float, edges))
    if not 3 <= len(ends) <= MAX_VALUES + 1:
        ends = (ends[0], (ends[0] + ends[-1]) / 2, ends[-1])
    return Schema((Attribute(name, "numeric", edges=ends, unit=unit),))


@dataclass(frozen=True)
class NumberQuestions:
    """Questions about one number, with the interface of all releases.

    Args:
        schema: The one attribute.
        inquiry: Answers from the cells; `QuestionError` if the method keeps none.
        collected_mean: The mean, if nothing else was collected.
        edges: The bins of a table by the attribute.
    """

    schema: Schema
    inquiry: Callable[[], NumberInquiry]
    collected_mean: MeanAnswer | None
    edges: tuple[float, ...]

    @property
    def attribute(self) -> str:
        """The number's name."""
        return self.schema.names[0]

    @property
    def _unit(self) -> float | None:
        """What every number is a multiple of."""
        return partition_of(self.schema.attributes[0]).unit

    @property
    def _reader(self) -> Reader:
        units = {} if self._unit is None else {self.attribute: self._unit}
        return Reader(self.schema, units)

    def query(self, where: Where | None, given: Where | None, level: float) -> Answer:
        """The share of people whose number meets `where`."""
        self._refuse("given", given)
        asked = question_words("share", where, None)
        return self.inquiry().share_of(self._spans(where), level, asked)

    def count(self, where: Where | None, level: float) -> Answer:
        """The number of people whose number meets `where`."""
        share = self.query(where, None, level)
        return counted(share, float(self.inquiry().cells.population))

    def table(
        self,
        by: Sequence[str] | str,
        where: Where | None,
        given: Where | None,
        level: float,
        simultaneous: bool,
    ) -> AnswerTable:
        """The share of people in each bin of the first consumer, or in each cell."""
        self._refuse("where", where)
        self._refuse("given", given)
        names = [by] if isinstance(by, str) else list(by)
        for name in names:
            self._check(name)
        if len(names) != 1:
            raise ParameterError("a table needs attributes to go by, each once", where="by")
        check_between("level", level, 0, 1, ends="()")
        bins = number_schema(self.attribute, self.edges).attributes[0]
        each = level ** (1 / bins.answers) if simultaneous else level
        cells = self.inquiry().cells
        late = late_answer(cells, Consumer("bins", tuple(bins.edges)), each)
        labelled = tuple(
            replace(row, values=(label,))
            for row, label in zip(bin_rows(late, cells.population), bins.labels, strict=True)
        )
        basis: Basis = "reports" if cells.smoothed is None else "model and reports"
        return AnswerTable(
            "share", (self.attribute,), labelled, level, basis, simultaneous=simultaneous
        )

    def mean(
        self, attribute: str, where: Where | None, given: Where | None, level: float
    ) -> Answer:
        """The mean. That of the method `mean` is not cut to the range, which would bias it."""
        self._check(attribute)
        self._refuse("where", where)
        self._refuse("given", given)
        mean = self.collected_mean
        if mean is None:
            return self.inquiry().mean(level)
        low, high = mean.interval(check_between("level", level, 0, 1, ends="()"))
        error = mean.standard_error
        return Answer("mean", mean.estimate, low, high, error, level, None, "reports", "number")

    def means(
        self,
        attribute: str,
        by: Sequence[str],
        where: Where | None,
        given: Where | None,
        level: float,
    ) -> AnswerTable:
        """A release of one number has no groups; raises `QuestionError`."""
        raise QuestionError(f"a release of one number has no {', '.join(by)} to go by", where="by")

    def std(self, attribute: str, where: Where | None, given: Where | None, level: float) -> Answer:
        """The standard deviation: the root of the variance and of its interval's ends."""
        self._check(attribute)
        self._refuse("where", where)
        self._refuse("given", given)
        variance = self.inquiry().variance(level)
        deviation = math.sqrt(max(variance.estimate, 0.0))
        error = variance.standard_error
        return replace(
            variance,
            asked="standard deviation",
            estimate=deviation,
            low=None if variance.low is None else math.sqrt(variance.low),
            high=None if variance.high is None else math.sqrt(variance.high),
            standard_error=None if error is None or not deviation else error / (2 * deviation),
        )

    def corr(
        self, first: str, second: str, where: Where | None, given: Where | None, level: float
    ) -> Answer:
        """A release of one number has no pairs; raises `QuestionError`."""
        raise QuestionError(
            "a release of one number has no second attribute to correlate with", where="corr"
        )

    def quantiles(
        self,
        attribute: str,
        levels: Sequence[float],
        where: Where | None,
        given: Where | None,
        level: float,
    ) -> AnswerTable:
        """The numbers below which these shares of the people lie."""
        self._check(attribute)
        self._refuse("where", where)
        self._refuse("given", given)
        return self.inquiry().quantiles(levels, level)

    def _check(self, attribute: str) -> None:
        self._reader.attribute(attribute)

    def _refuse(self, part: str, asked: Where | None) -> None:
        if asked is not None:
            raise QuestionError(
                f"a release of one number answers about all participants, without {part}; "
                f"ask for a share such as {self.attribute} >= {self.edges[0]:g} with query",
                where=part,
            )

    def _spans(self, where: Where | None) -> Spans:
        """The numbers within the range that meet a question."""
        node = self._reader.read(where)
        attribute = self.schema.attributes[0]
        first, last = float(attribute.edges[0]), float(attribute.edges[-1])
        ends = {first, last}
        for condition in conditions(node):
            spans = self._ends(condition)
            ends |= {end for span in spans for end in span if first < end < last}
        met: list[tuple[float, float]] = []
        # Beyond the last edge of a unit's cells there is no number.
        beyond = [] if self._unit is not None else [math.inf]
        for low, high in pairwise([*sorted(ends), *beyond]):
            if not self._holds(node, low):
                continue
            end = math.inf if high == last and self._unit is not None else high
            if met and met[-1][1] == low:
                met[-1] = (met[-1][0], end)
            else:
                met.append((low, end))
        return met

    def _ends(self, condition: Condition) -> Spans:
        """The numbers of a condition; its spans count in units if there is one."""
        attribute, unit = self.schema.attributes[0], self._unit or 1.0
        spans = [(low * unit, high * unit) for low, high in condition.spans]
        return [*spans, *(_bin(attribute, code) for code in condition.codes)]

    def _holds(self, node: Node, number: float) -> bool:
        """Whether a number fulfils a question."""
        if isinstance(node, Constant):
            return node.value
        if isinstance(node, Condition):
            return any(low <= number < high for low, high in self._ends(node))
        if isinstance(node, Not):
            return not self._holds(node.part, number)
        parts = [self._holds(part, number) for part in node.parts]
        return all(parts) if isinstance(node, All) else any(parts)


def bin_rows(late: LateAnswer, people: float) -> list[AnswerRow]:
    """The share of people in each bin, the values being its ends."""
    low, high = late.interval()
    rows = []
    for i, ends in enumerate(pairwise(late.edges.tolist())):
        count, error = float(late.estimates[i]), float(late.standard_errors[i])
        least, most = float(low[i]), float(high[i])
        rows.append(AnswerRow(ends, count / people, least / people, most / people, error / people))
    return rows


def _bin(attribute: Attribute, code: int) -> tuple[float, float]:
    """The ends of a bin; the last one includes its upper end."""
    last = code + 2 == len(attribute.edges)
    return float(attribute.edges[code]), math.inf if last else float(attribute.edges[code + 1])
