"""A table as codes of its schema, and codes as a table of the same kind, columns, labels and types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dither.checks import check_choice
from dither.errors import TableError
from dither.schema.attribute import Attribute
from dither.schema.labels import Matcher, is_text, label_array, other_code, plain_type
from dither.schema.native import Column, Layout, build_table, read_columns
from dither.schema.schema import Schema
from dither.types import Codes, Flags, Floats, Integers, NativeTable, Reals

Unknown = Literal["error", "other"]


@dataclass(frozen=True)
class EncodedTable:
    """A table's codes, one column per attribute in the schema's order, and how to turn codes into such a table again.

    `clipped` counts, for each attribute where it happened, the rows whose value was put under "other".
    """

    codes: Codes
    layout: Layout
    clipped: Mapping[str, int] = field(default_factory=dict)


def encode(table: NativeTable, schema: Schema, *, unknown: Unknown = "error") -> EncodedTable:
    """The codes of a pandas, polars or PyArrow table.

    Every value lies in the schema's domain, or an error names the column and the value. With `unknown="other"` a value
    outside a domain counts as the category "other" of that attribute. NaN is taken as missing.
    """
    check_choice("unknown", unknown, get_args(Unknown))
    layout, arrays = read_columns(table)
    _check_columns(layout.names, schema)
    codes = np.empty((len(arrays[0]), len(schema)), dtype=np.int32, order="F")
    columns, clipped = [], {}
    for column, array in zip(layout.columns, arrays, strict=True):
        attribute, position = schema[column.name], schema.index(column.name)
        if attribute.kind == "numeric":
            codes[:, position] = _encode_numbers(attribute, array)
        else:
            codes[:, position], style, others = _encode_labels(attribute, array, unknown)
            column = replace(column, style=style)  # noqa: PLW2901
            if others:
                clipped[column.name] = others
        columns.append(column)
    return EncodedTable(codes, replace(layout, columns=tuple(columns)), clipped)


def decode(codes: Codes, schema: Schema, layout: Layout, rng: np.random.Generator) -> NativeTable:
    """A table of the layout's kind, with its column order, labels and types, whose codes are the ones given.

    Numbers are drawn uniformly inside their bins (whole ones in a column of integers); the missing code becomes null,
    in a nullable type where the kind of table has one. The same generator state gives the same table.
    """
    if codes.ndim != 2 or codes.shape[1] != len(schema):
        raise ValueError(f"codes of shape {codes.shape} do not belong to a schema of {len(schema)} attributes")
    columns, arrays = [], []
    for column in layout.columns:
        attribute = schema[column.name]
        array, fits = _decode_column(attribute, codes[:, schema.index(column.name)], column, layout.kind, rng)
        columns.append(column if fits else replace(column, native=None))
        arrays.append(array)
    return build_table(replace(layout, columns=tuple(columns)), arrays)


def plain_layout(schema: Schema) -> Layout:
    """The layout of a PyArrow table in the schema's order with the plainest type for each attribute."""
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
            f"column {extra[0]!r}{_more(extra)} is not in the schema; drop it or add it", where=extra[0], value=extra
        )


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _encode_numbers(attribute: Attribute, array: pa.ChunkedArray) -> Integers:
    held = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if is_text(held) and array.null_count < len(array):
        raise _text_for_numbers(attribute, array)
    if not (pa.types.is_integer(held) or pa.types.is_floating(held) or pa.types.is_decimal(held)) and (
        array.null_count < len(array)
    ):
        raise TableError(
            f"column {attribute.name!r} is numeric in the schema, but holds {held} values such as {_first(array)!r}; "
            "turn them into numbers",
            where=attribute.name,
        )
    if is_text(held) or pa.types.is_null(held):
        values = np.full(len(array), np.nan)
    else:
        plain = array.cast(held) if held is not array.type else array
        values = plain.cast(pa.float64(), safe=False).to_numpy().astype(np.float64, copy=False)
    edges = np.asarray(attribute.edges, dtype=np.float64)
    codes: Integers = np.searchsorted(edges, values, side="right") - 1
    codes[values == edges[-1]] = attribute.answers - 1
    missing = np.isnan(values)
    outside = ~missing & ((values < edges[0]) | (values > edges[-1]))
    if outside.any():
        first = int(np.argmax(outside))
        value = array[first].as_py()
        raise TableError(
            f"column {attribute.name!r}: value {value!r} lies outside {_span(attribute)} "
            f"({_rows(int(outside.sum()), first)}); mend the table or widen the schema",
            where=attribute.name,
            value=value,
        )
    _fill_missing(attribute, codes, missing)
    return codes


