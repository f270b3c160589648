"""The planner: its assumption is the one it states, its figures are those of a real campaign, its advice follows from them."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from benchmarks.model_error import evaluate_model
from dither.cli import run
from dither.datasets import generate_network
from dither.errors import ParameterError, PrivacyError
from dither.evaluation import tvd
from dither.mechanisms import mechanism
from dither.methods import METHODS, start
from dither.planner import assumed_dependence, forecast, predict, reference_population
from dither.schema import Attribute, Schema
from dither.simulate import simulate


def _schema(*cardinalities: int) -> Schema:
    return Schema(
        tuple(
            Attribute(f"a{i}", "categorical", tuple(f"v{v}" for v in range(k)))
            for i, k in enumerate(cardinalities)
        )
    )


@pytest.mark.parametrize("cardinalities", [(2,) * 10, (3, 9, 4, 16, 2, 7), (2, 2)])
@pytest.mark.parametrize("amount", [0.0, 0.05, 0.12])
def test_the_reference_population_has_the_dependence_it_states(
    cardinalities: tuple[int, ...], amount: float
) -> None:
    population = reference_population(_schema(*cardinalities), amount)
    names = population.schema.names
    found = [
        tvd(
            population.marginal([a, b]),
            np.outer(population.marginal([a]), population.marginal([b])),
        )
        for a, b in combinations(names, 2)
    ]
    assert np.mean(found) == pytest.approx(amount, abs=1e-6)


def test_dependence_by_word_and_by_number() -> None:
    schema = _schema(*[2] * 6)
    typical = assumed_dependence(schema)
    assert typical == pytest.approx(0.16)
    assert assumed_dependence(schema, "weak") < typical < assumed_dependence(schema, "strong")
    assert assumed_dependence(schema, "0.03") == assumed_dependence(schema, 0.03) == 0.03
    assert assumed_dependence(_schema(10, 10, 10)) < typical
    for wrong in ("lots", -0.1, 0.7, "nan"):
        with pytest.raises(ParameterError, match="dependence"):
            assumed_dependence(schema, wrong)


@pytest.mark.slow
def test_predictions_are_what_a_simulated_campaign_gives_on_that_population() -> None:
    """The prediction draws tallies from marginals; a campaign over rows sampled from the same population must agree."""
    schema = _schema(2, 3, 4, 3, 2)
    population = reference_population(schema, 0.1)
    codes = population.sample(60_000, np.random.default_rng(1))
    for name in ("independent", "mixture"):
        guess = predict(name, population, len(codes), 2.0, repeats=4, parameters={}).tvd
        real = []
        for seed in range(4):
            machine = start(name, schema, 2.0, len(codes), {}, seed)
            simulate(machine, codes, np.random.default_rng(seed))
            real.append(evaluate_model(machine.model(), codes, (1, 2))[2].tvd)
        assert guess[2] == pytest.approx(np.mean(real), rel=0.25)


def test_predicted_error_falls_with_participants_and_epsilon() -> None:
    population = reference_population(_schema(4, 5, 3, 6), 0.1)
    few = predict("independent", population, 2_000, 1.0, repeats=3).tvd
    many = predict("independent", population, 200_000, 1.0, repeats=3).tvd
    loud = predict("independent", population, 2_000, 6.0, repeats=3).tvd
    assert many[1] < 0.3 * few[1]
    assert loud[1] < 0.5 * few[1]
    # A product of ever better one-way marginals ends at the dependence it leaves out, never below.
    exact = predict("independent", population, 20_000_000, 8.0).tvd
    assert exact[2] == pytest.approx(0.1, rel=0.02)


@pytest.mark.slow
def test_a_forecast_with_learnable_pairs() -> None:
    given = forecast(_schema(*[2] * 8), 300_000, 4.0)
    assert given.recommendation == "mixture"
    assert given.needed == {"participants": None, "epsilon": None}
    assert not any("pure noise" in warning for warning in given.warnings)
    figures = {p.name: p.tvd for p in given.methods}
    assert figures["mixture"][2] < 0.5 * figures["independent"][2]
    assert set(figures) == set(METHODS)


@pytest.mark.slow
def test_a_forecast_of_noise_says_so_and_what_would_change_it() -> None:
    schema = _schema(8, 10, 8, 12, 9, 10)
    given = forecast(schema, 3_000, 0.5, repeats=1)
    assert given.recommendation == "independent"
    assert any("pairs would be pure noise" in warning for warning in given.warnings)
    people, epsilon = given.needed["participants"], given.needed["epsilon"]
    assert people is not None
    assert people > 3_000
    assert epsilon is not None
    assert epsilon > 0.5
    assert f"{people:,.0f}" in given.warnings[0]
    # What it names does change the verdict.
    better = forecast(schema, int(1.5 * people), 0.5, repeats=1)
    assert not any("pure noise" in warning for warning in better.warnings)


def test_independent_attributes_are_never_called_learnable() -> None:
    given = forecast(_schema(3, 4, 5), 50_000, 2.0, dependence=0.0, repeats=1)
    assert given.needed == {"participants": None, "epsilon": None}
    assert "attributes are assumed independent" in given.advice


def test_one_attribute_has_no_pairs() -> None:
    given = forecast(_schema(5), 1_000, 1.0)
    assert all(2 not in p.tvd for p in given.methods)
    assert given.warnings == () or "single attribute" in given.warnings[0]


@pytest.mark.slow
def test_the_same_question_gets_the_same_answer() -> None:
    schema = _schema(3, 4, 5)
    assert forecast(schema, 20_000, 2.0).to_json() == forecast(schema, 20_000, 2.0).to_json()


def test_methods_that_cannot_be_played_are_listed_with_the_reason() -> None:
    schema = _schema(3, 4)
    population = reference_population(schema, 0.1)
    found = predict("mixture", population, 1, 1.0)
    assert not found.tvd
    assert "nobody answered" in found.reason
    assert "\n" not in found.reason


@pytest.mark.parametrize("participants", [0, -5, 2.5, True])
def test_participants_must_be_a_count(participants: object) -> None:
    with pytest.raises(ParameterError, match="participants"):
        forecast(_schema(2, 2), participants, 1.0)  # type: ignore[arg-type]


def test_epsilon_and_method_are_checked() -> None:
    with pytest.raises((ParameterError, PrivacyError)):
        forecast(_schema(2, 2), 100, -1.0)
    with pytest.raises(ParameterError, match="no method"):
        forecast(_schema(2, 2), 100, 1.0, methods=["magic"])


def test_the_command_prints_json_and_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(generate_network([3, 4, 2], seed=1).schema.to_json()))
    asked = ["plan", "--schema", str(file), "--participants", "40000", "--epsilon", "2"]
    assert run([*asked, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"participants", "epsilon", "methods", "recommendation", "warnings", "needed"} <= set(
        printed
    )
    assert printed["participants"] == 40_000
    assert set(printed["needed"]) == {"participants", "epsilon"}
    by_name = {entry["name"]: entry["tvd"] for entry in printed["methods"]}
    assert {"1", "2"} <= set(by_name["mixture"])
    assert run(asked) == 0
    shown = capsys.readouterr().out
    assert "independent" in shown
    assert "2-way error" in shown
    assert "Use " in shown


def test_where_pairs_cannot_be_learnt_the_least_one_way_error_is_recommended() -> None:
    wide = forecast(_schema(1_500, 2), 500, 0.5, repeats=1)
    one_way = {p.name: p.tvd[1] for p in wide.methods if p.tvd}
    assert "Dependence between attributes cannot be learnt" in wide.advice
    assert one_way["mixture"] < 0.95 * one_way["independent"], "a case in which the two differ"
    assert wide.recommendation == "mixture"
    assert f"off by {one_way['mixture']:.3f}" in wide.advice


def test_one_attribute_is_no_matter_of_pairs_nor_of_fewer_attributes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dither.cli import run

    path = tmp_path / "schema.json"
    path.write_text(json.dumps(_schema(300).to_json()), encoding="utf-8")
    assert run(["plan", "--schema", str(path), "--participants", "500", "--epsilon", "0.5"]) == 0
    said = capsys.readouterr().out
    assert "there is one attribute" in said
    assert "a0 has 300 values; give it fewer or coarser ones" in said
    assert "pairs" not in said
    assert "fewer attributes" not in said


def test_pairs_that_another_method_learns_are_not_called_noise() -> None:
    given = forecast(_schema(6, 6, 6), 20_000, 2.0, dependence="strong", repeats=1)
    by_name = {p.name: p for p in given.methods}
    assert not any("pure noise" in warning for warning in given.warnings)
    assert by_name["calm"].tvd[2] < 0.8 * by_name["independent"].tvd[2]
    assert by_name[given.recommendation].tvd[2] <= 1.25 * by_name["calm"].tvd[2]


def test_half_widths_are_those_of_realised_shares() -> None:
    """One attribute: the half-width is 1.96 standard errors of the mechanism's estimate."""
    population = reference_population(_schema(4), 0.0)
    found = predict("independent", population, 50_000, 1.0, repeats=60).half_width[1]
    shares = population.marginal(["a0"])
    laws = [mechanism(name, 4, 1.0) for name in ("oue", "grr")]
    expected = min(
        np.sqrt(sum(s * (law.variance(s, 50_000) + s * (1 - s) / 50_000) for s in shares))
        for law in laws
    )
    # The fit is projected to shares that add up to one, which removes a little noise.
    assert 0.8 * 1.96 * expected < found < 1.1 * 1.96 * expected


