"""Junction trees from a dependence graph, and the factorisation of their large cliques.

Triangulation (Lauritzen, Spiegelhalter, JRSS B 1988): weighted min-fill elimination after
Kjaerulff 1990, under a cap on the cells of a clique. The tree is a maximum spanning tree of the
cliques weighted by the size of their intersections (Jensen, Jensen, UAI 1994), which has the
running-intersection property: the cliques that contain an attribute are connected.

Factorisation (Liu, Tang, Hu, Jin, Guo, "Multi-dimensional data publishing with local
differential privacy" (PrivIncr), EDBT 2023, algorithm 2): from the last conditional of the chain
rule to the first, the attribute whose reduced condition set makes the smallest factor is split
off, until the rest is small enough to be asked as a whole. Condition sets are reduced by
minimal-redundancy-maximal-relevance (Peng, Long, Ding, TPAMI 2005).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from dither.checks import check_whole
from dither.errors import ParameterError
from dither.fit.dependence import entropy
from dither.types import Floats

Pair = tuple[int, int]
_DEFAULT_CAP = 5_000
# Attributes of a clique all of whose factorisations are tried; each more doubles the work.
MAX_EXHAUSTIVE = 12


@dataclass(frozen=True)
class Triangulation:
    """Cliques of a chordal graph over nodes 0..d-1 as a rooted tree.

    `parents[c]` is the parent of clique c, -1 for the root, which comes first; a parent comes
    before its children. The separator of independent components is empty. `kept` are the
    requested edges, `fill` those added by elimination, `dropped` those left out for the cap.
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
    """Eliminate the node with the fewest fill-in cells; ties by clique cells, then number."""
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
    cardinalities: Sequence[int], strengths: Mapping[Pair, float], cap: int = _DEFAULT_CAP
) -> Triangulation:
    """Triangulate so that no clique has more than `cap` cells, dropping the weakest edges.

    If all edges fit they are all kept. Otherwise edges are added from the strongest to the
    weakest (ties by number), and an edge that makes a clique exceed the cap goes to `dropped`.

    Raises:
        ParameterError: A single attribute has more cells than the cap.
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
    """The sort key of a node: fill-in cells, clique cells, number."""
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
    """Each step's clique with its fill-in edges, for some closed set of nodes."""
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
    """Whether no clique of the node's component exceeds the cap."""
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
    """Prim's algorithm from clique 0, larger intersections first: the order and the parents."""
    sets = [frozenset(c) for c in cliques]
    order, parents = [0], [-1]
    best = {c: (len(sets[c] & sets[0]), 0) for c in range(1, len(sets))}
    while best:
        # Ties go to the lower number, so that the tree is the same on every run.
        c = max(best, key=lambda x: (best[x][0], -x))
        parents.append(best.pop(c)[1])
        order.append(c)
        place = len(order) - 1
        for other, (size, _) in best.items():
            shared = len(sets[other] & sets[c])
            if shared > size:
                best[other] = (shared, place)
    return order, parents


# In nats; conditions with less information are left out.
_MIN_GAIN = 1e-9


