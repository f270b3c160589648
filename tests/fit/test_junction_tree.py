"""The junction tree against the whole joint, which small schemas can hold."""

from itertools import combinations

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import JunctionTree, MessagePass, Model, independent_tree, triangulate
from dither.schema import Attribute, Schema


def _schema(cardinalities):
    return Schema(
        tuple(
            Attribute(f"a{i}", "categorical", values=tuple(range(k)))
            for i, k in enumerate(cardinalities)
        )
    )


def _random_tree(seed, d=6, density=0.35):
    rng = np.random.default_rng(seed)
    cardinalities = tuple(int(k) for k in rng.integers(2, 5, d))
    edges = [pair for pair in combinations(range(d), 2) if rng.random() < density]
    tree = triangulate(cardinalities, edges)
    potentials = [rng.normal(0, 1.5, [cardinalities[a] for a in clique]) for clique in tree.cliques]
    return _schema(cardinalities), tree, potentials


def _summed(table, scope, keep):
    """The marginal of some of a table's attributes."""
    return np.einsum(table, list(scope), list(keep))


def _joint(schema, tree, potentials):
    """The product of all potentials, cell by cell."""
    log = np.zeros(schema.cardinalities)
    for clique, potential in zip(tree.cliques, potentials, strict=True):
        sizes = [k if a in clique else 1 for a, k in enumerate(schema.cardinalities)]
        log = log + np.einsum(potential, clique, sorted(clique)).reshape(sizes)
    joint = np.exp(log)
    return joint / joint.sum(), float(np.log(joint.sum()))


@pytest.mark.parametrize("seed", range(12))
def test_belief_propagation_equals_brute_force(seed):
    schema, tree, potentials = _random_tree(seed)
    joint, normaliser = _joint(schema, tree, potentials)
    found = MessagePass(tree, schema.cardinalities).calibrate(potentials)
    assert found.log_normaliser == pytest.approx(normaliser)
    for clique, marginal in zip(tree.cliques, found.marginals, strict=True):
        np.testing.assert_allclose(marginal, _summed(joint, range(len(schema)), clique), atol=1e-12)


def test_belief_propagation_survives_huge_potentials():
    schema, tree, potentials = _random_tree(3)
    found = MessagePass(tree, schema.cardinalities).calibrate([1e4 * p for p in potentials])
    assert all(np.isfinite(m).all() and m.sum() == pytest.approx(1) for m in found.marginals)


@pytest.mark.parametrize("seed", range(12))
def test_every_marginal_within_and_across_cliques_equals_brute_force(seed):
    schema, tree, potentials = _random_tree(seed)
    joint, _ = _joint(schema, tree, potentials)
    model = JunctionTree(
        schema, tree, MessagePass(tree, schema.cardinalities).calibrate(potentials).marginals
    )
    rng = np.random.default_rng(seed)
    for size in range(1, len(schema) + 1):
        for chosen in combinations(range(len(schema)), size):
            order = tuple(int(i) for i in rng.permutation(chosen))
            found = model.marginal([schema.names[i] for i in order])
            np.testing.assert_allclose(found, _summed(joint, range(len(schema)), order), atol=1e-12)


def test_sample_follows_the_joint_and_its_seed():
    schema, tree, potentials = _random_tree(4, d=5)
    joint, _ = _joint(schema, tree, potentials)
    model = JunctionTree(
        schema, tree, MessagePass(tree, schema.cardinalities).calibrate(potentials).marginals
    )
    n = 400_000
    rows = model.sample(n, np.random.default_rng(7))
    assert rows.dtype == np.int32
    counts = np.bincount(
        np.ravel_multi_index(tuple(rows.T), schema.cardinalities), minlength=joint.size
    )
    expected = n * joint.ravel()
    chi2 = ((counts - expected) ** 2 / expected)[expected > 5].sum()
    cells = int((expected > 5).sum())
    assert chi2 < cells + 5 * np.sqrt(2 * cells)
    # The same figure for independent attributes is far off, so the test would notice lost dependence.
    singles = [model.marginal([name]) for name in schema.names]
    wrong = independent_tree(schema, singles).sample(n, np.random.default_rng(7))
    counts = np.bincount(
        np.ravel_multi_index(tuple(wrong.T), schema.cardinalities), minlength=joint.size
    )
    assert ((counts - expected) ** 2 / expected)[expected > 5].sum() > 10 * chi2
    np.testing.assert_array_equal(rows, model.sample(n, np.random.default_rng(7)))


