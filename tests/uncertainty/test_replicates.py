"""Intervals by refitting: shapes, repeatability, what they add to the scatter, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from dither import publish
from dither.datasets import RandomNetwork as Network
from dither.datasets import generate_network
from dither.errors import ParameterError
from dither.fit import Independent, answers_of, grouped_marginal
from dither.methods import MethodRun, start
from dither.release import Bootstrap, bootstrap, draw_tally, prepare_bootstrap, redraw
from dither.release.intervals import UNKNOWN, interaction, student_quantile
from dither.reports import Plan, question
from dither.types import JsonMapping


@pytest.fixture(scope="module")
def network() -> Network:
    return generate_network([3, 4, 2, 3], strength=1.5, seed=2)


def _finished(
    network: Network,
    name: str,
    people: int = 50_000,
    epsilon: float = 4.0,
    seed: int = 0,
    parameters: JsonMapping | None = None,
) -> MethodRun:
    parameters = {"total": 40, **(parameters or {})} if name == "mixture" else {}
    machine = start(name, network.schema, epsilon, people, parameters, seed)
    redraw(machine, network, np.random.default_rng(seed))  # type: ignore[arg-type]
    return machine


@pytest.mark.slow
@pytest.mark.parametrize("name", ["independent", "mixture"])
def test_intervals_of_any_marginal(network: Network, name: str) -> None:
    machine = _finished(network, name)
    sets = [["x0"], ["x2", "x1"], ["x0", "x1", "x3"]]
    found = bootstrap(machine, sets, replicates=6, seed=3)
    for names, interval in zip(sets, found, strict=True):
        assert interval.attributes == tuple(names)
        assert interval.frequencies.shape == tuple(network.schema[n].cardinality for n in names)
        if interval.caution:
            assert np.isnan(interval.standard_errors).all()
            assert interval.to_json()["standard_errors"] is None
            continue
        if interval.basis == "model":
            assert np.array_equal(interval.frequencies, machine.model().marginal(names))
        assert (interval.standard_errors > 0).all()
        assert (interval.low >= 0).all()
        assert (interval.high <= 1).all()
        assert (interval.low <= interval.frequencies).all()
        assert (interval.frequencies <= interval.high).all()
        assert [len(labels) for labels in interval.labels] == list(interval.frequencies.shape)
    assert (found[1].caution != "") == (name == "independent")
    assert found[0].caution == ""
    again = bootstrap(machine, sets, replicates=6, seed=3)
    assert all(a.to_json() == b.to_json() for a, b in zip(found, again, strict=True))


@pytest.mark.slow
def test_one_way_errors_match_the_mechanism(network: Network) -> None:
    """For single questions the scatter is known: the bootstrap must find it."""
    machine = _finished(network, "independent", 40_000, 2.0)
    tally = machine.counted[0]
    (interval,) = bootstrap(machine, [["x1"]], replicates=200)
    position = [q.attributes for q in tally.plan.questions].index(("x1",))
    n, mechanism = int(tally.n[position]), tally.plan.questions[position].mechanism
    f = interval.frequencies
    known = np.sqrt([mechanism.variance(float(x), n) + x * (1 - x) / n for x in f])
    # Projection takes the shared part of the error of k cells off: a factor sqrt(1 - 1/k) at most.
    ratio = interval.standard_errors / known
    assert (ratio < 1.2).all()
    assert (ratio > 0.75).all()


def test_errors_shrink_with_participants(network: Network) -> None:
    few = bootstrap(_finished(network, "independent", 10_000), [["x0"]], replicates=60)[0]
    many = bootstrap(_finished(network, "independent", 1_000_000), [["x0"]], replicates=60)[0]
    ratio = few.standard_errors.mean() / many.standard_errors.mean()
    assert ratio == pytest.approx(10, rel=0.35)


def test_a_release_has_intervals_too() -> None:
    release = publish("adult", epsilon=4.0, method="independent", rows=10, seed=1)
    (interval,) = bootstrap(release, ["sex"], replicates=5)
    assert interval.attributes == ("sex",)
    assert interval.frequencies == pytest.approx(release.marginal("sex").frequencies)


@pytest.mark.slow
def test_missing_dependence_shows_in_the_misfit(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that leaves dependence out fits its own redrawn data well and the real data badly."""

    machine = _finished(network, "mixture", 200_000)
    honest = prepare_bootstrap(machine, replicates=6)
    product = Independent(
        network.schema, tuple(machine.model().marginal([n]) for n in network.schema.names)
    )
    monkeypatch.setattr(machine, "model", lambda: product)
    flat = prepare_bootstrap(machine, replicates=6)
    pair = ("x0", "x1")
    biases = [float(found._pair_bias(pair).variances.sum()) for found in (flat, honest)]
    assert biases[0] > 20 * biases[1]
    truth = network.marginal(["x0", "x1"])
    found = flat.interval(["x0", "x1"])
    assert found.basis == "model and reports"
    assert (
        np.abs(found.frequencies - truth).max()
        < 0.5 * np.abs(product.marginal(["x0", "x1"]) - truth).max()
    )
    assert ((found.low <= truth) & (truth <= found.high)).mean() > 0.8


