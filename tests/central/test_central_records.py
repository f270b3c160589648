"""The record form: exact for any two records, unbiased, and better with epsilon."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.linalg import hadamard

from dither.central import calibrate, seeded_source
from dither.central.records import (
    Places,
    RecordParameters,
    best_rows,
    decode,
    fill,
    release_records,
    sensitivity,
)
from dither.errors import ParameterError


def released(
    codes: np.ndarray,
    sizes: tuple[int, ...],
    epsilon: float,
    seed: int = 1,
    tau: float | None = None,
):
    return release_records(
        codes,
        sizes,
        epsilon,
        seeded_source(seed),
        np.random.default_rng(seed),
        RecordParameters(tau),
    )


@pytest.mark.parametrize("sizes", [(3, 2, 4), (2, 2, 2, 2), (5,), (1, 3)])
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_the_sensitivity_is_that_of_the_worst_two_records(
    sizes: tuple[int, ...], rows: int
) -> None:
    places = Places(sizes)
    rng = np.random.default_rng(rows)
    matrix = hadamard(max(places.order, 4))[
        rng.permutation(max(places.order, 4))[:rows], : places.count
    ]
    matrix = matrix * (rng.integers(0, 2, places.count) * 2 - 1)
    every = np.array(list(itertools.product(*(range(k) for k in sizes))))
    measured = places.measured(every, matrix)
    brute = max(int(np.abs(a - b).sum()) for a, b in itertools.product(measured, repeat=2))
    claimed, exact = sensitivity(matrix, places)
    assert exact
    assert claimed == brute
    if brute > 1:
        assert (
            Fraction(brute) / calibrate(claimed, 0.9)
            <= Fraction(0.9)
            < Fraction(brute) / calibrate(claimed // 2, 0.9)
        )


def test_the_bound_for_many_attributes_holds() -> None:
    sizes = (2,) * 20 + (5, 7)
    places = Places(sizes)
    matrix = hadamard(32 if places.order <= 32 else places.order)[:8, : places.count]
    bound, exact = sensitivity(matrix, places)
    assert not exact
    rng = np.random.default_rng(0)
    one, other = (np.stack([rng.integers(0, k, 3000) for k in sizes], axis=1) for _ in range(2))
    seen = np.abs(places.measured(one, matrix) - places.measured(other, matrix)).sum(axis=1).max()
    assert seen <= bound
    assert math.isqrt(8 * places.order * 24) >= bound


def test_decoding_is_unbiased_over_the_groups() -> None:
    """Every group once and no noise: the mean of the scores is the record, exactly."""
    places = Places((3, 2, 4))
    rng = np.random.default_rng(4)
    mixing = hadamard(8)[rng.permutation(8), : places.count] * (
        rng.integers(0, 2, places.count) * 2 - 1
    )
    for rows in (1, 2, 4, 8):
        groups = mixing.reshape(-1, rows, places.count)
        dealt = np.arange(len(groups))
        record = np.tile([2, 1, 3], (len(groups), 1))
        measured = np.stack(
            [places.measured(record[[g]], group)[0] for g, group in enumerate(groups)]
        )
        for j, (start, size) in enumerate(zip(places.starts, places.sizes, strict=True)):
            wanted = np.eye(size)[record[0, j]]
            assert np.allclose(decode(measured, groups, dealt, start, size).mean(axis=0), wanted)


@pytest.mark.parametrize("value", [0, 1])
def test_records_that_are_all_alike_come_back(value: int) -> None:
    alike = np.full((400, 16), value)
    assert (released(alike, (2,) * 16, 10_000.0).codes == value).all()
    three = np.full((400, 5), 2)
    assert (released(three, (3,) * 5, 10_000.0).codes == 2).all()


def test_the_error_falls_with_epsilon() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([0.05, 0.9, 0.5, 0.2, 0.7, 0.35])
    codes = (rng.random((4000, 6)) < truth).astype(np.int64)
    errors = []
    for epsilon in (0.5, 2.0, 8.0, 32.0):
        made = [released(codes, (2,) * 6, epsilon, seed) for seed in range(5)]
        assert all(one.epsilon <= epsilon for one in made)
        shares = np.stack([[share[1] for share in one.shares] for one in made])
        errors.append(float(np.sqrt(((shares - codes.mean(axis=0)) ** 2).mean())))
        for one, raw in zip(made, shares, strict=True):  # the rows have the estimated shares
            assert np.abs(one.codes.mean(axis=0) - raw.clip(0, 1)).max() <= 1 / 4000
    assert errors[0] > 2 * errors[1] > 4 * errors[2] > 8 * errors[3]
    # the noise on a share: scale over sqrt(rows x people), and what was not measured
    rows = best_rows(Places((2,) * 6), 2.0)
    reach = released(codes, (2,) * 6, 2.0).sensitivity
    expected = math.sqrt((2 * (reach / 2.0) ** 2 + 6 * (1 - rows / 8)) / rows / 4000)
    assert expected / 2 < errors[1] < 2 * expected


def test_shares_are_unbiased_at_every_ratio() -> None:
    rng = np.random.default_rng(1)
    codes = np.stack(
        [rng.choice(3, 800, p=[0.7, 0.2, 0.1]), rng.choice(2, 800, p=[0.9, 0.1])], axis=1
    )
    truth = np.concatenate([np.bincount(codes[:, 0]) / 800, np.bincount(codes[:, 1]) / 800])
    for tau in (0.25, 0.5, 1.0):
        made = np.stack(
            [np.concatenate(released(codes, (3, 2), 4.0, s, tau).shares) for s in range(40)]
        )
        assert (np.abs(made.mean(axis=0) - truth) < 5 * made.std(axis=0) / math.sqrt(40)).all()
        assert (
            np.abs(made.mean(axis=0) - 0.5) > 5 * made.std(axis=0) / math.sqrt(40)
        ).any()  # one half is rejected


def test_every_value_is_filled_as_often_as_it_is_owed() -> None:
    scores = np.array([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.1, 0.9, 0.3], [0.2, 0.1, 0.9]])
    assert fill(scores, np.array([2, 1, 1])).tolist() == [0, 0, 1, 2]
    assert fill(scores, np.array([4, 0, 0])).tolist() == [0, 0, 0, 0]
    made = fill(np.random.default_rng(0).normal(size=(100, 3)), np.array([10, 60, 30]))
    assert np.bincount(made).tolist() == [10, 60, 30]


def test_degenerate_tables_and_wrong_codes() -> None:
    assert released(np.zeros((0, 3), dtype=np.int64), (2, 3, 2), 1.0).codes.shape == (0, 3)
    assert released(np.zeros((1, 1), dtype=np.int64), (1,), 1.0).codes.tolist() == [[0]]
    assert released(np.ones((1, 2), dtype=np.int64), (2, 2), 1.0).codes.shape == (1, 2)
    with pytest.raises(ParameterError, match="domains"):
        released(np.full((3, 2), 2), (2, 2), 1.0)
    with pytest.raises(ParameterError, match="coarser bins"):
        released(np.zeros((1, 2), dtype=np.int64), (4000, 4000), 1.0)
    with pytest.raises(ParameterError, match="tau"):
        RecordParameters(tau=0.0)
