"""The coverage of intervals at its smallest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import interval_coverage, interval_kinds
from dither.lab.harness import execute

pytestmark = pytest.mark.slow


def test_intervals_hold_and_half_as_wide_ones_do_not(tmp_path: Path) -> None:
    outcome = execute(interval_coverage.bench("smoke"), tmp_path)
    generated = [r for r in outcome.summary if r["study"] == "coverage"]
    rows = {(r["labels"]["method"], r["measure"]): r["mean"] for r in generated}
    # Eighteen one-way cells of two populations: a rate of 95 % has a standard error of 5 points.
    for method in ("mixture", "independent"):
        assert rows[method, "coverage_1way"] > 0.75
        assert rows[method, "half_the_error_1way"] <= rows[method, "coverage_1way"]
    assert rows["mixture", "coverage_3way"] > 0.75
    assert rows["mixture", "half_the_error_3way"] < rows["mixture", "coverage_3way"]
    assert ("independent", "coverage_3way") not in rows, "no interval can be had"
    assert rows["independent", "cautions"] == pytest.approx(
        4 / 7
    )  # those of two and three of three attributes
    assert {r["labels"]["population"] for r in generated} == {
        s.name for s in interval_coverage.SMOKE
    }
    real = {r["measure"]: r["mean"] for r in outcome.summary if r["study"] == "tables"}
    assert real["range"] > 0.5  # single attributes have intervals, several have none
    assert 0.5 < real["without_interval"] < 1


def test_questions_are_those_of_the_table() -> None:
    """The truth of each kind of question, counted row by row."""
    truth = interval_coverage.population("Adult")
    rng = np.random.default_rng(3)
    for kind in interval_coverage.KINDS:
        asked = list(interval_coverage.ask(truth, kind, rng, 20))
        assert len(asked) == 20
        for names, groups in asked:
            inside = np.ones(len(truth.codes), dtype=bool)
            for name, group in zip(names, groups, strict=True):
                inside &= group[truth.codes[:, truth.schema.index(name)]] == group.max()
            table = interval_coverage.add_up(truth.marginal(names), groups)
            assert table[tuple(-1 for _ in names)] == pytest.approx(inside.mean())


def test_hits_are_counted_over_all_populations(monkeypatch: pytest.MonkeyPatch) -> None:
    def cover(
        setting: object, seed: int, replicates: int
    ) -> tuple[dict[int, dict[str, np.ndarray]], float]:
        sums = np.array([9.0, 10.0]) if seed else np.array([30.0, 30.0])
        return {
            ways: dict.fromkeys(("cells", "frequency", "half"), sums) for ways in (1, 2, 3)
        }, 0.5 * seed

    monkeypatch.setattr(interval_coverage, "cover", cover)
    row = interval_coverage.coverage(interval_coverage.SMOKE[0].key, 2, 5)
    assert row["coverage_2way"] == 39 / 40
    assert row["cautions"] == 0.25


def test_every_kind_of_question_is_measured(tmp_path: Path) -> None:
    outcome = execute(interval_kinds.bench("smoke"), tmp_path)
    rows = {r["labels"]["kind"]: r["mean"] for r in outcome.summary if r["measure"] == "coverage"}
    trend = [kind for kind in interval_kinds.MODELLED if "trend" in kind]
    assert len(rows) == 7 + len(trend)
    assert rows["ranges of whole numbers"] > 0.8
    assert rows["mean of heaped bins"] == 1.0
