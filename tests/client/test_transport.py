"""A kept connection: reopened when the server has closed it, never silently repeated."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator

import pytest

from dither.client import Connection, Unreachable

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Impatient:
    """Answers each connection's first `answers` requests, then closes it, whatever comes next."""

    def __init__(self, answers: list[int]) -> None:
        self.answers = answers
        self.requests: list[int] = []  # the connection that each request came over
        self.closed = threading.Semaphore(0)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        for number, count in enumerate(self.answers):
            peer, _ = self.listener.accept()
            with peer:
                for _ in range(count):
                    peer.recv(65536)
                    self.requests.append(number)
                    peer.sendall(ANSWER)
                if count == 0:  # takes the request, then goes away without an answer
                    peer.recv(65536)
                    self.requests.append(number)
            self.closed.release()

    def stop(self) -> None:
        self.thread.join(10)
        self.listener.close()


@pytest.fixture
def started() -> Iterator[list[Impatient]]:
    servers: list[Impatient] = []
    yield servers
    for server in servers:
        server.stop()


def test_a_connection_that_the_server_closed_while_idle_is_opened_anew(
    started: list[Impatient],
) -> None:
    server = Impatient([2, 1])
    started.append(server)
    connection = Connection(server.address)
    assert connection.request("GET", "/", None).status == 200
    assert connection.request("GET", "/", None).status == 200
    assert server.closed.acquire(timeout=10)
    assert connection.request("POST", "/", b"x").body == b"ok"
    assert server.requests == [0, 0, 1]
    connection.close()


def test_a_request_that_may_have_arrived_is_not_repeated(started: list[Impatient]) -> None:
    server = Impatient([0])
    started.append(server)
    connection = Connection(server.address)
    with pytest.raises(Unreachable, match="does not answer"):
        connection.request("POST", "/", b"x")
    assert server.requests == [0]
    connection.close()


class ScriptServer:
    """A server that sends what a test gives it, piece by piece, until the client goes."""

    def __init__(self, pieces: Iterator[bytes], pause: float = 0.0) -> None:
        self.sent = 0
        self.gone = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve, args=(pieces, pause))
        self.thread.start()

    def _serve(self, pieces: Iterator[bytes], pause: float) -> None:
        peer, _ = self.listener.accept()
        with peer, contextlib.suppress(OSError):  # the client has had enough
            peer.recv(65536)
            for piece in pieces:
                peer.sendall(piece)
                self.sent += len(piece)
                if self.gone.wait(pause):
                    return

    def stop(self) -> None:
        self.gone.set()
        self.thread.join(10)
        self.listener.close()


@pytest.fixture
def scripted() -> Iterator[list[ScriptServer]]:
    servers: list[ScriptServer] = []
    yield servers
    for server in servers:
        server.stop()


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def test_an_answer_in_chunks_is_read(scripted: list[ScriptServer]) -> None:
    server = ScriptServer(iter([HEAD, b"2\r\nok\r\n", b"A;x=1\r\n0123456789\r\n", b"0\r\n\r\n"]))
    scripted.append(server)
    assert Connection(server.address).request("GET", "/", None).body == b"ok0123456789"


@pytest.mark.parametrize(
    "size", [b"-1", b"-5", b"+3", b"0x4", b"1_0", b"", b" 4", b"fffffffff", b"4 "]
)
def test_a_chunk_of_an_improper_size_is_no_answer(
    scripted: list[ScriptServer], size: bytes
) -> None:
    """A negative size is "all there is" to the standard reader: whoever sent it chose how much memory a device takes."""
    server = ScriptServer(
        itertools.chain([HEAD + size + b"\r\n"], itertools.repeat(b"x" * (1 << 16), 200))
    )
    scripted.append(server)
    with pytest.raises(Unreachable):
        Connection(server.address).request("GET", "/", None, most=1000)


@pytest.mark.parametrize(
    "head", [HEAD + b"7fffffff\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n"]
)
def test_of_an_endless_answer_one_byte_more_than_allowed_is_read(
    scripted: list[ScriptServer], head: bytes
) -> None:
    server = ScriptServer(itertools.chain([head], itertools.repeat(b"x" * (1 << 16))))
    scripted.append(server)
    assert len(Connection(server.address).request("GET", "/", None, most=1000).body) == 1001


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n", *[b"x"] * 10_000],
        [b"HTTP/1.1 100 Continue\r\n\r\n"] * 10_000,
        [b"HTTP/1.1 200 OK\r\n", *[b"a: b\r\n"] * 50, *[b"c"] * 10_000],
        [HEAD, *[b"1\r\nx\r\n"] * 10_000],
        [b"", *[b"H"] * 10_000],
    ],
)
def test_an_answer_that_drips_ends_with_the_time_for_the_whole_request(
    scripted: list[ScriptServer], pieces: list[bytes]
) -> None:
    """No single read takes long, so that no timeout of reads ever ends it."""
    server = ScriptServer(iter(pieces), pause=0.05)
    scripted.append(server)
    connection = Connection(server.address, timeout=30, seconds=0.5)
    with pytest.raises(Unreachable, match=r"within 0\.5 s"):
        connection.request("GET", "/", None)
    assert server.sent < sum(map(len, pieces))
