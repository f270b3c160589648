"""Does a mechanism keep its epsilon? The exact figure from its thresholds, and a lower bound from its actual reports.

The bound: an attacker who sees one report guesses which of two values made it. For an event that favours value 0, exact
(Clopper-Pearson) limits of its probability under either value give epsilon >= ln(lower_0 / upper_1) with the stated
confidence. A correct mechanism gives a bound below its epsilon; a bound above proves a violation.
Reference: Ding, Wang, Wang, Zhang, Kifer, "Detecting violations of differential privacy", CCS 2018.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from scipy.special import betaincinv

from dither.checks import check_whole
from dither.mechanisms import ByteSource, Mechanism
from dither.types import JsonObject

CONFIDENCE = 0.999


@dataclass(frozen=True)
class Audit:
    """The verdict on one mechanism at one epsilon."""

    mechanism: str
    cells: int
    epsilon_asked: float
    epsilon_exact: float
    epsilon_empirical_lower: float
    trials: int
    confidence: float
    report_bytes: int
    passed: bool

    def to_json(self) -> JsonObject:
        """Plain values."""
        return asdict(self)


def empirical_lower_bound(
    mechanism: Mechanism, trials: int, source: ByteSource, confidence: float = CONFIDENCE
) -> float:
    """A lower bound of epsilon from `trials` reports of each of two values, valid with the stated confidence."""
    first, second = mechanism.far_apart
    event = mechanism.tells(first, second)
    hits = [sum(event(mechanism.randomise(value, source)) for _ in range(trials)) for value in (first, second)]
    tail = (1 - confidence) / 2
    lower = float(betaincinv(hits[0], trials - hits[0] + 1, tail)) if hits[0] else 0.0
    upper = float(betaincinv(hits[1] + 1, trials - hits[1], 1 - tail)) if hits[1] < trials else 1.0
    return max(0.0, math.log(lower / upper)) if lower > 0 else 0.0


def audit(
    mechanism: Mechanism, epsilon: float, trials: int, source: ByteSource, confidence: float = CONFIDENCE
) -> Audit:
    """Check a mechanism against the epsilon that was asked of it."""
    check_whole("trials", trials, 100)  # fewer would say nothing
    exact = mechanism.epsilon
    bound = empirical_lower_bound(mechanism, trials, source, confidence)
    return Audit(
        mechanism.name,
        mechanism.cells,
        float(epsilon),
        exact,
        bound,
        trials,
        confidence,
        mechanism.report_bytes,
        exact <= epsilon and bound <= exact,
    )
