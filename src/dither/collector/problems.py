"""Errors as problem details (RFC 9457): one shape, one name for each cause, never a traceback."""

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

from dither.collector.campaigns import NoCampaign
from dither.collector.live import TooManyWatchers
from dither.collector.publications import NoRelease
from dither.collector.questions import FileTooLarge, TooManyQuestions
from dither.collector.sessions import SPAN_SECONDS, SignInRefused, TooManySignIns
from dither.collector.store import Outcome, StoreAway, StoreFull
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
    "not-found": (404, "There is nothing here"),
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
    "store-away": (503, "The database is away"),
    "too-many-connections": (503, "Too many connections are open"),
    "stopping": (503, "The collector is being stopped"),
    "disk-full": (507, "The disk is full"),
}
_RETRY_AFTER = {
    "overloaded": 1,
    "too-many-sign-ins": SPAN_SECONDS,
    "too-many-questions": 2,
    "too-many-watchers": 5,
    "too-many-downloads": 5,
    "round-closing": 5,
    "store-away": 5,
    "too-many-connections": 5,
    "stopping": 5,
    "disk-full": 60,
}
# What is said about these is for the operator: it may name hosts, paths and parameters. The public reads this instead.
_PUBLIC = {
    "internal": "the operator finds more in the collector's log",
    "store-away": "nothing is known about what was being written; send the same bytes again later",
    "disk-full": "what was being written is not stored; send the same bytes again later",
}
_CAUSES: tuple[tuple[type[DitherError], str], ...] = (
    (NoCampaign, "no-campaign"),
    (NoRelease, "not-found"),
    (TooManyQuestions, "too-many-questions"),
    (TooManyWatchers, "too-many-watchers"),
    (SignInRefused, "unauthorised"),
    (TooManySignIns, "too-many-sign-ins"),
    (QueueFull, "overloaded"),
    (StoreFull, "disk-full"),
    (StoreAway, "store-away"),
    (StateError, "wrong-state"),
    (TooFewAnswers, "too-few-answers"),
    (ReportError, "bad-envelope"),
    (FileTooLarge, "too-large"),
    (InputError, "invalid"),
)
DOCUMENTED: dict[int | str, JsonObject] = {
    "default": {
        "description": "Problem details",
        "content": {"application/problem+json": {"schema": {"type": "object"}}},
    }
}
EVERYWHERE = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]  # on every answer


class RetrySpread:
    """Spreads the return of refused clients: the more were refused lately, the longer the time over which they return.

    Clients add a random part of their own. This adds what only the server knows: how many of them there are.

    Args:
        clock: Seconds that only increase.
    """

    RETURNS_PER_SECOND = 100  # refused clients that are asked to return in the same second
    HALF_LIFE = 10.0  # seconds in which a refusal loses half its weight
    MAX_SECONDS = 120

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recent = 0.0
        self._updated = clock()

    def seconds(self, least: int) -> int:
        """What to ask of the client that is refused now: at least `least` seconds."""
        now = self._clock()
        self._recent = 1 + self._recent * 0.5 ** ((now - self._updated) / self.HALF_LIFE)
        self._updated = now
        spread = min(self.MAX_SECONDS, int(self._recent / self.RETURNS_PER_SECOND))
        return least + secrets.randbelow(spread + 1)


_retries = RetrySpread()


class Problem(DitherError):
    """An error that already knows its cause."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


def cause_of(error: Exception) -> str:
    """The name of an error's cause."""
    if isinstance(error, Problem):
        return error.cause
    return next((cause for kind, cause in _CAUSES if isinstance(error, kind)), "internal")


def failure(error: Exception) -> Response:
    """The answer to a request that ended in this error; what strangers must not read goes to the log."""
    cause = cause_of(error)
    if cause in _PUBLIC:
        seldom.warning("%s: %s", cause, " ".join(str(error).split()), extra={"kind": cause})
    return problem(cause, str(error))


def problem(cause: str, detail: str = "", **more: object) -> Response:
    """The answer to a request that failed."""
    status, title = PROBLEMS[cause]
    body: dict[str, object] = {
        "type": f"urn:dither:problem:{cause}",
        "title": title,
        "status": status,
    }
    if detail or cause in _PUBLIC:
        body["detail"] = _PUBLIC.get(cause, detail)
    headers = (
        {"retry-after": str(_retries.seconds(_RETRY_AFTER[cause]))} if cause in _RETRY_AFTER else {}
    )
    if cause == "unauthorised":
        headers["www-authenticate"] = "Bearer"
    return json_response({**body, **more}, status, "application/problem+json", headers)


def outcome_problem(outcomes: list[Outcome]) -> Response:
    """For an upload of which at least one report was refused; `results` says what became of each.

    If any of them should be sent again, the answer asks for all of them: what was stored or refused meets the same fate again.
    """
    results = [o.value for o in outcomes]
    if Outcome.ROUND_CLOSING in outcomes:
        return problem("round-closing", "send the same bytes again later", results=results)
    refusals = [o for o in outcomes if not o.accepted]
    several = f"{len(refusals)} of {len(outcomes)} reports were refused; the others are stored"
    detail = several if len(outcomes) > 1 else ""
    return problem(
        refusals[0].value, detail, results=results
    )  # each refusal has a cause of its own name


def json_response(
    body: object,
    status: int = 200,
    media_type: str = "application/json",
    headers: dict[str, str] | None = None,
) -> Response:
    """Plain ASCII JSON, so that no text whatsoever can fail to be sent."""
    data = json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")
    return Response(data, status, headers, media_type)


SECONDS = 60.0


class SeldomFilter(logging.Filter):
    """Lets one record per minute pass of each kind that a stranger can bring about at will, so that nobody fills a disk with them.

    Records are of one kind if one line of code wrote them about errors of the same type and place, with the same `kind` if they
    have one; so there are few kinds. The next record that passes says how many of its kind were kept quiet.
    """

    def __init__(
        self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}
        self._kept: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        kind = f"{record.pathname}:{record.lineno} {_place(error)} {getattr(record, 'kind', '')}"
        with self._lock:
            now = self._clock()
            if now - self._said.get(kind, -self._seconds) < self._seconds:
                self._kept[kind] += 1
                return False
            self._said[kind] = now
            kept = self._kept.pop(kind, 0)
        if kept:
            record.msg = (
                f"{record.getMessage().rstrip()} ({kept:,} more of this kind since the line before)"
            )
            record.args = ()
        return True


def _place(error: BaseException | None) -> str:
    """The type of an error and the line of code that raised it."""
    if error is None:
        return ""
    lines = list(traceback.walk_tb(error.__traceback__))
    where = f"{lines[-1][0].f_code.co_filename}:{lines[-1][1]}" if lines else ""
    return f"{type(error).__name__} {where}"


seldom = logging.getLogger("dither.collector.seldom")
seldom.addFilter(SeldomFilter())
