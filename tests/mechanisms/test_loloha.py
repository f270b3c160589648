"""The panel's mechanism against the law of everything that a device sends, over all histories."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dither.errors import ParameterError, PrivacyError
from dither.mechanisms.loloha import Loloha, Membership
from dither.mechanisms.probability import log_up
from dither.randomness import RandomStream

Law = dict[tuple[int, ...], Fraction]


def slow_law(panel: Loloha, history: tuple[int, ...], *, redrawn: bool = False) -> Law:
    """The law by enumeration of the permanent answers; a mutant draws them again in each wave."""
    size = 1 << panel.threshold_bits
    buckets = range(panel.buckets)

    def answer(kept: int, other: int, true: int, got: int) -> Fraction:
        return Fraction(kept if true == got else other, size)

    law: Law = {}
    for reports in itertools.product(buckets, repeat=len(history)):
        total = Fraction(0)
        # A device that redraws has one permanent table a wave; its waves are independent.
        waves = [[t] for t in range(len(history))] if redrawn else [list(range(len(history)))]
        total = Fraction(1)
        for group in waves:
            part = Fraction(0)
            for table in itertools.product(buckets, repeat=panel.buckets):
                chance = Fraction(1)
                for bucket, got in enumerate(table):
                    chance *= answer(panel.permanent_keep, panel.permanent_other, bucket, got)
                for t in group:
                    chance *= answer(
                        panel.wave_keep, panel.wave_other, table[history[t]], reports[t]
                    )
                part += chance
            total *= part
        law[reports] = total
    return law


def worst(laws: list[Law]) -> Fraction:
    """The largest ratio of a sequence's probabilities under two histories."""
    return max(
        max(law[reports] for law in laws) / min(law[reports] for law in laws) for reports in laws[0]
    )


def histories(panel: Loloha, waves: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(panel.buckets), repeat=waves))


