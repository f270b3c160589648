"""A consumer who comes after the collection: an answer from the cells there are, at no further cost in privacy.

Where the new bin's edge cuts a cell, values are taken as spread evenly over that cell (linear interpolation of the
cumulative count). If a share a of a cell with count c lies in the bin, the truth lies between 0 and c and the answer
says a*c, so the cut is wrong by at most max(a, 1-a)*c, whatever the values. The paper names online queries as an
extension (section 6) and gives no rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dither.histogram.cells import CellEstimates
from dither.histogram.consumer import Consumer
from dither.types import Floats

INTERPOLATION = "values are taken as evenly spread within a cell of the partition that an edge cuts"


@dataclass(frozen=True)
class LateAnswer:
    """Counts with the noise's standard errors, and a bound on what interpolation can add to the error."""

    name: str
    edges: Floats
    estimates: Floats
    standard_errors: Floats
    interpolation_bounds: Floats
    level: float
    interpolation: str = INTERPOLATION

    def interval(self) -> tuple[Floats, Floats]:
        """Covers the truth at least at the level: noise and interpolation bound added."""
        reach = _normal(self.level) * self.standard_errors + self.interpolation_bounds
        return self.estimates - reach, self.estimates + reach

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "edges": self.edges.tolist(),
            "estimates": self.estimates.tolist(),
            "standard_errors": self.standard_errors.tolist(),
            "interpolation_bounds": self.interpolation_bounds.tolist(),
            "interpolation": self.interpolation,
            "level": self.level,
        }


def late_answer(cells: CellEstimates, consumer: Consumer, level: float = 0.95) -> LateAnswer:
    """Answer new bins from an existing partition.

    The bound uses the upper end of a cut cell's own interval for c; both hold together at the level by giving each
    bin's noise and each of its (at most two) cut cells a third of the error (Bonferroni).
    """
    edges = np.asarray(cells.partition.edges)
    wanted = np.asarray(consumer.edges)
    inside = np.minimum(wanted[1:, None], edges[1:]) - np.maximum(wanted[:-1, None], edges[:-1])
    shares = np.clip(inside / np.diff(edges), 0.0, 1.0)
    shares[np.abs(shares - 1) < 1e-9] = 1.0  # an edge that is the partition's own up to rounding cuts nothing
    shares[shares < 1e-9] = 0.0
    cut = (shares > 0) & (shares < 1)
    each = 1 - (1 - level) / 3 if cut.any() else level
    own = np.sqrt(cells.weighted_variances(np.eye(cells.partition.cells)))
    # One-sided, and never above everybody.
    most = np.clip(cells.counts + NormalDist().inv_cdf(each) * own, 0.0, float(cells.population))
    bounds = np.where(cut, np.maximum(shares, 1 - shares) * most, 0.0).sum(axis=1)
    errors = np.sqrt(cells.weighted_variances(shares))
    return LateAnswer(
        consumer.name, wanted, shares @ cells.counts, errors * (_normal(each) / _normal(level)), bounds, level
    )


def _normal(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
