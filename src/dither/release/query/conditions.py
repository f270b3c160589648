"""What one comparison says of one attribute's values: the codes that fulfil it, and stretches of the line of its numbers.

A numeric attribute is known by bins. A comparison whose number is an edge picks whole bins and is exact; any other divides a bin,
whose people are taken as evenly spread, and a note says so (see `scale` for numbers that are whole).
A missing answer is a value of its own: it fulfils no comparison but `== None`, and every negation of one that it does not fulfil.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal

import numpy as np

from dither.checks import is_finite
from dither.errors import ParameterError
from dither.notice import Notice
from dither.release.query.scale import Scale
from dither.schema import Attribute
from dither.schema.labels import Matcher

Operator = Literal["==", "<", "<=", ">", ">="]
FLIPPED: dict[Operator, Operator] = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
MISSING = "(missing)"


@dataclass(frozen=True)
class Condition:
    """Holds for people whose code is in `codes`, or whose number lies in one of the half-open `spans` of the attribute's line."""

    attribute: str
    codes: frozenset[int] = frozenset()
    spans: tuple[tuple[float, float], ...] = ()
    notes: tuple[Notice, ...] = field(default=(), compare=False)


def compare(
    attribute: Attribute, operator: Operator, value: object, scale: Scale | None
) -> Condition:
    """People whose value stands in this relation to the given one; a clear error if that makes no sense for the attribute."""
    if value is None or (value == MISSING and value not in attribute.codes):
        return _missing(attribute, operator)
    if scale is not None:
        return _compare_numbers(attribute, operator, value, scale)
    if operator == "==":
        return Condition(attribute.name, frozenset((_code(attribute, value),)))
    return Condition(attribute.name, frozenset(_ordered_codes(attribute, operator, value)))


def between(attribute: Attribute, low: object, high: object, scale: Scale | None) -> Condition:
    """People from `low` up to, not including, `high`; None leaves an end open. For numbers only."""
    if scale is None:
        raise ParameterError(
            f"{attribute.name} is {attribute.kind}: a range (low, high) is for numbers; list the values instead",
            where=attribute.name,
        )
    ends = [-math.inf, math.inf]
    notes: tuple[Notice, ...] = ()
    for i, end in enumerate((low, high)):
        if end is not None:
            found = compare(attribute, "<", end, scale)
            ends[i] = found.spans[0][1]
            notes += found.notes
    return Condition(
        attribute.name, spans=((ends[0], ends[1]),) if ends[0] < ends[1] else (), notes=notes
    )


def suggestion(word: str, known: Collection[str]) -> str:
    """`; did you mean 'x'?` where a known word is near, else the known words."""
    folded = {name.casefold(): name for name in known}
    near = get_close_matches(word.casefold(), folded, 1)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    shown = list(known)
    return f"there are {', '.join(shown[:12])}{' and others' if len(shown) > 12 else ''}"


def _missing(attribute: Attribute, operator: Operator) -> Condition:
    if operator != "==":
        raise ParameterError(
            f"{attribute.name}: a missing answer (None) has no order; use == or !=",
            where=attribute.name,
        )
    if not attribute.missing:
        raise ParameterError(
            f"{attribute.name} has no missing answers (None): its schema does not allow them",
            where=attribute.name,
        )
    return Condition(attribute.name, frozenset((attribute.answers,)))


def _code(attribute: Attribute, value: object) -> int:
    code = Matcher(attribute).code(value)
    if code < 0:
        words = suggestion(str(value), attribute.labels)
        raise ParameterError(
            f"{attribute.name} has no value {_short(value)}; {words}",
            where=attribute.name,
            value=value,
        )
    return code


