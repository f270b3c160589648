"""A store that hangs: uploads and questions of health end in time, others go on, and so does the way out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from collector_harness import (
    Caller,
    ServerProcess,
    ServerThread,
    envelope_of,
    plan_of,
    token_of,
    until,
)

from dither.client import Answer
from dither.collector import SqliteStore, limits

pytestmark = pytest.mark.slow


class Gate:
    """Lets a store's methods through, or keeps them waiting."""

    def __init__(self, store: Any, *names: str) -> None:
        self.open = threading.Event()
        self.open.set()
        self.entered = 0
        for name in names:
            setattr(store, name, self._kept(getattr(store, name)))

    def _kept(self, original: Any) -> Any:
        def call(*given: Any) -> Any:
            self.entered += 1
            assert self.open.wait(60)
            return original(*given)

        return call


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[ServerThread, Gate]]:
    store = SqliteStore(tmp_path / "c.db")
    gate = Gate(store, "add_reports", "check")
    server = ServerThread(store)
    yield server, gate
    gate.open.set()
    server.stop()


def test_uploads_hear_503_in_time_and_the_same_bytes_later_are_a_duplicate(
    running: tuple[ServerThread, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, gate = running
    caller = Caller(server.url)
    campaign = caller.create()
    body = envelope_of(campaign, plan_of(caller.announcement(campaign)), [token_of(0)])
    monkeypatch.setattr(limits, "UPLOAD_SECONDS", 0.3)
    gate.open.clear()
    for _ in range(3):
        answer = caller.upload(campaign, body)
        assert (answer.status, answer.retry_after) == (503, 5.0)
        assert json.loads(answer.body)["type"] == "urn:dither:problem:store-away"
    gate.open.set()
    until(lambda: server.collector.store.count(campaign, 0) == 1)
    monkeypatch.setattr(limits, "UPLOAD_SECONDS", 30.0)
    again = caller.upload(campaign, body)
    assert (again.status, json.loads(again.body)) == (200, {"results": ["duplicate"]})


def test_ready_fails_in_time_and_a_hundred_questions_take_one_thread(
    running: tuple[ServerThread, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, gate = running
    monkeypatch.setattr(limits, "READY_SECONDS", 1.0)
    gate.open.clear()
    answers: list[Answer] = []

    def ask() -> None:
        own = Caller(server.url)
        answers.append(own.connection.request("GET", "/ready", None))
        own.connection.close()

    threads = [threading.Thread(target=ask) for _ in range(100)]
    for thread in threads:
        thread.start()
    until(lambda: gate.entered == 1)
    caller = Caller(server.url)
    assert caller.create(), "others are served meanwhile"
    for thread in threads:
        thread.join(30)
    assert [a.status for a in answers] == [503] * 100
    assert gate.entered == 1
    assert sum(t.name == "dither-check" for t in threading.enumerate()) == 1
    gate.open.set()
    until(lambda: caller.connection.request("GET", "/ready", None).status == 200)


HANG = """
import threading
from dither.collector import serving
real = serving.open_store

def opening(address):
    store = real(address)
    for name in NAMES:
        setattr(store, name, lambda *given: threading.Event().wait())
    return store

serving.open_store = opening
"""


def test_sigterm_ends_within_ten_seconds_though_the_store_hangs(tmp_path: Path) -> None:
    before = HANG.replace("NAMES", repr(("add_reports", "check", "count", "close")))
    with ServerProcess(tmp_path / "c.db", before=before) as server:
        caller = Caller(server.url)
        # Creating a campaign asks for its reports' number, which never comes: the campaign is there all the same.
        asking = [
            threading.Thread(target=_try, args=(server.url, "create", {}, None)) for _ in range(45)
        ]
        for thread in asking:
            thread.start()
        listed: dict[str, Any] = {}

        def created() -> bool:
            nonlocal listed
            listed = json.loads(caller.admin("GET").body)
            return len(listed["campaigns"]) >= 40

        until(created)  # by now every thread of the pool waits for the store
        campaign = listed["campaigns"][0]["campaign"]
        body = envelope_of(campaign, plan_of(caller.announcement(campaign)), [token_of(0)])
        answers: list[Answer] = []
        uploading = threading.Thread(
            target=_try, args=(server.url, "upload", {"c": campaign, "b": body}, answers)
        )
        uploading.start()
        until(
            lambda: (
                "dither_queue_reports 0"
                in caller.connection.request("GET", "/metrics", None).body.decode()
            )
        )
        begun = time.monotonic()
        status, errors = server.terminate(timeout=30)
        seconds = time.monotonic() - begun
        for thread in (*asking, uploading):
            thread.join(30)
    assert status == 1
    assert seconds < 10
    assert "the store did not close within" in errors
    assert [a.status for a in answers] == [503], "whoever waited is told to come back"


def test_sigterm_ends_within_ten_seconds_though_an_operator_closes_a_round(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "c.db", before=HANG.replace("NAMES", repr(("tidy",)))) as server:
        caller = Caller(server.url)
        campaign = caller.create()
        plan = plan_of(caller.announcement(campaign))
        assert (
            caller.upload(
                campaign, envelope_of(campaign, plan, [token_of(i) for i in range(50)])
            ).status
            == 201
        )
        closing = threading.Thread(target=_try, args=(server.url, "close", {"c": campaign}, None))
        closing.start()
        until(lambda: caller.status(campaign)["state"] == "closing")
        caller.connection.close()
        begun = time.monotonic()
        status, errors = server.terminate(timeout=30)
        assert time.monotonic() - begun < 10
        closing.join(30)
    assert status == 1
    assert "1 requests of operators were interrupted" in errors
    with ServerProcess(tmp_path / "c.db") as server:
        caller = Caller(server.url)
        assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
        assert caller.status(campaign)["state"] == "collected"


def _try(url: str, what: str, given: dict[str, Any], answers: list[Answer] | None) -> None:
    from dither.client import Unreachable

    own = Caller(url, timeout=60.0)
    try:
        if what == "upload" and answers is not None:
            answers.append(own.upload(given["c"], given["b"]))
        elif what == "close":
            own.admin("POST", f"/{given['c']}/close-round", {"round": 0})
        else:
            own.create()
    except (Unreachable, AssertionError):  # the process ended before it could answer
        return
    finally:
        own.connection.close()
