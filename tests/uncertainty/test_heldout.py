"""The error estimate from held-out reports: unbiased, with an honest standard error; a wrong variance is rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.collector import CampaignSpec, make_release
from dither.datasets import RandomNetwork as Network
from dither.datasets import generate_network
from dither.errors import ParameterError
from dither.fit import AnswerCounts, Independent
from dither.mechanisms import kernels
from dither.methods import restore, start
from dither.randomness import RandomStream
from dither.release.fit_checks import (
    INFORMATIVE,
    TOO_NOISY,
    heldout_error,
    heldout_notes,
    unbiased_variances,
)
from dither.reports import Question, question
from dither.schema import Attribute, Schema
from dither.simulate import simulate
from dither.tally import zero


@pytest.fixture(scope="module")
def network() -> Network:
    return generate_network([3, 4, 2], strength=1.5, seed=4)


def _product(network: Network) -> Independent:
    return Independent(
        network.schema, tuple(network.marginal([name]) for name in network.schema.names)
    )


def _draw(network: Network, asked: Question, n: int, rng: np.random.Generator) -> AnswerCounts:
    truth = rng.multinomial(n, network.marginal(asked.attributes).ravel())
    return AnswerCounts(asked, kernels.simulate(asked.mechanism, truth, rng), n)


def _true_error(network: Network, model: Independent, names: tuple[str, ...]) -> float:
    return float(((network.marginal(names) - model.marginal(names)) ** 2).sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grr", "sue", "oue", "olh", "subset"])
@pytest.mark.parametrize("attributes", [("x0", "x1"), ("x0", "x1", "x2")])
def test_unbiased_for_every_mechanism_with_an_honest_standard_error(
    network: Network, name: str, attributes: tuple[str, ...]
) -> None:
    """Also for pairs read off larger questions. Few people, so that a wrong variance shows."""
    rng = np.random.default_rng(7)
    asked, model, n, repeats = (
        question(network.schema, attributes, 1.0, name),
        _product(network),
        400,
        400,
    )
    found = [heldout_error(model, [_draw(network, asked, n, rng)]) for _ in range(repeats)]
    pairs = list(found[0].by_set)
    truth = np.mean([_true_error(network, model, pair) for pair in pairs])
    values = np.array([f.squared for f in found])
    error = values.std(ddof=1) / np.sqrt(repeats)
    assert abs(values.mean() - truth) < 4 * error
    stated = np.sqrt(np.mean([f.standard_error**2 for f in found]))
    if len(attributes) == 2:
        assert stated == pytest.approx(values.std(ddof=1), rel=0.2)
    else:
        assert stated > 0.85 * values.std(
            ddof=1
        )  # pairs of one report count as moving together: never less
    # The mutant that takes half the noise away is rejected.
    noise = []
    for _ in range(50):
        answer = _draw(network, asked, n, rng)
        raw = kernels.estimate(asked.mechanism, answer.support, n).frequencies
        noise.append(unbiased_variances(answer, 1, raw).sum())
    assert 0.5 * np.mean(noise) > 4 * error


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grr", "oue", "subset"])
def test_the_variance_estimate_is_unbiased(network: Network, name: str) -> None:
    rng = np.random.default_rng(8)
    asked, n = (
        question(network.schema, ("x0", "x1"), 2.0, name),
        60,
    )  # so few that a plug-in of y(1-y)/n would show
    raws, variances = [], []
    for _ in range(4000):
        answer = _draw(network, asked, n, rng)
        raw = kernels.estimate(asked.mechanism, answer.support, n).frequencies
        raws.append(raw)
        variances.append(unbiased_variances(answer, 1, raw))
    empirical = np.var(raws, axis=0, ddof=1).sum()
    assert np.mean(np.sum(variances, axis=1)) == pytest.approx(empirical, rel=0.03)


def test_verdicts(network: Network) -> None:
    rng = np.random.default_rng(10)
    asked, model = question(network.schema, ("x0", "x1"), 1.0), _product(network)
    few = heldout_error(model, [_draw(network, asked, 50, rng)])
    assert few.verdict == TOO_NOISY
    assert TOO_NOISY in few.sentence()
    many = heldout_error(model, [_draw(network, asked, 2_000_000, rng)])
    assert many.verdict == INFORMATIVE
    assert many.low < _true_error(network, model, ("x0", "x1")) < many.high
    distance = 0.5 * np.abs(network.marginal(["x0", "x1"]) - model.marginal(["x0", "x1"])).sum()
    assert many.tvd_bound > distance
    assert many.to_json()["verdict"] == INFORMATIVE


@pytest.mark.slow
def test_a_machine_that_holds_out_meets_the_seam(network: Network) -> None:
    codes = network.sample_codes(30_000, np.random.default_rng(1))
    outer = start("mixture", network.schema, 4.0, len(codes), {"total": 40}, 1, holdout=0.1)
    plans = simulate(outer, codes, np.random.default_rng(2))
    assert all(plan.epsilon <= 4.0 for plan in plans)
    held = sum(tally.participants for tally in outer.held)
    assert held == pytest.approx(3_000, abs=50)
    found = heldout_error(outer.model(), outer.held_answers())
    assert found.n <= held
    truth = np.mean(
        [
            ((network.marginal(pair) - outer.model().marginal(pair)) ** 2).sum()
            for pair in found.by_set
        ]
    )
    assert abs(found.squared - truth) < 4 * found.standard_error
    again = restore(outer.state())
    assert again.holdout == 0.1
    assert again.plan() is None
    assert heldout_error(again.model(), again.held_answers()) == found


def test_splitting_is_checked(network: Network) -> None:
    for share in (-0.1, 1.0):
        with pytest.raises(ParameterError, match="holdout"):
            start("independent", network.schema, 1.0, 100, {}, 0, holdout=share)
    outer = start("independent", network.schema, 1.0, 100, {}, 0, holdout=0.2)
    plan = outer.plan()
    assert plan is not None
    with pytest.raises(Exception, match="without a single report"):
        outer.close(zero(plan))
    with pytest.raises(ParameterError, match="2 attributes together"):
        heldout_error(
            _product(network),
            [_draw(network, question(network.schema, ("x0",), 1.0), 50, np.random.default_rng(0))],
        )


def closed_with(held: int) -> Any:
    """A finished campaign whose fit has enough answers, and so many people answered each held-out question."""
    schema = Schema(
        tuple(Attribute(f"a{i}", "categorical", values=tuple("abcd")) for i in range(3))
    )
    machine = start("independent", schema, 4.0, 160, None, 0, 0.05)
    plan = machine.plan()
    tally, stream = zero(plan), RandomStream(bytes(32))
    for i, put in enumerate(plan.questions):
        people = 50 if i < len(plan.questions) // 2 else held
        if people:
            tally.add(i, kernels.randomise(put.mechanism, np.zeros(people, np.int64), stream))
    machine.close(tally)
    return machine, plan, tally


@pytest.mark.parametrize("held", [0, 1])
def test_too_few_held_out_answers_are_a_note_and_no_failure(held: int) -> None:
    """All rounds are closed: nobody could be asked again."""
    machine, _, tally = closed_with(held)
    spec = CampaignSpec(
        schema=machine.campaign.schema, epsilon=4.0, participants=160, seed=1, holdout=0.05
    )
    release = make_release(machine, tally.participants, spec, 10)
    assert "held_out" not in release.notes
    told = [w for w in release.to_json()["warnings"] if w["code"] == "held-out-skipped"]
    assert [w["message"] for w in told] == [
        "too few held-out answers to estimate the error of single attributes"
    ]
    assert told[0]["message"][1:] in release.report()
    enough, *_ = closed_with(2)
    assert set(heldout_notes(enough, enough.model())) == {"held_out"}


def test_publish_with_too_few_held_out_answers_still_publishes() -> None:
    table = pa.table({name: ["a", "b", "c", "d"] * 10 for name in ("x", "y", "z")})
    schema = Schema(
        tuple(Attribute(name, "categorical", values=tuple("abcd")) for name in table.column_names)
    )
    release = dither.publish(
        table, epsilon=4.0, schema=schema, method="independent", holdout=0.05, rows=5
    )
    assert "held-out-skipped" in {w.code for w in release.warnings}