def _text_for_numbers(attribute: Attribute, array: pa.ChunkedArray) -> TableError:
    """The error for text in a numeric column: it names the first text that is no number, if there is one."""
    indices, values = _distinct(array)
    wrong = np.array([isinstance(v, str) and not _is_number(v) for v in values] + [False])
    bad = wrong[indices]
    if not bad.any():
        return TableError(
            f"column {attribute.name!r} is numeric in the schema, but holds numbers written as text such as "
            f"{_first(array)!r}; turn them into numbers",
            where=attribute.name,
        )
    first = int(np.argmax(bad))
    value = values[indices[first]]
    return TableError(
        f"column {attribute.name!r} is numeric in the schema, but holds the text {value!r} "
        f"({_rows(int(bad.sum()), first)}); turn it into a number or leave it empty",
        where=attribute.name,
        value=value,
    )


def _encode_labels(attribute: Attribute, array: pa.ChunkedArray, unknown: Unknown) -> tuple[Integers, int, int]:
    """Codes, the style in which text writes the values, and how many rows were put under "other"."""
    if pa.types.is_nested(array.type) or pa.types.is_temporal(array.type) or pa.types.is_binary(array.type):
        raise TableError(
            f"column {attribute.name!r} holds {array.type} values, which cannot be asked; turn them into text",
            where=attribute.name,
        )
    indices, values = _distinct(array)
    matcher = Matcher(attribute)
    matches = [(-2, 0) if _is_missing(value) else matcher.match(value) for value in values]
    table = np.array([code for code, _ in matches] + [-2], dtype=np.int64)
    codes: Integers = table[indices]
    outside = codes == -1
    others = int(outside.sum())
    if others:
        first = int(np.argmax(outside))
        codes[outside] = _other_or_error(attribute, values[indices[first]], others, first, unknown)
    _fill_missing(attribute, codes, codes == -2)
    used = np.bincount(indices, minlength=len(values) + 1) > 0
    styles = [style for (_, style), seen in zip(matches, used, strict=False) if seen]
    return codes, max(styles, default=0), others


def _other_or_error(attribute: Attribute, value: object, rows: int, first: int, unknown: Unknown) -> int:
    other = other_code(attribute)
    if unknown == "other" and other is not None:
        return other
    if unknown == "other":
        advice = "the schema lists no category 'other' to put it under; add one"
    elif other is not None:
        advice = "mend the table, add the value to the schema, or ask for unknown values to count as 'other'"
    else:
        advice = "mend the table or add the value to the schema"
    raise TableError(
        f"column {attribute.name!r}: value {value!r} is not in the schema's domain ({_rows(rows, first)}); {advice}",
        where=attribute.name,
        value=value,
    )


def _fill_missing(attribute: Attribute, codes: Integers, missing: Flags) -> None:
    """Give missing values their code; an error where the schema has none."""
    count = int(missing.sum())
    if not count:
        return
    if not attribute.missing:
        raise TableError(
            f"column {attribute.name!r}: missing values ({_rows(count, int(np.argmax(missing)))}), but the schema does "
            'not allow them; fill them or set "missing": true',
            where=attribute.name,
        )
    codes[missing] = attribute.answers


