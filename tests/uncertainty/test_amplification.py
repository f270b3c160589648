"""The bound for readers against exact divergences of small crowds, the reduction written out, and published figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.mechanisms import Mechanism, mechanism
from dither.release import amplification, central_guarantee
from dither.release.amplification import (
    Crowd,
    crowds,
    mixed_crowd,
    readers_delta,
    readers_epsilon,
    worst_bound,
)
from dither.reports import Plan, Question
from dither.tally import CountTally, PatternTally

Law = Mapping[tuple[int, ...], float]


def crowd_of(asked: Mechanism, people: int) -> Crowd:
    return Crowd(people, asked.ratio, asked.in_common)


def any_mechanism(epsilon: float, people: int) -> Crowd:
    """The crowd of which only the local epsilon is known."""
    ratio = Fraction(math.exp(epsilon))
    return Crowd(people, ratio, 1 / (2 * ratio))


def shuffled(asked: Mechanism, values: Sequence[int]) -> Law:
    """The exact law of how often each report came, person by person."""
    reports = sorted(asked.law(0))
    out: dict[tuple[int, ...], float] = {(0,) * len(reports): 1.0}
    for value in values:
        law = asked.law(value)
        grown: dict[tuple[int, ...], float] = {}
        for counts, chance in out.items():
            for i, report in enumerate(reports):
                key = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
                grown[key] = grown.get(key, 0.0) + chance * float(law[report])
        out = grown
    return out


def hockey_stick(epsilon: float, p: Law, q: Law) -> float:
    return math.fsum(max(0.0, p[key] - math.exp(epsilon) * q[key]) for key in p)


def exact_delta(asked: Mechanism, people: int, epsilon: float) -> float:
    """The worst over the others' records of the divergence between one person's values 0 and 1: all pairs are alike."""
    others = itertools.combinations_with_replacement(range(asked.cells), people - 1)
    return max(
        max(hockey_stick(epsilon, p, q), hockey_stick(epsilon, q, p))
        for rest in others
        for p, q in [(shuffled(asked, (0, *rest)), shuffled(asked, (1, *rest)))]
    )


def is_bound(asked: Mechanism, people: int, bound: Crowd) -> bool:
    """Whether a crowd's delta is at no epsilon below what this many people really have."""
    levels = asked.epsilon * np.array([0.02, 0.1, 0.3, 0.6, 0.9])
    return all(
        readers_delta(e, bound) >= exact_delta(asked, people, e) * (1 - 1e-9)
        for e in levels.tolist()
    )


SMALL = [
    ("grr", 2, 1.0, 12),
    ("grr", 2, 3.0, 9),
    ("grr", 3, 2.0, 5),
    ("oue", 2, 1.5, 6),
    ("sue", 2, 2.0, 6),
    ("subset", 4, 1.0, 3),
    ("hadamard", 2, 2.0, 6),
]


@pytest.mark.parametrize(("name", "cells", "epsilon", "people"), SMALL)
def test_no_crowd_has_more_than_the_bound(
    name: str, cells: int, epsilon: float, people: int
) -> None:
    asked = mechanism(name, cells, epsilon)
    assert is_bound(asked, people, crowd_of(asked, people))


@pytest.mark.parametrize(("name", "cells", "epsilon", "people"), SMALL[:2])
def test_a_wrong_bound_is_found_out(name: str, cells: int, epsilon: float, people: int) -> None:
    asked = mechanism(name, cells, epsilon)
    half = mechanism(name, cells, epsilon / 2)
    assert not is_bound(asked, people, crowd_of(asked, 2 * people))
    assert not is_bound(asked, people, crowd_of(half, people))
    assert not is_bound(
        asked, people, Crowd(people, asked.ratio, min(2 * asked.in_common, Fraction(1, 2)))
    )


