"""The seam of the linear methods: an integer measurement of a histogram, exact noise, and a decoder.

A trusted curator holds the histogram. Trust model and guarantee: y = A x + z with an
integer matrix A that does not depend on the data and z independent discrete Laplace
noise of scale at least (L1 sensitivity of A) / epsilon, so y, and everything computed
from y alone, is epsilon-differentially private (pure) for the stated neighbours:

* `add-remove` (default): neighbouring tables differ by one record added or removed;
* `replace`: they differ by one record changed, and the number of records is public.

The cells of a product domain are numbered with the last attribute fastest. Methods that
need a power of two add empty cells after the last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, Protocol, get_args

import numpy as np

from dither.central.noise import ByteSource, achieved_epsilon, add_noise, calibrate, noise_variance
from dither.checks import check_choice
from dither.errors import ParameterError
from dither.mechanisms import check_epsilon
from dither.types import Floats, Integers, JsonMapping, JsonObject

Neighbours = Literal["add-remove", "replace"]
MAX_CELLS = 2**20
# Largest public guess of the number of records.
MAX_RECORDS = 10**12


class LinearMeasurement(Protocol):
    """A measurement that does not look at the data."""

    def measure(self, counts: Integers) -> Integers:
        """A x, exactly."""

    def sensitivity(self, neighbours: Neighbours) -> int:
        """The largest L1 distance of neighbouring tables' measurements, or an upper bound."""

    def decode(self, noisy: Integers, variance: float) -> Floats:
        """An estimate of x from the noisy measurement and the known variance of its noise."""


@dataclass(frozen=True)
class CuratorTask:
    """A histogram to release: counts over a product domain, the guarantee, and randomness.

    `source` is the secret noise; `rng` is public (matrices, the first node of a
    network).
    """

    counts: Integers
    epsilon: float
    source: ByteSource
    rng: np.random.Generator
    neighbours: Neighbours = "add-remove"
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_neighbours(self.neighbours)
        object.__setattr__(self, "counts", _check_counts(self.counts))
        object.__setattr__(self, "shape", tuple(self.shape) or (self.counts.size,))
        if math.prod(self.shape) != self.counts.size:
            raise ParameterError(
                f"shape {self.shape} does not have {self.counts.size} cells", where="shape"
            )

    @property
    def cells(self) -> int:
        """The number of cells."""
        return int(self.counts.size)


@dataclass(frozen=True)
class _Observation:
    """A noisy measurement and its cost."""

    values: Integers
    scale: Fraction
    sensitivity: int
    epsilon: float

    @property
    def variance(self) -> float:
        """The variance of the noise on each value."""
        return noise_variance(self.scale) if self.scale else 0.0

    @property
    def notes(self) -> JsonObject:
        """The notes of a manifest about it."""
        return {
            "sensitivity": self.sensitivity,
            "noise_scale": float(self.scale),
            "measurements": self.values.size,
        }


@dataclass(frozen=True)
class NoisyHistogram:
    """An estimate of a histogram (raw: may be negative), its epsilon, and its method.

    `notes` holds only values computed from public parameters or noisy values.
    """

    estimate: Floats
    epsilon: float
    notes: JsonMapping = field(default_factory=dict)


def check_neighbours(neighbours: str) -> Neighbours:
    """One of the two neighbour notions."""
    known: tuple[Neighbours, ...] = get_args(Neighbours)
    check_choice("neighbours", neighbours, known)
    return known[known.index(neighbours)]


def _check_counts(counts: Integers) -> Integers:
    """A histogram as whole, non-negative numbers in one dimension."""
    array = np.asarray(counts)
    if array.ndim != 1 or array.size < 2 or not np.issubdtype(array.dtype, np.integer):
        raise ParameterError(
            "a histogram must be a flat array of at least two whole numbers", where="counts"
        )
    if (array < 0).any():
        raise ParameterError("a histogram cannot hold a negative count", where="counts")
    return array.astype(np.int64)


def domain_size(
    cardinalities: Sequence[int], names: Sequence[str] = (), most: int = MAX_CELLS
) -> int:
    """The number of cells; an error when they are more than fit."""
    cells = math.prod(cardinalities)
    if cells > most:
        what = f"the product of {', '.join(names)}" if names else "the domain"
        raise ParameterError(
            f"{what} has {cells:,} cells, more than the {most:,} that fit; name fewer columns or use coarser bins",
            where="columns",
            value=cells,
        )
    return cells


def observe(
    measurement: LinearMeasurement,
    counts: Integers,
    epsilon: float,
    source: ByteSource,
    neighbours: Neighbours = "add-remove",
) -> _Observation:
    """Measure and add the noise that the guarantee needs, within the given epsilon.

    A measurement that no record changes (the number of records, where public) needs no
    noise and costs nothing. An error instead would reveal a measurement that was chosen
    privately.
    """
    check_epsilon(epsilon)
    sensitivity = measurement.sensitivity(neighbours)
    exact = measurement.measure(counts)
    if sensitivity == 0:
        return _Observation(exact, Fraction(0), 0, 0.0)
    scale = calibrate(sensitivity, epsilon)
    noisy = add_noise(exact, scale, source)
    return _Observation(noisy, scale, sensitivity, achieved_epsilon(sensitivity, scale))


def release_by(
    measurement: LinearMeasurement, task: CuratorTask, notes: Mapping[str, object] | None = None
) -> NoisyHistogram:
    """Observe and decode: the whole of a linear method."""
    seen = observe(measurement, task.counts, task.epsilon, task.source, task.neighbours)
    return NoisyHistogram(
        measurement.decode(seen.values, seen.variance),
        seen.epsilon,
        {**(notes or {}), **seen.notes},
    )
