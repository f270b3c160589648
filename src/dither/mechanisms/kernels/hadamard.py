"""Fourier coefficients for many people: the supports of all cells come from one fast Walsh-Hadamard transform."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dither.errors import ReportError
from dither.mechanisms.kernels.stream import RandomStream, check_values, uniform_draws
from dither.mechanisms.mechanism import PackedReports
from dither.types import Floats, Integers

if TYPE_CHECKING:
    from dither.mechanisms.hadamard import Hadamard
    from dither.types import Codes, Counts

_BLOCK = 1 << 18


def _codes(mechanism: Hadamard) -> Integers:
    cells = np.arange(mechanism.cells, dtype=np.int64)
    return (cells // mechanism.columns) << mechanism.column_bits | cells % mechanism.columns


def _answers(mechanism: Hadamard, truth: Integers, stream: RandomStream) -> Integers:
    """Each person's coefficient number and randomised parity, in one number."""
    n = len(truth)
    index = stream.words(n, np.uint32).astype(np.int64) & (2**mechanism.bits - 1)
    turned = uniform_draws(stream, n, mechanism.threshold_bits) < mechanism.flip
    parity = np.bitwise_count(index & _codes(mechanism)[truth]).astype(np.int64) & 1
    return index << 1 | (parity ^ turned)


def randomise(mechanism: Hadamard, values: Codes, stream: RandomStream) -> PackedReports:
    """Reports of simulated people."""
    answers = _answers(mechanism, check_values(values, mechanism.cells), stream)
    rows = answers.astype("<u4").view(np.uint8).reshape(-1, 4)[:, : mechanism.report_bytes]
    return PackedReports(np.ascontiguousarray(rows))


def support(mechanism: Hadamard, reports: PackedReports) -> Counts:
    """How many reports support each cell."""
    answers = np.zeros(len(reports), np.int64)
    for byte in range(mechanism.report_bytes):
        answers |= reports.rows[:, byte].astype(np.int64) << (8 * byte)
    if answers.size and answers.max() >> (mechanism.bits + 1):
        raise ReportError(f"a report names a coefficient outside 0..{2**mechanism.bits - 1}")
    return _count(mechanism, answers)


def _count(mechanism: Hadamard, answers: Integers) -> Counts:
    size = 2**mechanism.bits
    signs = np.bincount(answers >> 1, weights=1.0 - 2.0 * (answers & 1), minlength=size)
    transformed = _walsh(np.asarray(signs, np.float64))
    counts = (len(answers) + transformed[_codes(mechanism)]) / 2
    return np.rint(counts).astype(np.int64)


def _walsh(signs: Floats) -> Floats:
    """Sum over coefficients of (-1)^popcount(coefficient & code) times the sign, for every code; exact for integers."""
    out, step = signs.copy(), 1
    while step < len(out):
        pairs = out.reshape(-1, 2, step)
        out = np.concatenate([pairs[:, :1] + pairs[:, 1:], pairs[:, :1] - pairs[:, 1:]], axis=1).ravel()
        step *= 2
    return out


def simulate(mechanism: Hadamard, true_counts: Counts, rng: np.random.Generator) -> Counts:
    """Person by person in blocks: one coefficient ties the cells of a report together."""
    stream = RandomStream.from_generator(rng)
    values = np.repeat(np.arange(mechanism.cells, dtype=np.int64), true_counts)
    counts = np.zeros(mechanism.cells, np.int64)
    for start in range(0, len(values), _BLOCK):
        counts += _count(mechanism, _answers(mechanism, values[start : start + _BLOCK], stream))
    return counts