def test_interactions_are_allowed_for_only_where_attributes_depend(network: Network) -> None:
    product = Independent(
        network.schema, tuple(network.marginal([n]) for n in network.schema.names)
    )
    assert interaction(product.marginal(["x0", "x1", "x2"])).own == pytest.approx(0, abs=1e-12)
    triple = interaction(network.marginal(["x0", "x1", "x2"]))
    assert (triple.own > 0).any()
    every = np.ones((1, 3, 4, 2))
    assert triple.covariance(every) == pytest.approx(0, abs=1e-12), "the whole table adds up to one"


def test_sums_agree_with_cells_and_with_larger_tables(network: Network) -> None:
    """A cell by itself, the same cell as a sum of a larger table, and cells added up have one estimate and one variance."""
    prepared = prepare_bootstrap(_finished(network, "mixture"), replicates=5)
    names = ("x0", "x1")
    cells = [np.arange(3), np.arange(4)]
    every = prepared.linear(names, cells, np.eye(12).reshape(12, 3, 4))
    interval = prepared.interval(names)
    assert every.estimates == pytest.approx(interval.frequencies.ravel(), abs=1e-9)
    assert np.diag(every.covariance) == pytest.approx(interval.standard_errors.ravel() ** 2)
    halves = [np.array([0, 1, 1]), np.array([1, 0, 1, 0])]
    one = np.zeros((1, 2, 2))
    one[0, 1, 1] = 1.0
    weights = np.zeros((3, 4))
    weights[np.ix_([1, 2], [0, 2])] = 1.0
    some = prepared.linear(names, halves, one)
    assert some.estimates[0] == pytest.approx(weights.ravel() @ every.estimates)
    assert some.covariance[0, 0] == pytest.approx(
        weights.ravel() @ every.covariance @ weights.ravel(), rel=1e-6
    )
    line = np.zeros((1, 3, 4))
    line[0, 1] = 1.0
    alone = prepared.linear(names[:1], cells[:1], np.eye(3)[1:2])
    if every.basis == "model":
        assert prepared.linear(names, cells, line).covariance == pytest.approx(alone.covariance), (
            "one-way errors stay"
        )


def test_no_interval_where_none_can_be_had(network: Network) -> None:
    prepared = prepare_bootstrap(_finished(network, "independent", 5_000), replicates=5)
    answer = prepared.linear(
        ("x0", "x1"), [np.arange(3), np.arange(4)], np.eye(12)[:2].reshape(2, 3, 4)
    )
    assert np.isnan(answer.covariance).all()
    assert answer.caution == UNKNOWN
    one = prepared.linear(("x0",), [np.arange(3)], np.eye(3))
    assert one.caution == ""
    assert (np.diag(one.covariance) > 0).all()


def test_a_fit_to_pairs_needs_an_allowance_for_triples(network: Network) -> None:
    """Sets of three are asked, but only their pairs are fitted."""
    machine = _finished(network, "mixture", 200_000, 6.0)
    sizes = {len(a.question.attributes) for a in answers_of(machine.counted)}
    assert max(sizes) > 2, "this plan asks larger sets"
    asked = prepare_bootstrap(machine, replicates=5).asked
    assert asked is not None
    assert {len(s) for s in asked} == {2}


