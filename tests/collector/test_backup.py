"""Stores are checked, backed up and restored, also while collectors use them."""

from __future__ import annotations

import secrets
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from collector_harness import (
    RECORD,
    Caller,
    ServerThread,
    envelope_of,
    plan_of,
    stored_tally,
    token_of,
)

from dither.client import Device, Participant, TakePartResult
from dither.collector import (
    Collector,
    PostgresStore,
    SqliteStore,
    Store,
    back_up,
    check_store,
    open_store,
    restore_store,
)
from dither.errors import InputError

Address = Callable[[], str]


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Make the address of a new store of a kind."""
    made = 0

    def make(kind: str) -> str:
        nonlocal made
        made += 1
        if kind == "postgres":
            return str(request.getfixturevalue("cluster").fresh())
        return str(tmp_path / f"store{made}.db")

    return make


def send(caller: Caller, campaign: str, first: int, count: int) -> int:
    body = envelope_of(
        campaign,
        plan_of(caller.announcement(campaign)),
        [token_of(i) for i in range(first, first + count)],
    )
    return caller.upload(campaign, body).status


def filled(address: str) -> tuple[ServerThread, Caller, str]:
    """Start a collector with a closed round of 40 reports and an open one of 7."""
    server = ServerThread(open_store(address))
    caller = Caller(server.url)
    campaign = caller.create(method="synthetic", assignment="arrival", participants=90_000)
    assert send(caller, campaign, 0, 40) == 201
    until_round(caller, campaign, 1)
    assert send(caller, campaign, 100, 7) == 201
    return server, caller, campaign


def until_round(caller: Caller, campaign: str, number: int) -> None:
    closed = caller.admin("POST", f"/{campaign}/close-round", {"round": number - 1})
    assert closed.status == 200, closed


def rows_of(store: Store, campaign: str, rounds: int = 2) -> list[Any]:
    return [
        [row for page in store.reports(campaign, number) for row in page]
        for number in range(rounds)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["sqlite", "postgres"])
@pytest.mark.parametrize("target", ["sqlite", "postgres"])
def test_a_drill_restores_what_was_acknowledged_before_the_backup(
    address: Callable[[str], str], tmp_path: Path, source: str, target: str
) -> None:
    at = address(source)
    server, caller, campaign = filled(at)
    ends = threading.Event()
    sent: list[int] = []

    def keep_sending() -> None:
        other = Caller(server.url)
        while not ends.is_set():
            assert send(other, campaign, 1000 + len(sent), 1) == 201
            sent.append(1)
        other.connection.close()

    sender = threading.Thread(target=keep_sending)
    sender.start()
    while len(sent) < 5:
        ends.wait(0.01)
    before = 47 + len(sent)
    backup = tmp_path / "backup.db"
    contents = back_up(at, backup)
    after = 47 + len(sent) + 1
    ends.set()
    sender.join()
    assert before <= contents.reports <= after
    assert check_store(at).problems == []
    assert check_store(str(backup)) == contents
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    original = rows_of(server.collector.store, campaign)
    caller.connection.close()
    server.stop()

    restored = address(target)
    assert restore_store(backup, restored) == contents
    assert check_store(restored).problems == []
    again = ServerThread(open_store(restored))
    caller = Caller(again.url)
    rows = rows_of(again.collector.store, campaign)
    assert rows[0] == original[0]
    assert set(rows[1]) <= set(original[1])
    # The devices that were lost send the same bytes again; the others are duplicates.
    for number in range(len(sent)):
        assert send(caller, campaign, 1000 + number, 1) in (200, 201)
    assert rows_of(again.collector.store, campaign) == original
    running = again.collector.running_tally(campaign).to_bytes()
    assert running == stored_tally(again.collector, campaign, 1).to_bytes()
    until_round(caller, campaign, 2)
    caller.create()
    with pytest.raises(InputError, match=r"exists|already"):
        restore_store(backup, restored)
    caller.connection.close()
    again.stop()
    assert check_store(restored).problems == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_devices_send_again_what_a_restored_store_has_lost(
    address: Callable[[str], str], tmp_path: Path, kind: str
) -> None:
    """The drill of docs/how-to/when-things-go-wrong.md, with devices that keep their books."""
    at = address(kind)
    server = ServerThread(open_store(at))
    caller = Caller(server.url)
    campaign = caller.create(participants=500, assignment="arrival")
    assert caller.announcement(campaign)["epoch"] == ""
    people = [Device(tmp_path / f"device{i}.db") for i in range(24)]
    drawn: list[int] = []

    def source(count: int) -> bytes:
        drawn.append(count)
        return secrets.token_bytes(count)

    def visit(url: str, device: Device) -> TakePartResult:
        taking = Participant(device, url, campaign, cap=9.0, source=source, moved=True, tries=1)
        return taking.take_part(RECORD)

    before = [visit(server.url, device) for device in people[:8]]
    backup = tmp_path / "backup.db"
    assert back_up(at, backup).reports == 8
    before += [visit(server.url, device) for device in people[8:16]]
    assert {taken.result for taken in before} == {"acknowledged"}
    original = rows_of(server.collector.store, campaign, 1)
    caller.connection.close()
    server.stop()

    restored = address(kind)
    assert restore_store(backup, restored).reports == 8
    again = ServerThread(open_store(restored))
    caller = Caller(again.url)
    epoch = caller.announcement(campaign)["epoch"]
    assert len(epoch) == 16
    asked = len(drawn)
    for _ in range(2):
        after = [visit(again.url, device) for device in people[:16]]
        assert after == before, "the same receipts, and nothing more is spent"
    assert len(drawn) == asked, "no second draw"
    assert rows_of(again.collector.store, campaign, 1) == original, "nothing is counted twice"
    assert [visit(again.url, device).result for device in people[16:]] == ["acknowledged"] * 8
    assert caller.status(campaign)["rounds"][0]["reports"] == 24
    again.collector.store.begin_epoch()
    assert again.collector.campaigns.refresh(campaign).public.count(epoch.encode()) == 0
    caller.connection.close()
    again.stop()
    for device in people:
        device.close()
    other = tmp_path / "other.db"
    restore_store(backup, str(other))
    store = SqliteStore(other)
    assert store.epoch() not in ("", epoch), "every restore has a name of its own"
    store.close()


def test_a_check_finds_a_lost_report_and_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    server, caller, _ = filled(str(path))
    caller.connection.close()
    server.stop()
    assert check_store(str(path)).problems == []
    driver = sqlite3.connect(path)
    with driver:
        first = "SELECT min(report_id) FROM reports WHERE round_key = 1"
        driver.execute(f"DELETE FROM reports WHERE report_id = ({first})")
        driver.execute("UPDATE rounds SET state = 'closing' WHERE number = 1")
    driver.close()
    problems = check_store(str(path)).problems
    assert len(problems) == 2
    assert "is closing, not open" in problems[0]
    assert "differs from its reports" in problems[1]
    damaged = tmp_path / "damaged.db"
    content = bytearray(path.read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 64] = b"\xff" * 64
    damaged.write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged|layout"):
        check_store(str(damaged))


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    absent, other = tmp_path / "absent.db", tmp_path / "other.db"
    other.write_bytes(b"no database")
    for path, why in ((absent, "cannot read"), (other, "is not an SQLite file")):
        with pytest.raises(InputError, match=why):
            check_store(str(path))
        with pytest.raises(InputError, match=why):
            back_up(str(path), tmp_path / "new.db")
    assert [path.name for path in tmp_path.iterdir()] == ["other.db"]


def test_a_plain_copy_of_a_running_store_is_detected(tmp_path: Path) -> None:
    path, copy = tmp_path / "c.db", tmp_path / "copy.db"
    server, caller, campaign = filled(str(path))
    shutil.copy(path, copy)
    with pytest.raises(InputError, match="plain copy"):
        SqliteStore(copy)
    with pytest.raises(InputError, match="plain copy"):
        back_up(str(copy), tmp_path / "b.db")
    with pytest.raises(InputError, match="plain copy"):
        restore_store(copy, str(tmp_path / "r.db"))
    contents = restore_store(copy, str(tmp_path / "accepted.db"), plain_copy=True)
    assert contents.reports < 47, "what was only in the log is lost"
    SqliteStore(tmp_path / "accepted.db").close()
    caller.connection.close()
    server.stop()

    shutil.copy(path, tmp_path / "stopped.db")
    stopped = SqliteStore(tmp_path / "stopped.db")
    assert stopped.count(campaign, 0) == 40
    stopped.close()


def test_a_store_of_a_killed_collector_opens(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    first = SqliteStore(path)
    Collector(first).stop()
    driver = sqlite3.connect(path)
    with driver:  # as after a kill
        driver.execute("INSERT INTO facts VALUES ('running', ?)", (str(path.stat().st_ino),))
    driver.close()
    SqliteStore(path).close()


def test_a_database_with_campaigns_is_not_overwritten(cluster: Any, tmp_path: Path) -> None:
    server, caller, _ = filled(str(tmp_path / "c.db"))
    back_up(str(tmp_path / "c.db"), tmp_path / "b.db")
    caller.connection.close()
    server.stop()
    url = cluster.fresh()
    restore_store(tmp_path / "b.db", url)
    with pytest.raises(InputError, match="holds campaigns already"):
        restore_store(tmp_path / "b.db", url)
    store = PostgresStore(url)
    assert store.audit.entries()[0].what == "restore"
    store.close()
