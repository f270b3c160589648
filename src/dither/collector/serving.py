"""Runs a collector until a signal, in one process or several.

It keeps no access log, and no log has an address. A shutdown writes the queue.

Several processes share sockets and database only. A worker that ends for any reason is
replaced, and the others serve what waits in the sockets' queue. When the first process ends
for any reason, all do. uvicorn's own `Multiprocess` cannot replace `serve_workers`: its
workers survive when the first process is killed
(`test_workers_end_when_the_first_process_is_killed` in tests/collector/test_workers.py), and
it does not collect their metrics.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import multiprocessing
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from dither.collector import limits
from dither.collector.app import Pages, make_app
from dither.collector.clock import DatabaseClock
from dither.collector.collector import Collector
from dither.collector.connections import Connections, GuardedProtocol, room_for_connections
from dither.collector.metrics import Metrics
from dither.collector.postgres import PostgresStore
from dither.collector.problems import RateLimitFilter
from dither.collector.sqlite import SqliteStore
from dither.collector.store import Store
from dither.errors import DitherError, InputError
from dither.plugins import Plugin, plugin
from dither.private_files import make_private

_MIN_KEY = 16
log = logging.getLogger("dither.collector")


def open_store(address: str) -> Store:
    """Open the store at a file's path, a postgresql:// address, or a plug-in's address."""
    if address.startswith(("postgresql:", "postgres:")):
        return PostgresStore(address)
    if "://" in address:
        kind = re.split(r"[^\w+.-]", address)[0]  # the rest may hold a password
        if (added := plugin("stores", kind)) is not None:
            return _added_store(added, address)
        raise InputError(
            f"a store of kind {kind}:// is neither a file nor a postgresql:// address",
            where="store",
        )
    return SqliteStore(address)


def _added_store(added: Plugin, address: str) -> Store:
    """Open a plug-in's store. Messages never repeat the address, which may hold a password."""
    make = added.load()
    if not callable(make):
        raise added.fault("is not a function that opens a store")
    try:
        store: Store = make(address)
    except DitherError:
        raise
    except Exception as error:  # its message may repeat the address
        raise added.fault(f"cannot open the store: {type(error).__name__}") from None
    return store


def admin_key(file: Path) -> str:
    """Read the admin key, or make a new one that only this user may read if the file is absent.

    The key may belong to another user, as one that systemd or root provides does. Its mode is
    then not ours to change, so a key that every user may read is refused.

    Args:
        file: Where the key is, or is to be made.

    Returns:
        The key, without the end of the line.

    Raises:
        InputError: If the key cannot be made or read, is too short, or is another user's file
            that everyone may read.
    """
    try:
        if _is_another_users(file):
            if file.stat().st_mode & stat.S_IROTH:
                raise InputError(
                    f"every user may read the admin key in {file}; chmod o-r {file}",
                    where=str(file),
                )
        elif make_private(file):
            file.write_text(secrets.token_urlsafe(32) + "\n", encoding="ascii")
        key = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not plain text"
        raise InputError(
            f"cannot make or read the admin key in {file}: {why}", where=str(file)
        ) from None
    if len(key) < _MIN_KEY:
        raise InputError(
            f"the admin key in {file} has fewer than {_MIN_KEY} characters", where=str(file)
        )
    return key


def check_public_url(given: str | None, option: str = "--public-url") -> str | None:
    """Check a public address, `https://HOST[:PORT]`; return it without a trailing slash."""
    if not given:  # an empty environment variable counts as none
        return None
    try:
        parts = urlsplit(given)
        valid = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        valid = False
    if not valid or not re.fullmatch(r"https?://[\w.\-\[\]:]+/?", given, re.ASCII):
        words = "is not an address such as https://survey.example.org"
        raise InputError(f"{option} {given[:200]!r} {words}", where=option, value=given)
    return given.rstrip("/")


