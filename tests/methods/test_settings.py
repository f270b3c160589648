"""Tuned constants: moving any of them up or down by a third changes a small seeded result.

Constants of the default method have their tests beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dither.datasets import generate_network
from dither.methods import EarlierReports, calm, lopub, prior, privincr, reduction, start, tree
from dither.methods.histogram import Consumer, late, ranges, smart, union
from dither.release import draw_tally
from dither.reports import Plan, question
from dither.schema import Attribute, Determines, Schema
from dither.simulate import simulate
from dither.tally import CountTally

NETWORK = generate_network((4, 3, 5, 4, 6, 3), strength=0.6, seed=3)
N = 20_000
CODES = NETWORK.sample_codes(N, np.random.default_rng(1))
MODULES = (calm, late, lopub, prior, privincr, ranges, reduction, smart, tree)
Result = Callable[[], object]


def instance_of(module: ModuleType) -> str:
    return "TREE" if module is tree else "SETTINGS"


@contextmanager
def changed(module: ModuleType, **values: Any) -> Iterator[None]:
    """The module's settings with other values, and without results cached before or meanwhile."""
    name = instance_of(module)
    before = getattr(module, name)
    setattr(module, name, replace(before, **values))
    forget()
    try:
        yield
    finally:
        setattr(module, name, before)
        forget()


def forget() -> None:
    for function in (smart.choose, ranges.interval_strategy):
        function.cache_clear()


def plain_schema(cardinalities: Iterable[int]) -> Schema:
    sizes = enumerate(cardinalities)
    return Schema(tuple(Attribute(f"x{i}", "ordinal", tuple(range(k))) for i, k in sizes))


def model_of(method: str, epsilon: float = 2.0, noise: int = 2) -> bytes:
    run = start(method, NETWORK.schema, epsilon, N, seed=1)
    simulate(run, CODES, np.random.default_rng(noise))
    return run.model().to_bytes()


def plan_of(method: str, schema: Schema, participants: int = N, **parameters: Any) -> object:
    plan = start(method, schema, 2.0, participants, parameters).plan()
    assert plan is not None
    return plan.to_json()


