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

from dither.fit.mixture.descent import Descent, Gradient, State, StepSize, TableGradient, Tied
from dither.fit.mixture.edges import Marginals, projected, warm_potentials
from dither.fit.mixture.pair_fit import Probe
from dither.fit.mixture.set_tables import SetTargets, predicted, pull_back
from dither.fit.mixture.targets import PairTargets
from dither.types import Floats, Reals

MIN_CHANCE = 1e-6
TOWARDS_NATURAL = (
    0.25  # 0: the gradient in the logits, in which rare values hardly move; 1: the natural gradient
)
WORKING = (
    np.float32
)  # of a step; half the time of doubles, and the noise in the data is a thousand times coarser


def moved_start(
    sets: SetTargets, start: Marginals, directions: list[Reals], scale: float
) -> Marginals:
    """The pooled marginals after every table has moved: the start of a twin rests on the same data."""
    columns, shifted, pairs = (
        sets.columns,
        start.one.copy(),
        {edge: start.pairs[edge].copy() for edge in sets.edges},
    )
    for block, direction in zip(sets.blocks, directions, strict=True):
        for attributes, values in block.pooled(direction):
            if len(attributes) == 1:
                shifted[columns.of(attributes[0])] += scale * values
            elif attributes in pairs:
                pairs[attributes[0], attributes[1]] += scale * values
    return Marginals(projected(columns, shifted), pairs, start.warming)


def laid_out(states: Sequence[State]) -> Reals:
    """All starts' components and then the tables of their edges, column by column: (column, start, component)."""
    rows = [
        np.concatenate(
            [state.components, *(t.tables.reshape(len(t.first), -1) for t in state.ties)], axis=1
        )
        for state in states
    ]
    return np.stack(rows).transpose(2, 0, 1)


