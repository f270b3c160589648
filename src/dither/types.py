"""Arrays and callbacks that everything speaks of, named once. Needs NumPy, so a device's modules name them for the checker only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Reals = npt.NDArray[np.floating[Any]]  # doubles, or singles where speed counts
Integers = npt.NDArray[np.int64]
AnyIntegers = npt.NDArray[np.integer[Any]]  # whole numbers of any width
Indices = npt.NDArray[np.intp]
Words = npt.NDArray[np.uint64]  # of random bits
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]  # of people or reports, never negative
Codes = AnyIntegers  # one row per person, one column per attribute: positions in its list of values
Progress = Callable[[str, int, int], None]  # what is done, how much of it, of how much
# A pandas, polars or PyArrow table: they share no type, and two of them may not be installed.
NativeTable: TypeAlias = Any
AnyArray: TypeAlias = npt.NDArray[Any]
JsonObject: TypeAlias = dict[str, Any]  # plain values by name, as JSON holds them
JsonMapping: TypeAlias = Mapping[str, Any]  # the same to read, and parameters by name
