"""A campaign as pages show it: its schema in plain words, counts, rate and precision.

The precision is the mean standard error of one cell, from the mechanisms' variance at a
frequency of 1 / cells: noise only, before any model. It falls with the square root of the
number of answers.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from dither import languages
from dither.collector.campaigns import Live
from dither.collector.live import Progress as Counted
from dither.collector.store import State
from dither.languages import gettext as _
from dither.mechanisms import Mechanism
from dither.release.pages import moment
from dither.reports import Plan
from dither.reports.plan import closing_seconds
from dither.schema import Attribute, Schema
from dither.types import JsonObject


def until(closes: str | None) -> str:
    """Return when a campaign closes automatically, as a day or to the minute; empty if never."""
    return moment(closing_seconds(closes)) if closes and "T" in closes else closes or ""


def spoken_schema(schema: Schema) -> JsonObject:
    """Return question, help, answers and groups of each attribute; for numbers also the range.

    In the current language.
    """
    code = languages.language()
    return {attribute.name: _spoken(attribute.in_language(code)) for attribute in schema}


def question_of(attribute: Attribute) -> str:
    """Return the question, or the attribute's name if it has none."""
    return attribute.question or attribute.name


def _spoken(attribute: Attribute) -> JsonObject:
    out: JsonObject = {
        "question": question_of(attribute),
        "help": attribute.help,
        "labels": answers(attribute),
        "groups": [*attribute.group_names, *([_("No answer")] if attribute.missing else [])],
    }
    if attribute.on_line:
        out |= _range(attribute)
    return out


def answers(attribute: Attribute) -> list[str]:
    """Return the text of each code; the missing value, if any, is the last."""
    plain = (
        _stretches(attribute) if attribute.kind in ("numeric", "duration") else _listed(attribute)
    )
    if attribute.missing:
        plain.append(_("No answer"))
    return [
        *(own or word for own, word in zip(attribute.captions, plain, strict=False)),
        *plain[len(attribute.captions) :],
    ]


def _listed(attribute: Attribute) -> list[str]:
    if attribute.kind == "boolean":
        return [_("No"), _("Yes")]
    return list(attribute.labels[: attribute.answers])


def _stretches(attribute: Attribute) -> list[str]:
    """Return bins in words: whole numbers inclusive, others up to the next bin."""
    exact, last, out = set(attribute.atoms), attribute.edges[-1], []
    unit = " s" if attribute.kind == "duration" else ""
    for low, high in attribute.line.ends:
        ends = {"low": _shown(low) + unit, "high": _shown(high) + unit}
        if low == high:
            out.append(_("exactly %(low)s", **ends))
        elif (multiples := _between_multiples(attribute, low, high)) is not None:
            first, top = (_shown(number) + unit for number in multiples)
            out.append(_("%(low)s to %(high)s", low=first, high=top) if first != top else first)
        elif attribute.unit == 1.0 and high - 1 > low and not {low, high} & exact:
            top = _shown(high if high == last else high - 1) + unit
            out.append(_("%(low)s to %(high)s", low=ends["low"], high=top))
        elif high == last and high not in exact:
            above = _("above %(low)s, to %(high)s", **ends)
            out.append(above if low in exact else _("%(low)s to %(high)s", **ends))
        elif low in exact:
            out.append(_("above %(low)s, to below %(high)s", **ends))
        else:
            out.append(_("%(low)s to below %(high)s", **ends))
    return out


def _between_multiples(attribute: Attribute, low: float, high: float) -> tuple[float, float] | None:
    """The first and the last multiple of the unit between two edges; None if an edge is a multiple."""
    if attribute.unit is None:
        return None
    places = low / attribute.unit - 0.5, high / attribute.unit - 0.5
    if any(abs(place - round(place)) > 1e-9 for place in places):
        return None
    first, last = ((round(place) + 1) * attribute.unit for place in places)
    return float(f"{first:.12g}"), float(f"{last - attribute.unit:.12g}")


def _range(attribute: Attribute) -> JsonObject:
    if attribute.kind in ("date", "datetime"):
        low, high = (attribute.shown(edge) for edge in (attribute.edges[0], attribute.edges[-1]))
        between = _("From %(low)s to before %(high)s.", low=low, high=high)
        return {"range": [low, high], "between": between}
    numbers = (*attribute.edges, *attribute.atoms)
    numbers = _between_multiples(attribute, min(numbers), max(numbers)) or numbers
    ends = {"low": _shown(min(numbers)), "high": _shown(max(numbers))}
    if attribute.kind == "duration":
        between = _("A number from %(low)s to %(high)s, in seconds.", **ends)
    else:
        between = _("A number from %(low)s to %(high)s.", **ends)
    return {"range": [min(numbers), max(numbers)], "between": between}


def _shown(number: float) -> str:
    """A number with at most six significant digits, unless it is whole."""
    if number == int(number) and abs(number) < 1e15:
        return languages.decimal(int(number))
    return languages.significant(number)


