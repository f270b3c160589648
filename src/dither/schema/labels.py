"""Which code a value of a categorical, ordinal or boolean attribute has, and how a column of some type writes a code.

Numbers match by value (1 equals 1.0), text matches exactly; failing both, a number and a text match when the text is
the number written out and no second value could be meant, so that a table survives a trip through CSV.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa

from dither.schema.attribute import Attribute, Value


def _text_forms(value: object) -> tuple[str, ...]:
    """The ways in which tables write a value as text, the most usual first."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bool):
        word = "true" if value else "false"
        return (word, word.capitalize(), word.upper(), str(int(value)))
    if isinstance(value, float) and value.is_integer():
        return (repr(value), str(int(value)))
    return (str(value),)


class Matcher:
    """Looks up the code of a value in one attribute's domain."""

    def __init__(self, attribute: Attribute) -> None:
        self._exact: dict[object, int] = dict(attribute.codes.items())
        self._forms: dict[str, tuple[int, int]] = {}
        for code, value in enumerate(attribute.values):
            if isinstance(value, str):
                continue
            for style, form in enumerate(_text_forms(value)):
                self._forms[form] = (-1, 0) if form in self._forms else (code, style)

    def code(self, value: object) -> int:
        """The value's code, or -1 where it is outside the domain."""
        return self.match(value)[0]

    def match(self, value: object) -> tuple[int, int]:
        """The code and the style in which text writes it."""
        if isinstance(value, Decimal):
            value = int(value) if value == int(value) else float(value)
        if value in self._exact:
            return self._exact[value], 0
        if isinstance(value, str):
            return self._forms.get(value, (-1, 0))
        meant = {self._exact[form] for form in _text_forms(value) if form in self._exact}
        return (meant.pop(), 0) if len(meant) == 1 else (-1, 0)


def label_array(attribute: Attribute, wanted: pa.DataType, style: int) -> tuple[pa.Array, bool]:
    """Each answer as a value of an Arrow type, and whether that type could express them all.

    Where it cannot (a category "other" in a column of integers) the answers come in the plainest type that can.
    """
    try:
        return _labels_as(attribute, wanted, style), True
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return pa.array(_plain(attribute.values, style)), False


def plain_type(attribute: Attribute) -> pa.DataType:
    """The Arrow type that a table of its own accord would give an attribute."""
    if attribute.on_line:
        return {
            "date": pa.date32(),
            "datetime": pa.timestamp("s"),
            "duration": pa.duration("s"),
        }.get(attribute.kind, pa.float64())
    return pa.array(_plain(attribute.values, 0)).type


def other_code(attribute: Attribute) -> int | None:
    """The code of the category named "other", in any case, if the attribute has one."""
    for code, value in enumerate(attribute.values):
        if isinstance(value, str) and value.casefold() == "other":
            return code
    return None


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether an Arrow type is one of the text types."""
    return bool(
        pa.types.is_string(arrow_type)
        or pa.types.is_large_string(arrow_type)
        or pa.types.is_string_view(arrow_type)
    )


def _labels_as(attribute: Attribute, wanted: pa.DataType, style: int) -> pa.Array:
    values: list[object]
    if is_text(wanted):
        return pa.array(_texts(attribute.values, style), pa.large_string()).cast(wanted)
    if pa.types.is_boolean(wanted):
        matcher = Matcher(attribute)
        truth = {matcher.code(answer): answer for answer in (False, True)}
        values = [truth.get(code) for code in range(attribute.answers)]
    elif pa.types.is_integer(wanted):
        values = [_whole(value) for value in attribute.values]
    elif pa.types.is_floating(wanted):
        values = [float(value) for value in attribute.values]
    elif pa.types.is_decimal(wanted):
        values = [
            Decimal(str(int(value) if isinstance(value, bool) else value))
            for value in attribute.values
        ]
    else:
        raise TypeError(str(wanted))
    if None in values:
        raise ValueError("not every answer can be written")
    if pa.types.is_float16(wanted):
        return pa.array(values, pa.float32()).cast(wanted)
    return pa.array(values, wanted)


def _plain(values: Sequence[Value], style: int) -> Sequence[Value]:
    """Values of one type: as they are if they share one, numbers as floats, a mixture as text."""
    kinds = {type(value) for value in values}
    if len(kinds) == 1:
        return values
    if kinds <= {int, float}:
        return [float(value) for value in values]
    return _texts(values, style)


def _texts(values: Sequence[Value], style: int) -> list[str]:
    """Each value in the asked style; where a style makes two values look alike, the plain one."""
    forms = [_text_forms(value) for value in values]
    styled = [form[min(style, len(form) - 1)] for form in forms]
    return styled if len(set(styled)) == len(styled) else [form[0] for form in forms]


def _whole(value: Value) -> int:
    number = int(value)
    if (
        isinstance(value, str) and str(number) != value
    ):  # "01" or " 1": the text is not this number written out
        raise ValueError(value)
    if number != (value if not isinstance(value, str) else number):
        raise ValueError(value)
    return number
