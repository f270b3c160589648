"""Read questions, given as text or as a mapping, into a tree of conditions without running them.

    sex == 'Female' and 30 <= age < 50 and education in ['Bachelors', 'Masters']
    not (married or attr['hours-per-week'] > 40)

Python's parser reads the text (`ast`, which evaluates nothing), and a whitelist of
nodes is accepted: comparisons, chained or not, `in`, `not in`, `and`, `or`, `not`,
`between(name, low, high)` with both ends included, names of attributes, and text,
numbers, True, False and None (missing). An attribute whose name is not a Python name is
written `attr['its name']`. A boolean attribute is a condition by itself.
"""

from __future__ import annotations

import ast
import math
import unicodedata
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from difflib import get_close_matches
from functools import cached_property
from typing import Literal

import numpy as np

from dither.checks import is_finite
from dither.errors import ParameterError
from dither.notice import Notice
from dither.schema import Attribute, Schema
from dither.schema.columns import Matcher
from dither.types import Floats, Indices


@dataclass(frozen=True)
class Scale:
    """Each code's stretch from `low` to `high`.

    Ends are in units if numbers are `counted`; `atoms` are numbers with a separate
    code. `closed` is the upper end of the last bin if the bin includes that number.
    """

    low: Floats
    high: Floats
    unit: float
    counted: bool
    atoms: frozenset[float]
    closed: float | None = None

    def cut(self, number: float, *, after: bool) -> float:
        """The place just before a number or just after it."""
        if self.counted:
            place = round(number / self.unit, 9)
            return math.floor(place) + 0.5 if after else math.ceil(place) - 0.5
        exact = number in self.atoms or number == self.closed
        return float(np.nextafter(number, math.inf)) if after and exact else number

    def tells(self, number: float) -> bool:
        """Whether this one number has a width."""
        return number in self.atoms or (self.counted and round(number / self.unit, 9).is_integer())

    def divided(self, cut: float) -> Indices:
        """The codes that a cut divides."""
        return np.flatnonzero((self.low < cut) & (cut < self.past_end))

    @property
    def past_end(self) -> Floats:
        """The upper ends, that of a closed bin just after its last number."""
        if self.closed is None:
            return self.high
        return np.where(self.high == self.closed, np.nextafter(self.closed, math.inf), self.high)

    def numbers(self, places: Floats) -> Floats:
        """The numbers at some places."""
        return places * self.unit if self.counted else places

    def rounded(self, place: float) -> float:
        """The number at a place, a multiple of the unit if they are counted."""
        return math.ceil(place - 0.5 - 1e-9) * self.unit if self.counted else place

    def reach(self, low: Floats, high: Floats) -> Floats:
        """How far the numbers of a stretch lie from its middle at most."""
        return np.maximum(self.numbers(high - low - (1.0 if self.counted else 0.0)) / 2, 0.0)


def _scale_of(attribute: Attribute, unit: float | None) -> Scale:
    """The scale of an attribute with numbers in multiples of `unit`, or None.

    Bins without a multiple are not counted.
    """
    ends = np.repeat(np.array(attribute.line.ends, dtype=np.float64), attribute.turns, axis=0)
    atoms = frozenset(attribute.atoms)
    if unit is not None:
        low, high = _counted(ends, atoms, unit, closed=attribute.kind in ("numeric", "duration"))
        if (low < high).all():
            return Scale(low, high, unit, True, atoms)
    exact = np.isin(ends, list(atoms))
    low = np.where(
        exact[:, 0] & (ends[:, 0] < ends[:, 1]), np.nextafter(ends[:, 0], math.inf), ends[:, 0]
    )
    high = np.where(ends[:, 0] == ends[:, 1], np.nextafter(ends[:, 1], math.inf), ends[:, 1])
    last = float(attribute.edges[-1]) if attribute.edges else math.nan
    closed = attribute.kind in ("numeric", "duration") and last not in atoms
    return Scale(low, high, 1.0, False, atoms, last if closed else None)


def _counted(
    ends: Floats, atoms: frozenset[float], unit: float, *, closed: bool
) -> tuple[Floats, Floats]:
    places, exact, point = (
        np.round(ends / unit, 9),
        np.isin(ends, list(atoms)),
        ends[:, 0] == ends[:, 1],
    )
    low = np.where(exact[:, 0], places[:, 0] + 0.5, np.ceil(places[:, 0]) - 0.5)
    high = np.ceil(places[:, 1]) - 0.5
    last = closed & (ends[:, 1] == ends[~point, 1].max())
    high = np.where(last & ~exact[:, 1], np.floor(places[:, 1]) + 0.5, high)
    return np.where(point, places[:, 0] - 0.5, low), np.where(point, places[:, 1] + 0.5, high)


