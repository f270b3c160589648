"""Three linear methods on the cells, on wavelets and on a tree of counts.

Trust model: central. Guarantee: pure epsilon, from the sensitivity that each measurement states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dither.central.measurement import CuratorTask, Neighbours, NoisyHistogram, release_by
from dither.central.sparse import dictionary
from dither.checks import check_whole
from dither.types import Floats, Integers


@dataclass(frozen=True)
class NoParameters:
    """The parameters of a method that leaves nothing to choose."""


@dataclass(frozen=True)
class Cells:
    """LM: every cell measured once.

    Sensitivity 1 for an added or removed record, 2 for a replaced one. Each cell is unbiased with variance about
    2 (sensitivity / epsilon)^2, whatever the domain: hard to beat for single cells.

    References: Dwork et al., TCC 2006; Ghosh, Roughgarden, Sundararajan, "Universally utility-maximizing privacy
    mechanisms", 2009.
    """

    cells: int

    def measure(self, counts: Integers) -> Integers:
        return counts.copy()

    def sensitivity(self, neighbours: Neighbours) -> int:
        return 1 if neighbours == "add-remove" else 2

    def decode(self, noisy: Integers, variance: float) -> Floats:
        return noisy.astype(np.float64)


def laplace(task: CuratorTask, parameters: NoParameters) -> NoisyHistogram:
    """Release a histogram with independent discrete Laplace noise on each cell."""
    return release_by(Cells(task.cells), task)


@dataclass(frozen=True)
class Wavelet:
    """Privelet: the total and the half-differences of every node of a binary tree, coarse to fine, so that a range needs
    few of them.

    Xiao et al. weight a Haar coefficient by the number m of leaves below it; m times the coefficient is (sum of the left
    half) - (sum of the right half), a whole number. So equal noise on these whole numbers *is* their weighted noise, and
    it is exact. One record changes one number per level and the total: sensitivity 1 + log2 N for an added record;
    2 log2 N for a replaced one (the total does not move).

    Reference: Xiao, Wang, Gehrke, "Differential privacy via wavelet transforms", IEEE TKDE 2011, section IV (one
    dimension; in the flattened domain cells that share their first attributes are near each other).
    """

    cells: int

    @property
    def levels(self) -> int:
        """The depth of the tree over the next power of two."""
        return (self.cells - 1).bit_length()

    def measure(self, counts: Integers) -> Integers:
        sums = np.zeros(1 << self.levels, dtype=np.int64)
        sums[: counts.size] = counts
        parts = []
        while sums.size > 1:
            parts.append(sums[0::2] - sums[1::2])
            sums = sums[0::2] + sums[1::2]
        return np.concatenate([sums, *parts[::-1]])

    def sensitivity(self, neighbours: Neighbours) -> int:
        return 1 + self.levels if neighbours == "add-remove" else 2 * self.levels

    def decode(self, noisy: Integers, variance: float) -> Floats:
        """Divide by the square root of the leaves below to get orthonormal coefficients, then invert."""
        size = 1 << self.levels
        leaves = np.concatenate([[size], *(np.full(1 << j, size >> j) for j in range(self.levels))])
        return np.asarray(dictionary("haar").synthesise(noisy / np.sqrt(leaves)), dtype=np.float64)[: self.cells]


def privelet(task: CuratorTask, parameters: NoParameters) -> NoisyHistogram:
    """Release a histogram through weighted Haar coefficients."""
    return release_by(Wavelet(task.cells), task)


@dataclass(frozen=True)
class HierarchicalParameters:
    """`branching` is the number of children of a node."""

    branching: int = 2

    def __post_init__(self) -> None:
        check_whole("branching", self.branching, 2)


@dataclass(frozen=True)
class Tree:
    """HM: the counts of a complete tree of fan-out `branching` over the cells, padded with empty ones.

    One record is counted once per level, so the sensitivity is the number of levels for an added record and twice the
    levels below the root for a replaced one. Decoding is the exact least-squares solution (tested against a dense
    solver) and is post-processing.

    Reference: Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through
    consistency", VLDB 2010, theorem 3.
    """

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


def hierarchical(task: CuratorTask, parameters: HierarchicalParameters) -> NoisyHistogram:
    """Release a histogram through a consistent tree of counts."""
    return release_by(Tree(task.cells, parameters.branching), task)
