"""The exact samplers: their laws, that wrong laws are rejected, and that rounding goes towards privacy."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.workload import noise_log_mgf
from dither.central import (
    achieved_epsilon,
    bernoulli_exp,
    calibrate,
    choose,
    discrete_laplace,
    exponents,
    noise_variance,
    seeded_source,
    uniform_below,
)
from dither.errors import PrivacyError

DRAWS = 60_000


def laplace_fit(draws: np.ndarray, scale: float) -> float:
    """p-value of a chi-square test of draws against the discrete Laplace law, tails pooled."""
    p = math.exp(-1 / scale)
    edge = int(4 * scale)
    cells = np.arange(-edge, edge + 1)
    pmf = (1 - p) / (1 + p) * p ** np.abs(cells)
    seen = np.array([(draws == z).sum() for z in cells] + [(np.abs(draws) > edge).sum()])
    expected = np.append(pmf, 1 - pmf.sum()) * draws.size
    return float(stats.chisquare(seen, expected).pvalue)


@pytest.mark.parametrize("scale", [Fraction(3, 2), Fraction(1, 2), Fraction(10), calibrate(7, 0.9)])
def test_discrete_laplace_has_its_law_and_no_other(scale: Fraction) -> None:
    draws = discrete_laplace(scale, DRAWS, seeded_source(5))
    assert laplace_fit(draws, float(scale)) > 1e-4
    assert laplace_fit(draws, float(scale) * 1.06) < 1e-6
    assert laplace_fit(draws, float(scale) * 0.94) < 1e-6


def test_zero_is_not_drawn_twice_as_often() -> None:
    """The classical mistake of a signed magnitude: keeping both signs of zero."""
    draws = discrete_laplace(Fraction(1), DRAWS, seeded_source(6))
    with_both_zeros = np.append(draws, np.zeros(int((draws == 0).sum()), dtype=np.int64))
    assert laplace_fit(with_both_zeros, 1.0) < 1e-6


def test_variance_and_moments() -> None:
    scale = Fraction(5, 2)
    z = np.arange(-400, 401)
    p = math.exp(-1 / 2.5)
    pmf = (1 - p) / (1 + p) * p ** np.abs(z)
    assert noise_variance(scale) == pytest.approx((z**2 * pmf).sum(), rel=1e-12)
    theta = 0.21
    assert noise_log_mgf(np.array([theta]), scale)[0] == pytest.approx(
        math.log((np.exp(theta * z) * pmf).sum()), rel=1e-9
    )
    assert np.isinf(noise_log_mgf(np.array([0.5]), scale)[0])


def test_uniform_refuses_the_incomplete_period() -> None:
    """2**64 mod 3 is 1, so the word 0 is refused and the next three give 1, 2, 0."""
    words = iter([0, 1, 2, 3, 0, 5])

    def source(count: int) -> bytes:
        return b"".join(next(words).to_bytes(8, "little") for _ in range(count // 8))

    bounds = np.full(1, 3, dtype=np.uint64)
    assert [int(uniform_below(bounds, source)[0]) for _ in range(4)] == [1, 2, 0, 2]


@pytest.mark.parametrize(("num", "den"), [(0, 7), (3, 7), (7, 7), (25, 7)])
def test_bernoulli_exp(num: int, den: int) -> None:
    heads = int(bernoulli_exp(np.full(DRAWS, num, dtype=np.uint64), den, seeded_source(8)).sum())
    wanted = math.exp(-num / den)
    assert stats.binomtest(heads, DRAWS, min(1.0, wanted)).pvalue > 1e-4
    if num:
        assert stats.binomtest(heads, DRAWS, wanted * 0.8).pvalue < 1e-6


@given(st.integers(1, 10**7), st.floats(1e-4, 50))
def test_calibration_never_gives_away_more_than_asked(sensitivity: int, epsilon: float) -> None:
    scale = calibrate(sensitivity, epsilon)
    assert Fraction(sensitivity) / scale <= Fraction(epsilon)
    achieved = achieved_epsilon(sensitivity, scale)
    assert Fraction(sensitivity) / scale <= Fraction(achieved) <= Fraction(epsilon)
    assert achieved > 0.99 * epsilon


def test_scales_that_cannot_be_sampled_are_refused() -> None:
    with pytest.raises(PrivacyError, match="larger epsilon"):
        calibrate(10**9, 1e-9)
    with pytest.raises(PrivacyError, match="at least 1"):
        calibrate(0, 1.0)
    with pytest.raises(PrivacyError, match="cannot be sampled"):
        discrete_laplace(Fraction(2**60), 1, seeded_source(1))


def test_seeded_sources_repeat_and_differ() -> None:
    assert seeded_source(1)(32) == seeded_source(1)(32)
    assert seeded_source(1)(32) != seeded_source(2)(32)


@pytest.mark.slow
def test_exponential_mechanism_draws_its_weights() -> None:
    scores = np.array([0, 40, 100, 10**13], dtype=np.int64)
    numerators, denominator = exponents(scores, 10, 1.0)
    weights = np.exp(-numerators / denominator)
    weights /= weights.sum()
    source = seeded_source(3)
    seen = np.bincount([choose(scores, 10, 1.0, source) for _ in range(4000)], minlength=4)
    assert seen[3] == 0
    assert stats.chisquare(seen[:3], weights[:3] / weights[:3].sum() * 4000).pvalue > 1e-4
    wrong = np.exp(-2 * numerators[:3] / denominator)
    assert stats.chisquare(seen[:3], wrong / wrong.sum() * 4000).pvalue < 1e-6
    with pytest.raises(PrivacyError):
        choose(scores, 10, 1e-9, source)
