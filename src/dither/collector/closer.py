"""Closes rounds that are due, without anybody pressing: at their number of reports, or at their time.

Guarantee: each once, whichever of several collectors notices first, and also after a restart in the middle of a closing. That
rests on `Campaigns.close_round`, which may be repeated: who comes second finds the round closed. Nothing is kept here that a
restart could lose: how many reports a round has and when it closes stand in the store. A round that the method cannot use yet
(nobody answered) opens again, and is tried again when more reports have come.

A round that has its number stops taking reports behind those that wait to be written at that moment, and before any that come
later: their senders have drawn their noise, so they are counted, and no more than they. Never fewer than its number are in it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dither.collector.announced import OpenRound
from dither.collector.campaigns import Campaigns, Live, NoCampaign
from dither.collector.store import Batch, Outcome, State, Store
from dither.errors import DitherError, TooFewAnswers

log = logging.getLogger("dither.collector")
AGAIN_SECONDS = 30.0  # after a closing that failed
COUNT_SECONDS = 1.0  # between two counts of a round that other collectors fill too
_COUNT_COST = 20  # as many times as long as a count took, none is made again
Key = tuple[str, int]


@dataclass
class _Count:
    """How many reports a round had when they were counted, and how many this process has stored since it began to count."""

    found: int = 0
    since: int = 0
    again: float = 0.0  # when others may have stored so many that it is worth counting again
    full: bool = False  # it has its number, and stops taking reports


@dataclass(frozen=True)
class _Refusal:
    """A round that could not be closed, when it had so many reports; not to be tried before a time."""

    reports: int
    until: float


class Closer:
    """Looks at all campaigns of a collector. `clock` tells the seconds since 1970, `pace` those between two counts; `behind` runs a
    function in the writing thread behind all that is queued.

    `committed` and `failed` are called in the writing thread, `look` in one other.
    """

    def __init__(
        self,
        campaigns: Campaigns,
        store: Store,
        clock: Callable[[], float] = time.time,
        pace: Callable[[], float] = time.monotonic,
        behind: Callable[[Callable[[], None]], None] = lambda function: function(),
    ) -> None:
        self._campaigns = campaigns
        self._store = store
        self._clock, self._pace, self._behind = clock, pace, behind
        self._counts: dict[Key, _Count] = {}
        self._refusals: dict[Key, _Refusal] = {}
        self._guard = threading.Lock()
        self.due = threading.Event()  # a round may have the number of reports that it wants

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Take note of what was just stored."""
        key = (batch.campaign, batch.round)
        with self._guard:
            count = self._counts.get(key)
            if count is not None:
                count.since += outcomes.count(Outcome.STORED)
                reports, mine = count.found + count.since, count.since
        try:
            now = self._campaigns.get(batch.campaign).open_round
        except NoCampaign:  # deleted just now
            return
        if now is None or now.wanted is None or now.plan.round != batch.round:
            return
        if count is None:  # the first since the round was opened, or since this process was started
            self._count_first(key, now.wanted)
        elif reports >= now.wanted:
            self._has_its_number(key, count, now.wanted)
        elif self._store.shared and 4 * mine >= now.wanted - (reports - mine):
            count.again = 0.0  # with what other collectors have stored meanwhile it may be full
            self.due.set()

    def _count_first(self, key: Key, wanted: int) -> None:
        try:
            count = _Count(self._store.count(*key), again=self._pace() + COUNT_SECONDS)
        except DitherError:  # the store was here a moment ago
            self.due.set()
            return
        with self._guard:
            count = self._counts.setdefault(key, count)
        if count.found >= wanted:
            self._has_its_number(key, count, wanted)

    def _has_its_number(self, key: Key, count: _Count, wanted: int) -> None:
        if key in self._refusals:  # closing it was of no use before: `look` knows when to try again
            self.due.set()
        elif not count.full:
            count.full = True
            self._behind(partial(self._stop_intake, key, wanted))

    def _stop_intake(self, key: Key, wanted: int) -> None:
        """In the writing thread, where nobody else of this process stores anything: count exactly, then take no more."""
        try:
            found = self._store.count(*key)
            with self._guard:
                if (count := self._counts.get(key)) is not None:
                    count.found, count.since, count.full = found, 0, found >= wanted
            if found >= wanted:
                self._campaigns.stop_intake(*key)
        except DitherError as error:
            log.warning(
                "round %d of campaign %s has its share and stays open for now: %s",
                key[1],
                key[0],
                error,
            )
        finally:
            self.due.set()

    def failed(self, batch: Batch) -> None:
        """Nobody knows what became of a commit: count the round anew."""
        with self._guard:
            self._counts.pop((batch.campaign, batch.round), None)

    def look(self) -> list[Key]:
        """Close what is due, and say what was closed."""
        self.due.clear()
        return [
            key
            for campaign in self._campaigns.ids()
            if (key := self._look_at(self._campaigns.get(campaign)))
        ]

    def _look_at(self, live: Live) -> Key | None:
        if live.stored.state not in (State.OPEN, State.CLOSING):
            return None
        now = live.round(live.stored.round)
        key = (live.stored.id, now.plan.round)
        refusal = self._refusals.get(key)
        if live.rounds[now.plan.round].held or (
            refusal is not None and self._clock() < refusal.until
        ):
            return None
        if not self._is_due(key, now):
            return None
        return self._close(key)

    def _is_due(self, key: Key, now: OpenRound) -> bool:
        timely = now.closes is not None and self._clock() >= now.closes
        if not timely and now.wanted is None:
            return False
        refusal = self._refusals.get(key)
        least = (
            1 if refusal is None else refusal.reports + 1
        )  # before that a method refuses it as it did
        wanted = least if timely or now.wanted is None else max(now.wanted, least)
        return self._has(key, wanted)

    def _has(self, key: Key, wanted: int) -> bool:
        """Whether a round has so many reports; they are counted as seldom as that allows."""
        with self._guard:
            count = self._counts.setdefault(key, _Count(again=-1.0))
            reports = count.found + count.since
            fresh = count.again >= 0 and not (self._store.shared and self._pace() >= count.again)
            if fresh and reports < wanted:
                return False
            count.found, count.since = (
                reports,
                0,
            )  # what is stored from here on may be in the count or not
        begun = self._pace()
        found = self._store.count(*key)
        ended = self._pace()
        with self._guard:
            count.found = found
            count.again = ended + max(COUNT_SECONDS, _COUNT_COST * (ended - begun))
        return found >= wanted

    def _close(self, key: Key) -> Key | None:
        try:
            self._campaigns.close_round(*key, scheduled=True)
        except Exception as error:
            known = key in self._refusals
            self._refusals[key] = _Refusal(0, self._clock() + AGAIN_SECONDS)
            if not isinstance(error, DitherError):
                raise
            if isinstance(error, TooFewAnswers):
                self._refusals[key] = _Refusal(
                    self._store.count(*key), self._clock() + AGAIN_SECONDS
                )
            if not known:
                log.warning(
                    "round %d of campaign %s is due and cannot be closed yet: %s",
                    key[1],
                    key[0],
                    error,
                )
            return None
        with self._guard:
            self._counts.pop(key, None)
        self._refusals.pop(key, None)
        return key
