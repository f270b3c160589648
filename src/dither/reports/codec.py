"""The bytes between device and server, and the collector's answer to an upload.

    envelope  "DTR1" | campaign, 16 bytes | round, 4 | number of reports, 4 | the reports
    report    token, 32 bytes | question, 2 (65535: all of a split plan) | length, 2 | payload

Numbers are little-endian. Every envelope has exactly one encoding, and `decode` rejects
everything else, so a retry has the same bytes. The envelope names campaign and round, so
bytes from an outbox cannot be sent to another campaign. Python and JavaScript implement the
same format.

A device drops a report only if the collector itself answers about it: stored, or refused for
a reason that no retry changes. A proxy's error page, a login page with status 200, a
redirect or a collector with the wrong database is not such an answer. Standard library only.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Literal

from dither.checks import check_whole
from dither.errors import ReportError
from dither.reports import limits

MAGIC = b"DTR1"
# All questions of a split plan on the wire; -1 in Python.
WHOLE = 0xFFFF
_HEADER = struct.Struct(f"<4s{limits.CAMPAIGN_BYTES}sII")
_PREFIX = struct.Struct(f"<{limits.TOKEN_BYTES}sHH")
Verdict = Literal["acknowledged", "answered", "refused", "waiting"]

ACCEPTED = ("stored", "duplicate")
# Final causes: the same bytes would be refused again. `no-campaign` is not final, because a
# collector with the wrong database says it too; devices end a report for it only after
# weeks (`is_unknown_campaign`).
FINAL = (
    "answered",
    "bad-envelope",
    "conflict",
    "malformed",
    "not-this-round",
    "round-closed",
    "too-large",
    "unknown-token",
    "wrong-campaign",
    "wrong-question",
)
PROBLEM_TYPE = "application/problem+json"
_PROBLEM = "urn:dither:problem:"


@dataclass(frozen=True)
class Report:
    """One participant's report: the token, the question (-1: all of a split plan), the payload."""

    token: bytes
    question: int
    payload: bytes


@dataclass(frozen=True)
class Envelope:
    """Reports of one round of one campaign in one request."""

    campaign: bytes
    round: int
    reports: tuple[Report, ...]


def encode(envelope: Envelope) -> bytes:
    """The bytes of an envelope.

    Raises:
        ReportError: The envelope exceeds a limit.
    """
    if len(envelope.campaign) != limits.CAMPAIGN_BYTES:
        raise ReportError(
            f"a campaign's id has {limits.CAMPAIGN_BYTES} bytes", value=envelope.campaign
        )
    count = len(envelope.reports)
    _check_sizes(envelope.round, count)
    parts = [_HEADER.pack(MAGIC, envelope.campaign, envelope.round, count)]
    for report in envelope.reports:
        if len(report.token) != limits.TOKEN_BYTES:
            raise ReportError(f"a token has {limits.TOKEN_BYTES} bytes, not {len(report.token)}")
        check_whole("question", report.question, -1, limits.MAX_QUESTIONS - 2, error=ReportError)
        _check_length(len(report.payload))
        number = WHOLE if report.question == -1 else report.question
        parts += [_PREFIX.pack(report.token, number, len(report.payload)), report.payload]
    data = b"".join(parts)
    if len(data) > limits.BODY_BYTES:
        raise ReportError(
            f"an upload of {len(data):,} bytes exceeds {limits.BODY_BYTES:,}; send fewer reports at once"
        )
    return data


def decode(data: bytes) -> Envelope:
    """Read an envelope.

    Raises:
        ReportError: The bytes are not what `encode` writes.
    """
    if len(data) > limits.BODY_BYTES:
        raise ReportError(f"an upload of {len(data):,} bytes exceeds {limits.BODY_BYTES:,}")
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        raise ReportError(
            "not an envelope of reports: it does not begin with DTR1 and a whole header"
        )
    _, campaign, number, count = _HEADER.unpack_from(data)
    _check_sizes(number, count)
    reports, position = [], _HEADER.size
    for i in range(count):
        body = position + _PREFIX.size
        if body > len(data):
            raise ReportError(f"the envelope ends inside report {i}", value=i)
        token, question, length = _PREFIX.unpack_from(data, position)
        _check_length(length)
        position = body + length
        if position > len(data):
            raise ReportError(f"the envelope ends inside report {i}", value=i)
        reports.append(Report(token, -1 if question == WHOLE else question, data[body:position]))
    if position != len(data):
        raise ReportError(f"{len(data) - position} bytes follow the last report")
    return Envelope(campaign, number, tuple(reports))


def _check_sizes(number: int, count: int) -> None:
    check_whole("a round's number", number, 0, limits.MAX_ROUNDS - 1, error=ReportError)
    if not 1 <= count <= limits.REQUEST_REPORTS:
        raise ReportError(
            f"a request carries 1 to {limits.REQUEST_REPORTS} reports, not {count}", value=count
        )


def _check_length(length: int) -> None:
    if not 1 <= length <= limits.REPORT_BYTES:
        raise ReportError(
            f"a report has 1 to {limits.REPORT_BYTES} bytes, not {length}", value=length
        )


def verdict(status: int, content_type: str, body: bytes) -> Verdict:
    """The fate of a single uploaded report, from the collector's answer.

    Args:
        status: The HTTP status.
        content_type: The media type of the answer.
        body: The body of the answer.

    Returns:
        "acknowledged", "refused", "waiting" if the collector has not decided, or "answered" if
        this participant's report in another round counts.
    """
    answer = document(body)
    if status in (200, 201):
        results = answer.get("results")
        stored = isinstance(results, list) and len(results) == 1 and results[0] in ACCEPTED
        return "acknowledged" if stored else "waiting"
    cause = answer.get("type")
    if 400 <= status < 500 and _media_type(content_type) == PROBLEM_TYPE and isinstance(cause, str):
        if cause == _PROBLEM + "answered":
            return "answered"
        return (
            "refused"
            if cause.startswith(_PROBLEM) and cause.removeprefix(_PROBLEM) in FINAL
            else "waiting"
        )
    return "waiting"


def is_unknown_campaign(status: int, content_type: str, body: bytes) -> bool:
    """Whether a collector states that it has no such campaign."""
    ours = status == 404 and _media_type(content_type) == PROBLEM_TYPE
    return ours and document(body).get("type") == _PROBLEM + "no-campaign"


def outcomes(status: int, content_type: str, body: bytes, count: int) -> list[str] | None:
    """The fate of each of `count` uploaded reports; None if the collector did not decide."""
    results = document(body).get("results")
    if not isinstance(results, list) or len(results) != count:
        return None
    if status in (200, 201):
        return results if all(r in ACCEPTED for r in results) else None
    ours = 400 <= status < 500 and _media_type(content_type) == PROBLEM_TYPE
    return results if ours and all(r in ACCEPTED + FINAL for r in results) else None


def _media_type(content_type: str) -> str:
    """A content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def document(body: bytes) -> dict[str, object]:
    """The JSON object in a body; an empty one if the body has none."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
