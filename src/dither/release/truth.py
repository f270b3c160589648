"""What a simulation knows and a real collection never does: the true frequencies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.schema import Schema
from dither.types import Floats


@dataclass(frozen=True)
class Truth:
    """The simulated participants' true marginals: `marginal(attributes)` has one axis an attribute, like a model's."""

    marginal: Callable[[Sequence[str]], Floats]


def truth_from_codes(schema: Schema, codes: npt.NDArray[np.integer[Any]]) -> Truth:
    """The truth of a table of codes; marginals are counted when they are asked for."""

    def marginal(attributes: Sequence[str]) -> Floats:
        positions = [schema.index(name) for name in attributes]
        shape = tuple(schema.cardinalities[i] for i in positions)
        cell = np.zeros(len(codes), dtype=np.int64)
        for i, cardinality in zip(positions, shape, strict=True):
            cell *= cardinality
            cell += codes[:, i]
        counts = np.bincount(cell, minlength=math.prod(shape))
        return np.asarray(counts / max(len(codes), 1), dtype=np.float64).reshape(shape)

    return Truth(marginal)
