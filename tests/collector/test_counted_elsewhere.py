"""A round exported, counted elsewhere and closed with that tally: exactly what the store would have counted, or refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from collector_harness import (
    KEY,
    Caller,
    ServerThread,
    asked_tokens,
    envelope_of,
    plan_of,
    stored_tally,
)

from dither.cli import run
from dither.collector import Store
from dither.tally import zero
from dither.tally.counting import digest_of

Opening = Callable[[], Store]


class Operated:
    """A collector, a campaign of two rounds whose people have reported, and the operator's commands."""

    def __init__(self, store: Store, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.server = ServerThread(store)
        self.caller = Caller(self.server.url)
        self.folder, self.capsys = folder, capsys
        (folder / "key").write_text(KEY)
        self.where = ["--url", self.server.url, "--key-file", str(folder / "key")]

    def begin(self, split: bool) -> str:
        self.campaign = self.caller.create(
            method="synthetic", parameters={"rounds": 2, "split": split}
        )
        self.plan = plan_of(self.caller.announcement(self.campaign))
        self.tokens = asked_tokens(self.campaign, 0.0, self.plan, 90)
        self.send(60)
        return self.campaign

    def send(self, until: int) -> int:
        return self.caller.upload(
            self.campaign, envelope_of(self.campaign, self.plan, self.tokens[:until])
        ).status

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """Run a command; what it printed, or complained in one line."""
        at = self.where if arguments[0] == "campaign" else []
        assert run([*arguments, *at]) == status
        said = self.capsys.readouterr()
        if status:
            assert len(said.err.strip().splitlines()) == 1
            return said.err
        return said.out

    def export(self) -> str:
        return self(
            "campaign", "export", self.campaign, "--partitioned", "-o", str(self.folder / "out")
        )

    def count(self) -> dict[str, Any]:
        held = self.folder / "out" / f"campaign={self.campaign}" / "round=0"
        given = [str(held), "--plan", str(held / "plan.json"), "-o", str(self.folder / "tally.bin")]
        return dict(json.loads(self("tally", *given, "--json")))

    def close(self, *more: str, status: int = 0) -> str:
        return self("campaign", "close-round", self.campaign, *more, status=status)


@pytest.fixture
def operated(
    open_store: Opening, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Operated]:
    made = Operated(open_store(), tmp_path, capsys)
    yield made
    made.server.stop()


@pytest.mark.parametrize("split", [False, True], ids=["counts", "patterns"])
def test_a_round_held_exported_counted_and_closed_has_the_tally_that_the_store_would_give(
    operated: Operated, split: bool
) -> None:
    campaign = operated.begin(split)
    assert "60 of 60 reports" in operated.export()
    assert operated.send(90) == 201
    assert json.loads(operated.close("--hold", "--json"))["state"] == "closing"
    assert operated.send(90) == 503, "it takes no more"
    assert "30 of 90 reports" in operated.export()
    counted = operated.count()
    collector = operated.server.collector
    expected = stored_tally(collector, campaign)
    assert (counted["reports"], counted["participants"]) == (90, 90)
    assert (operated.folder / "tally.bin").read_bytes() == expected.to_bytes()
    rows = [row for page in collector.store.reports(campaign, 0) for row in page]
    assert (
        collector.store.digest(campaign, 0)
        == (90, digest_of(rows))
        == (90, int(counted["digest"], 16))
    )
    given = ("--round", "0", "--tally", str(operated.folder / "tally.bin"), "--json")
    closed = json.loads(operated.close(*given))
    assert (closed["state"], closed["round"]) == ("open", 1)
    assert collector.store.rounds(campaign)[0].tally == expected.to_bytes()
    assert json.loads(operated.close(*given))["round"] == 1, "safe to repeat"


def test_a_tally_of_other_reports_is_refused_and_the_round_keeps_waiting(
    operated: Operated,
) -> None:
    campaign = operated.begin(False)
    operated.export()
    operated.count()
    assert operated.send(61) == 201
    tally = str(operated.folder / "tally.bin")
    said = operated.close("--tally", tally, status=2)
    assert "counts 60 reports, round 0 holds 61" in said
    assert operated.caller.status(campaign)["state"] == "closing"
    assert operated.caller.admin("POST", f"/{campaign}/open", {}).status == 200
    assert operated.send(62) == 201, "or opened again"
    assert json.loads(operated.close("--hold", "--json"))["state"] == "closing"
    operated.export()
    operated.count()
    (operated.folder / "tally.bin").write_bytes((operated.folder / "tally.bin").read_bytes() + b"x")
    assert "another tally" in operated.close("--tally", tally, status=2)
    operated.count()
    beside = operated.folder / "tally.bin.counted.json"
    record = json.loads(beside.read_text())
    beside.write_text(json.dumps(record | {"digest": "00" * 32}))
    assert "62 reports, round 0 holds 62 other reports" in operated.close(
        "--tally", tally, status=2
    )
    beside.unlink()
    assert "needs tally.bin.counted.json in the same folder" in operated.close(
        "--tally", tally, status=2
    )
    beside.write_text(json.dumps(record))
    assert json.loads(operated.close("--tally", tally, "--json"))["round"] == 1


def test_the_tally_of_the_round_before_given_again_does_not_close_the_next_one(
    operated: Operated,
) -> None:
    campaign = operated.begin(False)
    operated.export()
    operated.count()
    tally = str(operated.folder / "tally.bin")
    assert json.loads(operated.close("--tally", tally, "--json"))["round"] == 1
    assert "of another plan; round 1 stays open" in operated.close("--tally", tally, status=2)
    standing = operated.caller.status(campaign)
    assert (standing["state"], standing["round"]) == ("open", 1)


def test_what_cannot_be_read_or_written_is_one_line_and_status_2(operated: Operated) -> None:
    operated.begin(False)
    operated.export()
    held = operated.folder / "out" / f"campaign={operated.campaign}" / "round=0"
    deep, pipe = operated.folder / "deep.json", operated.folder / "pipe"
    deep.write_text("[" * 100_000)
    os.mkfifo(pipe)
    assert "not JSON" in operated(
        "tally", str(held), "--plan", str(deep), "-o", str(pipe), status=2
    )
    for target in ("", str(pipe)):
        given = ("--plan", str(held / "plan.json"), "-o", target)
        assert "not a file" in operated("tally", str(held), *given, status=2)
        assert "not a file" in operated(
            "campaign", "export", operated.campaign, "-o", target, status=2
        )
    assert pipe.is_fifo()
    into = ("campaign", "export", operated.campaign, "--partitioned", "-o")
    assert "cannot write to" in operated(*into, str(deep), status=2)
    assert "name a file or a folder" in operated(*into, "", status=2)


def test_a_page_that_is_no_page_of_reports_is_said_to_be_none(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    operated.begin(False)
    monkeypatch.setattr("dither.cli.campaign.Operator.fetch", lambda *given, **more: b"<html>")
    given = (operated.campaign, "--partitioned", "-o", str(operated.folder / "out"))
    assert "did not send a page of reports; check --url" in operated(
        "campaign", "export", *given, status=2
    )
    assert not (operated.folder / "out").exists()


def test_bodies_that_are_no_tally_are_refused(operated: Operated) -> None:
    campaign = operated.begin(False)
    path = f"{operated.caller.path}/v1/admin/campaigns/{campaign}/rounds/0/tally"
    headers = {"authorization": f"Bearer {KEY}"}
    deep = b"dither-archive-1\n" + (100_000).to_bytes(8, "little") + b"[" * 100_000
    whole = zero(operated.plan).to_bytes()
    header = b'{"arrays":[["tally","|u1",[%d]]],"meta":{"reports":Infinity,"digest":"0"}}' % len(
        whole
    )
    endless = b"dither-archive-1\n" + len(header).to_bytes(8, "little") + header + whole
    for body in (b"", b"dither-archive-1\n", b"x" * (2 << 20), deep, endless):
        assert operated.caller.connection.request("POST", path, body, headers).status == 400
    assert operated.caller.connection.request("POST", path, b"x" * (2 << 20), {}).status == 401
    assert operated.caller.status(campaign)["state"] == "open"
    for query in ("?after=0", "?after=zz", f"?after={'0' * 66}", "?most=0", "?most=1000000"):
        at = f"{operated.caller.path}/v1/admin/campaigns/{campaign}/rounds/0/reports{query}"
        assert operated.caller.connection.request("GET", at, None, headers).status == 404
    assert "--hold" in operated.close("--hold", "--tally", "x", status=2)
