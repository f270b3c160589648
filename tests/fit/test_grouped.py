"""Grouped marginals are the sums of the cells' own."""

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.errors import ParameterError
from dither.fit import Independent, JunctionTree, add_up, grouped_marginal, triangulate


def test_groups_add_up_the_cells_one_by_one():
    network = generate_network((3, 4, 2), strength=1.5, seed=3)
    names = list(network.schema.names)
    groups = [np.array([0, 1, 0]), np.array([1, 1, 0, 2]), np.array([0, 1])]
    slow = np.zeros((2, 3, 2))
    for cell, frequency in np.ndenumerate(network.marginal(names)):
        slow[tuple(group[code] for group, code in zip(groups, cell, strict=True))] += frequency
    assert np.allclose(grouped_marginal(network, names, groups), slow)


def test_independent_attributes_add_up_before_they_multiply():
    schema = generate_network((3, 4, 2), seed=3).schema
    rng = np.random.default_rng(1)
    model = Independent(
        schema, tuple(rng.dirichlet(np.ones(size)) for size in schema.cardinalities)
    )
    names, groups = ["x2", "x0"], [np.array([0, 0]), np.array([1, 0, 1])]
    assert np.allclose(
        grouped_marginal(model, names, groups), add_up(model.marginal(names), groups)
    )


@pytest.mark.parametrize(
    "names",
    [["x1"], ["x0", "x1"], ["x4", "x0"], ["x5", "x2", "x0"], ["x3", "x5", "x1", "x4", "x0"]],
)
def test_a_tree_adds_up_on_its_way(names):
    rng = np.random.default_rng(4)
    schema = generate_network((3, 4, 2, 3, 2, 4), seed=3).schema
    joint = rng.dirichlet(np.full(576, 0.5)).reshape(schema.cardinalities)
    tree = triangulate(
        schema.cardinalities, [(0, 1), (1, 2), (2, 3), (1, 3), (3, 4)]
    )  # x5 stands alone
    tables = [
        joint.sum(axis=tuple(i for i in range(6) if i not in clique)) for clique in tree.cliques
    ]
    model = JunctionTree.from_cliques(schema, tree, tables)
    groups = [rng.permutation(np.arange(schema[name].cardinality) % 2) for name in names]
    assert np.allclose(
        grouped_marginal(model, names, groups), add_up(model.marginal(names), groups)
    )


def test_a_model_that_cannot_group_refuses_what_takes_minutes():
    network = generate_network((20,) * 6, seed=3)
    with pytest.raises(ParameterError, match="64,000,000 cells, more than 5,000,000"):
        grouped_marginal(network, network.schema.names, [np.zeros(20, np.intp)] * 6)
