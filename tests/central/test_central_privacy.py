"""The guarantee of each method on small domains, exactly, over all neighbours; too little noise is rejected.

Discrete Laplace noise of scale t makes log P(y | x) - log P(y | x') equal (||y - A x'||_1 - ||y - A x||_1) / t, whose
largest value over y is ||A (x - x')||_1 / t. So the exact privacy loss is the largest L1 distance over neighbours,
over t.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.central.running import run

from dither.central import (
    Axis,
    Each,
    LinearMeasurement,
    Neighbours,
    Product,
    achieved_epsilon,
    calibrate,
    csm,
    discrete_laplace,
    exponents,
    fourier,
    linear,
    observe,
    privbayes,
    projection,
    seeded_source,
)
from dither.central.sensing import sensing

NOTIONS: tuple[Neighbours, ...] = ("add-remove", "replace")


def measurements(cells: int) -> dict[str, LinearMeasurement]:
    """Every linear method over a small domain."""
    rng = np.random.default_rng(11)
    made: dict[str, LinearMeasurement] = {
        "laplace": linear.Cells(cells),
        "privelet": Product((linear.Wavelet(cells),)),
        "hierarchical": Product((linear.Tree(cells),)),
        "hierarchical, no root": Product((linear.Tree(cells, 2, rooted=False),)),
        "hierarchical, 3 children": Product((linear.Tree(cells, 3),)),
        "two wavelets": Product((linear.Wavelet(2), linear.Wavelet(cells // 2))),
        "two trees": Product((linear.Tree(2), linear.Tree(cells // 2))),
        "two trees, no roots": Product(
            (linear.Tree(cells // 2, rooted=False), linear.Tree(2, rooted=False))
        ),
        "cells and wavelet": Product((Each(2), linear.Wavelet(cells // 2))),
        "wavelet and tree": Product((linear.Wavelet(2), linear.Tree(cells // 2))),
        "fourier": fourier.LowFrequencies(cells, max(3, cells // 4)),
        "projection": projection.Projection(
            sensing("gaussian", max(3, cells // 3), cells, rng, total=True), "ridge"
        ),
    }
    for kind in ("gaussian", "bernoulli", "hadamard"):
        for total in (True, False):
            made[f"csm, {kind}, total {total}"] = csm.compressed_sensing(
                cells, 0.6, rng, csm.CsmParameters(measurement=kind, total=total)
            )
    for entries, tau in ((1, 1.0), (2, 0.5), (4, 0.6), (8, 1.0)):
        for total in (True, False):
            chosen = csm.CsmParameters(entries=entries, total=total)
            made[f"csm, {entries} entries, total {total}"] = csm.compressed_sensing(
                cells, tau, rng, chosen
            )
    return made


NAMES = list(measurements(8))


def matrix_of(measurement: LinearMeasurement, cells: int) -> np.ndarray:
    return np.stack(
        [measurement.measure(np.eye(cells, dtype=np.int64)[j]) for j in range(cells)], axis=1
    )


def largest_distance(matrix: np.ndarray, neighbours: Neighbours) -> int:
    """Brute force over every pair of neighbouring tables (one unit of one cell, added or moved)."""
    cells = range(matrix.shape[1])
    if neighbours == "add-remove":
        return max(int(np.abs(matrix[:, i]).sum()) for i in cells)
    return max(
        int(np.abs(matrix[:, i] - matrix[:, j]).sum()) for i, j in itertools.combinations(cells, 2)
    )


def is_private(matrix: np.ndarray, scale: Fraction, neighbours: Neighbours, epsilon: float) -> bool:
    return Fraction(largest_distance(matrix, neighbours)) / scale <= Fraction(epsilon)


@pytest.mark.parametrize("neighbours", NOTIONS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cells", [8, 6])
def test_linear_mechanisms_keep_epsilon_exactly(
    name: str, neighbours: Neighbours, cells: int
) -> None:
    measurement = measurements(cells)[name]
    matrix = matrix_of(measurement, cells)
    counts = np.random.default_rng(3).integers(0, 9, cells)
    assert np.array_equal(measurement.measure(counts), matrix @ counts)
    claimed = measurement.sensitivity(neighbours)
    brute = largest_distance(matrix, neighbours)
    assert claimed >= brute
    if cells == 8:
        assert claimed == brute
    for epsilon in (0.1, 1.0, 3.7):
        seen = observe(measurement, counts, epsilon, seeded_source(1), neighbours)
        assert is_private(matrix, seen.scale, neighbours, epsilon)
        assert seen.epsilon <= epsilon
        # mutant: the noise of a sensitivity that is one unit, or a tenth, too small
        assert not is_private(
            matrix, calibrate(brute, epsilon) * Fraction(9, 10), neighbours, epsilon
        )
        if cells == 8 and brute > 1:
            assert not is_private(
                matrix, Fraction(claimed - 1) / Fraction(epsilon), neighbours, epsilon
            )


@pytest.mark.parametrize(
    "axes",
    [
        (linear.Wavelet(4), linear.Wavelet(4), linear.Wavelet(2)),
        (linear.Wavelet(3), Each(3), linear.Tree(3, 3)),
        (linear.Tree(4, 2, rooted=False), linear.Wavelet(4)),
        (Each(1), linear.Wavelet(5)),
        (Each(1), Each(1)),
    ],
)
@pytest.mark.parametrize("neighbours", NOTIONS)
def test_products_of_three_axes_keep_epsilon_exactly(
    axes: tuple[Axis, ...], neighbours: Neighbours
) -> None:
    product = Product(axes)
    cells = math.prod(product.shape)
    matrix = matrix_of(product, cells)
    brute = largest_distance(matrix, neighbours) if cells > 1 or neighbours == "add-remove" else 0
    assert product.sensitivity(neighbours) == brute


def test_the_paper_s_calibration_is_rejected() -> None:
    """Noise of scale 1 / epsilon for columns of unit length (definition 5): its loss is sqrt(s) epsilon."""
    measurement = csm.compressed_sensing(
        64, 0.5, np.random.default_rng(0), csm.CsmParameters(measurement="bernoulli", total=False)
    )
    scale = Fraction(math.isqrt(32 * 10**12), 10**6)  # unit length: entries 1 / sqrt(s), noise 1
    matrix = matrix_of(measurement, 64)
    assert not is_private(matrix, scale, "add-remove", 1.0)
    assert is_private(matrix, scale, "add-remove", 5.7)


def test_output_law_by_enumeration() -> None:
    """For two cells: the ratio of the output's exact probabilities over a box of outputs meets epsilon, and no less."""
    for measurement in (linear.Cells(2), Product((linear.Wavelet(2),)), Product((linear.Tree(2),))):
        matrix = matrix_of(measurement, 2)
        scale = calibrate(measurement.sensitivity("add-remove"), 0.7)
        here, there = matrix @ np.array([2, 1]), matrix @ np.array([2, 2])
        box = np.array(list(itertools.product(range(-3, 8), repeat=matrix.shape[0])))
        gaps = np.abs(box - there).sum(axis=1) - np.abs(box - here).sum(axis=1)
        assert Fraction(int(np.abs(gaps).max())) / scale <= Fraction(0.7)
        assert Fraction(int(np.abs(gaps).max())) / (scale * Fraction(4, 5)) > Fraction(0.7)


