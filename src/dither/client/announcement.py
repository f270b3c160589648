"""The announcement of a campaign, checked before a device uses it.

Nothing in it is trusted: epsilon is recomputed from the mechanisms' integers, the
fingerprint from the schema, and every question must fit the schema and the limits of a
device. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dither.checks import check_text, check_whole, is_finite
from dither.errors import DitherError, PrivacyError, ReportError
from dither.mechanisms import DRAW_WIDTHS, device_work, list_fields
from dither.reports import Plan, Question, limits, plan_from_json
from dither.reports.plan import closing_seconds, closing_text, is_asked, place, report_id
from dither.schema import Schema, schema_from_json

if TYPE_CHECKING:
    from dither.types import JsonObject

_FORMAT = "dither-campaign-1"
_STATES = ("draft", "open", "closing", "collected", "finalised")
_PARTICIPATION = ("open", "tokens")
_ASSIGNMENT = ("arrival", "token")


@dataclass(frozen=True)
class _AnnouncedConsumer:
    """A recipient of a histogram of the requested number: name, bin edges and own epsilon, if any."""

    name: str
    edges: tuple[float, ...]
    epsilon: float | None = None


@dataclass(frozen=True)
class Announcement:
    """A campaign as a participant sees it.

    `title`, `purpose`, `contact`, `epsilon_reason` and the texts in the `schema` are written by
    the campaign, for people to read; the device trusts none of them.

    Attributes:
        plan: The plan of the open round; None if no round is open.
        title: The title; the name or the id if it has none.
        epsilon_reason: Why the protection is not stronger.
        epoch: Changes when the collector was restored from a backup; empty if it never was.
        closes: The last day, or the instant (UTC), of the campaign.
        closes_at_reports: The number of reports at which the campaign closes.
        assignment: "arrival": a participant answers in the open round, once in the campaign.
            "token": the token's place determines the round.
        wanted: The number of reports at which the open round closes; None for no limit.
        round_closes: When the open round closes, in seconds since 1970; None if not scheduled.
    """

    campaign: bytes
    name: str
    state: str
    epsilon: float
    participation: str
    schema: Schema
    start: float
    plan: Plan | None
    title: str = ""
    purpose: str = ""
    contact: str = ""
    closes: str | None = None
    closes_at_reports: int | None = None
    consumers: tuple[_AnnouncedConsumer, ...] = ()
    assignment: str = "token"
    wanted: int | None = None
    round_closes: float | None = None
    epsilon_reason: str = ""
    epoch: str = ""

    def asks(self, token: bytes) -> bool:
        """Whether the open round asks the participant with this token."""
        if self.plan is None:
            return False
        return self.assignment == "arrival" or is_asked(
            token, self.campaign, self.start, self.plan.population
        )

    def asks_later(self, token: bytes) -> bool:
        """Whether a later round asks the participant with this token."""
        if self.plan is None or self.assignment == "arrival":
            return False
        return place(token, self.campaign) >= self.start and not self.asks(token)

    def receipt(self, token: bytes, number: int) -> str:
        """The id under which the report of a round is stored, in base 16."""
        return report_id(
            token, self.campaign, None if self.assignment == "arrival" else number
        ).hex()

    @property
    def closing_time(self) -> float | None:
        """When the campaign closes, in seconds since 1970; None if not scheduled."""
        return None if self.closes is None else closing_seconds(self.closes)

    @property
    def plan_digest(self) -> str:
        """SHA-256 of the open round's plan and its place in the campaign."""
        plan = None if self.plan is None else self.plan.to_json()
        return hashlib.sha256(json.dumps([self.start, plan], sort_keys=True).encode()).hexdigest()


def read_announcement(data: bytes) -> Announcement:
    """Read and check the announcement of a collector.

    The work is bounded for all inputs: numbers are checked before anything is built from them.

    Raises:
        ReportError: The announcement is malformed or exceeds a limit.
        PrivacyError: The plan spends more epsilon than announced.
    """
    if len(data) > limits.PLAN_BYTES:
        raise ReportError(
            f"an announcement of {len(data):,} bytes is too long; at most {limits.PLAN_BYTES:,} are read"
        )
    try:
        announcement = _read(
            json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
        )
        if announcement.plan is not None:
            _check_plan(announcement, announcement.plan)
    except DitherError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise ReportError(f"not an announcement of a campaign: {error!r}"[:300]) from None
    return announcement


