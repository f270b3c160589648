"""The writing thread: uploads that arrive during a commit share the next one (group commit).

Guarantees:

- An outcome is delivered only after the transaction that holds the report was committed.
- The queue is bounded; a full one raises `QueueFull` at once.
- Stopping first writes the queued reports, if the store allows it within the given time.
- If the store is unavailable, all waiting uploads fail together instead of one after another.
- The log contains nothing that was to be stored: of an unexpected error, only its type and
  the place in the code.
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
    StoreBusy,
    StoreFailure,
    StoreFull,
    StoreUnavailable,
)
from dither.errors import DitherError, StateError

T = TypeVar("T")
W = TypeVar("W")  # what the caller wants back with the result of a batch
_Outcomes = list[Outcome]
log = logging.getLogger("dither.collector")


class QueueFull(DitherError):
    """More reports wait to be written than the queue holds; the sender should retry later."""


@dataclass(frozen=True)
class WriteResult(Generic[W]):
    """The result of one queued batch: its outcomes, or why it was not written."""

    waiter: W
    outcomes: _Outcomes | None
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
        except Exception as error:  # raised again in the thread that waits
            settle = partial(self.outcome.set_exception, error)
        with suppress(InvalidStateError):  # `stop` has already failed it
            settle()


class Writer(Generic[W]):
    """The writing thread of a collector.

    Args:
        store: Where reports are written.
        deliver: Called in the writing thread with the results of a whole group.
        committed: Called after `deliver` with each batch that is now in the store.
        failed: Called with each batch that may or may not be in the store.
        queue_reports: Reports that may wait.
        group_reports: Reports that share a transaction.
    """

    def __init__(
        self,
        store: Store,
        deliver: Callable[[list[WriteResult[W]]], None],
        committed: Callable[[Batch, _Outcomes], None] = lambda batch, outcomes: None,
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
        self._running_call: _Call[Any] | None = None
        self._unavailable = False
        self._ready = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="dither-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of reports that wait to be written."""
        return self._waiting

    def submit(self, batch: Batch, waiter: W) -> None:
        """Queue a batch; `deliver` gets its result together with `waiter`.

        Raises:
            QueueFull: The queue is full, or the collector stops.
        """
        with self._ready:
            if self._stopping:
                raise QueueFull("the collector is shutting down")
            if self._waiting and self._waiting + len(batch.rows) > self._queue_reports:
                raise QueueFull(f"{self._waiting:,} reports wait to be written")
            self._jobs.append(_Upload(batch, waiter))
            self._waiting += len(batch.rows)
            self._ready.notify()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the writing thread, between two groups, and return its result."""
        job = _Call(function, Future())
        with self._ready:
            if self._stopping:
                raise StateError("the collector is shutting down")
            self._jobs.append(job)
            self._ready.notify()
        return job.outcome.result()

    def enqueue(self, function: Callable[[], None]) -> None:
        """Run a function in the writing thread after everything queued now, without waiting."""
        with self._ready:
            if not self._stopping:
                self._jobs.append(_Call(function, Future()))
                self._ready.notify()

    def stop(self, timeout: float | None = None) -> bool:
        """Write the queued reports, then end the thread.

        Args:
            timeout: Seconds to wait; None waits without a limit.

        Returns:
            False if the time was too short. Waiting uploads and calls then fail; whether the
            group being written is stored is unknown.
        """
        with self._ready:
            self._stopping = True
            self._ready.notify()
        self._thread.join(timeout)
        if not self._thread.is_alive():
            return True
        stopped = StoreUnavailable("the collector stops, and the database does not answer")
        with self._ready:
            uploads = self._take_uploads()
            calls = [job for job in (*self._jobs, self._running_call) if isinstance(job, _Call)]
            self._jobs.clear()
        for call in calls:
            with suppress(InvalidStateError):  # it has just been answered
                call.outcome.set_exception(stopped)
        self._hand_over([WriteResult(upload.waiter, None, stopped) for upload in uploads])
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
                self._running_call = first if isinstance(first, _Call) else None
            if self._running_call is not None:
                self._running_call.run()
            else:
                self._write(group)

    def _take_group(self) -> list[_Upload[W]]:
        """Take the uploads before the next function, up to the size of a group."""
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
        """Take all waiting uploads; functions stay in the queue."""
        taken = [job for job in self._jobs if isinstance(job, _Upload)]
        self._jobs = deque(job for job in self._jobs if isinstance(job, _Call))
        self._waiting = 0
        return taken

    def _write(self, group: list[_Upload[W]]) -> None:
        try:
            outcomes = self._store.add_reports([upload.batch for upload in group])
        except Exception as error:  # every waiter must get a result, and the thread must live
            for upload in group:
                self._failed(upload.batch)
            self._refuse(group, error)
            return
        if self._unavailable:
            self._unavailable = False
            log.warning("reports are stored again")
        written = list(zip(group, outcomes, strict=True))
        self._hand_over([WriteResult(upload.waiter, each, None) for upload, each in written])
        for upload, each in written:
            try:
                self._committed(upload.batch, each)
            except Exception as error:
                # The reports are stored and acknowledged; only the counts must be rebuilt.
                log.error("a commit could not be counted: %s", _place(error))
                self._failed(upload.batch)

    def _refuse(self, group: list[_Upload[W]], error: Exception) -> None:
        """Fail a group; if the store itself is the cause, fail everything that waits."""
        reported = error
        if not isinstance(error, DitherError):
            log.error("a group of reports could not be written: %s", _place(error))
            if not isinstance(error, StoreFailure):
                reported = StoreFailure(f"writing failed: {type(error).__name__}")
        elif isinstance(error, (StoreUnavailable, StoreFull)) and not isinstance(error, StoreBusy):
            if not self._unavailable:
                log.warning("reports cannot be stored: %s", error)
            self._unavailable = True
            with self._ready:
                group = group + self._take_uploads()
        self._hand_over([WriteResult(upload.waiter, None, reported) for upload in group])

    def _hand_over(self, results: list[WriteResult[W]]) -> None:
        """Deliver results; at a shutdown the event loop of the waiters may be gone."""
        try:
            if results:
                self._deliver(results)
        except RuntimeError as error:
            if not self._stopping:
                log.error("results could not be delivered: %s", _place(error))


def _place(error: BaseException) -> str:
    """Describe an error by type and traceback; its text only if it is ours, without values."""
    text = f": {error}" if isinstance(error, StoreFailure) else ""
    lines = "".join(traceback.format_tb(error.__traceback__))
    return f"{type(error).__name__}{text}\n{lines}".rstrip()
