"""Batches of bit vectors: unary encodings, Bloom filters and subset selection.

A bit is set when a draw of 32 bits is below a threshold. The kernel compares 64 such draws
at once, most significant bit first, and stops when all 64 are decided, after about seven
words of randomness instead of 32. The probability is the same, exactly.

The frequencies of Bloom filters are estimated by regression: the expected frequency of bit j is
q + (p-q) times the total frequency of the values whose filter sets it. Least squares on the
filters' matrix inverts that without bias.

The law of a subset: with p the true cell and size-1 others, else size others, drawn
uniformly. The kernel draws the others by a partial shuffle, which has the same law as the
scalar mechanism's arc on a random circle and needs fewer draws.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from dither.compiled import compiled
from dither.errors import ReportError
from dither.mechanisms.base import Estimate, PackedReports
from dither.mechanisms.bloom import BloomRappor
from dither.mechanisms.kernels.batch import (
    check_cell_numbers,
    check_tally,
    estimate,
    randomise,
    simulate,
    simulate_people,
    support,
    uniform_draws,
)
from dither.mechanisms.subset import SubsetSelection
from dither.mechanisms.unary import Unary
from dither.randomness import RandomStream
from dither.types import Bytes, Codes, Counts, Integers

# One megabyte of bits at a time, so that random words stay in the cache.
_BLOCK_WORDS = 1 << 17
# Participants whose sets are drawn at a time.
_BLOCK = 1 << 16
# Above this number of cells times sets, drawing sets is slower than drawing participants.
_MAX_DRAWS = 1 << 20
_BITS_OF_BYTES = ((np.arange(256)[:, None] >> np.arange(8)) & 1).astype(np.int64)


@compiled
def _fill(out: Any, start: int, threshold: int, bits: int, random: Any) -> int:
    """Fill words with Bernoulli bits while randomness lasts; return the first unfilled word."""
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


@compiled
def _set_true_bits(rows: Any, truth: Any, draws: Any, threshold: int) -> None:
    """Overwrite the bit of each participant's true cell."""
    for i in range(len(truth)):
        byte = truth[i] >> 3
        mask = np.uint8(1 << (truth[i] & 7))
        if draws[i] < threshold:
            rows[i, byte] |= mask
        else:
            rows[i, byte] &= ~mask


@compiled
def _byte_histogram(rows: Any, histogram: Any) -> None:
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            histogram[j, rows[i, j]] += 1


def _bernoulli_rows(
    n: int, bits: int, threshold: int, threshold_bits: int, stream: RandomStream
) -> Bytes:
    """n rows of independent bits, each set with threshold/2^threshold_bits, little-endian."""
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


@support.register(Unary)
@support.register(BloomRappor)
@support.register(SubsetSelection)
def count_bits(mechanism: Unary | BloomRappor | SubsetSelection, reports: PackedReports) -> Counts:
    """The number of reports that set each bit, by a histogram of each byte position."""
    histogram = np.zeros((reports.rows.shape[1], 256), np.int64)
    _byte_histogram(reports.rows, histogram)
    counts: Counts = (histogram @ _BITS_OF_BYTES).reshape(-1)
    if counts[mechanism.counters :].any():
        raise ReportError(f"a report sets a bit beyond its {mechanism.counters} bits")
    return counts[: mechanism.counters]


# Unary encodings.


@randomise.register(Unary)
def _unary(mechanism: Unary, values: Codes, stream: RandomStream) -> PackedReports:
    """Every bit with q, then the bit of the true cell again with p."""
    truth = check_cell_numbers(values, mechanism.cells)
    rows = _bernoulli_rows(
        len(truth), mechanism.cells, mechanism.other_set, mechanism.threshold_bits, stream
    )
    draws = uniform_draws(stream, len(truth), mechanism.threshold_bits)
    _set_true_bits(rows, truth, draws, mechanism.true_set)
    return PackedReports(rows)


@simulate.register(Unary)
def _simulate_unary(mechanism: Unary, true_counts: Counts, rng: np.random.Generator) -> Counts:
    """The exact law in O(cells): bits of different participants and cells are independent."""
    others = true_counts.sum() - true_counts
    true_bits = rng.binomial(true_counts, float(mechanism.p))
    other_bits = rng.binomial(others, float(mechanism.q))
    return np.asarray(true_bits + other_bits, dtype=np.int64)


# Bloom filters.


