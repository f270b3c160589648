"""What a campaign is created from, as an operator writes it and a store keeps it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from dither.client.announcement import read_announcement
from dither.collector.store import Batch, Outcome, Row
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.protocols import DEFAULT, ProtocolMachine, start
from dither.randomness import public_seed
from dither.reports import Envelope, Plan, limits
from dither.reports.assignment import check_payload, is_asked, pick, report_id, token_hash
from dither.schema import Schema, schema_from_json

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


_KEYS = ("name", "schema", "epsilon", "method", "participants", "parameters", "seed", "participation", "holdout")
_SLACK = 1e-6  # populations are floats


@dataclass(frozen=True)
class CampaignSpec:
    """A campaign before anybody is asked. The seed, if one was given, is that of the fit and of the synthetic rows; participants
    draw their own noise, which no seed of a server reaches."""

    name: str
    schema: Schema
    epsilon: float
    method: str
    participants: int
    parameters: dict[str, Any]
    seed: int | None
    participation: Participation
    holdout: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "schema": self.schema.to_json(),
            "epsilon": self.epsilon,
            "method": self.method,
            "participants": self.participants,
            "parameters": self.parameters,
            "seed": self.seed,
            "participation": self.participation,
            "holdout": self.holdout,
        }


def spec_from_json(data: object) -> CampaignSpec:
    """Read a campaign's description; an error names the key at fault."""
    if not isinstance(data, dict):
        raise ParameterError("a campaign must be a JSON object", value=data)
    unknown = sorted(str(key) for key in data if key not in _KEYS)
    if unknown:
        raise ParameterError(f"unknown key {unknown[0]!r}; a campaign has {', '.join(_KEYS)}", where=unknown[0])
    for key in ("schema", "epsilon", "participants"):
        if key not in data:
            raise ParameterError(f"a campaign needs {key!r}", where=key)
    name, method = data.get("name", ""), data.get("method", DEFAULT)
    if not isinstance(name, str) or len(name) > 200 or "\0" in name or not _is_plain(name):
        raise ParameterError("the name must be text of at most 200 characters", where="name", value=name)
    if not isinstance(method, str):
        raise ParameterError(f"the method must be a name, not {method!r}", where="method", value=method)
    parameters = {} if data.get("parameters") is None else data["parameters"]
    if not isinstance(parameters, dict):
        raise ParameterError("parameters must be an object", where="parameters", value=parameters)
    for key, value in parameters.items():
        if not _is_plain(key) or not _is_plain(value):
            raise ParameterError(
                f"parameter {key!r} must be text, a whole number of at most 64 bits or a finite number",
                where="parameters",
                value=value,
            )
    participation = data.get("participation", "open")
    if participation not in ("open", "tokens"):
        raise ParameterError(f"participation must be open or tokens, not {participation!r}", where="participation")
    epsilon = data["epsilon"]
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not _is_plain(epsilon) or epsilon <= 0:
        raise ParameterError("epsilon must be a finite number above 0", where="epsilon", value=epsilon)
    return CampaignSpec(
        name=name,
        schema=schema_from_json(data["schema"]),
        epsilon=float(epsilon),
        method=method,
        participants=_whole("participants", data["participants"], 1),
        parameters=parameters,
        seed=None if data.get("seed") is None else _whole("seed", data["seed"], 0),
        participation=participation,
        holdout=_share("holdout", data.get("holdout", 0.0)),
    )


def _share(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise ParameterError(f"{key} must be a share of at least 0 and below 1", where=key, value=value)
    return float(value)


def begin(spec: CampaignSpec) -> tuple[CampaignSpec, ProtocolMachine, Plan]:
    """The protocol at its first round, and the campaign with every parameter spelt out."""
    seed = public_seed(spec.seed)
    _check_numbers(spec.schema)
    machine = start(spec.method, spec.schema, spec.epsilon, spec.participants, spec.parameters, seed, spec.holdout)
    plan = machine.plan()
    if plan is None:
        raise ParameterError(f"method {spec.method!r} asks nothing", where="method")
    check_plan(plan, spec, 0, 0.0)
    return replace(spec, parameters=machine.plain_parameters()), machine, plan


def check_plan(plan: Plan, spec: CampaignSpec, number: int, start_place: float) -> None:
    """Refuse a plan that spends too much, asks people twice or does not fit on the wire, before anybody sees it."""
    if plan.round != number:
        raise ParameterError(f"the method calls its round {plan.round}, not {number}", where="round", value=plan.round)
    if plan.epsilon > spec.epsilon:
        raise PrivacyError(
            f"round {number} would spend epsilon {plan.epsilon}, more than {spec.epsilon}", where="epsilon"
        )
    if start_place + plan.population > 1 + _SLACK:
        raise PrivacyError(f"round {number} would ask people of earlier rounds again", where="population")
    if len(plan.questions) >= limits.MOST_QUESTIONS:
        raise ParameterError(
            f"round {number} has {len(plan.questions):,} questions, too many for one plan", where="questions"
        )
    lengths = [q.mechanism.report_bytes for q in plan.questions]
    longest = sum(lengths) if plan.split else max(lengths)
    if longest > limits.REPORT_BYTES:
        raise ParameterError(
            f"round {number} asks for reports of {longest:,} bytes; at most {limits.REPORT_BYTES:,} travel. "
            "Use fewer cells or another mechanism",
            where="mechanism",
            value=longest,
        )


def check_announced(announcement: bytes, number: int) -> None:
    """Refuse what no device would read, by the very check that a device makes."""
    if len(announcement) > limits.PLAN_BYTES:
        parts = json.loads(announcement)
        schema, plan = (len(json.dumps(parts[key], separators=(",", ":"))) for key in ("schema", "plan"))
        raise ParameterError(
            f"round {number} would be announced in {len(announcement):,} bytes: {schema:,} of the schema, {plan:,} of a plan of "
            f"{len(parts['plan']['questions']):,} questions. Devices read at most {limits.PLAN_BYTES:,}; use shorter names and "
            "values, fewer attributes or another method",
            where="schema" if schema > plan else "questions",
            value=len(announcement),
        )
    try:
        read_announcement(announcement)
    except ReportError as error:
        raise ParameterError(f"no device would answer round {number}: {error}", where=error.where) from None


def _check_numbers(schema: Schema) -> None:
    """Refuse whole numbers that a browser would take for others: its numbers are doubles, exact below 2^53 only."""
    for attribute in schema:
        for number in (*attribute.values, *attribute.edges):
            if isinstance(number, int) and abs(number) >= limits.MOST_NUMBER:
                raise ParameterError(
                    f"attribute {attribute.name!r} has a whole number of 2^53 or more, which browsers cannot tell from its "
                    "neighbours; write values as text, edges with a decimal point",
                    where=attribute.name,
                )


def _is_plain(value: object) -> bool:
    """Whether files, tables and databases can all hold it: text without half a surrogate pair, 64 bits, no infinity."""
    if isinstance(value, str):
        return not any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return value is None or (isinstance(value, float) and math.isfinite(value))


def _whole(key: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise ParameterError(f"{key} must be a whole number from {least} to 2^63 - 1", where=key, value=value)
    return value
