"""Linear measurements of a product of attributes, axis by axis: nothing is flattened.

Measuring each axis with its own integer matrix is one measurement with their Kronecker product, and decoding axis by axis is
least squares for the whole, since the pseudo-inverse of a Kronecker product is that of its parts. A record's column is the
product of its columns, so the sensitivity for an added record is the product of the parts'. For a replaced one the entries
that two columns share have to be taken off: `replaced` counts them exactly.

Reference: Xiao, Wang, Gehrke, "Differential privacy via wavelet transforms", IEEE TKDE 2011, sections V and VI: an axis with few
values is better left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dither.central.measurement import Neighbours
from dither.types import Floats, Integers


class Axis(Protocol):
    """A measurement of one attribute's cells, along the last axis of an array; every entry of its matrix is 0, 1 or -1."""

    @property
    def cells(self) -> int:
        """How many cells the axis has."""

    def forward(self, counts: Integers) -> Integers:
        """The measurement, exactly."""

    def inverse(self, values: Floats) -> Floats:
        """The least-squares cells."""

    def shared(self) -> list[tuple[int, int]]:
        """For every way two cells can lie, equal ones first: in how many rows their columns agree, and are opposite.

        The first number of the first pair is how many rows a column has.
        """


@dataclass(frozen=True)
class Product:
    """All axes measured together; the last axis changes fastest."""

    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.cells for axis in self.axes)

    def measure(self, counts: Integers) -> Integers:
        out = counts.reshape(self.shape)
        for place, axis in enumerate(self.axes):
            out = np.moveaxis(axis.forward(np.moveaxis(out, place, -1)), -1, place)
        return out.ravel()

    def sensitivity(self, neighbours: Neighbours) -> int:
        lying = [axis.shared() for axis in self.axes]
        column = math.prod(ways[0][0] for ways in lying)
        return column if neighbours == "add-remove" else replaced(column, lying)

    def decode(self, noisy: Integers, variance: float) -> Floats:
        measured = [axis.forward(np.zeros(axis.cells, dtype=np.int64)).size for axis in self.axes]
        out = noisy.astype(np.float64).reshape(measured)
        for place, axis in enumerate(self.axes):
            out = np.moveaxis(axis.inverse(np.moveaxis(out, place, -1)), -1, place)
        return out.ravel()


def replaced(column: int, lying: Sequence[list[tuple[int, int]]]) -> int:
    """The largest distance of two different columns of a Kronecker product of matrices with entries 0, 1 and -1.

    If axis i has p_i rows where two columns agree and q_i where they are opposite, the product has (prod(p + q) + prod(p - q)) / 2
    rows where they agree; each takes 2 off the 2 `column` of columns that share nothing.
    """
    both, signed = np.ones(1), np.ones(1)
    for ways in lying:
        agree, opposite = np.asarray(ways, dtype=np.float64).T
        both = np.multiply.outer(both, agree + opposite).ravel()
        signed = np.multiply.outer(signed, agree - opposite).ravel()
    if both.size == 1:
        return 0  # no two cells are different
    return 2 * column - round(
        float((both + signed)[1:].min())
    )  # the first is of a cell with itself


@dataclass(frozen=True)
class Each:
    """Every cell by itself."""

    cells: int

    def forward(self, counts: Integers) -> Integers:
        return counts

    def inverse(self, values: Floats) -> Floats:
        return values

    def shared(self) -> list[tuple[int, int]]:
        return [(1, 0)] + [(0, 0)] * (self.cells > 1)
