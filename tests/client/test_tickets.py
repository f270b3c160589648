"""A ticket that was used on one device makes no other device draw noise, unless both answer before either is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from collector_harness import Caller, ServerThread
from tests.client.small_collector import (
    CAMPAIGN,
    RECORD,
    Collector,
    announce,
    participant,
    plan,
    problem,
    said,
)

from dither.client import Answer, Device, Participant, Unreachable, http_transport
from dither.collector import SqliteStore
from dither.reports import report_id

TICKET = bytes(range(32))
ID = report_id(TICKET, bytes.fromhex(CAMPAIGN), 0)


def no_noise(count: int) -> bytes:
    raise AssertionError("noise was drawn")


def by_arrival(number: int) -> dict[str, Any]:
    asked = plan(number, names=("colour", "score")[number : number + 1], population=0.5)
    return announce(asked, start=0.5 * number, assignment="arrival")


def test_a_second_device_with_the_ticket_draws_and_sends_nothing() -> None:
    collector, first, second = Collector(announce(plan())), Device(":memory:"), Device(":memory:")
    assert participant(first, collector, token=TICKET).take_part(RECORD).result == "acknowledged"
    for _ in range(2):
        taken = participant(second, collector, token=TICKET, source=no_noise).take_part(RECORD)
        assert (taken.result, taken.spent, taken.receipt) == ("used-elsewhere", 0.0, "")
        assert "nothing was drawn or sent" in taken.reason
    assert len(collector.bodies) == 1
    assert collector.looked_up == [ID] * 3
    assert (second.outbox(), second.spent(CAMPAIGN)) == ([], 0.0)
    assert (
        participant(first, collector, token=TICKET, source=no_noise).take_part(RECORD).result
        == "acknowledged"
    )
    assert len(collector.looked_up) == 3, "a device that has answered asks nothing"
    first.close()
    second.close()


def test_by_arrival_a_ticket_used_in_an_earlier_round_is_found() -> None:
    collector, first, second = Collector(by_arrival(0)), Device(":memory:"), Device(":memory:")
    assert participant(first, collector, token=TICKET).take_part(RECORD).result == "acknowledged"
    collector.announced = by_arrival(1)
    taken = participant(second, collector, token=TICKET, source=no_noise).take_part(RECORD)
    assert (taken.result, taken.spent) == ("used-elsewhere", 0.0)
    assert len(collector.bodies) == 1
    first.close()
    second.close()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        problem(404, "not-found"),
        problem(503, "store-away"),
        problem(429, "overloaded"),
        Answer(200, b"<html>", content_type="text/html"),
        Answer(200, b'{"stored":"no"}', content_type="application/json"),
        Answer(200, b"false", content_type="application/json"),
        Answer(201, b'{"stored":false}', content_type="application/json"),
    ],
)
def test_a_device_that_does_not_know_draws_nothing_and_asks_again_later(
    answer: Answer | None,
) -> None:
    device, collector = Device(":memory:"), Collector(announce(plan()))
    collector.lookups = [answer] * 2
    with pytest.raises(
        Unreachable,
        match=r"does not say whether this ticket has been used.*nothing was drawn or sent",
    ):
        participant(device, collector, token=TICKET, source=no_noise, tries=2).take_part(RECORD)
    assert (collector.bodies, device.outbox(), device.spent(CAMPAIGN)) == ([], [], 0.0)
    collector.lookups.clear()
    assert participant(device, collector, token=TICKET).take_part(RECORD).result == "acknowledged"
    device.close()


def test_a_token_that_the_device_drew_itself_is_not_looked_up(tmp_path: Path) -> None:
    device, collector = Device(tmp_path / "d.db"), Collector(announce(None))
    assert participant(device, collector).take_part(RECORD).result == "not-open"
    device.close()
    device, collector = Device(tmp_path / "d.db"), Collector(announce(plan()))
    assert participant(device, collector).take_part(RECORD).result == "acknowledged"
    assert collector.looked_up == []
    device.close()


def test_a_ticket_given_at_the_first_visit_is_still_one_when_it_is_not_given_again() -> None:
    device = Device(":memory:")
    assert (
        participant(device, Collector(announce(None)), token=TICKET).take_part(RECORD).result
        == "not-open"
    )
    collector = Collector(announce(plan()))
    collector.stored.add(ID)
    assert (
        participant(device, collector, source=no_noise).take_part(RECORD).result == "used-elsewhere"
    )
    device.close()


def test_a_file_of_an_earlier_version_which_does_not_say_who_drew_the_token_asks(
    tmp_path: Path,
) -> None:
    device = Device(tmp_path / "d.db")
    assert participant(device, Collector(announce(None))).take_part(RECORD).result == "not-open"
    device._run("ALTER TABLE campaigns DROP COLUMN drawn")
    device.close()
    device, collector = Device(tmp_path / "d.db"), Collector(announce(plan()))
    assert participant(device, collector).take_part(RECORD).result == "acknowledged"
    assert len(collector.looked_up) == 1
    device.close()


def test_what_is_asked_does_not_depend_on_the_record() -> None:
    asked = []
    for record in (RECORD, {}, {"colour": object(), "member": "x", "score": float("nan")}):
        device, collector = Device(":memory:"), Collector(announce(plan()))
        participant(device, collector, token=TICKET).take_part(record)
        asked.append((collector.looked_up, [len(body) for body in collector.bodies]))
        device.close()
    assert asked[0] == asked[1] == asked[2]


def test_in_a_race_both_devices_send_and_the_second_hears_that_its_report_is_refused() -> None:
    """What remains: both ask before either report is stored."""
    collector, first, second = Collector(announce(plan())), Device(":memory:"), Device(":memory:")
    collector.lookups = [said(False), said(False)]
    assert participant(first, collector, token=TICKET).take_part(RECORD).result == "acknowledged"
    collector.answers = [problem(409, "conflict")]
    raced = participant(second, collector, token=TICKET).take_part(RECORD)
    assert raced.result == "refused"
    assert raced.spent > 0, "its noise was drawn and sent, so it counts"
    assert len(collector.bodies) == 2
    first.close()
    second.close()


def test_over_http_a_collector_gets_one_body_under_one_ticket(tmp_path: Path) -> None:
    running = ServerThread(SqliteStore(tmp_path / "c.db"))
    try:
        caller = Caller(running.url)
        campaign = caller.create(participation="tokens")
        issued = caller.admin("POST", f"/{campaign}/tokens", {"count": 2})
        ticket, unused = json.loads(issued.body)["tokens"]
        requests: list[tuple[str, bytes | None]] = []

        def watched(method: str, address: str, body: bytes | None) -> Answer:
            requests.append((address.rpartition("/")[2], body))
            return http_transport(method, address, body)

        def come(device: Device, token: str) -> str:
            return (
                Participant(device, running.url, campaign, cap=2.0, token=token, transport=watched)
                .take_part(RECORD)
                .result
            )

        devices = [Device(":memory:") for _ in range(3)]
        assert [come(device, ticket) for device in devices] == [
            "acknowledged",
            "used-elsewhere",
            "used-elsewhere",
        ]
        assert len([body for path, body in requests if path == "reports"]) == 1
        assert running.collector.store.count(campaign, 0) == 1
        assert "conflict" not in running.collector.metrics.text()
        fresh = Device(":memory:")
        assert come(fresh, unused) == "acknowledged"
        for device in (*devices, fresh):
            device.close()
    finally:
        running.stop()
