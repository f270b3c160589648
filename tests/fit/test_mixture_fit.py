"""The mixture's fit: its gradient, its risk estimate, what it recovers and what wrong noise does."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from small_mixture import (
    CARDINALITIES,
    COLUMNS,
    SCHEMA,
    answers,
    collected,
    known_mixture,
    pair_matrix,
)

from dither.fit import AnswerCounts
from dither.fit.mixture import (
    Descent,
    MixtureFit,
    MixtureSettings,
    PairTargets,
    Weights,
    component_count,
    fit_mixture,
    inverse_variances,
    pair_targets,
    start_count,
)
from dither.mechanisms import kernels
from dither.reports import question

MOVED_BY = 0.1
QUICK = MixtureSettings(total=48, iterations=200)


def fit(found: list[AnswerCounts], settings: MixtureSettings = QUICK) -> MixtureFit:
    rng = np.random.default_rng(0)
    moved = [pair_targets(SCHEMA, found, MOVED_BY, rng) for _ in range(3)]
    return fit_mixture(pair_targets(SCHEMA, found), moved, MOVED_BY, rng, settings)


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


def test_the_gradient_is_that_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    targets = collected(500, 1.0, rng)
    w2, w1 = inverse_variances(targets, np.outer(targets.one, targets.one), targets.one)
    start = Descent(COLUMNS, rng.standard_normal((4, COLUMNS.width)), rng.standard_normal(4))

    def loss() -> float:
        state = start.model()
        r2, r1 = state.pairs - targets.pairs, state.one - targets.singles
        # Each pair stands twice in r2.
        return 0.25 * float((w2 * r2**2).sum()) + 0.5 * float((w1 * r1**2).sum())

    state = start.model()
    pull2, pull1 = w2 * (state.pairs - targets.pairs), w1 * (state.one - targets.singles)
    found = start.gradient(state, pull2, pull1)
    step = 1e-5
    for values, gradient in (
        (start.logits, found.logits * state.weights[:, None]),
        (start.weight_logits, found.weights * state.weights),
    ):
        for place in list(np.ndindex(values.shape))[:: max(1, values.size // 9)]:
            values[place] += step
            up = loss()
            values[place] -= 2 * step
            down = loss()
            values[place] += step
            assert (up - down) / (2 * step) == pytest.approx(gradient[place], rel=1e-4, abs=1e-6)


def test_the_fit_recovers_a_known_mixture_from_many_reports() -> None:
    found = answers(2_000_000, 3.0, np.random.default_rng(1))
    fitted = fit(found, MixtureSettings(total=48))
    assert fitted.weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(COLUMNS.sums(fitted.components), 1, atol=1e-9)
    np.testing.assert_allclose(
        pair_matrix(fitted.weights, fitted.components), fitted.pairs, atol=1e-12
    )
    assert mean_error(fitted.pairs) < 0.003
    one = pair_targets(SCHEMA, found).one
    assert mean_error(np.outer(one, one)) > 0.05, "the product is far off"


@pytest.mark.slow
@pytest.mark.parametrize("steps", [10, 60])
def test_estimated_risk_is_the_true_risk_on_average(steps: int) -> None:
    """Stein's estimate against the weighted squared distance from the truth, over fresh data."""
    weights, components = known_mixture()
    true, true_one = pair_matrix(weights, components), weights @ components
    gaps, plain = [], []
    settings = MixtureSettings(
        total=30, components=10, iterations=steps, check_every=steps - 1, penalty=1.0
    )
    for seed in range(40):
        found = answers(4000, 0.8, np.random.default_rng(100 + seed))
        fitted = fit(found, replace(settings, iterations=steps))
        targets = pair_targets(SCHEMA, found)
        judge = Weights(*inverse_variances(targets, fitted.pairs, fitted.one))
        risk = 0.5 * float((judge.pairs * (fitted.pairs - true) ** 2).sum())
        risk += float(judge.singles @ (fitted.one - true_one) ** 2)
        chi2 = judge.chi_square(targets, fitted.pairs, fitted.one) - targets.cells
        gaps.append(chi2 + 2 * fitted.degrees_of_freedom - risk)
        plain.append(chi2 - risk)
    # chi^2 alone has a standard deviation of sqrt(2 cells), 14 here.
    error = float(np.std(gaps)) / np.sqrt(len(gaps))
    assert abs(np.mean(gaps)) < 4 * error + 2.0
    assert np.mean(plain) < np.mean(gaps) - 8.0, "degrees of freedom make the difference"