Operator = Literal["==", "<", "<=", ">", ">="]
FLIPPED: dict[Operator, Operator] = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
MISSING = "(missing)"


@dataclass(frozen=True)
class Condition:
    """Holds for codes in `codes`, and for numbers in one of the half-open `spans`."""

    attribute: str
    codes: frozenset[int] = frozenset()
    spans: tuple[tuple[float, float], ...] = ()
    notes: tuple[Notice, ...] = field(default=(), compare=False)


def _suggestion(word: str, known: Collection[str]) -> str:
    """`; did you mean 'x'?` if a similar word is known, otherwise the known words."""
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
        words = _suggestion(str(value), attribute.labels)
        raise ParameterError(
            f"{attribute.name} has no value {_short(value)}; {words}",
            where=attribute.name,
            value=value,
        )
    return code


def _ordered_codes(attribute: Attribute, operator: Operator, value: object) -> Iterable[int]:
    """Codes before or after a value: numbers by size, ordinal labels by schema order."""
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
    if cut < scale.low.min() or cut > scale.past_end.max():
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
        "taken as evenly spread; the interval of a share allows for any place in the bin, and the bin's ends would be exact"
    )
    return (Notice("inside-a-bin", words),)


def _outside(attribute: Attribute, words: str) -> Notice:
    return Notice("outside-the-domain", f"{attribute.name} is compared with {words}")


def _short(value: object) -> str:
    try:
        shown = repr(value)
    except ValueError:
        # Python does not print integers of thousands of digits.
        return "a number that long"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


Where = str | Mapping[str, object]

# Characters of a question.
LONGEST = 4_000
# Nesting levels of a question.
DEEPEST = 60
MAX_NODES = 2_000


@dataclass(frozen=True)
class Constant:
    """True or false for all people."""

    value: bool


@dataclass(frozen=True)
class Not:
    """People for whom it does not hold."""

    part: Node


@dataclass(frozen=True)
class All:
    """People for whom all of it holds."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class _Some:
    """People for whom some of it holds."""

    parts: tuple[Node, ...]


Node = Constant | Condition | Not | All | _Some
EVERYONE = Constant(True)


def both(*parts: Node) -> Node:
    """People for whom all of these hold."""
    restricting = tuple(part for part in parts if part != EVERYONE)
    return (
        restricting[0] if len(restricting) == 1 else All(restricting) if restricting else EVERYONE
    )


def conditions(node: Node) -> Iterator[Condition]:
    """The comparisons in a tree."""
    if isinstance(node, Condition):
        yield node
    elif isinstance(node, Not):
        yield from conditions(node.part)
    elif isinstance(node, (All, _Some)):
        for part in node.parts:
            yield from conditions(part)


def notes_of(nodes: Collection[Node]) -> tuple[Notice, ...]:
    """Warnings about the comparisons, without repeats."""
    return tuple(
        dict.fromkeys(note for node in nodes for found in conditions(node) for note in found.notes)
    )


@dataclass(frozen=True)
class Reader:
    """Reads questions about a schema; `units` has known units of attributes' numbers."""

    schema: Schema
    units: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """The scale of each attribute of numbers or times."""
        return {a.name: _scale_of(a, self.units.get(a.name)) for a in self.schema if a.on_line}

    def read(self, where: Where | None) -> Node:
        """Read a question into a tree; None means all people.

        Raises:
            ParameterError: The question cannot be understood; the message says why.
        """
        if where is None:
            return EVERYONE
        if isinstance(where, Mapping):
            return both(
                *(self._wanted(self.attribute(name), value) for name, value in where.items())
            )
        if not isinstance(where, str):
            raise ParameterError(
                f"a question is text or a mapping, not {type(where).__name__}", where="where"
            )
        return _Text(self, " ".join(where.split("\n")).strip()).read()

    def attribute(self, name: object) -> Attribute:
        """The attribute of a name, or a suggestion."""
        names = self.schema.names
        if name not in names:
            # Python's parser reads names in Unicode's compatibility form.
            alike = [known for known in names if unicodedata.normalize("NFKC", known) == name]
            if len(alike) != 1:
                shown = str(name)[:80]
                raise ParameterError(
                    f"no attribute {shown!r}; {_suggestion(shown, names)}", where=shown, value=name
                )
            name = alike[0]
        return self.schema[str(name)]

    def compare(self, attribute: Attribute, operator: Operator, value: object) -> Condition:
        """The condition that compares an attribute with a value.

        Raises:
            ParameterError: The comparison is not defined for the attribute.
        """
        if value is None or (value == MISSING and value not in attribute.codes):
            return _missing(attribute, operator)
        scale = self.scales.get(attribute.name)
        if scale is not None:
            return _compare_numbers(attribute, operator, value, scale)
        if operator == "==":
            return Condition(attribute.name, frozenset((_code(attribute, value),)))
        return Condition(attribute.name, frozenset(_ordered_codes(attribute, operator, value)))

    def _between(self, attribute: Attribute, low: object, high: object) -> Condition:
        """The condition that a number is in [low, high); None leaves an end open."""
        if not attribute.on_line:
            raise ParameterError(
                f"{attribute.name} is {attribute.kind}: a range (low, high) is for numbers; list the values instead",
                where=attribute.name,
            )
        ends = [-math.inf, math.inf]
        notes: tuple[Notice, ...] = ()
        for i, end in enumerate((low, high)):
            if end is not None:
                found = self.compare(attribute, "<", end)
                ends[i] = found.spans[0][1]
                notes += found.notes
        spans = ((ends[0], ends[1]),) if ends[0] < ends[1] else ()
        return Condition(attribute.name, spans=spans, notes=notes)

    def any_of(self, attribute: Attribute, values: Collection[object]) -> Condition:
        """People whose value is one of these."""
        found = [self.compare(attribute, "==", value) for value in values]
        return Condition(
            attribute.name,
            frozenset().union(*(one.codes for one in found)),
            tuple(dict.fromkeys(span for one in found for span in one.spans)),
            tuple(dict.fromkeys(note for one in found for note in one.notes)),
        )

    def _wanted(self, attribute: Attribute, value: object) -> Condition:
        if isinstance(value, tuple):
            if len(value) != 2:
                raise ParameterError(
                    f"{attribute.name}: a range is (low, high), a choice of values a list",
                    where=attribute.name,
                )
            return self._between(attribute, *value)
        listed = value if isinstance(value, (list, set, frozenset)) else None
        values = [
            one.item() if isinstance(one, np.generic) else one
            for one in ([value] if listed is None else listed)
        ]
        for one in values:
            if one is not None and not isinstance(one, (str, int, float, date, timedelta)):
                raise ParameterError(
                    f"{attribute.name}: ask for a value, a list of values or a range (low, high), not {type(one).__name__}",
                    where=attribute.name,
                )
        return (
            self.compare(attribute, "==", values[0])
            if listed is None
            else self.any_of(attribute, values)
        )


