"""The parts of a running collector put together: store, writer, running tallies, campaigns and counters."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from dither.collector.announced import OpenRound
from dither.collector.campaigns import Campaigns, Live, NoCampaign
from dither.collector.closer import Closer
from dither.collector.keys import Keys
from dither.collector.live import LiveProgress
from dither.collector.metrics import Metrics
from dither.collector.postgres import PostgresStore
from dither.collector.problems import Problem
from dither.collector.publications import Publications
from dither.collector.questions import Questions
from dither.collector.sessions import Sessions
from dither.collector.shared_tallies import SharedTallies
from dither.collector.store import Batch, Outcome, Row, State, Store, StoreAway
from dither.collector.tallies import RunningTallies
from dither.collector.writer import QueueFull, Writer, WriteResult
from dither.errors import DitherError, ReportError
from dither.reports import Envelope, decode
from dither.reports.plan import check_payload, is_asked, pick, report_id, token_hash
from dither.tally import RoundTally

T = TypeVar("T")
Waiter = asyncio.Future[list[Outcome]]
log = logging.getLogger("dither.collector")
UPLOAD_SECONDS = 10.0  # that an upload waits for its commit
READY_SECONDS = 5.0  # that a question about the store's health, or about what others did, waits
CLOSER_SECONDS = 0.25  # after which a look is taken at what is due to be closed
WATCH_SECONDS = (
    0.5  # after which a look is taken at what other collectors did, if nothing was heard of it
)
COUNTERS_SECONDS = 0.5  # after which another worker of this machine shows what this one has counted
MAX_LOOKUPS = 1_000  # devices that wait to hear whether a report is stored
LOOKUP_GROUP = 500  # of them that share one query
STOP_SECONDS = 2.0  # that the end waits for what is queued to be written
CLOSE_SECONDS = 0.5  # and for the store to be closed


@dataclass(frozen=True)
class _Judgement:
    """The reports that may be stored, where each came in the request, and the outcome of those that may not."""

    batch: Batch
    positions: list[int]
    refused: dict[int, Outcome]

    def outcomes(self, stored: list[Outcome]) -> list[Outcome]:
        """One outcome per report, in the order of the request."""
        found = {**self.refused, **dict(zip(self.positions, stored, strict=True))}
        return [found[i] for i in range(len(found))]


def judge(envelope: Envelope, current: OpenRound) -> _Judgement:
    """Check every report against the round: the participant's place, where places decide, its question and the answer's bytes."""
    campaign, plan, start = current.campaign_bytes, current.plan, current.start
    issued = current.participation == "tokens"
    arrival = current.assignment == "arrival"
    everyone = arrival or (start == 0.0 and plan.population == 1.0)
    rows: list[Row] = []
    hashes: list[bytes] = []
    positions: list[int] = []
    refused: dict[int, Outcome] = {}
    for i, report in enumerate(envelope.reports):
        token = report.token
        if not everyone and not is_asked(token, campaign, start, plan.population):
            refused[i] = Outcome.NOT_THIS_ROUND
            continue
        if report.question != pick(token, campaign, plan):
            refused[i] = Outcome.WRONG_QUESTION
            continue
        try:
            check_payload(plan, report.question, report.payload)
        except ReportError:
            refused[i] = Outcome.MALFORMED
            continue
        own = report_id(token, campaign, None if arrival else plan.round)
        rows.append(Row(own, report.question, report.payload))
        positions.append(i)
        if issued:
            hashes.append(token_hash(token))
    once = arrival and plan.round > 0
    return _Judgement(
        Batch(current.campaign, plan.round, rows, hashes if issued else None, once),
        positions,
        refused,
    )


class _Lookups:
    """Tells many devices whether a report with their id is stored, with one query at a time.

    Devices that ask while a query is under way share the next one. So a flood of questions takes one thread
    and one connection to the database from everybody else, and at most `MAX_LOOKUPS` wait. Used in one event loop.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[str, bytes, asyncio.Future[bool]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def is_stored(self, campaign: str, report_id: bytes) -> bool:
        """Return whether a report with this id was committed.

        Raises:
            QueueFull: Too many devices ask at once.
            StoreAway: The store does not answer in time.
        """
        if len(self._waiting) >= MAX_LOOKUPS:
            raise QueueFull(f"{MAX_LOOKUPS:,} devices already wait for such an answer; ask again")
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((campaign, report_id, answer))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            async with asyncio.timeout(READY_SECONDS):
                return await answer
        except TimeoutError:
            raise StoreAway(f"the store did not answer within {READY_SECONDS:g} s") from None

    async def _ask(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:LOOKUP_GROUP], self._waiting[LOOKUP_GROUP:]
            wanted: dict[str, list[bytes]] = {}
            for campaign, wanted_id, _ in group:
                wanted.setdefault(campaign, []).append(wanted_id)
            try:
                found = await asyncio.wrap_future(
                    _in_background(partial(self._find, wanted), "dither-lookup")
                )
            except Exception as error:  # it belongs to those who wait
                for _, _, answer in group:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for campaign, wanted_id, answer in group:
                if not answer.done():
                    answer.set_result((campaign, wanted_id) in found)

    def _find(self, wanted: dict[str, list[bytes]]) -> set[tuple[str, bytes]]:
        return {
            (campaign, one)
            for campaign, ids in wanted.items()
            for one in self._store.stored_among(campaign, ids)
        }


class Collector:
    """A store with a writing thread. `upload` is called in one event loop; everything else may be called in any thread."""

    def __init__(
        self,
        store: Store,
        queue_reports: int = 20_000,
        counters: Path | None = None,
        clock: Callable[[], float] = time.time,
        public_url: str | None = None,
    ) -> None:
        self.store = store
        self.public_url = public_url  # where participants and readers reach it; no page repeats a Host header instead
        self.tallies: RunningTallies | SharedTallies = (
            SharedTallies(
                store, lambda campaign, number: self.campaigns.get(campaign).plans[number]
            )
            if isinstance(store, PostgresStore)
            else RunningTallies(store)
        )
        self.writer: Writer[Waiter] = Writer(
            store,
            _deliver,
            self._committed,
            self._lost,
            queue_reports=queue_reports,
        )
        self.metrics = Metrics(lambda: self.writer.waiting, counters)
        self.campaigns = Campaigns(store, self._compare, self.writer.call, clock)
        self.closer = Closer(self.campaigns, store, clock, behind=self.writer.soon)
        self.keys = Keys(store.keys, store.shared)
        self.sessions = Sessions(store.sessions, self.keys)
        self.live = LiveProgress(self.campaigns, store, self.sessions.living)
        self.questions = Questions()
        self.publications = Publications(store.publications, self.questions)
        self.stopped = False  # everything queued is written and the store closed
        self._waiters: set[Waiter] = set()
        self._lookups = _Lookups(store)
        self._check: Future[None] | None = None
        self._look: Future[None] | None = None
        self._ending = threading.Event()
        if counters is not None:
            threading.Thread(
                target=self._share_counters, name="dither-counters", daemon=True
            ).start()
        if store.shared:
            threading.Thread(target=self._watch, name="dither-watch", daemon=True).start()
        threading.Thread(target=self._close_due, name="dither-closer", daemon=True).start()

    async def upload(self, campaign: str, body: bytes) -> list[Outcome]:
        """Judge and store the reports of a request; returns after they have been committed.

        A store that takes too long is said to be away. The reports may still be stored later: whoever sends the same bytes
        again then hears of a duplicate.
        """
        begun = time.perf_counter()
        live = await self.find(campaign)
        envelope = decode(body)
        if envelope.campaign.hex() != campaign:
            raise Problem(
                "wrong-campaign", f"the envelope is for campaign {envelope.campaign.hex()}"
            )
        now = live.open_round
        if self.store.shared and (now is None or envelope.round > now.plan.round):
            await self.look_again()  # another collector may have opened the round
            live = self.campaigns.get(campaign)
            now = live.open_round
        if now is None or envelope.round != now.plan.round:
            if not live.is_over(envelope.round):
                raise _not_open(live, envelope.round)
            now = live.round(envelope.round)  # the store says whether these very bytes are in it
        judged = judge(envelope, now)
        outcomes = judged.outcomes(await self._commit(judged.batch) if judged.batch.rows else [])
        self.metrics.upload(time.perf_counter() - begun, outcomes)
        return outcomes

    async def is_stored(self, campaign: str, report_id: bytes) -> bool:
        """Return whether a report of the campaign with this id was committed; what is only queued is not."""
        await self.find(campaign)
        return await self._lookups.is_stored(campaign, report_id)

    async def find(self, campaign: str) -> Live:
        """A campaign, also one that another collector has just made."""
        try:
            return self.campaigns.get(campaign)
        except NoCampaign:
            if not self.store.shared:
                raise
        await self.look_again()
        return self.campaigns.get(campaign)

    async def look_again(self) -> None:
        """Wait for a look at the store that begins from now on; one at a time, however many strangers ask for what is not there."""
        if self._look is not None and not self._look.done():
            await asyncio.wait([asyncio.wrap_future(self._look)], timeout=READY_SECONDS)
        if self._look is None or self._look.done():
            self._look = _in_background(self.campaigns.look, "dither-look")
        try:
            async with asyncio.timeout(READY_SECONDS):
                await asyncio.wrap_future(self._look)
        except TimeoutError:
            raise StoreAway(f"the store did not answer within {READY_SECONDS:g} s") from None

    def _watch(self) -> None:
        """Take note of what other collectors do, as the store tells of it; should a word get lost, within a second all the same."""
        away = False
        while not self._ending.is_set():
            try:
                self.store.await_change(WATCH_SECONDS)
                self.campaigns.look()
                self.tallies.publish_ended(self.writer.call)
                away = False
            except Exception as error:  # this thread must live for as long as reports are taken
                if self._ending.is_set():
                    return
                if not away and not isinstance(error, DitherError):
                    log.error("campaigns could not be looked at: %s", type(error).__name__)
                away = True
                self._ending.wait(WATCH_SECONDS)

    def _close_due(self) -> None:
        """Close what is due; nobody has to press."""
        while not self._ending.is_set():
            self.closer.due.wait(CLOSER_SECONDS)
            try:
                if not self._ending.is_set():
                    self.closer.look()
            except Exception as error:  # this thread must live for as long as rounds may come due
                if self._ending.is_set():
                    return
                if not isinstance(error, DitherError):
                    log.error("what is due could not be looked at: %s", type(error).__name__)
                self._ending.wait(WATCH_SECONDS)

    def _committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        self.tallies.committed(batch, outcomes)
        self.closer.committed(batch, outcomes)

    def _lost(self, batch: Batch) -> None:
        self.tallies.forget(batch.campaign, batch.round)
        self.closer.failed(batch)

    def _share_counters(self) -> None:
        while not self._ending.wait(COUNTERS_SECONDS):
            self.metrics.share()

    async def _commit(self, batch: Batch) -> list[Outcome]:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self.writer.submit(batch, waiter)
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                return await waiter
        except TimeoutError:
            raise StoreAway(f"the store did not commit within {UPLOAD_SECONDS:g} s") from None
        finally:
            self._waiters.discard(waiter)

    def give_up(self) -> None:
        """In the event loop: tell all who wait for a commit that the store is away."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(
                    StoreAway("the collector stops and the store did not commit in time")
                )

    async def check(self) -> None:
        """Raise `StoreAway` or `StoreFull` unless reports could be stored now; one question at a time, whoever asks."""
        if self._check is None or self._check.done():
            self._check = _in_background(self.store.check, "dither-check")
        try:
            async with asyncio.timeout(READY_SECONDS):
                await asyncio.wrap_future(self._check)
        except TimeoutError:
            raise StoreAway(f"the store did not answer within {READY_SECONDS:g} s") from None

    def running_tally(self, campaign: str) -> RoundTally:
        """The tally of everything committed in the open round so far."""
        live = self.campaigns.get(campaign)
        if live.open_round is None:
            raise Problem("wrong-state", f"campaign {campaign} has no open round")
        return self.tallies.read(campaign, live.open_round.plan, self.writer.call)

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Write what is queued and close the store; False if that took too long, and then it may never happen."""

        self._ending.set()
        self.questions.stop()
        self.closer.due.set()

        def end() -> bool:
            written = self.writer.stop(seconds)
            self.store.close()
            return written

        try:
            self.stopped = _in_background(end, "dither-stop").result(seconds + CLOSE_SECONDS)
        except TimeoutError:
            self.stopped = False
        if not self.stopped:
            log.error(
                "the store did not end within %g s; what was not acknowledged may not be stored",
                seconds,
            )
        return self.stopped

    def _compare(self, campaign: str, tally: RoundTally) -> None:
        """At a closing: a running tally, if one was kept, must equal the stored reports; the stored ones count."""
        number = tally.plan.round
        running = self.tallies.kept(campaign, tally.plan, self.writer.call)
        if running is not None and running.to_bytes() != tally.to_bytes():
            self.metrics.mismatches.inc()
            log.error(
                "the running tally of round %d of campaign %s differs from its reports",
                number,
                campaign,
            )
        self.tallies.drop(campaign, number)
        self.writer.call(lambda: self.tallies.forget(campaign, number))


def _in_background(function: Callable[[], T], name: str) -> Future[T]:
    """Run in a thread of its own, which keeps nobody waiting should it never end: not the process, not a pool of threads."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # from here on no caller who gives up can cancel it for the others

    def run() -> None:
        try:
            outcome.set_result(function())
        except Exception as error:  # it belongs to whoever waits
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome


def _deliver(results: list[WriteResult[Waiter]]) -> None:
    """In the writing thread: hand a whole group's results to its event loop in one go."""
    results[0].waiter.get_loop().call_soon_threadsafe(_resolve, results)


def _resolve(results: list[WriteResult[Waiter]]) -> None:
    for result in results:
        if (
            result.waiter.done()
        ):  # the request was abandoned meanwhile; its reports are stored all the same
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
    # The method may refuse the tally, or the operator take the closing back: the round then opens again.
    return Problem(
        "round-closing", f"round {number} is being closed; send the same bytes again later"
    )
