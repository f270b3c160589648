"""The mixture's fit: its gradient, its risk estimate, what it recovers and what a wrong weight does."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from small_mixture import CARDINALITIES, COLUMNS, SCHEMA, known_mixture, sparse

from dither.fit import AnswerCounts
from dither.fit.mixture import fit as mixture_fit
from dither.fit.mixture.descent import Descent, DrawnProbe, PairLockstep, State
from dither.fit.mixture.fit import (
    FitOptions,
    _prepared,
    component_count,
    fit_mixture,
    product_fit,
    start_count,
)
from dither.fit.mixture.targets import (
    Edges,
    PairTargets,
    inverse_variances,
    links,
    pair_targets,
    trees,
)
from dither.mechanisms import kernels
from dither.reports import question


def pair_matrix(weights: np.ndarray, a: np.ndarray) -> np.ndarray:
    return (a.T * weights) @ a


def off_diagonal() -> np.ndarray:
    blocks = np.repeat(np.arange(len(CARDINALITIES)), CARDINALITIES)
    return blocks[:, None] != blocks[None, :]


def collected(n: int, epsilon: float, rng: np.random.Generator) -> PairTargets:
    """All pairs of people who follow the known mixture, n of them per pair, and n/10 per single attribute."""
    weights, a = known_mixture()
    pairs, one = pair_matrix(weights, a), weights @ a
    answers = []
    for i, j in combinations(range(len(CARDINALITIES)), 2):
        q = question(SCHEMA, [SCHEMA.names[i], SCHEMA.names[j]], epsilon)
        truth = rng.multinomial(n, pairs[COLUMNS.of(i), COLUMNS.of(j)].ravel())
        answers.append(AnswerCounts(q, kernels.simulate(q.mechanism, truth, rng), n))
    for i, name in enumerate(SCHEMA.names):
        q = question(SCHEMA, [name], epsilon)
        answers.append(
            AnswerCounts(
                q,
                kernels.simulate(q.mechanism, rng.multinomial(n // 10, one[COLUMNS.of(i)]), rng),
                n // 10,
            )
        )
    return pair_targets(SCHEMA, answers)


def fitted_pairs(targets: PairTargets) -> np.ndarray:
    fitted = fit_mixture(targets, np.random.default_rng(0), FitOptions(total=48, iterations=200))
    return fitted.pairs


def mean_error(pairs: np.ndarray) -> float:
    true = pair_matrix(*known_mixture())
    return float(
        np.mean(
            [
                np.abs(pairs - true)[COLUMNS.of(i), COLUMNS.of(j)].sum() / 2
                for i, j in combinations(range(len(CARDINALITIES)), 2)
            ]
        )
    )


@pytest.mark.parametrize(
    "edges", [(), ((0, 2),), ((0, 2), (1, 4)), ((1, 4), (0, 2), (2, 3)), ((0, 2), (1, 4), (2, 4))]
)
def test_the_gradient_is_that_of_the_loss(edges: Edges) -> None:
    rng = np.random.default_rng(0)
    targets = collected(500, 1.0, rng)
    w2, w1 = inverse_variances(targets, np.outer(targets.one, targets.one), targets.one)
    tied = [link for tree in trees(edges) for link in links(tree)]
    potentials = [rng.standard_normal((CARDINALITIES[i], CARDINALITIES[j])) for i, j in tied]
    start = Descent(COLUMNS, rng.standard_normal((4, COLUMNS.width)), edges, potentials)
    start.weight_logits = rng.standard_normal(4)

    def loss() -> float:
        state = start.model()
        r2, r1 = start.pairs(state) - targets.pairs, state.one - targets.singles
        return 0.25 * float((w2 * r2**2).sum()) + 0.5 * float(
            (w1 * r1**2).sum()
        )  # each pair stands twice in r2

    state = start.model()
    pull2, pull1 = w2 * (start.pairs(state) - targets.pairs), w1 * (state.one - targets.singles)
    found = start.pair_gradient(state, pull2, pull1)
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
            assert (up - down) / (2 * step) == pytest.approx(gradient[place], rel=1e-4, abs=1e-6)


def test_the_fit_recovers_a_known_mixture_from_many_reports() -> None:
    targets = collected(2_000_000, 3.0, np.random.default_rng(1))
    fitted = fit_mixture(targets, np.random.default_rng(0), FitOptions(total=48, edges=()))
    assert fitted.weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(COLUMNS.sums(fitted.components), 1, atol=1e-9)
    np.testing.assert_allclose(
        pair_matrix(fitted.weights, fitted.components), fitted.pairs, atol=1e-12
    )
    assert mean_error(fitted.pairs) < 0.003
    assert mean_error(np.outer(targets.one, targets.one)) > 0.05, "the product is no way near"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "edges"),
    [(0, ()), (10, ()), (30, ()), (0, ((0, 2),)), (20, ((0, 2), (1, 4))), (20, ((0, 2), (2, 4)))],
)
def test_estimated_risk_is_the_true_risk_on_average(steps: int, edges: Edges) -> None:
    """SURE at a given step against the weighted squared distance from the truth; without df it would be far off."""
    true = pair_matrix(*known_mixture())
    true_one = known_mixture()[0] @ known_mixture()[1]
    gaps, plain, spent = [], [], []
    options = FitOptions(total=30, components=10, twins=3, edges=edges)
    for seed in range(40):
        targets = collected(4000, 0.8, np.random.default_rng(100 + seed))
        group = _prepared(targets, np.random.default_rng(seed), options)
        assert isinstance(group, PairLockstep)
        for _ in range(steps):
            group.advance(check=False)
        models, chi2, df = group.advance(check=True)
        pairs = np.mean([group.starts[0].pairs(state) for state in models], axis=0)
        one = np.mean([state.one for state in models], axis=0)
        risk = 0.5 * float((group.w2 * (pairs - true) ** 2).sum()) + float(
            group.w1 @ (one - true_one) ** 2
        )
        gaps.append(chi2 - targets.cells + 2 * df - risk)
        plain.append(chi2 - targets.cells - risk)
        covariance = 0.5 * np.vdot(group.w2 * pairs, targets.pairs - true)
        spent.append(df - float(covariance + group.w1 * one @ (targets.singles - true_one)))
    # chi^2 alone has a standard deviation of sqrt(2 cells), 14 here.
    error = np.std(gaps) / np.sqrt(len(gaps))
    assert abs(np.mean(gaps)) < 4 * error
    assert np.mean(plain) < -4 * error, "degrees of freedom make the difference"
    # Degrees of freedom are the covariance of what is fitted with its data, here over fresh data; the twins need the data once.
    assert abs(np.mean(spent)) < 4 * np.std(spent) / np.sqrt(len(spent))


@pytest.mark.slow
def test_a_twin_that_leaves_the_path_does_not_stop_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three twins is far off all the time, and for a moment all of them are: neither has a say in where the fit stops."""
    targets = collected(20_000, 2.0, np.random.default_rng(3))
    options = FitOptions(total=36, components=12, edges=(), patience=40, iterations=100)
    first, advance, calls = [True, False, False], PairLockstep.advance, [0]
    followed = DrawnProbe.followed

    def stray(probe: DrawnProbe, *change: np.ndarray) -> float:
        first.append(first.pop(0))
        return followed(probe, *change) - (1e3 if first[-1] else 0.0)

    def dip(group: PairLockstep, check: bool) -> tuple[list[State], float, float]:
        models, chi2, df = advance(group, check)
        calls[0] += 1
        return models, chi2, df - (1e3 if calls[0] in (31, 36) else 0.0)

    plain = fit_mixture(targets, np.random.default_rng(0), options).diagnostics
    assert plain["iterations"] > 40
    monkeypatch.setattr(DrawnProbe, "followed", stray)
    one_off = fit_mixture(targets, np.random.default_rng(0), options).diagnostics
    assert (
        abs(one_off["degrees_of_freedom"] - plain["degrees_of_freedom"])
        < 0.2 * plain["degrees_of_freedom"]
    )
    monkeypatch.setattr(DrawnProbe, "followed", followed)
    monkeypatch.setattr(PairLockstep, "advance", dip)
    assert fit_mixture(targets, np.random.default_rng(0), options).diagnostics == plain


