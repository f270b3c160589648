"""Triangulation and junction trees on random graphs, checked with networkx and by definition."""

import networkx as nx
import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import triangulate, triangulate_capped


def _random_edges(rng, d, density):
    return [(i, j) for i in range(d) for j in range(i + 1, d) if rng.random() < density]


def _check_tree(result, d):
    assert result.parents[0] == -1
    assert all(0 <= p < c for c, p in enumerate(result.parents) if c)
    assert set().union(*result.cliques) == set(range(d))
    for node in range(d):
        holding = {c for c, clique in enumerate(result.cliques) if node in clique}
        # Connected: all but one of the cliques that hold a node have a parent that holds it too.
        assert sum(result.parents[c] in holding for c in holding) == len(holding) - 1


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_become_chordal_with_running_intersection(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 14))
    cardinalities = rng.integers(2, 9, d).tolist()
    edges = _random_edges(rng, d, rng.random())
    result = triangulate(cardinalities, edges)
    graph = nx.Graph(edges + list(result.fill))
    graph.add_nodes_from(range(d))
    assert not set(edges) & set(result.fill)
    assert nx.is_chordal(graph)
    assert {frozenset(c) for c in nx.chordal_graph_cliques(graph)} == {
        frozenset(c) for c in result.cliques
    }
    _check_tree(result, d)


def test_a_wrong_tree_fails_the_check():
    right = triangulate([2] * 4, [(0, 1), (1, 2), (2, 3)])
    wrong = type(right)(right.cliques, (-1, 0, 0), right.kept, right.fill)
    with pytest.raises(AssertionError):
        _check_tree(wrong, 4)


def test_chordal_graphs_get_no_fill():
    assert triangulate([3] * 5, [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4)]).fill == ()


def test_weights_choose_the_cheap_diagonal():
    result = triangulate([2, 10, 2, 10], [(0, 1), (1, 2), (2, 3), (3, 0)])
    assert result.fill == ((0, 2),)


@pytest.mark.parametrize("seed", range(20))
def test_cap_is_kept_and_what_was_dropped_is_told(seed):
    rng = np.random.default_rng(100 + seed)
    d = int(rng.integers(4, 12))
    cardinalities = rng.integers(2, 9, d).tolist()
    strengths = {pair: float(rng.random()) for pair in _random_edges(rng, d, 0.7)}
    cap = int(rng.integers(64, 600))
    result = triangulate_capped(cardinalities, strengths, cap)
    assert max(result.cells(cardinalities)) <= cap
    assert set(result.kept) | set(result.dropped) == set(strengths)
    assert not set(result.kept) & set(result.dropped)
    _check_tree(result, d)


def test_the_weakest_edge_goes_first():
    strengths = {(0, 1): 3.0, (1, 2): 2.0, (0, 2): 1.0}
    assert triangulate_capped([4, 4, 4], strengths, 64).dropped == ()
    result = triangulate_capped([4, 4, 4], strengths, 63)
    assert result.dropped == ((0, 2),)
    assert triangulate_capped([4, 4, 4], {(1, 0): 3.0, (2, 1): 1.0, (0, 2): 2.0}, 63).dropped == (
        (1, 2),
    )


def test_an_attribute_wider_than_the_cap_is_an_error():
    with pytest.raises(ParameterError, match="max_clique_cells"):
        triangulate_capped([2, 500], {(0, 1): 1.0}, 100)


def test_edges_outside_the_schema_are_an_error():
    with pytest.raises(ParameterError, match="edge"):
        triangulate([2, 2], [(0, 2)])


@pytest.mark.parametrize("seed", range(20))
def test_the_cap_drops_what_triangulating_everything_anew_at_each_edge_drops(seed):
    rng = np.random.default_rng(300 + seed)
    d = int(rng.integers(4, 12))
    cardinalities = rng.integers(2, 9, d).tolist()
    strengths = {pair: float(rng.random()) for pair in _random_edges(rng, d, 0.5)}
    cap = 120
    kept = []
    for pair in sorted(strengths, key=strengths.get, reverse=True):
        if max(triangulate(cardinalities, [*kept, pair]).cells(cardinalities)) <= cap:
            kept.append(pair)
    found = triangulate_capped(cardinalities, strengths, cap)
    if found.dropped:
        assert set(found.kept) == set(kept)
