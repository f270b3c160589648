"""A mechanism made for the consumers' own bins instead of for single cells, never worse than CHP.

CHP asks for cells and sums them, so a wide bin of a fine partition pays for every cell in it (erratum 9). Here the
report itself is chosen for the bins that will be read off (`design.py`): a participant still sends one report at full
epsilon. The choice uses the consumers' edges and epsilon only. It is taken if, for every consumer and whatever cell a
person is in, that person's report adds no more variance than CHP's would; else CHP's own report is used. So the
expected squared error is at or below CHP's for each consumer on any data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from dither.checks import check_choice
from dither.errors import PrivacyError
from dither.mechanisms import Mechanism, SetStrategy
from dither.protocols.histogram.consumer import Consumer, Partition
from dither.protocols.histogram.design import Design, optimise
from dither.protocols.histogram.estimates import build, variance_by_type
from dither.types import Floats, Integers

Objective = Literal["mean", "worst"]

SEARCH_CELLS = 96  # up to here sets are searched for; beyond, only cells, bins and their complements are tried
MOST_CELLS = 400
MOST_EPSILON = 12.0  # beyond, nothing is left to gain over randomised response, and e^epsilon swamps the arithmetic
_ATTEMPTS = 12
_ENOUGH = 0.98  # a plan that gains less than 2 % is not worth a second kind of report


@dataclass(frozen=True)
class StrategyCells:
    """Cells estimated from a strategy's outputs: decoder x outputs, with the variance that they show."""

    partition: Partition
    strategy: SetStrategy
    decoder: Floats
    outputs: Integers
    population: int

    @property
    def counts(self) -> Floats:
        return np.asarray(self.decoder @ self.outputs, dtype=np.float64)

    def bin_variances(self, consumer: Consumer) -> Floats:
        return self.weighted_variances(self.partition.membership(consumer))

    def weighted_variances(self, weights: Floats) -> Floats:
        """Var = sum E[outputs] g^2 - sum over people of (their weight)^2 with g the sum's decoder; unbiased as it
        stands.

        The cell of least variance bounds it from below, so that a lucky draw never claims certainty.
        """
        decoded = weights @ self.decoder
        raw = decoded**2 @ self.outputs - weights**2 @ self.counts
        by_type = decoded**2 @ self.strategy.chance_table - weights**2
        return np.asarray(np.maximum(raw, by_type.min(axis=1) * self.population), dtype=np.float64)

    def noise_variances(self) -> Floats:
        return self.weighted_variances(np.eye(self.partition.cells)) / self.population**2  # everybody was asked


@dataclass(frozen=True)
class Choice:
    """The mechanism chosen, and each consumer's predicted variance over CHP's in the cell where that is largest."""

    mechanism: Mechanism
    ratios: tuple[float, ...]
    decoder: Floats | None = None

    @property
    def gain(self) -> float:
        """By how much the mean variance over the consumers is below CHP's."""
        return 1 - float(np.mean(self.ratios))


@lru_cache(maxsize=64)
def choose(
    partition: Partition,
    consumers: tuple[Consumer, ...],
    epsilon: float,
    mechanism: str,
    objective: Objective = "mean",
) -> Choice:
    """The choice for these queries; the same queries give the same one, and data play no part."""
    check_choice("objective", objective, get_args(Objective))
    plain = build(mechanism, partition.cells, epsilon)
    fallback = Choice(plain, tuple(1.0 for _ in consumers))
    rivals = [variance_by_type(plain, partition, c) for c in consumers]
    asked = [i for i, rival in enumerate(rivals) if rival.any()]
    if not asked or partition.cells > MOST_CELLS or epsilon > MOST_EPSILON:
        return fallback
    bins = [partition.membership(consumers[i]) for i in asked]
    bins = [b[b.sum(axis=1) < partition.cells] for b in bins]
    weights = [np.full(len(b), 1.0 / len(b)) for b in bins]
    counts_for = np.ones(partition.cells)
    best, best_score, design = fallback, 1 - _ENOUGH, None
    rival_bin = max(float(_bin_variances(plain, partition, consumers[i]).max()) for i in asked)
    for _ in range(_ATTEMPTS):
        workload = np.concatenate([b * np.sqrt(w)[:, None] for b, w in zip(bins, weights, strict=True)])
        try:
            design = optimise(workload, epsilon, counts_for, design, search=partition.cells <= SEARCH_CELLS)
            strategy = _strategy(design, epsilon)
            decoder = strategy.decoder(counts_for)
        except (PrivacyError, np.linalg.LinAlgError):
            break  # too small an epsilon for whole draws, or cells that no bin tells apart: CHP's report it is
        spread = [_by_type(strategy, decoder, b) for b in bins]
        ratios = [s.sum(axis=0) / rivals[i] for s, i in zip(spread, asked, strict=True)]
        worst = {i: float(r.max()) for i, r in zip(asked, ratios, strict=True)}
        plan = Choice(strategy, tuple(worst.get(i, 1.0) for i in range(len(consumers))), decoder)
        fits = max(worst.values()) <= 1.0
        score = plan.gain if objective == "mean" else 1 - max(float(s.mean(axis=1).max()) for s in spread) / rival_bin
        if fits and score > best_score:
            best, best_score = plan, score
        if objective == "mean" and fits:
            break
        weights, counts_for = _reweigh(weights, counts_for, spread, ratios, objective)
    return best


def _bin_variances(mechanism: Mechanism, partition: Partition, consumer: Consumer) -> Floats:
    """The variance of each asked bin from one report, averaged over the cells a person may be in."""
    k = partition.cells
    sizes = [stop - start for start, stop in partition.spans(consumer) if stop - start < k]
    return np.array([mechanism.group_variance(size, size / k, 1) for size in sizes])


def _strategy(design: Design, epsilon: float) -> SetStrategy:
    masks = [sum(1 << int(cell) for cell in np.flatnonzero(row)) for row in design.sets]
    return SetStrategy.for_epsilon(design.sets.shape[1], masks, design.weights.tolist(), epsilon)


def _by_type(strategy: SetStrategy, decoder: Floats, bins: Floats) -> Floats:
    """The variance of each bin from one report of a person in each cell, exact for the strategy's own integers."""
    return np.asarray((bins @ decoder) ** 2 @ strategy.chance_table - bins, dtype=np.float64)


def _reweigh(
    weights: list[Floats], counts_for: Floats, spread: list[Floats], ratios: list[Floats], objective: Objective
) -> tuple[list[Floats], Floats]:
    """More weight where the plan is not good enough: what is above CHP or, for `worst`, the bins of most variance."""
    above = np.max(ratios, axis=0)
    cells = counts_for * np.where(above > 1, above**1.5, np.maximum(above, 0.8) ** 0.5)
    if objective == "worst":
        means = [s.mean(axis=1) for s in spread]
        top = max(float(m.max()) for m in means)
        return [
            w * (m / top) ** 0.5 * max(1.0, float(r.max())) ** 1.5
            for w, m, r in zip(weights, means, ratios, strict=True)
        ], cells
    tops = [float(r.max()) for r in ratios]
    return [w * (top**1.5 if top > 1 else max(top, 0.8) ** 0.5) for w, top in zip(weights, tops, strict=True)], cells
