"""The bias of each pair: its shape leaves one-way marginals alone, residuals find it, and a release says where it is."""

from __future__ import annotations

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.fit import Independent
from dither.methods import start
from dither.release import redraw
from dither.release.misfit import (
    STEPS,
    Moves,
    PairBias,
    _Pair,
    learnt_prior,
    misfit_notes,
    pair_bias,
    principal,
)
from dither.schema import Attribute

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


ATTRIBUTES = [
    Attribute("a", "categorical", values=("x", "y", "z")),
    Attribute("b", "ordinal", values=tuple(range(6))),
]
WIDE = np.random.default_rng(4).dirichlet(np.ones(18)).reshape(3, 6)


def _shape(spread: float = 0.02) -> PairBias:
    refits = np.random.default_rng(5).dirichlet(500 * WIDE.ravel(), size=7).reshape(7, 3, 6)
    return pair_bias(ATTRIBUTES, WIDE, refits, spread)


def test_groups_of_a_bias_are_sums_and_marginals_stay() -> None:
    shape = _shape()
    every = shape.covariance(np.eye(18).reshape(18, 3, 6), [np.arange(3), np.arange(6)])
    assert np.diag(every) == pytest.approx(shape.variances.ravel())
    assert shape.variances.sum() == pytest.approx((shape.lines**2).sum() + 0.02 + 0.02), (
        "of values and of waves"
    )
    groups = [np.array([0, 1, 1]), np.array([0, 0, 1, 1, 0, 1])]
    sums = np.zeros((4, 3, 6))
    for i, a in enumerate(groups[0]):
        for j, b in enumerate(groups[1]):
            sums[2 * a + b, i, j] = 1
    flat = sums.reshape(4, 18)
    assert shape.covariance(np.eye(4).reshape(4, 2, 2), groups) == pytest.approx(
        flat @ every @ flat.T
    )
    lines = np.concatenate([np.kron(np.eye(3), np.ones(6)), np.kron(np.ones(3), np.eye(6))])
    assert lines @ every @ lines.T == pytest.approx(0, abs=1e-12), "one-way marginals stay"
    waves = np.outer(*((moves**2).sum(axis=1) for moves in shape.waves))
    assert shape.times(9.0).variances == pytest.approx(9 * (shape.variances - waves) + waves), (
        "waves are not multiplied"
    )
    unordered = pair_bias(
        [ATTRIBUTES[0], ATTRIBUTES[0]], WIDE[:, :3] / WIDE[:, :3].sum(), WIDE[None, :, :3], 0.02
    )
    assert not unordered.waves[0].any(), "without an order there are no waves"


def test_slow_waves_make_ranges_err_more_than_cells_that_err_apart() -> None:
    """The lower half of an ordered attribute errs more than as many values picked here and there."""
    even = np.full((3, 6), 1 / 18)
    shape = pair_bias(ATTRIBUTES, even, even[None], 1.0)
    rows, cells = np.zeros((2, 3, 6)), [np.arange(3), np.arange(6)]
    rows[0, 0, :3] = 1
    rows[1, 0, ::2] = 1
    half, scattered = np.diag(shape.covariance(rows, cells))
    assert half > 2 * scattered


def _drawn(factor: float, shape: PairBias, noise: np.ndarray, rng: np.random.Generator) -> _Pair:
    """A pair with a bias of this factor, and raw estimates with this noise."""
    first, second = shape.values
    products = rng.standard_normal((first.shape[1], second.shape[1]))
    bias = (
        np.tensordot(rng.standard_normal(len(shape.lines)), shape.lines, 1)
        + first @ products @ second.T
    )
    raw = WIDE + np.sqrt(factor) * bias + np.sqrt(noise) * rng.standard_normal(WIDE.shape)
    return _Pair(WIDE, shape, np.zeros_like(WIDE), raw, noise)


