"""What people read for answers, and that the planner keeps nobody waiting for what is no longer asked."""

from __future__ import annotations

import threading

import pytest
from collector_harness import until

from dither.collector.pages import new_campaign
from dither.collector.pages.new_campaign import Planner
from dither.collector.pages.progress import answers, spoken_schema
from dither.errors import DitherError
from dither.schema import Attribute, Schema, schema_from_json

SMALL = Schema((Attribute("a", "boolean", (False, True)), Attribute("b", "boolean", (False, True))))


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"kind": "boolean", "missing": True}, ["No", "Yes", "No answer"]),
        ({"kind": "numeric", "edges": [0, 10, 20], "unit": 1}, ["0 to 9", "10 to 20"]),
        ({"kind": "numeric", "edges": [0, 1.5, 1000]}, ["0 to below 1.5", "1.5 to 1,000"]),
        ({"kind": "numeric", "edges": [0, 10], "atoms": [0]}, ["exactly 0", "above 0, to 10"]),
        ({"kind": "categorical", "values": ["x", "y"], "labels": ["Ex", ""]}, ["Ex", "y"]),
        ({"kind": "date", "edges": ["2020-01-01", "2021-01-01", "2022-01-01"]}, ["2020", "2021"]),
    ],
)
def test_answers_in_plain_words(entry: dict[str, object], expected: list[str]) -> None:
    (attribute,) = schema_from_json({"attributes": [{"name": "q", **entry}]}).attributes
    assert answers(attribute) == expected
    assert len(answers(attribute)) == attribute.cardinality
    told = spoken_schema(Schema((attribute,)))["q"]
    assert told["question"] == "q"
    assert ("range" in told) is attribute.on_line


def test_a_newer_question_sends_the_older_one_away(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = new_campaign._outlook

    def slow(schema: Schema, participants: int, epsilon: float) -> new_campaign._Outlook:
        begun.set()
        assert go_on.wait(60)
        return real(schema, participants, epsilon)

    monkeypatch.setattr(new_campaign, "_outlook", slow)
    planner = Planner()
    found: dict[int, new_campaign._Outlook | None] = {}

    def ask(people: int) -> threading.Thread:
        thread = threading.Thread(
            target=lambda: found.update({people: planner.outlook("me", SMALL, people, 1.0)})
        )
        thread.start()
        return thread

    first = ask(1000)
    assert begun.wait(60)
    second = ask(2000)
    until(lambda: planner._latest["me"] == 2, 60)
    third = ask(3000)
    until(lambda: planner._latest["me"] == 3, 60)
    go_on.set()
    for thread in (first, second, third):
        thread.join(60)
    assert found[1000] is not None
    assert found[2000] is None
    assert found[3000] is not None
    assert planner.outlook("somebody else", SMALL, 3000, 1.0) is found[3000]


def test_a_schema_too_large_to_follow_typing_says_where_to_go() -> None:
    wide = Schema(tuple(Attribute(f"a{i}", "boolean", (False, True)) for i in range(41)))
    with pytest.raises(DitherError, match="dither plan"):
        Planner().outlook("me", wide, 1000, 1.0)
