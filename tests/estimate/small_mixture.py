"""A small schema and a mixture of three components on it: the known truth of the tests of both fits."""

from __future__ import annotations

import numpy as np

from dither.estimate.targets import Columns
from dither.schema import Attribute, Schema

CARDINALITIES = (3, 2, 4, 2, 3)
SCHEMA = Schema(
    tuple(Attribute(f"x{i}", "categorical", tuple(f"v{v}" for v in range(k))) for i, k in enumerate(CARDINALITIES))
)
COLUMNS = Columns(CARDINALITIES)


def known_mixture(seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    tables = [rng.dirichlet(np.ones(k) * 0.6, size=3) for k in CARDINALITIES]
    return np.array([0.5, 0.3, 0.2]), np.concatenate(tables, axis=1)
