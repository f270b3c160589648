"""A model of the asked attributes extended to the whole schema: P(x | x satisfies every rule).

Three steps lead from the inner model to a record of the whole schema. A wide attribute asked
in groups is drawn inside its group, by the shares that questions about it alone measured. An
attribute that another one determines is filled in. The distribution is conditioned on the
rules, so that impossible cells have probability zero.

Marginals are exact: the joint distribution of the requested attributes and of all attributes
in rules is multiplied by the rules' tables and normalised. Codes that every rule treats alike
are added up first. If the table is still too large, rules without a requested attribute are
left out of the normalisation; impossible cells remain zero. Rows are drawn by rejection,
which is exact too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from dither.errors import ParameterError, ReportError, StateError
from dither.fit.model import MAX_CELLS, Model, check_marginal, model_from_bytes
from dither.schema import Schema, schema_from_json
from dither.schema.rule_tables import Allowed, constraints
from dither.schema.rules import Determines
from dither.tally.archive import pack, unpack
from dither.types import AnyArray, Codes, Flags, Floats, Indices, Integers

# Cells of a model without `grouped`: about a second for twenty replicates.
_MAX_UNGROUPED = 5_000_000


@runtime_checkable
class _Grouping(Protocol):
    """A model that adds up values before it multiplies attributes, which saves memory."""

    def grouped(self, attributes: Sequence[str], groups: Sequence[Indices]) -> Floats:
        """See `grouped_marginal`."""


def grouped_marginal(model: Model, attributes: Sequence[str], groups: Sequence[Indices]) -> Floats:
    """The distribution over groups of values, one axis per attribute.

    Equal to adding up the cells of `model.marginal(attributes)`.

    Args:
        model: Any model.
        attributes: The attributes.
        groups: `groups[i][code]` is the group of a code of the i-th attribute, numbered from 0
            without gaps.

    Raises:
        ParameterError: The model has no `grouped` and the marginal has too many cells.
    """
    if isinstance(model, _Grouping):
        return model.grouped(attributes, groups)
    if model.schema.cells(attributes) > _MAX_UNGROUPED:
        raise ParameterError(
            f"{', '.join(attributes)} together have {model.schema.cells(attributes):,} cells, more than {_MAX_UNGROUPED:,}; "
            "ask about fewer attributes at a time",
            where="attributes",
        )
    return add_up(model.marginal(attributes), groups)


def add_up(marginal: Floats, groups: Sequence[Indices]) -> Floats:
    """A table of cells added up along each axis by group."""
    for axis, group in enumerate(groups):
        indicator = np.zeros((len(group), int(group.max()) + 1))
        indicator[np.arange(len(group)), group] = 1.0
        marginal = np.moveaxis(np.tensordot(marginal, indicator, (axis, 0)), -1, axis)
    return np.asarray(marginal)


MAX_TRIES = 2000  # rows drawn for one that keeps every rule


@dataclass(frozen=True)
class Ruled:
    """A model over the whole schema.

    Attributes:
        schema: The whole schema.
        core: The model of the asked attributes.
        within: For each attribute asked in groups, the share of each value in its group.
        outcomes: The code of each determined attribute for every code of its determinant.
    """

    schema: Schema
    core: Model
    within: Mapping[str, Floats] = field(default_factory=dict)
    outcomes: Mapping[str, Integers] = field(default_factory=dict)
    kind = "ruled"

    @cached_property
    def _by(self) -> dict[str, str]:
        return {
            rule.attribute: rule.by for rule in self.schema.rules if isinstance(rule, Determines)
        }

    @cached_property
    def _tables(self) -> tuple[Allowed, ...]:
        return constraints(self.schema)

    def root(self, name: str) -> str:
        """The attribute that was asked and determines this one, possibly itself."""
        while name in self._by:
            name = self._by[name]
        return name

    def codes_of(self, name: str) -> Integers:
        """The code of an attribute for every code of its root."""
        if name not in self._by:
            return np.arange(self.schema[name].cardinality)
        return np.asarray(self.outcomes[name])[self.codes_of(self._by[name])]

    def _groups_of(self, name: str) -> Indices:
        return np.asarray(self.schema[name].group_codes, dtype=np.intp)

    def marginal(self, attributes: Sequence[str]) -> Floats:
        check_marginal(self.schema, attributes)
        wanted = list(dict.fromkeys(self.root(name) for name in attributes))
        for tables in self._choices(wanted):
            joint = self._conditioned(wanted, tables)
            if joint is not None:
                break
        else:
            raise StateError("this marginal needs more memory than there is; ask fewer attributes")
        if list(attributes) == wanted:
            return joint
        out = np.zeros([self.schema[name].cardinality for name in attributes])
        places = [
            _along(self.codes_of(name), wanted.index(self.root(name)), len(wanted))
            for name in attributes
        ]
        np.add.at(
            out,
            tuple(np.broadcast_arrays(*places))
            if len(places) > 1
            else (np.broadcast_to(places[0], joint.shape),),
            joint,
        )
        return out

    def _choices(self, wanted: Sequence[str]) -> list[tuple[Allowed, ...]]:
        """Sets of rules to condition on, from all rules to those of the wanted attributes only."""
        near = tuple(t for t in self._tables if any(self.root(name) in wanted for name in t.names))
        inside = tuple(
            t for t in self._tables if all(self.root(name) in wanted for name in t.names)
        )
        return [self._tables, near, inside]

    def _conditioned(self, wanted: Sequence[str], tables: Sequence[Allowed]) -> Floats | None:
        """The distribution of roots given the rules in `tables`; None if it has too many cells."""
        roots = list(
            dict.fromkeys([*wanted, *(self.root(name) for table in tables for name in table.names)])
        )
        classes = [self._classes(root, tables) if root not in wanted else None for root in roots]
        sizes = [
            self.schema[root].cardinality if own is None else int(own.max()) + 1
            for root, own in zip(roots, classes, strict=True)
        ]
        if math.prod(sizes) > MAX_CELLS:
            return None
        groups: list[Indices] = []
        for root, own in zip(roots, classes, strict=True):
            plain = np.arange(self.core.schema[root].cardinality, dtype=np.intp)
            groups.append(plain if own is None or root in self.within else own)
        joint = grouped_marginal(self.core, roots, groups) if tables else self.core.marginal(roots)
        for axis, (root, own) in enumerate(zip(roots, classes, strict=True)):
            if root in self.within:
                joint = self._refined(joint, axis, root, own)
        for table in tables:
            joint = joint * self._mask(table, roots, classes)
        joint = joint.sum(axis=tuple(range(len(wanted), len(roots))))
        total = joint.sum()
        if not total > 0:
            raise StateError(
                "the rules leave no record that the model thinks possible; check the schema's rules"
            )
        return np.asarray(joint / total)

    def _refined(self, joint: Floats, axis: int, root: str, classes: Indices | None) -> Floats:
        """An axis of groups as one of values, or of classes of values."""
        groups, share = self._groups_of(root), self.within[root]
        if classes is None:
            shape = [1] * joint.ndim
            shape[axis] = len(share)
            return np.asarray(np.take(joint, groups, axis) * share.reshape(shape))
        weights = np.zeros((int(groups.max()) + 1, int(classes.max()) + 1))
        np.add.at(weights, (groups, classes), share)
        return np.asarray(np.moveaxis(np.tensordot(joint, weights, (axis, 0)), -1, axis))

    def _classes(self, root: str, tables: Sequence[Allowed]) -> Indices:
        """Equal numbers for codes of a root that every rule treats alike."""
        rows = [np.zeros((self.schema[root].cardinality, 1), dtype=bool)]
        for table in tables:
            for axis, name in enumerate(table.names):
                if self.root(name) == root:
                    own = np.moveaxis(table.table, axis, 0)[self.codes_of(name)]
                    rows.append(own.reshape(len(own), -1))
        return (
            np.unique(np.concatenate(rows, axis=1), axis=0, return_inverse=True)[1]
            .ravel()
            .astype(np.intp)
        )

    def _mask(
        self, table: Allowed, roots: Sequence[str], classes: Sequence[Indices | None]
    ) -> Flags:
        places = []
        for name in table.names:
            axis = roots.index(self.root(name))
            codes, own = self.codes_of(name), classes[axis]
            if own is not None:  # one code represents its class
                codes = codes[np.unique(own, return_index=True)[1]]
            places.append(_along(codes, axis, len(roots)))
        return np.asarray(table.table[tuple(np.broadcast_arrays(*places))])

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        parts: list[Codes] = []
        missing, drawn = rows, 0
        while missing > 0:
            kept = self._keeping(self._whole(self.core.sample(max(missing, 64), rng), rng))
            drawn += max(missing, 64)
            parts.append(kept[:missing])
            missing -= len(parts[-1])
            if missing and drawn > MAX_TRIES * rows + 100_000:
                raise StateError(
                    "hardly any row of the model keeps the rules; check the schema's rules"
                )
        return (
            np.asfortranarray(np.concatenate(parts))
            if parts
            else np.empty((0, len(self.schema)), np.int32)
        )

    def _whole(self, codes: Codes, rng: np.random.Generator) -> Codes:
        """Rows of the model inside as rows of the whole schema."""
        out = np.empty((len(codes), len(self.schema)), dtype=np.int32, order="F")
        for i, name in enumerate(self.core.schema.names):
            column = codes[:, i]
            if name in self.within:
                column = _draw_within(column, self._groups_of(name), self.within[name], rng)
            out[:, self.schema.index(name)] = column
        for name in self._by:
            root = out[:, self.schema.index(self.root(name))]
            out[:, self.schema.index(name)] = self.codes_of(name)[root]
        return out

    def _keeping(self, codes: Codes) -> Codes:
        kept = np.ones(len(codes), dtype=bool)
        for table in self._tables:
            kept &= table.table[tuple(codes[:, self.schema.index(name)] for name in table.names)]
        return codes[kept]

    def to_bytes(self) -> bytes:
        arrays: dict[str, AnyArray] = {"core": np.frombuffer(self.core.to_bytes(), np.uint8)}
        arrays |= {f"within {name}": share for name, share in self.within.items()}
        arrays |= {f"outcome {name}": codes for name, codes in self.outcomes.items()}
        return pack({"kind": self.kind, "schema": self.schema.to_json()}, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Ruled:
        meta, arrays = unpack(data)
        within = {
            name.removeprefix("within "): a
            for name, a in arrays.items()
            if name.startswith("within ")
        }
        outcomes = {
            name.removeprefix("outcome "): a
            for name, a in arrays.items()
            if name.startswith("outcome ")
        }
        core = arrays["core"].tobytes()
        # Nested archives would be copied at each level.
        if unpack(core)[0].get("kind") == cls.kind:
            raise ReportError("a model with rules contains another one")
        model = cls(schema_from_json(meta["schema"]), model_from_bytes(core), within, outcomes)
        model._check_parts()
        return model

    def _check_parts(self) -> None:
        """Raise `ReportError` if the inner model, shares or outcomes do not fit the schema."""
        if set(self.outcomes) != set(self._by):
            raise ReportError("the outcomes are not those of the determined attributes")
        for name, by in self._by.items():
            codes, size = self.outcomes[name], self.schema[name].cardinality
            if codes.shape != (self.schema[by].cardinality,) or codes.dtype.kind not in "iu":
                raise ReportError(f"the outcomes of {name} have the wrong shape")
            if (codes < 0).any() or (codes >= size).any():
                raise ReportError(f"an outcome of {name} is none of its values")
        for name, share in self.within.items():
            if share.shape != (self.schema[name].cardinality,) or not np.isfinite(share).all():
                raise ReportError(f"the shares within groups of {name} have the wrong shape")
        for root in {self.root(name) for name in self.schema.names}:
            groups = self._groups_of(root)
            asked = int(groups.max()) + 1 if root in self.within else self.schema[root].cardinality
            if self.core.schema[root].cardinality != asked:
                raise ReportError(f"the inner model has another number of values of {root}")


@runtime_checkable
class _Wrapping(Protocol):
    """A model that changes the distribution of another one, not its rules."""

    base: Model


def _ruled(model: Model) -> Ruled | None:
    """The rules that a model keeps; None without any."""
    inner = model.base if isinstance(model, _Wrapping) else model
    return inner if isinstance(inner, Ruled) else None


def core_of(model: Model) -> Model:
    """The fitted model, without rules."""
    return model.core if isinstance(model, Ruled) else model


def root_of(model: Model, name: str) -> str:
    """The asked attribute that determines this one; by default the attribute itself."""
    ruled = _ruled(model)
    return name if ruled is None else ruled.root(name)


def told_within_groups(
    model: Model, names: Sequence[str], groups: Sequence[Indices] | None = None
) -> str:
    """Why a table has details that were not measured; empty if it has none.

    Values of a wide attribute in one group are assumed to depend on other attributes alike.
    This is not measured, and replicates of the model do not show its error.
    """
    ruled = _ruled(model)
    if ruled is None or len({ruled.root(name) for name in names}) < 2:
        return ""
    for i, name in enumerate(names):
        root = ruled.root(name)
        if root not in ruled.within:
            continue
        cells = ruled.codes_of(name) if groups is None else groups[i][ruled.codes_of(name)]
        asked = np.asarray(ruled.schema[root].group_codes, dtype=np.intp)
        of_group = np.zeros(int(asked.max()) + 1, dtype=np.intp)
        of_group[asked] = cells
        if (of_group[asked] != cells).any():
            return (
                f"{root} was asked in groups of values together with other attributes: how its single values depend on "
                "them was not measured, they are assumed alike, and no interval can be computed; ask about whole groups"
            )
    return ""


def _along(codes: Integers, axis: int, axes: int) -> Integers:
    """An index along one axis of many."""
    shape = [1] * axes
    shape[axis] = len(codes)
    return codes.reshape(shape)


def _draw_within(
    groups: Codes, group_of: Indices, share: Floats, rng: np.random.Generator
) -> Codes:
    """A value of each row's group, drawn by its share there."""
    order = np.argsort(group_of, kind="stable")
    starts = np.searchsorted(group_of[order], np.arange(int(group_of.max()) + 2))
    cumulative = np.concatenate([[0.0], np.cumsum(share[order])])
    low, high = cumulative[starts[groups]], cumulative[starts[groups + 1]]
    found = (
        np.searchsorted(cumulative, low + (high - low) * rng.random(len(groups)), side="right") - 1
    )
    return np.asarray(
        order[np.clip(found, starts[groups], starts[groups + 1] - 1)].astype(np.int32)
    )
