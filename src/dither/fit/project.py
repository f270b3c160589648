"""Projections of raw estimates onto distributions, each selected by name.

Reference: Wang, Lopuhaä-Zwakenberg, Li, Skoric, Li, "Locally differentially private frequency
estimation with consistency", NDSS 2020. Norm-Sub and Norm-Mul are named as there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import NormalDist

import numpy as np

from dither.checks import check_between, check_choice
from dither.types import Floats, Integers

# Passes of proportional fitting, and the change of a pass at which it ends.
MAX_PASSES = 500
SCALING_TOLERANCE = 1e-12


def _norm_mul(raw: Floats) -> Floats:
    """Negative frequencies become zero, the rest is scaled to add up to one."""
    kept = np.maximum(raw, 0.0)
    total = kept.sum()
    return kept / total if total > 0 else np.full_like(raw, 1.0 / raw.size)


def norm_sub(raw: Floats) -> Floats:
    """The nearest distribution in Euclidean distance: subtract one amount from all cells and clip at zero.

    Closed form by sorting (Duchi et al., ICML 2008); for estimates of equal variance it is the
    constrained maximum of the Gaussian likelihood.
    """
    flat = np.asarray(raw, dtype=np.float64).ravel()
    descending = np.sort(flat)[::-1]
    excess = (np.cumsum(descending) - 1.0) / np.arange(1, flat.size + 1)
    last = np.flatnonzero(descending - excess > 0)[-1]
    out: Floats = np.maximum(flat - excess[last], 0.0).reshape(np.shape(raw))
    return np.asarray(out / out.sum())


_PROJECTIONS: dict[str, Callable[[Floats], Floats]] = {
    "norm-sub": norm_sub,
    "norm-mul": _norm_mul,
}


def projection(name: str) -> Callable[[Floats], Floats]:
    """A projection by name."""
    return _PROJECTIONS[check_choice("projection", name, _PROJECTIONS)]


Table = tuple[tuple[str, ...], Floats]


def make_consistent(tables: Sequence[Table], weights: Sequence[float]) -> list[Table]:
    """Tables with equal shared marginals and sum one; `weights` are inverse variances of cells."""
    current = [(attributes, np.array(table, dtype=np.float64)) for attributes, table in tables]
    for shared in _intersections([attributes for attributes, _ in current]):
        holding = [i for i, (attributes, _) in enumerate(current) if shared <= set(attributes)]
        order = tuple(sorted(shared))
        views = [_view(current[i], order) for i in holding]
        # A view that sums C cells has C times the variance of a cell, so C times less weight.
        strength = np.array(
            [weights[i] * v.size / current[i][1].size for i, v in zip(holding, views, strict=True)]
        )
        target = (
            np.ones(())
            if not order
            else sum(s * v for s, v in zip(strength, views, strict=True)) / strength.sum()
        )
        for i, view in zip(holding, views, strict=True):
            current[i] = (current[i][0], _spread(current[i], order, np.asarray(target) - view))
    return current


def _intersections(sets: Sequence[tuple[str, ...]]) -> list[frozenset[str]]:
    """The empty set and all sets shared by two or more tables, smallest first."""
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


def normal_interval(
    frequencies: Floats, standard_errors: Floats, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Two-sided intervals for each cell, not clipped to [0, 1], so that they cover as stated."""
    check_between("level", level, 0, 1, ends="()")
    reach = NormalDist().inv_cdf((1 + level) / 2) * np.asarray(standard_errors)
    return frequencies - reach, frequencies + reach


def apportion(people: int, shares: Sequence[float] | Floats) -> Integers:
    """Whole numbers nearest to the shares that add up to `people` (largest remainders)."""
    ideal = np.asarray(shares, dtype=np.float64) * people
    whole = np.floor(ideal).astype(np.int64)
    short = people - int(whole.sum())
    whole[np.argsort(-(ideal - whole), kind="stable")[:short]] += 1
    return whole


def scale_to(table: Floats, targets: Mapping[tuple[int, ...], Floats]) -> Floats:
    """Scale a positive table until its sums over the other axes are the targets.

    Iterative proportional fitting (Deming and Stephan 1940). It ends with the pass that
    no longer changes the table, or after `MAX_PASSES`.
    """
    for _ in range(MAX_PASSES):
        before = table
        for axes, target in targets.items():
            others = tuple(axis for axis in range(table.ndim) if axis not in axes)
            sums = table.sum(axis=others, keepdims=True)
            factors = target.reshape(sums.shape) / np.maximum(sums, 1e-300)
            table = table * factors
        if np.abs(table - before).max() <= SCALING_TOLERANCE:
            break
    return table
