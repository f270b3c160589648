"""The contract of a store: nothing lost, nothing twice, whole transitions. `tests/crash` has the ordeals that need processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # a store needs the extra `server`; the other contracts do not
    from dither.collector.store import Row, Store

    Opening = Callable[[], Store]

CAMPAIGN = "ab" * 16


class StoreContract:
    """Subclass it with a fixture `open_store`: a function that opens the same, at first empty store at every call."""

    @pytest.fixture
    def open_store(self) -> Opening:
        """Opens the store under test."""
        raise NotImplementedError("give a fixture `open_store`")

    def prepared(self, open_store: Opening, state: str = "open") -> Store:
        """The store with one campaign in it."""
        from dither.collector.store import State, StoredCampaign, StoredRound

        store = open_store()
        store.create_campaign(
            StoredCampaign(CAMPAIGN, {"name": "é\u0000x"}, State(state), 0, b"\0machine"),
            StoredRound(CAMPAIGN, 0, state, 0.25, {"p": [1.5]}),
        )
        return store

    def rows(self, count: int, start: int = 0, payload: bytes = b"\0\xff") -> list[Row]:
        """Reports with ids of their own."""
        from dither.collector.store import Row

        return [Row(i.to_bytes(16, "big"), i % 3, payload) for i in range(start, start + count)]

    def test_a_campaign_comes_back_as_it_was_stored_even_after_a_restart(
        self, open_store: Opening
    ) -> None:
        from dither.collector.store import State, StoredCampaign, StoredRound

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
        from dither.collector.store import Batch, Outcome, Row

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
        from dither.collector.store import Batch, Outcome, Row

        store, first = self.prepared(open_store), self.rows(1)[0]
        other = Row(first.report_id, 0, b"zz")
        outcomes = store.add_reports(
            [Batch(CAMPAIGN, 0, [first, first]), Batch(CAMPAIGN, 0, [other])]
        )
        assert outcomes == [[Outcome.STORED, Outcome.DUPLICATE], [Outcome.CONFLICT]]
        store.close()

    @pytest.mark.parametrize("state", ["draft", "closing", "collected"])
    def test_only_an_open_round_takes_reports(self, open_store: Opening, state: str) -> None:
        from dither.collector.store import Batch

        store = self.prepared(open_store, state)
        told = store.add_reports([Batch(CAMPAIGN, 0, self.rows(2))])
        assert not any(outcome.accepted for outcome in told[0])
        assert store.count(CAMPAIGN, 0) == 0
        store.close()

    def test_reports_survive_a_restart_and_come_in_the_order_of_their_ids(
        self, open_store: Opening
    ) -> None:
        from dither.collector.store import Batch

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
        from dither.collector.store import Batch, Move, State, StoredRound

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
        assert store.stored_among(CAMPAIGN, ids) == set(ids[:3]), "whatever its round"
        assert store.stored_among("00" * 16, ids) == set()
        assert store.stored_among(CAMPAIGN, []) == set()
        store.close()

    def test_a_move_happens_only_from_where_it_expects(self, open_store: Opening) -> None:
        from dither.collector.store import Move, State

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
