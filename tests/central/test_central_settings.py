"""Tuned constants of the central methods: moving one by a third changes a small seeded release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.central.running import run

from dither.central import csm, curator, grid, linear, privbayes, seeded_source

COUNTS = np.random.default_rng(3).multinomial(4_000, np.random.default_rng(4).dirichlet([0.2] * 64))


def estimate(
    name: str, counts: Any = COUNTS, epsilon: float = 1.0, seed: int = 1, **options: Any
) -> object:
    return run(name, counts, epsilon, seeded_source(seed), **options).estimate.tolist()


def bumps() -> object:
    """A smooth column, for which several dictionaries are nearly as good."""
    shape = np.exp(-(((np.arange(64) - 30) / 16) ** 2)) + 0.02
    counts = [
        np.random.default_rng(seed).multinomial(4_000, shape / shape.sum()) for seed in (1, 2)
    ]
    return [estimate("csm", each, 0.1, seed) for seed, each in enumerate(counts, 1)]


def grids() -> object:
    """Two columns with so few records that the coarse grid is as coarse as it gets, and more."""
    few = np.random.default_rng(5).poisson(1.0, 400)
    return [estimate("agrid", few * factor, shape=(20, 20)) for factor in (1, 500)]


def network() -> object:
    return estimate("privbayes", shape=(4, 4, 4))


def advice() -> object:
    guesses = [curator.advise((cells,), 1.0) for cells in (8_000, 12_000)]
    return [*guesses, *(curator.advise((1_000,), 1.0, records) for records in (800, 1_200))]


CASES: dict[tuple[ModuleType, str], Callable[[], object]] = {
    (csm, "steps"): lambda: estimate("csm", tau=0.3),
    (csm, "significance"): bumps,
    (csm, "shared_tau"): lambda: estimate("csm", entries=2),
    (curator, "records"): advice,
    (curator, "min_signal"): advice,
    (grid, "count_share"): grids,
    (grid, "coarsest"): grids,
    (linear, "consistent"): lambda: [linear.best_branching(cells) for cells in range(2, 200)],
    (privbayes, "count_share"): network,
    (privbayes, "structure_share"): network,
}


@pytest.mark.parametrize("factor", [4 / 3, 2 / 3], ids=["up", "down"])
@pytest.mark.parametrize(
    ("module", "name"), CASES, ids=[f"{m.__name__.rpartition('.')[2]}.{n}" for m, n in CASES]
)
def test_a_moved_constant_is_noticed(
    module: ModuleType, name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = CASES[module, name]
    before, settings = result(), module.SETTINGS
    value = getattr(settings, name)
    moved = replace(settings, **{name: type(value)(value * factor)})
    monkeypatch.setattr(module, "SETTINGS", moved)
    assert result() != before


def test_every_constant_has_a_case() -> None:
    modules = {module for module, _ in CASES}
    settings = {(m, field.name) for m in modules for field in fields(m.SETTINGS)}
    assert settings == set(CASES)
