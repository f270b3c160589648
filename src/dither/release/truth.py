"""The simulated participants' true marginals, which a simulation may show beside its estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dither.schema import Schema
from dither.schema.cells import count_cells
from dither.types import Codes, Floats


@dataclass(frozen=True)
class Truth:
    """The simulated participants' true marginals: `marginal(attributes)` has one axis per attribute, like a model's."""

    marginal: Callable[[Sequence[str]], Floats]


def truth_from_codes(schema: Schema, codes: Codes) -> Truth:
    """The truth of a table of codes; marginals are counted when they are asked for."""

    def marginal(attributes: Sequence[str]) -> Floats:
        counts = count_cells(
            codes, schema.cardinalities, [schema.index(name) for name in attributes]
        )
        return np.asarray(counts / max(len(codes), 1), dtype=np.float64)

    return Truth(marginal)
