"""Limits of connections and bodies: their number, the time of each step, and sizes.

Guarantee: before the application sees a request, it takes at most the limit of a head and
one slice of memory. A connection that sends nothing, half a head, or does not read its
response ends after a fixed time. If all places are taken, the connection that has waited
longest without a complete request makes room for the next. No address is used.

uvicorn's options (`limit_concurrency`, `timeout_keep_alive`) and the shipped proxy cannot
replace this module. uvicorn has no limit for a head, for the time of a head, or for an
unread response, and refuses newcomers where idle connections fill every place. In
tests/security/test_strangers_cannot_lock_others_out.py these tests fail with them:
`test_the_limit_of_a_head_holds_while_it_is_read`, `test_a_head_that_drips_is_closed_in_time`,
`test_an_answer_nobody_reads_does_not_hold_the_connection` and
`test_a_newcomer_gets_through_while_idle_connections_fill_every_place`. The collector must
keep these promises without a proxy, too.

An event stream would keep the frames of its request in memory, and the garbage collector
would traverse them again and again under load. So a stream takes the connection over
(extension `TAKE_OVER` of the request's scope) and the application returns.

`Edge` is the outermost layer of the application: it limits bodies and adds cross-origin
headers, to participants' paths only. It is plain ASGI and costs microseconds. It is the one
place that could read an address or a user agent, and does not. The shipped proxy limits one
body (`client_max_body_size`), and uvicorn has no such limit. The sum of all bodies in memory
is limited here only: `test_bodies_of_all_requests_together_have_a_limit` in
tests/security/test_strangers_cannot_lock_others_out.py fails without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from http import HTTPStatus
from typing import Any

import httptools
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dither.collector import limits
from dither.collector.metrics import Metrics
from dither.collector.problems import EVERYWHERE, Problem, problem, rate_limited
from dither.errors import InputError
from dither.reports import limits as wire_limits

_PARTICIPANTS = "/v1/campaigns/"
OPERATOR = "/v1/admin/"
_UPLOAD = "/console/new/file"  # a curator's schema or table, read after the session is checked
_CROSS_ORIGIN = [(b"access-control-allow-origin", b"*")]
# What the survey element of another site loads, beside the participants' API.
_EMBEDDED = re.compile(r"/scripts/[\w.-]+|/c/[0-9a-f]{32}/survey", re.ASCII)
_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"content-type"),
    (b"access-control-max-age", b"600"),
]


async def read_body(request: Request, most: int = wire_limits.BODY_BYTES) -> bytes:
    """Read a body within the limits of size and time.

    Raises:
        Problem: The body is too large, too slow, or the client has disconnected.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise Problem("too-large", f"at most {most:,} bytes are read")
                parts.append(part)
    except TimeoutError:
        raise Problem("timeout", f"the body took longer than {limits.BODY_SECONDS:g} s") from None
    except ClientDisconnect:  # not a defect, so the log must not show it as one
        raise Problem(
            "bad-request", "the client disconnected before its body was complete"
        ) from None
    return b"".join(parts)


