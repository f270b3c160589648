"""Consumers who come late, and participants with several values."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dither import histogram, several_values
from dither.errors import InputError, ParameterError, TableError
from dither.mechanisms import Unary, sue

VALUES = np.random.default_rng(2).beta(2, 4, 20_000)


@pytest.mark.parametrize("way", ["chp", "smart", "sampled"])
def test_late_bins_that_fit_are_the_bins_themselves(way: str) -> None:
    release = histogram(VALUES, consumers=[6, 4], epsilon=2.0, low=0, high=1, method=way, seed=1)
    late = release.number.answer(6)
    # The counts of late bins add up to all people; those of the consumer are raw.
    assert late.estimates.sum() == pytest.approx(20_000)
    apart = np.abs(late.estimates - release.consumers[0].estimates)
    assert (apart < release.consumers[0].standard_errors).all()
    assert late.standard_errors == pytest.approx(release.consumers[0].standard_errors, rel=0.02)
    # An interval keeps its width where the raw count is negative.
    moved = np.clip(release.consumers[0].raw, 0, 20_000) - release.consumers[0].raw
    low, high = release.consumers[0].interval()
    assert late.low == pytest.approx(np.clip(low + moved, 0, 20_000), rel=0.05, abs=20)
    assert late.high == pytest.approx(np.clip(high + moved, 0, 20_000), rel=0.05)


@pytest.mark.parametrize("way", ["chp", "smart"])
def test_late_intervals_hold_whatever_the_values(way: str) -> None:
    """Values heaped at one end of a cell: interpolation is as wrong as it can be, and the bound still holds."""
    heaped = np.repeat([0.01, 0.26, 0.51], [5_000, 3_000, 2_000])
    held = []
    for seed in range(60):
        late = histogram(
            heaped, consumers=[4], epsilon=2.0, low=0, high=1, method=way, seed=seed
        ).number.answer([0, 0.1, 0.3, 1])
        truth = np.histogram(heaped, [0, 0.1, 0.3, 1])[0]
        low, high = late.interval()
        held.append((low <= truth) & (truth <= high))
        assert (
            np.abs(late.estimates[0] - truth[0]) > 2500
        )  # five sixths of the stretch: an even spread is a false promise
    # Truths at the very ends of what is possible are covered with 95 %; a standard error of 180 such figures is 1.6 points.
    assert np.mean(held) >= 0.95 - 3 * 0.016


def test_late_intervals_are_as_short_as_the_cells_allow() -> None:
    """Between the cells inside a bin and those that touch it; a bound on both cut cells beside the noise was far longer."""
    release = histogram(
        VALUES, consumers=[3, 5, 7], epsilon=2.0, low=0, high=1, method="chp", seed=1
    )
    late = release.number.answer(4)
    cells, edges = release.number.cells, np.asarray(release.number.partition)
    assert cells is not None
    for i in range(4):
        within = (edges[:-1] >= i / 4 - 1e-9) & (edges[1:] <= (i + 1) / 4 + 1e-9)
        touched = (edges[1:] > i / 4 + 1e-9) & (edges[:-1] < (i + 1) / 4 - 1e-9)
        weights = np.array([within, touched], float)
        least, most = weights @ cells.counts
        errors = np.sqrt(cells.weighted_variances(weights))
        assert late.low[i] == pytest.approx(max(least - 1.645 * errors[0], 0), rel=0.02, abs=10)
        assert late.high[i] == pytest.approx(most + 1.645 * errors[1], rel=0.02)
    assert "evenly" in late.to_json()["interpolation"]


def test_split_answers_late_questions_from_its_finest_consumer() -> None:
    release = histogram(
        VALUES, consumers=[3, 4], epsilon=6.0, low=0, high=1, method="split", seed=1
    )
    assert release.number.answer(4).estimates == pytest.approx(release.consumers[1].estimates)
    one = histogram(VALUES, consumers=[1], epsilon=2.0, low=0, high=1, seed=1)
    with pytest.raises(ParameterError, match="keeps no cells"):
        one.number.answer(5)


def all_ratios(mechanism: Unary, most: int) -> Fraction:
    """The worst likelihood ratio of a summed vector, over all pairs of participants and all vectors, by brute force."""
    p, q, k = mechanism.p, mechanism.q, mechanism.cells

    def law(true: int) -> list[Fraction]:
        out = [Fraction(1)]
        for i in range(most):
            chance = p if i < true else q
            out = [
                (out[y] * (1 - chance) if y < len(out) else 0) + (out[y - 1] * chance if y else 0)
                for y in range(len(out) + 1)
            ]
        return out

    laws = [law(t) for t in range(most + 1)]
    people = [c for c in itertools.product(range(most + 1), repeat=k) if sum(c) == most]
    worst = Fraction(1)
    for a, b in itertools.permutations(people, 2):
        ratio = Fraction(1)
        for t, u in zip(a, b, strict=True):
            ratio *= max(laws[t][y] / laws[u][y] for y in range(most + 1))
        worst = max(worst, ratio)
    return worst


@pytest.mark.parametrize(("cells", "most"), [(2, 1), (3, 2), (2, 3)])
def test_summed_vectors_cost_exactly_the_sum(cells: int, most: int) -> None:
    mechanism = sue(cells, 0.7, threshold_bits=16)
    exact = math.log(all_ratios(mechanism, most))
    assert mechanism.epsilon_of(most) == pytest.approx(exact, abs=1e-12)
    assert mechanism.epsilon_of(most) >= exact
    assert mechanism.epsilon_of(most) == pytest.approx(most * mechanism.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["one", "independent", "summed"])
@pytest.mark.parametrize("path", ["counts", "reports"])
def test_several_values_are_unbiased(method: str, path: str) -> None:
    people = [[0.1, 0.4], [0.9], [], [0.2, 0.2, 0.6]] * 150
    truth = np.histogram(np.concatenate([p for p in people if p]), [0, 1 / 3, 2 / 3, 1])[0]
    found, stated = [], []
    for seed in range(80):
        release = several_values(
            people, consumers=[3], epsilon=6.0, low=0, high=1, most=3, method=method, path=path, seed=seed  # type: ignore[arg-type]
        )  # fmt: skip
        assert release.epsilon_achieved <= 6.0
        found.append(release.consumers[0].estimates)
        stated.append(release.consumers[0].standard_errors)
    spread = np.std(found, axis=0, ddof=1)
    assert np.all(np.abs(np.mean(found, axis=0) - truth) < 4.5 * spread / math.sqrt(80))
    assert np.all(np.abs(spread / np.mean(stated, axis=0) - 1) < 4.5 / math.sqrt(160))
    assert release.number.bits_per_report == {"one": 2, "independent": 12, "summed": 8}[method]


def test_one_value_at_full_epsilon_is_the_default_and_far_better() -> None:
    """Three values each at epsilon 3: the paper's strategies have 7 to 12 times the squared error."""
    rng = np.random.default_rng(4)
    people = rng.beta(2, 4, (4000, 3)).tolist()
    truth = np.histogram(np.concatenate(people), [0, 0.25, 0.5, 0.75, 1])[0]
    errors = {}
    for method in (None, "summed"):
        given = {} if method is None else {"method": method}
        runs = [
            several_values(
                people, consumers=[4], epsilon=3.0, low=0, high=1, most=3, seed=s, **given
            )  # type: ignore[arg-type]
            for s in range(12)
        ]
        errors[method] = np.mean([(run.consumers[0].estimates - truth) ** 2 for run in runs])
        assert all(run.epsilon_achieved <= 3.0 for run in runs)
    assert errors[None] < errors["summed"] / 3


