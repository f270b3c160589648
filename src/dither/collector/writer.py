"""One thread writes: uploads that wait while a commit is under way go into the next one together (group commit).

Guarantee: an outcome is delivered only after the transaction that holds the report has been committed. The queue is
bounded; a full one is said at once (`QueueFull`), never by growing. Stopping writes what is queued first.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from dither.collector.store import Batch, Outcome, Store
from dither.errors import DitherError, StateError

Outcomes = list[Outcome]
log = logging.getLogger("dither.collector")


class QueueFull(DitherError):
    """More reports wait to be written than the queue holds; the sender should come back."""


@dataclass(frozen=True)
class Written:
    """What became of one queued batch: its outcomes, or why it was not written."""

    waiter: Any
    outcomes: Outcomes | None
    error: Exception | None


class Writer:
    """The writing thread of a collector.

    `deliver` is called in that thread with the results of a whole group at once; `committed` after it, with the batches
    that are now in the store; `failed` with batches of which nobody knows whether they are.
    """

    def __init__(
        self,
        store: Store,
        deliver: Callable[[list[Written]], None],
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
        self._jobs: deque[tuple[Batch | Callable[[], Any], Any]] = deque()
        self._waiting = 0
        self._stopping = False
        self._ready = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="dither-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many reports wait to be written."""
        return self._waiting

    def submit(self, batch: Batch, waiter: Any) -> None:
        """Queue a batch; `deliver` will get its waiter back."""
        with self._ready:
            if self._stopping:
                raise QueueFull("the collector is shutting down")
            if self._waiting and self._waiting + len(batch.rows) > self._queue_reports:
                raise QueueFull(f"{self._waiting:,} reports wait to be written")
            self._jobs.append((batch, waiter))
            self._waiting += len(batch.rows)
            self._ready.notify()

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a function in the writing thread, between two groups, and give its result."""
        outcome: Future[Any] = Future()
        with self._ready:
            if self._stopping:
                raise StateError("the collector is shutting down")
            self._jobs.append((function, outcome))
            self._ready.notify()
        return outcome.result()

    def stop(self) -> None:
        """Write what is queued, then end the thread."""
        with self._ready:
            self._stopping = True
            self._ready.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._jobs and not self._stopping:
                    self._ready.wait()
                if not self._jobs:
                    return
                group, function = self._take()
            if function is not None:
                _answer(*function)
            else:
                self._write(group)

    def _take(self) -> tuple[list[tuple[Batch, Any]], tuple[Callable[[], Any], Future[Any]] | None]:
        """The next function, or the batches before it up to the size of a group."""
        group: list[tuple[Batch, Any]] = []
        size = 0
        while self._jobs:
            job, waiter = self._jobs[0]
            if not isinstance(job, Batch):
                if not group:
                    self._jobs.popleft()
                    return group, (job, waiter)
                break
            if group and size + len(job.rows) > self._group_reports:
                break
            self._jobs.popleft()
            group.append((job, waiter))
            size += len(job.rows)
        self._waiting -= size
        return group, None

    def _write(self, group: list[tuple[Batch, Any]]) -> None:
        batches = [batch for batch, _ in group]
        try:
            outcomes = self._store.add_reports(batches)
        except Exception as error:  # a waiter must hear of any failure, and the thread must live
            if not isinstance(error, DitherError):
                log.exception("a group of reports could not be written")
            for batch in batches:
                self._failed(batch)
            self._deliver([Written(waiter, None, error) for _, waiter in group])
            return
        self._deliver([Written(waiter, o, None) for (_, waiter), o in zip(group, outcomes, strict=True)])
        for batch, o in zip(batches, outcomes, strict=True):
            try:
                self._committed(batch, o)
            except (
                Exception
            ):  # the reports are stored and acknowledged; whoever keeps count of them has to start afresh
                log.exception("a commit could not be noted")
                self._failed(batch)


def _answer(function: Callable[[], Any], outcome: Future[Any]) -> None:
    try:
        outcome.set_result(function())
    except Exception as error:  # it belongs to the caller, who waits in another thread
        outcome.set_exception(error)
