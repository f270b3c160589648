"""The four tasks of a batch: randomise, support, simulate, estimate.

Each is a `functools.singledispatch` function of the mechanism. The versions here work for
any mechanism by a loop over its scalar methods, and for pure mechanisms by p and q. Faster
versions are registered in the other modules of this package, or by a plug-in in a module
that its users import on servers.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np
import numpy.typing as npt

from dither.errors import ParameterError, ReportError
from dither.mechanisms.base import Estimate, Mechanism, PackedReports, PureMechanism, Randomiser
from dither.mechanisms.probability import DRAW_WIDTHS
from dither.randomness import RandomStream
from dither.types import Counts, Integers

# Participants who are simulated at a time.
_BLOCK = 1 << 16
_WORDS: dict[int, type[np.unsignedinteger]] = {8: np.uint8, 16: np.uint16, 32: np.uint32}


@singledispatch
def randomise(mechanism: Randomiser, values: npt.ArrayLike, stream: RandomStream) -> PackedReports:
    """Draw the reports of many simulated participants.

    Args:
        mechanism: The mechanism.
        values: One cell per participant; for means a table, one row per participant.
        stream: The source of randomness.

    Returns:
        Reports with the same law as `mechanism.randomise`.

    Raises:
        ParameterError: A value is out of range.
    """
    raise NotImplementedError(f"{mechanism.name} has no batch kernel")


@randomise.register(Mechanism)
def _randomise_one_by_one(
    mechanism: Mechanism, values: npt.ArrayLike, stream: RandomStream
) -> PackedReports:
    """The fallback: the scalar mechanism in a loop."""
    truth = check_cell_numbers(values, mechanism.cells)
    reports = b"".join(mechanism.randomise(int(cell), stream) for cell in truth)
    rows = np.frombuffer(reports, np.uint8).reshape(len(truth), mechanism.report_bytes)
    return PackedReports(rows)


@singledispatch
def support(mechanism: Mechanism, reports: PackedReports) -> Counts:
    """Count what the reports add to each counter of a tally.

    By default a report is the number of its counter.

    Raises:
        ReportError: A report is out of range.
    """
    counts = np.bincount(read_numbers(mechanism, reports), minlength=mechanism.counters)
    return counts.astype(np.int64, copy=False)


@support.register(PureMechanism)
def _support_one_by_one(mechanism: PureMechanism, reports: PackedReports) -> Counts:
    """The fallback: ask each report about each cell."""
    counts = np.zeros(mechanism.cells, np.int64)
    for row in reports.rows:
        report = row.tobytes()
        mechanism.check_report(report)
        counts += [mechanism.supports(report, cell) for cell in range(mechanism.cells)]
    return counts


@singledispatch
def simulate(mechanism: Mechanism, true_counts: Counts, rng: np.random.Generator) -> Counts:
    """Draw the counters of a tally without keeping reports.

    Args:
        mechanism: The mechanism.
        true_counts: The number of participants in each cell.
        rng: The source of randomness.

    Returns:
        Counters with the same law as the support of randomised reports.
    """
    # A hash, a coefficient or a set correlates the cells of a report, so by default every
    # participant's report is drawn.
    return simulate_people(mechanism, true_counts, rng, _BLOCK)


def simulate_people(
    mechanism: Mechanism, true_counts: Counts, rng: np.random.Generator, block: int
) -> Counts:
    """The tally of simulated reports, drawn and counted in blocks."""
    stream = RandomStream.from_generator(rng)
    values = np.repeat(np.arange(mechanism.cells, dtype=np.int64), true_counts)
    counts = np.zeros(mechanism.counters, np.int64)
    for start in range(0, len(values), block):
        counts += support(mechanism, randomise(mechanism, values[start : start + block], stream))
    return counts


@singledispatch
def estimate(mechanism: Mechanism, support: Counts, n: int) -> Estimate:
    """Unbiased frequencies of the cells, with standard errors.

    Args:
        mechanism: The mechanism.
        support: The counters of a tally.
        n: The number of reports.

    Raises:
        ParameterError: The tally does not fit the mechanism, or n is below 1.
    """
    raise NotImplementedError(f"{mechanism.name} has no estimator")


@estimate.register(PureMechanism)
def _estimate_pure(mechanism: PureMechanism, support: Counts, n: int) -> Estimate:
    """(support/n - q)/(p - q).

    The standard error is that at the estimated frequency, clipped to [0, 1].
    """
    counts = check_tally(mechanism, support, n)
    p, q = float(mechanism.p), float(mechanism.q)
    frequencies = (counts / n - q) / (p - q)
    f = np.clip(frequencies, 0.0, 1.0)
    variances = (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (n * (p - q) ** 2)
    return Estimate(frequencies, np.sqrt(variances), int(n))


def check_tally(mechanism: Mechanism, support: Counts, n: int) -> Counts:
    """Check that a tally has the mechanism's counters and at least one report."""
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
    """The reports as numbers, each checked against the mechanism's limit."""
    numbers = np.zeros(len(reports), np.int64)
    for i in range(mechanism.report_bytes):
        numbers |= reports.rows[:, i].astype(np.int64) << (8 * i)
    limit = mechanism.report_limit
    if limit is not None and numbers.size and numbers.max() >= limit:
        raise ReportError(
            f"report {int(numbers.max())} is outside 0..{limit - 1}", value=int(numbers.max())
        )
    return numbers


def uniform_draws(stream: RandomStream, count: int, bits: int) -> Integers:
    """Uniform draws of `bits` bits, with the bytes in the order in which a device reads them.

    Raises:
        ParameterError: The width is not supported. A draw shorter than its threshold assumes
            would leave a report without noise.
    """
    if bits not in DRAW_WIDTHS:
        raise ParameterError(
            f"draws of {bits} bits are not supported", where="threshold_bits", value=bits
        )
    if bits in _WORDS:
        return stream.words(count, _WORDS[bits]).astype(np.int64)
    padded = np.zeros((count, 8), np.uint8)
    padded[:, : bits // 8] = stream.words(count * bits // 8, np.uint8).reshape(count, bits // 8)
    return padded.view("<i8").reshape(count)
