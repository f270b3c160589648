"""Whoever reports while a round is being closed keeps the report: should the round open again, it is taken after all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from collector_harness import RECORD, Caller, ServerThread, envelope_of, plan_of, token_of, until

from dither.cli.submit import SimulatedFleet, fetch_announcement, submit_round
from dither.client import Device, Participant
from dither.collector import (
    Campaigns,
    Move,
    PostgresStore,
    SqliteStore,
    State,
    Store,
    StoreUnavailable,
)
from dither.reports import Envelope, decode, encode


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "c.db")
    return PostgresStore(request.getfixturevalue("cluster").fresh())


class Held:
    """A collector whose closings stop in the middle until they are let go on."""

    def __init__(self, store: Any) -> None:
        self.running, self._go_on = ServerThread(store), threading.Event()
        original = store.tidy

        def tidy(*given: Any) -> None:
            assert self._go_on.wait(60)
            original(*given)

        store.tidy = tidy
        self.caller = Caller(self.running.url)
        self.campaign = self.caller.create()
        self.answers: list[Any] = []
        self._operator = threading.Thread(target=self._close)

    def _close(self) -> None:
        own = Caller(self.running.url, timeout=60.0)
        self.answers.append(own.admin("POST", f"/{self.campaign}/close-round", {"round": 0}))
        own.connection.close()

    def begin_closing(self) -> None:
        self._operator.start()
        until(lambda: self.caller.announcement(self.campaign)["state"] == "closing")

    def end_closing(self) -> tuple[int, str]:
        self._go_on.set()
        self._operator.join(60)
        said = json.loads(self.answers[0].body)
        return self.answers[0].status, str(said.get("type", said.get("state"))).removeprefix(
            "urn:dither:problem:"
        )


@pytest.fixture
def held(store: Store) -> Iterator[Held]:
    made = Held(store)
    yield made
    made._go_on.set()
    made.running.stop()


def visitors(held: Held, count: int) -> list[tuple[Device, Callable[[], Participant]]]:
    """Devices, each with what it is visited by: an application that was started anew."""
    out = []
    for _ in range(count):
        device = Device(":memory:")
        make = lambda device=device: Participant(  # noqa: E731
            device, held.running.url, held.campaign, cap=5.0, tries=1, sleep=lambda pause: None
        )
        out.append((device, make))
    return out


@pytest.mark.slow
def test_a_closing_that_the_method_refuses(held: Held) -> None:
    people = visitors(held, 4)
    arriving = []
    for _, make in people[:3]:
        one = make()
        announcement = one.fetch_announcement()  # before the closing
        one.fetch_announcement = lambda announcement=announcement: announcement  # type: ignore[method-assign]
        arriving.append(one)
    held.begin_closing()
    taken = [one.take_part(RECORD) for one in arriving]
    assert [t.result for t in taken] == ["waiting"] * 3
    assert all(t.spent > 1.9 for t in taken), "it is spent, so it must not be lost"
    sent = [device.outbox(held.campaign)[0].body for device, _ in people[:3]]
    assert people[3][1]().take_part(RECORD).result == "not-open", (
        "whoever only looks now is not asked yet"
    )
    assert [make().send().result for _, make in people[:3]] == ["waiting"] * 3, (
        "nor is it final at the next try"
    )  # type: ignore[union-attr]
    answer = held.caller.upload(held.campaign, sent[0])
    assert (answer.status, answer.retry_after) == (503, 5.0)
    assert held.end_closing() == (409, "too-few-answers")
    assert held.caller.status(held.campaign)["rounds"][0]["reports"] == 0
    assert [make().take_part(RECORD).result for _, make in people] == ["acknowledged"] * 4
    assert held.caller.status(held.campaign)["rounds"][0]["reports"] == 4
    assert [held.caller.upload(held.campaign, body).status for body in sent] == [200] * 3, (
        "the same bytes"
    )
    for device, _ in people:
        device.close()


def test_once_the_round_is_closed_it_is_final(held: Held) -> None:
    plan = plan_of(held.caller.announcement(held.campaign))
    bodies = [
        envelope_of(held.campaign, plan, [token_of(i) for i in range(first, first + 60)])
        for first in (0, 60)
    ]
    assert held.caller.upload(held.campaign, bodies[0]).status == 201
    held.begin_closing()
    assert held.caller.upload(held.campaign, bodies[1]).status == 503
    assert held.end_closing() == (200, "collected")
    late = held.caller.upload(held.campaign, bodies[1])
    assert (late.status, json.loads(late.body)["type"]) == (409, "urn:dither:problem:round-closed")


def test_uploads_that_were_judged_before_the_closing_and_reach_the_store_after_it(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has the last word; one that waits decides for the whole batch, so that a sender of batches comes back."""
    live = held.running.collector.campaigns.get(held.campaign)
    assert live.open_round is not None
    good = decode(envelope_of(held.campaign, live.open_round.plan, [token_of(0), token_of(1)]))
    wrong = replace(good.reports[0], question=60_000)
    body = encode(Envelope(good.campaign, 0, (wrong, good.reports[1])))
    store: Any = held.running.collector.store
    elsewhere = Campaigns(store)
    # The collector's own memory does not know yet, however soon the database tells of it.
    monkeypatch.setattr(held.running.collector.campaigns, "refresh_all", lambda: None)
    assert store.move(Move(held.campaign, State.OPEN, 0, State.CLOSING, 0, round_state="closing"))
    answer = held.caller.upload(held.campaign, body)
    said = json.loads(answer.body)
    assert (answer.status, said["type"], answer.retry_after) == (
        503,
        "urn:dither:problem:round-closing",
        5.0,
    )
    assert said["results"] == ["wrong-question", "round-closing"]
    elsewhere.open(held.campaign)
    answer = held.caller.upload(held.campaign, body)
    assert (answer.status, json.loads(answer.body)["results"]) == (
        422,
        ["wrong-question", "stored"],
    )


