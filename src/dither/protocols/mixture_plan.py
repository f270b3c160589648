"""What the mixture method asks, from public facts only: cardinalities, participants, epsilon.

Pairs at full epsilon, all of them; larger sets of attributes where one report about a set tells more about its pairs than a report
about one pair does; and a share of single attributes. Nobody is asked pairs where they would be noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from dither.mechanisms import best

Sets = list[tuple[tuple[int, ...], float]]  # attributes asked together, and their share of the participants

MOST_CELLS = 2048  # of a set's product domain
GAIN = 1.15  # a set grows by an attribute when one report then tells so many times more about its pairs
COVERS = 6
MOST_SETS = 3000
SINGLES = 0.1  # 8 and 15 % measured alike, more is worse


@lru_cache(maxsize=65536)
def marginal_variance(cells: int, kept: int, epsilon: float) -> float:
    """One person's variance of a cell of a marginal with `kept` equally likely cells, read off `cells` cells."""
    f = 1.0 / kept
    return best(cells, epsilon).group_variance(cells // kept, f, 1) + f * (1 - f)


def pair_worth(cells: int, kept: int, epsilon: float) -> float:
    """How many direct pair questions an answer about `cells` cells is worth for a pair of `kept` cells in it."""
    return marginal_variance(kept, kept, epsilon) / marginal_variance(cells, kept, epsilon)


def _worths(members: Sequence[int], cardinalities: Sequence[int], epsilon: float) -> list[tuple[int, int, float]]:
    cells = math.prod(cardinalities[a] for a in members)
    return [
        (a, b, pair_worth(cells, cardinalities[a] * cardinalities[b], epsilon))
        for a, b in combinations(sorted(members), 2)
    ]


def attribute_sets(members: Sequence[int], cardinalities: Sequence[int], epsilon: float) -> list[tuple[int, ...]]:
    """Sets that inform about evenly on every pair of `members`, each grown while that pays; all pairs unless most sets grow."""
    every = list(combinations(sorted(members), 2))
    narrow = sorted(members, key=lambda a: (cardinalities[a], a))[:3]
    if len(narrow) < 3 or math.prod(cardinalities[a] for a in narrow) > MOST_CELLS:
        return every
    if sum(w for _, _, w in _worths(narrow, cardinalities, epsilon)) < GAIN:
        return every
    d = len(cardinalities)
    cover = np.full((d, d), np.inf)
    for a, b in every:
        cover[a, b] = 0.0
    rng = np.random.default_rng(0)  # breaks ties between equally covered pairs; the plan stays a function of public facts
    sets: list[tuple[int, ...]] = []
    while cover.min() < COVERS and len(sets) < min(COVERS * len(every), MOST_SETS):
        first, second = divmod(int((cover + 1e-3 * rng.random((d, d))).argmin()), d)
        members_of_set = _grow([first, second], members, cardinalities, epsilon, cover, rng)
        for a, b, worth in _worths(members_of_set, cardinalities, epsilon):
            cover[a, b] += worth
        sets.append(tuple(sorted(members_of_set)))
    if 2 * sum(len(s) > 2 for s in sets) < len(sets):
        return every
    return sets + [pair for pair in every if cover[pair] == 0.0]


def _grow(
    chosen: list[int],
    members: Sequence[int],
    cardinalities: Sequence[int],
    epsilon: float,
    cover: np.ndarray,
    rng: np.random.Generator,
) -> list[int]:
    """Add attributes, those whose pairs are covered least first, as long as each raises what a report tells by GAIN."""
    told, least = 1.0, float(cover.min())
    while True:
        found: tuple[float, int, float] | None = None
        cells = math.prod(cardinalities[a] for a in chosen)
        for candidate in rng.permutation(np.asarray(members))[:16].tolist():
            if candidate in chosen or cells * cardinalities[candidate] > MOST_CELLS:
                continue
            worths = _worths([*chosen, candidate], cardinalities, epsilon)
            total = sum(w for _, _, w in worths)
            if total < GAIN * told:
                continue
            need = sum(w / (0.25 + cover[a, b] - least) for a, b, w in worths) * (1 + 1e-6 * rng.random())
            if found is None or need > found[0]:
                found = (need, candidate, total)
        if found is None:
            return chosen
        chosen = [*chosen, found[1]]
        told = found[2]


def single_sizes(cardinalities: Sequence[int]) -> np.ndarray:
    """Shares of single questions that make the sum of the one-way errors least."""
    size = np.asarray(cardinalities, dtype=np.float64) ** (2 / 3)
    return size / size.sum()


def predicted_error(
    cardinalities: Sequence[int],
    n: int,
    epsilon: float,
    members: Sequence[int],
    single: float,
    dependence: float = 0.06,
    strength: float = 0.3,
    learnt_at: float = 3.0,
) -> float:
    """The mean 2-way error to expect when `members` are asked in pairs but for a share `single`, the others alone.

    One-way errors follow from the pooled variance; added to them is the part of a typical `dependence` (mean distance of a pair
    from independence) that the pairs cannot teach: an attribute's profile is learnt with signal to noise strength/k times the
    root of its pairs' information, half of it at `learnt_at`.
    """
    k = np.asarray(cardinalities, dtype=np.float64)
    size = single_sizes(cardinalities)
    inside = np.zeros(len(k), dtype=bool)
    inside[list(members)] = True
    levels = sorted(set(cardinalities))
    index = np.array([levels.index(c) for c in cardinalities])
    alone = np.array([marginal_variance(c, c, epsilon) for c in levels])[index]
    precision = n * size * np.where(inside, single, 1.0) / alone
    taught = np.zeros(len(k))
    count = len(members) * (len(members) - 1) / 2
    if count and single < 1.0:
        pair = np.array([[marginal_variance(a * b, a * b, epsilon) for b in levels] for a in levels])
        line = np.array([[marginal_variance(a * b, a, epsilon) for b in levels] for a in levels])
        people = n * size[inside].sum() * (1 - single) / count
        both = np.outer(inside, inside) & ~np.eye(len(k), dtype=bool)
        precision = precision + (people * both / line[np.ix_(index, index)]).sum(axis=1)
        information = (people * both / pair[np.ix_(index, index)]) @ (2.0 / k)
        snr2 = (strength / k) ** 2 * information
        taught = snr2 / (snr2 + learnt_at**2)
    one = np.minimum(0.3 * k / np.sqrt(precision), 0.5)  # projection and the joint fit take a quarter off 0.4 k sd
    missing = dependence * (1.0 - np.sqrt(np.outer(taught, taught)))
    error = np.sqrt(one[:, None] ** 2 + one[None, :] ** 2 + missing**2)
    return float(error[np.triu_indices(len(k), 1)].mean())


def pair_members(cardinalities: Sequence[int], n: int, epsilon: float, margin: float = 0.9) -> list[int]:
    """The attributes to ask in pairs: those for which that is predicted to gain, or none."""
    order = sorted(range(len(cardinalities)), key=lambda a: (cardinalities[a], a))
    limit = margin * predicted_error(cardinalities, n, epsilon, [], 1.0)
    chosen: list[int] = []
    for m in sorted({max(2, round(f * len(order))) for f in np.linspace(0.2, 1.0, 13)}, reverse=True):
        if m <= len(order):
            error = predicted_error(cardinalities, n, epsilon, order[:m], SINGLES)
            if error < limit:
                limit, chosen = error, sorted(order[:m])
    return chosen


def planned_sets(cardinalities: Sequence[int], n: int, epsilon: float, singles: float | None = None) -> Sets:
    """The questions with the share of participants each gets; shares add up to one."""
    size = single_sizes(cardinalities)
    members = pair_members(cardinalities, n, epsilon) if len(cardinalities) > 1 else []
    if not members:
        return [((i,), float(s)) for i, s in enumerate(size)]
    sets = attribute_sets(members, cardinalities, epsilon)
    # Larger sets already carry the one-way marginals well.
    alone = SINGLES * (1 - sum(len(s) > 2 for s in sets) / len(sets)) if singles is None else singles
    out: Sets = []
    for i, s in enumerate(size):
        share = float(s) * (alone if i in members else 1.0)
        if share > 0:
            out.append(((i,), share))
    rest = 1.0 - sum(share for _, share in out)
    return out + [(s, rest / len(sets)) for s in sets]
