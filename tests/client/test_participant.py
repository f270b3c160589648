"""A participant answers once, within its cap, sends identical bytes, and refuses whatever would break its guarantee."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.client.small_collector import (
    CAMPAIGN,
    RECORD,
    SCHEMA,
    Collector,
    announce,
    participant,
    plan,
    problem,
)

from dither.client import Answer, Device, Participant, Unreachable, code_of, read_announcement
from dither.errors import DitherError, PrivacyError, ReportError
from dither.mechanisms import BloomRappor, oue
from dither.reports import Plan, Question, check_payload, decode, is_asked, pick, report_id
from dither.schema import Attribute, Schema


def test_one_report_is_made_sent_and_acknowledged(tmp_path: Path) -> None:
    device, collector = Device(tmp_path / "d.db"), Collector(announce(plan()))
    taken = participant(device, collector).take_part(RECORD)
    assert taken.result == "acknowledged"
    assert 0 < taken.spent <= 2.0
    envelope = decode(collector.bodies[0])
    report = envelope.reports[0]
    assert envelope.campaign.hex() == CAMPAIGN
    assert report.question == pick(report.token, envelope.campaign, plan())
    check_payload(plan(), report.question, report.payload)
    assert participant(device, collector).take_part(RECORD).result == "acknowledged"
    assert len(collector.bodies) == 1, "what is acknowledged is not sent again"
    kept = device.outbox()[0]
    assert (kept.state, kept.body) == ("acknowledged", collector.bodies[0]), "for a restore"
    device.close()


def test_a_retry_sends_identical_bytes_even_from_a_restarted_device(tmp_path: Path) -> None:
    collector = Collector(announce(plan()), None, 503, None, 500, None, 429, 201)
    pauses: list[float] = []
    device = Device(tmp_path / "d.db")
    first = participant(device, collector, tries=5, pauses=pauses).take_part(RECORD)
    assert first.result == "waiting"
    spent = device.spent(CAMPAIGN)
    device.close()
    device = Device(tmp_path / "d.db")
    assert (
        participant(device, collector, tries=5, pauses=pauses)
        .take_part({**RECORD, "colour": "red"})
        .result
        == "acknowledged"
    )
    assert len(collector.bodies) == 7
    assert len(set(collector.bodies)) == 1
    assert device.spent(CAMPAIGN) == spent, "a retry spends nothing"
    assert max(pauses) >= 7.0, "Retry-After is obeyed"
    assert all(pause <= 14.0 for pause in pauses), "and not doubled"
    device.close()


def test_a_crash_between_any_two_steps_never_draws_noise_twice(tmp_path: Path) -> None:
    class Crash(BaseException):
        pass

    def dies(*arguments: object) -> Answer:
        if arguments[0] == "GET":
            return Answer(200, json.dumps(announce(plan())).encode())
        raise Crash

    device = Device(tmp_path / "d.db")
    with pytest.raises(Crash):
        Participant(device, "https://c.example", CAMPAIGN, cap=2.0, transport=dies).take_part(
            RECORD
        )
    waiting = device.outbox()[0]
    device.close()

    def broken_source(count: int) -> bytes:
        raise AssertionError("noise is drawn once")

    device, collector = Device(tmp_path / "d.db"), Collector(announce(plan()))
    assert (
        participant(device, collector, source=broken_source).take_part(RECORD).result
        == "acknowledged"
    )
    assert collector.bodies == [waiting.body]
    device.close()


def test_nothing_is_entered_when_randomising_fails(tmp_path: Path) -> None:
    def fails(count: int) -> bytes:
        raise OSError("no randomness")

    device = Device(tmp_path / "d.db")
    with pytest.raises(OSError, match="no randomness"):
        participant(device, Collector(announce(plan())), source=fails).take_part(RECORD)
    assert (device.spent(CAMPAIGN), device.outbox()) == (0.0, [])
    device.close()


def test_a_plan_above_the_cap_is_refused_before_anything_is_sent() -> None:
    device, collector = Device(":memory:"), Collector(announce(plan(epsilon=2.0)))
    with pytest.raises(PrivacyError, match="more than its cap"):
        participant(device, collector, cap=1.9).take_part(RECORD)
    assert collector.bodies == []
    assert device.spent(CAMPAIGN) == 0.0
    device.close()


def test_a_split_plan_costs_the_sum() -> None:
    device = Device(":memory:")
    split = plan(epsilon=0.6, split=True, shares=())
    collector = Collector(announce(split))
    with pytest.raises(PrivacyError, match="cap"):
        participant(device, collector, cap=1.7).take_part(RECORD)
    device.close()
    device = Device(":memory:")
    assert participant(device, collector, cap=1.8).take_part(RECORD).result == "acknowledged"
    assert device.spent(CAMPAIGN) == pytest.approx(1.8, abs=1e-6)
    assert decode(collector.bodies[0]).reports[0].question == -1
    device.close()


def test_the_cap_covers_all_rounds_together() -> None:
    device = Device(":memory:")
    names = ("colour",)
    assert (
        participant(device, Collector(announce(plan(0, 1.2, names)))).take_part(RECORD).result
        == "acknowledged"
    )
    with pytest.raises(PrivacyError, match="more than its cap"):
        participant(device, Collector(announce(plan(1, 1.2, ("member",))))).take_part(RECORD)
    assert (
        participant(device, Collector(announce(plan(1, 0.7, ("member",))))).take_part(RECORD).result
        == "acknowledged"
    )
    assert 1.8 < device.spent(CAMPAIGN) <= 2.0
    device.close()


def test_the_cap_fixed_at_first_sight_is_not_raised_by_a_later_call() -> None:
    device = Device(":memory:")
    participant(device, Collector(announce(plan(0, 1.2, ("colour",)))), cap=1.5).take_part(RECORD)
    with pytest.raises(PrivacyError, match=r"cap 1\.5"):
        participant(device, Collector(announce(plan(1, 1.2, ("member",)))), cap=50.0).take_part(
            RECORD
        )
    device.close()


def test_only_allowed_attributes_are_answered() -> None:
    device = Device(":memory:")
    collector = Collector(announce(plan(0, 0.5, ("colour",))))
    with pytest.raises(PrivacyError, match="asks about colour"):
        participant(device, collector, allowed=["member", "score"]).take_part(RECORD)
    assert (collector.bodies, device.spent(CAMPAIGN)) == ([], 0.0)
    assert (
        participant(device, collector, allowed=["colour"]).take_part(RECORD).result
        == "acknowledged"
    )
    device.close()


def test_a_changed_schema_is_refused() -> None:
    device = Device(":memory:")
    participant(device, Collector(announce(plan(0, 0.5, ("colour",))))).take_part(RECORD)
    other = Schema(
        (Attribute("colour", "categorical", ("red", "green", "teal")), *SCHEMA.attributes[1:])
    )
    with pytest.raises(PrivacyError, match="changed its schema"):
        participant(device, Collector(announce(plan(1, 0.5, ("member",)), other))).take_part(RECORD)
    device.close()


def test_a_repeated_question_gets_the_same_answer_whatever_the_record_says_now() -> None:
    device = Device(":memory:")
    first, second = (
        Collector(announce(plan(0, 2.0, ("colour",)))),
        Collector(announce(plan(1, 2.0, ("colour",)))),
    )
    participant(device, first).take_part(RECORD)
    spent = device.spent(CAMPAIGN)
    assert (
        participant(device, second).take_part({**RECORD, "colour": "blue"}).result == "acknowledged"
    )
    assert decode(first.bodies[0]).reports[0].payload == decode(second.bodies[0]).reports[0].payload
    assert device.spent(CAMPAIGN) == spent
    device.close()


def test_without_a_memo_a_repeated_question_is_refused() -> None:
    device = Device(":memory:", memo=False)
    participant(device, Collector(announce(plan(0, 0.5, ("colour",))))).take_part(RECORD)
    with pytest.raises(PrivacyError, match="a second time"):
        participant(device, Collector(announce(plan(1, 0.5, ("colour",))))).take_part(RECORD)
    device.close()


def test_the_same_attributes_under_another_mechanism_are_refused() -> None:
    device = Device(":memory:")
    participant(device, Collector(announce(plan(0, 0.5, ("colour",))))).take_part(RECORD)
    with pytest.raises(PrivacyError, match="a second time"):
        participant(device, Collector(announce(plan(1, 0.4, ("colour",))))).take_part(RECORD)
    device.close()


def test_a_plan_that_changes_under_an_answered_round_is_refused() -> None:
    device = Device(":memory:")
    participant(device, Collector(announce(plan(0, 0.5, ("colour",))))).take_part(RECORD)
    with pytest.raises(PrivacyError, match="its plan has changed"):
        participant(device, Collector(announce(plan(0, 0.5, ("member",))))).take_part(RECORD)
    device.close()


def test_whom_a_round_does_not_ask_sends_nothing() -> None:
    asked = 0
    for i in range(40):
        device, token = Device(":memory:"), bytes([i]) * 32
        collector = Collector(announce(plan(population=0.25), start=0.5))
        taken = participant(device, collector, token=token).take_part(RECORD)
        expected = is_asked(token, bytes.fromhex(CAMPAIGN), 0.5, 0.25)
        assert taken.result == ("acknowledged" if expected else "not-asked")
        assert len(collector.bodies) == expected
        asked += expected
        device.close()
    assert 2 <= asked <= 20, "ten expected, 3.6 standard deviations"


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (problem(409, "conflict"), "refused"),
        (problem(403, "unknown-token"), "refused"),
        (problem(422, "malformed"), "refused"),
        (503, "waiting"),
    ],
)
def test_a_refusal_ends_the_matter_and_a_failure_does_not(
    answer: int | Answer, result: str
) -> None:
    device = Device(":memory:")
    collector = Collector(announce(plan()), answer, *[503] * 9)
    assert participant(device, collector, tries=2).take_part(RECORD).result == result
    again = participant(device, collector, tries=2).take_part(RECORD)
    assert again.result == result
    assert len(collector.bodies) == (1 if result == "refused" else 4)
    device.close()


def test_no_open_round() -> None:
    device = Device(":memory:")
    taken = participant(device, Collector(announce(None))).take_part(RECORD)
    assert (taken.result, taken.reason) == ("not-open", "collected")
    device.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "dither-campaign-9"}, "not an announcement"),
        ({"campaign": "0f"}, "campaign id"),
        ({"campaign": "ee" * 16}, "announces campaign"),
        ({"schema_fingerprint": "0" * 64}, "fingerprint"),
        ({"epsilon": 1.0}, "more than the 1.0"),
        ({"start": 1.0}, "start at place"),
        ({"start": "x"}, "announced start"),
        ({"plan": {"questions": []}}, "not a plan"),
        ({"plan": plan(names=("colour",)).to_json() | {"shares": [0.5]}}, "shares"),
    ],
)
def test_announcements_are_read_with_suspicion(change: dict[str, Any], said: str) -> None:
    device = Device(":memory:")
    with pytest.raises(DitherError, match=said):
        participant(device, Collector(announce(plan(), **change))).take_part(RECORD)
    assert device.outbox() == []
    device.close()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Question(("colour",), oue(4, 1.0)), "has 3 cells, not 4"),
        (Question(("size",), oue(4, 1.0)), "does not fit the schema"),
        (Question(("colour", "colour"), oue(9, 1.0)), "does not fit the schema"),
        (Question(("colour",), BloomRappor.for_epsilon(3, 1.0, 9 * 2**20, 2)), "too large"),
    ],
)
def test_questions_must_fit_the_schema_and_the_device(asked: Question, said: str) -> None:
    with pytest.raises(ReportError, match=said):
        read_announcement(json.dumps(announce(Plan(0, (asked,), (1.0,)))).encode())


@pytest.mark.parametrize("bits", [0, 7, 72, 10**12])
def test_costly_numbers_are_refused_before_they_cost_anything(bits: int) -> None:
    body = announce(plan())
    body["plan"]["questions"][0]["mechanism"]["threshold_bits"] = bits
    with pytest.raises(ReportError, match="bits are not supported"):
        read_announcement(json.dumps(body).encode())


def test_reports_do_not_leave_the_machine_unencrypted() -> None:
    device = Device(":memory:")
    with pytest.raises(DitherError, match="without encryption"):
        Participant(device, "http://c.example", CAMPAIGN, cap=1.0, tries=1).fetch_announcement()
    with pytest.raises(Unreachable):
        Participant(device, "http://127.0.0.1:9", CAMPAIGN, cap=1.0, tries=1).fetch_announcement()
    device.close()


def test_records_get_the_codes_that_tables_get() -> None:
    import pyarrow as pa

    from dither.schema import encode

    rows = [
        {"colour": c, "member": m, "score": s}
        for c in ("red", "blue")
        for m in (True, False, None)
        for s in (0.0, 0.99, 1.0, 5.0, 8.999, 9.0)
    ]
    coded = [[code_of(SCHEMA[name], row[name]) for name in SCHEMA.names] for row in rows]
    assert encode(pa.Table.from_pylist(rows), SCHEMA).codes.tolist() == coded
    for name, wrong in (
        ("colour", "pink"),
        ("score", 9.1),
        ("score", "1"),
        ("score", None),
        ("colour", None),
    ):
        assert code_of(SCHEMA[name], wrong) is None


def by_arrival(number: int = 0, start: float = 0.0, **more: Any) -> dict[str, Any]:
    """A round of a campaign that asks whoever comes; half of the people in each."""
    asked = plan(number, names=("colour", "score")[number : number + 1], population=0.5)
    return announce(asked, start=start, assignment="arrival", **more)


def test_by_arrival_everybody_is_asked_and_answers_one_round_of_the_campaign() -> None:
    for i in range(12):
        device, token = Device(":memory:"), bytes([i]) * 32
        first, second = Collector(by_arrival()), Collector(by_arrival(1, 0.5))
        came = participant(device, first, token=token, cap=99.0).take_part(RECORD)
        receipt = report_id(token, bytes.fromhex(CAMPAIGN), None).hex()
        assert (came.result, came.receipt) == ("acknowledged", receipt)
        for later in (second, Collector(by_arrival(1, 0.5) | {"plan": None, "state": "collected"})):
            again = participant(device, later, token=token, cap=99.0).take_part(RECORD)
            assert (again.result, again.receipt, again.spent) == (
                "acknowledged",
                receipt,
                came.spent,
            )
            assert later.bodies == [], "although the cap would allow a second answer"
        device.close()


def test_a_campaign_that_asks_whoever_arrives_cannot_ask_again_by_token() -> None:
    device = Device(":memory:")
    assert (
        participant(device, Collector(by_arrival()), cap=99.0).take_part(RECORD).result
        == "acknowledged"
    )
    for number, name in ((1, "score"), (0, "colour")):
        later = Collector(announce(plan(number, names=(name,))))
        with pytest.raises(PrivacyError, match="asked people by arrival and now by token"):
            participant(device, later, cap=99.0).take_part(RECORD)
        assert later.bodies == []
    device._run("UPDATE campaigns SET assignment = NULL")  # as a file of an earlier version has it
    assert (
        participant(device, Collector(by_arrival()), cap=99.0).take_part(RECORD).result
        == "acknowledged"
    )
    assert device._run("SELECT assignment FROM campaigns") == [("arrival",)]
    device.close()


def test_by_token_the_ledger_alone_keeps_a_server_from_asking_twice() -> None:
    device = Device(":memory:")
    asked = [announce(plan(n, names=(name,))) for n, name in enumerate(("colour", "score"))]
    assert (
        participant(device, Collector(asked[0]), cap=4.0).take_part(RECORD).result == "acknowledged"
    )
    assert participant(device, Collector(asked[1]), cap=4.0).take_part(RECORD).spent > 2.0
    device.close()


def test_by_arrival_what_waits_is_sent_when_another_round_is_open() -> None:
    device, first = Device(":memory:"), Collector(by_arrival(), None)
    assert participant(device, first, tries=1).take_part(RECORD).result == "waiting"
    second = Collector(by_arrival(1, 0.5))
    assert participant(device, second, tries=1).take_part(RECORD).result == "acknowledged"
    assert second.bodies == first.bodies, "the same bytes, and no other answer"
    device.close()


def test_the_collector_may_say_that_this_participant_has_answered() -> None:
    device, collector = (
        Device(":memory:"),
        Collector(by_arrival(), problem(409, "answered", results=["answered"])),
    )
    for _ in range(2):
        assert participant(device, collector, tries=1).take_part(RECORD).result == "answered"
    assert len(collector.bodies) == 1
    device.close()
