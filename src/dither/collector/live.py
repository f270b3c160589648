"""Progress of campaigns for operators: one computation and one set of bytes for all watchers.

A watched campaign is looked at every `PROGRESS_SECONDS`; less often if there are many watchers,
so that all streams together carry `EVENTS_PER_SECOND`: uploads have priority. The store is
asked for its numbers for at most `COUNT_SHARE` of the time; in between, reports that this
process stores are added to the last numbers. A store that no other process writes is asked
once. A change of state or round is sent at once. An event is encoded once and written to
every connection directly. Events carry counts and states, no report and no time. Refused
reports are counted in memory since the start of this process; they are never stored.

Guarantee: a stream ends within `KEY_CHECK_SECONDS` (and the time of a database query) after its
key was revoked or its session ended.

sse-starlette cannot replace this module: its response is an ASGI task for each stream.
With it, `test_who_watches_holds_no_task_and_has_nothing_more_to_ask` and
`test_a_stream_ends_with_the_server_at_once` in tests/collector/test_live.py fail.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TypeVar

from dither.collector import limits
from dither.collector.campaigns import Campaigns, NoCampaign
from dither.collector.keys import Credential
from dither.collector.problems import Problem
from dither.collector.store import Batch, InTurn, Outcome, Store, StoreFailure
from dither.errors import DitherError

_STREAM_SECONDS = 1800.0  # after which a watcher must ask again
_MAX_WATCHERS = 2_000
_CONCURRENT_COUNTS = 2
_KEEPALIVE = b": still here\n\n"
_LAST_CHUNK = b"0\r\n\r\n"
_NEVER = -1e9  # a time on the monotonic clock before any other

T = TypeVar("T")


def run_now(function: Callable[[], T]) -> T:
    """Run a function where no other thread writes."""
    return function()


TakeOver = Callable[[Callable[[], None]], asyncio.Transport | None]
ValidCredentials = Callable[[set[Credential]], set[Credential]]


@dataclass(frozen=True)
class Progress:
    """The progress of a campaign.

    It has the number of reports of earlier rounds, those of the current round by question,
    and the refused reports by reason.
    """

    campaign: str
    state: str
    round: int
    reports: int
    answers: dict[str, int]
    refused: dict[str, int]
    earlier: tuple[int, ...] = ()

    @property
    def rounds(self) -> list[int]:
        """Reports of each round so far."""
        return [*self.earlier, self.reports]


@dataclass(eq=False, slots=True)
class _Watcher:
    """One event stream, and the version of the last event written to it."""

    credential: Credential
    until: float
    transport: asyncio.Transport | None = None
    seen: int = -1

    def end(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(_LAST_CHUNK)
            self.transport.close()


@dataclass
class _RunningCount:
    """Reports of a round by question: at the last count, and stored by this process since.

    Attributes:
        next_count: When to count in the database again, on the monotonic clock.
    """

    counted: dict[int, int]
    since: Counter[int]
    next_count: float


@dataclass
class _Watched:
    """One campaign with its watchers.

    Attributes:
        earlier: Reports of closed rounds, which no longer change.
        counted_at: When it was last counted, on the monotonic clock.
        count_seconds: How long that took.
        sent_at: When something was last written to the watchers.
    """

    watchers: set[_Watcher] = field(default_factory=set)
    version: int = 0
    progress: Progress | None = None
    event: bytes = b""
    earlier: list[int] = field(default_factory=list)
    counted_at: float = _NEVER
    count_seconds: float = 0.0
    sent_at: float = _NEVER
    task: asyncio.Task[None] | None = None
    counting: asyncio.Task[Progress] | None = None


class LiveProgress:
    """Progress of campaigns.

    `committed` and `forget` are called in the writing thread, `refused` in any, and all
    others in one event loop.

    Args:
        campaigns: The campaigns.
        store: Where reports are counted.
        valid: Returns the credentials that are still valid; called in a thread.
        clock: Seconds that only increase.
        in_turn: Runs a function in the writing thread, between two commits.
    """

    def __init__(
        self,
        campaigns: Campaigns,
        store: Store,
        valid: ValidCredentials,
        clock: Callable[[], float] = time.monotonic,
        in_turn: InTurn = run_now,
    ) -> None:
        self._in_turn = in_turn
        self._running: dict[tuple[str, int], _RunningCount] = {}
        # Counts in progress; what is stored meanwhile is added to them.
        self._since: dict[tuple[str, int], Counter[int]] = {}
        self._guard = threading.Lock()
        self._campaigns, self._store, self._valid, self._clock = campaigns, store, valid, clock
        self._watched: dict[str, _Watched] = {}
        self._refused: dict[str, Counter[str]] = {}
        self._counts = asyncio.Semaphore(_CONCURRENT_COUNTS)
        self._checking: asyncio.Task[None] | None = None
        self._ended = False

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Add the new reports of a batch that was just committed."""
        since = self._since.get((batch.campaign, batch.round))
        if since is not None:
            pairs = zip(batch.rows, outcomes, strict=True)
            stored = [row.question for row, outcome in pairs if outcome is Outcome.STORED]
            with self._guard:
                since.update(stored)

    def forget(self, campaign: str, number: int) -> None:
        """Drop the count of a round: a commit has an unknown outcome."""
        with self._guard:
            self._since.pop((campaign, number), None)
            self._running.pop((campaign, number), None)

    def refused(self, campaign: str, cause: str, count: int = 1) -> None:
        """Count refused reports of a campaign; called for every refused upload, so it is cheap."""
        self._refused.setdefault(campaign, Counter())[cause] += count

    @property
    def watchers(self) -> int:
        """Number of event streams."""
        return sum(len(watched.watchers) for watched in self._watched.values())

    async def now(self, campaign: str) -> Progress:
        """Return the progress, at most about a second old; concurrent callers share a count."""
        watched = self._watched.setdefault(campaign, _Watched())
        try:
            recent = self._clock() - watched.counted_at < self._pause(watched)
            if recent and watched.progress and not self._moved(campaign, watched):
                return watched.progress
            if watched.counting is None or watched.counting.done():
                watched.counting = asyncio.create_task(self._count(campaign, watched))
            return await asyncio.shield(watched.counting)
        finally:
            self._drop_unwatched(campaign)

    async def check_room(self, campaign: str) -> None:
        """Raise if the campaign does not exist or the limit of streams is reached."""
        if self.watchers >= _MAX_WATCHERS:
            raise Problem(
                "too-many-watchers", "the limit of event streams is reached; poll the progress"
            )
        await self.now(campaign)

    def follow(self, campaign: str, credential: Credential, take_over: TakeOver) -> None:
        """Write server-sent events to a connection: the progress now, and after each change."""
        watched = self._watched.setdefault(campaign, _Watched())
        watcher = _Watcher(credential, self._clock() + _STREAM_SECONDS)
        watcher.transport = take_over(partial(watched.watchers.discard, watcher))
        if watcher.transport is None:
            return
        watched.watchers.add(watcher)
        # Spreads the return of all watchers after a restart over three seconds.
        watcher.transport.write(_chunk(b"retry: %d\n\n" % (2000 + 3 * (self.watchers % 1000))))
        if self._ended:
            watcher.end()
            return
        if watched.event:
            self._write(watched, watcher, _chunk(watched.event))
        if watched.task is None or watched.task.done():
            watched.task = asyncio.create_task(self._watch(campaign, watched))
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_credentials())

    def end(self) -> None:
        """End all streams: the server stops."""
        self._ended = True
        for watched in self._watched.values():
            self._end_all(watched)

    @staticmethod
    def _end_all(watched: _Watched) -> None:
        for watcher in list(watched.watchers):
            watcher.end()

    def _drop_unwatched(self, campaign: str) -> None:
        """Limit the number of campaigns kept without a watcher."""
        if len(self._watched) > 100:
            for name, watched in list(self._watched.items()):
                if not watched.watchers and name != campaign:
                    del self._watched[name]
            for key in list(self._running):
                if key[0] not in self._watched:
                    self.forget(*key)

    def _pause(self, watched: _Watched) -> float:
        """Return the seconds until the next count, within the shares of events and counting."""
        return max(
            limits.PROGRESS_SECONDS,
            self.watchers / limits.EVENTS_PER_SECOND,
            watched.count_seconds / limits.COUNT_SHARE,
        )

    def _moved(self, campaign: str, watched: _Watched) -> bool:
        """Return whether state or round have changed; this is known without a query."""
        stored = self._campaigns.get(campaign).stored
        sent = watched.progress
        return sent is not None and (sent.state, sent.round) != (stored.state.value, stored.round)

    async def _watch(self, campaign: str, watched: _Watched) -> None:
        """Count and send while the campaign has watchers."""
        try:
            while watched.watchers:
                # While the store is unavailable, watchers get no new event.
                with suppress(DitherError, StoreFailure):
                    await self.now(campaign)
                until = self._clock() + self._pause(watched)
                await asyncio.sleep(limits.PROGRESS_SECONDS)
                while self._clock() < until and not self._moved(campaign, watched):
                    if self._clock() - watched.sent_at >= limits.KEEPALIVE_SECONDS:
                        self._send(watched, keepalive=True)
                    await asyncio.sleep(limits.PROGRESS_SECONDS)
                self._send_state(campaign, watched)
        except NoCampaign:  # deleted
            self._end_all(watched)

    async def _check_credentials(self) -> None:
        """End the streams of invalid keys and sessions, and streams that reached their limit."""
        while self.watchers:
            await asyncio.sleep(limits.KEY_CHECK_SECONDS)
            watching = [
                watcher for watched in self._watched.values() for watcher in watched.watchers
            ]
            credentials = {watcher.credential for watcher in watching}
            # An unavailable store says nothing about any credential.
            with suppress(DitherError, StoreFailure):
                credentials = await asyncio.to_thread(self._valid, credentials)
            now = self._clock()
            for watcher in watching:
                if watcher.credential not in credentials or now >= watcher.until:
                    watcher.end()

    async def _count(self, campaign: str, watched: _Watched) -> Progress:
        async with self._counts:
            begun = self._clock()
            progress = await asyncio.to_thread(self._compute, campaign, watched.earlier)
            watched.counted_at = self._clock()
            # The next look after a count in the database adds to it, and costs nothing.
            kept = self._running.get((campaign, progress.round))
            cheap = kept is not None and kept.next_count > watched.counted_at
            watched.count_seconds = 0.0 if cheap else watched.counted_at - begun
        self._update(watched, progress)
        return progress

    def _send_state(self, campaign: str, watched: _Watched) -> None:
        """Send a new state of the same round before counting, which may take long."""
        stored, sent = self._campaigns.get(campaign).stored, watched.progress
        if sent is not None and sent.round == stored.round and sent.state != stored.state.value:
            self._update(watched, replace(sent, state=stored.state.value))
            watched.counted_at = _NEVER

    def _update(self, watched: _Watched, progress: Progress) -> None:
        if progress != watched.progress or not watched.event:
            watched.event = _event(progress, watched.progress, self.watchers)
            watched.progress = progress
            watched.version += 1
            self._send(watched)

    def _send(self, watched: _Watched, keepalive: bool = False) -> None:
        """Write the latest event to watchers without it, and to others, if asked, a comment."""
        watched.sent_at = self._clock()
        event, comment = _chunk(watched.event), _chunk(_KEEPALIVE)
        for watcher in list(watched.watchers):
            if watcher.seen != watched.version:
                self._write(watched, watcher, event)
            elif keepalive:
                self._write(watched, watcher, comment)

    @staticmethod
    def _write(watched: _Watched, watcher: _Watcher, chunk: bytes) -> None:
        """Write unless the last event is still unread; the server ends peers that never read."""
        transport = watcher.transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return
        transport.write(chunk)
        watcher.seen = watched.version

    def _compute(self, campaign: str, earlier: list[int]) -> Progress:
        live = self._campaigns.get(campaign)
        stored = live.stored
        answers = self._answers(campaign, stored.round)
        while len(earlier) < stored.round:
            number = len(earlier)
            earlier.append(self._store.count(campaign, number) or live.counted(number))
        return Progress(
            campaign=campaign,
            state=stored.state.value,
            round=stored.round,
            reports=sum(answers.values()),
            answers={str(question): count for question, count in sorted(answers.items())},
            refused=dict(sorted(self._refused.get(campaign, Counter()).items())),
            earlier=tuple(earlier[: stored.round]),
        )

    def _answers(self, campaign: str, number: int) -> dict[int, int]:
        """Return the reports of a round by question, from the last count if it is recent."""
        key = (campaign, number)
        with self._guard:
            kept = self._running.get(key)
            if kept is not None and self._clock() < kept.next_count:
                return dict(Counter(kept.counted) + kept.since)
        since: Counter[int] = Counter()

        def in_turn(function: Callable[[], T]) -> T:
            def begin() -> T:
                self._since[key] = since
                return function()

            return self._in_turn(begin)

        begun = self._clock()
        counted = self._store.answers(campaign, number, in_turn)
        ended = self._clock()
        next_count = math.inf  # this process alone writes, so it never counts again
        if self._store.shared:  # others' reports
            next_count = ended + (ended - begun) / limits.COUNT_SHARE
        with self._guard:
            if self._since.get(key) is since:
                self._running[key] = _RunningCount(counted, since, next_count)
            return dict(Counter(counted) + since)


def _chunk(body: bytes) -> bytes:
    """Encode a part of a chunked HTTP/1.1 response."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def _event(progress: Progress, before: Progress | None, watching: int) -> bytes:
    """Encode a message, preceded by one of type `state` if state or round have changed.

    It includes the number of watchers, so that pages that request more can spread out.
    """
    data = json.dumps({**asdict(progress), "watching": watching}, separators=(",", ":"))
    message = f"data: {data}\n\n"
    if before is None or (before.state, before.round) == (progress.state, progress.round):
        return message.encode("ascii")
    return f"event: state\n{message}{message}".encode("ascii")
