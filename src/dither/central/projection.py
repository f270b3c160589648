"""A random projection of the histogram with noise, decoded linearly.

Trust model: central. Guarantee: pure epsilon, from the exact L1 sensitivity of the drawn integer matrix. It stands here for
what compressed sensing gains over a projection without sparsity. It is after DPPro, and is not DPPro: Xu et al. project each
record of numbers, add Gaussian noise, and promise (epsilon, delta) for one attribute of one record, which neither this table of
cells nor pure epsilon can be compared with.

One row measures the number of records; the others see what is left of the histogram after spreading that evenly.
`decode="ridge"` (default) is the best linear estimate for the energy that the noisy values show beyond their noise;
`decode="transpose"` answers by inner products of projections, unbiased over matrices (Johnson, Lindenstrauss).

Reference: Xu et al., "DPPro: differentially private high-dimensional data release via random projection", IEEE TIFS 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dither.central.measurement import (
    MAX_RECORDS,
    CuratorTask,
    Neighbours,
    NoisyHistogram,
    release_by,
)
from dither.central.sensing import Measurement, Sensing, check_tau, rows_for, sensing
from dither.checks import check_choice, check_whole
from dither.types import Floats, Integers

Decoder = Literal["ridge", "transpose"]
TAU_GRID = tuple(2.0**-power for power in range(10, -1, -1))


@dataclass(frozen=True)
class Projection:
    """A drawn projection, its first row the total, and the way it is decoded."""

    matrix: Sensing
    decoder: Decoder

    def measure(self, counts: Integers) -> Integers:
        return self.matrix.apply(counts)

    def sensitivity(self, neighbours: Neighbours) -> int:
        return self.matrix.sensitivity(neighbours)

    def decode(self, noisy: Integers, variance: float) -> Floats:
        rows, unit, size = self.matrix.rows - 1, self.matrix.unit, self.matrix.size
        even = np.full(size, noisy[0] / (unit * size))
        residual = noisy - self.matrix.forward(even)
        residual[0] = 0.0
        if rows == 0:
            return even
        if self.decoder == "transpose":
            return even + self.matrix.correlate(residual) / (unit**2 * rows)
        # Every row sees the energy of the deviations from even, unit^2 times, and noise; rows are nearly orthogonal.
        energy = max(0.0, float(residual @ residual) / rows - variance) / unit**2
        if energy == 0.0:
            return even
        deviations = self.matrix.correlate(residual) / (size * (unit**2 + variance / energy))
        return even + deviations - deviations.mean()  # what is measured best, the total, stays


@dataclass(frozen=True)
class ProjectionParameters:
    """`tau`, rows over cells, comes from public figures unless given; `records` is a public guess of the table's size."""

    tau: float | None = None
    measurement: Literal["hadamard", "gaussian", "bernoulli"] = "hadamard"
    decode: Decoder = "ridge"
    records: int = 10_000

    def __post_init__(self) -> None:
        if self.tau is not None:
            check_tau(self.tau)
        check_choice(
            "measurement",
            self.measurement,
            tuple(name for name in get_args(Measurement) if name != "sparse"),
        )
        check_choice("decode", self.decode, get_args(Decoder))
        check_whole("records", self.records, 1, MAX_RECORDS)


def automatic_tau(cells: int, epsilon: float, records: int) -> float:
    """The ratio with the least predicted error for `records` records spread evenly over sqrt(cells) cells.

    Of N dimensions, s are measured with noise of variance 2 s^2 / epsilon^2 on N times their energy; the others are left out.
    """
    each = records**2 / math.sqrt(cells) / cells

    def predicted(tau: float) -> float:
        rows = rows_for(tau, cells)
        known = cells * epsilon**2 / (2 * (rows + 1) ** 2)
        return (cells - rows) * each + rows / (1 / each + known)

    return min(TAU_GRID, key=predicted)


def release(task: CuratorTask, parameters: ProjectionParameters) -> NoisyHistogram:
    """Release a histogram through a random projection."""
    public = max(1, int(task.counts.sum())) if task.neighbours == "replace" else parameters.records
    tau = (
        automatic_tau(task.cells, task.epsilon, public)
        if parameters.tau is None
        else parameters.tau
    )
    rows = min(task.cells, rows_for(tau, task.cells) + 1)
    matrix = sensing(parameters.measurement, rows, task.cells, task.rng, total=True)
    return release_by(Projection(matrix, parameters.decode), task, {"tau": tau})
