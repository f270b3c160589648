"""What a collector says about a campaign, read with suspicion: nothing in it is believed before it has been checked.

Epsilon is computed anew from the mechanisms' integers, the fingerprint from the schema, and every question must fit the
schema and the limits of a device. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from dither.errors import DitherError, PrivacyError, ReportError
from dither.reports import Plan, Question, limits, plan_from_json
from dither.schema import Schema, schema_from_json

_FORMAT = "dither-campaign-1"
_STATES = ("draft", "open", "closing", "collected", "finalised")


@dataclass(frozen=True)
class Announcement:
    """A campaign as a participant sees it; `plan` is None while no round is open."""

    campaign: bytes
    name: str
    state: str
    epsilon: float
    participation: str
    schema: Schema
    start: float
    plan: Plan | None

    @property
    def plan_digest(self) -> str:
        """SHA-256 of the open round's plan and its place in the campaign."""
        plan = None if self.plan is None else self.plan.to_json()
        return hashlib.sha256(json.dumps([self.start, plan], sort_keys=True).encode()).hexdigest()


def read_announcement(data: bytes) -> Announcement:
    """Read and check what a collector announced; `ReportError` says what is wrong with it."""
    if len(data) > limits.PLAN_BYTES:
        raise ReportError(f"an announcement of {len(data):,} bytes is too long; at most {limits.PLAN_BYTES:,} are read")
    try:
        body = json.loads(data)
        announcement = _read(body)
    except DitherError:
        raise
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ReportError(f"not an announcement of a campaign: {error!r}") from None
    if announcement.plan is not None:
        _check_plan(announcement, announcement.plan)
    return announcement


def _read(body: Any) -> Announcement:
    if not isinstance(body, dict) or body.get("format") != _FORMAT:
        raise ReportError(f"not an announcement this version reads ({_FORMAT})")
    campaign = bytes.fromhex(body["campaign"])
    schema = schema_from_json(body["schema"])
    if len(campaign) != limits.CAMPAIGN_BYTES or body["state"] not in _STATES:
        raise ReportError("the announcement has no proper campaign id or state")
    if schema.fingerprint != body["schema_fingerprint"]:
        raise ReportError("the announced schema does not have the announced fingerprint")
    plan = body["plan"]
    if plan is not None:
        _check_numbers(plan)
    return Announcement(
        campaign=campaign,
        name=str(body["name"]),
        state=body["state"],
        epsilon=float(body["epsilon"]),
        participation=str(body["participation"]),
        schema=schema,
        start=float(body["start"]),
        plan=None if plan is None else plan_from_json(plan),
    )


def _check_numbers(plan: dict[str, Any]) -> None:
    """Before any mechanism is built: numbers that would make building it costly."""
    if len(plan["questions"]) >= limits.MOST_QUESTIONS:
        raise ReportError(f"a plan of {len(plan['questions']):,} questions is too long")
    for question in plan["questions"]:
        for key, value in question["mechanism"].items():
            if isinstance(value, int) and not 0 <= value < 2**64:
                raise ReportError(f"a mechanism with {key} = {value} is out of bounds", value=value)
        bits = question["mechanism"]["threshold_bits"]
        if bits not in (8, 16, 24, 32, 40, 48, 56, 64):
            raise ReportError(f"draws of {bits} bits are not supported", value=bits)


def _check_plan(announcement: Announcement, plan: Plan) -> None:
    if not 0.0 <= announcement.start < 1.0:
        raise ReportError(f"a round cannot start at place {announcement.start}", value=announcement.start)
    total = 0
    for question in plan.questions:
        _check_question(announcement.schema, question)
        total += question.mechanism.report_bytes
    if plan.split and total > limits.REPORT_BYTES:
        raise ReportError(f"reports of {total:,} bytes exceed {limits.REPORT_BYTES:,}", value=total)
    if plan.epsilon > announcement.epsilon:
        raise PrivacyError(
            f"the plan spends epsilon {plan.epsilon}, more than the {announcement.epsilon} that the campaign announces",
            where="epsilon",
            value=plan.epsilon,
        )


def _check_question(schema: Schema, question: Question) -> None:
    names = question.attributes
    unknown = [n for n in names if n not in schema.names]
    if not names or unknown or len(set(names)) != len(names):
        raise ReportError(f"a question about {', '.join(names) or 'nothing'} does not fit the schema", value=names)
    mechanism = question.mechanism
    if mechanism.cells != schema.cells(names):
        raise ReportError(
            f"a question about {', '.join(names)} has {schema.cells(names)} cells, not {mechanism.cells}", value=names
        )
    if mechanism.report_bytes > limits.REPORT_BYTES or mechanism.draw_bytes > limits.DRAW_BYTES:
        raise ReportError(f"a question of {mechanism.cells:,} cells is too large for a device", value=mechanism.cells)