def test_a_sender_of_batches_waits_for_the_round_to_open_again(held: Held) -> None:
    announcement = fetch_announcement(held.caller.connection, held.running.url, held.campaign)
    pauses: list[float] = []

    def wait(pause: float) -> None:
        pauses.append(pause)
        assert held.end_closing() == (409, "too-few-answers")

    held.begin_closing()
    sent = submit_round(
        announcement,
        [[1, 1, 1]] * 9,
        SimulatedFleet(3),
        lambda body: held.caller.upload(held.campaign, body),
        sleep=wait,
    )
    assert sent.results == {"stored": 9}
    assert len(pauses) == 1
    assert 5.0 <= pauses[0] <= 10.0


def test_a_closing_that_fails_with_the_database_and_is_taken_back_by_the_operator(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = ServerThread(store)
    caller = Caller(running.url)
    campaign = caller.create()
    original = store.move

    def only_into_closing(move: Any) -> bool:
        if move.from_state is State.CLOSING:
            raise StoreUnavailable("gone")
        return bool(original(move))

    monkeypatch.setattr(store, "move", only_into_closing)
    with closing(Device(":memory:")) as device:
        visit = lambda: Participant(device, running.url, campaign, cap=5.0, tries=1)  # noqa: E731
        first = visit()
        announcement = first.fetch_announcement()
        first.fetch_announcement = lambda: announcement  # type: ignore[method-assign]
        assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 503
        assert caller.status(campaign)["state"] == "closing"
        assert first.take_part(RECORD).result == "waiting"
        monkeypatch.setattr(store, "move", original)
        assert caller.admin("POST", f"/{campaign}/open", {}).status == 200
        assert visit().take_part(RECORD).result == "acknowledged"
    assert caller.status(campaign)["rounds"][0]["reports"] == 1
    running.stop()
