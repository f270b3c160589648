"""A schema guessed from a table, for data that are public or for a first look."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dither.checks import check_whole
from dither.errors import TableError
from dither.schema.attribute import Attribute, Kind, Value
from dither.schema.read import DEFAULT_BINS, numeric
from dither.schema.labels import is_text
from dither.schema.native import read_columns
from dither.schema.schema import Schema
from dither.types import NativeTable

LEAK_WARNING = (
    "this schema was inferred from the table itself, which leaks private data: its bounds and labels (least and "
    "greatest values, rare labels) are facts about the people in it and are not protected; check it, widen it, and "
    "use a public schema for private data"
)
MAX_CATEGORIES = 1000
MAX_CODES = 16  # whole numbers with at most so many distinct values are taken as codes
_SURELY_ROWS = 64  # from so many rows on, text that differs in every row is taken as an identifier


def infer_schema(table: NativeTable, *, max_categories: int = MAX_CATEGORIES) -> Schema:
    """The schema of a pandas, polars or PyArrow table; whoever calls this must pass on `LEAK_WARNING`.

    Booleans stay booleans; text is categorical with sorted labels (ordinal where the column's type orders them); up
    to 16 distinct whole numbers are ordinal; other numbers are numeric in 16 bins between the least and the greatest.
    Nulls and NaN make a column `missing`. Constant columns and identifiers are errors.
    """
    check_whole("max_categories", max_categories, 2)
    layout, arrays = read_columns(table)
    return Schema(tuple(_infer(name, array, max_categories) for name, array in zip(layout.names, arrays, strict=True)))


def _infer(name: str, array: pa.ChunkedArray, max_categories: int) -> Attribute:
    held = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    ordered = pa.types.is_dictionary(array.type) and array.type.ordered
    if pa.types.is_dictionary(array.type):
        declared = array.unify_dictionaries().chunk(0).dictionary.to_pylist() if array.num_chunks else []
        array = array.cast(held)
    present = array.drop_null()
    if pa.types.is_floating(held):
        present = present.filter(pc.invert(pc.is_nan(present)))
    missing = len(present) < len(array)
    if not len(present):
        raise TableError(f"column {name!r} holds no values at all; drop it", where=name)
    if pa.types.is_boolean(held):
        return Attribute(name, "boolean", values=(False, True), missing=missing)
    if ordered:
        return _listed(name, "ordinal", [value for value in declared if value is not None], missing)
    if is_text(held):
        return _infer_text(name, present, missing, max_categories)
    if pa.types.is_integer(held) or pa.types.is_floating(held) or pa.types.is_decimal(held):
        return _infer_number(name, present, held, missing)
    raise TableError(
        f"column {name!r} holds {held} values, which cannot be asked; turn them into text or numbers, or drop it",
        where=name,
    )


def _infer_text(name: str, present: pa.ChunkedArray, missing: bool, max_categories: int) -> Attribute:
    labels = sorted(pc.unique(present).to_pylist())
    if len(labels) > max_categories or (len(labels) == len(present) >= _SURELY_ROWS):
        raise TableError(
            f"column {name!r} looks like an identifier or free text ({len(labels):,} distinct texts in "
            f"{len(present):,} rows); drop it or group its values",
            where=name,
        )
    return _listed(name, "categorical", labels, missing)


def _infer_number(name: str, present: pa.ChunkedArray, held: pa.DataType, missing: bool) -> Attribute:
    whole = pa.types.is_integer(held)
    if not whole:
        present = present.cast(pa.float64())
        if not pc.all(pc.is_finite(present)).as_py():
            raise TableError(f"column {name!r} holds an infinite value; mend it or drop the column", where=name)
    distinct = pc.unique(present)
    # Whole numbers with gaps reach us as floats from pandas; they are codes all the same.
    codes = distinct.to_pylist() if len(distinct) <= MAX_CODES else []
    if codes and all(float(code).is_integer() for code in codes):
        return _listed(name, "ordinal", sorted(int(code) for code in codes), missing)
    if len(distinct) < 2:
        raise _constant(name, distinct[0].as_py())
    bounds = pc.min_max(present).as_py()
    low, high = bounds["min"], bounds["max"]
    if math.isinf(float(high) - float(low)):
        raise TableError(f"column {name!r} spans more than a double-precision number can hold", where=name)
    low, high = (low, high) if whole else (float(low), float(high))
    return numeric(name, low=low, high=high, bins=DEFAULT_BINS, missing=missing)


def _listed(name: str, kind: Kind, values: Sequence[Value], missing: bool) -> Attribute:
    if len(values) < 2:
        raise _constant(name, values[0])
    return Attribute(name, kind, values=tuple(values), missing=missing)


def _constant(name: str, value: object) -> TableError:
    return TableError(
        f"column {name!r} holds one value only, {value!r}, so there is nothing to ask; drop it", where=name, value=value
    )