# Each comparison, and whether it or its negation is meant.
_OPERATORS: dict[type[ast.cmpop], tuple[Operator, bool]] = {
    ast.Eq: ("==", True),
    ast.NotEq: ("==", False),
    ast.Is: ("==", True),
    ast.IsNot: ("==", False),
    ast.Lt: ("<", True),
    ast.LtE: ("<=", True),
    ast.Gt: (">", True),
    ast.GtE: (">=", True),
}


@dataclass(frozen=True)
class _Text:
    """The tree of a text without line breaks."""

    reader: Reader
    text: str

    def read(self) -> Node:
        flat = self.text
        if not flat:
            raise ParameterError("an empty question; write one such as age >= 50", where="where")
        if len(flat) > LONGEST:
            raise ParameterError(
                f"a question has at most {LONGEST:,} characters, not {len(flat):,}", where="where"
            )
        try:
            with warnings.catch_warnings():
                # Python warns about the style of the text.
                warnings.simplefilter("ignore")
                parsed = ast.parse(flat, mode="eval").body
        except SyntaxError as error:
            near = flat[max((error.offset or 1) - 1, 0) :][:20]
            at = f" at {near!r}" if near else " at its end"
            raise ParameterError(
                f"cannot read {_cut(flat)}{at}: {error.msg}", where="where", value=flat
            ) from None
        except (ValueError, MemoryError, RecursionError):
            raise ParameterError(
                "cannot read the question: it is nested too deep or is no text", where="where"
            ) from None
        if sum(1 for _ in ast.walk(parsed)) > MAX_NODES:
            raise ParameterError(
                f"a question has at most {MAX_NODES:,} words and signs", where="where"
            )
        return self._node(parsed, 1)

    def _node(self, node: ast.expr, depth: int) -> Node:
        if depth > DEEPEST:
            raise ParameterError(
                f"the question is nested more than {DEEPEST} levels deep", where="where"
            )
        if isinstance(node, ast.BoolOp):
            parts = tuple(self._node(part, depth + 1) for part in node.values)
            return All(parts) if isinstance(node.op, ast.And) else _Some(parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return Not(self._node(node.operand, depth + 1))
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call):
            return self._between(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return Constant(node.value)
        if (attribute := self._named(node)) is not None:
            if attribute.kind != "boolean":
                raise ParameterError(
                    f"{attribute.name} stands alone; compare it with something, as in {_example(attribute)}",
                    where=attribute.name,
                )
            return self.reader.compare(attribute, "==", True)
        raise self._not_understood(node)

    def _comparison(self, node: ast.Compare) -> Node:
        sides = [node.left, *node.comparators]
        pairs = zip(sides, node.ops, sides[1:], strict=False)
        return both(*(self._pair(left, operator, right) for left, operator, right in pairs))

    def _pair(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Node:
        if isinstance(operator, (ast.In, ast.NotIn)):
            attribute = self._named(left)
            if attribute is None or not isinstance(right, (ast.List, ast.Tuple, ast.Set)):
                raise ParameterError(
                    "'in' stands between an attribute and a list of values, as in sex in ['Female']",
                    where="where",
                )
            found = self.reader.any_of(attribute, [self._value(value) for value in right.elts])
            return found if isinstance(operator, ast.In) else Not(found)
        sign, meant = _OPERATORS[type(operator)]
        first, second = self._named(left, right), self._named(right, left)
        if first is not None and second is not None:
            raise ParameterError(
                f"{first.name} and {second.name} are both attributes; compare each with values",
                where="where",
            )
        if first is not None:
            held = self.reader.compare(first, sign, self._value(right))
        elif second is not None:
            held = self.reader.compare(second, FLIPPED[sign], self._value(left))
        else:
            # Raises an error for a side that is neither an attribute nor a value.
            for side in (left, right):
                self._value(side)
            raise ParameterError(
                f"{self._said(left)} and what follows compares no attribute", where="where"
            )
        return held if meant else Not(held)

    def _between(self, node: ast.Call) -> Node:
        if (
            not isinstance(node.func, ast.Name)
            or node.func.id != "between"
            or len(node.args) != 3
            or node.keywords
        ):
            raise ParameterError(
                "the only call that a question may make is between(attribute, low, high)",
                where="where",
            )
        attribute = self._named(node.args[0])
        if attribute is None:
            raise ParameterError(
                "between(attribute, low, high) begins with an attribute", where="where"
            )
        low, high = (self._value(end) for end in node.args[1:])
        return both(
            self.reader.compare(attribute, ">=", low), self.reader.compare(attribute, "<=", high)
        )

    def _named(self, node: ast.expr, other: ast.expr | None = None) -> Attribute | None:
        """The attribute that a node names, or None; `other` is the other operand."""
        if isinstance(node, ast.Name):
            if (
                other is not None
                and node.id not in self.reader.schema.names
                and self._is_attribute(other)
            ):
                raise ParameterError(
                    f"no attribute {node.id!r}; if it is a value, write it in quotes: {node.id!r}",
                    where=node.id,
                )
            return self.reader.attribute(node.id)
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id == "attr"
        ):
            if not isinstance(node.slice, ast.Constant) or not isinstance(node.slice.value, str):
                raise ParameterError(
                    "write attr['its name'], with the name in quotes", where="where"
                )
            return self.reader.attribute(node.slice.value)
        return None

    def _is_attribute(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Subscript) or (
            isinstance(node, ast.Name) and node.id in self.reader.schema.names
        )

    def _value(self, node: ast.expr) -> object:
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        inner = node.operand if negative and isinstance(node, ast.UnaryOp) else node
        if isinstance(inner, ast.Name):
            raise ParameterError(
                f"{inner.id} stands where a value should; write it in quotes: {inner.id!r}",
                where=inner.id,
            )
        value = inner.value if isinstance(inner, ast.Constant) else ...
        if negative and isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value
        if not negative and (value is None or isinstance(value, (str, int, float))):
            return value
        raise self._not_understood(node)

    def _not_understood(self, node: ast.expr) -> ParameterError:
        signs = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Invert)
        if isinstance(node, (ast.BinOp, ast.UnaryOp)) and isinstance(node.op, signs):
            words = "write and, or, not instead of &, |, ~"
        elif isinstance(node, ast.BinOp):
            words = "a question does no arithmetic; a name that is no Python name is written as in attr['hours-per-week']"
        else:
            words = "a question is made of comparisons, in, and, or, not, names, text and numbers"
        return ParameterError(f"{self._said(node)} is not understood: {words}", where="where")

    def _said(self, node: ast.expr) -> str:
        """The part of the text that a node was read from; the parser counts in bytes."""
        return _cut(
            self.text.encode()[node.col_offset : node.end_col_offset].decode(errors="replace")
        )


def _example(attribute: Attribute) -> str:
    if attribute.on_line:
        return f"{attribute.name} >= {said(attribute, attribute.edges[len(attribute.edges) // 2])}"
    return f"{attribute.name} == {attribute.values[0]!r}"


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def question_words(what: str, where: Where | None, given: Where | None) -> str:
    """The question as a phrase."""
    of = "" if where is None else f" {'with' if what == 'share' else 'where'} {_one_line(where)}"
    among = "" if given is None else f" given {_one_line(given)}"
    return f"{what}{of}{among}"


def _one_line(where: Where) -> str:
    if isinstance(where, str):
        return " ".join(where.split())
    return " and ".join(f"{name}: {value}" for name, value in where.items())
