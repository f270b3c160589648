"""A collector with pages, and the browser that visits it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.browser.conftest import browser, closed_connections  # noqa: F401

from collector_harness import Caller, ServerThread  # isort: skip

from dither.collector import SqliteStore, add_pages


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    server = ServerThread(SqliteStore(tmp_path_factory.mktemp("promise") / "c.db"), pages=add_pages)
    yield server
    server.stop()


@pytest.fixture
def caller(running: ServerThread) -> Iterator[Caller]:
    made = Caller(running.url)
    yield made
    made.connection.close()
