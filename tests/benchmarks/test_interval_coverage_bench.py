"""The coverage of intervals at its smallest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import interval_coverage
from benchmarks.harness import execute

pytestmark = pytest.mark.slow


def test_intervals_hold_and_half_as_wide_ones_do_not(tmp_path: Path) -> None:
    outcome = execute(interval_coverage.bench("smoke"), tmp_path)
    rows = {(r["labels"]["method"], r["measure"]): r["mean"] for r in outcome.summary}
    assert len(rows) == 2 * 10
    for method in ("mixture", "independent"):
        # Eighteen one-way cells of two populations: a rate of 95 % has a standard error of 5 points.
        assert rows[method, "coverage_1way"] > 0.75
        assert rows[method, "coverage_3way"] > 0.75
        assert rows[method, "half_the_error_3way"] < rows[method, "coverage_3way"]
    assert rows["independent", "cautions"] == pytest.approx(4 / 7)  # the intervals of two and three of three attributes
    assert {r["labels"]["population"] for r in outcome.summary} == {s.name for s in interval_coverage.SMOKE}


def test_hits_are_counted_over_all_populations(monkeypatch: pytest.MonkeyPatch) -> None:
    def cover(setting: object, seed: int, replicates: int) -> tuple[dict[int, dict[str, np.ndarray]], float]:
        sums = np.array([9.0, 10.0]) if seed else np.array([30.0, 30.0])
        return {ways: dict.fromkeys(("cells", "frequency", "half"), sums) for ways in (1, 2, 3)}, 0.5 * seed

    monkeypatch.setattr(interval_coverage, "cover", cover)
    row = interval_coverage.coverage(interval_coverage.SMOKE[0].key, 2, 5)
    assert row["coverage_2way"] == 39 / 40
    assert row["cautions"] == 0.25
