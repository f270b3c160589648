"""Errors as problem details (RFC 9457): one format, one name per cause, never a traceback."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable

from starlette.responses import Response

from dither.collector import limits
from dither.collector.campaigns import NoCampaign
from dither.collector.store import Outcome, StoreFull, StoreUnavailable
from dither.collector.writer import QueueFull
from dither.errors import DitherError, InputError, ReportError, StateError, TooFewAnswers
from dither.types import JsonObject

# cause -> status and title; the cause is the end of the problem's type
PROBLEMS: dict[str, tuple[int, str]] = {
    "bad-request": (400, "The request cannot be read"),
    "bad-envelope": (400, "The body is not an envelope of reports"),
    "unauthorised": (401, "The key is missing or wrong"),
    "forbidden": (403, "This key or session may not do that"),
    "unknown-token": (403, "The token was not issued for this campaign"),
    "not-this-round": (403, "This participant is asked in another round"),
    "no-campaign": (404, "There is no such campaign"),
    "not-found": (404, "There is nothing at this address"),
    "method-not-allowed": (405, "This address does not take that method"),
    "timeout": (408, "The body did not arrive in time"),
    "answered": (409, "This participant has answered in an earlier round"),
    "conflict": (409, "Another report of this participant is stored already"),
    "round-closed": (409, "The round is closed"),
    "round-not-open": (409, "The round is not open yet"),
    "wrong-state": (409, "The campaign is not in a state that allows this"),
    "too-few-answers": (409, "The round's answers do not suffice for the method; it stays open"),
    "length-required": (411, "The request must say how long its body is"),
    "too-large": (413, "The body is too large"),
    "wrong-media-type": (415, "The body is of another media type than this address takes"),
    "invalid": (422, "What was sent is not valid"),
    "wrong-campaign": (422, "The envelope is for another campaign"),
    "wrong-question": (422, "The report answers a question that this participant was not asked"),
    "malformed": (422, "The report is not a possible answer to its question"),
    "overloaded": (429, "Too many reports wait to be written"),
    "too-many-sign-ins": (429, "Too many sign-ins failed"),
    "too-many-questions": (429, "Too many questions are being answered"),
    "too-many-watchers": (429, "Too many watch already"),
    "too-many-downloads": (429, "Too many downloads are under way"),
    "headers-too-large": (431, "The request's headers are too large"),
    "internal": (500, "The collector failed"),
    "round-closing": (503, "The round is being closed and may open again"),
    "store-away": (503, "The database is unavailable"),
    "too-many-connections": (503, "Too many connections are open"),
    "stopping": (503, "The collector is being stopped"),
    "disk-full": (507, "The disk is full"),
}
_RETRY_AFTER = {
    "overloaded": 1,
    "too-many-sign-ins": limits.FAILURES_SECONDS,
    "too-many-questions": 2,
    "too-many-watchers": 5,
    "too-many-downloads": 5,
    "round-closing": 5,
    "store-away": 5,
    "too-many-connections": 5,
    "stopping": 5,
    "disk-full": 60,
}
# The details of these may name hosts, paths and parameters. They go to the log; clients get
# this text instead.
_PUBLIC = {
    "internal": "the operator finds more in the collector's log",
    "store-away": "it is unknown whether the request was stored; send the same bytes again later",
    "disk-full": "the request is not stored; send the same bytes again later",
}
_CAUSES: tuple[tuple[type[DitherError], str], ...] = (
    (NoCampaign, "no-campaign"),
    (QueueFull, "overloaded"),
    (StoreFull, "disk-full"),
    (StoreUnavailable, "store-away"),
    (StateError, "wrong-state"),
    (TooFewAnswers, "too-few-answers"),
    (ReportError, "bad-envelope"),
    (InputError, "invalid"),
)
DOCUMENTED: dict[int | str, JsonObject] = {
    "default": {
        "description": "Problem details",
        "content": {"application/problem+json": {"schema": {"type": "object"}}},
    }
}
# Headers of every response.
EVERYWHERE = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class RetrySpread:
    """Spreads the retries of refused clients over a time that grows with their number.

    Clients add a random delay themselves; only the server knows how many clients there are.

    Args:
        clock: Seconds that only increase.
    """

    RETURNS_PER_SECOND = 100  # refused clients that are asked to return in the same second
    HALF_LIFE = 10.0  # seconds in which a refusal loses half its weight
    MAX_SECONDS = 120

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Forget all refused clients, as when a server starts."""
        self._recent = 0.0
        self._updated = self._clock()

    def seconds(self, least: int) -> int:
        """Return the seconds that the client refused now should wait, at least `least`."""
        now = self._clock()
        self._recent = 1 + self._recent * 0.5 ** ((now - self._updated) / self.HALF_LIFE)
        self._updated = now
        spread = min(self.MAX_SECONDS, int(self._recent / self.RETURNS_PER_SECOND))
        return least + secrets.randbelow(spread + 1)


