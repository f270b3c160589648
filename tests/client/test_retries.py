"""Retries: devices that were refused together do not return together, and no report waits for ever."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from tests.client.small_collector import (
    CAMPAIGN,
    RECORD,
    Collector,
    announce,
    participant,
    plan,
    problem,
)

from dither.client import Answer, Device, Participant, Unreachable
from dither.collector import RetrySpread
from dither.errors import PrivacyError

DAY = 86_400.0
OVERLOADED = Answer(
    429, b'{"type":"urn:dither:problem:overloaded"}', 5.0, "application/problem+json"
)


def test_devices_refused_together_do_not_return_together() -> None:
    """200 devices, each told three times to return in 5 s. Before, all came back at 5.00, 10.00 and 15.00 s."""
    returns: list[list[float]] = []
    for _ in range(200):
        pauses: list[float] = []
        device, collector = (
            Device(":memory:"),
            Collector(announce(plan()), OVERLOADED, OVERLOADED, OVERLOADED),
        )
        assert (
            participant(device, collector, pauses=pauses).take_part(RECORD).result == "acknowledged"
        )
        returns.append([math.fsum(pauses[: i + 1]) for i in range(3)])
        device.close()
    for attempt in range(3):
        times = [times[attempt] for times in returns]
        assert min(times) >= 5.0 * (attempt + 1), "nobody returns before the server asked them to"
        # The first return is uniform over 5 s: a tenth of the devices in each half second, with deviation 4.2 of 200.
        busiest = max(Counter(int(2 * time) for time in times).values())
        assert busiest <= 20 + 6 * 4.2
        assert max(times) <= 10.0 * (attempt + 1)


def test_the_server_spreads_the_returns_over_longer_the_more_it_refuses() -> None:
    now = 0.0
    spread = RetrySpread(clock=lambda: now)
    assert [spread.seconds(5) for _ in range(50)] == [5] * 50, "few refusals return as soon as ever"
    for _ in range(2_000):
        spread.seconds(5)
    asked = Counter(spread.seconds(5) for _ in range(1_000))
    assert min(asked) == 5
    # Between 2,050 and 3,050 refusals at 100 a second: over 20 to 30 seconds, none of which gets a crowd.
    assert 5 + 20 <= max(asked) <= 5 + 30
    assert max(asked.values()) <= 1_000 / 20 + 6 * math.sqrt(1_000 / 20)
    now = 200.0
    assert spread.seconds(5) == 5, "a while later nothing of it is left"
    for _ in range(100_000):
        spread.seconds(60)
    assert max(spread.seconds(60) for _ in range(1_000)) <= 60 + RetrySpread.MAX_SECONDS


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1.7e9

    def __call__(self) -> float:
        return self.now


def waiting_device() -> tuple[Device, Clock]:
    """A device whose one report was lost on the way."""
    clock = Clock()
    device = Device(":memory:", clock=clock)
    lost = Collector(announce(plan()), *[None] * 5)
    assert participant(device, lost).take_part(RECORD).result == "waiting"
    return device, clock


def states(device: Device) -> list[str]:
    return [report.state for report in device.outbox()]


DELETED = problem(404, "no-campaign")


def visit(device: Device, way: str, answer: Answer = DELETED, **more: Any) -> None:
    person = participant(device, lambda *arguments: answer, tries=1, **more)
    if way == "send":
        person.send()
        return
    with pytest.raises(Unreachable):
        person.take_part(RECORD)


@pytest.mark.parametrize("way", ["take_part", "send"])
def test_a_report_of_a_deleted_campaign_ends_after_thirty_days(way: str) -> None:
    device, clock = waiting_device()
    spent = device.spent(CAMPAIGN)
    clock.now += 31 * DAY
    visit(device, way)
    assert states(device) == ["waiting"], "the days count from the first time the collector says so"
    clock.now += 30 * DAY - 1
    visit(device, way)
    assert states(device) == ["waiting"], "a wrong database may be put right"
    clock.now += 1
    visit(device, way)
    assert states(device) == ["refused"]
    assert device.outbox()[0].body == b""
    assert device.spent(CAMPAIGN) == spent, "what was drawn stays spent"
    device.close()


def test_the_days_count_again_once_the_campaign_was_there() -> None:
    device, clock = waiting_device()
    visit(device, "take_part")
    clock.now += 29 * DAY
    assert (
        participant(device, Collector(announce(plan()), *[None] * 5)).take_part(RECORD).result
        == "waiting"
    )
    clock.now += 2 * DAY
    visit(device, "take_part")
    assert states(device) == ["waiting"]
    assert (
        participant(device, Collector(announce(plan()))).take_part(RECORD).result == "acknowledged"
    )
    device.close()


def test_another_server_cannot_end_a_report_by_not_knowing_its_campaign() -> None:
    device, clock = waiting_device()
    for _ in range(3):
        with pytest.raises(PrivacyError, match="takes part in campaign"):
            Participant(
                device,
                "https://other.example",
                CAMPAIGN,
                cap=2.0,
                transport=lambda *arguments: DELETED,
                tries=1,
            ).take_part(RECORD)
        clock.now += 31 * DAY
    assert states(device) == ["waiting"]
    device.close()


def test_a_later_rounds_acknowledgement_counts_more_than_an_earlier_refusal() -> None:
    device = Device(":memory:")
    refuses = Collector(
        announce(plan(0, epsilon=0.5, names=("colour",))), problem(409, "round-closed")
    )
    assert participant(device, refuses).take_part(RECORD).result == "refused"
    takes = Collector(announce(plan(1, epsilon=0.5, names=("member",))))
    assert participant(device, takes).take_part(RECORD).result == "acknowledged"
    assert participant(device, takes).take_part(RECORD).result == "acknowledged", (
        "and so at every later visit"
    )
    device.close()


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404, b"<html>", content_type="text/html"),
        Answer(404, b'{"type":"urn:dither:problem:no-campaign"}', content_type="application/json"),
        problem(404, "not-found"),
        problem(410, "no-campaign"),
        Answer(200, b"<html>login</html>", content_type="text/html"),
    ],
)
def test_a_strangers_404_ends_no_report_however_late(answer: Answer) -> None:
    device, clock = waiting_device()
    clock.now += 1_000 * DAY
    participant(device, lambda *arguments: answer, tries=1).send()
    assert states(device) == ["waiting"]
    device.close()
