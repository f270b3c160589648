"""Coverage of the 95 % intervals where they have failed: generated tables, many collections of each.

Whole numbers, means and quantiles of heaped numbers, parts of a bin, ranked lists, and questions about a fitted model: conditionals
and cells under a trend, tables of a t copula, conditionals of a star, differences. The truth is the distribution that people are
drawn from, or the people themselves for whole numbers. Questions of one collection err together, so collections are counted too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.interval_coverage import Population
from dither._histogram import asked_partition
from dither._histogram import collect as collect_number
from dither.lab.harness import Bench, Chart, Size, Study
from dither.methods import start
from dither.methods.histogram.consumer import gather, read_consumers
from dither.release.figures import together
from dither.release.intervals import Bootstrap
from dither.release.query.ask import Inquiry
from dither.release.query.numbers import NumberInquiry
from dither.release.replicates import prepare_bootstrap, redraw
from dither.schema import Attribute, Schema, numeric

SEED = 20261118
REPLICATES = 20
LISTED, WIDE = 12, 300
Held = Iterator[bool]


# ---- tables ----------------------------------------------------------------------------------------------------------


def _ordinal(name: str, size: int) -> Attribute:
    return Attribute(name, "ordinal", values=tuple(f"{name}{i}" for i in range(size)))


def _cut(values: np.ndarray, size: int) -> np.ndarray:
    """Codes of equal frequency."""
    edges = np.quantile(values, np.arange(1, size) / size)
    return np.searchsorted(edges, values).astype(np.int32)


@cache
def trend() -> Population:
    """A score that moves with time, and two attributes that depend on it."""
    rng, n = np.random.default_rng([SEED, 1]), 200_000
    time = rng.integers(0, 8, n)
    score = np.clip(np.round(2 + 0.5 * time + rng.normal(0, 1.1, n)), 0, 7).astype(np.int32)
    other = np.clip(np.round(score / 2 + rng.normal(0, 0.8, n)), 0, 3).astype(np.int32)
    flag = (rng.random(n) < 0.2 + 0.07 * time).astype(np.int32)
    schema = Schema(
        (_ordinal("time", 8), _ordinal("score", 8), _ordinal("other", 4), _ordinal("flag", 2))
    )
    return Population(schema, np.column_stack([time, score, other, flag]))


@cache
def t_copula() -> Population:
    """Five attributes with the dependence of a t distribution of two degrees of freedom, unequal one-way tables."""
    rng, n = np.random.default_rng([SEED, 2]), 200_000
    cross = 0.5 + 0.5 * np.eye(5)
    normal = rng.multivariate_normal(np.zeros(5), cross, n)
    tailed = normal / np.sqrt(rng.chisquare(2, n) / 2)[:, None]
    codes = np.column_stack([_cut(tailed[:, i], 12) for i in range(5)])
    merged = np.array([0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 5, 5], dtype=np.int32)
    return Population(Schema(tuple(_ordinal(f"t{i}", 6) for i in range(5))), merged[codes])


@cache
def star() -> Population:
    """Five attributes that depend on one."""
    rng, n = np.random.default_rng([SEED, 3]), 200_000
    hub = rng.choice(6, n, p=[0.3, 0.2, 0.2, 0.15, 0.1, 0.05])
    tables = rng.dirichlet(np.full(4, 0.7), (5, 6))
    drawn = rng.random((5, n))
    leaves = [
        (drawn[i][:, None] > np.cumsum(tables[i], axis=1)[hub][:, :3]).sum(axis=1) for i in range(5)
    ]
    schema = Schema((_ordinal("hub", 6), *(_ordinal(f"leaf{i}", 4) for i in range(5))))
    return Population(schema, np.column_stack([hub, *leaves]).astype(np.int32))


def _asked(found: Bootstrap, population: Population) -> Inquiry:
    """The answers of a release with these replicates."""
    return Inquiry(
        population.schema,
        {},
        lambda grid, rows: found.linear(grid.names, grid.groups, np.stack(list(rows))),
        1.0,
    )


def _fitted(
    population: Population, method: str, people: int, epsilon: float, seed: int
) -> Bootstrap:
    machine = start(method, population.schema, epsilon, people, {}, seed)
    redraw(machine, population, np.random.default_rng([SEED, 4, seed]))
    return prepare_bootstrap(machine, replicates=REPLICATES, seed=seed)


def _within(answer: Any, truth: float) -> bool:
    return bool(answer.low - 1e-12 <= truth <= answer.high + 1e-12)


def _conditionals(found: Bootstrap, population: Population, top: str, base: str) -> Held:
    """The share of each value among the people of each value of another attribute."""
    asked, truth = _asked(found, population), population.marginal([base, top])
    rows, columns = population.schema[base].labels, population.schema[top].labels
    for i, given in enumerate(rows):
        for j, value in enumerate(columns):
            if truth[i, j] < 0.002:
                continue
            answer = asked.query({top: value}, {base: given}, 0.95)
            if answer.low is not None:
                yield _within(answer, float(truth[i, j] / truth[i].sum()))


def _cells(found: Bootstrap, population: Population, names: list[str]) -> Held:
    truth, interval = population.marginal(names), found.interval(names)
    if not interval.caution:
        held = (interval.low <= truth) & (truth <= interval.high)
        yield from held[truth > 0.002].tolist()


def _differences(found: Bootstrap, population: Population) -> Held:
    """`a - b` of conditional shares of neighbouring groups, as the library subtracts them."""
    asked, truth = _asked(found, population), population.marginal(["hub", "leaf0"])
    shares = truth / truth.sum(axis=1, keepdims=True)
    for i in range(5):
        for j, value in enumerate(population.schema["leaf0"].labels):
            pair = [asked.query({"leaf0": value}, {"hub": f"hub{k}"}, 0.95) for k in (i, i + 1)]
            answer = pair[0] - pair[1]
            if answer.low is not None:
                yield _within(answer, float(shares[i, j] - shares[i + 1, j]))


MODELLED: dict[str, tuple[Callable[[], Population], Callable[[Bootstrap, Population], Held]]] = {
    "conditionals under a trend": (trend, lambda f, p: _conditionals(f, p, "score", "time")),
    "cells under a trend": (trend, lambda f, p: _cells(f, p, ["time", "score"])),
    "three-way cells under a trend": (trend, lambda f, p: _cells(f, p, ["time", "score", "other"])),
    "one-way, t copula": (t_copula, lambda f, p: _cells(f, p, ["t0"])),
    "two-way, t copula": (t_copula, lambda f, p: _cells(f, p, ["t0", "t1"])),
    "four-way, t copula": (t_copula, lambda f, p: _cells(f, p, ["t0", "t1", "t2", "t3"])),
    "conditionals of a star": (star, lambda f, p: _conditionals(f, p, "leaf0", "hub")),
    "conditionals between leaves": (star, lambda f, p: _conditionals(f, p, "leaf0", "leaf1")),
    "differences": (star, _differences),
}


def modelled(table: str, epsilon: float, runs: int, people: int) -> list[dict[str, Any]]:
    """Coverage of each kind of question about one table by the default method."""
    kinds = {
        kind: held for kind, (population, held) in MODELLED.items() if population is TABLES[table]
    }
    population, counts = TABLES[table](), {kind: np.zeros(3) for kind in kinds}
    for seed in range(runs):
        found = _fitted(population, "mixture", people, epsilon, seed)
        for kind, ask in kinds.items():
            held = list(ask(found, population))
            if held:
                counts[kind] += (np.mean(held), 1, len(held))
    return [_row(kind, sums) for kind, sums in counts.items()]


TABLES = {"trend": trend, "t copula": t_copula, "star": star}


def _row(kind: str, sums: np.ndarray) -> dict[str, Any]:
    mean = float(sums[0] / sums[1]) if sums[1] else None
    return {"kind": kind, "coverage": mean, "collections": int(sums[1])}


# ---- numbers and lists -----------------------------------------------------------------------------------------------


@cache
def hours() -> np.ndarray:
    """Whole numbers from 1 to 99, three quarters of them heaped."""
    rng, n = np.random.default_rng([SEED, 5]), 40_000
    heaps = rng.choice([20, 30, 40, 45, 50, 60], n, p=[0.07, 0.06, 0.6, 0.07, 0.12, 0.08])
    rest = rng.normal(40, 14, n).round().clip(1, 99)
    return np.where(rng.random(n) < 0.75, heaps, rest).astype(np.int64)


def whole_numbers(epsilon: float, seed: int) -> dict[str, list[bool]]:
    """Ranges, quantiles and the mean of whole numbers by the method ranges."""
    values, consumers = hours(), read_consumers([16], 1.0, 99.0)
    partition = asked_partition("ranges", consumers, 1.0, 99.0, 1.0)
    rng = np.random.default_rng([SEED, 6, seed])
    people = gather(values, partition, reports=False)
    cells = collect_number("ranges", people, consumers, partition, epsilon, rng).answer().cells
    assert cells is not None
    asked, ordered = NumberInquiry(cells), np.sort(values)
    ranges = []
    for low, high in np.sort(rng.integers(1, 100, (20, 2)), axis=1).tolist():
        if low < high:
            truth = float(((values >= low) & (values < high)).mean())
            ranges.append(_within(asked.share_of([(low, high)], 0.95, ""), truth))
    levels = (0.1, 0.25, 0.5, 0.75, 0.9)
    ranks = [float(ordered[math.ceil(level * len(ordered)) - 1]) for level in levels]
    rows = asked.quantiles(levels, 0.95).rows
    return {
        "ranges of whole numbers": ranges,
        "mean of whole numbers": [_within(asked.mean(0.95), float(values.mean()))],
        "quantiles of whole numbers": [_within(row, x) for row, x in zip(rows, ranks, strict=True)],
    }


@cache
def _binned() -> tuple[Population, np.ndarray]:
    """The whole numbers in bins of about twelve, beside a column of many values."""
    rng = np.random.default_rng([SEED, 7])
    values = hours().astype(float)
    number = numeric("hours", low=0.0, high=100.0, bins=8)
    chances = 1 / np.arange(3, WIDE + 3) ** 0.9
    wide = rng.choice(WIDE, len(values), p=chances / chances.sum())
    column = Attribute("wide", "categorical", values=tuple(f"w{i:03d}" for i in range(WIDE)))
    bins = np.searchsorted(np.asarray(number.edges)[1:-1], values, side="right")
    return Population(
        Schema((number, column)), np.column_stack([bins, wide]).astype(np.int32)
    ), values


def binned(epsilon: float, seed: int) -> dict[str, list[bool]]:
    """Means, quantiles and parts of bins of heaped numbers, and lists of the largest values."""
    population, values = _binned()
    found = _fitted(population, "independent", len(values), epsilon, seed)
    asked = _asked(found, population)
    levels = (0.1, 0.5, 0.9)
    rows = asked.quantiles("hours", levels, None, None, 0.95).rows
    ranks = [float(np.quantile(values, level)) for level in levels]
    part = asked.query("40 <= hours < 42", None, 0.95)
    truth = population.marginal(["wide"])
    shares = asked.groups(["wide"], [[[i] for i in range(WIDE)]], together(WIDE))
    assert shares is not None
    largest = np.argsort(-shares.estimates)[:LISTED]
    held = (shares.low <= truth) & (truth <= shares.high)
    return {
        "mean of heaped bins": [
            _within(asked.mean("hours", None, None, 0.95), float(values.mean()))
        ],
        "quantiles of heaped bins": [_within(row, x) for row, x in zip(rows, ranks, strict=True)],
        "part of a bin": [_within(part, float(((values >= 40) & (values < 42)).mean()))],
        f"list of the {LISTED} largest of {WIDE}": [bool(held[largest].all())],
    }


def numbers(source: str, epsilon: float, runs: int) -> list[dict[str, Any]]:
    """Coverage of each kind of question about numbers and lists."""
    collected = {"whole numbers": whole_numbers, "bins and lists": binned}[source]
    sums: dict[str, np.ndarray] = {}
    for seed in range(runs):
        for kind, held in collected(epsilon, seed).items():
            sums.setdefault(kind, np.zeros(3))
            sums[kind] += (np.mean(held), 1, len(held))
    return [_row(kind, total) for kind, total in sums.items()]


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """Both studies of one size."""
    runs, few, people = {
        "full": (200, 100, 100_000),
        "quick": (10, 1, 50_000),
        "smoke": (3, 1, 20_000),
    }[size]
    epsilons = (2.0, 4.0) if size == "full" else (4.0,)
    charts = (Chart(x="epsilon", y="coverage", colour="kind", panels=()),)
    studies = (
        Study(
            name="numbers",
            title="Numbers and lists: share of intervals that hold",
            axes={"source": ("whole numbers", "bins and lists"), "epsilon": epsilons},
            measure=partial(numbers, runs=runs),
            labels=("kind",),
            charts=charts,
            note=f"{runs} collections of 40,000 people. A list holds if all its intervals do. Intervals for a part of a bin, and "
            "for means and quantiles of bins, cover any place of people in their bins, so that they hold more often.",
        ),
        Study(
            name="modelled",
            title="Questions about a model: share of intervals that hold",
            axes={"table": tuple(TABLES)[: 1 if size == "smoke" else 3], "epsilon": epsilons},
            measure=partial(modelled, runs=few, people=people),
            labels=("kind",),
            charts=charts,
            note=f"{few} collections of {people:,} people by the default method, {REPLICATES} replicates.",
        ),
    )
    about = "Generated tables on which intervals have failed before; many collections of each."
    return Bench("interval_kinds", "Coverage of the 95 % intervals by kind", about, studies, size)
