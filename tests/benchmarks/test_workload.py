"""The workload against brute force, and usefulness: measured, bounded by theory, and not bounded by a wrong theory."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.workload import (
    Workload,
    mean_squared_errors,
    measured_usefulness,
    paper_usefulness,
    usefulness_bound,
)
from dither.central import discrete_laplace, seeded_source


def test_answers_are_brute_force_and_repeat() -> None:
    work = Workload(37, 1300, seed=4)
    x = np.random.default_rng(0).normal(size=(37, 3))
    answers = work.answers(x)
    weights = np.concatenate(list(work.linear_blocks()))
    assert weights.shape == (650, 37)
    assert set(np.unique(weights)) == {0.0, 1.0}
    assert 0.48 < weights.mean() < 0.52
    assert np.allclose(answers[:650], weights @ x)
    first, last = work.ranges()
    assert (first <= last).all()
    for q in range(0, 650, 17):
        assert np.allclose(answers[650 + q], x[first[q] : last[q] + 1].sum(axis=0))
    assert np.array_equal(answers, Workload(37, 1300, seed=4).answers(x))
    assert not np.array_equal(answers, Workload(37, 1300, seed=5).answers(x))
    with pytest.raises(ValueError, match="do not fit"):
        work.answers(np.ones(36))


def test_mean_squared_errors() -> None:
    work = Workload(16, 400, seed=1)
    truth = np.arange(16)
    off = truth + 2.0
    parts = mean_squared_errors(work.errors(truth, np.stack([truth, off], axis=1)), work.linear)
    assert parts["all"][0] == 0
    first, last = work.ranges()
    assert parts["range"][1] == pytest.approx(np.mean((2.0 * (last - first + 1)) ** 2))
    assert parts["all"][1] == pytest.approx((parts["linear"][1] + parts["range"][1]) / 2)


def test_measured_usefulness_is_a_tail() -> None:
    errors = np.array([[-3.0, 1.0], [2.0, 0.0]])
    assert measured_usefulness(errors, [0, 0.5, 1, 2.5, 4]).tolist() == [1.0, 0.75, 0.75, 0.25, 0.0]


@pytest.mark.slow
def test_theory_bounds_what_is_measured_and_a_wrong_theory_does_not() -> None:
    scale = Fraction(4)
    weights = next(Workload(64, 400, seed=2).linear_blocks())[:1]
    noise = discrete_laplace(scale, 64 * 20_000, seeded_source(3)).reshape(64, -1)
    errors = weights @ noise
    mus = [10, 40, 80, 120]
    measured = measured_usefulness(errors, mus)
    bounds = [usefulness_bound(weights[0], scale, mu) for mu in mus]
    assert all(m <= b for m, b in zip(measured, bounds, strict=True))
    assert bounds == sorted(bounds, reverse=True)
    halved = [usefulness_bound(weights[0], scale / 4, mu) for mu in mus]
    assert any(m > b for m, b in zip(measured, halved, strict=True))
    assert usefulness_bound(weights[0], scale, 0) == 1.0
    assert usefulness_bound(np.zeros(3), scale, 1) == 0.0


def test_the_paper_s_formula_falls_with_mu() -> None:
    """Erratum: eta is a tail probability; as printed in eq. 15 it would grow with mu."""
    etas = [paper_usefulness(mu, 1.0, 100) for mu in (0, 10, 1000)]
    assert etas == sorted(etas, reverse=True)
    assert etas[0] == 0.5
