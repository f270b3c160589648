"""From a page in headless Chromium, on another origin, to a report in the collector's store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from collector_harness import Caller, ServerThread, plan_of
from playwright.sync_api import Browser

from dither.collector import SqliteStore
from dither.reports import check_payload, report_id

pytestmark = pytest.mark.slow

RECORD = {"colour": "green", "member": True, "score": 4.5}
TAKE_PART_TWICE = """async (given) => {
  const { takePart } = await import('/dither.js');
  const out = [];
  try {
    for (let i = 0; i < 2; i++) out.push(await takePart(given));
    out.push(JSON.parse(localStorage.getItem('dither:device')).campaigns[given.campaign].token);
  } catch (error) { out.push(String(error)); }
  return out;
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def origin() -> Iterator[str]:
    """The folder of the encoder on an origin of its own; the list of its files is a page of that origin."""
    folder = Path(__file__).parents[2] / "js"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


def take_part(browser: Browser, origin: str, given: dict[str, object]) -> list[Any]:
    """What a page's script gets, in a window that knows nothing of earlier ones."""
    with browser.new_page() as page:
        page.goto(origin)
        return page.evaluate(TAKE_PART_TWICE, given)


@pytest.mark.parametrize("mechanism", ["best", "olh"])
def test_a_page_takes_part_once(
    tmp_path: Path, browser: Browser, origin: str, mechanism: str
) -> None:
    running = ServerThread(SqliteStore(tmp_path / "c.db"))
    try:
        caller = Caller(running.url)
        campaign = caller.create(parameters={"mechanism": mechanism})
        given = {"url": running.url, "campaign": campaign, "record": RECORD}
        first, second, token = take_part(browser, origin, {**given, "cap": 2.0})
        assert isinstance(first, dict)
        assert first == second
        assert first["result"] == "acknowledged"
        assert 0 < first["spent"] <= 2.0
        plan = plan_of(caller.announcement(campaign))
        stored = [row for page in running.collector.store.reports(campaign, 0) for row in page]
        assert len(stored) == 1
        assert stored[0].report_id == report_id(bytes.fromhex(token), bytes.fromhex(campaign), 0)
        check_payload(plan, stored[0].question, stored[0].payload)
        if mechanism == "best":
            refused = take_part(browser, origin, {**given, "cap": 0.5})
            assert refused == ["Error: the plan would exceed the cap"]
            assert running.collector.store.count(campaign, 0) == 1
    finally:
        running.stop()
