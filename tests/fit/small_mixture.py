"""A small schema and a mixture of three components on it: the known truth of tests of fits."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from dither.fit import AnswerCounts
from dither.fit.mixture import Columns, PairTargets, pair_targets
from dither.mechanisms import kernels
from dither.reports import question
from dither.schema import Attribute, Schema

CARDINALITIES = (3, 2, 4, 2, 3)
SCHEMA = Schema(
    tuple(
        Attribute(f"x{i}", "categorical", tuple(f"v{v}" for v in range(k)))
        for i, k in enumerate(CARDINALITIES)
    )
)
COLUMNS = Columns(CARDINALITIES)


def known_mixture(seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    tables = [rng.dirichlet(np.ones(k) * 0.6, size=3) for k in CARDINALITIES]
    return np.array([0.5, 0.3, 0.2]), np.concatenate(tables, axis=1)


def pair_matrix(weights: np.ndarray, a: np.ndarray) -> np.ndarray:
    return (a.T * weights) @ a


def answers(n: int, epsilon: float, rng: np.random.Generator) -> list[AnswerCounts]:
    """All pairs of people who follow the known mixture, n of them each, and n/10 for singles."""
    weights, a = known_mixture()
    pairs, one = pair_matrix(weights, a), weights @ a
    found = []
    for i, j in combinations(range(len(CARDINALITIES)), 2):
        q = question(SCHEMA, [SCHEMA.names[i], SCHEMA.names[j]], epsilon)
        truth = rng.multinomial(n, pairs[COLUMNS.of(i), COLUMNS.of(j)].ravel())
        found.append(AnswerCounts(q, kernels.simulate(q.mechanism, truth, rng), n))
    for i, name in enumerate(SCHEMA.names):
        q = question(SCHEMA, [name], epsilon)
        truth = rng.multinomial(n // 10, one[COLUMNS.of(i)])
        found.append(AnswerCounts(q, kernels.simulate(q.mechanism, truth, rng), n // 10))
    return found


def collected(n: int, epsilon: float, rng: np.random.Generator) -> PairTargets:
    return pair_targets(SCHEMA, answers(n, epsilon, rng))
