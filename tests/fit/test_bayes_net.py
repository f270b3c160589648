"""The Bayes network model against its joint distribution written out."""

from itertools import combinations

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import BayesNet, Model, chain_joint
from dither.schema import Attribute, Schema

SIZES = (3, 2, 4, 2)
SCHEMA = Schema(tuple(Attribute(f"x{i}", "ordinal", tuple(range(k))) for i, k in enumerate(SIZES)))
PARENTS = ((2,), (0, 2), (), (1,))


def network(seed=0):
    rng = np.random.default_rng(seed)
    tables = tuple(
        rng.dirichlet(np.ones(SIZES[i]), tuple(SIZES[p] for p in given))
        for i, given in enumerate(PARENTS)
    )
    return BayesNet(SCHEMA, PARENTS, tables)


def brute_force(model):
    joint = np.zeros(SIZES)
    for cell in np.ndindex(SIZES):
        joint[cell] = np.prod(
            [
                model.conditionals[i][(*(cell[p] for p in given), cell[i])]
                for i, given in enumerate(PARENTS)
            ]
        )
    return joint


def test_marginals_equal_brute_force():
    model = network()
    assert isinstance(model, Model)
    joint = brute_force(model)
    assert joint.sum() == pytest.approx(1)
    for size in range(1, 5):
        for positions in combinations(range(4), size):
            others = tuple(i for i in range(4) if i not in positions)
            got = model.marginal([f"x{i}" for i in positions])
            np.testing.assert_allclose(got, joint.sum(axis=others), atol=1e-12)
    np.testing.assert_allclose(
        model.marginal(["x3", "x0"]), model.marginal(["x0", "x3"]).T, atol=1e-12
    )


def test_samples_follow_the_joint():
    model, n = network(), 200_000
    rows = model.sample(n, np.random.default_rng(1))
    expected = brute_force(model)
    counts = np.zeros(SIZES)
    np.add.at(counts, tuple(rows.T), 1)
    z = (counts / n - expected) / np.sqrt(expected * (1 - expected) / n)
    assert np.abs(z[expected * n > 10]).max() < 5
    other = brute_force(network(1))
    assert np.abs((counts / n - other) / np.sqrt(other * (1 - other) / n)).max() > 20, (
        "another network is rejected"
    )
    np.testing.assert_array_equal(rows, model.sample(n, np.random.default_rng(1)))
    assert model.sample(0, np.random.default_rng(1)).shape == (0, 4)


def test_archive_is_exact():
    model = network()
    again = BayesNet.from_bytes(model.to_bytes())
    assert again.to_bytes() == model.to_bytes()
    assert again.parents == model.parents
    np.testing.assert_array_equal(
        again.sample(50, np.random.default_rng(3)), model.sample(50, np.random.default_rng(3))
    )


def test_joints_give_conditionals_back_and_empty_conditions_the_marginal():
    model = network()
    joint = brute_force(model)
    tables = []
    for i, given in enumerate(PARENTS):
        scope = tuple(sorted((i, *given)))
        table = joint.sum(axis=tuple(a for a in range(4) if a not in scope))
        tables.append(chain_joint(table, scope, given, i))
    again = BayesNet.from_joints(SCHEMA, PARENTS, tables)
    for a, b in zip(again.conditionals, model.conditionals, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    tables[3] = np.array([[0.0, 0.0], [0.25, 0.75]])
    np.testing.assert_allclose(
        BayesNet.from_joints(SCHEMA, PARENTS, tables).conditionals[3][0], [0.25, 0.75]
    )


def test_what_is_no_network_is_refused():
    model = network()
    with pytest.raises(ValueError, match="circle"):
        BayesNet(
            SCHEMA,
            ((1,), (0,), (), ()),
            (
                np.full((2, 3), 1 / 3),
                np.full((3, 2), 0.5),
                *model.conditionals[2:3],
                np.full(2, 0.5),
            ),
        )
    with pytest.raises(ValueError, match="conditional"):
        BayesNet(SCHEMA, PARENTS, (*model.conditionals[:3], np.full((2, 2), 0.4)))
    with pytest.raises(ParameterError, match="twice"):
        model.marginal(["x0", "x0"])