retries = RetrySpread()


class Problem(DitherError):
    """An error with the name of its cause."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


def cause_of(error: Exception) -> str:
    """Return the name of an error's cause."""
    if isinstance(error, Problem):
        return error.cause
    return next((cause for kind, cause in _CAUSES if isinstance(error, kind)), "internal")


def failure(error: Exception) -> Response:
    """Return the response to an error; details that clients must not read go to the log."""
    cause = cause_of(error)
    if cause in _PUBLIC:
        rate_limited.warning("%s: %s", cause, " ".join(str(error).split()), extra={"kind": cause})
    return problem(cause, str(error))


def problem(cause: str, detail: str = "", **more: object) -> Response:
    """Return a problem-details response.

    Args:
        cause: A key of `PROBLEMS`.
        detail: The cause in this request.
        more: Further members of the document.
    """
    status, title = PROBLEMS[cause]
    body: dict[str, object] = {
        "type": f"urn:dither:problem:{cause}",
        "title": title,
        "status": status,
    }
    if detail or cause in _PUBLIC:
        body["detail"] = _PUBLIC.get(cause, detail)
    headers = {}
    if cause in _RETRY_AFTER:
        headers["retry-after"] = str(retries.seconds(_RETRY_AFTER[cause]))
    if cause == "unauthorised":
        headers["www-authenticate"] = "Bearer"
    return json_response({**body, **more}, status, "application/problem+json", headers)


def outcome_problem(outcomes: list[Outcome]) -> Response:
    """Return the response to an upload with refused reports; `results` has each outcome.

    If any report should be sent again, the response asks for all of them: the others get the
    same outcome again.
    """
    results = [o.value for o in outcomes]
    if Outcome.ROUND_CLOSING in outcomes:
        return problem("round-closing", "send the same bytes again later", results=results)
    refusals = [o for o in outcomes if not o.accepted]
    several = f"{len(refusals)} of {len(outcomes)} reports were refused; the others are stored"
    detail = several if len(outcomes) > 1 else ""
    # Every refusing outcome is the name of a cause.
    return problem(refusals[0].value, detail, results=results)


def json_response(
    body: object,
    status: int = 200,
    media_type: str = "application/json",
    headers: dict[str, str] | None = None,
) -> Response:
    """Return JSON in ASCII, so that lone surrogates can be sent, too."""
    data = json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")
    return Response(data, status, headers, media_type)


class RateLimitFilter(logging.Filter):
    """Passes one log record of each kind per interval, so that clients cannot fill a disk.

    Records are of one kind if the same line of code logged them about errors of the same type
    and place, with the same `kind` attribute if they have one. The next record that passes
    has the number of suppressed ones.
    """

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._passed: dict[str, float] = {}
        self._suppressed: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        kind = f"{record.pathname}:{record.lineno} {_place(error)} {getattr(record, 'kind', '')}"
        with self._lock:
            now = self._clock()
            if now - self._passed.get(kind, -self._seconds) < self._seconds:
                self._suppressed[kind] += 1
                return False
            self._passed[kind] = now
            suppressed = self._suppressed.pop(kind, 0)
        if suppressed:
            record.msg = f"{record.getMessage().rstrip()} ({suppressed:,} more of this kind since the line before)"
            record.args = ()
        return True


def _place(error: BaseException | None) -> str:
    """Return the type of an error and the line of code that raised it."""
    if error is None:
        return ""
    lines = list(traceback.walk_tb(error.__traceback__))
    where = f"{lines[-1][0].f_code.co_filename}:{lines[-1][1]}" if lines else ""
    return f"{type(error).__name__} {where}"


rate_limited = logging.getLogger("dither.collector.limited")
rate_limited.addFilter(RateLimitFilter())
