"""From a dependence graph to the cliques of a junction tree, under a cap on the cells of a clique.

References: Lauritzen, Spiegelhalter, JRSS B 1988; weighted min-fill elimination after Kjaerulff 1990; the tree is a
maximum spanning tree of the cliques weighted by the size of their intersections (Jensen, Jensen, UAI 1994), which has
the running-intersection property: the cliques that contain an attribute are connected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dither.errors import ParameterError

Pair = tuple[int, int]
DEFAULT_CAP = 5_000


@dataclass(frozen=True)
class Triangulation:
    """Cliques of a chordal graph over nodes 0..d-1 as a rooted tree.

    `parents[c]` is the clique that clique c hangs from, -1 for the root, which comes first; a parent comes before its
    children. Separators may be empty: components that do not depend on each other hang together by nothing. `kept` are
    the edges asked for, `fill` the edges added by elimination, `dropped` the ones left out to keep to the cap.
    """

    cliques: tuple[tuple[int, ...], ...]
    parents: tuple[int, ...]
    kept: tuple[Pair, ...]
    fill: tuple[Pair, ...]
    dropped: tuple[Pair, ...] = ()

    @property
    def separators(self) -> tuple[tuple[int, ...], ...]:
        """What each clique shares with its parent; the root's is empty."""
        return tuple(
            () if p < 0 else tuple(sorted(set(c) & set(self.cliques[p])))
            for c, p in zip(self.cliques, self.parents, strict=True)
        )

    def cells(self, cardinalities: Sequence[int]) -> tuple[int, ...]:
        """The number of cells of each clique."""
        return tuple(math.prod(cardinalities[i] for i in c) for c in self.cliques)


def triangulate(cardinalities: Sequence[int], edges: Iterable[Pair]) -> Triangulation:
    """Eliminate, at each step, the node with the fewest cells of fill-in edges; ties by clique cells, then number."""
    d = len(cardinalities)
    kept = _normalised(edges, d)
    adjacency = _adjacency(d, kept)
    found, fill = _eliminate(cardinalities, adjacency)
    cliques = sorted(tuple(_members(mask)) for mask in _maximal(found))
    order, parents = _spanning_tree(cliques)
    return Triangulation(
        tuple(cliques[c] for c in order), tuple(parents), kept, tuple(sorted(fill))
    )


def triangulate_capped(
    cardinalities: Sequence[int], strengths: Mapping[Pair, float], cap: int = DEFAULT_CAP
) -> Triangulation:
    """Triangulate so that no clique has more than `cap` cells, giving up the weakest edges.

    If all edges fit they are all kept. Otherwise edges are added from the strongest to the weakest (ties by number),
    and one after which some clique would exceed the cap is dropped for good; `dropped` lists them. A single attribute
    with more cells than the cap is an error, since nothing could be dropped to mend it.
    """
    widest = max(cardinalities)
    if widest > cap:
        raise ParameterError(
            f"an attribute has {widest:,} values, more than the cap of {cap:,} cells per clique; raise max_clique_cells",
            where="max_clique_cells",
            value=cap,
        )
    strength = {(min(pair), max(pair)): value for pair, value in strengths.items()}
    ranked = sorted(
        _normalised(strength, len(cardinalities)), key=lambda pair: (-strength[pair], pair)
    )
    whole = triangulate(cardinalities, ranked)
    if max(whole.cells(cardinalities)) <= cap:
        return whole
    d = len(cardinalities)
    kept: list[Pair] = []
    adjacency = _adjacency(d, ())
    for pair in ranked:
        i, j = pair
        if cardinalities[i] * cardinalities[j] > cap:
            continue
        trial = list(adjacency)
        trial[i] |= 1 << j
        trial[j] |= 1 << i
        if _fits(cardinalities, trial, i, cap):
            adjacency = trial
            kept.append(pair)
    chosen = triangulate(cardinalities, kept)
    dropped = tuple(sorted(set(ranked) - set(kept)))
    return Triangulation(chosen.cliques, chosen.parents, chosen.kept, chosen.fill, dropped)


