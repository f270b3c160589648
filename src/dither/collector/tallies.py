"""Tallies of stored reports: rebuilt from the store, or kept running beside it; both agree to the integer.

The running tally is a convenience that lives in memory; the store is the truth. After a start, or whenever a commit failed in
a way that leaves open what was written, it is built anew. Closing a round always reads the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Protocol, TypeVar

import numpy as np

from dither.collector.store import Batch, Outcome, Row, Store, StoreAway
from dither.mechanisms import PackedReports
from dither.reports import Plan
from dither.tally import RoundTally, zero

T = TypeVar("T")
_FOLD = 4096  # reports gathered before they are added to a running tally
_PAGE = 1 << 14  # reports read at a time while a running tally is built
_TRIES = 3  # to build one, if commits fail meanwhile


class InTurn(Protocol):
    """Runs a function in the writing thread."""

    def __call__(self, function: Callable[[], T]) -> T: ...


def rebuild(store: Store, campaign: str, plan: Plan) -> RoundTally:
    """The tally of all stored reports of a round."""
    tally = zero(plan)
    for rows in store.reports(campaign, plan.round):
        add_rows(tally, rows)
    return tally


def add_rows(tally: RoundTally, rows: Iterable[Row]) -> None:
    """Add stored reports, question by question."""
    by_question: dict[int, list[bytes]] = {}
    for row in rows:
        by_question.setdefault(row.question, []).append(row.payload)
    for question, payloads in by_question.items():
        packed = np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), -1)
        tally.add(question, PackedReports(packed))


@dataclass
class _RunningTally:
    tally: RoundTally
    pending: list[Row] = field(default_factory=list)


@dataclass
class _Count:
    """A count under way. It reads the reports in the order of their ids, so that a report committed meanwhile is either ahead of
    it, and will be read, or is to be added to what was read."""

    meanwhile: list[Row] = field(
        default_factory=list
    )  # committed since the page before this one was read

    def passed(self, page: Sequence[Row], last: bool) -> list[Row]:
        """A page has been read: gives the reports committed meanwhile that are neither ahead of it nor in it."""
        shown = {row.report_id for row in page}
        behind = [
            row for row in self.meanwhile if last or (page and row.report_id <= page[-1].report_id)
        ]
        self.meanwhile = []
        return [row for row in behind if row.report_id not in shown]


class RunningTallies:
    """The tallies of open rounds. Only the writing thread may call it, so that none is read in the middle of a commit; but `read`
    is called in other threads, and reaches that one through `in_turn`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: dict[tuple[str, int], _RunningTally] = {}
        self._counts: dict[tuple[str, int], _Count] = {}
        self._counting = threading.Lock()  # one count at a time

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Take note of what was just stored; repeats do not count."""
        key = (batch.campaign, batch.round)
        running, count = self._running.get(key), self._counts.get(key)
        if running is None and count is None:
            return
        fresh = [
            row
            for row, outcome in zip(batch.rows, outcomes, strict=True)
            if outcome is Outcome.STORED
        ]
        if count is not None:
            count.meanwhile += fresh
        if running is not None:
            running.pending += fresh
            if len(running.pending) >= _FOLD:
                _fold(running)

    def forget(self, campaign: str, number: int) -> None:
        """Count this round anew when it is next asked for; a count under way is of no use either."""
        self._running.pop((campaign, number), None)
        self._counts.pop((campaign, number), None)

    def kept(self, campaign: str, plan: Plan, in_turn: InTurn) -> RoundTally | None:
        """The tally of everything committed so far, a copy; None if none is kept."""
        return in_turn(lambda: self._kept(campaign, plan))

    def drop(self, campaign: str, number: int) -> None:
        """The round is being closed."""

    def publish_ended(self, in_turn: InTurn) -> None:
        """There is nobody else to tell."""

    def _kept(self, campaign: str, plan: Plan) -> RoundTally | None:
        running = self._running.get((campaign, plan.round))
        if running is None:
            return None
        _fold(running)
        return running.tally.merge(zero(plan))  # type: ignore[arg-type]

    def read(self, campaign: str, plan: Plan, in_turn: InTurn) -> RoundTally:
        """The tally of everything committed so far, a copy; if none is kept, all is counted, and reports are stored meanwhile."""
        for _ in range(_TRIES):
            with self._counting:
                tally = in_turn(lambda: self._kept(campaign, plan))
                if tally is not None:
                    return tally
                self._count(campaign, plan, in_turn)
        tally = in_turn(lambda: self._kept(campaign, plan))
        if tally is None:
            raise StoreAway("commits keep failing, so that nobody knows what is stored")
        return tally

    def _count(self, campaign: str, plan: Plan, in_turn: InTurn) -> None:
        """Count what is stored and keep the tally, unless it was to be forgotten before it was done."""
        key, tally, mine = (campaign, plan.round), zero(plan), _Count()

        def passed(page: list[Row], last: bool) -> list[Row] | None:
            """Between two commits: every earlier one has been noted and is in the pages still to be read."""
            if self._counts.get(key) is not mine:
                return None
            missed = mine.passed(page, last)
            if last:
                self._running[key] = _RunningTally(tally, missed)
                del self._counts[key]
            return missed

        in_turn(lambda: self._counts.update({key: mine}))
        try:
            # A commit that was given up may still happen until then, and its reports would not be counted when sent again.
            self._store.settle(campaign, plan.round)
            for page in chain(self._store.reports(campaign, plan.round, _PAGE), [[]]):
                add_rows(tally, page)
                last = len(page) < _PAGE
                missed = in_turn(partial(passed, page, last))
                if last or missed is None:
                    return
                add_rows(tally, missed)
        except BaseException:
            in_turn(lambda: self.forget(campaign, plan.round))
            raise


def _fold(running: _RunningTally) -> None:
    if running.pending:
        add_rows(running.tally, running.pending)
        running.pending = []
