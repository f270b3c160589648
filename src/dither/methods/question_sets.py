"""Pairs in which dependence could be detected, and sets where one report tells more than a pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from dither.mechanisms import best
from dither.types import Floats

Pair = tuple[int, int]
Members = tuple[int, ...]


@dataclass(frozen=True)
class _SetSettings:
    """Tuned constants of pairs and sets."""

    # Standard deviations by which complete dependence must exceed noise for a pair to be asked,
    # with this share of the participants in the pilot.
    detection_z: float = 3.0
    detection_share: float = 0.15
    # A set grows by an attribute if that multiplies a report's information on its pairs by this.
    gain: float = 1.15
    # Largest product domain of a set.
    max_cells: int = 2048
    # Sets are added until each pair has the information of this many direct questions.
    covers: int = 6
    max_sets: int = 3000


SETTINGS = _SetSettings()


@lru_cache(maxsize=65536)
def marginal_variance(cells: int, kept: int, epsilon: float) -> float:
    """Variance of a cell from one report on `cells` cells, summed to `kept` equally likely ones."""
    f = 1.0 / kept
    return best(cells, epsilon).group_variance(cells // kept, f, 1) + f * (1 - f)


def detectable_pairs(cardinalities: Sequence[int], people: int, epsilon: float) -> list[Pair]:
    """The pairs in which complete dependence would stand out in a pilot.

    Two attributes that determine each other are min(k, m) - 1 over k m from independence,
    squared; the null standard deviation is sqrt(2 (k-1)(m-1)) v / n with v the variance of a
    cell from one report. Pairs are added from those that need the fewest people, as long as
    each has enough when the pilot is shared by the roots of the cells.
    """
    k = np.asarray(cardinalities, dtype=np.float64)
    pairs = np.array(list(combinations(range(len(k)), 2)), dtype=np.intp).reshape(-1, 2)
    if not len(pairs):
        return []
    i, j = pairs.T
    cells, degrees = k[i] * k[j], (k[i] - 1) * (k[j] - 1)
    complete = (np.minimum(k[i], k[j]) - 1) / cells
    variance = np.array([marginal_variance(int(c), int(c), epsilon) for c in cells])
    needed = SETTINGS.detection_z * np.sqrt(2 * degrees) * variance / np.maximum(complete, 1e-300)
    order = np.argsort(needed, kind="stable")
    roots = np.sqrt(cells[order])
    given = SETTINGS.detection_share * people * roots / np.cumsum(roots)
    enough = np.flatnonzero((given >= needed[order]) & (complete[order] > 0))
    count = int(enough.max()) + 1 if len(enough) else 0
    return sorted((int(a), int(b)) for a, b in pairs[order[:count]])


def informative_sets(
    pairs: Sequence[Pair], cardinalities: Sequence[int], epsilon: float
) -> list[Members]:
    """Sets of three attributes or more that cover the pairs evenly; none if pairs tell more."""
    attributes = sorted({a for pair in pairs for a in pair})
    narrow = sorted(attributes, key=lambda a: (cardinalities[a], a))[:3]
    if len(narrow) < 3 or math.prod(cardinalities[a] for a in narrow) > SETTINGS.max_cells:
        return []
    if sum(w for *_, w in _worths(narrow, cardinalities, epsilon)) < SETTINGS.gain:
        return []
    d = len(cardinalities)
    cover = np.full((d, d), np.inf)
    for pair in pairs:
        cover[pair] = 0.0
    # Breaks ties between equally covered pairs; the menu is a function of public facts.
    rng = np.random.default_rng(0)
    sets: list[Members] = []
    most = min(SETTINGS.covers * len(pairs), SETTINGS.max_sets)
    while cover.min() < SETTINGS.covers and len(sets) < most:
        start = divmod(int((cover + 1e-3 * rng.random((d, d))).argmin()), d)
        members = _grown_set(list(start), attributes, cardinalities, epsilon, cover, rng)
        for a, b, worth in _worths(members, cardinalities, epsilon):
            cover[a, b] += worth
        sets.append(tuple(sorted(members)))
    larger = list(dict.fromkeys(s for s in sets if len(s) > 2))
    return larger if 2 * sum(len(s) > 2 for s in sets) >= len(sets) else []


def _worths(
    members: Sequence[int], cardinalities: Sequence[int], epsilon: float
) -> list[tuple[int, int, float]]:
    """Information of a report about a set on each of its pairs, in reports about that pair."""
    cells = math.prod(cardinalities[a] for a in members)
    found = []
    for a, b in combinations(sorted(members), 2):
        kept = cardinalities[a] * cardinalities[b]
        alone = marginal_variance(kept, kept, epsilon)
        found.append((a, b, alone / marginal_variance(cells, kept, epsilon)))
    return found


def _grown_set(
    chosen: list[int],
    attributes: Sequence[int],
    cardinalities: Sequence[int],
    epsilon: float,
    cover: Floats,
    rng: np.random.Generator,
) -> list[int]:
    """Add attributes, least covered pairs first, while each adds enough information."""
    information, least = 1.0, float(cover.min())
    while True:
        found: tuple[float, int, float] | None = None
        cells = math.prod(cardinalities[a] for a in chosen)
        for candidate in rng.permutation(np.asarray(attributes))[:16].tolist():
            if candidate in chosen or cells * cardinalities[candidate] > SETTINGS.max_cells:
                continue
            worths = _worths([*chosen, candidate], cardinalities, epsilon)
            total = sum(w for *_, w in worths)
            if total < SETTINGS.gain * information:
                continue
            need = sum(w / (0.25 + cover[a, b] - least) for a, b, w in worths)
            if found is None or need > found[0]:
                found = (need, candidate, total)
        if found is None:
            return chosen
        chosen = [*chosen, found[1]]
        information = found[2]
