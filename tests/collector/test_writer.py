"""The writing thread: nothing that goes wrong around a commit stops it, and stopping writes what is queued."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_harness import token_of

from dither.collector import (
    Batch,
    Outcome,
    QueueFull,
    Row,
    SqliteStore,
    State,
    StoredCampaign,
    StoredRound,
    StoreFailure,
    Writer,
    WriteResult,
)
from dither.errors import StateError

C = "ab" * 16


def batch(number: int, size: int = 1) -> Batch:
    return Batch(C, 0, [Row(token_of(100 * number + i), 0, b"x") for i in range(size)])


def test_a_failure_after_or_during_a_commit_does_not_stop_the_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "c.db")
    store.create_campaign(
        StoredCampaign(C, {}, State.OPEN, 0, b""), StoredRound(C, 0, "open", 0.0, {})
    )
    results: list[WriteResult] = []
    forgotten: list[Batch] = []

    def breaks(*arguments: object) -> None:
        raise ZeroDivisionError

    writer = Writer(store, results.extend, breaks, forgotten.append)
    writer.submit(batch(0), "first")
    writer.call(lambda: None)
    original = store.add_reports
    store.add_reports = breaks  # type: ignore[assignment]
    writer.submit(batch(1), "second")
    writer.call(lambda: None)
    store.add_reports = original  # type: ignore[method-assign]
    writer.submit(batch(0), "third")
    writer.stop()
    assert [(r.waiter, r.outcomes) for r in results] == [
        ("first", [Outcome.STORED]),
        ("second", None),
        ("third", [Outcome.DUPLICATE]),
    ]
    assert isinstance(results[1].error, StoreFailure)
    assert "ZeroDivisionError" in str(results[1].error)
    assert len(forgotten) == 3
    assert "could not be counted" in caplog.text
    store.close()


def test_what_is_queued_is_written_in_groups_before_the_thread_ends(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "c.db")
    store.create_campaign(
        StoredCampaign(C, {}, State.OPEN, 0, b""), StoredRound(C, 0, "open", 0.0, {})
    )
    groups: list[list[WriteResult]] = []
    writer = Writer(store, groups.append, group_reports=10)
    with pytest.raises(ValueError, match="mine"):
        writer.call(lambda: (_ for _ in ()).throw(ValueError("mine")))
    for i in range(40):
        writer.submit(batch(i, 3), i)
    writer.stop()
    assert [r.waiter for g in groups for r in g] == list(range(40))
    assert all(len(g) <= 3 for g in groups), "groups of at most ten reports"
    assert store.count(C, 0) == 120
    with pytest.raises(QueueFull):
        writer.submit(batch(99), None)
    with pytest.raises(StateError):
        writer.call(lambda: None)
    store.close()
