"""A small schema and a mixture of three components on it: the known truth of the tests of both fits; and sparse tables."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from dither.fit import AnswerCounts
from dither.fit.mixture.targets import Columns, PairTargets, pair_targets
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


def sparse(
    attributes: int, share: np.ndarray, people: int, epsilon: float, seed: int
) -> PairTargets:
    """Answers about all pairs, so many people each; every pair has the same table of true frequencies."""
    rng, values = np.random.default_rng(seed), tuple(range(len(share)))
    schema = Schema(tuple(Attribute(f"x{i}", "categorical", values) for i in range(attributes)))
    answers = []
    for pair in combinations(schema.names, 2):
        q = question(schema, pair, epsilon)
        answers.append(
            AnswerCounts(
                q,
                kernels.simulate(q.mechanism, rng.multinomial(people, share.ravel()), rng),
                people,
            )
        )
    return pair_targets(schema, answers)
