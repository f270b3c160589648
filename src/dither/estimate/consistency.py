"""Overlapping marginals made to agree on what they share.

Reference: Qardaji, Yang, Li, "PriView", SIGMOD 2014, section 4.2, as CALM (Zhang et al., CCS 2018) uses it: for every
intersection, smallest first, the weighted mean of the tables' views becomes the view of all of them, and each table takes up the
difference evenly. Later steps do not undo earlier ones, since the differences they spread add up to zero there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from dither.types import Floats

Table = tuple[tuple[str, ...], Floats]


def make_consistent(tables: Sequence[Table], weights: Sequence[float]) -> list[Table]:
    """Tables whose shared marginals agree, and whose totals are one; `weights` are inverse to a cell's variance."""
    current = [(attributes, np.array(table, dtype=np.float64)) for attributes, table in tables]
    for shared in _intersections([attributes for attributes, _ in current]):
        holding = [i for i, (attributes, _) in enumerate(current) if shared <= set(attributes)]
        order = tuple(sorted(shared))
        views = [_view(current[i], order) for i in holding]
        # A view that sums C cells has C times the variance of a cell, so C times less weight.
        strength = np.array([weights[i] * v.size / current[i][1].size for i, v in zip(holding, views, strict=True)])
        target = np.ones(()) if not order else sum(s * v for s, v in zip(strength, views, strict=True)) / strength.sum()
        for i, view in zip(holding, views, strict=True):
            current[i] = (current[i][0], _spread(current[i], order, np.asarray(target) - view))
    return current


def _intersections(sets: Sequence[tuple[str, ...]]) -> list[frozenset[str]]:
    """The empty set and every set that two or more tables share, closed under intersection, smallest first."""
    found: set[frozenset[str]] = {frozenset()}
    frontier = {frozenset(a) & frozenset(b) for a, b in combinations(sets, 2)}
    while frontier - found:
        found |= frontier
        frontier = {a & b for a, b in combinations(found, 2)}
    return sorted(found, key=lambda s: (len(s), sorted(s)))


def _view(table: Table, order: tuple[str, ...]) -> Floats:
    attributes, values = table
    kept = [a for a in attributes if a in order]
    summed = values.sum(axis=tuple(i for i, a in enumerate(attributes) if a not in order))
    return np.transpose(summed, [kept.index(a) for a in order]) if order else np.asarray(summed)


def _spread(table: Table, order: tuple[str, ...], difference: Floats) -> Floats:
    """Add a difference of the view evenly over the cells that make up each of its cells."""
    attributes, values = table
    share = difference * (difference.size / values.size)
    kept = [a for a in attributes if a in order]
    aligned = np.transpose(share, [order.index(a) for a in kept]) if order else share
    shape = [values.shape[i] if a in order else 1 for i, a in enumerate(attributes)]
    return values + aligned.reshape(shape)
