"""The device-wide ledger: all campaigns and servers together stay under one cap, whatever the clock does."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.client.small_collector import CAMPAIGN, RECORD, Collector, announce, participant, plan

from dither.client import Device, Participant
from dither.errors import DitherError, ParameterError, PrivacyError

# The tables of a device's file before the ledger had times.
OLD = """
CREATE TABLE device (secret BLOB NOT NULL);
CREATE TABLE campaigns (campaign TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, cap REAL NOT NULL, token BLOB NOT NULL);
CREATE TABLE answers (campaign TEXT NOT NULL, round INTEGER NOT NULL, plan TEXT NOT NULL, epsilon REAL NOT NULL,
    PRIMARY KEY (campaign, round));
CREATE TABLE asked (campaign TEXT NOT NULL, attributes TEXT NOT NULL, PRIMARY KEY (campaign, attributes));
CREATE TABLE memo (key BLOB PRIMARY KEY, payload BLOB NOT NULL);
CREATE TABLE outbox (campaign TEXT NOT NULL, round INTEGER NOT NULL, body BLOB NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting', PRIMARY KEY (campaign, round));
"""


class Clock:
    def __init__(self, now: float = 1e9) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Anywhere(Collector):
    """The same collector under any campaign's address."""

    def __call__(self, method: str, address: str, body: bytes | None) -> Any:
        campaign = str(self.announced["campaign"])
        return super().__call__(method, address.replace(campaign, "0f" * 16), body)


def spend(
    device: Device,
    campaign: int,
    epsilon: float,
    *,
    cap: float = 9.0,
    number: int = 0,
    name: str = "colour",
) -> str:
    """Answer a question of this epsilon in a campaign of its own."""
    campaign_id = f"{campaign:02x}" * 16
    announced = announce(plan(number, epsilon, (name,)), campaign=campaign_id, epsilon=9.0)
    collector = Anywhere(announced)
    taken = Participant(
        device, "https://c.example", campaign_id, cap=cap, transport=collector
    ).take_part(RECORD)
    assert len(collector.bodies) == 1
    return taken.result


def test_campaigns_of_all_servers_share_one_cap(tmp_path: Path) -> None:
    device = Device(tmp_path / "d.db", cap_total=2.0)
    spend(device, 1, 0.9)
    spend(device, 2, 0.9)
    with pytest.raises(PrivacyError, match=r"more than its cap_total 2"):
        spend(device, 3, 0.9)
    assert device.outbox(f"{3:02x}" * 16) == []
    assert 1.7 < device.spent_total() <= 1.8 + 1e-9
    spend(device, 3, 0.2)
    device.close()


def test_the_cap_is_kept_in_the_file_and_changed_by_saying_so(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    device = Device(path, cap_total=1.0, period=60.0)
    spend(device, 1, 0.9)
    device.close()
    device = Device(path)
    assert device.limits() == (1.0, 60.0)
    with pytest.raises(PrivacyError, match="cap_total 1"):
        spend(device, 2, 0.5)
    device.close()
    device = Device(path, cap_total=0.5)
    assert device.limits() == (0.5, None)
    with pytest.raises(PrivacyError, match=r"cap_total 0\.5"):
        spend(device, 2, 0.1)
    device.close()
    device = Device(path, cap_total=3.0)
    spend(device, 2, 0.5)
    device.close()


def test_spending_counts_for_a_period_and_a_clock_that_goes_back_frees_nothing(
    tmp_path: Path,
) -> None:
    clock = Clock()
    device = Device(tmp_path / "d.db", cap_total=1.0, period=100.0, clock=clock)
    spend(device, 1, 0.9)
    clock.now += 99.0
    with pytest.raises(PrivacyError, match="within 100 s"):
        spend(device, 2, 0.9)
    clock.now -= 5000.0  # back: neither what was spent is forgotten, nor does the new spending get an early date
    with pytest.raises(PrivacyError, match="cap_total"):
        spend(device, 2, 0.9)
    device.close()
    device = Device(tmp_path / "d.db", clock=clock)
    with pytest.raises(PrivacyError, match="cap_total"):
        spend(device, 2, 0.9)
    clock.now += 5000.0 + 1.0
    spend(device, 2, 0.9)
    clock.now -= 10_000.0
    spend(device, 3, 0.05)
    clock.now += 10_000.0 + 99.0
    with pytest.raises(PrivacyError, match="cap_total"):
        spend(device, 4, 0.9)
    clock.now += 1.0
    spend(device, 4, 0.9)
    device.close()


def test_a_repeated_answer_costs_nothing_even_when_all_is_spent() -> None:
    device = Device(":memory:", cap_total=0.5)
    spend(device, 1, 0.5)
    assert spend(device, 1, 0.5, number=1) == "acknowledged"
    with pytest.raises(PrivacyError, match="cap_total"):
        spend(device, 1, 0.1, number=2, name="score")
    device.close()


def test_a_cap_lowered_later_counts() -> None:
    device = Device(":memory:")
    spend(device, 1, 3.9, cap=4.0)
    with pytest.raises(PrivacyError, match=r"more than its cap 1\.5"):
        spend(device, 1, 0.05, cap=1.5, number=1, name="score")
    with pytest.raises(PrivacyError, match=r"more than its cap 1\.5"):
        spend(device, 1, 0.05, cap=4.0, number=1, name="score")
    device.close()


def test_a_file_of_an_older_version_is_carried_forward(tmp_path: Path) -> None:
    path, campaign = tmp_path / "old.db", f"{1:02x}" * 16
    with sqlite3.connect(path) as old:
        old.executescript(OLD)
        old.execute("INSERT INTO device VALUES (?)", (b"s" * 32,))
        schema = str(announce(None)["schema_fingerprint"])
        old.execute("INSERT INTO campaigns VALUES (?, ?, ?, ?)", (campaign, schema, 4.0, b"t" * 32))
        old.execute("INSERT INTO answers VALUES (?, 7, 'digest', 0.9)", (campaign,))
        old.execute("INSERT INTO outbox (campaign, round, body) VALUES (?, 7, x'00')", (campaign,))
    old.close()
    clock = Clock()
    device = Device(path, cap_total=1.0, period=100.0, clock=clock)
    assert (device.spent(campaign), device.cap(campaign), device.answers_of(campaign, 7)) == (
        0.9,
        4.0,
        "digest",
    )
    assert [w.state for w in device.outbox()] == ["waiting"]
    with pytest.raises(PrivacyError, match="cap_total"):
        spend(device, 2, 0.9)
    device.close()
    clock.now += 101.0  # the old spending counted from the first opening by this version
    device = Device(path, clock=clock)
    spend(device, 2, 0.9)
    device.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"cap_total": 0.0},
        {"cap_total": math.nan},
        {"cap_total": -1.0},
        {"cap_total": math.inf},
        {"cap_total": True},
        {"cap_total": "2"},
        {"cap_total": 1.0, "period": 0.0},
        {"period": 5.0},
    ],
)
def test_a_cap_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((PrivacyError, ParameterError)):
        Device(":memory:", **wrong)


def test_a_clock_that_tells_no_time_is_refused() -> None:
    with pytest.raises(DitherError, match="clock"):
        Device(":memory:", clock=lambda: math.nan)


def test_two_processes_of_a_device_that_answer_at_once_draw_noise_once(tmp_path: Path) -> None:
    """The second finds the round unanswered, and the first's answer in the books when its own turn comes."""
    collector = Collector(announce(plan()))
    first, second = Device(tmp_path / "device.db"), Device(tmp_path / "device.db")
    faster = participant(first, collector)

    class Slower(Participant):
        def _answer(self, *asked: Any) -> tuple[str, ...]:
            faster.take_part(RECORD)
            return super()._answer(*asked)

    slower = Slower(second, "https://c.example", CAMPAIGN, cap=2.0, transport=collector)
    assert slower.take_part(RECORD).result == "acknowledged"
    assert len(set(collector.bodies)) == 1
    assert second.spent(CAMPAIGN) <= 2.0
    first.close()
    second.close()
