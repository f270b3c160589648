"""Load on a collector: reports per second and latency, compared with bare inserts and an empty endpoint.

Everything runs on this machine over loopback: the sender competes with the server for the
cores, so ratios are more informative than rates.
The empty endpoint is /live, an ordinary route of the framework; the upload is a plain one that skips the handling of parameters.
Bare inserts commit as many rows at a time as a request carries; the collector may commit several requests together.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dither.client.transport import Connection
from dither.lab.harness import Bench, NotAvailable, Size, Study
from dither.reports import Envelope, Plan, Report, encode, plan_from_json
from dither.reports.plan import pick, report_id

KEY = "benchmark-key-0123456789"
BATCH = 100
SENDERS = 32
WARM_UP = 0.5  # seconds at the beginning of a load that do not count
SCHEMA = {f"a{i}": {"kind": "ordinal", "values": list(range(16))} for i in range(8)}


def load(store: str, seconds: float) -> list[dict[str, Any]]:
    """Rates and waits of one kind of store; TMPDIR says where databases are put, and so which disk is measured."""
    if not all(map(find_spec, ("fastapi", "uvicorn", "sqlalchemy"))):
        raise NotAvailable(
            "the collector's packages are not installed; pip install 'dither[server]'"
        )
    with tempfile.TemporaryDirectory() as scratch:
        if store == "sqlite":
            return _measure(
                str(Path(scratch) / "collector.db"), _bare_sqlite, Path(scratch), seconds
            )
        with _postgres(Path(scratch)) as url:
            return _measure(url, _bare_postgres, Path(scratch), seconds)


def _measure(store: str, bare: Any, scratch: Path, seconds: float) -> list[dict[str, Any]]:
    with _server(store) as url:
        campaign, plan = _campaign(url)
        empty = asyncio.run(_load(url, _empty_requests(), 1, seconds))
        single = asyncio.run(_load(url, _uploads(campaign, plan, 1, "s"), 1, seconds))
        batch = asyncio.run(_load(url, _uploads(campaign, plan, BATCH, "b"), BATCH, seconds))
    rows = [(report_id(_token("x", i), bytes(16), 0), i % 8, b"\0\1") for i in range(200_000)]
    ones, many = (bare(store, scratch, rows, size, seconds / 2) for size in (1, BATCH))
    rate = "reports_per_second"
    return [
        {"what": "empty endpoint", **empty},
        {
            "what": "single reports",
            **single,
            "of_empty_endpoint": single[rate] / empty[rate],
            "of_bare": single[rate] / ones,
        },
        {"what": f"batches of {BATCH}", **batch, "of_bare": batch[rate] / many},
        {"what": "bare inserts, one per commit", rate: ones},
        {"what": f"bare inserts, {BATCH} per commit", rate: many},
    ]


def workers_load(workers: int, batch: int, seconds: float) -> dict[str, Any]:
    """Rate, waits and CPU time of a collector on PostgreSQL, by reports per request and processes.

    CPU microseconds per report predict the rate of several machines; the rate is that of this machine, sender included.
    """
    if not all(map(find_spec, ("fastapi", "uvicorn", "sqlalchemy", "psycopg"))):
        raise NotAvailable(
            "the collector's packages are not installed; pip install 'dither[server]'"
        )
    with (
        tempfile.TemporaryDirectory() as scratch,
        _postgres(Path(scratch)) as url,
        _server(url, workers) as served,
    ):
        campaign, plan = _campaign(served)
        requests = _uploads(campaign, plan, batch, "w")
        # Each is known by a word that no other process on the machine has in its command line.
        words = {"collector": url.encode() + b"\0", "postgresql": b"-p\0%d\0" % urlsplit(url).port}
        before = {what: _cpu_seconds(word) for what, word in words.items()}
        found = asyncio.run(_load(served, requests, batch, seconds))
        reports = _stored(url)
        spent = {what: _cpu_seconds(word) - before[what] for what, word in words.items()}
        rows = [(report_id(_token("x", i), bytes(16), 0), i % 8, b"\0\1") for i in range(200_000)]
        bare = _bare_postgres(url, Path(scratch), rows, batch, seconds / 2)
        size = _stored(
            url,
            "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'reports'::regclass",
        )
    return {
        **found,
        "of_bare": found["reports_per_second"] / bare,
        **{f"{what}_cpu_us_per_report": 1e6 * used / reports for what, used in spent.items()},
        "bytes_per_report_in_postgresql": size / reports,
    }


def consoles_load(consoles: int, seconds: float) -> dict[str, Any]:
    """Uploads of batches, alternately without and with open event streams; the ratio of the medians.

    Turns alternate, so that other load and the growing round affect both alike. The collector's CPU time
    per report depends least on other load. Each stream must have received events about the reports.
    """
    if not all(map(find_spec, ("fastapi", "uvicorn", "sqlalchemy"))):
        raise NotAvailable(
            "the collector's packages are not installed; pip install 'dither[server]'"
        )
    turns = 4 if seconds >= 10 else 2
    rates: dict[bool, list[float]] = {False: [], True: []}
    costs: dict[bool, list[float]] = {False: [], True: []}
    heard = 0
    with (
        tempfile.TemporaryDirectory() as scratch,
        _server(str(Path(scratch) / "collector.db")) as url,
    ):
        campaign, plan = _campaign(url)

        async def turn(number: int, watched: bool) -> None:
            nonlocal heard
            streams = await _open_consoles(url, campaign, consoles) if watched else []
            readers = [asyncio.create_task(_read_events(reader)) for reader, _ in streams]
            requests = _uploads(campaign, plan, BATCH, f"{number} {watched} ")
            await asyncio.sleep(
                min(seconds / 4, 2.0)
            )  # opening and closing streams is not measured
            gc.collect()
            gc.freeze()  # nor are the passes of this process's garbage collector over a thousand readers
            spent, begun = _cpu_seconds(scratch.encode()), time.perf_counter()
            found = await _load(url, requests, BATCH, seconds)
            rate, elapsed = found["reports_per_second"], time.perf_counter() - begun
            rates[watched].append(rate)
            costs[watched].append(1e6 * (_cpu_seconds(scratch.encode()) - spent) / elapsed / rate)
            for _, writer in streams:
                writer.close()
            heard += sum([await reader for reader in readers])
            gc.unfreeze()

        for number in range(turns):
            for watched in (False, True) if number % 2 == 0 else (True, False):
                asyncio.run(turn(number, watched))
    if heard < consoles * turns:
        raise RuntimeError(f"{consoles * turns} streams heard {heard} events")
    alone, beside = (statistics.median(rates[watched]) for watched in (False, True))
    cost, cost_beside = (statistics.median(costs[watched]) for watched in (False, True))
    return {
        "cpu_us_per_report_alone": cost,
        "cpu_us_per_report_watched": cost_beside,
        "cpu_ratio": cost / cost_beside,
        "reports_per_second_alone": alone,
        "reports_per_second_watched": beside,
        "ratio": beside / alone,
        "events": heard,
    }


async def _open_consoles(
    url: str, campaign: bytes, count: int
) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = url.removeprefix("http://").split(":")
    head = (
        f"GET /v1/campaigns/{campaign.hex()}/events HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {KEY}\r\n\r\n"
    ).encode()
    opened = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head)
        answer = await reader.readuntil(b"\r\n\r\n")
        if answer[9:12] != b"200":
            raise RuntimeError(answer.decode())
        opened.append((reader, writer))
    return opened


async def _read_events(reader: asyncio.StreamReader) -> int:
    """How many events came until the stream was closed."""
    events = 0
    try:
        while part := await reader.read(1 << 14):
            events += part.count(b"data: ")
    except (ConnectionError, OSError):
        return events
    return events


def _cpu_seconds(word: bytes) -> float:
    """CPU seconds so far of the processes with this word in their command line or in their parent's."""
    parents, words, spent = {}, {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text().rpartition(")")[2].split()
            words[int(path.name)] = (path / "cmdline").read_bytes()
        except OSError:  # others come and go
            continue
        parents[int(path.name)] = int(stat[1])
        spent[int(path.name)] = sum(map(int, stat[11:15])) / os.sysconf(
            "SC_CLK_TCK"
        )  # its own, and of children that ended

    def belongs(process: int) -> bool:
        while process in parents and word not in words[process]:
            process = parents[process]
        return process in parents

    return sum(seconds for process, seconds in spent.items() if belongs(process))


def _stored(url: str, query: str = "SELECT count(*) FROM reports") -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        found = connection.execute(query).fetchone()
    return int(found[0]) if found else 0


def _token(kind: str, number: int) -> bytes:
    return hashlib.sha256(f"{kind}{number}".encode()).digest()


def _campaign(url: str) -> tuple[bytes, Plan]:
    connection = Connection(url)
    body = json.dumps(
        {"schema": SCHEMA, "epsilon": 2.0, "participants": 10**6, "method": "independent"}
    ).encode()
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    campaign = json.loads(connection.request("POST", "/v1/admin/campaigns", body, headers).body)[
        "campaign"
    ]
    plan = plan_from_json(
        json.loads(connection.request("GET", f"/v1/campaigns/{campaign}", None).body)["plan"]
    )
    connection.close()
    return bytes.fromhex(campaign), plan


def _empty_requests() -> Iterator[bytes]:
    while True:
        yield b"GET /live HTTP/1.1\r\nhost: bench\r\n\r\n"


def _uploads(campaign: bytes, plan: Plan, size: int, kind: str) -> Iterator[bytes]:
    """Requests with fresh reports, made before the measurement, then during it."""
    answers = []
    for question in plan.questions:
        answers.append([question.mechanism.randomise(v, os.urandom) for v in range(16)])
    number = 0
    while True:
        reports = []
        for _ in range(size):
            token = _token(kind, number)
            picked = pick(token, campaign, plan)
            reports.append(Report(token, picked, answers[picked][number % 16]))
            number += 1
        body = encode(Envelope(campaign, 0, tuple(reports)))
        head = (
            f"POST /v1/campaigns/{campaign.hex()}/reports HTTP/1.1\r\nhost: bench\r\n"
            f"content-type: application/vnd.dither.reports\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        yield head.encode() + body


async def _load(url: str, requests: Iterator[bytes], size: int, seconds: float) -> dict[str, float]:
    """Senders that each wait for an answer before the next request; the first half second is not counted.

    They stop when the time is over or the requests made beforehand are used up, but not before one has counted:
    a fast collector takes all of them within that half second, a busy machine answers none in the time.
    """
    host, port = url.removeprefix("http://").split(":")
    ready = [next(requests) for _ in range(int((seconds + WARM_UP) * (9000 if size == 1 else 400)))]
    ready.reverse()
    counted: list[tuple[float, float]] = []
    begin = time.perf_counter()

    async def sender() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while (time.perf_counter() - begin < seconds + WARM_UP and ready) or not counted:
            sent = time.perf_counter()
            writer.write(ready.pop() if ready else next(requests))
            head = await reader.readuntil(b"\r\n\r\n")
            if head[9:12] not in (b"200", b"201"):
                raise RuntimeError(head.decode())
            length = next(
                int(line[15:])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            )
            await reader.readexactly(length)
            if sent - begin >= WARM_UP:
                counted.append((sent, time.perf_counter()))
        writer.close()

    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    waits = sorted(b - a for a, b in counted)
    span = max(b for _, b in counted) - min(a for a, _ in counted)
    return {
        "reports_per_second": len(counted) * size / span,
        "requests_per_second": len(counted) / span,
        "p50_ms": 1000 * waits[len(waits) // 2],
        "p99_ms": 1000 * waits[int(len(waits) * 0.99)],
    }


def _bare_sqlite(
    store: str, scratch: Path, rows: list[tuple[Any, ...]], size: int, seconds: float
) -> float:
    path = scratch / f"bare{size}.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE reports (round_key INT, report_id BLOB, question INT, payload BLOB, "
        "PRIMARY KEY (round_key, report_id)) WITHOUT ROWID"
    )

    def write(group: list[tuple[Any, ...]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO reports VALUES (1, ?, ?, ?)", group)
        connection.execute("COMMIT")

    rate = _timed(write, rows, size, seconds)
    connection.close()
    return rate


def _bare_postgres(
    store: str, scratch: Path, rows: list[tuple[Any, ...]], size: int, seconds: float
) -> float:
    import psycopg

    with psycopg.connect(store) as connection:
        connection.execute(f"CREATE TABLE bare{size} (LIKE reports INCLUDING ALL)")
        connection.commit()

        def write(group: list[tuple[Any, ...]]) -> None:
            columns = [list(c) for c in zip(*group, strict=True)]
            connection.execute(
                f"INSERT INTO bare{size} SELECT 1, * FROM unnest(%s::bytea[], %s::int[], %s::bytea[])",
                columns,
            )
            connection.commit()

        return _timed(write, rows, size, seconds)


def _timed(write: Any, rows: list[tuple[Any, ...]], size: int, seconds: float) -> float:
    begin = time.perf_counter()
    done = 0
    while time.perf_counter() - begin < seconds and done + size <= len(rows):
        write(rows[done : done + size])
        done += size
    return done / (time.perf_counter() - begin)


@contextmanager
def _server(store: str, workers: int = 1) -> Iterator[str]:
    several = (
        f"serve_workers({workers}, sys.argv[1], sys.argv[2], listen('127.0.0.1', 0), 20_000, None)"
    )
    one = "serve(sys.argv[1], sys.argv[2], listen('127.0.0.1', 0))"
    code = (
        "import sys; from dither.collector.serving import listen, serve; "
        f"from dither.collector.serving import serve_workers; {one if workers == 1 else several}"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, store, KEY], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.terminate()


@contextmanager
def _postgres(scratch: Path) -> Iterator[str]:
    """A temporary server with its default durability."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    beside = shutil.which("pg_ctl") or (str(found[-1]) if found else None)
    if beside is None:
        raise NotAvailable("PostgreSQL's programs are not installed")
    programs = Path(beside).parent
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    home = Path(tempfile.mkdtemp(dir=scratch.parent))
    if user:
        shutil.chown(home, "postgres", "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def call(program: str, *arguments: str) -> None:
        subprocess.run(
            [*user, str(programs / program), *arguments],
            cwd=home,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    data = str(home / "data")
    call("initdb", "-D", data, "-A", "trust", "-U", "dither")
    call(
        "pg_ctl",
        "-D",
        data,
        "-w",
        "-l",
        str(home / "log"),
        "-o",
        f"-p {port} -h 127.0.0.1 -k {home}",
        "start",
    )
    try:
        yield f"postgresql://dither@127.0.0.1:{port}/postgres"
    finally:
        call("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(home)


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The study of one size; reports are generated, so no folder is read."""
    seconds = {"full": 10.0, "quick": 1.0, "smoke": 0.3}[size]
    study = Study(
        name="load",
        title="Reports per second and waiting times",
        axes={"store": ("sqlite",) if size == "smoke" else ("sqlite", "postgresql")},
        measure=partial(load, seconds=seconds),
        note=f"{SENDERS} senders over loopback, each waiting for an answer before its next request, {seconds:g} s a line. Of empty "
        "endpoint and of bare are shares of the rates of the lines with those names.",
    )
    several = Study(
        name="workers",
        title="Several processes on one PostgreSQL",
        axes={"batch": (1, BATCH), "workers": (1, 2, 4) if size == "full" else (1, 2)},
        measure=partial(workers_load, seconds=seconds),
        note=f"Requests of so many reports from {SENDERS} senders in one process. Where all share two cores, more "
        "workers cannot give more reports; the CPU time per report is what tells how many machines a rate takes.",
    )
    consoles = Study(
        name="consoles",
        title="Uploads while consoles are open",
        axes={"consoles": (100, 1000) if size == "full" else (100,)},
        measure=partial(consoles_load, seconds=seconds),
        note=f"Batches of {BATCH} from {SENDERS} senders to SQLite, in turns without and with so many open streams of "
        "events, each of them first as often as the other; the ratio of the medians.",
    )
    about = (
        "Sender, collector and database share this machine's cores, so ratios say more than rates. The collector may commit "
        "several requests together, so it can pass bare inserts."
    )
    studies = (study,) if size == "smoke" else (study, several, consoles)
    return Bench("collector", "Load on a collector", about, studies, size)
