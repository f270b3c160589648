"""One thread writes: uploads that wait while a commit is under way go into the next one together (group commit).

Guarantee: an outcome is delivered only after the transaction that holds the report has been committed. The queue is
bounded; a full one is said at once (`QueueFull`), never by growing. Stopping writes what is queued first, if the store lets it
within the time given. When the store is away, everything that waits hears it at once instead of waiting in vain in turn.
Nothing of what was to be stored gets into the log: of an unforeseen failure only its kind and the place in the code.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from dither.collector.store import (
    Batch,
    Outcome,
    Store,
    StoreAway,
    StoreBusy,
    StoreFailure,
    StoreFull,
)
from dither.errors import DitherError, StateError

T = TypeVar("T")
W = TypeVar("W")  # who waits for a batch
Outcomes = list[Outcome]
log = logging.getLogger("dither.collector")


class QueueFull(DitherError):
    """More reports wait to be written than the queue holds; the sender should come back."""


@dataclass(frozen=True)
class WriteResult(Generic[W]):
    """What became of one queued batch: its outcomes, or why it was not written."""

    waiter: W
    outcomes: Outcomes | None
    error: Exception | None


@dataclass(frozen=True)
class _Upload(Generic[W]):
    batch: Batch
    waiter: W


@dataclass(frozen=True)
class _Call(Generic[T]):
    function: Callable[[], T]
    outcome: Future[T]

    def run(self) -> None:
        try:
            settle = partial(self.outcome.set_result, self.function())
        except Exception as error:  # it belongs to the caller, who waits in another thread
            settle = partial(self.outcome.set_exception, error)
        with suppress(InvalidStateError):  # stopping gave it up meanwhile
            settle()


class Writer(Generic[W]):
    """The writing thread of a collector.

    `deliver` is called in that thread with the results of a whole group at once; `committed` after it, with the batches
    that are now in the store; `failed` with batches of which nobody knows whether they are.
    """

    def __init__(
        self,
        store: Store,
        deliver: Callable[[list[WriteResult[W]]], None],
        committed: Callable[[Batch, Outcomes], None] = lambda batch, outcomes: None,
        failed: Callable[[Batch], None] = lambda batch: None,
        queue_reports: int = 20_000,
        group_reports: int = 4_000,
    ) -> None:
        self._store = store
        self._deliver = deliver
        self._committed = committed
        self._failed = failed
        self._queue_reports = queue_reports
        self._group_reports = group_reports
        self._jobs: deque[_Upload[W] | _Call[Any]] = deque()
        self._waiting = 0
        self._stopping = False
        self._under_way: _Call[Any] | None = None
        self._away = False
        self._ready = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="dither-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many reports wait to be written."""
        return self._waiting

    def submit(self, batch: Batch, waiter: W) -> None:
        """Queue a batch; `deliver` will get its waiter back."""
        with self._ready:
            if self._stopping:
                raise QueueFull("the collector is shutting down")
            if self._waiting and self._waiting + len(batch.rows) > self._queue_reports:
                raise QueueFull(f"{self._waiting:,} reports wait to be written")
            self._jobs.append(_Upload(batch, waiter))
            self._waiting += len(batch.rows)
            self._ready.notify()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the writing thread, between two groups, and give its result."""
        job = _Call(function, Future())
        with self._ready:
            if self._stopping:
                raise StateError("the collector is shutting down")
            self._jobs.append(job)
            self._ready.notify()
        return job.outcome.result()

    def soon(self, function: Callable[[], None]) -> None:
        """Run a function in the writing thread behind all that is queued now; nobody waits for it, and it raises nothing."""
        with self._ready:
            if not self._stopping:
                self._jobs.append(_Call(function, Future()))
                self._ready.notify()

    def stop(self, timeout: float | None = None) -> bool:
        """Write what is queued, then end the thread; False if that took longer than `timeout` seconds and was given up.

        Whoever still waits then hears that it was not done; of the group that is being written nobody knows.
        """
        with self._ready:
            self._stopping = True
            self._ready.notify()
        self._thread.join(timeout)
        if not self._thread.is_alive():
            return True
        gone = StoreAway("the collector stops, and the database does not answer")
        with self._ready:
            uploads = self._take_uploads()
            calls = [job for job in (*self._jobs, self._under_way) if isinstance(job, _Call)]
            self._jobs.clear()
        for call in calls:
            with suppress(InvalidStateError):  # it was answered this very moment
                call.outcome.set_exception(gone)
        self._hand_over([WriteResult(upload.waiter, None, gone) for upload in uploads])
        return False

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._jobs and not self._stopping:
                    self._ready.wait()
                if not self._jobs:
                    return
                group = self._take_group()
                first = None if group else self._jobs.popleft()
                self._under_way = first if isinstance(first, _Call) else None
            if self._under_way is not None:
                self._under_way.run()
            else:
                self._write(group)

    def _take_group(self) -> list[_Upload[W]]:
        """The uploads before the next function, up to the size of a group."""
        group: list[_Upload[W]] = []
        size = 0
        while self._jobs and isinstance(job := self._jobs[0], _Upload):
            if group and size + len(job.batch.rows) > self._group_reports:
                break
            self._jobs.popleft()
            group.append(job)
            size += len(job.batch.rows)
        self._waiting -= size
        return group

    def _take_uploads(self) -> list[_Upload[W]]:
        """All uploads that wait; functions stay."""
        taken = [job for job in self._jobs if isinstance(job, _Upload)]
        self._jobs = deque(job for job in self._jobs if isinstance(job, _Call))
        self._waiting = 0
        return taken

    def _write(self, group: list[_Upload[W]]) -> None:
        try:
            outcomes = self._store.add_reports([upload.batch for upload in group])
        except Exception as error:  # a waiter must hear of any failure, and the thread must live
            for upload in group:
                self._failed(upload.batch)
            self._refuse(group, error)
            return
        if self._away:
            self._away = False
            log.warning("reports are stored again")
        done = list(zip(group, outcomes, strict=True))
        self._hand_over([WriteResult(upload.waiter, found, None) for upload, found in done])
        for upload, found in done:
            try:
                self._committed(upload.batch, found)
            except Exception as error:
                # They are stored and acknowledged; whoever keeps count of them has to start afresh.
                log.error("a commit could not be noted: %s", _place(error))
                self._failed(upload.batch)

    def _refuse(self, group: list[_Upload[W]], error: Exception) -> None:
        """Tell a group why it was not written, and if that is the store's state, all that wait behind it."""
        told = error
        if not isinstance(error, DitherError):
            log.error("a group of reports could not be written: %s", _place(error))
            told = (
                error
                if isinstance(error, StoreFailure)
                else StoreFailure(f"writing failed: {type(error).__name__}")
            )
        elif isinstance(error, (StoreAway, StoreFull)) and not isinstance(error, StoreBusy):
            if not self._away:
                log.warning("reports cannot be stored: %s", error)
            self._away = True
            with self._ready:
                group = group + self._take_uploads()
        self._hand_over([WriteResult(upload.waiter, None, told) for upload in group])

    def _hand_over(self, results: list[WriteResult[W]]) -> None:
        """Whoever waited may be gone with its event loop when the collector stops."""
        try:
            if results:
                self._deliver(results)
        except RuntimeError as error:
            if not self._stopping:
                log.error("results could not be delivered: %s", _place(error))


def _place(error: BaseException) -> str:
    """The kind of an error and where in the code it happened; its text only if it is ours, for others repeat values."""
    text = f": {error}" if isinstance(error, StoreFailure) else ""
    return f"{type(error).__name__}{text}\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()