def _ordered_codes(attribute: Attribute, operator: Operator, value: object) -> Iterable[int]:
    """Codes before or after a value: numbers by size, an ordinal attribute's labels by their place in the schema."""
    numbers = [
        v for v in attribute.values if isinstance(v, (int, float)) and not isinstance(v, bool)
    ]
    if len(numbers) == attribute.answers and is_finite(value):
        return (code for code, v in enumerate(numbers) if _holds(float(v), operator, float(value)))  # type: ignore[arg-type]
    if attribute.kind != "ordinal":
        raise ParameterError(
            f"{attribute.name} is {attribute.kind} and has no order; use ==, != or in",
            where=attribute.name,
            value=value,
        )
    wanted = _code(attribute, value)
    return (code for code in range(attribute.answers) if _holds(code, operator, wanted))


def _holds(left: float, operator: Operator, right: float) -> bool:
    if operator == "<":
        return left < right
    if operator == "<=":
        return left <= right
    return left > right if operator == ">" else left >= right


def said(attribute: Attribute, number: float) -> str:
    """A number or a time as a question writes it."""
    return (
        repr(attribute.shown(number))
        if attribute.kind in ("date", "datetime")
        else f"{number:,.10g}"
    )


def _compare_numbers(
    attribute: Attribute, operator: Operator, value: object, scale: Scale
) -> Condition:
    name = attribute.name
    if isinstance(value, str) and operator == "==" and value in attribute.labels:
        return Condition(name, frozenset((attribute.labels.index(value),)))
    number = value if attribute.kind == "numeric" else attribute.number(value)
    if not is_finite(number):
        what = "a number" if attribute.kind == "numeric" else f"a {attribute.kind}"
        raise ParameterError(
            f"{name} is {what} and cannot be compared with {_short(value)}; write one such as "
            f"{said(attribute, attribute.edges[0])}, or == and a bin such as {attribute.labels[0]!r}",
            where=name,
            value=value,
        )
    number = float(number)  # type: ignore[arg-type]
    if operator == "==":
        return _one_number(attribute, number, scale)
    cut = scale.cut(number, after=operator in ("<=", ">"))
    span = (-math.inf, cut) if operator in ("<", "<=") else (cut, math.inf)
    return Condition(name, spans=(span,), notes=_cut_note(attribute, number, cut, scale))


def _one_number(attribute: Attribute, number: float, scale: Scale) -> Condition:
    if scale.tells(number):
        span = (scale.cut(number, after=False), scale.cut(number, after=True))
        notes = _cut_note(attribute, number, span[0], scale) or _cut_note(
            attribute, number, span[1], scale
        )
        return Condition(attribute.name, spans=(span,), notes=notes)
    if scale.counted:
        words = f"{said(attribute, number)}, where only multiples of {scale.unit:g} are known"
        return Condition(attribute.name, notes=(_outside(attribute, words),))
    held = np.flatnonzero((scale.low <= number) & (number <= scale.high))
    raise ParameterError(
        f"{attribute.name} is known by bins, which tell no single number apart; ask for a range or for a bin such as "
        f"{attribute.labels[held[-1] if len(held) else 0]!r}",
        where=attribute.name,
        value=number,
    )


def _cut_note(attribute: Attribute, number: float, cut: float, scale: Scale) -> tuple[Notice, ...]:
    if cut < scale.low.min() or cut > scale.high.max():
        ends = (*attribute.edges, *attribute.atoms)
        low, high = said(attribute, min(ends)), said(attribute, max(ends))
        return (
            _outside(
                attribute, f"{said(attribute, number)}, outside its range from {low} to {high}"
            ),
        )
    divided = scale.divided(cut)
    if not len(divided):
        return ()
    words = (
        f"{attribute.name} is known by bins: {said(attribute, number)} divides {attribute.labels[divided[0]]}, whose people are "
        "taken as evenly spread, which the interval does not count; the bin's ends would be exact"
    )
    return (Notice("inside-a-bin", words),)


def _outside(attribute: Attribute, words: str) -> Notice:
    return Notice("outside-the-domain", f"{attribute.name} is compared with {words}")


def _short(value: object) -> str:
    try:
        shown = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number that long"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
