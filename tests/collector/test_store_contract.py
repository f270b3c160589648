"""The exported contract of stores on both databases, and on a shared store that is neither."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from collector_harness import Cluster

from dither.collector import LocalTallies, PostgresStore, SqliteStore, Store
from dither.lab.testing import StoreContract

Opening = Callable[[], Store]


class SharedSqlite(SqliteStore):
    """A plug-in's shared store: not PostgreSQL, and several processes may write it."""

    shared = True


@pytest.fixture
def share_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets several stores open one SQLite file."""
    monkeypatch.setattr("dither.collector.sqlite._lock", lambda path: None)


class TestPostgres(StoreContract):
    @pytest.fixture
    def open_store(self, cluster: Cluster) -> Opening:
        url = cluster.fresh()
        return lambda: PostgresStore(url)


class TestSharedPlugin(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path, share_files: None) -> Opening:
        return lambda: SharedSqlite(tmp_path / "shared.db")


class CountsLocally(SharedSqlite):
    """Shared, and yet each process counts its own reports only: the mistake the contract finds."""

    def running_tally(self, plan_of: Any, in_turn: Any) -> Any:
        return LocalTallies(self, in_turn)


def test_a_shared_store_that_counts_in_memory_breaks_the_contract(
    tmp_path: Path, share_files: None
) -> None:
    contract = StoreContract()
    with pytest.raises(AssertionError):
        contract.test_the_running_tally_equals_the_stored_reports(
            lambda: CountsLocally(tmp_path / "shared.db")
        )
