"""The collector's own copy of exported raw reports has no name in any folder: however an export ends, nothing of it stays."""

from __future__ import annotations

import io
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from collector_harness import (
    KEY,
    Caller,
    ServerProcess,
    ServerThread,
    envelope_of,
    plan_of,
    token_of,
    until,
)

from dither.client import Answer
from dither.collector import Batch, Row, SqliteStore, StoreUnavailable


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ServerThread]:
    served = ServerThread(SqliteStore(tmp_path / "c.db"))
    yield served
    served.stop()


def filled(running: ServerThread, people: int = 30) -> tuple[Caller, str]:
    caller = Caller(running.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    assert (
        caller.upload(
            campaign, envelope_of(campaign, plan, [token_of(i) for i in range(people)])
        ).status
        == 201
    )
    return caller, campaign


def export(caller: Caller, campaign: str, **headers: str) -> Answer:
    return caller.connection.request(
        "GET",
        f"/v1/admin/campaigns/{campaign}/rounds/0/reports",
        None,
        {"authorization": f"Bearer {KEY}", **headers},
    )


def open_files(folder: Path) -> list[str]:
    """Files of a folder that this process has open, with or without a name."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return found


@pytest.mark.parametrize(
    "asked", [None, "bytes=abc", "bytes=999999999-", "bytes=0-3", "bytes=-1", "bytes=5-2,1-0"]
)
def test_whatever_part_is_asked_for_all_of_it_is_sent_and_nothing_stays(
    running: ServerThread, scratch: Path, asked: str | None
) -> None:
    caller, campaign = filled(running)
    answer = export(caller, campaign, **({} if asked is None else {"range": asked}))
    assert (answer.status, answer.content_type) == (200, "application/vnd.apache.parquet")
    assert pq.read_table(io.BytesIO(answer.body)).num_rows == 30
    assert list(scratch.iterdir()) == []
    until(lambda: open_files(scratch) == [])


def test_at_no_time_has_it_a_name_even_if_it_fails(
    running: ServerThread, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, campaign = filled(running)
    original, seen = running.collector.store.reports, []

    def watched(*given: Any) -> Iterator[Any]:
        seen.append(list(scratch.iterdir()))
        yield from original(*given)
        seen.append(list(scratch.iterdir()))
        if len(seen) > 2:
            raise StoreUnavailable("gone in the middle")

    monkeypatch.setattr(running.collector.store, "reports", watched)
    assert export(caller, campaign).status == 200
    assert export(caller, campaign).status == 503
    assert seen == [[]] * 4
    assert list(scratch.iterdir()) == []
    until(lambda: open_files(scratch) == [])


@pytest.mark.slow
def test_a_reader_who_goes_away_leaves_nothing_open(running: ServerThread, scratch: Path) -> None:
    _, campaign = filled(running)
    large(running.collector.store, campaign)
    with begun(running.url, campaign) as reader:
        assert reader.recv(12) == b"HTTP/1.1 200"
        assert len(open_files(scratch)) == 1, "it is being sent"
    until(lambda: open_files(scratch) == [])
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_a_collector_that_ends_while_it_is_read(tmp_path: Path, end: str) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with ServerProcess(
        tmp_path / "c.db", before=f"import tempfile; tempfile.tempdir = {str(scratch)!r}"
    ) as server:
        caller = Caller(server.url)
        campaign = caller.create()
        caller.connection.close()
        assert server.terminate()[0] == 0
    store = SqliteStore(tmp_path / "c.db")
    large(store, campaign)
    store.close()
    with ServerProcess(
        tmp_path / "c.db", before=f"import tempfile; tempfile.tempdir = {str(scratch)!r}"
    ) as server:
        with begun(server.url, campaign) as reader:
            assert reader.recv(12) == b"HTTP/1.1 200"
            if end == "SIGKILL":
                server.kill()
            else:
                server.terminate()
        assert list(scratch.iterdir()) == []


def large(store: Any, campaign: str) -> None:
    """More than what is on its way between two sockets: 16 MiB that cannot be compressed."""
    for _ in range(4):
        rows = [Row(secrets.token_bytes(32), 0, secrets.token_bytes(1 << 14)) for _ in range(256)]
        store.add_reports([Batch(campaign, 0, rows)])


def begun(url: str, campaign: str) -> socket.socket:
    """An export asked for by somebody who hardly reads."""
    where = urlsplit(url)
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    reader.settimeout(30)
    reader.connect((where.hostname, where.port))
    reader.sendall(
        f"GET /v1/admin/campaigns/{campaign}/rounds/0/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()
    )
    return reader
