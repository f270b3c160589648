"""HTTP for devices: TLS unless the collector is local, no redirects, no user agent.

Standard library only.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import urlsplit

from dither.errors import DitherError, ParameterError
from dither.reports import limits
from dither.reports.codec import document

REPORTS_TYPE = "application/vnd.dither.reports"
_TIMEOUT = 30.0  # for one step, such as connecting or a single read
# Seconds for a whole request, even if the server sends its answer slowly.
_REQUEST_SECONDS = 60.0
_CHUNK_HEAD = re.compile(rb"([0-9a-fA-F]{1,8})(;[^\r\n]*)?\r?\n")


class Unreachable(DitherError):
    """No answer came; the request may or may not have arrived."""


@dataclass(frozen=True)
class Answer:
    """A server's response."""

    status: int
    body: bytes
    retry_after: float | None = None
    content_type: str = ""

    @property
    def reason(self) -> str:
        """The reason for a refusal, from the response or its status."""
        problem = document(self.body)
        return str(problem.get("detail") or problem.get("title") or f"status {self.status}")[:500]


# method, address, body (None for GET) -> answer; raises Unreachable
Transport = Callable[[str, str, bytes | None], Answer]


def http_transport(method: str, address: str, body: bytes | None = None) -> Answer:
    """Send one request over a new connection.

    Raises:
        Unreachable: No answer came.
    """
    with closing(Connection(address)) as connection:
        return connection.request(method, urlsplit(address).path, body)


class Connection:
    """A connection that stays open between requests.

    Args:
        address: The collector's address. Only a local one may be http.
        timeout: Seconds for one step, such as connecting or a single read.
        seconds: Seconds for a whole request.
    """

    def __init__(
        self, address: str, timeout: float = _TIMEOUT, seconds: float = _REQUEST_SECONDS
    ) -> None:
        self._seconds = seconds
        parts = urlsplit(address)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or not host:
            raise ParameterError(
                f"{address!r} is not a collector's address; write https://HOST",
                where="url",
                value=address,
            )
        if parts.scheme == "http" and not _is_here(host):
            raise ParameterError(
                f"{address!r} would send reports without encryption; use https",
                where="url",
                value=address,
            )
        self._http = http.client.HTTPConnection(host, parts.port, timeout=timeout)
        if parts.scheme == "https":
            context = ssl.create_default_context()
            self._http = http.client.HTTPSConnection(
                host, parts.port, timeout=timeout, context=context
            )

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str] | None = None,
        most: int | None = limits.PLAN_BYTES,
    ) -> Answer:
        """Send one request; after any failure the next one opens a new connection.

        Args:
            method: The HTTP method.
            path: The path below the server's address.
            body: The body, by default of the media type of reports; None for none.
            headers: Further headers.
            most: At most this many bytes of the answer, plus one, are read; None for all.

        Raises:
            Unreachable: No complete answer came in time.
        """
        sent = dict(headers or {})
        if body is not None and "content-type" not in sent:
            sent["content-type"] = REPORTS_TYPE
        if self._dropped():
            self._http.close()
        try:
            with self._in_time():
                self._http.request(method, path, body, sent)
                response = self._http.getresponse()
                if response.chunked:
                    data = _read_chunks(response.fp, most)
                    self._http.close()  # what follows the last chunk is not read
                else:
                    data = response.read() if most is None else response.read(most + 1)
                    if not response.isclosed():
                        self._http.close()  # longer than allowed
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._http.close()
            raise Unreachable(f"the collector does not answer: {str(error)[:200]}") from None
        retry_after = _seconds(response.getheader("retry-after"))
        return Answer(response.status, data, retry_after, response.getheader("content-type") or "")

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Close the connection when the time for the whole request is over.

        Time-outs of single reads do not bound their sum.
        """
        if self._http.sock is None:
            self._http.connect()
        connected = self._http.sock
        late = threading.Event()

        def end() -> None:
            late.set()
            with suppress(OSError):  # it has ended already
                connected.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (OSError, ValueError, http.client.HTTPException):
            if late.is_set():
                raise TimeoutError(f"no whole answer within {self._seconds:g} s") from None
            raise
        finally:
            timer.cancel()
        if late.is_set():
            raise TimeoutError(f"no whole answer within {self._seconds:g} s")

    def _dropped(self) -> bool:
        """Whether the server has closed the idle connection.

        Between requests only the end of a connection makes it readable. Nothing was sent yet, so
        reconnecting repeats nothing.
        """
        if self._http.sock is None:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._http.sock, selectors.EVENT_READ)
            return bool(selector.select(0))

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def _read_chunks(stream: BinaryIO, most: int | None) -> bytes:
    """Read a chunked body, at most `most` + 1 bytes.

    The standard library's reader takes a negative size for "all".
    """
    parts: list[bytes] = []
    held = 0
    while most is None or held <= most:
        head = _CHUNK_HEAD.fullmatch(stream.readline(1024))
        if head is None:
            raise http.client.HTTPException("a chunk without a proper size")
        size = int(head[1], 16)
        if size == 0:
            break
        part = stream.read(size if most is None else min(size, most + 1 - held))
        parts.append(part)
        held += len(part)
        if len(part) == size and stream.read(2) != b"\r\n":
            raise http.client.HTTPException("a chunk that does not end where it says")
        if len(part) < size and (most is None or held <= most):
            raise http.client.IncompleteRead(b"", size - len(part))
    return b"".join(parts)


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _seconds(header: str | None) -> float | None:
    return (
        float(header)
        if header is not None and header.isascii() and header.isdigit() and len(header) < 6
        else None
    )
