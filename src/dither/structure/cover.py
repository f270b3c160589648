"""Attribute sets that cover every pair, so that any pair can be read off some set's answers.

Reference: CALM (Zhang, Wang, Li, He, Chen, "CALM: consistent adaptive local marginal for marginal release under local
differential privacy", CCS 2018), section 4.3: covering designs, and the choice of the sets' size by predicted noise. The
greedy cover works on cells, since attributes of unlike widths make the number of attributes in a set a poor measure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

from dither.errors import ParameterError

Set = tuple[int, ...]


def cover_pairs(cardinalities: Sequence[int], most_cells: int, most_attributes: int | None = None) -> list[Set]:
    """Sets of at most `most_cells` cells that together hold every pair; a pair wider than that is a set of its own.

    Greedy: begin with the widest pair not yet covered, add the attribute that covers the most new pairs (ties: the
    narrower, then the lower number) while it fits and covers any.
    """
    d = len(cardinalities)
    if most_cells < 2 or (most_attributes is not None and most_attributes < 2):
        raise ParameterError("a covering set needs at least two cells and two attributes", where="marginal_cells")
    if d == 1:
        return [(0,)]
    open_pairs = set(combinations(range(d), 2))
    out: list[Set] = []
    while open_pairs:
        first = max(open_pairs, key=lambda p: (cardinalities[p[0]] * cardinalities[p[1]], -p[0], -p[1]))
        chosen = set(first)
        while most_attributes is None or len(chosen) < most_attributes:
            cells = math.prod(cardinalities[a] for a in chosen)
            gains = {
                a: sum((min(a, b), max(a, b)) in open_pairs for b in chosen)
                for a in range(d)
                if a not in chosen and cells * cardinalities[a] <= most_cells
            }
            best = max(gains, key=lambda a: (gains[a], -cardinalities[a], -a), default=None)
            if best is None or gains[best] == 0:
                break
            chosen.add(best)
        members = tuple(sorted(chosen))
        open_pairs -= set(combinations(members, 2))
        out.append(members)
    return out


def pair_noise(
    cardinalities: Sequence[int],
    sets: Sequence[Set],
    shares: Sequence[float],
    unit_variance: Callable[[int], float],
) -> float:
    """The mean over all pairs of the expected L1 noise of a pair read off the sets, for one participant in all.

    A set of c cells that gets a share w has a variance of unit_variance(c) / w a cell, times the cells summed into one;
    sets that hold the same pair pool by inverse variance. k cells of standard error s have an L1 norm near k s.
    """
    total = 0.0
    pairs = list(combinations(range(len(cardinalities)), 2))
    for i, j in pairs:
        cells = cardinalities[i] * cardinalities[j]
        precision = 0.0
        for members, share in zip(sets, shares, strict=True):
            if i in members and j in members and share > 0:
                whole = math.prod(cardinalities[a] for a in members)
                precision += share / (unit_variance(whole) * (whole // cells))
        total += cells / math.sqrt(precision) if precision > 0 else math.inf
    return total / len(pairs) if pairs else 0.0
