"""Batches of reports that are numbers: randomised response, hashing, Fourier coefficients, outputs.

To count the support of hash reports, the kernel asks for every report and cell whether the
cell hashes into the reported bucket. With the hash ((a x + b) mod 2^32) >> 16 that is one
comparison of 32-bit words: (a x + b - start) mod 2^32 < width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dither.compiled import compiled
from dither.errors import ParameterError, ReportError
from dither.mechanisms.base import Estimate, PackedReports
from dither.mechanisms.grr import GRR, respond
from dither.mechanisms.hadamard import Hadamard
from dither.mechanisms.kernels.batch import (
    check_cell_numbers,
    check_tally,
    estimate,
    randomise,
    read_numbers,
    simulate,
    simulate_people,
    support,
    uniform_draws,
    write_numbers,
)
from dither.mechanisms.local_hash import HASH_BITS, WORD_BITS, LocalHash
from dither.mechanisms.outputs import OutputMechanism
from dither.mechanisms.square_wave import SquareWave
from dither.randomness import RandomStream
from dither.types import AnyIntegers, Bytes, Codes, Counts, Floats, Integers

# Participants whose coefficients are simulated at a time; each block takes one transform.
_COEFFICIENT_BLOCK = 1 << 18
_HASH_BLOCK = 1 << 16
_SHIFT = WORD_BITS - HASH_BITS
# Cells whose counters fit the first-level cache.
_STRIDE = 2048


# Randomised response.


@randomise.register(GRR)
def _grr(mechanism: GRR, values: Codes, stream: RandomStream) -> PackedReports:
    """One draw of threshold_bits per participant, mapped exactly as on a device."""
    truth = check_cell_numbers(values, mechanism.cells)
    draws = uniform_draws(stream, len(truth), mechanism.threshold_bits)
    return write_numbers(mechanism, respond(draws, truth, mechanism.keep, mechanism.other))


@support.register(GRR)
def _support_grr(mechanism: GRR, reports: PackedReports) -> Counts:
    counts = np.bincount(read_numbers(mechanism, reports), minlength=mechanism.cells)
    return counts.astype(np.int64, copy=False)


@simulate.register(GRR)
def _simulate_grr(mechanism: GRR, true_counts: Counts, rng: np.random.Generator) -> Counts:
    """The exact law in O(cells): with p-q the true cell, else a uniform one of all cells."""
    truthful = rng.binomial(true_counts, float(mechanism.p - mechanism.q))
    others = int(true_counts.sum() - truthful.sum())
    guesses = rng.multinomial(others, np.full(mechanism.cells, 1 / mechanism.cells))
    return (truthful + guesses).astype(np.int64)


# Local hashing.


@compiled
def _count(a: Any, base: Any, width: Any, first: int, counts: Any) -> None:
    """Add the support of each cell of one stride; four reports per pass over the counters."""
    n, cells = len(a), len(counts)
    whole = n - n % 4
    for i in range(0, whole, 4):
        a0, a1, a2, a3 = a[i], a[i + 1], a[i + 2], a[i + 3]
        f = np.uint32(first)
        b0, b1 = np.uint32(base[i] + a0 * f), np.uint32(base[i + 1] + a1 * f)
        b2, b3 = np.uint32(base[i + 2] + a2 * f), np.uint32(base[i + 3] + a3 * f)
        w0, w1, w2, w3 = width[i], width[i + 1], width[i + 2], width[i + 3]
        for x in range(cells):
            u = np.uint32(x)
            s0 = np.uint32(np.uint32(b0 + np.uint32(a0 * u)) < w0)
            s1 = np.uint32(np.uint32(b1 + np.uint32(a1 * u)) < w1)
            s2 = np.uint32(np.uint32(b2 + np.uint32(a2 * u)) < w2)
            s3 = np.uint32(np.uint32(b3 + np.uint32(a3 * u)) < w3)
            counts[x] = np.uint32(counts[x] + np.uint32(s0 + s1) + np.uint32(s2 + s3))
    for i in range(whole, n):
        for x in range(cells):
            u = np.uint32(x + first)
            counts[x] += np.uint32(np.uint32(base[i] + np.uint32(a[i] * u)) < width[i])


@randomise.register(LocalHash)
def _hashes(mechanism: LocalHash, values: Codes, stream: RandomStream) -> PackedReports:
    """A hash function and a bucket for each simulated participant."""
    truth = check_cell_numbers(values, mechanism.cells)
    n = len(truth)
    hashes = stream.words(2 * n, np.uint32).reshape(n, 2)
    hashed = (hashes[:, 0] * truth.astype(np.uint32) + hashes[:, 1]) >> np.uint32(_SHIFT)
    buckets = (hashed.astype(np.int64) * mechanism.buckets) >> HASH_BITS
    draws = uniform_draws(stream, n, mechanism.threshold_bits)
    answers = respond(draws, buckets, mechanism.keep, mechanism.other)
    rows = np.empty((n, mechanism.report_bytes), np.uint8)
    rows[:, :8] = hashes.astype("<u4").view(np.uint8).reshape(n, 8)
    rows[:, 8:] = (
        answers.astype("<u2").view(np.uint8).reshape(n, 2)[:, : mechanism.report_bytes - 8]
    )
    return PackedReports(rows)


@support.register(LocalHash)
def _support_hashes(mechanism: LocalHash, reports: PackedReports) -> Counts:
    """The number of reports that support each cell, in blocks of reports."""
    starts = np.array([mechanism.bucket_start(r) for r in range(mechanism.buckets + 1)], np.int64)
    counts = np.zeros(mechanism.cells, np.int64)
    for begin in range(0, len(reports), _HASH_BLOCK):
        rows = reports.rows[begin : begin + _HASH_BLOCK]
        words = np.ascontiguousarray(rows[:, :8]).view("<u4").reshape(-1, 2)
        counts += _support_block(words, _answers(mechanism, rows), starts, mechanism.cells)
    return counts


def _answers(mechanism: LocalHash, rows: Bytes) -> Integers:
    answers = rows[:, 8].astype(np.int64)
    if mechanism.report_bytes == 10:
        answers |= rows[:, 9].astype(np.int64) << 8
    if answers.size and answers.max() >= mechanism.buckets:
        raise ReportError(
            f"a report names bucket {answers.max()}, outside 0..{mechanism.buckets - 1}"
        )
    return answers


def _support_block(words: AnyIntegers, answers: Integers, starts: Integers, cells: int) -> Counts:
    a = np.ascontiguousarray(words[:, 0])
    base = words[:, 1] - (starts[answers] << _SHIFT).astype(np.uint32)
    width = ((starts[answers + 1] - starts[answers]) << _SHIFT).astype(np.uint32)
    counts = np.zeros(cells, np.uint32)
    for first in range(0, cells, _STRIDE):
        _count(a, base, width, first, counts[first : first + _STRIDE])
    return counts.astype(np.int64)


# Fourier coefficients: one fast Walsh-Hadamard transform for the supports of all cells.


def _codes(mechanism: Hadamard) -> Integers:
    cells = np.arange(mechanism.cells, dtype=np.int64)
    return (cells // mechanism.columns) << mechanism.column_bits | cells % mechanism.columns


@randomise.register(Hadamard)
def _coefficients(mechanism: Hadamard, values: Codes, stream: RandomStream) -> PackedReports:
    """Each participant's coefficient and randomised parity, in one number."""
    truth = check_cell_numbers(values, mechanism.cells)
    index = stream.words(len(truth), np.uint32).astype(np.int64) & (2**mechanism.bits - 1)
    flipped = uniform_draws(stream, len(truth), mechanism.threshold_bits) < mechanism.flip
    parity = np.bitwise_count(index & _codes(mechanism)[truth]).astype(np.int64) & 1
    return write_numbers(mechanism, index << 1 | (parity ^ flipped))


