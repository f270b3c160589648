"""A collector killed at any instant under load loses nothing that it acknowledged, and counts nothing twice."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
from collector_harness import Caller, ServerProcess, envelope_of, free_port, plan_of, report_of, token_of

from dither.client.transport import Unreachable
from dither.collector.campaigns import Campaigns
from dither.collector.sqlite import open_sqlite
from dither.collector.tallies import rebuild
from dither.reports import Plan
from dither.reports.assignment import report_id

KILLS = 200 if os.environ.get("DITHER_SOAK") == "1" else 20


class Senders:
    """Threads that send one new report after the other, each until it is acknowledged, through kills and restarts."""

    def __init__(self, url: str, campaign: str, plan: Plan, threads: int = 4) -> None:
        self.url, self.campaign, self.plan = url, campaign, plan
        self.sent: list[bytes] = []
        self.acknowledged: list[bytes] = []
        self.wrong: list[object] = []
        self.stopping = threading.Event()
        self._numbers = iter(range(10**9))
        self._turn = threading.Lock()
        self.threads = [threading.Thread(target=self._run) for _ in range(threads)]
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


def check(path: Path, campaign: str, senders: Senders) -> None:
    """What is stored is exactly what was acknowledged, byte for byte, and the tally says so."""
    assert senders.wrong == []
    store = open_sqlite(path)
    held = bytes.fromhex(campaign)
    stored = {row.report_id: row.payload for page in store.reports(campaign, 0) for row in page}
    expected = {report_id(t, held, 0): report_of(senders.plan, held, t).payload for t in senders.acknowledged}
    assert len(senders.acknowledged) == len(set(senders.acknowledged)) == len(senders.sent) > 0
    assert stored == expected
    plan = Campaigns(store).get(campaign).open_round
    assert plan is not None
    assert rebuild(store, campaign, plan.plan).participants == len(expected)
    store.close()


def test_kills_at_random_instants_under_load(tmp_path: Path) -> None:
    path, port = tmp_path / "collector.db", free_port()
    rng = np.random.default_rng(9)
    server = ServerProcess(path, port=port)
    caller = Caller(server.url)
    campaign = caller.create()
    senders = Senders(server.url, campaign, plan_of(caller.announcement(campaign)))
    caller.connection.close()
    survived = []
    try:
        for _ in range(KILLS):
            before = len(senders.acknowledged)
            time.sleep(float(rng.uniform(0.01, 0.5)))
            server.kill()
            survived.append(len(senders.acknowledged) - before)
            server = ServerProcess(path, port=port)
    finally:
        senders.stop()
        server.kill()
    assert sum(n > 0 for n in survived) > KILLS / 4, "kills have to hit a collector at work"
    check(path, campaign, senders)


def test_a_graceful_stop_under_load_writes_what_it_took_and_takes_less_than_ten_seconds(tmp_path: Path) -> None:
    path, port = tmp_path / "collector.db", free_port()
    server = ServerProcess(path, port=port)
    caller = Caller(server.url)
    campaign = caller.create()
    senders = Senders(server.url, campaign, plan_of(caller.announcement(campaign)))
    caller.connection.close()
    time.sleep(0.5)
    status, errors = server.terminate(timeout=10)
    assert status in (0, -15)
    assert "Traceback" not in errors
    taken = len(senders.acknowledged)
    server = ServerProcess(path, port=port)
    time.sleep(0.3)
    senders.stop()
    assert server.terminate(timeout=10)[1] == ""
    assert len(senders.acknowledged) > taken > 0
    check(path, campaign, senders)
