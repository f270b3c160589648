"""The seam that every mechanism meets, with its common part written once, and what devices and servers exchange.

`Randomiser` is what any of them has: reports of a fixed length, an exact law, epsilon, a JSON form. `Mechanism` is a randomiser
of cells, read from a tally of counters; `PureMechanism` is one of those whose reports support a set of cells, with p and q.
Those of numbers, whose means are wanted, stand in `means.py`. Standard library only at import time: `batch_code` is the one
place from which the batch code, which needs NumPy, is reached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self, TypeVar

from dither.checks import check_whole
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.probability import DRAW_WIDTHS, check_whole_numbers, log_up

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    import numpy.typing as npt

    from dither.mechanisms.kernels.stream import RandomStream
    from dither.types import Bytes, Counts, Floats, Integers, JsonMapping, JsonObject

# Gives exactly as many random bytes as asked: `secrets.token_bytes` on a device, a seeded stream only in simulation.
ByteSource = Callable[[int], bytes]
# One whole number, or an array of them: what is computed alike for a participant and for many.
Whole = TypeVar("Whole", int, "Integers")

MAX_REPORTS = 1 << 16  # in a law that is written out
MAX_TOGETHER = 1 << 10  # reports of one participant whose exact epsilon is worked out
MAX_CELLS = 2**31  # what device, browser and server can all number; memory ends far below


@dataclass(frozen=True)
class PackedReports:
    """Reports of one question, one row of `report_bytes` bytes per participant."""

    rows: Bytes

    def __len__(self) -> int:
        return int(self.rows.shape[0])


class DeviceWork(NamedTuple):
    """What building a mechanism takes beyond its numbers: SHA-256 digests, pairs compared (of filters, or of a cell with a set),
    bytes of tables."""

    digests: int
    pairs: int
    table_bytes: int


@dataclass(frozen=True)
class Estimate:
    """Raw, unbiased frequencies (they may be negative and need not add up to one) with their standard errors.

    The standard errors are those of the noise that the mechanism added, given who took part; sampling of the participants
    from a larger population is not in them.
    """

    frequencies: Floats
    standard_errors: Floats
    n: int


def batch_code() -> ModuleType:
    """The batch code of all mechanisms, by module: for simulations and servers, never imported on a device."""
    from dither.mechanisms import kernels

    return kernels


@dataclass(frozen=True)
class Randomiser(ABC):
    """Turns what a participant has into a report: a whole number in little-endian bytes.

    Guarantee: `epsilon` is the logarithm, rounded up, of the largest ratio of one report's probabilities under two inputs,
    for every set of parameters that can be built. The length of a report and the number of random bytes that it takes do not
    depend on the input. All parameters are fields of a frozen dataclass.
    """

    draw_widths: ClassVar[Collection[int]] = DRAW_WIDTHS

    if TYPE_CHECKING:  # fields or properties of the classes below; a property here would become a field's default there

        @property
        def name(self) -> str: ...
        @property
        def threshold_bits(self) -> int: ...

    def __post_init__(self) -> None:
        check_whole_numbers(self, self.draw_widths)

    def require(self, drawable: bool) -> None:
        """Refuse parameters that leave no guarantee, or nothing to learn."""
        if not drawable:
            raise PrivacyError(
                f"this {self.name} mechanism cannot be drawn from 2^{self.threshold_bits} numbers at this epsilon; choose an "
                "epsilon that is neither so small nor so large, or ask fewer cells",
                where="epsilon",
                value=self.to_json(),
            )

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """The largest ratio of one report's probabilities under two inputs, or a bound of it."""

    @cached_property
    def epsilon(self) -> float:
        """The guarantee that the integer thresholds give, rounded up."""
        return log_up(self.ratio)

    @property
    def in_common(self) -> Fraction:
        """A c for which no input gives any report with less than c times its probabilities under two other inputs, added up.

        Each of the two is at most `ratio` times what the input gives it. Mechanisms that know better say so.
        """
        return 1 / (2 * self.ratio)

    def epsilon_of(self, reports: int) -> float:
        """What several reports of one participant cost together: from the exact ratio, rounded up once."""
        return log_up(self.ratio ** check_whole("reports", reports, 1, MAX_TOGETHER))

    @property
    def draw_bytes(self) -> int:
        """The number of random bytes that one report takes, whatever the input."""
        return self.threshold_bits // 8

    @property
    def report_limit(self) -> int | None:
        """Reports are numbers below this one; None where every number of `report_bits` bits is one."""
        return None

    @property
    def report_bits(self) -> int:
        """How many bits of a report carry something."""
        if self.report_limit is None:
            raise NotImplementedError(f"{self.name} states neither the largest report nor its bits")
        return (self.report_limit - 1).bit_length()

    @cached_property
    def report_bytes(self) -> int:
        """The fixed length of a report."""
        return (self.report_bits + 7) // 8

    def check_report(self, report: bytes) -> None:
        """Raise `ReportError` unless some input can produce these bytes."""
        if len(report) != self.report_bytes:
            raise ReportError(
                f"a report of {self.report_bytes} bytes was expected, not {len(report)}",
                value=len(report),
            )
        number, limit = int.from_bytes(report, "little"), self.report_limit
        if number.bit_length() > self.report_bits if limit is None else number >= limit:
            raise ReportError(
                f"no input of this {self.name} mechanism gives such a report", value=report[:64]
            )

    def randomise_many(self, values: npt.ArrayLike, stream: RandomStream) -> PackedReports:
        """The reports of many simulated participants, the same law as `randomise`."""
        return batch_code().batch.randomise(self, values, stream)

    def to_json(self) -> JsonObject:
        """Name and integers from which `from_json` rebuilds the same mechanism on a device."""
        return {"name": self.name} | {
            field.name: getattr(self, field.name) for field in fields(self)
        }

    @classmethod
    def from_json(cls, data: JsonMapping) -> Self:
        """Rebuild a mechanism from its integers; its epsilon is computed anew from them, never taken on trust."""
        names = {field.name for field in fields(cls)}
        given = {key: value for key, value in data.items() if key != "name" or key in names}
        whole = all(key == "name" or (type(value) is int) for key, value in given.items())
        if set(given) != names or not whole:
            raise ReportError(
                f"a {data['name']} mechanism needs the whole numbers {', '.join(sorted(names))}",
                value=data,
            )
        return cls(**given)


