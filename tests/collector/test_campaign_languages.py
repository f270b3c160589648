"""Texts of campaigns and schemas in several languages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dither.collector.spec import CampaignSpec, NewCampaign
from dither.errors import DitherError
from dither.schema import schema_from_json

SCHEMA: dict[str, Any] = {
    "attributes": [
        {
            "name": "way",
            "kind": "categorical",
            "values": ["foot", "bus"],
            "question": {"en": "How?", "de": "Wie?"},
            "help": "Last week.",
            "labels": {"en": ["On foot", "By bus"], "de": {"foot": "Zu Fuß"}},
        },
        {"name": "full", "kind": "boolean", "question": "Full time?"},
    ]
}
CAMPAIGN: dict[str, Any] = {
    "schema": SCHEMA,
    "epsilon": 1.0,
    "participants": 100,
    "title": {"en": "To work", "de": "Zur Arbeit"},
    "purpose": "Buses.",
}


def test_a_schema_keeps_its_languages_and_gives_one_of_them() -> None:
    schema = schema_from_json(SCHEMA)
    assert schema.languages == ("en", "de")
    assert schema_from_json(schema.to_json()) == schema
    german = schema.in_language("fr", "de")
    assert german["way"].question == "Wie?"
    assert german["way"].captions == ("Zu Fuß", "bus")
    assert german["way"].help == "Last week."
    assert german["full"].question == "Full time?"
    assert german.languages == ()
    assert german.fingerprint == schema.fingerprint
    assert schema.in_language("fr")["way"].question == "How?"


def test_labels_by_value_are_no_languages() -> None:
    entry = {"name": "x", "kind": "categorical", "values": ["de", "en"]}
    schema = schema_from_json({"attributes": [{**entry, "labels": {"de": "Deutsch"}}]})
    assert schema["x"].captions == ("Deutsch", "en")
    assert schema.languages == ()


@pytest.mark.parametrize(
    "texts",
    [
        {"question": {"DE!": "x"}},
        {"question": {"de": 5}},
        {"question": {"de": "x" * 501}},
        {"labels": {"de": ["only one"]}},
        {"help": {5: "x"}},
    ],
)
def test_texts_that_do_not_fit_name_their_attribute(texts: dict[str, Any]) -> None:
    with pytest.raises(DitherError):
        schema_from_json({"attributes": [{"name": "w", "kind": "boolean", **texts}]})


def test_a_campaign_has_its_own_language_and_others() -> None:
    english = NewCampaign.from_json(CAMPAIGN)
    assert english.languages == ("en", "de")
    assert (english.title, english.text("title", "de")) == ("To work", "Zur Arbeit")
    assert english.text("title", "fr", "de") == "Zur Arbeit"
    assert english.text("title", "en", "de") == "To work"
    assert english.text("purpose", "de") == "Buses."
    german = NewCampaign.from_json({**CAMPAIGN, "language": "de"})
    assert german.languages == ("de", "en")
    assert german.title == "Zur Arbeit"
    kept = json.loads(json.dumps(german.to_json()))
    assert NewCampaign.from_json(kept) == german
    old = {k: v for k, v in kept.items() if k not in ("language", "translations")}
    assert CampaignSpec.from_json(old).language == "en"


@pytest.mark.parametrize(
    "wrong",
    [
        {"language": "xx"},
        {"title": {"xx": "a", "en": "b"}},
        {"title": {"de": 5}},
        {"title": {"de": "two\nlines"}},
        {"translations": 5},
        {"translations": {"de": 5}, "title": {"en": "a"}},
    ],
)
def test_texts_of_a_campaign_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DitherError):
        NewCampaign.from_json({**CAMPAIGN, **wrong})
