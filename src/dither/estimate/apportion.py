"""Whole numbers for shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dither.types import Floats, Integers


def apportion(people: int, shares: Sequence[float] | Floats) -> Integers:
    """Whole numbers nearest to the shares that add up to `people` (largest remainders)."""
    ideal = np.asarray(shares, dtype=np.float64) * people
    whole = np.floor(ideal).astype(np.int64)
    short = people - int(whole.sum())
    whole[np.argsort(-(ideal - whole), kind="stable")[:short]] += 1
    return whole
