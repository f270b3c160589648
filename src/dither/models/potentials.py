"""Belief propagation on a junction tree: log-potentials of the cliques to the cliques' marginals.

References: Lauritzen, Spiegelhalter, JRSS B 1988; the two passes (towards the root, back to the leaves) as in Koller,
Friedman, "Probabilistic graphical models", 2009, algorithm 10.3. Everything is done on logarithms, so potentials of
any size are safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.structure.triangulate import Triangulation
from dither.types import Floats


def sum_out(table: npt.NDArray[Any], scope: Sequence[int], keep: Sequence[int]) -> npt.NDArray[Any]:
    """The marginal of some of a table's attributes, axes in the order of `keep`."""
    left = [a for a in scope if a in set(keep)]
    axes = tuple(i for i, a in enumerate(scope) if a not in set(keep))
    summed = table.sum(axis=axes) if axes else table
    return np.transpose(summed, [left.index(a) for a in keep])


def expand(table: npt.NDArray[Any], scope: Sequence[int], target: Sequence[int]) -> npt.NDArray[Any]:
    """A view of a table over `scope`, which lies in `target`, that broadcasts against tables over `target`."""
    order = [scope.index(a) for a in target if a in set(scope)]
    moved = np.transpose(table, order)
    sizes = iter(moved.shape)
    return moved.reshape([next(sizes) if a in set(scope) else 1 for a in target])


@dataclass(frozen=True)
class Calibrated:
    """The marginal of each clique under a set of potentials, and the log of their normaliser."""

    marginals: tuple[Floats, ...]
    log_normaliser: float


@dataclass(frozen=True)
class Passing:
    """How messages go between the cliques of one tree over attributes with these cardinalities."""

    tree: Triangulation
    cardinalities: tuple[int, ...]

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each clique's table."""
        return tuple(tuple(self.cardinalities[a] for a in clique) for clique in self.tree.cliques)

    @cached_property
    def _separators(self) -> tuple[tuple[int, ...], ...]:
        return self.tree.separators

    def log_sum(self, table: Floats, clique: int, keep: tuple[int, ...]) -> Floats:
        """log of the sum of exp over all attributes of a clique but `keep`, without overflow."""
        scope = self.tree.cliques[clique]
        axes = tuple(i for i, a in enumerate(scope) if a not in keep)
        top = table.max(axis=axes, keepdims=True)
        summed = np.log(np.exp(table - top).sum(axis=axes, keepdims=True)) + top
        # Cliques and separators are sorted, so the axes that are left are in the separator's order.
        return np.asarray(summed.reshape([self.cardinalities[a] for a in keep]))

    def calibrate(self, potentials: Sequence[Floats]) -> Calibrated:
        """Marginals of the distribution proportional to exp(sum of potentials); shared parts of cliques agree."""
        tree = self.tree
        beliefs = [np.array(p, dtype=np.float64) for p in potentials]
        upward: list[Floats] = [np.zeros(()) for _ in beliefs]
        for c in range(len(beliefs) - 1, 0, -1):
            separator, parent = self._separators[c], tree.parents[c]
            upward[c] = self.log_sum(beliefs[c], c, separator)
            beliefs[parent] += expand(upward[c], separator, tree.cliques[parent])
        normaliser = float(self.log_sum(beliefs[0], 0, ()))
        beliefs[0] -= normaliser
        for c in range(1, len(beliefs)):
            separator, parent = self._separators[c], tree.parents[c]
            message = self.log_sum(beliefs[parent], parent, separator) - upward[c]
            beliefs[c] += expand(message, separator, tree.cliques[c])
        return Calibrated(tuple(np.exp(b) for b in beliefs), normaliser)