def test_the_law_of_a_history_is_that_of_its_definition() -> None:
    for buckets in (2, 3):
        panel = Loloha(4, buckets, 2**32 // 7, 2**32 // 5, 3)
        for history in histories(panel, 3):
            law = panel.law(history)
            assert law == slow_law(panel, history)
            assert sum(law.values()) == 1


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("waves", [1, 2, 3, 4, 5, 6])
def test_all_histories_keep_the_stated_lifetime_epsilon(epsilon: float, waves: int) -> None:
    panel = Loloha.for_epsilon(4, epsilon, waves)
    found = worst([panel.law(history) for history in histories(panel, waves)])
    assert log_up(found) <= panel.epsilon <= epsilon
    if panel.buckets == 2:
        assert found == panel.ratio
    # People who miss waves send less.
    for fewer in range(1, waves):
        assert worst([panel.law(one) for one in histories(panel, fewer)]) <= panel.ratio


def test_the_bound_for_more_buckets_holds() -> None:
    for waves in (1, 2, 3, 4):
        panel = Loloha(9, 3, 2**32 // 5, 2**32 // 6, waves)
        found = worst([panel.law(history) for history in histories(panel, waves)])
        assert found <= panel.ratio


def test_a_device_that_redraws_its_permanent_answers_exceeds_the_lifetime_epsilon() -> None:
    panel = Loloha.for_epsilon(4, 4.0, 6)
    # Constant histories suffice.
    laws = [slow_law(panel, history, redrawn=True) for history in ((0,) * 6, (1,) * 6)]
    assert log_up(worst(laws)) > 4.0
    kept = [slow_law(panel, history) for history in ((0,) * 6, (1,) * 6)]
    assert log_up(worst(kept)) <= 4.0


def test_thresholds_are_the_largest_that_keep_epsilon() -> None:
    panel = Loloha.for_epsilon(4, 4.0, 6)
    less_noise = Loloha(4, 2, panel.permanent_other, panel.wave_other - 8, 6)
    assert less_noise.epsilon > 4.0 >= panel.epsilon


def test_the_papers_bound_covers_changes_at_the_same_waves_only() -> None:
    # Wave noise of epsilon 2, and twelve waves: more than the permanent answers' 4.
    panel = Loloha(2, 2, 2**32 // 9, 2**32 // 9, 12)
    late, never = (0,) * 6 + (1,) * 6, (0,) * 12
    seen = late
    assert log_up(panel.law(late)[seen] / panel.law(never)[seen]) > panel.values_epsilon
    # Exchanged values change at the same waves.
    swapped = tuple(1 - bucket for bucket in late)
    assert worst([panel.law(late), panel.law(swapped)]) <= panel.values_ratio
    assert panel.epsilon > panel.values_epsilon


def test_the_first_report_keeps_an_epsilon_of_its_own() -> None:
    panel = Loloha.for_epsilon(4, 4.0, 3, first_epsilon=0.5)
    assert worst([panel.law((0,)), panel.law((1,))]) == panel.first_ratio
    assert 0.49 < panel.first_epsilon <= 0.5
    with pytest.raises(PrivacyError, match="first report"):
        Loloha.for_epsilon(4, 1.0, 3, first_epsilon=2.0)


def test_impossible_panels_are_rejected() -> None:
    with pytest.raises(ParameterError, match="waves"):
        Loloha.for_epsilon(4, 1.0, 0)
    with pytest.raises(ParameterError, match="waves"):
        Loloha.for_epsilon(4, 1.0, 105)
    with pytest.raises(PrivacyError):
        Loloha(4, 2, 2**31, 2**30, 3)
    with pytest.raises(PrivacyError):
        Loloha(4, 2, 2**30, 0, 3)


def test_the_number_of_buckets_is_the_best() -> None:
    for epsilon, waves in ((4.0, 6), (10.0, 2), (12.0, 1)):
        chosen = Loloha.for_epsilon(50, epsilon, waves)
        found = {chosen.buckets}
        for buckets in range(2, 12):
            other = math.ceil(2**32 / (math.exp(epsilon / buckets) + buckets - 1))
            for wave_other in np.geomspace(4, 2**32 / buckets - 8, 60).astype(int):
                panel = Loloha(50, buckets, other, int(wave_other), waves)
                if panel.epsilon <= epsilon and panel.variance(0, 1) < chosen.variance(0, 1):
                    found.add(buckets)
        assert found == {chosen.buckets}


@pytest.mark.slow
def test_devices_draw_their_law() -> None:
    panel = Loloha(5, 2, 2**32 // 5, 2**32 // 4, 2)
    source = RandomStream.from_seed("devices of a panel")
    people = 20_000
    for history in ((0, 3), (2, 2)):
        seen: dict[tuple[int, ...], int] = {}
        for _ in range(people):
            kept = panel.join(source(panel.join_bytes))
            buckets = tuple(panel.bucket(kept.a, kept.b, value) for value in history)
            reports = tuple(panel.report(kept, value, source(4)) for value in history)
            key = (*buckets, *reports)
            seen[key] = seen.get(key, 0) + 1
        for buckets in {key[:2] for key in seen}:
            total = sum(count for key, count in seen.items() if key[:2] == buckets)
            square: float = sum(
                (seen.get((*buckets, *reports), 0) - total * float(chance)) ** 2
                / (total * float(chance))
                for reports, chance in panel.law(buckets).items()
            )
            # Chi-square with 3 degrees of freedom: above 16.3 with probability 0.001.
            assert square < 16.3


def test_estimates_use_the_law_of_one_report() -> None:
    panel = Loloha(6, 3, 2**32 // 9, 2**32 // 7, 2)
    one = panel.law((1,))
    assert panel.p == one[1,]
    # The bucket of another cell is independent and (nearly) uniform.
    assert float(panel.q) == pytest.approx(1 / 3, abs=1e-4)


# Participants under attack.
PEOPLE = 150


def guessed(*, redrawn: bool) -> float:
    """How often an attacker who averages 1,000 waves guesses the bucket of a constant value."""
    panel = Loloha(2, 2, 2**32 // 4, 2**32 // 4, 1_000)
    source = RandomStream.from_seed("attack")
    right, people = 0, PEOPLE
    for person in range(people):
        value = person % 2
        kept = panel.join(source(panel.join_bytes))
        true = panel.bucket(kept.a, kept.b, value)
        ones = 0
        for _ in range(1_000):
            if redrawn:
                fresh = panel.join(source(panel.join_bytes))
                kept = Membership(kept.a, kept.b, fresh.permanent)
            ones += panel.report(kept, value, source(4))
        right += (ones > 500) == (true == 1)
    return right / people


@pytest.mark.slow
def test_averaging_a_thousand_waves_finds_the_permanent_answer_only() -> None:
    # The permanent answer is true with probability 3/4: four standard deviations.
    assert abs(guessed(redrawn=False) - 0.75) < 4 * math.sqrt(0.75 * 0.25 / PEOPLE)


@pytest.mark.slow
def test_the_attack_succeeds_if_permanent_answers_are_redrawn() -> None:
    assert guessed(redrawn=True) > 0.99
