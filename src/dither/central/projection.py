"""A random projection of the histogram with noise, decoded linearly.

Trust model: central. Guarantee: pure epsilon, from the exact L1 sensitivity of the
drawn integer matrix. It is a baseline that shows the gain of compressed sensing over a
projection without sparsity. It follows DPPro but differs: Xu et al. project each record
of numbers, add Gaussian noise, and promise (epsilon, delta) for one attribute of one
record, which is not comparable with a table of cells or with pure epsilon.

One row measures the number of records; the others measure the deviation of the
histogram from an even spread. `decode="ridge"` (default) is the best linear estimate
for the energy of the noisy values beyond their noise; `decode="transpose"` answers by
inner products of projections, unbiased over matrices (Johnson, Lindenstrauss).

Reference: Xu et al., "DPPro: differentially private high-dimensional data release via
random projection", IEEE TIFS 2017.
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
        # Rows are nearly orthogonal: each measures unit^2 times the deviations' energy, and noise.
        energy = max(0.0, float(residual @ residual) / rows - variance) / unit**2
        if energy == 0.0:
            return even
        deviations = self.matrix.correlate(residual) / (size * (unit**2 + variance / energy))
        # Keep the total, which has the most precise measurement.
        decoded: Floats = even + deviations - deviations.mean()
        return decoded


@dataclass(frozen=True)
class ProjectionParameters:
    """`tau` is rows over cells; `records` is a public guess of the table's size.

    By default `tau` follows from public figures.
    """

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
    """The ratio with the least predicted error for records spread over sqrt(cells) cells.

    Of N dimensions, s are measured with noise of variance 2 s^2 / epsilon^2 on N times
    their energy; the others are omitted.
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
