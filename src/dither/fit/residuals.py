"""Squared distances of noisy pair tables from predicted ones, and forests of the strongest pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dither.fit.mixture.targets import PairTargets
from dither.fit.project import norm_sub
from dither.schema import Schema
from dither.types import Floats

Pair = tuple[int, int]  # of attributes by position, the lower number first


@dataclass(frozen=True)
class Residuals:
    """Squared distances of all pair tables from predicted ones, as (attribute, attribute).

    Attributes:
        excess: Unbiased: without the noise.
        noise: The mean square of the pairs' own noise.
        deviation: The standard deviation of `excess` if the prediction is right.
    """

    excess: Floats
    noise: Floats
    deviation: Floats

    @property
    def scores(self) -> Floats:
        return np.asarray(self.excess / self.deviation)


def residuals(targets: PairTargets, predicted: Floats, product: bool) -> Residuals:
    """Compare all pairs with predicted tables, both without row and column means.

    The null mean and variance are computed from the noise cell by cell. If the prediction is
    the `product` of the one-way marginals, their noise is added to first order: that of a
    along b and that of b along a.
    """
    columns, k = targets.columns, targets.columns.cardinalities.astype(np.float64)

    def blocks(matrix: Floats) -> Floats:
        return columns.sums(columns.sums(matrix).T).T

    def centred(matrix: Floats) -> Floats:
        rows = matrix - columns.spread(columns.sums(matrix) / k)
        means = columns.sums(rows.T).T / k[:, None]
        return np.asarray(rows - np.repeat(means, columns.cardinalities, axis=0))

    def squared_centring(matrix: Floats) -> Floats:
        # v -> (C o C) v with C the centring matrix: (1 - 2/k) v + sum(v) / k^2.
        spread = columns.spread(1.0 - 2.0 / k)
        return np.asarray(matrix * spread + columns.spread(columns.sums(matrix) / k**2))

    c0, c1, c2 = (columns.spread_pairs(c) for c in targets.pair_noise)
    noise = np.maximum(c0 + predicted * (c1 - c2 * predicted), 0.0)
    energy = blocks(centred(targets.pairs - predicted) ** 2)
    mean = np.outer(1.0 - 1.0 / k, 1.0 - 1.0 / k) * blocks(noise)
    pair_noise = mean.copy()
    square = blocks(noise * squared_centring(squared_centring(noise).T).T)
    if product:
        length = columns.sums((targets.one - columns.spread(1.0 / k)) ** 2)
        variance = (k - 1) * columns.sums(targets.one_variance) / k
        line = np.outer(variance, length)
        extra = line + line.T + np.outer(variance, variance)
        ends = line**2 / np.maximum(k - 1, 1.0)[:, None]
        square += ends + ends.T + 2 * blocks(noise) / np.outer(k, k) * extra
        # Sampling noise is negatively correlated between cells.
        sampling = targets.pair_noise[2] * np.outer(length, length)
        mean += extra - sampling
    deviation = np.sqrt(2.0 * np.maximum(square, 1e-300))
    return Residuals(energy - mean, np.maximum(pair_noise, 1e-300), deviation)


def low_frequencies(schema: Schema, targets: PairTargets, pair: Pair) -> tuple[float, float] | None:
    """Energy of the 2 x 2 lowest cosine contrasts of two ordered attributes, and their variance.

    A smooth dependence of two ordered attributes is in few contrasts, which a test of all
    cells dilutes. None unless both are ordered with more than four values.
    """
    waves = []
    for a in pair:
        attribute = schema.attributes[a]
        if not attribute.ordered or attribute.answers <= 4:
            return None
        place = (np.arange(attribute.answers) + 0.5) / attribute.answers
        wave = np.zeros((2, attribute.cardinality))
        for order in (1, 2):
            cosine = np.cos(np.pi * order * place)
            wave[order - 1, : attribute.answers] = math.sqrt(2 / attribute.answers) * cosine
        waves.append(wave)
    rows, columns = (targets.columns.of(a) for a in pair)
    residual = targets.pairs[rows, columns] - np.outer(targets.one[rows], targets.one[columns])
    f = 1.0 / residual.size
    c0, c1, c2 = (float(c[pair]) for c in targets.pair_noise)
    contrasts = waves[0] @ residual @ waves[1].T
    return float((contrasts**2).sum()), c0 + c1 * f - c2 * f * f


def strongest_forest(strength: dict[Pair, float], attributes: int) -> list[Pair]:
    """The pairs without a cycle of largest total strength (Chow, Liu 1968)."""
    tree = list(range(attributes))
    forest = []
    for i, j in sorted(strength, key=lambda pair: (-strength[pair], pair)):
        if tree[i] != tree[j]:
            forest.append((i, j))
            old, new = tree[j], tree[i]
            tree = [new if t == old else t for t in tree]
    return forest


def forest_pairs(targets: PairTargets, forest: Sequence[Pair], found: Residuals) -> Floats:
    """All pair tables of a forest; the table of an edge is shrunk towards independence.

    An edge's difference from the product is scaled by its unbiased squared length over the
    observed one (James, Stein 1961).
    """
    columns = targets.columns
    out = np.outer(targets.one, targets.one)
    given: dict[Pair, Floats] = {}
    near: dict[int, list[int]] = {}
    for i, j in forest:
        product = np.outer(targets.one[columns.of(i)], targets.one[columns.of(j)])
        difference = targets.pairs[columns.of(i), columns.of(j)] - product
        kept = float(found.excess[i, j]) / max(float((difference**2).sum()), 1e-300)
        table = norm_sub(product + min(1.0, max(0.0, kept)) * difference)
        for a, b, joint in ((i, j, table), (j, i, table.T)):
            given[a, b] = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
            near.setdefault(a, []).append(b)
    for root in near:
        waiting = [(root, -1, np.diag(targets.one[columns.of(root)]))]
        while waiting:
            at, before, joint = waiting.pop()
            for other in near[at]:
                if other != before:
                    further = joint @ given[at, other]
                    out[columns.of(root), columns.of(other)] = further
                    waiting.append((other, at, further))
    return np.asarray((out + out.T) / 2)
