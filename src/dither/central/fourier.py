"""FM: the low Fourier coefficients of a histogram, their number chosen by the exponential mechanism.

Trust model: central. Guarantee: pure epsilon, half for the choice of how many
frequencies are kept, half for the noise on them. Cosine and sine rows are rounded to a
grid of 1/4096, and from then on are an integer matrix with exact sensitivity. At most
`MAX_FREQUENCIES` frequencies (fewer on large domains) are candidates.

References: Rastogi, Nath, "Differentially private aggregation of distributed
time-series with transformation and encryption", SIGMOD 2010; the choice of the number
of coefficients: Acs, Castelluccia, Chen, "Differentially private histogram publishing
through lossy compression", ICDM 2012 (EFPA).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dither.central.measurement import CuratorTask, Neighbours, NoisyHistogram, observe
from dither.central.noise import choose
from dither.central.sensing import exact_product, matrix_sensitivity
from dither.checks import check_whole, check_whole_or_none
from dither.types import Codes, Floats, Integers

GRID = 4096
MAX_FREQUENCIES = 256
_ENTRIES = 2**24
SCORE_GRID = 256


@dataclass(frozen=True)
class LowFrequencies:
    """The constant and the cosine and sine rows of frequencies 1..frequencies-1, on a grid."""

    cells: int
    frequencies: int

    @cached_property
    def matrix(self) -> Codes:
        """Integer rows, each of squared norm about GRID^2 cells."""
        angles = (
            2 * np.pi * np.outer(np.arange(1, self.frequencies), np.arange(self.cells) / self.cells)
        )
        cosines, sines = math.sqrt(2) * np.cos(angles), math.sqrt(2) * np.sin(angles)
        rows = np.concatenate(
            [np.ones((1, self.cells)), np.stack([cosines, sines], axis=1).reshape(-1, self.cells)]
        )
        if self.cells % 2 == 0 and self.frequencies - 1 == self.cells // 2:
            # The sine of the highest frequency is zero in every cell, and its cosine alternates.
            rows = rows[:-1]
            rows[-1] /= math.sqrt(2)
        matrix: Codes = np.rint(GRID * rows).astype(np.int32)
        return matrix

    def measure(self, counts: Integers) -> Integers:
        filled = np.flatnonzero(counts)
        return exact_product(self.matrix[:, filled], counts[filled])

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Exact for an added record; twice that bounds a replaced one above 2,048 cells."""
        if neighbours == "replace" and self.cells <= 2048:
            return matrix_sensitivity(self.matrix, "replace")
        return matrix_sensitivity(self.matrix, "add-remove") * (
            1 if neighbours == "add-remove" else 2
        )

    def decode(self, noisy: Integers, variance: float) -> Floats:
        """The transpose, each row over its squared norm: rows are orthogonal up to the grid."""
        rows = self.matrix.astype(np.float64)
        return np.asarray((noisy / (rows**2).sum(axis=1)) @ rows)


def candidate_frequencies(cells: int) -> Integers:
    """Candidate numbers of frequencies: all up to 16, then about ten per doubling."""
    most = min(cells // 2 + 1, MAX_FREQUENCIES, max(2, _ENTRIES // (2 * cells)))
    spread = np.rint(2.0 ** np.arange(0, 12, 0.1)).astype(np.int64)
    return np.unique(np.concatenate([np.arange(1, 17), spread, [most]]).clip(1, most))


def frequency_scores(
    counts: Integers, candidates: Integers, epsilon: float, neighbours: Neighbours
) -> tuple[Integers, int]:
    """Integer scores (expected error: omitted energy plus noise) and their sensitivity.

    The transform is orthonormal, so one record changes the norm of the omitted part by
    at most 1 (added) or sqrt(2) (replaced). Rounding to the grid can add one step;
    another is allowed for floating-point error.
    """
    cells = counts.size
    powers = np.abs(np.fft.rfft(counts.astype(np.float64))) ** 2 / cells
    # A real signal's frequencies come in equal pairs.
    powers[1 : (cells + 1) // 2] *= 2
    below = np.concatenate([np.cumsum(powers[::-1])[::-1], [0.0]])
    rows = np.minimum(2 * candidates - 1, cells)
    # Column norm of the kept rows over the norm of a row, about 0.9 rows / sqrt(cells). It is
    # public and affects the score only.
    spread = (1 if neighbours == "add-remove" else 2) * 0.9 * rows / math.sqrt(cells)
    error = np.sqrt(below[candidates].clip(0)) + np.sqrt(2 * rows) * spread / epsilon
    moved = 1.0 if neighbours == "add-remove" else math.sqrt(2)
    return np.rint(SCORE_GRID * error).astype(np.int64), math.ceil(SCORE_GRID * moved) + 2


@dataclass(frozen=True)
class LowFrequencyParameters:
    """`frequencies` to keep; by default chosen privately with half of epsilon."""

    frequencies: int | None = None

    def __post_init__(self) -> None:
        check_whole_or_none("frequencies", self.frequencies, 1)


def release(task: CuratorTask, parameters: LowFrequencyParameters) -> NoisyHistogram:
    """Release a histogram through its low frequencies.

    A fixed number of frequencies leaves all of epsilon for noise.
    """
    candidates = candidate_frequencies(task.cells)
    chosen, share, choosing = parameters.frequencies, task.epsilon, 0.0
    if chosen is None:
        share = choosing = task.epsilon / 2
        scores, moved = frequency_scores(task.counts, candidates, share, task.neighbours)
        chosen = int(candidates[choose(scores, moved, choosing, task.source)])
    check_whole("frequencies", chosen, 1, int(candidates[-1]))
    measurement = LowFrequencies(task.cells, chosen)
    seen = observe(measurement, task.counts, share, task.source, task.neighbours)
    # The cost does not depend on the choice, even if the measurement needs no noise.
    spent = seen.epsilon if parameters.frequencies is not None else share
    notes = {
        "frequencies": chosen,
        "epsilon_choice": choosing,
        "epsilon_noise": spent,
        **seen.notes,
    }
    return NoisyHistogram(measurement.decode(seen.values, seen.variance), choosing + spent, notes)
