"""Dates are decided by the database's time: when rounds close, and when reports are deleted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from collector_harness import (
    Caller,
    ServerThread,
    describe,
    envelope_of,
    plan_of,
    report_of,
    token_of,
    until,
)

from dither.collector import Campaigns, ClockSkew, Collector, State, Store, limits
from dither.reports import Envelope

Opening = Callable[[], Store]
DAY = 86_400.0


class Clock:
    """The machine's clock with an error that a test sets."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead

    def __call__(self) -> float:
        return time.time() + self.ahead


def closing_in(days: float) -> str:
    return datetime.fromtimestamp(time.time() + days * DAY, UTC).date().isoformat()


def add(collector: Collector, campaign: str, first: int, count: int) -> None:
    current = collector.campaigns.get(campaign).open_round
    assert current is not None
    reports = tuple(
        report_of(current.plan, current.campaign_bytes, token_of(i))
        for i in range(first, first + count)
    )
    batch = current.judge(Envelope(current.campaign_bytes, 0, reports)).batch
    (outcomes,) = collector.store.add_reports([batch])
    collector.writer.call(lambda: collector.closer.committed(batch, outcomes))


def create(collector: Collector, **more: object) -> str:
    described = describe(
        method="synthetic",
        assignment="arrival",
        participants=30,
        parameters={"rounds": 1},
        **more,
    )
    campaign = collector.campaigns.create(described).stored.id
    add(collector, campaign, 0, 5)
    return campaign


def state_of(collector: Collector, campaign: str) -> State:
    return collector.campaigns.refresh(campaign).stored.state


@pytest.mark.parametrize("ahead", [400 * DAY, -400 * DAY, limits.MAX_SKEW_SECONDS + 5])
def test_a_collector_with_a_wrong_clock_does_not_start(open_store: Opening, ahead: float) -> None:
    first = Collector(open_store())
    campaign = create(first, closes=closing_in(30))
    first.stop()
    store = open_store()
    with pytest.raises(ClockSkew, match="ahead of" if ahead > 0 else "behind"):
        Collector(store, clock=Clock(ahead))
    stored = store.campaign(campaign)
    assert stored is not None
    assert (stored.state, stored.moves) == (State.OPEN, 0)


def test_a_clock_that_jumps_closes_nothing_until_it_is_right(
    open_store: Opening, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "CLOCK_SECONDS", 0.1)
    clock = Clock(limits.MAX_SKEW_SECONDS - 5)
    collector = Collector(open_store(), clock=clock, undo_seconds=0.0)
    dated = create(collector, closes=closing_in(30))
    full = create(collector, closes_at_reports=6)
    clock.ahead = 400 * DAY
    with caplog.at_level(logging.WARNING):
        until(lambda: not collector.clock.trusted)
        add(collector, full, 5, 1)
        time.sleep(0.6)
    assert [state_of(collector, each) for each in (dated, full)] == [State.OPEN, State.OPEN]
    assert "34,560,000 s ahead of the database's time" in caplog.text
    clock.ahead = 0.0
    until(lambda: state_of(collector, full) is State.COLLECTED)
    assert state_of(collector, dated) is State.OPEN
    collector.stop()


def at_a_later_time(store: Store, days: float) -> Clock:
    """Move the database's time and the machine's clock; return the latter."""
    real = store.now
    store.now = lambda: real() + days * DAY  # type: ignore[method-assign]
    return Clock(days * DAY)