def _read(body: Any) -> Announcement:
    if not isinstance(body, dict) or body.get("format") != _FORMAT:
        raise ReportError(f"not an announcement this version reads ({_FORMAT})")
    campaign = bytes.fromhex(body["campaign"])
    if (
        len(campaign) != limits.CAMPAIGN_BYTES
        or campaign.hex() != body["campaign"]
        or body["state"] not in _STATES
    ):
        raise ReportError("the announcement has no proper campaign id or state")
    if not isinstance(body["name"], str) or body["participation"] not in _PARTICIPATION:
        raise ReportError("the announcement has no proper name or way to take part")
    epsilon, start = (_number(key, body[key]) for key in ("epsilon", "start"))
    schema = schema_from_json(body["schema"])
    # A schema has one canonical form, so that clients in any language can check the
    # fingerprint.
    if _canonical(schema.to_json()) != _canonical(body["schema"]):
        raise ReportError("the announced schema is not in its canonical form")
    if schema.fingerprint != body["schema_fingerprint"]:
        raise ReportError("the announced schema does not have the announced fingerprint")
    plan = body["plan"]
    if plan is not None:
        _check_work(plan)
    return Announcement(
        campaign=campaign,
        name=body["name"],
        state=body["state"],
        epsilon=epsilon,
        participation=body["participation"],
        schema=schema,
        start=start,
        plan=None if plan is None else plan_from_json(plan),
        consumers=_consumers(body.get("consumers")),
        **_texts(body),
    )


def _consumers(listed: object) -> tuple[_AnnouncedConsumer, ...]:
    """Read the announced recipients; for people to read, and bounded."""
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise ReportError("the announced consumers must be a list of objects", where="consumers")
    out, edges = [], 0
    for entry in listed:
        if not {"name", "edges"} <= set(entry) <= {"name", "edges", "epsilon"} or not isinstance(
            entry["edges"], list
        ):
            raise ReportError(
                "an announced consumer has a name, edges and perhaps an epsilon", where="consumers"
            )
        edges += len(entry["edges"])
        rises = (
            len(entry["edges"]) >= 2
            and all(map(is_finite, entry["edges"]))
            and _rises(entry["edges"])
        )
        epsilon = entry.get("epsilon", 1.0)
        if (
            not isinstance(entry["name"], str)
            or not rises
            or edges > limits.MAX_EDGES
            or not is_finite(epsilon)
            or epsilon <= 0
        ):
            raise ReportError(
                "an announced consumer without a name, with edges that do not rise, or too many",
                where="consumers",
            )
        out.append(
            _AnnouncedConsumer(
                entry["name"], tuple(map(float, entry["edges"])), entry.get("epsilon")
            )
        )
    return tuple(out)


def _rises(edges: list[float]) -> bool:
    return all(a < b for a, b in pairwise(edges))


def _texts(body: JsonObject) -> JsonObject:
    """Read the optional texts, the closing times and the assignment."""
    texts = {
        "title": check_text("title", body.get("title", ""), limits.MAX_TITLE, error=ReportError),
        "purpose": check_text(
            "purpose", body.get("purpose", ""), limits.MAX_PURPOSE, lines=True, error=ReportError
        ),
        "epsilon_reason": check_text(
            "epsilon_reason",
            body.get("epsilon_reason", ""),
            limits.MAX_PURPOSE,
            lines=True,
            error=ReportError,
        ),
        "contact": check_text(
            "contact", body.get("contact", ""), limits.MAX_CONTACT, error=ReportError
        ),
        "epoch": check_text("epoch", body.get("epoch", ""), limits.MAX_EPOCH, error=ReportError),
    }
    closes, round_closes = body.get("closes"), body.get("round_closes")
    if closes is not None and closing_text(closes, error=ReportError) != closes:
        raise ReportError(
            "the announced closes is not written as 2027-01-31 or 2027-01-31T18:00:00Z",
            where="closes",
        )
    for key in ("closes_at_reports", "wanted"):
        if body.get(key) is not None:
            check_whole(key, body[key], 1, limits.MAX_NUMBER - 1, error=ReportError)
    if body.get("assignment", "token") not in _ASSIGNMENT:
        raise ReportError("the announcement has no proper assignment", where="assignment")
    return {
        **texts,
        "assignment": body.get("assignment", "token"),
        "wanted": body.get("wanted"),
        "round_closes": None if round_closes is None else _number("round_closes", round_closes),
        "title": texts["title"] or body["name"] or body["campaign"],
        "closes": closes,
        "closes_at_reports": body.get("closes_at_reports"),
    }


def _once(pairs: list[tuple[str, Any]]) -> JsonObject:
    """Reject duplicate keys: another reader might use the other value."""
    out = dict(pairs)
    if len(out) < len(pairs):
        raise ReportError("the announcement has the same key twice in one object")
    return out


