"""How far a model's own marginals are from those of a real table, without the noise of drawing rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dither.evaluation.metrics import (
    Distances,
    WaySummary,
    check_codes,
    kl,
    marginal,
    mse,
    summarise_ways,
    tvd,
)
from dither.fit import Model
from dither.types import Codes


def evaluate_model(
    model: Model,
    real: Codes,
    ways: Sequence[int] = (1, 2, 3),
    max_sets: int = 100,
    rng: np.random.Generator | None = None,
) -> dict[int, WaySummary]:
    """Compare a model's own marginals, without sampling noise, with those of a real table of codes."""
    schema = model.schema
    check_codes(real, schema, "real")
    floor = 1 / (2 * len(real))

    def compare(positions: tuple[int, ...]) -> Distances:
        second = model.marginal(
            [schema.names[i] for i in positions]
        )  # first: it refuses domains too large to hold
        first = marginal(real, schema.cardinalities, positions)
        return Distances(tvd(first, second), kl(first, second, floor), mse(first, second))

    return summarise_ways(schema, ways, max_sets, rng, compare)
