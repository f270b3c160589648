"""Several descents in lockstep on the whole tables of all answered sets, with twins that measure their degrees of freedom.

The weights of the cells follow the fit as long as that moves chi^2 by more than its own standard deviation: with fixed weights a
step is one of least squares, with weights at the fitted frequencies it is Fisher scoring, one of the likelihood. Every set has
its own participants, so their noise is independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dither.estimate.project import norm_sub
from dither.estimate.targets import Columns, SetTargets, predicted, pull_back
from dither.types import Floats, Reals


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
    """One step size for all starts: grows by 2 % per step, shrinks when the loss rises."""

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


Model = tuple[Floats, Floats]

LEAST_CHANCE = 1e-6
TOWARDS_NATURAL = 0.25  # 0: the gradient in the logits, in which rare values hardly move; 1: the natural gradient
WORKING = np.float32  # of a step; half the time of doubles, and the noise in the data is a thousand times coarser


def moved_start(sets: SetTargets, one: Floats, directions: list[Reals], scale: float) -> Floats:
    """The pooled one-way marginals after every table has moved: the start of a twin rests on the same data."""
    columns, shifted = sets.columns, one.copy()
    for block, direction in zip(sets.blocks, directions, strict=True):
        for number, place, values in block.one_way(direction):
            attribute = int(block.members[number, place])
            shifted[columns.of(attribute)] += scale * block.shares[number, place] * values
    return np.concatenate([norm_sub(shifted[columns.of(i)]) for i in range(len(columns.cardinalities))])


@dataclass
class _Weights:
    """A block's inverse variances and, for the twins, standard normal draws: (set, twin, row, column)."""

    precision: Reals
    draws: Reals

    @property
    def moved(self) -> Reals:
        return np.asarray(self.draws / np.sqrt(self.precision))

    @property
    def score(self) -> Reals:
        return np.asarray(self.draws * np.sqrt(self.precision))


class SetLockstep:
    """All starts and the twins of the first few, advanced together."""

    def __init__(
        self,
        sets: SetTargets,
        pilot: Model,
        one: Floats,
        logits: Callable[[Floats], Floats],
        offsets: Sequence[Floats],
        twins: int,
        probe: float,
        momentum: float,
        rng: np.random.Generator,
    ) -> None:
        """Starts lie at the logits of the one-way marginals `one` plus an offset each; variances are taken at the pilot."""
        self.sets, self.cells, self.probe, self.momentum = sets, float(sets.cells), probe, momentum
        self.control = StepSize()
        self.weighed = [
            _Weights(
                1.0 / block.variances(table),
                rng.standard_normal((len(block.members), twins, *block.tables.shape[2:])),
            )
            for block, table in zip(sets.blocks, self.tables([pilot]), strict=True)
        ]
        self.starts = [Descent(sets.columns, logits(one) + offset) for offset in offsets]
        self.twins = [
            Descent(sets.columns, logits(self._twin_start(one, twin)) + offsets[twin]) for twin in range(twins)
        ]

    def _twin_start(self, one: Floats, twin: int) -> Floats:
        """The one-way marginals that a twin starts from."""
        return moved_start(self.sets, one, [w.moved[:, twin : twin + 1] for w in self.weighed], self.probe)

    def tables(self, models: list[Model]) -> list[Reals]:
        """What the average of some models says of every block: (set, 1, row, column)."""
        weights = np.concatenate([w for w, _ in models])[None] / len(models)
        by_column = np.concatenate([a for _, a in models]).T[:, None]
        return [predicted(weights, block.halves(by_column)) for block in self.sets.blocks]

    def chi2(self, tables: list[Reals], precisions: list[Reals]) -> float:
        gaps = zip(tables, self.sets.blocks, precisions, strict=True)
        return math.fsum(float((w * (t - block.tables) ** 2).sum()) for t, block, w in gaps)

    def reweigh(self, models: list[Model]) -> bool:
        """Take the variances at the average of the models, if that matters; what was judged before is then void."""
        tables = self.tables(models)
        renewed = [1.0 / block.variances(t) for block, t in zip(self.sets.blocks, tables, strict=True)]
        change = self.chi2(tables, renewed) - self.chi2(tables, [w.precision for w in self.weighed])
        if abs(change) < math.sqrt(2.0 * self.cells):
            return False
        for weighed, precision in zip(self.weighed, renewed, strict=True):
            weighed.precision = precision
        self.control.last = math.inf
        return True

    def dependence(self, weights: Floats, a: Floats) -> tuple[float, float]:
        """chi^2 as a function of the share s of dependence that is kept is constant + s cross + s^2 square."""
        mixed, flat = self.tables([(weights, a)]), self.tables([(np.ones(1), (weights @ a)[None])])
        cross = square = 0.0
        for t, product, block, w in zip(mixed, flat, self.sets.blocks, self.weighed, strict=True):
            gap = t - product
            cross += 2.0 * float((w.precision * gap * (product - block.tables)).sum())
            square += float((w.precision * gap * gap).sum())
        return cross, square

    def advance(self, check: bool) -> tuple[list[Model], float, float]:
        """One step; gives the models before it and, on a check, chi^2 of their average and its degrees of freedom."""
        everyone, count, twins = [*self.starts, *self.twins], len(self.starts), len(self.twins)
        models = [start.model() for start in everyone]
        weights = np.stack([w for w, _ in models]).astype(WORKING)
        by_column = np.ascontiguousarray(np.stack([a for _, a in models]).transpose(2, 0, 1), dtype=WORKING)
        toward, by_weight = np.zeros_like(by_column), np.zeros_like(weights)
        loss = chi2 = followed = 0.0
        for block, weighed in zip(self.sets.blocks, self.weighed, strict=True):
            halves = block.halves(by_column)
            table = predicted(weights, halves)
            if check:
                mean = table[:, :count].mean(axis=1, keepdims=True) - block.tables
                chi2 += float((weighed.precision * mean * mean).sum())
                followed += float(((table[:, count:] - table[:, :twins]) * weighed.score).sum())
            table -= block.tables
            table[:, count:] -= self.probe * weighed.moved
            pull = weighed.precision.astype(WORKING) * table
            loss += float((pull[:, :count] * table[:, :count]).sum())
            by_weight += pull_back(block, self.sets.columns, by_column, halves, pull, toward)
        gradients = []
        for number, (start, (w, a)) in enumerate(zip(everyone, models, strict=True)):
            g, gw = start.in_logits(w, a, toward[:, number].T.astype(np.float64), by_weight[number].astype(np.float64))
            gradients.append((g / np.maximum(a, LEAST_CHANCE) ** TOWARDS_NATURAL, gw))
        restart = self.control.update(loss, max(float(np.abs(g).max()) for g, _ in gradients[:count]))
        for start, gradient in zip(everyone, gradients, strict=True):
            start.step(gradient, self.control.size, self.momentum, restart)
        return models[:count], chi2, followed / (max(twins, 1) * self.probe)
