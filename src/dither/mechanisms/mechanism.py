"""The seam that every mechanism meets, and what devices and servers exchange. Standard library only at import time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dither.errors import ParameterError, ReportError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dither.mechanisms.kernels.stream import RandomStream
    from dither.types import Codes, Counts, Floats

# Gives exactly as many random bytes as asked: `secrets.token_bytes` on a device, a seeded stream only in simulation.
ByteSource = Callable[[int], bytes]


@dataclass(frozen=True)
class PackedReports:
    """Reports of one question, one row of `report_bytes` bytes a participant."""

    rows: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return int(self.rows.shape[0])


@dataclass(frozen=True)
class Estimate:
    """Raw, unbiased frequencies (they may be negative and need not add up to one) with their standard errors.

    The standard errors are those of the noise that the mechanism added, given who took part; sampling of the participants
    from a larger population is not in them.
    """

    frequencies: Floats
    standard_errors: Floats
    n: int


@runtime_checkable
class Mechanism(Protocol):
    """A randomiser over `cells` values with an exact guarantee; p and q live here and nowhere else.

    p is the probability that a report supports its participant's own cell, q that it supports a given other one.
    """

    @property
    def name(self) -> str: ...
    @property
    def cells(self) -> int: ...
    @property
    def p(self) -> Fraction: ...
    @property
    def q(self) -> Fraction: ...
    @property
    def epsilon(self) -> float:
        """The guarantee that the integer thresholds give, rounded up."""

    @property
    def report_bytes(self) -> int:
        """The fixed length of a report."""

    @property
    def draw_bytes(self) -> int:
        """The number of random bytes one report consumes, whatever the value."""

    @property
    def counters(self) -> int:
        """The length of a tally: one counter a cell, or one a bit for Bloom filters."""

    def randomise(self, value: int, source: ByteSource) -> bytes:
        """The report of one participant."""

    def law(self, value: int) -> dict[bytes, Fraction]:
        """The exact probability of every report of this value, for builds small enough to write it out.

        Epsilon is the largest logarithm of a ratio of two such probabilities, over all reports and pairs of values.
        """

    def check_report(self, report: bytes) -> None:
        """Raise `ReportError` unless some value can produce these bytes."""

    def randomise_many(self, values: Codes, stream: RandomStream) -> PackedReports:
        """The reports of many simulated participants, the same law as `randomise`."""

    def support(self, reports: PackedReports) -> Counts:
        """How many reports support each cell (for Bloom filters: set each bit)."""

    def simulate(self, true_counts: Counts, rng: np.random.Generator) -> Counts:
        """The support counts of people with these true cells, the same law as their reports, without making reports."""

    def estimate(self, support: Counts, n: int) -> Estimate:
        """Raw unbiased frequencies with standard errors."""

    def variance(self, frequency: float, n: int) -> float:
        """The variance of the estimate of one cell of this true frequency from n reports, mechanism noise only."""

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """The variance of the sum of the estimates of `size` cells with this total frequency, mechanism noise only."""

    def to_json(self) -> dict[str, Any]:
        """Name and integers from which `mechanism_from_json` rebuilds the same mechanism on a device."""


# --------------------
# What follows from p and q alone, shared by all mechanisms whose reports support a set of cells.
#
# Reference: Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX Security
# 2017 (pure protocols, eq. 1 to 3). Standard library only at import time.

MOST_REPORTS = 1 << 16  # in a law that is written out


def frequency_variance(p: Fraction, q: Fraction, frequency: float, n: int) -> float:
    """Variance of (support/n - q)/(p - q) given the participants, with its frequency-dependent term."""
    p_, q_ = float(p), float(q)
    return (frequency * p_ * (1 - p_) + (1 - frequency) * q_ * (1 - q_)) / (n * (p_ - q_) ** 2)


def independent_group_variance(p: Fraction, q: Fraction, size: int, frequency: float, n: int) -> float:
    """Variance of the sum of `size` cells' estimates whose supports are independent given the value."""
    p_, q_ = float(p), float(q)
    return (frequency * p_ * (1 - p_) + (size - frequency) * q_ * (1 - q_)) / (n * (p_ - q_) ** 2)


def total_variance(p: Fraction, q: Fraction, cells: int) -> float:
    """The variances of all cells added up, for one report; frequencies add up to one, so it does not depend on them."""
    p_, q_ = float(p), float(q)
    return (p_ * (1 - p_) + (cells - 1) * q_ * (1 - q_)) / (p_ - q_) ** 2


def invert(mechanism: Mechanism, support: Counts, n: int) -> Estimate:
    """(support/n - q)/(p - q) with the standard error at the estimated frequency, clipped to [0, 1] for that purpose."""
    import numpy as np

    counts = np.asarray(support)
    if counts.shape != (mechanism.cells,):
        raise ParameterError(
            f"a tally of {mechanism.cells} cells was expected, not shape {counts.shape}", value=counts.shape
        )
    if n < 1:
        raise ParameterError("an estimate needs at least one report", where="n", value=n)
    p, q = float(mechanism.p), float(mechanism.q)
    frequencies = (counts / n - q) / (p - q)
    f = np.clip(frequencies, 0.0, 1.0)
    variances = (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (n * (p - q) ** 2)
    return Estimate(frequencies, np.sqrt(variances), int(n))


MOST_CELLS = 2**31  # what device, browser and server can all number; memory ends far below


def check_cells(cells: int) -> int:
    """A whole number of cells of at least two."""
    if isinstance(cells, bool) or not isinstance(cells, int) or cells < 2:
        raise ParameterError(f"a mechanism needs at least 2 cells, not {cells!r}", where="cells", value=cells)
    if cells > MOST_CELLS:
        raise ParameterError(
            f"{cells:,} cells are too many; ask fewer attributes together or use coarser bins",
            where="cells",
            value=cells,
        )
    return cells


def check_enumerable(reports: int) -> None:
    """A law is written out for small builds only: it exists to be checked by hand and by tests."""
    if reports > MOST_REPORTS:
        raise ParameterError(f"a law of {reports:,} reports is too long to write out", value=reports)


def bit_law(chances: Sequence[Fraction]) -> dict[bytes, Fraction]:
    """The law of independent bits, packed little-endian, from the chance of each to be set."""
    check_enumerable(2 ** len(chances))
    width = (len(chances) + 7) // 8
    law = {0: Fraction(1)}
    for bit, chance in enumerate(chances):
        law = {bits | on << bit: p * (chance if on else 1 - chance) for bits, p in law.items() for on in (0, 1)}
    return {bits.to_bytes(width, "little"): p for bits, p in law.items()}


def check_value(value: int, cells: int) -> int:
    """A cell number in range."""
    if not 0 <= value < cells:
        raise ParameterError(f"value {value!r} is outside 0..{cells - 1}", where="value", value=value)
    return int(value)


def check_length(report: bytes, expected: int) -> None:
    """Every report of a question has the same length."""
    if len(report) != expected:
        raise ReportError(f"a report of {expected} bytes was expected, not {len(report)}", value=len(report))
