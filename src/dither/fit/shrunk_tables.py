"""Noisy pair tables shrunk cell by cell, with a prior that each table's own cells show.

A cell's frequency is taken as a multiple of the product of its one-way frequencies. The prior of
the multiples is the distribution on a grid that makes the table likeliest (Robbins 1956; Kiefer
and Wolfowitz 1956), among those under which the table adds up to one. A table with a few large
cells, as of two columns that copy each other, is shrunk to those, because the prior puts nearly
all its mass on zero; a smooth table is shrunk towards the product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from dither.fit.junction_tree import JunctionTree
from dither.fit.mixture.targets import PairTargets
from dither.fit.project import norm_sub
from dither.fit.residuals import Pair
from dither.fit.triangulate import triangulate_capped
from dither.schema import Schema
from dither.types import Floats


@dataclass(frozen=True)
class _ShrinkSettings:
    """Numerical settings: a finer grid and more steps cost time and change little."""

    # Multiples on the grid, beside zero.
    multiples: int = 24
    # The least positive multiple. Cells so small differ from empty ones by less than noise.
    smallest: float = 0.1
    # Tables of fewer cells do not show a prior, and those of more take too long. They are
    # projected to distributions instead.
    min_cells: int = 64
    max_cells: int = 100_000
    # Steps for the likeliest prior, and the change at which they end.
    steps: int = 60
    tolerance: float = 1e-6
    # Halvings of the interval that holds the tilt to a total of one.
    halvings: int = 25


SETTINGS = _ShrinkSettings()
_MIN_VARIANCE, _MIN_SHARE = 1e-12, 1e-3
_EQUATION_WEIGHT = 100.0
_MAX_TILT = 1e7


def shrunk_table(
    table: Floats,
    product: Floats,
    noise: tuple[float, float, float],
    prior: Floats | None = None,
) -> tuple[Floats, Floats, Floats]:
    """The posterior mean and variance of every cell of a noisy pair table.

    Args:
        table: Unbiased frequencies.
        product: The products of the one-way frequencies.
        noise: c0, c1, c2: a cell of frequency f has variance c0 + c1 f - c2 f^2.
        prior: Of the multiples; by default the likeliest one.

    Returns:
        A distribution over the cells, their variances, and the prior.
    """
    grid = np.geomspace(SETTINGS.smallest, 2.0 * max(table.shape), SETTINGS.multiples)
    least = _MIN_SHARE / table.size
    expected = np.maximum(product.ravel(), least)[:, None] * np.append(0.0, grid)
    c0, c1, c2 = noise
    variance = c0 + expected * (c1 - c2 * np.minimum(expected, 1.0))
    variance = np.maximum(variance, _MIN_VARIANCE)
    log = -0.5 * (np.log(variance) + (table.ravel()[:, None] - expected) ** 2 / variance)
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    if prior is None:
        prior = _likeliest(likelihood, expected.sum(axis=0) - 1.0)
    mean, spread = _given_total(np.log(np.maximum(likelihood * prior, 1e-300)), expected)
    return mean.reshape(table.shape), spread.reshape(table.shape), prior


def _given_total(log: Floats, expected: Floats) -> tuple[Floats, Floats]:
    """Posterior means and variances of the cells, given that they add up to one.

    By the saddle point approximation every cell's posterior is tilted by exp(-t f), with one t
    for all cells. Cells that the data fix hardly move, so the rest takes what is left.
    """

    def tilted(t: float) -> tuple[Floats, Floats]:
        moved = log - t * expected
        weights = np.exp(moved - moved.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mean = (weights * expected).sum(axis=1)
        return mean, (weights * (expected - mean[:, None]) ** 2).sum(axis=1)

    low, high = -1.0, 1.0
    while tilted(low)[0].sum() < 1.0 and low > -_MAX_TILT:
        low *= 8.0
    while tilted(high)[0].sum() > 1.0 and high < _MAX_TILT:
        high *= 8.0
    for _ in range(SETTINGS.halvings):
        middle = (low + high) / 2.0
        low, high = (middle, high) if tilted(middle)[0].sum() > 1.0 else (low, middle)
    mean, spread = tilted(high)
    return mean / mean.sum(), spread


def _with_singles(table: Floats, spread: Floats, targets: PairTargets, pair: Pair) -> Floats:
    """A shrunk table with the answers to single questions: each line moves towards its own.

    The gain is that of two estimates weighted by their precisions.
    """
    columns = targets.columns
    for axis, attribute in enumerate(pair):
        at = columns.of(attribute)
        s0, s1, s2 = (float(c[attribute]) for c in targets.single_noise)
        if not s1 > 0:
            continue
        line = table.sum(axis=1 - axis)
        alone = np.maximum(s0 + line * (s1 - s2 * line), _MIN_VARIANCE)
        own = spread.sum(axis=1 - axis)
        gain = own / (own + alone)
        wanted = np.maximum(line + gain * (targets.singles[at] - line), 0.0)
        factors = np.expand_dims(wanted / np.maximum(line, 1e-300), 1 - axis)
        table = table * factors
        spread = spread * np.expand_dims(1.0 - gain, 1 - axis)
    return np.asarray(table / table.sum())


def _likeliest(likelihood: Floats, excess: Floats) -> Floats:
    """The prior that maximises the likelihood, with no excess of the table's total over one.

    Sequential quadratic programming (as mixsqp: Kim, Carbonetto, Stephens, Anitescu, 2020):
    each step minimises the second-order expansion of the loss over nonnegative priors, where
    the two equations are rows of great weight.
    """
    cells, size = likelihood.shape
    rows = _EQUATION_WEIGHT * np.stack([np.ones(size), excess / np.abs(excess).max()])
    wanted = np.array([_EQUATION_WEIGHT, 0.0])

    def loss(prior: Floats) -> float:
        equations = 0.5 * float(((rows @ prior - wanted) ** 2).sum())
        return equations - float(np.log(np.maximum(likelihood @ prior, 1e-300)).mean())

    # The two ends of the grid that give a total of one, and a little of everything.
    high = -excess[0] / (excess[-1] - excess[0])
    prior = np.full(size, 0.01 / size)
    prior[0] += 0.99 * (1.0 - high)
    prior[-1] += 0.99 * high
    for _ in range(SETTINGS.steps):
        scaled = likelihood / np.maximum(likelihood @ prior, 1e-300)[:, None]
        curvature = scaled.T @ scaled / cells + rows.T @ rows
        curvature[np.diag_indices(size)] += 1e-9 * float(np.trace(curvature)) / size
        pull = 2.0 * scaled.mean(axis=0) + rows.T @ wanted
        root = np.linalg.cholesky(curvature).T
        found, _ = nnls(root, np.linalg.solve(root.T, pull))
        before, length = loss(prior), 1.0
        while loss(prior + length * (found - prior)) > before and length > 1e-6:
            length /= 2.0
        step = length * (found - prior)
        prior = prior + step
        if float(np.abs(step).sum()) < SETTINGS.tolerance:
            break
    return np.asarray(np.maximum(prior, 0.0) / np.maximum(prior, 0.0).sum())


def shrunk_forest(
    schema: Schema,
    targets: PairTargets,
    forest: Sequence[Pair],
    priors: Mapping[Pair, Floats] | None = None,
) -> tuple[JunctionTree, dict[Pair, Floats]]:
    """The model of a forest of pairs whose tables are shrunk, and the tables' priors.

    Args:
        schema: The attributes.
        targets: The data.
        forest: Pairs without a cycle.
        priors: The tables' priors; by default the likeliest ones.
    """
    columns = targets.columns
    tree = triangulate_capped(
        schema.cardinalities, dict.fromkeys(forest, 1.0), max(schema.cardinalities) ** 2
    )
    used: dict[Pair, Floats] = {}
    tables = []
    for clique in tree.cliques:
        if len(clique) == 1:
            tables.append(targets.one[columns.of(clique[0])])
            continue
        i, j = clique
        product = np.outer(targets.one[columns.of(i)], targets.one[columns.of(j)])
        c0, c1, c2 = (float(c[i, j]) for c in targets.pair_noise)
        table = targets.pairs[columns.of(i), columns.of(j)]
        if not SETTINGS.min_cells <= table.size <= SETTINGS.max_cells:
            tables.append(norm_sub(table))
            continue
        known = None if priors is None else priors[i, j]
        shrunk, spread, used[i, j] = shrunk_table(table, product, (c0, c1, c2), known)
        tables.append(_with_singles(shrunk, spread, targets, (i, j)))
    return JunctionTree.from_cliques(schema, tree, tables), used
