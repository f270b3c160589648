"""Rounds of a campaign: what intake checks of a report, and what participants read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from dither.collector.spec import Assignment, CampaignSpec, Participation
from dither.collector.store import Batch, Outcome, Row, State, StoredCampaign, StoredRound
from dither.errors import ReportError
from dither.reports import (
    Envelope,
    Plan,
    check_payload,
    is_asked,
    pick,
    plan_from_json,
    report_id,
    token_hash,
)
from dither.types import JsonObject


@dataclass(frozen=True)
class _Judgement:
    """The valid reports, their places in the request, and the outcomes of the others."""

    batch: Batch
    positions: list[int]
    refused: dict[int, Outcome]

    def outcomes(self, stored: list[Outcome]) -> list[Outcome]:
        """Return one outcome per report, in the order of the request."""
        by_position = {**self.refused, **dict(zip(self.positions, stored, strict=True))}
        return [by_position[i] for i in range(len(by_position))]


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

    def judge(self, envelope: Envelope) -> _Judgement:
        """Check every report against the round: the participant, the question and the payload."""
        campaign, plan, start = self.campaign_bytes, self.plan, self.start
        issued = self.participation == "tokens"
        arrival = self.assignment == "arrival"
        all_asked = arrival or (start == 0.0 and plan.population == 1.0)
        rows: list[Row] = []
        hashes: list[bytes] = []
        positions: list[int] = []
        refused: dict[int, Outcome] = {}
        for i, report in enumerate(envelope.reports):
            token = report.token
            if not all_asked and not is_asked(token, campaign, start, plan.population):
                refused[i] = Outcome.NOT_THIS_ROUND
                continue
            if report.question != pick(token, campaign, plan):
                refused[i] = Outcome.WRONG_QUESTION
                continue
            try:
                check_payload(plan, report.question, report.payload)
            except ReportError:
                refused[i] = Outcome.MALFORMED
                continue
            row_id = report_id(token, campaign, None if arrival else plan.round)
            rows.append(Row(row_id, report.question, report.payload))
            positions.append(i)
            if issued:
                hashes.append(token_hash(token))
        once = arrival and plan.round > 0
        batch = Batch(self.campaign, plan.round, rows, hashes if issued else None, once)
        return _Judgement(batch, positions, refused)


@dataclass(frozen=True)
class PublicCampaign:
    """A campaign as participants read it.

    It names the operator and the purpose, the public domain of a record (`schema`), who is
    asked (`assignment`), the share of places before the open round (`start`) and what that
    round asks (`plan`; null if no round is open). The round closes automatically at `wanted`
    reports, or at the time `round_closes` in seconds since 1970. `consumers` receive
    histograms of a number, each with its own bins; null for other methods. `epsilon_reason`
    says why the protection is not stronger, in the operator's words. `epoch` changes when the
    store was restored from a backup: devices then send again what was acknowledged before.
    All texts are in `language`; the collector's page also has the campaign's other languages.
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
    epoch: str
    language: str


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
        wanted=spec.reports_wanted(plan, round_.start),
        closes=round_.closes,
    )


def announcement(
    stored: StoredCampaign, spec: CampaignSpec, current: OpenRound | None, epoch: str = ""
) -> bytes:
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
        schema=spec.schema.in_language(spec.language).to_json(),
        schema_fingerprint=spec.schema.fingerprint,
        start=0.0 if current is None else current.start,
        plan=None if current is None else current.plan.to_json(),
        wanted=None if current is None else current.wanted,
        round_closes=None if current is None else current.closes,
        epoch=epoch,
        consumers=spec.consumers,  # type: ignore[arg-type]  # as `begin` completed them
        language=spec.language,
    )
    return json.dumps(vars(document), separators=(",", ":")).encode()
