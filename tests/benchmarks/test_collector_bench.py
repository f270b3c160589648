"""The load on a collector at its smallest: a real server on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks import collector
from dither.lab.harness import NotAvailable, execute

pytestmark = pytest.mark.slow


def test_every_line_has_a_rate(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    outcome = execute(collector.bench("smoke"), tmp_path)
    rates = {
        r["labels"]["what"]: r["mean"]
        for r in outcome.summary
        if r["measure"] == "reports_per_second"
    }
    assert len(rates) == 5
    assert min(rates.values()) > 0
    share = outcome.mean("load", "of_empty_endpoint", what="single reports")
    assert share == pytest.approx(rates["single reports"] / rates["empty endpoint"])


def test_streams_hear_of_the_reports_and_the_ratio_is_of_the_two_rates() -> None:
    pytest.importorskip("fastapi")
    found = collector.consoles_load(20, 0.6)
    assert found["events"] >= 20
    assert found["ratio"] == found["reports_per_second_watched"] / found["reports_per_second_alone"]
    assert found["ratio"] > 0.3  # on whatever machine, together with other tests


def test_a_load_goes_on_until_something_counted() -> None:
    """No time after the warm-up, or every prepared request taken within it: both had no rate at all before."""

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()

    async def loaded() -> dict[str, float]:
        async with await asyncio.start_server(answers, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await collector._load(
                f"http://127.0.0.1:{port}", collector._empty_requests(), 1, 0.0
            )

    assert asyncio.run(loaded())["reports_per_second"] > 0


def test_missing_packages_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "find_spec", lambda name: None)
    with pytest.raises(NotAvailable, match=r"dither\[server\]"):
        collector.load("sqlite", 0.1)
