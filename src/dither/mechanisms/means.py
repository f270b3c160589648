"""Means of numbers in [-1, 1]: Duchi's two-point mechanism, the piecewise one and the hybrid.

A value is first rounded at random to a level of a fixed grid, without bias. The level's
report is drawn by integer thresholds. `numbers_in` turns a report into a number whose mean
is the level exactly; it may lie outside [-1, 1].

Privacy: rounding mixes the laws of two levels, which cannot raise a likelihood ratio. The
guarantee is therefore that between levels, computed in rational arithmetic. The number of
random bytes does not depend on the value.

References: Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private
estimation", JASA 2018; Wang et al., "Collecting and analyzing multidimensional data with
local differential privacy", ICDE 2019 (PM, algorithm 2; HM, eq. 8).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from dither.checks import check_between, check_choice, check_whole
from dither.errors import ParameterError, ReportError
from dither.mechanisms.base import ByteSource, Randomiser, Whole
from dither.mechanisms.outputs import Window
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down

# Below this epsilon the hybrid is Duchi's mechanism alone (Wang et al., eq. 8).
HYBRID_FROM = 0.61


@dataclass(frozen=True)
class MeanEstimate:
    """An unbiased mean; its standard error covers the noise and the spread of the values."""

    mean: float
    standard_error: float
    n: int


@dataclass(frozen=True)
class MeanMechanism(Randomiser):
    """A randomiser of one number in [-1, 1] per attribute, for the attributes' means."""

    if TYPE_CHECKING:

        @property
        def attributes(self) -> int: ...
        @property
        def levels(self) -> int:
            """The number of levels, evenly spaced from -1 to 1, of the grid."""

    @abstractmethod
    def report(self, values: Sequence[float], data: bytes) -> bytes:
        """The report of numbers in range, from exactly `draw_bytes` random bytes."""

    @abstractmethod
    def law(self, levels: Sequence[int]) -> dict[bytes, Fraction]:
        """The exact probability of every report for numbers on these levels."""

    @abstractmethod
    def numbers_in(self, report: bytes) -> tuple[Fraction | None, ...]:
        """The unbiased number of each attribute; None if the report does not cover it."""

    @property
    @abstractmethod
    def worst_variance(self) -> float:
        """The largest variance of an attribute's mean over all values, times n."""

    def randomise(self, values: Sequence[float], source: ByteSource) -> bytes:
        """Draw the report of one participant.

        Args:
            values: One number in [-1, 1] per attribute.
            source: Called once, with `draw_bytes`.
        """
        if len(values) != self.attributes:
            raise ParameterError(
                f"{self.attributes} values are needed, not {len(values)}",
                where="values",
                value=len(values),
            )
        for place, value in enumerate(values):
            check_between(f"values[{place}]", value, -1, 1)
        return self.report(values, source(self.draw_bytes))


def round_to_level(value: float, levels: int, draw: int, bits: int) -> int:
    """Round to a neighbouring level; its mean is the value to within 2^-bits of a step.

    The guarantee does not depend on it.
    """
    place = (value + 1) / 2 * (levels - 1)
    level = min(int(place), levels - 2)
    return level + (draw < round((place - level) * (1 << bits)))


