"""What a batch needs of every mechanism: randomise, support, simulate, estimate. Each mechanism registers its own way.

The ways here are those of most: a report is a number to be counted, people are simulated one by one, and a pure mechanism's
frequencies follow from p and q.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np
import numpy.typing as npt

from dither.errors import ParameterError, ReportError
from dither.mechanisms.base import Estimate, Mechanism, PackedReports, PureMechanism, Randomiser
from dither.mechanisms.kernels.stream import RandomStream
from dither.types import Counts, Integers

_BLOCK = 1 << 16


@singledispatch
def randomise(mechanism: Randomiser, values: npt.ArrayLike, stream: RandomStream) -> PackedReports:
    """The reports of many simulated participants."""
    raise NotImplementedError(f"{mechanism.name} has no batch kernel")


@singledispatch
def support(mechanism: Mechanism, reports: PackedReports) -> Counts:
    """How many reports are each number."""
    counts = np.bincount(read_numbers(mechanism, reports), minlength=mechanism.counters)
    return counts.astype(np.int64, copy=False)


@singledispatch
def simulate(mechanism: Mechanism, true_counts: Counts, rng: np.random.Generator) -> Counts:
    """Person by person: what ties the cells of a report together (a hash, a coefficient, a set) leaves no shorter way."""
    return simulate_people(mechanism, true_counts, rng, _BLOCK)


def simulate_people(
    mechanism: Mechanism, true_counts: Counts, rng: np.random.Generator, block: int
) -> Counts:
    """The tally of reports that are really made, in blocks; none outlives its block."""
    stream = RandomStream.from_generator(rng)
    values = np.repeat(np.arange(mechanism.cells, dtype=np.int64), true_counts)
    counts = np.zeros(mechanism.counters, np.int64)
    for start in range(0, len(values), block):
        counts += support(mechanism, randomise(mechanism, values[start : start + block], stream))
    return counts


@singledispatch
def estimate(mechanism: Mechanism, support: Counts, n: int) -> Estimate:
    """Raw unbiased frequencies of the cells, with standard errors."""
    raise NotImplementedError(f"{mechanism.name} has no batch kernel")


@estimate.register(PureMechanism)
def _estimate_pure(mechanism: PureMechanism, support: Counts, n: int) -> Estimate:
    """(support/n - q)/(p - q) with the standard error at the estimated frequency, clipped to [0, 1] for that purpose."""
    counts = check_tally(mechanism, support, n)
    p, q = float(mechanism.p), float(mechanism.q)
    frequencies = (counts / n - q) / (p - q)
    f = np.clip(frequencies, 0.0, 1.0)
    variances = (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (n * (p - q) ** 2)
    return Estimate(frequencies, np.sqrt(variances), int(n))


# Checks of what comes in, and reports that are numbers.


def check_tally(mechanism: Mechanism, support: Counts, n: int) -> Counts:
    """A tally of the mechanism's counters, of one report at least."""
    counts = np.asarray(support)
    if counts.shape != (mechanism.counters,):
        raise ParameterError(
            f"a tally of {mechanism.counters} counters was expected, not shape {counts.shape}",
            value=counts.shape,
        )
    if n < 1:
        raise ParameterError("an estimate needs at least one report", where="n", value=n)
    return counts


def check_cell_numbers(values: npt.ArrayLike, cells: int) -> Integers:
    """Cell numbers in range, as 64-bit integers."""
    truth = np.asarray(values)
    if truth.ndim != 1 or truth.dtype.kind not in "iu":
        raise ParameterError(
            "values must be a one-dimensional array of cell numbers", where="values"
        )
    if truth.size and (truth.min() < 0 or truth.max() >= cells):
        bad = truth[(truth < 0) | (truth >= cells)][0]
        raise ParameterError(
            f"value {bad} is outside 0..{cells - 1}", where="values", value=int(bad)
        )
    return truth.astype(np.int64, copy=False)


def write_numbers(mechanism: Randomiser, numbers: Integers) -> PackedReports:
    """Reports of at most four bytes from their numbers."""
    raw = numbers.astype("<u4").view(np.uint8).reshape(-1, 4)
    return PackedReports(np.ascontiguousarray(raw[:, : mechanism.report_bytes]))


def read_numbers(mechanism: Randomiser, reports: PackedReports) -> Integers:
    """The numbers that reports are, each below the mechanism's limit."""
    numbers = np.zeros(len(reports), np.int64)
    for i in range(mechanism.report_bytes):
        numbers |= reports.rows[:, i].astype(np.int64) << (8 * i)
    limit = mechanism.report_limit
    if limit is not None and numbers.size and numbers.max() >= limit:
        raise ReportError(
            f"report {int(numbers.max())} is outside 0..{limit - 1}", value=int(numbers.max())
        )
    return numbers
