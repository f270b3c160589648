"""Millions of values put into cells, compiled.

A table of evenly spaced slots gives a first guess of a value's cell, which is then set right by comparing with the edges
themselves: no rounding decides a cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

SLOTS_PER_CELL = 8
MOST_SLOTS = 1 << 16


@njit(cache=True)
def _cell(x: float, edges: Any, guess: Any, scale: float) -> int:
    """The cell of a value, -1 outside the edges."""
    if not (edges[0] <= x <= edges[-1]):
        return -1
    c = guess[int((x - edges[0]) * scale)]
    while x < edges[c]:
        c -= 1
    while c < len(edges) - 2 and x >= edges[c + 1]:
        c += 1
    return c


@njit(cache=True)
def count_cells(values: Any, edges: Any, guess: Any, scale: float, counts: Any) -> int:
    """Add the values to the counts of their cells; the position of the first value outside the edges, or -1."""
    for i in range(len(values)):
        c = _cell(values[i], edges, guess, scale)
        if c < 0:
            return i
        counts[c] += 1
    return -1


@njit(cache=True)
def code_cells(values: Any, edges: Any, guess: Any, scale: float, codes: Any) -> int:
    """Write each value's cell; the position of the first value outside the edges, or -1."""
    for i in range(len(values)):
        c = _cell(values[i], edges, guess, scale)
        if c < 0:
            return i
        codes[i] = c
    return -1


def guesses(edges: Any) -> tuple[Any, float]:
    """The table of first guesses for `count_cells` and `code_cells`, and the slots per unit of value."""
    slots = min(MOST_SLOTS, SLOTS_PER_CELL * (len(edges) - 1))
    scale = slots / (edges[-1] - edges[0])
    starts = edges[0] + np.arange(slots + 2) / scale  # one more slot for the upper end and one for rounding
    cells = np.searchsorted(edges[1:-1], starts, side="right")
    return cells.astype(np.int64), float(scale)
