"""Attributes taken as independent: the product of one-way marginals, the line every other model has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dither.models.model import check_marginal, sample_rows
from dither.schema import Schema, schema_from_json
from dither.tally.archive import pack, unpack
from dither.types import Codes, Floats


@dataclass(frozen=True)
class Independent:
    """One distribution an attribute."""

    schema: Schema
    marginals: tuple[Floats, ...]
    kind = "independent"

    def __post_init__(self) -> None:
        for attribute, marginal in zip(self.schema, self.marginals, strict=True):
            if marginal.shape != (attribute.cardinality,) or (marginal < 0).any() or not np.isclose(marginal.sum(), 1):
                raise ValueError(f"not a distribution over {attribute.name}")

    def marginal(self, attributes: Sequence[str]) -> Floats:
        positions = check_marginal(self.schema, attributes)
        joint = reduce(np.multiply.outer, (self.marginals[i] for i in positions))
        return np.asarray(joint, dtype=np.float64)

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
