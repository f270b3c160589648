"""The specification of a campaign, and the checks before any participant is asked."""

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
from dither.reports import Plan
from dither.reports import limits as wire_limits
from dither.reports.plan import closing_text
from dither.schema import Schema, schema_from_json
from dither.types import JsonObject

T = TypeVar("T")
Participation = Literal["open", "tokens"]
Assignment = Literal["arrival", "token"]
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_SLACK = 1e-6  # populations are floats


def read(kind: type[T], data: object) -> T:
    """Validate JSON as a dataclass of this type.

    Raises:
        ParameterError: A key is missing, unknown or not valid; the message names it.
    """
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:100] or "the body"
        unknown = first["type"] == "unexpected_keyword_argument"
        message = "unknown key" if unknown else first["msg"]
        raise ParameterError(f"{where}: {message}", where=where) from None


def _plain(value: object) -> object:
    """Refuse values that files, tables or databases cannot hold."""
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
    """Refuse text that is not one printable line."""
    if not value.isprintable():
        raise PydanticCustomError("line", "must be one line of printable text")
    return value


def _prose(value: str) -> str:
    """Refuse text that a page cannot show; several lines are allowed."""
    try:
        return check_text("it", value, wire_limits.MAX_PURPOSE, lines=True)
    except ParameterError:
        raise PydanticCustomError("prose", "must be text without control characters") from None


def _closing(value: str | None) -> str | None:
    try:
        return None if value is None else closing_text(value)
    except ParameterError as error:
        raise PydanticCustomError(
            "closing", "{message}", {"message": str(error).replace("closes must", "must")}
        ) from None


def _read_schema(value: object) -> Schema:
    return value if isinstance(value, Schema) else schema_from_json(value)


Whole = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
PlainText = Annotated[str, AfterValidator(_plain)]
Line = Annotated[PlainText, AfterValidator(_line)]
_Prose = Annotated[str, Field(max_length=wire_limits.MAX_PURPOSE), AfterValidator(_prose)]
Closing = Annotated[str | None, AfterValidator(_closing)]
_PlainValue = Annotated[
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
    """The specification of a campaign.

    `seed` is used for the fit and the synthetic rows; participants draw their own noise. With
    `assignment` "arrival", participants are asked in the open round; with "token", each token
    belongs to one round, as in stored campaigns of earlier versions, which lack this field.
    Participants read `title`, `purpose` and `contact`. The campaign closes automatically
    after the day `closes` (UTC; or at that instant), or at `closes_at_reports` reports.
    `listed` shows it on the first page while it is open. `consumers` name who receives which
    bins of a number: each a number of bins, edges, or an object with name, bins, width or
    edges, and epsilon.
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
    parameters: dict[PlainText, _PlainValue] | None = None
    seed: Whole | None = None
    participation: Participation = "open"
    holdout: Annotated[float, Field(strict=True, ge=0, lt=1)] = 0.0
    title: Annotated[Line, Field(max_length=wire_limits.MAX_TITLE)] = ""
    purpose: _Prose = ""
    epsilon_reason: _Prose = ""
    contact: Annotated[Line, Field(max_length=wire_limits.MAX_CONTACT)] = ""
    assignment: Assignment = "token"
    closes: Closing = None
    closes_at_reports: (
        Annotated[int, Field(strict=True, ge=1, lt=wire_limits.MAX_NUMBER)] | None
    ) = None
    listed: Annotated[bool, Field(strict=True)] = False
    consumers: Consumers = None

    def to_json(self) -> dict[str, object]:
        return dict(TypeAdapter(CampaignSpec).dump_python(self))

    def call(self, rows: int, campaign: str = "", created: str = "", finalised: str = "") -> Call:
        """Return the call record from which a campaign like this can be created.

        It lacks the schema and the consumers, which are files of the release's folder, and
        `listed`, which does not affect the release.
        """
        left_out = ("schema", "consumers", "listed")
        values = {
            f.name: getattr(self, f.name) for f in fields(CampaignSpec) if f.name not in left_out
        }
        values |= {"parameters": self.parameters or {}, "rows": rows, "campaign": campaign}
        values |= {"created": created, "finalised": finalised}
        return Call(**values)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NewCampaign(CampaignSpec):
    """A request to create a campaign; the first round of a draft is not open yet."""

    name: Annotated[Line, Field(max_length=200)] = ""
    assignment: Assignment = "arrival"

    draft: Annotated[bool, Field(strict=True)] = False


def begin(spec: CampaignSpec) -> tuple[CampaignSpec, MethodRun, Plan]:
    """Start the protocol; return the campaign with all defaults filled in, and the first plan."""
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
    # The run may have grouped the values of a wide attribute; devices must know the groups.
    asked = replace(spec, schema=run.campaign.schema, parameters=run.plain_parameters())
    machine = run.machine
    if isinstance(machine, HistogramMachine):
        # With the names and edges that participants see.
        asked = replace(asked, consumers=[consumer.to_json() for consumer in machine.consumers])
    return asked, run, plan


def _with_consumers(spec: CampaignSpec) -> JsonObject:
    """Return the method's parameters, including the consumers."""
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
            "give consumers separately, not among the parameters", where="consumers"
        )
    return given | {"consumers": json.dumps(spec.consumers)}


def check_plan(plan: Plan, spec: CampaignSpec, number: int, start_place: float) -> None:
    """Refuse a plan that exceeds epsilon, asks people twice, or exceeds the wire's limits."""
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
    if len(plan.questions) >= wire_limits.MAX_QUESTIONS:
        raise ParameterError(
            f"round {number} has {len(plan.questions):,} questions, too many for one plan",
            where="questions",
        )
    lengths = [q.mechanism.report_bytes for q in plan.questions]
    longest = sum(lengths) if plan.split else max(lengths)
    if longest > wire_limits.REPORT_BYTES:
        raise ParameterError(
            f"round {number} asks for reports of {longest:,} bytes; the limit is "
            f"{wire_limits.REPORT_BYTES:,}. Use fewer cells or another mechanism",
            where="mechanism",
            value=longest,
        )


def check_announced(announcement: bytes, number: int) -> None:
    """Refuse an announcement that devices would refuse, by the check that they use."""
    if len(announcement) > wire_limits.PLAN_BYTES:
        parts = json.loads(announcement)
        schema, plan = (
            len(json.dumps(parts[key], separators=(",", ":"))) for key in ("schema", "plan")
        )
        raise ParameterError(
            f"round {number} would be announced in {len(announcement):,} bytes: {schema:,} of the "
            f"schema, {plan:,} of a plan of {len(parts['plan']['questions']):,} questions. Devices "
            f"read at most {wire_limits.PLAN_BYTES:,}; use shorter names and values, fewer attributes "
            "or another method",
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
    """Refuse whole numbers of 2^53 or more: browsers' numbers are doubles."""
    for attribute in schema:
        for number in (*attribute.values, *attribute.edges, *attribute.atoms):
            if isinstance(number, int) and abs(number) >= wire_limits.MAX_NUMBER:
                raise ParameterError(
                    f"attribute {attribute.name!r} has a whole number of 2^53 or more, which "
                    "browsers cannot tell from its neighbours; write values as text, edges with a "
                    "decimal point",
                    where=attribute.name,
                )
