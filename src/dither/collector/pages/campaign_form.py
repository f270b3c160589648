"""A campaign as the fields of a form: texts, questions or one number, and terms.

A draft is stored as these fields. `CampaignForm` reads them, makes the request of the HTTP
API from them, and `fields_of` turns a campaign back into fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from dither.collector.pages.schema_form import SchemaForm, read_cards, show_schema
from dither.collector.spec import CampaignSpec, NewCampaign
from dither.errors import ParameterError, SchemaError
from dither.languages import SOURCE
from dither.methods import DEFAULT, HISTOGRAMS, MEANS, METHODS
from dither.methods.histogram.consumer import read_consumers
from dither.methods.histogram.machine import HistogramMachine
from dither.methods.mean import Mean
from dither.methods.registry import method as find_method
from dither.notice import REASON_EPSILON, weak_protection
from dither.schema import Schema
from dither.types import JsonObject

# What can be learnt about one number: the method and its words.
FIGURES = {
    "chp": "How many people are in each bin, for each recipient",
    "ranges": "Any range, quantiles and the mean, asked afterwards",
    "mean": "The mean only",
}
MAX_CONSUMERS = 30
# Share of participants held out from the fit to estimate its error, as on the command line.
_HOLDOUT = 0.05
_WORDS = ("title", "purpose", "epsilon_reason", "contact", "closes")
_FIELDS = (
    *_WORDS,
    *("closes_at_reports", "epsilon", "weak", "participants", "method", "participation"),
    *("assignment", "listed", "language", "delete_reports_after"),
    *("about", "target", "solve_for", "figure"),
    *("n-name", "n-question", "n-help", "n-low", "n-high", "n-unit", "n-outside"),
    *("rules", "dropped"),
)
_CARD_FIELD = re.compile(r"(a\d{1,3}|c\d{1,2})-[a-z]{1,12}")


def is_field(name: str) -> bool:
    """Whether a draft keeps a field of this name."""
    return name in _FIELDS or _CARD_FIELD.fullmatch(name) is not None


@dataclass(frozen=True)
class ConsumerCard:
    """A recipient of a number's histogram, as text."""

    name: str = ""
    bins: str = ""
    edges: str = ""
    epsilon: str = ""

    def entry(self, number: int) -> JsonObject:
        """Return the consumer as the HTTP API takes it."""
        where = f"recipient {number + 1}"
        out: JsonObject = {"name": self.name} if self.name else {}
        if self.edges:
            parts = self.edges.replace(";", ",").split(",")
            out["edges"] = [_number(part, where) for part in parts]
        else:
            out["bins"] = _whole(self.bins or "10", where)
        if self.epsilon:
            out["epsilon"] = _number(self.epsilon, where)
        return out


@dataclass(frozen=True)
class NumberForm:
    """The fields of a campaign about one number."""

    name: str = ""
    question: str = ""
    help: str = ""
    low: str = ""
    high: str = ""
    unit: str = ""
    outside: str = ""
    figure: str = "chp"
    consumers: tuple[ConsumerCard, ...] = (ConsumerCard(),)

    def description(self) -> JsonObject:
        """Return schema, method and consumers of the campaign."""
        if not self.name:
            raise SchemaError("the number has no short name yet")
        low, high = _number(self.low, "from"), _number(self.high, "to")
        if low >= high:
            raise SchemaError(f"the number must go up: {low:g} is not below {high:g}")
        machine = find_method(self.figure).load()
        consumers: list[JsonObject] = []
        if issubclass(machine, Mean):
            schema = machine.schema_of(self.name, low, high)
        else:
            assert issubclass(machine, HistogramMachine)
            given = [card.entry(i) for i, card in enumerate(self.consumers)]
            named = read_consumers(given, low, high)
            consumers = [consumer.to_json() for consumer in named]
            schema = machine.schema_of(self.name, named, low, high)
        more: dict[str, Any] = {"question": self.question, "help": self.help}
        if self.unit:
            more["unit"] = _number(self.unit, "smallest step")
        clip = self.outside != "refuse"
        asked = Schema(tuple(replace(attribute, clip=clip, **more) for attribute in schema))
        out: JsonObject = {"schema": asked.to_json(), "method": self.figure}
        return out | ({"consumers": consumers} if consumers else {})


