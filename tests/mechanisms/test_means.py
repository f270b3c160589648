"""Mechanisms for means beyond the contract: every draw of a grid, the papers' variances, several attributes, wrong input."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dither.errors import DitherError, ParameterError, PrivacyError, ReportError
from dither.mechanisms import GRIDS, Duchi, Hybrid, MultiMean, Piecewise, kernels, mean_mechanism
from dither.randomness import RandomStream

EPSILONS = (0.1, 0.5, 1.0, 4.0, 8.0)


def worst_ratio(laws: list[list[Fraction]]) -> Fraction:
    """The largest ratio of one output's chances between any two levels."""
    columns = list(zip(*laws, strict=True))
    return max(max(c) / min(c) for c in columns if max(c) > 0)


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_every_draw_of_a_16_bit_build(name: str, epsilon: float) -> None:
    """All 2^16 draws of all levels: the law as stated, the guarantee as stated, the mean exactly the level."""
    grid = GRIDS[name].for_epsilon(epsilon, levels=17, threshold_bits=16)
    draws = np.arange(2**16)
    laws = []
    for level in range(17):
        law = [Fraction(0)] * grid.outputs
        coins = [0, 2**16 - 1] if name == "hybrid" else [0]
        shares = (
            [Fraction(grid.coin, 2**16), 1 - Fraction(grid.coin, 2**16)]
            if name == "hybrid"
            else [Fraction(1)]
        )
        for coin, share in zip(coins, shares, strict=True):
            if share == 0:
                continue
            given = [np.full(2**16, coin), draws] if name == "hybrid" else [draws]
            found = np.bincount(grid.output(np.full(2**16, level), given), minlength=grid.outputs)
            law = [a + share * Fraction(int(b), 2**16) for a, b in zip(law, found, strict=True)]
        assert law == grid.probabilities(level)
        assert sum(law) == 1
        mean = sum(chance * grid.value_of(output) for output, chance in enumerate(law))
        assert mean == Fraction(2 * level, 16) - 1
        laws.append(law)
    exact = math.log(worst_ratio(laws))
    assert exact <= grid.epsilon <= epsilon
    assert grid.epsilon == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_guarantee_is_kept_and_used(name: str, epsilon: float) -> None:
    grid = mean_mechanism(name, epsilon)
    assert 0.999 * epsilon < grid.epsilon <= epsilon


def test_a_mutant_that_gives_more_away_is_rejected() -> None:
    """One step more a level, or one draw less outside the window, is over epsilon, and the exact figure shows it."""
    duchi = Duchi.for_epsilon(1.0, levels=17, threshold_bits=16)
    assert replace(duchi, step=duchi.step + 2).epsilon > 1.0
    piecewise = Piecewise.for_epsilon(1.0, levels=17, threshold_bits=16)
    assert replace(piecewise, base=piecewise.base - 1).epsilon > 1.0
    laws = [
        replace(piecewise, base=piecewise.base - 40).probabilities(level) for level in range(17)
    ]
    assert math.log(worst_ratio(laws)) > 1.0


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_worst_variances_are_those_of_the_papers(epsilon: float) -> None:
    e, root = math.exp(epsilon), math.exp(epsilon / 2)
    duchi = ((e + 1) / (e - 1)) ** 2
    piecewise = 4 * root / (3 * (root - 1) ** 2)
    hybrid = (
        (root + 3) / (3 * root * (root - 1)) + (e + 1) ** 2 / (root * (e - 1) ** 2)
        if epsilon > 0.61
        else duchi
    )
    for name, stated in (("duchi", duchi), ("piecewise", piecewise), ("hybrid", hybrid)):
        assert mean_mechanism(name, epsilon).worst_variance == pytest.approx(stated, rel=0.005)


@pytest.mark.parametrize("name", GRIDS)
def test_several_attributes(name: str) -> None:
    rng = np.random.default_rng(3)
    values = rng.uniform(-1, 1, (30_000, 5)) * 0.3 + [0.5, -0.5, 0.0, 0.2, -0.6]
    multi = MultiMean.for_epsilon(5, 6.0, name)
    assert multi.asked == 2
    assert 5.9 < multi.epsilon <= 6.0
    reports = kernels.randomise(multi, values, RandomStream.from_seed(8))
    for found, truth in zip(
        kernels.estimate_means(multi, reports), values.mean(axis=0), strict=True
    ):
        assert abs(found.mean - truth) < 4.5 * found.standard_error
        assert abs(found.n - 12_000) < 4.5 * math.sqrt(30_000 * 0.4 * 0.6)
    single = multi.randomise([0.1, 0.2, 0.3, 0.4, 0.5], RandomStream.from_seed(1))
    assert len(single) == multi.report_bytes
    assert reports.rows.shape[1] == multi.report_bytes


def test_wrong_input_is_named() -> None:
    grid = Hybrid.for_epsilon(1.0)
    for value in (1.1, -2, math.nan, True, "x"):
        with pytest.raises(ParameterError):
            grid.randomise([value], bytes)  # type: ignore[list-item]
    for wrong in ([[0.0], [2.0]], [0.0, 1.0], [[math.nan]]):
        with pytest.raises(ParameterError):
            kernels.randomise(grid, wrong, RandomStream.from_seed(1))
    with pytest.raises(ParameterError, match="duchi, piecewise, hybrid"):
        mean_mechanism("laplace", 1.0)
    with pytest.raises(ReportError):
        grid.check_report(b"\xff\xff")
    grid.check_report(b"\x00\x00")
    with pytest.raises(ReportError, match="never"):  # below epsilon 0.61 the coin never chooses it
        Hybrid.for_epsilon(0.5).check_report(b"\x00\x00")
    with pytest.raises(PrivacyError):
        mean_mechanism("duchi", 0.0)
    with pytest.raises(DitherError):
        Duchi.for_epsilon(1e-6)
    with pytest.raises(ParameterError):
        MultiMean.for_epsilon(3, 1.0, asked=4)
