"""HM: noisy counts on every node of a tree, made consistent by least squares.

Trust model: central. Guarantee: pure epsilon; one record is counted once a level, so the sensitivity is the number of
levels for an added record and twice the levels below the root for a replaced one. The consistency step is the exact
least-squares solution (tested against a dense solver) and is post-processing.

Reference: Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through
consistency", VLDB 2010, theorem 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dither.central.noise import ByteSource
from dither.central.strategy import HistogramRelease, Neighbours, check_counts, check_neighbours, release_by
from dither.errors import ParameterError
from dither.types import Floats, Integers


@dataclass(frozen=True)
class Tree:
    """A complete tree of fan-out `branching` over the cells, padded with empty ones."""

    cells: int
    branching: int = 2

    @property
    def levels(self) -> int:
        """How many levels there are, the root's included."""
        levels, leaves = 1, 1
        while leaves < self.cells:
            levels, leaves = levels + 1, leaves * self.branching
        return levels

    def measure(self, counts: Integers) -> Integers:
        sums = np.zeros(self.branching ** (self.levels - 1), dtype=np.int64)
        sums[: counts.size] = counts
        parts = [sums]
        while sums.size > 1:
            sums = sums.reshape(-1, self.branching).sum(axis=1)
            parts.append(sums)
        return np.concatenate(parts[::-1])

    def sensitivity(self, neighbours: Neighbours) -> int:
        return self.levels if neighbours == "add-remove" else 2 * (self.levels - 1)

    def decode(self, noisy: Integers, variance: float) -> Floats:
        return consistent_leaves(noisy.astype(np.float64), self.branching, self.levels)[: self.cells]


def consistent_leaves(noisy: Floats, branching: int, levels: int) -> Floats:
    """The least-squares leaves of a tree of equally noisy node counts, root first."""
    b = branching
    ends = np.cumsum([b**j for j in range(levels)])
    tree = np.split(noisy, ends[:-1])
    # Upwards: the best estimate of a node from itself and what is below it.
    up = [tree[-1]]
    for height in range(2, levels + 1):
        below = up[-1].reshape(-1, b).sum(axis=1)
        whole, part = b**height, b ** (height - 1)
        up.append(((whole - part) * tree[levels - height] + (part - 1) * below) / (whole - 1))
    # Downwards: what a parent has over its children is shared out evenly.
    best = up[-1]
    for children in reversed(up[:-1]):
        groups = children.reshape(-1, b)
        best = (groups + ((best - groups.sum(axis=1)) / b)[:, None]).ravel()
    return best


def release(
    counts: npt.ArrayLike,
    epsilon: float,
    source: ByteSource,
    *,
    rng: np.random.Generator | None = None,
    neighbours: str = "add-remove",
    shape: tuple[int, ...] | None = None,
    branching: int = 2,
) -> HistogramRelease:
    """Release a histogram through a consistent tree of counts."""
    histogram = check_counts(counts)
    if isinstance(branching, bool) or not isinstance(branching, int) or branching < 2:
        raise ParameterError(f"branching must be a whole number of at least 2, not {branching!r}", where="branching")
    tree = Tree(histogram.size, branching)
    return release_by(tree, histogram, epsilon, source, check_neighbours(neighbours), branching=branching)
