"""A kept connection: reopened when the server has closed it, never silently repeated."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from dither.client.transport import Connection, Unreachable

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


def test_a_connection_that_the_server_closed_while_idle_is_opened_anew(started: list[Impatient]) -> None:
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