def noise_is_of_scale(noise: np.ndarray, scale: Fraction) -> bool:
    """Mean absolute value of n draws against its law, five standard errors: E|Z| = 2p/(1-p^2), E Z^2 = 2p/(1-p)^2."""
    p = math.exp(-1 / float(scale))
    mean, second = 2 * p / (1 - p**2), 2 * p / (1 - p) ** 2
    return abs(np.abs(noise).mean() - mean) <= 5 * math.sqrt((second - mean**2) / noise.size)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_noise_that_is_added_has_the_scale_that_is_claimed(name: str) -> None:
    measurement = measurements(512)[name]
    counts = np.arange(512)
    source = seeded_source(9)
    seen = [observe(measurement, counts, 0.5, source) for _ in range(80)]
    noise = np.concatenate([one.values - measurement.measure(counts) for one in seen])
    assert noise_is_of_scale(noise, seen[0].scale)
    smaller = discrete_laplace(seen[0].scale * Fraction(9, 10), noise.size, source)
    assert not noise_is_of_scale(smaller, seen[0].scale)


@pytest.mark.parametrize("name", ["csm", "laplace", "privelet", "hierarchical", "projection"])
@pytest.mark.parametrize("neighbours", NOTIONS)
def test_a_release_tells_the_noise_it_used(name: str, neighbours: Neighbours) -> None:
    counts = np.arange(16)
    made = run(
        name,
        counts,
        0.8,
        seeded_source(4),
        rng=np.random.default_rng(7),
        neighbours=neighbours,
        shape=(4, 4),
    )
    assert made.estimate.shape == (16,)
    assert made.notes["sensitivity"] / made.notes["noise_scale"] <= 0.8 * (1 + 1e-12)
    assert 0.799 < made.epsilon <= 0.8


def small_tables(cells: int, most: int) -> list[np.ndarray]:
    return [
        np.array(t, dtype=np.int64)
        for t in itertools.product(range(most + 1), repeat=cells)
        if sum(t)
    ]


