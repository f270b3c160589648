"""Entropy pruning: which pairs are examined, and the counters."""

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import prune_by_entropy, relative_entropy

EVEN = [
    np.full(2, 0.5),
    np.array([0.9, 0.1]),
    np.array([0.7, 0.3]),
    np.array([0.99, 0.01]),
    np.array([0.6, 0.4]),
]


def test_relative_entropy_divides_by_the_domain():
    even = [np.full(4, 0.25), np.full(2, 0.5)]
    assert relative_entropy(even) == pytest.approx([np.log(4) / 4, np.log(2) / 2])
    assert relative_entropy(even, "degrees") == pytest.approx([np.log(4) / 3, np.log(2)])


def test_none_examines_all_pairs():
    result = prune_by_entropy(EVEN, 0.4, "none", lambda i, j: (i, j) == (0, 3))
    assert result.dependent == {(0, 3)}
    assert len(result.examined) == result.pairs == 10
    assert result.reduction == 0


def test_empty_start_examines_the_attributes_of_largest_entropy():
    asked = []
    result = prune_by_entropy(EVEN, 0.4, "empty", lambda i, j: asked.append((i, j)) or True)
    assert set(asked) == {(0, 2), (0, 4), (2, 4)} == set(result.examined)
    assert result.dependent == {(0, 2), (0, 4), (2, 4)}
    assert result.reduction == pytest.approx(0.7)


def test_full_start_looks_for_independence_among_the_least_entropy():
    result = prune_by_entropy(EVEN, 0.4, "full", lambda i, j: False)
    assert set(result.examined) == {(1, 2), (1, 3), (2, 3)}
    assert len(result.dependent) == 7
    assert not result.dependent & set(result.examined)


@pytest.mark.parametrize(("phi", "pairs"), [(0.1, 91), (0.2, 66), (0.3, 55), (0.4, 36), (0.5, 28)])
def test_pairs_of_fifteen_attributes_are_those_of_table_7(phi, pairs):
    marginals = [np.random.default_rng(i).dirichlet(np.ones(4)) for i in range(15)]
    assert len(prune_by_entropy(marginals, phi, "empty", lambda i, j: False).examined) == pairs


def test_counters_against_all_pairs():
    result = prune_by_entropy(EVEN, 0.4, "empty", lambda i, j: i == 0)
    counters = result.against({(0, 2), (1, 3)})
    assert (counters["kept"], counters["added"], counters["lost"]) == (1, 1, 1)
    assert counters["loss_ratio"] == 0.5
    assert counters["pairs_computed"] == 3


def test_unknown_variant_is_an_error():
    with pytest.raises(ParameterError, match="pruning"):
        prune_by_entropy(EVEN, 0.4, "some", lambda i, j: True)
