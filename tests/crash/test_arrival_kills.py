"""A collector killed while rounds close by themselves under load: everybody counts once in the whole campaign, or not at all."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from collector_harness import (
    Caller,
    ServerProcess,
    envelope_of,
    free_port,
    plan_of,
    report_of,
    token_of,
    until,
)
from synthetic_machines import METHOD

from dither.client import Unreachable
from dither.collector import Campaigns, open_store, rebuild
from dither.methods import METHODS
from dither.reports import report_id

pytestmark = pytest.mark.slow
SOAK = os.environ.get("DITHER_SOAK") == "1"
KILLS = {"sqlite": 100 if SOAK else 3, "postgres": 100 if SOAK else 2}
ROUNDS, SHARE = 6, 40
BEFORE = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1] / 'collector')!r}); "
    "from synthetic_machines import METHOD; from dither.methods.registry import METHODS; METHODS['synthetic'] = METHOD"
)


class Comers:
    """People who come one after the other, look which round is open and answer it until somebody has the last word; every third
    one comes a second time, having forgotten everything but its token."""

    def __init__(self, url: str, campaign: str, threads: int = 3) -> None:
        self.url, self.campaign, self.held = url, campaign, bytes.fromhex(campaign)
        self.stored: dict[
            bytes, tuple[int, bytes]
        ] = {}  # token -> round and payload that were acknowledged
        self.late: list[bytes] = []
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
                number = next(self._numbers)
            token = token_of(number)
            self._come(caller, token, "")
            if number % 3 == 0:
                time.sleep(0.05)
                self._come(caller, token, "again")
        caller.connection.close()

    def _come(self, caller: Caller, token: bytes, noise: str) -> None:
        body = None
        while not self.stopping.is_set() or body is not None:
            try:
                if body is None:
                    announced = caller.announcement(self.campaign)
                    if announced.get("plan") is None:
                        time.sleep(0.02)
                        continue
                    plan = plan_of(announced)
                    report = report_of(plan, self.held, token, noise=noise)
                    body = envelope_of(self.campaign, plan, [token], noise)
                answer = caller.upload(self.campaign, body)
                # An answer cut short by the kill is none: the same bytes are sent again.
                results = json.loads(answer.body).get("results", ["none"])
            except (Unreachable, ValueError, KeyError):
                time.sleep(0.02)
                continue
            if answer.status in (429, 503):
                time.sleep(0.02)
                continue
            self._note(token, plan.round, report.payload, answer.status, results[0])
            return

    def _note(self, token: bytes, number: int, payload: bytes, status: int, result: str) -> None:
        earlier = self.stored.get(token)
        if status in (200, 201) and (earlier is None or earlier == (number, payload)):
            self.stored[token] = (number, payload)
        elif result == "round-closed" and earlier is None:
            self.late.append(token)
        elif not (
            result == ("answered" if earlier and earlier[0] < number else "conflict") and earlier
        ):
            self.wrong.append((token, earlier, number, status, result))

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(180)
            assert not thread.is_alive()


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_everybody_counts_once_whatever_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    monkeypatch.setitem(METHODS, "synthetic", METHOD)
    sqlite = database == "sqlite"
    address = (
        str(tmp_path / "collector.db") if sqlite else request.getfixturevalue("own_cluster").fresh()
    )
    port, rng = free_port(), np.random.default_rng(12)
    server = ServerProcess(address, port=port, before=BEFORE)
    caller = Caller(server.url)
    asked = {"method": "synthetic", "parameters": {"rounds": ROUNDS}, "assignment": "arrival"}
    campaign = caller.create(**asked, participants=ROUNDS * SHARE)
    caller.connection.close()
    comers = Comers(server.url, campaign)
    try:
        for _ in range(KILLS[database]):
            before = len(comers.stored)
            until(lambda n=before: len(comers.stored) > n + 5, 180)
            time.sleep(float(rng.uniform(0.01, 0.4)))
            server.kill()
            server = ServerProcess(address, port=port, before=BEFORE)
        until(lambda: max(number for number, _ in comers.stored.values()) >= 2, 180)
    finally:
        comers.stop()
        server.kill()
    assert comers.wrong == []
    expected = {
        report_id(token, comers.held, None): found for token, found in comers.stored.items()
    }
    with closing(open_store(address)) as store:
        live = Campaigns(store).get(campaign)
        stored = {
            (row.report_id, r.number): row.payload
            for r in live.rounds
            for page in store.reports(campaign, r.number)
            for row in page
        }
        assert len({key for key, _ in stored}) == len(stored), "nobody is in two rounds"
        assert stored == {(key, number): payload for key, (number, payload) in expected.items()}
        for r in live.rounds[: live.stored.round]:
            if r.tally is not None:
                assert r.tally == rebuild(store, campaign, live.plans[r.number]).to_bytes()
                assert store.count(campaign, r.number) >= SHARE, (
                    "no round closed before it had its share"
                )
    assert live.stored.round >= 2, "rounds closed by themselves meanwhile"
