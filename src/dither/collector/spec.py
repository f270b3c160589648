"""What a campaign is created from, as an operator writes it and a store keeps it, and what is checked before anybody is asked."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)
from pydantic import WithJsonSchema as Described
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from dither.checks import check_text
from dither.client.announcement import read_announcement
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.methods import DEFAULT, HISTOGRAMS, MethodRun, start
from dither.methods.histogram.machine import HistogramMachine
from dither.randomness import public_seed
from dither.release import Call
from dither.reports import Plan, limits
from dither.reports.plan import closing_text
from dither.schema import Schema, schema_from_json
from dither.types import JsonObject

T = TypeVar("T")
Participation = Literal["open", "tokens"]
Assignment = Literal["arrival", "token"]
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_SLACK = 1e-6  # populations are floats


def read(kind: type[T], data: object) -> T:
    """JSON as a record of this kind, nothing left out and nothing more; the error names the key at fault."""
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:100] or "the body"
        said = "unknown key" if first["type"] == "unexpected_keyword_argument" else first["msg"]
        raise ParameterError(f"{where}: {said}", where=where) from None


def _plain(value: object) -> object:
    """What files, tables and databases can all hold."""
    if isinstance(value, str):
        if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
            raise PydanticCustomError(
                "plain", "must be text without NUL and without half a surrogate pair"
            )
    elif not (
        value is None
        or (isinstance(value, int) and -(2**63) <= value < 2**63)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        raise PydanticCustomError(
            "plain", "must be text, a whole number of at most 64 bits or a finite number"
        )
    return value


def _line(value: str) -> str:
    """What a terminal can show in a list."""
    if not value.isprintable():
        raise PydanticCustomError("line", "must be one line of printable text")
    return value


def _told(value: str) -> str:
    """What a page can show to people, in several lines."""
    try:
        return check_text("it", value, limits.MAX_PURPOSE, lines=True)
    except ParameterError:
        raise PydanticCustomError("told", "must be text without control characters") from None


def _closing(value: str | None) -> str | None:
    try:
        return None if value is None else closing_text(value)
    except ParameterError as error:
        raise PydanticCustomError(
            "closing", "{said}", {"said": str(error).replace("closes must", "must")}
        ) from None


def _read_schema(value: object) -> Schema:
    return value if isinstance(value, Schema) else schema_from_json(value)


Whole = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
PlainText = Annotated[str, AfterValidator(_plain)]
Line = Annotated[PlainText, AfterValidator(_line)]
Told = Annotated[str, Field(max_length=limits.MAX_PURPOSE), AfterValidator(_told)]
Closing = Annotated[str | None, AfterValidator(_closing)]
PlainValue = Annotated[
    object, AfterValidator(_plain), Described({"type": ["string", "number", "boolean", "null"]})
]
_CONSUMERS = {"type": ["array", "null"], "items": {"type": ["integer", "array", "object"]}}
Consumers = Annotated[list[object] | None, Described(_CONSUMERS)]
_SCHEMA = {
    "type": "object",
    "description": "The public domain of each attribute, in the form of a schema file.",
}


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CampaignSpec:
    """A campaign before anybody is asked. The seed, if one was given, is that of the fit and of the synthetic rows; participants
    draw their own noise, which no seed of a server reaches.

    Whoever arrives is asked in the round that is open (`assignment` "arrival"), or each token belongs to one round ("token":
    how campaigns of earlier versions went, hence what a stored one without this field has). People read the `title`, the
    `purpose` and the `contact`. It closes by itself when the day `closes` is over (UTC; or at that instant), or when it has
    `closes_at_reports` reports. `listed` puts it on the collector's first page while it is open. `consumers` say who gets which
    bins of a number that is asked for: a number of bins, edges, or an object of name, bins, width or edges, and epsilon, each.
    """

    name: Annotated[PlainText, Field(max_length=200)] = ""
    schema: Annotated[
        Schema,
        PlainValidator(_read_schema),
        PlainSerializer(Schema.to_json, return_type=dict),
        Described(_SCHEMA),
    ]
    epsilon: Annotated[float, Field(strict=True, gt=0)]
    method: str = DEFAULT
    participants: Annotated[Whole, Field(ge=1)]
    parameters: dict[PlainText, PlainValue] | None = None
    seed: Whole | None = None
    participation: Participation = "open"
    holdout: Annotated[float, Field(strict=True, ge=0, lt=1)] = 0.0
    title: Annotated[Line, Field(max_length=limits.MAX_TITLE)] = ""
    purpose: Told = ""
    epsilon_reason: Told = ""
    contact: Annotated[Line, Field(max_length=limits.MAX_CONTACT)] = ""
    assignment: Assignment = "token"
    closes: Closing = None
    closes_at_reports: Annotated[int, Field(strict=True, ge=1, lt=limits.MAX_NUMBER)] | None = None
    listed: Annotated[bool, Field(strict=True)] = False
    consumers: Consumers = None

    def to_json(self) -> dict[str, object]:
        return dict(TypeAdapter(CampaignSpec).dump_python(self))

    def call(self, rows: int, campaign: str = "", created: str = "", finalised: str = "") -> Call:
        """The record from which a campaign like it is created: every field but the schema and the consumers, which stand in the
        release's folder, and where the campaign was listed, which is no part of it."""
        apart = ("schema", "consumers", "listed")
        own = {f.name: getattr(self, f.name) for f in fields(CampaignSpec) if f.name not in apart}
        days = {"created": created, "finalised": finalised}
        return Call(
            **own | {"parameters": self.parameters or {}, "rows": rows, "campaign": campaign} | days
        )


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NewCampaign(CampaignSpec):
    """What an operator sends to create one; a draft's first round is not open yet."""

    name: Annotated[Line, Field(max_length=200)] = ""
    assignment: Assignment = "arrival"

    draft: Annotated[bool, Field(strict=True)] = False


