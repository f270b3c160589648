"""What strangers can bring about again and again is logged seldom or never; a defect is still logged, with its traceback."""

from __future__ import annotations

import json
import logging
import socket
import struct
import threading
from pathlib import Path

import pytest
from collector_harness import (
    REPORTS_TYPE,
    Caller,
    ServerProcess,
    ServerThread,
    envelope_of,
    plan_of,
    token_of,
    until,
)

from dither.collector import SqliteStore


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def upload_and_more(caller: Caller, campaign: str) -> bytes:
    """An upload with another request behind it in the same packet."""
    body = envelope_of(campaign, plan_of(caller.announcement(campaign)), [token_of(1)])
    head = f"POST /v1/campaigns/{campaign}/reports HTTP/1.1\r\nContent-Type: {REPORTS_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body + b"GET /live HTTP/1.1\r\n\r\n"


def send_and_reset(url: str, sent: bytes) -> None:
    with connect(url) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sendall(sent)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_requests_in_a_row_and_then_a_reset_log_nothing(
    tmp_path: Path, loop: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    server = ServerThread(SqliteStore(tmp_path / "c.db"), loop=loop)
    caller = Caller(server.url)
    campaign = caller.create()
    sent = upload_and_more(caller, campaign)
    gate, original = threading.Event(), server.collector.store.add_reports

    def late(batches: object) -> object:
        assert gate.wait(30)
        return original(batches)  # type: ignore[arg-type]

    monkeypatch.setattr(server.collector.store, "add_reports", late)
    for _ in range(20):
        send_and_reset(server.url, sent)
    until(
        lambda: "dither_connections_open 1.0\n" in server.collector.metrics.text()
    )  # the caller's own
    gate.set()
    until(lambda: not server.server.server_state.tasks)
    server.stop()
    assert [r.getMessage() for r in caplog.records] == []


BROKEN = """
from dither.collector import app
from dither.collector.connections import Edge

async def broken(request):
    raise KeyError("a defect of ours")

real = Edge.__call__

async def call(self, scope, receive, send):
    if scope.get("path") == "/live":
        raise LookupError("a defect at the edge")
    await real(self, scope, receive, send)

Edge.__call__ = call
app.read_body = broken
"""


@pytest.mark.slow
def test_a_defect_is_logged_with_its_traceback_once_however_often_it_is_met(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "c.db", before=BROKEN) as server:
        caller = Caller(server.url)
        for _ in range(50):
            assert caller.connection.request("GET", "/live", None).status == 500
            answer = caller.upload("ab", b"x")
            assert (answer.status, json.loads(answer.body)["type"]) == (
                500,
                "urn:dither:problem:internal",
            )
        caller.connection.close()
        status, errors = server.terminate()
    assert status == 0
    assert (
        errors.count("Exception in ASGI application")
        == errors.count("LookupError: a defect at the edge")
        == 1
    )
    assert errors.count("KeyError: 'a defect of ours'") == 1, (
        "another defect is not hidden by the first"
    )
    assert errors.count("Traceback") == 2


def test_what_was_kept_quiet_is_counted_and_places_are_told_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from dither.collector import RateLimitFilter

    now = 0.0
    seldom = RateLimitFilter(60.0, lambda: now)
    log = logging.getLogger("tests.seldom")
    log.addFilter(seldom)
    try:
        for _ in range(2):
            for _ in range(3):
                log.error("one %s", "line")
            log.error("another line")
            now += 61.0
    finally:
        log.removeFilter(seldom)
    said = [r.getMessage() for r in caplog.records]
    assert said == [
        "one line",
        "another line",
        "one line (2 more of this kind since the line before)",
        "another line",
    ]
