"""Running tallies of rounds that several collectors fill: each counts what it stores, and whoever is asked adds them up.

The interface is that of `RunningTallies`, and so is the promise: exactly what is committed, to the integer. `epochs.py` says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce

from dither.collector.epochs import Epochs
from dither.collector.postgres import PostgresStore
from dither.collector.store import Batch, Outcome, Part, Row
from dither.collector.tallies import InTurn, add_rows
from dither.reports import Plan
from dither.tally import RoundTally, tally_from_bytes, zero

_FOLD = 4096  # reports gathered before they are added to a tally
_WAIT_SECONDS = 2.0  # for other collectors to say what they have counted
_LOOK_SECONDS = 0.02


@dataclass
class _Mine:
    """What this process has stored of a round in one epoch."""

    plan: Plan
    tally: RoundTally
    pending: list[Row] = field(default_factory=list)
    lost: bool = False  # a commit of which nobody knows

    def fold(self) -> None:
        add_rows(self.tally, self.pending)
        self.pending = []

    def to_bytes(self) -> bytes:
        if self.lost:
            return b""
        self.fold()
        return self.tally.to_bytes()


class SharedTallies:
    """Only the writing thread may call `committed`, `forget` and what is given to `in_turn`."""

    def __init__(self, store: PostgresStore, plan_of: Callable[[str, int], Plan]) -> None:
        self._store = store
        self._epochs: Epochs = store.epochs
        self._plan_of = plan_of
        self._mine: dict[tuple[int, int], _Mine] = {}  # by the round's key and the epoch
        self._reading = threading.Lock()

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Take note of what was just stored; repeats do not count."""
        fresh = [
            row
            for row, outcome in zip(batch.rows, outcomes, strict=True)
            if outcome is Outcome.STORED
        ]
        key, epoch = self._epochs.latest.get((batch.campaign, batch.round), (0, 0))
        if epoch == 0 or not any(
            o.accepted for o in outcomes
        ):  # nobody has asked yet, or the round is closed
            return
        self._epochs.added(key, epoch)
        held = self._mine.get((key, epoch))
        if held is None:
            plan = self._plan_of(batch.campaign, batch.round)
            held = self._mine[key, epoch] = _Mine(plan, zero(plan))
        held.pending += fresh
        if len(held.pending) >= _FOLD:
            held.fold()

    def forget(self, campaign: str, number: int) -> None:
        """Nobody knows what became of a commit: what this process says of its epoch would be wrong."""
        key, epoch = self._epochs.latest.get((campaign, number), (0, 0))
        if epoch:
            held = self._mine.setdefault(
                (key, epoch), _Mine(p := self._plan_of(campaign, number), zero(p))
            )
            held.lost = True

    def publish_ended(self, in_turn: InTurn) -> None:
        """Say what this process has counted in epochs that have ended meanwhile."""
        held = list(self._mine)
        if not held:
            return
        now = self._epochs.now([key for key, _ in held])
        for key, epoch in held:
            if now.get(key, 0) > epoch:
                # Between two groups: whatever was committed in that epoch has been taken note of.
                mine = in_turn(lambda at=(key, epoch): self._mine.pop(at, None))  # type: ignore[misc]
                if mine is not None:
                    self._epochs.publish(key, epoch, mine.to_bytes())

    def read(self, campaign: str, plan: Plan, in_turn: InTurn) -> RoundTally:
        """The tally of everything committed so far by any collector."""
        with self._reading, self._store.turn(f"tally {campaign} {plan.round}"):
            key = self._store.round_key(campaign, plan.round)
            if not _has_all_before(self._epochs.parts(key)):
                return self._count(campaign, plan)
            if self._epochs.now([key])[key] in {
                part.epoch for part in self._epochs.parts(key) if part.worker
            }:
                self._epochs.end(campaign, plan.round)
                self.publish_ended(in_turn)
            parts = self._await_parts(key)
            if any(not part.tally for part in parts):
                return self._count(campaign, plan)
            tallies = (tally_from_bytes(part.tally or b"") for part in parts)
            tally = reduce(lambda a, b: a.merge(b), tallies)  # type: ignore[arg-type]
            self._epochs.replace(key, max(part.epoch for part in parts), tally.to_bytes())
            return tally

    def kept(self, campaign: str, plan: Plan, in_turn: InTurn) -> RoundTally | None:
        """The same for a round that takes no more reports; None if nobody ever asked for it."""
        key = self._store.round_key(campaign, plan.round)
        return (
            self.read(campaign, plan, in_turn) if _has_all_before(self._epochs.parts(key)) else None
        )

    def drop(self, campaign: str, number: int) -> None:
        """The round is being closed; should it open again, everything is counted anew."""
        self._epochs.forget([self._store.round_key(campaign, number)])

    def _await_parts(self, key: int) -> list[Part]:
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            now, parts = self._epochs.now([key])[key], self._epochs.parts(key)
            ended = [part for part in parts if part.epoch < now]
            if all(part.tally is not None for part in ended) or time.monotonic() > deadline:
                return ended
            time.sleep(_LOOK_SECONDS)

    def _count(self, campaign: str, plan: Plan) -> RoundTally:
        tally = zero(plan)
        with self._store.seen_whole(campaign, plan.round) as (key, epoch, pages):
            for page in pages:
                add_rows(tally, page)
        self._epochs.replace(key, epoch, tally.to_bytes())
        return tally


def _has_all_before(parts: list[Part]) -> bool:
    return any(not part.worker for part in parts)
