"""Readers who download slowly take the slots for downloads, and nothing from uploads."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from collector_harness import (
    KEY,
    SCHEMA,
    Caller,
    ServerThread,
    answers_of,
    envelope_of,
    plan_of,
    token_of,
    until,
)

from dither.client import Answer
from dither.collector import SqliteStore, limits

pytestmark = pytest.mark.slow
ROWS = 600_000  # about 12 MB of CSV, more than the buffers between two sockets hold


class Published:
    """A collector with a published release and an open campaign."""

    def __init__(self, folder: Path) -> None:
        self.server = ServerThread(SqliteStore(folder / "collector.db"))
        self.caller = Caller(self.server.url, 120.0)
        self.campaign = self.caller.create()
        plan = plan_of(self.caller.announcement(self.campaign))
        assert (
            self.caller.upload(self.campaign, answers_of(self.campaign, plan, SCHEMA, 300)).status
            == 201
        )
        steps = (
            ("close-round", {"round": 0}),
            ("finalise", {"rows": ROWS}),
            ("publish-release", {}),
        )
        for step, body in steps:
            assert self.caller.admin("POST", f"/{self.campaign}/{step}", body).status == 200
        self.open = self.caller.create()
        self.plan = plan_of(self.caller.announcement(self.open))

    def get(self, name: str, key: str = "") -> Answer:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return self.caller.connection.request(
            "GET", f"/v1/releases/{self.campaign}/{name}", None, headers
        )

    def slow_reader(self, name: str) -> socket.socket:
        """Asks for a file, reads the status of the answer and no more."""
        host, _, port = urlsplit(self.server.url).netloc.partition(":")
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.settimeout(120)
        reader.connect((host, int(port)))
        reader.sendall(
            f"GET /v1/releases/{self.campaign}/{name} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
        )
        assert reader.recv(12) == b"HTTP/1.1 200"
        return reader


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    made = Published(tmp_path_factory.mktemp("downloads"))
    yield made
    made.caller.connection.close()
    made.server.stop()


def test_slow_readers_take_no_uploads_and_others_hear_429(published: Published) -> None:
    with ExitStack() as stack:
        for _ in range(limits.MAX_DOWNLOADS):
            stack.enter_context(published.slow_reader("synthetic.csv"))
        for name in ("synthetic.csv", "synthetic.parquet", "folder.zip"):
            for key in ("", KEY):
                refused = published.get(name, key)
                assert refused.status == 429, refused
                assert json.loads(refused.body)["type"] == "urn:dither:problem:too-many-downloads"
                assert refused.retry_after
        for i in range(20):
            sent = envelope_of(published.open, published.plan, [token_of(i)])
            assert published.caller.upload(published.open, sent).status == 201
        assert published.get("query?where=member").status == 200, "questions are answered too"
    until(lambda: published.get("folder.zip").status == 200)


def test_a_download_that_was_read_gives_its_slot_back(published: Published) -> None:
    for _ in range(limits.MAX_DOWNLOADS + 2):
        answer = published.get("synthetic.parquet")
        assert answer.status == 200
        assert answer.body.startswith(b"PAR1")


def test_a_download_that_fails_gives_its_slot_back(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    publications = published.server.collector.publications
    with monkeypatch.context() as patched:
        patched.setattr(publications, "file", lambda found, name: None)
        for _ in range(limits.MAX_DOWNLOADS + 2):
            assert published.get("synthetic.parquet").status == 404
    assert published.get("synthetic.parquet").status == 200
