"""<dither-survey> in a page of another origin: only listed origins, one answer, nothing in a frame."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from collector_harness import Caller, ServerThread
from playwright.sync_api import Browser, expect
from tests.participant_page import answer, send

from dither.collector import SqliteStore, add_pages

pytestmark = pytest.mark.slow
SCHEMA = {
    "attributes": [
        {
            "name": "way",
            "kind": "categorical",
            "values": ["foot", "bus"],
            "question": {"en": "How do you get to work?", "de": "Wie kommen Sie zur Arbeit?"},
        }
    ]
}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Another origin, and the folder of its pages."""
    folder = tmp_path / "site"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", folder
    server.shutdown()
    server.server_close()
    thread.join()


def write_page(folder: Path, collector: str, campaign: str) -> None:
    script = f'<script type="module" src="{collector}/scripts/dither-survey.js"></script>'
    part = f'<dither-survey server="{collector}" campaign="{campaign}" lang="de"></dither-survey>'
    body = f"<!DOCTYPE html><html lang=de><title>Our site</title>{script}<h1>Ours</h1>{part}"
    (folder / "index.html").write_text(body, encoding="utf-8")


def test_a_listed_site_shows_a_survey_and_sends_one_answer(
    tmp_path: Path, browser: Browser, site: tuple[str, Path]
) -> None:
    origin, folder = site
    store = SqliteStore(tmp_path / "c.db")
    running = ServerThread(store, pages=add_pages, origins=(origin,))
    try:
        caller = Caller(running.url)
        campaign = caller.create(schema=SCHEMA, title={"en": "To work", "de": "Zur Arbeit"})
        write_page(folder, running.url, campaign)
        with browser.new_context() as context:
            page = context.new_page()
            page.goto(origin)
            expect(page.get_by_role("heading", name="Zur Arbeit")).to_be_visible()
            expect(page.get_by_text("Wer fragt", exact=True)).to_be_visible()
            answer(page)
            expect(page.locator("#review")).to_contain_text("Wie kommen Sie zur Arbeit?")
            send(page)
            expect(page.locator("#state")).to_contain_text("Gesendet und gespeichert")
            page.reload()
            expect(page.locator("#receipt")).to_be_visible()
            assert page.evaluate("location.hash") == ""
            framed = f"<iframe src='{running.url}/c/{campaign}'></iframe>"
            (folder / "frame.html").write_text(framed, encoding="utf-8")
            refused: list[str] = []
            page.on("console", lambda message: refused.append(message.text))
            page.goto(f"{origin}/frame.html")
            page.wait_for_timeout(300)
            assert any("frame-ancestors" in text for text in refused)
        assert running.collector.store.count(campaign, 0) == 1
    finally:
        running.stop()


def test_a_site_that_is_not_listed_shows_nothing_and_cannot_take_part(
    tmp_path: Path, browser: Browser, site: tuple[str, Path]
) -> None:
    origin, folder = site
    store = SqliteStore(tmp_path / "c.db")
    running = ServerThread(store, pages=add_pages, origins=("https://www.example.org",))
    try:
        campaign = Caller(running.url).create(schema=SCHEMA)
        write_page(folder, running.url, campaign)
        with browser.new_context() as context:
            page = context.new_page()
            page.goto(origin)
            page.wait_for_timeout(300)
            assert page.evaluate("customElements.get('dither-survey') === undefined")
            read = "(url) => fetch(url).then((answer) => answer.status, () => 'refused')"
            assert page.evaluate(read, f"{running.url}/v1/campaigns/{campaign}") == "refused"
            assert page.evaluate(read, f"{running.url}/c/{campaign}/survey") == "refused"
    finally:
        running.stop()
