"""Means of numbers in [-1, 1]: Duchi's two-point mechanism, the piecewise one and the hybrid of both, on fixed grids.

References: Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private estimation", JASA 2018; Wang et
al., "Collecting and analyzing multidimensional data with local differential privacy", ICDE 2019 (PM, algorithm 2; HM,
eq. 8).

A value is first rounded at random to one of the grid's levels, without bias; the level's report is drawn by
whole-number thresholds. Mixing levels cannot raise a likelihood ratio, so the guarantee is that between levels,
computed in rational arithmetic. `numbers_in` turns a report into a number whose mean is the level exactly; it may lie outside
[-1, 1]. The number of random bytes does not depend on the value. Standard library only at import time.
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
from dither.mechanisms.base import ByteSource, PackedReports, Randomiser, Whole, batch_code
from dither.mechanisms.outputs import Window
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down

if TYPE_CHECKING:
    from dither.types import Floats

HYBRID_FROM = 0.61  # below this epsilon the hybrid is Duchi's mechanism alone (Wang et al., eq. 8)


@dataclass(frozen=True)
class MeanEstimate:
    """An unbiased mean with the standard error that the reports show: noise and spread of the values together."""

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
            """To how many levels, evenly spaced from -1 to 1, a number may be rounded."""

    @abstractmethod
    def report(self, values: Sequence[float], data: bytes) -> bytes:
        """The report of numbers in range, from exactly `draw_bytes` random bytes."""

    @abstractmethod
    def law(self, levels: Sequence[int]) -> dict[bytes, Fraction]:
        """The exact probability of every report of numbers that lie on these levels, for builds small enough."""

    @abstractmethod
    def numbers_in(self, report: bytes) -> tuple[Fraction | None, ...]:
        """The unbiased numbers that a report stands for, one per attribute; None where it tells nothing."""

    @property
    @abstractmethod
    def worst_variance(self) -> float:
        """The largest variance over all values of an attribute's mean, times the number of participants."""

    def randomise(self, values: Sequence[float], source: ByteSource) -> bytes:
        """The report of one participant."""
        if len(values) != self.attributes:
            raise ParameterError(
                f"{self.attributes} values are needed, not {len(values)}",
                where="values",
                value=len(values),
            )
        for place, value in enumerate(values):
            check_between(f"values[{place}]", value, -1, 1)
        return self.report(values, source(self.draw_bytes))

    def numbers(self, reports: PackedReports) -> Floats:
        """The numbers that the reports stand for, one row per participant; NaN where a report tells nothing."""
        return batch_code().means.numbers(self, reports)

    def estimate(self, reports: PackedReports) -> list[MeanEstimate]:
        """One mean per attribute, unbiased, with its standard error."""
        return batch_code().means.estimate_means(self, reports)


def round_to_level(value: float, levels: int, draw: int, bits: int) -> int:
    """A level near the value, its mean the value to within 2^-bits of a step: no part of the guarantee."""
    place = (value + 1) / 2 * (levels - 1)
    level = min(int(place), levels - 2)
    return level + (draw < round((place - level) * 2**bits))


