"""A Bayes network: each attribute given its parents.

Marginals by variable elimination, rows by ancestral sampling.

Reference: Koller, Friedman, "Probabilistic graphical models", 2009, sections 3.2 and 9.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from dither.checks import check_whole
from dither.errors import ParameterError
from dither.fit.model import MAX_CELLS, check_marginal
from dither.schema import Schema, schema_from_json
from dither.schema.cells import cells_of
from dither.tally.archive import pack, unpack
from dither.types import AnyArray, Codes, Floats

Score = Callable[[int, tuple[int, ...]], float]
Fits = Callable[[int, tuple[int, ...]], bool]
Ahead = Callable[[Sequence[tuple[int, tuple[int, ...]]]], None]


@dataclass(frozen=True)
class Network:
    """Attributes in the order they were added, each with its parents and the mutual information with them.

    `computed` counts the computed mutual informations, repeated candidates included. Algorithms
    3 and 4 differ in it.
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
        """The undirected edges."""
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
    """Add attributes one at a time, each with the best parent set of up to `degree` members.

    `cached=False` is algorithm 3, `cached=True` algorithm 4. A candidate that does not fit is
    replaced by its subsets; an attribute without candidates has no parents. `ahead` is called
    with each step's candidates before they are scored, so that a caller can compute them
    together. Ties go to the lower attribute numbers.
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
    """Parent sets of the largest size that fits, all with `need` if given."""
    for size in range(min(degree, len(chosen)), 0, -1):
        found = [tuple(sorted(c)) for c in combinations(chosen, size) if need is None or need in c]
        usable = [c for c in found if fits(a, c)]
        if usable:
            return usable
    return []


def candidates_computed(d: int, degree: int, cached: bool) -> int:
    """Number of mutual informations of a search over d attributes if every candidate fits."""
    return search_network(d, degree, lambda a, given: -float(a), 0, cached=cached).computed


_BLOCK = 1 << 18
Factor = tuple[tuple[int, ...], Floats]


@dataclass(frozen=True)
class BayesNet:
    """The model of a network.

    `conditionals[i]` has one axis for each of `parents[i]`, in that order, then one for
    attribute i, along which it adds up to one.
    """

    schema: Schema
    parents: tuple[tuple[int, ...], ...]
    conditionals: tuple[Floats, ...]
    kind = "bayes_net"

    def __post_init__(self) -> None:
        sizes = self.schema.cardinalities
        for i, (given, table) in enumerate(zip(self.parents, self.conditionals, strict=True)):
            shape = (*(sizes[p] for p in given), sizes[i])
            if table.shape != shape or (table < 0).any() or not np.allclose(table.sum(axis=-1), 1):
                raise ValueError(
                    f"not a conditional distribution of {self.schema.names[i]} given {given}"
                )
        if len(self.order) != len(self.schema):
            raise ValueError("the parents form a circle")

    @classmethod
    def from_joints(
        cls, schema: Schema, parents: Sequence[Sequence[int]], joints: Sequence[Floats]
    ) -> BayesNet:
        """From each attribute's joint distribution with its parents, axes parents then attribute.

        A combination of parents that never occurs gets the attribute's marginal.
        """
        tables = []
        for joint in joints:
            total = joint.sum(axis=-1, keepdims=True)
            alone = joint.sum(axis=tuple(range(joint.ndim - 1)))
            table = np.where(
                total > 0, joint / np.where(total > 0, total, 1.0), alone / alone.sum()
            )
            tables.append(np.asarray(table, np.float64))
        return cls(schema, tuple(tuple(p) for p in parents), tuple(tables))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Attributes so that parents come first; shorter than the schema if there is a circle."""
        out: list[int] = []
        waiting = list(range(len(self.schema)))
        while ready := [i for i in waiting if set(self.parents[i]) <= set(out)]:
            out += ready
            waiting = [i for i in waiting if i not in ready]
        return tuple(out)

    def marginal(self, attributes: Sequence[str]) -> Floats:
        wanted = check_marginal(self.schema, attributes)
        needed = self._ancestors(wanted)
        factors: list[Factor] = [
            ((*self.parents[i], i), self.conditionals[i]) for i in sorted(needed)
        ]
        rest = needed - set(wanted)
        while rest:
            variable = min(sorted(rest), key=lambda v: self._cells(_scope(factors, v)))
            rest.remove(variable)
            touching = [f for f in factors if variable in f[0]]
            factors = [f for f in factors if variable not in f[0]]
            scope = tuple(sorted(_scope(touching, variable) - {variable}))
            factors.append((scope, self._contract(touching, scope)))
        out = self._contract(factors, wanted)
        return np.ascontiguousarray(out / out.sum())

    def _ancestors(self, positions: Sequence[int]) -> set[int]:
        """The attributes that bear on a marginal; all others sum out to one."""
        found: set[int] = set()
        waiting = list(positions)
        while waiting:
            i = waiting.pop()
            if i not in found:
                found.add(i)
                waiting.extend(self.parents[i])
        return found

    def _cells(self, scope: set[int]) -> int:
        return math.prod(self.schema.cardinalities[v] for v in scope)

    def _contract(self, factors: Sequence[Factor], kept: Sequence[int]) -> Floats:
        """The product of some factors, summed over all but the kept attributes."""
        every = sorted({v for scope, _ in factors for v in scope})
        cells = self._cells(set(kept))
        if cells > MAX_CELLS:
            raise ParameterError(
                f"this marginal needs a table of {cells:,} cells on its way, more than {MAX_CELLS:,}; "
                "ask fewer attributes",
                where="attributes",
                value=cells,
            )
        label = {v: i for i, v in enumerate(every)}
        operands: list[Any] = []
        for scope, table in factors:
            operands += [table, [label[v] for v in scope]]
        result = np.einsum(
            *operands, [label[v] for v in kept], optimize="greedy" if len(factors) > 1 else False
        )
        return np.asarray(result, np.float64)

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        codes = np.zeros((rows, len(self.schema)), dtype=np.int32, order="F")
        sizes = self.schema.cardinalities
        for i in self.order:
            table = np.cumsum(self.conditionals[i].reshape(-1, sizes[i]), axis=1)
            # All rows of the table share one increasing sequence: row s is from s to s + 1.
            ladder = (table / table[:, -1:] + np.arange(len(table))[:, None]).ravel()
            for start in range(0, rows, _BLOCK):
                block = codes[start : start + _BLOCK]
                given = cells_of(block, sizes, self.parents[i])
                drawn = (
                    np.searchsorted(ladder, given + rng.random(len(block)), side="right")
                    - given * sizes[i]
                )
                block[:, i] = np.clip(drawn, 0, sizes[i] - 1)
        return codes

    def to_bytes(self) -> bytes:
        meta = {
            "kind": self.kind,
            "schema": self.schema.to_json(),
            "parents": [list(p) for p in self.parents],
        }
        return pack(meta, {str(i): t for i, t in enumerate(self.conditionals)})

    @classmethod
    def from_bytes(cls, data: bytes) -> BayesNet:
        meta, arrays = unpack(data)
        schema = schema_from_json(meta["schema"])
        parents = tuple(tuple(int(p) for p in given) for given in meta["parents"])
        return cls(schema, parents, tuple(arrays[str(i)] for i in range(len(schema))))


def _scope(factors: Sequence[Factor], variable: int) -> set[int]:
    return {v for scope, _ in factors if variable in scope for v in scope}


def chain_joint(
    table: AnyArray, scope: Sequence[int], parents: Sequence[int], attribute: int
) -> Floats:
    """A joint table over `scope` with axes as in `from_joints`: parents, then the attribute."""
    return np.asarray(
        np.transpose(table, [list(scope).index(a) for a in (*parents, attribute)]), np.float64
    )
