"""AGrid: two attributes on a coarse grid, whose blocks have finer grids the more they hold.

Trust model: central. Guarantee: pure epsilon: 2 % for the number of records (nothing
under `replace`, where it is public), half of the rest for the coarse grid, the
remainder for the fine ones. Blocks of one grid are disjoint, so a record changes one
count of each (two for a replaced one). The size of a block's grid follows from its
noisy count.

Reference: Qardaji, Yang, Li, "Differentially private grids for geospatial data", ICDE
2013, section IV: m1 = max(10, sqrt(N epsilon / c) / 4) with c = 10, m2 = sqrt(N'
epsilon' / (c / 2)), and their two-level inference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dither.central.linear import Cells
from dither.central.measurement import CuratorTask, NoisyHistogram, observe
from dither.checks import check_between
from dither.errors import ParameterError
from dither.types import Floats, Integers


@dataclass(frozen=True)
class _GridSettings:
    """Tuned constants of adaptive grids."""

    # Part of epsilon for the number of records, which only decides how coarse the grid is.
    count_share: float = 0.02
    # Blocks along each column of the coarse grid, at least: the paper's 10.
    coarsest: int = 10


SETTINGS = _GridSettings()
# For smaller values every grid has one block per cell, and the number of blocks overflows.
MIN_C = 1e-6


@dataclass(frozen=True)
class GridParameters:
    """`share` of epsilon for the coarse grid; `c` weighs noise against unevenness within a block."""

    share: float = 0.5
    c: float = 10.0

    def __post_init__(self) -> None:
        check_between("share", self.share, 0, 1, ends="()")
        check_between("c", self.c, MIN_C, math.inf, ends="[)")


@dataclass(frozen=True)
class _Block:
    """A block of the coarse grid: where it begins, its cells, and its noisy count."""

    top: int
    left: int
    table: Integers
    count: float

    def finer(self, epsilon: float, c: float) -> tuple[Integers, Integers]:
        """The edges of the block's fine grid."""
        parts = max(1, math.ceil(math.sqrt(max(0.0, self.count) * epsilon / (c / 2))))
        return edges(self.table.shape[0], parts), edges(self.table.shape[1], parts)


def edges(cells: int, blocks: int) -> Integers:
    """The first cell of each of some nearly equal blocks (at most one per cell), and the end."""
    return (
        np.unique(np.arange(blocks + 1) * cells // blocks)
        if blocks < cells
        else np.arange(cells + 1)
    )


def _block_sums(table: Integers, rows: Integers, columns: Integers) -> Integers:
    """The counts of the blocks between these edges."""
    return np.add.reduceat(np.add.reduceat(table, rows[:-1], axis=0), columns[:-1], axis=1)


def release(task: CuratorTask, parameters: GridParameters) -> NoisyHistogram:
    """Release a histogram of two attributes through adaptive grids."""
    if len(task.shape) != 2:
        raise ParameterError(
            f"agrid takes two columns, not {len(task.shape)}; name two, or use another method",
            where="columns",
        )
    table = task.counts.reshape(task.shape)
    records, spent = _records(task)
    coarse_share = parameters.share * (task.epsilon - spent)
    fine_share = (task.epsilon - spent - coarse_share) * (1 - 2**-50)
    blocks = max(
        SETTINGS.coarsest, math.ceil(math.sqrt(max(0.0, records) * task.epsilon / parameters.c) / 4)
    )
    rows, columns = (edges(cells, blocks) for cells in task.shape)
    coarse = _block_sums(table, rows, columns)
    first = observe(Cells(coarse.size), coarse.ravel(), coarse_share, task.source, task.neighbours)
    noisy = first.values.reshape(coarse.shape).astype(np.float64)
    blocks_of = [
        _Block(int(top), int(left), table[top:bottom, left:right], float(noisy[i, j]))
        for i, (top, bottom) in enumerate(pairwise(rows))
        for j, (left, right) in enumerate(pairwise(columns))
    ]
    fine = [block.finer(fine_share, parameters.c) for block in blocks_of]
    exact = [_block_sums(block.table, *cut) for block, cut in zip(blocks_of, fine, strict=True)]
    flat = np.concatenate([part.ravel() for part in exact])
    second = observe(Cells(flat.size), flat, fine_share, task.source, task.neighbours)
    values = np.split(
        second.values.astype(np.float64), np.cumsum([part.size for part in exact])[:-1]
    )
    estimate = np.zeros(task.shape)
    for block, (down, across), part, value in zip(blocks_of, fine, exact, values, strict=True):
        counts = reconciled(block.count, first.variance, value, second.variance).reshape(part.shape)
        heights, widths = np.diff(down), np.diff(across)
        even = counts / np.outer(heights, widths)
        spread = np.repeat(np.repeat(even, heights, axis=0), widths, axis=1)
        estimate[block.top : block.top + down[-1], block.left : block.left + across[-1]] = spread
    notes = {
        "blocks": [int(n) for n in coarse.shape],
        "fine_blocks": int(flat.size),
        "epsilon_records": spent,
        "epsilon_coarse": coarse_share,
        "epsilon_fine": fine_share,
    }
    return NoisyHistogram(estimate.ravel(), math.fsum((spent, coarse_share, fine_share)), notes)


def _records(task: CuratorTask) -> tuple[float, float]:
    """The number of records, noisy unless public, and its cost."""
    exact = task.counts.sum(keepdims=True)
    if task.neighbours == "replace":
        return float(exact[0]), 0.0
    seen = observe(Cells(1), exact, SETTINGS.count_share * task.epsilon, task.source)
    return float(seen.values[0]), seen.epsilon


def reconciled(whole: float, whole_variance: float, parts: Floats, part_variance: float) -> Floats:
    """Parts that add up to the least-squares estimate of the whole, from it and their sum."""
    total = float(parts.sum())
    summed = part_variance * parts.size
    if whole_variance + summed == 0:
        return parts
    best = (whole * summed + total * whole_variance) / (whole_variance + summed)
    return parts + (best - total) / parts.size
