"""The bias of each pair: its shape leaves one-way marginals alone, residuals find it, and a release says where it is."""

from __future__ import annotations

import numpy as np
import pytest

from dither.datasets.generated import generate_network
from dither.models import Independent
from dither.protocols import start
from dither.uncertainty.misfit import Moves, bias_shape, misfit_notes
from dither.uncertainty.replicates import redraw

TABLE = np.random.default_rng(1).dirichlet(np.ones(12)).reshape(3, 4)
IDENTITY = np.eye(12).reshape(12, 3, 4)


def test_moves_leave_the_marginals_alone() -> None:
    """Against the definition: draw independent moves and take each line's sum off by the marginals."""
    ones = (TABLE.sum(axis=1), TABLE.sum(axis=0))
    own = np.random.default_rng(2).random((3, 4))
    moves = Moves(own, ones)
    u = np.random.default_rng(3).standard_normal((40_000, 3, 4)) * np.sqrt(own)
    lines, columns, total = u.sum(axis=2), u.sum(axis=1), u.sum(axis=(1, 2))
    moved = (
        u
        - lines[:, :, None] * ones[1]
        - columns[:, None, :] * ones[0][:, None]
        + total[:, None, None] * np.outer(*ones)
    )
    drawn = np.cov(moved.reshape(len(u), -1), rowvar=False)
    exact = moves.covariance(IDENTITY)
    sizes = np.sqrt(np.diag(exact))
    assert (np.abs(drawn - exact) / np.outer(sizes, sizes)).max() < 5 * np.sqrt(2 / len(u))
    assert moves.variances.ravel() == pytest.approx(np.diag(exact))
    rows = np.zeros((7, 3, 4))
    for i in range(3):
        rows[i, i] = 1
    for j in range(4):
        rows[3 + j, :, j] = 1
    assert moves.covariance(rows) == pytest.approx(0, abs=1e-12)


def test_the_shape_adds_up_to_one_and_groups_are_sums() -> None:
    blocks = (np.array([0, 0, 1]), np.array([0, 0, 1, 1]))
    shape = bias_shape(TABLE, blocks)
    assert shape.variances.sum() == pytest.approx(1)
    groups = [np.array([0, 1, 1]), np.array([0, 1, 0, 1])]
    sums = np.zeros((4, 3, 4))
    for i, a in enumerate(groups[0]):
        for j, b in enumerate(groups[1]):
            sums[2 * a + b, i, j] = 1
    every = shape.covariance(IDENTITY, [np.arange(3), np.arange(4)])
    assert np.diag(every) == pytest.approx(shape.variances.ravel())
    flat_sums = sums.reshape(4, 12)
    assert shape.covariance(np.eye(4).reshape(4, 2, 2), groups) == pytest.approx(flat_sums @ every @ flat_sums.T)
    lines = np.kron(np.eye(3), np.ones(4))
    assert lines @ every @ lines.T == pytest.approx(0, abs=1e-12), "one-way marginals stay"
    assert bias_shape(TABLE, blocks, 9.0).variances == pytest.approx(9 * shape.variances)
    flat = bias_shape(np.outer(TABLE.sum(axis=1), TABLE.sum(axis=0)), blocks)
    assert np.isfinite(flat.variances).all()


def test_a_release_names_the_pairs_that_do_not_fit() -> None:
    network = generate_network([3, 4, 2, 3], strength=1.5, seed=2)
    machine = start("mixture", network.schema, 4.0, 100_000, {"total": 40}, 0)
    redraw(machine, network, np.random.default_rng(0))  # type: ignore[arg-type]
    assert misfit_notes(machine, machine.model()) == {}
    product = Independent(network.schema, tuple(network.marginal([n]) for n in network.schema.names))
    found = misfit_notes(machine, product)["misfit"]
    assert "x0 x x1" in found
    alone = start("independent", network.schema, 4.0, 10_000, {}, 0)
    redraw(alone, network, np.random.default_rng(0))  # type: ignore[arg-type]
    assert misfit_notes(alone, alone.model()) == {}
