"""Fit a junction tree to noisy marginals, all at once.

Reading each clique off its own noisy estimate wastes most of the reports. Here the tree's distribution is moved until
its marginals fit every measured marginal that lies in a clique, each cell weighted by its inverse variance:

    minimise  1/2 sum over measured cells of (P(cell) - y)^2 / variance   over distributions P of the tree.

References: McKenna, Sheldon, Miklau, "Graphical-model based estimation and inference for differential privacy", ICML
2019 (Private-PGM: mirror descent with belief propagation); acceleration by the interior gradient method of Auslender,
Teboulle, SIAM J. Optim. 2006, with a step size that is searched; early stopping by the discrepancy principle (Morozov
1966): a fit closer to the measurements than their known noise follows the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from dither.errors import ParameterError
from dither.estimate.marginal import Marginal
from dither.models.junction_tree import Calibration, JunctionTree, MessagePass, expand, sum_out
from dither.schema import Schema
from dither.structure.triangulate import Triangulation
from dither.types import AnyArray, Floats

_LEAST = 1e-9  # a starting cell is never exactly zero: multiplicative steps could not bring it back


STEEP = (
    0.05  # of the residual in five iterations: while it falls by more, there is something to learn
)


@dataclass(frozen=True)
class TreeFit:
    """A fitted tree and how the fit went; `discrepancy` is the weighted squared residual per measured cell, about 1 when
    the residual equals the known noise. `unused` counts measurements that lie in no clique."""

    model: JunctionTree
    iterations: int
    discrepancy: float
    stopped: str
    unused: int


@dataclass(frozen=True)
class _Measured:
    """The cells of all measurements in one clique, one after the other, and the sparse matrix that sums the clique's cells
    to them: one product reads them all, its transpose gathers their gradient. An entry for each measurement and cell of
    the clique, 12 bytes."""

    clique: int
    sums: csr_array
    gather: csr_array
    target: Floats
    weights: Floats

    def read(self, marginals: Sequence[Floats]) -> Floats:
        """What the clique's marginal says about the measured cells."""
        return np.asarray(self.sums @ marginals[self.clique].ravel())


def fit_tree(
    schema: Schema,
    tree: Triangulation,
    measurements: Sequence[Marginal],
    *,
    start: Sequence[AnyArray] | None = None,
    discrepancy: float = 1.0,
    least: float | None = None,
    tolerance: float = 1e-5,
    iterations: int = 1_000,
    progress: Callable[[int, float], None] | None = None,
) -> TreeFit:
    """The tree's distribution nearest to the measurements, from the product of one-way marginals `start` (even by
    default).

    Stops when the weighted squared residual has fallen to `discrepancy` times the number of measured cells (0: never) and, if
    `least` is given, no longer falls steeply or has fallen to `least` times it; when fifty iterations gain less than
    `tolerance` of it; or after `iterations`. What a fit has still to learn falls steeply, noise is followed slowly.
    """
    measured, unused = _place(schema, tree, measurements)
    messages = MessagePass(tree, schema.cardinalities)
    theta = _starting_potentials(schema, tree, start)
    state = messages.calibrate(theta)
    if not measured:
        return TreeFit(
            JunctionTree(schema, tree, _tidy(state.marginals)), 0, 0.0, "nothing measured", unused
        )
    cells = sum(p.target.size for p in measured)
    descent = _Descent(messages, measured, theta, state)
    history = [descent.residual]
    done, stopped = 0, "iterations"
    while done < iterations:
        if descent.residual <= (discrepancy if least is None else least) * cells or (
            descent.residual <= discrepancy * cells
            and history[-1] > (1 - STEEP) * history[-min(len(history), 6)]
        ):
            stopped = "discrepancy"
            break
        if done >= 50 and history[-51] - min(history[-50:]) < tolerance * history[-51]:
            stopped = "converged"
            break
        descent.step()
        history.append(descent.residual)
        done += 1
        if progress:
            progress(done, descent.residual / cells)
    model = JunctionTree(schema, tree, _tidy(descent.marginals))
    return TreeFit(model, done, descent.residual / cells, stopped, unused)


