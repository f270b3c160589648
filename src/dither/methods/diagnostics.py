"""Facts that a method states about its run, typed inside and plain JSON in a release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from inspect import get_annotations
from typing import Any

from dither.fit import TreeFit, Triangulation
from dither.schema import Schema
from dither.types import JsonMapping, JsonObject

Names = list[list[str]]  # sets of attributes


def named(schema: Schema, sets: Iterable[Sequence[int]]) -> Names:
    """Sets of positions as sets of names."""
    return [[schema.names[a] for a in members] for members in sets]


@dataclass(frozen=True)
class TreeFacts:
    """A junction tree: its pairs, its cliques, and what the cap on their cells removed."""

    edges: Names
    edges_dropped_for_the_cap: Names
    cliques: Names
    largest_clique_cells: int

    @classmethod
    def of(cls, schema: Schema, tree: Triangulation) -> TreeFacts:
        """The facts of a tree over a schema."""
        return cls(
            named(schema, tree.kept),
            named(schema, tree.dropped),
            named(schema, tree.cliques),
            max(tree.cells(schema.cardinalities)),
        )


@dataclass(frozen=True)
class FitFacts:
    """The end of a tree's fit: steps, residual per cell, and the reason to stop."""

    iterations: int
    discrepancy: float
    stopped: str

    @classmethod
    def of(cls, fit: TreeFit) -> FitFacts:
        """The facts of a fit."""
        return cls(fit.iterations, fit.discrepancy, fit.stopped)


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """Facts about a run that a release states; each method adds its own fields.

    Field names are the keys of `notes` in `release.json`, those of a subclass before those of
    its base. `TreeFacts` are stated under their own keys. A field that is None is
    not stated.

    Attributes:
        fallback: Why attributes were modelled as independent.
        not_asked: Attributes determined by others, which were not asked.
        asked_in_groups: Attributes asked in groups of values.
    """

    fallback: str | None = None
    not_asked: list[str] | None = None
    asked_in_groups: list[str] | None = None

    def to_json(self) -> JsonObject:
        """Plain JSON values by name."""
        classes = [cls for cls in type(self).__mro__ if is_dataclass(cls)]
        names = [name for cls in classes for name in get_annotations(cls)]
        stated: JsonObject = {}
        for name in names:
            value = getattr(self, name)
            if isinstance(value, TreeFacts):
                stated |= asdict(value)
            elif value is not None:
                stated[name] = _plain(value)
        return stated

    @staticmethod
    def from_json(notes: JsonMapping) -> Diagnostics:
        """The facts of a saved release, or of a method that has no class for them."""
        return _StatedDiagnostics(notes=notes)

    @property
    def fell_back(self) -> bool:
        """Whether attributes were modelled as independent although the method can do more."""
        return self.fallback is not None

    @property
    def share_of_prior(self) -> float:
        """Weight of the prior in the model; 0 without one."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class SampleDiagnostics(Diagnostics):
    """A method that asks a share of the people: how many answered, and the share."""

    asked: int | None = None
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class _StatedDiagnostics(Diagnostics):
    """Facts kept as the JSON values of a release's `notes`."""

    notes: JsonMapping

    def to_json(self) -> JsonObject:
        later = super().to_json()
        del later["notes"]
        return {**self.notes, **later}

    @property
    def fell_back(self) -> bool:
        return bool(self.notes.get("fallbacks") or self.notes.get("fallback"))

    @property
    def share_of_prior(self) -> float:
        return float(self._part("prior").get("share_of_prior", 0.0))

    def _part(self, name: str) -> JsonMapping:
        """A note that holds values by name; empty if the method has none of that kind."""
        found = self.notes.get(name)
        return found if isinstance(found, Mapping) else {}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value