def tables_of(sets: SetTargets, states: Sequence[State]) -> list[Reals]:
    """What the average of some models says of every block: (set, 1, row, column)."""
    weights = np.concatenate([state.weights for state in states])[None] / len(states)
    by_column = np.concatenate([laid_out([state]) for state in states], axis=2)
    return [predicted(weights, block.halves(by_column)) for block in sets.blocks]


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
        pilot: State,
        start: Marginals,
        logits: Callable[[Floats], Floats],
        offsets: Sequence[Floats],
        twins: int,
        probe: float,
        momentum: float,
        rng: np.random.Generator,
    ) -> None:
        """Starts lie at the logits of the one-way marginals plus an offset each; variances are taken at the pilot, a fit
        without edges."""
        self.sets, self.cells, self.probe, self.momentum = sets, float(sets.cells), probe, momentum
        self.control = StepSize()
        self.twin_models: list[State] = []
        flat = State(pilot.weights, pilot.factors, pilot.components, untied(sets, pilot))
        self.weighed = [
            _Weights(
                1.0 / block.variances(table),
                rng.standard_normal((len(block.members), twins, *block.tables.shape[2:])),
            )
            for block, table in zip(sets.blocks, self.tables([flat]), strict=True)
        ]

        def begun(marginals: Marginals, offset: Floats) -> Descent:
            potentials = warm_potentials(sets.columns, sets.edges, marginals)
            return Descent(sets.columns, logits(marginals.one) + offset, sets.edges, potentials)

        self.starts = [begun(start, offset) for offset in offsets]
        self.twins = [begun(self._twin_start(start, twin), offsets[twin]) for twin in range(twins)]

    def _twin_start(self, start: Marginals, twin: int) -> Marginals:
        """The marginals that a twin starts from."""
        return moved_start(
            self.sets, start, [w.moved[:, twin : twin + 1] for w in self.weighed], self.probe
        )

    def tables(self, states: list[State]) -> list[Reals]:
        """What the average of some models says of every block: (set, 1, row, column)."""
        return tables_of(self.sets, states)

    def moved_pairs(self, targets: PairTargets, twin: int) -> Probe:
        """The pairs after every table has moved as for a twin: a fit to pairs follows that as it follows these tables' noise."""
        columns, directions = self.sets.columns, [w.moved[:, twin : twin + 1] for w in self.weighed]
        moved, alone = np.zeros_like(targets.pairs), np.zeros(columns.width)
        one = targets.one.copy()
        for block, direction in zip(self.sets.blocks, directions, strict=True):
            if (
                len(block.shape) == 1
            ):  # a single question has its own participants, and stands apart from pairs
                for (attribute,), values in zip(block.members.tolist(), direction, strict=True):
                    alone[columns.of(attribute)] = values.ravel()
            for attributes, values in block.pooled(direction):
                if len(attributes) == 1:
                    one[columns.of(attributes[0])] += self.probe * values
                else:
                    moved[columns.of(attributes[0]), columns.of(attributes[1])] += values
        moved += moved.T
        return Probe(
            targets.pairs + self.probe * moved,
            targets.singles + self.probe * alone,
            projected(columns, one),
        )

    def followed(self, twins: Sequence[tuple[State, State]], precisions: list[Reals]) -> float:
        """Degrees of freedom of models, whatever they were fitted to, from how far their twins have followed the moved tables."""
        total = 0.0
        for number, (model, twin) in enumerate(twins):
            gaps = zip(
                self.tables([twin]), self.tables([model]), self.weighed, precisions, strict=True
            )
            total += math.fsum(
                float(((a - b) * p)[:, 0].ravel() @ w.moved[:, number].ravel())
                for a, b, w, p in gaps
            )
        return total / (len(twins) * self.probe)

    def precisions(self, tables: list[Reals]) -> list[Reals]:
        """One over the variances of all cells at given frequencies."""
        return [
            1.0 / block.variances(table)
            for block, table in zip(self.sets.blocks, tables, strict=True)
        ]

    def chi2(self, tables: list[Reals], precisions: list[Reals]) -> float:
        gaps = zip(tables, self.sets.blocks, precisions, strict=True)
        return math.fsum(float((w * (t - block.tables) ** 2).sum()) for t, block, w in gaps)

    def reweigh(self, models: list[State]) -> bool:
        """Take the variances at the average of the models, if that matters; what was judged before is then void."""
        tables = self.tables(models)
        renewed = self.precisions(tables)
        change = self.chi2(tables, renewed) - self.chi2(tables, [w.precision for w in self.weighed])
        if abs(change) < math.sqrt(2.0 * self.cells):
            return False
        for weighed, precision in zip(self.weighed, renewed, strict=True):
            weighed.precision = precision
        self.control.last = math.inf
        return True

    def dependence(self, models: list[State], product: State) -> tuple[float, float]:
        """chi^2 as a function of the share s of dependence that is kept is constant + s cross + s^2 square."""
        mixed, flat = self.tables(models), self.tables([product])
        cross = square = 0.0
        for t, alone, block, w in zip(mixed, flat, self.sets.blocks, self.weighed, strict=True):
            gap = t - alone
            cross += 2.0 * float((w.precision * gap * (alone - block.tables)).sum())
            square += float((w.precision * gap * gap).sum())
        return cross, square

    def chi2_alone(self, state: State) -> float:
        """chi^2 of a state with the variances at itself."""
        tables = self.tables([state])
        return self.chi2(tables, self.precisions(tables))

    def advance(self, check: bool) -> tuple[list[State], float, float]:
        """One step; gives the models before it and, on a check, chi^2 of their average and its degrees of freedom."""
        everyone, count, twins = [*self.starts, *self.twins], len(self.starts), len(self.twins)
        models = [start.model() for start in everyone]
        weights = np.stack([state.weights for state in models]).astype(WORKING)
        by_column = np.ascontiguousarray(laid_out(models), dtype=WORKING)
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
            by_weight += pull_back(block, by_column, halves, pull, toward)
        gradients = []
        for number, (start, state) in enumerate(zip(everyone, models, strict=True)):
            found = gradient_of(
                start, state, toward[:, number].T.astype(np.float64), by_weight[number]
            )
            eased = found.logits / np.maximum(state.components, MIN_CHANCE) ** TOWARDS_NATURAL
            gradients.append(Gradient(eased, found.weights, found.potentials))
        restart = self.control.update(
            loss, max(float(np.abs(g.logits).max()) for g in gradients[:count])
        )
        for start, gradient in zip(everyone, gradients, strict=True):
            start.step(gradient, self.control.size, self.momentum, restart)
        self.twin_models = models[count:]
        return models[:count], chi2, followed / (max(twins, 1) * self.probe)


def gradient_of(start: Descent, state: State, toward: Floats, by_weight: Reals) -> Gradient:
    """One start's gradient from that in its columns, laid out (component, column), and in its weights."""
    width, by_table = start.columns.width, []
    begin = width
    for tied in state.ties:
        tables = tied.tables
        times = toward[:, begin : begin + tables[0].size].reshape(tables.shape) * tables
        by_table.append(
            TableGradient(
                times.sum(axis=2), times.sum(axis=1), np.tensordot(state.weights, times, axes=1)
            )
        )
        begin += tables[0].size
    return start.in_logits(
        state, toward[:, :width], np.asarray(by_weight, dtype=np.float64), by_table
    )


def untied(sets: SetTargets, state: State) -> tuple[Tied, ...]:
    """The edges' tables of a model that has none: products."""
    of, a = sets.columns.of, state.components
    return tuple(
        Tied(a[:, of(i)], np.ones((a[:, of(i)].shape[1], a[:, of(j)].shape[1])), a[:, of(j)])
        for i, j in sets.edges
    )