def test_tables_of_a_pair_are_made_once(network: Network) -> None:
    prepared = prepare_bootstrap(_finished(network, "mixture"), replicates=5)
    first = prepared.interval(("x0", "x1"))
    halves, one = [np.array([0, 1, 1]), np.array([1, 0, 1, 0])], np.eye(4).reshape(4, 2, 2)
    slow = np.stack(
        [grouped_marginal(refit, ("x0", "x1"), halves).ravel() for refit in prepared.replicates]
    )
    assert prepared._refitted(("x0", "x1"), halves) == pytest.approx(slow)

    def asked_again(*_: object) -> None:
        raise AssertionError("a replicate was asked again")

    for refit in prepared.replicates:
        object.__setattr__(refit, "marginal", asked_again)
        object.__setattr__(refit, "grouped", asked_again)
    assert (prepared.interval(("x0", "x1")).low == first.low).all()
    assert prepared.linear(("x0", "x1"), halves, one).covariance.shape == (4, 4)


def test_level_and_bias_enter(network: Network) -> None:
    product = Independent(
        network.schema, tuple(network.marginal([n]) for n in network.schema.names)
    )
    moved = Independent(network.schema, (np.array([0.6, 0.3, 0.1]), *product.marginals[1:]))
    steady = Bootstrap(product, (moved,) * 5, True).interval(["x0"])
    assert steady.standard_errors == pytest.approx(
        np.abs(moved.marginals[0] - product.marginals[0])
    )
    wide = Bootstrap(product, (moved,) * 5, True).interval(["x0"], 0.99)
    assert (wide.high - wide.low >= steady.high - steady.low).all()
    assert student_quantile(0.95, 10**6) == pytest.approx(1.96, abs=1e-3)
    assert student_quantile(0.95, 4) == pytest.approx(2.776, abs=1e-3)
    with pytest.raises(ParameterError, match="level"):
        student_quantile(1.5, 4)


def test_wrong_arguments_are_named(network: Network) -> None:
    machine = _finished(network, "independent", 1_000)
    with pytest.raises(ParameterError, match="replicates"):
        bootstrap(machine, [["x0"]], replicates=2)
    with pytest.raises(ParameterError, match="effort"):
        bootstrap(machine, [["x0"]], effort="heroic")


def test_redrawn_tallies_have_the_law_of_people_sampled_from_the_model(network: Network) -> None:
    rng = np.random.default_rng(5)
    asked = question(network.schema, ("x0", "x2"), 1.5)
    plan = Plan(0, (asked,), (1.0,))
    n, repeats = 300, 1500
    cells = network.marginal(asked.attributes).ravel()
    drawn = np.array([draw_tally(plan, network, n, rng).counts[0] for _ in range(repeats)])  # type: ignore[arg-type]
    p, q = float(asked.mechanism.p), float(asked.mechanism.q)
    expected = q + (p - q) * cells
    error = np.sqrt(expected * (1 - expected) / n / repeats)
    assert (np.abs(drawn.mean(0) / n - expected) < 4.5 * error).all()
    assert drawn.var(0, ddof=1) == pytest.approx(n * expected * (1 - expected), rel=0.2)


def test_redraw_refuses_tallies_of_whole_reports(network: Network) -> None:
    questions = tuple(question(network.schema, [n], 0.5, "sue") for n in network.schema.names)
    with pytest.raises(ParameterError, match="whole reports"):
        draw_tally(
            Plan(0, questions, split=True, tally="patterns"), network, 10, np.random.default_rng(0)
        )  # type: ignore[arg-type]
    counted = draw_tally(Plan(0, questions, split=True), network, 10, np.random.default_rng(0))  # type: ignore[arg-type]
    assert [a.n for a in answers_of([counted])] == [10] * len(questions)


@pytest.mark.parametrize("people", [1, 7, 1000])
def test_everyone_is_asked_one_question(people: int, network: Network) -> None:
    names = [(name,) for name in network.schema.names] * 2
    questions = tuple(question(network.schema, name, 1.0) for name in names)
    shares = np.random.default_rng(people).dirichlet(np.ones(len(names)))
    plan = Plan(0, questions, tuple(shares))
    tally = draw_tally(plan, network, people, np.random.default_rng(0))  # type: ignore[arg-type]
    assert tally.n.sum() == people
    assert np.abs(tally.n - shares * people).max() <= 1
