"""Hosts, paths and parameters in a store's errors are for the operator's log, never for whoever asks."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from collector_harness import Caller, ServerThread, envelope_of, plan_of, token_of

from dither.collector import RateLimitFilter, SqliteStore, StoreFull, StoreUnavailable
from dither.errors import DitherError

SECRET = (
    "connection to db.internal.example:5432 failed, /var/lib/dither/x.db [parameters: (b'tok3n',)]"
)
PARTS = ("db.internal", "/var/lib", "tok3n", "parameters")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StoreUnavailable(SECRET), 503),
        (StoreFull(SECRET), 507),
        (DitherError(SECRET), 500),
        (RuntimeError(SECRET), 500),
    ],
)
def test_no_answer_repeats_what_the_store_said(
    tmp_path: Path,
    error: Exception,
    status: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        logging.getLogger("dither.collector.limited"), "filters", [RateLimitFilter()]
    )
    running = ServerThread(SqliteStore(tmp_path / "c.db"))
    caller = Caller(running.url)
    campaign = caller.create()
    body = envelope_of(campaign, plan_of(caller.announcement(campaign)), [token_of(0)])
    store: Any = running.collector.store
    originals = {
        name: getattr(store, name) for name in ("add_reports", "check", "count", "campaign")
    }

    def fail(*given: object) -> Any:
        raise error

    for name in originals:
        setattr(store, name, fail)
    caplog.clear()
    answers = [
        caller.upload(campaign, body),
        caller.connection.request("GET", "/ready", None),
        caller.admin("GET", f"/{campaign}"),
        caller.admin("POST", f"/{campaign}/close-round", {"round": 0}),
    ] * 2
    for name, original in originals.items():
        setattr(store, name, original)
    running.stop()
    for answer in answers:
        assert answer.status == status
        assert json.loads(answer.body)["detail"], "the sender is told what to do"
        assert not any(part.encode() in answer.body for part in PARTS), answer.body
    logged = [r for r in caplog.records if r.name.startswith("dither.collector")]
    assert any("db.internal" in r.getMessage() or r.exc_info for r in logged), (
        "the operator is told"
    )
    assert not [r for r in caplog.records if r.name.startswith("uvicorn")], "once"
    if isinstance(error, DitherError):
        assert len(logged) <= 2, (
            "eight failures within a minute: a line of the answers, a line of the writer"
        )


def test_a_line_comes_back_after_a_while_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    log = logging.getLogger("dither.test")
    log.addFilter(RateLimitFilter(60.0, lambda: now[0]))
    for kind in ("first", "first", "first", "first", "first", "second", "later", "first"):
        if kind == "later":
            now[0] += 60.0
        else:
            log.warning("%s kind", kind, extra={"kind": kind})
    assert [r.getMessage() for r in caplog.records] == [
        "first kind",
        "second kind",
        "first kind (4 more of this kind since the line before)",
    ]
