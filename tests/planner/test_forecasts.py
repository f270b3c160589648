"""Forecasts of odd tables say what is so, quick fits predict what whole ones do, and the curve is drawn."""

from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

import dither
from dither.cli import run
from dither.errors import ParameterError
from dither.planner import Forecast, Prediction, predict, reference_population
from dither.schema import Attribute, Schema


def _schema(*cardinalities: int) -> Schema:
    return Schema(
        tuple(
            Attribute(f"a{i}", "categorical", tuple(f"v{v}" for v in range(k)))
            for i, k in enumerate(cardinalities)
        )
    )


@pytest.fixture(scope="module")
def curved() -> Forecast:
    return dither.forecast(_schema(2, 3, 2), 20_000, 2.0, repeats=1, curve=True)


@pytest.mark.slow
def test_quick_fits_predict_what_whole_ones_do() -> None:
    """Few components may move a prediction by the noise of a campaign or two, no more."""
    population = reference_population(_schema(4, 3, 5, 2), 0.12)
    whole, quick = (
        predict("mixture", population, 30_000, 7.0, repeats=4, parameters=p).tvd[2]
        for p in ({}, None)
    )
    assert quick == pytest.approx(whole, rel=0.15)


@pytest.mark.slow
def test_the_default_is_recommended_for_many_people_at_a_large_epsilon() -> None:
    schema = dither.load_dataset("adult").schema
    given = dither.forecast(schema, 100_000, 8.0, methods=["mixture"])
    assert given.recommendation == "mixture"


def test_one_wide_column_is_not_said_to_have_pairs_that_can_be_learnt() -> None:
    given = dither.forecast(_schema(1_500, 2), 500, 0.5, repeats=1)
    assert "can be learnt" not in given.advice.replace("can be learnt is not known", "")
    assert "cannot be learnt here" in given.advice or "is not known" in given.advice
    assert any("a0 has 1,500 values" in warning for warning in given.warnings)


def forecast_of(
    monkeypatch: pytest.MonkeyPatch, learnt_from: float, epsilon: float = 1.0
) -> Forecast:
    """The forecast of 100 people if `mixture` learns pairs from a number of people times epsilon."""

    def canned(
        name: str, population: object, people: int, epsilon: float, **_: object
    ) -> Prediction:
        learnt = name == "mixture" and people * epsilon >= learnt_from
        return Prediction(name, {1: 0.02, 2: 0.05 if learnt else 0.1}, 0.1)

    monkeypatch.setattr("dither.planner.forecasting.predict", canned)
    return dither.forecast(_schema(9, 9), 100, epsilon)


def test_nothing_in_reach_is_not_said_to_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given = forecast_of(monkeypatch, math.inf)
    assert given.needed == {"participants": None, "epsilon": None}
    (warning,) = given.warnings
    assert "and so would" not in warning
    assert warning.endswith("changes that; only fewer or coarser attributes can")


@pytest.mark.parametrize("threshold", [110.0, 700.0, 1_150.0])
def test_what_would_be_needed_is_found(threshold: float, monkeypatch: pytest.MonkeyPatch) -> None:
    given = forecast_of(monkeypatch, threshold)
    people, epsilon = given.needed["participants"], given.needed["epsilon"]
    assert people is not None
    assert epsilon is not None
    # Within a factor 1.2, and two digits rounded up.
    assert threshold <= people <= 1.32 * threshold
    assert threshold / 100 <= epsilon <= 1.21 * threshold / 100
    (warning,) = given.warnings
    assert f"about {people:,.0f} participants at this epsilon or an epsilon of about" in warning
    assert "with these participants would change that, and so would fewer" in warning


def test_pairs_too_wide_to_hold_are_refused_in_one_line() -> None:
    with pytest.raises(ParameterError, match="too many to simulate"):
        dither.forecast(_schema(60_000, 50_000), 100, 0.1)


