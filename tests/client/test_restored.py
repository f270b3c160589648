"""A device sends acknowledged bytes again to a restored collector, and can delete its report."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.small_collector import RECORD, Collector, announce, participant, plan, problem

from dither.client import RESEND_DAYS, Answer, Device, Unreachable
from dither.errors import PrivacyError, ReportError
from dither.reports import Plan

DAY = 86_400.0


class Visits:
    """One device and the collectors that it visits, with a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.now = 1_000.0
        self.device = Device(folder / "d.db", clock=lambda: self.now)
        self.collector = Collector(announce(plan()))

    def visit(self, epoch: str = "", asked: Plan | None = None) -> tuple[str, float]:
        more = {"epoch": epoch} if epoch else {}
        self.collector.announced = announce(asked or plan(), **more)
        taken = participant(self.device, self.collector, cap=9.0).take_part(RECORD)
        return taken.result, taken.spent

    @property
    def sent(self) -> int:
        return len(self.collector.bodies)


@pytest.fixture
def visits(tmp_path: Path) -> Visits:
    return Visits(tmp_path)


def test_the_same_bytes_are_sent_once_to_each_restored_collector(visits: Visits) -> None:
    first = visits.visit()
    assert visits.visit() == first
    assert visits.sent == 1
    assert visits.visit("aa") == first
    assert visits.visit("aa") == first
    assert visits.sent == 2
    assert visits.visit("bb") == first
    assert visits.sent == 3
    assert len(set(visits.collector.bodies)) == 1


def test_an_unanswered_report_is_sent_until_it_is_acknowledged(visits: Visits) -> None:
    visits.visit()
    visits.collector.answers = [None] * 5
    assert visits.visit("aa")[0] == "waiting"
    assert visits.visit("aa")[0] == "acknowledged"
    assert len(set(visits.collector.bodies)) == 1
    assert len(visits.collector.bodies) == 7


def test_the_bytes_are_kept_for_the_stated_days(visits: Visits) -> None:
    visits.visit()
    visits.now += (RESEND_DAYS - 1) * DAY
    assert visits.device.outbox()[0].body
    visits.visit("aa")
    assert visits.sent == 2
    visits.now += (RESEND_DAYS + 1) * DAY
    visits.visit("aa", plan(1))  # settles another report, which drops what is too old
    assert [bool(report.body) for report in visits.device.outbox()] == [False, True]
    visits.visit("bb")
    assert visits.sent == 3
    assert RESEND_DAYS == 30, "docs/reference/protocol.md and js/dither.js state it"


def test_no_report_goes_to_a_round_that_asks_something_else(visits: Visits) -> None:
    visits.visit()
    other = plan(0, shares=(0.0, 1.0, 0.0))
    with pytest.raises(PrivacyError, match="its plan has changed"):
        visits.visit("aa", other)
    assert visits.visit("aa", plan(1))[0] == "acknowledged"
    assert visits.sent == 2, "the round of the first report is over"


def test_waiting_reports_alone_fill_the_outbox(
    visits: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits.visit()
    length = len(visits.collector.bodies[0])
    monkeypatch.setattr("dither.client.device.CAMPAIGN_BYTES", length + 10)
    monkeypatch.setattr("dither.client.device.OUTBOX_BYTES", length + 10)
    assert visits.visit("", plan(1))[0] == "acknowledged"
    kept = {report.round: bool(report.body) for report in visits.device.outbox()}
    assert kept == {0: False, 1: True}, "the oldest bytes go first"


@pytest.mark.parametrize("epoch", [7, None, "x" * 65, "a\nb"])
def test_an_epoch_is_a_short_text(visits: Visits, epoch: object) -> None:
    visits.collector.announced = announce(plan(), epoch=epoch)
    with pytest.raises(ReportError, match="epoch"):
        participant(visits.device, visits.collector).fetch_announcement()


class Deleting:
    """Answers deletions and leaves the rest to a collector."""

    def __init__(self, collector: Collector, *answers: Answer | None) -> None:
        self.collector, self.answers = collector, list(answers)
        self.deleted: list[bytes] = []

    def __call__(self, method: str, address: str, body: bytes | None) -> Answer:
        if not address.endswith("/delete"):
            return self.collector(method, address, body)
        assert body is not None
        self.deleted.append(body)
        answer = self.answers.pop(0)
        if answer is None:
            raise Unreachable("lost")
        return answer


def test_a_report_is_deleted_by_its_receipt_and_never_made_again(visits: Visits) -> None:
    result, spent = visits.visit()
    assert result == "acknowledged"
    transport = Deleting(visits.collector, None, Answer(200, b'{"deleted": true}'))
    taking = participant(visits.device, transport)
    assert taking.delete()
    taken = taking.take_part(RECORD)
    assert (taken.result, taken.spent) == ("deleted", spent)
    assert transport.deleted == [bytes.fromhex(taken.receipt)] * 2
    assert visits.device.outbox()[0].body == b""
    assert visits.visit("aa") == ("deleted", spent)
    assert visits.sent == 1


def test_what_is_not_said_to_be_deleted_is_kept(visits: Visits) -> None:
    visits.visit()
    closed = problem(409, "round-closed")
    transport = Deleting(visits.collector, closed, Answer(200, b"<html>"), Answer(502, b"no"))
    taking = participant(visits.device, transport, tries=1)
    assert not taking.delete()
    for _ in range(2):
        with pytest.raises(Unreachable, match="does not say"):
            taking.delete()
    assert visits.visit()[0] == "acknowledged"
    visits.collector.announced = announce(plan(1))
    assert not taking.delete(), "this device has not answered the open round"
