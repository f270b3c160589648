"""Square wave and strategies beyond the contract: densities near the truth, quantiles, strategies that say more than they may."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dither.errors import DitherError, ParameterError, PrivacyError, ReportError
from dither.mechanisms import GRR, SetStrategy, SquareWave, kernels, mechanism_from_json
from dither.randomness import RandomStream

TRUTH = np.bincount(
    np.minimum((np.random.default_rng(0).beta(2, 5, 50_000) * 32).astype(int), 31), minlength=32
)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_every_draw_of_a_16_bit_build(epsilon: float) -> None:
    wave = SquareWave.for_epsilon(8, epsilon, threshold_bits=16)
    laws = []
    for cell in range(8):
        found = [wave.window.output(cell, draw) for draw in range(2**16)]
        laws.append(np.bincount(found, minlength=wave.counters))
        assert laws[-1].tolist() == wave.window.column(cell)
    worst = max(Fraction(int(c.max()), int(c.min())) for c in np.array(laws).T)
    assert math.log(worst) <= wave.epsilon <= epsilon


def test_the_half_width_is_the_paper_s_and_shrinks() -> None:
    cells = SquareWave.max_cells
    waves = [SquareWave.for_epsilon(cells, epsilon) for epsilon in (0.01, 0.5, 1, 2, 4)]
    widths = [(wave.width - 1) / (2 * cells) for wave in waves]
    assert widths[2] == pytest.approx(1 / (2 * math.e * (math.e - 2)), abs=1 / cells)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == pytest.approx(0.5, abs=0.01)


def test_people_and_counts_agree_with_the_table() -> None:
    wave, cells = SquareWave.for_epsilon(32, 1.0), np.repeat(np.arange(32), TRUTH)
    by_people = kernels.support(wave, kernels.randomise(wave, cells, RandomStream.from_seed(3)))
    by_counts = kernels.simulate(wave, TRUTH, np.random.default_rng(4))
    expected = wave.probability_table @ TRUTH
    for tally in (by_people, by_counts):
        assert np.all(np.abs(tally - expected) < 5 * np.sqrt(expected))


def slow_em(wave: SquareWave, counts: np.ndarray, steps: int) -> np.ndarray:
    """Expectation and maximisation written out person by person's output."""
    theta = np.full(wave.cells, 1 / wave.cells)
    for _ in range(steps):
        new = np.zeros(wave.cells)
        for output, count in enumerate(counts):
            joint = [wave.probability_table[output, c] * theta[c] for c in range(wave.cells)]
            new += count * np.array(joint) / sum(joint)
        theta = new / counts.sum()
    return theta


def test_em_is_em() -> None:
    wave = SquareWave.for_epsilon(6, 2.0)
    counts = kernels.simulate(wave, np.array([50, 10, 0, 30, 5, 5]), np.random.default_rng(1))
    assert kernels.density(wave, counts, smooth=False, max_steps=7) == pytest.approx(
        slow_em(wave, counts, 7)
    )


def test_smoothing_helps_at_small_epsilon_and_quantiles_are_near() -> None:
    wave, rng = SquareWave.for_epsilon(32, 1.0), np.random.default_rng(5)
    truth = TRUTH / TRUTH.sum()
    distances = {True: [], False: []}
    for _ in range(10):
        tally = kernels.simulate(wave, TRUTH, rng)
        for smooth, found in distances.items():
            found.append(np.abs(kernels.density(wave, tally, smooth=smooth) - truth).sum() / 2)
    assert np.mean(distances[True]) < np.mean(distances[False])
    assert np.mean(distances[True]) < 0.1 < np.abs(1 / 32 - truth).sum() / 4
    density = kernels.density(wave, kernels.simulate(wave, TRUTH, rng))
    edges = np.linspace(0, 1, 33)
    assert kernels.quantiles(density, edges, [0.25, 0.5, 0.75]) == pytest.approx(
        kernels.quantiles(truth, edges, [0.25, 0.5, 0.75]), abs=0.03
    )


def test_quantiles_of_a_known_density() -> None:
    assert kernels.quantiles(
        np.array([0.5, 0.0, 0.5]), [0, 1, 2, 3], [0, 0.25, 0.5, 0.75, 1]
    ).tolist() == [
        0,
        0.5,
        1,
        2.5,
        3,
    ]
    with pytest.raises(ParameterError):
        kernels.quantiles(np.array([1.0]), [0, 1], [1.5])


def test_wrong_input_is_named() -> None:
    wave = SquareWave.for_epsilon(8, 1.0)
    with pytest.raises(ReportError):
        wave.check_report(bytes([wave.counters]))
    with pytest.raises(ParameterError):
        kernels.density(wave, np.zeros(wave.counters, np.int64))
    with pytest.raises(ParameterError):
        SquareWave.for_epsilon(1, 1.0)


@pytest.mark.parametrize("epsilon", [299.0, 301.0, 709.0, 710.0, 1e308])
def test_a_huge_epsilon_gives_the_narrowest_wave(epsilon: float) -> None:
    wave = SquareWave.for_epsilon(8, epsilon)
    assert wave.epsilon <= epsilon
    assert wave.counters == 8


# --------------------
# Strategies.


def small(threshold_bits: int = 16, epsilon: float = 1.0) -> SetStrategy:
    """Four cells, two halves and four singles."""
    sets, ratio = [0b0011, 0b1100, 1, 2, 4, 8], math.exp(epsilon)
    weights = [0.5 / (1 + ratio)] * 2 + [0.5 / (3 + ratio)] * 4
    return SetStrategy.for_epsilon(4, sets, weights, epsilon, threshold_bits)


def test_a_strategy_that_gives_more_away_says_so_and_a_broken_one_is_refused() -> None:
    strategy = small(32)
    moved = tuple(draws - 50 * (cell < 2) for cell, draws in enumerate(strategy.rest))
    louder = replace(strategy, high=(strategy.high[0] + 50, *strategy.high[1:]), rest=moved)
    assert louder.epsilon > 1.0 >= strategy.epsilon
    with pytest.raises(PrivacyError, match="add up"):
        replace(strategy, high=(strategy.high[0] + 1, *strategy.high[1:]))
    with pytest.raises(PrivacyError, match="never"):
        replace(strategy, low=(0, *strategy.low[1:]))
    with pytest.raises(PrivacyError, match="cannot be drawn"):
        SetStrategy.for_epsilon(4, [1], [0.36], 1.0)


def test_a_strategy_is_written_in_one_way() -> None:
    written = small(32).to_json()
    assert mechanism_from_json(written) == small(32)
    for sets in (
        [f"0{text}" for text in written["sets"]],
        [f"{text}g" for text in written["sets"]],
        written["sets"][:-1],
    ):
        with pytest.raises(DitherError):
            mechanism_from_json(written | {"sets": sets})


def test_randomised_response_is_a_strategy_with_the_same_variance() -> None:
    """Singles only: the decoder must find randomised response's own estimate."""
    k, epsilon = 5, 1.5
    weight = 1 / (math.exp(epsilon) + k - 1)
    strategy = SetStrategy.for_epsilon(k, [1 << i for i in range(k)], [weight] * k, epsilon)
    decoder, chances = strategy.decoder(), strategy.probability_table
    by_type = decoder**2 @ chances - np.eye(k)
    grr = GRR.for_epsilon(k, epsilon)
    assert np.diag(by_type) == pytest.approx(grr.group_variance(1, 1.0, 1), rel=1e-3)
    assert by_type[0, 1] == pytest.approx(grr.group_variance(1, 0.0, 1), rel=1e-3)
