"""Loops over millions of values, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# A table of evenly spaced slots gives a first guess of a value's cell, which is then set right by comparing with the
# edges themselves: no rounding decides a cell.
SLOTS_PER_CELL = 8
MOST_SLOTS = 1 << 16


@njit(cache=True)
def count_cells(values: Any, edges: Any, guess: Any, scale: float, counts: Any) -> int:
    """Add the values to the counts of their cells; the position of the first value outside the edges, or -1."""
    low, high, last = edges[0], edges[-1], len(edges) - 2
    for i in range(len(values)):
        x = values[i]
        if not (low <= x <= high):
            return i
        c = guess[int((x - low) * scale)]
        while x < edges[c]:
            c -= 1
        while c < last and x >= edges[c + 1]:
            c += 1
        counts[c] += 1
    return -1


@njit(cache=True)
def code_cells(values: Any, edges: Any, guess: Any, scale: float, codes: Any) -> int:
    """Write each value's cell; the position of the first value outside the edges, or -1."""
    low, high, last = edges[0], edges[-1], len(edges) - 2
    for i in range(len(values)):
        x = values[i]
        if not (low <= x <= high):
            return i
        c = guess[int((x - low) * scale)]
        while x < edges[c]:
            c -= 1
        while c < last and x >= edges[c + 1]:
            c += 1
        codes[i] = c
    return -1


@njit(cache=True)
def look_up(cells: Any, draws: Any, ends: Any, out: Any) -> None:
    """For each person the first output whose cumulative weight, in the row of the person's cell, exceeds the draw."""
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


def guesses(edges: Any) -> tuple[Any, float]:
    """The table of first guesses for `count_cells` and `code_cells`, and the slots a unit of value."""
    slots = min(MOST_SLOTS, SLOTS_PER_CELL * (len(edges) - 1))
    scale = slots / (edges[-1] - edges[0])
    starts = edges[0] + np.arange(slots + 2) / scale  # one more slot for the upper end and one for rounding
    cells = np.searchsorted(edges[1:-1], starts, side="right")
    return cells.astype(np.int64), float(scale)
