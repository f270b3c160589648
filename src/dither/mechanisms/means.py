"""Means of numbers in [-1, 1]: Duchi's two-point mechanism, the piecewise one and the hybrid of both, on fixed grids.

References: Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private estimation", JASA 2018; Wang et
al., "Collecting and analyzing multidimensional data with local differential privacy", ICDE 2019 (PM, algorithm 2; HM,
eq. 8).

A value is first rounded at random to one of the grid's levels, without bias; the level's report is drawn by
whole-number thresholds. Mixing levels cannot raise a likelihood ratio, so the guarantee is that between levels,
computed in rational arithmetic. `value_of` turns an output into a number whose mean is the level exactly. Reports may
lie outside [-1, 1]. The number of random bytes does not depend on the value. Standard library only at import time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.mechanism import ByteSource, PackedReports, check_length
from dither.mechanisms.probability import (
    THRESHOLD_BITS,
    ceil_fraction,
    check_epsilon,
    check_whole_numbers,
    exp_down,
    log_up,
)
from dither.mechanisms.window import Window

if TYPE_CHECKING:
    from dither.mechanisms.kernels.stream import RandomStream
    from dither.types import Floats, Integers

HYBRID_FROM = 0.61  # below this epsilon the hybrid is Duchi's mechanism alone (Wang et al., eq. 8)


@dataclass(frozen=True)
class MeanEstimate:
    """An unbiased mean with the standard error that the reports show: noise and spread of the values together."""

    mean: float
    standard_error: float
    n: int


class Grid(Protocol):
    """What Duchi, Piecewise and Hybrid have in common."""

    @property
    def name(self) -> str: ...
    @property
    def levels(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def draws(self) -> int:
        """How many draws of threshold_bits an output takes, beside the one for rounding."""

    @property
    def threshold_bits(self) -> int: ...
    def output(self, level: int, draws: list[int]) -> int: ...
    def outputs_of(self, levels: Integers, draws: list[Integers]) -> Integers: ...
    def law(self, level: int) -> list[Fraction]:
        """The exact chance of every output."""

    def value_of(self, output: int) -> Fraction:
        """The unbiased number that an output stands for."""


@dataclass(frozen=True)
class Duchi:
    """Two outputs; the upper one has `step` more draws for each level: exactly linear, and symmetric about one half."""

    levels: int
    step: int
    threshold_bits: int = THRESHOLD_BITS
    name = "duchi"
    outputs = 2
    draws = 1

    def __post_init__(self) -> None:
        check_whole_numbers(self)
        if self.levels < 2 or self.step < 1 or self.lowest < 1 or (self.step * (self.levels - 1)) % 2:
            raise PrivacyError(
                "epsilon is too small or too large for this grid of levels", where="epsilon", value=self.step
            )

    @classmethod
    def for_epsilon(cls, epsilon: float, levels: int = 2**16 + 1, threshold_bits: int = THRESHOLD_BITS) -> Duchi:
        """The steepest line that keeps epsilon."""
        least = ceil_fraction(2**threshold_bits / (exp_down(check_epsilon(epsilon)) + 1))
        return cls(levels, (2**threshold_bits - 2 * least) // (levels - 1), threshold_bits)

    @property
    def lowest(self) -> int:
        """Draws of the upper output at level 0, and of the lower one at the top level."""
        return (2**self.threshold_bits - self.step * (self.levels - 1)) // 2

    @cached_property
    def epsilon(self) -> float:
        return log_up(Fraction(2**self.threshold_bits - self.lowest, self.lowest))

    def output(self, level: int, draws: list[int]) -> int:
        return int(draws[0] < self.lowest + self.step * level)

    def outputs_of(self, levels: Integers, draws: list[Integers]) -> Integers:
        return (draws[0] < self.lowest + self.step * levels).astype("int64")

    def law(self, level: int) -> list[Fraction]:
        upper = Fraction(self.lowest + self.step * level, 2**self.threshold_bits)
        return [1 - upper, upper]

    def value_of(self, output: int) -> Fraction:
        reach = Fraction(2**self.threshold_bits, self.step * (self.levels - 1))
        return reach if output else -reach


@dataclass(frozen=True)
class Piecewise:
    """A window of outputs that slides with the level (PM)."""

    window: Window
    name = "piecewise"
    draws = 1

    @classmethod
    def for_epsilon(cls, epsilon: float, levels: int = 2**12 + 1, threshold_bits: int = THRESHOLD_BITS) -> Piecewise:
        """PM's window is C-1 of 2C wide, C = (e^(eps/2)+1)/(e^(eps/2)-1): on a grid e^(-eps/2) of the levels' span."""
        width = max(1, round((levels - 1) * math.exp(-check_epsilon(epsilon) / 2)))
        return cls(Window.for_epsilon(levels, width, epsilon, threshold_bits))

    @property
    def levels(self) -> int:
        return self.window.levels

    @property
    def outputs(self) -> int:
        return self.window.outputs

    @property
    def threshold_bits(self) -> int:
        return self.window.threshold_bits

    @property
    def epsilon(self) -> float:
        return self.window.epsilon

    def output(self, level: int, draws: list[int]) -> int:
        return self.window.output(level, draws[0])

    def outputs_of(self, levels: Integers, draws: list[Integers]) -> Integers:
        return self.window.outputs_of(levels, draws[0])

    def law(self, level: int) -> list[Fraction]:
        return [Fraction(draws, 2**self.threshold_bits) for draws in self.window.law(level)]

    def value_of(self, output: int) -> Fraction:
        intercept, slope = self.window.line
        return 2 * (output - intercept) / (slope * (self.levels - 1)) - 1


@dataclass(frozen=True)
class Hybrid:
    """A coin that does not look at the value chooses between PM and Duchi (HM); the output says which it was."""

    piecewise: Piecewise
    duchi: Duchi
    threshold: int
    name = "hybrid"
    draws = 2

    def __post_init__(self) -> None:
        if self.piecewise.levels != self.duchi.levels or self.piecewise.threshold_bits != self.duchi.threshold_bits:
            raise ParameterError("the hybrid's two parts need the same grid of levels", where="levels")
        threshold = self.threshold
        if isinstance(threshold, bool) or not isinstance(threshold, int) or not 0 <= threshold < 2**self.threshold_bits:
            raise ParameterError(
                f"the hybrid's coin must lie in 0..2^{self.threshold_bits} - 1, not {threshold!r}", where="threshold"
            )

    @classmethod
    def for_epsilon(cls, epsilon: float, levels: int = 2**12 + 1, threshold_bits: int = THRESHOLD_BITS) -> Hybrid:
        """PM with probability 1 - e^(-eps/2) if epsilon is above 0.61, else never."""
        share = 1 - math.exp(-check_epsilon(epsilon) / 2) if epsilon > HYBRID_FROM else 0.0
        piecewise = Piecewise.for_epsilon(epsilon, levels, threshold_bits)
        coin = min(int(share * 2**threshold_bits), 2**threshold_bits - 1)
        return cls(piecewise, Duchi.for_epsilon(epsilon, levels, threshold_bits), coin)

    @property
    def levels(self) -> int:
        return self.duchi.levels

    @property
    def threshold_bits(self) -> int:
        return self.duchi.threshold_bits

    @property
    def outputs(self) -> int:
        return self.piecewise.outputs + 2

    @property
    def epsilon(self) -> float:
        return max(self.piecewise.epsilon, self.duchi.epsilon) if self.threshold else self.duchi.epsilon

    def output(self, level: int, draws: list[int]) -> int:
        if draws[0] < self.threshold:
            return self.piecewise.output(level, draws[1:])
        return self.piecewise.outputs + self.duchi.output(level, draws[1:])

    def outputs_of(self, levels: Integers, draws: list[Integers]) -> Integers:
        import numpy as np

        coarse = self.piecewise.outputs + self.duchi.outputs_of(levels, draws[1:])
        return np.where(draws[0] < self.threshold, self.piecewise.outputs_of(levels, draws[1:]), coarse)

    def law(self, level: int) -> list[Fraction]:
        share = Fraction(self.threshold, 2**self.threshold_bits)
        return [share * x for x in self.piecewise.law(level)] + [(1 - share) * x for x in self.duchi.law(level)]

    def value_of(self, output: int) -> Fraction:
        fine = self.piecewise.outputs
        return self.piecewise.value_of(output) if output < fine else self.duchi.value_of(output - fine)


KINDS: dict[str, Any] = {"duchi": Duchi, "piecewise": Piecewise, "hybrid": Hybrid}


def mean_mechanism(name: str, epsilon: float) -> Duchi | Piecewise | Hybrid:
    """A mean mechanism by name."""
    if name not in KINDS:
        raise ParameterError(f"no mean mechanism {name!r}; there are {', '.join(KINDS)}", where="mechanism", value=name)
    built: Duchi | Piecewise | Hybrid = KINDS[name].for_epsilon(epsilon)
    return built


def report_bytes(grid: Grid) -> int:
    """The fixed length of a report: an output's number."""
    return ((grid.outputs - 1).bit_length() + 7) // 8


