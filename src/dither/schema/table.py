"""Tables as codes of a schema, and codes as tables of the same kind, columns and types.

Tables of pandas, polars and PyArrow are converted to Arrow columns and back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import narwhals as nw
import numpy as np
import pyarrow as pa

from dither.checks import check_choice
from dither.errors import TableError
from dither.schema.attribute import Attribute, Value
from dither.schema.columns import (
    Matcher,
    column_step,
    distinct_values,
    draw_line,
    fill_missing,
    float_tolerance,
    is_text,
    label_array,
    line_array,
    line_codes,
    line_numbers,
    other_code,
    plain_type,
    shown_rows,
)
from dither.schema.rule_tables import breaks, check_rows
from dither.schema.rule_tables import keep_rules as rule_keeping
from dither.schema.rules import Impossible
from dither.schema.schema import Schema
from dither.types import Codes, Integers, NativeTable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


# "columns" is a dict of columns, "records" a list of dicts.
_TableKind = Literal["pandas", "polars", "pyarrow", "columns", "records"]


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, its Arrow type, and its type in the table's library.

    `style` is how a text column writes values that are not text in the schema: "true", "True"
    or "1". `constant` is an array of the one value that all rows of an unasked column have.
    """

    name: str
    arrow: pa.DataType
    native: Any = None  # a type of pandas, polars or PyArrow
    style: int = 0
    constant: pa.Array | None = None


@dataclass(frozen=True)
class Layout:
    """The kind of a table, the order of its columns and their types, to rebuild a similar table."""

    kind: _TableKind
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in the table's order."""
        return tuple(column.name for column in self.columns)


def table_kind(table: object) -> _TableKind:
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
    if isinstance(table, Mapping):
        return "columns"
    if _is_records(table):
        return "records"
    if nw.dependencies.is_polars_lazyframe(table):
        raise TableError("a polars LazyFrame holds no rows yet; call collect() on it first")
    name = f"{type(table).__module__}.{type(table).__name__}".removeprefix("builtins.")
    raise TableError(
        "expected a pandas, polars or PyArrow table, a dict of columns or a list of records, "
        f"not {name}",
        value=type(table),
    )


def _is_records(table: object) -> bool:
    return isinstance(table, (list, tuple)) and all(isinstance(row, Mapping) for row in table)


