"""Compare a synthetic table with a real one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dither.errors import ParameterError
from dither.evaluate.metrics import WaySummary, evaluate_codes
from dither.evaluate.sdmetrics_scores import SDMetricsScores, require_sdmetrics, sdmetrics_scores
from dither.evaluate.tables import common_tables
from dither.schema import Schema

DEFAULT_WAYS = (1, 2, 3)


@dataclass(frozen=True)
class Evaluation:
    """Distances between two tables by the number of attributes taken together, each a mean over sets of attributes.

    `tvd` is the total variation distance in [0, 1], `kl` the Kullback-Leibler divergence in nats, `mse` the mean
    squared difference of a cell; `ways` has the spread and the worst set beside them. `sdmetrics` has that library's scores if
    they were asked for.
    """

    ways: dict[int, WaySummary]
    rows_real: int
    rows_synthetic: int
    sdmetrics: SDMetricsScores | None = None

    @property
    def tvd(self) -> dict[int, float]:
        """Mean total variation distance for each number of attributes."""
        return {k: found.tvd for k, found in self.ways.items()}

    @property
    def kl(self) -> dict[int, float]:
        """Mean Kullback-Leibler divergence for each number of attributes."""
        return {k: found.kl for k, found in self.ways.items()}

    @property
    def mse(self) -> dict[int, float]:
        """Mean squared error of a cell for each number of attributes."""
        return {k: found.mse for k, found in self.ways.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the number of attributes as text keys."""
        sets = {
            str(k): {
                "used": found.sets,
                "possible": found.possible_sets,
                "tvd_spread": found.tvd_spread,
                "worst": {"attributes": list(found.worst), "tvd": found.worst_tvd},
            }
            for k, found in self.ways.items()
        }
        return {
            "tvd": {str(k): value for k, value in self.tvd.items()},
            "kl": {str(k): value for k, value in self.kl.items()},
            "mse": {str(k): value for k, value in self.mse.items()},
            "sets": sets,
            "rows": {"real": self.rows_real, "synthetic": self.rows_synthetic},
            **({} if self.sdmetrics is None else {"sdmetrics": self.sdmetrics.to_json()}),
        }


def evaluate(
    real: Any,
    synthetic: Any,
    schema: Schema | str | Path | None = None,
    ways: Sequence[int] = DEFAULT_WAYS,
    max_sets: int = 100,
    seed: int = 0,
    sdmetrics: bool = False,
) -> Evaluation:
    """How far a synthetic table is from a real one, on marginals of 1, 2 and 3 attributes unless `ways` says otherwise.

    Tables are pandas, polars or PyArrow, CSV or Parquet files, or bundled datasets' names. Numbers are compared in the
    schema's bins. With more than `max_sets` sets of attributes that many are drawn; the same seed draws the same ones.
    With `sdmetrics` the scores of SDMetrics' quality report stand beside, if that library is installed.

    >>> import dither
    >>> dither.evaluate("adult", "adult", ways=[1]).tvd
    {1: 0.0}
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ParameterError(f"the seed must be a whole number of at least 0, not {seed!r}", where="seed", value=seed)
    if sdmetrics:
        require_sdmetrics()
    tables = common_tables(real, synthetic, schema)
    first, second, domain = tables.real_codes, tables.synthetic_codes, tables.schema
    asked = tuple(ways)
    if asked == DEFAULT_WAYS:  # nobody asked for three attributes of a table that has two
        asked = DEFAULT_WAYS[: len(domain)]
    found = evaluate_codes(first, second, domain, asked, max_sets, np.random.default_rng(seed))
    return Evaluation(found, len(first), len(second), sdmetrics_scores(tables) if sdmetrics else None)
