"""Numbers drawn inside the bins of their codes: real, or multiples of a unit.

A block of equal density in each bin would show its edges. So the density is piecewise linear, with a knot at every edge and in the
middle of every bin: continuous across edges, zero outside the bins, never negative, and each bin keeps exactly its share. What
neighbouring bins hold decides the density at the edge between them; atoms between two bins do not come into it. Where bins grow
towards one end, as they do for amounts with a long tail, all of this holds on a scale that is logarithmic from the narrowest on.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dither.schema.line import Line
from dither.types import Codes, Counts, Flags, Floats, Indices, Integers, Reals

SKEWED = (
    10.0  # the last bin is so many times as wide as the narrowest: then the scale is logarithmic
)
_FAR = 2.0**62  # beyond any bound we draw whole numbers in; keeps sums inside 64 bits


@dataclass(frozen=True)
class Knots:
    """The density of every bin at its lower end, in its middle and at its upper end."""

    lower: Floats
    middle: Floats
    upper: Floats


def knots(low: Floats, high: Floats, counts: Counts | Floats, joined: Flags) -> Knots:
    """The density of bins in the order of their numbers; `joined[i]` says that bin i + 1 begins where bin i ends.

    At an edge the density is that of the neighbours, the narrower one's counting for more, but at most twice the lesser of them:
    then none is negative in the middle of a bin. A bin without a neighbour on one side goes on in a straight line.
    """
    width = high - low
    mean = counts / width
    lower, upper = np.full(len(mean), np.nan), np.full(len(mean), np.nan)
    a, b = mean[:-1], mean[1:]
    at_edge = (a * width[1:] + b * width[:-1]) / (width[:-1] + width[1:])
    shared = np.minimum(at_edge, 2 * np.minimum(a, b))
    upper[:-1], lower[1:] = np.where(joined, shared, np.nan), np.where(joined, shared, np.nan)
    alone = np.isnan(lower) & np.isnan(upper)
    lower, upper = np.where(alone, mean, lower), np.where(alone, mean, upper)
    lower = np.where(np.isnan(lower), 2 * mean - upper, lower)
    upper = np.where(np.isnan(upper), 2 * mean - lower, upper)
    return Knots(lower, 2 * mean - (lower + upper) / 2, upper)


def draw_places(density: Knots, bins: Indices, uniform: Floats) -> Floats:
    """Where in its bin, from 0 to 1, each draw lies: the inverse of the cumulative density."""
    first, middle, last = density.lower[bins], density.middle[bins], density.upper[bins]
    left, right = first + middle, middle + last
    share = left / np.maximum(left + right, 1e-300)
    early = uniform < share
    begin, end = np.where(early, first, middle), np.where(early, middle, last)
    v = np.where(
        early,
        uniform / np.maximum(share, 1e-300),
        (uniform - share) / np.maximum(1 - share, 1e-300),
    )
    root = np.sqrt(np.maximum(begin * begin + (end * end - begin * begin) * v, 0.0))
    t = np.where(begin + root > 0, v * (begin + end) / np.maximum(begin + root, 1e-300), v)
    return np.clip(np.where(early, 0.0, 0.5) + np.clip(t, 0.0, 1.0) / 2, 0.0, 1.0)


def draw_reals(line: Line, codes: Codes, dtype: npt.DTypeLike, rng: np.random.Generator) -> Reals:
    """A number in the cell of each code; atoms are their own value.

    Rounding to `dtype` never carries a number into another cell, as long as the cell holds a number of that type.
    """
    low, high = np.asarray(line.ends, dtype=np.float64).T
    values = _draw(low, high, line, codes, rng).astype(dtype)
    kind = values.dtype.type
    lowest, highest = low.astype(kind), high.astype(kind)
    open_low, open_high = _open_ends(line)
    wide_low, wide_high = lowest.astype(np.float64), highest.astype(np.float64)
    late = np.where(open_high, wide_high >= high, wide_high > high)
    early = np.where(open_low, wide_low <= low, wide_low < low)
    highest[late] = np.nextafter(highest[late], kind(-np.inf))
    lowest[early] = np.nextafter(lowest[early], kind(np.inf))
    atom = low == high
    lowest, highest = (
        np.where(atom, low.astype(kind), lowest),
        np.where(atom, high.astype(kind), highest),
    )
    drawn: Reals = np.clip(values, lowest[codes], np.maximum(highest, lowest)[codes])
    return drawn


def draw_multiples(
    line: Line, codes: Codes, unit: float, bounds: tuple[int, int], rng: np.random.Generator
) -> Integers:
    """How many units the number drawn for each code has; a bin without a multiple gives the one nearest to its middle.

    `bounds` are the least and the greatest number of units that the column's type holds.
    """
    first, last = multiples_in(line, unit, bounds)
    low, high = first.astype(np.float64) - 0.5, last.astype(np.float64) + 0.5
    drawn = np.rint(_draw(low, high, line, codes, rng))
    return np.clip(drawn.astype(np.int64), first[codes], last[codes])


def multiples_in(line: Line, unit: float, bounds: tuple[int, int]) -> tuple[Integers, Integers]:
    """The first and the last multiple of a unit in each cell (the nearest one, twice, where a cell holds none)."""
    ends = np.asarray(line.ends, dtype=np.float64)
    scaled = np.clip(_settled(ends / unit), -_FAR, _FAR)
    low, high = scaled.T
    open_low, open_high = _open_ends(line)
    first = np.where(open_low, np.floor(low) + 1, np.ceil(low))
    last = np.where(open_high, np.ceil(high) - 1, np.floor(high))
    nearest = np.rint((low + high) / 2)
    if np.ceil(scaled.min()) <= np.floor(scaled.max()):
        nearest = np.clip(nearest, np.ceil(scaled.min()), np.floor(scaled.max()))
    none = first > last
    first, last = np.where(none, nearest, first), np.where(none, nearest, last)
    least, most = max(bounds[0], -int(_FAR)), min(bounds[1], int(_FAR))
    return np.clip(first.astype(np.int64), least, most), np.clip(last.astype(np.int64), least, most)


def decimals(unit: float) -> int:
    """How many digits after the point a multiple of a unit needs."""
    exponent = Decimal(repr(unit)).normalize().as_tuple().exponent
    return max(0, -int(exponent)) if isinstance(exponent, int) else 0


def from_multiples(number: Integers, unit: float) -> Floats:
    """So many units as a number, without the crumbs of a product: 3 cents are 0.03."""
    return np.asarray(np.round(number * unit, decimals(unit)))


def _draw(low: Floats, high: Floats, line: Line, codes: Codes, rng: np.random.Generator) -> Floats:
    """A number between the ends of each code's cell, by the density of the codes at hand; equal ends give that end."""
    counts = np.bincount(codes, minlength=line.cells)
    ends = line.ends
    bins = np.array([i for i, (a, b) in enumerate(ends) if a != b], dtype=np.intp)
    place = np.zeros(line.cells, dtype=np.intp)
    place[bins] = np.arange(len(bins))
    joined = np.array([ends[i][1] == ends[j][0] for i, j in pairwise(bins)], dtype=bool)
    warp = _warp(low[bins], high[bins])
    first, last = warp.there(low[bins]), warp.there(high[bins])
    density = knots(first, last, counts[bins], joined)
    uniform = rng.random(len(codes))
    at = place[codes]
    drawn = warp.back(first[at] + (last - first)[at] * draw_places(density, at, uniform))
    return np.asarray(np.where(low[codes] == high[codes], low[codes], drawn))


