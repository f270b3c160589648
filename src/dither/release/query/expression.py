"""Questions as text or as a mapping, read into a tree of conditions; nothing of the text is ever run.

    sex == 'Female' and 30 <= age < 50 and education in ['Bachelors', 'Masters']
    not (married or attr['hours-per-week'] > 40)

Python's own parser reads the text (`ast`, which evaluates nothing) and a whitelist of its nodes is understood: comparisons, chained
or not, `in`, `not in`, `and`, `or`, `not`, `between(name, low, high)` with both ends in, names of attributes, and text, numbers,
True, False and None (missing). An attribute whose name is no Python name is written `attr['its name']`. A boolean attribute may
stand alone.
"""

from __future__ import annotations

import ast
import unicodedata
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property

import numpy as np

from dither.errors import ParameterError
from dither.notice import Notice
from dither.release.query.conditions import (
    FLIPPED,
    Condition,
    Operator,
    between,
    compare,
    said,
    suggestion,
)
from dither.release.query.scale import Scale, scale_of
from dither.schema import Attribute, Schema

Where = str | Mapping[str, object]

LONGEST = 4_000  # characters of a question
DEEPEST = 60  # levels of it
MOST_NODES = 2_000


@dataclass(frozen=True)
class Constant:
    """Everybody, or nobody."""

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
class Some:
    """People for whom some of it holds."""

    parts: tuple[Node, ...]


Node = Constant | Condition | Not | All | Some
EVERYONE = Constant(True)


def both(*parts: Node) -> Node:
    """People for whom all of these hold."""
    told = tuple(part for part in parts if part != EVERYONE)
    return told[0] if len(told) == 1 else All(told) if told else EVERYONE


def conditions(node: Node) -> Iterator[Condition]:
    """The comparisons in a tree."""
    if isinstance(node, Condition):
        yield node
    elif isinstance(node, Not):
        yield from conditions(node.part)
    elif isinstance(node, (All, Some)):
        for part in node.parts:
            yield from conditions(part)


def notes_of(nodes: Collection[Node]) -> tuple[Notice, ...]:
    """What whoever reads the answer must know of the comparisons, each once."""
    return tuple(
        dict.fromkeys(note for node in nodes for found in conditions(node) for note in found.notes)
    )


@dataclass(frozen=True)
class Reader:
    """Reads questions about a schema; `units` has what an attribute's numbers are multiples of, where that is known."""

    schema: Schema
    units: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """The scale of each attribute of numbers or times."""
        return {a.name: scale_of(a, self.units.get(a.name)) for a in self.schema if a.on_line}

    def read(self, where: Where | None) -> Node:
        """The tree of a question; None asks for everybody. One clear line says what cannot be understood."""
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
        return _Text(self, where).read()

    def attribute(self, name: object) -> Attribute:
        """The attribute of a name, or a suggestion."""
        names = self.schema.names
        if name not in names:
            # Python's parser reads names in Unicode's compatibility form.
            alike = [known for known in names if unicodedata.normalize("NFKC", known) == name]
            if len(alike) != 1:
                shown = str(name)[:80]
                raise ParameterError(
                    f"no attribute {shown!r}; {suggestion(shown, names)}", where=shown, value=name
                )
            name = alike[0]
        return self.schema[str(name)]

    def compare(self, attribute: Attribute, operator: Operator, value: object) -> Condition:
        """See `conditions.compare`."""
        return compare(attribute, operator, value, self.scales.get(attribute.name))

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
            return between(attribute, value[0], value[1], self.scales.get(attribute.name))
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


_OPERATORS: dict[type[ast.cmpop], tuple[Operator, bool]] = {
    ast.Eq: ("==", True),
    ast.NotEq: ("==", False),
    ast.Is: ("==", True),
    ast.IsNot: ("==", False),
    ast.Lt: ("<", True),
    ast.LtE: ("<=", True),
    ast.Gt: (">", True),
    ast.GtE: (">=", True),
}  # the comparison, and whether it or its opposite is meant


class _Text:
    """The tree of a text."""

    def __init__(self, reader: Reader, text: str) -> None:
        self.reader, self.text = reader, " ".join(text.split("\n")).strip()

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
                warnings.simplefilter("ignore")  # Python's opinion of the text's style
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
        if sum(1 for _ in ast.walk(parsed)) > MOST_NODES:
            raise ParameterError(
                f"a question has at most {MOST_NODES:,} words and signs", where="where"
            )
        return self._node(parsed, 1)

    def _node(self, node: ast.expr, depth: int) -> Node:
        if depth > DEEPEST:
            raise ParameterError(
                f"the question is nested more than {DEEPEST} levels deep", where="where"
            )
        if isinstance(node, ast.BoolOp):
            parts = tuple(self._node(part, depth + 1) for part in node.values)
            return All(parts) if isinstance(node.op, ast.And) else Some(parts)
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
            for side in (left, right):
                self._value(
                    side
                )  # says what is wrong with what is neither an attribute nor a value
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
        """The attribute that a node names, None if it is something else; `other` is what it is compared with."""
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
