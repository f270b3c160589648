"""A question as a form: boxes to tick and ends of ranges for each attribute, written as the expression that a release reads.

The form is plain GET, so that its address is the question: `by` names the attributes of the table, `w0=2` ticks the third value of
the first attribute for whom to count, `w3from` and `w3below` are ends of a range, `g...` the same for among whom. `where` and
`given` are expressions written by hand and are joined to them. Nothing of it is trusted: numbers of attributes and values that
there are not are left out, and the release's own reader judges the rest.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dither.collector.answering import Question
from dither.collector.pages.progress import answers, question_of
from dither.schema import Attribute, Schema

MAX_BOXES = 30  # values of one attribute as boxes; of more, one is chosen from a list
MAX_LISTED = 500  # values in such a list; any other is asked for by an expression
MAX_BY = 3


@dataclass(frozen=True)
class _Box:
    """A value that can be ticked."""

    code: int
    words: str
    ticked: bool


@dataclass(frozen=True)
class Field:
    """One attribute in the form, under the name that its parameters begin with."""

    name: str
    attribute: str
    question: str
    boxes: Sequence[_Box] = ()
    listed: bool = False
    ranged: bool = False
    from_: str = ""
    below: str = ""
    hint: str = ""

    @property
    def used(self) -> bool:
        """Whether something is ticked or typed; such a field stands open."""
        return bool(self.from_ or self.below or any(box.ticked for box in self.boxes))


@dataclass(frozen=True)
class Form:
    """The form as it was filled in, and the question that it asks."""

    by: tuple[str, ...]
    where: str
    given: str
    filters: Sequence[Field]
    conditions: Sequence[Field]
    question: Question

    @property
    def asks(self) -> bool:
        """Whether anything is asked."""
        return bool(self.question.by or self.question.where)


def read_form(schema: Schema, asked: Sequence[tuple[str, str]]) -> Form:
    """The form that an address fills in."""
    values: dict[str, list[str]] = {}
    for name, value in asked:
        values.setdefault(name, []).append(value.strip())
    by = tuple(dict.fromkeys(name for name in values.get("by", ()) if name in schema.names))[
        :MAX_BY
    ]
    where, given = (next(iter(values.get(name, ())), "") for name in ("where", "given"))
    filters, conditions = (
        [_field(f"{side}{i}", a, values) for i, a in enumerate(schema)] for side in "wg"
    )
    question = Question(
        where=_joined(schema, filters, where),
        given=_joined(schema, conditions, given),
        by=tuple(values.get("by", ())),
    )
    return Form(by, where, given, filters, conditions, question)


def _field(name: str, attribute: Attribute, values: Mapping[str, Sequence[str]]) -> Field:
    ranged = attribute.on_line and not attribute.cycles
    ticked = set(values.get(name, ()))
    words = answers(attribute)
    # Bins are asked for by their ends; a missing answer has no place among them and keeps its box.
    codes = range(attribute.answers, len(words)) if ranged else range(min(len(words), MAX_LISTED))
    boxes = [_Box(code, words[code], str(code) in ticked) for code in codes]
    ends = (attribute.edges[0], attribute.edges[-1]) if ranged else ()
    return Field(
        name,
        attribute.name,
        question_of(attribute),
        boxes,
        listed=len(boxes) > MAX_BOXES,
        ranged=ranged,
        from_=next(iter(values.get(f"{name}from", ())), "") if ranged else "",
        below=next(iter(values.get(f"{name}below", ())), "") if ranged else "",
        hint=" to ".join(attribute.shown(end).removesuffix(".0") for end in ends),
    )


def _joined(schema: Schema, fields: Sequence[Field], own: str) -> str | None:
    """The expression of all fields, and the one written by hand."""
    parts = [said for field in fields if (said := _expression(schema[field.attribute], field))]
    if own:
        parts.append(f"({own})" if parts else own)
    return " and ".join(parts) or None


def _expression(attribute: Attribute, field: Field) -> str:
    name = attribute_name(attribute.name)
    chosen = [_literal(attribute, box.code) for box in field.boxes if box.ticked]
    parts = []
    if field.from_:
        parts.append(f"{name} >= {_end(attribute, field.from_)}")
    if field.below:
        parts.append(f"{name} < {_end(attribute, field.below)}")
    said = " and ".join(parts)
    if chosen:
        listed = (
            f"{name} == {chosen[0]}" if len(chosen) == 1 else f"{name} in [{', '.join(chosen)}]"
        )
        said = f"({said} or {listed})" if said else listed
    return said


def attribute_name(name: str) -> str:
    """An attribute in an expression."""
    plain = (
        name.isidentifier()
        and name.isascii()
        and not keyword.iskeyword(name)
        and name not in ("attr", "between")
    )
    return name if plain else f"attr[{name!r}]"


def _literal(attribute: Attribute, code: int) -> str:
    if code >= attribute.answers:
        return "None"
    return repr(attribute.values[code] if attribute.values else attribute.labels[code])


def _end(attribute: Attribute, typed: str) -> str:
    """A number as it was typed if it is one; everything else as text, which the reader of questions judges."""
    if attribute.kind in ("date", "datetime"):
        return repr(typed)
    try:
        float(typed)
    except ValueError:
        return repr(typed)
    return typed.lstrip("+")
