"""What an answer to an upload means for the reports in it. Standard library only.

A report is given up only on the collector's own word about it: stored, or refused for a reason that no later try changes.
A proxy's error page, a login page with status 200, a redirect or a collector with the wrong database says nothing about the
report, and the device keeps it.
"""

from __future__ import annotations

import json
from typing import Literal

Verdict = Literal["acknowledged", "refused", "waiting"]

ACCEPTED = ("stored", "duplicate")
# Causes of refusal that stay: the same bytes would be refused again. Not among them: `no-campaign`, since a collector
# forgets no campaign, so that only the wrong database or the wrong address says this.
FINAL = (
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
_PREFIX = "urn:dither:problem:"


def verdict(status: int, content_type: str, body: bytes) -> Verdict:
    """What became of the one report of an upload, by the status, the media type and the body of the answer."""
    found = document(body)
    if status in (200, 201):
        results = found.get("results")
        known = isinstance(results, list) and len(results) == 1 and results[0] in ACCEPTED
        return "acknowledged" if known else "waiting"
    cause = found.get("type")
    if 400 <= status < 500 and media_type(content_type) == PROBLEM_TYPE and isinstance(cause, str):
        return "refused" if cause.startswith(_PREFIX) and cause.removeprefix(_PREFIX) in FINAL else "waiting"
    return "waiting"


def outcomes(status: int, content_type: str, body: bytes, count: int) -> list[str] | None:
    """What became of each of `count` reports of an upload; None unless the collector itself says so."""
    results = document(body).get("results")
    if not isinstance(results, list) or len(results) != count:
        return None
    if status in (200, 201):
        return results if all(r in ACCEPTED for r in results) else None
    ours = 400 <= status < 500 and media_type(content_type) == PROBLEM_TYPE
    return results if ours and all(r in ACCEPTED + FINAL for r in results) else None


def media_type(content_type: str) -> str:
    """A content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def document(body: bytes) -> dict[str, object]:
    """The JSON object in a body; an empty one if there is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
