"""Running tallies of two collectors on one PostgreSQL: either says what both have stored, to the integer, whatever fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from collector_harness import (
    Caller,
    Cluster,
    ServerThread,
    envelope_of,
    plan_of,
    stored_tally,
    token_of,
)

from dither.collector import Epochs, PostgresStore, StoreUnavailable, limits
from dither.reports import Plan


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine, whoever can say what it counted is waited for."""
    monkeypatch.setattr(limits, "PUBLISH_WAIT_SECONDS", 60.0)


class Campaign:
    """One campaign, and uploads of its people to either of two collectors."""

    def __init__(self, url: str, **described: Any) -> None:
        self.servers = [ServerThread(PostgresStore(url)) for _ in range(2)]
        self.callers = [Caller(server.url, timeout=60.0) for server in self.servers]
        self.id = self.callers[0].create(**described)
        self.plan: Plan = plan_of(self.callers[1].announcement(self.id))
        self.people = 0
        self._turn = threading.Lock()

    def upload(self, to: int, count: int) -> int:
        with self._turn:
            tokens = [token_of(i) for i in range(self.people, self.people + count)]
            self.people += count
        caller = Caller(self.servers[to].url, timeout=60.0)
        return caller.upload(self.id, envelope_of(self.id, self.plan, tokens)).status

    def assert_exact(self) -> None:
        stored = stored_tally(self.servers[0].collector, self.id)
        assert stored.participants == self.people
        for server in self.servers:
            assert server.collector.running_tally(self.id).to_bytes() == stored.to_bytes()


@pytest.fixture
def make(cluster: Cluster) -> Iterator[Callable[..., Campaign]]:
    made: list[Campaign] = []
    url = cluster.fresh()

    def making(**described: Any) -> Campaign:
        made.append(Campaign(url, **described))
        return made[-1]

    yield making
    for campaign in made:
        for server in campaign.servers:
            server.stop()


def watch_counts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Takes note of each time that all stored reports are counted."""
    counted: list[str] = []
    original = Epochs.all_reports

    def all_reports(self: Epochs, campaign: str, *more: Any) -> Any:
        counted.append(campaign)
        return original(self, campaign, *more)

    monkeypatch.setattr(Epochs, "all_reports", all_reports)
    return counted


SPLIT = {"method": "synthetic", "parameters": {"rounds": 1, "split": True}}


@pytest.mark.parametrize("described", [{}, SPLIT], ids=["counts", "patterns"])
def test_either_says_what_both_have_stored_and_all_is_counted_once(
    make: Callable[..., Campaign], monkeypatch: pytest.MonkeyPatch, described: dict[str, Any]
) -> None:
    counted = watch_counts(monkeypatch)
    campaign = make(**described)
    campaign.assert_exact()
    for to, count in ((0, 9), (1, 40), (1, 2), (0, 5)):
        assert campaign.upload(to, count) == 201
    campaign.assert_exact()
    assert campaign.upload(1, 3) == 201
    campaign.assert_exact()
    assert counted == [campaign.id], "the first time; from then on each has counted its own"
    assert (
        campaign.callers[1].admin("POST", f"/{campaign.id}/close-round", {"round": 0}).status == 200
    )
    for server in campaign.servers:
        assert "dither_tally_mismatches_total 0" in server.collector.metrics.text()
    assert campaign.servers[0].collector.store.epochs.parts(1) == []  # type: ignore[attr-defined]


def test_asked_while_both_store_it_is_never_off(make: Callable[..., Campaign]) -> None:
    campaign = make()
    done = threading.Event()
    wrong: list[int] = []

    def send(to: int) -> None:
        while not done.is_set():
            if campaign.upload(to, 3) != 201:
                wrong.append(to)

    senders = [threading.Thread(target=send, args=(to,)) for to in range(2)]
    for sender in senders:
        sender.start()
    seen = [
        campaign.servers[i % 2].collector.running_tally(campaign.id).participants for i in range(10)
    ]
    done.set()
    for sender in senders:
        sender.join()
    assert wrong == []
    assert seen == sorted(seen)
    assert all(n % 3 == 0 for n in seen), "no group is seen in part"
    campaign.assert_exact()


def test_a_collector_that_was_killed_cannot_say_what_it_counted_and_all_is_counted_anew(
    make: Callable[..., Campaign], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = make()
    campaign.assert_exact()
    counted = watch_counts(monkeypatch)
    assert (campaign.upload(0, 5), campaign.upload(1, 6)) == (201, 201)
    dead: Any = campaign.servers[1].collector
    dead.tallies._own.clear()  # as if the process were gone
    with monkeypatch.context() as patched:
        patched.setattr(limits, "PUBLISH_WAIT_SECONDS", 0.3)
        assert campaign.servers[0].collector.running_tally(campaign.id).participants == 11
    assert len(counted) == 1
    assert campaign.upload(1, 4) == 201
    campaign.assert_exact()
    assert len(counted) == 1


@pytest.mark.parametrize("stored", [False, True])
def test_a_commit_of_which_nobody_knows_makes_it_count_anew(
    make: Callable[..., Campaign], monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    campaign = make()
    campaign.assert_exact()
    assert campaign.upload(1, 5) == 201
    store: Any = campaign.servers[1].collector.store
    original = store.add_reports

    def lose(keep: bool, batches: Any) -> Any:
        if keep:
            original(batches)
        raise StoreUnavailable("the answer was lost")

    with monkeypatch.context() as patched:
        patched.setattr(store, "add_reports", partial(lose, stored))
        assert campaign.upload(1, 3) == 503
    if not stored:
        campaign.people -= 3
    counted = watch_counts(monkeypatch)
    campaign.assert_exact()
    assert len(counted) == 1
