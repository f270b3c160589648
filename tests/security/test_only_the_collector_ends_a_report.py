"""A report is given up only on the collector's own word: proxies, login pages and redirects neither store nor refuse it."""

from __future__ import annotations

import json
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
    stored,
)

from dither.cli.submit import SimulatedFleet, submit_round
from dither.client import (
    CAMPAIGN_BYTES,
    MAX_SLEEP,
    OUTBOX_BYTES,
    Announcement,
    Answer,
    Device,
    Participant,
    read_announcement,
)
from dither.collector import PROBLEMS, Outcome
from dither.errors import PrivacyError, ReportError
from dither.reports import ACCEPTED, FINAL, verdict

PAGE = b"<html>Sign in to the guest network</html>"


def answer(status: int, body: Any, content_type: str = "application/json") -> Answer:
    return Answer(
        status,
        body if isinstance(body, bytes) else json.dumps(body).encode(),
        content_type=content_type,
    )


NOT_ITS_WORD = [
    answer(200, PAGE, "text/html"),
    answer(201, b""),
    answer(200, {}),
    answer(200, {"results": []}),
    answer(200, {"results": ["stored", "stored"]}),
    answer(200, {"results": ["conflict"]}),
    answer(200, {"results": "stored"}),
    answer(200, {"results": [["stored"]]}),
    answer(204, b""),
    answer(202, {"results": ["stored"]}),
    *(
        answer(status, PAGE, "text/html")
        for status in (301, 302, 307, 308, 400, 401, 403, 404, 405, 407, 409, 410, 413, 451)
    ),
    answer(404, {"type": "urn:dither:problem:conflict"}),
    answer(409, {"type": "conflict"}, "application/problem+json"),
    answer(302, {"type": "urn:dither:problem:conflict"}, "application/problem+json"),
    problem(404, "not-found"),
    problem(404, "no-campaign"),
    problem(409, "round-not-open"),
    problem(503, "round-closing", results=["round-closing"]),
    problem(409, "round-closing", results=["round-closing"]),
    problem(500, "conflict"),
    answer(409, b"[" * 100_000, "application/problem+json"),
]


@pytest.mark.parametrize("said", NOT_ITS_WORD, ids=lambda a: f"{a.status} {a.body[:40]!r}")
def test_whatever_is_not_the_collectors_word_leaves_the_report_waiting(said: Answer) -> None:
    device, collector = Device(":memory:"), Collector(announce(plan()), said)
    assert participant(device, collector, tries=1).take_part(RECORD).result == "waiting"
    assert participant(device, collector, tries=1).take_part(RECORD).result == "acknowledged"
    assert len(set(collector.bodies)) == 1, "the same bytes"
    device.close()


@pytest.mark.parametrize(
    "said", [stored(201), stored(200), answer(200, {"results": ["duplicate"], "more": 1})]
)
def test_the_collectors_word_acknowledges(said: Answer) -> None:
    device, collector = Device(":memory:"), Collector(announce(plan()), said)
    assert participant(device, collector, tries=1).take_part(RECORD).result == "acknowledged"
    assert [row.body for row in device.outbox()] == collector.bodies, (
        "kept for a restored collector"
    )
    device.close()


def test_every_outcome_and_every_final_cause_is_one_that_the_collector_knows() -> None:
    assert set(ACCEPTED) == {o.value for o in Outcome if o.accepted}
    assert {o.value for o in Outcome if not o.accepted} - set(FINAL) == {"round-closing"}
    assert set(FINAL) <= set(PROBLEMS)
    for cause in FINAL:
        status = PROBLEMS[cause][0]
        said = problem(status, cause, results=[cause])
        ended = "answered" if cause == "answered" else "refused"
        assert verdict(said.status, "application/problem+json; charset=utf-8", said.body) == ended


