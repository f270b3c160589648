"""One start of the mixture's fit: logits of components, of weights and of the potentials of strong pairs, and how they move.

A strong pair of attributes is an edge. Every component's product A_c,i(u) A_c,j(v) of an edge i-j is multiplied by one table
psi(u, v), shared by all components of the start, and normalised per component:

    T_c(u, v) = A_c,i(u) psi(u, v) A_c,j(v) / Z_c

so that every marginal stays exact. Two edges i-j and j-k may share their middle attribute: they are a tree, and

    T_c(u, v, w) = A_c,i(u) psi_ij(u, v) A_c,j(v) psi_jk(v, w) A_c,k(w) / Z_c

is handled as an edge between i and the two others taken together, and a row of four as one between its two halves. B_c, the
one-way marginals of T_c, take the place of A_c wherever only one attribute of the tree is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from dither.fit.mixture.edges import Marginals, block, projected
from dither.fit.mixture.targets import (
    Columns,
    Edges,
    PairTargets,
    Tree,
    chi_square,
    inverse_variances,
    pooling_weights,
    trees,
)
from dither.types import Floats

ADAM_RATE, ADAM_MEAN, ADAM_SQUARE = 0.03, 0.9, 0.999


@dataclass(frozen=True)
class Tied:
    """A tree in all components: T_c(u, v) = first[c, u] psi[u, v] second[c, v], u and v the values of its two halves."""

    first: Floats
    psi: Floats
    second: Floats

    @property
    def tables(self) -> Floats:
        """(component, u, v)."""
        return np.asarray(self.first[:, :, None] * self.psi * self.second[:, None, :])

    def mean(self, weights: Floats) -> Floats:
        """The tree's table in the mixture."""
        return np.asarray(self.psi * ((self.first.T * weights) @ self.second))


@dataclass(frozen=True)
class State:
    """A mixture in the middle of a fit: `factors` are the A_c, `components` the B_c, both with all domains side by side."""

    weights: Floats
    factors: Floats
    components: Floats
    ties: tuple[Tied, ...] = ()

    @property
    def one(self) -> Floats:
        """The one-way marginals."""
        return np.asarray(self.weights @ self.components)


@dataclass(frozen=True)
class TableGradient:
    """The derivative of a loss in an edge's T_c, times T_c: summed over v, over u, and over components by their weights."""

    rows: Floats
    columns: Floats
    mean: Floats


@dataclass(frozen=True)
class Gradient:
    """In the logits of components (each divided by its weight, which keeps steps alike), of weights, and of potentials."""

    logits: Floats
    weights: Floats
    potentials: tuple[Floats, ...]


