"""Distances of noisy pairs from predicted ones, and forests of strong pairs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dither.fit import AnswerCounts, JunctionTree, triangulate
from dither.fit.mixture import PairTargets, pair_targets
from dither.fit.residuals import forest_pairs, residuals, strongest_forest
from dither.mechanisms import kernels
from dither.reports import question
from dither.schema import Attribute, Schema

SIZES = (3, 4, 2, 5)
SCHEMA = Schema(tuple(Attribute(f"x{i}", "ordinal", tuple(range(k))) for i, k in enumerate(SIZES)))


def chain() -> JunctionTree:
    """x0 - x1 - x2, and x3 alone."""
    rng = np.random.default_rng(2)
    tree = triangulate(SIZES, [(0, 1), (1, 2)])
    tables = [rng.dirichlet(np.full(4, 0.7), 20).reshape(-1) for _ in tree.cliques]
    shaped = []
    for clique, table in zip(tree.cliques, tables, strict=True):
        shape = tuple(SIZES[a] for a in clique)
        cells = int(np.prod(shape))
        shaped.append(table[:cells].reshape(shape) / table[:cells].sum())
    return JunctionTree.from_cliques(SCHEMA, tree, shaped)


def collected(model: JunctionTree, n: int, rng: np.random.Generator) -> PairTargets:
    answers = []
    for sets in (*((name,) for name in SCHEMA.names), *combinations(SCHEMA.names, 2)):
        q = question(SCHEMA, sets, 1.0)
        truth = rng.multinomial(n, model.marginal(list(sets)).ravel())
        answers.append(AnswerCounts(q, kernels.simulate(q.mechanism, truth, rng), n))
    return pair_targets(SCHEMA, answers)


def test_all_pairs_of_a_tree_are_its_marginals() -> None:
    model = chain()
    found = model.all_pairs()
    ends = np.cumsum((0, *SIZES))
    for i, j in combinations(range(len(SIZES)), 2):
        block = found[ends[i] : ends[i + 1], ends[j] : ends[j + 1]]
        np.testing.assert_allclose(block, model.marginal([f"x{i}", f"x{j}"]), atol=1e-12)
        np.testing.assert_allclose(
            found[ends[j] : ends[j + 1], ends[i] : ends[i + 1]], block.T, atol=1e-12
        )
    one = np.concatenate([model.marginal([name]) for name in SCHEMA.names])
    np.testing.assert_allclose(np.diag(found), one, atol=1e-12)


def test_scores_are_standard_where_the_prediction_is_right() -> None:
    """Over many collections of a known model; half of the noise would be noticed."""
    model = chain()
    predicted = model.all_pairs()
    upper = np.triu_indices(len(SIZES), 1)
    scores, halved = [], []
    for seed in range(60):
        targets = collected(model, 2_000, np.random.default_rng(seed))
        found = residuals(targets, predicted, product=False)
        scores.append(found.scores[upper])
        excess = found.excess + 0.5 * found.noise
        halved.append((excess / found.deviation)[upper])
    mean = np.mean(scores)
    error = np.std(np.mean(scores, axis=1)) / np.sqrt(len(scores))
    assert abs(mean) < 4 * error
    assert np.std(scores) == pytest.approx(1.0, abs=0.2)
    assert np.mean(halved) > 4 * error, "a wrong noise is noticed"


def test_independent_attributes_score_low_against_the_product() -> None:
    flat = JunctionTree(SCHEMA, triangulate(SIZES, ()), tuple(np.full(k, 1 / k) for k in SIZES))
    upper = np.triu_indices(len(SIZES), 1)
    scores = []
    for seed in range(40):
        targets = collected(flat, 2_000, np.random.default_rng(seed))
        product = np.outer(targets.one, targets.one)
        scores.append(residuals(targets, product, product=True).scores[upper])
    error = np.std(np.mean(scores, axis=1)) / np.sqrt(len(scores))
    assert abs(np.mean(scores)) < 4 * error + 0.1
    assert (np.array(scores) > 3).mean() < 0.03


def test_the_strongest_forest_is_the_best_of_all_forests() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        pairs = list(combinations(range(5), 2))
        strength = {pair: float(rng.random()) for pair in pairs}
        best = max(
            sum(strength[p] for p in chosen)
            for chosen in combinations(pairs, 4)
            if len({a for p in chosen for a in p}) == 5 and _connected(chosen)
        )
        found = strongest_forest(strength, 5)
        assert len(found) == 4
        assert sum(strength[p] for p in found) == pytest.approx(best)


def _connected(pairs: tuple[tuple[int, int], ...]) -> bool:
    reached = {pairs[0][0]}
    for _ in pairs:
        reached |= {end for pair in pairs if set(pair) & reached for end in pair}
    return len(reached) == 5


def test_a_forest_predicts_what_follows_from_its_edges() -> None:
    model = chain()
    targets = collected(model, 3_000_000, np.random.default_rng(1))
    product = np.outer(targets.one, targets.one)
    found = residuals(targets, product, product=True)
    predicted = forest_pairs(targets, [(0, 1), (1, 2)], found)
    at = targets.columns.of(0), targets.columns.of(2)
    truth = model.marginal(["x0", "x2"])
    assert np.abs(predicted[at] - truth).sum() < 0.02
    assert np.abs(product[at] - truth).sum() > 0.05, "the product does not"
