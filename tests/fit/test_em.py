"""EM by blocked matrix products against the loop over records that the papers print."""

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import joint
from dither.fit.joint import bit_likelihood, expectation_maximisation


def _bits(rng, values, k, p, q):
    return (rng.random((len(values), k)) < np.where(np.arange(k) == values[:, None], p, q)).astype(
        np.uint8
    )


def _reports(seed, n, shape, p=0.8, q=0.2):
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(int(np.prod(shape)), 0.5)).reshape(shape)
    cells = rng.choice(joint.size, n, p=joint.ravel())
    values = np.unravel_index(cells, shape)
    return joint, [_bits(rng, v, k, p, q) for v, k in zip(values, shape, strict=True)]


def _slow_step(joint, bits, p, q):
    """Algorithm 1 of LoPub with the corrected likelihood, one record and one cell at a time."""
    new = np.zeros_like(joint)
    for r in range(len(bits[0])):
        posterior = np.zeros_like(joint)
        for cell in np.ndindex(joint.shape):
            likelihood = joint[cell]
            for b, v in zip(bits, cell, strict=True):
                for position, bit in enumerate(b[r]):
                    one = p if position == v else q
                    likelihood *= one if bit else 1 - one
            posterior[cell] = likelihood
        new += posterior / posterior.sum()
    return new / len(bits[0])


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 2), (2, 2, 2, 3)])
def test_one_step_equals_the_loop_over_records(shape):
    _, bits = _reports(1, 60, shape)
    start = np.random.default_rng(2).dirichlet(np.ones(int(np.prod(shape)))).reshape(shape)
    likelihoods = [bit_likelihood(b, None, 0.8, 0.2, len(shape)) for b in bits]
    found = expectation_maximisation(likelihoods, start=start, steps=1, tolerance=1e-12)
    np.testing.assert_allclose(found.joint, _slow_step(start, bits, 0.8, 0.2), atol=2e-6)


def test_unequal_probabilities_and_filters_give_the_exact_likelihood():
    filters = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [1, 0, 0, 0, 1]], np.uint8)
    bits = np.array([[1, 0, 0, 1, 0], [0, 1, 1, 0, 1]], np.uint8)
    p, q = 0.5, 0.2
    exact = np.ones((2, 3))
    for r in range(2):
        for v in range(3):
            for b in range(5):
                one = p if filters[v, b] else q
                exact[r, v] *= one if bits[r, b] else 1 - one
    found = bit_likelihood(bits, filters, p, q)
    np.testing.assert_allclose(found / found[:, :1], exact / exact[:, :1], rtol=1e-5)
    unary = bit_likelihood(np.eye(3, dtype=np.uint8), None, p, q)
    general = bit_likelihood(np.eye(3, dtype=np.uint8), np.eye(3, dtype=np.uint8), p, q)
    np.testing.assert_allclose(unary / unary[:, :1], general / general[:, :1], rtol=1e-5)


def test_acceleration_reaches_the_plain_maximum():
    _, bits = _reports(3, 3_000, (4, 3))
    likelihoods = [bit_likelihood(b, None, 0.8, 0.2, 2) for b in bits]
    fast = expectation_maximisation(likelihoods, tolerance=1e-6, steps=5_000)
    a, b = (m.astype(np.float64) for m in likelihoods)
    joint = np.full((4, 3), 1 / 12)
    for _ in range(5_000):
        joint = joint * (a.T @ (b / ((a @ joint) * b).sum(1)[:, None])) / 3_000
    exact = np.log(((a @ joint) * b).sum(1)).sum()
    assert fast.converged
    assert fast.steps < 1_000
    assert fast.log_likelihood == pytest.approx(exact, abs=0.05)
    np.testing.assert_allclose(fast.joint, joint, atol=2e-3)


def test_the_truth_is_found_and_a_wrong_q_is_not():
    joint, bits = _reports(5, 40_000, (3, 4), p=0.75, q=0.25)
    right = expectation_maximisation([bit_likelihood(b, None, 0.75, 0.25) for b in bits]).joint
    wrong = expectation_maximisation([bit_likelihood(b, None, 0.75, 0.05) for b in bits]).joint
    # A raw cell has a standard error of at most 0.0075; EM is no worse than inversion.
    assert np.abs(right - joint).max() < 4 * 0.0075
    assert np.abs(wrong - joint).max() > 0.05


def test_weights_stand_for_repeated_rows():
    _, bits = _reports(6, 500, (2, 2))
    rows = np.concatenate(bits, axis=1)
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    whole = expectation_maximisation([bit_likelihood(b, None, 0.8, 0.2) for b in bits])
    merged = expectation_maximisation(
        [
            bit_likelihood(distinct[:, :2], None, 0.8, 0.2),
            bit_likelihood(distinct[:, 2:], None, 0.8, 0.2),
        ],
        counts,
    )
    np.testing.assert_allclose(whole.joint, merged.joint, atol=1e-4)


def test_zero_cells_stay_zero():
    _, bits = _reports(7, 500, (3, 3))
    start = np.ones((3, 3))
    start[1, 2] = 0
    found = expectation_maximisation([bit_likelihood(b, None, 0.8, 0.2) for b in bits], start=start)
    assert found.joint[1, 2] == 0
    assert found.joint.sum() == pytest.approx(1)


def test_blocks_that_are_made_anew_give_the_same_result(monkeypatch):
    _, bits = _reports(8, 9_000, (3, 2, 4))
    likelihoods = [bit_likelihood(b, None, 0.8, 0.2, 3) for b in bits]
    kept = expectation_maximisation(likelihoods)
    monkeypatch.setattr(joint, "_CACHE_BYTES", 0)
    np.testing.assert_array_equal(kept.joint, expectation_maximisation(likelihoods).joint)


def test_extreme_likelihoods_stay_finite():
    bits = np.zeros((4, 3), np.uint8)
    bits[:, 0] = 1
    likelihoods = [bit_likelihood(bits, None, 1 - 1e-9, 1e-9, 6)] * 6
    found = expectation_maximisation(likelihoods, steps=5)
    assert np.isfinite(found.joint).all()
    assert found.joint[(0,) * 6] == pytest.approx(1, abs=1e-3)


def test_a_joint_that_does_not_fit_is_an_error():
    likelihoods = [np.ones((2, 300), np.float32)] * 3
    with pytest.raises(ParameterError, match="27,000,000 cells"):
        expectation_maximisation(likelihoods)


def test_as_printed_it_takes_plain_steps_until_the_largest_value_hardly_changes():
    _, bits = _reports(6, 80, (3, 3))
    likelihoods = [bit_likelihood(b, None, 0.8, 0.2, 2) for b in bits]
    found = expectation_maximisation(likelihoods, tolerance=0.01, printed=True)
    slow, steps = np.full((3, 3), 1 / 9), 0
    while True:
        before, slow, steps = slow, _slow_step(slow, bits, 0.8, 0.2), steps + 1
        if abs(slow.max() - before.max()) <= 0.01:
            break
    assert found.steps == steps
    np.testing.assert_allclose(found.joint, slow, atol=1e-5)
    # Far from where EM ends: the rule looks at one value only (erratum 4).
    ended = expectation_maximisation(likelihoods, tolerance=1e-6)
    assert np.abs(ended.joint - found.joint).max() > 0.03
    assert ended.log_likelihood > found.log_likelihood
