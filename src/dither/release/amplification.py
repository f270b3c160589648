"""Central guarantee: what a reader of the release can learn about one person.

A reader sees sums of reports. Sums reveal no more than the reports in a random order,
so a bound for shuffled reports holds for the release. Let one person's report have the
laws P and P' under two records, neither more than E times the other, and let every
record have a report's probability of at least c (P + P'). With Q and Q' such that

    P = (E Q + Q')/(E + 1),    P' = (Q + E Q')/(E + 1),    so P + P' = Q + Q',

each of the n - 1 others is a clone with probability 2c: a draw from Q or Q', each with
probability 1/2, independent of the record. Distinguishing P from P' is then no easier
than deciding, from the counts of draws from Q and from Q', to which of them the person
was added with probability E/(E + 1). Given the number C of clones, which is Binomial(n
- 1, 2c), the first count is Binomial(C, 1/2) plus the person; its hockey-stick
divergence decreases in C. The sum over C rounds every error up.

Guarantee: `readers_delta` is never below the delta of an epsilon, and `readers_epsilon`
never below the epsilon of a delta.

References: Feldman, McMillan, Talwar, "Hiding among the clones", FOCS 2021 (any
mechanism: c = 1/(2E)), and "Stronger privacy amplification by shuffling for Renyi and
approximate differential privacy", SODA 2023 (c = 1/(E + 1) where the law allows it).
The variation-ratio reduction of Wang, Peng, Li, Chen, PVLDB 2024, counts people who
answered neither way as hidden among all others. In small crowds that falls below the
exact divergence (docs/explanation/amplification.md), so it is not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import special

from dither.mechanisms import log_up
from dither.tally import PatternTally, RoundTally
from dither.types import Counts, Floats

LARGEST_DELTA = 1e-9
# Above this share of the local epsilon the guarantee without a delta is the better one.
WORTH_IT = 0.99
# Larger ratios leave no probability of clones.
_MAX_RATIO = 1e12
# Relative error allowed for every term, far above that of SciPy's binomials and the sums.
_ALLOWANCE = 1e-9
# Numbers of clones of probability below about e^-40 are counted as a loss of privacy.
_LOG_TAIL = 40.0
# Steps in a standard deviation of the number of clones; a step counts as its smallest number.
_FINENESS = 32
# Relative precision of epsilon.
_CLOSE = 5e-4
_HAIR = 1 + Fraction(1, 10**6)


@dataclass(frozen=True)
class Crowd:
    """People whose reports are published only as a sum, and the law of one report.

    Attributes:
        people: Number of reports in the sum.
        ratio: Largest ratio of a report's probabilities under two records.
        in_common: Least probability of a report under any record, as a share of the sum
            of its probabilities under these two.
    """

    people: int
    ratio: Fraction
    in_common: Fraction


@dataclass(frozen=True)
class Bound:
    """(epsilon, delta)-differential privacy of one person's whole record in the smallest crowd.

    A delta of 0 means that shuffling gains nothing: epsilon is then the local one.
    """

    epsilon: float
    delta: float
    people: int


@dataclass(frozen=True)
class CentralGuarantee:
    """Guarantee against readers who know the assignment of questions, and who do not."""

    known: Bound
    hidden: Bound


def central_guarantee(tallies: Iterable[RoundTally], participants: int) -> CentralGuarantee:
    """Compute the guarantee against readers of everything derived from the rounds' tallies.

    Each person answers in one round, and its questions depend only on other people's
    reports. So the worst crowd of any round counts, not a sum over rounds. Delta is the
    smaller of 1e-9 and 1/participants^2.
    """
    rounds = list(tallies)
    delta = min(LARGEST_DELTA, 1 / max(participants, 1) ** 2)
    known = worst_bound([crowd for tally in rounds for crowd in crowds(tally)], delta)
    return CentralGuarantee(known, worst_bound([mixed_crowd(tally) for tally in rounds], delta))


def worst_bound(found: Sequence[Crowd], delta: float) -> Bound:
    """Return the worst bound of some crowds, or the local guarantee if little is gained."""
    local = max(log_up(crowd.ratio) for crowd in found)
    worst = Bound(0.0, delta, min(crowd.people for crowd in found))
    for crowd in _worst_kinds(found):
        if readers_delta(worst.epsilon, crowd) > delta:
            worst = Bound(readers_epsilon(delta, crowd), delta, crowd.people)
    if worst.epsilon > WORTH_IT * local:
        return Bound(local, 0.0, min(crowd.people for crowd in found))
    return worst


def crowds(tally: RoundTally) -> list[Crowd]:
    """Return a round's crowds for a reader who knows each participant's question.

    There is one crowd for each published tally. A question may occur twice in a plan,
    once for the fit and once for the held-out error; it then has two crowds. Both
    tallies are in the release, and the token that decides the question decides the copy
    too. If each participant answers all questions, the round is one crowd.
    """
    plan = tally.plan
    if plan.split or isinstance(tally, PatternTally):
        return [mixed_crowd(tally)]
    asked = zip(plan.questions, tally.n.tolist(), strict=True)
    return [Crowd(n, q.mechanism.ratio, q.mechanism.in_common) for q, n in asked if n]


def mixed_crowd(tally: RoundTally) -> Crowd:
    """Return the crowd of all participants of a round, whose questions are hidden.

    A report is then the question, drawn with its share, and the answer; or all answers
    together. A draw that is independent of the record keeps what laws have in common.
    The ratios of answers given together multiply.
    """
    mechanisms = [question.mechanism for question in tally.plan.questions]
    if tally.plan.split:
        ratio = math.prod((asked.ratio for asked in mechanisms), start=Fraction(1))
        return Crowd(tally.participants, ratio, 1 / (2 * ratio))
    ratio = max(asked.ratio for asked in mechanisms)
    return Crowd(tally.participants, ratio, min(asked.in_common for asked in mechanisms))


def readers_epsilon(delta: float, crowd: Crowd) -> float:
    """Return an epsilon close to the smallest with `readers_delta` at most `delta`.

    If that is close to the local epsilon, the local epsilon is returned.
    """
    local = log_up(crowd.ratio)

    def short(epsilon: float) -> float:
        """Positive while delta is too large; nearly linear, since log delta is quadratic."""
        return math.sqrt(-math.log(delta)) - math.sqrt(
            -math.log(max(readers_delta(epsilon, crowd), 1e-30))
        )

    low, at_low, high, side = 0.0, math.sqrt(-math.log(delta)), WORTH_IT * local, 0
    at_high = short(high)
    if at_high > 0:
        return local
    # False position with the Illinois halving, started at the solution for normal counts.
    # The upper end satisfies delta at every step, so it is returned.
    normal = (crowd.ratio - 1) / (crowd.ratio + 1) * 2
    middle = float(normal) * (-math.log(delta) / float(crowd.in_common * crowd.people)) ** 0.5
    while high - low > _CLOSE * max(high, _CLOSE):
        middle = min(max(middle, low + _CLOSE / 2 * (high - low)), high - _CLOSE / 2 * (high - low))
        found = short(middle)
        if found > 0:
            low, at_low, at_high, side = middle, found, at_high / 2 if side > 0 else at_high, 1
        else:
            high, at_high, at_low, side = middle, found, at_low / 2 if side < 0 else at_low, -1
        middle = low + (high - low) * at_low / (at_low - at_high)
    return high


def readers_delta(epsilon: float, crowd: Crowd) -> float:
    """At least the delta of this epsilon, and at most 1."""
    if crowd.ratio > _MAX_RATIO or crowd.people < 2:
        return 1.0 if epsilon < log_up(crowd.ratio) else 0.0
    # Loading scipy.stats takes most of a second, which would delay a collector's start.
    from scipy import stats

    ratio, clone, others = _up(crowd.ratio), _down(crowd.in_common), crowd.people - 1
    clones = stats.binom(others, 2 * clone)
    deviation = math.sqrt(others * 2 * clone * (1 - 2 * clone))
    far = _LOG_TAIL / 3 + math.sqrt(2 * _LOG_TAIL) * deviation
    step = max(1, int(deviation / _FINENESS))
    low = max(0, math.floor(clones.mean() - far))
    high = min(others, math.ceil(clones.mean() + far))
    numbers = np.arange(low, high + 1, step)
    ends = np.append(numbers, numbers[-1] + step) - 1
    below, above = clones.cdf(ends), clones.sf(ends)
    # The smaller of both tails has the more exact difference.
    probabilities = np.where(below[1:] < 0.5, np.diff(below), -np.diff(above))
    divergences = given_clones(epsilon, ratio, numbers)
    bound = float(probabilities @ divergences) + float(below[0] + above[-1])
    return min(1.0, bound * (1 + _ALLOWANCE))


def given_clones(epsilon: float, ratio: float, clones: Counts) -> Floats:
    """Bound the hockey-stick divergence of the first count from above, given the clones.

    The count is a sum of `clones` fair coins and of the person, who is added with
    probability E/(E + 1) or 1/(E + 1). For counts a and b the likelihoods are a E + b
    and a + b E; from `least` a on, the first is larger by e^epsilon.
    """
    from scipy import stats

    e = math.exp(epsilon)
    least = np.floor((clones + 1) * ((e * ratio - 1) / ((ratio - 1) * (1 + e)))) + 1
    beyond = _at_least(least, clones)
    exactly = np.asarray(stats.binom.pmf(least - 1, clones, 0.5), dtype=np.float64)
    gained = (ratio - e) * (beyond + exactly) * (1 + _ALLOWANCE)
    return np.maximum(0.0, gained - (e * ratio - 1) * beyond * (1 - _ALLOWANCE)) / (ratio + 1)


def _worst_kinds(found: Sequence[Crowd]) -> list[Crowd]:
    """Return crowds whose bounds cover all: none is smaller, of larger ratio and less in common.

    Integer thresholds make ratios differ in their last digits, so each crowd kept is
    made slightly worse than it is.
    """
    kept: list[Crowd] = []
    for crowd in sorted(found, key=lambda crowd: (crowd.people, -crowd.ratio)):
        if not any(
            worse.ratio >= crowd.ratio and worse.in_common <= crowd.in_common for worse in kept
        ):
            kept.append(Crowd(crowd.people, crowd.ratio * _HAIR, crowd.in_common / _HAIR))
    return kept


def _at_least(least: Floats, flips: Counts) -> Floats:
    """Probability of at least this number of heads (one or more) among fair coins."""
    inside = np.clip(least, 1, np.maximum(flips, 1))
    return np.where(
        least > flips, 0.0, special.betainc(inside, np.maximum(flips - inside + 1, 1), 0.5)
    )


def _up(value: Fraction) -> float:
    """A float that is not below."""
    return math.nextafter(float(value), math.inf)


def _down(value: Fraction) -> float:
    """A float that is not above."""
    return math.nextafter(float(value), 0.0)
