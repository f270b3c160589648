"""Who answers what, computed alike by device and server from the participation token. Standard library only.

A token is 32 random bytes. From it and the campaign follow, by SHA-256 with a purpose in front:

- the report id, the same for every retry, different for each round: it is what a store makes unique;
- the participant's place in [0, 1), by which the rounds of a campaign share the people out, so that nobody answers two;
- the question of a round, drawn with the plan's shares.

So a retry answers the same question, and a participant with an issued token cannot choose one. (A server can: by the plan
that it shows.) Places are 53-bit numbers, which a browser holds exactly.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right

from dither.errors import ReportError
from dither.reports.plan import Plan

_BITS = 53
_LAST = 1 - 1e-9  # shares are floats: an end this near to 1 is 1, lest rounding leave somebody out


def report_id(token: bytes, campaign: bytes, number: int) -> bytes:
    """SHA-256 of token, campaign and round."""
    return _digest(b"report", token, campaign, number)


def token_hash(token: bytes) -> bytes:
    """What a server keeps of an issued token. Without the token nobody can tell which report belongs to which hash."""
    return hashlib.sha256(b"dither-1:token\0" + token).digest()


def place(token: bytes, campaign: bytes) -> float:
    """The participant's place in [0, 1) in a campaign, the same in every round."""
    return _fraction(_digest(b"place", token, campaign, 0))


def is_asked(token: bytes, campaign: bytes, start: float, population: float) -> bool:
    """Whether a round that takes the places from `start` on, `population` of them, asks this participant."""
    end = start + population
    return start <= place(token, campaign) < (1.0 if end >= _LAST else end)


def pick(token: bytes, campaign: bytes, plan: Plan) -> int:
    """The question this participant answers in a round; -1 for all of a split plan."""
    if plan.split:
        return -1
    point = _fraction(_digest(b"question", token, campaign, plan.round))
    ends, numbers = plan.share_ends
    # Shares are floats and may end a hair before 1: whoever lies beyond the last end gets the last question.
    return numbers[min(bisect_right(ends, point), len(ends) - 1)]


def check_payload(plan: Plan, question: int, payload: bytes) -> None:
    """Raise `ReportError` unless the payload is a possible answer to this question of the plan (-1: to all of them)."""
    if plan.split != (question == -1) or question >= len(plan.questions):
        raise ReportError(f"the plan has no question {question}", value=question)
    if question >= 0:
        plan.questions[question].mechanism.check_report(payload)
        return
    offsets = plan.report_offsets
    if len(payload) != offsets[-1]:
        raise ReportError(f"a report of {offsets[-1]} bytes was expected, not {len(payload)}", value=len(payload))
    for i, asked in enumerate(plan.questions):
        asked.mechanism.check_report(payload[offsets[i] : offsets[i + 1]])


def _digest(purpose: bytes, token: bytes, campaign: bytes, number: int) -> bytes:
    return hashlib.sha256(b"dither-1:" + purpose + b"\0" + token + campaign + number.to_bytes(4, "little")).digest()


def _fraction(digest: bytes) -> float:
    return (int.from_bytes(digest[:8], "big") >> (64 - _BITS)) / (1 << _BITS)
