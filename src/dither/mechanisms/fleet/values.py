"""Checks of what comes into the vectorised mechanisms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dither.errors import ParameterError, ReportError
from dither.types import Integers


def check_values(values: npt.NDArray[Any], cells: int) -> Integers:
    """Cell numbers in range, as 64-bit integers."""
    truth = np.asarray(values)
    if truth.ndim != 1 or truth.dtype.kind not in "iu":
        raise ParameterError("values must be a one-dimensional array of cell numbers", where="values")
    if truth.size and (truth.min() < 0 or truth.max() >= cells):
        bad = truth[(truth < 0) | (truth >= cells)][0]
        raise ParameterError(f"value {bad} is outside 0..{cells - 1}", where="values", value=int(bad))
    return truth.astype(np.int64, copy=False)


def check_counts(counts: Integers, cells: int) -> Integers:
    """One counter a cell: a longer tally means that a report named a cell that does not exist."""
    if len(counts) != cells:
        raise ReportError(f"a report names cell {len(counts) - 1}, outside 0..{cells - 1}")
    return counts.astype(np.int64, copy=False)
