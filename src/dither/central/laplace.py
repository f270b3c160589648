"""LM: independent discrete Laplace noise on each cell.

Trust model: central. Guarantee: pure epsilon; sensitivity 1 for an added or removed record, 2 for a replaced one.
Each cell is unbiased with variance about 2 (sensitivity / epsilon)^2, whatever the domain: hard to beat for single
cells.

References: Dwork et al., TCC 2006; Ghosh, Roughgarden, Sundararajan, "Universally utility-maximizing privacy
mechanisms", 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dither.central.noise import ByteSource
from dither.central.strategy import HistogramRelease, Neighbours, check_counts, check_neighbours, release_by
from dither.types import Floats, Integers


@dataclass(frozen=True)
class Cells:
    """Every cell measured once."""

    cells: int

    def measure(self, counts: Integers) -> Integers:
        return counts.copy()

    def sensitivity(self, neighbours: Neighbours) -> int:
        return 1 if neighbours == "add-remove" else 2

    def decode(self, noisy: Integers, variance: float) -> Floats:
        return noisy.astype(np.float64)


def release(
    counts: npt.ArrayLike,
    epsilon: float,
    source: ByteSource,
    *,
    rng: np.random.Generator | None = None,
    neighbours: str = "add-remove",
    shape: tuple[int, ...] | None = None,
) -> HistogramRelease:
    """Release a histogram with noise on each cell."""
    histogram = check_counts(counts)
    return release_by(Cells(histogram.size), histogram, epsilon, source, check_neighbours(neighbours))