class _Descent:
    """The accelerated mirror descent: the iterate x, the mirror point z with its potentials, the step size."""

    def __init__(
        self,
        messages: MessagePass,
        measured: list[_Measured],
        theta: list[Floats],
        state: Calibration,
    ) -> None:
        self.messages, self.measured = messages, measured
        self.theta, self.mirror = theta, state
        self.marginals: tuple[Floats, ...] = state.marginals
        self.smoothness = float(max(p.weights.max() for p in measured)) / 16
        self.momentum = 1.0
        self.fitted = [p.read(state.marginals) for p in measured]
        self.mirror_fitted = self.fitted
        self.residual = self._loss(self.fitted)

    def _loss(self, fitted: list[Floats]) -> float:
        return float(
            sum(
                (p.weights * (m - p.target) ** 2).sum()
                for p, m in zip(self.measured, fitted, strict=True)
            )
        )

    def step(self) -> None:
        """One accelerated step; the step size shrinks until the quadratic bound holds, and grows a little each time."""
        self.smoothness /= 1.1
        a = self.momentum
        while True:
            between = [
                (1 - a) * x + a * z for x, z in zip(self.fitted, self.mirror_fitted, strict=True)
            ]
            gradient = self._gradient(between)
            theta = [
                t - g / (self.smoothness * a) for t, g in zip(self.theta, gradient, strict=True)
            ]
            mirror = self.messages.calibrate(theta)
            fitted = [p.read(mirror.marginals) for p in self.measured]
            moved = sum(
                float((p.weights * (n - o) ** 2).sum())
                for p, n, o in zip(self.measured, fitted, self.mirror_fitted, strict=True)
            )
            if moved / 2 <= self.smoothness * self._divergence(theta, mirror) * (1 + 1e-9) + 1e-12:
                break
            self.smoothness *= 2
        before = self.residual
        self.momentum = _next_momentum(a)
        self.theta, self.mirror, self.mirror_fitted = theta, mirror, fitted
        pairs = zip(self.marginals, mirror.marginals, strict=True)
        self.marginals = tuple((1 - a) * x + a * z for x, z in pairs)
        self.fitted = [(1 - a) * x + a * z for x, z in zip(self.fitted, fitted, strict=True)]
        self.residual = self._loss(self.fitted)
        if self.residual > before:
            self._restart()

    def _restart(self) -> None:
        """The momentum carried too far: begin again with the mirror point at the iterate's own distribution."""
        self.momentum = 1.0
        self.theta = _log_potentials(self.messages.tree, self.marginals)
        self.mirror = self.messages.calibrate(self.theta)
        self.mirror_fitted = [p.read(self.mirror.marginals) for p in self.measured]

    def _gradient(self, fitted: list[Floats]) -> list[Floats]:
        out = [np.zeros(shape) for shape in self.messages.shapes]
        for p, m in zip(self.measured, fitted, strict=True):
            out[p.clique] = (p.gather @ (p.weights * (m - p.target))).reshape(out[p.clique].shape)
        return out

    def _divergence(self, theta: list[Floats], new: Calibration) -> float:
        """Kullback-Leibler divergence of the new mirror point from the old one, from their potentials."""
        inner = sum(
            float(((a - b) * m).sum())
            for a, b, m in zip(theta, self.theta, new.marginals, strict=True)
        )
        return max(inner - new.log_normaliser + self.mirror.log_normaliser, 0.0)


def _next_momentum(a: float) -> float:
    """The b with b^2 = (1 - b) a^2: 1 at the start, then falling like 2/k."""
    return a * (math.sqrt(a * a + 4) - a) / 2


def _place(
    schema: Schema, tree: Triangulation, measurements: Sequence[Marginal]
) -> tuple[list[_Measured], int]:
    """Each measurement in the smallest clique that holds it."""
    sizes = tree.cells(schema.cardinalities)
    order = sorted(range(len(sizes)), key=lambda c: (sizes[c], c))
    placed: dict[int, list[tuple[tuple[int, ...], Marginal]]] = {}
    unused = 0
    for m in measurements:
        members = tuple(schema.index(name) for name in m.attributes)
        shape = tuple(schema.cardinalities[a] for a in members)
        if (
            m.frequencies.shape != shape
            or not np.isfinite(m.frequencies).all()
            or not np.isfinite(1 / m.variances).all()
        ):
            raise ParameterError(
                f"measurement of {m.attributes}: frequencies of shape {shape} with variances above 0 are needed"
            )
        holding = next((c for c in order if set(members) <= set(tree.cliques[c])), None)
        if holding is None:
            unused += 1
        else:
            placed.setdefault(holding, []).append((members, m))
    return [_measured(schema, tree, c, found) for c, found in placed.items()], unused


def _measured(
    schema: Schema,
    tree: Triangulation,
    clique: int,
    found: Sequence[tuple[tuple[int, ...], Marginal]],
) -> _Measured:
    scope = tree.cliques[clique]
    shape = tuple(schema.cardinalities[a] for a in scope)
    cells = math.prod(shape)
    codes = np.indices(shape, dtype=np.int32).reshape(len(scope), -1)
    rows, begin = [], 0
    for members, m in found:
        cell = np.ravel_multi_index([codes[scope.index(a)] for a in members], m.frequencies.shape)
        rows.append(begin + cell)
        begin += m.frequencies.size
    entries = (
        np.ones(cells * len(found)),
        (np.concatenate(rows), np.tile(np.arange(cells), len(found))),
    )
    sums = csr_array(entries, shape=(begin, cells))
    return _Measured(
        clique,
        sums,
        csr_array(sums.T),
        np.concatenate([np.asarray(m.frequencies, np.float64).ravel() for _, m in found]),
        np.concatenate([1.0 / m.variances.ravel() for _, m in found]),
    )


def _starting_potentials(
    schema: Schema, tree: Triangulation, start: Sequence[AnyArray] | None
) -> list[Floats]:
    """The logarithms of the one-way marginals, each in the first clique that holds its attribute."""
    theta = [np.zeros([schema.cardinalities[a] for a in clique]) for clique in tree.cliques]
    if start is None:
        return theta
    seen: set[int] = set()
    for c, clique in enumerate(tree.cliques):
        for a in clique:
            if a not in seen:
                seen.add(a)
                theta[c] += expand(np.log(np.maximum(start[a], _LEAST)), (a,), clique)
    return theta


def _log_potentials(tree: Triangulation, marginals: Sequence[Floats]) -> list[Floats]:
    """Potentials of the distribution that consistent clique marginals define: clique over separator."""
    out = []
    for clique, separator, table in zip(tree.cliques, tree.separators, marginals, strict=True):
        log = np.log(np.maximum(table, 1e-300))
        if separator:
            log = log - expand(
                np.log(np.maximum(sum_out(table, clique, separator), 1e-300)), separator, clique
            )
        out.append(log)
    return out


def _tidy(marginals: Sequence[Floats]) -> tuple[Floats, ...]:
    return tuple(np.maximum(m, 0.0) / m.sum() for m in marginals)
