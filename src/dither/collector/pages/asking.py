"""Forms for questions about a release, and their answers as charts and tables.

Forms are plain GET, so the address is the question. About a table, `by` names its
attributes, `w0=2` ticks the third value of the first attribute for `where`, `w3from`
and `w3below` are ends of a range, and `g...` does the same for `given`. `where` and
`given` are typed expressions that are joined to them. About one number, `from` and `to`
are the ends of a range (the default is the end of the public range); `quantiles`,
`bins` and `figure` are as in the API. No input is trusted: unknown attributes and
values are ignored, and the release's parser checks the rest.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from markupsafe import Markup

from dither.collector.answering import FIGURES, Question
from dither.collector.pages.progress import answers, question_of
from dither.display import Bar, bar_chart
from dither.release.query import Answer, AnswerTable
from dither.release.query.answer import AnswerRow, Unit, interval_heading, shown
from dither.schema import Attribute, Schema

# Values of one attribute as boxes; more are shown as a list.
MAX_BOXES = 30
# Values in such a list; others need an expression.
MAX_LISTED = 500
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
        """Whether a value is ticked or typed; such a field is shown open."""
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
    attributes: Sequence[str]
    template: ClassVar[str] = "release_ask.html"

    @property
    def asks(self) -> bool:
        """Whether anything is asked."""
        return bool(self.question.by or self.question.where)

    @property
    def places(self) -> range:
        """The places of the attributes to choose."""
        return range(min(MAX_BY, len(self.attributes)))

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The question as query parameters of the API."""
        conditions = (("where", self.question.where), ("given", self.question.given))
        by = [("by", name) for name in self.question.by]
        return by + [(name, text) for name, text in conditions if text]

    @property
    def python(self) -> str:
        """Python code for the same answer."""
        arguments = [f"{name}={text!r}" for name, text in self.parameters if name != "by"]
        by = self.question.by
        if by:
            return _load_and(f"table({', '.join([repr(list(by)), *arguments])})")
        return _load_and(f"query({', '.join(arguments)})")


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
    return Form(by, where, given, filters, conditions, question, schema.names)


def _load_and(call: str) -> str:
    load = 'release = dither.load_release("release")  # folder.zip, unpacked'
    return f"import dither\n\n{load}\nrelease.{call}"


def _field(name: str, attribute: Attribute, values: Mapping[str, Sequence[str]]) -> Field:
    ranged = attribute.on_line and not attribute.cycles
    ticked = set(values.get(name, ()))
    words = answers(attribute)
    # Bins are chosen by their ends; a missing answer is not among them and has a box.
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


def _joined(schema: Schema, fields: Sequence[Field], typed: str) -> str | None:
    """The expression of all fields and the typed one."""
    expressions = [_expression(schema[field.attribute], field) for field in fields]
    parts = [expression for expression in expressions if expression]
    if typed:
        parts.append(f"({typed})" if parts else typed)
    return " and ".join(parts) or None


def _expression(attribute: Attribute, field: Field) -> str:
    name = _attribute_name(attribute.name)
    chosen = [_literal(attribute, box.code) for box in field.boxes if box.ticked]
    parts = []
    if field.from_:
        parts.append(f"{name} >= {_end(attribute, field.from_)}")
    if field.below:
        parts.append(f"{name} < {_end(attribute, field.below)}")
    ranged = " and ".join(parts)
    if not chosen:
        return ranged
    listed = f"{name} in [{', '.join(chosen)}]"
    if len(chosen) == 1:
        listed = f"{name} == {chosen[0]}"
    return f"({ranged} or {listed})" if ranged else listed


def _attribute_name(name: str) -> str:
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
    """The typed text if it is a number, otherwise a string literal, which the parser checks."""
    if attribute.kind in ("date", "datetime"):
        return repr(typed)
    try:
        float(typed)
    except ValueError:
        return repr(typed)
    return typed.lstrip("+")


_WHOLE = ("quantiles", "bins", "figure")


