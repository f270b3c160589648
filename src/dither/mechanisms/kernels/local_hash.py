"""Local hashing for many people.

Support counting asks, for every report and cell, whether the cell hashes into the reported bucket. With the hash
((a x + b) mod 2^32) >> 16 that is one comparison of 32-bit words: (a x + b - start) mod 2^32 < width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from dither.errors import ReportError
from dither.mechanisms.base import PackedReports
from dither.mechanisms.grr import respond
from dither.mechanisms.kernels.batch import check_cell_numbers, randomise, support
from dither.mechanisms.kernels.stream import RandomStream, uniform_draws
from dither.mechanisms.local_hash import HASH_BITS, WORD_BITS, LocalHash
from dither.types import AnyIntegers, Bytes, Codes, Counts, Integers

_BLOCK = 1 << 16
_SHIFT = WORD_BITS - HASH_BITS
_STRIDE = 2048  # cells whose counters are kept in the first-level cache


@njit(cache=True, boundscheck=False)
def _count(a: Any, base: Any, width: Any, first: int, counts: Any) -> None:
    """Add, for cells first.. of one stride, how many reports support each; four reports per pass over the counters."""
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
    """A hash function and a bucket for each simulated person."""
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
    """How many reports support each cell, in blocks of reports."""
    starts = np.array([mechanism.bucket_start(r) for r in range(mechanism.buckets + 1)], np.int64)
    counts = np.zeros(mechanism.cells, np.int64)
    for begin in range(0, len(reports), _BLOCK):
        rows = reports.rows[begin : begin + _BLOCK]
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
