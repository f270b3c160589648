"""What people read for answers, and that the planner keeps nobody waiting for what is no longer asked."""

from __future__ import annotations

import threading

import pytest
from collector_harness import until

from dither.collector.pages import outlook
from dither.collector.pages.outlook import Outlook, Planner, Width
from dither.collector.pages.progress import answers, spoken_schema
from dither.collector.spec import CampaignSpec
from dither.errors import DitherError
from dither.schema import Attribute, Schema, schema_from_json

SMALL = Schema((Attribute("a", "boolean", (False, True)), Attribute("b", "boolean", (False, True))))


def asked(schema: Schema, people: int) -> CampaignSpec:
    return CampaignSpec(schema=schema, epsilon=1.0, participants=people, method="independent")


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
    real = outlook.predicted

    def slow(spec: CampaignSpec, people: int, epsilon: float) -> Width:
        begun.set()
        assert go_on.wait(60)
        return real(spec, people, epsilon)

    monkeypatch.setattr(outlook, "predicted", slow)
    planner = Planner()
    found: dict[int, Outlook | None] = {}

    def ask(people: int) -> threading.Thread:
        thread = threading.Thread(
            target=lambda: found.update({people: planner.outlook("me", asked(SMALL, people))})
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
    assert found[1000] is None
    assert found[2000] is None
    assert found[3000] is not None
    assert planner.outlook("somebody else", asked(SMALL, 3000)) == found[3000]


def test_a_schema_too_large_to_follow_typing_says_where_to_go() -> None:
    wide = Schema(tuple(Attribute(f"a{i}", "boolean", (False, True)) for i in range(41)))
    with pytest.raises(DitherError, match="dither plan"):
        Planner().outlook("me", asked(wide, 1000))
