"""Mechanisms whose report is one of a table of outputs.

Each cell has a number of draws for every output. The table determines the law, the
unbiased estimate of least variance (`decoder`), the exact variance of any sum of cells,
and the effect of a forged report. Importing this module needs the standard library only;
the matrices need NumPy.
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
from dither.mechanisms.base import Mechanism, Whole, load_numpy
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
    """A report is the number of one output.

    `column(cell)` has the draws, of 2^threshold_bits, that lead a participant of this cell
    to each output. Epsilon is the logarithm of the largest ratio within a row of the table.
    """

    @abstractmethod
    def column(self, cell: int) -> list[int]:
        """The number of draws of every output for a participant in this cell."""

    @property
    @abstractmethod
    def counters(self) -> int:
        """The number of outputs."""

    @property
    def report_limit(self) -> int:
        return self.counters

    def report(self, value: int, data: bytes) -> int:
        return bisect_right(list(accumulate(self.column(value))), int.from_bytes(data, "little"))

    def probabilities(self, value: int) -> dict[int, Fraction]:
        return {
            output: Fraction(draws, 1 << self.threshold_bits)
            for output, draws in enumerate(self.column(value))
        }

    @cached_property
    def probability_table(self) -> Floats:
        """The probability of each output (rows) in each cell (columns)."""
        np = load_numpy()
        draws = np.array([self.column(cell) for cell in range(self.cells)], dtype=np.int64)
        table: Floats = np.asarray(draws.T / 2.0**self.threshold_bits)
        return table

    def decoder(self, frequencies: Floats | None = None) -> Floats:
        """The unbiased linear estimator of least variance at given frequencies.

        Args:
            frequencies: The cells' relative frequencies at which the variance is least;
                equal ones by default.

        Returns:
            A matrix, cells x outputs: what one report of each output adds to each cell's
            estimated count (McKenna, Maity, Mazumdar, Miklau, VLDB 2020, theorem 3.2).
        """
        np = load_numpy()
        table = self.probability_table
        average = table.sum(axis=1) if frequencies is None else table @ frequencies
        scaled = table / average[:, None]
        decoder: Floats = np.asarray(np.linalg.solve(table.T @ scaled, scaled.T), dtype=np.float64)
        return decoder

    @cached_property
    def even_decoder(self) -> Floats:
        """The decoder for equally frequent cells."""
        return self.decoder()

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """The mean over all groups of this size.

        Participants are spread evenly over the cells inside the group and over those
        outside. A participant of cell c has the covariance V_c of what the report adds. Its
        mean over the groups that hold c, or do not, follows from four sums of V_c: the cell
        itself, the cell with others, others alone, others in pairs.
        """
        np = load_numpy()
        k, decoder = self.cells, self.even_decoder
        inside = outside = 0.0
        for cell, probabilities in enumerate(self.probability_table.T):
            spread = (decoder * probabilities) @ decoder.T
            spread[cell, cell] -= 1.0
            true_cell = spread[cell, cell]
            cross = spread[cell].sum() - true_cell
            alone = np.trace(spread) - true_cell
            pairs = spread.sum() - true_cell - 2 * cross - alone
            held = (size - 1) / (k - 1)
            inside += true_cell + held * (2 * cross + alone) + _both_drawn(size - 1, k - 1) * pairs
            others = min(size, k - 1)
            outside += others / (k - 1) * alone + _both_drawn(others, k - 1) * pairs
        return float(frequency * inside + (1 - frequency) * outside) / (k * n)

    def weighted_variance(self, weights: Floats, frequencies: Floats, n: int) -> float:
        decoded = weights @ self.even_decoder
        return float((decoded**2 @ self.probability_table - weights**2) @ frequencies / n)

    def forged_range(self, targeted: int | Sequence[int]) -> tuple[float, float]:
        np = load_numpy()
        decoder = self.even_decoder
        if isinstance(targeted, int):
            ordered = np.sort(decoder, axis=0)
            least = ordered[:targeted].sum(axis=0).min()
            most = ordered[-targeted:].sum(axis=0).max()
            return float(least), float(most)
        sums = decoder[list(targeted)].sum(axis=0)
        return float(sums.min()), float(sums.max())

    def distinguishing_event(self, first: int, second: int) -> Callable[[bytes], bool]:
        ratios = [
            Fraction(a, b) for a, b in zip(self.column(first), self.column(second), strict=True)
        ]
        return lambda report: ratios[int.from_bytes(report, "little")] == max(ratios)


def _both_drawn(drawn: int, total: int) -> float:
    """The probability that two given items of `total` are both among `drawn`."""
    return drawn * (drawn - 1) / (total * (total - 1)) if total > 1 else 0.0


@dataclass(frozen=True)
class Window:
    """A sliding window over a grid of outputs, for the piecewise mechanism and square wave.

    Input levels are 0..levels-1; level i favours the outputs i..i+width-1 of
    levels+width-1. Of 2^threshold_bits draws each favoured output has `peak`, any other
    `base`. The remainder of the division (fewer than width draws) goes to the middle
    output at every level: it adds the same to both sides of a ratio and cannot raise it, so
    the largest ratio is peak/base. The mean output is exactly affine in the level.

    Args:
        levels: The number of input levels, at least 2.
        width: The number of favoured outputs, at least 1.
        base: Draws of an output outside the window.
        threshold_bits: Bits of one draw.
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
                f"a window of {self.width} of {self.outputs} outputs cannot be drawn from "
                f"2^{self.threshold_bits} numbers at this epsilon; raise epsilon or use a "
                "coarser grid",
                value=self.base,
            )

    @classmethod
    def for_epsilon(
        cls, levels: int, width: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS
    ) -> Window:
        """The thresholds for epsilon: base is rounded up, so peak/base <= e^epsilon."""
        ratio = exp_down(check_epsilon(epsilon))
        base = ceil_fraction((1 << threshold_bits) / (width * ratio + levels - 1))
        return cls(levels, width, base, threshold_bits)

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return self.levels + self.width - 1

    @cached_property
    def peak(self) -> int:
        """Draws of each output inside the window."""
        return ((1 << self.threshold_bits) - (self.levels - 1) * self.base) // self.width

    @property
    def middle(self) -> int:
        """The output that takes the remaining draws."""
        return (self.outputs - 1) // 2

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of an output's draws at two levels."""
        return Fraction(self.peak, self.base)

    def column(self, level: int) -> list[int]:
        """The number of draws of every output at a level."""
        out = [self.base] * self.outputs
        for output in range(level, level + self.width):
            out[output] = self.peak
        out[self.middle] += (
            (1 << self.threshold_bits) - self.width * self.peak - (self.levels - 1) * self.base
        )
        return out

    def output(self, level: Whole, draw: Whole) -> Whole:
        """The output that a draw leads to, for one participant or an array."""
        place = (draw - self.width * self.peak) // self.base
        other = place + self.width * (place >= level)
        other = other + (place >= self.levels - 1) * (self.middle - other)
        output: Whole = other + (draw < self.width * self.peak) * (
            level + draw // self.peak - other
        )
        return output

    @cached_property
    def line(self) -> tuple[Fraction, Fraction]:
        """Intercept and slope of the mean output over the level, exact."""
        total, outputs, width = (1 << self.threshold_bits), self.outputs, self.width
        spare = total - width * self.peak - (self.levels - 1) * self.base
        extra = self.peak - self.base
        at_zero = (
            self.base * outputs * (outputs - 1) // 2
            + extra * width * (width - 1) // 2
            + spare * self.middle
        )
        return Fraction(at_zero, total), Fraction(extra * width, total)
