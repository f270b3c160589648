"""Connections before they are requests: how many there may be, how long each may take, and how much a head may hold.

Guarantee: what a stranger sends before the application sees a request takes at most the head's limit and one slice of memory;
a connection that sends nothing, half a head, or does not read its answer ends after a stated time; when all places are
taken, the one that has waited longest without a complete request makes room for the next. No address is looked at.

A stream of events would keep a request's whole stack of frames in memory for as long as somebody watches, and the garbage collector
would walk over it again and again while reports come. So whoever streams takes the connection over (the extension `TAKE_OVER` of
a request's scope), and the application returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dither.collector.metrics import Metrics
from dither.collector.problems import EVERYWHERE, Problem, problem, seldom
from dither.errors import InputError

MAX_CONNECTIONS = 4_000
MIN_CONNECTIONS = 16
BACKLOG = 256  # asyncio accepts so many in one go before it tells us of the first
RESERVE = 128  # file descriptors for the database, exports and the like
SLICE = 4096  # bytes given to the parser at once; the limits are checked in between
_BODILESS = (b"GET", b"HEAD", b"OPTIONS")
TAKE_OVER = "dither.take_over"  # among a request's extensions
WRITE_LEAST = 32 << 10  # bytes that somebody has to read in `write_seconds`


@dataclass(frozen=True)
class ConnectionLimits:
    """What a connection may take. The defaults are the documented ones; tests use smaller ones."""

    most: int = MAX_CONNECTIONS
    header_bytes: int = 16 << 10  # request line and headers together
    header_lines: int = 100
    pipelined: int = 8  # requests that wait behind one under way
    head_seconds: float = (
        10.0  # from the connection or the first byte of a request to the end of its headers
    )
    idle_seconds: float = 30.0  # between requests
    drain_seconds: float = (
        2.0  # to send the rest of a request that has been answered, or to read a refusal
    )
    write_seconds: float = 30.0  # to read WRITE_LEAST bytes of an answer, or all of it


def room_for_connections(asked: int | None = None) -> int:
    """How many connections the limit of open files leaves room for; the soft limit is raised towards the hard one."""
    wanted = (MAX_CONNECTIONS if asked is None else asked) + RESERVE + BACKLOG
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(
            ValueError, OSError
        ):  # some systems have a further limit: then the soft one stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    room = wanted if soft == resource.RLIM_INFINITY else soft - RESERVE - BACKLOG
    if room < MIN_CONNECTIONS or (asked is not None and asked > room):
        raise InputError(
            f"the system allows this process {soft:,} open files, room for {max(room, 0):,} connections; "
            "raise it (ulimit -n) or allow fewer connections",
            where="connections",
            value=asked,
        )
    return min(room, MAX_CONNECTIONS if asked is None else asked)


class Phase(Enum):
    """Where a connection stands; in all but REQUEST it waits for its peer and may have to make room."""

    HEAD = "no complete head yet"
    BODY = "no complete body yet"  # the application has its own time for that
    REQUEST = "a whole request is being answered"
    IDLE = "between requests"
    DRAIN = "answered before the whole request had come"
    CLOSING = "its last answer is on the way"
    REFUSED = "told why, about to be closed"


# Nobody waits for an answer in these.
_NO_REQUEST = (Phase.HEAD, Phase.BODY, Phase.IDLE, Phase.DRAIN, Phase.REFUSED)


class Connections:
    """All connections of a server: admits them, ends those that take too long, and makes room. In the event loop only."""

    def __init__(self, limits: ConnectionLimits, metrics: Metrics) -> None:
        self.limits = limits
        self.metrics = metrics
        self.stopping = False  # from then on a connection without a complete request is closed
        self._open: set[GuardedProtocol] = set()
        self._waiting: dict[GuardedProtocol, None] = {}  # in the order of since when they wait
        self._seconds = {
            Phase.HEAD: limits.head_seconds,
            Phase.IDLE: limits.idle_seconds,
            Phase.DRAIN: limits.drain_seconds,
            Phase.REFUSED: limits.drain_seconds,
        }
        self._every = min(1.0, min(*self._seconds.values(), limits.write_seconds) / 4)
        self._sweeping: asyncio.TimerHandle | None = None
        metrics.connections.set_function(lambda: len(self._open))

    def admit(self, connection: GuardedProtocol) -> bool:
        """Take a connection in; False if all places are taken by requests under way."""
        if len(self._open) >= self.limits.most:
            oldest = next(iter(self._waiting), None)
            reason = "full" if oldest is None else "evicted"
            self.metrics.refused(reason)
            said = "all %d connections are taken: whoever waits longest makes room, or the new one is refused"
            seldom.warning(said, self.limits.most)
            if oldest is None:
                return False
            self.forget(oldest)
            oldest.transport.abort()
        self._open.add(connection)
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(self._every, self._sweep, connection.loop)
        return True

    def forget(self, connection: GuardedProtocol) -> None:
        """A connection has ended or is about to."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def moved(self, connection: GuardedProtocol) -> None:
        """A connection has entered another phase."""
        self._waiting.pop(connection, None)
        if connection.phase is not Phase.REQUEST and connection in self._open:
            self._waiting[connection] = None

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in list(self._open):
            limit = self._seconds.get(connection.phase)
            if connection.stuck(now, self.limits.write_seconds):
                connection.transport.abort()
            elif limit is not None and now - connection.since > limit:
                connection.expire()
        self._sweeping = loop.call_later(self._every, self._sweep, loop) if self._open else None


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with limits that hold while a head is read, and times for whatever waits for the peer."""

    def __init__(self, gate: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.phase = Phase.HEAD
        self.since = self.loop.time()
        self._gate = gate
        self._limits = gate.limits
        self._head_bytes = 0  # of the head so far, counted when a part of it is complete
        self._head_lines = 0
        self._pending = 0  # bytes given to the parser since it last told us anything
        self._in_head = False
        self._complete = True  # the latest request has arrived as a whole
        self._deaf = False  # what still comes is not ours to read
        self._refusal: Problem | None = None
        self._unanswered: deque[RequestResponseCycle] = (
            deque()
        )  # the requests in their order, the one under way first
        self._left: Callable[[], None] | None = (
            None  # who has taken the connection over hears of its end
        )
        self._unread: tuple[float, int] | None = (
            None  # since when how many bytes wait to be read by the peer
        )

    # --- the connection -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._gate.admit(self):
            self._enter(Phase.HEAD)
            return
        self._deaf = True
        self._send(Problem("too-many-connections", ""))
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.forget(self)
        self._deaf = True
        # uvicorn knows of the latest request only; the others would write to a connection that is gone.
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        self._unanswered.clear()
        self.pipeline.clear()
        super().connection_lost(exc)
        if self._left is not None:
            self._left()

    def take_over(self, left: Callable[[], None]) -> asyncio.Transport | None:
        """The transport, for whoever writes the rest of the answer under way, in chunks, and closes it; `left` is called when
        the connection is lost. None if it is lost already. The application returns, and nothing more is read from the peer."""
        if self.transport.is_closing() or not self._unanswered:
            return None
        self._left, self._deaf = left, True
        self._unanswered[0].response_complete = True
        self._unanswered.clear()
        self.pipeline.clear()
        self.cycle = self.scope = None  # type: ignore[assignment]
        self.headers = []
        self.flow.resume_reading()  # so that its end is noticed; what was asked behind the stream is not answered
        return self.transport

    def shutdown(self) -> None:
        """The server stops: whole requests are answered first."""
        if self.phase in _NO_REQUEST:
            self.transport.close()
        else:
            super().shutdown()

    def resume_writing(self) -> None:
        self._unread = None
        super().resume_writing()

    def expire(self) -> None:
        """The time of the present phase is over."""
        if self.phase is Phase.HEAD and self._in_head:
            seconds = self._limits.head_seconds
            self._refuse(Problem("timeout", f"the request's head took longer than {seconds:g} s"))
        elif self.phase is Phase.REFUSED:
            self.transport.abort()
        else:
            self.transport.close()

    def stuck(self, now: float, seconds: float) -> bool:
        """Whether the peer has read too little of what waits for it."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting:
            self._unread = None
        elif self._unread is None or self._unread[1] - waiting >= WRITE_LEAST:
            self._unread = (now, waiting)
        return self._unread is not None and now - self._unread[0] > seconds

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = self.loop.time()
        self._gate.moved(self)
        if self._gate.stopping and phase in _NO_REQUEST:
            self.transport.close()

    # --- what the peer sends --------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._left is not None:  # it has asked for a stream, and has nothing more to say
            self.transport.abort()
        if self._deaf or self.transport.is_closing():
            return
        if self.phase is Phase.IDLE:
            self._enter(Phase.HEAD)
        try:
            for start in range(0, len(data), SLICE):
                part = data[start : start + SLICE]
                self._pending += len(part)
                self.parser.feed_data(part)
                self._check_head(self._pending)
        except (Problem, httptools.HttpParserError):
            self._refuse(self._refusal or Problem("bad-request", "this is not an HTTP/1.1 request"))
        except (
            httptools.HttpParserUpgrade
        ):  # answered as a plain request; what follows would be another protocol
            self._deaf = True
            if self.cycle is not None:
                self.cycle.keep_alive = False

    def on_message_begin(self) -> None:
        self._pending = self._head_bytes = self._head_lines = 0
        self._in_head, self._complete = True, False
        if self.phase is Phase.IDLE:
            self._enter(Phase.HEAD)
        super().on_message_begin()
        self.scope["extensions"] = {TAKE_OVER: self.take_over}  # type: ignore[dict-item]

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_lines += 1
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._pending = 0
        if any(name == b"transfer-encoding" for name, _ in self.headers):
            self._raise("length-required", "send a Content-Length; nothing is read in chunks")
        if len(self.pipeline) >= self._limits.pipelined:
            self._raise(
                "bad-request", f"at most {self._limits.pipelined} requests may wait behind another"
            )
        if self.parser.get_method() in _BODILESS and any(
            n == b"content-length" and int(v) for n, v in self.headers
        ):
            self._raise("bad-request", "a request of this method takes no body")
        super().on_headers_complete()
        self._unanswered.append(self.cycle)
        self._in_head = False
        if self.phase is not Phase.REQUEST:
            self._enter(Phase.BODY)

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending = self._head_bytes = self._head_lines = 0
        self._complete = True
        super().on_message_complete()
        if self.phase is Phase.BODY:
            self._enter(Phase.REQUEST)
        elif self.phase is Phase.DRAIN:
            self._enter(Phase.IDLE)

    def on_response_complete(self) -> None:
        queued = bool(self.pipeline)
        if self._unanswered:
            self._unanswered.popleft().body = (
                bytearray()
            )  # nobody reads on, and the connection may stay for long
        super().on_response_complete()
        self._unset_keepalive_if_required()  # one clock for everything: the gate's
        arriving = (
            not self._complete and not self._in_head and not self.pipeline
        )  # the body of the latest request
        if self.transport.is_closing():
            self._enter(Phase.CLOSING)
        elif queued:
            self._enter(Phase.BODY if arriving else Phase.REQUEST)
        else:
            self._enter(Phase.HEAD if self._in_head else Phase.DRAIN if arriving else Phase.IDLE)

    def _count(self, size: int) -> None:
        self._pending = 0
        self._head_bytes += size
        self._check_head(0)

    def _check_head(self, pending: int) -> None:
        limits = self._limits
        if self._head_bytes + pending > limits.header_bytes:
            self._raise(
                "headers-too-large", f"at most {limits.header_bytes:,} bytes of headers are read"
            )
        if self._head_lines > limits.header_lines:
            self._raise("headers-too-large", f"at most {limits.header_lines} headers are read")

    # --- refusals -------------------------------------------------------------------------------------------------

    def _raise(self, cause: str, detail: str) -> None:
        """Stop the parser, which hides what its callbacks raise."""
        self._refusal = Problem(cause, detail)
        raise self._refusal

    def _refuse(self, refusal: Problem) -> None:
        """Say why and close; silently if an answer to an earlier request is under way."""
        self._deaf = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()
            return
        self._send(refusal)
        # Closed at once, the answer could be lost to a peer that is still sending: it may read it first.
        self.transport.write_eof()
        self._enter(Phase.REFUSED)

    def _send(self, refusal: Problem) -> None:
        """A whole HTTP answer with problem details, after which the connection is closed."""
        made = problem(refusal.cause, str(refusal))
        self._gate.metrics.response(made.status_code)
        status = HTTPStatus(made.status_code)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        lines += [
            name + b": " + value
            for name, value in (*made.raw_headers, *EVERYWHERE, (b"connection", b"close"))
        ]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(made.body)]))
