"""Several collectors on one PostgreSQL agree on what was taken; SQLite stays one process's. Older layouts are carried forward."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from collector_harness import Cluster, token_of, until

from dither.collector import (
    Batch,
    Move,
    Outcome,
    PostgresStore,
    Row,
    SqliteStore,
    State,
    Store,
    StoredCampaign,
    StoredRound,
)
from dither.collector.drafts import Draft
from dither.errors import InputError

C, D = "ab" * 16, "cd" * 16
CLOSING = Move(C, State.OPEN, 0, State.CLOSING, 0, "closing")


def rows(count: int, start: int = 0) -> list[Row]:
    return [Row(token_of(i), 0, b"xy") for i in range(start, start + count)]


def begin(store: Store, campaign: str = C) -> None:
    store.create_campaign(
        StoredCampaign(campaign, {}, State.OPEN, 0, b""), StoredRound(campaign, 0, "open", 0.0, {})
    )


def everything(store: Store, campaign: str = C) -> list[Row]:
    return [row for page in store.reports(campaign, 0) for row in page]


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.fresh()


@pytest.fixture
def pair(url: str) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    with closing(PostgresStore(url)) as first, closing(PostgresStore(url)) as second:
        begin(first)
        yield first, second


def test_a_second_process_on_an_sqlite_file_is_refused(tmp_path: Path) -> None:
    with (
        closing(SqliteStore(tmp_path / "c.db")),
        pytest.raises(InputError, match=r"another collector.*PostgreSQL") as refused,
    ):
        SqliteStore(tmp_path / "c.db")
    assert "\n" not in str(refused.value)


def test_what_one_stored_is_a_repeat_or_a_conflict_for_the_other(
    pair: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = pair
    assert first.add_reports([Batch(C, 0, rows(50))]) == [[Outcome.STORED] * 50]
    again = [*rows(50, 25), Row(token_of(0), 1, b"xy")]
    assert second.add_reports([Batch(C, 0, again)]) == [
        [Outcome.DUPLICATE] * 25 + [Outcome.STORED] * 25 + [Outcome.CONFLICT]
    ]
    assert everything(first) == everything(second) == sorted(rows(75))


def test_the_same_reports_sent_to_both_at_once_are_stored_once(
    pair: tuple[PostgresStore, PostgresStore],
) -> None:
    outcomes: list[list[Outcome]] = []

    def send(store: PostgresStore) -> None:
        for start in range(0, 600, 60):
            outcomes.extend(store.add_reports([Batch(C, 0, rows(60, start))]))

    threads = [threading.Thread(target=send, args=(store,)) for store in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [outcome for some in outcomes for outcome in some]
    assert (told.count(Outcome.STORED), told.count(Outcome.DUPLICATE)) == (600, 600)
    assert everything(pair[0]) == sorted(rows(600))


def test_a_closing_by_one_holds_for_the_other_at_once(
    pair: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = pair
    assert second.move(CLOSING)
    assert first.add_reports([Batch(C, 0, rows(1))]) == [[Outcome.ROUND_CLOSING]]
    assert first.move(CLOSING) is False


def test_a_closing_that_waits_lets_nobody_in_before_it(
    pair: tuple[PostgresStore, PostgresStore], url: str
) -> None:
    """Whoever waits for the row alone sees others who add join those whom it waits for, and under load waits without end."""
    moved: list[bool] = []
    told: list[list[Outcome]] = []
    with psycopg.connect(url, autocommit=True) as connection:

        def waiting() -> int:
            found = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
            return 0 if found is None else int(found[0])

        mover = threading.Thread(target=lambda: moved.append(pair[0].move(CLOSING)))
        late = threading.Thread(
            target=lambda: told.extend(pair[1].add_reports([Batch(C, 0, rows(1))]))
        )
        with pair[1]._engine.begin() as adding:
            assert (
                adding.execute(pair[1]._round_to_add, {"campaign": C, "number": 0}).one().state
                == "open"
            )
            mover.start()
            until(lambda: waiting() == 1)
            late.start()
            until(lambda: waiting() == 2 or bool(told))
        mover.join(20)
        late.join(20)
    assert moved == [True]
    assert told == [[Outcome.ROUND_CLOSING]]


def test_a_change_by_one_is_heard_by_the_other(pair: tuple[PostgresStore, PostgresStore]) -> None:
    first, second = pair
    first.await_change(0)  # from here on it listens
    heard = threading.Event()
    waiting = threading.Thread(target=lambda: (first.await_change(60), heard.set()))
    waiting.start()
    assert not heard.wait(0.2)
    assert second.move(CLOSING)
    assert heard.wait(20)
    waiting.join()


def test_a_campaigns_turn_is_one_collectors(pair: tuple[PostgresStore, PostgresStore]) -> None:
    order: list[str] = []

    def take() -> None:
        with pair[1].turn(C):
            order.append("second")

    with pair[0].turn(C), pair[1].turn(D):
        waiting = threading.Thread(target=take)
        waiting.start()
        waiting.join(0.3)
        order.append("first")
    waiting.join(20)
    assert order == ["first", "second"]


def test_tidying_one_round_leaves_the_file_of_another_alone(
    pair: tuple[PostgresStore, PostgresStore], url: str
) -> None:
    first, second = pair
    begin(first, D)
    first.add_reports([Batch(C, 0, rows(5)), Batch(D, 0, rows(5, 5))])
    assert first.move(CLOSING)
    with psycopg.connect(url, autocommit=True) as connection:

        def files() -> dict[str, int]:
            found = connection.execute(
                "SELECT c.relname, pg_relation_filenode(c.oid) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid "
                "WHERE inhparent = 'reports'::regclass"
            )
            return {str(name): int(node) for name, node in found}

        before = files()
        second.tidy(C, 0)
        after = files()
    assert set(before) == set(after) == {"reports_1", "reports_2"}
    assert before["reports_1"] != after["reports_1"]
    assert before["reports_2"] == after["reports_2"]
    assert second.untidied(C) == first.untidied(C) == set()
    assert everything(first) == sorted(rows(5))
    assert first.add_reports([Batch(D, 0, rows(1, 99))]) == [[Outcome.STORED]]


def test_a_round_that_opened_again_is_not_written_anew_under_those_who_add(
    pair: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = pair
    first.add_reports([Batch(C, 0, rows(5))])
    assert first.move(CLOSING)
    left_over = first._untidied()
    assert first.move(Move(C, State.CLOSING, 0, State.OPEN, 0, "open"))
    second._tidy(set(left_over))  # as a process that starts does, which read of it before
    assert first.add_reports([Batch(C, 0, rows(5, 5))]) == [[Outcome.STORED] * 5]
    assert everything(second) == sorted(rows(10))


# The tables of layout 1, as version 0.1.0 made them.
LAYOUT_1 = """
CREATE TABLE facts (name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (name));
CREATE TABLE campaigns (id TEXT NOT NULL, spec TEXT NOT NULL, state TEXT NOT NULL, round INTEGER NOT NULL, machine {blob} NOT NULL,
    release {blob}, PRIMARY KEY (id));