@pytest.mark.parametrize(
    ("known", "unknown"), [("epsilon", "participants"), ("participants", "epsilon")]
)
def test_a_target_gives_the_other_number(known: str, unknown: str) -> None:
    schema, value = _schema(3, 2), {"epsilon": 1.0, "participants": 10_000}[known]
    asked = {known: value, "methods": ["independent"]}
    coarse = forecast(schema, target_error=0.04, **asked)  # type: ignore[arg-type]
    fine = forecast(schema, target_error=0.02, **asked)  # type: ignore[arg-type]
    assert getattr(fine, known) == value
    for given, target in ((coarse, 0.04), (fine, 0.02)):
        assert 0.8 * target < given.error_one_way <= target
    ratio = getattr(fine, unknown) / getattr(coarse, unknown)
    # Half the error takes four times the people, and roughly twice the epsilon.
    assert (3 < ratio < 5.3) if unknown == "participants" else (1.4 < ratio < 3)


def test_a_target_that_is_missed_is_said() -> None:
    schema = _schema(3, 2)
    given = forecast(schema, 1_000, 0.5, target_error=0.01, methods=["independent"])
    assert any("target of \u00b11 points is not reached" in warning for warning in given.warnings)
    with pytest.raises(ParameterError, match="cannot have a half-width"):
        forecast(schema, epsilon=0.05, target_error=0.0001, methods=["independent"])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "give participants and epsilon"),
        ({"epsilon": 1.0}, "give participants and epsilon"),
        ({"target_error": 0.01}, "needs participants or epsilon"),
        ({"epsilon": 1.0, "target_error": 0.7}, "target_error"),
    ],
)
def test_too_few_numbers_are_refused(asked: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        forecast(_schema(3, 2), **asked)  # type: ignore[arg-type]


def test_the_command_works_backwards_and_takes_several_epsilons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(_schema(3, 2).to_json()), encoding="utf-8")
    asked = ["plan", "--schema", str(path), "--method", "independent"]
    assert run([*asked, "--epsilon", "1", "--target-error", "0.02", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert one["epsilon"] == 1
    assert one["error_one_way"] <= 0.02
    assert one["method"] == "independent"
    assert one["certainty"] == pytest.approx(0.731, abs=1e-3)
    assert one["participants"] > 1_000
    assert {"error_two_way", "warnings"} <= set(one)
    several = [*asked, "--participants", "5000", "--epsilon", "0.5,1,2"]
    assert run([*several, "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)["plans"]
    assert [each["epsilon"] for each in plans] == [0.5, 1, 2]
    assert sorted(each["error_one_way"] for each in plans)[::-1] == [
        each["error_one_way"] for each in plans
    ]
    assert run(several) == 0
    shown = capsys.readouterr().out
    assert "62.3 %" in shown
    assert max(len(line) for line in shown.splitlines()[:4]) <= 80
    assert run([*asked, "--epsilon", "1"]) == 2
    assert "one of them with --target-error" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "ratio", "recommended"),
    [((2,) * 6, (1.0, 1.25), True), ((4,) * 5, (1.25, 1.67), False)],
)
def test_the_default_method_is_recommended_unless_another_is_ahead_by_a_quarter(
    sizes: tuple[int, ...], ratio: tuple[float, float], recommended: bool
) -> None:
    """With a third less the first is another method, with a third more the second the default."""
    given = forecast(_schema(*sizes), 100_000, 1.0, dependence="strong", repeats=1)
    errors = {p.name: p.tvd[2] for p in given.methods if p.tvd}
    best = min(errors.values())
    assert ratio[0] < errors["mixture"] / best < ratio[1]
    assert (given.recommendation == "mixture") is recommended