def adopt_table(table: NativeTable) -> NativeTable:
    """A dict of columns or a list of records as a PyArrow table; other tables as they are.

    Raises:
        TableError: Columns have different lengths, or values of several types.
    """
    kind = table_kind(table)
    if kind not in ("columns", "records"):
        return table
    if kind == "columns":
        columns = dict(table)
    else:
        # Not every record has to have every key.
        names = dict.fromkeys(name for record in table for name in record)
        columns = {name: [record.get(name) for record in table] for name in names}
    check_names(list(columns))
    arrays = {name: _python_column(name, values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    first = next(iter(lengths))
    for name, length in lengths.items():
        if length != lengths[first]:
            raise TableError(
                f"column {name!r} has {length:,} rows, column {first!r} has {lengths[first]:,}",
                where=name,
            )
    return pa.table(arrays)


def _python_column(name: str, values: Any) -> pa.Array:
    """A column of Python values as an Arrow array; NaN is missing."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise TableError(
            f"column {name!r} must be a list of values, not {type(values).__name__}", where=name
        )
    try:
        array = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise TableError(
            f"column {name!r} cannot be read as values of one type: {_first_line(error)}",
            where=name,
        ) from None
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


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
    table = adopt_table(table)
    names = list(table.column_names if table_kind(table) == "pyarrow" else table.columns)
    check_names(names)
    return names


def select_columns(table: NativeTable, names: Sequence[str]) -> NativeTable:
    """The same table with these columns only, in this order."""
    return nw.from_native(adopt_table(table), eager_only=True).select(list(names)).to_native()


def read_columns(table: NativeTable) -> tuple[Layout, list[pa.ChunkedArray]]:
    """A table's layout and its columns as Arrow chunked arrays, in the table's order.

    Guarantees distinct text names and at least one row; a pandas index is not a column.
    """
    layout, arrays = _columns(table)
    if not len(arrays[0]):
        raise TableError("the table has no rows")
    return layout, arrays


def _columns(table: NativeTable) -> tuple[Layout, list[pa.ChunkedArray]]:
    table = adopt_table(table)
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


def _build_table(layout: Layout, arrays: Sequence[pa.Array]) -> NativeTable:
    """Build a table of the layout's kind from Arrow arrays in its order.

    An array whose values do not fit the column's type (a domain wider than the type) keeps its
    own type. Categories that the column's type lacks are added if rows have them.
    """
    if layout.kind == "pyarrow":
        return pa.table(dict(zip(layout.names, arrays, strict=True)))
    if layout.kind in ("columns", "records"):
        plain = pa.table(dict(zip(layout.names, arrays, strict=True)))
        return plain.to_pydict() if layout.kind == "columns" else plain.to_pylist()
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
    table = adopt_table(table)
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
    stated = dict(schema.constants)
    columns = (
        _constant_column(c, stated[c.name], declared or layout.kind == "pandas")
        if c.constant is not None
        else _column(c, schema[c.name], layout.kind, declared)
        for c in layout.columns
    )
    return replace(layout, columns=tuple(columns))


def _constant_column(column: Column, value: Value | None, declared: bool) -> Column:
    """A constant column as the schema states it, unless its type is declared."""
    if declared:
        return column
    constant = pa.array([value])
    return Column(column.name, constant.type, constant.type, constant=constant)


def schema_type(attribute: Attribute) -> pa.DataType:
    """The Arrow type of an attribute by the schema alone.

    With a format: text. Numeric: by the unit if it has one. Otherwise integers if all atoms and both bounds are whole
    and every bin contains a whole number, else real numbers.
    """
    if attribute.format:
        return pa.string()
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


_Unknown = Literal["error", "other"]


@dataclass(frozen=True)
class _EncodedTable:
    """The codes of a table, in the schema's order, and the layout to rebuild such a table.

    `clipped` counts the rows of each attribute whose value was replaced by "other".
    """

    codes: Codes
    layout: Layout
    clipped: Mapping[str, int] = field(default_factory=dict)


def encode(
    table: NativeTable, schema: Schema, *, unknown: _Unknown = "error", keep_rules: bool = True
) -> _EncodedTable:
    """The codes of a pandas, polars or PyArrow table. NaN is missing.

    Args:
        table: The table.
        schema: Its schema.
        unknown: What to do with a value outside a domain: "error", or "other" to replace it by
            the category "other".
        keep_rules: Whether a row that violates a rule is an error.

    Raises:
        TableError: A value is outside its domain, or a row violates a rule.
    """
    check_choice("unknown", unknown, get_args(_Unknown))
    layout, arrays = read_columns(_without_dropped(table, schema))
    constants = dict(schema.constants)
    _check_columns(tuple(name for name in layout.names if name not in constants), schema)
    codes = np.empty((len(arrays[0]), len(schema)), dtype=np.int32, order="F")
    columns, clipped = [], {}
    for column, array in zip(layout.columns, arrays, strict=True):
        if column.name in constants:
            constant = _check_constant(column.name, constants[column.name], array)
            columns.append(replace(column, constant=constant))
            continue
        attribute, position = schema[column.name], schema.index(column.name)
        if attribute.on_line:
            codes[:, position] = line_codes(attribute, array)
        else:
            codes[:, position], style, others = _encode_labels(attribute, array, unknown)
            column = replace(column, style=style)  # noqa: PLW2901
            if others:
                clipped[column.name] = others
        columns.append(column)
    if schema.rules and keep_rules:
        check_rows(schema, codes)
    return _EncodedTable(codes, replace(layout, columns=tuple(columns)), clipped)


def _without_dropped(table: NativeTable, schema: Schema) -> NativeTable:
    """The table without the columns that the schema marks as dropped."""
    dropped = {name for name, _ in schema.dropped}
    names = column_names(table)
    kept = [name for name in names if name not in dropped]
    return table if len(kept) == len(names) or not kept else select_columns(table, kept)


def constant_value(array: pa.ChunkedArray) -> Value | None:
    """The one value of a column as a schema file holds it; None if all are missing."""
    present = array.drop_null()
    value = present[0].as_py() if len(present) else None
    if value is None or isinstance(value, (str, int, float)):
        return None if _is_missing(value) else value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _check_constant(name: str, stated: Value | None, array: pa.ChunkedArray) -> pa.Array:
    """The first row of a column that has the stated value in every row.

    Raises:
        TableError: A row has another value.
    """
    indices = distinct_values(array)[0]
    for i in np.unique(indices):
        at = int(np.argmax(indices == i))
        value = constant_value(array.slice(at, 1))
        if value != stated and str(value) != str(stated):
            raise TableError(
                f"column {name!r} is constant in the schema ({stated!r}), but holds {value!r} "
                f"({shown_rows(1, at)}); correct the table or list the column's values",
                where=name,
                value=value,
            )
    first = array.slice(0, 1).combine_chunks()
    return first.chunk(0) if isinstance(first, pa.ChunkedArray) else first


def decode(codes: Codes, schema: Schema, layout: Layout, rng: np.random.Generator) -> NativeTable:
    """A table of the layout's kind, with its column order, labels and types, for given codes.

    Numbers are drawn inside their bins by a density that depends on neighbouring bins, in
    multiples of the attribute's unit (integers in a column of integers). The missing code becomes
    null, in a nullable type if the library has one. Equal generator states produce equal tables.

    Args:
        codes: One row per record, one column per attribute of the schema.
        schema: The schema.
        layout: The kind of table and its columns; it may leave attributes out.
        rng: The source of the draws.
    """
    if codes.ndim != 2 or codes.shape[1] != len(schema):
        raise ValueError(
            f"codes of shape {codes.shape} do not belong to a schema of {len(schema)} attributes"
        )
    columns, arrays = [], []
    for column in layout.columns:
        if column.constant is not None:
            columns.append(column)
            arrays.append(column.constant.take(pa.array(np.zeros(len(codes), np.int64))))
            continue
        attribute = schema[column.name]
        array, fits = _decode_column(
            attribute, codes[:, schema.index(column.name)], column, layout.kind, rng
        )
        columns.append(column if fits else replace(column, native=None))
        arrays.append(array)
    if schema.rules and len(codes):
        arrays = _keep_rules(codes, schema, layout.names, arrays, rng)
    return _build_table(replace(layout, columns=tuple(columns)), arrays)


def _keep_rules(
    codes: Codes,
    schema: Schema,
    names: Sequence[str],
    arrays: Sequence[pa.Array],
    rng: np.random.Generator,
) -> list[pa.Array]:
    """Make every row satisfy the rules.

    Numbers move inside their bins; rows where that fails are replaced by other rows.
    """
    held = dict(zip(names, arrays, strict=True))
    tied = {
        name for rule in schema.rules if not isinstance(rule, Impossible) for name in rule.names
    }
    numbers = {}
    for name in tied:
        attribute = schema[name]
        if attribute.on_line:
            numbers[name] = line_numbers(attribute, pa.chunked_array([held[name]]))
        elif not any(isinstance(value, (str, bool)) for value in attribute.values):
            numbers[name] = np.array([*(float(v) for v in attribute.values), np.nan])[
                codes[:, schema.index(name)]
            ]
    steps = {name: column_step(schema[name], held[name].type) for name in numbers}
    kept, wrong = rule_keeping(schema, codes, numbers, rng, steps)
    for name, values in kept.items():
        if schema[name].on_line:
            held[name] = line_array(
                schema[name], np.where(wrong, numbers[name], values), held[name]
            )
            kept[name] = line_numbers(schema[name], pa.chunked_array([held[name]]))
    # In the precision of the columns.
    wrong |= breaks(schema, kept, max([1e-9, *(float_tolerance(held[name].type) for name in kept)]))
    if wrong.any():
        fine = np.flatnonzero(~wrong)
        if not len(fine):
            raise TableError(
                "no synthetic row could be made to keep the schema's rules; use finer bins for what they tie"
            )
        rows = np.arange(len(codes))
        rows[wrong] = fine[rng.integers(0, len(fine), int(wrong.sum()))]
        held = {name: array.take(pa.array(rows)) for name, array in held.items()}
    return [held[name] for name in names]


def plain_layout(schema: Schema) -> Layout:
    """The layout of a PyArrow table with the plainest type of each attribute."""
    columns = (Column(a.name, plain_type(a), plain_type(a)) for a in schema)
    return Layout("pyarrow", tuple(columns))


def _check_columns(names: tuple[str, ...], schema: Schema) -> None:
    absent = [name for name in schema.names if name not in set(names)]
    if absent:
        raise TableError(
            f"the table has no column {absent[0]!r}{_more(absent)}, which the schema asks for; its columns are "
            f"{', '.join(names[:20])}{', ...' if len(names) > 20 else ''}",
            where=absent[0],
        )
    extra = [name for name in names if name not in set(schema.names)]
    if extra:
        raise TableError(
            f"column {extra[0]!r}{_more(extra)} is not in the schema; drop it or add it",
            where=extra[0],
            value=extra,
        )


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _encode_labels(
    attribute: Attribute, array: pa.ChunkedArray, unknown: _Unknown
) -> tuple[Integers, int, int]:
    """The codes, the style of texts, and the number of rows replaced by "other"."""
    if (
        pa.types.is_nested(array.type)
        or pa.types.is_temporal(array.type)
        or pa.types.is_binary(array.type)
    ):
        raise TableError(
            f"column {attribute.name!r} holds {array.type} values, which cannot be asked; turn them into text",
            where=attribute.name,
        )
    indices, values = distinct_values(array)
    matcher = Matcher(attribute)
    matches = [(-2, 0) if _is_missing(value) else matcher.match(value) for value in values]
    table = np.array([code for code, _ in matches] + [-2], dtype=np.int64)
    codes: Integers = table[indices]
    outside = codes == -1
    others = int(outside.sum())
    if others:
        first = int(np.argmax(outside))
        codes[outside] = _other_or_error(attribute, values[indices[first]], others, first, unknown)
    fill_missing(attribute, codes, codes == -2)
    used = np.bincount(indices, minlength=len(values) + 1) > 0
    styles = [style for (_, style), seen in zip(matches, used, strict=False) if seen]
    return codes, max(styles, default=0), others


def _other_or_error(
    attribute: Attribute, value: object, rows: int, first: int, unknown: _Unknown
) -> int:
    other = other_code(attribute)
    if unknown == "other" and other is not None:
        return other
    if unknown == "other":
        advice = "the schema lists no category 'other' to put it under; add one"
    elif other is not None:
        advice = "correct the table, add the value to the schema, or ask for unknown values to count as 'other'"
    else:
        advice = "correct the table or add the value to the schema"
    raise TableError(
        f"column {attribute.name!r}: value {value!r} is not in the schema's domain ({shown_rows(rows, first)}); {advice}",
        where=attribute.name,
        value=value,
    )


def _decode_column(
    attribute: Attribute, codes: Codes, column: Column, kind: str, rng: np.random.Generator
) -> tuple[pa.Array, bool]:
    """The Arrow array of one column, and whether it has the type that the column had."""
    if len(codes) and (codes.min() < 0 or codes.max() >= attribute.cardinality):
        raise ValueError(f"codes of {attribute.name!r} must lie in 0..{attribute.cardinality - 1}")
    missing = codes == attribute.answers if attribute.missing else None
    held = column.arrow
    nested = pa.types.is_dictionary(held)
    wanted = held.value_type if nested else held
    if pa.types.is_null(wanted):
        wanted = plain_type(attribute)
    has_type = pa.types.is_null(held) is False or kind == "pandas"
    if attribute.on_line:
        array = draw_line(attribute, codes, missing, wanted, rng)
        return (
            array.dictionary_encode() if nested and kind == "pyarrow" else array
        ), has_type and not nested
    labels, fits = label_array(attribute, wanted, column.style)
    indices = pa.array(codes.astype(np.int32), mask=missing)
    if not nested:
        plain = (
            labels.cast(pa.large_string()).take(indices).cast(labels.type)
            if is_text(labels.type)
            else labels.take(indices)
        )
        return plain, fits and has_type
    array = pa.DictionaryArray.from_arrays(indices, labels, ordered=held.ordered)
    if kind == "pyarrow" and fits and len(labels) <= 2 ** (held.index_type.bit_width - 1):
        array = array.cast(held)
    return array, fits


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