@dataclass(frozen=True)
class Warp:
    """A scale for drawing, straight in units of `width`; or logarithmic beyond `origin`, in the direction of `sign`, no kink."""

    origin: float
    width: float
    sign: float = 1.0
    logarithmic: bool = False

    def there(self, numbers: Floats) -> Floats:
        """Numbers on the scale."""
        steps = self.sign * (numbers / self.width - self.origin / self.width)
        if self.logarithmic:
            steps = np.where(steps > 0, np.log1p(np.maximum(steps, 0.0)), steps)
        return np.asarray(self.sign * steps)

    def back(self, places: Floats) -> Floats:
        """Places on the scale as numbers."""
        steps = self.sign * places
        if self.logarithmic:
            steps = np.where(steps > 0, np.expm1(np.maximum(steps, 0.0)), steps)
        return np.asarray(self.origin + self.sign * (steps * self.width))


def _warp(low: Floats, high: Floats) -> Warp:
    """Straight, in units of the widest bin lest widths of 1e300 overflow; logarithmic where bins grow towards one end."""
    width = high - low
    least, most = float(width.min()), float(width.max())
    narrow = int(width.argmin())
    for sign, end, origin in ((1.0, width[-1], low[narrow]), (-1.0, width[0], high[narrow])):
        if len(width) > 2 and end == most and most > SKEWED * least:
            return Warp(float(origin), least, sign, True)
    return Warp(float(low[0]), most)


def _open_ends(line: Line) -> tuple[Flags, Flags]:
    """Whether the lower and the upper end of each cell are outside it."""
    exact = {a for a, b in line.ends if a == b}
    own = dict(zip(line.boundaries, line.points, strict=True))
    lower = np.array([a != b and a in exact for a, b in line.ends])
    upper = np.array([a != b and own[b] != code for code, (a, b) in enumerate(line.ends)])
    return lower, upper


def _settled(numbers: Floats) -> Floats:
    """Numbers that miss a whole one by rounding alone, put there."""
    whole = np.rint(numbers)
    return np.where(
        np.abs(numbers - whole) <= 1e-9 * np.maximum(1.0, np.abs(whole)), whole, numbers
    )
