"""Heads without end, connections that say nothing, half requests, bodies that drip and answers nobody reads."""

from __future__ import annotations

import http.client
import logging
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from collector_harness import KEY, REPORTS_TYPE, Caller, ServerProcess, ServerThread, until

from dither.collector import RateLimitFilter, SqliteStore, limits, room_for_connections
from dither.errors import InputError

pytestmark = pytest.mark.slow

LONG = 30.0  # a test's patience; what it waits for takes fractions of a second

Start = Callable[..., ServerThread]


@pytest.fixture(params=["asyncio", "uvloop"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Starts a collector with limits of the test's choice, on either event loop."""
    running: list[ServerThread] = []

    def starting(**bounds: Any) -> ServerThread:
        running.append(ServerThread(SqliteStore(tmp_path / "c.db"), loop=request.param, **bounds))
        return running[-1]

    yield starting
    for server in running:
        server.stop()


def connect(server: ServerThread | ServerProcess) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=LONG)


def everything(peer: socket.socket) -> bytes:
    """All that the server says until it closes; a reset counts as the end."""
    said = b""
    try:
        while part := peer.recv(1 << 16):
            said += part
    except ConnectionResetError:
        pass
    return said


def status_of(said: bytes) -> int:
    return int(said.split(b" ", 2)[1])


def answer(peer: socket.socket) -> int:
    """Read one whole answer; its status."""
    response = http.client.HTTPResponse(peer)
    response.begin()
    response.read()
    return response.status


def flood(peer: socket.socket, part: bytes, most: int) -> int:
    """Send a part again and again until the server stops taking it; how many bytes it took."""
    sent = 0
    try:
        while sent < most:
            sent += peer.send(part)
            if peer.fileno() != -1 and _readable(peer):
                break
    except (ConnectionResetError, BrokenPipeError):
        pass
    return sent


def _readable(peer: socket.socket) -> bool:
    return bool(select.select([peer], [], [], 0)[0])


HEADS = {
    "small headers": (
        b"GET /live HTTP/1.1\r\n",
        b"".join(b"x-%04d: y\r\n" % i for i in range(1000)),
    ),
    "one header without end": (b"GET /live HTTP/1.1\r\nx-long: ", b"y" * 8192),
    "a header's name without end": (b"GET /live HTTP/1.1\r\n", b"x" * 8192),
    "headers without values": (b"GET /live HTTP/1.1\r\n", b"a:\r\n" * 2048),
    "a request line without end": (b"GET /", b"y" * 8192),
    "empty lines before a request": (b"\r\n", b"\r\n" * 4096),
}


@pytest.mark.parametrize("kind", HEADS)
def test_the_limit_of_a_head_holds_while_it_is_read(start: Start, kind: str) -> None:
    server = start()
    first, more = HEADS[kind]
    with connect(server) as peer:
        peer.sendall(first)
        taken = flood(peer, more, 100 << 20)
    # What the kernel buffers on both sides is taken by it, not by the collector.
    assert taken < 16 << 20, "the server stopped reading long before 100 MiB"
    until(lambda: 'dither_responses_total{status="431"} 1' in server.collector.metrics.text())
    assert Caller(server.url).connection.request("GET", "/live", None).status == 200


def test_a_refusal_of_a_large_head_can_be_read(start: Start) -> None:
    server = start(header_bytes=1000, header_lines=5)
    for head, status in (
        (b"x-long: " + b"y" * 900, 200),
        (b"x-long: " + b"y" * 1000, 431),
        (b"\r\n".join(b"x-%d: y" % i for i in range(5)), 200),
        (b"\r\n".join(b"x-%d: y" % i for i in range(6)), 431),
    ):
        with connect(server) as peer:
            peer.sendall(b"GET /live HTTP/1.1\r\n" + head + b"\r\n\r\n")
            peer.shutdown(socket.SHUT_WR)
            said = peer.recv(1 << 16)
        assert status_of(said) == status
        if status == 431:
            assert b"urn:dither:problem:headers-too-large" in said
            assert b"x-content-type-options: nosniff" in said
    assert 'dither_responses_total{status="431"} 2' in server.collector.metrics.text()


def test_a_flood_of_headers_takes_little_memory(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "c.db") as server:
        Caller(server.url).connection.request("GET", "/live", None)
        before = resident(server.process.pid)
        with ExitStack() as stack:
            for _ in range(40):  # each says 2 MiB of small headers: 80 MiB that took hundreds
                peer = stack.enter_context(connect(server))
                peer.sendall(b"GET /live HTTP/1.1\r\n")
                flood(peer, b"".join(b"x-%04d: y\r\n" % i for i in range(2000)), 2 << 20)
        assert Caller(server.url).connection.request("GET", "/live", None).status == 200
        assert resident(server.process.pid) - before < 40 << 20


def resident(process: int) -> int:
    """Bytes of memory a process has had at most."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (b"\0\1\2 nonsense\r\n\r\n", "bad-request"),
        (b"GET /live HTTP/1.1\r\nContent-Length: x\r\n\r\n", "bad-request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "bad-request"),
        (
            b"GET /live HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx-t: y\r\n\r\n",
            "length-required",
        ),
        (
            b"POST /v1/campaigns/x/reports HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;e=",
            "length-required",
        ),
    ],
)
def test_what_is_no_request_or_comes_in_chunks_is_refused_and_logs_nothing(
    start: Start, sent: bytes, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = start(drain_seconds=0.2)
    caplog.set_level(logging.INFO)
    with connect(server) as peer:
        peer.sendall(sent)
        said = everything(peer)
    assert f"urn:dither:problem:{cause}".encode() in said
    assert not caplog.records, "a stranger cannot fill the log"


def test_upgrades_are_answered_as_plain_requests(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = start()
    with connect(server) as peer:
        peer.sendall(
            b"GET /live HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: x\r\n\r\n" + b"\xff" * 100
        )
        said = everything(peer)
    assert status_of(said) == 200
    assert not caplog.records


def test_requests_in_a_row_are_answered_in_order_and_too_many_are_not_kept(start: Start) -> None:
    server = start(pipelined=8, idle_seconds=0.5)
    one = b"GET /live HTTP/1.1\r\n\r\n"
    with connect(server) as peer:
        peer.sendall(one * 8)
        assert everything(peer).count(b"live\n") == 8
    with connect(server) as peer:
        peer.sendall(one * 20_000)
        assert everything(peer).count(b"live\n") <= 9, "the connection was closed"


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET /live HT", b"GET /live HTTP/1.1\r\nx-half: "])
def test_connections_that_say_nothing_or_half_a_request_are_closed_in_time(
    start: Start, sent: bytes
) -> None:
    server = start(head_seconds=0.4, drain_seconds=0.2)
    with connect(server) as peer:
        peer.sendall(sent)
        begun = time.monotonic()
        said = everything(peer)
        assert 0.3 < time.monotonic() - begun < LONG
    assert said == b"" if len(sent) < 3 else status_of(said) == 408
    until(lambda: "dither_connections_open 0" in server.collector.metrics.text())


def test_a_head_that_drips_is_closed_in_time(start: Start) -> None:
    server = start(head_seconds=0.5, drain_seconds=0.2)
    with connect(server) as peer:
        peer.sendall(b"GET /live HTTP/1.1\r\nx-drip: ")
        begun = time.monotonic()
        try:
            while not _readable(peer):
                assert time.monotonic() - begun < LONG, "every byte bought more time"
                peer.send(b"y")
                time.sleep(0.02)
        except (ConnectionResetError, BrokenPipeError):
            pass


def test_a_kept_connection_may_be_idle_longer_than_a_head_may_take(start: Start) -> None:
    server = start(head_seconds=0.2, idle_seconds=LONG * 2)
    with connect(server) as peer:
        peer.sendall(b"GET /live HTTP/1.1\r\n\r\n")
        assert answer(peer) == 200
        assert not select.select([peer], [], [], 1.0)[0], "it stays open"
        peer.sendall(b"GET /live HTTP/1.1\r\n\r\n")
        assert answer(peer) == 200


def test_a_kept_connection_is_closed_in_time(start: Start) -> None:
    server = start(head_seconds=LONG * 2, idle_seconds=0.3)
    with connect(server) as peer:
        peer.sendall(b"GET /live HTTP/1.1\r\n\r\n")
        assert answer(peer) == 200
        assert peer.recv(1) == b""


def test_the_second_request_of_a_connection_has_no_longer_than_the_first(start: Start) -> None:
    server = start(head_seconds=0.4, idle_seconds=LONG * 2, drain_seconds=0.2)
    with connect(server) as peer:
        peer.sendall(b"GET /live HTTP/1.1\r\n\r\n")
        assert answer(peer) == 200
        peer.sendall(b"GET /li")
        assert status_of(everything(peer)) == 408


def test_a_body_that_drips_is_bounded_as_a_whole(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.5)
    server = start(drain_seconds=0.2)
    campaign = Caller(server.url).create()
    with connect(server) as peer:
        peer.sendall(
            f"POST /v1/campaigns/{campaign}/reports HTTP/1.1\r\nContent-Type: {REPORTS_TYPE}\r\n"
            "Content-Length: 100000\r\n\r\n".encode()
        )
        begun, said = time.monotonic(), b""
        try:
            while time.monotonic() - begun < LONG:
                if _readable(peer):
                    part = peer.recv(1 << 16)
                    if not part:
                        break
                    said += part
                peer.send(b"y")
                time.sleep(0.02)
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert time.monotonic() - begun < LONG
    assert status_of(said) == 408


@pytest.mark.parametrize("path", ["/live", "/nothing", "/v1/campaigns/x/reports"])
def test_a_body_nobody_reads_does_not_hold_the_connection(start: Start, path: str) -> None:
    server = start(drain_seconds=0.4)
    with connect(server) as peer:
        peer.sendall(f"POST {path} HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n".encode())
        said = everything(peer)
    assert status_of(said) in (404, 405, 415)
    with connect(server) as peer:  # one that does send its body keeps its connection
        for _ in range(2):
            peer.sendall(f"POST {path} HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789".encode())
            assert answer(peer) in (404, 405, 415)


def held(server: ServerThread) -> int:
    """Bytes of bodies that the connections of a server keep."""
    connections: Any = server.server.server_state.connections
    return sum(len(c.cycle.body) for c in connections if c.cycle is not None)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/live", 405),
        ("POST", "/nothing", 404),
        ("PUT", "/live", 405),
        ("POST", "/v1/campaigns/x/reports", 415),
    ],
)
def test_a_body_nobody_reads_is_not_kept_with_the_connection(
    start: Start, method: str, path: str, status: int
) -> None:
    server = start()
    with ExitStack() as stack:
        for _ in range(10):  # whatever part of it comes with the head
            peer = stack.enter_context(connect(server))
            peer.sendall(
                f"{method} {path} HTTP/1.1\r\nContent-Length: 30000\r\n\r\n".encode()
                + b"x" * 30_000
            )
            assert answer(peer) == status
        assert "dither_connections_open 10" in server.collector.metrics.text()
        until(lambda: held(server) == 0)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_requests_that_have_no_body_are_refused_with_one(start: Start, method: str) -> None:
    server = start(drain_seconds=0.2)
    with connect(server) as peer:
        peer.sendall(
            f"{method} /live HTTP/1.1\r\nContent-Length: 250000\r\n\r\n".encode() + b"x" * 1000
        )
        said = everything(peer)
    assert status_of(said) == 400
    assert b"urn:dither:problem:bad-request" in said
    with connect(server) as peer:
        peer.sendall(
            f"{method} /live HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        assert status_of(everything(peer)) in (200, 405)


def test_an_answer_nobody_reads_does_not_hold_the_connection(start: Start) -> None:
    server = start(write_seconds=0.6, idle_seconds=0.3, pipelined=5000)
    campaign = Caller(server.url).create(
        method="independent", schema={"a": {"kind": "ordinal", "values": list(range(60_000))}}
    )
    with connect(server) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sendall(f"GET /v1/campaigns/{campaign} HTTP/1.1\r\n\r\n".encode() * 40)  # about 14 MiB
        assert peer.recv(100)
        until(
            lambda: "dither_connections_open 1" in server.collector.metrics.text()
        )  # the operator's is left
        until(lambda: "dither_connections_open 0" in server.collector.metrics.text())


def test_an_answer_read_slowly_but_steadily_is_sent_to_its_end(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(write_seconds=2.0)
    campaign = Caller(server.url).create()
    release = b"r" * (24 << 20)
    monkeypatch.setattr(server.collector.campaigns, "release", lambda campaign: release)
    with connect(server) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        peer.sendall(
            f"GET /v1/admin/campaigns/{campaign}/release HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        size, begun = 0, time.monotonic()
        while part := peer.recv(1 << 16):
            size += len(part)
            time.sleep(0.01)
        assert time.monotonic() - begun > 2.0, "it took longer than a reader may stand still"
    assert size > len(release)


def test_a_newcomer_gets_through_while_idle_connections_fill_every_place(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        logging.getLogger("dither.collector.limited"), "filters", [RateLimitFilter()]
    )  # as if nothing had been said yet
    server = start(most=50, head_seconds=LONG * 4, idle_seconds=LONG * 4)
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(server)) for _ in range(75)]
        for peer in idle[::2]:
            peer.send(b"GET /live HTTP/1.1\r\nx-half: ")
        until(lambda: "dither_connections_open 50" in server.collector.metrics.text())
        for _ in range(60):  # each in turn takes the place of the one that waited longest
            newcomer = Caller(server.url)
            assert newcomer.connection.request("GET", "/live", None).status == 200
        text = newcomer.connection.request("GET", "/metrics", None).body.decode()
        assert "dither_connections_open 50" in text
        assert 'dither_connections_refused_total{reason="evicted"} 85' in text
    lines = [r.getMessage() for r in caplog.records if r.name == "dither.collector.limited"]
    assert len(lines) == 1, "one line, not one per connection"
    assert "50 connections are taken" in lines[0]


def test_a_newcomer_gets_through_while_half_sent_bodies_and_unread_answers_fill_every_place(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = start(most=10, write_seconds=LONG * 4)
    caller = Caller(server.url)
    campaign = caller.create(schema={"a": {"kind": "ordinal", "values": list(range(60_000))}})
    upload = (
        f"POST /v1/campaigns/{campaign}/reports HTTP/1.1\r\nContent-Type: {REPORTS_TYPE}\r\n"
        "Content-Length: 1000\r\n\r\nhalf of it"
    )
    fetch = f"GET /v1/campaigns/{campaign} HTTP/1.1\r\n\r\n" * 8 + (
        f"GET /v1/campaigns/{campaign} HTTP/1.1\r\nConnection: close\r\n\r\n"
    )
    with ExitStack() as stack:
        for sent in (upload, fetch) * 10:
            peer = stack.enter_context(connect(server))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.sendall(sent.encode())
        until(lambda: len(server.server.server_state.tasks) <= 10)
        for _ in range(12):
            assert Caller(server.url).connection.request("GET", "/live", None).status == 200
    until(lambda: not server.server.server_state.tasks)
    assert "unexpected" not in caplog.text, "a sender who goes away is no defect"


def test_with_few_files_idle_connections_neither_lock_out_nor_break_the_collector(
    tmp_path: Path,
) -> None:
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (450, 450))"
    with ServerProcess(tmp_path / "c.db", before=few) as server, ExitStack() as stack:
        for _ in range(600):
            stack.enter_context(connect(server))
        caller = Caller(server.url)
        assert caller.create(), "the database has its files"
        text = caller.connection.request("GET", "/metrics", None).body.decode()
        assert f"dither_connections_open {450 - limits.RESERVE - limits.BACKLOG}" in text
        stack.close()
        status, errors = server.terminate()
    assert status == 0
    assert len(errors.splitlines()) == 1, errors
    assert "connections are taken" in errors


def test_when_requests_under_way_take_every_place_the_next_is_told_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(most=3)
    gate = threading.Event()
    monkeypatch.setattr(server.collector.store, "check", lambda: gate.wait(LONG))
    with ExitStack() as stack:
        stack.callback(gate.set)
        peers = [stack.enter_context(connect(server)) for _ in range(3)]
        for peer in peers:
            peer.sendall(b"GET /ready HTTP/1.1\r\nConnection: close\r\n\r\n")
        until(lambda: len(server.server.server_state.tasks) == 3)
        with connect(server) as refused:
            said = everything(refused)
        assert status_of(said) == 503
        assert b"retry-after" in said
        assert (
            'dither_connections_refused_total{reason="full"} 1' in server.collector.metrics.text()
        )
        assert 'dither_responses_total{status="503"} 1' in server.collector.metrics.text()
        gate.set()
        assert all(status_of(everything(peer)) == 200 for peer in peers)
    assert Caller(server.url).connection.request("GET", "/live", None).status == 200


def test_bodies_of_all_requests_together_have_a_limit(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODIES_BYTES", 1_500_000)
    server = start()
    caller = Caller(server.url)
    campaign = caller.create()
    with connect(server) as greedy:
        greedy.sendall(
            f"POST /v1/campaigns/{campaign}/reports HTTP/1.1\r\nContent-Type: {REPORTS_TYPE}\r\n"
            "Content-Length: 1000000\r\n\r\n".encode()
            + b"x" * 999_999
        )
        until(lambda: server.server.config.loaded_app._held == 999_999)
        refused = caller.upload(campaign, b"x" * 600_000)
        assert (refused.status, refused.retry_after) == (429, 1.0)
        assert caller.upload(campaign, b"x" * 100_000).status == 400, (
            "there is room for a smaller one"
        )
    until(lambda: server.server.config.loaded_app._held == 0)
    assert caller.upload(campaign, b"x" * 600_000).status == 400


def test_there_are_fewer_places_than_files(monkeypatch: pytest.MonkeyPatch) -> None:

    files = [1024, 4096]

    def set_limit(kind: int, wanted: tuple[int, int]) -> None:
        files[0] = wanted[0]

    monkeypatch.setattr(resource, "getrlimit", lambda kind: tuple(files))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert room_for_connections() == 4096 - limits.RESERVE - limits.BACKLOG
    assert files[0] == 4096, "the soft limit was raised"
    assert room_for_connections(100) == 100
    files[:] = [1 << 20, 1 << 20]
    assert room_for_connections() == limits.MAX_CONNECTIONS
    files[:] = [1024, 1024]
    assert room_for_connections() == 1024 - limits.RESERVE - limits.BACKLOG
    with pytest.raises(InputError, match="1,024 open files"):
        room_for_connections(900)
    files[:] = [256, 256]
    with pytest.raises(InputError, match="ulimit"):
        room_for_connections()
