"""Linear methods: cells, wavelets, and trees of counts, on a product of attributes axis by axis.

Trust model: central. Guarantee: pure epsilon, from the sensitivity that each
measurement states.

Measuring each axis with an integer matrix is one measurement with their Kronecker
product, and decoding axis by axis is least squares for the whole, since the
pseudo-inverse of a Kronecker product is that of its factors. A record's column is the
product of its columns, so the sensitivity for an added record is the product of the
factors'. For a replaced record the entries that two columns share are subtracted:
`replaced` counts them exactly.

Reference: Xiao, Wang, Gehrke, "Differential privacy via wavelet transforms", IEEE TKDE
2011, sections V and VI: an axis with few values is better left unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dither.central.measurement import (
    MAX_CELLS,
    CuratorTask,
    Neighbours,
    NoisyHistogram,
    observe,
    release_by,
)
from dither.central.sparse import dictionary, leaves_below
from dither.checks import check_whole_or_none
from dither.errors import ParameterError
from dither.types import Floats, Integers


class Axis(Protocol):
    """A measurement of one attribute's cells along the last axis, with entries 0, 1 and -1."""

    @property
    def cells(self) -> int:
        """How many cells the axis has."""

    def forward(self, counts: Integers) -> Integers:
        """The measurement, exactly."""

    def inverse(self, values: Floats) -> Floats:
        """The least-squares cells."""

    def shared(self) -> list[tuple[int, int]]:
        """For each relation of two cells, equal ones first: rows that agree, and opposite rows.

        The first number of the first pair is the number of rows of a column.
        """


@dataclass(frozen=True)
class Product:
    """All axes measured together; the last axis changes fastest."""

    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.cells for axis in self.axes)

    def measure(self, counts: Integers) -> Integers:
        out = counts.reshape(self.shape)
        for place, axis in enumerate(self.axes):
            out = np.moveaxis(axis.forward(np.moveaxis(out, place, -1)), -1, place)
        return out.ravel()

    def sensitivity(self, neighbours: Neighbours) -> int:
        lying = [axis.shared() for axis in self.axes]
        column = math.prod(ways[0][0] for ways in lying)
        return column if neighbours == "add-remove" else _replaced(column, lying)

    def decode(self, noisy: Integers, variance: float) -> Floats:
        measured = [axis.forward(np.zeros(axis.cells, dtype=np.int64)).size for axis in self.axes]
        out = noisy.astype(np.float64).reshape(measured)
        for place, axis in enumerate(self.axes):
            out = np.moveaxis(axis.inverse(np.moveaxis(out, place, -1)), -1, place)
        return out.ravel()


def _replaced(column: int, lying: Sequence[list[tuple[int, int]]]) -> int:
    """The largest distance of two columns of a Kronecker product of matrices of 0, 1 and -1.

    If axis i has p_i rows where two columns agree and q_i where they are opposite, the
    product has (prod(p + q) + prod(p - q)) / 2 rows where they agree; each reduces by 2
    the distance 2 `column` of columns that share nothing.
    """
    both, signed = np.ones(1), np.ones(1)
    for ways in lying:
        agree, opposite = np.asarray(ways, dtype=np.float64).T
        both = np.multiply.outer(both, agree + opposite).ravel()
        signed = np.multiply.outer(signed, agree - opposite).ravel()
    if both.size == 1:
        return 0
    # The first entry compares a cell with itself.
    return 2 * column - round(float((both + signed)[1:].min()))


@dataclass(frozen=True)
class Each:
    """Every cell by itself."""

    cells: int

    def forward(self, counts: Integers) -> Integers:
        return counts

    def inverse(self, values: Floats) -> Floats:
        return values

    def shared(self) -> list[tuple[int, int]]:
        return [(1, 0)] + [(0, 0)] * (self.cells > 1)


@dataclass(frozen=True)
class NoParameters:
    """The parameters of a method that leaves nothing to choose."""


