"""How long refused clients are asked to wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_harness import Caller, ServerThread, envelope_of, plan_of, token_of

from dither.collector import RetrySpread, SqliteStore


def waits_after(refusals: int, store: Path) -> set[float]:
    """Start a server, hold a round, and return what its refusals ask for."""
    server = ServerThread(SqliteStore(store))
    caller = Caller(server.url)
    campaign = caller.create()
    body = envelope_of(campaign, plan_of(caller.announcement(campaign)), [token_of(1)])
    held = caller.admin("POST", f"/{campaign}/close-round", {"round": 0, "hold": True})
    assert held.status == 200, held
    waits = {caller.upload(campaign, body).retry_after or 0.0 for _ in range(refusals)}
    caller.connection.close()
    server.stop()
    return waits


def test_a_new_server_has_refused_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetrySpread, "RETURNS_PER_SECOND", 2)
    assert max(waits_after(100, tmp_path / "first.db")) > 5
    assert waits_after(1, tmp_path / "second.db") == {5.0}
