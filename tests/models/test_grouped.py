"""Grouped marginals are the sums of the cells' own."""

import numpy as np

from dither.datasets.generated import generate_network
from dither.models.grouped import grouped_marginal


def test_groups_add_up_the_cells_one_by_one():
    network = generate_network((3, 4, 2), strength=1.5, seed=3)
    names = list(network.schema.names)
    groups = [np.array([0, 1, 0]), np.array([1, 1, 0, 2]), np.array([0, 1])]
    slow = np.zeros((2, 3, 2))
    for cell, frequency in np.ndenumerate(network.marginal(names)):
        slow[tuple(group[code] for group, code in zip(groups, cell, strict=True))] += frequency
    assert np.allclose(grouped_marginal(network, names, groups), slow)
