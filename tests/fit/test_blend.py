"""Shares of candidates against a search of the whole simplex, and the average of mixtures against the average of their tables."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from small_mixture import CARDINALITIES, COLUMNS, SCHEMA
from test_mixture_fit import collected

from dither.fit.mixture.fit import FitOptions, best_shares, blended, fit_mixture, gram
from dither.fit.mixture.targets import inverse_variances
from dither.methods.mixture.machine import as_model


def risk(products: np.ndarray, df: np.ndarray, shares: np.ndarray) -> float:
    return float(shares @ products @ shares + 2.0 * df @ shares)


@pytest.mark.parametrize("seed", range(24))
def test_shares_are_the_best_of_a_fine_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    base = rng.standard_normal(
        (count, 3 if seed % 3 == 0 else 6)
    )  # every third time candidates that are not independent
    products, df = base @ base.T, rng.gamma(1.0, 0.6, count)
    shares = best_shares(products, df)
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1.0)
    steps = {2: 200, 3: 60, 4: 16}[count]
    grid = [np.array(g) / steps for g in product(range(steps + 1), repeat=count) if sum(g) == steps]
    best = min(risk(products, df, g) for g in grid)
    assert risk(products, df, shares) <= best + 1e-9
    assert (
        risk(products, df, shares) >= best - 0.25 * np.abs(products).max() / steps
    )  # the grid is about as good


def test_a_candidate_that_repeats_another_changes_nothing_and_one_that_is_off_gets_nothing() -> (
    None
):
    products = np.array([[2.0, 1.0, 2.0], [1.0, 50.0, 1.0], [2.0, 1.0, 2.0]])
    shares = best_shares(products, np.array([0.1, 5.0, 0.1]))
    assert shares[1] == 0.0
    assert shares[[0, 2]].sum() == pytest.approx(1.0)


def test_an_average_of_fits_is_the_average_of_their_tables() -> None:
    targets = collected(20_000, 3.0, np.random.default_rng(1))
    options = FitOptions(total=24, components=8, iterations=30, edges=((0, 2),))
    fits = [fit_mixture(targets, np.random.default_rng(seed), options) for seed in (1, 2)]
    both = blended(fits, np.array([0.3, 0.7]))
    for names in (["x0", "x2"], ["x1", "x3"], ["x0", "x2", "x4"]):
        apart = [as_model(SCHEMA, fit).marginal(names) for fit in fits]
        assert np.allclose(as_model(SCHEMA, both).marginal(names), 0.3 * apart[0] + 0.7 * apart[1])
    assert np.allclose(both.pairs, 0.3 * fits[0].pairs + 0.7 * fits[1].pairs)
    alone = blended(fits, np.array([0.0, 1.0]))
    assert alone.weights is fits[1].weights


def test_products_are_sums_over_cells_each_counted_once() -> None:
    targets = collected(20_000, 3.0, np.random.default_rng(1))
    options = FitOptions(total=24, components=8, iterations=10, edges=())
    fits = [fit_mixture(targets, np.random.default_rng(seed), options) for seed in (1, 2)]
    w2, w1 = inverse_variances(targets, fits[0].pairs, fits[0].one)
    slow = float((w1 * (fits[0].one - targets.singles) * (fits[1].one - targets.singles)).sum())
    for i in range(len(CARDINALITIES)):
        for j in range(i + 1, len(CARDINALITIES)):
            at = (COLUMNS.of(i), COLUMNS.of(j))
            slow += float(
                (
                    w2[at]
                    * (fits[0].pairs[at] - targets.pairs[at])
                    * (fits[1].pairs[at] - targets.pairs[at])
                ).sum()
            )
    assert gram(targets, w2, w1, fits)[0, 1] == pytest.approx(slow)
