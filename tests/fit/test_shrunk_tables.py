"""Pair tables shrunk with a learnt prior: sparse tables become sparse, smooth ones stay."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dither.fit import shrunk_tables
from dither.fit.mixture.targets import pair_targets
from dither.fit.pool import AnswerCounts
from dither.fit.project import norm_sub
from dither.fit.shrunk_tables import shrunk_forest, shrunk_table
from dither.mechanisms import kernels
from dither.reports import question
from dither.schema import Attribute, Schema

NOISE = 1e-3


def noisy(true: np.ndarray, seed: int) -> np.ndarray:
    return true + NOISE * np.random.default_rng(seed).standard_normal(true.shape)


def shrunk(true: np.ndarray, seed: int) -> np.ndarray:
    product = np.outer(true.sum(axis=1), true.sum(axis=0))
    table, spread, prior = shrunk_table(noisy(true, seed), product, (NOISE**2, 0.0, 0.0))
    assert table.sum() == pytest.approx(1)
    assert prior.sum() == pytest.approx(1)
    assert (table >= 0).all()
    assert (spread >= 0).all()
    return table


def test_a_copy_keeps_its_mass_on_true_pairs() -> None:
    true = np.eye(50)[np.random.default_rng(1).permutation(50)] / 50
    for seed in range(5):
        kept = shrunk(true, seed)[true > 0].sum()
        assert kept > 0.95
        assert kept > norm_sub(noisy(true, seed))[true > 0].sum() + 0.02


def test_other_tables_come_nearer_than_their_projection() -> None:
    rng = np.random.default_rng(2)
    rows, columns = rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(20))
    line = np.abs(np.arange(20)[:, None] - np.arange(20))
    smooth = np.exp(-line / 4.0)
    for true in (np.outer(rows, columns), smooth / smooth.sum()):
        errors = [
            (
                np.abs(shrunk(true, seed) - true).sum(),
                np.abs(norm_sub(noisy(true, seed)) - true).sum(),
            )
            for seed in range(10)
        ]
        ours, projected = np.mean(errors, axis=0)
        assert ours < projected


def test_a_forest_agrees_on_shared_attributes_and_keeps_given_priors() -> None:
    schema = Schema(tuple(Attribute(f"x{i}", "categorical", tuple(range(9))) for i in range(4)))
    rng = np.random.default_rng(3)
    joint = 0.9 * np.eye(9) / 9 + 0.1 / 81
    answers = []
    for names in pairwise(schema.names[:3]):
        asked = question(schema, names, 3.0)
        people = rng.multinomial(40_000, joint.ravel())
        answers.append(AnswerCounts(asked, kernels.simulate(asked.mechanism, people, rng), 40_000))
    alone = question(schema, ["x3"], 3.0)
    people = rng.multinomial(10_000, np.full(9, 1 / 9))
    answers.append(AnswerCounts(alone, kernels.simulate(alone.mechanism, people, rng), 10_000))
    targets = pair_targets(schema, answers)
    forest = [(0, 1), (1, 2)]
    model, priors = shrunk_forest(schema, targets, forest)
    assert sorted(priors) == forest
    assert np.trace(model.marginal(["x0", "x1"])) == pytest.approx(0.9 + 0.1 / 9, abs=0.06)
    apart = np.outer(model.marginal(["x0"]), model.marginal(["x3"]))
    assert np.abs(model.marginal(["x0", "x3"]) - apart).max() < 1e-12
    again, same = shrunk_forest(schema, targets, forest, priors)
    assert again.to_bytes() == model.to_bytes()
    assert same.keys() == priors.keys()


@pytest.mark.parametrize(("name", "size"), [("min_cells", 8), ("max_cells", 350)])
def test_tables_outside_the_limits_are_only_projected(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third more or less of either limit decides about a table of this size."""
    schema = Schema(tuple(Attribute(f"x{i}", "categorical", tuple(range(size))) for i in range(2)))
    asked = question(schema, ["x0", "x1"], 4.0)
    rng = np.random.default_rng(4)
    people = rng.multinomial(50_000, (np.eye(size) / size).ravel())
    answer = AnswerCounts(asked, kernels.simulate(asked.mechanism, people, rng), 50_000)
    targets = pair_targets(schema, [answer])
    monkeypatch.setattr(
        shrunk_tables, "_likeliest", lambda likelihood, _: np.eye(likelihood.shape[1])[0]
    )
    limits = {"min_cells": (size**2, size**2 + 1), "max_cells": (size**2, size**2 - 1)}[name]
    before = shrunk_tables.SETTINGS
    used = []
    for limit in limits:
        changed = shrunk_tables._ShrinkSettings(**{**vars(before), name: limit})
        monkeypatch.setattr(shrunk_tables, "SETTINGS", changed)
        used.append(bool(shrunk_forest(schema, targets, [(0, 1)])[1]))
    assert used == [True, False]