def test_a_fleet_believes_nothing_else_either() -> None:
    announcement = read_announcement(json.dumps(announce(plan())).encode())
    people = [[0, 0, 0], [1, 1, 1]]

    def send(said: Answer) -> dict[str, int]:
        return dict(
            submit_round(
                announcement, people, SimulatedFleet(1), lambda body: said, sleep=lambda pause: None
            ).results
        )

    assert send(answer(201, {"results": ["stored", "duplicate"]})) == {"stored": 1, "duplicate": 1}
    mixed = problem(409, "conflict", results=["stored", "conflict"])
    assert send(mixed) == {"stored": 1, "conflict": 1}
    for wrong in (
        answer(200, PAGE, "text/html"),
        answer(200, {"results": ["stored"]}),
        answer(302, {"results": ["stored", "stored"]}),
        answer(201, {"results": ["stored", "perhaps"]}),
        answer(409, {"results": ["stored", "conflict"]}),
    ):
        with pytest.raises(ReportError, match="refused a batch"):
            send(wrong)


def test_another_server_that_shows_the_same_campaign_gets_neither_token_nor_report() -> None:
    """Id and schema are public: without this, a link to another server would hand it the waiting report and the token."""
    device, honest, evil = (
        Device(":memory:"),
        Collector(announce(plan()), None),
        Collector(announce(None)),
    )
    assert participant(device, honest, tries=1).take_part(RECORD).result == "waiting"
    elsewhere = Participant(
        device,
        "https://evil.example",
        CAMPAIGN,
        cap=2.0,
        transport=lambda m, a, b: evil(m, _here(a), b),
    )
    for visit in (lambda: elsewhere.take_part(RECORD), elsewhere.send):
        with pytest.raises(PrivacyError, match=r"takes part in campaign .* at https://c\.example"):
            visit()
    assert evil.bodies == []
    moved = Participant(
        device,
        "https://new.example",
        CAMPAIGN,
        cap=2.0,
        moved=True,
        transport=lambda m, a, b: honest(m, _here(a), b),
    )
    assert moved.take_part(RECORD).result == "acknowledged"
    assert len(set(honest.bodies)) == 1
    device.close()


def _here(address: str) -> str:
    return "https://c.example/" + address.split("/", 3)[3]


def test_a_server_that_acknowledges_nothing_fills_its_own_outbox_and_nobody_elses() -> None:
    device = Device(":memory:")
    asked = plan(names=("colour",))
    collector = Collector(announce(asked))
    participant(device, collector).take_part(RECORD)
    report = collector.bodies[0]
    for number in range(1, CAMPAIGN_BYTES // len(report) + 1):
        device._connection.execute(
            "INSERT INTO outbox (campaign, round, body) VALUES (?, ?, ?)",
            (CAMPAIGN, 10_000 + number, report),
        )
    again = Collector(announce(plan(1, names=("colour",))), *[None] * 9999)
    with pytest.raises(PrivacyError, match="outbox is full"):
        participant(device, again, tries=1).take_part(RECORD)
    with device.transaction():
        device.enter(
            read_announcement(json.dumps(announce(asked, campaign="1e" * 16)).encode()), 0.0, report
        )
    device.close()


def test_a_server_with_many_campaigns_fills_its_own_outbox_and_no_other_servers() -> None:
    device, asked = Device(":memory:"), plan(names=("colour",))

    def join(campaign: str, address: str) -> Announcement:
        announcement = read_announcement(json.dumps(announce(asked, campaign=campaign)).encode())
        device.join(announcement, 2.0, address=address)
        return announcement

    body, count = bytes(CAMPAIGN_BYTES), OUTBOX_BYTES // CAMPAIGN_BYTES
    hostile = [join(f"{number:032x}", "https://hostile.example") for number in range(count + 1)]
    honest = join("1e" * 16, "https://honest.example")
    for announcement in hostile[:-1]:
        with device.transaction():
            device.enter(announcement, 0.0, body)
    with pytest.raises(PrivacyError, match="outbox is full"), device.transaction():
        device.enter(hostile[-1], 0.0, body)
    with device.transaction():
        device.enter(honest, 0.0, body)
    device.close()


def test_a_server_that_asks_for_patience_gets_minutes_not_hours() -> None:
    device = Device(":memory:")
    slept: list[float] = []
    collector = Collector(announce(plan()), *[Answer(503, b"{}", 290.0)] * 50)
    participant(device, collector, tries=5, pauses=slept).take_part(RECORD)
    assert sum(slept) <= MAX_SLEEP
    device.close()
