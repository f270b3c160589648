"""Several processes of one collector on one machine, which share sockets and database only.

Guarantee: a worker that ends for any reason is replaced, and the others serve what waits in
the sockets' queue. When the first process ends for any reason, all do.

uvicorn's own `Multiprocess` cannot replace this module: its workers survive when the first
process is killed (`test_workers_end_when_the_first_process_is_killed` in
tests/collector/test_workers.py), and it does not collect their metrics.
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

START_SECONDS = 60.0  # until all workers listen
PAUSE_SECONDS = 1.0  # before a worker that ended is replaced
END_SECONDS = 12.0  # for a shutdown; a worker needs ten at most
log = logging.getLogger("dither.collector")


@dataclass(frozen=True)
class _Work:
    """The arguments of a worker."""

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
    """The workers, the pipe to each, and whether all ended well at the shutdown."""

    work: _Work
    alive: dict[SpawnProcess, Connection] = field(default_factory=dict)
    ended_well: bool = True
    stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Start a worker."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_worker, args=(self.work, theirs), name="dither-worker")
        process.start()
        theirs.close()
        self.alive[process] = ours

    def await_end(self, seconds: float) -> list[SpawnProcess]:
        """Return and remove the workers that end within `seconds`."""
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
    """Serve with `count` processes until SIGTERM or SIGINT; print the address when all listen."""
    log_to_stderr()
    # A wrong option fails here once, not in every worker again and again.
    room_for_connections(connections)
    open_store(store).close()
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
    """Return whether a worker ended as expected; SIGTERM may end one that was still starting."""
    return process.exitcode in (0, -signal.SIGTERM)


def _worker(work: _Work, pipe: Connection) -> None:
    """Run one process: report on the pipe that it listens; end when the pipe is closed."""

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
