"""A campaign as pages show it: its schema in plain words, its rounds, counts and arrivals."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from dither import languages
from dither.collector.campaigns import Live
from dither.collector.live import Progress as Counted
from dither.collector.store import State
from dither.display import WIDTH, drawing, label, number, path, short_number, text_width
from dither.languages import gettext as _
from dither.methods import HISTOGRAMS, MEANS
from dither.release.charts import Axis
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
_SPACING_SECONDS = 30.0  # between two points of the chart of arrivals
_CHART = 150  # its height
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
    asks: str
    epsilon: float


@dataclass(frozen=True)
class Progress:
    """The current progress of a campaign.

    Attributes:
        rate: Reports a minute.
        arrivals: Chart of the answers over time; None until there is one.
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
    arrivals: Markup | None
    rounds: tuple[_RoundLine, ...]
    answers: tuple[tuple[str, int, int], ...]
    refused: tuple[tuple[str, int], ...]
    has_rows: bool


class Rates:
    """Answers over time, from the counts of page views; in memory only.

    No store holds a time of arrival. The chart shows what this process saw since it started,
    at most one point in `_SPACING_SECONDS`, which doubles when there are too many points.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._seen: dict[str, list[tuple[float, int]]] = {}
        self._last: dict[str, deque[tuple[float, int]]] = {}

    def update(self, campaign: str, reports: int) -> float | None:
        """Add a count; return reports a minute, or None while it is too early to say."""
        now = self._clock()
        with self._guard:
            last = self._last.setdefault(campaign, deque(maxlen=_MAX_SAMPLES))
            while last and last[0][0] < now - _WINDOW_SECONDS:
                last.popleft()
            last.append((now, reports))
            first, before = last[0]
            self._add(self._seen.setdefault(campaign, []), now, reports)
        return None if now - first < _MIN_SECONDS else 60 * (reports - before) / (now - first)

    def _add(self, seen: list[tuple[float, int]], now: float, reports: int) -> None:
        # The last point is the current one; it moves until it is far enough from the one before.
        if len(seen) > 1 and now - seen[-2][0] < _SPACING_SECONDS:
            seen[-1] = (now, reports)
        else:
            seen.append((now, reports))
        if len(seen) > _MAX_SAMPLES:
            seen[:] = [*seen[:-1:2], seen[-1]]

    def arrivals(self, campaign: str) -> list[tuple[float, int]]:
        """Return times, in seconds since 1970, and the answers so far."""
        with self._guard:
            return list(self._seen.get(campaign, []))


def arrivals_chart(points: Sequence[tuple[float, int]], aim: int) -> Markup | None:
    """Draw the answers over time; None until there are two different times."""
    if len(points) < 2 or points[-1][0] - points[0][0] < _MIN_SECONDS:
        return None
    start, end = points[0][0], points[-1][0]
    top = max(aim, points[-1][1], 1)
    left = max(text_width(short_number(top)), 24) + 10
    across, up = Axis(start, end, left, WIDTH - 12), Axis(0, top, _CHART - 22, 16)
    places = [f"{number(across(at))} {number(up(count))}" for at, count in points]
    aim_at = number(up(aim))
    words = label(left - 6, up(aim) + 4, short_number(aim), "e") + label(
        left - 6, up(0) + 4, "0", "e"
    )
    words += label(left, _CHART - 5, _clock_text(start, end, start))
    words += label(WIDTH - 12, _CHART - 5, _clock_text(start, end, end), "e")
    words += label(WIDTH - 12, up(aim) - 5, "expected", "e")
    lines = path(
        "rule", f"M{number(left)} {aim_at}H{WIDTH - 12}M{number(left)} {number(up(0))}H{WIDTH - 12}"
    )
    lines += path("reach", "M" + "L".join(places))
    spoken = (
        f"Answers over time: {points[0][1]:,} at {_clock_text(start, end, start)}, "
        f"{points[-1][1]:,} at {_clock_text(start, end, end)}; {aim:,} are expected."
    )
    return drawing(WIDTH, _CHART, spoken, f"{lines}<g>{words}</g>")


def _clock_text(start: float, end: float, at: float) -> str:
    """A time in UTC, with the day if the chart covers more than one."""
    form = "%H:%M" if end - start < 86_400 else "%d %b %H:%M"
    return datetime.fromtimestamp(at, UTC).strftime(form) + " UTC"


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
            asks=round_in_words(plan, stored.number),
            epsilon=plan.epsilon,
        )
        for stored, plan in zip(live.rounds, live.plans, strict=True)
    )
    reports = sum(line.reports for line in lines)
    is_open = live.stored.state is State.OPEN
    rate = rates.update(campaign, reports) if is_open else None
    return Progress(
        id=campaign,
        title=title_of(live),
        state=live.stored.state,
        round=live.stored.round,
        reports=reports,
        aim=spec.participants,
        rate=rate,
        arrivals=arrivals_chart(rates.arrivals(campaign), spec.participants),
        rounds=lines,
        answers=_answers_of_open_round(live, counted),
        refused=tuple(
            (_REASONS.get(cause, cause), count) for cause, count in counted.refused.items()
        ),
        has_rows=spec.method not in HISTOGRAMS | MEANS,
    )


def _answers_of_open_round(live: Live, counted: Counted) -> tuple[tuple[str, int, int], ...]:
    """Return each question in words, its answers so far and the planned ones."""
    if live.open_round is None:
        return ()
    plan, schema = live.open_round.plan, live.spec.schema
    got, wanted = _answers(plan, counted), planned_answers(plan, live.spec.participants)
    merged: dict[str, tuple[int, int]] = {}
    for question, count, people in zip(plan.questions, got, wanted, strict=True):
        name = " with ".join(question_of(schema[name]) for name in question.attributes)
        before = merged.get(name, (0, 0))
        merged[name] = (before[0] + int(count), before[1] + round(people))
    return tuple((name, count, people) for name, (count, people) in merged.items())


_SIZES = {1: "single question", 2: "pair of questions"}


def round_in_words(plan: Plan, number: int) -> str:
    """Return what a round asks, such as "First look: 4 single questions, 6 pairs of questions"."""
    asked = Counter(
        len({*q.attributes}) for q in {q.attributes: q for q in plan.questions}.values()
    )
    parts = []
    for size, count in sorted(asked.items()):
        word = _SIZES.get(size, f"set of {size} questions")
        plural = word + "s" if size == 1 else word.replace("pair", "pairs").replace("set", "sets")
        parts.append(f"{count:,} {word if count == 1 else plural}")
    what = ", ".join(parts)
    if plan.population >= 1:
        return f"{'each person answers all: ' if plan.split else 'each person answers one: '}{what}"
    if number == 0:
        return f"first look, to see which questions belong together: {what}"
    return f"closer look at what seems to belong together: {what}"


def _answers(plan: Plan, counted: Counted) -> list[int]:
    """Return the answers to each question of the open round; a split plan asks all of each."""
    if counted.round != plan.round:
        return [0] * len(plan.questions)
    if plan.split:
        return [counted.reports] * len(plan.questions)
    return [counted.answers.get(str(i), 0) for i in range(len(plan.questions))]


def planned_answers(plan: Plan, participants: int) -> list[float]:
    """Return the answers to each question if the planned number of people take part."""
    people = participants * plan.population
    if plan.shares:
        return [people * share for share in plan.shares]
    return [people] * len(plan.questions)
