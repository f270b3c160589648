"""Conversion between pandas, polars and PyArrow tables and Arrow columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import narwhals as nw
import numpy as np
import pyarrow as pa

from dither.errors import TableError
from dither.schema.attribute import Attribute
from dither.schema.columns import label_array, plain_type
from dither.schema.schema import Schema
from dither.types import NativeTable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

TableKind = Literal["pandas", "polars", "pyarrow"]


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, its Arrow type, and its type in the table's library.

    `style` is how a text column writes values that are not text in the schema: "true", "True"
    or "1".
    """

    name: str
    arrow: pa.DataType
    native: Any = None  # a type of pandas, polars or PyArrow
    style: int = 0


@dataclass(frozen=True)
class Layout:
    """The kind of a table, the order of its columns and their types, to rebuild a similar table."""

    kind: TableKind
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in the table's order."""
        return tuple(column.name for column in self.columns)


def table_kind(table: object) -> TableKind:
    """The library of a table.

    Raises:
        TableError: The object is not a supported table.
    """
    if nw.dependencies.is_pandas_dataframe(table):
        return "pandas"
    if nw.dependencies.is_polars_dataframe(table):
        return "polars"
    if nw.dependencies.is_pyarrow_table(table):
        return "pyarrow"
    if nw.dependencies.is_polars_lazyframe(table):
        raise TableError("a polars LazyFrame holds no rows yet; call collect() on it first")
    name = f"{type(table).__module__}.{type(table).__name__}".removeprefix("builtins.")
    raise TableError(f"expected a pandas, polars or PyArrow table, not {name}", value=type(table))


def check_names(names: Sequence[object], place: str = "the table") -> None:
    """Column names must be distinct, non-empty text."""
    seen: set[object] = set()
    if not names:
        raise TableError(f"{place} has no columns")
    for name in names:
        if not isinstance(name, str) or not name:
            raise TableError(
                f"{place} has a column named {name!r}; a column's name must be non-empty text",
                value=name,
            )
        if name in seen:
            raise TableError(
                f"{place} has two columns named {name!r}; rename or drop one", where=name
            )
        seen.add(name)


def column_names(table: NativeTable) -> list[str]:
    """A table's columns in order; their names are distinct text."""
    names = list(table.column_names if table_kind(table) == "pyarrow" else table.columns)
    check_names(names)
    return names


def select_columns(table: NativeTable, names: Sequence[str]) -> NativeTable:
    """The same table with these columns only, in this order."""
    return nw.from_native(table, eager_only=True).select(list(names)).to_native()


def read_columns(table: NativeTable) -> tuple[Layout, list[pa.ChunkedArray]]:
    """A table's layout and its columns as Arrow chunked arrays, in the table's order.

    Guarantees distinct text names and at least one row; a pandas index is not a column.
    """
    layout, arrays = _columns(table)
    if not len(arrays[0]):
        raise TableError("the table has no rows")
    return layout, arrays


def _columns(table: NativeTable) -> tuple[Layout, list[pa.ChunkedArray]]:
    kind, names = table_kind(table), column_names(table)
    frame = nw.from_native(table, eager_only=True)
    columns, arrays = [], []
    for name in names:
        try:
            array = frame.get_column(name).to_arrow()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise TableError(
                f"column {name!r} cannot be read as values of one type: {_first_line(error)}",
                where=name,
            ) from None
        if not isinstance(array, pa.ChunkedArray):
            array = pa.chunked_array([array])
        native = table.schema.field(name).type if kind == "pyarrow" else table[name].dtype
        columns.append(Column(name, array.type, native))
        arrays.append(array)
    return Layout(kind, tuple(columns)), arrays


def build_table(layout: Layout, arrays: Sequence[pa.Array]) -> NativeTable:
    """Build a table of the layout's kind from Arrow arrays in its order.

    An array whose values do not fit the column's type (a domain wider than the type) keeps its
    own type. Categories that the column's type lacks are added if rows have them.
    """
    if layout.kind == "pyarrow":
        return pa.table(dict(zip(layout.names, arrays, strict=True)))
    pairs = list(zip(layout.columns, arrays, strict=True))
    if layout.kind == "polars":
        import polars as pl

        return pl.DataFrame([_polars_series(column, array) for column, array in pairs])
    import pandas as pd

    return pd.DataFrame(
        {column.name: _pandas_array(column.native, array) for column, array in pairs}
    )


def to_arrow(table: NativeTable) -> pa.Table:
    """A table of any kind as a PyArrow table, without a pandas index; it may have no rows."""
    layout, arrays = _columns(table)
    return (
        table
        if layout.kind == "pyarrow"
        else pa.table(dict(zip(layout.names, arrays, strict=True)))
    )


def _polars_series(column: Column, array: pa.Array) -> pl.Series:
    import polars as pl

    series = pl.Series(column.name, pl.from_arrow(array))
    dtype = column.native
    if isinstance(dtype, pl.Enum):
        series = series.cast(pl.String)
        categories = dtype.categories.to_list()
        extra = [
            label
            for label in series.unique(maintain_order=True).drop_nulls()
            if label not in categories
        ]
        dtype = pl.Enum([*categories, *extra]) if extra else dtype
    return series if dtype is None or series.dtype == dtype else series.cast(dtype)


