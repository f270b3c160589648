"""The outermost layer of the application: sizes of bodies, and cross-origin headers.

It is plain ASGI and costs microseconds. Only the participants' paths get cross-origin
headers. It is the one place that could read an address or a user agent, and does not.

The shipped proxy limits one body (`client_max_body_size`), and uvicorn has no such limit.
The sum of all bodies in memory is limited here only:
`test_bodies_of_all_requests_together_have_a_limit` in
tests/security/test_strangers_cannot_lock_others_out.py fails without it.
"""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dither.collector.metrics import Metrics
from dither.collector.problems import EVERYWHERE, Problem, problem
from dither.reports import limits

PARTICIPANTS = "/v1/campaigns/"
OPERATOR = "/v1/admin/"
UPLOAD = "/console/new/file"  # a curator's schema or table, read after the session is checked
BODIES_BYTES = 256 << 20  # of all bodies in memory together
UPLOAD_BYTES = 64 << 20
TALLY_BYTES = 128 << 20  # of a tally counted elsewhere, read after the key is checked
BODY_SECONDS = 30.0  # for a whole body
_CROSS_ORIGIN = [(b"access-control-allow-origin", b"*")]
_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"content-type"),
    (b"access-control-max-age", b"600"),
]


async def read_body(request: Request, most: int = limits.BODY_BYTES) -> bytes:
    """Read a body within the limits of size and time.

    Raises:
        Problem: The body is too large, too slow, or the client has disconnected.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise Problem("too-large", f"at most {most:,} bytes are read")
                parts.append(part)
    except TimeoutError:
        raise Problem("timeout", f"the body took longer than {BODY_SECONDS:g} s") from None
    except ClientDisconnect:  # not a defect, so the log must not show it as one
        raise Problem(
            "bad-request", "the client disconnected before its body was complete"
        ) from None
    return b"".join(parts)


class Edge:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._held = 0  # bytes of all bodies in memory
        self.interrupted = 0  # operators' requests that the shutdown cancelled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        participants = scope["path"].startswith(PARTICIPANTS)
        extra = EVERYWHERE + (_CROSS_ORIGIN if participants else [])
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
            if size and self._held > BODIES_BYTES:
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
    if path == UPLOAD:
        return UPLOAD_BYTES
    is_tally = path.startswith(OPERATOR) and path.endswith("/tally")
    return TALLY_BYTES if is_tally else limits.BODY_BYTES
