"""Several processes of one collector on one machine: they share the listening sockets and the database, nothing else.

Guarantee: a worker that ends, however it ends, is replaced, and what waited in the sockets' queue is served by the others; when the
first process ends, however it ends, so do all.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from dither.collector.app import Pages
from dither.collector.connections import room_for_connections
from dither.collector.metrics import retire
from dither.collector.serving import listening_lines, log_to_stderr, open_store, serve
from dither.errors import DitherError

START_SECONDS = 60.0  # for all workers to be listening
PAUSE_SECONDS = 1.0  # before a worker that ended by itself is replaced
END_SECONDS = 12.0  # for workers to end by themselves, which they promise to do in ten
log = logging.getLogger("dither.collector")


@dataclass(frozen=True)
class _Work:
    """What each worker is told."""

    store: str
    key: str
    sockets: list[socket.socket]
    queue_reports: int
    connections: int | None
    counters: Path
    pages: Pages | None
    public_url: str | None


@dataclass
class _Workers:
    """The workers, the pipe to each, and how those ended that were not to be replaced."""

    work: _Work
    alive: dict[SpawnProcess, Connection] = field(default_factory=dict)
    ended_well: bool = True
    stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """One more worker."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_worker, args=(self.work, theirs), name="dither-worker")
        process.start()
        theirs.close()
        self.alive[process] = ours

    def await_end(self, seconds: float) -> list[SpawnProcess]:
        """The workers that end within so many seconds, taken off the list."""
        wait([process.sentinel for process in self.alive], timeout=seconds)
        gone = [process for process in self.alive if not process.is_alive()]
        for process in gone:
            self.alive.pop(process).close()
            retire(self.work.counters, process.pid or 0)
        return gone

    def signal(self, number: signal.Signals) -> None:
        for process in self.alive:
            if process.pid is not None:
                os.kill(process.pid, number)


def serve_workers(
    count: int,
    store: str,
    key: str,
    sockets: list[socket.socket],
    queue_reports: int,
    connections: int | None,
    pages: Pages | None = None,
    public_url: str | None = None,
) -> None:
    """Serve with so many processes until SIGTERM or SIGINT; says the address once all of them listen."""
    log_to_stderr()
    room_for_connections(connections)  # each worker would find that there is none, again and again
    open_store(store).close()  # a wrong address or layout is said once, before anything is started
    counters = Path(tempfile.mkdtemp(prefix="dither-counters-"))
    workers = _Workers(
        _Work(store, key, sockets, queue_reports, connections, counters, pages, public_url)
    )

    def stop(number: int, frame: object) -> None:
        workers.stopping.set()

    earlier = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for _ in range(count):
            workers.start()
        _run(workers, lambda: [print(line, flush=True) for line in listening_lines(sockets)])
    finally:
        workers.signal(signal.SIGKILL)
        while workers.alive:
            workers.await_end(1.0)
        shutil.rmtree(counters, ignore_errors=True)
        for number, handler in earlier.items():
            signal.signal(number, handler)
    if not workers.ended_well:
        raise SystemExit(1)


def _run(workers: _Workers, say: Callable[[], object]) -> None:
    deadline, waiting = time.monotonic() + START_SECONDS, True
    while not workers.stopping.is_set():
        if waiting and all(pipe.poll() for pipe in workers.alive.values()):
            waiting = False
            say()
        if waiting and time.monotonic() > deadline:
            raise DitherError(f"the workers did not start within {START_SECONDS:g} s")
        for process in workers.await_end(0.1):
            if workers.stopping.is_set():
                workers.ended_well &= _well(process)
                continue
            log.error(
                "worker %d ended with status %s; another one takes its place",
                process.pid,
                process.exitcode,
            )
            time.sleep(PAUSE_SECONDS)
            workers.start()
    workers.signal(signal.SIGTERM)
    deadline = time.monotonic() + END_SECONDS
    while workers.alive and time.monotonic() < deadline:
        for process in workers.await_end(0.1):
            workers.ended_well &= _well(process)
    workers.ended_well &= not workers.alive


def _well(process: SpawnProcess) -> bool:
    """Whether a worker ended as it was told to; one that was still starting does not know how to, and need not."""
    return process.exitcode in (0, -signal.SIGTERM)


def _worker(work: _Work, pipe: Connection) -> None:
    """One process: says on the pipe that it listens, and ends when the other end of it is gone."""

    def end_with_the_first() -> None:
        try:
            pipe.recv()
        except (EOFError, OSError):
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_the_first, daemon=True).start()
    log_to_stderr()
    try:
        serve(
            *(work.store, work.key, work.sockets, work.queue_reports, work.connections),
            say=pipe.send,
            counters=work.counters,
            pages=work.pages,
            public_url=work.public_url,
        )
    except DitherError as error:
        log.error("a worker cannot start: %s", error)
        sys.exit(1)