@dataclass(frozen=True)
class CampaignForm:
    """The form as it was sent: all fields as text, and the cards."""

    title: str = ""
    purpose: str = ""
    epsilon_reason: str = ""
    contact: str = ""
    closes: str = ""
    closes_at_reports: str = ""
    epsilon: str = "2"
    weak: str = ""
    participants: str = "10000"
    method: str = ""
    participation: str = "open"
    assignment: str = "arrival"
    listed: str = ""
    language: str = SOURCE
    delete_reports_after: str = ""
    about: str = "table"
    target: str = ""
    solve_for: str = "epsilon"
    schema: SchemaForm = field(default_factory=SchemaForm)
    number: NumberForm = field(default_factory=NumberForm)

    @classmethod
    def read(cls, text: Callable[[str], str]) -> CampaignForm:
        """Read the form; `text` returns a field by name, empty if it is not there."""
        own = [name for name in cls.__dataclass_fields__ if name not in ("schema", "number")]
        given = {name: value for name in own if (value := text(name))}
        figure = text("figure")
        number = NumberForm(
            **{
                name: text(f"n-{name}")
                for name in ("name", "question", "help", "low", "high", "unit", "outside")
            },
            figure=figure if figure in FIGURES else "chp",
            consumers=_read_consumers(text),
        )
        return cls(**given, schema=read_cards(text), number=number)

    def description(self, draft: bool) -> JsonObject:
        """Return the request of the HTTP API that creates the campaign.

        Raises:
            SchemaError: A field cannot be read; the message names it.
        """
        out: JsonObject = {
            "epsilon": _number(self.epsilon, "epsilon"),
            "participants": _whole(self.participants, "participants"),
            "participation": self.participation,
            "assignment": self.assignment,
            "listed": self.listed == "yes",
            "language": self.language,
            "draft": draft,
        }
        if self.about == "number":
            out |= self.number.description()
        else:
            schema = self.schema.schema().to_json()
            out |= {"schema": schema, "method": self.method or DEFAULT, "holdout": _HOLDOUT}
        out |= {name: text for name in _WORDS if (text := getattr(self, name))}
        if self.closes_at_reports:
            out["closes_at_reports"] = _whole(self.closes_at_reports, "closes_at_reports")
        if self.delete_reports_after:
            days = _number(self.delete_reports_after, "delete_reports_after")
            out["delete_reports_after"] = days
        return out

    def spec(self) -> NewCampaign:
        """Return the campaign that the form describes, checked."""
        return NewCampaign.from_json(self.description(draft=False))

    def check_terms(self) -> None:
        """Require a confirmation above epsilon 4, and a reason for participants above 8."""
        epsilon = _number(self.epsilon, "epsilon")
        weak = weak_protection(epsilon)
        if epsilon > REASON_EPSILON and not self.epsilon_reason.strip():
            raise ParameterError(
                f"an epsilon above {REASON_EPSILON:g} needs a reason that participants read",
                where="epsilon_reason",
            )
        if weak is not None and self.weak != "yes":
            raise ParameterError(f"{weak.message}. Confirm it among the terms", where="weak")

    @property
    def wanted(self) -> float | None:
        """The wanted half-width as a share; None if none was typed."""
        if not self.target:
            return None
        points = _number(self.target, "the half-width")
        if not 0.01 <= points <= 50:
            raise SchemaError("the half-width must be from 0.01 to 50 points", where="target")
        return points / 100


