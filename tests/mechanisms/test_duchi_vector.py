"""Whole vectors of signs: exact guarantee by enumeration, exactly unbiased, device and fleet draw for draw."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dither.errors import DitherError, ParameterError, PrivacyError, ReportError
from dither.mechanisms import (
    DuchiVector,
    MultiMean,
    PackedReports,
    kernels,
    log_up,
    mean_mechanism,
    multi_mean,
)
from dither.mechanisms.kernels.means import agreeing_many
from dither.randomness import RandomStream

Signs = tuple[int, ...]


def agreements(t: Signs, v: Signs) -> int:
    return sum(a == b for a, b in zip(t, v, strict=True))


def laws(vector: DuchiVector) -> dict[Signs, dict[Signs, Fraction]]:
    """The chance of every report t for every sign vector v, one by one."""
    every = list(product((-1, 1), repeat=vector.attributes))
    chances = [vector.probability(a) for a in range(vector.attributes + 1)]
    return {v: {t: chances[agreements(t, v)] for t in every} for v in every}


def exact_epsilon(vector: DuchiVector) -> float:
    """The largest log ratio of the chances of any report under any two sign vectors, rounded up."""
    found = laws(vector)
    return log_up(
        max(
            max(law[t] for law in found.values()) / min(law[t] for law in found.values())
            for t in found
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("attributes", range(1, 9))
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0, 8.0])
def test_the_guarantee_by_enumeration(attributes: int, epsilon: float) -> None:
    """Every v, every report, ties included: as stated, kept, and used; and 5 % more would be seen."""
    vector = DuchiVector.for_epsilon(attributes, epsilon)
    assert exact_epsilon(vector) == vector.epsilon
    assert (1 - 1e-9) * epsilon < vector.epsilon <= epsilon
    mutant = DuchiVector.for_epsilon(attributes, 1.05 * epsilon)
    assert epsilon < 1.049 * epsilon < exact_epsilon(mutant)
    assert mutant.epsilon > epsilon


@pytest.mark.parametrize("attributes", range(1, 7))
def test_exactly_unbiased(attributes: int) -> None:
    """In rational numbers: chances add up to one, the mean report is the scaled v, whatever v is."""
    vector = DuchiVector.for_epsilon(attributes, 1.3)
    for v, law in laws(vector).items():
        assert sum(law.values()) == 1
        for j in range(attributes):
            assert vector.scale * sum(chance * t[j] for t, chance in law.items()) == v[j]


@pytest.mark.parametrize("attributes", [2, 4, 6])
def test_ties_in_both_half_spaces_would_break_the_guarantee(attributes: int) -> None:
    """The printed construction at an even d: its ratio is e^eps + 1, not e^eps."""
    ratio = Fraction(math.e)
    halves = 2 ** (attributes - 1) + Fraction(math.comb(attributes, attributes // 2), 2)
    above, below = ratio / (ratio + 1) / halves, 1 / (ratio + 1) / halves
    tie = above + below
    assert tie / below == ratio + 1
    chances = [
        below if 2 * a < attributes else tie if 2 * a == attributes else above
        for a in range(attributes + 1)
    ]
    assert sum(math.comb(attributes, a) * chance for a, chance in enumerate(chances)) == 1
    # Ties at the lowest chance also leave the smallest variance of all chances that keep the ratio.
    ties, majority = math.comb(attributes, attributes // 2), int(2**attributes - halves)
    signals = [
        (ratio - 1) / (majority * (ratio + 1) + ties * x) for x in (1, (1 + ratio) / 2, ratio)
    ]
    assert signals[0] == max(signals)
    scale = 1 / (signals[0] * math.comb(attributes - 1, attributes // 2))
    assert float(DuchiVector.for_epsilon(attributes, 1.0).scale) == pytest.approx(float(scale))


@pytest.mark.slow
@pytest.mark.parametrize("attributes", range(1, 7))
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_every_draw_of_a_16_bit_build(attributes: int, epsilon: float) -> None:
    """All 2^16 draws: each set of agreeing coordinates exactly as often as stated, alone and vectorised."""
    vector = DuchiVector.for_epsilon(attributes, epsilon, threshold_bits=16)
    found = Counter(vector.agreeing(draw) for draw in range(2**16))
    assert found == {
        bits: vector.high if 2 * bits.bit_count() > attributes else vector.low
        for bits in range(2**attributes)
    }
    assert 0.9 * epsilon < vector.epsilon <= epsilon
    many = agreeing_many(vector, np.arange(2**16, dtype="<u2").view(np.uint8).reshape(-1, 2))
    assert [vector.agreeing(draw) for draw in range(2**16)] == (
        many @ (1 << np.arange(attributes))
    ).tolist()


@pytest.mark.parametrize("attributes", [64, 66, 67, 100, 255])
def test_many_attributes(attributes: int) -> None:
    vector = DuchiVector.for_epsilon(attributes, 1.0)
    assert (1 - 1e-9) < vector.epsilon <= 1
    chances = [vector.probability(a) for a in range(attributes + 1)]
    assert sum(math.comb(attributes, a) * chance for a, chance in enumerate(chances)) == 1
    assert log_up(max(chances) / min(chances)) == vector.epsilon
    majority = sum(math.comb(attributes, a) for a in range(attributes // 2 + 1, attributes + 1))
    middle = math.comb(attributes - 1, attributes // 2)
    scale = (2**attributes + (math.e - 1) * majority) / ((math.e - 1) * middle)
    assert vector.variance() == pytest.approx(scale**2)
    if attributes % 2:  # what it comes to: pi d / 2 times the variance of one attribute
        one = ((math.e + 1) / (math.e - 1)) ** 2
        assert vector.variance() == pytest.approx(math.pi * attributes / 2 * one, rel=0.02)


@pytest.mark.parametrize("attributes", [1, 2, 5, 8, 66, 67])
def test_one_person_and_many_draw_alike(attributes: int) -> None:
    vector = DuchiVector.for_epsilon(attributes, 1.3)
    values = np.random.default_rng(1).uniform(-1, 1, (80, attributes))
    values[0], values[1] = -1, 1
    rows = kernels.randomise(vector, values, RandomStream.from_seed("a")).rows
    source = RandomStream.from_seed("a")
    singles = [vector.randomise(row.tolist(), source) for row in values]
    assert [bytes(r) for r in rows] == singles
    for report in singles:
        vector.check_report(report)


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    vector, values = (
        DuchiVector.for_epsilon(4, 1.0),
        np.random.default_rng(2).uniform(-1, 1, (50, 4)),
    )
    whole = kernels.randomise(vector, values, RandomStream.from_seed(1)).rows
    monkeypatch.setattr("dither.mechanisms.kernels.means._BLOCK", 7)
    assert np.array_equal(whole, kernels.randomise(vector, values, RandomStream.from_seed(1)).rows)


@pytest.mark.parametrize("attributes", [3, 4])
def test_reports_follow_the_law(attributes: int) -> None:
    """Chi-square of all reports of one record whose signs are certain; a law of 30 % more epsilon is rejected."""
    vector, n = DuchiVector.for_epsilon(attributes, 1.0), 40_000
    v: Signs = (1, -1, 1, -1)[:attributes]
    rows = kernels.randomise(
        vector, np.tile(v, (n, 1)), RandomStream.from_seed("law", attributes)
    ).rows
    counts = np.bincount(rows[:, 0], minlength=2**attributes)

    def p_value(assumed: DuchiVector) -> float:
        law = laws(assumed)[v]
        order = [
            tuple(1 if bits >> j & 1 else -1 for j in range(attributes))
            for bits in range(2**attributes)
        ]
        return float(stats.chisquare(counts, [n * float(law[t]) for t in order]).pvalue)

    assert p_value(vector) > 1e-4
    assert p_value(DuchiVector.for_epsilon(attributes, 1.3)) < 1e-6


@pytest.mark.parametrize("attributes", [2, 5, 10])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_means_are_unbiased_with_true_errors(attributes: int, epsilon: float) -> None:
    vector, n = DuchiVector.for_epsilon(attributes, epsilon), 60_000
    values = np.random.default_rng(1).uniform(-1, 1, (n, attributes)) * 0.3 + np.linspace(
        -0.7, 0.7, attributes
    )
    reports = kernels.randomise(vector, values, RandomStream.from_seed(4, attributes))
    for found, truth in zip(
        kernels.estimate_means(vector, reports), values.mean(axis=0), strict=True
    ):
        # A report is the scale with either sign, so that its variance over all people is exactly this.
        error = math.sqrt(vector.variance(truth) / n)
        assert abs(found.mean - truth) < 4.5 * error
        assert found.standard_error == pytest.approx(error, rel=0.02)
        assert found.n == n


@pytest.mark.parametrize("attributes", [2, 3])
def test_a_wrong_scale_is_rejected(attributes: int) -> None:
    vector, wrong, n = (*(DuchiVector.for_epsilon(attributes, e) for e in (1.0, 1.2)), 60_000)
    reports = kernels.randomise(
        vector, np.full((n, attributes), 0.9), RandomStream.from_seed("wrong")
    )
    for right, other in zip(
        kernels.estimate_means(vector, reports), kernels.estimate_means(wrong, reports), strict=True
    ):
        assert abs(right.mean - 0.9) < 4.5 * math.sqrt(vector.variance(0.9) / n)
        assert abs(other.mean - 0.9) > 4.5 * math.sqrt(vector.variance(0.9) / n)


def test_variance_of_repeated_estimates() -> None:
    """200 collections of one record at 0, where the variance is largest: chi-square of their spread."""
    vector, n, runs = DuchiVector.for_epsilon(4, 1.0), 500, 200
    stream = RandomStream.from_seed("spread")
    means = np.array(
        [
            [
                e.mean
                for e in kernels.estimate_means(
                    vector, kernels.randomise(vector, np.zeros((n, 4)), stream)
                )
            ]
            for _ in range(runs)
        ]
    )
    for column in means.T:
        assert 1e-4 < stats.chi2.cdf((column**2).sum() * n / vector.variance(), runs) < 1 - 1e-4


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_one_attribute_is_duchis_mechanism(epsilon: float) -> None:
    vector, one = DuchiVector.for_epsilon(1, epsilon), mean_mechanism("duchi", epsilon)
    for value, level in ((-1, 0), (1, one.levels - 1)):
        upper = vector.probability(1) if value > 0 else vector.probability(0)
        assert float(upper) == pytest.approx(float(one.probabilities(level)[1]), abs=1e-4)
    assert float(vector.scale) == pytest.approx((math.exp(epsilon) + 1) / (math.exp(epsilon) - 1))
    assert float(vector.scale) == pytest.approx(float(one.value_of(1)), rel=1e-3)
    assert vector.variance() == pytest.approx(one.worst_variance, rel=1e-3)


@pytest.mark.parametrize("attributes", [3, 5, 7])
def test_an_odd_vector_says_nothing_about_pairs(attributes: int) -> None:
    """The mean product of two reported signs is 0 whatever the record: fit for means, not for dependence."""
    for law in laws(DuchiVector.for_epsilon(attributes, 2.0)).values():
        assert sum(chance * t[0] * t[1] for t, chance in law.items()) == 0


def test_chosen_by_name() -> None:
    vector = multi_mean(5, 1.0, "duchi-vector")
    assert vector == DuchiVector.for_epsilon(5, 1.0) == multi_mean(5, 1.0, "duchi-vector", asked=5)
    assert multi_mean(5, 6.0) == MultiMean.for_epsilon(5, 6.0)
    assert multi_mean(5, 6.0, "duchi", 3) == MultiMean.for_epsilon(5, 6.0, "duchi", 3)
    with pytest.raises(ParameterError, match="all attributes") as caught:
        multi_mean(5, 1.0, "duchi-vector", asked=2)
    assert caught.value.where == "asked"
    with pytest.raises(ParameterError, match="piecewise, hybrid, duchi-vector"):
        multi_mean(5, 1.0, "laplace")


def test_wrong_input_is_named() -> None:
    vector = DuchiVector.for_epsilon(3, 1.0)
    for value in (1.1, -2, math.nan, True, "x"):
        with pytest.raises(ParameterError) as caught:
            vector.randomise([0.0, value, 0.0], bytes)  # type: ignore[list-item]
        assert caught.value.where == "values[1]"
    wrong: list[Any] = [[0.0, 0.0, 2.0]], [[0.0, math.nan, 0.0]], [[0.0, 0.0]], [0.0, 0.0, 0.0]
    for table in wrong:
        with pytest.raises(ParameterError) as caught:
            kernels.randomise(vector, table, RandomStream.from_seed(1))
        assert caught.value.where == "values"
    with pytest.raises(ParameterError, match="3 values are needed, not 2"):
        vector.randomise([0.0, 0.0], bytes)
    for attributes in (0, -1, 256):
        with pytest.raises(ParameterError) as caught:
            DuchiVector.for_epsilon(attributes, 1.0)
        assert caught.value.where == "attributes"
    for epsilon in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PrivacyError):
            DuchiVector.for_epsilon(3, epsilon)
    with pytest.raises(DitherError, match="at this epsilon"):
        DuchiVector.for_epsilon(4, 1e-6, threshold_bits=16)
    with pytest.raises(PrivacyError):  # the draws would not come out even
        replace(DuchiVector.for_epsilon(4, 1.0), low=DuchiVector.for_epsilon(4, 1.0).low + 1)
    with pytest.raises(ParameterError, match="two reports"):
        kernels.estimate_means(vector, PackedReports(np.zeros((1, 1), np.uint8)))


def test_wrong_reports_are_refused() -> None:
    vector = DuchiVector.for_epsilon(3, 1.0)
    for report in (b"", b"\x08", b"\xff", b"\x00\x00"):
        with pytest.raises(ReportError):
            vector.check_report(report)
    vector.check_report(b"\x07")
    with pytest.raises(ReportError, match="more than 3 signs"):
        kernels.estimate_means(vector, PackedReports(np.array([[0], [8]], np.uint8)))
    with pytest.raises(ReportError, match="reports of 1 bytes"):
        kernels.estimate_means(vector, PackedReports(np.zeros((5, 2), np.uint8)))


@pytest.mark.parametrize("epsilon", [30.0, 60.0, 700.0])
def test_a_large_epsilon_is_kept_though_not_used_up(epsilon: float) -> None:
    for attributes in (1, 2, 15, 16):
        assert (
            min(epsilon, 45) * (1 - 1e-6)
            < DuchiVector.for_epsilon(attributes, epsilon).epsilon
            <= epsilon
        )


@pytest.mark.slow
def test_the_table_in_the_docs_is_what_the_exact_laws_give() -> None:
    """Largest variance of an attribute's mean times the participants: the vector, Multi-HM, Duchi by sampling."""
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "histograms.md").read_text(
        encoding="utf-8"
    )
    lines = [
        line
        for line in page.splitlines()
        if re.fullmatch(r"\| (2|5|10|20) (\| [\d.]+ / [\d.]+ / [\d.]+ ){4}\|", line)
    ]
    assert len(lines) == 4
    for line in lines:
        first, *cells = (part.strip() for part in line.strip("| ").split("|"))
        attributes = int(first)
        for cell, epsilon in zip(cells, (0.5, 1.0, 2.0, 4.0), strict=True):
            sampled = [
                MultiMean.for_epsilon(attributes, epsilon, name) for name in ("hybrid", "duchi")
            ]
            exact = [
                m.worst_variance for m in (DuchiVector.for_epsilon(attributes, epsilon), *sampled)
            ]
            for written, value in zip(cell.split(" / "), exact, strict=True):
                digits = len(written.partition(".")[2])
                assert float(written) == pytest.approx(value, abs=0.51 * 10**-digits)
