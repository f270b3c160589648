"""Regression, several synthetic tables with their combination, and raking."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dither
from benchmarks.regression import FORMULA, fitted, generated
from dither.release import inference


def _release(family: str = "binomial", people: int = 60_000, **options):
    table, schema, _, truth = generated(family, people, options.get("seed", 3))
    given = {"epsilon": 8.0, "seed": 3, "method": "calm", "rows": 400, "replicates": 5, **options}
    return dither.publish(table, schema=schema, **given), truth


@pytest.fixture(scope="module")
def release():
    return _release()[0]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_coefficients_are_near_the_truth(family: str) -> None:
    release, truth = _release(family)
    found = release.regress(FORMULA, family).coefficients.set_index("name")
    assert list(found.index) == list(truth.index)
    errors = (found["estimate"] - truth) / found["standard_error"]
    assert np.abs(errors).max() < 4
    assert (found["standard_error"] < 0.5).all()


def _coverage(seeds: range) -> float:
    held = []
    for seed in seeds:
        release, truth = _release(people=20_000, epsilon=2.0, seed=seed)
        found = release.regress(FORMULA, "binomial").coefficients.set_index("name")
        held += list((found["low"] <= truth) & (truth <= found["high"]))
    return float(np.mean(held))


@pytest.mark.slow
def test_intervals_hold_and_those_of_the_model_alone_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """60 coefficients of 12 collections: 0.83 is four standard deviations below 0.95."""
    assert _coverage(range(12)) > 0.83
    monkeypatch.setattr(inference._Sums, "parts", lambda self, functions: {})
    assert _coverage(range(12)) < 0.83


def test_regression_reads_formulas_as_statsmodels(release) -> None:
    found = release.regress("y ~ x + C(g, Treatment('b')) + f:x", "binomial")
    rows = release.synthetic.assign(y=lambda t: t["y"] == 1)
    names = fitted("y ~ x + C(g, Treatment('b')) + f:x", "binomial", rows).params.index
    assert list(found.coefficients["name"]) == list(names)
    assert found.covariance.shape == (len(names),) * 2
    assert "family='binomial'" in repr(found)


@pytest.mark.parametrize(
    ("formula", "family", "words"),
    [
        ("y + x", "gaussian", "no attribute on its left"),
        ("~ x", "gaussian", "no attribute on its left"),
        ("y ~ x +", "gaussian", "cannot be read"),
        ("y ~ age", "gaussian", "'age'; the release has y, x, g, f, z"),
        ("g ~ x", "gaussian", "3 categories"),
        ("x ~ g", "binomial", "two values"),
        ("I(y - 1) ~ x", "poisson", "count"),
        ("y ~ x + I(2 * x)", "gaussian", "not determined"),
        ("y ~ x", "gamma", "family"),
    ],
)
def test_what_cannot_be_regressed_is_refused_in_one_line(release, formula, family, words) -> None:
    with pytest.raises(dither.DitherError, match=words) as found:
        release.regress(formula, family)
    assert "\n" not in str(found.value)


def test_attributes_that_were_not_asked_together_are_refused() -> None:
    release = _release(people=2000, method="independent")[0]
    with pytest.raises(dither.DitherError, match="y and x were never asked together"):
        release.regress("y ~ x")


def test_tables_come_from_different_replicates_and_repeat_with_their_seed(release) -> None:
    first, second = release.tables(2, seed=1)
    assert len(first) == 400
    assert list(first.columns) == list(release.synthetic.columns)
    assert not first.equals(second)
    assert release.tables(2, seed=1)[0].equals(first)
    with pytest.raises(dither.DitherError, match="count"):
        release.tables(6)


def test_several_tables_are_saved_and_replaced(release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "out", tables=3)
    names = sorted(path.name for path in folder.glob("synthetic-*"))
    assert names == ["synthetic-01.parquet", "synthetic-02.parquet", "synthetic-03.parquet"]
    assert len(pd.read_parquet(folder / names[0])) == 400
    release.save(folder, overwrite=True)
    assert not list(folder.glob("synthetic-*"))
    assert dither.load_release(folder).rows == 400


def test_combining_follows_the_rule_of_raghunathan_reiter_and_rubin() -> None:
    found = dither.combine([1.0, 2.0, 4.0], [0.5, 0.5, 1.0])
    between, within = np.var([1, 2, 4], ddof=1), 0.5
    assert found.estimate == pytest.approx(7 / 3)
    assert found.standard_error**2 == pytest.approx(4 / 3 * between - within)
    assert found.freedom == pytest.approx(2 * (1 - within / (4 / 3 * between)) ** 2)


def test_combined_intervals_hold_and_those_of_one_table_do_not() -> None:
    """Figures with noise 1 of the fit and 0.5 of drawing rows; 2,000 repetitions, sd 0.005."""
    rng = np.random.default_rng(5)
    fits = rng.normal(0, 1, (2000, 1))
    figures = fits + rng.normal(0, 1, (2000, 20)) + rng.normal(0, 0.5, (2000, 20))
    combined = [dither.combine(row, [0.5] * 20) for row in figures]
    held = np.mean([one.low <= 0 <= one.high for one in combined])
    assert 0.93 < held < 0.975
    assert np.mean(np.abs(figures[:, 0]) < 1.96 * 0.5) < 0.6


@pytest.mark.parametrize(
    ("estimates", "errors"), [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, np.nan], [1.0, 1.0])]
)
def test_what_cannot_be_combined_is_refused(estimates, errors) -> None:
    with pytest.raises(dither.DitherError):
        dither.combine(estimates, errors)


def test_raking_reweighs_the_whole_distribution(release, tmp_path: Path) -> None:
    totals = {"f": {True: 300, False: 700}, ("g",): {("a",): 0.2, ("b",): 0.3, ("c",): 0.5}}
    raked = release.rake(totals, seed=1)
    assert raked.query("f == True").estimate == pytest.approx(0.3)
    assert raked.query("g == 'c'").estimate == pytest.approx(0.5)
    assert raked.query("g == 'c'").high - raked.query("g == 'c'").low < 1e-6
    # The conditional distribution given the raked attributes stays as it was.
    before = release.model.marginal(["y", "g", "f"])
    after = raked.model.marginal(["y", "g", "f"])
    assert np.allclose(after / after.sum(axis=0), before / before.sum(axis=0))
    shares = raked.synthetic["f"].mean()
    assert abs(shares - 0.3) < 4 * np.sqrt(0.3 * 0.7 / raked.rows)
    again = dither.load_release(raked.save(tmp_path / "raked"))
    assert again.query("y == 1") == raked.query("y == 1")
    assert any(notice.code == "raked" for notice in again.warnings)


def test_joint_totals_do_not_depend_on_the_order_of_attributes(release) -> None:
    shares = {(g, f): 1 + 2 * f + i for i, g in enumerate("abc") for f in (False, True)}
    turned = {(f, g): share for (g, f), share in shares.items()}
    one, other = release.rake({("g", "f"): shares}), release.rake({("f", "g"): turned})
    assert np.allclose(one.model.marginal(["y", "x"]), other.model.marginal(["y", "x"]))
    assert one.model.marginal(["g", "f"])[2, 1] == pytest.approx(5 / 18)


@pytest.mark.parametrize(
    ("totals", "words"),
    [
        ({}, "no totals"),
        ({"sex": {"F": 1}}, "sex"),
        ({"g": {"d": 1}}, "no value 'd'"),
        ({"g": {"a": -1}}, "zero on"),
        ({"g": {"a": 0}}, "add up to zero"),
        ({("g", "f"): {("a",): 1}}, "2 values"),
        ({"f": {True: 1, False: 1}, ("f", "g"): {(True, "a"): 1}}, "cannot be reached"),
    ],
)
def test_wrong_totals_are_refused(release, totals, words) -> None:
    with pytest.raises(dither.DitherError, match=words):
        release.rake(totals)


def test_a_raked_release_is_not_raked_or_refitted_again(release) -> None:
    raked = release.rake({"f": {True: 1, False: 1}})
    with pytest.raises(dither.DitherError, match="all totals at once"):
        raked.rake({"f": {True: 1, False: 1}})
    with pytest.raises(dither.DitherError, match="before raking"):
        raked.with_replicates(5)
    with pytest.raises(dither.DitherError, match="counts of the reports"):
        raked.regress("y ~ x")