@randomise.register(BloomRappor)
def _bloom(mechanism: BloomRappor, values: Codes, stream: RandomStream) -> PackedReports:
    """Each participant's filter with every bit flipped with probability f/2."""
    truth = check_cell_numbers(values, mechanism.cells)
    filters = np.packbits(mechanism.filter_matrix(), axis=1, bitorder="little")
    flips = _bernoulli_rows(
        len(truth), mechanism.bits, mechanism.flipped, mechanism.threshold_bits, stream
    )
    return PackedReports(filters[truth] ^ flips)


@simulate.register(BloomRappor)
def _simulate_bloom(
    mechanism: BloomRappor, true_counts: Counts, rng: np.random.Generator
) -> Counts:
    """The exact law in O(bits): given the filters, flips are independent."""
    set_bits = true_counts @ mechanism.filter_matrix().astype(np.int64)
    kept = rng.binomial(set_bits, float(mechanism.p))
    flipped = rng.binomial(true_counts.sum() - set_bits, float(mechanism.q))
    return np.asarray(kept + flipped, dtype=np.int64)


@estimate.register(BloomRappor)
def _estimate_bloom(mechanism: BloomRappor, support: Counts, n: int) -> Estimate:
    """Unbiased frequencies by least squares."""
    counts = check_tally(mechanism, support, n)
    p, q = float(mechanism.p), float(mechanism.q)
    bits = (counts / n - q) / (p - q)
    solved = np.linalg.lstsq(mechanism.design_matrix(), bits, rcond=None)[0]
    frequencies = np.asarray(solved, dtype=np.float64)
    return Estimate(frequencies, np.sqrt(mechanism.covariance(n).diagonal()), int(n))


# Subset selection.


@compiled
def _choose(
    rows: Any, truth: Any, draws: Any, random: Any, cells: int, size: int, hits: int
) -> None:
    order = np.arange(cells - 1)
    position = 0
    for i in range(len(truth)):
        value = truth[i]
        hit = draws[i] < hits
        if hit:
            rows[i, value >> 3] |= np.uint8(1 << (value & 7))
        for j in range(size - 1 if hit else size):
            # A 32-bit draw times the range, high half: the bias is at most cells/2^32,
            # which no simulation can detect.
            scaled = np.uint64(random[position]) * np.uint64(cells - 1 - j)
            pick = j + np.int64(scaled >> np.uint64(32))
            position += 1
            cell = order[pick]
            order[pick] = order[j]
            order[j] = cell
            cell += cell >= value
            rows[i, cell >> 3] |= np.uint8(1 << (cell & 7))


@randomise.register(SubsetSelection)
def _subsets(mechanism: SubsetSelection, values: Codes, stream: RandomStream) -> PackedReports:
    """A draw for the true cell and a partial shuffle of the others."""
    truth = check_cell_numbers(values, mechanism.cells)
    rows = np.zeros((len(truth), mechanism.report_bytes), np.uint8)
    hits = mechanism.size * mechanism.covering
    for start in range(0, len(truth), _BLOCK):
        part = truth[start : start + _BLOCK]
        draws = uniform_draws(stream, len(part), mechanism.threshold_bits)
        random = stream.words(len(part) * mechanism.size, np.uint32)
        _choose(
            rows[start : start + _BLOCK], part, draws, random, mechanism.cells, mechanism.size, hits
        )
    return PackedReports(rows)


@simulate.register(SubsetSelection)
def _simulate_subsets(
    mechanism: SubsetSelection, true_counts: Counts, rng: np.random.Generator
) -> Counts:
    """The exact law: few sets are drawn by multinomials, else every participant is drawn.

    For each true cell a report is uniform over the sets that hold the cell, or over the
    others. The cells of a set are dependent, so a binomial per cell would be wrong.
    """
    sets = math.comb(mechanism.cells, mechanism.size)
    if mechanism.cells * sets > min(_MAX_DRAWS, int(true_counts.sum())):
        return simulate_people(mechanism, true_counts, rng, _BLOCK)
    membership = _membership(mechanism.cells, mechanism.size)
    reported = np.zeros(len(membership), np.int64)
    for cell, people in enumerate(true_counts):
        hits = rng.binomial(people, float(mechanism.p))
        for holds, count in ((1, hits), (0, people - hits)):
            possible = np.flatnonzero(membership[:, cell] == holds)
            uniform = np.full(len(possible), 1 / len(possible))
            reported[possible] += rng.multinomial(count, uniform)
    return reported @ membership


@lru_cache(maxsize=64)
def _membership(cells: int, size: int) -> Integers:
    """One row per set of `size` cells, 1 where it holds a cell."""
    chosen = np.array(list(combinations(range(cells), size)))
    out = np.zeros((len(chosen), cells), np.int64)
    np.put_along_axis(out, chosen, 1, axis=1)
    return out
