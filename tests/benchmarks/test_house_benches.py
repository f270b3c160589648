"""The smallest size of the default method's and PrivIncr's benchmarks: every line there, and in the order that must hold."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import limit, mixture, privincr, privincr_rivals
from benchmarks.tables import PRODUCT
from dither.lab.harness import Outcome, execute

pytestmark = pytest.mark.slow


def run(module: object, out: Path, data: Path | None = None) -> Outcome:
    return execute(module.bench("smoke", data), out, show=lambda text: None)  # type: ignore[attr-defined]


def test_mixture(tmp_path: Path, narrow_adult: Path) -> None:
    outcome = run(mixture, tmp_path, narrow_adult)
    found = {
        m: outcome.mean("errors", "tvd_2", method=m) for m in ("mixture", "independent", PRODUCT)
    }
    # 20,000 people at epsilon 8: dependence can just be learnt, and independence cannot beat exact marginals.
    assert found["mixture"] < found["independent"]
    assert found[PRODUCT] < found["independent"] < 3 * found[PRODUCT]
    assert outcome.mean("errors", "tvd_3", method="mixture") > found["mixture"]
    assert 50 < outcome.mean("cost", "peak_megabytes") < 4_000


def test_limit(tmp_path: Path, narrow_adult: Path) -> None:
    outcome = run(limit, tmp_path, narrow_adult)
    assert {row["study"] for row in outcome.summary} == {"priors", "small_campaigns", "forecasts"}
    for study in ("priors", "small_campaigns"):
        assert outcome.mean(study, "ratio_2", table_is="right") < 0.8
        assert outcome.mean(study, "ratio_2", table_is="wrong") < 1.01
    assert 0.5 < outcome.mean("forecasts", "ratio") < 2.0  # of one campaign


def test_privincr(tmp_path: Path) -> None:
    outcome = run(privincr, tmp_path)
    assert {row["study"] for row in outcome.summary} == {
        "table_2",
        "figure_3",
        "figure_4",
        "figure_6",
    }
    assert all(math.isfinite(row["mean"]) and row["mean"] >= 0 for row in outcome.summary)
    product = outcome.mean("table_2", "tvd_2", method=PRODUCT)
    for method in ("privincr", "noincremental", "calm", "independent"):
        errors = [outcome.mean("table_2", f"tvd_{k}", method=method) for k in (2, 3, 4)]
        assert errors == sorted(errors)
        assert product / 5 < errors[0] < 0.5
    # With two attributes and epsilon 8 every estimator sees the pair better than independence does.
    for rival in ("voue", "oue+em"):
        assert outcome.mean("figure_3", "tvd", method=rival) < 0.5
    guess, real = (
        outcome.mean("figure_6", "accuracy", method=m, target="income")
        for m in ("most frequent value", "real rows, no privacy")
    )
    assert guess <= real + 0.03


def test_privincr_rivals(tmp_path: Path) -> None:
    outcome = run(privincr_rivals, tmp_path)
    own, calm = (outcome.mean("rivals", name) for name in ("privincr", "calm"))
    assert 0 < own < 0.5
    assert outcome.mean("rivals", "over_calm") == pytest.approx(own / calm)


def test_an_unknown_benchmark_and_a_stored_quick_run_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from dither.cli import run as command

    assert command(["bench", "nosuch"]) == 2
    assert "no benchmark 'nosuch'" in capsys.readouterr().err
    assert command(["bench", "mixture", "--quick", "--store"]) == 2
    assert "--quick" in capsys.readouterr().err
    assert command(["bench", "mixture", "--data", "no-such-folder"]) == 2
    assert "no-such-folder" in capsys.readouterr().err
