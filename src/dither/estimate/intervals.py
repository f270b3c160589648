"""Intervals from estimates and standard errors."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from dither.errors import ParameterError
from dither.types import Floats


def normal_interval(frequencies: Floats, standard_errors: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Two-sided intervals for each cell on its own; raw, so they may leave [0, 1] and then cover at the stated rate."""
    if not 0 < level < 1:
        raise ParameterError(f"an interval's level must lie between 0 and 1, not {level!r}", where="level", value=level)
    reach = NormalDist().inv_cdf((1 + level) / 2) * np.asarray(standard_errors)
    return frequencies - reach, frequencies + reach


def with_sampling(frequencies: Floats, standard_errors: Floats, n: int) -> Floats:
    """Standard errors for a population from which the n participants are a random sample: adds f(1-f)/n to the variance."""
    f = np.clip(frequencies, 0.0, 1.0)
    return np.sqrt(np.asarray(standard_errors) ** 2 + f * (1 - f) / n)
