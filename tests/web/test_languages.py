"""Languages of pages: the catalogues are complete, and choices, numbers and dates follow them."""

from __future__ import annotations

import re

import pytest
from tools.messages import catalogue, marked, missing, updated, written

from dither import languages
from dither.languages import CATALOGUES, LANGUAGES, SOURCE, choose, speaking

TRANSLATED = [code for code in LANGUAGES if code != SOURCE]


@pytest.fixture(scope="module")
def texts():  # type: ignore[no-untyped-def]
    return marked()


@pytest.mark.parametrize("code", TRANSLATED)
def test_every_text_is_translated(code, texts) -> None:  # type: ignore[no-untyped-def]
    after = updated(code, texts)
    assert missing(after) == []
    stored = (CATALOGUES / f"{code}.po").read_text(encoding="utf-8")
    assert stored == written(after), "run python -m tools.messages"


@pytest.mark.parametrize("code", TRANSLATED)
def test_translations_keep_values_and_markup(code) -> None:  # type: ignore[no-untyped-def]
    kept = re.compile(r"%\(\w+\)s|%%|%(?!\()|</?\w+[^>]*>")
    for message in catalogue(code):
        if not message.id:
            continue
        plural = not isinstance(message.id, str)
        source = sorted(kept.findall(message.id[-1] if plural else message.id))
        for text in message.string if plural else [message.string]:
            found = sorted(kept.findall(text))
            if plural:  # "one person" may leave the number out
                found = [*found, *(["%(num)s"] if "%(num)s" not in found else [])]
            assert sorted(found) == source, text


@pytest.mark.parametrize(
    ("wanted", "accepted", "chosen"),
    [
        (None, None, "de"),
        (None, "fr-CA,fr;q=0.9,en;q=0.5", "fr"),
        (None, "pt, en;q=0.3, fr;q=0.8", "fr"),
        (None, "FR", "fr"),
        (None, "en;q=0, *;q=0.1", "de"),
        ("en", "fr", "en"),
        ("ar", "fr", "fr"),
        ("../x", "\0;;;q=q,,", "de"),
    ],
)
def test_the_address_decides_then_the_browser_then_the_page(
    wanted: str | None, accepted: str | None, chosen: str
) -> None:
    assert choose(["de", "en", "fr"], wanted, accepted) == chosen


def test_numbers_and_days_are_written_as_the_language_writes_them() -> None:
    with speaking("de"):
        assert languages.direction() == "ltr"
        assert languages.decimal(12345.6, 1) == "12.345,6"
        assert languages.percent(0.123, 1) == "12,3\N{NO-BREAK SPACE}%"
        assert languages.day(1_800_000_000) == "15. Januar 2027"
    with speaking("ar"):
        assert languages.direction() == "rtl"
        assert "2027" in languages.day(1_800_000_000)
    assert languages.decimal(12345.6, 1) == "12,345.6"
    assert languages.day(1_800_000_000) == "15 January 2027"
    with speaking("no-such-language"):
        assert languages.language() == "en"
