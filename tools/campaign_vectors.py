"""Golden vectors of a campaign's texts: titles, questions, closing times.

Texts change neither codes nor a schema's fingerprint. They have a limited length and no
control characters. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dither.mechanisms import oue
from dither.reports import Plan, Question, limits
from dither.schema import Attribute, Schema
from dither.schema.attribute import MAX_CAPTION, MAX_HELP, MAX_QUESTION

Json = dict[str, Any]
_BARE = Schema(
    (
        Attribute("a", "categorical", ("x", "y"), missing=True),
        Attribute("b", "boolean", (False, True)),
    )
)
_TOLD = Schema(
    (
        replace(
            _BARE["a"],
            question="Größe? ☃ <b>𝄞</b> \u2028",
            help="In one word.\nOr in two.",
            captions=("The first", "", "I would rather not say"),
        ),
        replace(
            _BARE["b"],
            question="q" * MAX_QUESTION,
            help="𝄞" * MAX_HELP,
            captions=("No", "l" * MAX_CAPTION),
        ),
    )
)


def told_announcements() -> Iterator[Json]:
    """Valid and invalid announcements with texts."""
    plan = Plan(0, (Question(("a",), oue(3, 1.0)),), (1.0,))
    base = {
        "format": "dither-campaign-1",
        "campaign": bytes(range(16)).hex(),
        "name": "n",
        "state": "open",
        "epsilon": 1.0,
        "participation": "open",
        "schema": _TOLD.to_json(),
        "schema_fingerprint": _BARE.fingerprint,
        "start": 0.0,
        "plan": plan.to_json(),
    }
    for change in _right():
        text = json.dumps(base | change)
        yield {
            "kind": "announcement",
            "text": text,
            "fingerprint": _BARE.fingerprint,
            "epsilon": plan.epsilon,
        }
    for why, change in (*_wrong(), *_wrong_questions()):
        yield {"kind": "refuse-announcement", "why": why, "text": json.dumps(base | change)}


def _right() -> Iterator[Json]:
    yield {}
    yield {"title": "", "purpose": "", "contact": "", "closes": None, "closes_at_reports": None}
    yield {
        "title": "𝄞" * limits.MAX_TITLE,
        "purpose": "To see.\n\nAnd to tell \u00a0 ☃",
        "contact": "<script>alert(1)</script>",
    }
    yield {"purpose": "p" * limits.MAX_PURPOSE, "closes": "2027-01-31", "closes_at_reports": 1}
    yield {"closes": "2028-02-29T23:59:59Z", "closes_at_reports": limits.MAX_NUMBER - 1}
    yield {"assignment": "arrival", "wanted": 50, "round_closes": 1_800_000_000.5}
    yield {"assignment": "token", "wanted": None, "round_closes": None}
    yield {"epsilon_reason": ""}
    yield {"epsilon_reason": "r" * limits.MAX_PURPOSE}
    yield {"epsilon_reason": "Few people take part.\nThe figures would be useless otherwise ☃"}


def _wrong() -> Iterator[tuple[str, Json]]:
    yield "a title too long", {"title": "t" * (limits.MAX_TITLE + 1)}
    yield "a title of two lines", {"title": "a\nb"}
    yield "a title that is a number", {"title": 5}
    yield "a purpose with a NUL", {"purpose": "a\0b"}
    yield "a purpose with half a surrogate pair", {"purpose": "a\ud800b"}
    yield "a purpose too long", {"purpose": "p" * (limits.MAX_PURPOSE + 1)}
    yield "a contact with an escape", {"contact": "\x1b[2J"}
    yield "a contact with a control character of Latin-1", {"contact": "\x9b2J"}
    yield "a contact too long", {"contact": "𝄞" * (limits.MAX_CONTACT + 1)}
    for closes in (
        "soon",
        "",
        "2027-02-30",
        "2027-1-1",
        "2027-01-31T12:00Z",
        "2027-01-31T12:00:00",
        1800000000,
    ):
        yield f"closes {closes!r}", {"closes": closes}
    yield "closes with an offset", {"closes": "2027-01-31T12:00:00+01:00"}
    yield "closes before there were computers", {"closes": "1969-12-31"}
    for number in (0, -1, 1.5, "5", True, limits.MAX_NUMBER):
        yield f"closes at {number!r} reports", {"closes_at_reports": number}
    yield "an unknown assignment", {"assignment": "force"}
    yield "no assignment", {"assignment": None}
    yield "wants no report", {"wanted": 0}
    yield "wants half a report", {"wanted": 0.5}
    yield "a round that closes at a text", {"round_closes": "2027-01-31"}
    yield "a round that closed before there were computers", {"round_closes": -1}
    yield "a reason too long", {"epsilon_reason": "r" * (limits.MAX_PURPOSE + 1)}
    yield "a reason with a NUL", {"epsilon_reason": "a\0b"}
    yield "a reason that is null", {"epsilon_reason": None}
    yield "a reason that is a number", {"epsilon_reason": 8}


def _wrong_questions() -> Iterator[tuple[str, Json]]:
    a, b = _TOLD.to_json()["attributes"]
    for why, change in (
        ("a question of no text", {"question": ""}),
        ("a question of two lines", {"question": "a\nb"}),
        ("a question that is a number", {"question": 1}),
        ("a question too long", {"question": "q" * (MAX_QUESTION + 1)}),
        ("help with a carriage return", {"help": "a\rb"}),
        ("help too long", {"help": "h" * (MAX_HELP + 1)}),
        ("help that is null", {"help": None}),
        ("too few labels", {"labels": ["x"]}),
        ("too many labels", {"labels": ["x", "y", "z", "w"]}),
        ("no labels, listed", {"labels": []}),
        ("labels by value", {"labels": {"x": "one", "y": "two"}}),
        ("a label that is a number", {"labels": ["x", 2]}),
        ("a label too long", {"labels": ["x", "l" * (MAX_CAPTION + 1)]}),
        ("a label with a tab", {"labels": ["x", "a\tb"]}),
    ):
        schema = {"format": "dither-schema-1", "attributes": [a | change, b]}
        yield why, {"schema": schema}