def _is_another_users(file: Path) -> bool:
    return os.name == "posix" and file.is_file() and file.stat().st_uid != os.geteuid()


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host.

    Raises:
        InputError: The host or the port cannot be used; the message says what to do.
    """
    place = _place(host, port)
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"cannot listen on {place}: no such host; choose another ({error})", where="host"
        ) from None
    made: list[socket.socket] = []
    absent: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            made.append(socket.create_server(address, family=family, backlog=limits.BACKLOG))
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                absent = error  # IPv4 or IPv6 may be disabled
                continue
            for other in made:
                other.close()
            raise InputError(
                f"cannot listen on {place}: {_why(error)}", where="port", value=port
            ) from None
    if absent is not None and not made:
        raise InputError(f"cannot listen on {place}: {_why(absent)}", where="host", value=host)
    return made


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(error: OSError) -> str:
    absent = "this machine has no such address; choose another host"
    known = {
        errno.EADDRINUSE: "another program uses this port; stop it, or choose another port",
        errno.EACCES: "ports below 1024 are for privileged users; choose another port",
        errno.EADDRNOTAVAIL: absent,
        errno.EAFNOSUPPORT: absent,
    }
    return known.get(error.errno or 0, f"{error.strerror or error}; choose another host or port")


class CollectorServer(uvicorn.Server):
    """A collector behind HTTP.

    Args:
        collector: The collector.
        key: The operator's key.
        bounds: Limits of connections.
        say: Called with the address it listens on.
        log_level: uvicorn's log level.
        pages: Adds pages for people.
        more: Further options of uvicorn.
    """

    def __init__(
        self,
        collector: Collector,
        key: str,
        bounds: limits.ConnectionLimits,
        say: Callable[[str], None] = lambda line: None,
        log_level: str = "warning",
        pages: Pages | None = None,
        **more: Any,
    ) -> None:
        self.collector = collector
        self.edge = make_app(collector, key, pages)
        self._say = say
        self._gate = Connections(bounds, collector.metrics)
        http: Any = partial(GuardedProtocol, self._gate)
        config = uvicorn.Config(
            self.edge,
            http=http,
            ws="none",
            lifespan="on",
            log_level=log_level,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=limits.BACKLOG,
            timeout_graceful_shutdown=limits.GRACE_SECONDS,
            **more,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for line in _listening_lines([one for server in self.servers for one in server.sockets]):
            self._say(line)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gate.stopping = True
        self.collector.live.end()
        # Uploads that still wait for the store then get 503 instead of a broken connection, and
        # clients that do not read their response cannot delay the shutdown.
        loop = asyncio.get_running_loop()
        loop.call_later(limits.GRACE_SECONDS - 1, self.collector.give_up)
        loop.call_later(limits.GRACE_SECONDS - 0.5, self._drop, True)
        await super().shutdown(sockets)
        self._drop(unread_only=False)
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.THREAD_SECONDS):
                # Each connection and its requests learn of the end in the loop's next turn.
                while self.server_state.connections:
                    await asyncio.sleep(0)

    def _drop(self, unread_only: bool) -> None:
        for connection in list(self.server_state.connections):
            transport: Any = connection.transport
            if not unread_only or transport.get_write_buffer_size():
                transport.abort()


def _print_now(line: str) -> None:
    print(line, flush=True)


def _listening_lines(sockets: list[socket.socket]) -> list[str]:
    """Return the addresses of listening sockets as lines for the operator."""
    return [f"listening on http://{_place(*listening.getsockname()[:2])}" for listening in sockets]


def serve(
    store: str,
    key: str,
    sockets: list[socket.socket],
    queue_reports: int = 20_000,
    connections: int | None = None,
    say: Callable[[str], None] = _print_now,
    counters: Path | None = None,
    pages: Pages | None = None,
    public_url: str | None = None,
    logs: Logging | None = None,
    origins: Sequence[str] = (),
) -> None:
    """Serve until SIGTERM or SIGINT, then return.

    A second SIGINT ends the process with status 1 without waiting for requests. So does a
    store that hangs or an operation that takes too long: the process ends within ten seconds,
    and unfinished work is as after a crash.

    Args:
        store: Address of the store.
        key: The operator's key.
        sockets: Where to listen.
        queue_reports: Reports that may wait to be written.
        connections: Open connections; by default as many as the limit of files allows.
        say: Called with the address when the server listens.
        counters: Folder for the metrics of several workers.
        pages: Adds pages for people.
        public_url: The address that participants and readers use.
        logs: What is logged.
        origins: Origins of other sites whose pages may show surveys.
    """
    logs = logs or Logging()
    logs.start()
    limited = RateLimitFilter()
    # These loggers record errors that a client can cause at will.
    for name in ("uvicorn.error", "asyncio", "dither.collector.app"):
        logging.getLogger(name).addFilter(limited)
    bounds = limits.ConnectionLimits(most=room_for_connections(connections))
    collector = Collector(
        open_store(store), queue_reports, counters, public_url=public_url, origins=origins
    )
    # Without its own configuration, uvicorn's lines have the same format as all others.
    more: dict[str, Any] = {"log_config": None} if logs.as_json else {}
    server = CollectorServer(collector, key, bounds, say, pages=pages, **more)

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    # Objects created so far live to the end. Without `freeze`, the garbage collector would
    # traverse them every few seconds under load.
    gc.collect()
    gc.freeze()
    # uvicorn raises caught signals again after it has stopped: without these handlers a
    # graceful stop would end as a kill. They also catch a signal before uvicorn handles it.
    earlier = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
    _end_process(server)


def _end_process(server: CollectorServer) -> None:
    """Return if everything has ended; else end the process with status 1."""
    interrupted = max(server.edge.interrupted, _threads_left())
    if interrupted:
        log.error(
            "%d requests of operators were interrupted; check the campaigns' status and repeat them",
            interrupted,
        )
    if interrupted or not server.collector.stopped:
        # Threads that wait for the store or fit a model would keep the process alive.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


@dataclass(frozen=True)
class Logging:
    """What is logged to standard error, one line each.

    Attributes:
        level: The lowest level: "debug", "info", "warning" or "error".
        as_json: Whether lines are JSON objects with a time.
    """

    level: str = "warning"
    as_json: bool = False

    def start(self) -> None:
        """Log to standard error from now on."""
        handler = logging.StreamHandler(sys.stderr)
        plain = logging.Formatter("%(levelname)s %(name)s: %(message)s")
        handler.setFormatter(JsonFormatter() if self.as_json else plain)
        logging.basicConfig(level=self.level.upper(), handlers=[handler])


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON objects: time (UTC), level, logger, message, exception.

    Records with the attribute `day_only` have only a day: their time may be that of the last
    report of a round.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        day_only = getattr(record, "day_only", False)
        line = {
            "time": at.strftime("%Y-%m-%d" if day_only else "%Y-%m-%dT%H:%M:%SZ"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _threads_left() -> int:
    """Return the number of threads that still work on requests of operators."""
    deadline = time.monotonic() + limits.THREAD_SECONDS
    others = [
        t for t in threading.enumerate() if t is not threading.current_thread() and not t.daemon
    ]
    for thread in others:
        thread.join(max(0.0, deadline - time.monotonic()))
    return sum(thread.is_alive() for thread in others)


_PAUSE_SECONDS = 1.0  # before a worker that ended is replaced
_END_SECONDS = 12.0  # for a shutdown; a worker needs ten at most


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
    logs: Logging
    origins: Sequence[str]


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
            Metrics.retire(self.work.counters, process.pid or 0)
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
    logs: Logging | None = None,
    origins: Sequence[str] = (),
) -> None:
    """Serve with `count` processes until SIGTERM or SIGINT; print the address when all listen.

    The other arguments are those of `serve`; a store that several processes share is needed.
    """
    logs = logs or Logging()
    logs.start()
    # A wrong option fails here once, not in every worker again and again.
    room_for_connections(connections)
    opened = open_store(store)
    try:
        DatabaseClock(opened).check()
    finally:
        opened.close()
    counters = Path(tempfile.mkdtemp(prefix="dither-counters-"))
    workers = _Workers(
        _Work(
            *(store, key, sockets, queue_reports, connections, counters, pages, public_url, logs),
            origins,
        )
    )

    def stop(number: int, frame: object) -> None:
        workers.stopping.set()

    earlier = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for _ in range(count):
            workers.start()
        _run(workers, lambda: [print(line, flush=True) for line in _listening_lines(sockets)])
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
    deadline, waiting = time.monotonic() + limits.WORKERS_START_SECONDS, True
    while not workers.stopping.is_set():
        if waiting and all(pipe.poll() for pipe in workers.alive.values()):
            waiting = False
            say()
        if waiting and time.monotonic() > deadline:
            raise DitherError(
                f"the workers did not start within {limits.WORKERS_START_SECONDS:g} s"
            )
        for process in workers.await_end(0.1):
            if workers.stopping.is_set():
                workers.ended_well &= _well(process)
                continue
            log.error(
                "worker %d ended with status %s; another one takes its place",
                process.pid,
                process.exitcode,
            )
            time.sleep(_PAUSE_SECONDS)
            workers.start()
    workers.signal(signal.SIGTERM)
    deadline = time.monotonic() + _END_SECONDS
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
    work.logs.start()
    try:
        serve(
            *(work.store, work.key, work.sockets, work.queue_reports, work.connections),
            say=pipe.send,
            counters=work.counters,
            pages=work.pages,
            public_url=work.public_url,
            logs=work.logs,
            origins=work.origins,
        )
    except DitherError as error:
        log.error("a worker cannot start: %s", error)
        sys.exit(1)
