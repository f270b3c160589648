"""A campaign as participants read it, and what intake has to know of its open round."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from dither.collector.schedule import reports_wanted
from dither.collector.spec import Assignment, CampaignSpec, Participation
from dither.collector.store import State, StoredCampaign, StoredRound
from dither.reports import Plan, plan_from_json
from dither.types import JsonObject


@dataclass(frozen=True)
class OpenRound:
    """What intake needs to know of a round: the one that takes reports now, or an earlier one of which somebody asks.

    `wanted` is the number of reports at which it closes by itself, `closes` the time; None if it does not.
    """

    campaign: str
    campaign_bytes: bytes
    plan: Plan
    start: float
    participation: Participation
    assignment: Assignment
    wanted: int | None = None
    closes: float | None = None


@dataclass(frozen=True)
class PublicCampaign:
    """A campaign as participants read it: who asks and why, the public domain of a record (`schema`), who is asked (`assignment`),
    the share of places before the open round (`start`), what that round asks (`plan`), null while none is open, and when it closes
    by itself: at so many reports (`wanted`), or at the latest at a time in seconds since 1970 (`round_closes`). `consumers` get
    histograms of the number that is asked for, each its own bins; null for other methods. `epsilon_reason` is why the
    protection is no stronger, in the campaign's own words."""

    format: Literal["dither-campaign-1"]
    campaign: str
    name: str
    title: str
    purpose: str
    epsilon_reason: str
    contact: str
    closes: str | None
    closes_at_reports: int | None
    state: State
    epsilon: float
    participation: Participation
    assignment: Assignment
    schema: JsonObject
    schema_fingerprint: str
    start: float
    plan: JsonObject | None
    wanted: int | None
    round_closes: float | None
    consumers: list[JsonObject] | None


def a_round(
    stored: StoredCampaign, spec: CampaignSpec, one: StoredRound, read: Plan | None = None
) -> OpenRound:
    """A round of a campaign as intake sees it; its plan need not be `read` again."""
    plan = read or plan_from_json(one.plan)
    wanted = reports_wanted(spec, plan, one.start)
    taken = spec.participation, spec.assignment
    return OpenRound(
        stored.id, bytes.fromhex(stored.id), plan, one.start, *taken, wanted, one.closes
    )


def public(stored: StoredCampaign, spec: CampaignSpec, now: OpenRound | None) -> bytes:
    """What a participant reads: who asks, what, at which epsilon, and the open round's plan."""
    document = PublicCampaign(
        format="dither-campaign-1",
        campaign=stored.id,
        name=spec.name,
        title=spec.title or spec.name or stored.id,
        purpose=spec.purpose,
        epsilon_reason=spec.epsilon_reason,
        contact=spec.contact,
        closes=spec.closes,
        closes_at_reports=spec.closes_at_reports,
        state=stored.state,
        epsilon=spec.epsilon,
        participation=spec.participation,
        assignment=spec.assignment,
        schema=spec.schema.to_json(),
        schema_fingerprint=spec.schema.fingerprint,
        start=0.0 if now is None else now.start,
        plan=None if now is None else now.plan.to_json(),
        wanted=None if now is None else now.wanted,
        round_closes=None if now is None else now.closes,
        consumers=spec.consumers,  # type: ignore[arg-type]  # as `begin` spelt them out
    )
    return json.dumps(vars(document), separators=(",", ":")).encode()
