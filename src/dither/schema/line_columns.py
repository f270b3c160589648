"""Columns of numbers and times: values as codes of bins and atoms, and codes as values again."""

from __future__ import annotations

from datetime import date
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dither.errors import TableError
from dither.schema.attribute import Attribute
from dither.schema.calendar import DAY
from dither.schema.labels import is_text
from dither.schema.line import Line
from dither.schema.moments import PER_SECOND, moment_array, moment_numbers, settle_turns, turns_of
from dither.schema.rule_tables import step_of
from dither.schema.within import draw_multiples, draw_reals, from_multiples, multiples_in
from dither.types import Codes, Flags, Floats, Integers


def line_codes(attribute: Attribute, array: pa.ChunkedArray) -> Integers:
    """Codes of numbers and times."""
    values, line = line_numbers(attribute, array), attribute.line
    if attribute.clip:
        values = np.clip(values, line.boundaries[0], line.boundaries[-1])
    boundaries = np.asarray(line.boundaries, dtype=np.float64)
    at = np.searchsorted(boundaries, values, side="right") - 1
    exact = boundaries[at] == values
    codes: Integers = np.where(
        exact, np.asarray(line.points)[at], np.asarray(line.gaps)[at]
    ).astype(np.int64)
    missing = np.isnan(values)
    outside = ~missing & ((codes < 0) | (at < 0))
    if outside.any():
        first = int(np.argmax(outside))
        value = plain_value(array[first])
        raise TableError(
            f"column {attribute.name!r}: value {_shown(value)} lies outside {_span(attribute)} "
            f"({shown_rows(int(outside.sum()), first)}); mend the table or widen the schema",
            where=attribute.name,
            value=value,
        )
    if attribute.cycles:
        codes = codes * attribute.turns + turns_of(attribute, np.where(missing, 0.0, values))
    fill_missing(attribute, codes, missing)
    return codes


def line_numbers(attribute: Attribute, array: pa.ChunkedArray) -> Floats:
    """Where each value lies on the attribute's line, NaN where it is missing; an error for columns of another kind."""
    held = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if array.null_count == len(array) or pa.types.is_null(held):
        return np.full(len(array), np.nan)
    if attribute.kind != "numeric":
        found = moment_numbers(attribute, array)
        if found is None:
            raise TableError(
                f"column {attribute.name!r} is a {attribute.kind} in the schema, but holds {held} values such as "
                f"{first_value(array)!r}; turn them into {attribute.kind}s",
                where=attribute.name,
            )
        return found
    if is_text(held):
        raise _text_for_numbers(attribute, array)
    if not (pa.types.is_integer(held) or pa.types.is_floating(held) or pa.types.is_decimal(held)):
        raise TableError(
            f"column {attribute.name!r} is numeric in the schema, but holds {held} values such as {first_value(array)!r}; "
            "turn them into numbers",
            where=attribute.name,
        )
    plain = array.cast(held) if held is not array.type else array
    return np.asarray(as_floats(plain).to_numpy(), dtype=np.float64)