@dataclass(frozen=True)
class Mechanism(Randomiser):
    """A randomiser of one of `cells` cells, whose reports are added up in a tally of `counters` counters."""

    most_cells: ClassVar[int] = MAX_CELLS
    lists: ClassVar[
        Collection[str]
    ] = ()  # parameters that are lists, of whole numbers or of sets in base 16
    exact_groups: ClassVar[bool] = True  # whether `group_variance` leaves no correlation out

    if TYPE_CHECKING:

        @property
        def cells(self) -> int: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cells(self.cells, self.most_cells)

    @property
    def counters(self) -> int:
        """The length of a tally: one counter per cell, per bit for Bloom filters, else per output."""
        return self.cells

    # On the device.

    @classmethod
    def device_work(cls, numbers: JsonMapping) -> DeviceWork:
        """What it costs a device to build the mechanism of these numbers, told before anything is built."""
        return DeviceWork(0, 0, 0)

    @abstractmethod
    def report(self, value: int, data: bytes) -> int:
        """The report of a cell in range as a number, from exactly `draw_bytes` random bytes."""

    @abstractmethod
    def chances(self, value: int) -> dict[int, Fraction]:
        """The exact probability of every report of a cell in range, by its number."""

    def randomise(self, value: int, source: ByteSource) -> bytes:
        """The report of one participant."""
        number = self.report(_check_value(value, self.cells), source(self.draw_bytes))
        return number.to_bytes(self.report_bytes, "little")

    def law(self, value: int) -> dict[bytes, Fraction]:
        """The exact probability of every report of this cell, for builds small enough to write it out."""
        chances = self.chances(_check_value(value, self.cells))
        return {
            number.to_bytes(self.report_bytes, "little"): chance
            for number, chance in chances.items()
        }

    # On the server.

    def support(self, reports: PackedReports) -> Counts:
        """What the reports add to each counter."""
        return batch_code().batch.support(self, reports)

    def simulate(self, true_counts: Counts, rng: np.random.Generator) -> Counts:
        """The counters after the reports of people with these true cells: the same law, without making reports."""
        return batch_code().batch.simulate(self, true_counts, rng)

    def estimate(self, support: Counts, n: int) -> Estimate:
        """Raw unbiased frequencies of the cells, with standard errors."""
        return batch_code().batch.estimate(self, support, n)

    def variance(self, frequency: float, n: int) -> float:
        """The variance of the estimate of one cell of this true frequency from n reports, mechanism noise only."""
        return self.group_variance(1, frequency, n)

    @abstractmethod
    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """The variance of the sum of the estimates of `size` cells with this total frequency, mechanism noise only.

        Where cells differ, the mean over all groups of this size.
        """

    @property
    def total_variance(self) -> float:
        """The variances of all cells added up, for one report."""
        return self.cells * self.variance(1 / self.cells, 1)

    @abstractmethod
    def weighted_variance(self, weights: Floats, frequencies: Floats, n: int) -> float:
        """The variance of the weighted sum of all cells' estimates: their covariance between these weights.

        The frequencies are the true ones of the n people.
        """

    # Against the server, or the participant.

    @abstractmethod
    def forged_range(self, targeted: int | Sequence[int]) -> tuple[float, float]:
        """The least and the most that one report, forged at will, adds to the estimated number of people in some cells.

        The cells are given, or how many they are; the bounds are then those of the worst set of so many.
        """

    @abstractmethod
    def tells(self, first: int, second: int) -> Callable[[bytes], bool]:
        """Whether a report is one of those that speak most for the first cell against the second."""

    @property
    def far_apart(self) -> tuple[int, int]:
        """Two cells whose reports differ as much as any two cells' do."""
        return 0, self.cells - 1


