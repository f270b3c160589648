"""Tallies of stored reports: rebuilt from the store, or kept up to date while reports arrive.

A running tally is a cache; the store is the truth. `Store.running_tally` chooses the
implementation: `LocalTallies` for a store that one process writes, `SharedTallies` for
PostgreSQL, and `RebuiltTallies` for any other shared store. All agree with `rebuild` to the
integer. Closing a round always reads the store.

Several collectors that fill a round through one PostgreSQL each count the reports that they
store; a reader adds up the counts. The result equals the stored reports to the integer, by
epochs:

- Every transaction that adds reports reads the round's epoch while it holds the round's
  advisory lock, and records that its process adds in this epoch.
- Ending an epoch takes that lock exclusively. Then everything added in the epoch is
  committed, and the processes that added are known.
- The tally is the sum of what those processes counted and of everything before. If a
  process cannot publish its count (it was killed, or a commit has an unknown outcome),
  all reports are counted again.

Nothing is recorded before a running tally is first read.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dither.collector import limits
from dither.collector.layout import Transaction, rounds, running
from dither.collector.store import Batch, InTurn, Outcome, PlanOf, Row, Store, StoreUnavailable
from dither.mechanisms import PackedReports
from dither.reports import Plan
from dither.tally import RoundTally, tally_from_bytes, zero

# Adding one report at a time costs as much as adding thousands: NumPy calls dominate.
_FOLD_REPORTS = 4096
_TRIES = 3  # counts that failing commits may invalidate before a read fails


class ReportSource(Protocol):
    """What holds the reports of rounds, such as a store."""

    def reports(self, campaign: str, number: int) -> Iterator[list[Row]]:
        """Yield blocks of a round's reports."""


def rebuild(store: ReportSource, campaign: str, plan: Plan) -> RoundTally:
    """Count all stored reports of a round."""
    tally = zero(plan)
    for rows in store.reports(campaign, plan.round):
        _add_rows(tally, rows)
    return tally


def _add_rows(tally: RoundTally, rows: Iterable[Row]) -> None:
    """Add stored reports to a tally, grouped by question."""
    by_question: dict[int, list[bytes]] = {}
    for row in rows:
        by_question.setdefault(row.question, []).append(row.payload)
    for question, payloads in by_question.items():
        packed = np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), -1)
        tally.add(question, PackedReports(packed))


def _new_rows(batch: Batch, outcomes: Sequence[Outcome]) -> list[Row]:
    """Return the rows of a committed batch that were not stored before."""
    pairs = zip(batch.rows, outcomes, strict=True)
    return [row for row, outcome in pairs if outcome is Outcome.STORED]


class RebuiltTallies:
    """Counts a round again at every read: exact for any store, at the cost of a full scan."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Do nothing: nothing is kept."""

    def forget(self, campaign: str, number: int) -> None:
        """Do nothing: nothing is kept."""

    def publish(self) -> None:
        """Do nothing: nothing is kept."""

    def read(self, campaign: str, plan: Plan) -> RoundTally:
        """Count all reports of the round."""
        return rebuild(self._store, campaign, plan)

    def close(self, campaign: str, plan: Plan) -> RoundTally | None:
        """Return None: no tally is kept."""
        return None


@dataclass
class _RunningTally:
    tally: RoundTally
    pending: list[Row] = field(default_factory=list)

    def fold(self) -> None:
        """Add the pending rows to the tally."""
        if self.pending:
            _add_rows(self.tally, self.pending)
            self.pending = []


@dataclass
class _Count:
    """A count in progress.

    Pages are read in the order of report ids. A report committed during the count is
    either ahead of the page being read, and will be read, or must be added separately.
    """

    committed: list[Row] = field(default_factory=list)  # since the previous page was read

    def missed(self, page: Sequence[Row], last: bool) -> list[Row]:
        """Return committed reports that are neither in this page nor in a later one."""
        in_page = {row.report_id for row in page}
        end = page[-1].report_id if page else b""
        behind = [row for row in self.committed if last or row.report_id <= end]
        self.committed = []
        return [row for row in behind if row.report_id not in in_page]