def test_neither_of_two_answers_hides_nobody() -> None:
    """Why the variation-ratio reduction is not used: five people, three answers, everybody else of the second value.

    That all give this answer has a chance of p^5 under it and of q p^4 under the first, a ratio of e^epsilon; the reduction has it
    that the person may also have given the third answer while another one was a clone, and comes out below.
    """
    asked = mechanism("grr", 3, 2.0)
    q, p, e = float(asked.q), float(asked.p), math.exp(1.8)
    exact = p**5 - e * q * p**4
    pairs = [(a, b) for a in range(6) for b in range(6 - a)]

    def chance(a: int, b: int, first: float, second: float) -> float:
        def rest(a: int, b: int) -> float:
            return (
                float(stats.multinomial.pmf([a, b, 4 - a - b], 4, [q, q, 1 - 2 * q]))
                if min(a, b, 4 - a - b) >= 0
                else 0.0
            )

        return first * rest(a - 1, b) + second * rest(a, b - 1) + (1 - first - second) * rest(a, b)

    reduced = sum(max(0.0, chance(a, b, p, q) - e * chance(a, b, q, p)) for a, b in pairs)
    assert reduced < exact / 2 < exact < readers_delta(1.8, crowd_of(asked, 5))


def test_the_bound_is_near_the_truth() -> None:
    """For binary randomised response the reduction only tells the adversary too much: who of the others was a clone."""
    asked = mechanism("grr", 2, 1.0)
    for epsilon in (0.1, 0.3, 0.5):
        exact = exact_delta(asked, 12, epsilon)
        assert exact <= readers_delta(epsilon, crowd_of(asked, 12)) <= 1.6 * exact


# The sum over the number of clones against all pairs of counts.


def written_out(epsilon: float, crowd: Crowd) -> float:
    e, ratio, clone, out = Fraction(math.exp(epsilon)), crowd.ratio, crowd.in_common, Fraction(0)
    for clones in range(crowd.people):
        chance = (
            math.comb(crowd.people - 1, clones)
            * (2 * clone) ** clones
            * (1 - 2 * clone) ** (crowd.people - 1 - clones)
        )
        for a in range(clones + 2):
            with_person = math.comb(clones, a - 1) if a else 0
            first = (ratio * with_person + math.comb(clones, a)) / (ratio + 1)
            second = (with_person + ratio * math.comb(clones, a)) / (ratio + 1)
            out += chance * max(Fraction(0), first - e * second) / 2**clones
    return float(out)


@pytest.mark.parametrize("people", [2, 3, 10, 60])
@pytest.mark.parametrize(("ratio", "in_common"), [("3", "1/4"), ("20", "1/40"), ("7", "1/9")])
def test_the_sum_is_that_over_all_counts(people: int, ratio: str, in_common: str) -> None:
    crowd = Crowd(people, Fraction(ratio), Fraction(in_common))
    for epsilon in (0.0, 0.05, 0.4, 0.9 * math.log(float(crowd.ratio))):
        slow = written_out(epsilon, crowd)
        assert slow <= readers_delta(epsilon, crowd) <= slow * (1 + 1e-5) + 1e-12


def test_steps_of_many_clones_cost_little() -> None:
    """Steps begin where a standard deviation has as many; the same sum with a step for each number is hardly smaller."""
    crowd = any_mechanism(1.0, 40_000)
    clones = stats.binom(39_999, 2 * float(crowd.in_common))
    numbers = np.arange(13_000, 17_000)
    for epsilon in (0.01, 0.02, 0.035):
        fine = float(
            clones.pmf(numbers) @ amplification.given_clones(epsilon, float(crowd.ratio), numbers)
        )
        assert fine < readers_delta(epsilon, crowd) < 1.05 * fine


def test_binomials_are_far_more_exact_than_is_allowed_for() -> None:
    for flips, heads in ((101, 70), (2000, 1150), (8000, 4300)):
        term = exactly = math.comb(flips, heads)
        above = 0
        for k in range(
            heads, min(flips, heads + 1500) + 1
        ):  # what lies beyond is below a part in 10^30
            above += term
            term = term * (flips - k) // (k + 1)
        found = Fraction(
            float(amplification._at_least(np.array([float(heads)]), np.array([flips]))[0])
        )
        assert abs(found * 2**flips / above - 1) < amplification._ALLOWANCE / 100
        found = Fraction(float(stats.binom.pmf(heads, flips, 0.5)))
        assert abs(found * 2**flips / exactly - 1) < amplification._ALLOWANCE / 100


