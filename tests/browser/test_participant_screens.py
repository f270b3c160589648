"""Every screen of a survey in three languages: fits, reads without barriers, and the first one has the button."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from collector_harness import Caller, ServerThread
from playwright.sync_api import Browser, Page, expect
from tests.participant_page import begin, fill, follow, practise, send, shown

from dither.collector import SqliteStore, add_pages

pytestmark = pytest.mark.slow
SCHEMA: dict[str, Any] = {
    "attributes": [
        {
            "name": "way",
            "kind": "categorical",
            "values": ["foot", "bicycle", "bus"],
            "question": {
                "en": "How do you get to work?",
                "de": "Wie kommen Sie zur Arbeit?",
                "ar": "كيف تذهب إلى العمل؟",
            },
            "labels": {
                "en": ["On foot", "By bicycle", "By bus"],
                "de": ["Zu Fuß", "Mit dem Rad", "Mit dem Bus"],
                "ar": ["سيرًا", "بالدراجة", "بالحافلة"],
            },
        },
        {"name": "age", "kind": "numeric", "edges": [18, 30, 50, 100], "unit": 1},
    ]
}
WORDS: dict[str, Any] = {
    "title": {"en": "How we get to work", "de": "Wie wir zur Arbeit kommen", "ar": "إلى العمل"},
    "purpose": {
        "en": "To plan the bus lines of our town for the next ten years.",
        "de": "Damit die Stadt ihre Buslinien für die nächsten zehn Jahre planen kann.",
        "ar": "لتخطيط خطوط الحافلات في مدينتنا للسنوات العشر القادمة.",
    },
    "contact": "Stadt Musterstadt, bus@example.org",
    "closes": "2097-03-31",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    server = ServerThread(SqliteStore(tmp_path_factory.mktemp("pages") / "c.db"), pages=add_pages)
    yield server
    server.stop()


def check(page: Page, screen: str) -> None:
    """Nothing is wider than the window, and axe finds no barrier."""
    # The scrolling width counts in both directions of writing.
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, screen
    found = Axe().run(page)
    assert found.violations_count == 0, (screen, found.generate_report())


@pytest.mark.parametrize(
    ("language", "scheme", "width"),
    [("en-GB", "light", 390), ("de-DE", "dark", 390), ("ar", "light", 390), ("ar", "dark", 1280)],
)
def test_every_screen_fits_and_has_no_barrier(
    running: ServerThread, browser: Browser, language: str, scheme: Any, width: int
) -> None:
    campaign = Caller(running.url).create(schema=SCHEMA, epsilon=16.0, **WORDS)
    size: Any = {"width": width, "height": 844}
    with browser.new_context(viewport=size, locale=language, color_scheme=scheme) as context:
        page = context.new_page()
        page.goto(f"{running.url}/c/{campaign}")
        expect(page.locator("#begin")).to_be_visible()
        box = page.locator("#begin").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 844, "the first screen has the button"
        page.locator(".experts > summary").click()
        check(page, "start")
        begin(page)
        check(page, "question")
        fill(shown(page))
        follow(page)
        practise(page)
        expect(page.locator("#practised")).not_to_be_empty()
        check(page, "review")
        send(page)
        expect(page.locator("#receipt")).to_be_visible()
        check(page, "end")


def test_dots_differ_in_forced_colours(running: ServerThread, browser: Browser) -> None:
    campaign = Caller(running.url).create(schema=SCHEMA, epsilon=1.0)
    with browser.new_context(forced_colors="active") as context:
        page = context.new_page()
        page.goto(f"{running.url}/c/{campaign}")
        begin(page)
        fill(shown(page))
        follow(page)
        colour = "(which) => getComputedStyle(document.querySelector(which)).backgroundColor"
        filled = page.evaluate(colour, "#odds .people span.same")
        assert filled != page.evaluate(colour, "#odds .people span:not(.same)")


def test_a_link_that_names_other_scripts_stops(running: ServerThread, browser: Browser) -> None:
    campaign = Caller(running.url).create(schema=SCHEMA)
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{running.url}/c/{campaign}#~{'0' * 32}")
        expect(page.locator("#state")).to_contain_text("not those that your link names")
        expect(page.locator("#begin")).to_be_hidden()
        own = page.locator("#participate").get_attribute("data-scripts")
        page.goto("about:blank")
        page.goto(f"{running.url}/c/{campaign}#~{own}")
        expect(page.locator("#begin")).to_be_visible()
