"""How campaigns get on, for whoever watches: one computation for all who look, and the same bytes for each.

A campaign that somebody watches is looked at every `EVERY_SECONDS`; less often where many watch or looking takes long, so that
telling them takes at most about `SHARE` of this process: uploads come first. What is told are counts and states, no report and no
time. Refused reports are counted in memory, by this process since its start: nothing is stored of what is refused.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from dither.collector.campaigns import Campaigns
from dither.collector.store import Store
from dither.errors import DitherError

EVERY_SECONDS = 1.0
PER_WATCHER = 100e-6  # seconds that telling one of them takes, about
SHARE = 0.01  # of this process
LOOK_SHARE = 0.005  # of the database, for looking at one campaign
QUIET_SECONDS = 10.0  # after which a line without meaning tells whether anybody still reads
STREAM_SECONDS = 300.0  # after which whoever watches asks anew, and is asked for the key anew
MOST_WATCHERS = 2_000
_LOOKS = 2  # at the store at a time


class TooManyWatchers(DitherError):
    """More watch than are told; ask for the progress now and then instead."""


@dataclass(frozen=True)
class Progress:
    """Where a campaign stands: reports of its present round by question, and what was refused by reason."""

    campaign: str
    state: str
    round: int
    reports: int
    answers: dict[str, int]
    refused: dict[str, int]

    def to_json(self) -> dict[str, object]:
        return dict(vars(self))


@dataclass
class _Watched:
    """One campaign that somebody watches."""

    watchers: int = 0
    version: int = 0
    progress: Progress | None = None
    event: bytes = b""
    looked: float = -1e9  # when
    took: float = 0.0  # seconds
    told: float = -1e9  # when those who watch were last told something
    task: asyncio.Task[None] | None = None
    looking: asyncio.Task[Progress] | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)


class LiveProgress:
    """Progress of campaigns. All methods but `refused` are called in one event loop."""

    def __init__(self, campaigns: Campaigns, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._campaigns, self._store, self._clock = campaigns, store, clock
        self._watched: dict[str, _Watched] = {}
        self._refused: dict[str, Counter[str]] = {}
        self._looks = asyncio.Semaphore(_LOOKS)
        self._ended = False

    def refused(self, campaign: str, cause: str, count: int = 1) -> None:
        """Reports of a campaign were refused; called where uploads are answered, so it must cost nothing."""
        self._refused.setdefault(campaign, Counter())[cause] += count

    @property
    def watchers(self) -> int:
        """How many watch."""
        return sum(found.watchers for found in self._watched.values())

    async def now(self, campaign: str) -> Progress:
        """Where a campaign stands, at most about a second ago; one look at a time, whoever asks."""
        watched = self._watched.setdefault(campaign, _Watched())
        try:
            fresh = self._clock() - watched.looked < self._pause(watched)
            if watched.progress is not None and fresh:
                return watched.progress
            if watched.looking is None or watched.looking.done():
                watched.looking = asyncio.create_task(self._look(campaign, watched))
            return await asyncio.shield(watched.looking)
        finally:
            self._forget(campaign)

    async def follow(self, campaign: str) -> AsyncIterator[bytes]:
        """Server-sent events: where it stands, then again whenever that has changed."""
        if self.watchers >= MOST_WATCHERS:
            raise TooManyWatchers("too many watch already; ask for the progress now and then")
        await self.now(campaign)
        return self._events(campaign)

    async def _events(self, campaign: str) -> AsyncIterator[bytes]:
        watched = self._watched.setdefault(campaign, _Watched())
        watched.watchers += 1
        seen, until = -1, self._clock() + STREAM_SECONDS
        try:
            if watched.task is None:
                watched.task = asyncio.create_task(self._watch(campaign, watched))
            yield b"retry: 2000\n\n"
            while not self._ended and self._clock() < until:
                news = watched.news
                if seen != watched.version and watched.event:
                    seen = watched.version
                    yield watched.event
                    continue
                await news.wait()
                if seen == watched.version and not self._ended:
                    yield b": still here\n\n"
        finally:
            watched.watchers -= 1
            if not watched.watchers and watched.task is not None:
                watched.task.cancel()
                watched.task = None
            self._forget(campaign)

    def end(self) -> None:
        """The server stops: everybody's stream ends."""
        self._ended = True
        for watched in self._watched.values():
            watched.news.set()

    def _forget(self, campaign: str) -> None:
        """Nothing is kept of campaigns that nobody watches, but for a moment's answer."""
        if len(self._watched) > 100:
            for name, found in list(self._watched.items()):
                if not found.watchers and name != campaign:
                    del self._watched[name]

    def _pause(self, watched: _Watched) -> float:
        """Until the next look: telling all who watch, and looking, stay within their shares."""
        return max(EVERY_SECONDS, self.watchers * PER_WATCHER / SHARE, watched.took / LOOK_SHARE)

    async def _watch(self, campaign: str, watched: _Watched) -> None:
        while not self._ended:
            with suppress(DitherError):  # the store is away: who watches hears nothing new until it is back
                await self._look(campaign, watched)
            until = self._clock() + self._pause(watched)
            while (left := until - self._clock()) > 0:
                await asyncio.sleep(min(left, QUIET_SECONDS))
                if self._clock() - watched.told >= QUIET_SECONDS:
                    self._tell(watched)

    async def _look(self, campaign: str, watched: _Watched) -> Progress:
        async with self._looks:
            begun = self._clock()
            found = await asyncio.to_thread(self._compute, campaign)
            watched.looked, watched.took = self._clock(), self._clock() - begun
        if found != watched.progress or not watched.event:
            watched.event = _event(found, watched.progress)
            watched.progress = found
            watched.version += 1
            self._tell(watched)
        return found

    def _tell(self, watched: _Watched) -> None:
        """Wake all who watch, with one timer for all of them."""
        watched.told = self._clock()
        earlier, watched.news = watched.news, asyncio.Event()
        earlier.set()

    def _compute(self, campaign: str) -> Progress:
        stored = self._campaigns.get(campaign).stored
        answers = self._store.answers(campaign, stored.round)
        return Progress(
            campaign=campaign,
            state=stored.state.value,
            round=stored.round,
            reports=sum(answers.values()),
            answers={str(question): count for question, count in sorted(answers.items())},
            refused=dict(sorted(self._refused.get(campaign, Counter()).items())),
        )


def _event(found: Progress, before: Progress | None) -> bytes:
    """A message for every change; one of the kind `state` before it where state or round have changed."""
    data = json.dumps(found.to_json(), separators=(",", ":"))
    moved = before is not None and (before.state, before.round) != (found.state, found.round)
    kinds = ["event: state\n", ""] if moved else [""]
    return "".join(f"{kind}data: {data}\n\n" for kind in kinds).encode("ascii")
