"""The load on a collector at its smallest: a real server on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import collector
from benchmarks.harness import NotAvailable, execute

pytestmark = pytest.mark.slow


def test_every_line_has_a_rate(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    outcome = execute(collector.bench("smoke"), tmp_path)
    rates = {r["labels"]["what"]: r["mean"] for r in outcome.summary if r["measure"] == "reports_per_second"}
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


def test_missing_packages_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "find_spec", lambda name: None)
    with pytest.raises(NotAvailable, match=r"dither\[server\]"):
        collector.load("sqlite", 0.1)
