"""The exponential mechanism over a short list, drawn exactly.

Guarantee: candidate i is chosen with probability proportional to exp(-epsilon s_i / (2 sensitivity)) for integer
scores s (small is good), by integer arithmetic; if one record moves every score by at most `sensitivity`, the choice
is epsilon-differentially private.

Reference: McSherry, Talwar, "Mechanism design via differential privacy", FOCS 2007.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dither.central.noise import ByteSource, bernoulli_exp, uniform_below
from dither.errors import PrivacyError
from dither.types import Integers

_EPSILON_BITS = 20
# Scores further than this above the best are treated as this far: min(s, best + gap) moves no more than s does.
_LARGEST_GAP = 2**36


def exponent_rate(sensitivity: int, epsilon: float) -> Fraction:
    """epsilon / (2 sensitivity) with epsilon rounded down to a multiple of 2**-20."""
    steps = int(Fraction(epsilon) * 2**_EPSILON_BITS)
    if steps < 1 or steps >= 2**26 or not 1 <= sensitivity < 2**22:
        raise PrivacyError(
            f"epsilon {epsilon:.3g} is out of range for choosing among candidates", where="epsilon", value=epsilon
        )
    return Fraction(steps, 2 * sensitivity * 2**_EPSILON_BITS)


def exponents(scores: Integers, sensitivity: int, epsilon: float) -> tuple[Integers, int]:
    """Numerators and the common denominator of the exponents: P(i) is proportional to exp(-numerator / denominator)."""
    rate = exponent_rate(sensitivity, epsilon)
    gaps = np.minimum(np.asarray(scores, dtype=np.int64) - np.min(scores), _LARGEST_GAP)
    return gaps * rate.numerator, rate.denominator


def choose(scores: Integers, sensitivity: int, epsilon: float, source: ByteSource) -> int:
    """The position of the chosen candidate."""
    numerators, denominator = exponents(scores, sensitivity, epsilon)
    size = numerators.size
    batch = min(size, 4096)
    while True:
        # Rejection: a uniform candidate, kept with its weight; the best has weight 1, so about `size` draws suffice.
        drawn = uniform_below(np.full(batch, size, dtype=np.uint64), source).astype(np.int64)
        kept = np.flatnonzero(bernoulli_exp(numerators[drawn].astype(np.uint64), denominator, source))
        if kept.size:
            return int(drawn[kept[0]])