def test_chances_of_clones_are_so_too() -> None:
    """Differences in either tail, of which the bound's weights are made."""
    people, one_in = 3000, 16
    terms = [math.comb(people, k) * (one_in - 1) ** (people - k) for k in range(people + 1)]
    clones = stats.binom(people, 1 / one_in)
    for first in (100, 130, 180):
        exact = Fraction(sum(terms[first : first + 3]), one_in**people)
        found = float(clones.cdf(first + 2) - clones.cdf(first - 1))
        assert abs(Fraction(found) / exact - 1) < amplification._ALLOWANCE / 10
    for first in (195, 240, 280):
        exact = Fraction(sum(terms[first : first + 3]), one_in**people)
        found = float(clones.sf(first - 1) - clones.sf(first + 2))
        assert abs(Fraction(found) / exact - 1) < amplification._ALLOWANCE / 10


def test_a_ratio_beyond_all_floats_gains_nothing() -> None:
    crowd = Crowd(10**6, Fraction(10) ** 400, Fraction(1, 2 * 10**400))
    bound = worst_bound([crowd], 1e-9)
    assert bound.delta == 0.0
    assert bound.epsilon == pytest.approx(400 * math.log(10))


# Published figures.


def test_a_published_figure() -> None:
    """The authors of "Hiding among the clones" state, with their code, 0.16754 to 0.17279 for 100,000 people, epsilon 4 and delta
    1e-6 by their first analysis: clones with e^-epsilon, the person always in one of the counts."""
    crowd = any_mechanism(4.0, 100_000)
    assert readers_delta(0.1675385583317841, crowd) > 1e-6 > readers_delta(0.172790550755978, crowd)
    assert 0.1675385583317841 < readers_epsilon(1e-6, crowd) < 0.172790550755978
    # Where reports tell no two values at once there are twice as many clones.
    assert 0.11 < readers_epsilon(1e-6, crowd_of(mechanism("grr", 8, 4.0), 100_000)) < 0.13


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("people", [40_000, 1_000_000])
def test_below_the_closed_form(epsilon: float, people: int) -> None:
    """Theorem 3.1 of the same paper."""
    delta, e, crowd = 1e-9, math.exp(epsilon), any_mechanism(epsilon, people)
    assert epsilon <= math.log(people / (16 * math.log(2 / delta)))  # where the theorem holds
    root = 8 * math.sqrt(e * math.log(4 / delta) / people) + 8 * e / people
    found = readers_epsilon(delta, crowd)
    assert 0 < found < math.log1p((e - 1) / (e + 1) * root)
    assert readers_delta(found, crowd) <= delta < readers_delta(0.998 * found, crowd)


# Crowds.


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_what_makes_a_crowd_worse(epsilon: float) -> None:
    crowd = crowd_of(mechanism("oue", 8, epsilon), 3000)
    found = readers_epsilon(1e-9, crowd) * 1.001
    assert readers_epsilon(1e-9, Crowd(2000, crowd.ratio, crowd.in_common)) > found
    assert readers_epsilon(1e-9, Crowd(3000, crowd.ratio, crowd.in_common / 2)) > found
    assert readers_epsilon(1e-9, Crowd(3000, 2 * crowd.ratio, crowd.in_common)) > found


def test_where_nothing_is_gained_the_local_guarantee_stands() -> None:
    asked = mechanism("grr", 2, 8.0)
    for people in (1, 50):
        bound = worst_bound([crowd_of(asked, people), crowd_of(asked, 10**6)], 1e-9)
        assert (bound.epsilon, bound.delta, bound.people) == (asked.epsilon, 0.0, people)


def test_the_worst_of_many_crowds_is_found() -> None:
    made = [(2, 900, 1.0), (5, 500, 1.0), (40, 300, 1.0), (3, 700, 0.5), (2, 4000, 2.0)]
    found = [crowd_of(mechanism("grr", cells, epsilon), people) for cells, people, epsilon in made]
    worst = max(readers_epsilon(1e-9, crowd) for crowd in found)
    assert worst_bound(found, 1e-9).epsilon == pytest.approx(worst, rel=2e-3)


def test_looking_at_the_worst_kinds_is_enough() -> None:
    made = itertools.product(("grr", "oue"), (3, 30), (0.7, 0.9), (200, 350, 3000))
    found = [
        crowd_of(mechanism(name, cells, epsilon), people) for name, cells, epsilon, people in made
    ]
    bound = worst_bound(found, 1e-9)
    assert len(amplification._worst_kinds(found)) < len(found) / 3
    assert all(readers_delta(bound.epsilon, crowd) <= bound.delta for crowd in found)


