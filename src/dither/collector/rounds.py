"""Rounds of a campaign: what intake checks, what participants read, and when they close.

Rounds ask different people, so each has a share of the campaign's reports and time: the
population that the method plans for it (`Plan.population`). A campaign of 1,000 expected
reports whose first round has a population of 5 % closes that round at 50. The last round
takes all who come, until the campaign's own end. The functions are pure: the time is an
argument.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import bdtrc, ndtr

from dither.collector.spec import Assignment, CampaignSpec, Participation
from dither.collector.store import State, StoredCampaign, StoredRound
from dither.reports import Plan, plan_from_json
from dither.reports.plan import closing_seconds
from dither.types import JsonObject

_EXCESS_DEVIATIONS = 5
_LAST = 1 - 1e-9  # populations are floats: an end this near to 1 is 1
# A round's time is rounded up, because an exact one would tell when the previous round
# became full: to hours if more than two days are left, else to minutes.
_HOUR, _MINUTE, _TWO_DAYS = 3600.0, 60.0, 2 * 86_400.0


@dataclass(frozen=True)
class OpenRound:
    """What intake needs to know of a round: the open one, or an earlier one.

    Attributes:
        start: Share of places before the round.
        wanted: Number of reports at which it closes automatically, or None.
        closes: Time at which it closes automatically, in seconds since 1970, or None.
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
    """A campaign as participants read it.

    It names the operator and the purpose, the public domain of a record (`schema`), who is
    asked (`assignment`), the share of places before the open round (`start`) and what that
    round asks (`plan`; null if no round is open). The round closes automatically at `wanted`
    reports, or at the time `round_closes` in seconds since 1970. `consumers` receive
    histograms of a number, each with its own bins; null for other methods. `epsilon_reason`
    says why the protection is not stronger, in the operator's words.
    """

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


def open_round(
    stored: StoredCampaign, spec: CampaignSpec, round_: StoredRound, plan: Plan | None = None
) -> OpenRound:
    """Return a round of a campaign as intake sees it; `plan` saves decoding it again."""
    plan = plan or plan_from_json(round_.plan)
    return OpenRound(
        campaign=stored.id,
        campaign_bytes=bytes.fromhex(stored.id),
        plan=plan,
        start=round_.start,
        participation=spec.participation,
        assignment=spec.assignment,
        wanted=reports_wanted(spec, plan, round_.start),
        closes=round_.closes,
    )


def announcement(stored: StoredCampaign, spec: CampaignSpec, current: OpenRound | None) -> bytes:
    """Return what a participant reads: who asks, what, at which epsilon, and the open plan."""
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
        start=0.0 if current is None else current.start,
        plan=None if current is None else current.plan.to_json(),
        wanted=None if current is None else current.wanted,
        round_closes=None if current is None else current.closes,
        consumers=spec.consumers,  # type: ignore[arg-type]  # as `begin` completed them
    )
    return json.dumps(vars(document), separators=(",", ":")).encode()


def _is_last(plan: Plan, start: float) -> bool:
    """Return whether all remaining people belong to this round."""
    return start + plan.population >= _LAST


def reports_wanted(spec: CampaignSpec, plan: Plan, start: float) -> int | None:
    """Return the number of reports at which a round closes, or None if no number closes it.

    The shares of all rounds add up to `closes_at_reports`. Without that limit, rounds
    filled by arrival have their share of the expected participants, except the last one,
    which refuses no participant.
    """
    total = spec.closes_at_reports
    if total is None:
        if spec.assignment == "token" or _is_last(plan, start):
            return None
        total = spec.participants
    end = total if _is_last(plan, start) else round((start + plan.population) * total)
    return max(1, end - round(start * total))


def expected_reports(spec: CampaignSpec, plan: Plan) -> int:
    """Return the expected number of a round's reports: its share of the participants."""
    return round(max(spec.participants, spec.closes_at_reports or 0) * plan.population)


def has_excess(spec: CampaignSpec, plan: Plan, reports: int) -> bool:
    """Return whether a round of an open campaign has more reports than chance explains.

    Anyone can invent tokens there, so one client can send any number of reports. Five
    standard deviations of a Poisson number are exceeded once in millions of honest rounds.
    """
    expected = expected_reports(spec, plan)
    limit = expected + _EXCESS_DEVIATIONS * math.sqrt(expected)
    return spec.participation == "open" and reports > limit


def crowded_questions(spec: CampaignSpec, plan: Plan, answers: Sequence[int]) -> list[int]:
    """Return the questions of an open campaign's round with more reports than chance explains.

    Tokens of honest participants divide a round's reports over its questions at random, with
    the plan's shares. Participants who invent tokens can concentrate on one question without
    adding much to the total.

    Args:
        spec: The campaign.
        plan: The round's plan.
        answers: The number of reports to each question.

    Returns:
        The indices of questions whose number of reports, or a larger one, has less than the
        probability of five standard deviations (2.9e-7, one-sided) under the binomial
        distribution of the round's total. A round of 1,000 questions without forged reports
        is flagged with a probability below 0.0003.
    """
    if spec.participation != "open" or plan.split:
        return []
    total = sum(answers)
    rare = float(ndtr(-_EXCESS_DEVIATIONS))
    crowded = []
    for i, (share, count) in enumerate(zip(plan.shares, answers, strict=True)):
        # bdtrc(k, n, p) is the probability of more than k.
        if count > share * total and bdtrc(count - 1, total, share) < rare:
            crowded.append(i)
    return crowded


def round_closes(spec: CampaignSpec, plan: Plan, start: float, now: float) -> float | None:
    """Return when a round that opens now closes, in seconds since 1970; None if no time does.

    The round's share of the remaining time is its share of the remaining people; the last
    round has all of it.
    """
    if spec.closes is None:
        return None
    end = closing_seconds(spec.closes)
    if _is_last(plan, start) or now >= end:
        return end
    share = plan.population / (1 - start)
    step = _HOUR if end - now > _TWO_DAYS else _MINUTE
    return min(end, math.ceil((now + share * (end - now)) / step) * step)
