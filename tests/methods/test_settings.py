"""Tuned constants of PrivIncr, LoPub, tree fits and schema reduction: moving one by a third is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.methods import lopub, privincr, reduction, start, tree
from dither.schema import Attribute, Determines, Schema
from dither.simulate import simulate

NETWORK = generate_network((4, 3, 5, 4, 6, 3), strength=0.6, seed=3)
N = 20_000
CODES = NETWORK.sample_codes(N, np.random.default_rng(1))


def model_of(method: str, epsilon: float = 2.0) -> bytes:
    run = start(method, NETWORK.schema, epsilon, N, seed=1)
    simulate(run, CODES, np.random.default_rng(2))
    return run.model().to_bytes()


def plan_of(method: str, schema: Schema, participants: int = N, **parameters: Any) -> object:
    plan = start(method, schema, 2.0, participants, parameters).plan()
    assert plan is not None
    return plan.to_json()


def wide_schema(values: int) -> Schema:
    """A wide attribute, one that it determines, and two narrow ones."""
    names = tuple(range(values))
    attributes = (
        Attribute("wide", "ordinal", names),
        Attribute("b", "ordinal", (1, 2, 3)),
        Attribute("c", "ordinal", (1, 2, 3)),
    )
    return Schema(attributes, (Determines("b", "c"),))


def asked_widths(schema: Schema) -> tuple[int, ...]:
    reduced = reduction.reduce_schema(schema, pairs=True)
    assert reduced is not None
    return reduced.asked.cardinalities


def many_determined() -> Schema:
    """So many determinations to learn that the separate round reaches its limit."""
    attributes = tuple(Attribute(f"a{i}", "ordinal", (1, 2)) for i in range(14))
    return Schema(attributes, tuple(Determines(f"a{i}", f"a{i + 1}") for i in range(0, 14, 2)))


# test_privincr.py notices a change of the late pairs' constants. No fast test notices a change of
# the tolerance: it only matters to trees that stop far above the noise.
ELSEWHERE = ("late_mean_z", "late_z", "tolerance")

CASES: list[tuple[ModuleType, str, str, Callable[[], object]]] = [
    (tree, "TREE", "discrepancy", lambda: model_of("calm", epsilon=1.0)),
    (tree, "TREE", "min_discrepancy", lambda: model_of("calm")),
    (tree, "TREE", "factor_error", lambda: tree.factor_cells(NETWORK.schema, 2.0, N, 3)),
    (privincr, "SETTINGS", "rounds", lambda: plan_of("privincr", NETWORK.schema)),
    (privincr, "SETTINGS", "joint_cells", lambda: privincr.PrivIncrParameters().clique_cells),
    (
        privincr,
        "SETTINGS",
        "paper_cells",
        lambda: privincr.PrivIncrParameters(fit="paper").clique_cells,
    ),
    (privincr, "SETTINGS", "singles", lambda: plan_of("privincr", NETWORK.schema)),
    (privincr, "SETTINGS", "strong_v", lambda: plan_of("privincr", NETWORK.schema, 1_500)),
    (privincr, "SETTINGS", "slack", lambda: model_of("privincr")),
    (
        lopub,
        "SETTINGS",
        "false_positive",
        lambda: plan_of("lopub", NETWORK.schema, encoding="bloom"),
    ),
    (reduction, "SETTINGS", "wide", lambda: plan_of("mixture", wide_schema(1_300))),
    (reduction, "SETTINGS", "groups", lambda: asked_widths(wide_schema(1_300))),
    (reduction, "SETTINGS", "learn_share", lambda: plan_of("mixture", wide_schema(20))),
    (reduction, "SETTINGS", "max_separate", lambda: plan_of("mixture", many_determined())),
]


@pytest.mark.parametrize(
    ("module", "instance", "name", "result"),
    CASES,
    ids=[f"{module.__name__.rpartition('.')[2]}.{name}" for module, _, name, _ in CASES],
)
def test_a_moved_constant_is_noticed(
    module: ModuleType,
    instance: str,
    name: str,
    result: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = getattr(module, instance)
    value = getattr(settings, name)
    if isinstance(value, tuple):
        moved = [tuple(type(v)(v * factor) for v in value) for factor in (4 / 3, 2 / 3)]
    else:
        moved = [type(value)(value * factor) for factor in (4 / 3, 2 / 3)]
    before = result()
    changed = []
    for other in moved:
        monkeypatch.setattr(module, instance, replace(settings, **{name: other}))
        changed.append(result() != before)
    assert any(changed)


def test_every_constant_has_a_case() -> None:
    covered = {(module, name) for module, _, name, _ in CASES}
    for module, instance in ((tree, "TREE"), (privincr, "SETTINGS"), (reduction, "SETTINGS")):
        for field in fields(getattr(module, instance)):
            assert (module, field.name) in covered or field.name in ELSEWHERE
