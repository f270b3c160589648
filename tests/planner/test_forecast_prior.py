"""A forecast with a public table: on the population that it tells of, what it brings, and what the error would be without it."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dither
from dither.cli import run
from dither.errors import ParameterError, TableError
from dither.evaluation import tvd
from dither.methods import PublicRows, start
from dither.planner import Forecast, Prediction, population_of, predict, reference_population
from dither.schema import Attribute, Schema
from dither.simulate import simulate

SIZES = (4, 3, 5, 3, 4, 3)
SCHEMA = Schema(
    tuple(
        Attribute(f"a{i}", "categorical", tuple(f"v{v}" for v in range(k)))
        for i, k in enumerate(SIZES)
    )
)
PEOPLE = reference_population(SCHEMA, 0.12)
CODES = PEOPLE.sample(6_000, np.random.default_rng(1))
PAIRS = list(combinations(SCHEMA.names, 2))


@pytest.fixture(scope="module")
def expected() -> Forecast:
    return dither.forecast(SCHEMA, 100_000, 2.0, repeats=1, prior=table())


def table() -> pd.DataFrame:
    return pd.DataFrame({a.name: np.array(a.labels)[CODES[:, i]] for i, a in enumerate(SCHEMA)})


def test_the_population_is_what_the_public_table_tells_of() -> None:
    model, amount = population_of(SCHEMA, CODES)
    exact = [tvd(PEOPLE.marginal(pair), model.marginal(pair)) for pair in PAIRS]
    # 16 cells of 6,000 rows: sampling alone makes a distance of about 0.4 sqrt(16 / 6000) = 0.02.
    assert np.mean(exact) < 0.03
    assert amount == pytest.approx(0.12, abs=0.015)


def test_the_forecast_says_what_the_table_brings(expected: Forecast) -> None:
    found = next(m for m in expected.methods if m.name == "mixture")
    assert found.without_prior is not None
    assert found.tvd[2] < 0.8 * found.without_prior[2]
    assert found.prior_used == 1.0
    assert expected.recommendation == "mixture"
    assert f"Without the prior the error would be {found.without_prior[2]:.3f}" in expected.advice
    assert expected.prior == "a table in memory"
    said = expected.to_json()
    assert said["prior"] == "a table in memory"
    assert (
        next(m for m in said["methods"] if m["name"] == "mixture")["tvd_without_prior"]["2"]
        == found.without_prior[2]
    )
    baseline = next(m for m in expected.methods if m.name == "independent")
    assert baseline.without_prior is None


@pytest.mark.slow
def test_what_is_predicted_is_what_a_campaign_with_a_table_of_that_size_gives() -> None:
    model, _ = population_of(SCHEMA, CODES)
    guess = predict("mixture", model, 100_000, 2.0, repeats=3, public_rows=len(CODES)).tvd[2]
    careless = predict("mixture", model, 100_000, 2.0, repeats=3).tvd[2]
    found = []
    for seed in range(3):
        people = PEOPLE.sample(100_000, np.random.default_rng([seed, 5]))
        machine = start("mixture", SCHEMA, 2.0, len(people), seed=seed)
        simulate(machine, people, np.random.default_rng([seed, 6]))
        machine.give_prior(
            PublicRows(PEOPLE.sample(len(CODES), np.random.default_rng([seed, 7])), "p", "")
        )
        fitted = machine.model()
        found.append(np.mean([tvd(PEOPLE.marginal(pair), fitted.marginal(pair)) for pair in PAIRS]))
    assert guess == pytest.approx(np.mean(found), rel=0.25)
    assert careless > 1.25 * np.mean(found)


def forecast_of(
    monkeypatch: pytest.MonkeyPatch, with_prior: float, without: float, used: float = 1.0
) -> Forecast:
    """The forecast if `mixture` has these two-way errors; asking no pairs gives 0.1."""

    def canned(name: str, *_: object, public_rows: int = 0, **__: object) -> Prediction:
        if name == "independent":
            return Prediction(name, {1: 0.01, 2: 0.1}, 0.1)
        error, share = (with_prior, used) if public_rows else (without, None)
        return Prediction(name, {1: 0.02, 2: error}, 0.1, prior_used=share)

    monkeypatch.setattr("dither.planner.forecasting.predict", canned)
    return dither.forecast(SCHEMA, 1_000, 1.0, prior=table())


def test_a_prior_that_brings_little_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    little = forecast_of(monkeypatch, 0.05, 0.051)
    assert "brings little: the error without it would be 0.051" in little.advice
    assert little.warnings == ()
    much = forecast_of(monkeypatch, 0.05, 0.09)
    assert "Without the prior the error would be 0.090" in much.advice
    useless = forecast_of(monkeypatch, 0.2, 0.2)
    assert "The prior would not help" in useless.advice
    assert "prior" not in dither.forecast(SCHEMA, 1_000, 1.0).advice


def test_a_prior_that_some_campaigns_do_not_use_is_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (warning,) = forecast_of(monkeypatch, 0.05, 0.09, used=0.6).warnings
    assert "in 40% of the played campaigns mixture" in warning


def test_what_cannot_be_planned_with_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ParameterError, match="dependence and prior exclude each other"):
        dither.forecast(SCHEMA, 1_000, 1.0, dependence="weak", prior=table())
    with pytest.raises(TableError, match="no column"):
        dither.forecast(SCHEMA, 1_000, 1.0, prior=table().iloc[:, 1:])
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_json()), encoding="utf-8")
    (tmp_path / "empty.csv").write_text(",".join(SCHEMA.names) + "\n", encoding="utf-8")
    order = [
        "plan",
        "--schema",
        str(tmp_path / "schema.json"),
        "--participants",
        "1000",
        "--epsilon",
        "1",
        "--prior",
    ]
    assert run([*order, str(tmp_path / "empty.csv")]) == 2
    assert "empty.csv has no rows" in capsys.readouterr().err
    assert run([*order, str(tmp_path / "nowhere.csv")]) == 2
    told = capsys.readouterr().err
    assert "nowhere.csv" in told
    assert told.count("\n") == 1


def test_the_command_names_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = Schema(SCHEMA.attributes[:3])
    (tmp_path / "schema.json").write_text(json.dumps(kept.to_json()), encoding="utf-8")
    table().iloc[:500, :3].to_csv(tmp_path / "public{1}.csv", index=False)
    order = [
        "plan",
        "--schema",
        str(tmp_path / "schema.json"),
        "--participants",
        "5000",
        "--epsilon",
        "1",
    ]
    assert run([*order, "--prior", str(tmp_path / "public{1}.csv")]) == 0
    said = capsys.readouterr().out
    assert "from independence in the mean, as " in said
    assert "public{1}.csv has them" in said
    assert "--dependence" not in said
