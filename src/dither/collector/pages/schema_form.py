"""A schema as a form: one card for each attribute, converted both ways without loss.

What the fields cannot express (atoms, groups, cycles, irregular bins) stays JSON in a
separate field. The schema's reader checks the input; an error names the attribute.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dither.errors import SchemaError
from dither.schema import Attribute, Schema, numeric, schema_from_json
from dither.schema.attribute import PERIODS
from dither.types import JsonObject

_MAX_CARDS = 200
KINDS = {
    "categorical": "One of several answers",
    "ordinal": "One of several answers in order",
    "boolean": "Yes or no",
    "numeric": "A number",
    "date": "A date",
    "json": "Written as JSON",
}
PERIOD_NAMES = tuple(PERIODS)
_BETWEEN = " | "  # between a value and its label


@dataclass(frozen=True)
class _AttributeCard:
    """The fields of one attribute, as text."""

    kind: str = "categorical"
    name: str = ""
    question: str = ""
    help: str = ""
    values: str = ""
    low: str = ""
    high: str = ""
    bins: str = ""
    edges: str = ""
    since: str = ""
    until: str = ""
    by: str = "year"
    json: str = ""
    unit: str = ""
    missing: bool = False

    def entry(self) -> tuple[str, JsonObject]:
        """Return name and description in the format of a schema file."""
        if self.kind == "json":
            return _from_text(self.json)
        made: JsonObject = {"kind": self.kind}
        if self.kind in ("categorical", "ordinal"):
            made |= self._listed()
        elif self.kind == "numeric":
            made |= self._numbers()
        elif self.kind == "date":
            made |= {"min": self.since, "max": self.until, "by": self.by}
        made |= {
            key: text for key, text in (("question", self.question), ("help", self.help)) if text
        }
        if self.missing:
            made["missing"] = True
        return self.name, made

    def _listed(self) -> JsonObject:
        pairs = [line.partition(_BETWEEN) for line in self.values.splitlines() if line.strip()]
        values = [value.strip() for value, _, _ in pairs]
        labels = [label.strip() for _, _, label in pairs]
        return {"values": values, **({"labels": labels} if any(labels) else {})}

    def _numbers(self) -> JsonObject:
        unit: JsonObject = {"unit": self._number(self.unit)} if self.unit else {}
        if self.edges:
            return {
                "edges": [self._number(part) for part in self.edges.replace(";", ",").split(",")],
                **unit,
            }
        bins = {"bins": self._whole(self.bins)} if self.bins else {}
        return {"min": self._number(self.low), "max": self._number(self.high), **bins, **unit}

    def _whole(self, text: str) -> int:
        number = self._number(text)
        if not isinstance(number, int):
            raise SchemaError(
                f"attribute {self.name!r}: {text.strip()!r} is not a number of bins",
                where=self.name,
                value=text,
            )
        return number

    def _number(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            fault = "give the smallest and the largest number"
            if text.strip():
                fault = f"{text.strip()!r} is not a number"
            raise SchemaError(
                f"attribute {self.name!r}: {fault}", where=self.name, value=text
            ) from None
        return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _from_text(text: str) -> tuple[str, JsonObject]:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        raise SchemaError(f"an attribute written as JSON cannot be read: {text[:60]!r}") from None
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise SchemaError("an attribute written as JSON must be an object with a name")
    return entry["name"], {key: value for key, value in entry.items() if key != "name"}


BLANK_CARD = _AttributeCard()


@dataclass(frozen=True)
class SchemaForm:
    """All cards, the rules and the dropped columns."""

    cards: tuple[_AttributeCard, ...] = (_AttributeCard(),)
    rules: str = ""
    dropped: str = ""

    def schema(self) -> Schema:
        """Return the schema of the cards.

        Raises:
            SchemaError: The cards do not describe a schema.
        """
        entries = [card.entry() for card in self.cards]
        for i, (name, _) in enumerate(entries):
            if not name:
                raise SchemaError(f"question {i + 1} has no short name yet")
        data: JsonObject = {"attributes": [{"name": name, **entry} for name, entry in entries]}
        for key, text in (("rules", self.rules), ("dropped", self.dropped)):
            if text.strip():
                try:
                    data[key] = json.loads(text)
                except (ValueError, RecursionError):
                    raise SchemaError(f"the {key} are not JSON", where=key) from None
        return schema_from_json(data)

    def fields(self) -> dict[str, str]:
        """Return the fields of the form, as `read_cards` reads them."""
        out = {"rules": self.rules, "dropped": self.dropped}
        for i, card in enumerate(self.cards):
            out |= {f"a{i}-{name}": str(text or "") for name, text in vars(card).items()}
        return {name: text for name, text in out.items() if text}


def read_cards(text: Callable[[str], str]) -> SchemaForm:
    """Read the cards of a form; `text` returns a field by name."""
    cards: list[_AttributeCard] = []
    while len(cards) < _MAX_CARDS and text(f"a{len(cards)}-kind"):
        at = f"a{len(cards)}-"
        kind = text(f"{at}kind")
        cards.append(
            _AttributeCard(
                kind=kind if kind in KINDS else "categorical",
                **{name: text(at + name) for name in _TEXTS},
                missing=bool(text(f"{at}missing")),
            )
        )
    return SchemaForm(tuple(cards) or (_AttributeCard(),), text("rules"), text("dropped"))


_TEXTS = (
    "name",
    "question",
    "help",
    "values",
    "low",
    "high",
    "bins",
    "edges",
    "since",
    "until",
    "by",
    "json",
    "unit",
)


def plain_numbers(schema: Schema) -> Schema:
    """Give numbers that were read from a table even bins from their low to their high end.

    A table's exact values and quantiles tell something about the people in it, and a form
    cannot show them.
    """
    return replace(schema, attributes=tuple(_even(attribute) for attribute in schema))


def _even(attribute: Attribute) -> Attribute:
    if attribute.kind != "numeric":
        return attribute
    ends = (*attribute.edges, *attribute.atoms)
    low, high = (_round_end(end, attribute.unit) for end in (min(ends), max(ends)))
    even = numeric(attribute.name, low=low, high=high)
    return replace(attribute, edges=even.edges, atoms=())


def _round_end(end: float, unit: float | None) -> float:
    """An end of a range as people write it: a whole number where the unit is one."""
    return int(end) if unit == 1.0 and float(end).is_integer() else end


def show_schema(schema: Schema) -> SchemaForm:
    """Return the cards of a schema."""
    rules = (
        json.dumps([rule.to_json() for rule in schema.rules], ensure_ascii=False)
        if schema.rules
        else ""
    )
    dropped = json.dumps(dict(schema.dropped), ensure_ascii=False) if schema.dropped else ""
    return SchemaForm(tuple(_card(attribute) for attribute in schema), rules, dropped)


def _card(attribute: Attribute) -> _AttributeCard:
    data = attribute.to_json()
    base = _AttributeCard(
        attribute.kind,
        attribute.name,
        attribute.question,
        attribute.help,
        missing=attribute.missing,
    )
    if attribute.kind == "boolean":
        made = base
    elif attribute.kind in ("categorical", "ordinal"):
        made = replace(base, values=_lines(data))
    elif attribute.kind == "numeric":
        unit = "" if attribute.unit is None else _digits(attribute.unit)
        low, high = attribute.edges[0], attribute.edges[-1]
        bins = str(len(attribute.edges) - 1)
        made = replace(base, low=_digits(low), high=_digits(high), bins=bins, unit=unit)
        if not _describes(made, attribute):
            edges = ", ".join(_digits(edge) for edge in attribute.edges)
            made = replace(base, edges=edges, unit=unit)
    else:
        made = replace(base, kind="json")
    if made.kind == "json" or not _describes(made, attribute):
        return _AttributeCard("json", attribute.name, json=json.dumps(data, ensure_ascii=False))
    return made


def _digits(number: float) -> str:
    """A number as people type it, never in powers of ten where a form allows."""
    return f"{number:.15g}"


def _lines(data: Mapping[str, object]) -> str:
    values, labels = data["values"], data.get("labels")
    assert isinstance(values, list)
    shown = labels if isinstance(labels, list) else [""] * len(values)
    return "\n".join(
        f"{value}{_BETWEEN}{label}" if label else str(value)
        for value, label in zip(values, shown, strict=False)
    )


def _describes(card: _AttributeCard, attribute: Attribute) -> bool:
    """Return whether a card, read back, equals the attribute."""
    try:
        name, entry = card.entry()
        return (
            schema_from_json({"attributes": [{"name": name, **entry}]}).attributes[0] == attribute
        )
    except SchemaError:
        return False
