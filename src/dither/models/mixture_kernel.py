"""The compiled inner loop of sampling from a mixture."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(cache=True)
def invert(cumulative: Any, start: int, width: int, components: Any, draws: Any, out: Any) -> None:
    """For each row the first code whose cumulative probability in the row's component exceeds its draw."""
    for i in range(len(draws)):
        row = cumulative[components[i]]
        low, high = start, start + width - 1
        while low < high:
            middle = (low + high) // 2
            if row[middle] > draws[i]:
                high = middle
            else:
                low = middle + 1
        out[i] = low - start
