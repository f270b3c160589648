"""Tables as codes of a schema, and codes as tables of the same kind, columns and types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from dither.checks import check_choice
from dither.errors import TableError
from dither.schema.attribute import Attribute
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
from dither.schema.native import (
    Column,
    Layout,
    build_table,
    column_names,
    read_columns,
    select_columns,
)
from dither.schema.rule_tables import breaks, check_rows
from dither.schema.rule_tables import keep_rules as rule_keeping
from dither.schema.rules import Impossible
from dither.schema.schema import Schema
from dither.types import Codes, Integers, NativeTable

Unknown = Literal["error", "other"]


@dataclass(frozen=True)
class _EncodedTable:
    """The codes of a table, in the schema's order, and the layout to rebuild such a table.

    `clipped` counts the rows of each attribute whose value was replaced by "other".
    """

    codes: Codes
    layout: Layout
    clipped: Mapping[str, int] = field(default_factory=dict)


def encode(
    table: NativeTable, schema: Schema, *, unknown: Unknown = "error", keep_rules: bool = True
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
    check_choice("unknown", unknown, get_args(Unknown))
    layout, arrays = read_columns(_without_dropped(table, schema))
    _check_columns(layout.names, schema)
    codes = np.empty((len(arrays[0]), len(schema)), dtype=np.int32, order="F")
    columns, clipped = [], {}
    for column, array in zip(layout.columns, arrays, strict=True):
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


def decode(codes: Codes, schema: Schema, layout: Layout, rng: np.random.Generator) -> NativeTable:
    """A table of the layout's kind, with its column order, labels and types, for given codes.

    Numbers are drawn inside their bins by a density that depends on neighbouring bins, in
    multiples of the attribute's unit (integers in a column of integers). The missing code becomes
    null, in a nullable type if the library has one. Equal generator states produce equal tables.
    """
    if codes.ndim != 2 or codes.shape[1] != len(schema):
        raise ValueError(
            f"codes of shape {codes.shape} do not belong to a schema of {len(schema)} attributes"
        )
    columns, arrays = [], []
    for column in layout.columns:
        attribute = schema[column.name]
        array, fits = _decode_column(
            attribute, codes[:, schema.index(column.name)], column, layout.kind, rng
        )
        columns.append(column if fits else replace(column, native=None))
        arrays.append(array)
    if schema.rules and len(codes):
        arrays = _keep_rules(codes, schema, layout.names, arrays, rng)
    return build_table(replace(layout, columns=tuple(columns)), arrays)


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
    attribute: Attribute, array: pa.ChunkedArray, unknown: Unknown
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
    attribute: Attribute, value: object, rows: int, first: int, unknown: Unknown
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
