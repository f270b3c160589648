"""Whole tables of sets: what a mixture says of them, its gradient, its risk estimate, and what pairs cannot show."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from small_mixture import CARDINALITIES, COLUMNS, SCHEMA, known_mixture

from dither.datasets import generate_network
from dither.fit import AnswerCounts, answers_of
from dither.fit.mixture import fit as mixture_fit
from dither.fit.mixture import set_fit
from dither.fit.mixture.descent import Descent, State, Tied
from dither.fit.mixture.edges import Marginals, marginals_of, projected
from dither.fit.mixture.fit import (
    FitOptions,
    MixtureFit,
    _Beginning,
    _prepared,
    descend,
    fit_mixture,
    set_component_count,
)
from dither.fit.mixture.model import Edge, Mixture
from dither.fit.mixture.set_fit import (
    SetLockstep,
    SetTargets,
    gradient_of,
    laid_out,
    moved_start,
    predicted,
    pull_back,
    set_targets,
)
from dither.fit.mixture.targets import Edges, pair_targets, tables_pay
from dither.mechanisms import kernels
from dither.methods import start
from dither.methods.mixture.machine import as_model as fitted_model
from dither.release import redraw
from dither.reports import question
from dither.schema import Attribute, Schema


def as_model(weights: np.ndarray, a: np.ndarray) -> Mixture:
    return Mixture(SCHEMA, weights, tuple(np.split(a, COLUMNS.stops[:-1], axis=1)))


def answer(
    names: list[str], n: int, epsilon: float, rng: np.random.Generator, truth: Mixture
) -> AnswerCounts:
    q = question(truth.schema, names, epsilon)
    people = rng.multinomial(n, truth.marginal(names).ravel())
    return AnswerCounts(q, kernels.simulate(q.mechanism, people, rng), n)


def collected(
    n: int, epsilon: float, rng: np.random.Generator, size: int = 3
) -> list[AnswerCounts]:
    """All sets of three attributes of people who follow the known mixture, and some single attributes."""
    truth = as_model(*known_mixture())
    sets = [list(names) for names in combinations(SCHEMA.names, size)]
    return [answer(names, n, epsilon, rng, truth) for names in [*sets, ["x0"], ["x3"]]]


def targets_of(answers: list[AnswerCounts], edges: Edges = ()) -> SetTargets:
    return set_targets(SCHEMA, answers, COLUMNS, edges)


def state_of(weights: np.ndarray, a: np.ndarray) -> State:
    return State(weights, a, a)


def untied(edges: Edges, weights: np.ndarray, a: np.ndarray) -> State:
    """A mixture of products as one with edges that tie nothing."""
    ties = tuple(
        Tied(
            a[:, COLUMNS.of(i)], np.ones((CARDINALITIES[i], CARDINALITIES[j])), a[:, COLUMNS.of(j)]
        )
        for i, j in edges
    )
    return State(weights, a, a, ties)


def tied_start(edges: Edges, rng: np.random.Generator, components: int = 4) -> Descent:
    potentials = [rng.standard_normal((CARDINALITIES[i], CARDINALITIES[j])) for i, j in edges]
    start = Descent(COLUMNS, rng.standard_normal((components, COLUMNS.width)), edges, potentials)
    start.weight_logits = rng.standard_normal(components)
    return start


@pytest.mark.parametrize("edges", [(), ((0, 2),), ((0, 3), (1, 4))])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_a_mixtures_tables_are_its_marginals(size: int, edges: Edges) -> None:
    rng = np.random.default_rng(size)
    state = tied_start(edges, rng, 7).model()
    ties = tuple(Edge(i, j, tied.psi[None]) for (i, j), tied in zip(edges, state.ties, strict=True))
    factors = tuple(np.split(state.factors, COLUMNS.stops[:-1], axis=1))
    truth = Mixture(SCHEMA, state.weights, factors, ties, np.zeros(7, dtype=np.intp))
    names = [list(rng.permutation(chosen)) for chosen in combinations(SCHEMA.names, size)]
    sets = targets_of([answer(n, 500, 1.0, rng, truth) for n in names], edges)
    seen = set()
    for block in sets.blocks:
        tables = predicted(
            state.weights[None], block.halves(np.ascontiguousarray(laid_out([state])))
        )
        for members, table in zip(block.members, tables, strict=True):
            expected = truth.marginal([SCHEMA.names[i] for i in members])
            np.testing.assert_allclose(table.reshape(block.shape), expected, atol=1e-12)
            seen.add(frozenset(members.tolist()))
    assert len(seen) == len(names)


def test_answers_about_a_set_in_any_order_are_one_table_with_their_precision_added() -> None:
    truth, rng = as_model(*known_mixture()), np.random.default_rng(0)
    first, second = (
        answer(names, n, 2.0, rng, truth)
        for names, n in ((["x2", "x0", "x1"], 4000), (["x0", "x1", "x2"], 1000))
    )
    (block,) = targets_of([first, second]).blocks
    raw = [
        kernels.estimate(a.question.mechanism, a.support, a.n).frequencies.reshape(
            [SCHEMA[n].cardinality for n in names]
        )
        for a, names in ((first, ["x2", "x0", "x1"]), (second, ["x0", "x1", "x2"]))
    ]
    assert block.members.tolist() == [[1, 0, 2]], "narrow members first"
    mean = (0.8 * raw[0].transpose(2, 1, 0) + 0.2 * raw[1].transpose(1, 0, 2)).ravel()
    np.testing.assert_allclose(block.tables.ravel(), mean)
    one = targets_of([answer(["x0", "x1", "x2"], 5000, 2.0, rng, truth)]).blocks[0]
    for got, expected in zip(block.noise, one.noise, strict=True):
        np.testing.assert_allclose(got, expected)


@pytest.mark.slow
def test_variances_are_those_of_the_tables() -> None:
    truth, rng = as_model(*known_mixture()), np.random.default_rng(1)
    blocks = [
        targets_of([answer(["x1", "x3", "x0"], 800, 1.5, rng, truth)]).blocks[0]
        for _ in range(3000)
    ]
    expected = truth.marginal(["x1", "x3", "x0"]).reshape(blocks[0].tables.shape)
    variance = blocks[0].variances(expected)
    ratio = np.var([b.tables for b in blocks], axis=0) / variance
    # A variance of 3,000 draws has a relative standard error of sqrt(2/3000) = 0.026.
    assert np.abs(ratio - 1).max() < 4 * 0.026
    assert np.abs(ratio / 1.2 - 1).max() > 4 * 0.026, "a fifth off would be seen"


@pytest.mark.parametrize("edges", [(), ((0, 2),), ((0, 3), (1, 4))])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_the_gradient_is_that_of_the_loss(size: int, edges: Edges) -> None:
    rng = np.random.default_rng(10 + size)
    sets = targets_of(collected(300, 1.0, rng, size), edges)
    precisions = [rng.uniform(0.5, 2.0, block.tables.shape) for block in sets.blocks]
    start = tied_start(edges, rng)

    def loss() -> float:
        state = start.model()
        by_column = np.ascontiguousarray(laid_out([state]))
        tables = [predicted(state.weights[None], block.halves(by_column)) for block in sets.blocks]
        gaps = zip(sets.blocks, tables, precisions, strict=True)
        return 0.5 * sum(float((w * (t - block.tables) ** 2).sum()) for block, t, w in gaps)

    state = start.model()
    by_column = np.ascontiguousarray(laid_out([state]))
    toward, by_weight = np.zeros_like(by_column), np.zeros((1, 4))
    for block, w in zip(sets.blocks, precisions, strict=True):
        halves = block.halves(by_column)
        pull = w * (predicted(state.weights[None], halves) - block.tables)
        by_weight += pull_back(block, by_column, halves, pull, toward)
    found = gradient_of(start, state, toward[:, 0].T.copy(), by_weight[0])
    moved = [
        (start.logits, found.logits * state.weights[:, None]),
        (start.weight_logits, found.weights * state.weights),
    ]
    moved += list(zip(start.potentials, found.potentials, strict=True))
    step = 1e-5
    for values, gradient in moved:
        for place in list(np.ndindex(values.shape))[:: max(1, values.size // 9)]:
            values[place] += step
            up = loss()
            values[place] -= 2 * step
            down = loss()
            values[place] += step
            assert (up - down) / (2 * step) == pytest.approx(gradient[place], rel=1e-4, abs=1e-7)


def test_the_start_pools_what_every_set_says_of_an_attribute_and_of_an_edge() -> None:
    answers, edges = collected(2000, 2.0, np.random.default_rng(3)), ((0, 2), (1, 4))
    sets, targets = targets_of(answers, edges), pair_targets(SCHEMA, answers)
    empty = {e: np.zeros_like(table) for e, table in marginals_of(targets, edges).pairs.items()}
    nothing = Marginals(np.zeros(COLUMNS.width), empty, dict.fromkeys(edges, 1.0))
    pooled = moved_start(sets, nothing, [block.tables for block in sets.blocks], 1.0)
    np.testing.assert_allclose(pooled.one, targets.one, atol=1e-12)
    for (i, j), table in pooled.pairs.items():
        np.testing.assert_allclose(table, targets.pairs[COLUMNS.of(i), COLUMNS.of(j)], atol=1e-12)


def prepared(
    answers: list[AnswerCounts], seed: int, edges: Edges = (), **options: float
) -> SetLockstep:
    settings = FitOptions(total=30, components=10, **options)  # type: ignore[arg-type]
    sets = targets_of(answers, edges)
    group = _prepared(pair_targets(SCHEMA, answers), np.random.default_rng(seed), settings, sets)
    assert isinstance(group, SetLockstep)
    return group


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "edges"), [(0, ()), (10, ()), (30, ()), (20, ((0, 2), (1, 4)))])
def test_estimated_risk_is_the_true_risk_on_average(steps: int, edges: Edges) -> None:
    """SURE at a given step against the weighted squared distance from the truth; without df it would be far off."""
    truth = untied(edges, *known_mixture())
    gaps, plain = [], []
    for seed in range(40):
        group = prepared(collected(4000, 0.8, np.random.default_rng(100 + seed)), seed, edges)
        for _ in range(steps):
            group.advance(check=False)
        models, chi2, df = group.advance(check=True)
        pairs = zip(group.tables(models), group.tables([truth]), group.weighed, strict=True)
        risk = sum(float((w.precision * (got - true) ** 2).sum()) for got, true, w in pairs)
        gaps.append(chi2 - group.cells + 2 * df - risk)
        plain.append(chi2 - group.cells - risk)
    error = np.std(gaps) / np.sqrt(len(gaps))
    assert abs(np.mean(gaps)) < 4 * error
    assert np.mean(plain) < -4 * error, "degrees of freedom make the difference"


def test_single_precision_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = collected(5000, 2.0, np.random.default_rng(4))
    found = []
    for kind in (np.float32, np.float64):
        monkeypatch.setattr(set_fit, "WORKING", kind)
        group = prepared(answers, 0)
        for _ in range(25):
            group.advance(check=False)
        models, chi2, df = group.advance(check=True)
        found.append((group.tables(models), chi2, df))
    for single, double in zip(found[0][0], found[1][0], strict=True):
        np.testing.assert_allclose(single, double, atol=1e-5)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-4)
    assert found[0][2] == pytest.approx(found[1][2], rel=0.02)


def test_weights_follow_the_fit_only_while_that_matters() -> None:
    group = prepared(collected(200_000, 6.0, np.random.default_rng(5)), 0)
    truth, flat = (
        state_of(*known_mixture()),
        state_of(
            np.ones(1), np.full((1, COLUMNS.width), 1.0) / COLUMNS.spread(COLUMNS.cardinalities)
        ),
    )
    assert group.reweigh([flat])
    assert group.reweigh([truth]), "far from uniform: other variances"
    assert not group.reweigh([truth])
    true_tables = group.tables([truth])
    for block, table, weighed in zip(group.sets.blocks, true_tables, group.weighed, strict=True):
        np.testing.assert_allclose(weighed.precision, 1 / block.variances(table))
    chi2 = group.chi2(true_tables, [w.precision for w in group.weighed])
    # The cells of a table are correlated, at most as those of a multinomial; four standard deviations of chi^2.
    assert abs(chi2 - group.cells) < 4 * np.sqrt(2 * group.cells) + len(group.sets.blocks)


def test_chi_square_as_a_function_of_the_dependence_kept() -> None:
    group = prepared(collected(3000, 2.0, np.random.default_rng(6)), 0)
    weights, a = known_mixture(9)
    mixture, product = state_of(weights, a), state_of(np.ones(1), (weights @ a)[None])
    cross, square = group.dependence([mixture], product)
    precisions = [w.precision for w in group.weighed]
    mixed, flat = group.tables([mixture]), group.tables([product])
    for s in (0.0, 0.3, 1.0):
        blend = [s * m + (1 - s) * f for m, f in zip(mixed, flat, strict=True)]
        base = group.chi2(flat, precisions)
        assert group.chi2(blend, precisions) == pytest.approx(base + s * cross + s * s * square)


def test_three_attributes_that_only_together_depend_are_found_by_sets_and_not_by_pairs() -> None:
    """x2 is x0 xor x1 in nine of ten people: every pair is independent."""
    schema = Schema(tuple(Attribute(f"b{i}", "categorical", ("no", "yes")) for i in range(4)))
    joint = np.empty((2, 2, 2, 2))
    for x, y in np.ndindex(2, 2):
        joint[x, y, x ^ y, :] = 0.45 / 4
        joint[x, y, 1 - (x ^ y), :] = 0.05 / 4
    assert joint.sum() == pytest.approx(1)
    rng, answers = np.random.default_rng(0), []
    for chosen in combinations(range(4), 3):
        q = question(schema, [schema.names[i] for i in chosen], 3.0)
        table = joint.sum(axis=tuple(i for i in range(4) if i not in chosen)).ravel()
        answers.append(
            AnswerCounts(
                q, kernels.simulate(q.mechanism, rng.multinomial(50_000, table), rng), 50_000
            )
        )
    targets = pair_targets(schema, answers)
    assert tables_pay(4, answers)
    assert not tables_pay(41, answers), "of very many attributes pairs alone are fitted"
    sets = partial(set_targets, schema, answers, targets.columns)

    def error(fitted: MixtureFit) -> float:
        got = fitted_model(schema, fitted).marginal(["b0", "b1", "b2"])
        return float(np.abs(got - joint.sum(axis=3)).sum() / 2)

    whole = error(fit_mixture(targets, np.random.default_rng(1), FitOptions(), sets))
    pairs = error(fit_mixture(targets, np.random.default_rng(1), FitOptions()))
    assert whole < 0.02
    assert pairs > 0.3


def test_pairs_move_as_the_tables_they_are_pooled_from() -> None:
    answers, edges = collected(2000, 2.0, np.random.default_rng(3)), ((0, 2),)
    targets, group = pair_targets(SCHEMA, answers), prepared(answers, 0, edges)
    for block, weighed in zip(group.sets.blocks, group.weighed, strict=True):
        weighed.draws = np.repeat(block.tables, weighed.draws.shape[1], axis=1) * np.sqrt(
            weighed.precision
        )
    probe = group.moved_pairs(targets, 1)
    np.testing.assert_allclose(probe.pairs, (1 + group.probe) * targets.pairs, atol=1e-12)
    np.testing.assert_allclose(probe.singles, (1 + group.probe) * targets.singles, atol=1e-12)
    np.testing.assert_allclose(
        probe.one, projected(COLUMNS, (1 + group.probe) * targets.one), atol=1e-12
    )


@pytest.mark.slow
def test_degrees_of_freedom_of_a_fit_to_pairs_are_its_covariance_with_the_tables() -> None:
    """Twins whose pairs come from moved tables, against fresh data."""
    truth, steps = state_of(*known_mixture()), 30
    gaps, spent = [], []
    options = FitOptions(total=30, components=10)
    for seed in range(40):
        answers = collected(4000, 0.8, np.random.default_rng(200 + seed), size=4)
        group, targets = prepared(answers, seed), pair_targets(SCHEMA, answers)
        beginning = _Beginning(targets, np.random.default_rng(seed), options, None)
        pairs = beginning.lockstep(
            (), [group.moved_pairs(targets, twin) for twin in range(len(group.twins))]
        )
        for _ in range(steps):
            pairs.advance(check=False)
        models = [start.model() for start in pairs.starts]
        twins = [
            (model, twin.model()) for model, (twin, _) in zip(models, pairs.twins, strict=False)
        ]
        precisions = [w.precision for w in group.weighed]
        df = group.followed(twins, precisions)
        parts = zip(
            precisions, group.tables(models), group.sets.blocks, group.tables([truth]), strict=True
        )
        covariance = sum(
            float((w * (got - true) * (block.tables - true)).sum()) for w, got, block, true in parts
        )
        gaps.append(df - covariance)
        spent.append(df)
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / np.sqrt(len(gaps))
    assert np.mean(spent) > 6 * np.std(gaps) / np.sqrt(len(gaps)), "none would be noticed"


def test_pairs_alone_are_fitted_where_whole_tables_follow_their_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A weak network of pairs, 45,000 people asked four attributes each: the fit to whole tables is 1.4 times as far off."""
    network = generate_network((2,) * 14, parents=1, strength=1.0, seed=11)
    machine = start("mixture", network.schema, 4.0, 45_222, {"screen": "never"}, seed=0)
    redraw(machine, network, np.random.default_rng(1))
    answers = answers_of(machine.counted)
    targets = pair_targets(network.schema, answers)
    sets = partial(set_targets, network.schema, answers, targets.columns)
    names = list(combinations(network.schema.names, 2))

    def error() -> float:
        model = fitted_model(
            network.schema, fit_mixture(targets, np.random.default_rng(2), FitOptions(), sets)
        )
        return float(
            np.mean(
                [np.abs(model.marginal(pair) - network.marginal(pair)).sum() / 2 for pair in names]
            )
        )

    chosen = error()
    monkeypatch.setattr(mixture_fit, "whole_tables_pay", lambda *_: True)
    assert chosen < 0.9 * error()