class LocalTallies:
    """Running tallies of a store that only this process writes.

    The state is used in the writing thread only, so that no tally is read during a commit.
    `read` and `close` are called in other threads and enter the writing thread by `in_turn`.
    """

    def __init__(self, store: Store, in_turn: InTurn) -> None:
        self._store = store
        self._in_turn = in_turn
        self._running: dict[tuple[str, int], _RunningTally] = {}
        self._counts: dict[tuple[str, int], _Count] = {}
        self._counting = threading.Lock()  # one count at a time

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Add the new reports of a committed batch."""
        key = (batch.campaign, batch.round)
        running = self._running.get(key)
        count = self._counts.get(key)
        if running is None and count is None:
            return
        rows = _new_rows(batch, outcomes)
        if count is not None:
            count.committed += rows
        if running is not None:
            running.pending += rows
            if len(running.pending) >= _FOLD_REPORTS:
                running.fold()

    def forget(self, campaign: str, number: int) -> None:
        """Drop the round's tally and cancel a count in progress: a commit has an unknown outcome."""
        self._running.pop((campaign, number), None)
        self._counts.pop((campaign, number), None)

    def publish(self) -> None:
        """Do nothing: no other process needs these counts."""

    def read(self, campaign: str, plan: Plan) -> RoundTally:
        """Return the tally of everything committed so far; count it first if none is kept."""
        for _ in range(_TRIES):
            with self._counting:
                tally = self._in_turn(lambda: self._copy(campaign, plan))
                if tally is not None:
                    return tally
                self._count(campaign, plan)
        tally = self._in_turn(lambda: self._copy(campaign, plan))
        if tally is None:
            raise StoreUnavailable("commits keep failing; the number of stored reports is unknown")
        return tally

    def close(self, campaign: str, plan: Plan) -> RoundTally | None:
        """Return the kept tally of a closing round, if any, and drop it."""

        def take() -> RoundTally | None:
            tally = self._copy(campaign, plan)
            self.forget(campaign, plan.round)
            return tally

        return self._in_turn(take)

    def _copy(self, campaign: str, plan: Plan) -> RoundTally | None:
        running = self._running.get((campaign, plan.round))
        if running is None:
            return None
        running.fold()
        return running.tally.merge(zero(plan))  # type: ignore[arg-type]

    def _count(self, campaign: str, plan: Plan) -> None:
        """Count the stored reports and keep the tally, unless `forget` is called before the end."""
        key = (campaign, plan.round)
        tally = zero(plan)
        mine = _Count()

        def page_read(page: list[Row], last: bool) -> list[Row] | None:
            # Runs between two commits, so every earlier commit has been recorded.
            if self._counts.get(key) is not mine:
                return None
            missed = mine.missed(page, last)
            if last:
                self._running[key] = _RunningTally(tally, missed)
                del self._counts[key]
            return missed

        self._in_turn(lambda: self._counts.update({key: mine}))
        try:
            # A commit that timed out may still succeed until `settle` returns. Its reports
            # would be duplicates when they are sent again, and would never be counted.
            self._store.settle(campaign, plan.round)
            for page in chain(self._store.reports(campaign, plan.round, limits.TALLY_PAGE), [[]]):
                _add_rows(tally, page)
                last = len(page) < limits.TALLY_PAGE
                missed = self._in_turn(partial(page_read, page, last))
                if last or missed is None:
                    return
                _add_rows(tally, missed)
        except BaseException:
            self._in_turn(lambda: self.forget(campaign, plan.round))
            raise


_POLL_SECONDS = 0.02
_SHARED_PAGE = 1 << 16
_ADDS = (
    "INSERT INTO running (round_key, epoch, worker) VALUES (:key, :epoch, :worker) "
    "ON CONFLICT DO NOTHING"
)
_END = "UPDATE rounds SET epoch = epoch + 1 WHERE key = :key RETURNING epoch - 1"


class _Part(NamedTuple):
    """What one process counted of a round in one epoch.

    `tally` is None until it is published, and empty if the process cannot know it. An
    empty `worker` marks the sum of everything up to the end of the epoch.
    """

    epoch: int
    worker: str
    tally: bytes | None


