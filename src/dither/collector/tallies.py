"""Tallies of stored reports: rebuilt from the store, or kept running beside it; both agree to the integer.

The running tally is a convenience that lives in memory; the store is the truth. After a start, or whenever a commit failed in
a way that leaves open what was written, it is built anew. Closing a round always reads the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dither.collector.store import Batch, Outcome, Row, Store
from dither.mechanisms import PackedReports
from dither.reports import Plan
from dither.tally import RoundTally, zero

_FOLD = 4096  # reports gathered before they are added to a running tally


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
class _Running:
    tally: RoundTally
    pending: list[Row] = field(default_factory=list)


class RunningTallies:
    """The tallies of open rounds. Only the writing thread may call it, so that none is read in the middle of a commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: dict[tuple[str, int], _Running] = {}

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Take note of what was just stored; repeats do not count."""
        running = self._running.get((batch.campaign, batch.round))
        if running is None:
            return
        running.pending += [row for row, outcome in zip(batch.rows, outcomes, strict=True) if outcome is Outcome.STORED]
        if len(running.pending) >= _FOLD:
            _fold(running)

    def forget(self, campaign: str, number: int) -> None:
        """Build this round's tally anew when it is next asked for."""
        self._running.pop((campaign, number), None)

    def read(self, campaign: str, plan: Plan) -> RoundTally:
        """The tally of everything committed so far, a copy."""
        key = (campaign, plan.round)
        if key not in self._running:
            # A commit that was given up may still happen until then, and its reports would not be counted when sent again.
            self._store.settle(campaign, plan.round)
            self._running[key] = _Running(rebuild(self._store, campaign, plan))
        running = self._running[key]
        _fold(running)
        return running.tally.merge(zero(plan))  # type: ignore[arg-type]


def _fold(running: _Running) -> None:
    if running.pending:
        add_rows(running.tally, running.pending)
        running.pending = []
