"""The form of the explorer, and answers about one number as charts and tables.

The form is plain GET, so the address is the view. `by` names attributes, `w0=2` ticks
the third value of the first attribute for `where`, `w3from` and `w3below` are ends of a
range, and `g...` does the same for `given`. `where` and `given` are typed expressions that
are joined to them. `figure` and `of` choose a mean or quantiles of an attribute, `within`
shares within rows, `first` and `second` (such as 0.1: the second value of the first attribute)
two groups to compare, `sort` the order of values. A release about one number has neither `by`
nor `given` in its form, and `quantiles`, `bins` and `figure` as in the API. No input is trusted:
unknown attributes and values are ignored, and the release's parser checks the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

from markupsafe import Markup

from dither.collector.answering import FIGURES, Question
from dither.collector.exploring import (
    MAX_BY,
    MEAN,
    QUANTILE_LEVELS,
    SHARE,
    Group,
    View,
    equals,
    literal,
    name_in_question,
)
from dither.collector.pages.progress import answers, question_of
from dither.display import Bar, bar_chart
from dither.languages import gettext as _
from dither.release.query import Answer, AnswerTable
from dither.release.query.answer import AnswerRow, Unit, figure_texts, interval_heading
from dither.schema import Attribute, Schema

# Values of one attribute as boxes; more are shown as a list.
MAX_BOXES = 30
# Values in such a list; others need an expression.
MAX_LISTED = 500
# The view of a whole release.
_WHOLE = View()
_NUMBER_TEXTS = ("quantiles", "bins", "figure")


@dataclass(frozen=True)
class _Box:
    """A value that can be ticked."""

    code: int
    words: str
    ticked: bool


@dataclass(frozen=True)
class _Field:
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
    least: str = ""

    @property
    def words(self) -> str:
        """The chosen values in words."""
        parts = [box.words for box in self.boxes if box.ticked]
        if self.from_ or self.below:
            low = self.from_ or self.least
            between = _("%(low)s to below %(high)s", low=low, high=self.below)
            parts.insert(0, between if self.below else _("%(low)s or more", low=low))
        return ", ".join(parts)

    @property
    def used(self) -> bool:
        """Whether a value is ticked or typed; such a field is shown open."""
        return bool(self.from_ or self.below or any(box.ticked for box in self.boxes))


@dataclass(frozen=True)
class Form:
    """The form as it was filled in, and the question that it asks.

    Attributes:
        number: The name of the number, if the release is about one.
        view: The view, if the release has attributes.
        sort: "size", "order", or empty for the attribute's own.
        asked: The parameters of the address.
    """

    by: tuple[str, ...]
    where: str
    given: str
    filters: Sequence[_Field]
    conditions: Sequence[_Field]
    question: Question
    attributes: Sequence[str]
    number: str = ""
    view: View = _WHOLE
    sort: str = ""
    asked: Sequence[tuple[str, str]] = ()
    figures: ClassVar[Sequence[str]] = FIGURES

    @property
    def asks(self) -> bool:
        """Whether anything is asked."""
        return bool(self.parameters)

    @property
    def places(self) -> range:
        """The places of the attributes to choose."""
        return range(min(MAX_BY, len(self.attributes)))

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The question as query parameters of the API; empty if nothing is asked."""
        asked = self.question
        texts = [(name, getattr(asked, name)) for name in ("where", *_NUMBER_TEXTS)]
        parts = [("by", name) for name in asked.by]
        parts += [(name, text) for name, text in texts if text]
        if parts and asked.given:
            parts.append(("given", asked.given))
        return parts

    @property
    def chips(self) -> list[Chip]:
        """Each restriction in words, with the address of the same view without it."""
        found = []
        for among, fields in ((False, self.filters), (True, self.conditions)):
            for each in fields:
                if each.used:
                    names = (each.name, f"{each.name}from", f"{each.name}below")
                    found.append(Chip(each.question, each.words, among, self.without(*names)))
        for name, text, among in (("where", self.where, False), ("given", self.given, True)):
            if text:
                found.append(Chip("", text, among, self.without(name)))
        return found

    def without(self, *names: str, **more: str) -> str:
        """The query of the same view without some parameters, and with others set."""
        kept = [(name, value) for name, value in self.asked if name not in (*names, *more)]
        return urlencode([*kept, *((name, value) for name, value in more.items() if value)])

    @property
    def python(self) -> str:
        """Python code for the same figures."""
        load = 'release = dither.load_release("release")  # folder.zip, unpacked'
        line = _number_line(self) if self.number else ""
        return f"import dither\n\n{load}\n{line}"

    @property
    def asks_number(self) -> bool:
        """Whether a question about one number is asked."""
        return bool(self.number) and self.asks


