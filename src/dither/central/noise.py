"""Exact integer noise: the two-sided geometric ("discrete Laplace") law without floating point.

Guarantee: `discrete_laplace` returns integers with P(z) proportional to exp(-|z| /
scale) exactly, for a rational scale, from a stream of independent fair bytes. Only
integer arithmetic decides an outcome, so the attack on floating-point Laplace samplers
(Mironov, "On significance of the least significant bits", CCS 2012) does not apply.
Running time depends on the bytes drawn; it is not constant.

Reference: Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy",
2020, algorithms 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np

from dither.errors import PrivacyError
from dither.types import Flags, Floats, Integers, Words

ByteSource = Callable[[int], bytes]
T = TypeVar("T")
S = TypeVar("S", bound="NoisyStep | ChoiceStep")

# A numerator below 2**45 leaves room in 64 bits for the factor K of algorithm 1 and for the geometric part: either
# would have to exceed 2**15 to overflow, which has probability below exp(-2**15).
_NUMERATOR_BITS = 44
_DENOMINATOR_BITS = 24


def seeded_source(seed: int) -> ByteSource:
    """A reproducible byte stream for simulation: anyone with the seed can remove the noise."""
    stream = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 0x6E6F697365])))
    return stream.bytes


def uniform_below(bounds: Words, source: ByteSource) -> Words:
    """Independent integers, each uniform on 0..bound-1, by rejection from 64-bit words."""
    bounds = np.asarray(bounds, dtype=np.uint64)
    out = np.empty(bounds.shape, dtype=np.uint64)
    # The lowest 2**64 mod bound words are rejected; the rest is a whole number of periods.
    refuse = (np.uint64(2**64 - 1) - bounds + np.uint64(1)) % bounds
    waiting = np.arange(bounds.size)
    while waiting.size:
        drawn = np.frombuffer(source(8 * waiting.size), dtype="<u8")
        good = drawn >= refuse[waiting]
        out[waiting[good]] = drawn[good] % bounds[waiting[good]]
        waiting = waiting[~good]
    return out


def bernoulli_exp(numerators: Words, denominator: int, source: ByteSource) -> Flags:
    """Independent coins, each true with probability exp(-numerator / denominator) exactly."""
    numerators = np.asarray(numerators, dtype=np.uint64)
    whole, rest = np.divmod(numerators, np.uint64(denominator))
    result = _bernoulli_exp_unit(rest, denominator, source)
    # exp(-(w + r)) = exp(-1)**w exp(-r); after one false factor the others do not matter.
    waiting = np.flatnonzero(result & (whole > 0))
    left = whole[waiting]
    while waiting.size:
        ones = np.ones(waiting.size, dtype=np.uint64)
        heads = _bernoulli_exp_unit(ones, 1, source)
        result[waiting[~heads]] = False
        left = left[heads] - np.uint64(1)
        waiting = waiting[heads]
        waiting, left = waiting[left > 0], left[left > 0]
    return result


def _bernoulli_exp_unit(numerators: Words, denominator: int, source: ByteSource) -> Flags:
    """Algorithm 1 of the reference for exponents in [0, 1], term by term."""
    result = np.zeros(numerators.shape, dtype=np.bool_)
    waiting = np.arange(numerators.size)
    k = 1
    while waiting.size:
        bounds = np.full(waiting.size, denominator * k, dtype=np.uint64)
        again = uniform_below(bounds, source) < numerators[waiting]
        result[waiting[~again]] = k % 2 == 1
        waiting = waiting[again]
        k += 1
    return result


def discrete_laplace(scale: Fraction, size: int, source: ByteSource) -> Integers:
    """Independent integers with P(z) proportional to exp(-|z| / scale) (algorithm 2 of the reference)."""
    num, den = scale.numerator, scale.denominator
    if num <= 0 or num >= 2 ** (_NUMERATOR_BITS + 1):
        raise PrivacyError(
            f"a noise scale of {float(scale):.3g} cannot be sampled exactly",
            where="epsilon",
            value=scale,
        )
    out = np.empty(size, dtype=np.int64)
    waiting = np.arange(size)
    while waiting.size:
        remainder = uniform_below(np.full(waiting.size, num, dtype=np.uint64), source)
        keep = bernoulli_exp(remainder, num, source)
        magnitude = remainder[keep].astype(np.int64) + num * _geometric(int(keep.sum()), source)
        magnitude //= den
        negative = np.frombuffer(source(magnitude.size), dtype=np.uint8) & 1 == 1
        # zero has one sign only, or it would be drawn twice as often as its share.
        good = ~(negative & (magnitude == 0))
        placed = waiting[np.flatnonzero(keep)[good]]
        out[placed] = np.where(negative, -magnitude, magnitude)[good]
        settled = np.zeros(size, dtype=np.bool_)
        settled[placed] = True
        waiting = waiting[~settled[waiting]]
    return out


def add_noise(exact: Integers, scale: Fraction, source: ByteSource) -> Integers:
    """Add independent noise to integers; every noisy value of a method passes through here."""
    if isinstance(source, Recorder):
        return source.noisy(exact, scale)
    return exact + discrete_laplace(scale, exact.size, source).reshape(exact.shape)


def decide(
    draw: Callable[[], T], source: ByteSource, epsilon: float, log_chances: Floats | None = None
) -> T:
    """The outcome of a private choice that costs epsilon; `log_chances` is its law if known."""
    if isinstance(source, Recorder):
        return source.decided(draw, epsilon, log_chances)
    return draw()


@dataclass(frozen=True)
class NoisyStep:
    """Values that a method released, the scale of their noise, and the exact values."""

    exact: Integers
    released: Integers
    scale: Fraction


@dataclass(frozen=True)
class ChoiceStep:
    """A choice of a method, its stated epsilon, and log probabilities if known."""

    released: object
    epsilon: float
    log_chances: Floats | None


class NotPrivate(Exception):
    """A privacy violation found by an audit."""


class Recorder:
    """A byte source for audits that records everything a method releases.

    Given the steps of an earlier run it replays them: the method releases the same
    values from another table, so the two tables' laws can be compared for one release.
    """

    def __init__(
        self, source: ByteSource, replayed: Sequence[NoisyStep | ChoiceStep] | None = None
    ) -> None:
        self.steps: list[NoisyStep | ChoiceStep] = []
        self._source = source
        self._replayed = None if replayed is None else iter(replayed)

    def __call__(self, count: int) -> bytes:
        return self._source(count)

    def noisy(self, exact: Integers, scale: Fraction) -> Integers:
        """The values with noise, or those of the replayed run."""
        fresh = self._replayed is None
        released = (
            add_noise(exact, scale, self._source) if fresh else self._next(NoisyStep).released
        )
        self.steps.append(NoisyStep(exact, released, scale))
        return released.copy()

    def decided(self, draw: Callable[[], T], epsilon: float, log_chances: Floats | None) -> T:
        """The outcome of a choice, or that of the replayed run."""
        outcome = draw() if self._replayed is None else self._next(ChoiceStep).released
        self.steps.append(ChoiceStep(outcome, epsilon, log_chances))
        return outcome  # type: ignore[return-value]

    def _next(self, kind: type[S]) -> S:
        assert self._replayed is not None
        step = next(self._replayed, None)
        if not isinstance(step, kind):
            raise NotPrivate(
                "the steps that a method takes depend on the table, not only on what it has released"
            )
        return step


def _geometric(size: int, source: ByteSource) -> Integers:
    """How many coins of probability exp(-1) come up true before the first that does not."""
    out = np.zeros(size, dtype=np.int64)
    waiting = np.arange(size)
    while waiting.size:
        heads = _bernoulli_exp_unit(np.ones(waiting.size, dtype=np.uint64), 1, source)
        waiting = waiting[heads]
        out[waiting] += 1
    return out


def calibrate(sensitivity: int, epsilon: float) -> Fraction:
    """The smallest sampleable scale that is at least sensitivity / epsilon: rounded towards privacy."""
    if sensitivity < 1:
        raise PrivacyError("the sensitivity of a measurement must be at least 1", value=sensitivity)
    target = Fraction(sensitivity) / Fraction(epsilon)
    bits = min(_DENOMINATOR_BITS, _NUMERATOR_BITS - max(0, math.ceil(target)).bit_length())
    if bits < 0:
        raise PrivacyError(
            f"epsilon {epsilon} is too small for a sensitivity of {sensitivity}: ask for a larger epsilon",
            where="epsilon",
            value=epsilon,
        )
    return Fraction(math.ceil(target * 2**bits), 2**bits)


def achieved_epsilon(sensitivity: int, scale: Fraction) -> float:
    """sensitivity / scale as a float, rounded up."""
    exact = Fraction(sensitivity) / scale
    value = float(exact)
    return value if Fraction(value) >= exact else math.nextafter(value, math.inf)


def noise_variance(scale: Fraction) -> float:
    """The variance of one draw, 2 p / (1 - p)^2 with p = exp(-1 / scale)."""
    inverse = 1.0 / float(scale)
    return 2.0 * math.exp(-inverse) / math.expm1(-inverse) ** 2


# The exponential mechanism over a short list, drawn exactly.

_EPSILON_BITS = 20
# Scores are capped at this gap above the best: min(s, best + gap) changes no more than s.
_LARGEST_GAP = 2**36


def _exponent_rate(sensitivity: int, epsilon: float) -> Fraction:
    """epsilon / (2 sensitivity) with epsilon rounded down to a multiple of 2**-20."""
    steps = int(Fraction(epsilon) * 2**_EPSILON_BITS)
    if steps < 1 or steps >= 2**26 or not 1 <= sensitivity < 2**22:
        raise PrivacyError(
            f"epsilon {epsilon:.3g} is out of range for choosing among candidates",
            where="epsilon",
            value=epsilon,
        )
    return Fraction(steps, 2 * sensitivity * 2**_EPSILON_BITS)


def exponents(scores: Integers, sensitivity: int, epsilon: float) -> tuple[Integers, int]:
    """Numerators and the common denominator of the exponents: P(i) is proportional to exp(-numerator / denominator)."""
    rate = _exponent_rate(sensitivity, epsilon)
    gaps = np.minimum(np.asarray(scores, dtype=np.int64) - np.min(scores), _LARGEST_GAP)
    return gaps * rate.numerator, rate.denominator


def choose(scores: Integers, sensitivity: int, epsilon: float, source: ByteSource) -> int:
    """The position of the chosen candidate, by the exponential mechanism.

    Guarantee: candidate i is chosen with probability proportional to exp(-epsilon s_i /
    (2 sensitivity)) for integer scores s (small is good), by integer arithmetic; if one
    record moves every score by at most `sensitivity`, the choice is
    epsilon-differentially private.

    Reference: McSherry, Talwar, "Mechanism design via differential privacy", FOCS 2007.
    """
    numerators, denominator = exponents(scores, sensitivity, epsilon)
    weights = -numerators / denominator
    log_chances = weights - np.logaddexp.reduce(weights)
    return decide(lambda: _choose(numerators, denominator, source), source, epsilon, log_chances)


def _choose(numerators: Integers, denominator: int, source: ByteSource) -> int:
    size = numerators.size
    batch = min(size, 4096)
    while True:
        # Rejection: keep a uniform candidate with its weight. The best has weight 1, so about
        # `size` draws suffice.
        drawn = uniform_below(np.full(batch, size, dtype=np.uint64), source).astype(np.int64)
        kept = np.flatnonzero(
            bernoulli_exp(numerators[drawn].astype(np.uint64), denominator, source)
        )
        if kept.size:
            return int(drawn[kept[0]])
