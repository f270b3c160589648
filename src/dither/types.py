"""Names for array types, callbacks and JSON.

This module needs NumPy; modules for devices import it for type checking only.
"""

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
# One row per person, one column per attribute: positions in its list of values.
Codes = AnyIntegers
# callback(stage, done, total)
Progress = Callable[[str, int, int], None]
# A pandas, polars or PyArrow table: they share no type, and two of them may not be
# installed.
NativeTable: TypeAlias = Any
AnyArray: TypeAlias = npt.NDArray[Any]
JsonObject: TypeAlias = dict[str, Any]  # plain values by name, as JSON holds them
# A read-only JSON object, or parameters by name.
JsonMapping: TypeAlias = Mapping[str, Any]