def halves(tree: Tree) -> tuple[Tree, Tree]:
    """A tree's attributes in two parts of which the tables are about equally large: a table of one part per component is small."""
    return tree[: len(tree) // 2], tree[len(tree) // 2 :]


def joined(columns: Columns, values: Floats, attributes: Tree) -> Floats:
    """The product of some attributes, line by line."""
    out = values[:, columns.of(attributes[0])]
    for attribute in attributes[1:]:
        out = (out[:, :, None] * values[:, None, columns.of(attribute)]).reshape(len(values), -1)
    return np.asarray(out)


def _added(columns: Columns, values: Floats, attributes: Tree) -> Floats:
    """The same with sums in place of products."""
    out = values[:, columns.of(attributes[0])]
    for attribute in attributes[1:]:
        out = (out[:, :, None] + values[:, None, columns.of(attribute)]).reshape(len(values), -1)
    return np.asarray(out)


def summed(table: Floats, away: Sequence[int]) -> Floats:
    """Sums over some axes, one after the other, the last by a matrix product: numpy takes three times as long at once."""
    for axis in sorted(away, reverse=True):
        last = axis == table.ndim - 1
        table = (
            table @ np.ones(table.shape[-1], dtype=table.dtype) if last else table.sum(axis=axis)
        )
    return table


def _shape(columns: Columns, tree: Tree) -> tuple[int, ...]:
    return tuple(int(k) for k in columns.cardinalities[list(tree)])


def faces(
    columns: Columns, tree: Tree
) -> Iterator[tuple[slice, slice, tuple[int, ...], tuple[int, ...]]]:
    """Every pair of a tree's attributes: their columns, the axes that are summed to it, and its shape in a table of the tree."""
    shape = _shape(columns, tree)
    for a, b in combinations(range(len(tree)), 2):
        away = tuple(axis for axis in range(len(tree)) if axis not in (a, b))
        wide = tuple(1 if axis in away else size for axis, size in enumerate(shape))
        yield columns.of(tree[a]), columns.of(tree[b]), away, wide


class Descent:
    """One start: its logits with their velocities."""

    def __init__(
        self, columns: Columns, logits: Floats, edges: Edges = (), potentials: Sequence[Floats] = ()
    ) -> None:
        """`potentials` are the logarithms of psi to start from, one table per link of every tree that the edges form."""
        self.columns, self.edges, self.trees = columns, edges, trees(edges)
        self.faces = [list(faces(columns, tree)) for tree in self.trees]
        self.logits, self.weight_logits = logits, np.zeros(len(logits))
        self.velocity, self.weight_velocity = np.zeros_like(logits), np.zeros(len(logits))
        self.potentials = [potential.copy() for potential in potentials]
        self.mean = [np.zeros_like(potential) for potential in potentials]
        self.square = [np.zeros_like(potential) for potential in potentials]
        self.steps = 0

    def model(self) -> State:
        raised = np.exp(self.weight_logits - self.weight_logits.max())
        factors = self.columns.softmax(self.logits)
        if not self.edges:
            return State(raised / raised.sum(), factors, factors)
        components, ties = factors.copy(), []
        for tree, psi in zip(self.trees, self._psi(), strict=True):
            first, second = (joined(self.columns, factors, half) for half in halves(tree))
            reach = second @ psi.T
            scaled = first / np.einsum("cu,cu->c", first, reach)[:, None]
            for half, table in zip(
                halves(tree), (scaled * reach, second * (scaled @ psi)), strict=True
            ):
                self._spread_out(half, table, components)
            ties.append(Tied(scaled, psi, second))
        return State(raised / raised.sum(), factors, components, tuple(ties))

    def _psi(self) -> Iterator[Floats]:
        """Every tree's table: one row for each value of its first half."""
        potentials = iter(self.potentials)
        for tree in self.trees:
            total = next(potentials)
            for potential in islice(potentials, len(tree) - 2):
                total = total[..., None] + potential
            rows = math.prod(_shape(self.columns, halves(tree)[0]))
            yield np.exp(total - total.max()).reshape(rows, -1)

    def _spread_out(self, attributes: Tree, values: Floats, out: Floats) -> None:
        """Sums of a table of some attributes in every component, into each one's columns."""
        table = values.reshape(len(values), *_shape(self.columns, attributes))
        for axis, attribute in enumerate(attributes, start=1):
            away = tuple(other for other in range(1, table.ndim) if other != axis)
            out[:, self.columns.of(attribute)] = summed(table, away)

    def pairs(self, state: State) -> Floats:
        """The matrix of all pair marginals: B' diag(w) B, save the blocks of trees."""
        out = np.asarray((state.components.T * state.weights) @ state.components)
        for tree, tied, sides in zip(self.trees, state.ties, self.faces, strict=True):
            table = tied.mean(state.weights).reshape(_shape(self.columns, tree))
            for at_i, at_j, away, _ in sides:
                block = summed(table, away)
                out[at_i, at_j] = block
                out[at_j, at_i] = block.T
        return out

    def pair_gradient(self, state: State, pair_pull: Floats, single_pull: Floats) -> Gradient:
        """The gradient of a loss on the matrix of all pairs and on single marginals; the pull's blocks of trees are used up."""
        by_table, alone = [], []
        for tree, tied, sides in zip(self.trees, state.ties, self.faces, strict=True):
            pull = np.zeros(_shape(self.columns, tree), dtype=pair_pull.dtype)
            for at_i, at_j, _, wide in sides:
                pull += pair_pull[at_i, at_j].reshape(wide)
                pair_pull[at_i, at_j] = 0.0
                pair_pull[at_j, at_i] = 0.0
            pulled = tied.psi * pull.reshape(tied.psi.shape)
            rows = tied.first * (tied.second @ pulled.T)
            columns = tied.second * (tied.first @ pulled)
            by_table.append(
                TableGradient(
                    rows, columns, pulled * ((tied.first.T * state.weights) @ tied.second)
                )
            )
            alone.append(rows.sum(axis=1))
        g = state.components @ pair_pull
        by_weight = (
            0.5 * np.einsum("cd,cd->c", g, state.components) + state.components @ single_pull
        )
        for share in alone:
            by_weight += share
        g += single_pull
        return self.in_logits(state, g, by_weight, by_table)

    def in_logits(
        self, state: State, g: Floats, by_weight: Floats, by_table: Sequence[TableGradient] = ()
    ) -> Gradient:
        """From a gradient in the probabilities `components` (each divided by its weight) and in the trees' tables."""
        out = g * state.components
        totals = self.columns.sums(out)
        potentials: list[Floats] = []
        for tree, tied, table in zip(self.trees, state.ties, by_table, strict=True):
            total = totals[:, list(tree)].sum(axis=1) + table.rows.sum(
                axis=1
            )  # of T_c times its whole derivative
            first, second = halves(tree)
            g_first = tied.first * _added(self.columns, g, first)
            g_second = tied.second * _added(self.columns, g, second)
            across = tied.first.T * state.weights
            by_first = (
                out[:, self.columns.of(first[0])]
                if len(first) == 1
                else g_first * (tied.second @ tied.psi.T)
            )
            rows = by_first + tied.first * (g_second @ tied.psi.T) + table.rows
            columns = (
                g_second * (tied.first @ tied.psi)
                + tied.second * (g_first @ tied.psi)
                + table.columns
            )
            both = (
                g_first - total[:, None] * tied.first
            ).T * state.weights @ tied.second + across @ g_second
            slope = (table.mean + tied.psi * both).reshape(_shape(self.columns, tree))
            for link in range(len(tree) - 1):
                away = tuple(axis for axis in range(len(tree)) if axis not in (link, link + 1))
                potentials.append(summed(slope, away))
            self._spread_out(first, rows, out)
            self._spread_out(second, columns, out)
            totals[:, list(tree)] = total[:, None]
        out -= state.components * self.columns.spread(totals)
        return Gradient(out, by_weight - float(state.weights @ by_weight), tuple(potentials))

    def step(self, gradient: Gradient, size: float, momentum: float, restart: bool) -> None:
        if restart:
            self.velocity[:] = 0.0
            self.weight_velocity[:] = 0.0
        self.velocity *= momentum
        # Neighbouring values of an ordered attribute learn alike.
        self.velocity -= size * self.columns.smooth(gradient.logits)
        self.weight_velocity = (
            momentum * self.weight_velocity - (size / len(self.weight_logits)) * gradient.weights
        )
        self.logits += self.velocity
        self.weight_logits += self.weight_velocity
        self.steps += 1
        for number, slope in enumerate(gradient.potentials):
            self._adam(number, slope)

    def _adam(self, number: int, slope: Floats) -> None:
        """A step of a potential at its own pace (Kingma and Ba, ICLR 2015): its cells' gradients differ a thousandfold."""
        self.mean[number] = ADAM_MEAN * self.mean[number] + (1.0 - ADAM_MEAN) * slope
        self.square[number] = (
            ADAM_SQUARE * self.square[number] + (1.0 - ADAM_SQUARE) * slope * slope
        )
        mean = self.mean[number] / (1.0 - ADAM_MEAN**self.steps)
        root = np.sqrt(self.square[number] / (1.0 - ADAM_SQUARE**self.steps))
        self.potentials[number] = self.potentials[number] - ADAM_RATE * mean / (
            root + 1e-8 * root.max() + 1e-300
        )


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


@dataclass(frozen=True)
class Probe:
    """Data moved by a little noise: how far a twin descent follows it measures the degrees of freedom."""

    pairs: Floats
    singles: Floats
    one: Floats

    def marginals(self, targets: PairTargets, start: Marginals) -> Marginals:
        """What the twin of a descent from `start` starts from."""
        raw = {(i, j): block(targets.columns, self.pairs, i, j) for i, j in start.pairs}
        return Marginals(self.one, raw, start.warming)


@dataclass(frozen=True)
class DrawnProbe(Probe):
    """One whose cells move independently; the scores say which way each has moved, divided by its deviation."""

    pair_score: Floats
    single_score: Floats

    def followed(self, pair_change: Floats, single_change: Floats) -> float:
        return 0.5 * float(np.vdot(pair_change, self.pair_score)) + float(
            single_change @ self.single_score
        )


def drawn_probe(
    targets: PairTargets, w2: Floats, w1: Floats, scale: float, rng: np.random.Generator
) -> DrawnProbe:
    """Every cell of pairs and singles moved by its own noise."""
    columns, width = targets.columns, targets.columns.width
    half = np.triu(rng.standard_normal((width, width)), 1)
    direction, direction1 = half + half.T, rng.standard_normal(width)
    moved, moved1 = direction * _deviation(w2), direction1 * _deviation(w1)
    # The start rests on the same data: its one-way marginals move along, pooled from pairs and singles.
    by_pair, alone = pooling_weights(targets)
    lines = np.add.reduceat(moved, columns.starts, axis=1) * np.repeat(
        by_pair, columns.cardinalities, axis=0
    )
    shifted = targets.one + scale * (lines.sum(axis=1) + columns.spread(alone) * moved1)
    return DrawnProbe(
        targets.pairs + scale * moved,
        targets.singles + scale * moved1,
        projected(columns, shifted),
        direction * np.sqrt(w2),
        direction1 * np.sqrt(w1),
    )


def _deviation(weights: Floats) -> Floats:
    return np.where(weights > 0, 1.0 / np.sqrt(np.where(weights > 0, weights, 1.0)), 0.0)


class PairLockstep:
    """All starts and the twins of the first few, advanced together."""

    def __init__(
        self,
        targets: PairTargets,
        w2: Floats,
        w1: Floats,
        starts: list[Descent],
        twins: Sequence[tuple[Descent, Probe]],
        probe: float,
        momentum: float,
    ) -> None:
        self.targets, self.w2, self.w1, self.starts, self.twins = targets, w2, w1, starts, twins
        self.probe, self.momentum = probe, momentum
        self.control, self.cells = StepSize(), targets.cells
        self.twin_models: list[State] = []

    def reweigh(self, models: list[State]) -> bool:
        """The pilot's weights serve for pairs: weights that follow the fit made no measurable difference."""
        return False

    def dependence(self, models: list[State], product: State) -> tuple[float, float]:
        """chi^2 as a function of the share s of dependence that is kept is constant + s cross + s^2 square."""
        start = self.starts[0]
        flat = start.pairs(product)
        gap = np.mean([start.pairs(state) for state in models], axis=0) - flat
        flat -= self.targets.pairs
        return float(np.vdot(self.w2 * gap, flat)), 0.5 * float(np.vdot(self.w2 * gap, gap))

    def chi2_alone(self, state: State) -> float:
        """chi^2 of a state with the variances at itself."""
        pair = self.starts[0].pairs(state)
        return chi_square(
            self.targets, inverse_variances(self.targets, pair, state.one), pair, state.one
        )

    def advance(self, check: bool) -> tuple[list[State], float, float]:
        """One step; gives the models before it and, on a check, chi^2 of their average and its degrees of freedom."""
        t, count = self.targets, len(self.starts)
        mean2, mean1 = np.zeros_like(t.pairs) if check else t.pairs, np.zeros(t.columns.width)
        followed: list[float] = []
        loss, steepest = 0.0, 0.0
        moves: list[tuple[Descent, Gradient]] = []
        models: list[State] = []
        for s, start in enumerate(self.starts):
            state = start.model()
            pair, one = start.pairs(state), state.one
            models.append(state)
            if check:
                mean2 += pair / count
                mean1 += one / count
            if s < len(self.twins):
                twin, probe = self.twins[s]
                twin_state = twin.model()
                twin_pair, twin_one = twin.pairs(twin_state), twin_state.one
                if check and isinstance(probe, DrawnProbe):
                    followed.append(probe.followed(twin_pair - pair, twin_one - one))
                twin_pair -= probe.pairs
                twin_pair *= self.w2
                pull1 = self.w1 * (twin_one - probe.singles)
                moves.append((twin, twin.pair_gradient(twin_state, twin_pair, pull1)))
            pair -= t.pairs
            pull, pull1 = self.w2 * pair, self.w1 * (one - t.singles)
            loss += 0.5 * float(np.vdot(pull, pair)) + float(pull1 @ (one - t.singles))
            moves.append((start, start.pair_gradient(state, pull, pull1)))
            steepest = max(steepest, float(np.abs(moves[-1][1].logits).max()))
        chi2, df = 0.0, 0.0
        if check:
            # Now and then one twin leaves its start's path for a few steps, and is off by as much as all others together.
            df = float(np.median(followed)) / self.probe if followed else 0.0
            chi2 = chi_square(t, (self.w2, self.w1), mean2, mean1)
        restart = self.control.update(loss, steepest)
        for start, gradient in moves:
            start.step(gradient, self.control.size, self.momentum, restart)
        return models, chi2, df
