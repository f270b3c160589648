"""A participant deletes one report by its receipt while the round is open."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from collector_harness import (
    KEY,
    Caller,
    Cluster,
    ServerThread,
    envelope_of,
    plan_of,
    stored_tally,
    token_of,
)

from dither.cli import run
from dither.client import Answer
from dither.collector import PostgresStore, Store
from dither.reports import report_id


@pytest.fixture
def running(open_store: Callable[[], Store]) -> Iterator[ServerThread]:
    made = ServerThread(open_store())
    yield made
    made.stop()


def receipt_of(campaign: str, number: int, round_: int | None = 0) -> bytes:
    return report_id(token_of(number), bytes.fromhex(campaign), round_)


def upload(caller: Caller, campaign: str, first: int, count: int) -> int:
    plan = plan_of(caller.announcement(campaign))
    tokens = [token_of(i) for i in range(first, first + count)]
    return caller.upload(campaign, envelope_of(campaign, plan, tokens)).status


def delete(caller: Caller, campaign: str, receipt: bytes) -> Answer:
    return caller.connection.request("POST", f"/v1/campaigns/{campaign}/delete", receipt)


def look(running: ServerThread, caller: Caller, campaign: str) -> tuple[int, int, int]:
    """The number of reports: stored, by the running tally, and as the console shows it."""
    stored = stored_tally(running.collector, campaign)
    tally = running.collector.running_tally(campaign)
    assert tally.to_bytes() == stored.to_bytes()
    headers = {"authorization": f"Bearer {KEY}"}
    path = f"/v1/campaigns/{campaign}/progress"
    progress = caller.connection.request("GET", path, None, headers)
    return stored.participants, tally.participants, json.loads(progress.body)["reports"]


def test_a_deleted_report_is_in_no_count(
    running: ServerThread,
) -> None:
    caller = Caller(running.url)
    campaign = caller.create(participants=500)
    assert upload(caller, campaign, 0, 40) == 201
    assert look(running, caller, campaign) == (40, 40, 40)
    answers = [delete(caller, campaign, receipt_of(campaign, 3)) for _ in range(2)]
    assert [(a.status, json.loads(a.body)) for a in answers] == [
        (200, {"deleted": True}),
        (200, {"deleted": False}),
    ]
    running.collector.live._watched.clear()  # the console counts again within a second
    assert look(running, caller, campaign) == (39, 39, 39)
    for wrong, status in ((bytes(32), 200), (bytes(31), 400), (b"", 400)):
        assert delete(caller, campaign, wrong).status == status
    assert delete(caller, "00" * 16, receipt_of(campaign, 4)).status == 404
    assert look(running, caller, campaign)[0] == 39
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    late = delete(caller, campaign, receipt_of(campaign, 4))
    assert (late.status, json.loads(late.body)["type"]) == (
        409,
        "urn:dither:problem:round-closed",
    )
    metrics = running.collector.metrics.text()
    assert "dither_reports_deleted_total 1.0" in metrics
    assert "dither_tally_mismatches_total 0" in metrics
    entries = running.collector.store.audit.entries()
    assert not [e for e in entries if "delet" in e.what], "an entry would have a time"
    caller.connection.close()


def test_by_arrival_the_receipt_of_a_closed_round_deletes_nothing(running: ServerThread) -> None:
    caller = Caller(running.url)
    campaign = caller.create(method="synthetic", assignment="arrival", participants=500)
    assert upload(caller, campaign, 0, 40) == 201
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    assert upload(caller, campaign, 100, 5) == 201
    assert delete(caller, campaign, receipt_of(campaign, 3, None)).status == 409
    assert delete(caller, campaign, receipt_of(campaign, 103, None)).status == 200
    assert running.collector.store.count(campaign, 0) == 40
    assert running.collector.store.count(campaign, 1) == 4
    caller.connection.close()


@pytest.mark.slow
def test_two_collectors_count_exactly_while_reports_come_and_go(cluster: Cluster) -> None:
    url = cluster.fresh()
    servers = [ServerThread(PostgresStore(url)) for _ in range(2)]
    callers = [Caller(server.url, timeout=60.0) for server in servers]
    campaign = callers[0].create(participants=5000)
    callers[1].announcement(campaign)
    assert upload(callers[0], campaign, 0, 30) == 201
    reads: list[Any] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            with suppress(IndexError):
                reads.append(servers[len(reads) % 2].collector.running_tally(campaign))

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(12):
        which = step % 2
        assert upload(callers[which], campaign, 100 + 10 * step, 10) == 201
        gone = receipt_of(campaign, 100 + 10 * step)
        assert json.loads(delete(callers[1 - which], campaign, gone).body) == {"deleted": True}
    stop.set()
    reader.join(60)
    assert reads
    stored = stored_tally(servers[0].collector, campaign)
    assert stored.participants == 30 + 12 * 9
    for server in servers:
        assert server.collector.running_tally(campaign).to_bytes() == stored.to_bytes()
    closed = callers[0].admin("POST", f"/{campaign}/close-round", {"round": 0})
    assert closed.status == 200
    for caller, server in zip(callers, servers, strict=True):
        assert "dither_tally_mismatches_total 0" in server.collector.metrics.text()
        caller.connection.close()
        server.stop()


def test_the_command_deletes_by_receipt(
    server: ServerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    caller = Caller(server.url)
    campaign = caller.create(participants=500)
    assert upload(caller, campaign, 0, 2) == 201
    receipt = receipt_of(campaign, 0).hex()

    def delete_report(*arguments: str) -> int:
        return run(["campaign", "delete-report", *arguments, "--url", server.url])

    assert delete_report(campaign, receipt) == 0
    assert capsys.readouterr().out == "deleted\n"
    wrong = {
        "has no report with this receipt": (campaign, receipt),
        "answered 404": ("00" * 16, receipt),
        "a receipt has 64 characters": (campaign, receipt[1:]),
    }
    for why, arguments in wrong.items():
        assert delete_report(*arguments) == 2
        assert why in capsys.readouterr().err
    assert server.collector.store.count(campaign, 0) == 1
    caller.connection.close()
