"""One person's record as codes of a schema. Standard library only."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping

from dither.errors import TableError
from dither.schema import Attribute, Schema


def encode_record(schema: Schema, record: Mapping[str, object]) -> list[int]:
    """The code of each attribute in the schema's order; an error names the attribute and the value at fault.

    None, NaN and an absent key are missing answers. Agrees with the codes of a whole table (`dither.schema.encode`).
    """
    extra = [name for name in record if name not in schema.names]
    if extra:
        raise TableError(f"{extra[0]!r} is not in the schema; drop it or ask for it", where=str(extra[0]))
    return [_code(attribute, record.get(attribute.name)) for attribute in schema]


def _code(attribute: Attribute, value: object) -> int:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        if not attribute.missing:
            raise TableError(
                f"{attribute.name!r} has no value, and the schema does not allow that", where=attribute.name
            )
        return attribute.answers
    code = _number(attribute, value) if attribute.kind == "numeric" else _label(attribute, value)
    if code is None:
        raise TableError(
            f"{attribute.name!r}: value {value!r} is not in the schema's domain", where=attribute.name, value=value
        )
    return code


def _number(attribute: Attribute, value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    low, high = attribute.edges[0], attribute.edges[-1]
    if not low <= value <= high:
        return None
    return min(bisect_right(attribute.edges, value) - 1, attribute.answers - 1)


def _label(attribute: Attribute, value: object) -> int | None:
    for code, known in enumerate(attribute.values):
        if value == known and isinstance(value, str) == isinstance(known, str):
            return code
    return None