class Epochs:
    """The epochs of a store's rounds, in its tables.

    Args:
        write: Opens a writing transaction that ends within the given seconds.
        read: Opens a reading transaction that ends within the given seconds.
        lock_round: Query that locks a round exclusively and returns its row.
        announce: Notifies the other collectors when the transaction commits.
        table: Names the table of a round's reports.
    """

    def __init__(
        self,
        write: Transaction,
        read: Transaction,
        lock_round: sa.TextClause,
        announce: Callable[[Connection, str], None],
        table: Callable[[int], str],
    ) -> None:
        self.worker = secrets.token_hex(8)
        self._write, self._read = write, read
        self._lock_round, self._announce, self._table = lock_round, announce, table
        self._recorded: set[tuple[int, int]] = set()
        # Round key and epoch of the latest addition to each round; used in the writing thread.
        self.latest: dict[tuple[str, int], tuple[int, int]] = {}

    def adding(
        self, connection: Connection, campaign: str, number: int, key: int, epoch: int
    ) -> None:
        """Record that this process adds to a round in this transaction."""
        self.latest[campaign, number] = (key, epoch)
        if epoch and (key, epoch) not in self._recorded:
            connection.execute(sa.text(_ADDS), {"key": key, "epoch": epoch, "worker": self.worker})

    def deleting(self, connection: Connection, key: int, epoch: int) -> None:
        """Record in this transaction that a counted report is deleted.

        The part stays empty, so the next read counts all reports again. A count in progress
        has ended an earlier epoch and does not replace it.
        """
        if epoch:
            values = {"key": key, "epoch": epoch, "worker": f"deleted-{self.worker}"}
            connection.execute(sa.text(_ADDS), values)
            c = running.c
            mine = (c.round_key == key, c.epoch == epoch, c.worker == values["worker"])
            connection.execute(sa.update(running).where(*mine).values(tally=b""))

    def added(self, key: int, epoch: int) -> None:
        """Note that such a transaction was committed, so that it need not be recorded again."""
        self._recorded.add((key, epoch))

    def current(self, keys: list[int]) -> dict[int, int]:
        """Return the current epochs of rounds."""
        query = sa.select(rounds.c.key, rounds.c.epoch).where(rounds.c.key.in_(keys))
        with self._read(limits.ANSWER_SECONDS) as connection:
            return {r.key: r.epoch for r in connection.execute(query)}

    def parts(self, key: int) -> list[_Part]:
        """Return the recorded parts of a round's tally."""
        c = running.c
        query = sa.select(c.epoch, c.worker, c.tally).where(c.round_key == key, c.epoch >= 0)
        with self._read(limits.WORK_SECONDS) as connection:
            return [_Part._make(r) for r in connection.execute(query)]

    def end(self, campaign: str, number: int) -> None:
        """End a round's epoch, between two transactions that add to it."""
        with self._write(limits.ANSWER_SECONDS) as connection:
            self._end(connection, campaign, number)

    def _end(self, connection: Connection, campaign: str, number: int) -> tuple[int, int]:
        """End a round's epoch; return the round's key and the epoch that ended."""
        locked = connection.execute(
            self._lock_round, {"campaign": campaign, "number": number}
        ).one()
        self._announce(connection, campaign)
        return locked.key, connection.execute(sa.text(_END), {"key": locked.key}).scalar_one()

    def publish(self, key: int, epoch: int, tally: bytes) -> None:
        """Store what this process counted in an epoch that has ended."""
        c = running.c
        mine = (c.round_key == key, c.epoch == epoch, c.worker == self.worker)
        with self._write(limits.WORK_SECONDS) as connection:
            connection.execute(sa.update(running).where(*mine).values(tally=tally))
        self._recorded.discard((key, epoch))

    def replace(self, key: int, epoch: int, tally: bytes) -> None:
        """Replace all parts up to an epoch by their sum."""
        c = running.c
        with self._write(limits.WORK_SECONDS) as connection:
            until = (c.round_key == key, c.epoch >= 0, c.epoch <= epoch)
            connection.execute(sa.delete(running).where(*until))
            connection.execute(
                sa.insert(running).values(round_key=key, epoch=epoch, worker="", tally=tally)
            )

    def forget(self, key: int) -> None:
        """Delete all parts of a round, so that the next read counts its reports."""
        with self._write(limits.WORK_SECONDS) as connection:
            of_round = (running.c.round_key == key, running.c.epoch >= 0)
            connection.execute(sa.delete(running).where(*of_round))

    @contextmanager
    def all_reports(
        self, campaign: str, number: int
    ) -> Iterator[tuple[int, int, Iterator[list[Row]]]]:
        """End the epoch; yield the round's key, that epoch, and all reports stored until then."""
        with self._read(limits.TIDY_SECONDS) as plain:
            snapshot = plain.execution_options(isolation_level="REPEATABLE READ")
            with self._write(limits.ANSWER_SECONDS) as connection:
                key, epoch = self._end(connection, campaign, number)
                # The first statement fixes what the snapshot sees. The lock is still held, so
                # no transaction that adds reports is in progress.
                snapshot.exec_driver_sql("SELECT 1").scalar()
            yield key, epoch, _pages(snapshot, self._table(key))