def draw_bytes(grid: Grid) -> int:
    """The number of random bytes one report consumes, whatever the value."""
    return (1 + grid.draws) * grid.threshold_bits // 8


def check_number(value: float, where: str = "value") -> float:
    """A number from -1 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1 <= value <= 1:
        raise ParameterError(f"a value must be a number from -1 to 1, not {value!r}", where=where, value=value)
    return float(value)


def check_record(values: Sequence[float], attributes: int) -> None:
    """One value an attribute."""
    if len(values) != attributes:
        raise ParameterError(f"{attributes} values are needed, not {len(values)}", where="values", value=len(values))


def check_records(values: Any, attributes: int) -> Floats:
    """A table of one column an attribute."""
    import numpy as np

    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != attributes:
        raise ParameterError(f"values must be a table of {attributes} columns", where="values", value=table.shape)
    return table


def randomise(grid: Grid, value: float, source: ByteSource) -> bytes:
    """The report of one participant with a value in [-1, 1]."""
    number = check_number(value)
    step, data = grid.threshold_bits // 8, source(draw_bytes(grid))
    draws = [int.from_bytes(data[i : i + step], "little") for i in range(0, len(data), step)]
    place = (number + 1) / 2 * (grid.levels - 1)
    level = min(int(place), grid.levels - 2)
    level += draws[0] < round((place - level) * 2**grid.threshold_bits)
    return grid.output(level, draws[1:]).to_bytes(report_bytes(grid), "little")


def check_report(grid: Grid, report: bytes) -> None:
    """Raise `ReportError` unless some value can produce these bytes."""
    check_length(report, report_bytes(grid))
    output = int.from_bytes(report, "little")
    if output >= grid.outputs:
        raise ReportError(f"output {output} is outside 0..{grid.outputs - 1}", value=output)


def randomise_many(grid: Grid, values: Any, stream: RandomStream) -> PackedReports:
    """The reports of many simulated participants, draw for draw as on a device."""
    import numpy as np

    from dither.mechanisms.kernels.stream import uniform_draws

    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.all((numbers >= -1) & (numbers <= 1)):
        raise ParameterError("values must be a one-dimensional array of numbers from -1 to 1", where="values")
    # A person's draws are neighbours in the stream, as `randomise` reads them.
    words = uniform_draws(stream, len(numbers) * (1 + grid.draws), grid.threshold_bits)
    draws = list(words.reshape(len(numbers), 1 + grid.draws).T)
    place = (numbers + 1) / 2 * (grid.levels - 1)
    level = np.minimum(place.astype(np.int64), grid.levels - 2)
    level += draws[0] < np.round((place - level) * 2**grid.threshold_bits)
    raw = grid.outputs_of(level, draws[1:]).astype("<u4").view(np.uint8).reshape(-1, 4)
    return PackedReports(np.ascontiguousarray(raw[:, : report_bytes(grid)]))


def numbers_of(grid: Grid, reports: PackedReports) -> Floats:
    """The unbiased number that each report stands for."""
    import numpy as np

    outputs = np.zeros(len(reports), np.int64)
    for i in range(report_bytes(grid)):
        outputs |= reports.rows[:, i].astype(np.int64) << (8 * i)
    if outputs.size and outputs.max() >= grid.outputs:
        raise ReportError(f"output {int(outputs.max())} is outside 0..{grid.outputs - 1}", value=int(outputs.max()))
    table = np.array([float(grid.value_of(output)) for output in range(grid.outputs)])
    return np.asarray(table[outputs], dtype=np.float64)


def estimate_mean(grid: Grid, reports: PackedReports) -> MeanEstimate:
    """The mean of the participants' values, unbiased, with its standard error."""
    return mean_of(numbers_of(grid, reports))


def mean_of(numbers: Floats) -> MeanEstimate:
    """The mean of unbiased numbers, with the standard error that they show."""
    if len(numbers) < 2:
        raise ParameterError(
            "a mean with a standard error needs at least two reports", where="reports", value=len(numbers)
        )
    return MeanEstimate(float(numbers.mean()), float(numbers.std(ddof=1) / math.sqrt(len(numbers))), len(numbers))


def worst_variance(grid: Grid) -> float:
    """The largest variance of one report over the levels, exact up to the last rounding."""
    values = [float(grid.value_of(output)) for output in range(grid.outputs)]
    worst = 0.0
    for level in {0, grid.levels // 4, grid.levels // 2, grid.levels - 1}:
        law = [float(x) for x in grid.law(level)]
        mean = sum(x * v for x, v in zip(law, values, strict=True))
        worst = max(worst, sum(x * (v - mean) ** 2 for x, v in zip(law, values, strict=True)))
    return worst
