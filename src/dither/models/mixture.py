"""A mixture of product distributions: P(x) = sum over components c of w_c times the product over attributes of A_c,i(x_i).

Any k-way marginal is a sum of outer products, exact and without touching the other attributes; sampling draws a component
for each row and then each attribute on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit

from dither.models.model import check_marginal, sample_rows
from dither.schema import Schema, schema_from_json
from dither.tally.archive import pack, unpack
from dither.types import Codes, Floats


@njit(cache=True)
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


_BLOCK_CELLS = 1 << 24  # marginals are summed over components in blocks of at most 128 MB


@dataclass(frozen=True)
class Mixture:
    """`weights` of the components, and for each attribute a table with one distribution per component."""

    schema: Schema
    weights: Floats
    components: tuple[Floats, ...]
    kind = "mixture"

    def __post_init__(self) -> None:
        if (self.weights < 0).any() or not np.isclose(self.weights.sum(), 1):
            raise ValueError("the weights of a mixture are not a distribution")
        for attribute, table in zip(self.schema, self.components, strict=True):
            if table.shape != (len(self.weights), attribute.cardinality):
                raise ValueError(f"the components of {attribute.name} have the wrong shape")
            if (table < 0).any() or not np.allclose(table.sum(axis=1), 1):
                raise ValueError(f"a component of {attribute.name} is not a distribution")

    def marginal(self, attributes: Sequence[str]) -> Floats:
        positions = check_marginal(self.schema, attributes)
        shape = [self.schema.cardinalities[i] for i in positions]
        *first, last = (self.components[i] for i in positions)
        width = int(np.prod(shape[:-1], dtype=np.int64))
        out = np.zeros((width, shape[-1]))
        step = max(1, _BLOCK_CELLS // width)
        for begin in range(0, len(self.weights), step):
            part = slice(begin, begin + step)
            joint = self.weights[part, None]
            for table in first:
                joint = (joint[:, :, None] * table[part, None, :]).reshape(len(joint), -1)
            out += joint.T @ last[part]
        return np.asarray(out.reshape(shape) / out.sum())

    @cached_property
    def _cumulative(self) -> Floats:
        """The cumulative distributions of all attributes side by side, one row per component."""
        return np.concatenate([np.cumsum(t, axis=1) / t.sum(axis=1, keepdims=True) for t in self.components], axis=1)

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        components = sample_rows(self.weights, rows, rng)
        codes = np.empty((rows, len(self.schema)), dtype=np.int32, order="F")
        start = 0
        for i, cardinality in enumerate(self.schema.cardinalities):
            _invert(self._cumulative, start, cardinality, components, rng.random(rows), codes[:, i])
            start += cardinality
        return codes

    def to_bytes(self) -> bytes:
        arrays = {"weights": self.weights, **{str(i): table for i, table in enumerate(self.components)}}
        return pack({"kind": self.kind, "schema": self.schema.to_json()}, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Mixture:
        meta, arrays = unpack(data)
        schema = schema_from_json(meta["schema"])
        return cls(schema, arrays["weights"], tuple(arrays[str(i)] for i in range(len(schema))))


def _invert(cumulative: Floats, start: int, width: int, components: Any, draws: Floats, out: Any) -> None:
    """Codes by binary search in each row's component; compiled on first use."""

    invert(cumulative, start, width, components, draws, out)
