"""Every tuned constant of the default method is noticed when it moves by a third."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.fit import AnswerCounts
from dither.fit.mixture import pair_targets
from dither.mechanisms import kernels
from dither.methods import mixture, question_sets, start
from dither.reports import question
from dither.schema import Attribute, Schema
from dither.simulate import simulate


def _ordinal(k: int, d: int) -> Schema:
    return Schema(tuple(Attribute(f"x{i}", "ordinal", tuple(range(k))) for i in range(d)))


@cache
def tables() -> list[tuple[Schema, np.ndarray, float, dict[str, Any]]]:
    """Small campaigns in which every constant has a part: schema, codes, epsilon, parameters."""
    rng = np.random.default_rng(0)
    network = generate_network((4, 3, 5, 2, 6, 40), parents=1, strength=1.5, seed=3)
    common = rng.random(6_000)
    ordered = np.stack([common * 8 * 0.6 + rng.random(6_000) * 3 for _ in range(4)], axis=1)
    copies = rng.integers(0, 8, (20_000, 6))
    copies[:, 1] = copies[:, 0]
    flat = rng.integers(0, 4, (4_000, 5))
    narrow = generate_network((2,) * 7, parents=2, strength=1.0, seed=4)
    clique = generate_network((12, 12, 12, 6), parents=2, strength=2.5, seed=6)
    return [
        (network.schema, network.sample_codes(8_000, rng), 3.0, {}),
        (network.schema, network.sample_codes(8_000, rng), 3.0, {"rounds": 1}),
        (network.schema, network.sample_codes(8_000, rng), 3.0, {"rounds": 2}),
        (network.schema, network.sample_codes(8_000, rng), 3.0, {"rounds": 3}),
        (_ordinal(8, 4), ordered.astype(np.int32), 2.0, {}),
        (_ordinal(8, 6), copies.astype(np.int32), 3.0, {}),
        (_ordinal(4, 5), flat.astype(np.int32), 1.0, {}),
        (narrow.schema, narrow.sample_codes(6_000, rng), 1.5, {}),
        (clique.schema, clique.sample_codes(60_000, rng), 6.0, {}),
    ]


def fingerprint() -> list[bytes]:
    """What every campaign asks and answers."""
    out = []
    for schema, codes, epsilon, parameters in tables():
        given = {"total": 24, "components": 8, **parameters}
        run = start("mixture", schema, epsilon, len(codes), given, 1)
        simulate(run, np.asfortranarray(codes), np.random.default_rng(5))
        shares = [round(share, 12) for plan in run.plans for share in plan.shares]
        pair = run.model().marginal(schema.names[:2])
        out.append(repr(shares).encode() + np.round(pair, 12).tobytes())
    return out


def moved(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        last = [tuple(share**factor for share in shares) for shares in value]
        return tuple(tuple(s / sum(shares) for s in shares) for shares in last)
    if isinstance(value, int):
        return max(1, round(value * factor))
    return value * factor


def gated() -> list[bool]:
    """Whether dependence is detected among independent attributes, in many collections."""
    schema, found = _ordinal(4, 3), []
    menu = mixture.Menu(schema.cardinalities, 1.0, 4_000)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        answers = [
            AnswerCounts(q, kernels.simulate(q.mechanism, rng.multinomial(400, EVEN), rng), 400)
            for q in (question(schema, pair, 1.0) for pair in combinations(schema.names, 2))
        ]
        targets = pair_targets(schema, answers)
        found.append(bool(mixture.measured_dependence(schema, menu, targets).squares.any()))
    return found


def sets(attributes: int, epsilon: float) -> list[tuple[int, ...]]:
    pairs = list(combinations(range(attributes), 2))
    return question_sets.informative_sets(pairs, (2,) * attributes, epsilon)


def singles_only() -> list[bool]:
    """Whether all are asked single attributes, by the number of people."""
    sizes = (16,) * 4 + (3,)
    menus = [mixture.Menu(sizes, 6.0, people) for people in range(20, 400, 20)]
    return [mixture.pilot(menu)[1] == 1.0 for menu in menus]


EVEN = np.full(16, 1 / 16)
# Constants that small campaigns seldom depend on are noticed where they are used.
RESULTS: dict[str, Callable[[], object]] = {
    "pooled_z": gated,
    "min_answers": singles_only,
    "max_cells": lambda: sets(14, 12.0),
    "covers": lambda: sets(9, 2.0),
    "max_sets": lambda: sets(60, 1.0),
}
CONSTANTS = [(mixture, field.name) for field in fields(mixture.Settings)] + [
    (question_sets, field.name) for field in fields(question_sets.SETTINGS)
]
usual = cache(lambda name: RESULTS.get(name, fingerprint)())


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), CONSTANTS)
def test_a_constant_moved_by_a_third_is_noticed(
    module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = module.SETTINGS
    expected = usual(name if name in RESULTS else "")
    for factor in (2 / 3, 4 / 3):
        changed = replace(before, **{name: moved(getattr(before, name), factor)})
        monkeypatch.setattr(module, "SETTINGS", changed)
        if RESULTS.get(name, fingerprint)() != expected:
            return
    raise AssertionError("nothing depends on it")
