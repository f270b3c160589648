"""Pooling of pair targets against the obvious pooling, and its noise against simulation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dither.errors import TooFewAnswers
from dither.fit import AnswerCounts, norm_sub, read_marginal
from dither.fit.mixture import Columns, inverse_variances, pair_targets
from dither.mechanisms import GRR, kernels, oue
from dither.reports import Question, question
from dither.schema import Attribute, Schema

SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True), missing=True),
        Attribute("c", "ordinal", (1, 2, 3, 4)),
        Attribute("d", "boolean", (False, True)),
    )
)
SETS = (
    ("a", "b"),
    ("b", "a"),
    ("a", "c"),
    ("c", "d"),
    ("d", "b", "a"),
    ("a",),
    ("c",),
    ("b", "c", "d"),
)


def answers(epsilon: float = 1.5, n: int = 4000, seed: int = 0) -> list[AnswerCounts]:
    rng = np.random.default_rng(seed)
    out = []
    for names in SETS:
        q = question(SCHEMA, names, epsilon)
        truth = rng.multinomial(n, rng.dirichlet(np.ones(q.mechanism.cells)))
        out.append(AnswerCounts(q, kernels.simulate(q.mechanism, truth, rng), n))
    return out


def slow_pool(
    given: list[AnswerCounts], names: tuple[str, ...], alone: bool = False
) -> np.ndarray | None:
    """One marginal by one weighted average, question by question."""
    cells, total, weighted = SCHEMA.cells(names), 0.0, 0.0
    for answer in given:
        if not set(names) <= set(answer.question.attributes) or (
            alone and len(answer.question.attributes) > 1
        ):
            continue
        marginal, group = read_marginal(SCHEMA, answer, names)
        f = 1 / cells
        variance = (
            answer.question.mechanism.group_variance(group, f, answer.n) + f * (1 - f) / answer.n
        )
        weighted = weighted + marginal / variance
        total += 1 / variance
    return weighted / total if total else None


def test_pooling_is_that_of_the_obvious_loop() -> None:
    given = answers()
    targets, columns = pair_targets(SCHEMA, given), Columns(SCHEMA.cardinalities)
    cells = 0
    for i, j in combinations(range(4), 2):
        block = targets.pairs[columns.of(i), columns.of(j)]
        expected = slow_pool(given, (SCHEMA.names[i], SCHEMA.names[j]))
        if expected is None:
            assert (block == 0).all()
            assert targets.pair_noise[1][i, j] == 0
            continue
        cells += expected.size
        np.testing.assert_allclose(block, expected, atol=1e-12)
        np.testing.assert_allclose(
            targets.pairs[columns.of(j), columns.of(i)], expected.T, atol=1e-12
        )
    for i, name in enumerate(SCHEMA.names):
        pooled = slow_pool(given, (name,))
        assert pooled is not None
        np.testing.assert_allclose(targets.one[columns.of(i)], norm_sub(pooled), atol=1e-12)
        alone = slow_pool(given, (name,), alone=True)
        if alone is not None:
            cells += alone.size
            np.testing.assert_allclose(targets.singles[columns.of(i)], alone, atol=1e-12)
    assert targets.cells == cells
    assert targets.has_pairs


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [lambda k: GRR.for_epsilon(k, 6.0), lambda k: oue(k, 6.0)], ids=["grr", "oue"]
)
def test_noise_coefficients_are_those_of_a_simulation(make: object) -> None:
    """Pairs out of triples, with people drawn anew each time: mechanism and sampling noise together."""
    rng = np.random.default_rng(1)
    schema = Schema(SCHEMA.attributes[:3])
    joint = rng.dirichlet(np.ones(36) * 0.7)
    asked = Question(("a", "b", "c"), make(36))  # type: ignore[operator]
    pair = joint.reshape(3, 3, 4).sum(axis=2)
    n, repeats = 500, 1200
    seen = np.empty((repeats, 3, 3))
    for r in range(repeats):
        support = kernels.simulate(asked.mechanism, rng.multinomial(n, joint), rng)
        targets = pair_targets(schema, [AnswerCounts(asked, support, n)])
        seen[r] = targets.pairs[:3, 3:6]
    c0, c1, c2 = (c[0, 1] for c in targets.pair_noise)
    predicted = c0 + pair * (c1 - c2 * pair)
    # A variance from so many repeats has a relative standard error of sqrt(2/repeats), 4 %; nine cells.
    np.testing.assert_allclose(seen.var(axis=0, ddof=1), predicted, rtol=4 * np.sqrt(2 / repeats))
    np.testing.assert_allclose(seen.mean(axis=0), pair, atol=4 * np.sqrt(predicted.max() / repeats))
    # Leaving the sampling noise out, or taking the frequency for zero, would be noticed.
    assert not np.allclose(
        seen.var(axis=0, ddof=1), predicted - pair * (1 - pair) / n, rtol=4 * np.sqrt(2 / repeats)
    )


def test_weights_are_inverse_variances_and_zero_where_nothing_was_asked() -> None:
    targets = pair_targets(SCHEMA, answers())
    product = np.outer(targets.one, targets.one)
    w2, w1 = inverse_variances(targets, product, targets.one)
    columns = targets.columns
    assert (w2[columns.of(0), columns.of(0)] == 0).all(), "an attribute with itself was never asked"
    assert (w1[columns.of(1)] == 0).all(), "b was never asked alone"
    c0, c1, c2 = (c[0, 2] for c in targets.pair_noise)
    f = product[columns.of(0), columns.of(2)]
    np.testing.assert_allclose(
        w2[columns.of(0), columns.of(2)], 1 / (c0 + c1 * f - c2 * f * f), rtol=1e-12
    )
    assert np.isfinite(w2).all()


def test_a_silent_attribute_is_named() -> None:
    with pytest.raises(TooFewAnswers, match="nobody answered about d"):
        pair_targets(SCHEMA, [a for a in answers() if "d" not in a.question.attributes])


def test_smoothing_joins_neighbours_of_ordered_attributes_only() -> None:
    columns = Columns(
        [3, 4, 2], [0, 3, 2]
    )  # the second has three ordered values and a missing code
    values = np.arange(9.0)[None, :] ** 2
    smoothed = columns.smooth(values)[0]
    np.testing.assert_array_equal(smoothed[:3], values[0, :3])
    np.testing.assert_allclose(
        smoothed[3:6], [0.75 * 9 + 0.25 * 16, 0.5 * 16 + 0.25 * (9 + 25), 0.75 * 25 + 0.25 * 16]
    )
    assert smoothed[6] == values[0, 6]
    np.testing.assert_allclose(smoothed[7:], [0.75 * 49 + 0.25 * 64, 0.75 * 64 + 0.25 * 49])
    assert smoothed.sum() == pytest.approx(values.sum())
