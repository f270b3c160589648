"""A running collector: store, writer, running tallies, campaigns and metrics together."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from dither.collector import limits
from dither.collector.campaigns import Campaigns, Live, NoCampaign
from dither.collector.clock import DatabaseClock
from dither.collector.closer import Closer
from dither.collector.keys import Keys, Sessions
from dither.collector.live import LiveProgress
from dither.collector.metrics import Metrics
from dither.collector.problems import Problem
from dither.collector.publications import Publications
from dither.collector.questions import Questions
from dither.collector.store import (
    Batch,
    Deletion,
    Outcome,
    State,
    Store,
    StoreFailure,
    StoreFull,
    StoreUnavailable,
)
from dither.collector.writer import QueueFull, Writer, WriteResult
from dither.errors import DitherError
from dither.reports import Plan, decode
from dither.tally import RoundTally

T = TypeVar("T")
_Waiter = asyncio.Future[list[Outcome]]
log = logging.getLogger("dither.collector")
_SCRAPE_SECONDS = 1.0  # how long a scrape waits for the store
_MEASURE_SECONDS = 10.0  # between two counts of untidied rounds
_CLOSER_SECONDS = 0.25  # between two checks for rounds that are due
# Between two refreshes from a shared store, in case a notification is lost.
_WATCH_SECONDS = 0.5
_COUNTERS_SECONDS = 0.5  # between two exports of this worker's metrics to the other workers
_LOOKUP_GROUP = 500  # of them that share one query
_CLOSE_SECONDS = 0.5  # and then for the store to close


class _Lookups:
    """Answers whether reports are stored, with one query at a time.

    Devices that ask during a query share the next one. So a flood of lookups uses one
    thread and one database connection, and at most `MAX_LOOKUPS` devices wait. Used in one
    event loop.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[str, bytes, asyncio.Future[bool]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def is_stored(self, campaign: str, report_id: bytes) -> bool:
        """Return whether a report with this id was committed.

        Raises:
            QueueFull: Too many devices ask at once.
            StoreUnavailable: The store does not answer in time.
        """
        if len(self._waiting) >= limits.MAX_LOOKUPS:
            raise QueueFull(
                f"{limits.MAX_LOOKUPS:,} devices already wait for such an answer; ask again"
            )
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((campaign, report_id, answer))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            async with asyncio.timeout(limits.READY_SECONDS):
                return await answer
        except TimeoutError:
            raise _no_answer() from None

    async def _ask(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:_LOOKUP_GROUP], self._waiting[_LOOKUP_GROUP:]
            ids: dict[str, list[bytes]] = {}
            for campaign, wanted, _ in group:
                ids.setdefault(campaign, []).append(wanted)
            try:
                stored = await asyncio.wrap_future(
                    _in_background(partial(self._select, ids), "dither-lookup")
                )
            except Exception as error:  # reported to the devices that wait
                for _, _, answer in group:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for campaign, wanted, answer in group:
                if not answer.done():
                    answer.set_result((campaign, wanted) in stored)

    def _select(self, ids: dict[str, list[bytes]]) -> set[tuple[str, bytes]]:
        stored: set[tuple[str, bytes]] = set()
        for campaign, wanted in ids.items():
            stored |= {(campaign, each) for each in self._store.stored_among(campaign, wanted)}
        return stored


class Collector:
    """A store with a writing thread and everything that serves requests.

    `upload` is called in one event loop, the other methods in any thread.

    Args:
        store: Where campaigns and reports are kept.
        queue_reports: Reports that may wait to be written before uploads are refused.
        counters: Folder in which the workers of one machine share their metrics.
        clock: The machine's clock, seconds since 1970. It must agree with the database's time.
        undo_seconds: How long a closing by date can be undone.
        public_url: The address that participants and readers use. Pages never repeat a
            Host header instead.
        origins: Origins of other sites whose pages may show surveys of this collector.
    """

    def __init__(
        self,
        store: Store,
        queue_reports: int = 20_000,
        counters: Path | None = None,
        clock: Callable[[], float] = time.time,
        public_url: str | None = None,
        undo_seconds: float = limits.UNDO_SECONDS,
        origins: Sequence[str] = (),
    ) -> None:
        self.clock = DatabaseClock(store, clock)
        self.clock.check()
        self.store = store
        self.public_url = public_url
        self.origins = tuple(origins)
        self.writer: Writer[_Waiter] = Writer(
            store,
            _deliver,
            self._committed,
            self._commit_unknown,
            queue_reports=queue_reports,
        )
        self.tallies = store.running_tally(self._plan_of, self.writer.call)
        self.metrics = Metrics(lambda: self.writer.waiting, counters)
        self.metrics.store_ready.set(1)
        self.metrics.clock_skew.set_function(lambda: self.clock.skew)
        self.campaigns = Campaigns(
            store, self._compare, self.writer.call, self.clock, self.metrics.closing
        )
        self.closer = Closer(
            self.campaigns,
            store,
            self.clock,
            enqueue=self.writer.enqueue,
            check_clock=self.clock.check,
            undo_seconds=undo_seconds,
        )
        self.keys = Keys(store.keys, store.shared)
        self.sessions = Sessions(store.sessions, self.keys)
        self.live = LiveProgress(
            self.campaigns, store, self.sessions.valid, in_turn=self.writer.call
        )
        self.questions = Questions()
        self.publications = Publications(store.publications, self.questions)
        self.stopped = False  # everything queued is written and the store is closed
        self._waiters: set[_Waiter] = set()
        self._lookups = _Lookups(store)
        self._deletions = 0  # devices that wait for one
        self._check: Future[None] | None = None
        self._next_measure = 0.0
        self._refresh: Future[None] | None = None
        self._ending = threading.Event()
        if counters is not None:
            _start_daemon(self._share_counters, "dither-counters")
        if store.shared:
            _start_daemon(self._watch, "dither-watch")
        _start_daemon(self._close_due, "dither-closer")

    async def upload(self, campaign: str, body: bytes) -> list[Outcome]:
        """Check and store the reports of a request; return after the commit.

        After a time-out the reports may still be stored; the same bytes sent again are then
        duplicates.

        Raises:
            StoreUnavailable: The store did not commit in time.
            QueueFull: Too many reports wait to be written.
        """
        begun = time.perf_counter()
        live = await self.find(campaign)
        envelope = decode(body)
        if envelope.campaign.hex() != campaign:
            raise Problem(
                "wrong-campaign", f"the envelope is for campaign {envelope.campaign.hex()}"
            )
        current = live.open_round
        if self.store.shared and (current is None or envelope.round > current.plan.round):
            await self.refresh_and_wait()  # another collector may have opened the round
            live = self.campaigns.get(campaign)
            current = live.open_round
        if current is None or envelope.round != current.plan.round:
            if not live.is_over(envelope.round):
                raise _not_open(live, envelope.round)
            # The store decides whether these bytes were stored before the round closed.
            current = live.round(envelope.round)
        judged = current.judge(envelope)
        stored = await self._commit(judged.batch) if judged.batch.rows else []
        outcomes = judged.outcomes(stored)
        self.metrics.upload(time.perf_counter() - begun, outcomes)
        return outcomes

    async def is_stored(self, campaign: str, report_id: bytes) -> bool:
        """Return whether a report of the campaign with this id was committed."""
        await self.find(campaign)
        return await self._lookups.is_stored(campaign, report_id)

    async def delete_report(self, campaign: str, report_id: bytes) -> Deletion:
        """Delete one report of the open round; return after the commit.

        Raises:
            QueueFull: Too many participants delete at once.
            StoreUnavailable: The store did not answer in time; ask again.
        """
        live = await self.find(campaign)
        if self._deletions >= limits.MAX_DELETIONS:
            raise QueueFull(f"{limits.MAX_DELETIONS} deletions are already waiting; ask again")
        self._deletions += 1
        delete = partial(self._delete_report, campaign, live.stored.round, report_id)
        task = _in_background(partial(self.writer.call, delete), "dither-delete")
        try:
            async with asyncio.timeout(limits.UPLOAD_SECONDS):
                return await asyncio.wrap_future(task)
        except TimeoutError:
            raise _no_answer() from None
        finally:
            self._deletions -= 1

    def _delete_report(self, campaign: str, number: int, report_id: bytes) -> Deletion:
        """Delete in the writing thread, where running counts can be dropped between commits."""
        try:
            result, number = self.store.delete_report(campaign, report_id)
        except Exception:
            self._commit_unknown(Batch(campaign, number, ()))
            raise
        if result is Deletion.DELETED:
            self._commit_unknown(Batch(campaign, number, ()))
            self.metrics.deleted.inc()
        return result

    async def find(self, campaign: str) -> Live:
        """Return a campaign, including one that another collector has just created."""
        try:
            return self.campaigns.get(campaign)
        except NoCampaign:
            if not self.store.shared:
                raise
        await self.refresh_and_wait()
        return self.campaigns.get(campaign)

    async def refresh_and_wait(self) -> None:
        """Wait for a refresh of the campaigns that begins after this call.

        One refresh runs at a time, regardless of the number of requests for absent campaigns.
        """
        if self._refresh is not None and not self._refresh.done():
            await asyncio.wait([asyncio.wrap_future(self._refresh)], timeout=limits.READY_SECONDS)
        if self._refresh is None or self._refresh.done():
            self._refresh = _in_background(self.campaigns.refresh_all, "dither-refresh")
        try:
            async with asyncio.timeout(limits.READY_SECONDS):
                await asyncio.wrap_future(self._refresh)
        except TimeoutError:
            raise _no_answer() from None

    def _watch(self) -> None:
        """Follow the other collectors of a shared store, by notification or by polling."""
        failing = False
        while not self._ending.is_set():
            try:
                self.store.await_change(_WATCH_SECONDS)
                self.campaigns.refresh_all()
                self.tallies.publish()
                failing = False
            except Exception as error:  # this thread must live as long as reports are taken
                if self._ending.is_set():
                    return
                if not failing and not isinstance(error, DitherError):
                    log.error("campaigns could not be refreshed: %s", type(error).__name__)
                failing = True
                self._ending.wait(_WATCH_SECONDS)

    def _close_due(self) -> None:
        """Close rounds that are due, and delete reports whose days are over."""
        next_deletion = 0.0
        while not self._ending.is_set():
            self.closer.due.wait(_CLOSER_SECONDS)
            try:
                if not self._ending.is_set():
                    self.closer.close_due()
                if time.monotonic() >= next_deletion and not self._ending.is_set():
                    next_deletion = time.monotonic() + limits.DELETION_SECONDS
                    self._delete_expired_reports()
            except Exception as error:  # this thread must live as long as rounds may come due
                if self._ending.is_set():
                    return
                if not isinstance(error, DitherError):
                    log.error("rounds that are due could not be closed: %s", type(error).__name__)
                self._ending.wait(_WATCH_SECONDS)

    def _delete_expired_reports(self) -> None:
        """Delete reports whose days after the release are over, if the clock is right."""
        self.clock.check()
        for campaign in self.campaigns.delete_expired_reports():
            log.warning("the reports of campaign %s are deleted", campaign)

    def _plan_of(self, campaign: str, number: int) -> Plan:
        return self.campaigns.get(campaign).plans[number]

    def _committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        self.tallies.committed(batch, outcomes)
        self.closer.committed(batch, outcomes)
        self.live.committed(batch, outcomes)

    def _commit_unknown(self, batch: Batch) -> None:
        self.tallies.forget(batch.campaign, batch.round)
        self.closer.commit_unknown(batch)
        self.live.forget(batch.campaign, batch.round)

    def _share_counters(self) -> None:
        while not self._ending.wait(_COUNTERS_SECONDS):
            self.metrics.share()

    async def _commit(self, batch: Batch) -> list[Outcome]:
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self.writer.submit(batch, waiter)
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(limits.UPLOAD_SECONDS):
                return await waiter
        except TimeoutError:
            raise StoreUnavailable(
                f"the store did not commit within {limits.UPLOAD_SECONDS:g} s"
            ) from None
        finally:
            self._waiters.discard(waiter)

    def give_up(self) -> None:
        """Fail all uploads that wait for a commit; called in the event loop."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(
                    StoreUnavailable("the collector stops and the store did not commit in time")
                )

    async def check(self) -> None:
        """Raise `StoreUnavailable` or `StoreFull` unless reports could be stored now.

        Concurrent callers share one check.
        """
        if self._check is None or self._check.done():
            self._check = _in_background(self._check_store, "dither-check")
        try:
            async with asyncio.timeout(limits.READY_SECONDS):
                await asyncio.wrap_future(self._check)
        except TimeoutError:
            raise _no_answer() from None

    def _check_store(self) -> None:
        try:
            self.store.check()
        except Exception:
            self.metrics.store_ready.set(0)
            raise
        self.metrics.store_ready.set(1)

    async def measure(self) -> None:
        """Update the metrics that need the store; without an answer they stay as they are."""
        try:
            async with asyncio.timeout(_SCRAPE_SECONDS):
                await self.check()
        except (TimeoutError, StoreUnavailable, StoreFull, StoreFailure):
            self.metrics.store_ready.set(0)
            return
        now = asyncio.get_running_loop().time()
        if now < self._next_measure:
            return
        self._next_measure = now + _MEASURE_SECONDS
        with suppress(StoreUnavailable, StoreFailure):
            self.metrics.untidied.set(await asyncio.to_thread(self._count_untidied))

    def _count_untidied(self) -> int:
        return sum(len(self.store.untidied(campaign)) for campaign in self.campaigns.ids())

    def running_tally(self, campaign: str) -> RoundTally:
        """Return the tally of everything committed in the open round so far."""
        live = self.campaigns.get(campaign)
        if live.open_round is None:
            raise Problem("wrong-state", f"campaign {campaign} has no open round")
        return self.tallies.read(campaign, live.open_round.plan)

    def stop(self, seconds: float = limits.STOP_SECONDS) -> bool:
        """Write the queued reports and close the store.

        Returns:
            False if that took longer than `seconds`; unacknowledged reports may be lost.
        """
        self._ending.set()
        self.questions.stop()
        self.closer.due.set()

        def end() -> bool:
            written = self.writer.stop(seconds)
            self.store.close()
            return written

        try:
            self.stopped = _in_background(end, "dither-stop").result(seconds + _CLOSE_SECONDS)
        except TimeoutError:
            self.stopped = False
        if not self.stopped:
            log.error(
                "the store did not close within %g s; unacknowledged reports may not be stored",
                seconds,
            )
        return self.stopped

    def _compare(self, campaign: str, tally: RoundTally) -> None:
        """At a closing, compare the running tally, if one was kept, with the stored reports."""
        running = self.tallies.close(campaign, tally.plan)
        if running is not None and running.to_bytes() != tally.to_bytes():
            self.metrics.mismatches.inc()
            log.error(
                "the running tally of round %d of campaign %s differs from its reports",
                tally.plan.round,
                campaign,
            )


def _start_daemon(function: Callable[[], None], name: str) -> None:
    threading.Thread(target=function, name=name, daemon=True).start()


def _in_background(function: Callable[[], T], name: str) -> Future[T]:
    """Run in a new daemon thread, so that a call that hangs blocks no pool and no exit."""
    outcome: Future[T] = Future()
    # A running future cannot be cancelled by one caller who gives up, while others still wait.
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(function())
        except Exception as error:  # raised again where the future is awaited
            outcome.set_exception(error)

    _start_daemon(run, name)
    return outcome


def _no_answer() -> StoreUnavailable:
    return StoreUnavailable(f"the store did not answer within {limits.READY_SECONDS:g} s")


def _deliver(results: list[WriteResult[_Waiter]]) -> None:
    """Pass a group's results from the writing thread to the event loop in one call."""
    results[0].waiter.get_loop().call_soon_threadsafe(_resolve, results)


def _resolve(results: list[WriteResult[_Waiter]]) -> None:
    for result in results:
        # A request that was abandoned has a finished waiter; its reports are stored anyway.
        if result.waiter.done():
            continue
        if result.error is not None:
            result.waiter.set_exception(result.error)
        elif result.outcomes is not None:
            result.waiter.set_result(result.outcomes)


def _not_open(live: Live, number: int) -> Problem:
    state, current = live.stored.state, live.stored.round
    if state in (State.COLLECTED, State.FINALISED):
        return Problem("round-closed", f"there is no round {number}, and there will be none")
    if number > current or state is State.DRAFT:
        return Problem("round-not-open", f"round {number} is not open yet")
    # The method may refuse the tally, or the operator may revoke the closing: the round then
    # opens again.
    return Problem(
        "round-closing", f"round {number} is being closed; send the same bytes again later"
    )
