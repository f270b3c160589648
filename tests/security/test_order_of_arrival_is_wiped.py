"""After a round is closed no file tells who came first; if somebody's reading is in the way, that is said, kept and made good."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from collector_harness import (
    Caller,
    Cluster,
    ServerThread,
    envelope_of,
    plan_of,
    token_of,
)

from dither.collector import (
    Batch,
    Move,
    PostgresStore,
    Row,
    SqliteStore,
    State,
    Store,
    StoredCampaign,
    StoredRound,
    StoreUntidy,
    limits,
)

C = "ab" * 16
IDS = [token_of(i) for i in range(60)]


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody leaves in these tests while tidying waits; it need not wait long."""
    monkeypatch.setattr(limits, "READER_SECONDS", 0.3)


@pytest.fixture
def reader() -> Iterator[list[sqlite3.Connection]]:
    opened: list[sqlite3.Connection] = []
    yield opened
    for connection in opened:
        connection.close()


def look_into(path: Path) -> sqlite3.Connection:
    """Somebody else who has begun to read the file and not ended it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM reports").fetchone()
    return connection


def collected(store: Store, ids: list[bytes] = IDS) -> None:
    """A campaign whose reports came one by one, its round closing."""
    store.create_campaign(
        StoredCampaign(C, {}, State.OPEN, 0, b""), StoredRound(C, 0, "open", 0.0, {})
    )
    for i in ids:
        store.add_reports([Batch(C, 0, [Row(i, 0, b"xy")])])
    assert store.untidied(C) == set(), "an open round is not untidy"
    store.move(Move(C, State.OPEN, 0, State.CLOSING, 0, "closing"))


def places(path: Path) -> list[list[int]]:
    """Where in a file each id stands."""
    data = path.read_bytes()
    found = []
    for i in IDS:
        at, here = -1, []
        while (at := data.find(i, at + 1)) >= 0:
            here.append(at)
        found.append(here)
    return found


def assert_order_is_gone(path: Path, tmp_path: Path) -> None:
    """The files are those of the same reports in another order of arrival, as far as reports go."""
    other = tmp_path / "other.db"
    with closing(SqliteStore(other)) as store:
        collected(store, IDS[::-1])
        store.tidy(C, 0)
    assert all(len(here) == 1 for here in places(path))
    assert places(path) == places(other)
    wal = path.with_name(path.name + "-wal")
    assert not wal.exists() or wal.stat().st_size == 0


def test_tidying_leaves_nothing_of_the_order_in_the_file_or_the_log(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with closing(SqliteStore(path)) as store:
        collected(store)
        wal = places(tmp_path / "c.db-wal")
        assert [here[0] for here in wal] == sorted(here[0] for here in wal), (
            "before, the log is in the order of arrival"
        )
        store.tidy(C, 0)
        assert store.untidied(C) == set()
        assert_order_is_gone(path, tmp_path)


def test_a_reader_in_the_way_is_said_and_the_next_tidying_makes_it_good(
    tmp_path: Path, reader: list[sqlite3.Connection]
) -> None:
    path = tmp_path / "c.db"
    with closing(SqliteStore(path)) as store:
        collected(store)
        reader.append(look_into(path))
        for _ in range(2):
            with pytest.raises(StoreUntidy, match="reads the database"):
                store.tidy(C, 0)
            assert store.untidied(C) == {0}
        assert store.add_reports([Batch(C, 0, [Row(b"l" * 32, 0, b"xy")])]), (
            "others are not kept waiting"
        )
        reader.pop().close()
        store.tidy(C, 0)
        assert store.untidied(C) == set()
        assert_order_is_gone(path, tmp_path)


def test_what_was_left_untidy_is_made_good_when_the_store_is_opened_again(
    tmp_path: Path, reader: list[sqlite3.Connection], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.db"
    with closing(SqliteStore(path)) as store:
        collected(store)
        reader.append(look_into(path))
        with pytest.raises(StoreUntidy):
            store.tidy(C, 0)
    with closing(SqliteStore(path)) as store:
        assert store.untidied(C) == {0}, "the reader is still there"
        assert "order of arrival" in caplog.text
    reader.pop().close()
    with closing(SqliteStore(path)) as store:
        assert store.untidied(C) == set()
        assert_order_is_gone(path, tmp_path)


def test_a_crash_between_closing_and_tidying_leaves_it_to_be_done(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with closing(SqliteStore(path)) as store:
        collected(store)
        assert store.untidied(C) == {0}
        store.move(Move(C, State.CLOSING, 0, State.OPEN, 0, "open"))
        assert store.untidied(C) == set(), "it takes reports again"
        store.move(Move(C, State.OPEN, 0, State.CLOSING, 0, "closing"))
    with closing(SqliteStore(path)) as store:
        assert store.untidied(C) == set()
        assert_order_is_gone(path, tmp_path)


def test_the_status_and_the_log_of_a_campaign_say_so_until_finalising_makes_it_good(
    tmp_path: Path, reader: list[sqlite3.Connection], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.db"
    running = ServerThread(SqliteStore(path))
    caller = Caller(running.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    for i in range(60):
        assert caller.upload(campaign, envelope_of(campaign, plan, [token_of(i)])).status == 201
    assert caller.status(campaign)["rounds"][0]["untidied"] is False
    reader.append(look_into(path))
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200, (
        "closing goes on"
    )
    assert caller.status(campaign)["rounds"][0]["untidied"] is True
    assert f"round 0 of campaign {campaign} is not tidied" in caplog.text
    assert (tmp_path / "c.db-wal").stat().st_size > 0
    reader.pop().close()
    assert caller.admin("POST", f"/{campaign}/finalise", {"rows": 5}).status == 200
    assert caller.status(campaign)["rounds"][0]["untidied"] is False
    running.stop()


def test_our_own_reading_of_reports_does_not_stand_in_the_way(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "c.db")) as store:
        collected(store)
        pages = store.reports(C, 0, block=7)
        next(pages)
        store.tidy(C, 0)
        assert store.untidied(C) == set()
        assert sum(len(page) for page in pages) == 53


def test_postgresql_says_so_too_when_somebody_may_still_see_the_rows_as_they_came(
    cluster: Cluster,
) -> None:
    url = cluster.fresh()
    with closing(PostgresStore(url)) as store:
        collected(store)
        with psycopg.connect(url) as somebody:
            somebody.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            somebody.execute("SELECT count(*) FROM reports")
            with pytest.raises(StoreUntidy, match="reads the database"):
                store.tidy(C, 0)
            assert store.untidied(C) == {0}
    with closing(PostgresStore(url)) as store, psycopg.connect(url) as connection:
        assert store.untidied(C) == set()
        found = [
            bytes(r[0]) for r in connection.execute("SELECT report_id FROM reports ORDER BY ctid")
        ]
        assert found == sorted(IDS)


def index_entries(
    connection: psycopg.Connection[tuple[object, ...]],
) -> list[tuple[bytes, tuple[int, int]]]:
    """What the leaves of the reports' indexes hold, dead or alive: the entry's bytes and the row's place in its table.

    Read from each round's file, whose pages are: a header, in which bytes 12 to 13 tell the end of the line pointers; these,
    4 bytes each; entries; 16 bytes about the page.
    """
    connection.execute("CHECKPOINT")
    files = connection.execute(
        "SELECT pg_read_binary_file(pg_relation_filepath(inhrelid)) FROM pg_inherits WHERE inhparent = 'reports_pkey'::regclass"
    ).fetchall()
    return [entry for (data,) in files for entry in leaf_entries(bytes(data))]  # type: ignore[call-overload]


def leaf_entries(data: bytes) -> list[tuple[bytes, tuple[int, int]]]:
    entries = []
    for start in range(8192, len(data), 8192):  # the first page is about the index as a whole
        page = data[start : start + 8192]
        (flags,) = struct.unpack_from("<H", page, 8192 - 4)
        if flags & 0b101 != 0b001:  # a leaf that is not deleted
            continue
        for at in range(24, struct.unpack_from("<H", page, 12)[0], 4):
            (pointer,) = struct.unpack_from("<I", page, at)
            offset, length = pointer & 0x7FFF, pointer >> 17
            high, low, item, info = struct.unpack_from("<4H", page, offset)
            if info & 0x2000 and not item & 0x2000:
                continue  # a page's upper bound: an id without a place
            entries.append((page[offset + 8 : offset + length], (high << 16 | low, item)))
    return entries


@pytest.mark.slow
def test_postgresqls_index_of_a_small_round_beside_a_large_campaign_says_no_more_where_reports_stood(
    cluster: Cluster,
) -> None:
    url, other = cluster.fresh(), "cd" * 16
    superuser = psycopg.connect(cluster.superuser(url), autocommit=True)  # reads the server's files
    with closing(PostgresStore(url)) as store, superuser as connection:
        store.create_campaign(
            StoredCampaign(other, {}, State.OPEN, 0, b""), StoredRound(other, 0, "open", 0.0, {})
        )
        for start in range(0, 24_000, 4_000):
            store.add_reports(
                [
                    Batch(
                        other,
                        0,
                        [Row(token_of(i, "other"), 0, b"xy") for i in range(start, start + 4_000)],
                    )
                ]
            )
        collected(store)

        def entries() -> list[tuple[bytes, tuple[int, int]]]:
            return [
                (i, place) for held, place in index_entries(connection) for i in IDS if i in held
            ]

        assert [i for i, _ in sorted(entries(), key=lambda e: e[1])] == IDS, (
            "before, it tells the order of arrival"
        )
        store.tidy(C, 0)
        assert store.untidied(C) == set()
        left = entries()
        assert len(left) == len(IDS), "one entry per report, none of its earlier place"
        assert [i for i, _ in sorted(left, key=lambda e: e[1])] == sorted(IDS)
        assert len(index_entries(connection)) == 24_000 + len(IDS)
