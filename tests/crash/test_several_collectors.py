"""Three collectors on one PostgreSQL, any of them and the database killed at any instant, rounds closed meanwhile: nothing
acknowledged is lost, nothing is stored twice, and no report is accepted after its round's tally."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

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

from dither.client import Answer, Unreachable
from dither.collector import PostgresStore, rebuild
from dither.reports import is_asked, plan_from_json, report_id

pytestmark = pytest.mark.slow

SOAK = os.environ.get("DITHER_SOAK") == "1"
ROUNDS, KILLS, CRASHES = 3, 20 if SOAK else 1, 5 if SOAK else 1  # the last two in each round
HERE = Path(__file__).parent
SYNTHETIC = f"""
import sys
sys.path.insert(0, {str(HERE.parent / "collector")!r})
from synthetic_machines import METHOD
from dither.methods.registry import METHODS
METHODS["synthetic"] = METHOD
"""
# Two collectors that break the promise: one answers before it commits, the other takes reports of a round whose tally is taken.
ANSWERS_EARLY = """
import time
from dither.collector.store import Outcome
from dither.collector.writer import Writer, WriteResult
def write(self, group):
    self._hand_over([WriteResult(u.waiter, [Outcome.STORED] * len(u.batch.rows), None) for u in group])
    time.sleep(0.5)
    self._store.add_reports([u.batch for u in group])
Writer._write = write
"""
TAKES_LATE = """
import asyncio
from dither.collector import sql_store
from dither.collector.collector import Collector
sql_store._ROUND = sql_store._ROUND.replace(" state,", " 'open' AS state,")
refresh_and_wait = Collector.refresh_and_wait
async def refresh_late(self):
    await asyncio.sleep(1.0)
    await refresh_and_wait(self)