@support.register(Hadamard)
def _support_coefficients(mechanism: Hadamard, reports: PackedReports) -> Counts:
    """Half of the participants, plus half of the sum of the coefficients' signs in a cell."""
    answers = read_numbers(mechanism, reports)
    signs = np.bincount(
        answers >> 1, weights=1.0 - 2.0 * (answers & 1), minlength=2**mechanism.bits
    )
    transformed = _walsh(np.asarray(signs, np.float64))
    return np.rint((len(answers) + transformed[_codes(mechanism)]) / 2).astype(np.int64)


def _walsh(signs: Floats) -> Floats:
    """The sum over coefficients of (-1)^popcount(coefficient & code) times the sign, per code."""
    out, step = signs.copy(), 1
    while step < len(out):
        pairs = out.reshape(-1, 2, step)
        out = np.concatenate(
            [pairs[:, :1] + pairs[:, 1:], pairs[:, :1] - pairs[:, 1:]], axis=1
        ).ravel()
        step *= 2
    return out


@simulate.register(Hadamard)
def _simulate_coefficients(
    mechanism: Hadamard, true_counts: Counts, rng: np.random.Generator
) -> Counts:
    return simulate_people(mechanism, true_counts, rng, _COEFFICIENT_BLOCK)


# Tables of outputs: strategies and the square wave.


@compiled
def _first_above(cells: Any, draws: Any, ends: Any, out: Any) -> None:
    """The first output whose cumulative draws, in the row of the cell, exceed the draw."""
    for i in range(len(cells)):
        row = ends[cells[i]]
        low, high = 0, len(row) - 1
        while low < high:
            middle = (low + high) >> 1
            if draws[i] < row[middle]:
                high = middle
            else:
                low = middle + 1
        out[i] = low


