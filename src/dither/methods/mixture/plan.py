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
from dither.methods.independent import question_shares
from dither.reports import Question
from dither.types import Floats

Sets = list[
    tuple[tuple[int, ...], float]
]  # attributes asked together, and their share of the participants

MAX_CELLS = 2048  # of a set's product domain
GAIN = 1.15  # a set grows by an attribute when one report then tells so many times more about its pairs
COVERS = 6
MAX_SETS = 3000
SINGLES = 0.1  # 8 and 15 % measured alike, more is worse


@lru_cache(maxsize=65536)
def marginal_variance(cells: int, kept: int, epsilon: float) -> float:
    """One person's variance of a cell of a marginal with `kept` equally likely cells, read off `cells` cells."""
    f = 1.0 / kept
    return best(cells, epsilon).group_variance(cells // kept, f, 1) + f * (1 - f)


def _pair_worth(cells: int, kept: int, epsilon: float) -> float:
    """How many direct pair questions an answer about `cells` cells is worth for a pair of `kept` cells in it."""
    return marginal_variance(kept, kept, epsilon) / marginal_variance(cells, kept, epsilon)


def _worths(
    members: Sequence[int], cardinalities: Sequence[int], epsilon: float
) -> list[tuple[int, int, float]]:
    cells = math.prod(cardinalities[a] for a in members)
    return [
        (a, b, _pair_worth(cells, cardinalities[a] * cardinalities[b], epsilon))
        for a, b in combinations(sorted(members), 2)
    ]


def attribute_sets(
    members: Sequence[int], cardinalities: Sequence[int], epsilon: float
) -> list[tuple[int, ...]]:
    """Sets that inform about evenly on every pair of `members`, each grown while that pays; all pairs unless most sets grow."""
    every: list[tuple[int, ...]] = list(combinations(sorted(members), 2))
    narrow = sorted(members, key=lambda a: (cardinalities[a], a))[:3]
    if len(narrow) < 3 or math.prod(cardinalities[a] for a in narrow) > MAX_CELLS:
        return every
    if sum(w for _, _, w in _worths(narrow, cardinalities, epsilon)) < GAIN:
        return every
    d = len(cardinalities)
    cover = np.full((d, d), np.inf)
    for a, b in every:
        cover[a, b] = 0.0
    rng = np.random.default_rng(
        0
    )  # breaks ties between equally covered pairs; the plan stays a function of public facts
    sets: list[tuple[int, ...]] = []
    while cover.min() < COVERS and len(sets) < min(COVERS * len(every), MAX_SETS):
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
            if candidate in chosen or cells * cardinalities[candidate] > MAX_CELLS:
                continue
            worths = _worths([*chosen, candidate], cardinalities, epsilon)
            total = sum(w for _, _, w in worths)
            if total < GAIN * told:
                continue
            need = sum(w / (0.25 + cover[a, b] - least) for a, b, w in worths) * (
                1 + 1e-6 * rng.random()
            )
            if found is None or need > found[0]:
                found = (need, candidate, total)
        if found is None:
            return chosen
        chosen = [*chosen, found[1]]
        told = found[2]


def single_shares(cardinalities: Sequence[int], epsilon: float) -> Floats:
    """Shares of single questions that make the sum of the one-way errors least: those of `independent`."""
    questions = [Question((str(i),), best(k, epsilon)) for i, k in enumerate(cardinalities)]
    return np.asarray(question_shares(questions, "least-error"))


def one_way_precision(cardinalities: Sequence[int], epsilon: float, sets: Sets) -> Floats:
    """The precision of a cell of each attribute's marginal that one participant of a plan gives on average."""
    precision = np.zeros(len(cardinalities))
    for members, share in sets:
        cells = math.prod(cardinalities[a] for a in members)
        for a in members:
            precision[a] += share / marginal_variance(cells, cardinalities[a], epsilon)
    return precision


def one_way_error(cardinalities: Sequence[int], precision: Floats) -> float:
    """The mean over attributes of k times the standard error of a cell: proportional to the mean one-way error."""
    return float((np.asarray(cardinalities) / np.sqrt(np.maximum(precision, 1e-300))).mean())


def pair_plan(
    cardinalities: Sequence[int],
    epsilon: float,
    members: Sequence[int],
    singles: float | None = None,
) -> Sets:
    """The questions with the share of participants each gets: sets of the members, some singles, the others alone."""
    size = single_shares(cardinalities, epsilon)
    if len(members) < 2:
        return [((i,), float(s)) for i, s in enumerate(size)]
    sets = attribute_sets(members, cardinalities, epsilon)
    # Larger sets already carry the one-way marginals well.
    alone = (
        SINGLES * (1 - sum(len(s) > 2 for s in sets) / len(sets)) if singles is None else singles
    )
    out: Sets = []
    for i, s in enumerate(size):
        share = float(s) * (alone if i in members else 1.0)
        if share > 0:
            out.append(((i,), share))
    rest = 1.0 - sum(share for _, share in out)
    return out + [(s, rest / len(sets)) for s in sets]


def pairs_are_free(cardinalities: Sequence[int], epsilon: float, regret: float = 0.02) -> bool:
    """Whether asking everything in pairs or sets teaches the one-way marginals as well as single questions do."""
    alone: Sets = [((i,), float(s)) for i, s in enumerate(single_shares(cardinalities, epsilon))]
    together = pair_plan(cardinalities, epsilon, range(len(cardinalities)))
    errors = [
        one_way_error(cardinalities, one_way_precision(cardinalities, epsilon, s))
        for s in (together, alone)
    ]
    return errors[0] <= (1.0 + regret) * errors[1]
