"""Tallies of stored reports: rebuilt from the store, or kept up to date while reports arrive.

A running tally is a cache; the store is the truth. `Store.running_tally` chooses the
implementation: `LocalTallies` for a store that one process writes, `shared_tallies` for
PostgreSQL, and `RebuiltTallies` for any other shared store. All agree with `rebuild` to the
integer. Closing a round always reads the store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np

from dither.collector.store import Batch, InTurn, Outcome, Row, Store, StoreUnavailable
from dither.mechanisms import PackedReports
from dither.reports import Plan
from dither.tally import RoundTally, zero

# Adding one report at a time costs as much as adding thousands: NumPy calls dominate.
FOLD_REPORTS = 4096
_PAGE = 1 << 14  # reports read at a time while a running tally is counted
_TRIES = 3  # counts that failing commits may invalidate before a read fails


def rebuild(store: Store, campaign: str, plan: Plan) -> RoundTally:
    """Count all stored reports of a round."""
    tally = zero(plan)
    for rows in store.reports(campaign, plan.round):
        add_rows(tally, rows)
    return tally


def add_rows(tally: RoundTally, rows: Iterable[Row]) -> None:
    """Add stored reports to a tally, grouped by question."""
    by_question: dict[int, list[bytes]] = {}
    for row in rows:
        by_question.setdefault(row.question, []).append(row.payload)
    for question, payloads in by_question.items():
        packed = np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), -1)
        tally.add(question, PackedReports(packed))


def new_rows(batch: Batch, outcomes: Sequence[Outcome]) -> list[Row]:
    """Return the rows of a committed batch that were not stored before."""
    pairs = zip(batch.rows, outcomes, strict=True)
    return [row for row, outcome in pairs if outcome is Outcome.STORED]


class RebuiltTallies:
    """Counts a round again at every read: exact for any store, at the cost of a full scan."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Do nothing: nothing is kept."""

    def forget(self, campaign: str, number: int) -> None:
        """Do nothing: nothing is kept."""

    def publish(self) -> None:
        """Do nothing: nothing is kept."""

    def read(self, campaign: str, plan: Plan) -> RoundTally:
        """Count all reports of the round."""
        return rebuild(self._store, campaign, plan)

    def close(self, campaign: str, plan: Plan) -> RoundTally | None:
        """Return None: no tally is kept."""
        return None


@dataclass
class _RunningTally:
    tally: RoundTally
    pending: list[Row] = field(default_factory=list)

    def fold(self) -> None:
        """Add the pending rows to the tally."""
        if self.pending:
            add_rows(self.tally, self.pending)
            self.pending = []


@dataclass
class _Count:
    """A count in progress.

    Pages are read in the order of report ids. A report committed during the count is
    either ahead of the page being read, and will be read, or must be added separately.
    """

    committed: list[Row] = field(default_factory=list)  # since the previous page was read

    def missed(self, page: Sequence[Row], last: bool) -> list[Row]:
        """Return committed reports that are neither in this page nor in a later one."""
        in_page = {row.report_id for row in page}
        end = page[-1].report_id if page else b""
        behind = [row for row in self.committed if last or row.report_id <= end]
        self.committed = []
        return [row for row in behind if row.report_id not in in_page]


class LocalTallies:
    """Running tallies of a store that only this process writes.

    The state is used in the writing thread only, so that no tally is read during a commit.
    `read` and `close` are called in other threads and enter the writing thread by `in_turn`.
    """

    def __init__(self, store: Store, in_turn: InTurn) -> None:
        self._store = store
        self._in_turn = in_turn
        self._running: dict[tuple[str, int], _RunningTally] = {}
        self._counts: dict[tuple[str, int], _Count] = {}
        self._counting = threading.Lock()  # one count at a time

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Add the new reports of a committed batch."""
        key = (batch.campaign, batch.round)
        running = self._running.get(key)
        count = self._counts.get(key)
        if running is None and count is None:
            return
        rows = new_rows(batch, outcomes)
        if count is not None:
            count.committed += rows
        if running is not None:
            running.pending += rows
            if len(running.pending) >= FOLD_REPORTS:
                running.fold()

    def forget(self, campaign: str, number: int) -> None:
        """Drop the round's tally and cancel a count in progress: a commit has an unknown outcome."""
        self._running.pop((campaign, number), None)
        self._counts.pop((campaign, number), None)

    def publish(self) -> None:
        """Do nothing: no other process needs these counts."""

    def read(self, campaign: str, plan: Plan) -> RoundTally:
        """Return the tally of everything committed so far; count it first if none is kept."""
        for _ in range(_TRIES):
            with self._counting:
                tally = self._in_turn(lambda: self._copy(campaign, plan))
                if tally is not None:
                    return tally
                self._count(campaign, plan)
        tally = self._in_turn(lambda: self._copy(campaign, plan))
        if tally is None:
            raise StoreUnavailable("commits keep failing; the number of stored reports is unknown")
        return tally

    def close(self, campaign: str, plan: Plan) -> RoundTally | None:
        """Return the kept tally of a closing round, if any, and drop it."""

        def take() -> RoundTally | None:
            tally = self._copy(campaign, plan)
            self.forget(campaign, plan.round)
            return tally

        return self._in_turn(take)

    def _copy(self, campaign: str, plan: Plan) -> RoundTally | None:
        running = self._running.get((campaign, plan.round))
        if running is None:
            return None
        running.fold()
        return running.tally.merge(zero(plan))  # type: ignore[arg-type]

    def _count(self, campaign: str, plan: Plan) -> None:
        """Count the stored reports and keep the tally, unless `forget` is called before the end."""
        key = (campaign, plan.round)
        tally = zero(plan)
        mine = _Count()

        def page_read(page: list[Row], last: bool) -> list[Row] | None:
            # Runs between two commits, so every earlier commit has been recorded.
            if self._counts.get(key) is not mine:
                return None
            missed = mine.missed(page, last)
            if last:
                self._running[key] = _RunningTally(tally, missed)
                del self._counts[key]
            return missed

        self._in_turn(lambda: self._counts.update({key: mine}))
        try:
            # A commit that timed out may still succeed until `settle` returns. Its reports
            # would be duplicates when they are sent again, and would never be counted.
            self._store.settle(campaign, plan.round)
            for page in chain(self._store.reports(campaign, plan.round, _PAGE), [[]]):
                add_rows(tally, page)
                last = len(page) < _PAGE
                missed = self._in_turn(partial(page_read, page, last))
                if last or missed is None:
                    return
                add_rows(tally, missed)
        except BaseException:
            self._in_turn(lambda: self.forget(campaign, plan.round))
            raise