@dataclass(frozen=True)
class GridMean(MeanMechanism):
    """One attribute: a report is one of `outputs` outputs, drawn given the level."""

    attributes: ClassVar[int] = 1
    # Draws of threshold_bits for an output, in addition to the one for rounding.
    draws: ClassVar[int] = 1

    if TYPE_CHECKING:

        @property
        def outputs(self) -> int: ...

    @abstractmethod
    def output(self, level: Whole, draws: Sequence[Whole]) -> Whole:
        """The output that the draws lead to, for one participant or an array."""

    @abstractmethod
    def probabilities(self, level: int) -> list[Fraction]:
        """The exact probability of every output."""

    @abstractmethod
    def value_of(self, output: int) -> Fraction:
        """The unbiased number for an output."""

    @property
    def report_limit(self) -> int:
        return self.outputs

    @property
    def draw_bytes(self) -> int:
        return (1 + self.draws) * self.threshold_bits // 8

    def report(self, values: Sequence[float], data: bytes) -> bytes:
        step = self.threshold_bits // 8
        draws = [int.from_bytes(data[i : i + step], "little") for i in range(0, len(data), step)]
        level = round_to_level(values[0], self.levels, draws[0], self.threshold_bits)
        return self.output(level, draws[1:]).to_bytes(self.report_bytes, "little")

    def law(self, levels: Sequence[int]) -> dict[bytes, Fraction]:
        probabilities = enumerate(self.probabilities(levels[0]))
        return {
            output.to_bytes(self.report_bytes, "little"): probability
            for output, probability in probabilities
            if probability
        }

    def numbers_in(self, report: bytes) -> tuple[Fraction | None, ...]:
        return (self.value_of(int.from_bytes(report, "little")),)

    @cached_property
    def worst_variance(self) -> float:
        """The largest variance of one report over the levels, in floating point."""
        values = [float(self.value_of(output)) for output in range(self.outputs)]
        worst = 0.0
        for level in {0, self.levels // 4, self.levels // 2, self.levels - 1}:
            law = [float(x) for x in self.probabilities(level)]
            mean = sum(x * v for x, v in zip(law, values, strict=True))
            worst = max(worst, sum(x * (v - mean) ** 2 for x, v in zip(law, values, strict=True)))
        return worst


@dataclass(frozen=True)
class Duchi(GridMean):
    """Duchi's mechanism: two outputs.

    The upper output has `step` more draws for each level, so its probability is exactly
    linear in the level and symmetric about one half. Epsilon is the logarithm of the ratio
    of its probabilities at the two ends.

    Args:
        levels: The number of levels of the grid.
        step: Additional draws of the upper output per level.
        threshold_bits: Bits of one draw.
    """

    levels: int
    step: int
    threshold_bits: int = THRESHOLD_BITS
    name = "duchi"
    outputs = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("levels", self.levels, 2)
        self.require(self.step >= 1 and self.lowest >= 1 and self.step * (self.levels - 1) % 2 == 0)

    @classmethod
    def for_epsilon(
        cls, epsilon: float, levels: int = 2**16 + 1, threshold_bits: int = THRESHOLD_BITS
    ) -> Duchi:
        """The steepest line with at most this epsilon."""
        least = ceil_fraction((1 << threshold_bits) / (exp_down(check_epsilon(epsilon)) + 1))
        return cls(levels, ((1 << threshold_bits) - 2 * least) // (levels - 1), threshold_bits)

    @property
    def lowest(self) -> int:
        """Draws of the upper output at level 0, and of the lower one at the top level."""
        return ((1 << self.threshold_bits) - self.step * (self.levels - 1)) // 2

    @property
    def ratio(self) -> Fraction:
        return Fraction((1 << self.threshold_bits) - self.lowest, self.lowest)

    def output(self, level: Whole, draws: Sequence[Whole]) -> Whole:
        return 1 * (draws[0] < self.lowest + self.step * level)

    def probabilities(self, level: int) -> list[Fraction]:
        upper = Fraction(self.lowest + self.step * level, 1 << self.threshold_bits)
        return [1 - upper, upper]

    def value_of(self, output: int) -> Fraction:
        reach = Fraction(1 << self.threshold_bits, self.step * (self.levels - 1))
        return reach if output else -reach


@dataclass(frozen=True)
class Piecewise(GridMean):
    """The piecewise mechanism (PM): a window of outputs that slides with the level.

    Epsilon is the logarithm of the window's peak/base.

    Args:
        levels: The number of levels of the grid.
        width: The number of favoured outputs.
        base: Draws of an output outside the window.
        threshold_bits: Bits of one draw.
    """

    levels: int
    width: int
    base: int
    threshold_bits: int = THRESHOLD_BITS
    name = "piecewise"

    def __post_init__(self) -> None:
        super().__post_init__()
        # Building the window rejects parameters that cannot be drawn.
        self.window  # noqa: B018

    @classmethod
    def for_epsilon(
        cls, epsilon: float, levels: int = 2**12 + 1, threshold_bits: int = THRESHOLD_BITS
    ) -> Piecewise:
        """PM for epsilon.

        PM's window is C-1 wide of 2C, C = (e^(eps/2)+1)/(e^(eps/2)-1): on a grid e^(-eps/2)
        of the levels' span.
        """
        width = max(1, round((levels - 1) * math.exp(-check_epsilon(epsilon) / 2)))
        base = Window.for_epsilon(levels, width, epsilon, threshold_bits).base
        return cls(levels, width, base, threshold_bits)

    @cached_property
    def window(self) -> Window:
        """The window that slides with the level."""
        return Window(self.levels, self.width, self.base, self.threshold_bits)

    @property
    def outputs(self) -> int:
        return self.window.outputs

    @property
    def ratio(self) -> Fraction:
        return self.window.ratio

    def output(self, level: Whole, draws: Sequence[Whole]) -> Whole:
        return self.window.output(level, draws[0])

    def probabilities(self, level: int) -> list[Fraction]:
        return [Fraction(draws, 1 << self.threshold_bits) for draws in self.window.column(level)]

    def value_of(self, output: int) -> Fraction:
        intercept, slope = self.window.line
        return 2 * (output - intercept) / (slope * (self.levels - 1)) - 1


@dataclass(frozen=True)
class Hybrid(GridMean):
    """The hybrid mechanism (HM): a coin chooses between PM and Duchi's mechanism.

    The coin is independent of the value and the output shows its result, so epsilon is the
    larger one of the two mechanisms.

    Args:
        levels: The number of levels of the grid.
        width: The width of PM's window.
        base: Draws of an output outside PM's window.
        step: Additional draws of Duchi's upper output per level.
        coin: Of 2^threshold_bits draws, the number that choose PM.
        threshold_bits: Bits of one draw.
    """

    levels: int
    width: int
    base: int
    step: int
    coin: int
    threshold_bits: int = THRESHOLD_BITS
    name = "hybrid"
    draws = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("coin", self.coin, 0, 2**self.threshold_bits - 1)
        # Building both parts rejects parameters that cannot be drawn.
        self.piecewise, self.duchi  # noqa: B018

    @classmethod
    def for_epsilon(
        cls, epsilon: float, levels: int = 2**12 + 1, threshold_bits: int = THRESHOLD_BITS
    ) -> Hybrid:
        """PM with probability 1 - e^(-eps/2) if epsilon is above 0.61, else Duchi only."""
        share = 1 - math.exp(-check_epsilon(epsilon) / 2) if epsilon > HYBRID_FROM else 0.0
        fine = Piecewise.for_epsilon(epsilon, levels, threshold_bits)
        step = Duchi.for_epsilon(epsilon, levels, threshold_bits).step
        coin = min(int(share * (1 << threshold_bits)), 2**threshold_bits - 1)
        return cls(levels, fine.width, fine.base, step, coin, threshold_bits)

    @cached_property
    def piecewise(self) -> Piecewise:
        """PM, whose outputs come first."""
        return Piecewise(self.levels, self.width, self.base, self.threshold_bits)

    @cached_property
    def duchi(self) -> Duchi:
        """Duchi's mechanism, with the last two outputs."""
        return Duchi(self.levels, self.step, self.threshold_bits)

    @property
    def outputs(self) -> int:
        return self.piecewise.outputs + 2

    @property
    def ratio(self) -> Fraction:
        return max(self.piecewise.ratio, self.duchi.ratio) if self.coin else self.duchi.ratio

    def check_report(self, report: bytes) -> None:
        super().check_report(report)
        if not self.coin and int.from_bytes(report, "little") < self.piecewise.outputs:
            raise ReportError(
                "this hybrid never produces an output of its piecewise part", value=report
            )

    def output(self, level: Whole, draws: Sequence[Whole]) -> Whole:
        fine = self.piecewise.output(level, draws[1:])
        coarse = self.duchi.output(level, draws[1:]) + self.piecewise.outputs
        return coarse + (draws[0] < self.coin) * (fine - coarse)

    def probabilities(self, level: int) -> list[Fraction]:
        share = Fraction(self.coin, 1 << self.threshold_bits)
        return [share * x for x in self.piecewise.probabilities(level)] + [
            (1 - share) * x for x in self.duchi.probabilities(level)
        ]

    def value_of(self, output: int) -> Fraction:
        fine = self.piecewise.outputs
        if output < fine:
            return self.piecewise.value_of(output)
        return self.duchi.value_of(output - fine)


GRIDS: dict[str, type[Duchi | Piecewise | Hybrid]] = {
    grid.name: grid for grid in (Duchi, Piecewise, Hybrid)
}


def mean_mechanism(name: str, epsilon: float) -> GridMean:
    """A mechanism for the mean of one attribute, by name."""
    return GRIDS[check_choice("mechanism", name, GRIDS)].for_epsilon(epsilon)
