"""The contract of a store: no report lost or counted twice, atomic transitions, exact tallies.

`tests/crash` has the tests that need processes.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dither.collector import limits
from dither.collector.collector import Collector
from dither.collector.drafts import Draft
from dither.collector.store import (
    Batch,
    Deletion,
    Move,
    Outcome,
    Row,
    State,
    Store,
    StoredCampaign,
    StoredRound,
)
from dither.collector.tallies import rebuild
from dither.reports import Plan

Opening = Callable[[], Store]

CAMPAIGN = "ab" * 16
DESCRIPTION: dict[str, Any] = {
    "schema": {
        "colour": {"kind": "categorical", "values": ["red", "green", "blue"]},
        "member": {"kind": "boolean"},
    },
    "epsilon": 2.0,
    "participants": 1000,
    "method": "independent",
    "seed": 5,
    "assignment": "token",
}


class StoreContract:
    """The tests that every store must pass.

    Subclass it with a fixture `open_store`: a function that opens the same store at every
    call. The store is empty at first; a shared one is open more than once at a time.
    """

    @pytest.fixture
    def open_store(self) -> Opening:
        """Open the store under test."""
        raise NotImplementedError("define a fixture `open_store`")

    def prepared(self, open_store: Opening, state: str = "open") -> Store:
        """Return the store with one campaign in it."""
        store = open_store()
        store.create_campaign(
            StoredCampaign(CAMPAIGN, {"name": "é\u0000x"}, State(state), 0, b"\0machine"),
            StoredRound(CAMPAIGN, 0, state, 0.25, {"p": [1.5]}),
        )
        return store

    def rows(self, count: int, start: int = 0, payload: bytes = b"\0\xff") -> list[Row]:
        """Return reports with consecutive ids."""
        return [Row(i.to_bytes(16, "big"), i % 3, payload) for i in range(start, start + count)]

    def test_a_campaign_comes_back_as_it_was_stored_even_after_a_restart(
        self, open_store: Opening
    ) -> None:
        self.prepared(open_store).close()
        store = open_store()
        assert store.campaign(CAMPAIGN) == StoredCampaign(
            CAMPAIGN, {"name": "é\u0000x"}, State.OPEN, 0, b"\0machine"
        )
        assert store.rounds(CAMPAIGN) == [
            StoredRound(CAMPAIGN, 0, "open", 0.25, {"p": [1.5]}, None)
        ]
        assert store.campaign("00" * 16) is None
        assert store.release(CAMPAIGN) is None
        store.close()

    def test_same_bytes_are_a_duplicate_and_other_bytes_a_conflict(
        self, open_store: Opening
    ) -> None:
        store = self.prepared(open_store)
        assert store.add_reports([Batch(CAMPAIGN, 0, self.rows(5))]) == [[Outcome.STORED] * 5]
        assert store.add_reports([Batch(CAMPAIGN, 0, self.rows(5))]) == [[Outcome.DUPLICATE] * 5]
        other = [Row(self.rows(1)[0].report_id, 0, b"\0\xfe"), *self.rows(1, 5)]
        assert store.add_reports([Batch(CAMPAIGN, 0, other)]) == [
            [Outcome.CONFLICT, Outcome.STORED]
        ]
        assert store.count(CAMPAIGN, 0) == 6
        store.close()

    def test_repeats_inside_one_group_are_seen_too(self, open_store: Opening) -> None:
        store, first = self.prepared(open_store), self.rows(1)[0]
        other = Row(first.report_id, 0, b"zz")
        outcomes = store.add_reports(
            [Batch(CAMPAIGN, 0, [first, first]), Batch(CAMPAIGN, 0, [other])]
        )
        assert outcomes == [[Outcome.STORED, Outcome.DUPLICATE], [Outcome.CONFLICT]]
        store.close()

    @pytest.mark.parametrize("state", ["draft", "closing", "collected"])
    def test_only_an_open_round_takes_reports(self, open_store: Opening, state: str) -> None:
        store = self.prepared(open_store, state)
        outcomes = store.add_reports([Batch(CAMPAIGN, 0, self.rows(2))])
        assert not any(outcome.accepted for outcome in outcomes[0])
        assert store.count(CAMPAIGN, 0) == 0
        store.close()

    def test_reports_survive_a_restart_and_come_in_the_order_of_their_ids(
        self, open_store: Opening
    ) -> None:
        store = self.prepared(open_store)
        store.add_reports([Batch(CAMPAIGN, 0, self.rows(30)[::-1])])
        store.close()
        store = open_store()
        assert [row for page in store.reports(CAMPAIGN, 0, 7) for row in page] == self.rows(30)
        assert store.digest(CAMPAIGN, 0)[0] == 30
        store.close()

    def test_a_stored_id_is_found_in_its_campaign_and_no_other_is(
        self, open_store: Opening
    ) -> None:
        store, ids = self.prepared(open_store), [row.report_id for row in self.rows(4)]
        assert store.stored_among(CAMPAIGN, ids) == set()
        store.add_reports([Batch(CAMPAIGN, 0, self.rows(2))])
        assert store.stored_among(CAMPAIGN, ids) == set(ids[:2])
        store.move(Move(CAMPAIGN, State.OPEN, 0, State.CLOSING, 0, round_state="closing"))
        opened = StoredRound(CAMPAIGN, 1, "open", 0.5, {"p": [1.5]})
        store.move(
            Move(
                CAMPAIGN,
                State.CLOSING,
                0,
                State.OPEN,
                1,
                round_state="closed",
                tally=b"t",
                opened=opened,
            )
        )
        store.add_reports([Batch(CAMPAIGN, 1, self.rows(1, 2))])
        assert store.stored_among(CAMPAIGN, ids) == set(ids[:3]), "in any round"
        assert store.stored_among("00" * 16, ids) == set()
        assert store.stored_among(CAMPAIGN, []) == set()
        store.close()

    def test_one_report_is_deleted_while_its_round_is_open(self, open_store: Opening) -> None:
        store, ids = self.prepared(open_store), [row.report_id for row in self.rows(3)]
        store.add_reports([Batch(CAMPAIGN, 0, self.rows(3))])
        assert store.delete_report("00" * 16, ids[0]) == (Deletion.ABSENT, -1)
        assert store.delete_report(CAMPAIGN, ids[0]) == (Deletion.DELETED, 0)
        assert store.delete_report(CAMPAIGN, ids[0]) == (Deletion.ABSENT, -1)
        assert store.stored_among(CAMPAIGN, ids) == set(ids[1:])
        assert store.count(CAMPAIGN, 0) == sum(store.answers(CAMPAIGN, 0).values()) == 2
        assert store.add_reports([Batch(CAMPAIGN, 0, self.rows(1))]) == [[Outcome.STORED]]
        store.move(Move(CAMPAIGN, State.OPEN, 0, State.CLOSING, 0, round_state="closing"))
        assert store.delete_report(CAMPAIGN, ids[1]) == (Deletion.ROUND_CLOSING, 0)
        store.move(
            Move(CAMPAIGN, State.CLOSING, 0, State.COLLECTED, 0, round_state="closed", tally=b"t")
        )
        assert store.delete_report(CAMPAIGN, ids[1]) == (Deletion.ROUND_CLOSED, 0)
        assert store.count(CAMPAIGN, 0) == 3
        store.close()

    def test_a_restore_has_a_name(self, open_store: Opening) -> None:
        store = open_store()
        assert store.epoch() == ""
        names = set()
        for _ in range(2):
            store.begin_epoch()
            names.add(store.epoch())
        assert len(names) == 2
        store.close()
        again = open_store()
        assert again.epoch() in names
        again.close()

    def test_a_draft_is_saved_only_over_the_version_it_was_read_from(
        self, open_store: Opening
    ) -> None:
        store = open_store()
        first = Draft("d" * 32, "One", "2026-01-01", 1, {"title": "One", "purpose": "a\nb"})
        assert store.drafts.save(first)
        assert not store.drafts.save(first), "somebody else created it"
        second = replace(first, title="Two", version=2, fields={"title": "Two"})
        assert store.drafts.save(second)
        assert not store.drafts.save(second), "somebody else saved it"
        assert [draft.title for draft in store.drafts.all()] == ["Two"]
        store.close()
        store = open_store()
        assert store.drafts.find(first.id) == second
        assert store.drafts.delete(first.id)
        assert not store.drafts.delete(first.id)
        assert store.drafts.find(first.id) is None
        assert not store.drafts.save(replace(second, version=3)), "it was deleted"
        store.close()

    def test_it_tells_the_time(self, open_store: Opening) -> None:
        store = open_store()
        first, second = store.now(), store.now()
        assert first <= second
        assert abs(first - time.time()) < limits.MAX_SKEW_SECONDS
        store.close()

    def test_a_move_happens_only_from_where_it_expects(self, open_store: Opening) -> None:
        store = self.prepared(open_store)
        wrong = Move(
            CAMPAIGN,
            State.CLOSING,
            0,
            State.COLLECTED,
            0,
            round_state="closed",
            tally=b"t",
            release=b"r",
        )
        assert not store.move(wrong)
        assert store.rounds(CAMPAIGN)[0].tally is None
        assert store.release(CAMPAIGN) is None
        assert store.move(Move(CAMPAIGN, State.OPEN, 0, State.CLOSING, 0, round_state="closing"))
        found = store.campaign(CAMPAIGN)
        assert found is not None
        assert found.state == State.CLOSING
        store.close()

    def test_the_running_tally_equals_the_stored_reports(self, open_store: Opening) -> None:
        first = Collector(open_store())
        collectors = [first]
        if first.store.shared:
            collectors.append(Collector(open_store()))
        try:
            live = first.campaigns.create(DESCRIPTION)
            campaign, plan = live.stored.id, live.plans[0]
            for collector in collectors:
                collector.campaigns.refresh_all()
            submitted = 0
            for count in (100, 100, 50):
                for collector in collectors:
                    _submit(collector, campaign, plan, submitted, count)
                    submitted += count
                stored = rebuild(first.store, campaign, plan)
                assert stored.participants == submitted
                for collector in collectors:
                    assert collector.running_tally(campaign).to_bytes() == stored.to_bytes()
        finally:
            for collector in collectors:
                collector.stop()


def _submit(collector: Collector, campaign: str, plan: Plan, start: int, count: int) -> None:
    """Store reports through a collector's writer, and wait for the commit."""
    rows = []
    for i in range(start, start + count):
        question = i % len(plan.questions)
        mechanism = plan.questions[question].mechanism
        payload = mechanism.randomise(i % mechanism.cells, secrets.token_bytes)
        rows.append(Row(i.to_bytes(32, "big"), question, payload))
    loop = asyncio.new_event_loop()
    try:
        waiter = loop.create_future()
        collector.writer.submit(Batch(campaign, plan.round, rows), waiter)
        # The writer delivers to the loop of the waiter; wait until it has counted the commit.
        loop.run_until_complete(waiter)
        collector.writer.call(lambda: None)
    finally:
        loop.close()
