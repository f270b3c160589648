"""Questions as weights over cells of grouped values, which keeps large questions small.

Codes of an attribute that all comparisons treat alike form one group: "aged 50 or more"
needs two groups of ages. A bin that a comparison divides has parts; a part's weight is
its share of the bin, independent of the other attributes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dither.errors import ParameterError
from dither.release.query.expression import (
    All,
    Condition,
    Constant,
    Node,
    Not,
    Reader,
    Scale,
    conditions,
)
from dither.schema import Attribute
from dither.types import Flags, Floats, Indices

# Cells of grouped values.
MAX_CELLS = 1_000_000
# Rows of a table.
MAX_ROWS = 2_000
# Rows times cells: 160 MB.
MAX_WEIGHTS = 20_000_000


@dataclass(frozen=True)
class _Parts:
    """An attribute's values cut by comparisons: each part's code, ends and share of the code."""

    codes: Indices
    low: Floats
    high: Floats
    shares: Floats

    @property
    def middles(self) -> Floats:
        """Where a part's people are on average."""
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class Side:
    """One attribute of a grid.

    Its parts are classified: `classes` are distinguished by the questions, `truths` has
    the classes that fulfil a condition. `groups[code]` is a code's group and
    `shares[group, class]` the share of the group's people in a class. A detailed side
    has a class for each part and a group for each code.
    """

    attribute: Attribute
    groups: Indices
    shares: Floats
    truths: Mapping[Condition, Flags]
    parts: _Parts


