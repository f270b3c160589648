"""Columns of dates, instants and durations as numbers, and numbers as such columns again."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dither.errors import TableError
from dither.schema.attribute import Attribute
from dither.schema.calendar import CYCLES, DAY, day_number, duration_number, second_number
from dither.schema.labels import is_text, plain_type
from dither.types import Codes, Flags, Floats, Integers

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def moment_numbers(attribute: Attribute, array: pa.ChunkedArray) -> Floats | None:
    """Where each value lies on the attribute's line (days or seconds since 1970), NaN where it is missing; None for other types."""
    held = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    plain = array.cast(held) if held is not array.type else array
    if is_text(held):
        return _from_text(attribute, plain)
    if attribute.kind == "duration":
        if pa.types.is_duration(held):
            return _floats(plain.cast(pa.int64())) / PER_SECOND[held.unit]
        return _floats(plain) if pa.types.is_integer(held) or pa.types.is_floating(held) else None
    if pa.types.is_date(held):
        days = _floats(plain.cast(pa.date32()).cast(pa.int32()))
        return days if attribute.kind == "date" else days * DAY
    if pa.types.is_timestamp(held):
        seconds = _floats(plain.cast(pa.int64())) / PER_SECOND[held.unit]
        return np.floor(seconds / DAY) if attribute.kind == "date" else seconds
    return None


def _floats(array: pa.ChunkedArray) -> Floats:
    return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _from_text(attribute: Attribute, array: pa.ChunkedArray) -> Floats:
    """Texts are read one by one, as a device reads them, each different one once."""
    encoded = pc.dictionary_encode(array).combine_chunks()
    chunk = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    read = {"date": day_number, "datetime": second_number, "duration": duration_number}[
        attribute.kind
    ]
    numbers = [np.nan]
    for text in chunk.dictionary.to_pylist():
        number = read(text)
        if number is None:
            raise TableError(
                f"column {attribute.name!r} is a {attribute.kind} in the schema, but holds {text!r}; write it like "
                "2024-02-29 or 2024-02-29T12:30:00",
                where=attribute.name,
                value=text,
            )
        numbers.append(number)
    places = chunk.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False) + 1
    return np.asarray(numbers)[places]


def turns_of(attribute: Attribute, numbers: Floats) -> Integers:
    """The place of each instant in the product of the attribute's cycles."""
    days = np.floor(numbers if attribute.kind == "date" else numbers / DAY)
    place = np.zeros(len(numbers), dtype=np.int64)
    for cycle in attribute.cycles:
        part = (days + 3) % 7 if cycle == "weekday" else np.floor((numbers - days * DAY) / 3600)
        place = place * len(CYCLES[cycle]) + part.astype(np.int64)
    return place


def settle_turns(attribute: Attribute, numbers: Floats, cells: Codes, turns: Integers) -> Floats:
    """Instants moved to the nearest day of the right weekday, and to the right hour, inside their bin.

    Where a bin is so short that it has no such day, the nearest one outside it is taken, inside the whole range if that has one.
    """
    scale = 1 if attribute.kind == "date" else DAY
    day, rest = np.divmod(numbers, scale)
    left = turns.copy()
    for cycle in reversed(attribute.cycles):
        left, part = np.divmod(left, len(CYCLES[cycle]))
        if cycle == "hour":
            rest = rest % 3600 + part * 3600
        else:
            forward = (part - (day + 3)) % 7
            ends = np.asarray(attribute.line.ends)
            first, end = np.ceil(ends[cells, 0] / scale), np.ceil(ends[cells, 1] / scale)
            candidates = np.stack([day + forward, day + forward - 7])
            inside = (candidates >= first) & (candidates < end)
            whole = (candidates >= np.ceil(attribute.edges[0] / scale)) & (
                candidates < np.ceil(attribute.edges[-1] / scale)
            )
            cost = np.abs(candidates - day) + np.where(inside, 0, 100) + np.where(whole, 0, 10_000)
            day = candidates[cost.argmin(axis=0), np.arange(len(day))]
    return np.asarray(day * scale + rest)


def moment_array(
    attribute: Attribute, numbers: Floats, missing: Flags | None, wanted: pa.DataType
) -> pa.Array:
    """Numbers of the attribute's line as a column of an Arrow type: that of the table, or the plainest one of the kind."""
    days = np.floor(numbers if attribute.kind == "date" else numbers / DAY).astype(np.int64)
    if pa.types.is_date(wanted) and attribute.kind != "duration":
        return pa.array(days.astype(np.int32), pa.date32(), mask=missing).cast(wanted)
    seconds = numbers * DAY if attribute.kind == "date" else numbers
    if pa.types.is_timestamp(wanted) or pa.types.is_duration(wanted):
        return pa.array(
            np.rint(seconds * PER_SECOND[wanted.unit]).astype(np.int64), wanted, mask=missing
        )
    if attribute.kind == "duration" and pa.types.is_integer(wanted):
        return pa.array(np.rint(seconds).astype(wanted.to_pandas_dtype()), wanted, mask=missing)
    if attribute.kind == "duration":
        return pa.array(seconds, mask=missing).cast(
            wanted if pa.types.is_floating(wanted) else pa.float64()
        )
    if is_text(wanted):
        return _as_text(attribute, days, seconds, missing).cast(wanted)
    return moment_array(attribute, numbers, missing, plain_type(attribute))


def _as_text(
    attribute: Attribute, days: Integers, seconds: Floats, missing: Flags | None
) -> pa.Array:
    if attribute.kind == "date":
        texts = [(date(1970, 1, 1) + timedelta(days=int(day))).isoformat() for day in days]
        return pa.array(texts, pa.string(), mask=missing)
    instants = pa.array(np.floor(seconds).astype(np.int64), pa.timestamp("s"), mask=missing)
    return pc.strftime(instants, format="%Y-%m-%dT%H:%M:%S")
