"""One person's answers as codes of a schema, for every record whatsoever. Standard library only.

A collector chooses the domains it announces. If a device kept silent about a value outside them, silence would be an answer
without noise, so it never is one: a value that the domain lacks is answered as missing where the schema has that answer, and
otherwise by a code drawn uniformly, and either goes through the mechanism like any other.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

from dither.mechanisms import ByteSource
from dither.schema import Attribute, Schema


@dataclass(frozen=True)
class Coded:
    """The codes in the schema's order, 0 where nothing was asked; the names of the values that the announced domain lacks."""

    codes: list[int]
    outside: tuple[str, ...]


def encode_answers(schema: Schema, names: Sequence[str], record: Mapping[str, object], source: ByteSource) -> Coded:
    """A code for each of these attributes; nothing else in the record is looked at, and no record raises an error.

    What is drawn from `source` does not depend on the record: a code is drawn for every attribute without a missing answer,
    whether or not it is needed.
    """
    codes = [0] * len(schema)
    outside = []
    for name in names:
        attribute = schema[name]
        instead = attribute.answers if attribute.missing else draw_below(attribute.cardinality, source)
        code = code_of(attribute, _value(record, name))
        if code is None:
            outside.append(name)
        codes[schema.index(name)] = instead if code is None else code
    return Coded(codes, tuple(outside))


def code_of(attribute: Attribute, value: object) -> int | None:
    """The value's code, None where it is outside the domain. None and NaN are missing answers.

    Agrees with the codes of a whole table (`dither.schema.encode`). A value that cannot be compared is outside.
    """
    try:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return attribute.answers if attribute.missing else None
        return _number(attribute, value) if attribute.kind == "numeric" else _label(attribute, value)
    except Exception:  # whatever an object does when it is compared, the device answers all the same
        return None


def draw_below(count: int, source: ByteSource) -> int:
    """A number in 0..count-1, each exactly as likely: draws beyond the last one are drawn again."""
    bits = (count - 1).bit_length()
    while True:
        drawn = int.from_bytes(source((bits + 7) // 8), "little") & ((1 << bits) - 1)
        if drawn < count:
            return drawn


def _value(record: Mapping[str, object], name: str) -> object:
    try:
        return record.get(name)
    except Exception:  # a mapping that fails has no answer
        return None


def _number(attribute: Attribute, value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, Real)):
        return None
    number: float = value if type(value) is int else float(value)  # plain, so that it compares as numbers do
    if not attribute.edges[0] <= number <= attribute.edges[-1]:
        return None
    return min(bisect_right(attribute.edges, number) - 1, attribute.answers - 1)


def _label(attribute: Attribute, value: object) -> int | None:
    code = attribute.codes.get(value)  # type: ignore[call-overload]
    if code is None or isinstance(value, str) != isinstance(attribute.values[code], str):
        return None
    return int(code)