def contradiction() -> bytes:
    """The model of two rounds whose participants come from different populations."""
    other = generate_network((4, 3, 5, 4, 6, 3), strength=0.6, seed=8)
    run, rng = start("noincremental", NETWORK.schema, 4.0, N, seed=1), np.random.default_rng(4)
    for population in (NETWORK, other):
        plan = run.plan()
        assert plan is not None
        run.close(draw_tally(plan, population, N // 2, rng))
    return run.model().to_bytes()


def one_cause(share: float, seed: int) -> object:
    """The pairs kept of twelve binary attributes that follow one hidden coin."""
    n, attributes = 30_000, 12
    rng = np.random.default_rng(seed)
    shared, own = rng.random((n, 1)) < 0.5, rng.random((n, attributes)) < 0.5
    codes = np.where(rng.random((n, attributes)) < share, shared, own).astype(np.int32)
    run = start("privincr", plain_schema([2] * attributes), 8.0, n, seed=seed)
    simulate(run, codes, rng)
    return run.diagnostics()


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


def ordered_schema(values: int) -> Schema:
    return Schema(tuple(Attribute(f"a{i}", "ordinal", tuple(range(values))) for i in range(4)))


def grids(values: int, people: int) -> object:
    """The coarse grids of four ordered attributes."""
    return reduction.coarse_groups(ordered_schema(values), people, 1.0)


def many_determined() -> Schema:
    """So many determinations to learn that the separate round reaches its limit."""
    attributes = tuple(Attribute(f"a{i}", "ordinal", (1, 2)) for i in range(14))
    return Schema(attributes, tuple(Determines(f"a{i}", f"a{i + 1}") for i in range(0, 14, 2)))


def cover(*cardinalities: int, epsilon: float) -> object:
    """The sets that CALM asks together."""
    plan = start("calm", plain_schema(cardinalities), epsilon, N).plan()
    assert plan is not None
    return [asked.attributes for asked in plan.questions]


def pooled(cells: int, shift: int) -> object:
    """How an earlier campaign is used whose answers differ by `shift` in every second cell."""
    schema = plain_schema([cells])
    plan = Plan(0, (question(schema, ["x0"], 1.0, "oue"),), (1.0,))
    counts = np.full(cells, 4_000)
    moved = counts + shift * np.resize([1, -1], cells)
    now, before = (CountTally(plan, np.array([10_000]), [support]) for support in (counts, moved))
    earlier = EarlierReports((before,), "", "", private=True, resampled=False)
    used = prior.pooled_answers(schema, prior.answers_of([now]), earlier)
    return used.note["share_of_prior"] > 0


def strategy(*bins: int, epsilon: float = 1.0, objective: smart.Objective = "mean") -> object:
    """The chosen report for consumers with these numbers of bins."""
    consumers = tuple(Consumer.by_count(count, 0.0, 60.0) for count in bins)
    partition = union(list(consumers), 0.0, 60.0)
    return smart.choose(partition, consumers, epsilon, "best", objective).to_json()


def first_design(cells: int, rounds: int) -> object:
    """The sets of a short search for bins of one and of two cells."""
    pairs = np.kron(np.eye(cells // 2), np.ones(2))
    with changed(smart, rounds=rounds, steps=1):
        return smart.optimise(np.concatenate([np.eye(cells), pairs]), 1.0).sets.tolist()


def effort(cells: int) -> object:
    """Whether a strategy for so many cells is designed, and whether sets are searched for it."""
    tried: list[bool] = []

    def give_up(*_: object, search: bool) -> None:
        tried.append(search)
        raise np.linalg.LinAlgError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smart, "optimise", give_up)
        strategy(cells)
    return tried


def intervals(cells: int) -> object:
    return ranges.interval_strategy(cells, 1.0).to_json()


def density(people: int, heap: float) -> object:
    """The density of sixteen cells of which one has a heap."""
    cells = 16
    probabilities = np.full((cells, cells), 0.02) + 0.68 * np.eye(cells)
    truth = np.full(cells, 1e-5 + (1 - heap) / cells)
    truth[3] += heap
    outputs = np.random.default_rng(2).multinomial(people, probabilities @ (truth / truth.sum()))
    return ranges.likely_density(probabilities, outputs, np.ones(cells)).tolist()


def fine_cells(cells: int) -> object:
    return late.is_fine(union([Consumer.by_count(cells, 0.0, 1.0)], 0.0, 1.0)).any()


def even_heaping() -> object:
    partition = union([Consumer.by_count(8, 0.0, 1.0)], 0.0, 1.0)
    return late.heaping(SimpleNamespace(partition=partition, smoothed=np.full(8, 1 / 8)))  # type: ignore[arg-type]


def several(result: Callable[[int], object], *values: int) -> Result:
    return lambda: [result(value) for value in values]


SMALL: Result = lambda: strategy(3, 5, 7)  # noqa: E731
WORST: Result = lambda: strategy(3, 5, 7, objective="worst")  # noqa: E731
INTERVALS: Result = lambda: intervals(16)  # noqa: E731
ROUGH: Result = lambda: density(3_000, 0.3)  # noqa: E731
CASES: dict[tuple[ModuleType, str], Result] = {
    (calm, "caps"): lambda: [
        cover(2, 2, 20, 5, 11, epsilon=8.0),
        cover(7, 2, 50, 2, 30, epsilon=0.5),
        cover(200, 2, 3, 50, 7, epsilon=1.0),
        cover(3, 50, 200, 11, 2, epsilon=2.0),
        cover(200, 3, 2, 600, epsilon=4.0),
        cover(600, 2, 11, 200, 2, epsilon=0.5),
    ],
    (late, "fine"): several(fine_cells, 55, 80),
    (late, "min_heaping"): even_heaping,
    (lopub, "false_positive"): lambda: plan_of("lopub", NETWORK.schema, encoding="bloom"),
    (prior, "max_drift"): several(lambda shift: pooled(50, shift), 82, 88),
    (prior, "same_reports_p"): several(lambda cells: pooled(cells, 0), *range(40, 50)),
    (privincr, "rounds"): lambda: plan_of("privincr", NETWORK.schema),
    (privincr, "joint_cells"): lambda: privincr.PrivIncrParameters().clique_cells,
    (privincr, "paper_cells"): lambda: privincr.PrivIncrParameters(fit="paper").clique_cells,
    (privincr, "singles"): lambda: plan_of("privincr", NETWORK.schema),
    (privincr, "strong_v"): several(
        lambda people: plan_of("privincr", NETWORK.schema, people), 800, 1_500, 2_500
    ),
    (privincr, "slack"): lambda: model_of("privincr"),
    (privincr, "late_mean_z"): lambda: [one_cause(0.07, 2), one_cause(0.13, 0)],
    (privincr, "late_z"): lambda: one_cause(0.13, 1),
    (ranges, "price"): ROUGH,
    (ranges, "rough_steps"): ROUGH,
    (ranges, "even_part"): ROUGH,
    (ranges, "newton_steps"): lambda: density(10**7, 1.0),
    (ranges, "tolerance"): lambda: density(3_000, 0.5),
    (ranges, "max_step"): lambda: density(3_000, 1.0),
    (ranges, "ridge"): INTERVALS,
    (ranges, "drawn"): INTERVALS,
    (ranges, "kept"): INTERVALS,
    (ranges, "kept_per_cell"): lambda: intervals(64),
    (ranges, "searched"): INTERVALS,
    (ranges, "rounds"): INTERVALS,
    (ranges, "steps"): INTERVALS,
    (ranges, "last_steps"): INTERVALS,
    (ranges, "step"): INTERVALS,
    (reduction, "wide"): several(lambda k: asked_widths(wide_schema(k)), 800, 1_300),
    (reduction, "groups"): lambda: asked_widths(wide_schema(1_300)),
    (reduction, "fine"): several(lambda values: grids(values, 1_000), 28, 40),
    (reduction, "grid"): lambda: grids(64, 100_000),
    (reduction, "min_grid"): lambda: grids(64, 1_000),
    (reduction, "fine_share"): lambda: plan_of("mixture", ordered_schema(64)),
    (reduction, "learn_share"): lambda: plan_of("independent", wide_schema(20)),
    (reduction, "max_separate"): lambda: plan_of("independent", many_determined()),
    (smart, "search_cells"): several(effort, 80, 110),
    (smart, "max_cells"): several(effort, 300, 450),
    (smart, "attempts"): WORST,
    (smart, "max_variance_ratio"): lambda: [SMALL(), strategy(4, 6, epsilon=2.0)],
    (smart, "interval_cells"): several(lambda cells: first_design(cells, 1), 40, 56),
    (smart, "max_sets"): lambda: first_design(48, 4),
    (smart, "ridge"): SMALL,
    (smart, "searched"): SMALL,
    (smart, "rounds"): SMALL,
    (smart, "rounds_on"): WORST,
    (smart, "steps"): SMALL,
    (smart, "step"): SMALL,
    (tree, "discrepancy"): several(lambda noise: model_of("calm", 1.0, noise), 2, 4),
    (tree, "min_discrepancy"): lambda: model_of("calm"),
    (tree, "tolerance"): contradiction,
    (tree, "factor_error"): lambda: tree.factor_cells(NETWORK.schema, 2.0, N, 3),
}
# Their results take most of a second.
SLOW = (
    (privincr, "late_mean_z"),
    (ranges, "kept_per_cell"),
    (smart, "attempts"),
    (smart, "rounds_on"),
)


@cache
def baseline(result: Result) -> object:
    return result()


def moved(value: Any, factor: float) -> list[Any]:
    """The value times the factor; of a tuple, one part at a time."""
    if not isinstance(value, tuple):
        return [type(value)(value * factor)]
    parts = [type(part)(part * factor) for part in value]
    return [(*value[:i], part, *value[i + 1 :]) for i, part in enumerate(parts) if part != value[i]]


def parameters() -> list[Any]:
    out = []
    for module, name in CASES:
        label = f"{module.__name__.rpartition('.')[2]}.{name}"
        marks = pytest.mark.slow if (module, name) in SLOW else ()
        out.append(pytest.param(module, name, id=label, marks=marks))
    return out


@pytest.mark.parametrize("factor", [4 / 3, 2 / 3], ids=["up", "down"])
@pytest.mark.parametrize(("module", "name"), parameters())
def test_a_moved_constant_is_noticed(module: ModuleType, name: str, factor: float) -> None:
    result = CASES[module, name]
    before = baseline(result)
    value = getattr(getattr(module, instance_of(module)), name)
    for other in moved(value, factor):
        with changed(module, **{name: other}):
            assert result() != before, f"{other} instead of {value}"


def test_every_constant_has_a_case() -> None:
    settings = {
        (module, field.name)
        for module in MODULES
        for field in fields(getattr(module, instance_of(module)))
    }
    assert settings == set(CASES)