def _normalised(edges: Iterable[Pair], d: int) -> tuple[Pair, ...]:
    out = sorted({(min(pair), max(pair)) for pair in edges})
    for i, j in out:
        if not 0 <= i < j < d:
            raise ParameterError(
                f"edge {(i, j)} does not join two of the {d} attributes", value=(i, j)
            )
    return tuple(out)


def _adjacency(d: int, edges: Iterable[Pair]) -> list[int]:
    """Neighbours as bit sets: counting fill-in is then a few integer operations."""
    adjacency = [0] * d
    for i, j in edges:
        adjacency[i] |= 1 << j
        adjacency[j] |= 1 << i
    return adjacency


def _members(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def _cost(cardinalities: Sequence[int], adjacency: list[int], node: int) -> tuple[int, int, int]:
    """The cells of the pairs of neighbours that are not joined yet, the cells of the clique, the node."""
    neighbours = adjacency[node]
    fill = 0
    cells = cardinalities[node]
    for u in _members(neighbours):
        cells *= cardinalities[u]
        for v in _members((neighbours & ~adjacency[u]) >> (u + 1)):
            fill += cardinalities[u] * cardinalities[u + 1 + v]
    return fill, cells, node


def _eliminate(cardinalities: Sequence[int], adjacency: list[int]) -> tuple[list[int], list[Pair]]:
    """The clique of each elimination step as a bit set, and the fill-in edges."""
    found = list(_elimination(cardinalities, adjacency, range(len(cardinalities))))
    return [clique for clique, _ in found], [edge for _, fill in found for edge in fill]


def _elimination(
    cardinalities: Sequence[int], adjacency: list[int], nodes: Iterable[int]
) -> Iterator[tuple[int, list[Pair]]]:
    """Each step's clique with the edges it fills in, for some nodes whose neighbours are among them."""
    adjacency = list(adjacency)
    costs = {node: _cost(cardinalities, adjacency, node) for node in nodes}
    while costs:
        node = min(costs.values())[2]
        del costs[node]
        neighbours = adjacency[node]
        fill = []
        stale = neighbours
        members = _members(neighbours)
        for u in members:
            adjacency[u] &= ~(1 << node)
            for v in members:
                if v > u and not adjacency[u] >> v & 1:
                    adjacency[u] |= 1 << v
                    adjacency[v] |= 1 << u
                    fill.append((u, v))
                    stale |= adjacency[u] & adjacency[v]
        yield neighbours | 1 << node, fill
        for u in _members(stale):
            if u in costs:
                costs[u] = _cost(cardinalities, adjacency, u)


def _fits(cardinalities: Sequence[int], adjacency: list[int], node: int, cap: int) -> bool:
    """Whether no clique of the node's component exceeds the cap; other components do not bear on it."""
    for mask, _ in _elimination(cardinalities, adjacency, _component(adjacency, node)):
        if math.prod(cardinalities[i] for i in _members(mask)) > cap:
            return False
    return True


def _component(adjacency: list[int], node: int) -> list[int]:
    reached, frontier = 1 << node, 1 << node
    while frontier:
        near = 0
        for u in _members(frontier):
            near |= adjacency[u]
        frontier = near & ~reached
        reached |= near
    return _members(reached)


def _maximal(masks: list[int]) -> list[int]:
    """In an elimination order a clique can only lie inside an earlier one."""
    out: list[int] = []
    for mask in masks:
        if not any(mask & earlier == mask for earlier in out):
            out.append(mask)
    return out


def _spanning_tree(cliques: Sequence[tuple[int, ...]]) -> tuple[list[int], list[int]]:
    """Prim's algorithm from clique 0, larger intersections first: the order of joining, and each one's parent in it."""
    sets = [frozenset(c) for c in cliques]
    order, parents = [0], [-1]
    best = {c: (len(sets[c] & sets[0]), 0) for c in range(1, len(sets))}
    while best:
        # Larger intersection first, then the clique of lower number, so that the tree is the same on every run.
        c = max(best, key=lambda x: (best[x][0], -x))
        parents.append(best.pop(c)[1])
        order.append(c)
        place = len(order) - 1
        for other, (size, _) in best.items():
            shared = len(sets[other] & sets[c])
            if shared > size:
                best[other] = (shared, place)
    return order, parents
