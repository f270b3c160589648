"""Mechanisms whose report is the number of one output, each cell with its own draws of every output.

Everything follows from the table of draws: the law, the estimate of least variance that is unbiased on any data (`decoder`),
the exact variance of any sum of cells, and what a forged report can do. Standard library only at import time.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from dither.errors import ParameterError, PrivacyError
from dither.mechanisms.base import Mechanism, Whole, batch_code
from dither.mechanisms.probability import (
    THRESHOLD_BITS,
    ceil_fraction,
    check_epsilon,
    check_whole_numbers,
    exp_down,
)

if TYPE_CHECKING:
    from dither.types import Floats


@dataclass(frozen=True)
class OutputMechanism(Mechanism):
    """`column(cell)` has the draws, of 2^threshold_bits, that lead a participant of this cell to each of the outputs."""

    @abstractmethod
    def column(self, cell: int) -> list[int]:
        """The draws of every output for a participant in this cell."""

    @property
    @abstractmethod
    def counters(self) -> int:
        """How many outputs there are."""

    @property
    def report_limit(self) -> int:
        return self.counters

    def report(self, value: int, data: bytes) -> int:
        return bisect_right(list(accumulate(self.column(value))), int.from_bytes(data, "little"))

    def chances(self, value: int) -> dict[int, Fraction]:
        return {
            output: Fraction(draws, 2**self.threshold_bits)
            for output, draws in enumerate(self.column(value))
        }

    @cached_property
    def chance_table(self) -> Floats:
        """The chance of each output (rows) in each cell (columns)."""
        return batch_code().outputs.chance_table(self)

    def decoder(self, counts_for: Floats | None = None) -> Floats:
        """What one report of each output adds to each cell's estimated count: unbiased on any data, and of least
        variance when cells are as frequent as they count (McKenna, Maity, Mazumdar, Miklau, VLDB 2020, theorem 3.2).
        """
        return batch_code().outputs.decoder(self, counts_for)

    @cached_property
    def even_decoder(self) -> Floats:
        """The decoder for cells that are equally frequent."""
        return self.decoder()

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """The mean over all groups of this size, participants spread evenly over the cells inside and outside."""
        return batch_code().outputs.group_variance(self, size, frequency, n)

    def weighted_variance(self, weights: Floats, frequencies: Floats, n: int) -> float:
        decoded = weights @ self.even_decoder
        return float((decoded**2 @ self.chance_table - weights**2) @ frequencies / n)

    def forged_range(self, targeted: int | Sequence[int]) -> tuple[float, float]:
        return batch_code().outputs.forged_range(self, targeted)

    def tells(self, first: int, second: int) -> Callable[[bytes], bool]:
        ratios = [
            Fraction(a, b) for a, b in zip(self.column(first), self.column(second), strict=True)
        ]
        return lambda report: ratios[int.from_bytes(report, "little")] == max(ratios)


@dataclass(frozen=True)
class Window:
    """A sliding window over a grid of outputs: the exact core of the piecewise mechanism and of the square wave.

    Input levels 0..levels-1; level i favours the outputs i..i+width-1 of levels+width-1. Of 2^threshold_bits draws each
    favoured output has `peak`, any other `base`; what division leaves over (fewer than width draws) goes to the middle
    output whatever the level, which adds the same to both sides of its ratio and so cannot raise it. The mean output is
    exactly affine in the level.
    """

    levels: int
    width: int
    base: int
    threshold_bits: int = THRESHOLD_BITS

    def __post_init__(self) -> None:
        check_whole_numbers(self)
        if self.levels < 2 or self.width < 1:
            raise ParameterError(
                f"a window needs two levels and a width of 1, not {self.levels} and {self.width}",
                where="levels",
            )
        if not 1 <= self.base < self.peak:
            raise PrivacyError(
                f"a window of {self.width} of {self.outputs} outputs cannot be drawn from 2^{self.threshold_bits} "
                "numbers at this epsilon; raise epsilon or use a coarser grid",
                value=self.base,
            )

    @classmethod
    def for_epsilon(
        cls, levels: int, width: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS
    ) -> Window:
        """The thresholds that keep epsilon: base rounded up, so peak/base is at most e^epsilon."""
        ratio = exp_down(check_epsilon(epsilon))
        return cls(
            levels,
            width,
            ceil_fraction(2**threshold_bits / (width * ratio + levels - 1)),
            threshold_bits,
        )

    @property
    def outputs(self) -> int:
        """How many outputs there are."""
        return self.levels + self.width - 1

    @cached_property
    def peak(self) -> int:
        """Draws of each output inside the window."""
        return (2**self.threshold_bits - (self.levels - 1) * self.base) // self.width

    @property
    def middle(self) -> int:
        """The output that takes the draws left over."""
        return (self.outputs - 1) // 2

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of an output's draws at two levels."""
        return Fraction(self.peak, self.base)

    def column(self, level: int) -> list[int]:
        """The draws of every output."""
        out = [self.base] * self.outputs
        for output in range(level, level + self.width):
            out[output] = self.peak
        out[self.middle] += (
            2**self.threshold_bits - self.width * self.peak - (self.levels - 1) * self.base
        )
        return out

    def output(self, level: Whole, draw: Whole) -> Whole:
        """The output that a draw leads to, for one person or many."""
        place = (draw - self.width * self.peak) // self.base
        other = place + self.width * (place >= level)
        other = other + (place >= self.levels - 1) * (self.middle - other)
        return other + (draw < self.width * self.peak) * (level + draw // self.peak - other)

    @cached_property
    def line(self) -> tuple[Fraction, Fraction]:
        """Intercept and slope of the mean output over the level, exact."""
        total, outputs, width = 2**self.threshold_bits, self.outputs, self.width
        spare = total - width * self.peak - (self.levels - 1) * self.base
        extra = self.peak - self.base
        at_zero = (
            self.base * outputs * (outputs - 1) // 2
            + extra * width * (width - 1) // 2
            + spare * self.middle
        )
        return Fraction(at_zero, total), Fraction(extra * width, total)