def begin(spec: CampaignSpec) -> tuple[CampaignSpec, MethodRun, Plan]:
    """The protocol at its first round, and the campaign with every parameter spelt out."""
    seed = public_seed(spec.seed)
    _check_numbers(spec.schema)
    given = _with_consumers(spec)
    run = start(
        spec.method, spec.schema, spec.epsilon, spec.participants, given, seed, spec.holdout
    )
    plan = run.plan()
    if plan is None:
        raise ParameterError(f"method {spec.method!r} asks nothing", where="method")
    check_plan(plan, spec, 0, 0.0)
    # The run's schema: it may have cut a wide attribute into groups, which devices have to know.
    asked = replace(spec, schema=run.campaign.schema, parameters=run.plain_parameters())
    machine = run.machine
    if isinstance(machine, HistogramMachine):
        # The names and edges that participants see, spelt out once for all readers.
        asked = replace(asked, consumers=[consumer.to_json() for consumer in machine.consumers])
    return asked, run, plan


def _with_consumers(spec: CampaignSpec) -> JsonObject:
    """The method's parameters with the consumers in them, if there are any."""
    given = dict(spec.parameters or {})
    if spec.consumers is None:
        return given
    if spec.method not in HISTOGRAMS:
        raise ParameterError(
            f"method {spec.method!r} has no consumers; choose one of {', '.join(HISTOGRAMS)}",
            where="consumers",
        )
    if "consumers" in given:
        raise ParameterError(
            "consumers are named on their own, not among the parameters", where="consumers"
        )
    return given | {"consumers": json.dumps(spec.consumers)}


def check_plan(plan: Plan, spec: CampaignSpec, number: int, start_place: float) -> None:
    """Refuse a plan that spends too much, asks people twice or does not fit on the wire, before anybody sees it."""
    if plan.round != number:
        raise ParameterError(
            f"the method calls its round {plan.round}, not {number}",
            where="round",
            value=plan.round,
        )
    if plan.epsilon > spec.epsilon:
        raise PrivacyError(
            f"round {number} would spend epsilon {plan.epsilon}, more than {spec.epsilon}",
            where="epsilon",
        )
    if start_place + plan.population > 1 + _SLACK:
        raise PrivacyError(
            f"round {number} would ask people of earlier rounds again", where="population"
        )
    if len(plan.questions) >= limits.MAX_QUESTIONS:
        raise ParameterError(
            f"round {number} has {len(plan.questions):,} questions, too many for one plan",
            where="questions",
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
        schema, plan = (
            len(json.dumps(parts[key], separators=(",", ":"))) for key in ("schema", "plan")
        )
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
        raise ParameterError(
            f"no device would answer round {number}: {error}", where=error.where
        ) from None


def _check_numbers(schema: Schema) -> None:
    """Refuse whole numbers that a browser would take for others: its numbers are doubles, exact below 2^53 only."""
    for attribute in schema:
        for number in (*attribute.values, *attribute.edges, *attribute.atoms):
            if isinstance(number, int) and abs(number) >= limits.MAX_NUMBER:
                raise ParameterError(
                    f"attribute {attribute.name!r} has a whole number of 2^53 or more, which browsers cannot tell from its "
                    "neighbours; write values as text, edges with a decimal point",
                    where=attribute.name,
                )