def test_a_closing_by_date_is_logged_and_can_be_undone(
    open_store: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    first = Collector(open_store())
    day = closing_in(30)
    campaign = create(first, closes=day)
    first.stop()
    store = open_store()
    clock = at_a_later_time(store, 400)
    with caplog.at_level(logging.WARNING):
        collector = Collector(store, clock=clock, undo_seconds=60.0)
        until(lambda: state_of(collector, campaign) is State.CLOSING)
    assert f"round 0 of campaign {campaign} closes automatically: its date, " in caplog.text
    entry = store.audit.entries(campaign)[0]
    assert (entry.who, entry.what) == ("(collector)", "closing")
    assert "open, round 0, to closing, round 0: its date, " in entry.detail
    time.sleep(0.6)
    assert state_of(collector, campaign) is State.CLOSING, "its tally is not taken yet"

    collector.campaigns.open(campaign)
    time.sleep(0.6)
    live = collector.campaigns.refresh(campaign)
    assert live.stored.state is State.OPEN, "it does not close again by itself"
    assert live.rounds[0].closes is None
    add(collector, campaign, 5, 3)
    collector.campaigns.close_round(campaign, 0)
    assert state_of(collector, campaign) is State.COLLECTED
    collector.stop()


def test_a_closing_by_date_is_tallied_after_the_time_to_undo_it(open_store: Opening) -> None:
    first = Collector(open_store())
    campaign = create(first, closes=closing_in(30))
    first.stop()
    store = open_store()
    collector = Collector(store, clock=at_a_later_time(store, 400), undo_seconds=0.5)
    until(lambda: state_of(collector, campaign) is State.CLOSING)
    until(lambda: state_of(collector, campaign) is State.COLLECTED)
    assert store.count(campaign, 0) == 5
    collector.stop()


def test_a_closing_by_number_has_its_reason(open_store: Opening) -> None:
    collector = Collector(open_store())
    campaign = create(collector, closes_at_reports=6)
    add(collector, campaign, 5, 1)
    until(lambda: state_of(collector, campaign) is State.COLLECTED)
    details = [entry.detail for entry in collector.store.audit.entries(campaign)]
    assert "open, round 0, to closing, round 0: it has its number of reports, 6" in details
    collector.stop()


def test_reports_are_deleted_days_after_the_release(open_store: Opening) -> None:
    store = open_store()
    days = 0.0
    real = store.now
    store.now = lambda: real() + days * DAY  # type: ignore[method-assign]
    campaigns = Campaigns(store)
    kept, gone = (
        campaigns.create(describe(method="independent", delete_reports_after=after)).stored.id
        for after in (None, 7)
    )
    for campaign in (kept, gone):
        current = campaigns.get(campaign).open_round
        assert current is not None
        reports = tuple(
            report_of(current.plan, current.campaign_bytes, token_of(i)) for i in range(200)
        )
        batch = current.judge(Envelope(current.campaign_bytes, 0, reports)).batch
        store.add_reports([batch])
        assert campaigns.delete_expired_reports() == []
        campaigns.close_round(campaign, 0)
        campaigns.finalise(campaign, rows=10)
    tally = campaigns.get(gone).rounds[0].tally
    assert campaigns.delete_expired_reports() == []
    days = 6.0
    assert campaigns.delete_expired_reports() == []
    days = 7.0
    assert Campaigns(store).delete_expired_reports() == [gone]
    assert campaigns.delete_expired_reports() == [gone], "another collector did it"
    assert campaigns.delete_expired_reports() == []
    assert [store.count(each, 0) for each in (kept, gone)] == [200, 0]
    live = campaigns.refresh(gone)
    assert (live.rounds[0].tally, live.counted(0)) == (tally, 200)
    assert store.release(gone) is not None
    assert store.untidied(gone) == set()
    entries = [entry for entry in store.audit.entries(gone) if entry.what == "delete-reports"]
    assert [entry.who for entry in entries] == ["(collector)"]
    campaigns.delete(gone)
    assert campaigns.ids() == [kept]


def test_a_collector_deletes_reports_and_its_status_keeps_their_number(
    open_store: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DELETION_SECONDS", 0.1)
    server = ServerThread(open_store())
    caller = Caller(server.url)
    campaign = caller.create(method="independent", delete_reports_after=0)
    body = envelope_of(
        campaign, plan_of(caller.announcement(campaign)), [token_of(i) for i in range(200)]
    )
    assert caller.upload(campaign, body).status == 201
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    assert server.collector.store.count(campaign, 0) == 200
    assert caller.admin("POST", f"/{campaign}/finalise", {"rows": 10}).status == 200
    until(lambda: server.collector.store.count(campaign, 0) == 0)
    assert caller.status(campaign)["rounds"][0]["reports"] == 200
    caller.connection.close()
    server.stop()