def ask(
    questions: Sequence[Question], shares: Sequence[float], numbers: Sequence[int], number: int = 0
) -> CountTally:
    tally = CountTally(Plan(number, tuple(questions), tuple(shares)))
    for i, n in enumerate(numbers):
        tally.add_counts(i, np.zeros(questions[i].mechanism.counters, np.int64), n)
    return tally


def test_copies_of_a_question_are_crowds_of_their_own() -> None:
    first, second = (
        Question(("a",), mechanism("grr", 3, 1.0)),
        Question(("b",), mechanism("oue", 9, 1.0)),
    )
    tally = ask([first, second, first, second], [0.6, 0.3, 0.07, 0.03], [600, 300, 70, 0])
    people = [(first, 600), (second, 300), (first, 70)]
    assert crowds(tally) == [crowd_of(question.mechanism, n) for question, n in people]
    assert mixed_crowd(tally).people == 970


def test_a_mixed_crowd_is_that_of_question_and_answer() -> None:
    """The laws of (question, answer) for records that answer both questions alike."""
    asked = [mechanism("grr", 3, 1.0), mechanism("oue", 3, 0.8)]
    tally = ask(
        [Question((name,), m) for name, m in zip("ab", asked, strict=True)], [0.25, 0.75], [10, 30]
    )
    shares = [Fraction(1, 4), Fraction(3, 4)]
    laws = [
        {
            (j, report): share * chance
            for j, share in enumerate(shares)
            for report, chance in asked[j].law(value).items()
        }
        for value in range(3)
    ]
    crowd = mixed_crowd(tally)
    assert crowd.people == 40
    assert crowd.ratio == max(
        a[key] / b[key] for a, b in itertools.permutations(laws, 2) for key in a
    )
    pairs = list(itertools.combinations(laws, 2))
    assert crowd.in_common == min(
        own[key] / (a[key] + b[key]) for own in laws for a, b in pairs for key in own
    )


def test_answers_given_together() -> None:
    asked = [mechanism("grr", 2, 0.5), mechanism("grr", 3, 1.0)]
    plan = Plan(
        0,
        tuple(Question((name,), m) for name, m in zip("ab", asked, strict=True)),
        split=True,
        tally="patterns",
    )
    tally = PatternTally(plan, np.zeros((1, plan.report_offsets[-1]), np.uint8), np.array([500]))
    [crowd] = crowds(tally)
    laws = [
        {
            (r, s): asked[0].law(v)[r] * asked[1].law(v)[s]
            for r in asked[0].law(0)
            for s in asked[1].law(0)
        }
        for v in (0, 1)
    ]
    assert crowd.people == 500
    assert crowd.ratio == max(laws[0][report] / laws[1][report] for report in laws[0])
    others = [
        asked[0].law(v)[r] * asked[1].law(w)[s] / (laws[0][r, s] + laws[1][r, s])
        for v in (0, 1)
        for w in range(3)
        for r, s in laws[0]
    ]
    assert crowd.in_common <= min(others)


def test_a_campaign_is_as_good_as_its_worst_round() -> None:
    question = Question(("a",), mechanism("grr", 4, 1.0))
    rounds = [ask([question], [1.0], [n], i) for i, n in enumerate((20_000, 2_000))]
    central = central_guarantee(rounds, 22_000)
    assert central.known.people == 2_000
    assert central.known.delta == LEAST == min(1e-9, 22_000.0**-2)
    expected = readers_epsilon(LEAST, crowd_of(question.mechanism, 2_000))
    assert central.known.epsilon == pytest.approx(expected, rel=2e-3)
    assert central.hidden == central.known  # there is one question
    assert central_guarantee(rounds, 200_000).known.delta == 200_000.0**-2


LEAST = 1e-9


def test_hidden_questions_hide_more() -> None:
    asked = [Question((name,), mechanism("grr", 4, 1.0)) for name in "abcdefgh"]
    central = central_guarantee([ask(asked, [1 / 8] * 8, [1_000] * 8)], 8_000)
    assert central.hidden.people == 8_000
    assert central.hidden.epsilon < central.known.epsilon / 2 < 0.5