def test_wrong_weights_fit_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs asked of very different numbers of people: weights 1/sigma in place of 1/sigma^2 cost accuracy."""

    def uneven(seed: int) -> PairTargets:
        rng = np.random.default_rng(seed)
        weights, a = known_mixture()
        pairs, answers = pair_matrix(weights, a), []
        for number, (i, j) in enumerate(combinations(range(len(CARDINALITIES)), 2)):
            n = 60_000 if number % 2 else 300
            q = question(SCHEMA, [SCHEMA.names[i], SCHEMA.names[j]], 1.0)
            truth = rng.multinomial(n, pairs[COLUMNS.of(i), COLUMNS.of(j)].ravel())
            answers.append(AnswerCounts(q, kernels.simulate(q.mechanism, truth, rng), n))
        return pair_targets(SCHEMA, answers)

    data = [uneven(seed) for seed in range(5)]
    right = [mean_error(fitted_pairs(t)) for t in data]

    def roots(
        targets: PairTargets, pair: np.ndarray, one: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        w2, w1 = inverse_variances(targets, pair, one)
        return np.sqrt(w2), np.sqrt(w1)

    monkeypatch.setattr(mixture_fit, "inverse_variances", roots)
    wrong = [mean_error(fitted_pairs(t)) for t in data]
    assert np.mean(right) < 0.9 * np.mean(wrong)


def test_a_wrong_variance_stops_too_late() -> None:
    """Told a quarter of the true noise, the fit follows the noise: worse, and its own risk estimate says so not."""
    data = [collected(800, 1.0, np.random.default_rng(200 + s)) for s in range(4)]
    right = np.mean([mean_error(fitted_pairs(t)) for t in data])

    def quarter(t: PairTargets) -> PairTargets:
        c0, c1, c2 = t.pair_noise
        s0, s1, s2 = t.single_noise
        return replace(
            t, pair_noise=(c0 / 16, c1 / 16, c2 / 16), single_noise=(s0 / 16, s1 / 16, s2 / 16)
        )

    wrong = np.mean([mean_error(fitted_pairs(quarter(t))) for t in data])
    assert right < 0.9 * wrong


def test_without_pairs_the_fit_is_the_product() -> None:
    rng = np.random.default_rng(3)
    answers = []
    for name in SCHEMA.names:
        q = question(SCHEMA, [name], 1.0)
        k = SCHEMA[name].cardinality
        answers.append(
            AnswerCounts(
                q, kernels.simulate(q.mechanism, rng.multinomial(1000, np.ones(k) / k), rng), 1000
            )
        )
    targets = pair_targets(SCHEMA, answers)
    assert not targets.has_pairs
    fitted = fit_mixture(targets, rng)
    np.testing.assert_array_equal(fitted.components, product_fit(targets).components)
    np.testing.assert_array_equal(fitted.components[0], targets.one)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 30])
def test_hardly_any_reports_give_a_distribution_all_the_same(n: int) -> None:
    rng = np.random.default_rng(n)
    answers = []
    for i, j in combinations(range(len(CARDINALITIES)), 2):
        q = question(SCHEMA, [SCHEMA.names[i], SCHEMA.names[j]], 0.2)
        k = CARDINALITIES[i] * CARDINALITIES[j]
        answers.append(
            AnswerCounts(
                q, kernels.simulate(q.mechanism, rng.multinomial(n, np.ones(k) / k), rng), n
            )
        )
    fitted = fit_mixture(pair_targets(SCHEMA, answers), rng)
    assert np.isfinite(fitted.components).all()
    assert (fitted.components >= 0).all()
    np.testing.assert_allclose(COLUMNS.sums(fitted.components), 1, atol=1e-9)
    assert all(np.isfinite(v) for v in fitted.diagnostics.values())


def test_sizes_follow_the_signal_and_the_width() -> None:
    clear, noisy = (collected(n, 2.0, np.random.default_rng(4)) for n in (1_000_000, 100))
    sizes = []
    for targets in (clear, noisy):
        product = np.outer(targets.one, targets.one)
        sizes.append(component_count(targets, *inverse_variances(targets, product, targets.one)))
    assert sizes == [16, 16], "never more components than 16 or than columns"
    assert start_count(600, 60, 100) == 10
    assert start_count(600, 60, 2000) == 3


def test_a_fit_that_has_locked_on_to_single_people_is_not_believed() -> None:
    """Two hundred people in 576 cells: without the guard the dependence of noise is kept, at three times the product's error."""
    fits = [
        fit_mixture(
            sparse(3, np.full((24, 24), 1 / 24**2), 200, 8.0, seed),
            np.random.default_rng(0),
            FitOptions(),
        )
        for seed in range(4)
    ]
    below = [
        fit for fit in fits if fit.diagnostics["sure"] < -2 * np.sqrt(2 * fit.diagnostics["cells"])
    ]
    assert len(below) >= 2, "the estimated risk of such fits is below zero"
    assert all(fit.diagnostics["dependence_kept"] == 0.0 for fit in below)
    # What the reports do show is kept, though the estimated risk is as low.
    copied = fit_mixture(
        sparse(3, np.eye(24) / 24, 200, 8.0, 0), np.random.default_rng(0), FitOptions(edges=())
    )
    assert copied.diagnostics["dependence_kept"] > 0.5
