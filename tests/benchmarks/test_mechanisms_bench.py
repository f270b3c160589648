"""The comparison of frequency mechanisms at its smallest."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import mechanisms
from dither.lab.harness import NotAvailable, execute

pytestmark = pytest.mark.slow


def test_ours_always_and_peers_where_they_are(tmp_path: Path) -> None:
    outcome = execute(mechanisms.bench("smoke"), tmp_path)
    measured = {row["labels"]["library"] for row in outcome.summary}
    missing = {note.split(": ")[1] for note in outcome.notes}
    assert measured | missing == set(mechanisms.RUNNERS)
    assert missing <= {"multi-freq-ldpy", "pure-ldp"}
    assert all("pip install 'dither[bench]'" in note and "\n" not in note for note in outcome.notes)
    cost = {
        name: outcome.mean("cost", "microseconds_per_person", library=name) for name in measured
    }
    for name in measured:
        assert outcome.mean("cost", "times_dither", library=name) == pytest.approx(
            cost[name] / cost["dither"]
        )


def test_the_grid_has_what_was_declared_and_nothing_else() -> None:
    (study,) = mechanisms.bench("full").studies
    points = [((p["mechanism"], p["cells"]), p["library"]) for p in study.points()]
    assert sorted(points) == sorted(
        (case, library) for case, people in mechanisms.PEOPLE.items() for library in people
    )


def test_ratios_compare_people_not_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that takes as long for a fifth of the people is five times as slow."""

    def run_isolated(work: object, library: str, name: str, n: int, cells: int) -> dict[str, float]:
        if library == "multi-freq-ldpy":
            raise NotAvailable("multi_freq_ldpy is not installed")
        return {"client_seconds": 1.0, "server_seconds": 1.0, "peak_extra_mb": 1.0}

    monkeypatch.setattr(mechanisms, "run_isolated", run_isolated)
    mechanisms._dither.cache_clear()
    row = mechanisms.compared("oue", 256, "pure-ldp")
    assert row["times_dither"] == pytest.approx(5)
    assert row["server_times_dither"] == pytest.approx(5)
    with pytest.raises(NotAvailable, match=r"multi-freq-ldpy: .*dither\[bench\]"):
        mechanisms.compared("oue", 256, "multi-freq-ldpy")
    mechanisms._dither.cache_clear()