class Edge:
    """Wraps the application: limits bodies, adds cross-origin headers, counts responses."""

    def __init__(self, app: ASGIApp, metrics: Metrics, origins: Sequence[str] = ()) -> None:
        self._app = app
        self._metrics = metrics
        self._origins = {origin.encode() for origin in origins}
        self._held = 0  # bytes of all bodies in memory
        self.interrupted = 0  # operators' requests that the shutdown cancelled

    def _cross_origin(self, scope: Scope, participants: bool) -> list[tuple[bytes, bytes]]:
        """Return the headers that let pages of other origins read an answer.

        Without listed origins every page may take part with the API, and none can load the
        survey element. With them, both are for the listed origins only.
        """
        if not self._origins:
            return _CROSS_ORIGIN if participants else []
        if not participants and _EMBEDDED.fullmatch(scope["path"]) is None:
            return []
        origin = next((value for name, value in scope["headers"] if name == b"origin"), b"")
        varies = [(b"vary", b"origin")]
        if origin not in self._origins:
            return varies
        return [(b"access-control-allow-origin", origin), *varies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        participants = scope["path"].startswith(_PARTICIPANTS)
        extra = EVERYWHERE + self._cross_origin(scope, participants)
        status, ended, received = 0, False, 0

        async def answer(message: Message) -> None:
            nonlocal status, ended
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            if message["type"] == "http.response.start":
                status = message["status"]
                self._metrics.response(status)
                headers = message.get("headers", [])
                # Static files set their own cache-control.
                names = {name for name, _ in headers}
                defaults = [pair for pair in extra if pair[0] not in names]
                message = {**message, "headers": [*headers, *defaults]}
            await send(message)

        async def read() -> Message:
            nonlocal received
            message = await receive()
            size = len(message.get("body", b""))
            received += size
            self._held += size
            if size and self._held > limits.BODIES_BYTES:
                raise Problem("overloaded", "too many bodies are being read at once")
            return message

        if participants and scope["method"] == "OPTIONS":
            await answer({"type": "http.response.start", "status": 204, "headers": _PREFLIGHT})
            await answer({"type": "http.response.body", "body": b""})
            return
        refusal = _refuse(scope)
        if refusal is not None:
            await problem(*refusal)(scope, receive, answer)
            return
        try:
            await self._app(scope, read, answer)
        except asyncio.CancelledError:
            # The grace period of the shutdown is over. The server itself ends a connection
            # whose response has begun.
            if not status:
                self.interrupted += scope["path"].startswith(OPERATOR)
                detail = "the outcome of the request is unknown; check the status and repeat it"
                await problem("stopping", detail)(scope, receive, answer)
        except Exception:
            # The framework raises an error again after it was logged and answered. The server
            # would log it again and break the connection during the next request.
            if not (ended and status == 500):
                raise
        finally:
            self._held -= received


def _refuse(scope: Scope) -> tuple[str, str] | None:
    length = next((v for k, v in scope["headers"] if k == b"content-length"), None)
    if length is None:
        return ("length-required", "send a Content-Length") if scope["method"] == "POST" else None
    if not length.isdigit():
        return "bad-request", "the Content-Length is not a number"
    most = _most_bytes(scope["path"])
    if len(length) > 9 or int(length) > most:
        return "too-large", f"at most {most:,} bytes are read"
    return None


def _most_bytes(path: str) -> int:
    if path == _UPLOAD:
        return limits.UPLOAD_BYTES
    is_tally = path.startswith(OPERATOR) and path.endswith("/tally")
    return limits.TALLY_BYTES if is_tally else wire_limits.BODY_BYTES


_MIN_CONNECTIONS = 16
_SLICE = 4096  # bytes parsed between two checks of the limits
_BODILESS = (b"GET", b"HEAD", b"OPTIONS")
TAKE_OVER = "dither.take_over"  # extension of a request's scope


def room_for_connections(asked: int | None = None) -> int:
    """Return the number of connections that the limit of open files allows.

    The soft limit is raised towards the hard one if necessary.

    Raises:
        InputError: The limit is too low for `asked`, or for `_MIN_CONNECTIONS`.
    """
    wanted = (limits.MAX_CONNECTIONS if asked is None else asked) + limits.RESERVE + limits.BACKLOG
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # Some systems have a further limit; the soft one then stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    room = wanted if soft == resource.RLIM_INFINITY else soft - limits.RESERVE - limits.BACKLOG
    if room < _MIN_CONNECTIONS or (asked is not None and asked > room):
        raise InputError(
            f"the system allows this process {soft:,} open files, room for {max(room, 0):,} "
            "connections; raise it (ulimit -n) or allow fewer connections",
            where="connections",
            value=asked,
        )
    return min(room, limits.MAX_CONNECTIONS if asked is None else asked)


class _Phase(Enum):
    """The phase of a connection; in all but REQUEST it waits for its peer and may be evicted."""

    HEAD = "no complete head yet"
    BODY = "no complete body yet"  # the application limits its time
    REQUEST = "a whole request is being answered"
    IDLE = "between requests"
    DRAIN = "answered before the whole request had come"
    CLOSING = "its last response is being sent"
    REFUSED = "refused, about to be closed"


# In these phases the peer does not wait for a response.
_NO_REQUEST = (_Phase.HEAD, _Phase.BODY, _Phase.IDLE, _Phase.DRAIN, _Phase.REFUSED)


class Connections:
    """The connections of a server: admits, expires and evicts them. Event loop only."""

    def __init__(self, bounds: limits.ConnectionLimits, metrics: Metrics) -> None:
        self.limits = bounds
        self.metrics = metrics
        self.stopping = False  # connections without a complete request are then closed
        self._open: set[GuardedProtocol] = set()
        self._waiting: dict[GuardedProtocol, None] = {}  # oldest first
        self._seconds = {
            _Phase.HEAD: bounds.head_seconds,
            _Phase.IDLE: bounds.idle_seconds,
            _Phase.DRAIN: bounds.drain_seconds,
            _Phase.REFUSED: bounds.drain_seconds,
        }
        self._every = min(1.0, min(*self._seconds.values(), bounds.write_seconds) / 4)
        self._sweeping: asyncio.TimerHandle | None = None
        metrics.connections.set_function(lambda: len(self._open))

    def admit(self, connection: GuardedProtocol) -> bool:
        """Admit a connection; return False if requests in progress take all places."""
        if len(self._open) >= self.limits.most:
            oldest = next(iter(self._waiting), None)
            reason = "full" if oldest is None else "evicted"
            self.metrics.refused(reason)
            rate_limited.warning(
                "all %d connections are taken: the one idle longest is closed, or the new one refused",
                self.limits.most,
            )
            if oldest is None:
                return False
            self.forget(oldest)
            oldest.transport.abort()
        self._open.add(connection)
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(self._every, self._sweep, connection.loop)
        return True

    def forget(self, connection: GuardedProtocol) -> None:
        """Remove a connection that has ended or is about to."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def moved(self, connection: GuardedProtocol) -> None:
        """Update the order of waiting connections after a change of phase."""
        self._waiting.pop(connection, None)
        if connection.phase is not _Phase.REQUEST and connection in self._open:
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
    """uvicorn's HTTP/1.1 protocol with limits on heads and on every wait for the peer."""

    def __init__(self, gate: Connections, **options: Any) -> None:
        super().__init__(**options)
        self.phase = _Phase.HEAD
        self.since = self.loop.time()
        self._gate = gate
        self._limits = gate.limits
        self._head_bytes = 0  # of the complete parts of the head so far
        self._head_lines = 0
        self._pending = 0  # bytes given to the parser since its last callback
        self._in_head = False
        self._complete = True  # the latest request has arrived completely
        self._ignoring = False  # further data from the peer is dropped
        self._refusal: Problem | None = None
        self._unanswered: deque[RequestResponseCycle] = deque()  # the current request first
        # Called at the end of a connection that was taken over.
        self._on_lost: Callable[[], None] | None = None
        # Time and size when the peer last made progress with the unread bytes.
        self._unread: tuple[float, int] | None = None

    # --- the connection -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._gate.admit(self):
            self._enter(_Phase.HEAD)
            return
        self._ignoring = True
        self._send(Problem("too-many-connections", ""))
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.forget(self)
        self._ignoring = True
        # uvicorn marks only the latest request; the others would write to a closed connection.
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        self._unanswered.clear()
        self.pipeline.clear()
        super().connection_lost(exc)
        if self._on_lost is not None:
            self._on_lost()

    def take_over(self, on_lost: Callable[[], None]) -> asyncio.Transport | None:
        """Hand the connection to the caller, who writes the rest of the response and closes it.

        The response is chunked. The application returns, and nothing more is read.

        Args:
            on_lost: Called when the connection is lost.

        Returns:
            The transport, or None if the connection is lost already.
        """
        if self.transport.is_closing() or not self._unanswered:
            return None
        self._on_lost, self._ignoring = on_lost, True
        self._unanswered[0].response_complete = True
        self._unanswered.clear()
        self.pipeline.clear()
        self.cycle = self.scope = None  # type: ignore[assignment]
        self.headers = []
        self.flow.resume_reading()  # to notice its end; pipelined requests are not answered
        return self.transport

    def shutdown(self) -> None:
        """Close the connection; complete requests are answered first."""
        if self.phase in _NO_REQUEST:
            self.transport.close()
        else:
            super().shutdown()

    def resume_writing(self) -> None:
        self._unread = None
        super().resume_writing()

    def expire(self) -> None:
        """End the connection, because the time of its phase is over."""
        if self.phase is _Phase.HEAD and self._in_head:
            seconds = self._limits.head_seconds
            self._refuse(Problem("timeout", f"the request's head took longer than {seconds:g} s"))
        elif self.phase is _Phase.REFUSED:
            self.transport.abort()
        else:
            self.transport.close()

    def stuck(self, now: float, seconds: float) -> bool:
        """Return whether the peer has read too little in the last `seconds`."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting:
            self._unread = None
        elif self._unread is None or self._unread[1] - waiting >= limits.MIN_WRITE_BYTES:
            self._unread = (now, waiting)
        return self._unread is not None and now - self._unread[0] > seconds

    def _enter(self, phase: _Phase) -> None:
        self.phase = phase
        self.since = self.loop.time()
        self._gate.moved(self)
        if self._gate.stopping and phase in _NO_REQUEST:
            self.transport.close()

    # --- what the peer sends --------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._on_lost is not None:  # a peer of an event stream must not send anything
            self.transport.abort()
        if self._ignoring or self.transport.is_closing():
            return
        if self.phase is _Phase.IDLE:
            self._enter(_Phase.HEAD)
        try:
            for start in range(0, len(data), _SLICE):
                part = data[start : start + _SLICE]
                self._pending += len(part)
                self.parser.feed_data(part)
                self._check_head(self._pending)
        except (Problem, httptools.HttpParserError):
            self._refuse(self._refusal or Problem("bad-request", "this is not an HTTP/1.1 request"))
        except httptools.HttpParserUpgrade:
            # Answered as a plain request; what follows would be another protocol.
            self._ignoring = True
            if self.cycle is not None:
                self.cycle.keep_alive = False

    def on_message_begin(self) -> None:
        self._pending = self._head_bytes = self._head_lines = 0
        self._in_head, self._complete = True, False
        if self.phase is _Phase.IDLE:
            self._enter(_Phase.HEAD)
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
            self._raise("length-required", "send a Content-Length; chunked bodies are not read")
        if len(self.pipeline) >= self._limits.pipelined:
            self._raise(
                "bad-request", f"at most {self._limits.pipelined} requests may be pipelined"
            )
        if self.parser.get_method() in _BODILESS and any(
            n == b"content-length" and int(v) for n, v in self.headers
        ):
            self._raise("bad-request", "a request with this method has no body")
        super().on_headers_complete()
        self._unanswered.append(self.cycle)
        self._in_head = False
        if self.phase is not _Phase.REQUEST:
            self._enter(_Phase.BODY)

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending = self._head_bytes = self._head_lines = 0
        self._complete = True
        super().on_message_complete()
        if self.phase is _Phase.BODY:
            self._enter(_Phase.REQUEST)
        elif self.phase is _Phase.DRAIN:
            self._enter(_Phase.IDLE)

    def on_response_complete(self) -> None:
        queued = bool(self.pipeline)
        if self._unanswered:
            # The body is not read any more, and the connection may stay open for long.
            self._unanswered.popleft().body = bytearray()
        super().on_response_complete()
        self._unset_keepalive_if_required()  # `Connections` alone measures idle time
        body_arriving = not self._complete and not self._in_head and not self.pipeline
        if self.transport.is_closing():
            self._enter(_Phase.CLOSING)
        elif queued:
            self._enter(_Phase.BODY if body_arriving else _Phase.REQUEST)
        elif self._in_head:
            self._enter(_Phase.HEAD)
        else:
            self._enter(_Phase.DRAIN if body_arriving else _Phase.IDLE)

    def _count(self, size: int) -> None:
        self._pending = 0
        self._head_bytes += size
        self._check_head(0)

    def _check_head(self, pending: int) -> None:
        bounds = self._limits
        if self._head_bytes + pending > bounds.header_bytes:
            self._raise(
                "headers-too-large", f"at most {bounds.header_bytes:,} bytes of headers are read"
            )
        if self._head_lines > bounds.header_lines:
            self._raise("headers-too-large", f"at most {bounds.header_lines} headers are read")

    # --- refusals -------------------------------------------------------------------------------------------------

    def _raise(self, cause: str, detail: str) -> None:
        """Stop the parser; it hides exceptions of its callbacks, so keep the reason."""
        self._refusal = Problem(cause, detail)
        raise self._refusal

    def _refuse(self, refusal: Problem) -> None:
        """Answer with the reason and close; without an answer during an earlier response."""
        self._ignoring = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()
            return
        self._send(refusal)
        # If the connection was closed at once, a peer that is still sending could lose the answer.
        self.transport.write_eof()
        self._enter(_Phase.REFUSED)

    def _send(self, refusal: Problem) -> None:
        """Write a complete response with problem details."""
        made = problem(refusal.cause, str(refusal))
        self._gate.metrics.response(made.status_code)
        status = HTTPStatus(made.status_code)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        lines += [
            name + b": " + value
            for name, value in (*made.raw_headers, *EVERYWHERE, (b"connection", b"close"))
        ]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(made.body)]))
