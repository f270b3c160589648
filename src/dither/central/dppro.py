"""DPPro: a random projection of the histogram with noise, decoded linearly.

Trust model: central. Guarantee: pure epsilon, from the exact L1 sensitivity of the drawn integer matrix. Two departures
from Xu et al., so that every method of this package is compared on the same task under the same guarantee: they
project the records and add Gaussian noise for (epsilon, delta); here the histogram is projected and the noise is
discrete Laplace. `decode="transpose"` answers a query q by the inner product of
projections (Johnson-Lindenstrauss, unbiased); `decode="least-norm"` gives the smallest histogram that agrees with the
measurement (biased towards zero, usually the smaller error).

Reference: Xu et al., "DPPro: differentially private high-dimensional data release via random projection", IEEE TIFS
2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dither.central.measurement import CuratorTask, Neighbours, NoisyHistogram, release_by
from dither.central.sensing import Measurement, Sensing, check_tau, rows_for, sensing
from dither.checks import check_choice
from dither.types import Floats, Integers

Decoder = Literal["transpose", "least-norm"]


@dataclass(frozen=True)
class Projection:
    """A drawn projection and the way it is decoded."""

    matrix: Sensing
    decoder: Decoder

    def measure(self, counts: Integers) -> Integers:
        return self.matrix.apply(counts)

    def sensitivity(self, neighbours: Neighbours) -> int:
        return self.matrix.sensitivity(neighbours)

    def decode(self, noisy: Integers, variance: float) -> Floats:
        values = noisy.astype(np.float64)
        if self.decoder == "transpose":
            return self.matrix.correlate(values) / (self.matrix.unit**2 * self.matrix.rows)
        return self.matrix.correlate(self._whiten(values))

    def _whiten(self, values: Floats) -> Floats:
        """(A A')^-1 values by conjugate gradients: A A' of a random wide matrix is near a multiple of the identity."""
        scale = self.matrix.unit**2 * self.matrix.size
        solution = np.zeros_like(values)
        residual = values.copy()
        direction = residual.copy()
        energy = float(residual @ residual)
        target = 1e-10 * max(energy, 1.0)
        for _ in range(200):
            if energy <= target:
                break
            image = self.matrix.forward(self.matrix.correlate(direction)) / scale
            step = energy / float(direction @ image)
            solution += step * direction
            residual -= step * image
            fresh = float(residual @ residual)
            direction = residual + (fresh / energy) * direction
            energy = fresh
        return solution / scale


@dataclass(frozen=True)
class DpproParameters:
    """`tau` is the compression ratio, from the domain size unless given; see `sensing` for `measurement`."""

    tau: float | None = None
    measurement: Measurement = "gaussian"
    decode: Decoder = "least-norm"

    def __post_init__(self) -> None:
        if self.tau is not None:
            check_tau(self.tau)
        check_choice("measurement", self.measurement, get_args(Measurement))
        check_choice("decode", self.decode, get_args(Decoder))


def default_tau(cells: int) -> float:
    """A projection to about 8 sqrt(cells) dimensions, from the domain size alone."""
    return min(1.0, 8 / math.sqrt(cells))


def release(task: CuratorTask, parameters: DpproParameters) -> NoisyHistogram:
    """Release a histogram through a random projection."""
    ratio = default_tau(task.cells) if parameters.tau is None else parameters.tau
    matrix = sensing(parameters.measurement, rows_for(ratio, task.cells), task.cells, task.rng)
    return release_by(Projection(matrix, parameters.decode), task, {"tau": ratio})