@pytest.mark.parametrize("factor", [0.1, 1.0, 10.0])
def test_all_pairs_together_tell_the_factor(factor: float) -> None:
    """With noise three times the bias no pair can tell; two hundred find the median within a factor of two."""
    shape, rng = _shape(), np.random.default_rng(6)
    noise = np.full(WIDE.shape, 3 * factor * shape.variances.mean())
    prior = learnt_prior([_drawn(factor, shape, noise, rng).likelihood for _ in range(200)], 0.0)
    median = STEPS[np.searchsorted(np.cumsum(prior), 0.5)]
    assert median == pytest.approx(np.log(factor), abs=np.log(2))
    wrong = learnt_prior(
        [_drawn(9 * factor, shape, noise, rng).likelihood for _ in range(200)], 0.0
    )
    assert STEPS[np.searchsorted(np.cumsum(wrong), 0.5)] > np.log(4 * factor), (
        "biases three times as large are noticed"
    )


def test_likelihood_of_a_bias_is_that_of_the_normal_law() -> None:
    """Against the definition, with the whole covariance."""
    shape, rng = _shape(), np.random.default_rng(7)
    noise = 0.002 + 0.01 * WIDE
    pair = _drawn(1.0, shape, noise, rng)
    still = PairBias(
        shape.lines, shape.values, (0 * shape.waves[0], shape.waves[1])
    )  # of waves the size is fixed
    bias = still.covariance(np.eye(18).reshape(18, 3, 6), [np.arange(3), np.arange(6)])
    assert pair.raw is not None
    apart = (WIDE - pair.raw).ravel()
    exact = []
    for factor in [*np.exp(STEPS), 0.0]:
        covariance = np.diag(noise.ravel()) + factor * bias
        exact.append(
            -0.5 * (np.linalg.slogdet(covariance)[1] + apart @ np.linalg.solve(covariance, apart))
        )
    assert pair.likelihood == pytest.approx(np.array(exact[:-1]) - exact[-1], abs=1e-8)


def test_directions_of_next_to_no_size_do_not_stop_the_likelihood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replicates of a pair that was left out agree up to rounding; LAPACK's fast singular values gave up on some such tables."""
    rng = np.random.default_rng(9)
    for shape in ((7, 12), (30, 12)):
        lines = rng.standard_normal(shape) * 10.0 ** -np.arange(shape[0])[:, None]
        _, singular, directions = np.linalg.svd(lines, full_matrices=False)
        squares, found = principal(lines)
        strong = singular**2 > 1e-10 * singular[0] ** 2
        assert np.sort(squares)[::-1][: strong.sum()] == pytest.approx(
            singular[strong] ** 2, rel=1e-3
        )
        seen = np.abs(found[np.argsort(-squares)][:3] @ directions[:3].T)
        assert seen == pytest.approx(np.eye(3), abs=1e-5), "the same directions, up to sign"

    def gives_up(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "svd", gives_up)
    shape_of = pair_bias(ATTRIBUTES, WIDE, np.stack([WIDE + 1e-17] * 5), 0.02)
    assert np.isfinite(_drawn(1.0, shape_of, np.full(WIDE.shape, 0.01), rng).likelihood).all()


def test_a_release_names_the_pairs_that_do_not_fit() -> None:
    network = generate_network([3, 4, 2, 3], strength=1.5, seed=2)
    machine = start("mixture", network.schema, 4.0, 100_000, {"total": 40}, 0)
    redraw(machine, network, np.random.default_rng(0))  # type: ignore[arg-type]
    assert misfit_notes(machine, machine.model()) == {}
    product = Independent(
        network.schema, tuple(network.marginal([n]) for n in network.schema.names)
    )
    found = misfit_notes(machine, product)["misfit"]
    assert "x0 x x1" in found
    alone = start("independent", network.schema, 4.0, 10_000, {}, 0)
    redraw(alone, network, np.random.default_rng(0))  # type: ignore[arg-type]
    assert misfit_notes(alone, alone.model()) == {}
