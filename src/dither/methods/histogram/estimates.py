"""Estimates of a partition's cells, and the exact variance of any weighted sum of them.

The covariance of two cells' estimates depends on the mechanism (a randomised response names
one cell, a subset a fixed number of them), so each mechanism computes the variance of a sum.
Summing m cells of a unary report sums m noise terms, contrary to the remark after the paper's
theorem 7 (erratum 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from scipy.optimize import nnls

from dither.fit import norm_sub
from dither.mechanisms import Mechanism, OutputMechanism, mechanism
from dither.methods.histogram.consumer import Consumer, Partition
from dither.types import Floats, Integers


class CellEstimates(Protocol):
    """Raw unbiased counts of a partition's cells."""

    @property
    def partition(self) -> Partition: ...
    @property
    def counts(self) -> Floats: ...
    @property
    def population(self) -> int: ...
    @property
    def smoothed(self) -> Floats | None:
        """The most likely shares of the cells, non-negative with sum one; None if not computed."""

    def bin_variances(self, consumer: Consumer) -> Floats:
        """The variance of each bin's estimated count."""

    def weighted_variances(self, weights: Floats) -> Floats:
        """The variance of each row's weighted sum of the cells' estimated counts."""

    def noise_variances(self) -> Floats:
        """The variance of each cell's frequency due to the devices' noise alone."""


@dataclass(frozen=True)
class PureCells:
    """Cells measured by a frequency mechanism on a random sample of `asked` participants."""

    partition: Partition
    mechanism: Mechanism
    frequencies: Floats
    asked: int
    population: int
    smoothed: Floats | None = None

    @property
    def counts(self) -> Floats:
        return self.frequencies * self.population

    def bin_variances(self, consumer: Consumer) -> Floats:
        out = []
        for start, stop in self.partition.spans(consumer):
            f = float(np.clip(self.frequencies[start:stop].sum(), 0.0, 1.0))
            noise = self.mechanism.group_variance(stop - start, f, self.asked)
            out.append(noise + self._sampling(f, f))
        return np.array(out) * self.population**2

    def weighted_variances(self, weights: Floats) -> Floats:
        f = norm_sub(self.frequencies)
        drawn = np.array([self._sampling(float(row @ f), float(row**2 @ f)) for row in weights])
        return np.asarray((self._noise(weights, f) + drawn) * self.population**2)

    def noise_variances(self) -> Floats:
        return self._noise(np.eye(self.partition.cells), norm_sub(self.frequencies))

    def _noise(self, weights: Floats, f: Floats) -> Floats:
        return np.array([self.mechanism.weighted_variance(row, f, self.asked) for row in weights])

    def _sampling(self, mean: float, square: float) -> float:
        """Variance of the mean of a sample without replacement."""
        n, total = self.asked, self.population
        return (total - n) / (total - 1) * (square - mean**2) / n if n < total else 0.0


@dataclass(frozen=True)
class OutputCells:
    """Cells estimated from the outputs of a strategy or a square wave: decoder x outputs.

    `counts_for` has the cell frequencies for which the decoder has least variance.
    """

    partition: Partition
    mechanism: OutputMechanism
    counts_for: Floats
    outputs: Integers
    population: int
    smoothed: Floats | None = None

    @cached_property
    def decoder(self) -> Floats:
        """The contribution of one report of each output to each cell's count."""
        return self.mechanism.decoder(self.counts_for)

    @cached_property
    def counts(self) -> Floats:
        return np.asarray(self.decoder @ self.outputs, dtype=np.float64)

    def bin_variances(self, consumer: Consumer) -> Floats:
        return self.weighted_variances(self.partition.membership(consumer))

    def weighted_variances(self, weights: Floats) -> Floats:
        """Var = sum E[outputs] g^2 - sum over participants of weight^2, g the sum's decoder.

        The estimate is unbiased. The cell of least variance bounds it from below, so that no
        draw has variance zero.
        """
        decoded = weights @ self.decoder
        raw = decoded**2 @ self.outputs - weights**2 @ self.counts
        by_type = decoded**2 @ self.mechanism.probability_table - weights**2
        return np.asarray(np.maximum(raw, by_type.min(axis=1) * self.population), dtype=np.float64)

    def noise_variances(self) -> Floats:
        # All participants were asked, so the noise is the whole variance.
        return self.weighted_variances(np.eye(self.partition.cells)) / self.population**2


def variance_by_type(mechanism: Mechanism, partition: Partition, consumer: Consumer) -> Floats:
    """The sum of the variances of the consumer's bins, from one report of a value in each cell.

    A collection's total variance is the average of these over its participants. A mechanism
    that is better in every cell is therefore better on any data.
    """
    total = np.zeros(partition.cells)
    for start, stop in partition.spans(consumer):
        if stop - start == partition.cells:
            continue  # the count of the whole range is known
        total += mechanism.group_variance(stop - start, 0.0, 1)
        total[start:stop] += mechanism.group_variance(
            stop - start, 1.0, 1
        ) - mechanism.group_variance(stop - start, 0.0, 1)
    return total


@lru_cache(maxsize=512)
def build(name: str, cells: int, epsilon: float) -> Mechanism:
    """A frequency mechanism, cached because its exact thresholds take long to compute."""
    return mechanism(name, cells, epsilon)


@dataclass(frozen=True)
class ConsumerCounts:
    """Raw unbiased counts and variances, one array per consumer.

    `cells` are the partition's cells, if any; `likely` the most likely counts, if computed.
    """

    counts: tuple[Floats, ...]
    variances: tuple[Floats, ...]
    cells: CellEstimates | None
    likely: tuple[Floats, ...] = ()


def read_off(
    cells: CellEstimates, consumers: Sequence[Consumer]
) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Each consumer's bins as sums of cells (paper, eq. 15), with exact variances.

    The count of a bin over the whole range is known.
    """
    counts, variances = [], []
    for consumer in consumers:
        spans = cells.partition.spans(consumer)
        sums = np.array([cells.counts[start:stop].sum() for start, stop in spans])
        spread = cells.bin_variances(consumer)
        whole = np.array([stop - start == cells.partition.cells for start, stop in spans])
        counts.append(np.where(whole, float(cells.population), sums))
        variances.append(np.where(whole, 0.0, spread))
    return tuple(counts), tuple(variances)


# Weight of the known total, relative to the most certain bin.
_TOTAL = 1e3


def consistent_counts(
    memberships: Sequence[Floats],
    counts: Sequence[Floats],
    variances: Sequence[Floats],
    population: int,
) -> list[Floats]:
    """Each consumer's bins from one set of non-negative cells, by least squares.

    The cells minimise the sum of squared errors of all consumers' bins, in standard errors,
    given the known total. The constraint biases counts near zero, so the raw estimates are
    published too.
    """
    bins, raw = np.concatenate(memberships), np.concatenate(counts)
    spread = np.sqrt(np.concatenate(variances))
    floor = max(float(spread.max()), 1e-9) * 1e-3
    scale = 1 / np.maximum(spread, floor)
    total = np.ones((1, bins.shape[1])) * scale.max() * _TOTAL
    matrix = np.concatenate([bins * scale[:, None], total])
    target = np.concatenate([raw * scale, [population * total[0, 0]]])
    cells = nnls(matrix, target, maxiter=50 * bins.shape[1])[0]
    cells *= population / cells.sum()
    return [m @ cells for m in memberships]
