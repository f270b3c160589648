"""Large cliques as products of small factors: exact where the factors say everything, and always within the cap."""

import math
from itertools import pairwise

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import (
    compose,
    factorise,
    factorise_by_information,
    mutual_information,
    reduce_conditions,
)

SIZES = (3, 4, 2, 3, 5)


def chain(seed=0):
    """x0 -> x1 -> x2 -> x3 -> x4, every step strong."""
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.ones(SIZES[0]))
    for a, b in pairwise(SIZES):
        joint = joint[..., None] * rng.dirichlet(np.full(b, 0.3), a)
    return joint


def view(joint, positions):
    others = tuple(i for i in range(joint.ndim) if i not in positions)
    summed = joint.sum(axis=others)
    order = sorted(positions)
    return np.transpose(summed, [order.index(p) for p in positions])


def informations(joint):
    d = joint.ndim
    out = np.zeros((d, d))
    for i in range(d):
        for j in range(i + 1, d):
            out[i, j] = out[j, i] = mutual_information(view(joint, (i, j)))
    return out


def slow_conditions(target, candidates, information, sizes, most):
    """Peng's criterion read aloud: try every candidate, take the best, stop when none gains."""
    taken = []
    while True:
        best, value = None, 0.0
        for c in sorted(set(candidates) - set(taken)):
            if math.prod(sizes[a] for a in (*taken, c, target)) > most:
                continue
            redundancy = sum(information[c][s] for s in taken) / len(taken) if taken else 0.0
            if information[c][target] - redundancy > value:
                best, value = c, information[c][target] - redundancy
        if best is None:
            return tuple(sorted(taken))
        taken.append(best)


@pytest.mark.parametrize("seed", range(5))
def test_reduced_conditions_equal_the_slow_reference(seed):
    rng = np.random.default_rng(seed)
    information = rng.random((6, 6))
    information = (information + information.T) / 2
    sizes = rng.integers(2, 6, 6).tolist()
    for target in range(6):
        others = [a for a in range(6) if a != target]
        for most in (10, 60, 10_000):
            assert reduce_conditions(target, others, information, sizes, most) == slow_conditions(
                target, others, information, sizes, most
            )


@pytest.mark.parametrize("most", [20, 24, 40, 60])
def test_factors_stay_within_the_cap_and_cover_the_clique(most):
    found = factorise(range(5), SIZES, informations(chain()), most)
    assert all(math.prod(SIZES[a] for a in s) <= most for s in found.sets)
    seen = set(found.core)
    for a, given in found.conditionals:
        assert set(given) <= seen, "a condition must be known before it is used"
        seen.add(a)
    assert seen == set(range(5))


def test_a_composed_chain_is_near_the_joint_and_wrong_factors_are_not():
    joint = chain()
    found = factorise(range(5), SIZES, informations(joint), 20)
    tables = [(s, view(joint, s)) for s in found.sets]
    composed = compose(range(5), found, tables)
    assert composed.sum() == pytest.approx(1)
    near = np.abs(composed - joint).sum() / 2
    even = [(s, np.full_like(t, 1 / t.size)) for s, t in tables]
    assert near < 0.1
    assert np.abs(compose(range(5), found, even) - joint).sum() / 2 > 0.3


def test_a_three_step_chain_is_exact_and_axes_follow_the_clique():
    joint = chain()[..., :].sum(axis=(3, 4))
    found = factorise((0, 1, 2), SIZES[:3], informations(joint), 12)
    assert found.core in ((0, 1), (1, 2))
    tables = [(s, view(joint, s)) for s in found.sets]
    np.testing.assert_allclose(compose((0, 1, 2), found, tables), joint, atol=1e-12)
    np.testing.assert_allclose(
        compose((2, 0, 1), found, tables), np.transpose(joint, (2, 0, 1)), atol=1e-12
    )


def test_a_clique_that_fits_stays_whole_and_a_stranger_stands_alone():
    information = np.zeros((5, 5))
    assert factorise((1, 3), SIZES, information, 12).sets == ((1, 3),)
    alone = factorise(range(3), SIZES, information, 5)
    assert all(given == () for _, given in alone.conditionals)


def test_conditions_that_never_occur_do_not_become_nan():
    table = np.zeros((3, 4))
    table[0] = 0.25
    found = factorise((0, 1, 2), SIZES[:3], np.array([[0, 1.0, 0], [1.0, 0, 0.5], [0, 0.5, 0]]), 12)
    tables = [((0, 1), table), ((1, 2), np.full((4, 2), 1 / 8))]
    composed = compose((0, 1, 2), found, tables)
    assert np.isfinite(composed).all()
    assert composed.sum() == pytest.approx(1)


def test_bad_input_is_named():
    with pytest.raises(ParameterError, match="factor_cells"):
        factorise((0, 1), SIZES, np.zeros((5, 5)), 1)
    with pytest.raises(ParameterError, match="no table"):
        compose((0, 1), factorise((0, 1), SIZES, np.zeros((5, 5)), 50), [((0,), np.ones(3) / 3)])


def slow_fill(target, candidates, joint, sizes, most):
    """Try every candidate, take the one that leaves the least entropy of the target, until none fits or tells anything."""

    def left(conditions):
        table = view(joint, (*sorted(conditions), target)).reshape(-1, sizes[target])
        total = table.sum(1, keepdims=True)
        share = np.divide(table, total, out=np.ones_like(table), where=total > 0)
        return -float((table * np.log(np.where(share > 0, share, 1.0))).sum())

    taken = []
    while True:
        room = [
            c
            for c in candidates
            if c not in taken and math.prod(sizes[a] for a in (*taken, c, target)) <= most
        ]
        best = min(room, key=lambda c: (round(left([*taken, c]), 10), c), default=None)
        if best is None or left(taken) - left([*taken, best]) <= 1e-9:
            return tuple(sorted(taken))
        taken.append(best)


@pytest.mark.parametrize("most", [20, 40, 60, 90])
@pytest.mark.parametrize("seed", range(3))
def test_conditions_are_filled_by_conditional_information(seed, most):
    joint = np.random.default_rng(seed).dirichlet(np.full(math.prod(SIZES), 0.2)).reshape(SIZES)
    found = factorise_by_information(range(5), SIZES, joint, most)
    assert all(math.prod(SIZES[a] for a in s) <= most for s in found.sets)
    seen = list(found.core)
    for a, given in found.conditionals:
        assert given == slow_fill(a, sorted(seen), joint, SIZES, most)
        seen.append(a)
    assert sorted(seen) == list(range(5))


def test_filled_conditions_come_nearer_than_those_without_redundancy():
    """x3 copies x0 with some noise and x4 hangs on both: minimal redundancy takes one of them for x4."""
    rng = np.random.default_rng(0)
    first = rng.dirichlet(np.ones(3))
    copy = 0.8 * np.eye(3) + 0.2 / 3
    both = rng.dirichlet(np.full(4, 0.3), (3, 3))
    joint = first[:, None, None] * copy[:, :, None] * both
    sizes = joint.shape
    plain = factorise(range(3), sizes, informations(joint), 35)
    filled = factorise_by_information(range(3), sizes, joint, 35)

    def error(found):
        return (
            np.abs(
                compose(range(3), found, [(s, view(joint, s)) for s in found.sets]) - joint
            ).sum()
            / 2
        )

    assert error(filled) <= error(plain)
    chained = factorise_by_information(range(5), SIZES, chain(), 20)
    again = compose(range(5), chained, [(s, view(chain(), s)) for s in chained.sets])
    np.testing.assert_allclose(again, chain(), atol=1e-9)