def test_samples_never_fall_in_empty_cells():
    schema = _schema((3, 3, 2))
    tree = triangulate(schema.cardinalities, [(0, 1), (1, 2)])
    first = np.array([[0.5, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.5]])
    second = np.array([[0.0, 0.5], [0.0, 0.0], [0.5, 0.0]])
    rows = JunctionTree(schema, tree, (first, second)).sample(10_000, np.random.default_rng(0))
    assert {tuple(r) for r in rows.tolist()} == {(0, 0, 1), (2, 2, 0)}


def test_bytes_round_trip():
    schema, tree, potentials = _random_tree(5)
    model = JunctionTree(
        schema, tree, MessagePass(tree, schema.cardinalities).calibrate(potentials).marginals
    )
    again = JunctionTree.from_bytes(model.to_bytes())
    assert isinstance(model, Model)
    assert again.to_bytes() == model.to_bytes()
    assert again.tree == model.tree
    np.testing.assert_array_equal(
        again.sample(50, np.random.default_rng(1)), model.sample(50, np.random.default_rng(1))
    )


@pytest.mark.parametrize("seed", range(8))
def test_reconcile_makes_cliques_agree_and_keeps_agreeing_ones(seed):
    schema, tree, potentials = _random_tree(seed, density=0.5)
    exact = MessagePass(tree, schema.cardinalities).calibrate(potentials).marginals
    for a, b in zip(JunctionTree.from_cliques(schema, tree, exact).marginals, exact, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    rng = np.random.default_rng(seed)
    noisy = [np.maximum(m + rng.normal(0, 0.3 / m.size, m.shape), 0) for m in exact]
    agreed = JunctionTree.from_cliques(schema, tree, noisy).marginals
    for c, separator in enumerate(tree.separators):
        if c:
            p = tree.parents[c]
            mine, theirs = (
                _summed(agreed[c], tree.cliques[c], separator),
                _summed(agreed[p], tree.cliques[p], separator),
            )
            np.testing.assert_allclose(mine, theirs, atol=1e-12)
    assert all(t.sum() == pytest.approx(1) and (t >= 0).all() for t in agreed)


def test_reconcile_spreads_over_values_that_one_side_never_saw():
    tree = triangulate((2, 2, 2), [(0, 1), (1, 2)])
    left, right = np.array([[0.5, 0.0], [0.5, 0.0]]), np.array([[0.25, 0.25], [0.25, 0.25]])
    model = JunctionTree.from_cliques(_schema((2, 2, 2)), tree, [left, right])
    np.testing.assert_allclose(model.marginal(["a1"]), [0.75, 0.25], atol=1e-6)
    np.testing.assert_allclose(model.marginal(["a0", "a1"])[:, 1], [0.125, 0.125], atol=1e-6)


def test_disagreeing_cliques_and_bad_questions_are_refused():
    tree = triangulate((2, 2, 2), [(0, 1), (1, 2)])
    skewed = np.array([[0.7, 0.1], [0.1, 0.1]])
    with pytest.raises(ValueError, match="disagree"):
        JunctionTree(_schema((2, 2, 2)), tree, (skewed, np.full((2, 2), 0.25)))
    with pytest.raises(ValueError, match="distribution"):
        JunctionTree(_schema((2, 2, 2)), tree, (skewed, np.full((2, 2), 0.5)))
    model = independent_tree(_schema((2, 2, 2)), [np.full(2, 0.5)] * 3)
    with pytest.raises(ParameterError, match="twice"):
        model.marginal(["a0", "a0"])
    wide = independent_tree(_schema((1000, 1000, 1000)), [np.full(1000, 0.001)] * 3)
    with pytest.raises(ParameterError, match="cells"):
        wide.marginal(["a0", "a1", "a2"])


def test_sixty_attributes_in_a_chain_answer_far_pairs():
    d = 60
    tree = triangulate((2,) * d, [(i, i + 1) for i in range(d - 1)])
    stay = np.array([[0.45, 0.05], [0.05, 0.45]])
    model = JunctionTree(_schema((2,) * d), tree, (stay,) * (d - 1))
    far = model.marginal(["a0", "a59"])
    assert far[0, 0] == pytest.approx(0.25 * (1 + 0.8**59))