@dataclass(frozen=True)
class Chip:
    """A restriction of a view: `among` the reference group, or of those counted."""

    about: str
    words: str
    among: bool
    without: str


def _number_line(form: Form) -> str:
    asked = form.question
    if asked.quantiles:
        return f"release.quantile({form.number!r}, [{asked.quantiles}])"
    if asked.bins:
        bins = f"[{asked.bins}]" if "," in asked.bins else asked.bins
        return f"release.number.answer({bins})"
    if asked.figure:
        return "release.mean()" if asked.figure == "mean" else f"release.number.{asked.figure}()"
    if asked.where:
        return f"release.query(where={asked.where!r})"
    return "release.consumers"


def python_line(view: View, schema: Schema) -> str:
    """The Python call that gives a view's figures."""
    conditions = (("where", view.where), ("given", view.given))
    more = "".join(f", {name}={text!r}" for name, text in conditions if text)
    if view.versus is not None:
        return _contrast_line(view, schema, more)
    if view.figure != SHARE:
        return _number_figure_line(view, schema, more)
    if not view.by:
        return f"[release.table([name]{more}) for name in release.schema.names]"
    if not view.within or len(view.by) == 1:
        return f"release.table({list(view.by)!r}{more})"
    row, column, *third = view.by
    people = [text for text in (view.where, view.given) if text]
    rows = [_all_of(*people, equals(schema[row], code)) for code in range(schema[row].cardinality)]
    if not third:
        return f"{{row: release.table({[column]!r}, given=row) for row in {rows!r}}}"
    over = [equals(schema[third[0]], code) for code in range(schema[third[0]].cardinality)]
    both = [_all_of(text, only) for text in rows for only in over]
    return f"{{row: release.table({[column]!r}, given=row) for row in {both!r}}}"


def _all_of(*parts: str | None) -> str:
    texts = [part for part in parts if part]
    return texts[0] if len(texts) == 1 else " and ".join(f"({text})" for text in texts)


def _number_figure_line(view: View, schema: Schema, more: str) -> str:
    if view.figure == MEAN:
        by = f", by={view.by[0]!r}" if view.by else ""
        return f"release.mean({view.of!r}{by}{more})"
    levels = list(QUANTILE_LEVELS) if view.figure == "quantiles" else [0.5]
    people = [text for text in (view.where, view.given) if text]
    if not view.by or view.by[0] not in schema.names:
        where = f", where={_all_of(*people)!r}" if people else ""
        return f"release.quantile({view.of!r}, {levels!r}{where})"
    attribute = schema[view.by[0]]
    groups = [_all_of(*people, equals(attribute, c)) for c in range(attribute.cardinality)]
    call = f"release.quantile({view.of!r}, {levels!r}, where=group)"
    return f"{{group: {call} for group in {groups!r}}}"


def _contrast_line(view: View, schema: Schema, more: str) -> str:
    assert view.versus is not None
    sides = [
        _all_of(view.given, equals(schema[side.attribute], side.code))
        for side in view.versus
        if side.attribute in schema.names
    ]
    if view.figure == MEAN:
        where = f"where={view.where!r}, " if view.where else ""
        first, second = (f"release.mean({view.of!r}, {where}given={side!r})" for side in sides)
        return f"{first} - {second}"
    if not view.by or view.by[0] not in schema.names:
        first, second = (f"release.query({view.where!r}, given={side!r})" for side in sides)
        return f"{first} - {second}"
    attribute = schema[view.by[0]]
    values = [_all_of(view.where, equals(attribute, c)) for c in range(attribute.cardinality)]
    first, second = (f"release.query(value, given={side!r})" for side in sides)
    return f"{{value: {first} - {second} for value in {values!r}}}"


