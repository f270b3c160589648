"""Averages of models: shares against a search of the simplex, marginals, rows, archives."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from small_mixture import CARDINALITIES, COLUMNS, SCHEMA, collected, known_mixture

from dither.errors import ReportError
from dither.fit import Independent, Model, model_from_bytes
from dither.fit.average import Average, Candidate, averaged, best_shares, gram
from dither.fit.mixture import Mixture, Weights, inverse_variances
from dither.tally import pack, unpack


def risk(products: np.ndarray, df: np.ndarray, shares: np.ndarray) -> float:
    return float(shares @ products @ shares + 2.0 * df @ shares)


@pytest.mark.parametrize("seed", range(24))
def test_shares_are_the_best_of_a_fine_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    # Every third time the candidates are linearly dependent.
    base = rng.standard_normal((count, 3 if seed % 3 == 0 else 6))
    products, df = base @ base.T, rng.gamma(1.0, 0.6, count)
    shares = best_shares(products, df)
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1.0)
    steps = {2: 200, 3: 60, 4: 16}[count]
    grid = [np.array(g) / steps for g in product(range(steps + 1), repeat=count) if sum(g) == steps]
    best = min(risk(products, df, g) for g in grid)
    assert risk(products, df, shares) <= best + 1e-9
    # The grid is about as good.
    assert risk(products, df, shares) >= best - 0.25 * np.abs(products).max() / steps


def test_a_repeated_candidate_changes_nothing_and_a_bad_one_gets_no_share() -> None:
    products = np.array([[2.0, 1.0, 2.0], [1.0, 50.0, 1.0], [2.0, 1.0, 2.0]])
    shares = best_shares(products, np.array([0.1, 5.0, 0.1]))
    assert shares[1] == 0.0
    assert shares[[0, 2]].sum() == pytest.approx(1.0)


def candidate(model: Mixture, name: str = "mixture") -> Candidate:
    side = np.concatenate(model.components, axis=1)
    pairs = (side.T * model.weights) @ side
    return Candidate(name, model, pairs, model.weights @ side, 0.0)


def mixture(seed: int) -> Mixture:
    return Mixture.side_by_side(SCHEMA, *known_mixture(seed))


def test_products_count_every_cell_once() -> None:
    targets = collected(20_000, 3.0, np.random.default_rng(1))
    one, two = candidate(mixture(1)), candidate(mixture(2))
    weights = Weights(*inverse_variances(targets, one.pairs, one.one))
    slow = float(
        (weights.singles * (one.one - targets.singles) * (two.one - targets.singles)).sum()
    )
    for i, j in combinations(range(len(CARDINALITIES)), 2):
        at = (COLUMNS.of(i), COLUMNS.of(j))
        residuals = [c.pairs[at] - targets.pairs[at] for c in (one, two)]
        slow += float((weights.pairs[at] * residuals[0] * residuals[1]).sum())
    assert gram(targets, weights, [one, two])[0, 1] == pytest.approx(slow)


def parts() -> tuple[Mixture, Independent]:
    flat = Independent(SCHEMA, tuple(np.full(k, 1.0 / k) for k in CARDINALITIES))
    return mixture(3), flat


def test_mixtures_become_one_mixture_and_other_models_an_average() -> None:
    first, flat = parts()
    second = mixture(4)
    names = list(SCHEMA.names[:3])
    joined = averaged([candidate(first), candidate(second)], np.array([0.3, 0.7]))
    assert isinstance(joined, Mixture)
    wanted = 0.3 * first.marginal(names) + 0.7 * second.marginal(names)
    np.testing.assert_allclose(joined.marginal(names), wanted, atol=1e-12)
    other = Candidate("flat", flat, np.zeros((1, 1)), np.zeros(1), 0.0)
    both = averaged([candidate(first), other], np.array([0.25, 0.75]))
    assert isinstance(both, Average)
    wanted = 0.25 * first.marginal(names) + 0.75 * flat.marginal(names)
    np.testing.assert_allclose(both.marginal(names), wanted, atol=1e-12)
    assert averaged([candidate(first), other], np.array([1.0, 0.0])).kind == "mixture"


def test_rows_of_an_average_follow_its_marginals() -> None:
    both: Model = Average(SCHEMA, np.array([0.6, 0.4]), parts())
    rows, n = both.sample(200_000, np.random.default_rng(0)), 200_000
    names = list(SCHEMA.names[:2])
    share = both.marginal(names).ravel()
    counts = np.bincount(rows[:, 0] * CARDINALITIES[1] + rows[:, 1], minlength=len(share))
    chi2 = float(((counts - n * share) ** 2 / (n * share)).sum())
    assert chi2 < len(share) + 5 * np.sqrt(2 * len(share))
    wrong = parts()[0].marginal(names).ravel()
    assert float(((counts - n * wrong) ** 2 / (n * np.maximum(wrong, 1e-9))).sum()) > 1_000


def test_archives_of_averages() -> None:
    both = Average(SCHEMA, np.array([0.6, 0.4]), parts())
    data = both.to_bytes()
    again = model_from_bytes(data)
    names = list(SCHEMA.names)
    np.testing.assert_array_equal(again.marginal(names), both.marginal(names))
    assert again.to_bytes() == data
    meta, arrays = unpack(data)
    for bad in ({"models": 0}, {"models": 40}, {"models": True}, {"models": "2"}):
        with pytest.raises(ReportError):
            model_from_bytes(pack({**meta, **bad}, arrays))
    for shares in ([0.6, 0.6], [-0.4, 1.4], [1.0]):
        with pytest.raises(ReportError):
            model_from_bytes(pack(meta, {**arrays, "shares": np.array(shares)}))
    nested = {**arrays, "model 0": np.frombuffer(data, np.uint8)}
    with pytest.raises(ReportError, match="average of averages"):
        model_from_bytes(pack(meta, nested))