def _pages(snapshot: Connection, table: str) -> Iterator[list[Row]]:
    query = sa.text(
        f"SELECT report_id, question, payload FROM {table} WHERE report_id > :after "
        f"ORDER BY report_id LIMIT {_SHARED_PAGE}"
    )
    after = b""
    while True:
        page = [Row._make(r) for r in snapshot.execute(query, {"after": after})]
        if page:
            yield page
            after = page[-1].report_id
        if len(page) < _SHARED_PAGE:
            return


_BASE, _CHANGE = -2, -1  # in place of an epoch
_CHANGES = 256  # rows of one process between two mergers: few to read, and seldom rewritten


class AnswerCounts:
    """The numbers of a round's reports by question, without reading the reports.

    Every transaction that adds or deletes reports adds a row with its numbers to the table
    `running`, so the rows of a round sum up to its reports in every snapshot. Each process
    merges its own rows from time to time. A round without the row written at its creation,
    as in a store of an earlier version or from a backup, is counted by its reports.

    Args:
        worker: The name of this process.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._written: Counter[int] = Counter()

    def begin(self, connection: Connection, key: int) -> None:
        """Count a new round from now on."""
        self._insert(connection, key, _BASE, "", {})

    def change(self, connection: Connection, key: int, change: Mapping[int, int]) -> None:
        """Record what this transaction adds to a round; called in the writing thread."""
        total = Counter(change)
        self._written[key] += 1
        if self._written[key] % _CHANGES == 0:
            c = running.c
            mine = (c.round_key == key, c.epoch == _CHANGE, c.worker.startswith(self._worker))
            merged = connection.execute(sa.delete(running).where(*mine).returning(c.tally))
            for (numbers,) in merged.all():
                total.update(_read_counts(numbers))
        self._insert(connection, key, _CHANGE, f"{self._worker} {self._written[key]}", total)

    def read(self, connection: Connection, key: int) -> dict[int, int] | None:
        """Return the numbers by question, or None if the round's reports must be counted."""
        c = running.c
        query = sa.select(c.epoch, c.tally).where(c.round_key == key, c.epoch < 0)
        rows = connection.execute(query).all()
        if not any(row.epoch == _BASE for row in rows):
            return None
        total: Counter[int] = Counter()
        for row in rows:
            total.update(_read_counts(row.tally))
        return {question: count for question, count in total.items() if count}

    def merge(self, connection: Connection, key: int) -> None:
        """Replace the rows of all processes by one, in a round that takes no more reports."""
        total = self.read(connection, key)
        self.drop(connection, key)
        if total is not None:
            self._insert(connection, key, _BASE, "", total)

    def drop(self, connection: Connection, key: int) -> None:
        """Forget a round."""
        of_round = (running.c.round_key == key, running.c.epoch < 0)
        connection.execute(sa.delete(running).where(*of_round))

    @staticmethod
    def _insert(
        connection: Connection, key: int, epoch: int, worker: str, numbers: Mapping[int, int]
    ) -> None:
        values = {"round_key": key, "epoch": epoch, "worker": worker}
        written = json.dumps(list(numbers.items())).encode()
        connection.execute(sa.insert(running).values(**values, tally=written))


def _read_counts(numbers: bytes) -> dict[int, int]:
    return dict(json.loads(numbers))


@dataclass
class _OwnCount:
    """What this process has stored of a round in one epoch."""

    tally: RoundTally
    pending: list[Row] = field(default_factory=list)
    lost: bool = False  # a commit of this epoch has an unknown outcome

    def fold(self) -> None:
        """Add the pending rows to the tally."""
        _add_rows(self.tally, self.pending)
        self.pending = []

    def to_bytes(self) -> bytes:
        if self.lost:
            return b""
        self.fold()
        return self.tally.to_bytes()