def _pandas_array(dtype: Any, array: pa.Array) -> Any:
    """A pandas array of `dtype`; integers and booleans become nullable if values are missing."""
    import pandas as pd

    if dtype is None:
        return array.to_pandas(integer_object_nulls=False)
    if isinstance(dtype, pd.CategoricalDtype):
        # Numbers drawn from a bin are not categories.
        if not pa.types.is_dictionary(array.type):
            return array.to_pandas()
        return _pandas_categories(dtype, array)
    if isinstance(dtype, pd.ArrowDtype):
        return pd.arrays.ArrowExtensionArray(pa.chunked_array([array.cast(dtype.pyarrow_dtype)]))
    if pd.api.types.is_object_dtype(dtype):
        return (
            pd.Series(array.to_pylist(), dtype=object)
            if array.null_count
            else array.to_pandas().astype(object)
        )
    if isinstance(dtype, pd.api.extensions.ExtensionDtype) and hasattr(dtype, "__from_arrow__"):
        return dtype.__from_arrow__(pa.chunked_array([array]))
    if array.null_count and dtype.kind in "iub":
        nullable = (
            "boolean"
            if dtype.kind == "b"
            else {"i": "Int", "u": "UInt"}[dtype.kind] + str(dtype.itemsize * 8)
        )
        return pd.array(array.to_pylist(), dtype=nullable)
    return array.to_numpy(zero_copy_only=False).astype(dtype, copy=False)


def _pandas_categories(dtype: pd.CategoricalDtype, array: pa.Array) -> pd.Categorical:
    import pandas as pd

    labels = array.dictionary.to_pylist()
    codes = array.indices.fill_null(len(labels)).to_numpy(zero_copy_only=False)
    used = np.bincount(codes, minlength=len(labels)) > 0
    categories = list(dtype.categories)
    extra = [
        label for label, seen in zip(labels, used, strict=False) if seen and label not in categories
    ]
    if extra:
        dtype = pd.CategoricalDtype([*categories, *extra], ordered=dtype.ordered)
    places = np.append(dtype.categories.get_indexer(labels), -1)
    return pd.Categorical.from_codes(places[codes], dtype=dtype)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


_EXACT = 2.0**53  # up to here every whole number is a float


def public_layout(layout: Layout, schema: Schema, *, declared: bool) -> Layout:
    """The layout of the synthetic table for an input table with `layout`.

    Guarantee: it depends on the schema, the kind of table, the columns' order and, if `declared`,
    on their declared types. All of these are public, so types reveal nothing about any row. A
    CSV file has no types, and one gap turns whole numbers of a pandas frame into float64, so
    there the schema decides. Labels are written as in the schema.
    """
    return replace(
        layout,
        columns=tuple(_column(c, schema[c.name], layout.kind, declared) for c in layout.columns),
    )


def schema_type(attribute: Attribute) -> pa.DataType:
    """The Arrow type of an attribute by the schema alone.

    Numeric: by the unit if it has one. Otherwise integers if all atoms and both bounds are whole
    and every bin contains a whole number, else real numbers.
    """
    if attribute.kind == "numeric":
        return pa.int64() if _whole(attribute) else pa.float64()
    return plain_type(attribute)


def _column(column: Column, attribute: Attribute, kind: str, declared: bool) -> Column:
    if kind == "pandas":
        return _pandas_column(column, attribute)
    if declared:
        return replace(column, style=0)
    held = schema_type(attribute)
    return Column(column.name, held, held)


def _pandas_column(column: Column, attribute: Attribute) -> Column:
    import pandas as pd

    dtype, held = column.native, schema_type(attribute)
    # With a missing value integers would become floats, booleans objects.
    gaps_show = isinstance(dtype, np.dtype)
    text = pd.Series(["text"]).dtype
    if isinstance(dtype, pd.CategoricalDtype) and not attribute.on_line:
        # astype("category") lists the values that it meets; the schema lists all.
        labels = label_array(attribute, held, 0)[0].to_pandas()
        ordered = bool(dtype.ordered)
        native = pd.CategoricalDtype(labels, ordered=ordered)
        return Column(column.name, pa.dictionary(pa.int32(), held, ordered=ordered), native)
    if (
        not isinstance(dtype, pd.CategoricalDtype)
        and dtype != text
        and not (gaps_show and attribute.missing)
    ):
        return replace(column, style=0)
    if pa.types.is_integer(held):
        return Column(
            column.name, held, pd.Int64Dtype() if attribute.missing else np.dtype("int64")
        )
    if pa.types.is_boolean(held):
        return Column(
            column.name, held, pd.BooleanDtype() if attribute.missing else np.dtype("bool")
        )
    return Column(column.name, held, np.dtype("float64") if pa.types.is_floating(held) else text)


def _whole(attribute: Attribute) -> bool:
    ends = attribute.line.ends
    low, high = ends[0][0], ends[-1][1]
    if (
        not (float(low).is_integer() and float(high).is_integer())
        or max(abs(low), abs(high)) > _EXACT
    ):
        return False
    if attribute.unit is not None:
        return float(attribute.unit).is_integer()
    if not all(float(atom).is_integer() for atom in attribute.atoms):
        return False
    # Bins are half-open; the last one is closed and ends at a whole number.
    edges = attribute.edges
    return all(math.ceil(low) < high for low, high in pairwise(edges[:-1]))
