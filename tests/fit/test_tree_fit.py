"""The joint fit of a junction tree: exact where it can be, better than cliques alone where it cannot."""

from itertools import combinations

import numpy as np
import pytest

from dither.errors import ParameterError
from dither.fit import JunctionTree, Marginal, MessagePass, fit_tree, triangulate
from dither.schema import Attribute, Schema


def _truth(seed=0, cardinalities=(4, 3, 5, 3, 4)):
    rng = np.random.default_rng(seed)
    schema = Schema(
        tuple(
            Attribute(f"a{i}", "categorical", values=tuple(range(k)))
            for i, k in enumerate(cardinalities)
        )
    )
    tree = triangulate(cardinalities, [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4)])
    potentials = [rng.normal(0, 0.8, [cardinalities[a] for a in clique]) for clique in tree.cliques]
    return schema, JunctionTree(
        schema, tree, MessagePass(tree, cardinalities).calibrate(potentials).marginals
    )


def _measured(names, frequencies, variance):
    return Marginal(names, frequencies, np.full(frequencies.shape, np.sqrt(variance)))


def _pairs(model, rng=None, sd=0.0):
    out = []
    for i, j in combinations(range(len(model.schema)), 2):
        names = model.schema.names[i], model.schema.names[j]
        exact = model.marginal(names)
        noise = 0 if rng is None else rng.normal(0, sd, exact.shape)
        out.append(_measured(names, exact + noise, max(sd, 1e-3) ** 2))
    return out


def _error(model, truth):
    sets = combinations(truth.schema.names, 2)
    return np.mean([np.abs(model.marginal(s) - truth.marginal(s)).sum() / 2 for s in sets])


def test_exact_marginals_are_reached():
    schema, truth = _truth()
    fit = fit_tree(schema, truth.tree, _pairs(truth), discrepancy=0, tolerance=0, iterations=1_500)
    assert fit.discrepancy < 1e-4
    assert _error(fit.model, truth) < 1e-3
    assert fit.unused == len(list(combinations(range(5), 2))) - 5


def test_weights_decide_between_contradicting_measurements():
    schema, truth = _truth()
    low, high = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.4, 0.3, 0.2, 0.1])
    given = [_measured(("a0",), low, 1e-4), _measured(("a0",), high, 3e-4)]
    fit = fit_tree(schema, truth.tree, given, discrepancy=0, iterations=500)
    np.testing.assert_allclose(fit.model.marginal(["a0"]), 0.75 * low + 0.25 * high, atol=1e-4)


def test_joint_fit_beats_noisy_cliques_and_stops_at_the_noise():
    schema, truth = _truth(seed=2)
    rng = np.random.default_rng(4)
    sd = 0.02
    measured = _pairs(truth, rng, sd)
    singles = [np.clip(truth.marginal([n]), 0, 1) for n in schema.names]
    fit = fit_tree(schema, truth.tree, measured, start=singles)
    assert fit.stopped == "discrepancy"
    assert 0.7 < fit.discrepancy <= 1
    alone = []
    for m in measured:
        kept = np.maximum(m.frequencies, 0)
        alone.append(np.abs(kept / kept.sum() - truth.marginal(m.attributes)).sum() / 2)
    assert _error(fit.model, truth) < 0.7 * np.mean(alone)


def test_late_stopping_follows_the_noise():
    schema, truth = _truth(seed=2)
    measured = _pairs(truth, np.random.default_rng(4), 0.02)
    early = fit_tree(schema, truth.tree, measured)
    late = fit_tree(schema, truth.tree, measured, discrepancy=0, iterations=1_000)
    assert late.discrepancy < early.discrepancy
    assert late.stopped in ("converged", "iterations")


def test_a_fit_goes_on_below_the_noise_while_it_falls_steeply():
    schema, truth = _truth()
    errors, further = [], 0
    for seed in range(12):
        given, residuals = _pairs(truth, np.random.default_rng(seed), sd=0.003), []
        plain = fit_tree(schema, truth.tree, given, discrepancy=0.8)
        on = fit_tree(
            schema,
            truth.tree,
            given,
            discrepancy=0.8,
            least=0.6,
            progress=lambda _, r, to=residuals: to.append(r),
        )
        ends = [
            r <= 0.6 or (r <= 0.8 and step >= 5 and r > 0.95 * residuals[step - 5])
            for step, r in enumerate(residuals)
        ]
        assert ends.index(True) == len(residuals) - 1 == on.iterations - 1
        assert plain.iterations <= on.iterations
        further += on.iterations - plain.iterations
        errors.append([_error(fit.model, truth) for fit in (plain, on)])
    assert further > 0
    assert np.mean(errors, axis=0)[1] < np.mean(errors, axis=0)[0], (
        "there was something left to learn"
    )


def test_residual_never_ends_above_a_plain_mirror_descent():
    """The slow, obvious reference: fixed small steps, one at a time."""
    schema, truth = _truth(seed=3)
    measured = _pairs(truth, np.random.default_rng(1), 0.02)
    messages = MessagePass(truth.tree, schema.cardinalities)
    theta = [np.zeros(s) for s in messages.shapes]
    sets = {m.attributes: tuple(schema.index(name) for name in m.attributes) for m in measured}
    placed = [
        m for m in measured if any(set(sets[m.attributes]) <= set(c) for c in truth.tree.cliques)
    ]
    for _ in range(400):
        state = messages.calibrate(theta)
        gradient = [np.zeros(s) for s in messages.shapes]
        loss = 0.0
        for m in placed:
            members, weights = sets[m.attributes], 1 / m.variances
            c = next(
                i for i, clique in enumerate(truth.tree.cliques) if set(members) <= set(clique)
            )
            clique = truth.tree.cliques[c]
            off = np.einsum(state.marginals[c], list(clique), list(members)) - m.frequencies
            loss += (weights * off**2).sum()
            shape = [schema.cardinalities[a] if a in members else 1 for a in clique]
            gradient[c] += (weights * off).reshape(shape)
        theta = [t - 2e-4 * g for t, g in zip(theta, gradient, strict=True)]
    cells = sum(m.frequencies.size for m in placed)
    fit = fit_tree(schema, truth.tree, measured, discrepancy=0, iterations=400)
    assert fit.discrepancy <= loss / cells * (1 + 1e-3)


def test_nothing_measured_gives_the_start():
    schema, truth = _truth()
    singles = [truth.marginal([n]) for n in schema.names]
    fit = fit_tree(schema, truth.tree, [], start=singles)
    assert fit.stopped == "nothing measured"
    np.testing.assert_allclose(fit.model.marginal(["a2"]), singles[2], atol=1e-12)


def test_impossible_measurements_are_refused():
    schema, truth = _truth()
    with pytest.raises(ParameterError, match="variances"):
        fit_tree(schema, truth.tree, [_measured(("a0",), np.full(4, np.nan), 1.0)])
    with pytest.raises(ParameterError, match="shape"):
        fit_tree(schema, truth.tree, [_measured(("a0",), np.full(3, 0.3), 1.0)])
