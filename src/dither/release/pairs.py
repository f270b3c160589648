"""Which pairs of attributes a report looks at: the strongest dependences, and those compared with the truth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from dither.models import Model
from dither.models.bayes_net import BayesNet
from dither.models.junction_tree import JunctionTree
from dither.release.release import Release
from dither.types import Floats

MOST_PAIRS = 300  # all pairs of 25 attributes; of more attributes so many, evenly spread, are compared with the truth
MOST_DISTANT = 100  # the same for trees and nets, where a pair far apart takes a walk through the graph
MOST_SEARCHED = 20_000  # all pairs of 200 attributes; beyond that pairs that were measured are looked at first
PAIR_CELLS = 1_000_000
SEARCH_CELLS = 20_000_000  # of all pairs that are looked at together
WEAKEST_BITS = 1e-3  # a dependence below this cannot be seen in a picture
MOST_EDGES = 40
MOST_NODES = 30


@dataclass(frozen=True)
class Pair:
    """Two attributes and their mutual information in the model, in bits."""

    first: str
    second: str
    bits: float


def strong_pairs(release: Release) -> tuple[Pair, ...]:
    """The attribute pairs of the model by falling mutual information; pairs too weak to see are left out.

    Of more than 25 attributes in a tree or a net only neighbours in it are looked at: what is farther apart depends on each
    other through them.
    """
    found = []
    for first, second in _searched(release):
        bits = mutual_information(release.model.marginal([first, second]))
        if bits >= WEAKEST_BITS:
            found.append(Pair(first, second, bits))
    return tuple(sorted(found, key=lambda pair: -pair.bits))


def graph_edges(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """The strongest pairs that a graph can show: at most 40 between at most 30 attributes."""
    edges: list[Pair] = []
    nodes: set[str] = set()
    for pair in pairs:
        if len(edges) < MOST_EDGES and len(nodes | {pair.first, pair.second}) <= MOST_NODES:
            edges.append(pair)
            nodes |= {pair.first, pair.second}
    return tuple(edges)


def telling_attributes(release: Release, pairs: Sequence[Pair], most: int) -> tuple[str, ...]:
    """At most so many attributes, in the schema's order: those that depend most on another, then the schema's first ones."""
    strength = dict.fromkeys(release.schema.names, 0.0)
    for pair in pairs:
        for name in (pair.first, pair.second):
            strength[name] = max(strength[name], pair.bits)
    kept = set(sorted(strength, key=lambda name: -strength[name])[:most])
    return tuple(name for name in release.schema.names if name in kept)


def mutual_information(joint: Floats) -> float:
    """Mutual information of a two-way distribution in bits."""
    outer = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    seen = joint > 0
    return max(0.0, float((joint[seen] * np.log2(joint[seen] / outer[seen])).sum()))


def compared_pairs(release: Release) -> list[tuple[str, str]]:
    """At most 300 pairs, evenly spread over all; fewer where each takes long."""
    pairs = list(combinations(release.schema.names, 2))
    wide = len(pairs) > MOST_PAIRS and _neighbours(release.model) is not None
    count = min(len(pairs), MOST_DISTANT if wide else MOST_PAIRS)
    kept = [pairs[i * len(pairs) // count] for i in range(count)]
    return [pair for pair in kept if release.schema.cells(pair) <= PAIR_CELLS]


def _searched(release: Release) -> list[tuple[str, str]]:
    """The pairs among which the strongest are looked for: all, unless there are too many; measured ones come first."""
    if release.model.kind == "independent":
        return []
    names = release.schema.names
    pairs = _ordered(release, (m.attributes for m in release.measured if len(m.attributes) == 2))
    near = None if math.comb(len(names), 2) <= MOST_PAIRS else _neighbours(release.model)
    if near is not None:
        pairs |= _ordered(release, ((names[i], names[j]) for i, j in near))
    else:
        pairs |= dict.fromkeys(islice(combinations(names, 2), MOST_SEARCHED))
    out, cells = [], 0
    for pair in islice(pairs, MOST_SEARCHED):
        size = release.schema.cells(pair)
        if size <= PAIR_CELLS and cells + size <= SEARCH_CELLS:
            out.append(pair)
            cells += size
    return out


def _ordered(release: Release, pairs: Iterable[Sequence[str]]) -> dict[tuple[str, str], None]:
    """Pairs without repetition, each in the schema's order."""
    place = {name: i for i, name in enumerate(release.schema.names)}
    both = (sorted(pair, key=place.__getitem__) for pair in pairs)
    return dict.fromkeys((first, second) for first, second in both)


def _neighbours(model: Model) -> list[tuple[int, int]] | None:
    """The pairs that a model's graph joins; None for a model without one, whose pairs all cost the same."""
    if isinstance(model, JunctionTree):
        return [pair for clique in model.tree.cliques for pair in combinations(clique, 2)]
    if isinstance(model, BayesNet):
        return [(i, parent) for i, parents in enumerate(model.parents) for parent in parents]
    return None