@pytest.mark.slow
def test_uneven_numbers_of_people_are_weighed() -> None:
    """Told that all pairs have the same noise, the fit is worse."""

    def uneven(seed: int) -> list[AnswerCounts]:
        rng = np.random.default_rng(seed)
        pairs, found = pair_matrix(*known_mixture()), []
        for number, (i, j) in enumerate(combinations(range(len(CARDINALITIES)), 2)):
            n = 60_000 if number % 2 else 300
            q = question(SCHEMA, [SCHEMA.names[i], SCHEMA.names[j]], 1.0)
            truth = rng.multinomial(n, pairs[COLUMNS.of(i), COLUMNS.of(j)].ravel())
            found.append(AnswerCounts(q, kernels.simulate(q.mechanism, truth, rng), n))
        return found

    def as_if_even(found: list[AnswerCounts]) -> PairTargets:
        targets = pair_targets(SCHEMA, found)
        asked = targets.pair_noise[1] > 0
        noise = tuple(np.where(asked, np.median(c[asked]), 0.0) for c in targets.pair_noise)
        return replace(targets, pair_noise=noise)

    right, wrong = [], []
    for seed in range(5):
        found = uneven(seed)
        right.append(mean_error(fit(found).pairs))
        even = as_if_even(found)
        rng = np.random.default_rng(0)
        wrong.append(mean_error(fit_mixture(even, [even] * 3, MOVED_BY, rng, QUICK).pairs))
    assert np.mean(right) < 0.9 * np.mean(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 30])
def test_few_reports_still_give_a_distribution(n: int) -> None:
    rng = np.random.default_rng(n)
    found = []
    for i, j in combinations(range(len(CARDINALITIES)), 2):
        q = question(SCHEMA, [SCHEMA.names[i], SCHEMA.names[j]], 0.2)
        k = CARDINALITIES[i] * CARDINALITIES[j]
        truth = rng.multinomial(n, np.ones(k) / k)
        found.append(AnswerCounts(q, kernels.simulate(q.mechanism, truth, rng), n))
    fitted = fit(found)
    assert np.isfinite(fitted.components).all()
    assert (fitted.components >= 0).all()
    np.testing.assert_allclose(COLUMNS.sums(fitted.components), 1, atol=1e-9)
    assert np.isfinite([fitted.degrees_of_freedom, fitted.risk]).all()


def test_sizes_follow_the_signal_and_the_width() -> None:
    clear, noisy = (collected(n, 2.0, np.random.default_rng(4)) for n in (1_000_000, 100))
    sizes = []
    for targets in (clear, noisy):
        product = np.outer(targets.one, targets.one)
        weights = Weights(*inverse_variances(targets, product, targets.one))
        sizes.append(component_count(targets, weights))
    assert sizes == [16, 16], "never more components than 16 or than columns"
    assert start_count(600, 60, 100) == 10
    assert start_count(600, 60, 2000) == 3


def test_pairs_of_one_set_move_together() -> None:
    """Moved data have the law of the data's own noise, also between pairs of one set."""
    q = question(SCHEMA, SCHEMA.names[:3], 2.0)
    rng = np.random.default_rng(1)
    n, cells = 5_000, 3 * 2 * 4
    truth = rng.multinomial(n, np.full(cells, 1 / cells))
    others = [question(SCHEMA, [name], 2.0) for name in SCHEMA.names[3:]]
    found = [AnswerCounts(q, kernels.simulate(q.mechanism, truth, rng), n)]
    for other in others:
        k = other.mechanism.cells
        truth = rng.multinomial(n, np.full(k, 1 / k))
        found.append(AnswerCounts(other, kernels.simulate(other.mechanism, truth, rng), n))
    base = pair_targets(SCHEMA, found)
    shifts = []
    for _ in range(400):
        moved = pair_targets(SCHEMA, found, MOVED_BY, rng)
        change = (moved.pairs - base.pairs) / MOVED_BY
        # The first attribute's first value, from two pairs: the same people answered both.
        shifts.append([change[0, COLUMNS.of(1)].sum(), change[0, COLUMNS.of(2)].sum()])
    first, second = np.array(shifts).T
    np.testing.assert_allclose(first, second, atol=1e-9)
    c = q.mechanism.group_variance(cells // 3, 1 / 3, n)
    # A variance from 400 draws has a relative error of 7 %; cells are taken as independent.
    assert np.var(first) == pytest.approx(c + (1 / 3) / n, rel=0.35)
