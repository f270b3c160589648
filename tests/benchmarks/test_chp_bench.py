"""The CHP benchmark at its smallest, on its generated table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import chp
from dither.lab.harness import Outcome, execute

pytestmark = pytest.mark.slow

TABLE = {"dataset": chp.GENERATED}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return execute(chp.bench("smoke"), tmp_path_factory.mktemp("chp"))


def test_without_salaries_the_table_is_generated_and_says_so(tmp_path: Path) -> None:
    assert chp.names(tmp_path) == (chp.GENERATED,)
    assert "GENERATED" in chp.GENERATED


def test_every_study_has_figures(outcome: Outcome) -> None:
    assert {row["study"] for row in outcome.summary} == {
        study.name for study in outcome.bench.studies
    }


@pytest.mark.parametrize("epsilon", [3.0, 15.0])
def test_one_report_beats_one_a_consumer(outcome: Outcome, epsilon: float) -> None:
    mse = {
        m: outcome.mean("figure4", "mse", epsilon=epsilon, method=m, **TABLE) for m in chp.METHODS
    }
    assert mse["chp, sue"] < mse["split, sue"]
    assert mse["smart"] <= mse["chp, best"]


def test_bits_are_those_of_the_union_and_of_the_bins(outcome: Outcome) -> None:
    given = {"consumers": 3}
    assert outcome.mean("figure6", "cells_of_union", method="chp, sue", **given) == 13
    assert outcome.mean("figure6", "bits", method="chp, sue", **given) == 13
    assert outcome.mean("figure6", "bits", method="split, sue", **given) == 3 + 5 + 7


def test_counts_add_up_to_the_people(outcome: Outcome) -> None:
    rows = [
        r
        for r in outcome.summary
        if r["study"] == "figures_1_to_3" and r["labels"]["consumer"] == "5 bins"
    ]
    assert sum(r["mean"] for r in rows if r["measure"] == "truth") == 13_683
    assert abs(sum(r["mean"] for r in rows if r["measure"] == "chp, sue") - 13_683) < 1_000


def test_intervals_mostly_hold(outcome: Outcome) -> None:
    for epsilon in (1.0, 3.0):
        # 20 collections of 15 bins that depend on each other: within four standard errors of as many free draws, twofold
        assert (
            0.85
            < outcome.mean("coverage", "coverage", epsilon=epsilon, method="chp, sue", **TABLE)
            <= 1
        )


def test_smart_promises_something_at_small_epsilon_only(outcome: Outcome) -> None:
    assert outcome.mean("smart_gain", "gain", epsilon=1.0) > 0.1
    assert outcome.mean("smart_gain", "gain", epsilon=3.0) < 0.01
