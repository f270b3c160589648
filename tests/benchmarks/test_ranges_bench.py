"""The ranges benchmark at its smallest, on its generated table, and its rivals against what they promise."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import ranges
from benchmarks.chp import GENERATED
from benchmarks.range_rivals import ahead, divide, hdg, hierarchy
from dither.lab.harness import Outcome, execute

COUNTS = (1000 * np.exp(-np.arange(64) / 9)).astype(np.int64)
RIVALS = pytest.mark.parametrize("rival", [ahead, hierarchy])


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return execute(ranges.bench("smoke"), tmp_path_factory.mktemp("ranges"))


@pytest.mark.slow
def test_every_study_has_figures(outcome: Outcome) -> None:
    assert {row["study"] for row in outcome.summary} == {
        study.name for study in outcome.bench.studies
    }
    given = {"dataset": GENERATED, "epsilon": 1.0}
    ours = outcome.mean("range_errors", "mse", method="ranges", **given)
    assert ours < outcome.mean("range_errors", "mse", method="hierarchy", **given)
    assert outcome.mean("several_values", "mse", strategy="one") < outcome.mean(
        "several_values", "mse", strategy="summed"
    )


def test_the_paper_s_two_strategies_are_run_apart_and_err_alike() -> None:
    """Each makes its own reports. Their errors have one law, so they differ, but by chance: the mean of 6 runs of 5 squares each
    has a standard deviation of about sqrt(2/30) of itself."""
    runs = {strategy: ranges.several(strategy, 6) for strategy in ("independent", "summed")}
    errors = {strategy: np.array([row["mse"] for row in rows]) for strategy, rows in runs.items()}
    assert not (errors["independent"] == errors["summed"]).any()
    assert abs(np.log(errors["independent"].mean() / errors["summed"].mean())) < 4 * np.sqrt(
        2 * 2 / 30
    )
    assert {strategy: rows[0]["bits"] for strategy, rows in runs.items()} == {
        "independent": 18,
        "summed": 12,
    }


@RIVALS
def test_a_rival_with_hardly_any_noise_finds_the_shares(rival: object) -> None:
    """Everybody at epsilon 12: what is left is who was put into which group, and AHEAD's leaves."""
    found = rival(COUNTS, 12.0, np.random.default_rng(1))  # type: ignore[operator]
    assert found.sum() == pytest.approx(1, abs=1e-3)
    away = np.abs(np.cumsum(found) - np.cumsum(COUNTS) / COUNTS.sum())
    assert away.max() < 0.03
    coarse = rival(COUNTS, 0.5, np.random.default_rng(1))  # type: ignore[operator]
    assert np.abs(np.cumsum(coarse) - np.cumsum(COUNTS) / COUNTS.sum()).max() > away.max()


def test_hdg_with_hardly_any_noise_finds_the_marginals() -> None:
    counts = np.outer(COUNTS, COUNTS[::-1]) // 2000
    found = hdg(counts, 12.0, np.random.default_rng(1))
    assert found.sum() == pytest.approx(1)
    rows = np.cumsum(found.sum(axis=1)) - np.cumsum(counts.sum(axis=1)) / counts.sum()
    assert np.abs(rows).max() < 0.03


def test_people_are_divided_without_loss() -> None:
    groups = divide(COUNTS, 5, np.random.default_rng(1))
    assert np.array_equal(sum(groups), COUNTS)
    assert max(g.sum() for g in groups) - min(g.sum() for g in groups) <= 1
