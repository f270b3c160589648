"""What the readers of a release can learn about one person: less than the collector, since reports are added up first.

Whoever sees only sums sees no more than the reports in a random order, so a bound for shuffled reports holds for the release. Let
one person's report have the laws R(x) and R(x') under two records, with E >= 1 the largest ratio and b the largest total variation
distance of any two laws of the mechanism, and a = b/(E - 1). Then, whatever the others' records are,

    R(x)  = aE Q + a Q' + (1 - a - aE) W,    R(x') = a Q + aE Q' + (1 - a - aE) W,    R(any) = a Q + a Q' + (1 - 2a) V

with Q and Q' the normalised positive and negative parts of R(x) - R(x'). Of the others, Binomial(n - 1, 2a) people are clones: one
of Q and Q' was drawn for each of them, either with 1/2. Telling x from x' is no easier than telling from the two counts whether the
person was added to one of them with aE and to the other with a, or the other way round. That divergence is a sum over the number
of clones, computed here with every rounding error on the safe side.

Guarantee: `readers_delta` is never below, and `readers_epsilon` never understates, what this reduction gives.

References: Feldman, McMillan, Talwar, "Hiding among the clones", FOCS 2021, and "Stronger privacy amplification by shuffling for
Renyi and approximate differential privacy", SODA 2023 (b = (E-1)/(E+1), any mechanism); Wang, Peng, Li, Chen, "Privacy
amplification via shuffling: unified, simplified, and tightened", PVLDB 2024 (the b of a mechanism: variation-ratio reduction).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import special, stats

from dither.mechanisms.probability import log_up
from dither.reports import Question
from dither.tally import PatternTally, RoundTally
from dither.types import Counts, Floats

LARGEST_DELTA = 1e-9
WORTH_IT = 0.99  # of the local epsilon: above, the guarantee without a delta is the better one
_MOST_PEOPLE = 10**7  # more are counted as so many, which can only overstate epsilon, and keeps it quick
_MOST_RATIO = 1e9  # beyond it nothing is gained in any crowd of that size
_ALLOWANCE = 1e-9  # of every term: far above what SciPy's binomials and our own sums are wrong by
_LOG_TAIL = 40.0  # numbers of clones that are about so unlikely, e^-40, are not looked at, but counted as lost
_CLOSE = 5e-4  # of epsilon
_ALIKE = 1e-4  # of a ratio


@dataclass(frozen=True)
class Crowd:
    """People whose reports are added up before anybody sees them, and the law of one report.

    `ratio` is the largest ratio of a report's probabilities under two records, `variation` the largest total variation distance.
    """

    people: int
    ratio: Fraction
    variation: Fraction


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
    # From the likely worst on, most crowds need just one look: is what was found so far enough for them?
    for crowd in _undominated(found):
        if readers_delta(worst.epsilon, crowd) > delta:
            worst = Bound(readers_epsilon(delta, crowd), delta, crowd.people)
    if worst.epsilon > WORTH_IT * local:
        return Bound(local, 0.0, min(crowd.people for crowd in found))
    return worst


def crowds(tally: RoundTally) -> list[Crowd]:
    """Those who were asked the same in a round; all who answered it where everybody is asked everything.

    A question that stands twice in a plan, once for the fit and once for the held-out error, has one crowd: which of the two a
    report was taken for is drawn without a look at it, so that the sum over all of them could have been divided as well.
    """
    plan = tally.plan
    if plan.split or isinstance(tally, PatternTally):
        return [mixed_crowd(tally)]
    people = Counter[Question]()
    for question, n in zip(plan.questions, tally.n.tolist(), strict=True):
        people[question] += n
    return [Crowd(n, q.mechanism.ratio, q.mechanism.total_variation) for q, n in people.items() if n]


def mixed_crowd(tally: RoundTally) -> Crowd:
    """All who answered in a round, a report being the question, drawn with its share, and the answer; or all the answers.

    Draws that do not depend on the record mix the laws of all questions, and their distances (parallel composition in Wang et
    al.); answers given together multiply their ratios, and what two laws have in common.
    """
    plan, mechanisms = tally.plan, [question.mechanism for question in tally.plan.questions]
    if plan.split:
        same = math.prod((1 - asked.total_variation for asked in mechanisms), start=Fraction(1))
        return Crowd(tally.participants, math.prod((asked.ratio for asked in mechanisms), start=Fraction(1)), 1 - same)
    shares = [Fraction(share) for share in plan.shares]
    drawn = (share * asked.total_variation for share, asked in zip(shares, mechanisms, strict=True))
    variation = sum(drawn, Fraction(0)) / sum(shares)
    return Crowd(tally.participants, max(asked.ratio for asked in mechanisms), variation)


def readers_epsilon(delta: float, crowd: Crowd) -> float:
    """An epsilon, hardly above the smallest, with `readers_delta` at most `delta`; the local one if it would be about that."""
    local = log_up(crowd.ratio)

    def short(epsilon: float) -> float:
        """Above 0 while delta is too large; nearly a line, since log delta falls like a square."""
        return math.sqrt(-math.log(delta)) - math.sqrt(-math.log(max(readers_delta(epsilon, crowd), 1e-30)))

    low, at_low, high, side = 0.0, math.sqrt(-math.log(delta)), WORTH_IT * local, 0
    at_high = short(high)
    if at_high > 0:
        return local
    # False position with the Illinois halving, from where it would be if the counts were normal. The upper end keeps delta at
    # every step, and is what is given.
    middle = 2 * float(crowd.variation * (crowd.ratio - 1) / crowd.people * -Fraction(math.log(delta))) ** 0.5
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
    """At least the delta of this epsilon: the hockey-stick divergence of the two counts, or 1."""
    ratio, variation = _up(crowd.ratio), _up(crowd.variation)
    if crowd.people < 2 or ratio > _MOST_RATIO:
        return 1.0 if epsilon < math.log(ratio) else 0.0
    clone = min(variation / (ratio - 1), 1 / (ratio + 1))
    return clones_delta(epsilon, ratio, clone, clone, min(crowd.people, _MOST_PEOPLE))


def clones_delta(epsilon: float, ratio: float, share: float, clone: float, people: int) -> float:
    """At least the hockey-stick divergence at epsilon between the two pairs of counts.

    The person is added to the first count with `share` * `ratio` and to the second with `share`, or the other way round; each of
    the others is added to either with `clone`. (The reduction has `clone` = `share`; other analyses have other numbers.)
    """
    others, e = people - 1, math.exp(epsilon)
    neither = max(0.0, 1 - share * (1 + ratio))
    clones = stats.binom(others, 2 * clone)
    # Both counts together, the person among them or not. Were nobody in them, there would be nothing to tell.
    mean, far = others * 2 * clone, _LOG_TAIL / 3 + math.sqrt(2 * _LOG_TAIL * others * 2 * clone * (1 - 2 * clone))
    low, high = max(1, math.floor(mean - far)), min(people, math.ceil(mean + far) + 1)
    lost = float(clones.cdf(low - 1) if low > 1 else 0.0) + float(clones.sf(high - 1))
    total = np.arange(low, high + 1)
    weights = clones.pmf(np.arange(low - 1, high + 1))
    before, after = weights[:-1], weights[1:]
    # Given the total, the likelihoods' ratio rises with the first count: it exceeds e from `least` on.
    spare = neither * (e - 1) * (people - total) * clone / ((1 - 2 * clone) * share)
    least = np.floor((total * (e * ratio - 1) + spare) / ((ratio - 1) * (1 + e))) + 1
    beyond = _at_least(least, total - 1)
    exactly = np.asarray(stats.binom.pmf(least - 1, total - 1, 0.5), dtype=np.float64)
    terms = (
        share * (ratio - e) * before * (beyond + exactly),  # the person is in the first count
        share * (1 - e * ratio) * before * beyond,  # in the second
        neither * (1 - e) * after * (beyond + exactly / 2),  # in neither
    )
    bound = math.fsum(float(np.sum(term)) for term in terms)
    slack = _ALLOWANCE * math.fsum(float(np.sum(np.abs(term))) for term in terms)
    return min(1.0, max(0.0, bound + slack) + lost * (1 + _ALLOWANCE))


def _at_least(least: Floats, flips: Counts) -> Floats:
    """The chance that so many fair coins show at least so many heads."""
    inside = np.clip(least, 1, np.maximum(flips, 1))
    chance = special.betainc(inside, flips - inside + 1, 0.5)
    return np.where(least <= 0, 1.0, np.where(least > flips, 0.0, chance))


def _undominated(found: Sequence[Crowd]) -> list[Crowd]:
    """The crowds of which no other one is smaller and has a ratio and a variation as large: a bound for that one is one for all.

    Ratios differ in the last digits only, where thresholds are whole numbers; the largest stands for all that are within a hair.
    """
    largest = max(crowd.ratio for crowd in found)
    alike = [
        Crowd(c.people, largest if c.ratio > largest * (1 - Fraction(_ALIKE)) else c.ratio, c.variation) for c in found
    ]
    kept: list[Crowd] = []
    for crowd in sorted(set(alike), key=lambda c: (c.people, -c.ratio, -c.variation)):
        if not any(other.ratio >= crowd.ratio and other.variation >= crowd.variation for other in kept):
            kept.append(crowd)
    return kept


def _up(value: Fraction) -> float:
    """A float that is not below."""
    return math.nextafter(float(value), math.inf)
