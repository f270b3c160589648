"""A mixture of product distributions: P(x) = sum over components c of w_c times the product over attributes of A_c,i(x_i).

A strong pair of attributes may be tied by an edge: in every component the product A_c,i(u) A_c,j(v) is multiplied by a table
psi(u, v) that many components share, and normalised. An edge may tie a third and a fourth attribute too; no two edges share an
attribute, so a component is still a product, of attributes and of edges. Any k-way marginal is a sum of outer products, exact and
without touching the other attributes; sampling draws a component for each row and then each attribute on its own or given the
first of its edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from dither.compiled import compiled
from dither.fit.model import check_marginal, sample_rows
from dither.schema import Schema, schema_from_json
from dither.tally.archive import pack, unpack
from dither.types import Codes, Floats, Indices, JsonObject


@compiled
def invert(cumulative: Any, start: int, width: int, components: Any, draws: Any, out: Any) -> None:
    """For each row the first code whose cumulative probability in the row's component exceeds its draw."""
    for i in range(len(draws)):
        row = cumulative[components[i]]
        low, high = start, start + width - 1
        while low < high:
            middle = (low + high) // 2
            if row[middle] > draws[i]:
                high = middle
            else:
                low = middle + 1
        out[i] = low - start


@compiled
def _invert_given(
    psi: Any, groups: Any, second: Any, components: Any, given: Any, draws: Any, out: Any
) -> None:
    """For each row a code of an edge's second attribute given that of its first, with chances psi times the component's."""
    for i in range(len(draws)):
        table, chances = psi[groups[components[i]], given[i]], second[components[i]]
        total = 0.0
        for v in range(len(chances)):
            total += table[v] * chances[v]
        left, last = draws[i] * total, 0
        for v in range(len(chances)):
            chance = table[v] * chances[v]
            if chance > 0.0:
                last = v  # rounding must not draw a code without a chance
                left -= chance
                if left < 0.0:
                    break
        out[i] = last


_BLOCK_CELLS = 1 << 24  # marginals are summed over components in blocks of at most 128 MB


@dataclass(frozen=True)
class Edge:
    """Two attributes by position, `first` before `second`, and a table psi for every group of components: (group, u, v).

    With a `third` attribute, which may stand anywhere as may the others, v is the value of the second and the third together; so
    with a `fourth`.
    """

    first: int
    second: int
    psi: Floats
    third: int | None = None
    fourth: int | None = None

    @property
    def rest(self) -> tuple[int, ...]:
        """All attributes but the first."""
        return (self.second, *(end for end in (self.third, self.fourth) if end is not None))

    @property
    def attributes(self) -> tuple[int, ...]:
        """In the order of psi's axes."""
        return (self.first, *self.rest)


