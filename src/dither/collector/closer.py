"""Closes rounds automatically at their number of reports or at their time.

Guarantee: each round is closed once, even if several collectors notice, and after a restart
in the middle of a closing. That relies on `Campaigns.close_round`, which may be repeated.
Nothing here would be lost by a restart: counts and times are in the store. A round that
the method cannot use yet (there are too few answers) opens again and is retried when more
reports have come.

A round that is due by its date first stops taking reports. Its tally is taken after
`undo_seconds`, measured by this process, so that a wrong clock cannot shorten them. Until
then an operator can open the round again. No round closes automatically while the machine's
clock and the database's time disagree.

A round that is full takes the reports that already wait to be written, and no later one.
The senders of the waiting reports have drawn their noise, so these reports are counted. A
round never closes with fewer reports than its number.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from dither.collector import limits
from dither.collector.campaigns import Campaigns, Live, NoCampaign
from dither.collector.rounds import OpenRound
from dither.collector.store import Batch, Outcome, State, Store
from dither.errors import DitherError, TooFewAnswers

log = logging.getLogger("dither.collector")
_COUNT_SECONDS = 1.0  # between two counts of a round that other collectors fill too
# A count that took t seconds is repeated after this many times t at the earliest, so that
# counting takes at most 5 % of the database.
_COUNT_COST = 20
_Key = tuple[str, int]


@dataclass
class _Count:
    """The number of reports of a round: at the last count, and stored here since.

    Attributes:
        next_count: When other collectors may have stored enough to count again.
        full: The round has its number and stops taking reports.
    """

    counted: int = 0
    since: int = 0
    next_count: float = 0.0
    full: bool = False


@dataclass(frozen=True)
class _Refusal:
    """A round that could not be closed, with its number of reports and the time of a retry."""

    reports: int
    until: float


@dataclass(frozen=True)
class _Due:
    """Why a round is due."""

    reason: str
    by_date: bool = False


class Closer:
    """Closes due rounds of a collector's campaigns.

    `committed` and `commit_unknown` are called in the writing thread, `close_due` in one other.

    Args:
        campaigns: The campaigns.
        store: Where reports are counted.
        clock: Seconds since 1970, by the database's time.
        monotonic: Seconds that only increase.
        enqueue: Runs a function in the writing thread after everything queued.
        check_clock: Raises `ClockSkew` if the machine's clock and the database's disagree.
        undo_seconds: From a closing by date to its tally.
    """

    def __init__(
        self,
        campaigns: Campaigns,
        store: Store,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        enqueue: Callable[[Callable[[], None]], None] = lambda function: function(),
        check_clock: Callable[[], None] = lambda: None,
        undo_seconds: float = 0.0,
    ) -> None:
        self._campaigns = campaigns
        self._store = store
        self._clock, self._monotonic, self._enqueue = clock, monotonic, enqueue
        self._check_clock, self._undo_seconds = check_clock, undo_seconds
        self._undo_until: dict[_Key, float] = {}  # by the monotonic clock
        self._counts: dict[_Key, _Count] = {}
        self._refusals: dict[_Key, _Refusal] = {}
        self._guard = threading.Lock()
        self.due = threading.Event()  # a round may have its number of reports

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Count the new reports of a batch; stop the round's intake if it is full."""
        key = (batch.campaign, batch.round)
        with self._guard:
            count = self._counts.get(key)
            if count is not None:
                count.since += outcomes.count(Outcome.STORED)
                reports, since = count.counted + count.since, count.since
        try:
            current = self._campaigns.get(batch.campaign).open_round
        except NoCampaign:  # deleted a moment ago
            return
        if current is None or current.wanted is None or current.plan.round != batch.round:
            return
        if count is None:  # the first batch since the round opened or this process started
            self._count_first(key, current.wanted)
        elif reports >= current.wanted:
            self._stop_when_full(key, count, current.wanted)
        elif self._store.shared and 4 * since >= current.wanted - (reports - since):
            count.next_count = 0.0  # with the other collectors' reports it may be full
            self.due.set()

    def _count_first(self, key: _Key, wanted: int) -> None:
        try:
            counted = self._store.count(*key)
        except DitherError:  # the store failed just after a commit; `close_due` counts
            self.due.set()
            return
        made = _Count(counted, next_count=self._monotonic() + _COUNT_SECONDS)
        with self._guard:
            count = self._counts.setdefault(key, made)
        if count.counted >= wanted:
            self._stop_when_full(key, count, wanted)

    def _stop_when_full(self, key: _Key, count: _Count, wanted: int) -> None:
        if key in self._refusals:  # an earlier closing failed; `close_due` times the retry
            self.due.set()
        elif not count.full:
            count.full = True
            self._enqueue(partial(self._stop_intake, key, wanted))

    def _stop_intake(self, key: _Key, wanted: int) -> None:
        """Count exactly, in the writing thread where this process stores nothing else, and stop."""
        try:
            counted = self._store.count(*key)
            with self._guard:
                if (count := self._counts.get(key)) is not None:
                    count.counted, count.since, count.full = counted, 0, counted >= wanted
            if counted >= wanted:
                self._check_clock()
                self._campaigns.stop_intake(*key, _full(counted))
        except DitherError as error:
            log.warning(
                "round %d of campaign %s is full and stays open for now: %s",
                key[1],
                key[0],
                error,
            )
        finally:
            self.due.set()

    def commit_unknown(self, batch: Batch) -> None:
        """Drop the count of a round: a commit has an unknown outcome."""
        with self._guard:
            self._counts.pop((batch.campaign, batch.round), None)

    def close_due(self) -> list[_Key]:
        """Close the rounds that are due; return their campaigns and numbers."""
        self.due.clear()
        closed: list[_Key] = []
        for campaign in self._campaigns.ids():
            key = self._close_if_due(self._campaigns.get(campaign))
            if key is not None:
                closed.append(key)
        return closed

    def _close_if_due(self, live: Live) -> _Key | None:
        if live.stored.state not in (State.OPEN, State.CLOSING):
            return None
        current = live.round(live.stored.round)
        number = current.plan.round
        key = (live.stored.id, number)
        refusal = self._refusals.get(key)
        waits = refusal is not None and self._clock() < refusal.until
        if live.rounds[number].held or waits:
            return None
        if live.stored.state is State.OPEN:
            self._undo_until.pop(key, None)  # of an earlier closing that was undone
        elif self._monotonic() < self._undo_until.get(key, 0.0):
            return None
        due = self._due(key, current)
        if due is None:
            return None
        self._check_clock()
        if due.by_date and refusal is None and self._can_be_undone(key, live, due):
            return None
        return key if self._close(key, due.reason) else None

    def _due(self, key: _Key, current: OpenRound) -> _Due | None:
        """Return why a round is due, or None if it is not."""
        time_is_over = current.closes is not None and self._clock() >= current.closes
        if not time_is_over and current.wanted is None:
            return None
        refusal = self._refusals.get(key)
        # With as many reports as at the last refusal, the method would refuse again.
        least = 1 if refusal is None else refusal.reports + 1
        if current.wanted is not None and self._has(key, max(current.wanted, least)):
            return _Due(_full(current.wanted))
        if time_is_over and self._has(key, least):
            return _Due(_date_reached(current.closes), by_date=True)
        return None

    def _can_be_undone(self, key: _Key, live: Live, due: _Due) -> bool:
        """Stop the intake of a round that is due by its date; return whether its tally waits."""
        if self._undo_seconds and live.stored.state is State.OPEN:
            self._campaigns.stop_intake(*key, due.reason)
        until = self._undo_until.setdefault(key, self._monotonic() + self._undo_seconds)
        return self._monotonic() < until

    def _has(self, key: _Key, wanted: int) -> bool:
        """Return whether a round has this many reports, with as few counts as possible."""
        with self._guard:
            count = self._counts.setdefault(key, _Count(next_count=-1.0))
            reports = count.counted + count.since
            outdated = self._store.shared and self._monotonic() >= count.next_count
            if count.next_count >= 0 and not outdated and reports < wanted:
                return False
            # Reports stored from now on may or may not be part of the count below.
            count.counted, count.since = reports, 0
        begun = self._monotonic()
        counted = self._store.count(*key)
        ended = self._monotonic()
        with self._guard:
            count.counted = counted
            count.next_count = ended + max(_COUNT_SECONDS, _COUNT_COST * (ended - begun))
        return counted >= wanted

    def _close(self, key: _Key, reason: str) -> bool:
        try:
            self._campaigns.close_round(*key, reason=reason)
        except Exception as error:
            refused_before = key in self._refusals
            self._refusals[key] = _Refusal(0, self._clock() + limits.CLOSING_RETRY_SECONDS)
            if not isinstance(error, DitherError):
                raise
            if isinstance(error, TooFewAnswers):
                reports = self._store.count(*key)
                self._refusals[key] = _Refusal(
                    reports, self._clock() + limits.CLOSING_RETRY_SECONDS
                )
            if not refused_before:
                log.warning(
                    "round %d of campaign %s is due and cannot be closed yet: %s",
                    key[1],
                    key[0],
                    error,
                )
            return False
        with self._guard:
            self._counts.pop(key, None)
        self._refusals.pop(key, None)
        self._undo_until.pop(key, None)
        return True


def _full(reports: int) -> str:
    return f"it has its number of reports, {reports:,}"


def _date_reached(closes: float | None) -> str:
    at = datetime.fromtimestamp(closes or 0.0, UTC).strftime("%Y-%m-%dT%H:%MZ")
    return f"its date, {at}, is over"
