"""An uploaded envelope becomes rows for the store, each report judged on its own; what is refused has a named reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dither.collector.store import Batch, Outcome, Row
from dither.errors import ReportError
from dither.reports import Envelope, Plan
from dither.reports.assignment import check_payload, is_asked, pick, report_id, token_hash

Participation = Literal["open", "tokens"]


@dataclass(frozen=True)
class OpenRound:
    """What intake needs to know of the round that takes reports now."""

    campaign: str
    campaign_bytes: bytes
    plan: Plan
    start: float
    participation: Participation


@dataclass(frozen=True)
class Judged:
    """The reports that may be stored, where each came in the request, and the outcome of those that may not."""

    batch: Batch
    positions: list[int]
    refused: dict[int, Outcome]

    def outcomes(self, stored: list[Outcome]) -> list[Outcome]:
        """One outcome a report, in the order of the request."""
        found = {**self.refused, **dict(zip(self.positions, stored, strict=True))}
        return [found[i] for i in range(len(found))]


def judge(envelope: Envelope, current: OpenRound) -> Judged:
    """Check every report against the round: the participant's place, its question and the bytes of the answer."""
    rows: list[Row] = []
    hashes: list[bytes] = []
    positions: list[int] = []
    refused: dict[int, Outcome] = {}
    everyone = current.start == 0.0 and current.plan.population == 1.0
    for i, report in enumerate(envelope.reports):
        token, campaign, plan = report.token, current.campaign_bytes, current.plan
        if not everyone and not is_asked(token, campaign, current.start, plan.population):
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
        rows.append(Row(report_id(token, campaign, plan.round), report.question, report.payload))
        positions.append(i)
        if current.participation == "tokens":
            hashes.append(token_hash(token))
    batch = Batch(current.campaign, current.plan.round, rows, hashes if current.participation == "tokens" else None)
    return Judged(batch, positions, refused)
