"""The seam that every mechanism meets, and what devices and servers exchange. Standard library only at import time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dither.mechanisms.fleet.stream import RandomStream
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
