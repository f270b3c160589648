"""Quantiles of a number known by bins: the cumulative distribution and its band, read the other way round."""

from __future__ import annotations

import math

import numpy as np

from dither.types import Floats

_STEPS = 8  # of the search inside each bin
_MOST_POINTS = 4_000


def invert(
    ends: Floats, sums: Floats, covariance: Floats, level: float, reach: float, whole: bool
) -> tuple[float, float, float]:
    """The number below which a share `level` lies, and its interval; NaN where none is known.

    `sums` are the shares of people between neighbouring `ends`, evenly spread there. The interval holds every number x that is
    not ruled out: A(x) - level B lies within `reach` of its own standard errors of zero, A(x) being the people up to x and B all
    of them. It is found on a grid, to within a small part of a bin. Whole numbers are given back as such.
    """
    total = float(sums.sum())
    if not total > 0:
        return math.nan, math.nan, math.nan
    cumulative = np.maximum.accumulate(np.append(0.0, np.cumsum(sums)))
    estimate = _crossing(ends, cumulative - level * cumulative[-1])
    spread = float(covariance.sum())
    if math.isnan(spread) or total <= reach * math.sqrt(max(spread, 0.0)):
        return _number(estimate, ends, whole), math.nan, math.nan
    steps = max(1, min(_STEPS, _MOST_POINTS // len(sums)))
    at = np.arange(len(sums) * steps + 1) / steps
    x = np.interp(at, np.arange(len(ends)), ends)
    # Row i has how much of each bin lies below x_i, less `level` of all.
    below = np.clip(at[:, None] - np.arange(len(sums)), 0.0, 1.0) - level
    away = below @ sums
    error = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", below, covariance, below, optimize=True), 0.0))
    low = _crossing(x, np.maximum.accumulate(away + reach * error))
    high = -_crossing(-x[::-1], np.maximum.accumulate((reach * error - away)[::-1]))
    low, high = min(low, estimate), max(high, estimate)
    return _number(estimate, ends, whole), _number(low, ends, whole), _number(high, ends, whole)


def _crossing(x: Floats, rising: Floats) -> float:
    """Where a rising line through points first reaches zero; an end if it begins above it or never does."""
    first = int(np.searchsorted(rising, 0.0, side="left"))
    if first == 0 or first == len(x):
        return float(x[min(first, len(x) - 1)])
    below, above = rising[first - 1], rising[first]
    return float(x[first - 1] + (x[first] - x[first - 1]) * (0.0 - below) / (above - below))


def _number(position: float, ends: Floats, whole: bool) -> float:
    """The number at a position; the whole number k has the stretch from k - 1/2 up to k + 1/2."""
    if not whole:
        return position
    return float(np.clip(math.ceil(position - 0.5 - 1e-9), ends[0] + 0.5, ends[-1] - 0.5))