def read_form(schema: Schema, asked: Sequence[tuple[str, str]], number: str = "") -> Form:
    """The form that an address fills in.

    Args:
        schema: The release's schema.
        asked: The parameters of the address.
        number: The name of the number, if the release is about one.
    """
    values: dict[str, list[str]] = {}
    for name, value in asked:
        values.setdefault(name, []).append(value.strip())
    first = {name: given[0] for name, given in values.items()}
    where, given = first.get("where", ""), first.get("given", "")
    filters = [_field(f"w{i}", attribute, values) for i, attribute in enumerate(schema)]
    if number:
        question = Question(
            where=_joined(schema, filters, where),
            quantiles=first.get("quantiles", ""),
            bins=first.get("bins", ""),
            figure=first.get("figure", ""),
        )
        return Form((), where, "", filters, (), question, (), number, asked=asked)
    chosen = dict.fromkeys(name for name in values.get("by", ()) if name in schema.names)
    by = tuple(chosen)[:MAX_BY]
    conditions = [_field(f"g{i}", attribute, values) for i, attribute in enumerate(schema)]
    question = Question(
        where=_joined(schema, filters, where),
        given=_joined(schema, conditions, given),
        by=tuple(values.get("by", ())),
    )
    view = View(
        by=tuple(dict.fromkeys(name for name in question.by if name)),
        where=question.where,
        given=question.given,
        figure=first.get("figure", "") or SHARE,
        of=first.get("of", ""),
        within=bool(first.get("within")),
        versus=_versus(schema, first.get("first", ""), first.get("second", "")),
    )
    sort = first.get("sort", "")
    sort = sort if sort in ("size", "order") else ""
    return Form(
        by, where, given, filters, conditions, question, schema.names, "", view, sort, asked
    )


def _versus(schema: Schema, first: str, second: str) -> tuple[Group, Group] | None:
    """Two groups such as 0.1, the second value of the first attribute; None unless both are there."""
    sides = []
    for text in (first, second):
        attribute, _, code = text.partition(".")
        if not (attribute.isdecimal() and code.isdecimal() and len(text) < 12):
            return None
        if int(attribute) >= len(schema):
            return None
        name = schema.names[int(attribute)]
        if int(code) >= schema[name].cardinality:
            return None
        sides.append(Group(name, int(code)))
    return sides[0], sides[1]


def _field(name: str, attribute: Attribute, values: Mapping[str, Sequence[str]]) -> _Field:
    ranged = attribute.on_line and not attribute.cycles
    ticked = set(values.get(name, ()))
    words = answers(attribute)
    # Bins are chosen by their ends; a missing answer is not among them and has a box.
    codes = range(attribute.answers, len(words)) if ranged else range(min(len(words), MAX_LISTED))
    boxes = [_Box(code, words[code], str(code) in ticked) for code in codes]
    outer = (attribute.edges[0], attribute.edges[-1]) if ranged else ()
    ends = [attribute.shown(end).removesuffix(".0") for end in outer]
    return _Field(
        name,
        attribute.name,
        question_of(attribute),
        boxes,
        listed=len(boxes) > MAX_BOXES,
        ranged=ranged,
        from_=next(iter(values.get(f"{name}from", ())), "") if ranged else "",
        below=next(iter(values.get(f"{name}below", ())), "") if ranged else "",
        hint=_("%(low)s to %(high)s", low=ends[0], high=ends[1]) if ends else "",
        least=ends[0] if ends else "",
    )


def _joined(schema: Schema, fields: Sequence[_Field], typed: str) -> str | None:
    """The expression of all fields and the typed one."""
    expressions = [_expression(schema[field.attribute], field) for field in fields]
    parts = [expression for expression in expressions if expression]
    if typed:
        parts.append(f"({typed})" if parts else typed)
    return " and ".join(parts) or None


def _expression(attribute: Attribute, field: _Field) -> str:
    name = name_in_question(attribute.name)
    chosen = [literal(attribute, box.code) for box in field.boxes if box.ticked]
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


def _end(attribute: Attribute, typed: str) -> str:
    """The typed text if it is a number, otherwise a string literal, which the parser checks."""
    if attribute.kind in ("date", "datetime"):
        return repr(typed)
    try:
        float(typed)
    except ValueError:
        return repr(typed)
    return typed.lstrip("+")


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
    about = _about(row)
    estimate, interval = figure_texts(row.estimate, row.low, row.high, unit)
    if row.low is None or row.high is None:
        return _ShownRow(about, estimate, interval, reason)
    if unit != "share":
        return _ShownRow(about, estimate, interval, "")
    if row.low <= 0.0:
        return _ShownRow(about, estimate, interval, "may be zero")
    remark = "may be everyone" if row.high >= 1.0 else ""
    return _ShownRow(about, estimate, interval, remark)
