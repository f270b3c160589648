"""What the collector's tests share: real servers, a temporary PostgreSQL, simulated people and their envelopes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import nursery
import pytest
from fastapi import FastAPI
from tests.programs import require

from dither import cli
from dither.client import Answer, Connection
from dither.collector import (
    Collector,
    CollectorServer,
    SqliteStore,
    Store,
    add_pages,
    limits,
    listen,
    rebuild,
)
from dither.mechanisms import ByteSource
from dither.reports import Envelope, Plan, Report, encode, is_asked, pick, plan_from_json
from dither.schema import Attribute, Schema
from dither.tally import RoundTally

KEY = "an-admin-key-for-tests-only"
OPEN: list[Connection] = []
REPORTS_TYPE = "application/vnd.dither.reports"
SCHEMA = Schema(
    (
        Attribute("colour", "categorical", ("red", "green", "blue")),
        Attribute("member", "boolean", (False, True), missing=True),
        Attribute("score", "numeric", edges=(0.0, 1.0, 5.0, 9.0)),
    )
)
RECORD = {"colour": "green", "member": True, "score": 4.5}


@pytest.fixture(autouse=True)
def closed_connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes what a failed test leaves open, so that its own error is the one to read. For the folders' conftest files.

    Collectors in this process have their processes for questions forked. Collectors in processes
    of their own start them as users' collectors do.
    """
    forking = SimpleNamespace(Popen=nursery.QuestionProcess, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr("dither.collector.questions.subprocess", forking)
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """A collector with pages, for the conftest files of the folders that visit them."""
    server = ServerThread(SqliteStore(tmp_path_factory.mktemp("pages") / "c.db"), pages=add_pages)
    yield server
    server.stop()


@pytest.fixture
def caller(running: ServerThread) -> Iterator[Caller]:
    made = Caller(running.url)
    yield made
    made.connection.close()


def run_dither(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """What a command prints: its result, or its error if it has to fail."""
    assert cli.run(list(arguments)) == status, capsys.readouterr()
    shown = capsys.readouterr()
    return shown.out if status == 0 else shown.err


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that another thread or process brings about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


def describe(**more: Any) -> dict[str, Any]:
    """A campaign's description."""
    return {
        "schema": SCHEMA.to_json(),
        "epsilon": 2.0,
        "participants": 1000,
        "method": "independent",
        "seed": 5,
        "assignment": "token",
        **more,
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """A collector in a process of its own."""

    def __init__(
        self,
        store: str | Path,
        *,
        port: int = 0,
        queue: int = 20_000,
        before: str = "",
        options: str = "",
    ) -> None:
        """`before` is Python that the process runs first, with the collector's modules loaded; `options`
        are further arguments of `serve`."""
        code = f"{before}\n" + (
            "import sys; from dither.collector import listen, serve; "
            "a = sys.argv; serve(a[1], a[2], listen('127.0.0.1', int(a[3])), int(a[4])"
            f"{options})"
        )
        self.process = nursery.Collector(code, str(store), KEY, str(port), str(queue))
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.process.kill()
            raise AssertionError(f"the server did not start: {line}{self.process.communicate()[1]}")
        self.url = line.removeprefix("listening on ").strip()

    def kill(self) -> None:
        """As a power cut would, for the process."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def terminate(
        self, timeout: float = 15.0, number: signal.Signals = signal.SIGTERM
    ) -> tuple[int, str]:
        """Ask it to stop; its status and what it wrote to standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=timeout)
        return self.process.returncode, errors

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.kill()


class _PromptServer(CollectorServer):
    """Ends within 10 ms of being asked to; uvicorn looks ten times a second."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await asyncio.sleep(0.01)


class ServerThread:
    """A collector in a thread of this process, so that a test can look inside and use methods of its own."""

    def __init__(
        self,
        store: Store,
        queue: int = 20_000,
        *,
        loop: str = "auto",
        pages: Callable[[FastAPI, Collector], None] | None = None,
        origins: tuple[str, ...] = (),
        **bounds: Any,
    ) -> None:
        self.collector = Collector(store, queue, origins=origins)
        self.server = _PromptServer(
            *(self.collector, KEY, limits.ConnectionLimits(**bounds)),
            log_level="critical",
            log_config=None,
            loop=loop,
            pages=pages,
        )
        sockets = listen("127.0.0.1", 0)
        self.thread = threading.Thread(target=self.server.run, args=(sockets,), daemon=True)
        self.thread.start()
        deadline = time.monotonic() + 20
        while not self.server.started:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(15)
        assert not self.thread.is_alive()


def stored_tally(collector: Collector, campaign: str, number: int = 0) -> RoundTally:
    """The tally rebuilt from the stored reports of a round."""
    return rebuild(collector.store, campaign, collector.campaigns.get(campaign).plans[number])


class Caller:
    """Requests to a server over one connection."""

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        self.connection = Connection(url, timeout)
        OPEN.append(self.connection)
        self.path = urlsplit(url).path.rstrip("/")

    def admin(self, method: str, path: str = "", body: Any = None) -> Answer:
        sent = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        return self.connection.request(
            method, f"{self.path}/v1/admin/campaigns{path}", sent, headers
        )

    def create(self, **more: Any) -> str:
        answer = self.admin("POST", "", describe(**more))
        assert answer.status == 201, answer
        return str(json.loads(answer.body)["campaign"])

    def status(self, campaign: str) -> dict[str, Any]:
        answer = self.admin("GET", f"/{campaign}")
        assert answer.status == 200, answer
        return dict(json.loads(answer.body))

    def announcement(self, campaign: str) -> dict[str, Any]:
        return dict(
            json.loads(self.connection.request("GET", f"/v1/campaigns/{campaign}", None).body)
        )

    def upload(self, campaign: str, body: bytes) -> Answer:
        return self.connection.request(
            "POST", f"/v1/campaigns/{campaign}/reports", body, {"content-type": REPORTS_TYPE}
        )


def seeded_source(seed: str) -> ByteSource:
    """Repeatable bytes for tests."""
    import hashlib

    counter = 0

    def draw(count: int) -> bytes:
        nonlocal counter
        counter += 1
        return hashlib.shake_256(f"{seed}:{counter}".encode()).digest(count)

    return draw


def token_of(number: int, kind: str = "t") -> bytes:
    import hashlib

    return hashlib.sha256(f"{kind}{number}".encode()).digest()


def report_of(
    plan: Plan,
    campaign: bytes,
    token: bytes,
    codes: Sequence[int] = (1, 1, 1),
    noise: str = "",
    schema: Schema = SCHEMA,
) -> Report:
    """The report that a device with this token makes."""
    picked = pick(token, campaign, plan)
    source = seeded_source(token.hex() + noise)
    questions = plan.questions if picked == -1 else (plan.questions[picked],)
    return Report(
        token,
        picked,
        b"".join(q.mechanism.randomise(q.cell(schema, codes), source) for q in questions),
    )


def envelope_of(campaign: str, plan: Plan, tokens: Sequence[bytes], noise: str = "") -> bytes:
    held = bytes.fromhex(campaign)
    return encode(
        Envelope(held, plan.round, tuple(report_of(plan, held, t, noise=noise) for t in tokens))
    )


def answers_of(campaign: str, plan: Plan, schema: Schema, count: int, kind: str = "t") -> bytes:
    """An envelope of so many people who answer differently, about any schema."""
    held, reports = bytes.fromhex(campaign), []
    for i in range(count):
        token = token_of(i, kind)
        codes = [token[j] % attribute.cardinality for j, attribute in enumerate(schema)]
        reports.append(report_of(plan, held, token, codes, schema=schema))
    return encode(Envelope(held, plan.round, tuple(reports)))


def asked_tokens(
    campaign: str, start: float, plan: Plan, count: int, kind: str = "t"
) -> list[bytes]:
    """The first tokens that a round asks."""
    held, out, i = bytes.fromhex(campaign), [], 0
    while len(out) < count:
        token = token_of(i, kind)
        if is_asked(token, held, start, plan.population):
            out.append(token)
        i += 1
    return out


def plan_of(announcement: dict[str, Any]) -> Plan:
    return plan_from_json(announcement["plan"])


CREATE_DATABASE = Path(__file__).parents[2] / "deploy" / "create_database.sh"


class Cluster:
    """A private PostgreSQL on loopback, in a temporary folder; the server refuses root, so it runs as `postgres`.

    Stores connect as the role that deploy/create_database.sh creates, so every test of a store
    also shows that the role has the rights a collector needs.
    """

    def __init__(self) -> None:
        found = (
            sorted(Path("/usr/lib/postgresql").glob("*/bin"))
            if Path("/usr/lib/postgresql").is_dir()
            else []
        )
        beside = shutil.which("pg_ctl")
        self._bin = (
            Path(beside).parent if beside else (found[-1] if found else Path("/nonexistent"))
        )
        require(self._bin / "initdb", "PostgreSQL")
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        self._home = Path(tempfile.mkdtemp(prefix="dither-pg-"))
        if self._as:
            shutil.chown(self._home, "postgres", "postgres")
        self.port = free_port()
        self._run(
            "initdb",
            "-D",
            str(self._home / "data"),
            "-A",
            "trust",
            "-U",
            "postgres",
            "--no-sync",
            "-E",
            "UTF8",
        )
        self.start()
        created = self.create_database()
        assert created.returncode == 0, created.stderr

    def create_database(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the script that operators run, as this cluster's superuser."""
        here = {
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
        }
        return subprocess.run(
            [*self._as, "sh"],
            cwd=self._home,
            env=here | environment,
            input=CREATE_DATABASE.read_text(encoding="utf-8"),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def url(self, database: str = "dither", role: str = "dither") -> str:
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def superuser(self, store: str = "") -> str:
        """The superuser's address of a store's database and schema, or of the database itself."""
        return (store or self.url()).replace("//dither@", "//postgres@")

    def fresh(self) -> str:
        """The address of a new, empty schema, which is much quicker to make than a database."""
        import psycopg

        name = f"d{time.monotonic_ns()}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return self.url(f"dither?options=-csearch_path%3D{name}")

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k {self._home} -c fsync=off -c max_connections=60"
        self._run(
            "pg_ctl",
            "-D",
            str(self._home / "data"),
            "-w",
            "-l",
            str(self._home / "log"),
            "-o",
            options,
            "start",
        )

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._home / "data"), "-m", "immediate", "-w", "stop")

    def kill(self) -> None:
        """As a power cut would, for the server and everything it started."""
        first = int((self._home / "data" / "postmaster.pid").read_text().split("\n")[0])
        self._signal(signal.SIGKILL)
        until(lambda: not Path(f"/proc/{first}").exists())

    def pause(self) -> None:
        """Nothing of it runs on, and nothing of it ends: connections stay, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """To the server first, so that it starts nobody meanwhile, then to those it has started."""
        first = (self._home / "data" / "postmaster.pid").read_text().split("\n")[0]
        os.kill(int(first), number)
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # others come and go
                if stat.read_text().rpartition(")")[2].split()[1] == first:
                    os.kill(int(stat.parent.name), number)

    def remove(self) -> None:
        if (self._home / "data" / "postmaster.pid").exists():
            self.resume()  # a test that failed may have left it so
        if (
            self._home / "data" / "postmaster.pid"
        ).exists():  # not if a test failed while it was stopped
            self.stop()
        shutil.rmtree(self._home)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self._as, str(self._bin / program), *arguments],
            cwd=self._home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr.decode()
