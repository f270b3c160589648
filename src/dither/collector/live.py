"""How campaigns get on, for whoever watches: one computation for all who look, and the same bytes for each.

A campaign that somebody watches is looked at every `EVERY_SECONDS`; less often where many watch or looking takes long, so that
all of them together hear of `EVENTS_PER_SECOND` counts: uploads come first. A change of state or round is told at once. An event is
made once and written to each connection as it is, without a task for any of them. What is told are counts and states, no report and
no time. Refused reports are counted in memory, by this process since its start: nothing is stored of what is refused.

Guarantee: a stream ends within `CHECK_SECONDS`, and the time that the store takes to answer, after its key was revoked or its
session has ended.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from dither.collector.campaigns import Campaigns, NoCampaign
from dither.collector.sessions import Credential
from dither.collector.store import Store, StoreFailure
from dither.errors import DitherError

EVERY_SECONDS = 1.0
EVENTS_PER_SECOND = 100  # of all streams of this process together
LOOK_SHARE = 0.005  # of the database, for looking at one campaign
QUIET_SECONDS = 20.0  # after which a line without meaning tells whether anybody still reads
CHECK_SECONDS = (
    2.0  # after which keys and sessions are looked at again, each once however many streams it has
)
STREAM_SECONDS = 1800.0  # after which whoever watches asks anew
MAX_WATCHERS = 2_000
_LOOKS = 2  # at the store at a time
_QUIET = b": still here\n\n"
_LAST = b"0\r\n\r\n"

TakeOver = Callable[[Callable[[], None]], asyncio.Transport | None]
Living = Callable[[set[Credential]], set[Credential]]


class TooManyWatchers(DitherError):
    """More watch than are told; ask for the progress now and then instead."""


@dataclass(frozen=True)
class Progress:
    """Where a campaign stands: reports of earlier rounds, those of the present one by question, and what was refused by reason."""

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
    """Somebody who watches, and which event they have heard."""

    credential: Credential
    until: float
    transport: asyncio.Transport | None = None
    seen: int = -1

    def end(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(_LAST)
            self.transport.close()


@dataclass
class _Watched:
    """One campaign that somebody watches."""

    watchers: set[_Watcher] = field(default_factory=set)
    version: int = 0
    progress: Progress | None = None
    event: bytes = b""
    earlier: list[int] = field(
        default_factory=list
    )  # reports of rounds that are over, which no longer change
    looked: float = -1e9  # when
    took: float = 0.0  # seconds
    told: float = -1e9  # when those who watch were last told something
    task: asyncio.Task[None] | None = None
    looking: asyncio.Task[Progress] | None = None


class LiveProgress:
    """Progress of campaigns. All methods but `refused` are called in one event loop. `living` says which of some keys and sessions
    still are valid; it asks the store, and is called in a thread."""

    def __init__(
        self,
        campaigns: Campaigns,
        store: Store,
        living: Living,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._campaigns, self._store, self._living, self._clock = campaigns, store, living, clock
        self._watched: dict[str, _Watched] = {}
        self._refused: dict[str, Counter[str]] = {}
        self._looks = asyncio.Semaphore(_LOOKS)
        self._checking: asyncio.Task[None] | None = None
        self._ended = False

    def refused(self, campaign: str, cause: str, count: int = 1) -> None:
        """Reports of a campaign were refused; called where uploads are answered, so it must cost nothing."""
        self._refused.setdefault(campaign, Counter())[cause] += count

    @property
    def watchers(self) -> int:
        """How many watch."""
        return sum(len(found.watchers) for found in self._watched.values())

    async def now(self, campaign: str) -> Progress:
        """Where a campaign stands, at most about a second ago; one look at a time, whoever asks."""
        watched = self._watched.setdefault(campaign, _Watched())
        try:
            fresh = self._clock() - watched.looked < self._pause(watched) and not self._moved(
                campaign, watched
            )
            if watched.progress is not None and fresh:
                return watched.progress
            if watched.looking is None or watched.looking.done():
                watched.looking = asyncio.create_task(self._look(campaign, watched))
            return await asyncio.shield(watched.looking)
        finally:
            self._forget(campaign)

    async def check_room(self, campaign: str) -> None:
        """Refuse one more who would watch, where there is no such campaign or no room."""
        if self.watchers >= MAX_WATCHERS:
            raise TooManyWatchers("too many watch already; ask for the progress now and then")
        await self.now(campaign)

    def follow(self, campaign: str, credential: Credential, take_over: TakeOver) -> None:
        """Write server-sent events to a connection: where it stands, then again whenever that has changed."""
        watched = self._watched.setdefault(campaign, _Watched())
        watcher = _Watcher(credential, self._clock() + STREAM_SECONDS)
        watcher.transport = take_over(partial(watched.watchers.discard, watcher))
        if watcher.transport is None:
            return
        watched.watchers.add(watcher)
        # After a restart all of them come back, though not all in the same moment.
        watcher.transport.write(_chunk(b"retry: %d\n\n" % (2000 + 3 * (self.watchers % 1000))))
        if self._ended:
            watcher.end()
            return
        if watched.event:
            self._write(watched, watcher, _chunk(watched.event))
        if watched.task is None or watched.task.done():
            watched.task = asyncio.create_task(self._watch(campaign, watched))
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())

    def end(self) -> None:
        """The server stops: everybody's stream ends."""
        self._ended = True
        for watched in self._watched.values():
            self._end_all(watched)

    @staticmethod
    def _end_all(watched: _Watched) -> None:
        for watcher in list(watched.watchers):
            watcher.end()

    def _forget(self, campaign: str) -> None:
        """Nothing is kept of campaigns that nobody watches, but for a moment's answer."""
        if len(self._watched) > 100:
            for name, found in list(self._watched.items()):
                if not found.watchers and name != campaign:
                    del self._watched[name]

    def _pause(self, watched: _Watched) -> float:
        """Until the next look: telling all who watch, and looking, stay within their shares."""
        return max(EVERY_SECONDS, self.watchers / EVENTS_PER_SECOND, watched.took / LOOK_SHARE)

    def _moved(self, campaign: str, watched: _Watched) -> bool:
        """Whether state or round are no longer those that were told; nobody has to be asked for that."""
        stored = self._campaigns.get(campaign).stored
        known = watched.progress
        return known is not None and (known.state, known.round) != (
            stored.state.value,
            stored.round,
        )

    async def _watch(self, campaign: str, watched: _Watched) -> None:
        """Look and tell for as long as anybody watches."""
        try:
            while watched.watchers:
                # While the store is away, who watches hears nothing new.
                with suppress(DitherError, StoreFailure):
                    await self.now(campaign)
                until = self._clock() + self._pause(watched)
                await asyncio.sleep(EVERY_SECONDS)
                while self._clock() < until and not self._moved(campaign, watched):
                    if self._clock() - watched.told >= QUIET_SECONDS:
                        self._tell(watched, quiet=True)
                    await asyncio.sleep(EVERY_SECONDS)
                self._tell_state(campaign, watched)
        except NoCampaign:  # deleted
            self._end_all(watched)

    async def _check(self) -> None:
        """End the streams of keys and sessions that are no longer valid, and those whose time is over."""
        while self.watchers:
            await asyncio.sleep(CHECK_SECONDS)
            watching = [
                watcher for watched in self._watched.values() for watcher in watched.watchers
            ]
            credentials = {watcher.credential for watcher in watching}
            with suppress(
                DitherError, StoreFailure
            ):  # a store that is away says nothing about anybody
                credentials = await asyncio.to_thread(self._living, credentials)
            now = self._clock()
            for watcher in watching:
                if watcher.credential not in credentials or now >= watcher.until:
                    watcher.end()

    async def _look(self, campaign: str, watched: _Watched) -> Progress:
        async with self._looks:
            begun = self._clock()
            found = await asyncio.to_thread(self._compute, campaign, watched.earlier)
            watched.looked, watched.took = self._clock(), self._clock() - begun
        self._learn(watched, found)
        return found

    def _tell_state(self, campaign: str, watched: _Watched) -> None:
        """Tell of another state of the same round before anything is counted, which may take long."""
        stored, known = self._campaigns.get(campaign).stored, watched.progress
        if known is not None and known.round == stored.round and known.state != stored.state.value:
            self._learn(watched, replace(known, state=stored.state.value))
            watched.looked = -1e9

    def _learn(self, watched: _Watched, found: Progress) -> None:
        if found != watched.progress or not watched.event:
            watched.event = _event(found, watched.progress, self.watchers)
            watched.progress = found
            watched.version += 1
            self._tell(watched)

    def _tell(self, watched: _Watched, quiet: bool = False) -> None:
        """Write the latest event to all who have not heard it, and otherwise, if asked, a line that says nothing."""
        watched.told = self._clock()
        event, line = _chunk(watched.event), _chunk(_QUIET)
        for watcher in list(watched.watchers):
            if watcher.seen != watched.version:
                self._write(watched, watcher, event)
            elif quiet:
                self._write(watched, watcher, line)

    @staticmethod
    def _write(watched: _Watched, watcher: _Watcher, chunk: bytes) -> None:
        """Whoever has not read the last event yet hears a later one; the server ends who reads nothing at all."""
        transport = watcher.transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return
        transport.write(chunk)
        watcher.seen = watched.version

    def _compute(self, campaign: str, earlier: list[int]) -> Progress:
        stored = self._campaigns.get(campaign).stored
        answers = self._store.answers(campaign, stored.round)
        while len(earlier) < stored.round:
            earlier.append(self._store.count(campaign, len(earlier)))
        return Progress(
            campaign=campaign,
            state=stored.state.value,
            round=stored.round,
            reports=sum(answers.values()),
            answers={str(question): count for question, count in sorted(answers.items())},
            refused=dict(sorted(self._refused.get(campaign, Counter()).items())),
            earlier=tuple(earlier[: stored.round]),
        )


def _chunk(body: bytes) -> bytes:
    """A part of an HTTP/1.1 answer whose length nobody knows."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def _event(found: Progress, before: Progress | None, watching: int) -> bytes:
    """A message for every change; one of the kind `state` before it where state or round have changed.

    How many watch is said beside it, for those who then ask for more: they need not all ask at once.
    """
    data = json.dumps({**asdict(found), "watching": watching}, separators=(",", ":"))
    moved = before is not None and (before.state, before.round) != (found.state, found.round)
    kinds = ["event: state\n", ""] if moved else [""]
    return "".join(f"{kind}data: {data}\n\n" for kind in kinds).encode("ascii")