def _distinct(array: pa.ChunkedArray) -> tuple[Integers, list[object]]:
    """Each row's place in a list of values; nulls have the place after the last."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype=np.int64), []
    encoded = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array)
    encoded = encoded.combine_chunks()
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    if len(chunks) != 1:
        raise TableError("a column of more than 2 GB of distinct text cannot be read")
    values = chunks[0].dictionary
    listed = values.to_pylist()
    if pa.types.is_float32(values.type) or pa.types.is_float16(values.type):
        # 0.1 in single precision is 0.1 to the reader, although it is another number in double precision
        listed = [None if v is None else float(str(np.float32(v))) for v in listed]
    indices = chunks[0].indices.cast(pa.int64()).fill_null(len(listed))
    return indices.to_numpy(zero_copy_only=False), listed


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
    known = pa.types.is_null(held) is False or kind == "pandas"
    if attribute.kind == "numeric":
        array = _draw_numbers(attribute, codes, missing, wanted, rng)
        return (array.dictionary_encode() if nested and kind == "pyarrow" else array), known and not nested
    labels, fits = label_array(attribute, wanted, column.style)
    indices = pa.array(codes.astype(np.int32), mask=missing)
    if not nested:
        plain = (
            labels.cast(pa.large_string()).take(indices).cast(labels.type)
            if is_text(labels.type)
            else labels.take(indices)
        )
        return plain, fits and known
    array = pa.DictionaryArray.from_arrays(indices, labels, ordered=held.ordered)
    if kind == "pyarrow" and fits and len(labels) <= 2 ** (held.index_type.bit_width - 1):
        array = array.cast(held)
    return array, fits


def _draw_numbers(
    attribute: Attribute,
    codes: Codes,
    missing: Flags | None,
    wanted: pa.DataType,
    rng: np.random.Generator,
) -> pa.Array:
    edges = np.asarray(attribute.edges, dtype=np.float64)
    bins = codes if missing is None else np.where(missing, 0, codes)
    if pa.types.is_integer(wanted):
        limits = np.iinfo(wanted.to_pandas_dtype())
        whole = draw_integers(edges, bins, (int(limits.min), int(limits.max)), rng)
        return pa.array(whole.astype(wanted.to_pandas_dtype()), wanted, mask=missing)
    if pa.types.is_decimal(wanted):
        unit = 10.0**wanted.scale
        most = 10 ** min(wanted.precision, 18) - 1
        return pa.array(draw_integers(edges * unit, bins, (-most, most), rng) / unit, mask=missing).cast(wanted)
    if pa.types.is_floating(wanted):
        return pa.array(draw_reals(edges, bins, wanted.to_pandas_dtype(), rng), wanted, mask=missing)
    return pa.array(draw_reals(edges, bins, np.float64, rng), mask=missing)


def _span(attribute: Attribute) -> str:
    low, high = (f"{edge:.15g}" for edge in (attribute.edges[0], attribute.edges[-1]))
    return f"{low} to {high}"


def _first(array: pa.ChunkedArray) -> object:
    return array.drop_null()[0].as_py()


def _rows(count: int, first: int) -> str:
    return f"in {count:,} rows, first in row {first + 1:,}" if count > 1 else f"in row {first + 1:,}"


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Numbers drawn uniformly inside their bins: real, whole, or with a fixed number of decimals.

_FAR = 2.0**62  # beyond any bound we draw whole numbers in; keeps sums inside 64 bits


def draw_reals(edges: Floats, codes: Codes, dtype: npt.DTypeLike, rng: np.random.Generator) -> Reals:
    """Uniform in [lower, upper) of each code's bin; the last bin is closed.

    Rounding to `dtype` never carries a number into the next bin, as long as the bin holds a number of that type.
    """
    lower, upper = edges[:-1], edges[1:]
    values = (lower[codes] + (upper - lower)[codes] * rng.random(len(codes))).astype(dtype)
    kind = values.dtype.type
    highest, lowest = upper.astype(kind), lower.astype(kind)
    late, early = highest.astype(np.float64) >= upper, lowest.astype(np.float64) < lower
    late[-1] = highest[-1] > upper[-1]
    highest[late] = np.nextafter(highest[late], kind(-np.inf))
    lowest[early] = np.nextafter(lowest[early], kind(np.inf))
    drawn: Reals = np.clip(values, lowest[codes], np.maximum(highest, lowest)[codes])
    return drawn


def draw_integers(edges: Floats, codes: Codes, bounds: tuple[int, int], rng: np.random.Generator) -> Integers:
    """Uniform over the integers of each code's bin; a bin without any gives the integer nearest to its middle.

    `bounds` are the least and the greatest integer that the column's type holds.
    """
    first, last = integers_in(edges, bounds)
    drawn: Integers = first[codes] + np.floor(rng.random(len(codes)) * (last - first + 1)[codes]).astype(np.int64)
    return np.minimum(drawn, last[codes])  # a product can round up to the whole width of a very wide bin


def integers_in(edges: Floats, bounds: tuple[int, int]) -> tuple[Integers, Integers]:
    """The first and the last integer of each bin (the nearest one, twice, where a bin holds none)."""
    edges = np.clip(edges, -_FAR, _FAR)
    first = np.ceil(edges[:-1])
    last = np.ceil(edges[1:]) - 1
    last[-1] = np.floor(edges[-1])
    nearest = np.rint((edges[:-1] + edges[1:]) / 2)
    if np.ceil(edges[0]) <= np.floor(edges[-1]):
        nearest = np.clip(nearest, np.ceil(edges[0]), np.floor(edges[-1]))
    none = first > last
    first, last = np.where(none, nearest, first), np.where(none, nearest, last)
    low, high = max(bounds[0], -int(_FAR)), min(bounds[1], int(_FAR))
    return np.clip(first.astype(np.int64), low, high), np.clip(last.astype(np.int64), low, high)
