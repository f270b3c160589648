"""Stores, servers and methods for the collector's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from collector_harness import (
    Caller,
    Cluster,
    ServerThread,
    closed_connections,  # noqa: F401
)
from synthetic_machines import METHOD

from dither.collector import SqliteStore, Store
from dither.methods import METHODS


@pytest.fixture(autouse=True)
def _synthetic_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "synthetic", METHOD)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    running = Cluster()
    yield running
    running.remove()


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the same store each time it is called; what is open is closed at the end."""
    opened: list[Store] = []
    if request.param == "sqlite":
        from dither.collector import SqliteStore

        address = str(tmp_path / "collector.db")
        make = lambda: SqliteStore(address)  # noqa: E731
    else:
        from dither.collector import PostgresStore

        url = request.getfixturevalue("cluster").fresh()
        make = lambda: PostgresStore(url)  # noqa: E731

    def opening() -> Store:
        for earlier in opened:
            earlier.close()
        opened.clear()
        opened.append(make())
        return opened[0]

    yield opening
    for earlier in opened:
        earlier.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    """A collector on SQLite in a thread of this process."""
    from dither.collector import SqliteStore

    running = ServerThread(SqliteStore(tmp_path / "collector.db"))
    yield running
    running.stop()


@pytest.fixture
def caller(server: ServerThread) -> Iterator[Caller]:
    made = Caller(server.url)
    yield made
    made.connection.close()


@pytest.fixture
def url(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A collector on the folder of the module's commands, which find it by themselves."""
    running = ServerThread(SqliteStore(folder / "collector.db"))
    monkeypatch.setenv("DITHER_URL", running.url)
    yield running.url
    running.stop()
