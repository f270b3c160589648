"""Numbers drawn uniformly inside their bins: real, whole, or with a fixed number of decimals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dither.types import Codes, Floats, Integers

_FAR = 2.0**62  # beyond any bound we draw whole numbers in; keeps sums inside 64 bits


def draw_reals(
    edges: Floats, codes: Codes, dtype: npt.DTypeLike, rng: np.random.Generator
) -> npt.NDArray[np.floating[Any]]:
    """Uniform in [lower, upper) of each code's bin; the last bin is closed.

    Rounding to `dtype` never carries a number into the next bin, as long as the bin holds a number of that type.
    """
    lower, upper = edges[:-1], edges[1:]
    values = (lower[codes] + (upper - lower)[codes] * rng.random(len(codes))).astype(dtype)
    kind = values.dtype.type
    highest, lowest = upper.astype(kind), lower.astype(kind)
    late, early = highest.astype(np.float64) >= upper, lowest.astype(np.float64) < lower
    late[-1] = highest[-1] > upper[-1]
    highest[late] = np.nextafter(highest[late], kind(-np.inf))
    lowest[early] = np.nextafter(lowest[early], kind(np.inf))
    drawn: npt.NDArray[np.floating[Any]] = np.clip(values, lowest[codes], np.maximum(highest, lowest)[codes])
    return drawn


def draw_integers(edges: Floats, codes: Codes, bounds: tuple[int, int], rng: np.random.Generator) -> Integers:
    """Uniform over the integers of each code's bin; a bin without any gives the integer nearest to its middle.

    `bounds` are the least and the greatest integer that the column's type holds.
    """
    first, last = integers_in(edges, bounds)
    drawn: Integers = first[codes] + np.floor(rng.random(len(codes)) * (last - first + 1)[codes]).astype(np.int64)
    return np.minimum(drawn, last[codes])  # a product can round up to the whole width of a very wide bin


def integers_in(edges: Floats, bounds: tuple[int, int]) -> tuple[Integers, Integers]:
    """The first and the last integer of each bin (the nearest one, twice, where a bin holds none)."""
    edges = np.clip(edges, -_FAR, _FAR)
    first = np.ceil(edges[:-1])
    last = np.ceil(edges[1:]) - 1
    last[-1] = np.floor(edges[-1])
    nearest = np.rint((edges[:-1] + edges[1:]) / 2)
    if np.ceil(edges[0]) <= np.floor(edges[-1]):
        nearest = np.clip(nearest, np.ceil(edges[0]), np.floor(edges[-1]))
    none = first > last
    first, last = np.where(none, nearest, first), np.where(none, nearest, last)
    low, high = max(bounds[0], -int(_FAR)), min(bounds[1], int(_FAR))
    return np.clip(first.astype(np.int64), low, high), np.clip(last.astype(np.int64), low, high)
