"""What a campaign says of itself reaches the announcement, the device, the operator and the release, and nothing hostile does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from collector_harness import SCHEMA, describe

from dither.client import read_announcement
from dither.collector import Campaigns, NewCampaign, SqliteStore
from dither.errors import ParameterError
from dither.release import call_from_json
from dither.reports import closing_seconds, closing_text
from dither.schema import schema_from_json

WORDS = {
    "title": "How do you come to work?",
    "purpose": "We plan bicycle stands.\n\nNobody sees your answer.",
    "epsilon_reason": "Few people take part.\nMore noise would leave nothing.",
    "contact": "A. N. Other, a@example.org",
    "closes": "2999-01-31",
    "closes_at_reports": 5000,
}
_ASKED = SCHEMA.to_json()["attributes"]
ASKED = {
    "format": "dither-schema-1",
    "attributes": [_ASKED[0] | {"question": "Which colour?"}, *_ASKED[1:]],
}


@pytest.fixture
def campaigns(tmp_path: Path) -> Any:
    store = SqliteStore(tmp_path / "c.db")
    yield Campaigns(store)
    store.close()


def test_a_device_reads_what_the_campaign_says(campaigns: Campaigns) -> None:
    live = campaigns.create(describe(name="w", **WORDS, schema=ASKED))
    seen = read_announcement(live.public)
    assert {key: getattr(seen, key) for key in WORDS} == WORDS
    assert (
        seen.closing_time
        == closing_seconds("2999-01-31")
        == closing_seconds("2999-02-01T00:00:00Z")
    )
    assert seen.schema["colour"].question == "Which colour?"
    assert seen.schema.fingerprint == SCHEMA.fingerprint
    again = campaigns.refresh(live.stored.id)
    assert again.public == live.public, "as kept in the store"


def test_without_a_title_the_name_stands_for_it_and_else_the_id(campaigns: Campaigns) -> None:
    for given, expected in (({"title": "t", "name": "n"}, "t"), ({"name": "n"}, "n")):
        assert read_announcement(campaigns.create(describe(**given)).public).title == expected
    live = campaigns.create(describe())
    assert read_announcement(live.public).title == live.stored.id


def test_the_release_records_the_words() -> None:
    spec, *_ = NewCampaign.from_json(describe(**WORDS)).begin()
    record = call_from_json(json.loads(json.dumps(spec.call(3).to_json())))
    assert {key: getattr(record, key) for key in WORDS} == WORDS


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("title", "two\nlines"),
        ("title", "t" * 201),
        ("title", 5),
        ("purpose", "a\x00b"),
        ("purpose", "p" * 4001),
        ("epsilon_reason", "a\x00b"),
        ("epsilon_reason", "r" * 4001),
        ("epsilon_reason", 8),
        ("contact", "\x1b[2J"),
        ("closes", "tomorrow"),
        ("closes", "2027-02-30"),
        ("closes", 5),
        ("closes_at_reports", 0),
        ("closes_at_reports", "5"),
        ("closes_at_reports", 2**53),
    ],
)
def test_wrong_words_are_refused_by_name(campaigns: Campaigns, key: str, value: object) -> None:
    with pytest.raises(ParameterError, match=f"^{key}: ") as error:
        campaigns.create(describe(**{key: value}))
    assert "\n" not in str(error.value)


def test_closing_times_have_one_form() -> None:
    assert closing_text("2027-01-31") == "2027-01-31"
    assert closing_text("2027-01-31T18:00+02:00") == "2027-01-31T16:00:00Z"
    assert closing_seconds("2027-01-31") - closing_seconds("2027-01-31T00:00:00Z") == 86_400
    for wrong in ("", "2027", "2027-01-31T12:00:00.5Z", "1969-12-31", None):
        with pytest.raises(ParameterError, match="closes must be a day"):
            closing_text(wrong)


def test_a_schema_as_announced_is_a_schema_file(campaigns: Campaigns) -> None:
    announced = json.loads(campaigns.create(describe(schema=ASKED)).public)["schema"]
    assert schema_from_json(announced)["colour"].question == "Which colour?"
