"""DAWA: join cells with similar counts into buckets, privately, and count buckets through a tree.

Trust model: central. Guarantee: pure epsilon: `share` for the buckets, the
rest for their counts.

The buckets are the cheapest way to cut the domain into runs of 2^k cells (starting at
multiples of half their length), by the noisy cost of each run: the L1 distance of its
cells from their mean plus the expected error of one noisy count. Only the cut is used,
so noise on each run's cost need not hide all runs that contain a record. Say cut P is
cheapest on a table. On its neighbour the cost of every cut changes by at most m,
through the one run that holds the record. Lowering the noise of that run of P by 2 m
keeps P the cheapest: cuts with the same run move along with P, all others gain at most
m while P gains at least m. So scale 2 m / epsilon suffices, or twice that for a
replaced record, which may change two runs. A run of a single cell needs noise too,
though its cost never changes: a cut with it would otherwise have no noise to lower,
while all longer runs over that cell change, and large domains have more of them.
Lowering it by m suffices, so its noise has half the scale.

Costs are integers on a grid of 1/64; one record changes the deviation of a run by less
than 2, so m = 128 steps.

Reference: Li, Hay, Miklau, Wang, "A data- and workload-aware algorithm for range
queries under differential privacy", VLDB 2014, sections 3 and 4. Their second stage
weighs the levels of a tree by the workload; here it is the tree of `best_branching`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dither.central.linear import Product, tree_axis
from dither.central.measurement import CuratorTask, Neighbours, NoisyHistogram, observe
from dither.central.noise import ByteSource, achieved_epsilon, calibrate, decide, discrete_laplace
from dither.checks import check_between
from dither.types import Floats, Integers

GRID = 64


@dataclass(frozen=True)
class DawaParameters:
    """`share` of epsilon goes to the choice of buckets."""

    # Part of epsilon for the buckets: the paper's 0.25.
    share: float = 0.25

    def __post_init__(self) -> None:
        check_between("share", self.share, 0, 1, ends="()")


@dataclass(frozen=True)
class Runs:
    """Candidate buckets, in the order of their ends."""

    starts: Integers
    ends: Integers
    costs: Integers


def cost_sensitivity(neighbours: Neighbours) -> int:
    """How far one record moves the cost of any cut, in steps of the grid."""
    return 2 * GRID if neighbours == "add-remove" else 4 * GRID


def candidate_runs(counts: Integers) -> Runs:
    """Runs of 2^k cells from multiples of half their length, with deviations on the grid.

    Deviations are rounded down.
    """
    size = counts.size
    starts, ends, costs = (
        [np.arange(size)],
        [np.arange(1, size + 1)],
        [np.zeros(size, dtype=np.int64)],
    )
    length = 2
    while length <= size:
        first = np.arange(0, size - length + 1, length // 2)
        cells = counts[first[:, None] + np.arange(length)]
        # length times the deviation from the mean is whole
        away = np.abs(length * cells - cells.sum(axis=1, keepdims=True)).sum(axis=1)
        starts.append(first)
        ends.append(first + length)
        costs.append(GRID * away // length)
        length *= 2
    order = np.argsort(np.concatenate(ends), kind="stable")
    return Runs(*(np.concatenate(part)[order] for part in (starts, ends, costs)))


def cheapest_cut(runs: Runs, costs: Integers, size: int) -> Integers:
    """The ends of the runs of the cheapest cut, by dynamic programming; costs may be negative."""
    best = [0] + [0] * size
    came = [0] * (size + 1)
    known = 0
    for start, end, cost in zip(
        runs.starts.tolist(), runs.ends.tolist(), costs.tolist(), strict=True
    ):
        value = best[start] + cost
        if end > known or value < best[end]:
            best[end], came[end], known = value, start, end
    cut = [size]
    while came[cut[-1]] > 0:
        cut.append(came[cut[-1]])
    return np.array(cut[::-1], dtype=np.int64)


def noisy_costs(runs: Runs, price: int, scale: Fraction, source: ByteSource) -> Integers:
    """The cost of each run: deviation, price of a bucket, noise, and a charge for selection.

    Some of 2 N / length runs have large negative noise. All are charged the size
    expected of the lowest, or the cut would consist of them. A single cell is the
    reference and is charged nothing. Charges depend on no private value.
    """
    lengths, cells = runs.ends - runs.starts, int(runs.ends[-1])
    charged = np.where(lengths > 1, np.log(2 * cells / lengths), 0.0)
    noisy = runs.costs + price + np.ceil(float(scale) * charged).astype(np.int64)
    for some, wide in ((lengths > 1, scale), (lengths == 1, scale / 2)):
        noisy[some] += discrete_laplace(wide, int(some.sum()), source)
    return noisy


def release(task: CuratorTask, parameters: DawaParameters) -> NoisyHistogram:
    """Release a histogram of the flattened domain through buckets of like cells."""
    choosing = parameters.share * task.epsilon
    scale = calibrate(2 * cost_sensitivity(task.neighbours), choosing)
    spent = achieved_epsilon(2 * cost_sensitivity(task.neighbours), scale)
    # Slightly less than the rest, so that rounding cannot exceed epsilon.
    counting = (task.epsilon - spent) * (1 - 2**-50)
    runs = candidate_runs(task.counts)
    # A bucket costs the noise of one count; the price is public.
    price = math.ceil(GRID / counting)
    # The costs stay secret: only the cut is released, and their noise protects no more than it.
    cut = decide(
        lambda: tuple(cheapest_cut(runs, noisy_costs(runs, price, scale, task.source), task.cells)),
        task.source,
        spent,
    )
    ends = np.array(cut, dtype=np.int64)
    lengths = np.diff(ends, prepend=0)
    buckets = np.add.reduceat(task.counts, ends - lengths)
    seen = observe(
        Product((tree_axis(buckets.size),)), buckets, counting, task.source, task.neighbours
    )
    totals = Product((tree_axis(buckets.size),)).decode(seen.values, seen.variance)
    estimate: Floats = np.repeat(totals / lengths, lengths)
    notes = {
        "buckets": int(buckets.size),
        "epsilon_choice": spent,
        "epsilon_noise": counting,
        **seen.notes,
    }
    return NoisyHistogram(estimate, spent + counting, notes)
