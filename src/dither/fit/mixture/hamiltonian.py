"""Hamiltonian Monte Carlo (Duane, Kennedy, Pendleton, Roweth 1987; Neal 2011) with a fixed metric and an adapted step size.

The step size is settled while warming up, by dual averaging to an acceptance of 0.8 (Hoffman and Gelman, JMLR 2014, section
3.2), and drawn anew by a factor of 0.7 to 1.3 in every trajectory, so that none comes back to where it began.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dither.types import Floats

Density = Callable[
    [Floats], tuple[float, Floats]
]  # x -> energy (minus the log density, up to a constant), gradient

WANTED_ACCEPTANCE = 0.8
SHRINKAGE, OFFSET, FORGETTING = 0.05, 10.0, 0.75  # gamma, t0 and kappa of dual averaging
JITTER = (0.7, 1.3)


class Metric:
    """The masses: one for each coordinate, and a whole matrix for the first few. A mass of infinity holds its coordinate."""

    def __init__(self, masses: Floats, first: Floats | None = None) -> None:
        self.inverse = (1.0 / masses).astype(masses.dtype)
        self.root = np.where(
            np.isinf(masses), 0.0, np.sqrt(np.where(np.isinf(masses), 1.0, masses))
        ).astype(masses.dtype)
        self.count = 0 if first is None else len(first)
        if first is not None:
            values, vectors = np.linalg.eigh(first.astype(np.float64))
            self.first_root = ((vectors * np.sqrt(values)) @ vectors.T).astype(masses.dtype)
            self.first_inverse = ((vectors / values) @ vectors.T).astype(masses.dtype)

    def momentum(self, rng: np.random.Generator) -> Floats:
        """Drawn from N(0, mass)."""
        out = rng.standard_normal(len(self.root), dtype=np.float32).astype(
            self.root.dtype, copy=False
        )
        if self.count:
            first = self.first_root @ out[: self.count]
        out *= self.root
        if self.count:
            out[: self.count] = first
        return out

    def velocity(self, momentum: Floats) -> Floats:
        """Mass^-1 times momentum."""
        out = self.inverse * momentum
        if self.count:
            out[: self.count] = self.first_inverse @ momentum[: self.count]
        return np.asarray(out)


@dataclass
class Chain:
    """Where a chain stands, and how its step size comes along."""

    density: Density
    x: Floats
    metric: Metric
    leaps: int
    step: float

    def __post_init__(self) -> None:
        self.energy, self.gradient = self.density(self.x)
        self.acceptance = 0.0
        self.restart_adapting(self.step)

    def restart_adapting(self, step: float) -> None:
        """Look for a step size from here on."""
        self.step = step
        self._centre, self._lag, self._settled, self._adapted = (
            math.log(2.0 * step),
            0.0,
            math.log(step),
            0,
        )

    def settle(self) -> None:
        """Keep the averaged step size from now on."""
        self.step = math.exp(self._settled)

    def move_to(self, x: Floats) -> None:
        """Go on from another position: a step of another kernel."""
        self.x = x
        self.energy, self.gradient = self.density(x)

    def advance(self, rng: np.random.Generator, *, adapt: bool) -> None:
        """One trajectory, accepted or not."""
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # a trajectory that leaves all bounds is refused below
            self._advance(rng)
        if adapt:
            self._adapt()

    def _advance(self, rng: np.random.Generator) -> None:
        momentum = self.metric.momentum(rng)
        before = self.energy + 0.5 * float(np.vdot(momentum, self.metric.velocity(momentum)))
        size = self.x.dtype.type(self.step * rng.uniform(*JITTER))
        x, gradient, energy = self.x, self.gradient, self.energy
        momentum = momentum - 0.5 * size * gradient
        for leap in range(self.leaps):
            x = x + size * self.metric.velocity(momentum)
            energy, gradient = self.density(x)
            if (
                not energy < before + 1000.0
            ):  # it has left the region of any probability, or is not a number
                energy = math.inf
                break
            momentum -= (size if leap + 1 < self.leaps else 0.5 * size) * gradient
        after = (
            energy + 0.5 * float(np.vdot(momentum, self.metric.velocity(momentum)))
            if energy < math.inf
            else energy
        )
        self.acceptance = math.exp(min(0.0, before - after)) if after < math.inf else 0.0
        if rng.random() < self.acceptance:
            self.x, self.energy, self.gradient = x, energy, gradient

    def _adapt(self) -> None:
        self._adapted += 1
        share = 1.0 / (self._adapted + OFFSET)
        self._lag = (1.0 - share) * self._lag + share * (WANTED_ACCEPTANCE - self.acceptance)
        logarithm = self._centre - math.sqrt(self._adapted) / SHRINKAGE * self._lag
        weight = self._adapted**-FORGETTING
        self._settled = weight * logarithm + (1.0 - weight) * self._settled
        self.step = math.exp(logarithm)