@dataclass(frozen=True)
class NumberForm:
    """The forms as they were filled in, and the question that they ask."""

    from_: str
    to: str
    quantiles: str
    bins: str
    figure: str
    low: str
    high: str
    number: str = "number"
    figures: ClassVar[Sequence[str]] = FIGURES
    template: ClassVar[str] = "release_ask_number.html"

    @property
    def asks(self) -> bool:
        """Whether anything is asked."""
        return bool(self.parameters)

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The question as programs write it in an address."""
        ends = (
            [("range", f"{self.from_ or self.low},{self.to or self.high}")]
            if self.from_ or self.to
            else []
        )
        return ends + [(name, text) for name in _WHOLE if (text := getattr(self, name))]

    @property
    def question(self) -> Question:
        """The question as a release reads it."""
        asked = dict(self.parameters)
        return Question(
            range=(asked["range"],) if "range" in asked else (),
            quantiles=asked.get("quantiles", ""),
            bins=asked.get("bins", ""),
            figure=asked.get("figure", ""),
        )

    @property
    def python(self) -> str:
        """Python code for the same answer."""
        name, text = next(iter(self.parameters), ("", ""))
        calls = {
            "range": f"number.range({text.replace(',', ', ')})",
            "quantiles": f"quantile({self.number!r}, [{text}])",
            "bins": f"number.answer([{text}])" if "," in text else f"number.answer({text})",
            "figure": "mean()" if text == "mean" else f"number.{text}()",
        }
        return _load_and(calls.get(name, ""))


def read_number_form(
    asked: Sequence[tuple[str, str]], ends: Sequence[float], number: str = "number"
) -> NumberForm:
    """The forms that an address fills in; `ends` are those of the range of the `number`."""
    values: dict[str, str] = {}
    for name, value in asked:
        values.setdefault(name, value.strip())
    low, high = (f"{end:.15g}" for end in ends)
    texts = {name: values.get(name, "") for name in ("to", *_WHOLE)}
    return NumberForm(from_=values.get("from", ""), low=low, high=high, number=number, **texts)


# Rows of an answer in its chart.
MAX_CHARTED = 40
# Rows of an answer in its table on the page; files have all of them.
MAX_ROWS = 500
_NO_INTERVAL = ("no-interval", "divisor-unsure", "caution")


@dataclass(frozen=True)
class _ShownRow:
    """A formatted row of an answer: labels, figure, interval, and a remark on its reliability."""

    about: tuple[str, ...]
    estimate: str
    interval: str
    remark: str


def shown_answer(answer: Answer | AnswerTable) -> dict[str, Any]:
    """The template values of an answer; only shares have a chart."""
    rows = _rows(answer)
    reason = next((str(w) for w in answer.warnings if w.code in _NO_INTERVAL), "")
    drawable: list[AnswerRow] = []
    if answer.unit == "share":
        drawable = [row for row in rows if not math.isnan(row.estimate)]
    charted = _largest(drawable, MAX_CHARTED)
    between = " to " if isinstance(answer, AnswerTable) and answer.by == ("from", "to") else " · "
    bars = [Bar(between.join(_about(row)), row.estimate, row.low, row.high) for row in charted]
    words = f"{answer.asked}: " + ", ".join(f"{bar.label} {bar.estimate:.1%}" for bar in bars[:5])
    listed = _largest(rows, MAX_ROWS)
    head = ["Whom" if answer.unit == "share" else "What"]
    if isinstance(answer, AnswerTable):
        head = list(answer.by)
    return {
        "asked": answer.asked,
        "head": head,
        "interval": interval_heading(answer.level),
        "chart": bar_chart(bars, words) if bars else Markup(""),
        "rows": _shown_rows(listed, reason, answer.unit),
        "left": len(rows) - len(listed),
        "uncharted": len(drawable) - len(charted),
        "warnings": answer.warnings,
        "people": None if isinstance(answer, AnswerTable) else answer.people,
    }


def _rows(answer: Answer | AnswerTable) -> list[AnswerRow]:
    if isinstance(answer, AnswerTable):
        return list(answer.rows)
    return [
        AnswerRow((answer.asked,), answer.estimate, answer.low, answer.high, answer.standard_error)
    ]


def _largest(rows: list[AnswerRow], most: int) -> list[AnswerRow]:
    """All rows in order or, if there are too many, the largest ones."""
    return rows if len(rows) <= most else sorted(rows, key=lambda row: -row.estimate)[:most]


def _about(row: AnswerRow) -> tuple[str, ...]:
    return tuple(value if isinstance(value, str) else f"{value:,.6g}" for value in row.values)


def _shown_rows(rows: Sequence[AnswerRow], reason: str, unit: Unit) -> list[_ShownRow]:
    """Format rows; only the first row without an interval has the full reason."""
    shown_rows = []
    reason = reason or "no interval can be had for this figure"
    for row in rows:
        shown_rows.append(_row(row, reason, unit))
        if row.low is None:
            reason = "as above"
    return shown_rows


def _row(row: AnswerRow, reason: str, unit: Unit) -> _ShownRow:
    about, estimate = _about(row), shown(row.estimate, unit)
    if row.low is None or row.high is None:
        return _ShownRow(about, estimate, "none", reason)
    interval = f"{shown(row.low, unit)} to {shown(row.high, unit)}"
    if unit != "share":
        return _ShownRow(about, estimate, interval, "")
    if row.low <= 0.0:
        return _ShownRow(about, estimate, interval, "may be zero")
    remark = "may be everyone" if row.high >= 1.0 else ""
    return _ShownRow(about, estimate, interval, remark)