Collector.refresh_and_wait, Collector._watch = refresh_late, lambda self: None
"""


def insist(
    urls: list[str], ask: Callable[[Caller], Answer], rng: np.random.Generator
) -> tuple[Answer, bool]:
    """Ask one collector after the other until one gives an answer that stands; whether an earlier try may have had an effect."""
    uncertain = False
    while True:
        caller = Caller(str(rng.choice(urls)), timeout=10)
        try:
            answer = ask(caller)
        except Unreachable:
            uncertain = True
            time.sleep(0.02)
            continue
        finally:
            caller.connection.close()
        if answer.status not in (429, 503):
            return answer, uncertain
        uncertain |= b"round-closing" not in answer.body
        time.sleep(0.02)


class Crowd:
    """Threads that take part one new person after the other, each in whichever round asks it, at whichever collector answers."""

    def __init__(self, urls: list[str], campaign: str, threads: int = 3) -> None:
        self.urls, self.campaign, self.held = urls, campaign, bytes.fromhex(campaign)
        self.sent: dict[tuple[int, bytes], bytes] = {}
        self.acknowledged: list[tuple[int, bytes]] = []
        self.refused: list[
            tuple[int, bytes]
        ] = []  # for good, and no earlier try can have stored it
        self.wrong: list[object] = []
        self._numbers, self._turn, self._stopping = (
            iter(range(10**9)),
            threading.Lock(),
            threading.Event(),
        )
        self._threads = [
            threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, seed: int) -> None:
        rng, path = np.random.default_rng(seed), f"/v1/campaigns/{self.campaign}"
        while not self._stopping.is_set():
            announced = json.loads(
                insist(self.urls, lambda c: c.connection.request("GET", path, None), rng)[0].body
            )
            if announced.get("plan") is None:
                time.sleep(0.01)
                continue
            plan, start = plan_of(announced), announced["start"]
            for _ in range(4):
                token = self._person(start, plan.population)
                key = (plan.round, report_id(token, self.held, plan.round))
                self.sent[key] = report_of(plan, self.held, token).payload
                body = envelope_of(self.campaign, plan, [token])
                answer, uncertain = insist(
                    self.urls, lambda c, b=body: c.upload(self.campaign, b), rng
                )
                if answer.status in (200, 201):
                    self.acknowledged.append(key)
                elif answer.status == 409 and b"round-closed" in answer.body:
                    if not uncertain:
                        self.refused.append(key)
                    break
                else:
                    self.wrong.append(answer)

    def _person(self, start: float, population: float) -> bytes:
        while True:
            with self._turn:
                token = token_of(next(self._numbers))
            if is_asked(token, self.held, start, population):
                return token

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


def test_three_collectors_and_their_database_killed_under_load_while_rounds_are_closed(
    own_cluster: Cluster,
) -> None:
    address, crowd = ordeal(
        own_cluster, SYNTHETIC, collectors=3, rounds=ROUNDS, kills=KILLS, crashes=CRASHES
    )
    check(address, crowd, 20 * ROUNDS)


@pytest.mark.parametrize(
    ("broken", "kills", "found"),
    [
        pytest.param(
            ANSWERS_EARLY, 1, "nothing acknowledged is lost", id="answers-before-it-commits"
        ),
        pytest.param(
            TAKES_LATE, 0, "what is stored is what was counted", id="takes-reports-after-the-tally"
        ),
    ],
)
def test_collectors_that_break_the_promise_are_found_out(
    own_cluster: Cluster, broken: str, kills: int, found: str
) -> None:
    address, crowd = ordeal(
        own_cluster, SYNTHETIC + broken, collectors=2, rounds=2, kills=kills, crashes=0
    )
    with pytest.raises(AssertionError, match=found):
        check(address, crowd, 10)


def ordeal(
    cluster: Cluster, before: str, *, collectors: int, rounds: int, kills: int, crashes: int
) -> tuple[str, Crowd]:
    """A campaign under load, with so many kills and crashes of the database in each round: the store and who took part."""
    address, rng = cluster.fresh(), np.random.default_rng(11)
    ports = [free_port() for _ in range(collectors)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    servers = [ServerProcess(address, port=port, before=before) for port in ports]
    caller = Caller(urls[0])
    campaign = caller.create(method="synthetic", participants=10_000, parameters={"rounds": rounds})
    caller.connection.close()
    crowd = Crowd(urls, campaign)
    try:
        for number in range(rounds):
            closed: list[Answer] = []
            events = max(1, kills + crashes)
            for event in range(events):
                seen = len(crowd.acknowledged)
                until(lambda n=seen: len(crowd.acknowledged) > n + 5, 60)
                time.sleep(rng.uniform(0.0, 0.2))
                if (
                    event == events - 1
                ):  # the closing is under way when the last blow of the round falls
                    closing_round = threading.Thread(
                        target=_close, args=(urls, campaign, number, closed)
                    )
                    closing_round.start()
                    time.sleep(rng.uniform(0.0, 0.1))
                if event < kills:
                    which = int(rng.integers(collectors))
                    servers[which].kill()
                    servers[which] = ServerProcess(address, port=ports[which], before=before)
                elif event < kills + crashes:
                    cluster.kill()
                    cluster.start()
            closing_round.join(60)
            assert [a.status for a in closed] == [200], closed
    finally:
        crowd.stop()
        for server in servers:
            server.kill()
    return address, crowd


def _close(urls: list[str], campaign: str, number: int, answers: list[Answer]) -> None:
    rng, body = np.random.default_rng(number), {"round": number}
    for _ in range(100):
        answer = insist(urls, lambda c: c.admin("POST", f"/{campaign}/close-round", body), rng)[0]
        if b"too-few-answers" not in answer.body:
            break
        time.sleep(
            0.05
        )  # a collector that acknowledges before it writes may have written nothing yet
    answers.append(answer)


def check(address: str, crowd: Crowd, least: int) -> None:
    assert crowd.wrong == []
    assert len(crowd.acknowledged) == len(set(crowd.acknowledged)) > least
    stored: dict[tuple[int, bytes], bytes] = {}
    with closing(PostgresStore(address)) as store:
        found: Any = store.campaign(crowd.campaign)
        assert found.state == "collected"
        for held in store.rounds(crowd.campaign):
            rows = [row for page in store.reports(crowd.campaign, held.number) for row in page]
            assert len(rows) == len({row.report_id for row in rows})
            stored |= {(held.number, row.report_id): row.payload for row in rows}
            tally = rebuild(store, crowd.campaign, plan_from_json(held.plan))
            assert tally.participants == len(rows) > 0
            assert tally.to_bytes() == held.tally, (
                "what is stored is what was counted at the closing, to the integer"
            )
    kept = [stored.get(key) == crowd.sent[key] for key in crowd.acknowledged]
    assert all(kept), "nothing acknowledged is lost or changed"
    assert set(stored) <= set(crowd.sent)
    assert not set(stored) & set(crowd.refused), "who was refused for good is not counted"
    assert crowd.refused, "somebody has to come too late, or nothing is shown about those who do"