class SharedTallies:
    """Running tallies of a store that several collectors write.

    `committed`, `forget` and the functions passed to `in_turn` run in the writing thread.

    Args:
        epochs: The store's epochs.
        round_key: Finds a round's key in the tables.
        turn: Locks a name against the other collectors.
        plan_of: Finds the plan of a campaign's round.
        in_turn: Runs a function in the writing thread.
    """

    def __init__(
        self,
        epochs: Epochs,
        round_key: Callable[[str, int], int],
        turn: Callable[[str], AbstractContextManager[None]],
        plan_of: PlanOf,
        in_turn: InTurn,
    ) -> None:
        self._epochs, self._round_key, self._turn = epochs, round_key, turn
        self._plan_of, self._in_turn = plan_of, in_turn
        self._own: dict[tuple[int, int], _OwnCount] = {}  # by the round's key and the epoch
        self._reading = threading.Lock()

    def committed(self, batch: Batch, outcomes: list[Outcome]) -> None:
        """Count the new reports of a committed batch."""
        key, epoch = self._epochs.latest.get((batch.campaign, batch.round), (0, 0))
        closed = not any(outcome.accepted for outcome in outcomes)
        if epoch == 0 or closed:  # in epoch 0 no running tally was read yet
            return
        self._epochs.added(key, epoch)
        own = self._own_count(batch.campaign, batch.round, key, epoch)
        own.pending += _new_rows(batch, outcomes)
        if len(own.pending) >= _FOLD_REPORTS:
            own.fold()

    def forget(self, campaign: str, number: int) -> None:
        """Mark this process's count of the epoch as lost: a commit has an unknown outcome."""
        key, epoch = self._epochs.latest.get((campaign, number), (0, 0))
        if epoch:
            self._own_count(campaign, number, key, epoch).lost = True

    def _own_count(self, campaign: str, number: int, key: int, epoch: int) -> _OwnCount:
        own = self._own.get((key, epoch))
        if own is None:
            own = self._own[key, epoch] = _OwnCount(zero(self._plan_of(campaign, number)))
        return own

    def publish(self) -> None:
        """Publish this process's counts of epochs that have ended."""
        held = list(self._own)
        if not held:
            return
        current = self._epochs.current([key for key, _ in held])
        for key, epoch in held:
            if current.get(key, 0) > epoch:
                own = self._in_turn(lambda at=(key, epoch): self._own.pop(at, None))  # type: ignore[misc]
                if own is not None:
                    self._epochs.publish(key, epoch, own.to_bytes())

    def read(self, campaign: str, plan: Plan) -> RoundTally:
        """Return the tally of everything that any collector has committed so far."""
        with self._reading, self._turn(f"tally {campaign} {plan.round}"):
            key = self._round_key(campaign, plan.round)
            if not _has_sum(self._epochs.parts(key)):
                return self._count(campaign, plan)
            adding_in = {part.epoch for part in self._epochs.parts(key) if part.worker}
            if self._epochs.current([key])[key] in adding_in:
                self._epochs.end(campaign, plan.round)
                self.publish()
            parts = self._await_parts(key)
            if any(not part.tally for part in parts):
                return self._count(campaign, plan)
            tallies = (tally_from_bytes(part.tally or b"") for part in parts)
            tally = reduce(lambda a, b: a.merge(b), tallies)  # type: ignore[arg-type]
            self._epochs.replace(key, max(part.epoch for part in parts), tally.to_bytes())
            return tally

    def close(self, campaign: str, plan: Plan) -> RoundTally | None:
        """Return the tally of a closing round if one was ever read, and drop it.

        If the round opens again, the next read counts all its reports.
        """
        key = self._round_key(campaign, plan.round)
        tally = self.read(campaign, plan) if _has_sum(self._epochs.parts(key)) else None
        self._epochs.forget(key)
        self._in_turn(lambda: self.forget(campaign, plan.round))
        return tally

    def _await_parts(self, key: int) -> list[_Part]:
        """Return the parts of ended epochs, once all are published or the wait is over."""
        deadline = time.monotonic() + limits.PUBLISH_WAIT_SECONDS
        while True:
            current = self._epochs.current([key])[key]
            ended = [part for part in self._epochs.parts(key) if part.epoch < current]
            if all(part.tally is not None for part in ended) or time.monotonic() > deadline:
                return ended
            time.sleep(_POLL_SECONDS)

    def _count(self, campaign: str, plan: Plan) -> RoundTally:
        tally = zero(plan)
        with self._epochs.all_reports(campaign, plan.round) as (key, epoch, pages):
            for page in pages:
                _add_rows(tally, page)
        self._epochs.replace(key, epoch, tally.to_bytes())
        return tally


def _has_sum(parts: list[_Part]) -> bool:
    return any(not part.worker for part in parts)
