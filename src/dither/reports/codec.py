"""Reports as bytes between device and server, the same in Python and JavaScript. Standard library only.

    envelope  "DTR1" | campaign, 16 bytes | round, 4 | number of reports, 4 | the reports
    report    token, 32 bytes | question, 2 (65535: all questions of a split plan) | length, 2 | payload

Numbers are little-endian. Every envelope has exactly one encoding, and decoding refuses whatever is not one: a retry that is
built anew has the same bytes. The envelope names campaign and round, so bytes kept in an outbox cannot be sent elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from dither.errors import ReportError
from dither.reports import limits

MAGIC = b"DTR1"
WHOLE = 0xFFFF  # on the wire; -1 in Python, as tallies call it
_HEADER = len(MAGIC) + limits.CAMPAIGN_BYTES + 8
_PREFIX = limits.TOKEN_BYTES + 4


@dataclass(frozen=True)
class Report:
    """What one participant sends: its token, which question it answers (-1: all of a split plan) and the randomised answer."""

    token: bytes
    question: int
    payload: bytes


@dataclass(frozen=True)
class Envelope:
    """Reports of one round of one campaign, as one request carries them."""

    campaign: bytes
    round: int
    reports: tuple[Report, ...]


def encode(envelope: Envelope) -> bytes:
    """The bytes of an envelope; an error says which limit it breaks."""
    if len(envelope.campaign) != limits.CAMPAIGN_BYTES:
        raise ReportError(f"a campaign's id has {limits.CAMPAIGN_BYTES} bytes", value=envelope.campaign)
    if not 0 <= envelope.round < limits.MOST_ROUNDS:
        raise ReportError(f"a round's number must lie in 0..{limits.MOST_ROUNDS - 1}", value=envelope.round)
    if not 1 <= len(envelope.reports) <= limits.REQUEST_REPORTS:
        raise ReportError(f"a request carries 1 to {limits.REQUEST_REPORTS} reports, not {len(envelope.reports)}")
    parts = [
        MAGIC,
        envelope.campaign,
        envelope.round.to_bytes(4, "little"),
        len(envelope.reports).to_bytes(4, "little"),
    ]
    for report in envelope.reports:
        _check_report(report)
        number = WHOLE if report.question == -1 else report.question
        parts += [report.token, number.to_bytes(2, "little"), len(report.payload).to_bytes(2, "little"), report.payload]
    data = b"".join(parts)
    if len(data) > limits.BODY_BYTES:
        raise ReportError(f"an upload of {len(data):,} bytes exceeds {limits.BODY_BYTES:,}; send fewer reports at once")
    return data


def decode(data: bytes) -> Envelope:
    """The envelope in some bytes; anything that `encode` would not have written raises `ReportError`."""
    if len(data) > limits.BODY_BYTES:
        raise ReportError(f"an upload of {len(data):,} bytes exceeds {limits.BODY_BYTES:,}")
    if len(data) < _HEADER or data[:4] != MAGIC:
        raise ReportError("not an envelope of reports: it does not begin with DTR1 and a whole header")
    number = int.from_bytes(data[20:24], "little")
    count = int.from_bytes(data[24:28], "little")
    if number >= limits.MOST_ROUNDS:
        raise ReportError(f"round {number} is outside 0..{limits.MOST_ROUNDS - 1}", value=number)
    if not 1 <= count <= limits.REQUEST_REPORTS:
        raise ReportError(f"a request carries 1 to {limits.REQUEST_REPORTS} reports, not {count}", value=count)
    reports = []
    position = _HEADER
    for i in range(count):
        body = position + _PREFIX
        if body > len(data):
            raise ReportError(f"the envelope ends inside report {i}", value=i)
        question = int.from_bytes(data[body - 4 : body - 2], "little")
        end = body + int.from_bytes(data[body - 2 : body], "little")
        if end > len(data):
            raise ReportError(f"the envelope ends inside report {i}", value=i)
        if not 1 <= end - body <= limits.REPORT_BYTES:
            raise ReportError(
                f"report {i} has {end - body} bytes; 1 to {limits.REPORT_BYTES} are allowed", value=end - body
            )
        reports.append(Report(data[position : body - 4], -1 if question == WHOLE else question, data[body:end]))
        position = end
    if position != len(data):
        raise ReportError(f"{len(data) - position} bytes follow the last report")
    return Envelope(data[4:20], number, tuple(reports))


def _check_report(report: Report) -> None:
    if len(report.token) != limits.TOKEN_BYTES:
        raise ReportError(f"a token has {limits.TOKEN_BYTES} bytes, not {len(report.token)}")
    if not -1 <= report.question < limits.MOST_QUESTIONS - 1:
        raise ReportError(
            f"question {report.question} is outside 0..{limits.MOST_QUESTIONS - 2}", value=report.question
        )
    if not 1 <= len(report.payload) <= limits.REPORT_BYTES:
        raise ReportError(f"a report has 1 to {limits.REPORT_BYTES} bytes, not {len(report.payload)}")
