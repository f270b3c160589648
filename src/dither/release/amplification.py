"""What the readers of a release can learn about one person: less than the collector, since reports are added up first.

Whoever sees only sums sees no more than the reports in a random order, so a bound for shuffled reports holds for the release. Let
one person's report have the laws P and P' under two records, neither more than E times the other, and let every record give every
report with at least c (P + P'). With Q and Q' such that

    P = (E Q + Q')/(E + 1),    P' = (Q + E Q')/(E + 1),    and therefore P + P' = Q + Q',

each of the n - 1 others is a clone with 2c: a draw from Q or Q', either with 1/2, whatever the record. Telling P from P' is then no
easier than telling from two counts, of draws from Q and from Q', to which of them the person was added with E/(E + 1). Given the
number C of clones, which is Binomial(n - 1, 2c), the first count is Binomial(C, 1/2) and the person; its hockey-stick divergence
falls with C. It is added up over C with every rounding error on the safe side.

Guarantee: `readers_delta` is never below the delta of an epsilon, and `readers_epsilon` never below the epsilon of a delta.

References: Feldman, McMillan, Talwar, "Hiding among the clones", FOCS 2021 (any mechanism: c = 1/(2E)), and "Stronger privacy
amplification by shuffling for Renyi and approximate differential privacy", SODA 2023 (c = 1/(E + 1) where the law allows it). The
variation-ratio reduction of Wang, Peng, Li, Chen, PVLDB 2024, counts people who answered neither way as hidden among all others; in
small crowds that falls below the exact divergence (docs/explanation/amplification.md), so it is not used.
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
WORTH_IT = 0.99  # of the local epsilon: above, the guarantee without a delta is the better one
_MAX_RATIO = 1e12  # beyond it nobody has clones
_ALLOWANCE = 1e-9  # of every term: far above what SciPy's binomials and our own sums are wrong by
_LOG_TAIL = 40.0  # numbers of clones that are about so unlikely, e^-40, are not looked at, but counted as lost
_FINENESS = (
    32  # steps for a standard deviation of the number of clones; a step counts as its least number
)
_CLOSE = 5e-4  # of epsilon
_HAIR = 1 + Fraction(1, 10**6)


@dataclass(frozen=True)
class Crowd:
    """People whose reports are added up before anybody sees them, and the law of one report.

    `ratio` is the largest ratio of a report's probabilities under two records, `in_common` what every record gives it at least, of
    the sum of these two.
    """

    people: int
    ratio: Fraction
    in_common: Fraction


@dataclass(frozen=True)
class Bound:
    """(epsilon, delta)-differential privacy of one person's whole record, and how many people the person hides among at worst.

    A delta of 0 says that nothing was gained: epsilon is then the local one.
    """

    epsilon: float
    delta: float
    people: int


@dataclass(frozen=True)
class CentralGuarantee:
    """What those who see only the release can learn: if they know who was asked what, and if that is hidden from them too."""

    known: Bound
    hidden: Bound


def central_guarantee(tallies: Iterable[RoundTally], participants: int) -> CentralGuarantee:
    """The guarantee towards readers of all that the tallies of a campaign's rounds lead to.

    Each person answers in one round, and what is asked there depends on other people's reports alone, so the worst crowd of any
    round counts, not a sum over rounds. Delta is 1e-9 or 1/participants^2, whichever is smaller.
    """
    rounds = list(tallies)
    delta = min(LARGEST_DELTA, 1 / max(participants, 1) ** 2)
    known = worst_bound([crowd for tally in rounds for crowd in crowds(tally)], delta)
    return CentralGuarantee(known, worst_bound([mixed_crowd(tally) for tally in rounds], delta))


def worst_bound(found: Sequence[Crowd], delta: float) -> Bound:
    """The bound of the worst of some crowds; that of the local guarantee where little would be gained."""
    local = max(log_up(crowd.ratio) for crowd in found)
    worst = Bound(0.0, delta, min(crowd.people for crowd in found))
    for crowd in _worst_kinds(found):
        if readers_delta(worst.epsilon, crowd) > delta:
            worst = Bound(readers_epsilon(delta, crowd), delta, crowd.people)
    if worst.epsilon > WORTH_IT * local:
        return Bound(local, 0.0, min(crowd.people for crowd in found))
    return worst


def crowds(tally: RoundTally) -> list[Crowd]:
    """The crowds of a round for a reader who knows who was asked what: one for each tally that is published.

    A question that stands twice in a plan, once for the fit and once for the held-out error, has
    two crowds. Both tallies are in the release, and the token that decides the question decides
    the copy too. Where every participant answers everything there is one crowd, the round.
    """
    plan = tally.plan
    if plan.split or isinstance(tally, PatternTally):
        return [mixed_crowd(tally)]
    asked = zip(plan.questions, tally.n.tolist(), strict=True)
    return [Crowd(n, q.mechanism.ratio, q.mechanism.in_common) for q, n in asked if n]


def mixed_crowd(tally: RoundTally) -> Crowd:
    """All who answered in a round, a report being the question, drawn with its share, and the answer; or all the answers.

    A draw that does not depend on the record leaves what laws have in common; answers given together multiply their ratios.
    """
    mechanisms = [question.mechanism for question in tally.plan.questions]
    if tally.plan.split:
        ratio = math.prod((asked.ratio for asked in mechanisms), start=Fraction(1))
        return Crowd(tally.participants, ratio, 1 / (2 * ratio))
    ratio = max(asked.ratio for asked in mechanisms)
    return Crowd(tally.participants, ratio, min(asked.in_common for asked in mechanisms))


def readers_epsilon(delta: float, crowd: Crowd) -> float:
    """An epsilon, hardly above the smallest, with `readers_delta` at most `delta`; the local one if it would be about that."""
    local = log_up(crowd.ratio)

    def short(epsilon: float) -> float:
        """Above 0 while delta is too large; nearly a line, since log delta falls like a square."""
        return math.sqrt(-math.log(delta)) - math.sqrt(
            -math.log(max(readers_delta(epsilon, crowd), 1e-30))
        )

    low, at_low, high, side = 0.0, math.sqrt(-math.log(delta)), WORTH_IT * local, 0
    at_high = short(high)
    if at_high > 0:
        return local
    # False position with the Illinois halving, from where it would be if the counts were normal. The upper end keeps delta at
    # every step, and is what is given.
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
    from scipy import (
        stats,
    )  # takes most of a second to load, which a collector or a reader of releases need not wait for

    ratio, clone, others = _up(crowd.ratio), _down(crowd.in_common), crowd.people - 1
    clones = stats.binom(others, 2 * clone)
    deviation = math.sqrt(others * 2 * clone * (1 - 2 * clone))
    far, step = (
        _LOG_TAIL / 3 + math.sqrt(2 * _LOG_TAIL) * deviation,
        max(1, int(deviation / _FINENESS)),
    )
    low, high = max(0, math.floor(clones.mean() - far)), min(others, math.ceil(clones.mean() + far))
    numbers = np.arange(low, high + 1, step)
    ends = np.append(numbers, numbers[-1] + step) - 1
    below, above = clones.cdf(ends), clones.sf(ends)
    # Of a number of clones from this one up to the next, as a difference of the smaller chances: of the more exact ones.
    chances = np.where(below[1:] < 0.5, np.diff(below), -np.diff(above))
    bound = float(chances @ given_clones(epsilon, ratio, numbers)) + float(below[0] + above[-1])
    return min(1.0, bound * (1 + _ALLOWANCE))


def given_clones(epsilon: float, ratio: float, clones: Counts) -> Floats:
    """At least the hockey-stick divergence at epsilon of the first count, given the numbers of clones.

    The count is of so many fair coins and of the person, who is added with E/(E + 1) or with 1/(E + 1). Likelihoods a E + b and a +
    b E, for counts a and b, are compared: those above the `least` a speak for the first.
    """
    from scipy import stats

    e = math.exp(epsilon)
    least = np.floor((clones + 1) * ((e * ratio - 1) / ((ratio - 1) * (1 + e)))) + 1
    beyond = _at_least(least, clones)
    exactly = np.asarray(stats.binom.pmf(least - 1, clones, 0.5), dtype=np.float64)
    gained = (ratio - e) * (beyond + exactly) * (1 + _ALLOWANCE)
    return np.maximum(0.0, gained - (e * ratio - 1) * beyond * (1 - _ALLOWANCE)) / (ratio + 1)


def _worst_kinds(found: Sequence[Crowd]) -> list[Crowd]:
    """Some crowds whose bounds cover all: no other crowd is smaller, of a larger ratio and has less in common.

    Whole thresholds make ratios differ in their last digits, so each crowd kept is taken as a hair worse than it is.
    """
    kept: list[Crowd] = []
    for crowd in sorted(found, key=lambda crowd: (crowd.people, -crowd.ratio)):
        if not any(
            worse.ratio >= crowd.ratio and worse.in_common <= crowd.in_common for worse in kept
        ):
            kept.append(Crowd(crowd.people, crowd.ratio * _HAIR, crowd.in_common / _HAIR))
    return kept


def _at_least(least: Floats, flips: Counts) -> Floats:
    """The chance that so many fair coins show at least so many heads, of which there is at least one."""
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