@randomise.register(OutputMechanism)
def _outputs(mechanism: OutputMechanism, values: Codes, stream: RandomStream) -> PackedReports:
    """Draw by draw as on a device."""
    truth = check_cell_numbers(values, mechanism.cells)
    ends = np.cumsum(
        [mechanism.column(cell) for cell in range(mechanism.cells)], axis=1, dtype=np.int64
    )
    outputs = np.empty(len(truth), np.int64)
    _first_above(truth, uniform_draws(stream, len(truth), mechanism.threshold_bits), ends, outputs)
    return write_numbers(mechanism, outputs)


@randomise.register(SquareWave)
def _square_wave(mechanism: SquareWave, values: Codes, stream: RandomStream) -> PackedReports:
    """Draw by draw as on a device."""
    truth = check_cell_numbers(values, mechanism.cells)
    draws = uniform_draws(stream, len(truth), mechanism.threshold_bits)
    return write_numbers(mechanism, mechanism.window.output(truth, draws))


@simulate.register(OutputMechanism)
def _simulate_outputs(
    mechanism: OutputMechanism, true_counts: Counts, rng: np.random.Generator
) -> Counts:
    """The exact law: one multinomial per cell."""
    drawn = rng.multinomial(np.asarray(true_counts), mechanism.probability_table.T).sum(axis=0)
    return np.asarray(drawn, dtype=np.int64)


@estimate.register(OutputMechanism)
def _estimate_outputs(mechanism: OutputMechanism, support: Counts, n: int) -> Estimate:
    """Unbiased frequencies by the decoder; errors are those at the clipped estimates."""
    shares = check_tally(mechanism, support, n) / n
    frequencies = mechanism.even_decoder @ shares
    f = np.clip(frequencies, 0.0, None)
    f /= max(float(f.sum()), 1e-300)
    by_cell = mechanism.even_decoder**2 @ mechanism.probability_table
    return Estimate(frequencies, np.sqrt(np.maximum(by_cell @ f - f, 0.0) / n), int(n))


# The density of the square wave, and its quantiles.


def density(
    mechanism: SquareWave, support: Counts, *, smooth: bool = True, max_steps: int = 10_000
) -> Floats:
    """The cells' frequencies by EM, or EM with smoothing (Li et al., SIGMOD 2020).

    Args:
        mechanism: The square wave.
        support: The counters of a tally.
        smooth: Smooth after each step (EMS).
        max_steps: The largest number of steps. Iteration stops when the log-likelihood of
            all reports gains less than 0.001 per step (times e^epsilon without smoothing).

    Returns:
        Non-negative frequencies that sum to one.
    """
    counts = check_tally(mechanism, support, int(np.sum(support))).astype(np.float64)
    tolerance = 1e-3 if smooth else 1e-3 * math.exp(mechanism.epsilon)
    table = mechanism.probability_table
    theta = np.full(mechanism.cells, 1 / mechanism.cells)
    before = -math.inf
    for _ in range(max_steps):
        theta = theta * (table.T @ (counts / (table @ theta)))
        theta /= theta.sum()
        if smooth:
            theta = _smoothed(theta)
        now = float(counts @ np.log(table @ theta))
        if abs(now - before) < tolerance:
            break
        before = now
    return theta


def _smoothed(theta: Floats) -> Floats:
    """The binomial kernel (1, 2, 1)/4, reflected at the ends."""
    padded = np.concatenate([theta[:1], theta, theta[-1:]])
    out = padded[:-2] / 4 + padded[1:-1] / 2 + padded[2:] / 4
    return np.asarray(out / out.sum(), dtype=np.float64)


def quantiles(shares: Floats, edges: Sequence[float], levels: Sequence[float]) -> Floats:
    """Quantiles of a density over cells, with values evenly spread within each cell.

    Args:
        shares: The density of each cell.
        edges: The edges of the cells, one more than shares.
        levels: Levels from 0 to 1.
    """
    wanted, places = np.asarray(levels, dtype=np.float64), np.asarray(edges, dtype=np.float64)
    if len(places) != len(shares) + 1 or np.any(shares < 0) or np.any((wanted < 0) | (wanted > 1)):
        raise ParameterError(
            "quantiles need one more edge than cells, a density and levels between 0 and 1",
            where="levels",
        )
    cumulative = np.concatenate([[0.0], np.cumsum(shares) / np.sum(shares)])
    # In empty cells the cumulative share is flat; the first edge that reaches a level is
    # its quantile.
    place = np.clip(np.searchsorted(cumulative, wanted, side="left"), 1, len(shares))
    rise = cumulative[place] - cumulative[place - 1]
    part = np.divide(
        wanted - cumulative[place - 1], rise, out=np.zeros_like(wanted), where=rise > 0
    )
    return np.asarray(
        places[place - 1] + part * (places[place] - places[place - 1]), dtype=np.float64
    )
