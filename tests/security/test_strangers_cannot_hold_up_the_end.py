"""A collector that is told to stop does so in time and in silence, whatever strangers have begun and not ended."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from collector_harness import REPORTS_TYPE, Caller, ServerProcess, ServerThread, until

from dither.collector import SqliteStore, limits

pytestmark = pytest.mark.slow

LONG = 30.0
FAST = "from dither.collector import limits; limits.GRACE_SECONDS = 3"


def connect(server: ServerProcess | ServerThread) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=LONG)


def is_closed(peer: socket.socket) -> bool:
    """Whether the server ends the connection, after whatever it had said before."""
    try:
        while peer.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def opened(caller: Caller) -> int:
    text = caller.connection.request("GET", "/metrics", None).body.decode()
    return next(
        int(float(line.split()[1]))
        for line in text.splitlines()
        if line.startswith("dither_connections_open ")
    )


def test_hundreds_of_half_requests_are_closed_at_once_and_leave_no_line_in_the_log(
    tmp_path: Path,
) -> None:
    with ServerProcess(tmp_path / "c.db") as server, ExitStack() as stack:
        caller = Caller(server.url)
        campaign = caller.create()
        upload = (
            f"POST /v1/campaigns/{campaign}/reports HTTP/1.1\r\nContent-Type: {REPORTS_TYPE}\r\n"
            "Content-Length: 1000\r\n\r\nhalf of it"
        ).encode()
        kinds = {
            "half a body": upload,
            "half a head": b"GET /live HTTP/1.1\r\nx-half: ",
            "nothing": b"",
            "between requests": b"GET /live HTTP/1.1\r\n\r\n",
            "half a body behind an answer": b"GET /ready HTTP/1.1\r\n\r\n" + upload,
            "half a body that is answered": b"POST /nothing HTTP/1.1\r\nContent-Length: 1000\r\n\r\nhalf",
        }
        peers = []
        for sent in kinds.values():
            for _ in range(120 if sent == upload else 40):
                peers.append(stack.enter_context(connect(server)))
                peers[-1].sendall(sent)
        until(lambda: opened(caller) == len(peers) + 1)
        begun = time.monotonic()
        status, errors = server.terminate(timeout=LONG)
        seconds = time.monotonic() - begun
        assert all(is_closed(peer) for peer in peers)
    assert (status, errors) == (0, "")
    assert seconds < limits.GRACE_SECONDS, "nobody was waited for"


def test_answers_that_nobody_reads_hold_up_nothing_and_leave_no_traceback(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "c.db", before=FAST) as server, ExitStack() as stack:
        caller = Caller(server.url)
        campaign = caller.create(schema={"a": {"kind": "ordinal", "values": list(range(60_000))}})
        ask = f"GET /v1/campaigns/{campaign} HTTP/1.1\r\n\r\n".encode()  # about 350 KiB each
        for _ in range(60):
            peer = stack.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.settimeout(LONG)
            host, port = server.url.removeprefix("http://").split(":")
            peer.connect((host, int(port)))
            peer.sendall(ask * 9)
            assert peer.recv(9) == b"HTTP/1.1 ", "it is being answered"
        caller.connection.close()
        begun = time.monotonic()
        status, errors = server.terminate(timeout=LONG)
        seconds = time.monotonic() - begun
    assert status == 0
    assert "Traceback" not in errors
    assert errors == ""
    assert seconds < 10


def test_whole_requests_are_answered_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ServerThread(SqliteStore(tmp_path / "c.db"))
    gate, entered = threading.Event(), threading.Event()

    def check() -> None:
        entered.set()
        gate.wait(LONG)

    monkeypatch.setattr(server.collector.store, "check", check)
    with connect(server) as peer:
        peer.sendall(
            b"GET /ready HTTP/1.1\r\n\r\nGET /live HTTP/1.1\r\n\r\nPOST /v1/x HTTP/1.1\r\nContent-Length: 9\r\n\r\n1"
        )
        assert entered.wait(LONG)
        server.server.should_exit = True
        until(lambda: not server.server.servers[0].is_serving())
        gate.set()
        said = b""
        while part := peer.recv(1 << 16):
            said += part
    server.stop()
    assert said.count(b"HTTP/1.1 200 OK") == 2, "the two that came as a whole"
    assert said.count(b"HTTP/1.1 ") == 2


CLOSING_ENDS_WAITS = """
import threading
from dither.collector import limits, serving
limits.GRACE_SECONDS = 2
real = serving.open_store

def opening(address):
    store, closed = real(address), threading.Event()
    shut = store.close

    def close():
        closed.set()
        shut()

    def reports(*given):
        closed.wait()
        raise RuntimeError("closed while it waited")

    store.close, store.reports = close, reports
    return store

serving.open_store = opening
"""


def test_an_operators_request_that_is_cut_off_is_told_so_and_the_status_is_1(
    tmp_path: Path,
) -> None:
    """The store ends all waits when it is closed, so that by then no thread is left to tell of what was interrupted."""
    with ServerProcess(tmp_path / "c.db", before=CLOSING_ENDS_WAITS) as server:
        caller = Caller(server.url)
        campaign = caller.create()
        answers = []

        def export() -> None:
            own = Caller(server.url, timeout=LONG)
            answers.append(own.admin("GET", f"/{campaign}/rounds/0/reports"))
            own.connection.close()

        asking = threading.Thread(target=export)
        asking.start()
        until(lambda: opened(caller) == 2)
        status, errors = server.terminate(timeout=LONG)
        asking.join(LONG)
    assert status == 1
    assert "1 requests of operators were interrupted" in errors
    assert "Traceback" not in errors
    (answer,) = answers
    assert (answer.status, json.loads(answer.body)["type"]) == (503, "urn:dither:problem:stopping")