@dataclass(frozen=True)
class Cells:
    """LM: measure each cell once.

    Sensitivity 1 for an added or removed record, 2 for a replaced one. Each cell is
    unbiased with variance about 2 (sensitivity / epsilon)^2 for every domain: hard to
    beat for single cells.

    References: Dwork et al., TCC 2006; Ghosh, Roughgarden, Sundararajan, "Universally
    utility-maximizing privacy mechanisms", 2009.
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


def threshold(task: CuratorTask, parameters: NoParameters) -> NoisyHistogram:
    """Release a histogram with Laplace noise on each cell, and drop cells below a threshold.

    Noise alone exceeds scale ln(cells) in half a cell on average. For tables that leave
    most of a large domain empty; cells below the threshold are lost, and with them part
    of the total.

    Reference: Cormode, Procopiuc, Srivastava, Tran, "Differentially private summaries
    for sparse data", ICDT 2012.
    """
    seen = observe(Cells(task.cells), task.counts, task.epsilon, task.source, task.neighbours)
    least = float(seen.scale) * math.log(task.cells)
    kept = np.where(seen.values > least, seen.values, 0).astype(np.float64)
    return NoisyHistogram(kept, seen.epsilon, {"threshold": least, **seen.notes})


@dataclass(frozen=True)
class Wavelet:
    """Privelet's axis: the total and the half-differences of every node of a binary tree.

    They are ordered coarse to fine, and a range needs few of them. Xiao et al. weight a
    Haar coefficient by the number m of leaves below it; m times the coefficient is (sum
    of the left half) - (sum of the right half), an integer. So equal noise on these
    integers *is* their weighted noise, and it is exact. One record changes one number
    per level and the total: 1 + log2 N of them.

    Reference: Xiao, Wang, Gehrke, "Differential privacy via wavelet transforms", IEEE
    TKDE 2011, section IV.
    """

    cells: int

    @property
    def levels(self) -> int:
        """The depth of the tree over the next power of two."""
        return (self.cells - 1).bit_length()

    def forward(self, counts: Integers) -> Integers:
        sums = _filled(counts, 1 << self.levels)
        parts = []
        while sums.shape[-1] > 1:
            parts.append(sums[..., 0::2] - sums[..., 1::2])
            sums = sums[..., 0::2] + sums[..., 1::2]
        return np.concatenate([sums, *parts[::-1]], axis=-1)

    def inverse(self, values: Floats) -> Floats:
        """Divide by the square root of the leaves below to get orthonormal coefficients, then invert."""
        orthonormal = values / np.sqrt(leaves_below(1 << self.levels))
        return np.asarray(dictionary("haar").synthesise(orthonormal), dtype=np.float64)[
            ..., : self.cells
        ]

    def shared(self) -> list[tuple[int, int]]:
        """Cells that separate at depth k share the total and k differences.

        They have opposite signs in the next difference.
        """
        return [(1 + self.levels, 0), *((1 + depth, 1) for depth in range(self.levels))]


@dataclass(frozen=True)
class PriveletParameters:
    """With `flatten` the product of the columns is one axis, the last column fastest."""

    flatten: bool = False


def privelet(task: CuratorTask, parameters: PriveletParameters) -> NoisyHistogram:
    """Release a histogram through weighted Haar coefficients of each axis that is long enough."""
    axes = [_wavelet(cells) for cells in ((task.cells,) if parameters.flatten else task.shape)]
    return release_by(Product(tuple(axes)), task)


def _wavelet(cells: int) -> Axis:
    """Use a wavelet if cells > P^2 H (Xiao et al., section VI-D).

    P = 1 + log2 cells and H = 1 + log2(cells) / 2.
    """
    levels = math.log2(cells)
    return Wavelet(cells) if cells > (1 + levels) ** 2 * (1 + levels / 2) else Each(cells)


@dataclass(frozen=True)
class Tree:
    """A tree of fan-out `branching` over an axis padded with empty cells.

    The root is counted only if `rooted`. One record is counted once per level. Decoding
    is the exact least-squares solution (tested against a dense solver) and is
    post-processing.

    Reference: Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially
    private histograms through consistency", VLDB 2010, theorem 3.
    """

    cells: int
    branching: int = 2
    rooted: bool = True

    @property
    def depth(self) -> int:
        """The number of levels below the root."""
        depth, leaves = 0, 1
        while leaves < self.cells:
            depth, leaves = depth + 1, leaves * self.branching
        return depth

    @property
    def levels(self) -> int:
        """How many levels are counted."""
        return self.depth + (1 if self.rooted or self.depth == 0 else 0)

    def forward(self, counts: Integers) -> Integers:
        sums = _filled(counts, self.branching**self.depth)
        parts = [sums]
        while len(parts) < self.levels:
            sums = sums.reshape(*sums.shape[:-1], -1, self.branching).sum(axis=-1)
            parts.append(sums)
        return np.concatenate(parts[::-1], axis=-1)

    def inverse(self, values: Floats) -> Floats:
        return _consistent_leaves(values, self.branching, self.levels, self.depth)[
            ..., : self.cells
        ]

    def shared(self) -> list[tuple[int, int]]:
        """Cells that part below level k share the counts down to it."""
        return [(levels, 0) for levels in range(self.levels, self.levels - self.depth - 1, -1)]


def _consistent_leaves(noisy: Floats, branching: int, levels: int, depth: int) -> Floats:
    """The least-squares leaves of equally noisy node counts, top level first, along the last axis."""
    b = branching
    sizes = [b ** (depth - levels + 1 + j) for j in range(levels)]
    tree = np.split(noisy, np.cumsum(sizes)[:-1], axis=-1)
    # Upwards: the best estimate of a node from its count and its subtree.
    up = [tree[-1]]
    for height in range(2, levels + 1):
        below = _groups(up[-1], b).sum(axis=-1)
        whole, part = b**height, b ** (height - 1)
        up.append(((whole - part) * tree[levels - height] + (part - 1) * below) / (whole - 1))
    # Downwards: share the excess of a parent over its children evenly.
    best = up[-1]
    for children in reversed(up[:-1]):
        groups = _groups(children, b)
        best = (groups + ((best - groups.sum(axis=-1)) / b)[..., None]).reshape(children.shape)
    return best


def _groups(values: Floats, size: int) -> Floats:
    return values.reshape(*values.shape[:-1], -1, size)


def _filled(counts: Integers, size: int) -> Integers:
    """With empty cells after the last of each line."""
    out = np.zeros((*counts.shape[:-1], size), dtype=np.int64)
    out[..., : counts.shape[-1]] = counts
    return out


@dataclass(frozen=True)
class _HierarchySettings:
    """Tuned constants of trees of counts."""

    # Share of an average range's variance that is left once the levels agree (measured for two
    # levels; it is less for more).
    consistent: float = 0.58


SETTINGS = _HierarchySettings()


def best_branching(cells: int) -> int:
    """The fan-out with the least error of an average range: HB.

    Without the root, h levels of fan-out b give an average range a variance that grows
    like (b - 1) h^3 - 2 (b + 1) h^2 / 3, before the levels are made to agree. That
    leaves 0.58 of it for two levels and less for more (measured); one level is the
    cells themselves, with (b + 2) / 3.

    Reference: Qardaji, Yang, Li, "Understanding hierarchical methods for differentially
    private histograms", VLDB 2013, section 4.3.
    """

    def error(b: int) -> float:
        height = Tree(cells, b).depth
        return (
            (b + 2) / 3
            if height == 1
            else SETTINGS.consistent * ((b - 1) * height**3 - 2 * (b + 1) * height**2 / 3)
        )

    return min(range(2, max(2, min(cells, MAX_CHILDREN)) + 1), key=error)


MAX_CHILDREN = 1024
MAX_LEAVES = 16 * MAX_CELLS


@dataclass(frozen=True)
class HierarchicalParameters:
    """`branching` is the number of children; by default `best_branching` of each axis.

    The root is counted only if the branching is given, like Hay et al. `flatten` is as
    for `privelet`.
    """

    branching: int | None = None
    flatten: bool = False

    def __post_init__(self) -> None:
        check_whole_or_none("branching", self.branching, 2)


def hierarchical(task: CuratorTask, parameters: HierarchicalParameters) -> NoisyHistogram:
    """Release a histogram through consistent trees of counts, one for each axis."""
    shape = (task.cells,) if parameters.flatten else task.shape
    axes = [tree_axis(cells, parameters.branching) for cells in shape]
    leaves = math.prod(
        axis.branching**axis.depth if isinstance(axis, Tree) else axis.cells for axis in axes
    )
    if leaves > MAX_LEAVES:
        raise ParameterError(
            f"trees of {parameters.branching} children have {leaves:,} leaves over {task.cells:,} cells, more than the "
            f"{MAX_LEAVES:,} that fit; use another branching, or leave it to the method",
            where="branching",
            value=parameters.branching,
        )
    notes = {
        "branching": [axis.branching if isinstance(axis, Tree) else axis.cells for axis in axes]
    }
    return release_by(Product(tuple(axes)), task, notes)


def tree_axis(cells: int, branching: int | None = None) -> Axis:
    """The tree of an axis, or its cells where the best tree is one level of them."""
    if branching is not None:
        # More children than cells would be empty.
        return Tree(cells, min(branching, max(2, cells)))
    chosen = best_branching(cells)
    made = Tree(cells, chosen, rooted=False)
    return made if made.depth > 1 else Each(cells)
