"""The sampler against a law that is known, with a check that a wrong sampler fails."""

from __future__ import annotations

import numpy as np
import pytest

from dither.fit.mixture.bayes import WANTED_ACCEPTANCE, Chain, Metric

DEVIATIONS = np.array([0.2, 1.0, 3.0, 1.0, 0.5])
MIXED = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
COVARIANCE = MIXED * DEVIATIONS**2 @ MIXED.T
PRECISION = np.linalg.inv(COVARIANCE)
MEAN = np.arange(5.0)


def normal(x: np.ndarray) -> tuple[float, np.ndarray]:
    pull = PRECISION @ (x - MEAN)
    return 0.5 * float((x - MEAN) @ pull), pull


def sampled(chain: Chain, draws: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    for _ in range(200):
        chain.advance(rng, adapt=True)
    chain.settle()
    out = []
    for _ in range(draws):
        chain.advance(rng, adapt=False)
        out.append(chain.x)
    return np.array(out)


def standardised_variances(draws: np.ndarray) -> np.ndarray:
    """Of the coordinates in which the law is standard normal: 1 each."""
    return ((draws - MEAN) @ MIXED / DEVIATIONS).var(axis=0)


@pytest.mark.parametrize("first", [None, PRECISION[:2, :2]])
def test_mean_and_covariance_are_those_of_the_law(first: np.ndarray | None) -> None:
    chain = Chain(normal, MEAN + 5.0, Metric(np.diag(PRECISION).copy(), first), leaps=12, step=0.1)
    draws = sampled(chain, 4_000)
    # Some thousand draws, of which at least 500 are as good as independent: standard deviations 0.045 and 0.063.
    assert np.abs((draws.mean(axis=0) - MEAN) @ MIXED / DEVIATIONS).max() < 5 * 0.045
    assert np.abs(standardised_variances(draws) - 1.0).max() < 5 * 0.063


def test_a_chain_that_accepts_everything_is_noticed() -> None:
    class Careless(Chain):
        def _advance(self, rng: np.random.Generator) -> None:
            before = self.x
            super()._advance(rng)
            if self.x is before:
                self.x = before + 0.5 * rng.standard_normal(5)
                self.energy, self.gradient = self.density(self.x)

    draws = sampled(
        Careless(normal, MEAN, Metric(np.diag(PRECISION).copy()), leaps=12, step=0.1), 4_000
    )
    assert np.abs(standardised_variances(draws) - 1.0).max() > 5 * 0.063


def test_the_step_size_comes_to_the_acceptance_that_is_wanted() -> None:
    chain = Chain(normal, MEAN, Metric(np.ones(5)), leaps=10, step=1e-3)
    rng = np.random.default_rng(2)
    for _ in range(300):
        chain.advance(rng, adapt=True)
    chain.settle()
    met = []
    for _ in range(300):
        chain.advance(rng, adapt=False)
        met.append(chain.acceptance)
    assert np.mean(met) == pytest.approx(WANTED_ACCEPTANCE, abs=0.12)


def test_an_infinite_mass_holds_its_coordinate_and_a_trajectory_out_of_bounds_is_refused() -> None:
    masses = np.ones(5)
    masses[3] = np.inf
    chain = Chain(normal, MEAN + 1.0, Metric(masses), leaps=5, step=0.1)
    rng = np.random.default_rng(3)
    for _ in range(20):
        chain.advance(rng, adapt=False)
    assert chain.x[3] == MEAN[3] + 1.0
    assert (chain.x[:3] != MEAN[:3] + 1.0).all()
    stands, chain.step = chain.x.copy(), 1e6
    chain.advance(rng, adapt=False)
    assert chain.acceptance == 0.0
    assert (chain.x == stands).all()
