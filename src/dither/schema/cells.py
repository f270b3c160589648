"""Codes of several attributes as cells of their product domain, last attribute fastest."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dither.types import Codes, Counts, Integers


def cells_of(
    codes: Codes, cardinalities: Sequence[int], positions: Sequence[int] | None = None
) -> Integers:
    """The cell of each row of codes.

    Args:
        codes: One row per participant. Codes outside their domain are not detected.
        cardinalities: The number of codes of each column.
        positions: The columns of the domain; by default all of them, in order.
    """
    cells = np.zeros(len(codes), np.int64)
    for i in range(len(cardinalities)) if positions is None else positions:
        cells *= cardinalities[i]
        cells += codes[:, i]
    return cells


def codes_of(cells: Integers, cardinalities: Sequence[int]) -> Integers:
    """The inverse of `cells_of`: one row of codes per cell."""
    codes = np.empty((len(cells), len(cardinalities)), np.int64, order="F")
    for i in range(len(cardinalities) - 1, -1, -1):
        cells, codes[:, i] = np.divmod(cells, cardinalities[i])
    return codes


def count_cells(
    codes: Codes, cardinalities: Sequence[int], positions: Sequence[int] | None = None
) -> Counts:
    """The number of rows in each cell, with one axis per column."""
    shape = tuple(cardinalities if positions is None else (cardinalities[i] for i in positions))
    counts = np.bincount(cells_of(codes, cardinalities, positions), minlength=math.prod(shape))
    return counts.astype(np.int64, copy=False).reshape(shape)