@pytest.mark.parametrize("doubled", [False, True])
def test_whole_tables_refuse_an_edge_that_only_follows_noise(
    doubled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fits to pairs propose: an edge between independent attributes goes, one between two copies stays."""
    rng = np.random.default_rng(6)
    schema = Schema(
        tuple(Attribute(f"x{i}", "categorical", values=tuple("abcde")) for i in range(4))
    )
    parts = [rng.dirichlet(np.full(5, 3.0)) for _ in range(4)]
    truth = Mixture(schema, np.ones(1), tuple(part[None] for part in parts))
    if doubled:
        copies = (np.eye(5), np.eye(5), *(np.repeat(part[None], 5, axis=0) for part in parts[2:]))
        truth = Mixture(schema, parts[0], copies)
    answers = [
        answer(list(names), 30_000, 2.0, rng, truth) for names in combinations(schema.names, 3)
    ]
    targets = pair_targets(schema, answers)

    def proposed(beginning: _Beginning, *, grow: bool) -> MixtureFit:
        return descend(beginning.lockstep(((0, 1),)), beginning.targets, beginning.options)

    monkeypatch.setattr(mixture_fit, "_chosen", proposed)
    sets = partial(set_targets, schema, answers, targets.columns)
    options = FitOptions(total=60, components=20, whole_tables=True)
    found = fit_mixture(targets, np.random.default_rng(1), options, sets)
    assert found.edges == (((0, 1),) if doubled else ())
    given = fit_mixture(
        targets, np.random.default_rng(1), replace(options, edges=found.edges), sets
    )
    assert (found.pairs == given.pairs).all(), "the same starts as if nothing had been proposed"


@pytest.mark.parametrize("n", [1, 3, 30])
def test_hardly_any_reports_give_a_distribution_all_the_same(n: int) -> None:
    answers = collected(n, 0.2, np.random.default_rng(n))
    fitted = fit_mixture(
        pair_targets(SCHEMA, answers),
        np.random.default_rng(0),
        FitOptions(),
        partial(targets_of, answers),
    )
    assert np.isfinite(fitted.components).all()
    np.testing.assert_allclose(COLUMNS.sums(fitted.components), 1, atol=1e-9)
    assert all(np.isfinite(v) for v in fitted.diagnostics.values())


def test_many_cells_get_more_components() -> None:
    assert [set_component_count(cells, 600) for cells in (100, 100_000)] == [100, 200]
    assert set_component_count(100_000, 200) == 100
