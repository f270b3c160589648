"""A mechanism made for given queries: each output favours a set of cells, by exactly the ratio that epsilon allows.

Of 2^threshold_bits draws, output o has `high[o]` in the cells of its set and `low[o]` in all others; what rounding
leaves of a cell's draws goes to one last output, `rest`. The guarantee is the largest ratio within any output, in
rational arithmetic. That outputs with just two levels are enough for the best accuracy is Kairouz, Oh, Viswanath,
JMLR 2016, theorem 2; which sets to take and how often is `design.py`. Standard library only at import time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.mechanism import ByteSource, PackedReports, check_cells, check_length, check_value
from dither.mechanisms.probability import DRAW_WIDTHS, THRESHOLD_BITS, check_epsilon, exp_down, log_up

if TYPE_CHECKING:
    import numpy as np

    from dither.mechanisms.kernels.stream import RandomStream
    from dither.types import Codes, Counts, Floats, Integers


@dataclass(frozen=True)
class Strategy:
    """Sets of cells as bit masks, their draws inside and outside, and the draws of the last output in each cell."""

    cells: int
    sets: tuple[int, ...]
    high: tuple[int, ...]
    low: tuple[int, ...]
    rest: tuple[int, ...]
    threshold_bits: int = THRESHOLD_BITS
    name = "strategy"

    def __post_init__(self) -> None:
        check_cells(self.cells)
        if self.threshold_bits not in DRAW_WIDTHS:
            raise ParameterError(f"draws of {self.threshold_bits!r} bits are not supported", where="threshold_bits")
        numbers = (*self.sets, *self.high, *self.low, *self.rest)
        if not self.sets or any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
            raise ParameterError("a strategy needs at least one set, and whole numbers", where="sets")
        if not len(self.sets) == len(self.high) == len(self.low) or len(self.rest) != self.cells:
            raise ParameterError("a strategy needs a set, a high and a low for each output, and a rest for each cell")
        if min(self.sets) < 0 or max(self.sets) >> self.cells:
            raise ParameterError(f"a strategy's sets must lie within its {self.cells} cells", where="sets")
        least = min(*self.high, *self.low, *self.rest)
        if least < 1:
            raise PrivacyError("an output that some value can never give would reveal it", value=least)
        for cell in range(self.cells):
            if sum(self.column(cell)) != 2**self.threshold_bits:
                raise PrivacyError(f"the draws of cell {cell} do not add up to 2^{self.threshold_bits}", value=cell)

    @classmethod
    def for_epsilon(
        cls,
        cells: int,
        sets: Sequence[int],
        weights: Sequence[float],
        epsilon: float,
        threshold_bits: int = THRESHOLD_BITS,
    ) -> Strategy:
        """Integers for outputs of probability `weights` outside and e^epsilon times that inside, rounded towards
        privacy.

        A small share of all draws is set aside for the last output, just enough to take up what rounding leaves while
        its own ratio stays within e^epsilon. Outputs too rare for a single draw are left out.
        """
        ratio = exp_down(check_epsilon(epsilon))
        total = 2**threshold_bits
        aside = Fraction(1, 2**20)
        while aside < Fraction(1, 4):
            low = [int(Fraction(w) * total * (1 - aside)) for w in weights]
            kept = [i for i, draws in enumerate(low) if draws >= 1]
            high = [int(low[i] * ratio) for i in kept]
            chosen, outside = tuple(sets[i] for i in kept), tuple(low[i] for i in kept)
            rest = tuple(total - sum(column) for column in _columns(cells, chosen, high, outside))
            if min(rest) >= 1 and max(rest) <= min(rest) * ratio:
                return cls(cells, chosen, tuple(high), outside, rest, threshold_bits)
            aside *= 2
        raise PrivacyError(
            f"this strategy cannot be drawn from 2^{threshold_bits} numbers at epsilon {epsilon}", value=epsilon
        )

    def column(self, cell: int) -> list[int]:
        """The draws of every output for a person in this cell."""
        inside = zip(self.sets, self.high, self.low, strict=True)
        return [high if mask >> cell & 1 else low for mask, high, low in inside] + [self.rest[cell]]

    @property
    def counters(self) -> int:
        """How many outputs there are."""
        return len(self.sets) + 1

    @cached_property
    def epsilon(self) -> float:
        """Exact from the integers, rounded up."""
        full = (1 << self.cells) - 1
        ratios = [
            Fraction(max(high, low), min(high, low))
            for mask, high, low in zip(self.sets, self.high, self.low, strict=True)
            if mask not in (0, full)
        ]
        return log_up(max([*ratios, Fraction(max(self.rest), min(self.rest))]))

    @property
    def report_bytes(self) -> int:
        return (self.report_bits + 7) // 8

    @property
    def report_bits(self) -> int:
        """The length of an output's number."""
        return (self.counters - 1).bit_length()

    @property
    def draw_bytes(self) -> int:
        return self.threshold_bits // 8

    def randomise(self, value: int, source: ByteSource) -> bytes:
        """The report of one participant."""
        check_value(value, self.cells)
        draw = int.from_bytes(source(self.draw_bytes), "little")
        output = bisect_right(list(accumulate(self.column(value))), draw)
        return output.to_bytes(self.report_bytes, "little")

    def law(self, value: int) -> dict[bytes, Fraction]:
        """The exact probability of every report of this value."""
        check_value(value, self.cells)
        return {
            output.to_bytes(self.report_bytes, "little"): Fraction(draws, 2**self.threshold_bits)
            for output, draws in enumerate(self.column(value))
        }

    def check_report(self, report: bytes) -> None:
        """Raise `ReportError` unless some value can produce these bytes."""
        check_length(report, self.report_bytes)
        output = int.from_bytes(report, "little")
        if output >= self.counters:
            raise ReportError(f"output {output} is outside 0..{self.counters - 1}", value=output)

    @cached_property
    def matrix(self) -> Integers:
        """Draws of each output (rows) in each cell (columns)."""
        import numpy as np

        return np.array([self.column(cell) for cell in range(self.cells)], dtype=np.int64).T

    def randomise_many(self, values: Codes, stream: RandomStream) -> PackedReports:
        """The reports of many simulated participants, draw for draw as on a device."""
        import numpy as np

        from dither.mechanisms.kernels.strategy import look_up
        from dither.mechanisms.kernels.stream import check_values, uniform_draws

        truth = check_values(values, self.cells)
        ends = np.ascontiguousarray(np.cumsum(self.matrix, axis=0).T)
        outputs = np.empty(len(truth), np.uint32)
        look_up(truth, uniform_draws(stream, len(truth), self.threshold_bits), ends, outputs)
        raw = outputs.astype("<u4").view(np.uint8).reshape(-1, 4)
        return PackedReports(np.ascontiguousarray(raw[:, : self.report_bytes]))

    def support(self, reports: PackedReports) -> Counts:
        """How many reports gave each output."""
        import numpy as np

        from dither.mechanisms.kernels.stream import check_counts

        outputs = np.zeros(len(reports), np.int64)
        for i in range(self.report_bytes):
            outputs |= reports.rows[:, i].astype(np.int64) << (8 * i)
        return check_counts(np.bincount(outputs, minlength=self.counters), self.counters)

    def simulate(self, true_counts: Counts, rng: np.random.Generator) -> Counts:
        """The same law without people: one multinomial a cell."""
        import numpy as np

        chances = self.matrix.T / 2.0**self.threshold_bits
        return np.asarray(rng.multinomial(np.asarray(true_counts), chances).sum(axis=0), dtype=np.int64)

    def decoder(self, counts_for: Floats | None = None) -> Floats:
        """What one report of each output adds to each cell's estimated count: unbiased on any data, and of least
        variance when cells are as frequent as they count (McKenna, Maity, Mazumdar, Miklau, VLDB 2020, theorem 3.2).
        """
        import numpy as np

        chances = self.matrix / 2.0**self.threshold_bits
        average = chances.sum(axis=1) if counts_for is None else chances @ counts_for
        scaled = chances / average[:, None]
        return np.asarray(np.linalg.solve(chances.T @ scaled, scaled.T), dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        """The integers from which a device rebuilds the mechanism."""
        return {
            "name": self.name,
            "cells": self.cells,
            "sets": [format(mask, "x") for mask in self.sets],
            "high": list(self.high),
            "low": list(self.low),
            "rest": list(self.rest),
            "threshold_bits": self.threshold_bits,
        }


def strategy_from_json(data: dict[str, Any]) -> Strategy:
    """Rebuild a strategy from its integers; its epsilon is computed anew from them."""
    try:
        sets = tuple(int(text, 16) for text in data["sets"])
        high, low, rest = (tuple(data[key]) for key in ("high", "low", "rest"))
        return Strategy(data["cells"], sets, high, low, rest, data["threshold_bits"])
    except (KeyError, TypeError, ValueError):
        raise ReportError("not a strategy this version knows", value=data.get("name")) from None


def _columns(cells: int, sets: Sequence[int], high: Sequence[int], low: Sequence[int]) -> list[list[int]]:
    return [
        [h if mask >> cell & 1 else lo for mask, h, lo in zip(sets, high, low, strict=True)] for cell in range(cells)
    ]
