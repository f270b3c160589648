"""The flattened domain of some attributes.

The cells of a product domain are numbered in C order: the last attribute's code changes fastest, so cell =
(..(c_1 k_2 + c_2) k_3 + ..) + c_d. Mechanisms that need a power of two add empty cells after the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dither.errors import ParameterError
from dither.types import Codes, Integers

MOST_CELLS = 2**20


def domain_size(cardinalities: Sequence[int], names: Sequence[str] = (), most: int = MOST_CELLS) -> int:
    """The number of cells; an error when they are more than fit."""
    cells = math.prod(cardinalities)
    if cells > most:
        what = f"the product of {', '.join(names)}" if names else "the domain"
        raise ParameterError(
            f"{what} has {cells:,} cells, more than the {most:,} that fit; name fewer columns or use coarser bins",
            where="columns",
            value=cells,
        )
    return cells


def flat_counts(codes: npt.NDArray[np.integer], cardinalities: Sequence[int]) -> Integers:
    """The histogram of rows of codes over the flattened domain."""
    shape = tuple(int(k) for k in cardinalities)
    cells = domain_size(shape)
    flat = np.ravel_multi_index(tuple(codes[:, j].astype(np.int64) for j in range(len(shape))), shape)
    return np.bincount(flat, minlength=cells).astype(np.int64)


def cell_codes(cells: npt.NDArray[np.integer], cardinalities: Sequence[int]) -> Codes:
    """The codes of flattened cells, one row a cell."""
    return np.stack(np.unravel_index(cells, tuple(int(k) for k in cardinalities)), axis=1).astype(np.int32)