@dataclass(frozen=True)
class Factorisation:
    """P(clique) = P(core) * product over (a, given) of P(a | given), each `given` inside the core and earlier ones.

    The paper goes on splitting single attributes off the core. The product of those
    conditionals is the core's distribution, so it stays whole here.
    """

    core: tuple[int, ...]
    conditionals: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The attribute sets whose distributions are needed, without subsets of others."""
        every = [self.core, *(tuple(sorted((a, *given))) for a, given in self.conditionals)]
        return tuple(
            s for s in dict.fromkeys(every) if not any(set(s) < set(other) for other in every)
        )


def reduce_conditions(
    target: int,
    candidates: Sequence[int],
    information: Floats,
    cardinalities: Sequence[int],
    most_cells: int,
) -> tuple[int, ...]:
    """The conditions of `target`, selected by minimal redundancy and maximal relevance.

    A candidate c scores I(c; target) - mean of I(c; s) over the selected s; the best is
    selected while its score is above zero and the factor stays within `most_cells`.
    """
    taken: list[int] = []
    cells = cardinalities[target]
    left = list(candidates)
    while left:
        fitting = [c for c in left if cells * cardinalities[c] <= most_cells]
        scores = {
            c: information[c, target]
            - (float(np.mean([information[c, s] for s in taken])) if taken else 0.0)
            for c in fitting
        }
        best = max(fitting, key=lambda c: (scores[c], -c), default=None)
        if best is None or scores[best] <= 0:
            break
        taken.append(best)
        left.remove(best)
        cells *= cardinalities[best]
    return tuple(sorted(taken))


def factorise(
    clique: Sequence[int], cardinalities: Sequence[int], information: Floats, most_cells: int
) -> Factorisation:
    """Algorithm 2 on one clique: every factor has at most `most_cells` cells (the paper's sigma).

    `information` is the symmetric matrix of mutual informations. An attribute wider than
    `most_cells` is a separate factor.
    """
    check_whole("factor_cells", most_cells, 2)
    left = sorted(clique)
    split: list[tuple[int, tuple[int, ...]]] = []
    while len(left) > 1 and math.prod(cardinalities[a] for a in left) > most_cells:
        options = []
        for a in left:
            given = reduce_conditions(
                a, [b for b in left if b != a], information, cardinalities, most_cells
            )
            cells = cardinalities[a] * math.prod(cardinalities[b] for b in given)
            options.append((cells, a, given))
        # Among equally small factors, split off the attribute that its conditions explain best.
        _, a, given = min(
            options, key=lambda o: (o[0], -sum(information[o[1], b] for b in o[2]), o[1])
        )
        split.append((a, given))
        left.remove(a)
    return Factorisation(tuple(left), tuple(reversed(split)))


def factorise_exhaustively(
    clique: Sequence[int], cardinalities: Sequence[int], information: Floats, most_cells: int
) -> Factorisation:
    """Algorithm 2 over every order of attributes: the factorisation with the fewest cells in all.

    The cells of a factor measure its variance, as in the greedy search. What an attribute is
    conditioned on depends on the attributes left, not on their order, so dynamic programming
    over their subsets visits every order.

    Args:
        clique: At most `MAX_EXHAUSTIVE` attributes.
        cardinalities: Of all attributes.
        information: As for `factorise`.
        most_cells: The largest factor.

    Returns:
        The best factorisation; of equal ones that which splits off lower attributes first.

    Raises:
        ParameterError: The clique has too many attributes.
    """
    check_whole("factor_cells", most_cells, 2)
    if len(clique) > MAX_EXHAUSTIVE:
        raise ParameterError(
            f"a clique of {len(clique)} attributes has too many factorisations to try, more than those of "
            f"{MAX_EXHAUSTIVE}; use search=greedy",
            where="search",
            value=len(clique),
        )

    @cache
    def best(left: tuple[int, ...]) -> tuple[int, Factorisation]:
        cells = math.prod(cardinalities[a] for a in left)
        if len(left) == 1 or cells <= most_cells:
            return cells, Factorisation(left, ())
        options = []
        for a in left:
            others = tuple(b for b in left if b != a)
            given = reduce_conditions(a, others, information, cardinalities, most_cells)
            own = cardinalities[a] * math.prod(cardinalities[b] for b in given)
            rest, before = best(others)
            options.append((own + rest, a, given, before))
        total, a, given, before = min(options, key=lambda option: option[:2])
        return total, Factorisation(before.core, (*before.conditionals, (a, given)))

    return best(tuple(sorted(clique)))[1]


def factorise_by_information(
    clique: Sequence[int], cardinalities: Sequence[int], joint: Floats, most_cells: int
) -> Factorisation:
    """Algorithm 2 with conditions up to `most_cells`, selected by conditional information.

    Minimal redundancy stops at the first condition that is as similar to the selected ones as
    to its target, and leaves out partly redundant conditions. Here the condition with the
    largest conditional information given the selected ones is added while the factor fits. The
    attribute with the least remaining information is split off; the sum of these losses is the
    divergence of the product from the joint. `joint` has one axis for each attribute of the
    clique, in order.
    """
    check_whole("factor_cells", most_cells, 2)
    left = sorted(clique)
    entropies = _Entropies(tuple(left), joint)
    split: list[tuple[int, tuple[int, ...]]] = []
    while len(left) > 1 and math.prod(cardinalities[a] for a in left) > most_cells:
        options = []
        for a in left:
            others = [b for b in left if b != a]
            given = _fill(a, others, entropies, cardinalities, most_cells)
            lost = entropies.given(a, given) - entropies.given(a, others)
            options.append((round(lost, 12), a, given))
        _, a, given = min(options)
        split.append((a, given))
        left.remove(a)
    return Factorisation(tuple(left), tuple(reversed(split)))


@dataclass(frozen=True)
class _Entropies:
    """The entropies of sets of a clique's attributes, each computed once."""

    scope: tuple[int, ...]
    joint: Floats
    _known: dict[frozenset[int], float] = field(default_factory=dict, repr=False, compare=False)

    def of(self, members: Iterable[int]) -> float:
        key = frozenset(members)
        if key not in self._known:
            summed = self.joint.sum(axis=tuple(i for i, a in enumerate(self.scope) if a not in key))
            self._known[key] = entropy(summed)
        return self._known[key]

    def given(self, target: int, conditions: Iterable[int]) -> float:
        """The entropy that is left of an attribute when others are known."""
        known = set(conditions)
        return self.of({target, *known}) - self.of(known)


def _fill(
    target: int,
    candidates: Sequence[int],
    entropies: _Entropies,
    cardinalities: Sequence[int],
    most_cells: int,
) -> tuple[int, ...]:
    """The conditions of a target by conditional information, while the factor fits."""
    taken: list[int] = []
    cells = cardinalities[target]
    while fitting := [
        c for c in candidates if c not in taken and cells * cardinalities[c] <= most_cells
    ]:
        gains = {
            c: entropies.given(target, taken) - entropies.given(target, [*taken, c])
            for c in fitting
        }
        best = max(fitting, key=lambda c: (round(gains[c], 12), -c))
        if gains[best] <= _MIN_GAIN:
            break
        taken.append(best)
        cells *= cardinalities[best]
    return tuple(sorted(taken))


def compose(
    clique: Sequence[int],
    factorisation: Factorisation,
    tables: Sequence[tuple[tuple[int, ...], Floats]],
) -> Floats:
    """The clique's table, axes in the order of `clique`, from distributions of its factors."""
    label = {a: i for i, a in enumerate(clique)}
    joint = _read(factorisation.core, tables)
    scope = list(factorisation.core)
    for a, given in factorisation.conditionals:
        factor = _read((*given, a), tables)
        total = factor.sum(axis=-1, keepdims=True)
        # The conditional of a condition that never occurs is the attribute's marginal.
        alone = factor.sum(axis=tuple(range(factor.ndim - 1)))
        conditional = np.where(total > 0, factor / np.where(total > 0, total, 1.0), alone)
        operands: list[Any] = [
            joint,
            [label[s] for s in scope],
            conditional,
            [label[g] for g in (*given, a)],
        ]
        joint = np.asarray(np.einsum(*operands, [label[s] for s in (*scope, a)]))
        scope.append(a)
    out = np.transpose(joint, [scope.index(a) for a in clique])
    return np.asarray(out / out.sum())


def _read(wanted: Sequence[int], tables: Sequence[tuple[tuple[int, ...], Floats]]) -> Floats:
    """The distribution of some attributes, axes as wanted, from the smallest table with them."""
    holding = [(scope, table) for scope, table in tables if set(wanted) <= set(scope)]
    if not holding:
        raise ParameterError(f"no table holds the attributes {tuple(wanted)}", value=tuple(wanted))
    scope, table = min(holding, key=lambda t: t[1].size)
    kept = [a for a in scope if a in wanted]
    summed = table.sum(axis=tuple(i for i, a in enumerate(scope) if a not in wanted))
    return np.transpose(summed, [kept.index(a) for a in wanted])
