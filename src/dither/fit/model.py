"""The protocol of all models: any marginal, and rows drawn from the joint distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Protocol, Self, runtime_checkable

import numpy as np

from dither.errors import ParameterError, ReportError
from dither.schema import Schema, schema_from_json
from dither.tally.archive import decoding, pack, unpack
from dither.types import AnyArray, Codes, Floats, Indices

# 400 MB of doubles.
MAX_CELLS = 50_000_000


@runtime_checkable
class Model(Protocol):
    """A joint distribution over a schema's attributes."""

    @property
    def kind(self) -> str:
        """The model's name in an archive."""

    @property
    def schema(self) -> Schema:
        """The attributes."""

    def marginal(self, attributes: Sequence[str]) -> Floats:
        """The distribution of some attributes, one axis each in the given order."""

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Independent rows of codes, one column per attribute, determined by the generator."""

    def to_bytes(self) -> bytes:
        """An archive from which `from_bytes` rebuilds the model exactly."""

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The model of an archive from `to_bytes`."""


def check_marginal(
    schema: Schema, attributes: Sequence[str], cells: int | None = None
) -> tuple[int, ...]:
    """The positions of the attributes of a marginal.

    Args:
        schema: The model's schema.
        attributes: Names of distinct attributes.
        cells: Cells of the marginal; by default those of the product domain.

    Raises:
        ParameterError: The list is empty or repeats a name, or the marginal is too large.
    """
    if isinstance(attributes, str) or not attributes:
        raise ParameterError(
            "a marginal needs a list of at least one attribute",
            where="attributes",
            value=attributes,
        )
    positions = tuple(schema.index(name) for name in attributes)
    if len(set(positions)) != len(positions):
        raise ParameterError(
            f"a marginal names an attribute twice: {', '.join(attributes)}", where="attributes"
        )
    cells = schema.cells(attributes) if cells is None else cells
    if cells > MAX_CELLS:
        raise ParameterError(
            f"the marginal of {', '.join(attributes)} has {cells:,} cells, more than {MAX_CELLS:,}; ask fewer attributes",
            where="attributes",
            value=cells,
        )
    return positions


def sample_rows(distribution: Floats, rows: int, rng: np.random.Generator) -> Codes:
    """`rows` codes drawn from one distribution by inverting its cumulative sum."""
    cumulative = np.cumsum(distribution)
    codes: AnyArray = np.searchsorted(cumulative, rng.random(rows) * cumulative[-1], side="right")
    return np.minimum(codes, len(distribution) - 1).astype(np.int32)


@dataclass(frozen=True)
class Independent:
    """Independent attributes with one distribution each."""

    schema: Schema
    marginals: tuple[Floats, ...]
    kind = "independent"

    def __post_init__(self) -> None:
        for attribute, marginal in zip(self.schema, self.marginals, strict=True):
            if (
                marginal.shape != (attribute.cardinality,)
                or (marginal < 0).any()
                or not np.isclose(marginal.sum(), 1)
            ):
                raise ValueError(f"not a distribution over {attribute.name}")

    def marginal(self, attributes: Sequence[str]) -> Floats:
        positions = check_marginal(self.schema, attributes)
        joint = reduce(np.multiply.outer, (self.marginals[i] for i in positions))
        return np.asarray(joint, dtype=np.float64)

    def grouped(self, attributes: Sequence[str], groups: Sequence[Indices]) -> Floats:
        """See `grouped_marginal`: values are added up before attributes are multiplied."""
        alone = (self.marginals[self.schema.index(name)] for name in attributes)
        return np.asarray(
            reduce(np.multiply.outer, map(np.bincount, groups, alone)), dtype=np.float64
        )

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        codes = np.empty((rows, len(self.schema)), dtype=np.int32, order="F")
        for i, marginal in enumerate(self.marginals):
            codes[:, i] = sample_rows(marginal, rows, rng)
        return codes

    def to_bytes(self) -> bytes:
        return pack(
            {"kind": self.kind, "schema": self.schema.to_json()},
            {str(i): marginal for i, marginal in enumerate(self.marginals)},
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Independent:
        meta, arrays = unpack(data)
        schema = schema_from_json(meta["schema"])
        return cls(schema, tuple(arrays[str(i)] for i in range(len(schema))))


# A model's kind -> module in this package and its class. The module is imported when a model
# of its kind is read.
KINDS: dict[str, str] = {
    "average": "average:Average",
    "bayes_net": "bayes_net:BayesNet",
    "independent": "model:Independent",
    "junction_tree": "junction_tree:JunctionTree",
    "mixture": "mixture.model:Mixture",
    "raked": "raked:Raked",
    "ruled": "ruled:Ruled",
}


def model_from_bytes(data: bytes) -> Model:
    """Rebuild any model from the bytes that its `to_bytes` returned.

    Raises:
        ReportError: The bytes are not a model of a known kind.
    """
    kind = unpack(data)[0].get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ReportError(
            f"a model of kind {kind!r} is not known; this version reads {', '.join(sorted(KINDS))}",
            value=kind,
        )
    module, name = KINDS[kind].split(":")
    with decoding("model"):
        model: Model = getattr(import_module(f"dither.fit.{module}"), name).from_bytes(data)
    return model
