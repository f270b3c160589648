"""Headless Chromium through Playwright, and the collector's harness."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from tests.programs import require

sys.path.insert(0, str(Path(__file__).parents[1] / "collector"))

from collector_harness import caller, closed_connections, running  # noqa: F401

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(
    scope="module"
)  # not the session: while Playwright runs, no other test of this process can run an event loop
def browser() -> Iterator[Browser]:
    """The system's Chromium; nothing is ever downloaded."""
    chromium = require(shutil.which("chromium") or shutil.which("google-chrome"), "Chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()


class Window:
    """One page after another, with what the console said and what was fetched since the last was asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def visit(self, address: str, width: int, scheme: str = "light") -> None:
        """Load a page at a width; not as a phone, which would zoom out until an over-wide page fits."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        self.complaints.clear()
        self.requests.clear()
        self.page.goto(address)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        return self.page.evaluate(script)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.complaints.append(message.text)


@pytest.fixture
def window(browser: Browser) -> Iterator[Window]:
    with browser.new_page() as page:
        yield Window(page)
