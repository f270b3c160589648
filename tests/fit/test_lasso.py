"""The co-occurrence regression: unbiased, with the variance it states, and able to tell joints apart."""

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import norm_sub
from dither.fit.joint import (
    Encoding,
    View,
    pair_cooccurrence,
    pair_variance,
    paper_lasso,
    simplex_lasso,
    view_weight,
)

JOINT = np.array([[0.35, 0.05, 0.0], [0.05, 0.05, 0.5]])


def _encodings(bloom, p=0.75, q=0.25):
    if not bloom:
        return [Encoding(None, 2, p, q), Encoding(None, 3, p, q)]
    first = np.array([[1, 1, 0, 0], [0, 1, 1, 0]], np.uint8)
    second = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 1, 0, 0, 1]], np.uint8)
    return [Encoding(first, 2, p, q), Encoding(second, 3, p, q)]


def _bits(encoding, values, rng):
    filters = (
        np.eye(encoding.cells, dtype=np.uint8) if encoding.filters is None else encoding.filters
    )
    chance = np.where(filters[values] == 1, encoding.p, encoding.q)
    return (rng.random(chance.shape) < chance).astype(np.uint8)


def _raw(encodings, cells, rng):
    bits = [
        _bits(e, v, rng) for e, v in zip(encodings, np.unravel_index(cells, (2, 3)), strict=True)
    ]
    n = len(cells)
    return pair_cooccurrence(
        bits[0].T.astype(float) @ bits[1], [b.sum(0) for b in bits], n, encodings
    ), bits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bloom", "p", "q"), [(False, 0.75, 0.25), (True, 0.75, 0.25), (False, 0.5, 0.1)]
)
def test_cooccurrence_is_unbiased_with_the_stated_variance(bloom, p, q):
    encodings = _encodings(bloom, p, q)
    n, trials = 500, 1_500
    cells = np.repeat(np.arange(6), np.rint(JOINT.ravel() * n).astype(int))
    rng = np.random.default_rng(1)
    found = np.array([_raw(encodings, cells, rng)[0] for _ in range(trials)])
    variance = pair_variance(encodings, JOINT.sum(1), JOINT.sum(0), JOINT, n)
    off = (found.mean(0) - JOINT) / np.sqrt(variance / trials)
    assert np.abs(off).max() < 4.5
    # A sample variance of 1,500 trials is within 4 * sqrt(2/1500) = 15 % of the true one.
    np.testing.assert_allclose(found.var(0), variance, rtol=0.15)


def test_indicators_average_to_the_same_joint():
    encodings = _encodings(True)
    cells = np.random.default_rng(2).choice(6, 500, p=JOINT.ravel())
    raw, bits = _raw(encodings, cells, np.random.default_rng(3))
    a, b = (e.indicators(x).astype(np.float64) for e, x in zip(encodings, bits, strict=True))
    np.testing.assert_allclose(a.T @ b / 500, raw, atol=1e-4)


def _alone(raw):
    return simplex_lasso(raw, [View((0, 1), raw, 1.0)], [None, None])


def test_unary_cooccurrence_alone_is_norm_sub():
    raw = np.random.default_rng(0).normal(0.1, 0.2, (3, 3))
    np.testing.assert_array_equal(_alone(raw), norm_sub(raw))


def test_regression_minimises_its_objective():
    encodings = _encodings(True)
    rng = np.random.default_rng(4)
    raw = JOINT + rng.normal(0, 0.1, JOINT.shape)
    singles = [norm_sub(JOINT.sum(1)), norm_sub(JOINT.sum(0))]
    grams = [e.gram for e in encodings]
    views = [View((i,), single, view_weight([encodings[i]])) for i, single in enumerate(singles)]
    views.append(View((0, 1), raw, view_weight(encodings)))

    def objective(x):
        off = x - raw
        value = views[2].weight * (off * (grams[0] @ off @ grams[1])).sum()
        for axis, single in enumerate(singles):
            gap = x.sum(1 - axis) - single
            value += views[axis].weight * gap @ grams[axis] @ gap
        return value

    found = simplex_lasso(raw, views, grams, tolerance=1e-12, iterations=5_000)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    best = objective(found)
    for _ in range(500):
        other = rng.dirichlet(np.ones(6)).reshape(2, 3)
        assert objective(found + 0.01 * (other - found)) >= best - 1e-12


def test_cooccurrence_tells_joints_apart_and_the_papers_features_do_not():
    encodings = _encodings(False, 0.95, 0.05)
    rng = np.random.default_rng(5)
    product = np.outer(JOINT.sum(1), JOINT.sum(0))
    n = 50_000
    estimates = {}
    for name, joint in (("joint", JOINT), ("product", product)):
        raw, bits = _raw(encodings, rng.choice(6, n, p=joint.ravel()), rng)
        estimates[name] = (_alone(raw), paper_lasso([b.sum(0) for b in bits], n, encodings))
    assert np.abs(estimates["joint"][0] - JOINT).sum() / 2 < 0.02
    assert np.abs(estimates["product"][0] - product).sum() / 2 < 0.02
    # The same one-way marginals, so the printed regression gives the same answer for both.
    assert np.abs(estimates["joint"][1] - estimates["product"][1]).sum() / 2 < 0.05
    assert np.abs(JOINT - product).sum() / 2 > 0.3


def test_weights_are_inverse_variances_of_one_report():
    encodings = [Encoding(None, 4, 0.75, 0.25), Encoding(None, 5, 0.75, 0.25)]
    even = np.full((4, 5), 0.05)
    variance = pair_variance(encodings, even.sum(1), even.sum(0), even, 1)
    assert view_weight(encodings) == pytest.approx(1 / variance.mean())
    assert view_weight(encodings[:1]) == pytest.approx(1 / encodings[0].noise.mean())


def test_the_papers_design_that_does_not_fit_is_an_error():
    wide = [Encoding(None, 300, 0.75, 0.25)] * 3
    with pytest.raises(ParameterError, match="lasso_features"):
        paper_lasso([np.zeros(300)] * 3, 10, wide)