_WINDOW_SECONDS = 3600.0
_MIN_SECONDS = 10.0  # of observation before a rate is shown
_MAX_SAMPLES = 400
_REASONS = {
    "answered": "had answered in an earlier round",
    "conflict": "had answered already, otherwise",
    "round-closed": "came after the round was closed",
    "unknown-token": "had no valid ticket",
    "not-this-round": "belongs to another round",
    "wrong-question": "answered a question that was not theirs",
    "malformed": "sent an impossible answer",
    "bad-envelope": "did not send a report",
}


@dataclass(frozen=True)
class _RoundLine:
    """A round as a row of the table."""

    number: int
    state: str
    reports: int
    planned: int
    excess: bool
    questions: int
    epsilon: float


@dataclass(frozen=True)
class Progress:
    """The current progress of a campaign.

    Attributes:
        rate: Reports a minute.
        answers: Question, answers so far and planned answers.
        refused: Reason and number of reports.
    """

    id: str
    title: str
    state: State
    round: int
    reports: int
    aim: int
    rate: float | None
    rounds: tuple[_RoundLine, ...]
    answers: tuple[tuple[str, int, int], ...]
    error_now: float | None
    error_planned: float | None
    refused: tuple[tuple[str, int], ...]


class Rates:
    """Reports a minute over the last hour, from the counts of page views; in memory only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def update(self, campaign: str, reports: int) -> float | None:
        """Add a count; return the rate, or None while it is too early to say."""
        now = self._clock()
        with self._guard:
            seen = self._seen.setdefault(campaign, deque(maxlen=_MAX_SAMPLES))
            while seen and seen[0][0] < now - _WINDOW_SECONDS:
                seen.popleft()
            seen.append((now, reports))
            first, before = seen[0]
        return None if now - first < _MIN_SECONDS else 60 * (reports - before) / (now - first)


def title_of(live: Live) -> str:
    """Return the title, the name or the id of a campaign."""
    return live.spec.title or live.spec.name or live.stored.id


def progress_of(live: Live, counted: Counted, rates: Rates) -> Progress:
    """Combine a campaign with the counts of its rounds."""
    campaign, spec = live.stored.id, live.spec
    reports_of = dict(enumerate(counted.rounds))
    lines = tuple(
        _RoundLine(
            number=stored.number,
            state=stored.state,
            reports=reports_of.get(stored.number, 0),
            planned=spec.expected_reports(plan),
            excess=spec.has_excess(plan, reports_of.get(stored.number, 0)),
            questions=len(plan.questions),
            epsilon=plan.epsilon,
        )
        for stored, plan in zip(live.rounds, live.plans, strict=True)
    )
    reports = sum(line.reports for line in lines)
    answers: tuple[tuple[str, int, int], ...] = ()
    now = planned = None
    if live.stored.state is State.DRAFT:
        planned = standard_error(live.plans[0], planned_answers(live.plans[0], spec.participants))
    if live.open_round is not None and lines:
        plan = live.open_round.plan
        got, wanted = _answers(plan, counted), planned_answers(plan, spec.participants)
        now, planned = standard_error(plan, got), standard_error(plan, wanted)
        names = [
            " with ".join(question_of(spec.schema[name]) for name in question.attributes)
            for question in plan.questions
        ]
        answers = tuple(
            (name, int(count), round(people))
            for name, count, people in zip(names, got, wanted, strict=True)
        )
    return Progress(
        id=campaign,
        title=title_of(live),
        state=live.stored.state,
        round=live.stored.round,
        reports=reports,
        aim=spec.participants,
        rate=rates.update(campaign, reports) if live.stored.state is State.OPEN else None,
        rounds=lines,
        answers=answers,
        error_now=now,
        error_planned=planned,
        refused=tuple(
            (_REASONS.get(cause, cause), count) for cause, count in counted.refused.items()
        ),
    )


def _answers(plan: Plan, counted: Counted) -> list[int]:
    """Return the answers to each question of the open round; a split plan asks all of each."""
    if counted.round != plan.round:
        return [0] * len(plan.questions)
    if plan.split:
        return [counted.reports] * len(plan.questions)
    return [counted.answers.get(str(i), 0) for i in range(len(plan.questions))]


def standard_error(plan: Plan, answers: Sequence[float]) -> float | None:
    """Return the mean standard error of one cell over the questions.

    Args:
        plan: The round's plan.
        answers: The number of answers to each question.

    Returns:
        None while a question with a share of participants has no answer.
    """
    errors = []
    shares = plan.shares or (1.0,) * len(plan.questions)
    for question, share, count in zip(plan.questions, shares, answers, strict=True):
        mechanism = question.mechanism
        if share == 0 or not isinstance(mechanism, Mechanism):
            continue
        if count < 1:
            return None
        errors.append(math.sqrt(mechanism.variance(1 / mechanism.cells, 1) / count))
    return fmean(errors) if errors else None


def planned_answers(plan: Plan, participants: int) -> list[float]:
    """Return the answers to each question if the planned number of people take part."""
    people = participants * plan.population
    if plan.shares:
        return [people * share for share in plan.shares]
    return [people] * len(plan.questions)