@dataclass(frozen=True)
class GridMean(MeanMechanism):
    """One attribute: a report is the number of one of `outputs` outputs, drawn from the level."""

    attributes: ClassVar[int] = 1
    draws: ClassVar[int] = 1  # of threshold_bits that an output takes, beside the one for rounding

    if TYPE_CHECKING:

        @property
        def outputs(self) -> int: ...

    @abstractmethod
    def output(self, level: Whole, draws: Sequence[Whole]) -> Whole:
        """The output that the draws lead to, for one person or many."""

    @abstractmethod
    def chances(self, level: int) -> list[Fraction]:
        """The exact chance of every output."""

    @abstractmethod
    def value_of(self, output: int) -> Fraction:
        """The unbiased number that an output stands for."""

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
        chances = enumerate(self.chances(levels[0]))
        return {
            output.to_bytes(self.report_bytes, "little"): chance
            for output, chance in chances
            if chance
        }

    def numbers_in(self, report: bytes) -> tuple[Fraction | None, ...]:
        return (self.value_of(int.from_bytes(report, "little")),)

    @cached_property
    def worst_variance(self) -> float:
        """The largest variance of one report over the levels, exact up to the last rounding."""
        values = [float(self.value_of(output)) for output in range(self.outputs)]
        worst = 0.0
        for level in {0, self.levels // 4, self.levels // 2, self.levels - 1}:
            law = [float(x) for x in self.chances(level)]
            mean = sum(x * v for x, v in zip(law, values, strict=True))
            worst = max(worst, sum(x * (v - mean) ** 2 for x, v in zip(law, values, strict=True)))
        return worst


@dataclass(frozen=True)
class Duchi(GridMean):
    """Two outputs; the upper one has `step` more draws for each level: exactly linear, and symmetric about one half."""

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
        """The steepest line that keeps epsilon."""
        least = ceil_fraction(2**threshold_bits / (exp_down(check_epsilon(epsilon)) + 1))
        return cls(levels, (2**threshold_bits - 2 * least) // (levels - 1), threshold_bits)

    @property
    def lowest(self) -> int:
        """Draws of the upper output at level 0, and of the lower one at the top level."""
        return (2**self.threshold_bits - self.step * (self.levels - 1)) // 2

    @property
    def ratio(self) -> Fraction:
        return Fraction(2**self.threshold_bits - self.lowest, self.lowest)

    def output(self, level: Whole, draws: Sequence[Whole]) -> Whole:
        return 1 * (draws[0] < self.lowest + self.step * level)

    def chances(self, level: int) -> list[Fraction]:
        upper = Fraction(self.lowest + self.step * level, 2**self.threshold_bits)
        return [1 - upper, upper]

    def value_of(self, output: int) -> Fraction:
        reach = Fraction(2**self.threshold_bits, self.step * (self.levels - 1))
        return reach if output else -reach


@dataclass(frozen=True)
class Piecewise(GridMean):
    """A window of outputs that slides with the level (PM)."""

    levels: int
    width: int
    base: int
    threshold_bits: int = THRESHOLD_BITS
    name = "piecewise"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.window  # noqa: B018  refuses what cannot be drawn

    @classmethod
    def for_epsilon(
        cls, epsilon: float, levels: int = 2**12 + 1, threshold_bits: int = THRESHOLD_BITS
    ) -> Piecewise:
        """PM's window is C-1 of 2C wide, C = (e^(eps/2)+1)/(e^(eps/2)-1): on a grid e^(-eps/2) of the levels' span."""
        width = max(1, round((levels - 1) * math.exp(-check_epsilon(epsilon) / 2)))
        return cls(
            levels,
            width,
            Window.for_epsilon(levels, width, epsilon, threshold_bits).base,
            threshold_bits,
        )

    @cached_property
    def window(self) -> Window:
        """The window itself."""
        return Window(self.levels, self.width, self.base, self.threshold_bits)

    @property
    def outputs(self) -> int:
        return self.window.outputs

    @property
    def ratio(self) -> Fraction:
        return self.window.ratio

    def output(self, level: Whole, draws: Sequence[Whole]) -> Whole:
        return self.window.output(level, draws[0])

    def chances(self, level: int) -> list[Fraction]:
        return [Fraction(draws, 2**self.threshold_bits) for draws in self.window.column(level)]

    def value_of(self, output: int) -> Fraction:
        intercept, slope = self.window.line
        return 2 * (output - intercept) / (slope * (self.levels - 1)) - 1


@dataclass(frozen=True)
class Hybrid(GridMean):
    """A coin that does not look at the value chooses between PM and Duchi (HM); the output says which it was.

    PM's window has `width` and `base`, Duchi's line has `step`; `coin` of 2^threshold_bits draws choose PM.
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
        self.piecewise, self.duchi  # noqa: B018  refuse what cannot be drawn

    @classmethod
    def for_epsilon(
        cls, epsilon: float, levels: int = 2**12 + 1, threshold_bits: int = THRESHOLD_BITS
    ) -> Hybrid:
        """PM with probability 1 - e^(-eps/2) if epsilon is above 0.61, else never."""
        share = 1 - math.exp(-check_epsilon(epsilon) / 2) if epsilon > HYBRID_FROM else 0.0
        fine = Piecewise.for_epsilon(epsilon, levels, threshold_bits)
        step = Duchi.for_epsilon(epsilon, levels, threshold_bits).step
        coin = min(int(share * 2**threshold_bits), 2**threshold_bits - 1)
        return cls(levels, fine.width, fine.base, step, coin, threshold_bits)

    @cached_property
    def piecewise(self) -> Piecewise:
        """The part with many outputs, which come first."""
        return Piecewise(self.levels, self.width, self.base, self.threshold_bits)

    @cached_property
    def duchi(self) -> Duchi:
        """The part with two."""
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
                "this hybrid never gives an output of its piecewise part", value=report
            )

    def output(self, level: Whole, draws: Sequence[Whole]) -> Whole:
        fine, coarse = self.piecewise.output(level, draws[1:]), self.duchi.output(level, draws[1:])
        coarse = coarse + self.piecewise.outputs
        return coarse + (draws[0] < self.coin) * (fine - coarse)

    def chances(self, level: int) -> list[Fraction]:
        share = Fraction(self.coin, 2**self.threshold_bits)
        return [share * x for x in self.piecewise.chances(level)] + [
            (1 - share) * x for x in self.duchi.chances(level)
        ]

    def value_of(self, output: int) -> Fraction:
        fine = self.piecewise.outputs
        return (
            self.piecewise.value_of(output) if output < fine else self.duchi.value_of(output - fine)
        )


GRIDS: dict[str, type[Duchi | Piecewise | Hybrid]] = {
    grid.name: grid for grid in (Duchi, Piecewise, Hybrid)
}


def mean_mechanism(name: str, epsilon: float) -> GridMean:
    """A mechanism for the mean of one attribute, by name."""
    return GRIDS[check_choice("mechanism", name, GRIDS)].for_epsilon(epsilon)
