"""Quantiles of a number known by bins: the cumulative distribution and its band, read the other way round."""

from __future__ import annotations

import math

import numpy as np

from dither.types import Floats

_STEPS = 8  # of the search inside each bin
_MOST_POINTS = 4_000


def invert(
    ends: tuple[Floats, Floats], sums: Floats, covariance: Floats, level: float, reach: float
) -> tuple[float, float, float]:
    """The place below which a share `level` lies, and its interval; NaN where none is known.

    `sums` are the shares of people in stretches between their `ends`, evenly spread there. The interval holds every place x that is
    not ruled out: A(x) - level B lies within `reach` of its own standard errors of zero, A(x) being the people up to x and B all
    of them. It is found on a grid, to within a small part of a stretch.
    """
    total = float(sums.sum())
    if not total > 0:
        return math.nan, math.nan, math.nan
    cumulative = np.maximum.accumulate(np.append(0.0, np.cumsum(sums)))
    estimate = _crossing(np.arange(len(sums) + 1.0), cumulative - level * cumulative[-1])
    spread = float(covariance.sum())
    if math.isnan(spread) or total <= reach * math.sqrt(max(spread, 0.0)):
        return _place(estimate, ends), math.nan, math.nan
    steps = max(1, min(_STEPS, _MOST_POINTS // len(sums)))
    at = np.arange(len(sums) * steps + 1) / steps
    # Row i has how much of each stretch lies below the i-th point, less `level` of all.
    below = np.clip(at[:, None] - np.arange(len(sums)), 0.0, 1.0) - level
    away = below @ sums
    error = np.sqrt(
        np.maximum(np.einsum("ij,jk,ik->i", below, covariance, below, optimize=True), 0.0)
    )
    low = _crossing(at, np.maximum.accumulate(away + reach * error))
    high = -_crossing(-at[::-1], np.maximum.accumulate((reach * error - away)[::-1]))
    return (
        _place(estimate, ends),
        _place(min(low, estimate), ends),
        _place(max(high, estimate), ends),
    )


def _crossing(x: Floats, rising: Floats) -> float:
    """Where a rising line through points first reaches zero; an end if it begins above it or never does."""
    first = int(np.searchsorted(rising, 0.0, side="left"))
    if first in (0, len(x)):
        return float(x[min(first, len(x) - 1)])
    below, above = rising[first - 1], rising[first]
    return float(x[first - 1] + (x[first] - x[first - 1]) * (0.0 - below) / (above - below))


def _place(at: float, ends: tuple[Floats, Floats]) -> float:
    """The place of a point that is numbered by its stretch and its part of it: 2.5 is the middle of the third."""
    stretch = min(max(math.ceil(at) - 1, 0), len(ends[0]) - 1)
    low, high = ends[0][stretch], ends[1][stretch]
    return float(low + (high - low) * (at - stretch))
