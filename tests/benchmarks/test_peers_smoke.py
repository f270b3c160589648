"""`bench peers` at its smallest: our own lines always, the others where they are installed, and a note for each that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers import bench, environments, frequency, synthesisers
from dither.lab.harness import Outcome, execute

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("peers")
    done = execute(bench("smoke"), folder, show=lambda text: None)
    assert {"index.html", "rows.parquet", "summary.parquet"} <= {p.name for p in folder.iterdir()}
    return done


def _measured(outcome: Outcome, study: str, label: str) -> set[str]:
    return {row["labels"][label] for row in outcome.summary if row["study"] == study}


def test_every_library_has_a_line_or_a_note(outcome: Outcome) -> None:
    measured = _measured(outcome, "frequency", "library")
    assert {"dither", "dither, one by one"} <= measured
    for library in frequency.LIBRARIES:
        if library not in measured:
            assert any(library in note for note in outcome.notes), library


def test_our_own_lines(outcome: Outcome) -> None:
    assert outcome.mean("frequency", "both_x_dither", library="dither") == 1
    for library in ("dither", "dither, one by one"):
        # 32 cells in all: a ratio outside of this has a chance below one in a million.
        assert 0.1 < outcome.mean("frequency", "mse_over_theory", library=library) < 3.5
        assert outcome.mean("frequency", "client_us_per_report", library=library) > 0
        assert outcome.mean("frequency", "report_bytes", library=library) == 1
    assert outcome.mean("frequency", "client_x_dither", library="dither, one by one") > 1


def test_peers_that_are_here_estimate_rightly(outcome: Outcome) -> None:
    others = _measured(outcome, "frequency", "library") - {"dither", "dither, one by one"}
    for library in others:
        assert 0.1 < outcome.mean("frequency", "mse_over_theory", library=library) < 3.5
        assert outcome.mean("frequency", "both_x_dither", library=library) > 0


def test_synthesisers_are_measured_or_excused(outcome: Outcome) -> None:
    measured = _measured(outcome, "synthesisers", "method")
    assert {"dither mixture", synthesisers.PRODUCT, synthesisers.RESAMPLED} <= measured
    for method in synthesisers.CENTRAL_METHODS:
        assert any(method in note for note in outcome.notes)
    floor = outcome.mean("synthesisers", "tvd_2", method=synthesisers.RESAMPLED)
    assert 0 < floor < outcome.mean("synthesisers", "tvd_2", method=synthesisers.PRODUCT) < 1
    assert floor < outcome.mean("synthesisers", "tvd_3", method="dither mixture") < 1
    assert outcome.mean("synthesisers", "fit_cpu_s", method="dither mixture") > 0


def test_defects_are_shown_or_their_library_is_named(outcome: Outcome) -> None:
    shown = [row["labels"]["shown"] for row in outcome.summary if row["study"] == "defects"]
    assert set(shown) <= {"yes"}
    assert shown or any("pure_ldp" in note for note in outcome.notes)


def test_a_missing_library_is_told_apart_from_a_broken_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from dither.lab.harness import NotAvailable

    monkeypatch.setattr(frequency, "MODULES", {"pure-ldp": "no_such_library"})
    with pytest.raises(
        NotAvailable, match="pure-ldp is not installed here; the extra `bench` has it"
    ):
        frequency.measure("pure-ldp", "grr", 500, 8, 1.0, 0)
    monkeypatch.setenv("DITHER_PEERS", str(tmp_path))
    with pytest.raises(NotAvailable, match="environment for diffprivlib"):
        frequency.measure("diffprivlib", "grr", 500, 8, 1.0, 0, build=False)
    assert not (environments.folder() / "venv-diffprivlib").exists()
