"""Descent with momentum on the logits of a mixture of products, and the step size that several descents share."""

from __future__ import annotations

import math

import numpy as np

from dither.estimate.targets import Columns
from dither.types import Floats


class Descent:
    """One start: logits of components and weights, with their velocities."""

    def __init__(self, columns: Columns, logits: Floats) -> None:
        self.columns = columns
        self.logits, self.weight_logits = logits, np.zeros(len(logits))
        self.velocity, self.weight_velocity = np.zeros_like(logits), np.zeros(len(logits))

    def model(self) -> tuple[Floats, Floats]:
        raised = np.exp(self.weight_logits - self.weight_logits.max())
        return raised / raised.sum(), self.columns.softmax(self.logits)

    def pair_gradient(
        self, weights: Floats, a: Floats, pair_pull: Floats, single_pull: Floats
    ) -> tuple[Floats, Floats]:
        """The gradient in the logits of a loss on the matrix of all pairs and on single marginals."""
        g = a @ pair_pull
        by_weight = 0.5 * np.einsum("cd,cd->c", g, a) + a @ single_pull
        g += single_pull
        return self.in_logits(weights, a, g, by_weight)

    def in_logits(self, weights: Floats, a: Floats, g: Floats, by_weight: Floats) -> tuple[Floats, Floats]:
        """From a gradient in probabilities, that of the components divided by their weight, which keeps steps alike."""
        g *= a
        g -= a * self.columns.spread(self.columns.sums(g))
        return g, by_weight - float(weights @ by_weight)

    def step(self, gradient: tuple[Floats, Floats], size: float, momentum: float, restart: bool) -> None:
        if restart:
            self.velocity[:] = 0.0
            self.weight_velocity[:] = 0.0
        self.velocity *= momentum
        # Neighbouring values of an ordered attribute learn alike.
        self.velocity -= size * self.columns.smooth(gradient[0])
        self.weight_velocity = momentum * self.weight_velocity - (size / len(self.weight_logits)) * gradient[1]
        self.logits += self.velocity
        self.weight_logits += self.weight_velocity


class StepSize:
    """One step size for all starts: grows by 2 % a step, shrinks when the loss rises."""

    def __init__(self) -> None:
        self.size, self.last = 0.0, math.inf

    def update(self, loss: float, steepest: float) -> bool:
        """Adapt; true if momentum should start afresh."""
        if self.size == 0.0:
            self.size = 0.3 / max(steepest, 1e-300)
        worse = loss > self.last * 1.0002
        self.size *= 0.6 if worse else 1.02
        self.last = loss
        return worse