CREATE TABLE tokens (campaign TEXT NOT NULL, hash {blob} NOT NULL, PRIMARY KEY (campaign, hash)) {tail};
CREATE TABLE reports (round_key INTEGER NOT NULL, report_id {blob} NOT NULL, question INTEGER NOT NULL, payload {blob} NOT NULL,
    PRIMARY KEY (round_key, report_id)) {tail};
CREATE TABLE rounds ("key" {serial} NOT NULL, campaign TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL,
    start DOUBLE PRECISION NOT NULL, "plan" TEXT NOT NULL, tally {blob}, PRIMARY KEY ("key"), UNIQUE (campaign, number),
    FOREIGN KEY(campaign) REFERENCES campaigns (id));
INSERT INTO facts VALUES ('version', '1'), ('untidied round 1', 'its files may show the order of arrival');
INSERT INTO campaigns VALUES ('{c}', '{{"name": "old"}}', 'open', 1, {b}6d6163{e}, NULL);
INSERT INTO rounds (campaign, number, state, start, "plan", tally) VALUES
    ('{c}', 0, 'closed', 0.0, '{{}}', {b}746f{e}), ('{c}', 1, 'open', 0.5, '{{}}', NULL);
INSERT INTO tokens VALUES ('{c}', {b}aa{e});
INSERT INTO reports VALUES (1, {b}03{e}, 2, {b}01{e}), (1, {b}01{e}, 1, {b}02{e}), (2, {b}02{e}, 0, {b}03{e});
"""


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_store_of_the_layout_before_is_carried_forward(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    store: Store
    if database == "sqlite":
        blob = {"blob": "BLOB", "serial": "INTEGER", "tail": "WITHOUT ROWID", "b": "X'", "e": "'"}
        with closing(sqlite3.connect(tmp_path / "c.db")) as connection:
            connection.executescript(LAYOUT_1.format(c=C, **blob))
        store = SqliteStore(tmp_path / "c.db")
    else:
        blob = {"blob": "BYTEA", "serial": "SERIAL", "tail": "", "b": "'\\x", "e": "'"}
        url = request.getfixturevalue("cluster").fresh()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(LAYOUT_1.format(c=C, **blob))
        store = PostgresStore(url)
    with closing(store):
        assert store.campaigns() == [StoredCampaign(C, {"name": "old"}, State.OPEN, 1, b"mac")]
        assert [(r.number, r.state, r.start, r.tally) for r in store.rounds(C)] == [
            *((0, "closed", 0.0, b"to"), (1, "open", 0.5, None)),
        ]
        assert everything(store) == [Row(b"\1", 1, b"\2"), Row(b"\3", 2, b"\1")]
        assert store.untidied(C) == set(), "what was left over is made good"
        assert store.add_reports(
            [Batch(C, 1, [Row(b"\2", 0, b"\3"), *rows(1)], [b"\xaa", b"\xaa"])]
        ) == [[Outcome.DUPLICATE, Outcome.STORED]]
        opened = StoredRound(C, 2, "open", 0.7, {})
        assert store.move(
            Move(C, State.OPEN, 1, State.OPEN, 2, "closed", b"m", b"t", opened, moves=0)
        )
        assert store.add_reports([Batch(C, 2, rows(40))]) == [[Outcome.STORED] * 40]


def test_a_store_of_a_later_layout_is_refused_and_left_alone(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "c.db").close()
    with closing(sqlite3.connect(tmp_path / "c.db")) as connection, connection:
        version = "SELECT value FROM facts WHERE name = 'version'"
        known = int(connection.execute(version).fetchone()[0])
        connection.execute("UPDATE facts SET value = ? WHERE name = 'version'", (str(known + 1),))
    before = (tmp_path / "c.db").read_bytes()
    with pytest.raises(
        InputError,
        match=f"layout {known + 1}; this version of Dither reads layouts 1 to {known}",
    ):
        SqliteStore(tmp_path / "c.db")
    assert (tmp_path / "c.db").read_bytes() == before


LAYOUTS = Path(__file__).parents[1] / "golden" / "stores"


def columns_of(path: Path) -> dict[str, set[str]]:
    """The columns of each table of a store."""
    with closing(sqlite3.connect(path)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        return {
            name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
            for name in names
        }


@pytest.mark.parametrize("layout", [2, 3, 4, 5])
def test_a_store_of_each_earlier_layout_opens(tmp_path: Path, layout: int) -> None:
    path = tmp_path / "c.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((LAYOUTS / f"layout-{layout}.sql").read_text(encoding="utf-8"))
    with closing(SqliteStore(path)) as store:
        assert store.campaigns() == [StoredCampaign(C, {"name": "old"}, State.OPEN, 1, b"mac", 2)]
        states = [(r.number, r.state, r.start, r.tally, r.held) for r in store.rounds(C)]
        assert states == [(0, "closed", 0.0, b"to", False), (1, "open", 0.5, None, False)]
        assert everything(store) == [Row(b"\1", 1, b"\2"), Row(b"\3", 2, b"\1")]
        assert store.add_reports(
            [Batch(C, 1, [Row(b"\2", 0, b"\3"), *rows(1)], [b"\xaa", b"\xaa"])]
        ) == [[Outcome.DUPLICATE, Outcome.STORED]]
        store.audit.add("test")
        assert store.drafts.save(Draft("ef" * 16, "New", "2026-01-03", 1, {"title": "New"}))
        titles = [draft.title for draft in store.drafts.all()]
        assert titles == (["New", "A draft"] if layout >= 5 else ["New"])
    SqliteStore(tmp_path / "new.db").close()
    assert columns_of(path) == columns_of(tmp_path / "new.db")


def test_a_newer_version_does_not_migrate_under_a_running_older_one(
    request: pytest.FixtureRequest,
) -> None:
    url = request.getfixturevalue("cluster").fresh()
    older = PostgresStore(url)
    older.await_change(0.1)  # listens, as a running collector does
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE rounds DROP COLUMN closes, DROP COLUMN held")
        connection.execute("ALTER TABLE publications DROP COLUMN listed")
        connection.execute("DROP TABLE drafts")
        connection.execute("UPDATE facts SET value = '3' WHERE name = 'version'")
        with pytest.raises(InputError, match="layout 3, and a collector of an earlier version"):
            PostgresStore(url)
        version = connection.execute("SELECT value FROM facts WHERE name = 'version'").fetchone()
        assert version == ("3",)
    older.close()
    with closing(PostgresStore(url)) as store:
        assert store.campaigns() == []
