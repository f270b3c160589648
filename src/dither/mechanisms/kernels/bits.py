"""Bit-vector reports for many people: Bernoulli bits 64 at a time, and counts of set bits.

A bit is set when a draw of 32 bits is below a threshold. The kernel compares 64 such draws at once, most significant bit
first, and stops when all 64 are decided, after about seven words of randomness instead of 32: the same exact probability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numba import njit

from dither.errors import ReportError
from dither.mechanisms.kernels.stream import check_values, uniform_draws
from dither.mechanisms.mechanism import PackedReports

if TYPE_CHECKING:
    from dither.mechanisms.kernels.stream import RandomStream
    from dither.mechanisms.unary import Unary
    from dither.types import Codes, Counts

_BLOCK_WORDS = 1 << 17  # one megabyte of bits a time: random words stay in the cache


@njit(cache=True)
def _fill(out: Any, start: int, threshold: int, bits: int, random: Any) -> int:
    """Fill words with Bernoulli bits until the randomness could run out; give the first word not filled."""
    position = 0
    ones = np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(start, len(out)):
        if position + bits > len(random):
            return i
        below = np.uint64(0)
        equal = ones
        for b in range(bits - 1, -1, -1):
            draw = random[position]
            position += 1
            if (threshold >> b) & 1:
                below |= equal & ~draw
                equal &= draw
            else:
                equal &= ~draw
            if equal == 0:
                break
        out[i] = below
    return len(out)


@njit(cache=True)
def _set_true_bits(rows: Any, truth: Any, draws: Any, threshold: int) -> None:
    """Overwrite each person's own bit by its own draw."""
    for i in range(len(truth)):
        byte = truth[i] >> 3
        mask = np.uint8(1 << (truth[i] & 7))
        if draws[i] < threshold:
            rows[i, byte] |= mask
        else:
            rows[i, byte] &= ~mask


@njit(cache=True)
def _byte_histogram(rows: Any, histogram: Any) -> None:
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            histogram[j, rows[i, j]] += 1


def bernoulli_rows(
    n: int, bits: int, threshold: int, threshold_bits: int, stream: RandomStream
) -> npt.NDArray[np.uint8]:
    """n rows of `bits` independent bits, each set with probability threshold/2^threshold_bits, packed little-endian."""
    width = (bits + 7) // 8
    words = np.empty((n * width + 7) // 8, np.uint64)
    for start in range(0, len(words), _BLOCK_WORDS):
        block = words[start : start + _BLOCK_WORDS]
        done = 0
        while done < len(block):
            random = stream.words((len(block) - done) * 8 + threshold_bits)
            done = _fill(block, done, threshold, threshold_bits, random)
    rows = words.view(np.uint8)[: n * width].reshape(n, width)
    if bits % 8:
        rows[:, -1] &= np.uint8((1 << (bits % 8)) - 1)
    return rows


def randomise_unary(mechanism: Unary, values: Codes, stream: RandomStream) -> PackedReports:
    """Every bit at q, then each person's own bit anew at p."""
    truth = check_values(values, mechanism.cells)
    rows = bernoulli_rows(len(truth), mechanism.cells, mechanism.other_set, mechanism.threshold_bits, stream)
    draws = uniform_draws(stream, len(truth), mechanism.threshold_bits)
    _set_true_bits(rows, truth, draws, mechanism.true_set)
    return PackedReports(rows)


_BITS_OF_BYTES = ((np.arange(256)[:, None] >> np.arange(8)) & 1).astype(np.int64)


def count_bits(rows: npt.NDArray[np.uint8], bits: int) -> Counts:
    """How many rows set each bit, by a histogram of each byte position."""
    histogram = np.zeros((rows.shape[1], 256), np.int64)
    _byte_histogram(rows, histogram)
    counts: Counts = (histogram @ _BITS_OF_BYTES).reshape(-1)
    if counts[bits:].any():
        raise ReportError(f"a report sets a bit beyond its {bits} bits")
    return counts[:bits]


def simulate_unary(mechanism: Unary, true_counts: Counts, rng: np.random.Generator) -> Counts:
    """The exact law in O(cells): bits of different people and cells are independent."""
    others = true_counts.sum() - true_counts
    own = rng.binomial(true_counts, float(mechanism.p))
    return (own + rng.binomial(others, float(mechanism.q))).astype(np.int64)
