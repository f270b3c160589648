"""Privelet: noise on Haar wavelet coefficients with weights, so that a range needs few of them.

Trust model: central. Guarantee: pure epsilon. Xiao et al. weight a coefficient by the number m of leaves below it; m
times the coefficient is (sum of the left half) - (sum of the right half), a whole number. So equal noise on these
whole numbers *is* their weighted noise, and it is exact. One record changes one number a level and the total:
sensitivity 1 + log2 N for an added record; 2 log2 N for a replaced one (the total does not move).

Reference: Xiao, Wang, Gehrke, "Differential privacy via wavelet transforms", IEEE TKDE 2011, section IV (one
dimension; the product domain is flattened in C order, so cells that share their first attributes are near each
other).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dither.central.noise import ByteSource
from dither.central.sparse import dictionary
from dither.central.strategy import HistogramRelease, Neighbours, check_counts, check_neighbours, release_by
from dither.types import Floats, Integers


@dataclass(frozen=True)
class Wavelet:
    """The total and the half-differences of every node of a binary tree, coarse to fine."""

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


def release(
    counts: npt.ArrayLike,
    epsilon: float,
    source: ByteSource,
    *,
    rng: np.random.Generator | None = None,
    neighbours: str = "add-remove",
    shape: tuple[int, ...] | None = None,
) -> HistogramRelease:
    """Release a histogram through weighted Haar coefficients."""
    histogram = check_counts(counts)
    return release_by(Wavelet(histogram.size), histogram, epsilon, source, check_neighbours(neighbours))
