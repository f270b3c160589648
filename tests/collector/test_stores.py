"""One contract for all stores: nothing lost, nothing twice, whole transitions, no trace of the order of arrival."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import sqlalchemy as sa
from collector_harness import token_of, until

from dither.collector import (
    Batch,
    Move,
    Outcome,
    Row,
    State,
    Store,
    StoreBusy,
    StoredCampaign,
    StoredRound,
    StoreFailure,
)
from dither.errors import InputError

C = "ab" * 16
Opening = Callable[[], Store]


def prepared(open_store: Opening, state: str = "open") -> Store:
    store = open_store()
    store.create_campaign(
        StoredCampaign(C, {"name": "é\u0000x"}, State(state), 0, b"\0machine"),
        StoredRound(C, 0, state, 0.25, {"p": [1.5]}),
    )
    return store


def rows(count: int, start: int = 0, payload: bytes = b"\0\xff") -> list[Row]:
    return [Row(token_of(i), i % 3, payload) for i in range(start, start + count)]


def everything(store: Store, block: int = 7) -> list[Row]:
    return [row for page in store.reports(C, 0, block) for row in page]


def test_a_campaign_comes_back_as_it_was_stored_even_after_a_restart(open_store: Opening) -> None:
    prepared(open_store)
    store = open_store()
    assert store.campaigns() == [store.campaign(C)]
    assert store.campaign(C) == StoredCampaign(C, {"name": "é\u0000x"}, State.OPEN, 0, b"\0machine")
    assert store.rounds(C) == [StoredRound(C, 0, "open", 0.25, {"p": [1.5]}, None)]
    assert store.campaign("00" * 16) is None
    assert store.release(C) is None


def test_same_bytes_are_a_duplicate_and_other_bytes_a_conflict(open_store: Opening) -> None:
    store = prepared(open_store)
    assert store.add_reports([Batch(C, 0, rows(5))]) == [[Outcome.STORED] * 5]
    assert store.add_reports([Batch(C, 0, rows(5))]) == [[Outcome.DUPLICATE] * 5]
    other = [Row(token_of(0), 0, b"\0\xfe"), Row(token_of(1), 2, b"\0\xff"), *rows(1, 5)]
    assert store.add_reports([Batch(C, 0, other)]) == [
        [Outcome.CONFLICT, Outcome.CONFLICT, Outcome.STORED]
    ]
    assert sorted(everything(store)) == sorted(rows(6))
    assert store.count(C, 0) == 6


def test_repeats_inside_one_group_are_seen_too(open_store: Opening) -> None:
    store = prepared(open_store)
    first, other = rows(1)[0], Row(token_of(0), 0, b"zz")
    outcomes = store.add_reports(
        [Batch(C, 0, [first, first]), Batch(C, 0, [other]), Batch(C, 0, rows(1, 9))]
    )
    assert outcomes == [[Outcome.STORED, Outcome.DUPLICATE], [Outcome.CONFLICT], [Outcome.STORED]]
    assert store.count(C, 0) == 2


@pytest.mark.parametrize("state", ["draft", "closing", "collected"])
def test_only_an_open_round_takes_reports(open_store: Opening, state: str) -> None:
    store = prepared(open_store, state)
    assert store.add_reports([Batch(C, 0, rows(2)), Batch(C, 1, rows(1))]) == [
        [Outcome.ROUND_CLOSING if state == "closing" else Outcome.ROUND_CLOSED] * 2,
        [Outcome.ROUND_CLOSED],
    ]
    assert store.count(C, 0) == 0


def test_unknown_tokens_are_refused_one_by_one(open_store: Opening) -> None:
    store = prepared(open_store)
    store.add_tokens(C, [token_of(i, "h") for i in range(3)])
    hashes = [token_of(i, "h") for i in (2, 3, 0)]
    assert store.add_reports([Batch(C, 0, rows(3), hashes)]) == [
        [Outcome.STORED, Outcome.UNKNOWN_TOKEN, Outcome.STORED]
    ]
    assert store.count(C, 0) == 2


def test_a_move_happens_whole_or_not_at_all(open_store: Opening) -> None:
    store = prepared(open_store)
    wrong = Move(
        C, State.CLOSING, 0, State.OPEN, 1, "closed", b"m", b"t", StoredRound(C, 1, "open", 0.5, {})
    )
    assert store.move(wrong) is False
    assert len(store.rounds(C)) == 1
    assert store.move(Move(C, State.OPEN, 0, State.CLOSING, 0, "closing"))
    twice = StoredRound(
        C, 0, "open", 0.5, {}
    )  # breaks the uniqueness of rounds, so all of the move must be undone
    with pytest.raises(StoreFailure):
        store.move(Move(C, State.CLOSING, 0, State.OPEN, 1, "closed", b"m", b"t", twice))
    store = open_store()
    found = store.campaign(C)
    assert found is not None
    assert (found.state, found.round, found.machine, store.rounds(C)[0].state) == (
        State.CLOSING,
        0,
        b"\0machine",
        "closing",
    )
    assert store.move(
        Move(
            C,
            State.CLOSING,
            0,
            State.OPEN,
            1,
            "closed",
            b"m",
            b"t",
            StoredRound(C, 1, "open", 0.5, {}),
        )
    )
    assert [(r.state, r.tally) for r in store.rounds(C)] == [("closed", b"t"), ("open", None)]


def test_reports_survive_a_restart_and_come_in_the_order_of_their_ids(open_store: Opening) -> None:
    store = prepared(open_store)
    for i in range(0, 40, 10):
        store.add_reports([Batch(C, 0, rows(10, i))])
    store = open_store()
    assert everything(store) == sorted(rows(40))


def test_the_tables_hold_nothing_about_time_place_or_order(open_store: Opening) -> None:
    store = prepared(open_store)
    for row in rows(60):
        store.add_reports([Batch(C, 0, [row])])
    store.move(Move(C, State.OPEN, 0, State.CLOSING, 0, "closing"))
    store.tidy(C, 0)
    engine = store._engine  # type: ignore[attr-defined]
    about_operators = {"keys", "sessions", "sign_ins", "audit", "publications", "drafts"}
    names = set(sa.inspect(engine).get_table_names()) - about_operators
    columns = {c["name"] for t in names for c in sa.inspect(engine).get_columns(t)}
    assert columns == {
        *(
            "name",
            "value",
            "id",
            "spec",
            "state",
            "round",
            "machine",
            "release",
            "key",
            "campaign",
            "number",
            "start",
        ),
        *(
            "plan",
            "tally",
            "hash",
            "round_key",
            "report_id",
            "question",
            "payload",
            "moves",
            "epoch",
            "worker",
        ),
        *("closes", "held"),  # when the round closes by itself, and whether it waits for a tally
    }
    assert [entry.what for entry in store.audit.entries()] == ["closing", "create"], (
        "no report is in the log"
    )
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            with pytest.raises(sa.exc.OperationalError, match="rowid"):
                connection.exec_driver_sql("SELECT rowid FROM reports")
            found = [
                bytes(r[0]) for r in connection.exec_driver_sql("SELECT report_id FROM reports")
            ]
        else:
            found = [
                bytes(r[0])
                for r in connection.exec_driver_sql("SELECT report_id FROM reports ORDER BY ctid")
            ]
            assert (
                connection.exec_driver_sql(
                    "SELECT count(DISTINCT xmin::text) FROM reports"
                ).scalar()
                == 1
            )
    assert found == sorted(r.report_id for r in rows(60)), (
        "the order in the file is the order of the ids"
    )


def test_a_closing_and_uploads_from_many_threads_agree_on_what_was_taken(
    open_store: Opening,
) -> None:
    store = prepared(open_store)
    taken: list[int] = []
    started = threading.Barrier(5)

    def send(worker: int) -> None:
        started.wait()
        for i in range(60):
            number = worker * 1000 + i
            if store.add_reports([Batch(C, 0, rows(1, number))]) == [[Outcome.STORED]]:
                taken.append(number)

    threads = [threading.Thread(target=send, args=(w,)) for w in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    until(lambda: len(taken) >= 20)
    assert store.move(Move(C, State.OPEN, 0, State.CLOSING, 0, "closing"))
    at_close = store.count(C, 0)
    for thread in threads:
        thread.join()
    assert store.count(C, 0) == at_close == len(taken) < 240


def test_a_move_decided_before_another_one_comes_too_late(open_store: Opening) -> None:
    """A closing that was taken back and begun again looks as before; a tally of the first must not end the second."""
    store = prepared(open_store)
    close, reopen = (
        Move(C, State.OPEN, 0, State.CLOSING, 0, "closing"),
        Move(C, State.CLOSING, 0, State.OPEN, 0, "open"),
    )
    assert store.move(close)
    decided = store.campaign(C)
    assert decided is not None
    assert store.move(reopen)
    assert store.move(close)
    closed = Move(
        C,
        State.CLOSING,
        0,
        State.COLLECTED,
        0,
        "closed",
        tally=b"of the first",
        moves=decided.moves,
    )
    assert store.move(closed) is False
    now = store.campaign(C)
    assert now is not None
    assert (now.state, now.moves, store.positions()) == (
        State.CLOSING,
        3,
        {C: (State.CLOSING, 0, 3)},
    )
    assert store.move(replace(closed, moves=now.moves))


def test_groups_large_and_small_with_and_without_repeats_have_the_outcomes_of_single_reports(
    open_store: Opening,
) -> None:
    """PostgreSQL takes large groups by COPY until one of them holds a repeat."""
    store, held = prepared(open_store), dict[bytes, Row]()
    rng = np.random.default_rng(4)
    for size in (100, 3, 100, 64, 5, 64):
        group = [
            Row(token_of(int(i)), int(i) % 3, bytes([int(x)]))
            for i, x in rng.integers(0, [400, 2], (size, 2))
        ]
        expected = []
        for row in group:
            first = held.setdefault(row.report_id, row)
            known = Outcome.DUPLICATE if first == row else Outcome.CONFLICT
            expected.append(Outcome.STORED if first is row else known)
        assert store.add_reports([Batch(C, 0, group)]) == [expected]
    assert everything(store) == sorted(held.values())


def test_a_store_of_another_layout_is_refused(open_store: Opening) -> None:
    store = open_store()
    with store._engine.begin() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql("UPDATE facts SET value = '0'")
    with pytest.raises(InputError, match="layout 0"):
        open_store()


@pytest.mark.parametrize(("failures", "raises"), [(0, False), (2, False), (3, True)])
def test_a_transaction_undone_in_favour_of_another_is_tried_three_times(
    open_store: Opening, monkeypatch: pytest.MonkeyPatch, failures: int, raises: bool
) -> None:
    store = prepared(open_store)
    original = store._add_reports  # type: ignore[attr-defined]
    calls = []

    def busy(batches: object) -> object:
        calls.append(1)
        if len(calls) <= failures:
            raise StoreBusy("undone")
        return original(batches)

    monkeypatch.setattr(store, "_add_reports", busy)
    if raises:
        with pytest.raises(StoreBusy):
            store.add_reports([Batch(C, 0, rows(1))])
        assert store.count(C, 0) == 0
    else:
        assert store.add_reports([Batch(C, 0, rows(1))]) == [[Outcome.STORED]]
    assert len(calls) == min(failures + 1, 3)
