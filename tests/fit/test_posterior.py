"""The posterior's slope against finite differences, its coordinates, and the Gibbs step of its scales."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest
from small_mixture import CARDINALITIES
from test_mixture_fit import collected

from dither.fit.mixture.bayes import SCALE, SHAPE, Likeness, Posterior
from dither.fit.mixture.targets import Columns, PairTargets, inverse_variances


def built(edges: tuple[tuple[int, int], ...], components: int = 5) -> tuple[Posterior, PairTargets]:
    targets = collected(4_000, 2.0, np.random.default_rng(1))
    targets.columns.ordered = (3, 0, 4, 0, 0)
    rng = np.random.default_rng(2)
    potentials = [0.5 * rng.standard_normal((CARDINALITIES[i], CARDINALITIES[j])) for i, j in edges]
    weights = inverse_variances(targets, np.outer(targets.one, targets.one), targets.one)
    return Posterior(targets, weights, components, edges, potentials, np.float64), targets


@pytest.mark.parametrize("edges", [(), ((0, 2),), ((0, 2), (2, 4))])
def test_gradient_is_that_of_finite_differences(edges: tuple[tuple[int, int], ...]) -> None:
    posterior, _ = built(edges)
    rng = np.random.default_rng(3)
    x = 0.5 * rng.standard_normal(posterior.size)
    _, gradient = posterior(x)
    for _ in range(6):
        way = rng.standard_normal(posterior.size)
        slope = (posterior(x + 1e-5 * way)[0] - posterior(x - 1e-5 * way)[0]) / 2e-5
        assert slope == pytest.approx(float(gradient @ way), rel=1e-5, abs=1e-3)
    alone = np.zeros(posterior.size)
    alone[-2] = 1.0  # one log tau, whose part in a random direction is small
    slope = (posterior(x + 1e-5 * alone)[0] - posterior(x - 1e-5 * alone)[0]) / 2e-5
    assert slope == pytest.approx(float(gradient[-2]), rel=1e-4, abs=1e-3)


def test_logits_come_back_from_their_position() -> None:
    posterior, targets = built(())
    rng = np.random.default_rng(4)
    logits, log_tau = rng.standard_normal((5, targets.columns.width)), 0.3 * rng.standard_normal(5)
    assert np.allclose(posterior.logits(posterior.at(logits, log_tau)), logits)


def test_neighbours_of_an_ordered_attribute_are_alike_a_priori_and_other_values_are_not() -> None:
    likeness = Likeness(Columns((4, 3), (4, 0)), np.float64)
    rows = likeness.spread(np.random.default_rng(5).standard_normal((40_000, 7)))
    found = np.cov(rows.T)
    expected = np.eye(7)
    expected[:4, :4] = 0.2 * np.eye(4) + 0.8 * np.exp(
        -np.abs(np.subtract.outer(range(4), range(4))) / 4.0
    )
    assert np.abs(found - expected).max() < 5.0 * np.sqrt(2.0 / 40_000)


def test_the_gibbs_step_keeps_the_law_of_the_scales_and_the_logits() -> None:
    """With z and tau from the prior, tau is still from its prior after the step; a step with the wrong shape is noticed."""
    posterior, _ = built(())
    rng = np.random.default_rng(6)
    after, wrong = [], []
    for _ in range(400):
        variance = SCALE / rng.gamma(SHAPE, size=posterior.attributes)
        x = np.concatenate([rng.standard_normal(posterior.size - 5), 0.5 * np.log(variance)])
        moved = posterior.rescaled(x, rng)
        rows, again = (
            p[0][1:] * posterior._scale(p[1])[1:]
            for p in (posterior.split(x), posterior.split(moved))
        )
        assert np.allclose(rows, again)
        after.append(SCALE / np.exp(2.0 * moved[-5:]))
        wrong.append(after[-1] * 1.3)
    law = "gamma"
    assert kstest(np.concatenate(after), law, args=(SHAPE,)).pvalue > 0.001
    assert kstest(np.concatenate(wrong), law, args=(SHAPE,)).pvalue < 0.001


def test_the_shared_row_has_the_curvature_that_is_stated_where_components_are_alike() -> None:
    posterior, targets = built((), components=4)
    logits = np.tile(np.log(np.maximum(targets.one, 0.01)), (4, 1))
    x = posterior.at(logits, np.zeros(5))
    one = posterior.placed(x).state.one
    # Data that agree with the model: what is left of the second derivative is the part of Gauss and Newton.
    posterior.pairs[:] = posterior.placed(x).pairs
    posterior.singles[:] = one
    stated = posterior.shared_curvature(one, np.zeros(5))
    for column in (0, 4, 9):
        way = np.zeros(posterior.size)
        way[column] = 1e-4
        found = (posterior(x + way)[1] - posterior(x - way)[1])[: len(one)] / 2e-4
        assert np.allclose(
            found, stated[column], rtol=2e-3, atol=1e-3 * np.abs(stated[column]).max()
        )