@dataclass(frozen=True)
class Grid:
    """The product of some attributes' groups, with the weights of questions."""

    sides: tuple[Side, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes in order."""
        return tuple(side.attribute.name for side in self.sides)

    @property
    def groups(self) -> tuple[Indices, ...]:
        """Each attribute's group of each code."""
        return tuple(side.groups for side in self.sides)

    def axis(self, name: str) -> int:
        """The place of an attribute."""
        return self.names.index(name)

    def holds(self, node: Node) -> Floats:
        """1 for combinations of classes that fulfil the node, else 0, one axis per attribute."""
        shape = tuple(side.shares.shape[1] for side in self.sides)
        return np.broadcast_to(self._flags(node), shape).astype(np.float64)

    def weights(self, classes: Floats, but: int | None = None) -> Floats:
        """Weights of combinations of classes as weights of groups' cells, on every axis `but` one."""
        for axis, side in enumerate(self.sides):
            if axis != but:
                classes = np.moveaxis(np.tensordot(classes, side.shares, (axis, 1)), -1, axis)
        return classes

    def most(self, node: Node) -> Floats:
        """1 for groups' cells of which some people may fulfil the node, else 0."""
        cells = self.holds(node)
        for axis, side in enumerate(self.sides):
            some = (side.shares > 0).astype(np.float64)
            cells = np.moveaxis(np.tensordot(cells, some, (axis, 1)), -1, axis)
        return (cells > 0).astype(np.float64)

    def least(self, node: Node) -> Floats:
        """1 for groups' cells of which all people fulfil the node, wherever in a bin they are."""
        return 1.0 - self.most(Not(node))

    def divides(self, node: Node) -> bool:
        """Whether the node holds for a part of a bin."""
        return bool((self.least(node) < self.most(node)).any())

    def along(self, axis: int, values: Floats) -> Floats:
        """A figure for each class of one attribute, shaped to multiply weights of classes."""
        return values.reshape([-1 if i == axis else 1 for i in range(len(self.sides))])

    def _flags(self, node: Node) -> Flags:
        if isinstance(node, Constant):
            return np.full((1,) * len(self.sides), node.value)
        if isinstance(node, Condition):
            axis = self.axis(node.attribute)
            return (
                self.sides[axis]
                .truths[node]
                .reshape([-1 if i == axis else 1 for i in range(len(self.sides))])
            )
        if isinstance(node, Not):
            return ~self._flags(node.part)
        joined = np.logical_and if isinstance(node, All) else np.logical_or
        return reduce(joined, [self._flags(part) for part in node.parts])


def build_grid(reader: Reader, nodes: Collection[Node], detailed: Sequence[str] = ()) -> Grid:
    """Build the grid of these questions, with the `detailed` attributes first.

    Raises:
        ParameterError: The grid would be too large.
    """
    found: dict[str, list[Condition]] = {name: [] for name in detailed}
    for node in nodes:
        for condition in conditions(node):
            found.setdefault(condition.attribute, []).append(condition)
    # A question about all people is a sum over any attribute.
    if not found:
        found[reader.schema.names[0]] = []
    sides = tuple(
        _build_side(
            reader.schema[name],
            list(dict.fromkeys(asked)),
            reader.scales.get(name),
            name in detailed,
        )
        for name, asked in found.items()
    )
    cells = max(math.prod(side.shares.shape[axis] for side in sides) for axis in (0, 1))
    if cells > MAX_CELLS:
        raise ParameterError(
            f"the question tells {cells:,} combinations of {', '.join(found)} apart, more than {MAX_CELLS:,}; "
            "ask about fewer attributes or values at a time",
            where="where",
        )
    return Grid(sides)


def _build_side(
    attribute: Attribute, conditions: Sequence[Condition], scale: Scale | None, detailed: bool
) -> Side:
    """One attribute's groups and classes under these conditions."""
    parts = _cut(attribute, conditions, scale)
    flags = (
        np.stack([_fulfilled(parts, condition) for condition in conditions], axis=1)
        if conditions
        else None
    )
    if detailed:
        classes, marks = np.arange(len(parts.codes)), flags
    elif flags is None:
        classes, marks = np.zeros(len(parts.codes), np.intp), None
    else:
        marks, classes = np.unique(flags, axis=0, return_inverse=True)
        classes = classes.reshape(-1)
    count = int(classes.max()) + 1
    groups, shares = _group(parts, classes, count, attribute.cardinality, detailed)
    truths = (
        {} if marks is None else {condition: marks[:, i] for i, condition in enumerate(conditions)}
    )
    return Side(attribute, groups, shares, truths, parts)


def _cut(attribute: Attribute, conditions: Sequence[Condition], scale: Scale | None) -> _Parts:
    codes = np.arange(attribute.cardinality)
    if scale is None:
        places = codes.astype(np.float64)
        return _Parts(codes, places, places, np.ones(len(codes)))
    cuts = {cut for condition in conditions for span in condition.spans for cut in span}
    codes, low, high = codes[: attribute.answers], scale.low, scale.high
    if scale.closed in cuts:
        high = scale.past_end
    for cut in cuts:
        divided = (low < cut) & (cut < high)
        if divided.any():
            codes, low = (
                np.append(codes, codes[divided]),
                np.append(low, np.full(divided.sum(), cut)),
            )
            high = np.append(np.where(divided, cut, high), high[divided])
    order = np.lexsort((low, codes))
    codes, low, high = codes[order], low[order], high[order]
    shares = (high - low) / (scale.high - scale.low)[codes]
    # A missing answer has no place on the line: NaN is in no span.
    if attribute.missing:
        codes, shares = np.append(codes, attribute.answers), np.append(shares, 1.0)
        low, high = np.append(low, np.nan), np.append(high, np.nan)
    return _Parts(codes, low, high, shares)


def _fulfilled(parts: _Parts, condition: Condition) -> Flags:
    flags: Flags = np.isin(parts.codes, list(condition.codes))
    for low, high in condition.spans:
        flags |= (parts.low >= low) & (parts.high <= high)
    return flags


def _group(
    parts: _Parts, classes: Indices, count: int, cardinality: int, detailed: bool
) -> tuple[Indices, Floats]:
    """Group codes whose parts are all in one class; a divided code is a group by itself."""
    first = np.full(cardinality, -1)
    first[parts.codes[::-1]] = classes[::-1]
    divided = np.zeros(cardinality, bool)
    divided[parts.codes[classes != first[parts.codes]]] = True
    alone = np.ones(cardinality, bool) if detailed else divided
    keys = np.where(alone, count + np.arange(cardinality), first)
    _, groups = np.unique(keys, return_inverse=True)
    groups = groups.reshape(-1)
    shares = np.zeros((int(groups.max()) + 1, count))
    np.add.at(shares, (groups[parts.codes], classes), parts.shares)
    return groups, shares / np.bincount(groups)[:, None]