def test_where_no_method_that_asks_pairs_can_be_played_nobody_knows() -> None:
    given = dither.forecast(_schema(3, 4), 1_000, 1.0, methods=["lopub"], repeats=1)
    assert given.recommendation == "independent"
    assert "not known" in given.advice
    assert "lopub: " in given.advice
    assert "whole reports" in given.advice


def test_no_dependence_by_assumption_is_said_as_such() -> None:
    given = dither.forecast(_schema(3, 4), 5_000, 2.0, dependence=0.0, repeats=1)
    assert "assumed independent" in given.advice
    assert not any("pure noise" in warning for warning in given.warnings)


def test_every_verdict_is_whole_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "alone": dither.forecast(_schema(3), 1_000, 1.0, repeats=1),
        "nothing": dither.forecast(_schema(3, 4), 1_000, 1.0, methods=["lopub"], repeats=1),
        "independent": dither.forecast(_schema(3, 4), 1_000, 1.0, dependence=0.0, repeats=1),
        "learnt": forecast_of(monkeypatch, 0.0),
        "noise": forecast_of(monkeypatch, math.inf),
    }
    for verdict, forecast in given.items():
        assert forecast.advice.startswith(f"Use {forecast.recommendation}")
        assert forecast.advice.endswith(".")
        assert ("pairs can be learnt" in forecast.advice) == (verdict == "learnt")
    assert len({forecast.advice for forecast in given.values()}) == len(given)


def test_names_tables_files_and_schemas_are_taken_alike(tmp_path: Path) -> None:
    adult = dither.load_dataset("adult")
    by_name = dither.forecast("adult", 20_000, 1.0, methods=["independent"], repeats=1)
    by_schema = dither.forecast(adult.schema, 20_000, 1.0, methods=["independent"], repeats=1)
    assert by_name == by_schema
    (tmp_path / "own.json").write_text(json.dumps(_schema(2, 3).to_json()), encoding="utf-8")
    by_file = dither.forecast(tmp_path / "own.json", 9_000, 1.0, methods=["independent"], repeats=1)
    assert by_file == dither.forecast(_schema(2, 3), 9_000, 1.0, methods=["independent"], repeats=1)
    frame = pd.DataFrame({"a": ["x", "y"] * 50, "b": [True, False] * 50})
    told = dither.forecast(frame, 9_000, 1.0, methods=["independent"], repeats=1)
    assert "leak" in told.warnings[0] or "inferred" in told.warnings[0]
    with pytest.raises(dither.DitherError, match="file not found"):
        dither.forecast("nowhere", 10, 1.0)


def test_the_curve_has_points_and_a_picture(curved: Forecast, tmp_path: Path) -> None:
    sizes = sorted({p.participants for p in curved.points})
    assert sizes == [1_250, 5_000, 20_000, 80_000, 320_000]
    independent = [p.tvd[1] for p in curved.points if p.method == "independent"]
    assert independent[0] > 3 * independent[-1]
    assert curved.to_json()["points"][0]["tvd"]["1"] == curved.points[0].tvd[1]
    root = ElementTree.fromstring(curved.plot().svg)
    assert root.tag.endswith("svg")
    assert "mixture" in curved.plot().svg
    plain = dither.forecast(_schema(2, 2), 1_000, 1.0, methods=["independent"], repeats=1)
    assert plain.points == ()
    with pytest.raises(ParameterError, match="curve=True"):
        plain.plot()


def test_the_command_draws_and_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = tmp_path / "s.json"
    schema.write_text(json.dumps(_schema(2, 3).to_json()), encoding="utf-8")
    order = ["plan", "--schema", str(schema), "--participants", "5000", "--epsilon", "1"]
    assert run([*order, "--plot", str(tmp_path / "p.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["points"]
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert run([*order, "--plot", str(tmp_path / "p.svg")]) == 0
    said = capsys.readouterr().out
    assert "Not predicted (use --method NAME): lopub" in said
    assert " - " not in said
    assert (tmp_path / "p.svg").read_text(encoding="utf-8").startswith("<svg")
    assert run([*order, "--plot", str(tmp_path / "p.png")]) == 2
    assert "ends in .svg or .html" in capsys.readouterr().err
