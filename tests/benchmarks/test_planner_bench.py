"""The planner's check at its smallest."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import planner
from dither.lab.harness import NotAvailable, execute
from dither.methods import start

pytestmark = pytest.mark.slow


def test_predictions_are_near(tmp_path: Path, narrow_adult: Path) -> None:
    outcome = execute(planner.bench("smoke", narrow_adult), tmp_path)
    point = {"dataset": "Adult", "participants": 20_000, "epsilon": 8.0}
    for method in ("independent", "mixture"):
        found = {
            m: outcome.mean("ratios", m, method=method, **point)
            for m in ("ratio", "factor", "realised_2way")
        }
        assert 0.6 < found["ratio"] < 1.6
        assert found["factor"] == pytest.approx(max(found["ratio"], 1 / found["ratio"]))
        assert 0.01 < found["realised_2way"] < 0.2
    assert planner.worst_factor(outcome) == max(
        outcome.mean("ratios", "factor", method=m, **point) for m in ("independent", "mixture")
    )


def test_a_table_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotAvailable, match="NLTCS"):
        planner.compare("NLTCS", "independent", 1000, 1.0, 1, 1, tmp_path)


def test_a_collection_that_learns_nothing_is_not_near(
    monkeypatch: pytest.MonkeyPatch, narrow_adult: Path
) -> None:
    """With a hundredth of the epsilon in the real collection the ratio falls out of what the first test allows."""
    weaker = lambda name, schema, epsilon, *rest: start(name, schema, epsilon / 100, *rest)  # noqa: E731
    monkeypatch.setattr(planner, "start", weaker)
    found = planner.compare("Adult", "independent", 20_000, 8.0, 1, 1, narrow_adult)
    assert found["ratio"] < 0.6
