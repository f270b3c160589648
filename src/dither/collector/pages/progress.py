"""Where a campaign stands, as its operators' pages show it; the figures are the collector's."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dither.collector.campaigns import Live
from dither.collector.live import Progress as Counted
from dither.collector.pages.wording import question_of
from dither.collector.precision import planned_answers, standard_error
from dither.collector.schedule import expected_reports, has_excess
from dither.collector.store import State
from dither.reports import Plan

WINDOW_SECONDS = 3600.0
MIN_SECONDS = 10.0  # below, a rate says nothing
MAX_SAMPLES = 400
REASONS = {
    "answered": "had answered in an earlier round",
    "conflict": "had answered already, otherwise",
    "round-closed": "came after the round was closed",
    "unknown-token": "had no valid ticket",
    "not-this-round": "belongs to another round",
    "wrong-question": "answered a question that was not theirs",
    "malformed": "sent what nobody can have answered",
    "bad-envelope": "sent what is no report",
}


@dataclass(frozen=True)
class _RoundLine:
    """A round as a table's line."""

    number: int
    state: str
    reports: int
    planned: int
    excess: bool
    questions: int
    epsilon: float


@dataclass(frozen=True)
class Progress:
    """A campaign at this moment."""

    id: str
    title: str
    state: State
    round: int
    reports: int
    aim: int
    rate: float | None  # reports a minute
    rounds: tuple[_RoundLine, ...]
    answers: tuple[tuple[str, int, int], ...]  # question, answers so far, planned
    error_now: float | None
    error_planned: float | None
    refused: tuple[tuple[str, int], ...]  # reason, reports


class Rates:
    """Reports a minute, from what was counted whenever somebody looked, within the last hour; in memory only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def look(self, campaign: str, reports: int) -> float | None:
        """The rate now; None while it is too early to say."""
        now = self._clock()
        with self._guard:
            seen = self._seen.setdefault(campaign, deque(maxlen=MAX_SAMPLES))
            while seen and seen[0][0] < now - WINDOW_SECONDS:
                seen.popleft()
            seen.append((now, reports))
            first, before = seen[0]
        return None if now - first < MIN_SECONDS else 60 * (reports - before) / (now - first)


def title_of(live: Live) -> str:
    """What a campaign is called."""
    return live.spec.title or live.spec.name or live.stored.id


def progress_of(live: Live, counted: Counted, rates: Rates) -> Progress:
    """Add up the rounds, which were counted once for all who look, and how exact they are."""
    campaign, spec = live.stored.id, live.spec
    found = dict(enumerate(counted.rounds))
    lines = tuple(
        _RoundLine(
            *(stored.number, stored.state, found.get(stored.number, 0)),
            planned=expected_reports(spec, plan),
            excess=has_excess(spec, plan, found.get(stored.number, 0)),
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
        *(
            campaign,
            title_of(live),
            live.stored.state,
            live.stored.round,
            reports,
            spec.participants,
        ),
        rate=rates.look(campaign, reports) if live.stored.state is State.OPEN else None,
        rounds=lines,
        answers=answers,
        error_now=now,
        error_planned=planned,
        refused=tuple(
            (REASONS.get(cause, cause), count) for cause, count in counted.refused.items()
        ),
    )


def _answers(plan: Plan, counted: Counted) -> list[int]:
    """How many have answered each question of the open round; of a split plan everybody answers all."""
    if counted.round != plan.round:
        return [0] * len(plan.questions)
    if plan.split:
        return [counted.reports] * len(plan.questions)
    return [counted.answers.get(str(i), 0) for i in range(len(plan.questions))]