class PureMechanism(Mechanism):
    """Reports support a set of cells: the participant's own with p, any other one with q.

    A mechanism computes both from its thresholds, and encoder, estimator and audit read them from there alone. (Those of
    `unary.BitMechanism` are a bit's; where every cell has a bit of its own they are the same.)

    Reference: Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX Security
    2017 (pure protocols, eq. 1 to 3). Unless a mechanism says otherwise, supports of different cells are uncorrelated given
    the value, and a report can support any set of cells.
    """

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """The probability that a report supports its participant's own cell."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """The probability that a report supports another given cell."""

    def supports(self, report: bytes, cell: int) -> bool:
        """Whether a report supports a cell: by its bit, unless a mechanism says otherwise."""
        return bool(report[cell >> 3] >> (cell & 7) & 1)

    def support_range(self, size: int) -> tuple[int, int]:
        """The fewest and the most of some `size` cells that one report can support."""
        return 0, size

    @property
    def pair_chances(self) -> tuple[float, float] | None:
        """P(a report supports the own and a given other cell), P(it supports two given others); None: uncorrelated."""
        return None

    def variance(self, frequency: float, n: int) -> float:
        return self._uncorrelated(1, frequency, n)

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        return self._uncorrelated(size, frequency, n)

    def _uncorrelated(self, size: int, frequency: float, n: int) -> float:
        p, q = float(self.p), float(self.q)
        return (frequency * p * (1 - p) + (size - frequency) * q * (1 - q)) / (n * (p - q) ** 2)

    @property
    def total_variance(self) -> float:
        """The variances of all cells added up, for one report; frequencies add up to one, so it does not depend on them."""
        p, q = float(self.p), float(self.q)
        return (p * (1 - p) + (self.cells - 1) * q * (1 - q)) / (p - q) ** 2

    def weighted_variance(self, weights: Floats, frequencies: Floats, n: int) -> float:
        p, q = float(self.p), float(self.q)
        squares, first = float(weights @ weights), float(weights.sum())
        own, own_squares = float(frequencies @ weights), float(frequencies @ weights**2)
        if self.pair_chances is None:
            spread = p * (1 - p) * own_squares + q * (1 - q) * (squares - own_squares)
        else:
            # Second moments of the support, less the square of its mean: Cov = E[s s'] - sum over people of E[s] E[s]'.
            with_own, both_others = self.pair_chances
            all_pairs, own_pairs = first**2 - squares, 2 * (first * own - own_squares)
            moment = p * own_squares + q * (squares - own_squares)
            moment += both_others * (all_pairs - own_pairs) + with_own * own_pairs
            mean = q**2 * first**2 + 2 * q * (p - q) * first * own + (p - q) ** 2 * own_squares
            spread = moment - mean
        return max(spread, 0.0) / (n * (p - q) ** 2)

    def forged_range(self, targeted: int | Sequence[int]) -> tuple[float, float]:
        size = targeted if isinstance(targeted, int) else len(targeted)
        p, q = float(self.p), float(self.q)
        fewest, most = self.support_range(size)
        return (fewest - size * q) / (p - q), (most - size * q) / (p - q)

    def tells(self, first: int, second: int) -> Callable[[bytes], bool]:
        return lambda report: self.supports(report, first) and not self.supports(report, second)


# Checks.


def check_cells(cells: int, most: int = MAX_CELLS) -> int:
    """A whole number of cells of at least two."""
    if isinstance(cells, bool) or not isinstance(cells, int) or cells < 2:
        raise ParameterError(
            f"a mechanism needs at least 2 cells, not {cells!r}", where="cells", value=cells
        )
    if cells > most:
        raise ParameterError(
            f"{cells:,} cells are more than the {most:,} that this mechanism covers; ask fewer attributes together or use "
            "coarser bins",
            where="cells",
            value=cells,
        )
    return cells


def check_enumerable(reports: int) -> None:
    """A law is written out for small builds only: it exists to be checked by hand and by tests."""
    if reports > MAX_REPORTS:
        raise ParameterError(f"a law of more than {MAX_REPORTS:,} reports is too long to write out")


def _check_value(value: int, cells: int) -> int:
    """A cell number in range."""
    if not 0 <= value < cells:
        raise ParameterError(
            f"value {value!r} is outside 0..{cells - 1}", where="value", value=value
        )
    return int(value)
