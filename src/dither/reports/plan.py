"""Questions, and the plan of a round. Standard library only.

A plan has the questions of a round. Either each participant answers one question, drawn
with the shares, or (`split`) each answers all of them. Its epsilon is that of one
participant who answers it.

Device and server compute from the participation token, 32 random bytes, which participant
answers which question. SHA-256 of a purpose, the token and the campaign gives:

- the report id, which a store keeps unique and which is the same for every retry. With the
  assignment "arrival" it covers the whole campaign, so a participant answers once;
  otherwise it differs between rounds;
- the participant's place in [0, 1). Rounds take disjoint ranges of places, so a participant
  answers in one round only;
- the question of a round, drawn with the plan's shares.

A retry therefore answers the same question, and a participant with an issued token cannot
choose one. (A server can, by the plan that it shows.) Places are 53-bit numbers, which a
browser represents exactly.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, get_args

from dither.checks import check_between, check_choice, check_whole
from dither.errors import DitherError, ParameterError, ReportError
from dither.mechanisms import Mechanism, mechanism, mechanism_from_json
from dither.reports import limits
from dither.schema import Attribute, Schema
from dither.schema.attribute import DAY, LAST_DAY, second_number, shown_instant

if TYPE_CHECKING:
    from dither.types import JsonObject

_DAY_LETTERS = len("2027-01-31")


def closing_text(given: object, *, error: type[DitherError] = ParameterError) -> str:
    """The canonical form of a closing time.

    Args:
        given: A day such as "2027-01-31", or an instant with or without an offset.
        error: The class to raise.

    Returns:
        The day, or the instant in UTC such as "2027-01-31T18:00:00Z".
    """
    seconds = second_number(given) if isinstance(given, str) else None
    if (
        not isinstance(given, str)
        or seconds is None
        or not seconds.is_integer()
        or not 0 <= seconds < LAST_DAY * DAY
    ):
        raise error(
            f"closes must be a day such as 2027-01-31 or an instant such as 2027-01-31T18:00:00Z, not {given!r}"[
                :200
            ],
            where="closes",
            value=given,
        )
    return given if len(given) == _DAY_LETTERS else f"{shown_instant(seconds)}Z"


def closing_seconds(text: str) -> float:
    """The closing time in seconds since 1970: the instant, or the end of the day."""
    seconds = second_number(closing_text(text))
    assert seconds is not None
    return seconds + DAY if len(text) == _DAY_LETTERS else seconds


_TallyKind = Literal["counts", "patterns"]
LEVEL_BITS = 32  # of the draw that rounds a number
_BITS = 53
_ALL_ROUNDS = 0xFFFFFFFF  # no round has this number
# Shares are floats: an end this close to 1 is 1, so that rounding excludes no participant.
_LAST = 1 - 1e-9


@dataclass(frozen=True)
class Question:
    """Attributes asked together, and the mechanism over their product domain.

    Cells are numbered with the last attribute fastest.

    Attributes:
        attributes: The names of the attributes.
        mechanism: The mechanism over the cells.
        grouped: Attributes of which the group is asked (a region) instead of the value (a city).
        rounded: Ask for one number, which the device rounds at random to a level (`level_of`);
            the mechanism's cells are the levels.
    """

    attributes: tuple[str, ...]
    mechanism: Mechanism
    grouped: tuple[str, ...] = ()
    rounded: bool = False

    def __post_init__(self) -> None:
        if self.rounded and (len(self.attributes) != 1 or self.grouped):
            raise ParameterError(
                "a question that rounds asks about one number", value=self.attributes
            )

    def cell(self, schema: Schema, codes: Sequence[float]) -> int:
        """The cell of one record.

        Args:
            schema: The schema of the record.
            codes: The codes of all attributes; of a rounded number its level.
        """
        if self.rounded:
            return int(codes[schema.index(self.attributes[0])])
        cell = 0
        for name in self.attributes:
            answer = self.answer(schema, name, int(codes[schema.index(name)]))
            cell = cell * self.width(schema, name) + answer
        return cell

    def answer(self, schema: Schema, name: str, code: int) -> int:
        """The answer for a code of one attribute: its group, or the code itself."""
        return schema[name].group_codes[code] if name in self.grouped else code

    def width(self, schema: Schema, name: str) -> int:
        """The number of answers of one attribute that the question distinguishes."""
        if self.rounded:
            return self.mechanism.cells
        attribute = schema[name]
        if name in self.grouped:
            return len(attribute.group_names) + int(attribute.missing)
        return attribute.cardinality

    def to_json(self) -> JsonObject:
        out: JsonObject = {
            "attributes": list(self.attributes),
            "mechanism": self.mechanism.to_json(),
        }
        if self.grouped:
            out["grouped"] = list(self.grouped)
        if self.rounded:
            out["rounded"] = True
        return out


@dataclass(frozen=True)
class Plan:
    """One round: its questions, their shares of the participants, and the kind of tally.

    `population` is the round's share of all participants of the campaign. Rounds ask disjoint
    groups, so a participant's epsilon is the largest of the rounds, never their sum.
    """

    round: int
    questions: tuple[Question, ...]
    shares: tuple[float, ...] = ()
    split: bool = False
    population: float = 1.0
    tally: _TallyKind = "counts"

    def __post_init__(self) -> None:
        check_whole("round", self.round, 0, limits.MAX_ROUNDS - 1)
        if not self.questions:
            raise ParameterError("a plan needs at least one question")
        if self.split == bool(self.shares):
            raise ParameterError("a plan has either shares, one per question, or split")
        if self.shares and (
            len(self.shares) != len(self.questions)
            or any(not math.isfinite(s) or s < 0 for s in self.shares)
            or abs(sum(self.shares) - 1) > 1e-9
        ):
            raise ParameterError(
                "a plan's shares must be one for each question, not negative, and add up to 1",
                value=self.shares,
            )
        if not self.split and self.tally != "counts":
            raise ParameterError("only a split plan has bits of several questions in one report")
        if self.split and len({frozenset(q.attributes) for q in self.questions}) < len(
            self.questions
        ):
            raise ParameterError(
                "a split plan asks every participant all questions, so it cannot ask a set of attributes twice"
            )
        if self.split and (repeated := _repeated_reshaped(self.questions)):
            raise ParameterError(
                f"a split plan asks about {', '.join(repeated)} rounded or grouped and once more; "
                "ask a rounded or grouped attribute in one question only",
                value=repeated,
            )
        check_choice("tally", self.tally, get_args(_TallyKind))
        check_between("population", self.population, 0, 1, ends="(]")

    @cached_property
    def epsilon(self) -> float:
        """The epsilon of one participant: the sum if split, else the largest question's."""
        parts = [q.mechanism.epsilon for q in self.questions]
        if not self.split:
            return max(parts)
        total = math.fsum(parts)
        return math.nextafter(total, math.inf) if len(parts) > 1 else total

    @cached_property
    def share_ends(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """The upper ends in [0, 1) of the questions' ranges, and the questions' numbers."""
        ends, numbers, total = [], [], 0.0
        for i, share in enumerate(self.shares):
            total += share
            if share > 0:
                ends.append(total)
                numbers.append(i)
        return tuple(ends), tuple(numbers)

    @cached_property
    def report_offsets(self) -> tuple[int, ...]:
        """For split plans: the start of each question's bytes in a report, then the length."""
        return tuple(accumulate((q.mechanism.report_bytes for q in self.questions), initial=0))

    def to_json(self) -> JsonObject:
        return {
            "round": self.round,
            "questions": [q.to_json() for q in self.questions],
            "shares": list(self.shares),
            "split": self.split,
            "population": self.population,
            "tally": self.tally,
        }


def _repeated_reshaped(questions: Sequence[Question]) -> list[str]:
    """The attributes that one question rounds or groups and another question asks too."""
    counts = Counter(name for question in questions for name in question.attributes)
    reshaped = {n for q in questions for n in (q.attributes if q.rounded else q.grouped)}
    return sorted(name for name in reshaped if counts[name] > 1)


def plan_from_json(data: object) -> Plan:
    """Rebuild a plan; the epsilon of every mechanism is recomputed from its integers.

    Raises:
        ReportError: The JSON is not a plan. Numbers written as text are rejected.
    """
    if not isinstance(data, dict):
        raise ReportError("not a plan this version can read: it must be a JSON object", value=data)
    made: dict[str, Mechanism] = {}
    try:
        if not isinstance(data["split"], bool):
            raise ReportError("split must be true or false")
        return Plan(
            data["round"],
            tuple(_question(entry, made) for entry in _listed(data, "questions")),
            tuple(_number("a share", share) for share in _listed(data, "shares")),
            data["split"],
            _number("population", data["population"]),
            data["tally"],
        )
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise ReportError(
            f"not a plan this version can read: {error!r}"[:300], value=data
        ) from None


def _question(entry: Any, made: dict[str, Mechanism]) -> Question:
    """Read a question; equal mechanisms of a plan are built once."""
    names = _listed(entry, "attributes")
    if not all(isinstance(name, str) for name in names):
        raise ReportError("a question's attributes must be names")
    key = json.dumps(entry["mechanism"], sort_keys=True)
    if key not in made:
        made[key] = mechanism_from_json(entry["mechanism"])
    grouped = _listed(entry, "grouped") if "grouped" in entry else []
    asked = frozenset(names)  # a server chooses how long both lists are
    fits = all(isinstance(name, str) and name in asked for name in grouped) and len(
        set(grouped)
    ) == len(grouped)
    if not fits or ("grouped" in entry and not grouped):
        raise ReportError("what a question groups must be some of its attributes, each once")
    if entry.get("rounded", True) is not True:
        raise ReportError("a question says that it rounds, or nothing about it")
    return Question(tuple(names), made[key], tuple(grouped), "rounded" in entry)


def _listed(entry: Any, key: str) -> list[Any]:
    entries = entry[key]
    if not isinstance(entries, list):
        raise ReportError(f"the plan's {key} must be a list")
    return entries


def _number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ReportError(f"{what} must be a number")
    return float(value)


def question(
    schema: Schema, attributes: Sequence[str], epsilon: float, mechanism_name: str = "best"
) -> Question:
    """A question over the product domain of some attributes.

    Args:
        schema: The schema of the attributes.
        attributes: The attributes' names.
        epsilon: The largest epsilon of one answer.
        mechanism_name: A mechanism's name; by default the most accurate one.
    """
    return Question(tuple(attributes), mechanism(mechanism_name, schema.cells(attributes), epsilon))


def level_of(attribute: Attribute, number: float, levels: int, draw: int) -> int | None:
    """The level to which a draw of 32 bits rounds a number.

    Levels 0 to levels-1 are evenly spaced over the attribute's range. Their mean over all draws
    is the number, to within 2^-32 of a step. The guarantee does not depend on the rounding.

    Returns:
        The level; None if the number is out of range and the attribute does not clip.
    """
    low, high = attribute.edges[0], attribute.edges[-1]
    if attribute.clip:
        number = min(max(number, low), high)
    if not low <= number <= high:
        return None
    place = (number - low) / (high - low) * (levels - 1)
    level = min(int(place), levels - 2)
    return level + int(draw < (place - level) * 2**LEVEL_BITS)


def report_id(token: bytes, campaign: bytes, number: int | None) -> bytes:
    """SHA-256 of token, campaign and round; without a round one id for the whole campaign."""
    return _digest(b"report", token, campaign, _ALL_ROUNDS if number is None else number)


def token_hash(token: bytes) -> bytes:
    """The hash of an issued token, which a server stores instead of the token.

    Without the token no report can be linked to the hash.
    """
    return hashlib.sha256(b"dither-1:token\0" + token).digest()


def place(token: bytes, campaign: bytes) -> float:
    """The participant's place in [0, 1) in a campaign, the same in every round."""
    return _fraction(_digest(b"place", token, campaign, 0))


def is_asked(token: bytes, campaign: bytes, start: float, population: float) -> bool:
    """Whether a round with the places from `start` to `start + population` asks a participant."""
    end = start + population
    return start <= place(token, campaign) < (1.0 if end >= _LAST else end)


def pick(token: bytes, campaign: bytes, plan: Plan) -> int:
    """The question that this participant answers in a round; -1 for all of a split plan."""
    if plan.split:
        return -1
    point = _fraction(_digest(b"question", token, campaign, plan.round))
    ends, numbers = plan.share_ends
    # Shares are floats and may end just below 1: a point beyond the last end gets the last
    # question.
    return numbers[min(bisect_right(ends, point), len(ends) - 1)]


def check_payload(plan: Plan, question: int, payload: bytes) -> None:
    """Check that a payload is a possible answer to a question (-1: to all of a split plan).

    Raises:
        ReportError: It is not.
    """
    if plan.split != (question == -1) or question >= len(plan.questions):
        raise ReportError(f"the plan has no question {question}", value=question)
    if question >= 0:
        plan.questions[question].mechanism.check_report(payload)
        return
    offsets = plan.report_offsets
    if len(payload) != offsets[-1]:
        raise ReportError(
            f"a report of {offsets[-1]} bytes was expected, not {len(payload)}", value=len(payload)
        )
    for i, asked in enumerate(plan.questions):
        asked.mechanism.check_report(payload[offsets[i] : offsets[i + 1]])


def _digest(purpose: bytes, token: bytes, campaign: bytes, number: int) -> bytes:
    return hashlib.sha256(
        b"dither-1:" + purpose + b"\0" + token + campaign + number.to_bytes(4, "little")
    ).digest()


def _fraction(digest: bytes) -> float:
    return (int.from_bytes(digest[:8], "big") >> (64 - _BITS)) / (1 << _BITS)
