"""How the bias of a model is spread over a pair's table: which directions err together, with the one-way marginals left alone.

Two sources tell. A fit that stops early or leaves dependence out does the same to people drawn from itself, so the errors of the
replicates show the directions, if not the size, of what the real fit left out. Where a model takes a pair as independent no
replicate shows anything; there the moves are products of one attribute's and the other's, each value on its own. Slow waves along
an ordered attribute, which ranges add up, are too few for the residuals to tell their size from the noise, so that it is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dither.models.grouped import add_up
from dither.schema import Attribute
from dither.types import Floats, Indices

WAVES = 4  # slow waves of an ordered attribute; the square of a wave falls with that of its number


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


Products = tuple[
    Floats, Floats
]  # moves of the first and of the second attribute: a row for each value, a column for each move


@dataclass(frozen=True)
class PairBias:
    """Random errors of a pair's table: along each of `lines`, and along every product of a move of the first attribute and one
    of the second, of `values` on their own and of `waves`."""

    lines: Floats
    values: Products
    waves: Products

    @cached_property
    def variances(self) -> Floats:
        """Of each cell."""
        out = (self.lines**2).sum(axis=0)
        for first, second in (self.values, self.waves):
            out = out + np.outer((first**2).sum(axis=1), (second**2).sum(axis=1))
        return np.asarray(out)

    def covariance(self, rows: Floats, groups: Sequence[Indices]) -> Floats:
        """Of sums with a row of weights each, shaped like the table of grouped values."""
        every = [np.arange(len(self.lines)), *groups]
        along = [
            rows.reshape(len(rows), -1) @ add_up(self.lines, every).reshape(len(self.lines), -1).T
        ]
        for products in (self.values, self.waves):
            first, second = (
                add_up(moves.T, [np.arange(moves.shape[1]), group]).T
                for moves, group in zip(products, groups, strict=True)
            )
            along.append(
                np.tensordot(np.tensordot(rows, first, (1, 0)), second, (1, 0)).reshape(
                    len(rows), -1
                )
            )
        return np.asarray(sum(part @ part.T for part in along))

    def times(self, factor: float) -> PairBias:
        """The same errors, the squares of all but the waves multiplied."""
        root = np.sqrt(factor)
        return PairBias(root * self.lines, (root * self.values[0], self.values[1]), self.waves)

    def strongest(self, noise: Floats, most: int | None) -> Floats:
        """The lines, and the products of values, or those that stand out most against cells' noise of these variances."""
        first, second = self.values
        sizes = (first**2).T @ (1 / noise) @ second**2
        kept = np.unravel_index(np.argsort(-sizes, axis=None)[:most], sizes.shape)
        products = first.T[kept[0], :, None] * second.T[kept[1], None, :]
        return np.concatenate([self.lines, products])


def pair_bias(
    attributes: Sequence[Attribute], fitted: Floats, refits: Floats, spread: float
) -> PairBias:
    """Errors of a pair's table as large as those of the refits in its dependence, and along products of single values' moves, and
    of slow waves if it has any, so large that the squares of either add up to `spread`."""
    errors = departures(refits) - departures(fitted[None])
    ones = (fitted.sum(axis=1), fitted.sum(axis=0))
    values = [moves_of(one) for one in ones]
    waves = [waves_of(attribute, one) for attribute, one in zip(attributes, ones, strict=True)]
    # Of two ordered attributes wave by wave, of one ordered attribute its waves with any value of the other.
    slowly = [wave if wave.size else move for wave, move in zip(waves, values, strict=True)]
    slow = spread if any(wave.size for wave in waves) else 0.0
    return PairBias(errors / np.sqrt(len(refits)), _sized(values, spread), _sized(slowly, slow))


def _sized(moves: Sequence[Floats], total: float) -> Products:
    """Moves of two attributes whose products' squares add up to a total."""
    first, second = moves
    root = np.sqrt(total / max(float((first**2).sum() * (second**2).sum()), 1e-300))
    return root * first, second


def departures(tables: Floats) -> Floats:
    """What tables have beyond the products of their one-way marginals."""
    return np.asarray(tables - tables.sum(axis=2)[:, :, None] * tables.sum(axis=1)[:, None, :])


def moves_of(one: Floats) -> Floats:
    """The moves of an attribute's values, a column each, that add up to zero: each on its own with the variance of a share."""
    return np.asarray((np.eye(len(one)) - one[:, None]) * np.sqrt(one))


def waves_of(attribute: Attribute, one: Floats) -> Floats:
    """Slow waves over the ranks of an ordered attribute, a column each, that add up to zero; none of others."""
    if not attribute.ordered or attribute.answers <= WAVES:
        return np.zeros((len(one), 0))
    real = np.where(np.arange(len(one)) < attribute.answers, one, 0.0)
    ranks = (np.cumsum(real) - real / 2) / max(float(real.sum()), 1e-300)
    numbers = np.arange(1, WAVES + 1)
    waves = real[:, None] * np.cos(np.pi * numbers * ranks[:, None])
    return np.asarray((waves - one[:, None] * waves.sum(axis=0)) / numbers)
