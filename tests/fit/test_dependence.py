"""Dependence measures against plain definitions, and the noise-aware test against tables of known noise."""

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import dependence, entropy, mutual_information, mutual_information_threshold


def test_entropy_and_information_of_known_tables():
    assert entropy(np.array([0.5, 0.5])) == pytest.approx(np.log(2))
    assert entropy(np.array([1.0, 0.0])) == 0.0
    assert mutual_information(np.eye(4) / 4) == pytest.approx(np.log(4))
    assert mutual_information(np.outer([0.2, 0.8], [0.1, 0.4, 0.5])) == pytest.approx(0, abs=1e-12)


def test_information_is_the_divergence_from_the_product():
    joint = np.random.default_rng(1).dirichlet(np.ones(12)).reshape(3, 4)
    product = np.outer(joint.sum(1), joint.sum(0))
    assert mutual_information(joint) == pytest.approx((joint * np.log(joint / product)).sum())


def test_threshold_is_that_of_the_paper():
    assert mutual_information_threshold(16, 7, 0.4) == pytest.approx(6 * 0.16 / 2)
    with pytest.raises(ParameterError, match="phi"):
        mutual_information_threshold(3, 3, 1.5)


def test_negative_cells_are_refused():
    with pytest.raises(ParameterError, match="negative"):
        mutual_information(np.array([[1.1, -0.1], [0.0, 0.0]]))
    with pytest.raises(ParameterError, match="variance"):
        dependence(np.eye(2) / 2, float("nan"))


def _scores(a, b, truth, sd, single_sd, trials, seed):
    rng = np.random.default_rng(seed)
    scores, plain = [], []
    k, m = truth.shape
    for _ in range(trials):
        y = truth + rng.normal(0, sd, truth.shape)
        row, column = a + rng.normal(0, single_sd, k), b + rng.normal(0, single_sd, m)
        scores.append(dependence(y, sd**2, row, column, single_sd**2, single_sd**2).score)
        residual = y - np.outer(y.sum(1), y.sum(0))
        degrees = (k - 1) * (m - 1)
        plain.append(((residual**2).sum() - degrees * sd**2) / (np.sqrt(2 * degrees) * sd**2))
    return np.array(scores), np.array(plain)


@pytest.mark.parametrize("single_sd", [0.0, 0.004])
def test_null_scores_are_standard_even_where_one_value_is_frequent(single_sd):
    a = np.array([0.93] + [0.01] * 7)
    b = np.array([0.85] + [0.015] * 10)
    scores, plain = _scores(a, b, np.outer(a, b), 0.002, single_sd, 400, 3)
    # Mean 0 and deviation 1 within sampling error of 400 trials (chi-square tails are a little heavy).
    assert abs(scores.mean()) < 4 / np.sqrt(400)
    assert 0.8 < scores.std() < 1.2
    # Without centring the same tables look dependent: the test would notice the wrong statistic.
    assert plain.mean() > 3


def test_true_dependence_is_found_without_bias():
    joint = np.array([[0.3, 0.1, 0.1], [0.1, 0.2, 0.2]])
    a, b = joint.sum(1), joint.sum(0)
    exact = ((joint - np.outer(a, b)) ** 2).sum()
    rng = np.random.default_rng(5)
    found = [
        dependence(joint + rng.normal(0, 0.02, joint.shape), 0.02**2, a, b).statistic
        for _ in range(1_000)
    ]
    assert np.mean(found) == pytest.approx(exact, abs=4 * np.std(found) / np.sqrt(1_000))
    assert dependence(joint, 0.02**2, a, b).strength < np.sqrt(exact)
