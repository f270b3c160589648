"""How the bias of a model is spread over a pair's table: which directions err together, with the one-way marginals left alone.

Two sources tell. A fit that stops early or leaves dependence out does the same to people drawn from itself, so the errors of the
replicates show the directions, if not the size, of what the real fit left out. Where a model takes a pair as independent no
replicate shows anything; there the moves are products of one attribute's and the other's: each value on its own, and slow waves
along an ordered attribute, which ranges add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dither.models.grouped import add_up
from dither.schema import Attribute
from dither.types import Floats, Indices

# Share of an ordered attribute's moves that are slow waves, and how many there are; the square of a wave falls with its number.
SMOOTH, WAVES = 0.3, 4


@dataclass(frozen=True)
class Moves:
    """Random errors of a table's cells that leave its one-way marginals alone.

    Independent moves of variance `own` are made to add up to zero along every axis by spreading each line's sum over the line
    by the marginal.
    """

    own: Floats
    ones: tuple[Floats, ...]

    @property
    def _fixes(self) -> list[Floats]:
        return [np.eye(len(one)) - one[:, None] for one in self.ones]

    @cached_property
    def variances(self) -> Floats:
        """Of each cell."""
        out = self.own
        for axis, fix in enumerate(self._fixes):
            out = np.moveaxis(np.tensordot(out, fix**2, (axis, 1)), -1, axis)
        return np.asarray(out)

    def covariance(self, rows: Floats) -> Floats:
        """Of sums with a row of weights each, shaped like the table."""
        moved = rows
        for axis, fix in enumerate(self._fixes):
            moved = np.moveaxis(np.tensordot(moved, fix, (axis + 1, 0)), -1, axis + 1)
        flat = moved.reshape(len(rows), -1)
        return np.asarray((flat * self.own.ravel()) @ flat.T)


@dataclass(frozen=True)
class PairBias:
    """Random errors of a pair's table: along each of `lines`, and along every product of a move of the first attribute and one
    of the second (`first` and `second` have a row for each value and a column for each move)."""

    lines: Floats
    first: Floats
    second: Floats

    @cached_property
    def variances(self) -> Floats:
        """Of each cell."""
        return np.asarray(
            (self.lines**2).sum(axis=0) + np.outer((self.first**2).sum(axis=1), (self.second**2).sum(axis=1))
        )

    def covariance(self, rows: Floats, groups: Sequence[Indices]) -> Floats:
        """Of sums with a row of weights each, shaped like the table of grouped values."""
        every = [np.arange(len(self.lines)), *groups]
        along = rows.reshape(len(rows), -1) @ add_up(self.lines, every).reshape(len(self.lines), -1).T
        first, second = (add_up(moves.T, [np.arange(moves.shape[1]), group]).T for moves, group in self._axes(groups))
        products = np.tensordot(np.tensordot(rows, first, (1, 0)), second, (1, 0)).reshape(len(rows), -1)
        return np.asarray(along @ along.T + products @ products.T)

    def _axes(self, groups: Sequence[Indices]) -> Sequence[tuple[Floats, Indices]]:
        return list(zip((self.first, self.second), groups, strict=True))

    def times(self, factor: float) -> PairBias:
        """The same errors with their squares multiplied."""
        root = np.sqrt(factor)
        return PairBias(root * self.lines, root * self.first, self.second)

    def strongest(self, noise: Floats, most: int | None) -> Floats:
        """The lines, and the products, or those that stand out most against cells' noise of these variances."""
        sizes = (self.first**2).T @ (1 / noise) @ self.second**2
        kept = np.unravel_index(np.argsort(-sizes, axis=None)[:most], sizes.shape)
        products = self.first.T[kept[0], :, None] * self.second.T[kept[1], None, :]
        return np.concatenate([self.lines, products])


def pair_bias(attributes: Sequence[Attribute], fitted: Floats, refits: Floats, spread: float) -> PairBias:
    """Errors of a pair's table as large as those of the refits in its dependence, and along products of moves so large that their
    squares add up to `spread`."""
    errors = departures(refits) - departures(fitted[None])
    ones = (fitted.sum(axis=1), fitted.sum(axis=0))
    first, second = (moves_of(attribute, one) for attribute, one in zip(attributes, ones, strict=True))
    root = np.sqrt(spread / max(float((first**2).sum() * (second**2).sum()), 1e-300))
    return PairBias(errors / np.sqrt(len(refits)), root * first, second)


def departures(tables: Floats) -> Floats:
    """What tables have beyond the products of their one-way marginals."""
    return np.asarray(tables - tables.sum(axis=2)[:, :, None] * tables.sum(axis=1)[:, None, :])


def moves_of(attribute: Attribute, one: Floats) -> Floats:
    """The moves of an attribute's values, a column each, that add up to zero: of each value on its own with the variance of a
    share, and slow waves over the ranks of an ordered attribute."""
    alone = (np.eye(len(one)) - one[:, None]) * np.sqrt(one)
    if not attribute.ordered or attribute.answers <= WAVES:
        return alone
    real = np.where(np.arange(len(one)) < attribute.answers, one, 0.0)
    ranks = (np.cumsum(real) - real / 2) / max(float(real.sum()), 1e-300)
    numbers = np.arange(1, WAVES + 1)
    waves = real[:, None] * np.cos(np.pi * numbers * ranks[:, None])
    waves -= one[:, None] * waves.sum(axis=0)
    waves *= np.sqrt((len(one) - 1) * 2 / numbers**2 / (1 / numbers**2).sum())
    return np.concatenate([np.sqrt(1 - SMOOTH) * alone, np.sqrt(SMOOTH) * waves], axis=1)