def as_floats(array: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers as the nearest floats; Arrow's own way from decimals misses many by a digit, so they go by way of text."""
    return (array.cast(pa.string()) if pa.types.is_decimal(array.type) else array).cast(
        pa.float64(), safe=False
    )


def _text_for_numbers(attribute: Attribute, array: pa.ChunkedArray) -> TableError:
    """The error for text in a numeric column: it names the first text that is no number, if there is one."""
    indices, values = distinct_values(array)
    wrong = np.array([isinstance(v, str) and not _is_number(v) for v in values] + [False])
    bad = wrong[indices]
    if not bad.any():
        return TableError(
            f"column {attribute.name!r} is numeric in the schema, but holds numbers written as text such as "
            f"{first_value(array)!r}; turn them into numbers",
            where=attribute.name,
        )
    first = int(np.argmax(bad))
    value = values[indices[first]]
    return TableError(
        f"column {attribute.name!r} is numeric in the schema, but holds the text {value!r} "
        f"({shown_rows(int(bad.sum()), first)}); turn it into a number or leave it empty",
        where=attribute.name,
        value=value,
    )


def draw_line(
    attribute: Attribute,
    codes: Codes,
    missing: Flags | None,
    wanted: pa.DataType,
    rng: np.random.Generator,
) -> pa.Array:
    """A value in the cell of each code, as a column of an Arrow type."""
    cells, turns = np.divmod(
        codes if missing is None else np.where(missing, 0, codes), attribute.turns
    )
    line = attribute.line
    if attribute.kind != "numeric":
        numbers = draw_reals(line, cells, np.float64, rng).astype(np.float64, copy=False)
        unit = attribute.unit or 1.0  # whole days, whole seconds
        if (
            attribute.kind != "duration"
            or attribute.unit is not None
            or not pa.types.is_floating(wanted)
        ):
            first, last = multiples_in(line, unit, (-(2**62), 2**62))
            numbers = from_multiples(
                np.clip(np.floor(numbers / unit), first[cells], last[cells]).astype(np.int64), unit
            )
        if attribute.cycles:
            numbers = settle_turns(attribute, numbers, cells, turns)
        return moment_array(attribute, numbers, missing, wanted)
    if pa.types.is_integer(wanted):
        limits = np.iinfo(wanted.to_pandas_dtype())
        unit = _countable(
            attribute.unit if attribute.unit is not None and attribute.unit.is_integer() else 1.0,
            line,
        )
        reach = int(limits.min) // int(unit), int(limits.max) // int(unit)
        whole = draw_multiples(line, cells, unit, reach, rng).astype(wanted.to_pandas_dtype())
        return pa.array(whole * whole.dtype.type(int(unit)), wanted, mask=missing)
    if pa.types.is_decimal(wanted):
        unit = _countable(max(attribute.unit or 0.0, 10.0**-wanted.scale), line)
        most = (10**wanted.precision - 1) * Fraction(10) ** -wanted.scale // Fraction(repr(unit))
        exact = from_multiples(draw_multiples(line, cells, unit, (-most, most), rng), unit)
        return _decimals(exact, missing, wanted)
    dtype = wanted.to_pandas_dtype() if pa.types.is_floating(wanted) else np.float64
    if attribute.unit is not None:
        unit = _countable(attribute.unit, line)
        multiples = draw_multiples(line, cells, unit, (-(2**62), 2**62), rng)
        low, high = np.asarray(line.ends, dtype=np.float64).T
        exact = np.where((low == high)[cells], low[cells], from_multiples(multiples, unit))
        return pa.array(exact.astype(dtype), mask=missing)
    return pa.array(draw_reals(line, cells, dtype, rng), mask=missing)


def _countable(unit: float, line: Line) -> float:
    """The unit, or the least power of ten of it in which every number of the line is a count of 62 bits."""
    most = max(abs(line.boundaries[0]), abs(line.boundaries[-1]))
    while most > 2.0**62 * unit:
        unit *= 10.0
    return unit


def _decimals(numbers: Floats, missing: Flags | None, wanted: pa.DataType) -> pa.Array:
    """Numbers as the decimals that they are written as, without the crumbs of binary fractions."""
    last, context = Decimal(1).scaleb(-wanted.scale), Context(prec=wanted.precision + 1)
    seen, place = np.unique(
        numbers if missing is None else np.where(missing, 0.0, numbers), return_inverse=True
    )
    exact = pa.array(
        [Decimal(repr(float(v))).quantize(last, context=context) for v in seen], wanted
    )
    return exact.take(pa.array(place.ravel(), mask=missing))


def line_array(attribute: Attribute, numbers: Floats, like: pa.Array) -> pa.Array:
    """Numbers of an attribute's line as a column of the same type as another."""
    held = like.type.value_type if pa.types.is_dictionary(like.type) else like.type
    missing = np.isnan(numbers)
    settled = np.where(missing, attribute.edges[0], numbers)
    if attribute.kind != "numeric":
        array = moment_array(attribute, settled, missing, held)
    elif pa.types.is_integer(held):
        array = pa.array(np.rint(settled).astype(held.to_pandas_dtype()), held, mask=missing)
    elif pa.types.is_floating(held):
        array = pa.array(settled.astype(held.to_pandas_dtype()), held, mask=missing)
    else:
        array = _decimals(settled, missing, held)
    return array.dictionary_encode() if pa.types.is_dictionary(like.type) else array


def column_step(attribute: Attribute, held: pa.DataType) -> float | None:
    """The steps in which a column of an Arrow type holds an attribute's numbers; None for real ones."""
    kind, own = held.value_type if pa.types.is_dictionary(held) else held, step_of(attribute)
    if not attribute.on_line:
        return None
    if attribute.kind == "datetime" and pa.types.is_date(kind):
        return float(DAY)
    if attribute.kind == "duration" and not pa.types.is_floating(kind):
        return max(own or 1.0, 1 / PER_SECOND[kind.unit] if pa.types.is_duration(kind) else 1.0)
    if pa.types.is_integer(kind):
        return own if own is not None and own.is_integer() else 1.0
    return max(own or 0.0, 10.0**-kind.scale) if pa.types.is_decimal(kind) else own


def crumbs(held: pa.DataType) -> float:
    """How far, in relation to it, a number can be from the one that a column of an Arrow type holds; 0 if it is no float."""
    if not pa.types.is_floating(held):
        return 0.0
    return 4 * float(np.finfo(held.to_pandas_dtype()).eps)


def fill_missing(attribute: Attribute, codes: Integers, missing: Flags) -> None:
    """Give missing values their code; an error where the schema has none."""
    count = int(missing.sum())
    if not count:
        return
    if not attribute.missing:
        raise TableError(
            f"column {attribute.name!r}: missing values ({shown_rows(count, int(np.argmax(missing)))}), but the schema does "
            'not allow them; fill them or set "missing": true',
            where=attribute.name,
        )
    codes[missing] = attribute.answers


def distinct_values(array: pa.ChunkedArray) -> tuple[Integers, list[object]]:
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


def first_value(array: pa.ChunkedArray) -> object:
    """The first value that is not missing."""
    return plain_value(array.drop_null()[0])


def plain_value(scalar: pa.Scalar) -> object:
    """A value as Python has it; the bare number of a time that Python cannot say."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value


def shown_rows(count: int, first: int) -> str:
    """How many rows, and which is the first."""
    return (
        f"in {count:,} rows, first in row {first + 1:,}" if count > 1 else f"in row {first + 1:,}"
    )


def _span(attribute: Attribute) -> str:
    if attribute.kind in ("date", "datetime"):
        return f"{attribute.shown(attribute.edges[0])} to before {attribute.shown(attribute.edges[-1])}"
    low, high = (f"{edge:.15g}" for edge in attribute.bounds or ())
    return f"{low} to {high}"


def _shown(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else repr(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
