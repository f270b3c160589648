"""The greedy search for a Bayes network: attribute-parent pairs of the largest mutual information, one at a time.

Reference: Ju, Gu, Wu, Zhang, "Local differential privacy protection of high-dimensional perceptual data by the refined
Bayes network", Sensors 2020, algorithm 3 (random root, every candidate anew at each step) and algorithm 4 (the root of
largest entropy; after the first steps only candidates with the attribute just added, and the runner-up kept from the
step before).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from dither.checks import check_whole

Score = Callable[[int, tuple[int, ...]], float]
Fits = Callable[[int, tuple[int, ...]], bool]
Ahead = Callable[[Sequence[tuple[int, tuple[int, ...]]]], None]


@dataclass(frozen=True)
class Network:
    """Attributes in the order they were added, each with its parents and the mutual information with them.

    `computed` counts the mutual informations that the algorithm computes, a candidate as often as it comes up: the
    figure in which algorithms 3 and 4 differ.
    """

    order: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    information: tuple[float, ...]
    computed: int

    @property
    def total(self) -> float:
        """The sum of mutual information over all attribute-parent pairs."""
        return sum(self.information)

    def edges(self) -> set[tuple[int, int]]:
        """Which attributes are joined, whatever the direction."""
        return {(min(a, p), max(a, p)) for a, given in enumerate(self.parents) for p in given}


def search_network(
    d: int,
    degree: int,
    score: Score,
    root: int,
    *,
    cached: bool,
    fits: Fits = lambda a, given: True,
    ahead: Ahead | None = None,
) -> Network:
    """Add attributes one at a time with the parent set, of up to `degree` of those already in, that scores most.

    `cached=False` is algorithm 3, `cached=True` algorithm 4. A candidate that does not fit gives way to its subsets, and
    an attribute that has none left stands without parents. `ahead` is told each step's candidates before they are
    scored, so that a caller can compute them together. Ties go to the lower attribute numbers.
    """
    check_whole("degree", degree, 1, 4)
    chosen = [root]
    parents: dict[int, tuple[int, ...]] = {root: ()}
    information = {root: 0.0}
    computed = 0
    kept: dict[tuple[int, tuple[int, ...]], float] = {}
    newest = root
    while len(chosen) < d:
        left = [a for a in range(d) if a not in parents]
        need = newest if cached and len(chosen) > degree else None
        options = [(a, given) for a in left for given in _conditions(a, chosen, degree, need, fits)]
        if ahead is not None:
            ahead(options)
        scored = {option: score(*option) for option in options}
        computed += len(options)
        scored |= {option: value for option, value in kept.items() if option[0] in left}
        if not scored:
            scored = {(a, ()): 0.0 for a in left}
        (pick, given), value = min(scored.items(), key=lambda o: (-o[1], o[0]))
        # The runner-up is the best candidate of another attribute (algorithm 4, line 11).
        others = [item for item in scored.items() if item[0][0] != pick]
        kept = dict([min(others, key=lambda o: (-o[1], o[0]))]) if cached and others else {}
        chosen.append(pick)
        parents[pick], information[pick], newest = given, value, pick
    return Network(
        tuple(chosen),
        tuple(parents[a] for a in range(d)),
        tuple(information[a] for a in range(d)),
        computed,
    )


def _conditions(
    a: int, chosen: Sequence[int], degree: int, need: int | None, fits: Fits
) -> list[tuple[int, ...]]:
    """Parent sets of the largest size that fits; with `need` only those that hold it."""
    for size in range(min(degree, len(chosen)), 0, -1):
        found = [tuple(sorted(c)) for c in combinations(chosen, size) if need is None or need in c]
        usable = [c for c in found if fits(a, c)]
        if usable:
            return usable
    return []


def candidates_computed(d: int, degree: int, cached: bool) -> int:
    """How many mutual informations a search over d attributes computes when every candidate fits."""
    return search_network(d, degree, lambda a, given: -float(a), 0, cached=cached).computed