@dataclass(frozen=True)
class Mixture:
    """`weights` of the components, and for each attribute a table with one distribution per component.

    With edges, `groups` says which of an edge's tables psi each component uses, and the components of an edge's two attributes
    are the factors that psi ties together, not marginals.
    """

    schema: Schema
    weights: Floats
    components: tuple[Floats, ...]
    edges: tuple[Edge, ...] = ()
    groups: Indices | None = None
    kind = "mixture"

    def __post_init__(self) -> None:
        if (
            self.weights.ndim != 1
            or (self.weights < 0).any()
            or not np.isclose(self.weights.sum(), 1)
        ):
            raise ValueError("the weights of a mixture are not a distribution")
        for attribute, table in zip(self.schema, self.components, strict=True):
            if table.shape != (len(self.weights), attribute.cardinality):
                raise ValueError(f"the components of {attribute.name} have the wrong shape")
            if (table < 0).any() or not np.allclose(table.sum(axis=1), 1):
                raise ValueError(f"a component of {attribute.name} is not a distribution")
        if self.edges:
            self._check_edges()

    def _check_edges(self) -> None:
        k, ends = self.schema.cardinalities, [end for edge in self.edges for end in edge.attributes]
        in_order = all(edge.first < edge.second for edge in self.edges if edge.third is None)
        if (
            len(set(ends)) != len(ends)
            or not all(0 <= end < len(k) for end in ends)
            or not in_order
        ):
            raise ValueError("the edges of a mixture are not disjoint groups of its attributes")
        groups = self._groups
        if (
            groups.shape != self.weights.shape
            or not np.issubdtype(groups.dtype, np.integer)
            or (groups < 0).any()
        ):
            raise ValueError("a mixture with edges needs a group for each of its components")
        for edge in self.edges:
            name = " and ".join(self.schema.names[end] for end in edge.attributes)
            width = math.prod(k[end] for end in edge.rest)
            if edge.psi.shape[1:] != (k[edge.first], width) or len(edge.psi) <= groups.max():
                raise ValueError(f"the tables of the edge between {name} have the wrong shape")
            if not np.isfinite(edge.psi).all() or (edge.psi < 0).any():
                raise ValueError(f"a table of the edge between {name} is not positive")
            if not (
                self._total(edge) >= np.finfo(np.float64).tiny
            ).all():  # whose reciprocal is a number still
                raise ValueError(f"a component has no chance left at the edge between {name}")

    @classmethod
    def side_by_side(cls, schema: Schema, weights: Floats, components: Floats) -> Self:
        """From components (C, D) with the attributes' domains side by side."""
        tables = np.split(components, np.cumsum(schema.cardinalities)[:-1], axis=1)
        normalised = tuple(table / table.sum(axis=1, keepdims=True) for table in tables)
        return cls(schema, weights / weights.sum(), normalised)

    @property
    def _groups(self) -> Indices:
        return np.zeros(0, dtype=np.intp) if self.groups is None else self.groups

    def _through(self, edge: Edge, values: Floats, *, back: bool = False) -> Floats:
        """Sums over v of psi(u, v) times values[c, v], or with `back` over u: one matrix product per group."""
        out = np.empty((len(values), edge.psi.shape[2 if back else 1]))
        for psi, inside in zip(edge.psi, self._members, strict=False):
            out[inside] = values[inside] @ (psi if back else psi.T)
        return out

    @cached_property
    def _members(self) -> tuple[slice | Indices, ...]:
        """The components of every group, as a slice if they are consecutive."""
        found = [
            np.flatnonzero(self._groups == group) for group in range(int(self._groups.max()) + 1)
        ]
        return tuple(
            slice(int(m[0]), int(m[-1]) + 1) if len(m) and m[-1] - m[0] == len(m) - 1 else m
            for m in found
        )

    def _rest(self, edge: Edge, part: slice = slice(None)) -> Floats:
        """The product of the factors of an edge's attributes but the first in some components: (component, v)."""
        out = self.components[edge.second][part]
        for end in edge.rest[1:]:
            out = (out[:, :, None] * self.components[end][part, None, :]).reshape(len(out), -1)
        return out

    def _total(self, edge: Edge) -> Floats:
        """Each component's sum over an edge before it is normalised."""
        reach = self._through(edge, self._rest(edge))
        return np.asarray(np.einsum("cu,cu->c", self.components[edge.first], reach))

    @cached_property
    def _scaled(self) -> tuple[Floats, ...]:
        """The factors of every edge's first attribute, divided by what normalises the edge."""
        return tuple(
            self.components[edge.first] / self._total(edge)[:, None] for edge in self.edges
        )

    @cached_property
    def _one_way(self) -> tuple[Floats, ...]:
        """The distribution of every attribute in every component."""
        out = list(self.components)
        for edge, scaled in zip(self.edges, self._scaled, strict=True):
            rest = self._rest(edge)
            out[edge.first] = scaled * self._through(edge, rest)
            both = rest * self._through(edge, scaled, back=True)
            whole = both.reshape(len(both), *(self.schema.cardinalities[end] for end in edge.rest))
            for axis, end in enumerate(edge.rest, start=1):
                out[end] = whole.sum(
                    axis=tuple(other for other in range(1, whole.ndim) if other != axis)
                )
        return tuple(out)

    def _tied(self, positions: Sequence[int], part: slice) -> Floats:
        """The tables of two or all attributes of an edge, in the order of the edge, in some components, flat."""
        number = self._number(positions[0])
        edge = self.edges[number]
        tables = (
            self._scaled[number][part, :, None]
            * edge.psi[self._groups[part]]
            * self._rest(edge, part)[:, None, :]
        )
        if len(positions) < len(edge.attributes):
            whole = tables.reshape(-1, *(self.schema.cardinalities[end] for end in edge.attributes))
            tables = whole.sum(
                axis=tuple(1 + p for p, end in enumerate(edge.attributes) if end not in positions)
            )
        return tables.reshape(len(tables), -1)

    def _units(self, positions: Sequence[int]) -> list[tuple[int, ...]]:
        """Where in `positions` the attributes stand, those of an edge together if there are several."""
        place = {attribute: p for p, attribute in enumerate(positions)}
        tied = [tuple(place[end] for end in edge.attributes if end in place) for edge in self.edges]
        tied = [unit for unit in tied if len(unit) > 1]
        ends = {p for unit in tied for p in unit}
        return [*((p,) for p in range(len(positions)) if p not in ends), *tied]

    def _number(self, attribute: int) -> int:
        """The number of the edge that holds an attribute."""
        return next(n for n, edge in enumerate(self.edges) if attribute in edge.attributes)

    def _blocks(self, cells: int) -> Iterator[slice]:
        """The components in parts, so that their tables fit in memory."""
        step = max(1, _BLOCK_CELLS // max(cells, 1))
        return (slice(begin, begin + step) for begin in range(0, len(self.weights), step))

    def marginal(self, attributes: Sequence[str]) -> Floats:
        positions = check_marginal(self.schema, attributes)
        shape = [self.schema.cardinalities[i] for i in positions]
        units = self._units(positions)
        widths = [int(np.prod([shape[p] for p in unit])) for unit in units]
        width = int(np.prod(widths[:-1], dtype=np.int64))
        out = np.zeros((width, widths[-1]))
        for part in self._blocks(max(width, *widths, *(edge.psi[0].size for edge in self.edges))):
            *first, last = (
                self._one_way[positions[unit[0]]][part]
                if len(unit) == 1
                else self._tied([positions[p] for p in unit], part)
                for unit in units
            )
            joint = self.weights[part, None]
            for table in first:
                joint = (joint[:, :, None] * table[:, None, :]).reshape(len(joint), -1)
            out += joint.T @ last
        return _in_order(out / out.sum(), units, shape)

    def grouped(self, attributes: Sequence[str], groups: Sequence[Indices]) -> Floats:
        """The distribution over groups of values (see `grouped_marginal`); values are added up before attributes multiply."""
        sizes = [int(group.max()) + 1 for group in groups]
        positions = check_marginal(
            self.schema, attributes, cells=int(np.prod(sizes, dtype=np.float64))
        )
        units = self._units(positions)
        halves = [
            self.weights[:, None],
            np.ones((len(self.weights), 1)),
        ]  # one matrix product joins two thin ones
        for number, unit in enumerate(units):
            table = self._grouped_unit([positions[p] for p in unit], [groups[p] for p in unit])
            half = halves[2 * number >= len(units)]
            halves[2 * number >= len(units)] = (half[:, :, None] * table[:, None, :]).reshape(
                len(half), -1
            )
        out = halves[0].T @ halves[1]
        return _in_order(out / out.sum(), units, sizes)

    def _grouped_unit(self, positions: Sequence[int], groups: Sequence[Indices]) -> Floats:
        """One attribute's or edge's distribution over groups of values in every component, flat."""
        indicators = [
            np.equal.outer(group, np.arange(group.max() + 1)).astype(np.float64) for group in groups
        ]
        if len(positions) == 1:
            return np.asarray(self._one_way[positions[0]] @ indicators[0])
        number = self._number(positions[0])
        if self.edges[number].third is not None:
            return self._grouped_tree(positions, indicators)
        scaled, second = self._scaled[number], self.components[positions[1]]
        lines = [
            scaled * self._through(self.edges[number], second * inside)
            for inside in indicators[1].T
        ]
        return np.stack([line @ indicators[0] for line in lines], axis=2).reshape(len(scaled), -1)

    def _grouped_tree(self, positions: Sequence[int], indicators: Sequence[Floats]) -> Floats:
        """The same for attributes of an edge of three or four."""
        shape = [self.schema.cardinalities[i] for i in positions]
        parts = []
        for part in self._blocks(self.edges[self._number(positions[0])].psi[0].size):
            table = self._tied(positions, part).reshape(-1, *shape)
            for (
                inside
            ) in indicators:  # each takes the first axis of values away and puts its groups last
                table = np.tensordot(table, inside, axes=(1, 0))
            parts.append(table.reshape(len(table), -1))
        return np.concatenate(parts)

    @cached_property
    def _cumulative(self) -> Floats:
        """The cumulative distributions of all attributes side by side, one row per component."""
        return np.concatenate(
            [np.cumsum(t, axis=1) / t.sum(axis=1, keepdims=True) for t in self._one_way], axis=1
        )

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        components = sample_rows(self.weights, rows, rng)
        codes = np.empty((rows, len(self.schema)), dtype=np.int32, order="F")
        to = {edge.second: edge for edge in self.edges if edge.third is None}
        rows_of_more = [edge for edge in self.edges if edge.third is not None]
        later = {i for edge in rows_of_more for i in edge.rest}
        start = 0
        for i, cardinality in enumerate(self.schema.cardinalities):
            if i in later:
                start += cardinality
                continue
            draws = rng.random(rows)
            if i in to:
                psi, given = to[i].psi, codes[:, to[i].first]
                _invert_given(
                    psi, self._groups, self.components[i], components, given, draws, codes[:, i]
                )
            else:
                invert(self._cumulative, start, cardinality, components, draws, codes[:, i])
            start += cardinality
        for edge in rows_of_more:
            both = np.empty(rows, dtype=np.int32)
            given, draws = codes[:, edge.first], rng.random(rows)
            _invert_given(edge.psi, self._groups, self._rest(edge), components, given, draws, both)
            for end, values in zip(
                edge.rest,
                np.unravel_index(both, [self.schema.cardinalities[end] for end in edge.rest]),
                strict=True,
            ):
                codes[:, end] = values
        return codes

    def to_bytes(self) -> bytes:
        meta: JsonObject = {"kind": self.kind, "schema": self.schema.to_json()}
        arrays = {
            "weights": self.weights,
            **{str(i): table for i, table in enumerate(self.components)},
        }
        if self.edges:
            meta["edges"] = [list(edge.attributes) for edge in self.edges]
            arrays["groups"] = self._groups.astype(np.int64)
            arrays |= {f"edge {number}": edge.psi for number, edge in enumerate(self.edges)}
        return pack(meta, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        meta, arrays = unpack(data)
        schema = schema_from_json(meta["schema"])
        tables = tuple(arrays[str(i)] for i in range(len(schema)))
        if not meta.get("edges"):
            return cls(schema, arrays["weights"], tables)
        edges = tuple(
            Edge(first, second, arrays[f"edge {number}"], *more)
            for number, (first, second, *more) in enumerate(map(_ends, meta["edges"]))
        )
        return cls(schema, arrays["weights"], tables, edges, arrays["groups"])


def _ends(given: Sequence[Any]) -> list[int]:
    """The attributes of an archive's edge: two to four whole numbers."""
    if not 2 <= len(given) <= 4 or not all(type(end) is int for end in given):
        raise ValueError(
            f"an edge of an archive ties {given!r}, which are not two to four numbers of attributes"
        )
    return list(given)


def _in_order(flat: Floats, units: Sequence[tuple[int, ...]], shape: Sequence[int]) -> Floats:
    """A table whose axes stand unit by unit, with its axes in order."""
    order = [p for unit in units for p in unit]
    return np.asarray(flat.reshape([shape[p] for p in order]).transpose(np.argsort(order)))
