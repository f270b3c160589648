"""The seam of the linear mechanisms: an integer measurement of a histogram, exact noise, and a decoder.

A trusted curator holds the histogram. Trust model and guarantee: y = A x + z with an integer matrix A that does not
depend on the data and z independent discrete Laplace noise of scale at least (L1 sensitivity of A) / epsilon, so y,
and everything computed from y alone, is epsilon-differentially private (pure) for the stated neighbours:

* `add-remove` (default): neighbouring tables differ by one record added or removed;
* `replace`: they differ by one record changed, and the number of records is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from dither.central.noise import ByteSource, achieved_epsilon, calibrate, discrete_laplace, noise_variance
from dither.errors import ParameterError
from dither.mechanisms.probability import check_epsilon
from dither.types import Floats, Integers

Neighbours = Literal["add-remove", "replace"]


class Strategy(Protocol):
    """A measurement that does not look at the data."""

    @property
    def cells(self) -> int: ...

    def measure(self, counts: Integers) -> Integers:
        """A x, exactly."""

    def sensitivity(self, neighbours: Neighbours) -> int:
        """The largest L1 distance of the measurements of two neighbouring tables, exactly or a stated upper bound."""

    def decode(self, noisy: Integers, variance: float) -> Floats:
        """An estimate of x from the noisy measurement and the known variance of its noise."""


@dataclass(frozen=True)
class Observation:
    """A noisy measurement and what it cost."""

    values: Integers
    scale: Fraction
    sensitivity: int
    epsilon: float

    @property
    def variance(self) -> float:
        """The variance of the noise on each value."""
        return noise_variance(self.scale)


@dataclass(frozen=True)
class HistogramRelease:
    """An estimate of a histogram (raw: may be negative), the epsilon it cost, and how it was made.

    `noise_scale` is the scale of the noise on each measured integer, where there is one scale; `details` holds
    nothing that was not computed from public parameters or noisy values.
    """

    estimate: Floats
    epsilon: float
    details: Mapping[str, Any] = field(default_factory=dict)


def check_neighbours(neighbours: str) -> Neighbours:
    """One of the two neighbour notions."""
    for known in get_args(Neighbours):
        if neighbours == known:
            return known
    raise ParameterError(
        f"neighbours {neighbours!r} is not known; use add-remove or replace", where="neighbours", value=neighbours
    )


def check_counts(counts: npt.ArrayLike) -> Integers:
    """A histogram as whole, non-negative numbers in one dimension."""
    array = np.asarray(counts)
    if array.ndim != 1 or array.size < 2 or not np.issubdtype(array.dtype, np.integer):
        raise ParameterError("a histogram must be a flat array of at least two whole numbers", where="counts")
    if (array < 0).any():
        raise ParameterError("a histogram cannot hold a negative count", where="counts")
    return array.astype(np.int64)


def observe(
    strategy: Strategy, counts: Integers, epsilon: float, source: ByteSource, neighbours: Neighbours = "add-remove"
) -> Observation:
    """Measure and add the noise that the guarantee needs; epsilon achieved is at most the one asked for."""
    check_epsilon(epsilon)
    sensitivity = strategy.sensitivity(neighbours)
    scale = calibrate(sensitivity, epsilon)
    exact = strategy.measure(counts)
    noisy = exact + discrete_laplace(scale, exact.size, source)
    return Observation(noisy, scale, sensitivity, achieved_epsilon(sensitivity, scale))


def release_by(
    strategy: Strategy, counts: Integers, epsilon: float, source: ByteSource, neighbours: Neighbours, **details: Any
) -> HistogramRelease:
    """Observe and decode: the whole of a linear mechanism."""
    seen = observe(strategy, counts, epsilon, source, neighbours)
    estimate = strategy.decode(seen.values, seen.variance)
    told = {
        **details,
        "sensitivity": seen.sensitivity,
        "noise_scale": float(seen.scale),
        "measurements": seen.values.size,
    }
    return HistogramRelease(estimate, seen.epsilon, told)
