"""Estimates of a partition's cells, and the exact variance of any weighted sum of them.

The estimate of a cell is (support/n - q)/(p - q). The supports of two cells are dependent in ways that differ between
mechanisms (a randomised response names one cell, a subset a fixed number of them), so the variance of a sum is worked
out for each: summing m cells of a unary report sums m noise terms, contrary to the remark after the paper's theorem 7
(erratum 9).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dither.estimate.project import norm_sub
from dither.histogram.partition import Partition
from dither.mechanisms import GRR, Mechanism, SubsetSelection, mechanism
from dither.types import Floats

if TYPE_CHECKING:
    from dither.histogram.consumer import Consumer


class CellEstimates(Protocol):
    """What a collection learnt about its partition: raw unbiased counts of the cells."""

    @property
    def partition(self) -> Partition: ...
    @property
    def counts(self) -> Floats: ...
    @property
    def population(self) -> int: ...

    def bin_variances(self, consumer: Consumer) -> Floats:
        """The variance of each bin's estimated count."""

    def weighted_variances(self, weights: Floats) -> Floats:
        """The variance of each row's weighted sum of the cells' estimated counts."""


@dataclass(frozen=True)
class PureCells:
    """Cells asked through a frequency mechanism from `asked` people of a population, drawn at random if fewer."""

    partition: Partition
    mechanism: Mechanism
    frequencies: Floats
    asked: int
    population: int

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
        noise = np.array([weighted_variance(self.mechanism, row, f, self.asked) for row in weights])
        drawn = np.array([self._sampling(float(row @ f), float(row**2 @ f)) for row in weights])
        return (noise + drawn) * self.population**2

    def _sampling(self, mean: float, square: float) -> float:
        """Variance of the mean of `asked` of `population` people without replacement."""
        n, total = self.asked, self.population
        return (total - n) / (total - 1) * (square - mean**2) / n if n < total else 0.0


def weighted_variance(mechanism: Mechanism, weights: Floats, frequencies: Floats, n: int) -> float:
    """Variance of the weighted sum of all cells' estimated frequencies, given people with these true frequencies."""
    p, q = float(mechanism.p), float(mechanism.q)
    f, w = frequencies, weights
    squares, first = float(w @ w), float(w.sum())
    own, own_squares = float(f @ w), float(f @ w**2)
    if isinstance(mechanism, (GRR, SubsetSelection)):
        # Second moments of the support, less the square of its mean: Cov = E[s s'] - sum over people of E[s] E[s]'.
        moment = p * own_squares + q * (squares - own_squares)
        if isinstance(mechanism, SubsetSelection):
            moment += _pairs(mechanism, first, squares, own, own_squares)
        mean = q**2 * first**2 + 2 * q * (p - q) * first * own + (p - q) ** 2 * own_squares
        spread = moment - mean
    else:
        spread = p * (1 - p) * own_squares + q * (1 - q) * (squares - own_squares)
    return max(spread, 0.0) / (n * (p - q) ** 2)


def _pairs(mechanism: SubsetSelection, first: float, squares: float, own: float, own_squares: float) -> float:
    """Sum over ordered pairs of different cells of their weights times the chance that a report holds both."""
    p, k, size = float(mechanism.p), mechanism.cells, mechanism.size
    with_own = p * (size - 1) / (k - 1)
    both_others = 0.0
    if k > 2:
        both_others = (p * (size - 1) * (size - 2) + (1 - p) * size * (size - 1)) / ((k - 1) * (k - 2))
    all_pairs = first**2 - squares
    own_pairs = 2 * (first * own - own_squares)
    return both_others * (all_pairs - own_pairs) + with_own * own_pairs


def variance_by_type(mechanism: Mechanism, partition: Partition, consumer: Consumer) -> Floats:
    """For one report of a person in each cell: the variances of all the consumer's bins, added up.

    A collection's total variance is the average of these over its people, whoever they are, so that a plan whose
    figures are no larger in any cell is no worse on any data.
    """
    total = np.zeros(partition.cells)
    for start, stop in partition.spans(consumer):
        if stop - start == partition.cells:
            continue  # everybody is in it: that count is known
        total += mechanism.group_variance(stop - start, 0.0, 1)
        total[start:stop] += mechanism.group_variance(stop - start, 1.0, 1) - mechanism.group_variance(
            stop - start, 0.0, 1
        )
    return total


@lru_cache(maxsize=512)
def build(name: str, cells: int, epsilon: float) -> Mechanism:
    """A frequency mechanism; kept, since its exact thresholds take longer to compute than a small collection."""
    return mechanism(name, cells, epsilon)


def report_bits(mechanism: Mechanism) -> int:
    """How many bits of a report carry something: one a cell for unary ones, a cell's number for randomised response."""
    if isinstance(mechanism, GRR):
        return (mechanism.cells - 1).bit_length()
    if mechanism.name in ("sue", "oue", "subset"):
        return mechanism.cells
    return mechanism.counters if mechanism.name == "bloom" else 8 * mechanism.report_bytes
