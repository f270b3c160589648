"""The C client answers campaigns of a running collector: once, with the same bytes at every attempt."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from collector_harness import RECORD, Caller, ServerThread, envelope_of, plan_of, token_of

from dither.collector import SqliteStore
from dither.reports import decode

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    running = ServerThread(SqliteStore(tmp_path / "collector.db"))
    yield running
    running.stop()


def answer(
    client: Path, url: str, campaign: str, state: Path, *ticket: str, record: object = RECORD
) -> tuple[int, str]:
    """Run the client; its status and its word."""
    done = subprocess.run(
        [str(client), str(urlsplit(url).port), campaign, str(state), *ticket],
        input=json.dumps(record),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.strip()


@pytest.mark.parametrize("method", ["independent", "mixture", "lopub"])
def test_reports_are_acknowledged_and_counted(
    client: Path, server: ServerThread, tmp_path: Path, method: str
) -> None:
    caller = Caller(server.url)
    campaign = caller.create(method=method, assignment="arrival")
    for number in range(12):
        record = RECORD if number % 2 else {"colour": "none of these", "score": None}
        state = tmp_path / f"state-{number}"
        assert answer(client, server.url, campaign, state, record=record) == (0, "acknowledged")
        assert state.read_text() == "acknowledged\n"
    assert caller.status(campaign)["rounds"][0]["reports"] == 12
    assert answer(client, server.url, campaign, tmp_path / "state-0") == (0, "acknowledged")
    assert caller.status(campaign)["rounds"][0]["reports"] == 12, "answered once"


def test_a_ticket_that_was_used_elsewhere_is_not_answered(
    client: Path, server: ServerThread, tmp_path: Path
) -> None:
    caller = Caller(server.url)
    campaign = caller.create(assignment="arrival")
    ticket = token_of(1).hex()
    first, second = tmp_path / "first", tmp_path / "second"
    assert answer(client, server.url, campaign, first, ticket) == (0, "acknowledged")
    assert answer(client, server.url, campaign, second, ticket) == (1, "used-elsewhere")
    assert not second.exists(), "nothing was drawn"
    assert caller.status(campaign)["rounds"][0]["reports"] == 1


class Scripted(ThreadingHTTPServer):
    """A server that announces a campaign and answers uploads from a list."""

    def __init__(self, announcement: bytes, answers: list[tuple[int, str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.announcement, self.answers = announcement, answers
        self.bodies: list[bytes] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_GET(self) -> None:
        self._say(200, "application/json", self.server.announcement)

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self._say(*self.server.answers.pop(0))

    def _say(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def test_the_same_bytes_are_sent_until_the_collector_decides(
    client: Path, server: ServerThread, tmp_path: Path
) -> None:
    caller = Caller(server.url)
    campaign = caller.create(assignment="arrival")
    announcement = json.dumps(caller.announcement(campaign)).encode()
    page, away = (200, "text/html", b"<html>"), (503, "application/problem+json", b"{}")
    conflict = b'{"type":"urn:dither:problem:conflict"}'
    decided = (409, "application/problem+json; charset=utf-8", conflict)
    stored = (201, "application/json", b'{"results":["stored"]}')
    state, other = tmp_path / "state", tmp_path / "other"
    with Scripted(announcement, [away, page, away, decided, stored]) as scripted:
        thread = threading.Thread(target=scripted.serve_forever, daemon=True)
        thread.start()
        assert answer(client, scripted.url, campaign, state) == (1, "waiting")
        assert state.read_bytes() == scripted.bodies[0], "written before it was sent"
        assert answer(client, scripted.url, campaign, state) == (1, "refused")
        assert answer(client, scripted.url, campaign, state) == (1, "refused"), "sends nothing"
        assert len(scripted.bodies) == 4
        assert len(set(scripted.bodies)) == 1
        assert answer(client, scripted.url, campaign, other) == (0, "acknowledged")
        scripted.shutdown()
        thread.join()
    first, last = decode(scripted.bodies[0]), decode(scripted.bodies[4])
    assert first.reports[0].token != last.reports[0].token
    assert caller.upload(campaign, scripted.bodies[0]).status == 201


def test_nothing_is_sent_that_could_not_be_stored(
    client: Path, server: ServerThread, tmp_path: Path
) -> None:
    caller = Caller(server.url)
    campaign = caller.create()
    (tmp_path / "state.new").mkdir()  # in the way of the file that is written first
    assert answer(client, server.url, campaign, tmp_path / "state") == (1, "no-storage")
    assert caller.status(campaign)["rounds"][0]["reports"] == 0


def test_a_closed_round_refuses(client: Path, server: ServerThread, tmp_path: Path) -> None:
    caller = Caller(server.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    people = [token_of(number) for number in range(60)]
    assert caller.upload(campaign, envelope_of(campaign, plan, people)).status == 201
    waiting = tmp_path / "waiting"
    waiting.write_bytes(envelope_of(campaign, plan, [token_of(60)]))
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    assert answer(client, server.url, campaign, waiting) == (1, "refused")
    assert answer(client, server.url, campaign, tmp_path / "late") == (1, "not-open")
    assert answer(client, server.url, "00" * 16, tmp_path / "none") == (1, "unreachable")
