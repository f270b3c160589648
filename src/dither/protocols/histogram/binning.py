"""Millions of values put into cells, compiled.

A table of evenly spaced slots gives a first guess of a value's cell, which is then set right by comparing with the edges
themselves: no rounding decides a cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from dither.types import AnyIntegers, Counts, Floats

SLOTS_PER_CELL = 8
MOST_SLOTS = 1 << 16


def bin_values(values: Floats, edges: Floats, counts: Counts, codes: AnyIntegers) -> int:
    """Add the values to the counts of their cells and, unless there is no room for any, write their cells.

    Gives the position of the first value outside the edges, or -1.
    """
    slots = min(MOST_SLOTS, SLOTS_PER_CELL * (len(edges) - 1))
    scale = slots / (edges[-1] - edges[0])
    starts = edges[0] + np.arange(slots + 2) / scale  # one more slot for the upper end and one for rounding
    guess = np.searchsorted(edges[1:-1], starts, side="right").astype(np.int64)
    return int(_bin(values, edges, guess, float(scale), counts, codes))


@njit(cache=True)
def _bin(values: Any, edges: Any, guess: Any, scale: float, counts: Any, codes: Any) -> int:
    low, high, last, kept = edges[0], edges[-1], len(edges) - 2, len(codes) > 0
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
        if kept:
            codes[i] = c
    return -1
