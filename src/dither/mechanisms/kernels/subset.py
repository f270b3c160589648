"""Subset selection for many people.

A report's law is: with p the true cell and size-1 others, else size others, drawn uniformly. The kernel draws the others by a
partial shuffle, which is the same law as the scalar mechanism's arc on a random circle and needs fewer draws.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from dither.mechanisms.kernels.bits import count_bits
from dither.mechanisms.kernels.stream import RandomStream, check_values, uniform_draws
from dither.mechanisms.mechanism import PackedReports
from dither.types import Integers

if TYPE_CHECKING:
    from dither.mechanisms.subset import SubsetSelection
    from dither.types import Codes, Counts

_BLOCK = 1 << 16
_MOST_DRAWS = 1 << 20  # cells times sets, above which drawing sets costs more than drawing people


@njit(cache=True)
def _choose(rows: Any, truth: Any, draws: Any, random: Any, cells: int, size: int, hits: int) -> None:
    order = np.arange(cells - 1)
    position = 0
    for i in range(len(truth)):
        value = truth[i]
        hit = draws[i] < hits
        if hit:
            rows[i, value >> 3] |= np.uint8(1 << (value & 7))
        for j in range(size - 1 if hit else size):
            # A 32-bit draw times the range, high half: off uniform by at most cells/2^32, which no simulation can notice.
            pick = j + np.int64((np.uint64(random[position]) * np.uint64(cells - 1 - j)) >> np.uint64(32))
            position += 1
            cell = order[pick]
            order[pick] = order[j]
            order[j] = cell
            cell += cell >= value
            rows[i, cell >> 3] |= np.uint8(1 << (cell & 7))


def randomise(mechanism: SubsetSelection, values: Codes, stream: RandomStream) -> PackedReports:
    """Reports of many simulated people."""
    truth = check_values(values, mechanism.cells)
    rows = np.zeros((len(truth), mechanism.report_bytes), np.uint8)
    hits = mechanism.size * mechanism.covering
    for start in range(0, len(truth), _BLOCK):
        part = truth[start : start + _BLOCK]
        draws = uniform_draws(stream, len(part), mechanism.threshold_bits)
        random = stream.words(len(part) * mechanism.size, np.uint32)
        _choose(rows[start : start + _BLOCK], part, draws, random, mechanism.cells, mechanism.size, hits)
    return PackedReports(rows)


def simulate(mechanism: SubsetSelection, true_counts: Counts, rng: np.random.Generator) -> Counts:
    """The exact law: sets drawn by multinomials where there are few of them, else person by person in blocks.

    A set's cells are not independent, so there is no binomial a cell; no report outlives its block.
    """
    sets = math.comb(mechanism.cells, mechanism.size)
    if mechanism.cells * sets <= min(_MOST_DRAWS, int(true_counts.sum())):
        return _simulate_sets(mechanism, true_counts, rng)
    stream = RandomStream.from_generator(rng)
    values = np.repeat(np.arange(mechanism.cells, dtype=np.int64), true_counts)
    counts = np.zeros(mechanism.cells, np.int64)
    for start in range(0, len(values), _BLOCK):
        part = randomise(mechanism, values[start : start + _BLOCK], stream)
        counts += count_bits(part.rows, mechanism.cells)
    return counts


@lru_cache(maxsize=64)
def _membership(cells: int, size: int) -> Integers:
    """One row a set of `size` cells, 1 where it holds a cell."""
    chosen = np.array(list(combinations(range(cells), size)))
    out = np.zeros((len(chosen), cells), np.int64)
    np.put_along_axis(out, chosen, 1, axis=1)
    return out


def _simulate_sets(mechanism: SubsetSelection, true_counts: Counts, rng: np.random.Generator) -> Counts:
    """How often each set is reported: for each true cell uniform over the sets that hold it, or over those that do not."""
    membership = _membership(mechanism.cells, mechanism.size)
    reported = np.zeros(len(membership), np.int64)
    for cell, people in enumerate(true_counts):
        hits = rng.binomial(people, float(mechanism.p))
        for holds, count in ((1, hits), (0, people - hits)):
            sets = np.flatnonzero(membership[:, cell] == holds)
            reported[sets] += rng.multinomial(count, np.full(len(sets), 1 / len(sets)))
    return reported @ membership
