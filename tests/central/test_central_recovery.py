"""Sparse sensing and recovery from it: fast forms against plain matrices, choices after the noise near the best."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.central.running import run

from dither.central import seeded_source
from dither.central.csm import (
    CsmParameters,
    compressed_sensing,
    expected_error,
    freedom,
    largest,
    non_negative,
    non_negative_least_squares,
    pursue,
)
from dither.central.sensing import PAIRED, SparseSensing, matrix_sensitivity, sensing
from dither.central.sparse import dictionary
from dither.errors import ParameterError

FORMS = ("dct", "haar", "walsh", "identity")


def matrix_of(drawn: SparseSensing) -> np.ndarray:
    return np.stack([drawn.apply(row) for row in np.eye(drawn.size, dtype=np.int64)], axis=1)


@pytest.mark.parametrize("total", [True, False])
@pytest.mark.parametrize(
    ("entries", "rows", "size"), [(1, 12, 12), (2, 6, 20), (4, 12, 16), (8, 16, 9)]
)
def test_sparse_sensing_is_its_matrix(entries: int, rows: int, size: int, total: bool) -> None:
    drawn = sensing(
        "sparse", min(rows, size), size, np.random.default_rng(3), total=total, entries=entries
    )
    assert isinstance(drawn, SparseSensing)
    matrix = matrix_of(drawn)
    assert matrix.shape == (drawn.rows, size)
    assert (np.abs(matrix[int(total) :]).sum(axis=0) == entries).all()
    assert (np.abs(matrix[int(total) :]).max(axis=0) == 1).all()
    if total:
        assert (matrix[0] == 1).all()
    x = np.random.default_rng(1).integers(0, 10**6, size)
    assert np.array_equal(drawn.apply(x), matrix @ x)
    r = np.random.default_rng(2).normal(size=drawn.rows)
    assert np.allclose(drawn.correlate(r), matrix.T @ r)
    for notion in ("add-remove", "replace"):
        assert drawn.sensitivity(notion) == matrix_sensitivity(matrix, notion)
    assert drawn.sensitivity("add-remove") == entries + int(total)
    assert drawn.alone == (entries == 1 and rows == size)


def test_the_sensitivity_does_not_grow_with_the_rows() -> None:
    for size in (64, PAIRED + 1):
        for tau in (0.1, 0.3, 1.0):
            drawn = compressed_sensing(
                size, tau, np.random.default_rng(0), CsmParameters(entries=4)
            )
            assert drawn.sensitivity("add-remove") == 5
            assert drawn.sensitivity("replace") <= 8
    dense = compressed_sensing(
        64, 0.5, np.random.default_rng(0), CsmParameters(measurement="hadamard")
    )
    assert dense.sensitivity("add-remove") == 32
    with pytest.raises(ParameterError, match="entries"):
        CsmParameters(entries=9)
    with pytest.raises(ParameterError, match="too many records"):
        sensing("sparse", 4, 4, np.random.default_rng(0)).apply(np.full(4, 2**52))


def test_projection_on_totals() -> None:
    assert non_negative(np.array([5.0, -1, 2]), 4.0) == pytest.approx([3.5, 0, 0.5])
    assert non_negative(np.array([5.0, -1, 2]), -3.0).tolist() == [0, 0, 0]


def test_non_negative_least_squares_is_the_slow_one() -> None:
    from scipy.optimize import minimize

    drawn = sensing("sparse", 8, 12, np.random.default_rng(0), total=True, entries=2)
    assert isinstance(drawn, SparseSensing)
    matrix = matrix_of(drawn).astype(float)
    truth = np.array([40, 0, 0, 7, 0, 0, 0, 25, 0, 0, 3, 0])
    noisy = matrix @ truth + np.random.default_rng(1).normal(0, 2, drawn.rows)
    found = non_negative_least_squares(drawn, noisy, 75.0)
    slow = minimize(
        lambda x: ((matrix @ x - noisy) ** 2).sum(), np.full(12, 75 / 12), bounds=[(0, None)] * 12, method="SLSQP",
        constraints={"type": "eq", "fun": lambda x: x.sum() - 75}, options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    assert found.sum() == pytest.approx(75)
    assert (found >= 0).all()
    assert ((matrix @ found - noisy) ** 2).sum() <= slow.fun * 1.01 + 1e-6


def test_pursuit_finds_the_atoms_that_made_the_measurement() -> None:
    for name in FORMS:
        drawn = sensing("sparse", 128, 256, np.random.default_rng(2), total=True, entries=4)
        coefficients = np.zeros(256)
        coefficients[[3, 40, 200]] = [9000, -7000, 5000]
        cells = np.asarray(dictionary(name).synthesise(coefficients))
        found, atoms = pursue(drawn, dictionary(name), drawn.forward(cells), 1.0, 3)
        assert atoms == 3
        assert np.allclose(found, cells, atol=1e-6)


@pytest.mark.parametrize("name", FORMS)
def test_noise_alone_leaves_few_atoms(name: str) -> None:
    """Laplace noise of 60 tables: on average much less than one atom of 512 is kept, in every dictionary."""
    rng = np.random.default_rng(0)
    basis = dictionary(name)
    kept = [
        int(
            largest(
                np.asarray(basis.analyse(rng.laplace(0, 1, 512))), basis.heights(512), 2.0, None
            ).sum()
        )
        for _ in range(60)
    ]
    assert np.mean(kept) < 0.3
    assert largest(np.arange(8.0), np.ones(8), 1.0, 3).sum() == 3


@pytest.mark.parametrize("name", FORMS)
def test_freedom_is_the_diagonal_of_the_projection_in_the_haar_basis(name: str) -> None:
    rng = np.random.default_rng(1)
    kept = rng.random(32) < 0.4
    phi = np.stack([dictionary(name).synthesise(row) for row in np.eye(32)], axis=1)
    haar = np.stack([dictionary("haar").synthesise(row) for row in np.eye(32)], axis=1)
    exact = np.diag(haar.T @ (phi * kept) @ phi.T @ haar)
    told = freedom(name, kept, np.ones(32, dtype=np.bool_))
    if name == "dct":  # an octave stands for the spread of its atoms
        assert told.sum() == pytest.approx(kept.sum(), abs=1e-9)
        assert abs(told - exact).mean() < 0.25
    else:
        assert np.allclose(told, exact)


def test_expected_error_ranks_estimates_by_their_true_error() -> None:
    """A smooth table: keeping what is there beats keeping all the noise and keeping nothing, and the guess says so."""
    rng = np.random.default_rng(0)
    truth = 300 * np.exp(-(((np.arange(512) - 200) / 60.0) ** 2))
    named = {"all": np.ones(512, dtype=np.bool_), "none": np.zeros(512, dtype=np.bool_)}
    named["few"] = np.arange(512) < 32
    named["none"][0] = True
    basis, hits = dictionary("haar"), 0
    for _ in range(20):
        noisy = truth + rng.laplace(0, 20, 512)
        coefficients = np.asarray(basis.analyse(noisy))
        guess = {}
        for name, kept in named.items():
            estimate = np.asarray(basis.synthesise(np.where(kept, coefficients, 0)))
            guess[name] = expected_error(noisy - estimate, kept.astype(float), 800.0, 0.0)
        hits += min(guess, key=lambda name: guess[name]) == "few"
    assert hits >= 18


def error(counts: np.ndarray, epsilon: float, runs: int, **parameters: object) -> float:
    made = [
        run(
            "csm", counts, epsilon, seeded_source(s), rng=np.random.default_rng(s), **parameters
        ).estimate
        for s in range(runs)
    ]
    return float(np.mean([((one - counts) ** 2).sum() for one in made]))


def test_a_few_heavy_cells_of_many_are_found() -> None:
    """Ten of 4,096 cells hold everybody: much less error than noise on every cell, and than a dense matrix."""
    counts = np.zeros(4_096, dtype=np.int64)
    counts[np.random.default_rng(5).choice(4_096, 10, replace=False)] = 1000
    plain = 2 * 4_096 / 0.5**2
    assert error(counts, 0.5, 3) < plain / 50
    assert error(counts, 0.5, 1, entries=4, tau=0.1) < plain / 4
    assert error(counts, 0.5, 1, measurement="hadamard", dictionary="haar") > plain / 50


@pytest.mark.parametrize("seed", [1, 2])
def test_the_dictionary_is_chosen_nearly_as_well_as_in_hindsight(seed: int) -> None:
    rng = np.random.default_rng(seed)
    smooth = rng.poisson(200 * (1 + np.sin(np.arange(1024) / 1024 * 6))).astype(np.int64)
    blocks = rng.poisson(np.repeat(rng.choice([0, 5, 300], 16), 64)).astype(np.int64)
    for counts in (smooth, blocks):
        best = min(error(counts, 0.05, 4, dictionary=name) for name in FORMS)
        assert error(counts, 0.05, 4) <= 2 * best
        assert (
            error(counts, 0.05, 4) < 0.5 * 2 * 1024 / 0.05**2
        )  # half the error of noise on every cell


def test_a_shape_that_is_no_power_of_two_and_a_given_sparsity() -> None:
    counts = np.zeros(300, dtype=np.int64)
    counts[[5, 100]] = [4000, 9000]
    made = run("csm", counts, 1.0, seeded_source(1))
    assert np.abs(made.estimate - counts).max() < 40
    assert made.estimate.min() >= 0
    told = run("csm", counts, 1.0, seeded_source(1), dictionary="identity", sparsity=2)
    assert told.notes["atoms"] == 2
    assert np.argsort(-told.estimate)[:2].tolist() == [100, 5]
    free = run("csm", counts, 1.0, seeded_source(1), total=False)
    assert free.notes["sensitivity"] == 1
    assert math.isclose(free.estimate.sum(), 13_000, rel_tol=0.05)
