"""The parts of a running collector put together: store, writer, running tallies, campaigns and counters."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from dither.collector.campaigns import Campaigns, Live
from dither.collector.metrics import Metrics
from dither.collector.problems import Problem
from dither.collector.spec import judge
from dither.collector.store import Outcome, State, Store, StoreAway
from dither.collector.tallies import RunningTallies
from dither.collector.writer import Writer, Written
from dither.errors import ParameterError
from dither.reports import decode, plan_from_json
from dither.tally import RoundTally

T = TypeVar("T")
log = logging.getLogger("dither.collector")
UPLOAD_SECONDS = 10.0  # that an upload waits for its commit
READY_SECONDS = 5.0  # that a question about the store's health waits
STOP_SECONDS = 2.0  # that the end waits for what is queued to be written
CLOSE_SECONDS = 0.5  # and for the store to be closed


class Collector:
    """A store with a writing thread. `upload` is called in one event loop; everything else may be called in any thread."""

    def __init__(self, store: Store, queue_reports: int = 20_000) -> None:
        self.store = store
        self.tallies = RunningTallies(store)
        self.writer = Writer(
            store,
            self._deliver,
            self.tallies.committed,
            lambda batch: self.tallies.forget(batch.campaign, batch.round),
            queue_reports=queue_reports,
        )
        self.metrics = Metrics(lambda: self.writer.waiting)
        self.campaigns = Campaigns(store, self._compare, self.writer.call)
        self.stopped = False  # everything queued is written and the store closed
        self._waiters: set[asyncio.Future[list[Outcome]]] = set()
        self._check: Future[None] | None = None

    async def upload(self, campaign: str, body: bytes) -> list[Outcome]:
        """Judge and store the reports of a request; returns after they have been committed.

        A store that takes too long is said to be away. The reports may still be stored later: whoever sends the same bytes
        again then hears of a duplicate.
        """
        begun = time.perf_counter()
        live = self.campaigns.get(campaign)
        envelope = decode(body)
        if envelope.campaign.hex() != campaign:
            raise Problem("wrong-campaign", f"the envelope is for campaign {envelope.campaign.hex()}")
        now = live.open_round
        if now is None or envelope.round != now.plan.round:
            raise _not_open(live, envelope.round)
        judged = judge(envelope, now)
        stored: list[Outcome] = []
        if judged.batch.rows:
            waiter: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
            self.writer.submit(judged.batch, waiter)
            stored = await self._commit(waiter)
        outcomes = judged.outcomes(stored)
        self.metrics.upload(time.perf_counter() - begun, [o.value for o in outcomes])
        return outcomes

    async def _commit(self, waiter: asyncio.Future[list[Outcome]]) -> list[Outcome]:
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
                waiter.set_exception(StoreAway("the collector stops and the store did not commit in time"))

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

    def stored_tally(self, campaign: str, number: int) -> RoundTally:
        """The tally rebuilt from the stored reports of any round."""
        from dither.collector.tallies import rebuild

        rounds = self.campaigns.get(campaign).rounds
        if not 0 <= number < len(rounds):
            raise ParameterError(f"campaign {campaign} has no round {number}", where="round", value=number)
        return rebuild(self.store, campaign, plan_from_json(rounds[number].plan))

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Write what is queued and close the store; False if that took too long, and then it may never happen."""

        def end() -> bool:
            written = self.writer.stop(seconds)
            self.store.close()
            return written

        try:
            written = _in_background(end, "dither-stop").result(seconds + CLOSE_SECONDS)
        except TimeoutError:
            written = False
        if not written:
            log.error("the store did not end within %g s; what was not acknowledged may not be stored", seconds)
        self.stopped = written
        return written

    def _compare(self, campaign: str, tally: RoundTally) -> None:
        """At a closing: a running tally, if one was kept, must equal the stored reports; the stored ones count."""
        running: RoundTally | None = self.writer.call(lambda: self.tallies.kept(campaign, tally.plan))
        if running is not None and running.to_bytes() != tally.to_bytes():
            self.metrics.mismatch()
            log.error(
                "the running tally of round %d of campaign %s differs from its reports", tally.plan.round, campaign
            )
        self.writer.call(lambda: self.tallies.forget(campaign, tally.plan.round))

    def _deliver(self, results: list[Written]) -> None:
        """In the writing thread: hand a whole group's results to its event loop in one go."""
        loop: asyncio.AbstractEventLoop = results[0].waiter.get_loop()
        loop.call_soon_threadsafe(_resolve, results)


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


def _resolve(results: list[Written]) -> None:
    for result in results:
        if result.waiter.done():  # the request was abandoned meanwhile; its reports are stored all the same
            continue
        if result.error is not None:
            result.waiter.set_exception(result.error)
        else:
            result.waiter.set_result(result.outcomes)


def _not_open(live: Live, number: int) -> Problem:
    state, current = live.stored.state, live.stored.round
    finished = state in (State.COLLECTED, State.FINALISED)
    if not finished and (number > current or state is State.DRAFT):
        return Problem("round-not-open", f"round {number} is not open yet")
    if state is State.CLOSING and number == current:
        # The method may refuse the tally, or the operator take the closing back: the round then opens again.
        return Problem("round-closing", f"round {number} is being closed; send the same bytes again later")
    return Problem("round-closed", f"round {number} takes no more reports")
