"""The specification of a campaign: checks before anyone is asked, and each round's share.

Rounds ask different people, so each has a share of the campaign's reports and time: the
population that the method plans for it (`Plan.population`). A campaign of 1,000 expected
reports whose first round has a population of 5 % closes that round at 50. The last round
takes all who come, until the campaign's own end. The methods are pure: the time is an
argument.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic import WithJsonSchema as Described
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs, PydanticCustomError
from scipy.special import bdtrc, ndtr

from dither.checks import check_text
from dither.errors import ParameterError, PrivacyError
from dither.languages import LANGUAGES, SOURCE
from dither.methods import DEFAULT, HISTOGRAMS, MethodRun, start
from dither.methods.histogram.machine import HistogramMachine
from dither.randomness import public_seed
from dither.release import Call
from dither.reports import Plan
from dither.reports import limits as wire_limits
from dither.reports.plan import closing_seconds, closing_text
from dither.schema import Schema, schema_from_json
from dither.types import JsonObject

T = TypeVar("T")
Participation = Literal["open", "tokens"]
Assignment = Literal["arrival", "token"]
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_SLACK = 1e-6  # populations are floats
_LAST = 1 - 1e-9  # an end of a population this near to 1 is 1
_EXCESS_DEVIATIONS = 5
# A round's time is rounded up, because an exact one would tell when the previous round
# became full: to hours if more than two days are left, else to minutes.
_HOUR, _MINUTE, _TWO_DAYS = 3600.0, 60.0, 2 * 86_400.0


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


def _language(value: str) -> str:
    """Refuse a language that the pages do not speak."""
    if value not in LANGUAGES:
        raise PydanticCustomError(
            "language", "{message}", {"message": f"must be one of {', '.join(LANGUAGES)}"}
        )
    return value


def _read_schema(value: object) -> Schema:
    return value if isinstance(value, Schema) else schema_from_json(value)


Whole = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
PlainText = Annotated[str, AfterValidator(_plain)]
Line = Annotated[PlainText, AfterValidator(_line)]
_Prose = Annotated[str, Field(max_length=wire_limits.MAX_PURPOSE), AfterValidator(_prose)]
Closing = Annotated[str | None, AfterValidator(_closing)]
TextName = Literal["title", "purpose", "epsilon_reason"]
TEXTS: tuple[TextName, ...] = get_args(TextName)
_SPOKEN = Described(
    {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]}
)
_Title = Annotated[Line, Field(max_length=wire_limits.MAX_TITLE), _SPOKEN]
_Purpose = Annotated[_Prose, _SPOKEN]
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
class Texts:
    """A campaign's texts in another language than its own; an empty one is not translated."""

    title: _Title = ""
    purpose: _Purpose = ""
    epsilon_reason: _Purpose = ""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CampaignSpec:
    """The specification of a campaign.

    `seed` is used for the fit and the synthetic rows; participants draw their own noise. With
    `assignment` "arrival", participants are asked in the open round; with "token", each token
    belongs to one round, as in stored campaigns of earlier versions, which lack this field.
    Participants read `title`, `purpose` and `contact`,
    in `language`, and in the other languages that `translations` and the schema's texts have;
    a request may also give each of these texts as {language: text}. The campaign closes automatically
    after the day `closes` (UTC; or at that instant), or at `closes_at_reports` reports.
    `listed` shows it on the first page while it is open. `consumers` name who receives which
    bins of a number: each a number of bins, edges, or an object with name, bins, width or
    edges, and epsilon. `delete_reports_after` deletes reports and token hashes this many days
    after the release was made.
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
    title: _Title = ""
    purpose: _Purpose = ""
    epsilon_reason: _Purpose = ""
    contact: Annotated[Line, Field(max_length=wire_limits.MAX_CONTACT)] = ""
    assignment: Assignment = "token"
    closes: Closing = None
    closes_at_reports: (
        Annotated[int, Field(strict=True, ge=1, lt=wire_limits.MAX_NUMBER)] | None
    ) = None
    listed: Annotated[bool, Field(strict=True)] = False
    consumers: Consumers = None
    delete_reports_after: Annotated[int, Field(strict=True, ge=0, le=36_500)] | None = None
    language: Annotated[str, AfterValidator(_language)] = SOURCE
    translations: dict[Annotated[str, AfterValidator(_language)], Texts] = field(
        default_factory=dict
    )

    @model_validator(mode="before")
    @classmethod
    def _split_texts(cls, data: Any) -> Any:
        """Put texts that are given as {language: text} into `translations`."""
        given = data.kwargs if isinstance(data, ArgsKwargs) else data
        if not isinstance(given, Mapping):
            return data
        spoken = {name: given[name] for name in TEXTS if isinstance(given.get(name), Mapping)}
        translations = given.get("translations") or {}
        if not spoken or not isinstance(translations, Mapping):
            return data
        if not all(isinstance(texts, Mapping) for texts in translations.values()):
            return data
        out = {**given, "translations": {code: dict(t) for code, t in translations.items()}}
        for name, texts in spoken.items():
            own = given.get("language", SOURCE)
            first = next(iter(texts.values()), "")
            out[name] = texts.get(own, first)
            for code, text in texts.items():
                if code != own:
                    out["translations"].setdefault(code, {})[name] = text
        return out

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages in which participants can read it, its own first."""
        others = (*self.translations, *self.schema.languages)
        return tuple(dict.fromkeys((self.language, *(c for c in others if c in LANGUAGES))))

    def text(self, name: TextName, *languages: str) -> str:
        """Return title, purpose or reason in the first of these languages that it has."""
        for language in languages:
            if language == self.language:
                break
            if language in self.translations and getattr(self.translations[language], name):
                return str(getattr(self.translations[language], name))
        return str(getattr(self, name))

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Validate JSON.

        Raises:
            ParameterError: A key is missing, unknown or not valid; the message names it.
        """
        return read(cls, data)

    def to_json(self) -> dict[str, object]:
        return dict(TypeAdapter(CampaignSpec).dump_python(self))

    def call(self, rows: int, campaign: str = "", created: str = "", finalised: str = "") -> Call:
        """Return the call record from which a campaign like this can be created.

        It lacks the schema and the consumers, which are files of the release's folder, and
        `listed`, `delete_reports_after` and the languages, which do not affect the release.
        """
        left_out = (
            *("schema", "consumers", "listed", "delete_reports_after"),
            *("language", "translations"),
        )
        values = {
            f.name: getattr(self, f.name) for f in fields(CampaignSpec) if f.name not in left_out
        }
        values |= {"parameters": self.parameters or {}, "rows": rows, "campaign": campaign}
        values |= {"created": created, "finalised": finalised}
        return Call(**values)

    def begin(self) -> tuple[CampaignSpec, MethodRun, Plan]:
        """Start the protocol; return the campaign with all defaults filled in, and the first plan."""
        seed = public_seed(self.seed)
        _check_numbers(self.schema)
        given = _with_consumers(self)
        run = start(
            self.method, self.schema, self.epsilon, self.participants, given, seed, self.holdout
        )
        plan = run.plan()
        if plan is None:
            raise ParameterError(f"method {self.method!r} asks nothing", where="method")
        self.check_plan(plan, 0, 0.0)
        # The run may have grouped the values of a wide attribute; devices must know the groups.
        asked = replace(self, schema=run.campaign.schema, parameters=run.plain_parameters())
        machine = run.machine
        if isinstance(machine, HistogramMachine):
            # With the names and edges that participants see.
            asked = replace(asked, consumers=[consumer.to_json() for consumer in machine.consumers])
        return asked, run, plan

    def check_plan(self, plan: Plan, number: int, start_place: float) -> None:
        """Refuse a plan that exceeds epsilon, asks people twice, or exceeds the wire's limits."""
        if plan.round != number:
            raise ParameterError(
                f"the method calls its round {plan.round}, not {number}",
                where="round",
                value=plan.round,
            )
        if plan.epsilon > self.epsilon:
            raise PrivacyError(
                f"round {number} would spend epsilon {plan.epsilon}, more than {self.epsilon}",
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

    def reports_wanted(self, plan: Plan, start: float) -> int | None:
        """Return the number of reports at which a round closes, or None if no number closes it.

        The shares of all rounds add up to `closes_at_reports`. Without that limit, rounds
        filled by arrival have their share of the expected participants, except the last one,
        which refuses no participant.
        """
        total = self.closes_at_reports
        if total is None:
            if self.assignment == "token" or _is_last(plan, start):
                return None
            total = self.participants
        end = total if _is_last(plan, start) else round((start + plan.population) * total)
        return max(1, end - round(start * total))

    def round_closes(self, plan: Plan, start: float, now: float) -> float | None:
        """Return when a round that opens now closes, in seconds since 1970; None if no time does.

        The round's share of the remaining time is its share of the remaining people; the last
        round has all of it.
        """
        if self.closes is None:
            return None
        end = closing_seconds(self.closes)
        if _is_last(plan, start) or now >= end:
            return end
        share = plan.population / (1 - start)
        step = _HOUR if end - now > _TWO_DAYS else _MINUTE
        return min(end, math.ceil((now + share * (end - now)) / step) * step)

    def expected_reports(self, plan: Plan) -> int:
        """Return the expected number of a round's reports: its share of the participants."""
        return round(max(self.participants, self.closes_at_reports or 0) * plan.population)

    def has_excess(self, plan: Plan, reports: int) -> bool:
        """Return whether a round of an open campaign has more reports than chance explains.

        Anyone can invent tokens there, so one client can send any number of reports. Five
        standard deviations of a Poisson number are exceeded once in millions of honest rounds.
        """
        expected = self.expected_reports(plan)
        limit = expected + _EXCESS_DEVIATIONS * math.sqrt(expected)
        return self.participation == "open" and reports > limit

    def crowded_questions(self, plan: Plan, answers: Sequence[int]) -> list[int]:
        """Return the questions of an open campaign's round with more reports than chance explains.

        Tokens of honest participants divide a round's reports over its questions at random, with
        the plan's shares. Participants who invent tokens can concentrate on one question without
        adding much to the total.

        Args:
            plan: The round's plan.
            answers: The number of reports to each question.

        Returns:
            The indices of questions whose number of reports, or a larger one, has less than the
            probability of five standard deviations (2.9e-7, one-sided) under the binomial
            distribution of the round's total. A round of 1,000 questions without forged reports
            is flagged with a probability below 0.0003.
        """
        if self.participation != "open" or plan.split:
            return []
        total = sum(answers)
        rare = float(ndtr(-_EXCESS_DEVIATIONS))
        crowded = []
        for i, (share, count) in enumerate(zip(plan.shares, answers, strict=True)):
            # bdtrc(k, n, p) is the probability of more than k.
            if count > share * total and bdtrc(count - 1, total, share) < rare:
                crowded.append(i)
        return crowded


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NewCampaign(CampaignSpec):
    """A request to create a campaign; the first round of a draft is not open yet."""

    name: Annotated[Line, Field(max_length=200)] = ""
    assignment: Assignment = "arrival"

    draft: Annotated[bool, Field(strict=True)] = False


def _is_last(plan: Plan, start: float) -> bool:
    """Return whether all remaining people belong to this round."""
    return start + plan.population >= _LAST


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