def neighbours_of(table: np.ndarray, neighbours: Neighbours) -> list[np.ndarray]:
    out = []
    for i in range(table.size):
        if neighbours == "add-remove":
            more = table.copy()
            more[i] += 1
            out.append(more)
            continue
        for j in range(table.size):
            if i != j and table[i]:
                moved = table.copy()
                moved[i] -= 1
                moved[j] += 1
                out.append(moved)
    return out


def choice_loss(mine: np.ndarray, theirs: np.ndarray, moved: int, epsilon: float) -> float:
    """The largest log-ratio of two exponential-mechanism choices, from the exact rational exponents."""
    logs = []
    for scores in (mine, theirs):
        numerators, denominator = exponents(scores, moved, epsilon)
        exact = -numerators / denominator
        logs.append(exact - np.logaddexp.reduce(exact))
    return float(np.abs(logs[0] - logs[1]).max())


@pytest.mark.parametrize("neighbours", NOTIONS)
def test_fourier_choice_keeps_its_share(neighbours: Neighbours) -> None:
    candidates = fourier.candidate_frequencies(4)
    losses, too_small = [], []
    for table in small_tables(4, 2):
        scores, moved = fourier.frequency_scores(table, candidates, 0.5, neighbours)
        for other in neighbours_of(table, neighbours):
            others, _ = fourier.frequency_scores(other, candidates, 0.5, neighbours)
            assert np.abs(scores - others).max() <= moved
            losses.append(choice_loss(scores, others, moved, 0.5))
            too_small.append(choice_loss(scores, others, moved // 4, 0.5))
    assert max(losses) <= 0.5 + 1e-12
    assert max(too_small) > 0.5  # mutant: a sensitivity four times too small


def test_fourier_spends_both_halves() -> None:
    made = run("fourier", np.arange(64), 0.6, seeded_source(2))
    assert made.notes["epsilon_choice"] == 0.3
    assert made.notes["epsilon_noise"] <= 0.3
    assert made.epsilon <= 0.6
    fixed = run("fourier", np.arange(64), 0.6, seeded_source(2), frequencies=5)
    assert fixed.notes["epsilon_choice"] == 0
    assert fixed.epsilon <= 0.6


@pytest.mark.parametrize("neighbours", NOTIONS)
def test_privbayes_score_sensitivity_over_all_small_tables(neighbours: Neighbours) -> None:
    worst = 0
    for table in small_tables(6, 2):
        mine = privbayes.dependence_score(table.reshape(2, 3))
        moved = privbayes.score_sensitivity(int(table.sum()), neighbours)
        for other in neighbours_of(table, neighbours):
            gap = abs(mine - privbayes.dependence_score(other.reshape(2, 3)))
            assert gap <= moved
            worst = max(worst, gap)
    assert worst > privbayes.SCORE_GRID  # mutant: a sensitivity of one record is too small


def test_privbayes_choices_keep_their_share() -> None:
    """Three binary columns: the choice of (node, parents) after the first, over all neighbours of some tables."""
    edges = [(1, (0,)), (2, (0,))]
    moved = privbayes.score_sensitivity(0, "add-remove")
    losses, mutants = [], []
    for table in small_tables(8, 1):
        for other in neighbours_of(table, "add-remove"):
            scores = []
            for counts in (table, other):
                marginal = privbayes.histogram_counts(counts, (2, 2, 2))
                scores.append(
                    np.array([-privbayes.dependence_score(marginal((*p, n))) for n, p in edges])
                )
            losses.append(choice_loss(scores[0], scores[1], moved, 0.4))
            mutants.append(choice_loss(scores[0], scores[1], moved // 8, 0.4))
    assert max(losses) <= 0.4
    assert max(mutants) > 0.4


@pytest.mark.parametrize("neighbours", NOTIONS)
def test_privbayes_budget_adds_up(neighbours: Neighbours) -> None:
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 3, size=(400, 4))
    for epsilon in (0.1, 0.7, 2.3):
        net = privbayes.learn(
            privbayes.table_counts(codes, (3, 3, 3, 3)),
            (3, 3, 3, 3),
            epsilon,
            seeded_source(1),
            rng,
            neighbours,
            privbayes.PrivBayesParameters(),
        )
        budget = net.budget
        parts = Fraction(budget.records) + Fraction(budget.choices) + Fraction(budget.tables)
        assert Fraction(epsilon) * Fraction(99, 100) < parts <= Fraction(epsilon)
        assert budget.total <= epsilon
        assert (budget.records == 0) == (neighbours == "replace")
        # four tables, each moved by one record by 1 (or 2): the noise must be that of the sum
        sensitivity = 4 * (1 if neighbours == "add-remove" else 2)
        assert budget.tables == achieved_epsilon(sensitivity, calibrate(sensitivity, budget.tables))