def fields_of(spec: CampaignSpec) -> dict[str, str]:
    """Return the fields of a form that describe a campaign like this one."""
    out = {name: str(getattr(spec, name) or "") for name in (*_WORDS, "closes_at_reports")}
    out |= {
        "epsilon": f"{spec.epsilon:g}",
        "participants": str(spec.participants),
        "participation": spec.participation,
        "assignment": spec.assignment,
        "listed": "yes" if spec.listed else "",
        "language": spec.language,
    }
    if spec.delete_reports_after is not None:
        out["delete_reports_after"] = str(spec.delete_reports_after)
    if spec.method in HISTOGRAMS | MEANS:
        out |= _number_fields(spec)
    else:
        method = spec.method if spec.method in METHODS else ""
        out |= {"about": "table", "method": method, **show_schema(spec.schema).fields()}
    return {name: text for name, text in out.items() if text}


def _number_fields(spec: CampaignSpec) -> dict[str, str]:
    asked = spec.schema.attributes[0]
    out = {
        "about": "number",
        "figure": spec.method if spec.method in FIGURES else "chp",
        "n-name": asked.name,
        "n-question": asked.question,
        "n-help": asked.help,
        "n-low": f"{asked.edges[0]:.15g}",
        "n-high": f"{asked.edges[-1]:.15g}",
        "n-unit": "" if asked.unit is None else f"{asked.unit:.15g}",
        "n-outside": "" if asked.clip else "refuse",
    }
    for i, entry in enumerate(spec.consumers or []):
        assert isinstance(entry, dict)  # as `begin` completed them
        edges = ", ".join(f"{edge:.15g}" for edge in entry["edges"])
        out |= {f"c{i}-name": entry["name"], f"c{i}-edges": edges}
        out[f"c{i}-epsilon"] = f"{entry['epsilon']:g}" if entry.get("epsilon") else ""
    return out


def change_cards(fields: dict[str, str], what: str, letter: str, at: int) -> dict[str, str]:
    """Add, move, copy or remove a card.

    Args:
        fields: The fields of the form.
        what: "add", "up", "down", "copy" or "remove".
        letter: "a" for questions, "c" for recipients.
        at: The card's number; any with "add".

    Returns:
        The fields with the cards numbered in their new order.
    """
    cards: dict[int, dict[str, str]] = {}
    rest: dict[str, str] = {}
    for name, text in fields.items():
        found = re.fullmatch(rf"{letter}(\d+)-(\w+)", name)
        if found is None:
            rest[name] = text
        else:
            cards.setdefault(int(found[1]), {})[found[2]] = text
    listed = [cards[i] for i in sorted(cards)]
    blank = {"kind": "categorical"} if letter == "a" else {"bins": "10"}
    if what == "add":
        listed.append(blank)
    elif at < len(listed):
        if what == "copy":
            listed.insert(at + 1, dict(listed[at]))
        else:
            card = listed.pop(at)
            if what != "remove":
                listed.insert(max(0, at - 1) if what == "up" else at + 1, card)
    for i, card in enumerate(listed or [blank]):
        rest |= {f"{letter}{i}-{name}": text for name, text in card.items()}
    return rest


def _read_consumers(text: Callable[[str], str]) -> tuple[ConsumerCard, ...]:
    names = ("name", "bins", "edges", "epsilon")
    cards = []
    for i in range(MAX_CONSUMERS):
        given = {name: text(f"c{i}-{name}") for name in names}
        if any(given.values()):
            cards.append(ConsumerCard(**{name: value.strip() for name, value in given.items()}))
    return tuple(cards) or (ConsumerCard(),)


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        fault = f"{text.strip()!r} is not a number" if text.strip() else "give a number"
        raise SchemaError(f"{where}: {fault}", where=where) from None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _whole(text: str, where: str) -> int:
    number = _number(text, where)
    if not isinstance(number, int) or number <= 0:
        raise SchemaError(f"{where}: {text!r} is not a whole number above 0", where=where)
    return number
