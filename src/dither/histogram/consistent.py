"""Histograms that agree with one another: non-negative, adding up to the number of participants, one table behind all.

The nearest counts of the cells, in squared standard errors of all consumers' bins, with no cell below zero and the
known total (non-negative least squares). A constrained fit is biased where counts are near zero, so the raw estimates
are kept beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dither.types import Floats

_TOTAL = 1e3  # how many times more than the most certain bin the known total counts


def make_consistent(
    memberships: Sequence[Floats], counts: Sequence[Floats], variances: Sequence[Floats], population: int
) -> list[Floats]:
    """Each consumer's bins from one non-negative set of cells; memberships are over the union's cells."""
    from scipy.optimize import nnls

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
