"""What every request passes first: its body's size, and cross-origin headers on the participants' addresses only.

Plain ASGI: it costs microseconds, and it is the one place that could see an address or a user agent, and does not look.
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
UPLOAD = "/console/new/file"  # a curator's schema or table, which is read only after the session was seen
BODIES_BYTES = 256 << 20  # of all bodies in memory together
UPLOAD_BYTES = 64 << 20
TALLY_BYTES = 128 << 20  # of a tally counted elsewhere, which is read only after the key was seen
BODY_SECONDS = 30.0  # for a body as a whole
_CROSS_ORIGIN = [(b"access-control-allow-origin", b"*")]
_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"content-type"),
    (b"access-control-max-age", b"600"),
]


async def read_body(request: Request, most: int = limits.BODY_BYTES) -> bytes:
    """The whole body, within the limit and in time."""
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
    except ClientDisconnect:  # nobody hears this; it is no defect of ours that the log should show
        raise Problem("bad-request", "the sender went away before its body had come") from None
    return b"".join(parts)


class Edge:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._held = 0
        self.interrupted = (
            0  # the operator's requests that the end of the server left without a proper answer
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        participants = scope["path"].startswith(PARTICIPANTS)
        extra = EVERYWHERE + (_CROSS_ORIGIN if participants else [])
        status, ended, mine = 0, False, 0

        async def answer(message: Message) -> None:
            nonlocal status, ended
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            if message["type"] == "http.response.start":
                status = message["status"]
                self._metrics.response(status)
                given = message.get("headers", [])
                own = {
                    name for name, _ in given
                }  # a file under its hash may be kept, and says so itself
                message = {
                    **message,
                    "headers": [*given, *(pair for pair in extra if pair[0] not in own)],
                }
            await send(message)

        async def read() -> Message:
            nonlocal mine
            message = await receive()
            size = len(message.get("body", b""))
            mine += size
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
            # The server stops and has waited long enough. It ends the connection itself if an answer is half sent.
            if not status:
                self.interrupted += scope["path"].startswith(OPERATOR)
                said = "nothing is known about what was under way; look at the status and repeat it"
                await problem("stopping", said)(scope, receive, answer)
        except Exception:
            # The framework raises a bug once more after it was logged and answered; the server would log it again, and break
            # the connection under the next request.
            if not (ended and status == 500):
                raise
        finally:
            self._held -= mine


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
    return (
        TALLY_BYTES if path.startswith(OPERATOR) and path.endswith("/tally") else limits.BODY_BYTES
    )
