"""A running tally is counted while reports go on being stored: nobody waits for it, and every report counts once.

This is about a store of one process; `test_shared_tallies.py` is about those that several share.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from collector_harness import (
    Caller,
    ServerThread,
    envelope_of,
    plan_of,
    stored_tally,
    token_of,
    until,
)

from dither.client import Answer
from dither.collector import SqliteStore, StoreUnavailable, limits
from dither.reports import Plan

PAGE = 8


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TALLY_PAGE", PAGE)


class Campaign:
    """One campaign, and uploads of its people one after the other."""

    def __init__(self, running: ServerThread) -> None:
        self.caller = Caller(running.url, timeout=60.0)
        self.id = self.caller.create()
        self.plan: Plan = plan_of(self.caller.announcement(self.id))
        self.people = 0

    def upload(self, count: int) -> int:
        tokens = [token_of(i) for i in range(self.people, self.people + count)]
        self.people += count
        return self.caller.upload(self.id, envelope_of(self.id, self.plan, tokens)).status


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ServerThread]:
    served = ServerThread(SqliteStore(tmp_path / "c.db"))
    yield served
    served.stop()


def watch_pages(
    running: ServerThread,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> list[int]:
    """Have something done before and after each page of reports is read from the store; gives the pages' sizes."""
    original, sizes = running.collector.store.reports, []

    def reports(*given: Any) -> Iterator[Any]:
        before()
        for page in original(*given):
            sizes.append(len(page))
            after()
            yield page
            before()
        after()

    monkeypatch.setattr(running.collector.store, "reports", reports)
    return sizes


def assert_exact(running: ServerThread, campaign: Campaign) -> None:
    stored = stored_tally(running.collector, campaign.id)
    assert stored.participants == campaign.people
    assert running.collector.running_tally(campaign.id).to_bytes() == stored.to_bytes()


def test_uploads_are_acknowledged_while_a_count_is_held_up(
    running: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, other = Campaign(running), Campaign(running)
    assert counted.upload(30) == 201
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert go_on.wait(60)

    answers: list[Answer] = []
    with monkeypatch.context() as patched:
        watch_pages(running, patched, before=hold)
        asking = threading.Thread(
            target=lambda: answers.append(
                Caller(running.url, 60.0).admin("GET", f"/{counted.id}/tally")
            )
        )
        asking.start()
        assert held.wait(60)
        for _ in range(3):
            assert (other.upload(4), counted.upload(4)) == (201, 201)
        assert answers == [], "the count is still held up"
        go_on.set()
        asking.join(60)
    assert json.loads(answers[0].body)["participants"] == 42
    assert_exact(running, counted)
    assert_exact(running, other)
    assert counted.caller.admin("POST", f"/{counted.id}/close-round", {"round": 0}).status == 200
    assert "dither_tally_mismatches_total 0" in running.collector.metrics.text()


@pytest.mark.slow
@pytest.mark.parametrize("people", [0, PAGE - 1, 5 * PAGE])
@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_reports_committed_before_and_after_the_reading_of_any_page_count_once(
    running: ServerThread, monkeypatch: pytest.MonkeyPatch, people: int, when: str
) -> None:
    """Ids are hashes, so those committed meanwhile fall behind the count, into the page being read, and ahead of it."""
    campaign = Campaign(running)
    if people:
        assert campaign.upload(people) == 201

    def more() -> None:
        if campaign.people < people + 60:
            assert campaign.upload(5) == 201

    with monkeypatch.context() as patched:
        hooks = {
            "before": {"before": more},
            "after": {"after": more},
            "both": {"before": more, "after": more},
        }[when]
        watch_pages(running, patched, **hooks)
        tally = running.collector.running_tally(campaign.id)
    assert tally.to_bytes() == stored_tally(running.collector, campaign.id).to_bytes()
    assert campaign.upload(7) == 201
    assert_exact(running, campaign)


def test_a_page_that_shows_reports_of_which_the_commit_is_not_noted_yet(
    running: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = Campaign(running)
    assert campaign.upload(3) == 201
    store: Any = running.collector.store
    original, committed, page_read = store.add_reports, threading.Event(), threading.Event()
    sending = threading.Thread(target=lambda: campaign.upload(4))

    def add_reports(batches: Any) -> Any:
        outcomes = original(batches)
        committed.set()
        assert page_read.wait(60)
        return outcomes

    def begin() -> None:
        if not sending.ident:
            sending.start()
            assert committed.wait(60)

    with monkeypatch.context() as patched:
        patched.setattr(store, "add_reports", add_reports)
        sizes = watch_pages(running, patched, before=begin, after=page_read.set)
        tally = running.collector.running_tally(campaign.id)
        sending.join(60)
    assert sizes == [7]
    assert tally.participants == 7
    assert_exact(running, campaign)


@pytest.mark.parametrize(("losses", "status"), [(1, 200), (1000, 503)])
def test_a_commit_of_which_nobody_knows_makes_the_count_begin_again_but_not_for_ever(
    running: ServerThread, monkeypatch: pytest.MonkeyPatch, losses: int, status: int
) -> None:
    campaign, operator = Campaign(running), Caller(running.url, timeout=60.0)
    assert campaign.upload(20) == 201
    store: Any = running.collector.store
    original, answers = store.add_reports, []

    def unsure(batches: Any) -> Any:
        original(batches)
        raise StoreUnavailable("its answer was lost")

    def lose() -> None:
        if len(answers) < losses:
            monkeypatch.setattr(store, "add_reports", unsure)
            answers.append(campaign.upload(1))
            monkeypatch.setattr(store, "add_reports", original)

    with monkeypatch.context() as patched:
        watch_pages(running, patched, before=lose)
        assert operator.admin("GET", f"/{campaign.id}/tally").status == status
    assert set(answers) == {503}
    assert len(answers) <= 10
    assert running.collector.tallies._counts == {}
    assert_exact(running, campaign)


def test_a_count_that_fails_leaves_nothing_to_be_kept(
    running: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = Campaign(running)
    assert campaign.upload(20) == 201

    def fail() -> None:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patched:
        watch_pages(running, patched, after=fail)
        assert campaign.caller.admin("GET", f"/{campaign.id}/tally").status == 503
    assert running.collector.tallies._counts == {}
    assert_exact(running, campaign)


def test_several_who_ask_while_somebody_sends(
    running: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TALLY_PAGE", 100)
    campaign = Campaign(running)
    assert campaign.upload(50) == 201
    found: list[Any] = []

    def ask() -> None:
        for _ in range(3):
            found.append(running.collector.running_tally(campaign.id).participants)
            running.collector.writer.call(lambda: running.collector.tallies.forget(campaign.id, 0))

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    while any(thread.is_alive() for thread in asking):
        assert campaign.upload(3) == 201
    until(lambda: len(found) == 9)
    assert all(50 <= n <= campaign.people for n in found)
    assert_exact(running, campaign)
