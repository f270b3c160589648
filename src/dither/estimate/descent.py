"""One start of the mixture's fit: logits of components, of weights and of the potentials of strong pairs, and how they move.

A strong pair of attributes is an edge. Every component's product A_c,i(u) A_c,j(v) of an edge i-j is multiplied by one table
psi(u, v), shared by all components of the start, and normalised per component:

    T_c(u, v) = A_c,i(u) psi(u, v) A_c,j(v) / Z_c

so that each component is a tree over disjoint edges and every marginal stays exact. B_c, the one-way marginals of T_c, take the
place of A_c wherever only one end of the edge is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dither.estimate.targets import Columns, Edges
from dither.types import Floats

ADAM_RATE, ADAM_MEAN, ADAM_SQUARE = 0.03, 0.9, 0.999


@dataclass(frozen=True)
class Tied:
    """An edge in all components: T_c(u, v) = first[c, u] psi[u, v] second[c, v]."""

    first: Floats
    psi: Floats
    second: Floats

    @property
    def tables(self) -> Floats:
        """(component, u, v)."""
        return np.asarray(self.first[:, :, None] * self.psi * self.second[:, None, :])

    def mean(self, weights: Floats) -> Floats:
        """The edge's table in the mixture."""
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


class Descent:
    """One start: its logits with their velocities."""

    def __init__(self, columns: Columns, logits: Floats, edges: Edges = (), potentials: Sequence[Floats] = ()) -> None:
        """`potentials` are the logarithms of psi to start from, one table per edge."""
        self.columns, self.edges = columns, edges
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
        for (i, j), potential in zip(self.edges, self.potentials, strict=True):
            first, second = factors[:, self.columns.of(i)], factors[:, self.columns.of(j)]
            psi = np.exp(potential - potential.max())
            reach = second @ psi.T
            scaled = first / np.einsum("cu,cu->c", first, reach)[:, None]
            components[:, self.columns.of(i)] = scaled * reach
            components[:, self.columns.of(j)] = second * (scaled @ psi)
            ties.append(Tied(scaled, psi, second))
        return State(raised / raised.sum(), factors, components, tuple(ties))

    def pairs(self, state: State) -> Floats:
        """The matrix of all pair marginals: B' diag(w) B, save the blocks of edges."""
        out = np.asarray((state.components.T * state.weights) @ state.components)
        for (i, j), tied in zip(self.edges, state.ties, strict=True):
            block = tied.mean(state.weights)
            out[self.columns.of(i), self.columns.of(j)] = block
            out[self.columns.of(j), self.columns.of(i)] = block.T
        return out

    def pair_gradient(self, state: State, pair_pull: Floats, single_pull: Floats) -> Gradient:
        """The gradient of a loss on the matrix of all pairs and on single marginals; the pull's blocks of edges are used up."""
        by_table, alone = [], []
        for (i, j), tied in zip(self.edges, state.ties, strict=True):
            pulled = tied.psi * pair_pull[self.columns.of(i), self.columns.of(j)]
            pair_pull[self.columns.of(i), self.columns.of(j)] = 0.0
            pair_pull[self.columns.of(j), self.columns.of(i)] = 0.0
            rows = tied.first * (tied.second @ pulled.T)
            columns = tied.second * (tied.first @ pulled)
            by_table.append(TableGradient(rows, columns, pulled * ((tied.first.T * state.weights) @ tied.second)))
            alone.append(rows.sum(axis=1))
        g = state.components @ pair_pull
        by_weight = 0.5 * np.einsum("cd,cd->c", g, state.components) + state.components @ single_pull
        for share in alone:
            by_weight += share
        g += single_pull
        return self.in_logits(state, g, by_weight, by_table)

    def in_logits(self, state: State, g: Floats, by_weight: Floats, by_table: Sequence[TableGradient] = ()) -> Gradient:
        """From a gradient in the probabilities `components` (each divided by its weight) and in the edges' tables."""
        out = g * state.components
        totals = self.columns.sums(out)
        potentials = []
        for (i, j), tied, table in zip(self.edges, state.ties, by_table, strict=True):
            at_i, at_j = self.columns.of(i), self.columns.of(j)
            total = totals[:, i] + totals[:, j] + table.rows.sum(axis=1)  # of T_c times its whole derivative
            g_first, g_second = tied.first * g[:, at_i], tied.second * g[:, at_j]
            across = tied.first.T * state.weights
            rows = out[:, at_i] + tied.first * (g_second @ tied.psi.T) + table.rows
            columns = out[:, at_j] + tied.second * (g_first @ tied.psi) + table.columns
            both = (g_first - total[:, None] * tied.first).T * state.weights @ tied.second + across @ g_second
            potentials.append(table.mean + tied.psi * both)
            out[:, at_i] = rows
            out[:, at_j] = columns
            totals[:, i] = totals[:, j] = total
        out -= state.components * self.columns.spread(totals)
        return Gradient(out, by_weight - float(state.weights @ by_weight), tuple(potentials))

    def step(self, gradient: Gradient, size: float, momentum: float, restart: bool) -> None:
        if restart:
            self.velocity[:] = 0.0
            self.weight_velocity[:] = 0.0
        self.velocity *= momentum
        # Neighbouring values of an ordered attribute learn alike.
        self.velocity -= size * self.columns.smooth(gradient.logits)
        self.weight_velocity = momentum * self.weight_velocity - (size / len(self.weight_logits)) * gradient.weights
        self.logits += self.velocity
        self.weight_logits += self.weight_velocity
        self.steps += 1
        for number, slope in enumerate(gradient.potentials):
            self._adam(number, slope)

    def _adam(self, number: int, slope: Floats) -> None:
        """A step of a potential at its own pace (Kingma and Ba, ICLR 2015): its cells' gradients differ a thousandfold."""
        self.mean[number] = ADAM_MEAN * self.mean[number] + (1.0 - ADAM_MEAN) * slope
        self.square[number] = ADAM_SQUARE * self.square[number] + (1.0 - ADAM_SQUARE) * slope * slope
        mean = self.mean[number] / (1.0 - ADAM_MEAN**self.steps)
        root = np.sqrt(self.square[number] / (1.0 - ADAM_SQUARE**self.steps))
        self.potentials[number] = self.potentials[number] - ADAM_RATE * mean / (root + 1e-8 * root.max() + 1e-300)


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
