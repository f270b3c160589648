"""Rounds close by themselves: at their time and at their number of reports, once, whoever notices, and after a restart too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

from dither.collector import (
    Batch,
    Campaigns,
    CampaignSpec,
    Closer,
    Collector,
    NewCampaign,
    Outcome,
    SqliteStore,
    State,
    Store,
    limits,
)
from dither.errors import ParameterError
from dither.methods import start
from dither.reports import Envelope, Plan, closing_seconds

Opening = Callable[[], Store]
DAY = 86_400.0
END = closing_seconds("2030-01-31")  # the end of that day
START = END - 30 * DAY


class Clock:
    """Seconds since 1970, as a test sets them."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Collecting:
    """Campaigns with a closer, as a collector has them, whose time the test tells; a restart forgets all but the store."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self.store, self.clock = store, clock or Clock()
        self.campaigns = Campaigns(store, clock=self.clock)
        self.closer = Closer(self.campaigns, store, self.clock, self.clock)

    def create(self, **more: Any) -> str:
        asked = {"method": "synthetic", "assignment": "arrival", "participants": 30}
        return self.campaigns.create(describe(**asked | more)).stored.id

    def add(self, campaign: str, first: int, count: int) -> list[str]:
        """The next people come."""
        now = self.campaigns.get(campaign).open_round
        assert now is not None
        reports = tuple(
            report_of(now.plan, now.campaign_bytes, token_of(i))
            for i in range(first, first + count)
        )
        batch = now.judge(Envelope(now.campaign_bytes, now.plan.round, reports)).batch
        (outcomes,) = self.store.add_reports([batch])
        self.closer.committed(batch, outcomes)
        return [o.value for o in outcomes]

    def at(self, campaign: str) -> tuple[State, int, int]:
        stored = self.campaigns.refresh(campaign).stored
        return stored.state, stored.round, stored.moves


def test_at_the_time_and_not_a_second_before(open_store: Opening) -> None:
    held = Collecting(open_store())
    campaign = held.create(parameters={"rounds": 1}, closes="2030-01-31")
    held.add(campaign, 0, 5)
    for before in (START, END - 1):
        held.clock.now = before
        assert held.closer.close_due() == []
        assert held.at(campaign)[0] is State.OPEN
    held.clock.now = END
    assert held.closer.close_due() == [(campaign, 0)]
    closed = held.at(campaign)
    assert closed[0] is State.COLLECTED
    held.clock.now = END + 1
    assert held.closer.close_due() == []
    assert held.at(campaign) == closed, "once"


def test_at_the_number_of_reports_and_not_at_one_less(open_store: Opening) -> None:
    held = Collecting(open_store())
    campaign = held.create(parameters={"rounds": 1}, closes_at_reports=7)
    assert held.closer.close_due() == []
    held.add(campaign, 0, 6)
    assert (held.closer.close_due(), held.at(campaign)[0]) == ([], State.OPEN)
    held.add(campaign, 0, 6)  # the same bytes once more count for nothing
    assert (held.closer.close_due(), held.at(campaign)[0]) == ([], State.OPEN)
    assert not held.closer.due.is_set()
    held.add(campaign, 6, 1)
    assert held.closer.due.is_set()
    assert held.closer.close_due() == [(campaign, 0)]
    assert held.at(campaign)[0] is State.COLLECTED


def test_no_more_than_was_under_way_when_it_had_its_number(open_store: Opening) -> None:
    """Reports that wait to be written are stored, for their senders have drawn their noise; later ones find the round closing."""
    store = open_store()
    collector = Collector(store)
    collector.closer.close_due = lambda: []  # type: ignore[method-assign]  # whatever the thread that looks now and then would do
    described = describe(
        method="synthetic", assignment="arrival", participants=30, closes_at_reports=30
    )
    campaign = collector.campaigns.create(described).stored.id
    now = collector.campaigns.get(campaign).open_round
    assert now is not None
    assert now.wanted == 10

    def batch(first: int, count: int) -> Batch:
        reports = tuple(
            report_of(now.plan, now.campaign_bytes, token_of(i))
            for i in range(first, first + count)
        )
        return now.judge(Envelope(now.campaign_bytes, now.plan.round, reports)).batch

    async def scene() -> list[set[str]]:
        loop = asyncio.get_running_loop()
        waiters: list[asyncio.Future[list[Outcome]]] = [loop.create_future() for _ in range(5)]
        gate, written = threading.Event(), threading.Event()
        collector.writer.submit(batch(0, 4), waiters[0])
        collector.writer.submit(batch(0, 4), waiters[1])  # once more: counts for nothing
        await waiters[1]
        real = store.add_reports

        def slowly(batches: Any) -> Any:
            store.add_reports = real  # type: ignore[method-assign]
            written.set()
            gate.wait()
            return real(batches)

        store.add_reports = slowly  # type: ignore[method-assign]
        collector.writer.submit(batch(100, 6), waiters[2])  # these bring it to its number
        await asyncio.to_thread(written.wait)
        collector.writer.submit(batch(200, 50), waiters[3])  # these wait meanwhile
        gate.set()
        await asyncio.gather(*waiters[:4])
        collector.writer.submit(batch(300, 50), waiters[4])  # and these come later
        return [{o.value for o in found} for found in await asyncio.gather(*waiters)]

    assert asyncio.run(scene()) == [
        {"stored"},
        {"duplicate"},
        {"stored"},
        {"stored"},
        {"round-closing"},
    ]
    assert store.count(campaign, 0) == 60
    assert collector.campaigns.get(campaign).stored.state is State.CLOSING
    del collector.closer.close_due  # type: ignore[attr-defined]
    until(lambda: collector.campaigns.get(campaign).stored.round == 1)
    assert collector.campaigns.get(campaign).stored.moves == 2
    collector.stop()


def test_never_fewer_than_its_number_though_some_were_counted_twice(tmp_path: Path) -> None:
    held = Collecting(SqliteStore(tmp_path / "c.db"))
    campaign = held.create(parameters={"rounds": 1}, closes_at_reports=7)
    held.add(campaign, 0, 3)
    held.closer._counts[
        campaign, 0
    ].counted += 3  # a count and the reports stored meanwhile may hold the same ones
    held.add(campaign, 3, 2)
    assert held.at(campaign)[0] is State.OPEN, "five are there"
    held.add(campaign, 5, 1)
    assert held.at(campaign)[0] is State.OPEN
    held.add(campaign, 6, 1)
    assert held.at(campaign)[0] is State.CLOSING
    held.store.close()


def test_who_closes_while_a_round_stops_by_itself_goes_on_with_it(open_store: Opening) -> None:
    held = Collecting(open_store())
    campaign = held.create()
    held.add(campaign, 0, 5)
    real = held.store.move
    others = Collecting(held.store)

    def late(move: Any) -> bool:
        held.store.move = real  # type: ignore[method-assign]
        others.campaigns.stop_intake(
            campaign, 0, "it is full"
        )  # as another collector of the database does
        return real(move)

    held.store.move = late  # type: ignore[method-assign]
    held.campaigns.close_round(campaign, 0)
    assert held.at(campaign) == (State.OPEN, 1, 2)


def test_after_a_restart_too_and_what_was_cut_off_is_gone_on_with(open_store: Opening) -> None:
    held = Collecting(open_store())
    campaign = held.create(closes="2030-01-31")
    held.add(campaign, 0, 10)
    held.campaigns.close_round(campaign, 0, hold=True)
    late = Collecting(open_store(), Clock(END))
    assert late.closer.close_due() == [], "somebody holds it for a tally of their own"
    late.campaigns.open(campaign)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    late.campaigns._take_tally = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        late.closer.close_due()
    assert late.at(campaign)[0] is State.CLOSING
    again = Collecting(open_store(), Clock(END))
    assert again.closer.close_due() == [(campaign, 0)]
    assert again.at(campaign)[:2] == (State.OPEN, 1)


def test_two_collectors_that_notice_together_close_once(cluster: Any) -> None:
    from dither.collector import PostgresStore

    url = cluster.fresh()
    both = [Collecting(PostgresStore(url)) for _ in range(2)]
    campaign = both[0].create(closes="2030-01-31")
    both[0].add(campaign, 0, 10)
    both[1].campaigns.refresh_all()
    ready = threading.Barrier(2)
    closed: list[list[tuple[str, int]]] = []

    def look(one: Collecting) -> None:
        one.clock.now = one.campaigns.get(campaign).rounds[0].closes or 0.0
        ready.wait()
        closed.append(one.closer.close_due())

    threads = [threading.Thread(target=look, args=(one,)) for one in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key for keys in closed for key in keys} == {(campaign, 0)}
    assert both[0].at(campaign) == (State.OPEN, 1, 2), (
        "open to closing, and on to the next round: no more moves"
    )
    assert both[0].store.count(campaign, 0) == 10
    both[0].campaigns.refresh_all()
    both[0].add(campaign, 100, 9)
    both[1].campaigns.refresh_all()
    assert both[1].closer.close_due() == []
    both[0].add(campaign, 109, 1)
    both[1].clock.now += 60
    assert both[1].closer.close_due() == [(campaign, 1)], "what others stored is counted too"
    for one in both:
        one.store.close()


def test_a_round_that_nobody_answered_stays_open_until_somebody_does(tmp_path: Path) -> None:
    held = Collecting(SqliteStore(tmp_path / "c.db"))
    campaign = held.create(method="independent", participants=1000, closes="2030-01-31")
    held.clock.now = END + 5
    assert held.closer.close_due() == []
    assert held.at(campaign) == (State.OPEN, 0, 0), "not even tried"
    held.add(campaign, 0, 1)
    assert held.closer.close_due() == []
    moves = held.at(campaign)[2]
    assert moves == 2, "tried and opened again: one answer tells nothing about the other attributes"
    held.clock.now += limits.CLOSING_RETRY_SECONDS
    assert held.closer.close_due() == []
    assert held.at(campaign)[2] == moves, "nobody came meanwhile"
    held.add(campaign, 1, 40)
    assert held.closer.close_due() == [(campaign, 0)]
    held.store.close()


def test_a_closing_day_that_is_over_is_refused(tmp_path: Path) -> None:
    held = Collecting(SqliteStore(tmp_path / "c.db"))
    for now, refused in ((END - 1, False), (END, True), (END + 1, True)):
        held.clock.now = now
        if refused:
            with pytest.raises(ParameterError, match="2030-01-31 is over"):
                held.create(closes="2030-01-31")
        else:
            held.create(closes="2030-01-31")
    held.store.close()


def test_a_draft_has_its_time_from_when_it_is_opened(tmp_path: Path) -> None:
    held = Collecting(SqliteStore(tmp_path / "c.db"))
    campaign = held.create(closes="2030-01-31", draft=True)
    assert held.campaigns.get(campaign).rounds[0].closes is None
    held.clock.now = START + 15 * DAY
    live = held.campaigns.open(campaign)
    assert live.rounds[0].closes == START + 20 * DAY, "a third of what is left"
    held.store.close()


def spec_of(**more: Any) -> CampaignSpec:
    return NewCampaign.from_json(
        describe(method="synthetic", **{"assignment": "arrival", "participants": 100} | more),
    )


def plans_of(populations: tuple[float, ...]) -> list[tuple[Plan, float]]:
    from dataclasses import replace

    one = start("independent", spec_of().schema, 1.0, 10, None, 1).plan()
    assert one is not None
    begun, out = 0.0, []
    for number, population in enumerate(populations):
        out.append((replace(one, round=number, population=population), begun))
        begun += population
    return out


@pytest.mark.parametrize(
    ("more", "populations", "wanted"),
    [
        ({}, (0.05, 0.95), [5, None]),
        ({}, (1.0,), [None]),
        ({"closes_at_reports": 50}, (0.05, 0.95), [2, 48]),
        ({"closes_at_reports": 10}, (0.1,) * 10, [1] * 10),
        ({"closes_at_reports": 50}, (1.0,), [50]),
        ({"assignment": "token"}, (0.05, 0.95), [None, None]),
        ({"assignment": "token", "closes_at_reports": 50}, (0.5, 0.5), [25, 25]),
        ({"participants": 3}, (0.05, 0.95), [1, None]),
    ],
)
def test_rounds_share_the_reports(
    more: dict[str, Any], populations: tuple[float, ...], wanted: list[int | None]
) -> None:
    assert [
        spec_of(**more).reports_wanted(plan, begun) for plan, begun in plans_of(populations)
    ] == wanted


def test_rounds_share_the_time() -> None:
    first, second, last = plans_of((0.2, 0.3, 0.5))
    spec = spec_of(closes="2030-01-31")
    assert spec.round_closes(*first, START) == START + 6 * DAY
    assert spec.round_closes(*second, START + 6 * DAY) == START + 15 * DAY
    assert spec.round_closes(*second, START) == pytest.approx(START + 0.375 * 30 * DAY, abs=3600), (
        "it began early"
    )
    assert spec.round_closes(*second, START + 12.3) % 3600 == 0, "no finer than an hour"
    assert spec.round_closes(*second, END - DAY + 12.3) % 60 == 0, (
        "no finer than a minute on the last days"
    )
    for now in (START, END - 1, END, END + 1):
        assert spec.round_closes(*last, now) == END
    assert spec_of().round_closes(*first, START) is None


@pytest.mark.slow
def test_a_running_collector_closes_its_rounds(server: ServerThread, caller: Caller) -> None:
    campaign = caller.create(
        method="synthetic", assignment="arrival", participants=9, closes_at_reports=9
    )
    for number in range(3):
        until(lambda: caller.announcement(campaign)["plan"] is not None)
        announced = caller.announcement(campaign)
        assert (announced["plan"]["round"], announced["wanted"]) == (number, 3)
        tokens = [token_of(i) for i in range(10 * number, 10 * number + 3)]
        assert (
            caller.upload(campaign, envelope_of(campaign, plan_of(announced), tokens)).status == 201
        )
        until(
            lambda at=number: (
                caller.status(campaign)["round"] > at
                or caller.status(campaign)["state"] == "collected"
            )
        )
    assert caller.status(campaign)["state"] == "collected"
    assert [entry["reports"] for entry in caller.status(campaign)["rounds"]] == [3, 3, 3]