def test_wrong_input_is_named() -> None:

    with pytest.raises(TableError, match="participant 2 has 3 values"):
        several_values([[0.1], [0.1, 0.2, 0.3]], consumers=[2], epsilon=1.0, low=0, high=1, most=2)
    with pytest.raises(ParameterError, match="unary"):
        several_values(
            [[0.1]],
            consumers=[3],
            epsilon=1.0,
            low=0,
            high=1,
            most=2,
            method="summed",
            parameters={"mechanism": "grr"},
        )
    with pytest.raises(ParameterError, match="most"):
        several_values([[0.1]], consumers=[3], epsilon=1.0, low=0, high=1, most=0)
    with pytest.raises(ParameterError, match="method"):
        several_values([[0.1]], consumers=[3], epsilon=1.0, low=0, high=1, most=1, method="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"values": [[0.1], [math.nan]]}, "participant 2 hold a number that is missing"),
        ({"values": [[0.1, math.inf]]}, "participant 1 hold a number that is missing or infinite"),
        ({"values": [["x"]]}, "participant 1 must be a list of numbers"),
        ({"values": ["ab"]}, "participant 1 must be a list of numbers"),
        ({"values": [0.1, 0.2]}, "participant 1 must be a list of numbers"),
        ({"values": [[[0.1], [0.2]]]}, "participant 1 must be a list of numbers"),
        ({"parameters": {"mechanism": "nope"}}, "mechanism must be one of"),
        ({"parameters": {"share": 0.5}}, "has no parameter 'share'; it has: mechanism"),
        ({"path": "nope"}, "path must be one of"),
        ({"low": "x"}, "low must be a finite number"),
        ({"high": 10**400}, "high must be a finite number"),
        ({"low": 2}, "must be below high"),
        ({"epsilon": 10**400}, "a number that a float can hold"),
        ({"epsilon": math.nan}, "epsilon must be a number above 0"),
    ],
)
def test_bad_values_of_several_are_one_clear_error(change: dict, words: str) -> None:
    given = {
        "values": [[0.1]],
        "consumers": [3],
        "epsilon": 1.0,
        "low": 0,
        "high": 1,
        "most": 2,
        **change,
    }
    with pytest.raises(InputError, match=words):
        several_values(given.pop("values"), **given)
