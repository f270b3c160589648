"""Exact L1 sensitivity of an integer measurement matrix.

Guarantee: the integer returned is the largest L1 distance between the measurements of two neighbouring histograms.
One record is one unit in one cell, so for added or removed records it is the largest column norm, for replaced ones
the largest distance between two columns. The paper's "sensing sensitivity" (definition 5) is not used: it does not
bound this.

Reference: Dwork, McSherry, Nissim, Smith, "Calibrating noise to sensitivity in private data analysis", TCC 2006.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.central.strategy import Neighbours
from dither.types import Codes

IntMatrix = npt.NDArray[np.integer[Any]]


def matrix_sensitivity(matrix: IntMatrix, neighbours: Neighbours) -> int:
    """The exact L1 sensitivity of x -> matrix x for integer histograms x."""
    if not np.issubdtype(matrix.dtype, np.integer):
        raise TypeError("sensitivity is exact for integer matrices only; round the matrix first")
    if neighbours == "add-remove":
        return largest_column_norm(matrix)
    return largest_column_distance(matrix)


def largest_column_norm(matrix: IntMatrix) -> int:
    """The largest sum of absolute entries of a column."""
    return int(
        np.abs(matrix.astype(np.int32 if matrix.dtype.itemsize < 4 else np.int64)).sum(axis=0, dtype=np.int64).max()
    )


def largest_column_distance(matrix: IntMatrix) -> int:
    """The largest L1 distance of two columns: every pair is looked at, since no cheaper exact rule holds in general."""
    columns = np.ascontiguousarray(matrix.T, dtype=np.int32)
    if max(int(matrix.max()), -int(matrix.min())) * 2 * matrix.shape[0] >= 2**31:
        raise ValueError("entries too large for 32-bit distances")
    return int(_pair_kernel()(columns))


@functools.cache
def _pair_kernel() -> Callable[[Codes], int]:
    """The compiled double loop over pairs, on all cores."""
    import numba

    @numba.njit(parallel=True, cache=True)
    def largest(columns: Any) -> Any:
        count = columns.shape[0]
        rows = columns.shape[1]
        best = np.zeros(count, dtype=np.int32)
        for i in numba.prange(count):
            top = np.int32(0)
            for j in range(i + 1, count):
                total = np.int32(0)
                for r in range(rows):
                    total += abs(columns[i, r] - columns[j, r])
                top = max(top, total)
            best[i] = top
        return best.max()

    return largest
