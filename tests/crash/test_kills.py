"""A collector or its database killed at any instant under load: nothing acknowledged is lost, nothing is counted twice."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import threading
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from collector_harness import (
    Caller,
    Cluster,
    ServerProcess,
    envelope_of,
    free_port,
    plan_of,
    report_of,
    token_of,
    until,
)

from dither.client import Unreachable
from dither.collector import Campaigns, open_store, rebuild
from dither.reports import Plan, report_id

pytestmark = pytest.mark.slow

SOAK = os.environ.get("DITHER_SOAK") == "1"
KILLS = {"sqlite": 200 if SOAK else 20, "postgres": 200 if SOAK else 4}
CRASHES = 30 if SOAK else 3


class Senders:
    """Threads that send one new report after the other, each until it is acknowledged, through kills and restarts."""

    def __init__(self, url: str, campaign: str, plan: Plan, threads: int = 4) -> None:
        self.url, self.campaign, self.plan = url, campaign, plan
        self.sent: list[bytes] = []
        self.acknowledged: list[bytes] = []
        self.put_off = 0
        self.wrong: list[object] = []
        self.stopping = threading.Event()
        self._numbers = iter(range(10**9))
        self._turn = threading.Lock()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def _run(self) -> None:
        caller = Caller(self.url, timeout=10)
        while not self.stopping.is_set():
            with self._turn:
                token = token_of(next(self._numbers))
                self.sent.append(token)
            body = envelope_of(self.campaign, self.plan, [token])
            while True:
                try:
                    answer = caller.upload(self.campaign, body)
                except Unreachable:
                    time.sleep(0.02)
                    continue
                if answer.status in (200, 201):
                    self.acknowledged.append(token)
                elif answer.status in (429, 503):
                    self.put_off += 1
                    time.sleep(0.02)
                    continue
                else:
                    self.wrong.append(answer)
                break
        caller.connection.close()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


def load(server: ServerProcess) -> Senders:
    """Senders to a new campaign."""
    caller = Caller(server.url)
    campaign = caller.create()
    senders = Senders(server.url, campaign, plan_of(caller.announcement(campaign)))
    caller.connection.close()
    return senders


def check(address: str, senders: Senders) -> str:
    """What is stored is exactly what was acknowledged, byte for byte, and the tally, whose hash is given, says so."""
    assert senders.wrong == []
    held = bytes.fromhex(senders.campaign)
    expected = {
        report_id(t, held, 0): report_of(senders.plan, held, t).payload
        for t in senders.acknowledged
    }
    assert len(senders.acknowledged) == len(set(senders.acknowledged)) == len(senders.sent) > 0
    with closing(open_store(address)) as store:
        rows = [row for page in store.reports(senders.campaign, 0) for row in page]
        assert len(rows) == len(expected)
        assert {row.report_id: row.payload for row in rows} == expected
        now = Campaigns(store).get(senders.campaign).open_round
        assert now is not None
        tally = rebuild(store, senders.campaign, now.plan)
    assert tally.participants == len(expected)
    return hashlib.sha256(tally.to_bytes()).hexdigest()


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_kills_at_random_instants_under_load(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    sqlite = database == "sqlite"
    address = (
        str(tmp_path / "collector.db") if sqlite else request.getfixturevalue("own_cluster").fresh()
    )
    port, kills = free_port(), KILLS[database]
    rng = np.random.default_rng(9)
    server = ServerProcess(address, port=port)
    senders = load(server)
    survived = []
    try:
        for number in range(kills):
            before = len(senders.acknowledged)
            # Every other kill hits a collector at work, however slow the machine; the others may hit it anywhere.
            if number % 2:
                until(lambda n=before: len(senders.acknowledged) > n)
            time.sleep(float(rng.uniform(0.01, 0.5)))
            server.kill()
            survived.append(len(senders.acknowledged) - before)
            server = ServerProcess(address, port=port)
    finally:
        senders.stop()
        server.kill()
    assert sum(n > 0 for n in survived) >= kills / 2, "kills have to hit a collector at work"
    check(address, senders)


def test_postgresql_crashes_at_random_instants_under_load_and_the_collector_goes_on(
    own_cluster: Cluster,
) -> None:
    address = own_cluster.fresh()
    rng = np.random.default_rng(10)
    with ServerProcess(address) as server:
        senders = load(server)
        caller = Caller(server.url)
        try:
            for _ in range(CRASHES):
                # The running tally is asked for each time, so that one is kept through every crash.
                assert caller.admin("GET", f"/{senders.campaign}/tally").status == 200
                time.sleep(float(rng.uniform(0.01, 0.5)))
                own_cluster.stop()
                put_off, before = senders.put_off, len(senders.acknowledged)
                until(lambda n=put_off: senders.put_off > n)
                own_cluster.start()
                until(lambda n=before: len(senders.acknowledged) > n + 4)
        finally:
            senders.stop()
        running = json.loads(caller.admin("GET", f"/{senders.campaign}/tally").body)
        caller.connection.close()
        status, errors = server.terminate(timeout=10)
    assert status == 0
    lines = [
        line
        for line in errors.splitlines()
        if not line.startswith("WARNING dither.collector.limited: store-away: ")
    ]
    assert all("reports cannot be stored" in line or "stored again" in line for line in lines), (
        errors
    )
    assert len(lines) >= 2 * CRASHES, "the log says when the database went and when it came back"
    assert running["sha256"] == check(address, senders)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_graceful_stop_under_load_writes_what_it_took_and_takes_less_than_ten_seconds(
    tmp_path: Path, number: signal.Signals
) -> None:
    address, port = str(tmp_path / "collector.db"), free_port()
    server = ServerProcess(address, port=port)
    senders = load(server)
    until(lambda: len(senders.acknowledged) > 20)
    status, errors = server.terminate(timeout=10, number=number)
    assert status == 0
    assert "Traceback" not in errors
    taken = len(senders.acknowledged)
    server = ServerProcess(address, port=port)
    until(lambda: len(senders.acknowledged) > taken)
    senders.stop()
    assert server.terminate(timeout=10, number=number) == (0, "")
    assert len(senders.acknowledged) > taken > 0
    check(address, senders)


def _listens(address: tuple[str | None, int | None]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0


def test_a_second_interrupt_does_not_wait_for_requests_under_way(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "collector.db") as server:
        place = urlsplit(server.url)
        address = (place.hostname, place.port)
        with socket.create_connection(address, timeout=20) as slow:
            slow.sendall(
                b"POST /v1/campaigns/"
                + b"ab" * 16
                + b"/reports HTTP/1.1\r\nhost: here\r\nexpect: 100-continue\r\n"
            )
            slow.sendall(
                b"content-type: application/vnd.dither.reports\r\ncontent-length: 100\r\n\r\n"
            )
            assert slow.recv(100).startswith(b"HTTP/1.1 100 "), "the collector waits for the body"
            server.process.terminate()
            until(lambda: not _listens(address))
            assert server.process.poll() is None
            status, _ = server.terminate(timeout=7, number=signal.SIGINT)
    assert status == 1, "what was under way was given up"
