"""Latent classes against a slow and obvious one, their likelihood, and raking against raking the whole table."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dither.fit.mixture import Columns
from dither.fit.mixture.public_prior import (
    LatentClasses,
    class_count,
    classes_help,
    counted_in,
    latent_classes,
    mean_log_likelihood,
    one_ways,
    raked_classes,
    smoothed,
)

SIZES = (3, 2, 4)
COLUMNS = Columns(SIZES)


def rows(number: int = 500) -> np.ndarray:
    rng = np.random.default_rng(1)
    group = rng.integers(0, 2, number)
    tables = [rng.dirichlet(np.full(k, 0.5), size=2) for k in SIZES]
    return np.stack(
        [[rng.choice(k, p=t[g]) for g in group] for k, t in zip(SIZES, tables, strict=True)], axis=1
    )


def slow_step(
    codes: np.ndarray, weights: np.ndarray, components: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """One step, a row and a class at a time."""
    new_weights, new, likelihood = np.zeros(len(weights)), np.zeros_like(components), 0.0
    for row in codes:
        chances = np.array(
            [
                w * np.prod([a[COLUMNS.starts[i] + row[i]] for i in range(len(SIZES))])
                for w, a in zip(weights, components, strict=True)
            ]
        )
        likelihood += np.log(chances.sum())
        shares = chances / chances.sum()
        new_weights += shares
        for i in range(len(SIZES)):
            new[:, COLUMNS.starts[i] + row[i]] += shares
    for i in range(len(SIZES)):
        new[:, COLUMNS.of(i)] /= new[:, COLUMNS.of(i)].sum(axis=1, keepdims=True)
    return new_weights / len(codes), new, likelihood


def test_a_step_is_the_slow_one() -> None:
    codes, rng = rows(), np.random.default_rng(2)
    weights, components = (
        rng.dirichlet(np.ones(4)),
        COLUMNS.softmax(rng.standard_normal((4, COLUMNS.width))),
    )
    sums, totals = np.zeros((COLUMNS.width, 4)), np.zeros(4)
    places = codes + COLUMNS.starts
    likelihood = counted_in(
        np.ascontiguousarray(np.log(components).T), np.log(weights), places, sums, totals
    )
    wanted_weights, wanted, wanted_likelihood = slow_step(codes, weights, components)
    assert likelihood == pytest.approx(wanted_likelihood)
    assert np.allclose(totals / len(codes), wanted_weights)
    assert np.allclose(sums.T / COLUMNS.spread(COLUMNS.sums(sums.T)), wanted)


def test_the_likelihood_never_falls_and_the_one_way_marginals_are_those_of_the_rows() -> None:
    codes = rows()
    found = [
        latent_classes(COLUMNS, codes, np.random.default_rng(3), 3, iterations)
        for iterations in (1, 3, 10, 40)
    ]
    likelihoods = [slow_step(codes, f.weights, f.components)[2] for f in found]
    assert all(a <= b + 1e-9 for a, b in pairwise(likelihoods))
    assert likelihoods[-1] > likelihoods[0]
    assert np.allclose(found[-1].weights @ found[-1].components, one_ways(COLUMNS, codes))


def test_two_classes_explain_rows_of_two_classes() -> None:
    codes = rows(20_000)
    found = latent_classes(COLUMNS, codes, np.random.default_rng(4), 2)
    pair = (found.components[:, COLUMNS.of(0)].T * found.weights) @ found.components[
        :, COLUMNS.of(2)
    ]
    seen = np.bincount(codes[:, 0] * 4 + codes[:, 2], minlength=12).reshape(3, 4) / len(codes)
    product = np.outer(seen.sum(axis=1), seen.sum(axis=0))
    assert np.abs(pair - seen).sum() / 2 < 0.02  # 12 cells of 20,000 rows: about 0.006
    assert np.abs(product - seen).sum() / 2 > 0.05


def test_smoothing_rules_nothing_out_and_keeps_distributions() -> None:
    codes = np.zeros((100, 3), dtype=np.int32)
    found = smoothed(
        COLUMNS, latent_classes(COLUMNS, codes, np.random.default_rng(5)), one_ways(COLUMNS, codes)
    )
    assert (found.components > 0).all()
    assert np.allclose(COLUMNS.sums(found.components), 1.0)
    assert class_count(100) == len(found.weights) == 1
    assert class_count(7_000) == 100


def joint(classes: LatentClasses) -> np.ndarray:
    a, b, c = (classes.components[:, COLUMNS.of(i)] for i in range(3))
    return np.asarray(np.einsum("c,cu,cv,cw->uvw", classes.weights, a, b, c))


def test_raking_classes_is_raking_the_whole_table() -> None:
    rng = np.random.default_rng(6)
    classes = LatentClasses(
        rng.dirichlet(np.ones(5)), COLUMNS.softmax(rng.standard_normal((5, COLUMNS.width)))
    )
    one = COLUMNS.softmax(rng.standard_normal((1, COLUMNS.width)))[0]
    table = joint(classes)
    for _ in range(200):
        for axis in range(3):
            away = tuple(a for a in range(3) if a != axis)
            shape = [1, 1, 1]
            shape[axis] = SIZES[axis]
            table = table * (one[COLUMNS.of(axis)] / table.sum(axis=away)).reshape(shape)
    found = raked_classes(COLUMNS, classes, one)
    assert np.allclose(joint(found), table, atol=1e-5)
    assert np.allclose(found.weights @ found.components, one, atol=1e-5)


def test_classes_help_where_rows_depend_and_not_where_columns_were_shuffled() -> None:
    columns, rng = Columns((4,) * 8), np.random.default_rng(2)
    group = rng.integers(0, 3, 3_000)
    tables = rng.dirichlet(np.ones(4), size=(8, 3)).cumsum(axis=2)
    codes = np.stack(
        [(rng.random(3_000)[:, None] > table[group]).sum(axis=1) for table in tables], axis=1
    )
    shuffled = np.stack([rng.permutation(column) for column in codes.T], axis=1)
    for seed in range(5):
        own = np.random.default_rng(seed)
        assert classes_help(columns, codes, own)
        assert not classes_help(columns, shuffled, own)
    alike = LatentClasses(np.ones(1), one_ways(columns, shuffled)[None])
    learnt = latent_classes(columns, shuffled, rng)
    own_rows = [mean_log_likelihood(columns, classes, shuffled) for classes in (alike, learnt)]
    assert own_rows[0] < own_rows[1], (
        "judged by the rows that they were learnt from, classes always seem to help"
    )
    assert not classes_help(columns, codes[:3], rng), "too few rows to hold any out"


def test_the_mean_log_likelihood_is_the_slow_one() -> None:
    codes, classes = (
        rows(40),
        LatentClasses(
            np.array([0.3, 0.7]), COLUMNS.softmax(np.random.default_rng(3).normal(size=(2, 9)))
        ),
    )
    *_, likelihood = slow_step(codes, classes.weights, classes.components)
    assert mean_log_likelihood(COLUMNS, classes, codes) == pytest.approx(likelihood / 40)
