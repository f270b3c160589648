"""From a page in headless Chromium, on another origin, to a report in the collector's store."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from collector_harness import Caller, ServerThread, plan_of
from tests.programs import require

from dither.collector.sqlite import open_sqlite
from dither.reports.assignment import check_payload, report_id

ROOT = Path(__file__).parents[2]
PAGE = """<!doctype html><meta charset=utf-8>
<script type=module>
import {{ takePart }} from './dither.js';
const out = [];
try {{
  const given = {{ url: {url}, campaign: {campaign}, record: {{ colour: 'green', member: true, score: 4.5 }}, cap: {cap} }};
  for (let i = 0; i < 2; i++) out.push(await takePart(given));
  out.push(JSON.parse(localStorage.getItem('dither:device')).campaigns[{campaign}].token);
}} catch (error) {{ out.push(String(error)); }}
await fetch('/shown', {{ method: 'POST', body: JSON.stringify(out) }});
</script>
"""


class PageServer(ThreadingHTTPServer):
    """Serves a folder, and takes what the page's script has to say."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.folder = folder
        self.shown: queue.Queue[list[object]] = queue.Queue()
        self.origin = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(SimpleHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, PageServer)
        self.server.shown.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[PageServer]:
    """A folder with the encoder in it, on an origin of its own."""
    folder = tmp_path / "pages"
    folder.mkdir()
    shutil.copy(ROOT / "js" / "dither.js", folder)
    server = PageServer(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def visit(pages: PageServer, page: str, profile: Path) -> list[object]:
    """What the page's script says when it has finished in a fresh browser."""
    chromium = require(shutil.which("chromium") or shutil.which("google-chrome"), "Chromium")
    (pages.folder / "index.html").write_text(page, encoding="utf-8")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--remote-debugging-port=0",
    ]
    with subprocess.Popen(
        [chromium, *flags, f"--user-data-dir={profile}", f"{pages.origin}/index.html"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # its helpers end with it
    ) as browser:
        try:
            return pages.shown.get(timeout=90)
        finally:
            os.killpg(browser.pid, signal.SIGKILL)


@pytest.mark.parametrize("mechanism", ["best", "olh"])
def test_a_page_takes_part_once(tmp_path: Path, pages: PageServer, mechanism: str) -> None:
    require(shutil.which("chromium") or shutil.which("google-chrome"), "Chromium")
    running = ServerThread(open_sqlite(tmp_path / "c.db"))
    try:
        caller = Caller(running.url)
        campaign = caller.create(parameters={"mechanism": mechanism})
        names = {"url": json.dumps(running.url), "campaign": json.dumps(campaign)}
        first, second, token = visit(pages, PAGE.format(**names, cap=2.0), tmp_path / "profile")
        assert isinstance(first, dict)
        assert first == second
        assert first["result"] == "acknowledged"
        assert 0 < first["spent"] <= 2.0
        plan = plan_of(caller.announcement(campaign))
        stored = [row for page in running.collector.store.reports(campaign, 0) for row in page]
        assert len(stored) == 1
        assert stored[0].report_id == report_id(bytes.fromhex(str(token)), bytes.fromhex(campaign), 0)
        check_payload(plan, stored[0].question, stored[0].payload)
        if mechanism == "best":
            refused = visit(pages, PAGE.format(**names, cap=0.5), tmp_path / "other")
            assert refused == ["Error: the plan would exceed the cap"]
            assert running.collector.store.count(campaign, 0) == 1
    finally:
        running.stop()
