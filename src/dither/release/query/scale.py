"""The codes of numbers and times as stretches of a line, so that a comparison is a cut.

Numbers that are known to be multiples of a unit are counted: the k-th multiple stands for the stretch from k - 1/2 to k + 1/2, and
a bin for those of its multiples. So `age <= 49` and `age < 50` cut in the same place where ages are whole. Other numbers lie where
they are; a single one of them has no width, unless it is a code of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dither.schema import Attribute
from dither.types import Floats, Indices


@dataclass(frozen=True)
class Scale:
    """Each code's stretch from `low` to `high`, in units if numbers are `counted`; `atoms` are numbers with a code of their own."""

    low: Floats
    high: Floats
    unit: float
    counted: bool
    atoms: frozenset[float]

    def cut(self, number: float, *, after: bool) -> float:
        """The place just before a number or just after it."""
        if self.counted:
            place = round(number / self.unit, 9)
            return math.floor(place) + 0.5 if after else math.ceil(place) - 0.5
        return float(np.nextafter(number, math.inf)) if after and number in self.atoms else number

    def tells(self, number: float) -> bool:
        """Whether this one number has a width."""
        return number in self.atoms or (self.counted and round(number / self.unit, 9).is_integer())

    def divided(self, cut: float) -> Indices:
        """The codes that a cut divides."""
        return np.flatnonzero((self.low < cut) & (cut < self.high))

    def numbers(self, places: Floats) -> Floats:
        """The numbers at some places."""
        return places * self.unit if self.counted else places

    def rounded(self, place: float) -> float:
        """The number at a place, a multiple of the unit if they are counted."""
        return math.ceil(place - 0.5 - 1e-9) * self.unit if self.counted else place

    def reach(self, low: Floats, high: Floats) -> Floats:
        """How far the numbers of a stretch lie from its middle at most."""
        return np.maximum(self.numbers(high - low - (1.0 if self.counted else 0.0)) / 2, 0.0)


def scale_of(attribute: Attribute, unit: float | None) -> Scale:
    """The scale of an attribute whose numbers are multiples of `unit`, None for any; bins without a multiple are not counted."""
    ends = np.repeat(np.array(attribute.line.ends, dtype=np.float64), attribute.turns, axis=0)
    atoms = frozenset(attribute.atoms)
    if unit is not None:
        low, high = _counted(ends, atoms, unit, closed=attribute.kind in ("numeric", "duration"))
        if (low < high).all():
            return Scale(low, high, unit, True, atoms)
    exact = np.isin(ends, list(atoms))
    low = np.where(
        exact[:, 0] & (ends[:, 0] < ends[:, 1]), np.nextafter(ends[:, 0], math.inf), ends[:, 0]
    )
    high = np.where(ends[:, 0] == ends[:, 1], np.nextafter(ends[:, 1], math.inf), ends[:, 1])
    return Scale(low, high, 1.0, False, atoms)


def _counted(
    ends: Floats, atoms: frozenset[float], unit: float, *, closed: bool
) -> tuple[Floats, Floats]:
    places, exact, point = (
        np.round(ends / unit, 9),
        np.isin(ends, list(atoms)),
        ends[:, 0] == ends[:, 1],
    )
    low = np.where(exact[:, 0], places[:, 0] + 0.5, np.ceil(places[:, 0]) - 0.5)
    high = np.ceil(places[:, 1]) - 0.5
    last = closed & (ends[:, 1] == ends[~point, 1].max())
    high = np.where(last & ~exact[:, 1], np.floor(places[:, 1]) + 0.5, high)
    return np.where(point, places[:, 0] - 0.5, low), np.where(point, places[:, 1] + 0.5, high)