def _no_constant(name: str) -> float:
    raise ReportError(f"{name} is not a number that JSON knows")


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _number(key: str, value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value < 0
    ):
        raise ReportError(f"the announced {key} must be a finite number of at least 0", where=key)
    return float(value)


def _check_plan(announcement: Announcement, plan: Plan) -> None:
    if not 0.0 <= announcement.start < 1.0:
        raise ReportError(
            f"a round cannot start at place {announcement.start}", value=announcement.start
        )
    length = draws = 0
    sizes = dict(zip(announcement.schema.names, announcement.schema.cardinalities, strict=True))
    numbers = {
        a.name for a in announcement.schema if a.kind in ("numeric", "duration") and not a.missing
    }
    groups = {a.name: len(a.group_names) + int(a.missing) for a in announcement.schema if a.groups}
    for question in plan.questions:
        if question.rounded and not numbers.issuperset(question.attributes):
            raise ReportError(
                "a question rounds an attribute that is not a number or may be missing",
                value=question.attributes,
            )
        _check_question(sizes, groups, question)
        length += question.mechanism.report_bytes
        draws += question.mechanism.draw_bytes
    if plan.split and (length > limits.REPORT_BYTES or draws > limits.DRAW_BYTES):
        raise ReportError(
            f"reports of {length:,} bytes from {draws:,} random ones are too large for a device"
        )
    if plan.epsilon > announcement.epsilon:
        raise PrivacyError(
            f"the plan spends epsilon {plan.epsilon}, more than the {announcement.epsilon} that the campaign announces",
            where="epsilon",
            value=plan.epsilon,
        )


def _check_question(sizes: dict[str, int], groups: dict[str, int], question: Question) -> None:
    names = question.attributes
    shown = ", ".join(names[:8])[:200] or "nothing"
    cells = 1
    for name in names:
        cells *= (groups if name in question.grouped else sizes).get(name, 0)
        if not 0 < cells < limits.MAX_NUMBER:
            break
    if not names or not 0 < cells < limits.MAX_NUMBER or len(set(names)) != len(names):
        raise ReportError(f"a question about {shown} does not fit the schema", value=names)
    mechanism = question.mechanism
    if mechanism.cells != cells and not question.rounded:
        raise ReportError(
            f"a question about {shown} has {cells} cells, not {mechanism.cells}", value=names
        )
    if mechanism.report_bytes > limits.REPORT_BYTES or mechanism.draw_bytes > limits.DRAW_BYTES:
        raise ReportError(
            f"a question of {mechanism.cells:,} cells is too large for a device",
            value=mechanism.cells,
        )


def _check_work(plan: JsonObject) -> None:
    """Reject a plan, in its JSON form, that is too expensive for a device.

    The operator of a collector writes the plan, and a few bytes can ask for hours of hashing. So
    the cost is computed from the numbers before any mechanism is built. The collector computes
    the same cost before it announces a plan.
    """
    questions = plan["questions"]
    if not isinstance(questions, list) or len(questions) >= limits.MAX_QUESTIONS:
        raise ReportError(f"a plan has a list of fewer than {limits.MAX_QUESTIONS:,} questions")
    different: set[str] = set()
    digests = pairs = size = 0
    for question in questions:
        mechanism = question["mechanism"]
        _check_numbers(mechanism)
        name = json.dumps(mechanism, sort_keys=True)
        if name in different:
            continue
        different.add(name)
        if len(different) > limits.MAX_MECHANISMS:
            raise ReportError(
                f"a plan of more than {limits.MAX_MECHANISMS:,} different mechanisms is too much work"
            )
        work = device_work(mechanism)
        digests, pairs, size = digests + work.digests, pairs + work.pairs, size + work.table_bytes
        if digests > limits.BLOOM_DIGESTS or pairs > limits.MAX_PAIRS or size > limits.BLOOM_BYTES:
            raise ReportError(
                "the plan's mechanisms are too much work for a device; use fewer cells, hashes or sets"
            )


def _check_numbers(mechanism: JsonObject) -> None:
    lists = list_fields(mechanism)
    for key, value in mechanism.items():
        if (key in lists) != isinstance(value, list):
            raise ReportError(
                "a mechanism with a list in place of a number, or the reverse", where=key[:40]
            )
        if key == "sets":
            fits = all(isinstance(text, str) for text in value)
        else:
            fits = key == "name" or all(map(_whole, value if key in lists else (value,)))
        if not fits:
            raise ReportError(
                "a mechanism's numbers are whole, not negative and below 2^53", where=key[:40]
            )
    bits = mechanism["threshold_bits"]
    if bits not in DRAW_WIDTHS:
        raise ReportError(f"draws of {bits} bits are not supported", value=bits)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limits.MAX_NUMBER
