"""The default method beside the other built-in methods on generated tables of many kinds.

Every kind is a function of a random generator and a number of people; it gives the schema and the
codes. The structure of a kind (which attributes depend on which, and how) is drawn from the same
generator as the rows, so that each seed is another table of that kind.

Errors are mean total variation distances between exact marginals of the model and the
participants' own records, over all pairs (120 random ones in tables with more) and all attributes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dither.datasets import generate_network
from dither.evaluation.metrics import attribute_sets, marginal
from dither.fit import Model
from dither.lab.harness import Bench, Chart, Size, Study
from dither.methods import start
from dither.schema import Attribute, Schema
from dither.simulate import simulate

Drawn = tuple[Schema, np.ndarray]

METHOD, RIVALS = "mixture", ("privincr", "calm", "bayesnet", "independent")
PEOPLE = (20_000, 100_000, 1_000_000)
EPSILONS = ((1.0, 4.0), (2.0, 8.0))
MAX_PAIRS = 120
MIXED, BINARY = "2 to 8 values", "binary"
NORMAL, LAPLACE = "normal", "Laplace"


def _schema(sizes: Sequence[int], ordered: bool = False) -> Schema:
    kind = "ordinal" if ordered else "categorical"
    return Schema(
        tuple(Attribute(f"x{i}", kind, values=tuple(range(k))) for i, k in enumerate(sizes))
    )


def _given(table: np.ndarray, given: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A value for each row from the row of `table` that `given` names."""
    cumulative = np.cumsum(table, axis=1)
    draws = rng.random(len(given))[:, None] * cumulative[given, -1:]
    return np.asarray((draws > cumulative[given][:, :-1]).sum(axis=1))


def _softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def _columns(columns: Sequence[np.ndarray]) -> np.ndarray:
    return np.asfortranarray(np.stack(columns, axis=1).astype(np.int32))


def _network(sizes: Sequence[int], parents: int, strength: float) -> Callable[..., Drawn]:
    def draw(rng: np.random.Generator, people: int) -> Drawn:
        seed = int(rng.integers(1 << 30))
        network = generate_network(sizes, parents=parents, strength=strength, seed=seed)
        return network.schema, network.sample_codes(people, rng)

    return draw


def _copula(
    d: int, k: int, correlation: float, degrees: float | None = None
) -> Callable[..., Drawn]:
    """Ordered attributes with one common correlation; a t copula with `degrees` of freedom."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        common = rng.standard_normal((people, 1))
        own = rng.standard_normal((people, d))
        values = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
        if degrees is not None:
            values /= np.sqrt(rng.chisquare(degrees, (people, 1)) / degrees)
        edges = np.linspace(-2.5, 2.5, k + 1)[1:-1]
        codes = np.stack([np.searchsorted(edges, values[:, i]) for i in range(d)], axis=1)
        return _schema([k] * d, ordered=True), np.asfortranarray(codes.astype(np.int32))

    return draw


def _copies(sizes: Sequence[int], noise: float) -> Callable[..., Drawn]:
    """Each second attribute is a permuted copy of the one before, up to a share of noise."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        columns, widths = [], []
        for k in sizes:
            first = _given(
                _softmax(0.7 * rng.standard_normal((1, k))), np.zeros(people, np.intp), rng
            )
            second = rng.permutation(k)[first]
            wrong = rng.random(people) < noise
            second = np.where(wrong, rng.integers(0, k, people), second)
            columns += [first, second]
            widths += [k, k]
        return _schema(widths), _columns(columns)

    return draw


def _hierarchy(groups: int, per_group: int, d: int) -> Callable[..., Drawn]:
    """A fine attribute, the group that it determines, and others that depend on the group."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        fine = _given(
            _softmax(0.7 * rng.standard_normal((1, groups * per_group))),
            np.zeros(people, np.intp),
            rng,
        )
        columns, widths = [fine, fine // per_group], [groups * per_group, groups]
        for _ in range(d):
            k = int(rng.integers(2, 7))
            table = _softmax(1.2 * rng.standard_normal((groups, k)))
            columns.append(_given(table, fine // per_group, rng))
            widths.append(k)
        return _schema(widths), _columns(columns)

    return draw


def _latent(sizes: Sequence[int], classes: int, strength: float) -> Callable[..., Drawn]:
    def draw(rng: np.random.Generator, people: int) -> Drawn:
        hidden = rng.integers(0, classes, people)
        columns = [
            _given(_softmax(strength * rng.standard_normal((classes, k))), hidden, rng)
            for k in sizes
        ]
        return _schema(sizes), _columns(columns)

    return draw


def _trend(steps: int, sizes: Sequence[int], strength: float) -> Callable[..., Drawn]:
    """An ordered time, and attributes whose distributions drift along it."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        time = rng.integers(0, steps, people)
        columns = [time]
        for k in sizes:
            begin, drift = 0.6 * rng.standard_normal((2, k))
            along = np.linspace(-1, 1, steps)[:, None]
            columns.append(_given(_softmax(begin + strength * along * drift), time, rng))
        names = [Attribute("time", "ordinal", values=tuple(range(steps)))]
        names += [
            Attribute(f"x{i}", "categorical", values=tuple(range(k))) for i, k in enumerate(sizes)
        ]
        return Schema(tuple(names)), _columns(columns)

    return draw


def _ring(d: int, k: int, strength: float) -> Callable[..., Drawn]:
    """A closed chain: neighbours depend on each other, drawn by Gibbs sampling."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        tables = [strength * rng.standard_normal((k, k)) for _ in range(d)]
        codes = rng.integers(0, k, (people, d))
        for _ in range(12):
            for i in range(d):
                before, after = codes[:, i - 1], codes[:, (i + 1) % d]
                scores = tables[i - 1][before] + tables[i][:, after].T
                codes[:, i] = (
                    rng.random(people)[:, None] > np.cumsum(_softmax(scores), axis=1)[:, :-1]
                ).sum(axis=1)
        return _schema([k] * d), np.asfortranarray(codes.astype(np.int32))

    return draw


def _star(d: int, k: int, strength: float) -> Callable[..., Drawn]:
    def draw(rng: np.random.Generator, people: int) -> Drawn:
        centre = rng.integers(0, k, people)
        columns = [centre] + [
            _given(_softmax(strength * rng.standard_normal((k, k))), centre, rng)
            for _ in range(d - 1)
        ]
        return _schema([k] * d), _columns(columns)

    return draw


def _xor(groups: int, alone: Sequence[int]) -> Callable[..., Drawn]:
    """Triples of bits whose third is the exclusive or of the others: no pair depends."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        columns, widths = [], []
        for _ in range(groups):
            a, b = rng.integers(0, 2, (2, people))
            columns += [a, b, a ^ b]
            widths += [2, 2, 2]
        for k in alone:
            table = _softmax(0.8 * rng.standard_normal((1, k)))
            columns.append(_given(table, np.zeros(people, np.intp), rng))
            widths.append(k)
        return _schema(widths), _columns(columns)

    return draw


KINDS: dict[str, Callable[[np.random.Generator, int], Drawn]] = {
    "strong": _network((4, 6, 3, 8, 2, 5, 6, 4, 7, 3), 2, 1.8),
    "weak": _network((4, 6, 3, 8, 2, 5, 6, 4, 7, 3), 2, 0.35),
    "none": _network((4, 6, 3, 8, 2, 5, 6, 4, 7, 3), 0, 0.0),
    "ordered": _copula(6, 16, 0.8),
    "t copula": _copula(8, 12, 0.5, 3.0),
    "copies": _copies((12, 8, 20, 5), 0.05),
    "wide": _network((60, 40, 25, 16, 10, 80), 1, 1.2),
    "hierarchy": _hierarchy(6, 6, 6),
    "latent classes": _latent((5, 8, 3, 6, 4, 10, 5, 7), 5, 1.2),
    "trend": _trend(24, (4, 6, 3, 8, 5, 4), 1.5),
    "ring": _ring(8, 6, 1.0),
    "star": _star(8, 6, 1.2),
    "three of six": _network((6, 6, 6), 1, 1.5),
    "binary": _network((2,) * 16, 2, 1.2),
    "xor": _xor(3, (5, 4)),
    "many": _network(tuple([2, 3, 4, 5, 6, 8] * 5), 1, 1.0),
}


# Kinds without part in the design of the default method: written after its last change.


def _counts(d: int, top: int) -> Callable[..., Drawn]:
    """Numbers of events, mostly zero, of people who differ in how active they are."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        activity = rng.gamma(0.6, 1.0, people)
        columns = [np.minimum(rng.poisson(activity * rng.uniform(0.2, 2.0)), top) for _ in range(d)]
        return _schema([top + 1] * d, ordered=True), _columns(columns)

    return draw


def _heavy(d: int, k: int) -> Callable[..., Drawn]:
    """Zipf's law over values in an order of their own, ranks correlated."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        edges = np.cumsum(1.0 / np.arange(1, k + 1) ** 1.3)
        common = rng.standard_normal(people)
        columns = []
        for _ in range(d):
            line = 0.7 * common + np.sqrt(1 - 0.49) * rng.standard_normal(people)
            rank = np.argsort(np.argsort(line)) / people
            columns.append(rng.permutation(k)[np.searchsorted(edges[:-1], rank * edges[-1])])
        return _schema([k] * d), _columns(columns)

    return draw


def _random_graph(d: int, parents: int) -> Callable[..., Drawn]:
    """A Bayesian network with up to `parents` parents anywhere before, 2 to 12 values."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        sizes = rng.integers(2, 13, d).tolist()
        columns: list[np.ndarray] = []
        for i, k in enumerate(sizes):
            count = min(int(rng.integers(0, parents + 1)), i)
            given, cells = np.zeros(people, np.intp), 1
            for parent in rng.choice(i, count, replace=False) if count else ():
                given = given * sizes[parent] + columns[parent]
                cells *= sizes[parent]
            columns.append(_given(rng.dirichlet(np.full(k, 0.6), cells), given, rng))
        return _schema(sizes), _columns(columns)

    return draw


def _chain(d: int, k: int, stay: float) -> Callable[..., Drawn]:
    """A state over time: it stays, or moves to a neighbouring state."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        columns = [rng.integers(0, k, people)]
        for _ in range(d - 1):
            step = np.where(rng.random(people) < stay, 0, rng.choice([-1, 1], people))
            columns.append(np.clip(columns[-1] + step, 0, k - 1))
        return _schema([k] * d), _columns(columns)

    return draw


def _functions(inputs: Sequence[int], outputs: int, noise: float) -> Callable[..., Drawn]:
    """Attributes that are functions of two others, up to a share of noise."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        columns = [rng.integers(0, k, people) for k in inputs]
        widths = list(inputs)
        for _ in range(outputs):
            i, j = rng.choice(len(inputs), 2, replace=False)
            k = int(rng.integers(2, 9))
            value = rng.integers(0, k, (inputs[i], inputs[j]))[columns[i], columns[j]]
            wrong = rng.random(people) < noise
            columns.append(np.where(wrong, rng.integers(0, k, people), value))
            widths.append(k)
        return _schema(widths), _columns(columns)

    return draw


def _quota(strata: Sequence[int], sizes: Sequence[int]) -> Callable[..., Drawn]:
    """Strata of equal size, and outcomes that depend on them additively."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        cell = rng.permutation(np.arange(people) % int(np.prod(strata)))
        columns = list(np.unravel_index(cell, strata))
        for k in sizes:
            scores = sum(
                0.8 * rng.standard_normal((s, k))[column]
                for s, column in zip(strata, columns, strict=False)
            )
            draws = rng.random(people)[:, None] > np.cumsum(_softmax(np.asarray(scores)), axis=1)
            columns.append(draws[:, :-1].sum(axis=1))
        return _schema([*strata, *sizes]), _columns(columns)

    return draw


def _ising(side: int, coupling: float) -> Callable[..., Drawn]:
    """A grid of spins that agree with their neighbours, by Gibbs sampling."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        field = 0.3 * rng.standard_normal((side, side))
        spins = rng.choice([-1, 1], (side + 2, side + 2, people)).astype(np.int8)
        spins[[0, -1]] = 0
        spins[:, [0, -1]] = 0
        for _ in range(20):
            for i in range(1, side + 1):
                for j in range(1, side + 1):
                    near = spins[i - 1, j] + spins[i + 1, j] + spins[i, j - 1] + spins[i, j + 1]
                    up = 1 / (1 + np.exp(-2 * (coupling * near + field[i - 1, j - 1])))
                    spins[i, j] = np.where(rng.random(people) < up, 1, -1)
        flat = spins[1:-1, 1:-1].reshape(side * side, people)
        return _schema([2] * side**2), _columns(list((flat + 1) // 2))

    return draw


def _questionnaire(items: int, factors: int) -> Callable[..., Drawn]:
    """Answers from 1 to 5 that load on factors, or do not know."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        traits = rng.standard_normal((people, factors))
        columns = []
        for item in range(items):
            line = 0.8 * traits[:, item % factors] + 0.6 * rng.standard_normal(people)
            code = np.searchsorted(np.sort(rng.normal(0, 1, 4)), line)
            columns.append(np.where(rng.random(people) < 0.08, 5, code))
        return _schema([6] * items), _columns(columns)

    return draw


def _filtered(blocks: int, per_block: int, k: int) -> Callable[..., Drawn]:
    """Filter questions: without it, all questions of its block are not applicable."""

    def draw(rng: np.random.Generator, people: int) -> Drawn:
        columns, widths = [], []
        for _ in range(blocks):
            passed = rng.random(people) < rng.uniform(0.2, 0.7)
            columns.append(passed.astype(np.intp))
            widths.append(2)
            for _ in range(per_block):
                table = _softmax(rng.standard_normal((1, k)))
                answer = _given(table, np.zeros(people, np.intp), rng)
                columns.append(np.where(passed, answer, k))
                widths.append(k + 1)
        return _schema(widths), _columns(columns)

    return draw


HELD_OUT: dict[str, Callable[[np.random.Generator, int], Drawn]] = {
    "sparse counts": _counts(8, 14),
    "heavy tails": _heavy(6, 30),
    "random graph": _random_graph(12, 3),
    "Markov chain": _chain(10, 6, 0.7),
    "2 to 200 values": _latent((2, 200, 5, 60, 3, 12, 25), 6, 1.0),
    "functions": _functions((5, 6, 4, 8, 3), 5, 0.03),
    "quota": _quota((4, 2, 5), (3, 6, 4, 2, 5)),
    "Ising": _ising(4, 0.35),
    "questionnaire": _questionnaire(12, 2),
    "filter questions": _filtered(3, 3, 5),
}


def table(kind: str, people: int, seed: int) -> Drawn:
    """A table of a kind: equal seeds give equal tables."""
    every = {**KINDS, **HELD_OUT}
    number = list(every).index(kind)
    return every[kind](np.random.default_rng([seed, number, people]), people)


def errors(model: Model, schema: Schema, codes: np.ndarray, ways: int) -> float:
    """The mean distance of a model's one-way or two-way marginals from those of the records."""
    sets = attribute_sets(len(schema), ways, MAX_PAIRS, np.random.default_rng(0))
    distances = []
    for positions in sets:
        exact = marginal(codes, schema.cardinalities, positions)
        fitted = model.marginal([schema.names[i] for i in positions])
        distances.append(np.abs(fitted - exact).sum() / 2)
    return float(np.mean(distances))


def fitted_model(
    method: str, schema: Schema, codes: np.ndarray, epsilon: float, seed: int
) -> tuple[Model, float, float]:
    """The model of one campaign, and CPU seconds of its rounds and of its fit."""
    machine = start(method, schema, epsilon, len(codes), seed=seed)
    begin = time.process_time()
    simulate(machine, codes, np.random.default_rng([seed, 1]))
    asked = time.process_time()
    model = machine.model()
    return model, asked - begin, time.process_time() - asked


def ratios(kind: str, participants: int, epsilon: float, seeds: int) -> dict[str, float]:
    """Mean errors of all methods over tables of a kind, and the default's over the best other's."""
    two: dict[str, list[float]] = {method: [] for method in (METHOD, *RIVALS)}
    one: dict[str, list[float]] = {method: [] for method in (METHOD, *RIVALS)}
    spent = []
    for seed in range(seeds):
        schema, codes = table(kind, participants, seed)
        for method in (METHOD, *RIVALS):
            model, _, seconds = fitted_model(method, schema, codes, epsilon, seed)
            two[method].append(errors(model, schema, codes, 2))
            one[method].append(errors(model, schema, codes, 1))
            if method == METHOD:
                spent.append(seconds)
    means = {method: float(np.mean(found)) for method, found in two.items()}
    one_way = {method: float(np.mean(found)) for method, found in one.items()}
    best = min(means[rival] for rival in RIVALS)
    return {
        **{f"{method}_tvd_2": mean for method, mean in means.items()},
        "best_other_tvd_2": best,
        "ratio": means[METHOD] / best,
        "mixture_tvd_1": one_way[METHOD],
        "ratio_tvd_1": one_way[METHOD] / one_way["independent"],
        "fit_cpu_s": float(np.mean(spent)),
    }


def copied_mass(participants: int, values: int, seed: int) -> dict[str, float]:
    """Two columns, one a renamed copy of the other: the share of mass on pairs that occur."""
    schema, codes = _copies((values,), 0.0)(np.random.default_rng([seed, values]), participants)
    model, _, _ = fitted_model(METHOD, schema, codes, 4.0, seed)
    occurs = marginal(codes, schema.cardinalities, (0, 1)) > 0
    return {"true_pairs": float(model.marginal(schema.names)[occurs].sum())}


def grid_ranges(shape: str, epsilon: float, participants: int, seed: int) -> dict[str, float]:
    """Six ordered attributes of 64 values with correlation 0.8, as HDG's authors draw them.

    The error of a range is the mean absolute error of the share of people in squares of half
    the width of each attribute, over all pairs (Yang et al., PVLDB 2020, volume 0.5). Values
    beyond three standard deviations are moved to the ends.
    """
    rng = np.random.default_rng([seed, 64])
    correlation = 0.8 * np.ones((6, 6)) + 0.2 * np.eye(6)
    values = rng.standard_normal((participants, 6)) @ np.linalg.cholesky(correlation).T
    if shape == LAPLACE:
        values *= np.sqrt(rng.exponential(1.0, (participants, 1)))
    codes = np.asfortranarray(np.clip((values + 3) / 6 * 64, 0, 63).astype(np.int32))
    schema = _schema([64] * 6, ordered=True)
    found: dict[str, float] = {}
    for method in (METHOD, "independent"):
        model, _, _ = fitted_model(method, schema, codes, epsilon, seed)
        found[f"{method}_range_error"] = _square_error(model, schema, codes)
        found[f"{method}_tvd_1"] = errors(model, schema, codes, 1)
    return found


def _square_error(model: Model, schema: Schema, codes: np.ndarray) -> float:
    rng, found = np.random.default_rng(0), []
    for positions in attribute_sets(len(schema), 2, MAX_PAIRS, rng):
        k = schema.cardinalities[positions[0]]
        exact = marginal(codes, schema.cardinalities, positions).reshape(k, k)
        off = model.marginal([schema.names[i] for i in positions]).reshape(k, k) - exact
        below = np.zeros((k + 1, k + 1))
        below[1:, 1:] = off.cumsum(axis=0).cumsum(axis=1)
        i, j = rng.integers(0, k // 2 + 1, (2, 200))
        far_i, far_j = i + k // 2, j + k // 2
        squares = below[far_i, far_j] - below[i, far_j] - below[far_i, j] + below[i, j]
        found.append(float(np.abs(squares).mean()))
    return float(np.mean(found))


def growth(attributes: int, values: str, participants: int) -> dict[str, float]:
    """CPU seconds of the rounds and of the fit, at epsilon 4."""
    sizes = [2] * attributes
    if values == MIXED:
        sizes = [2 + i % 7 for i in range(attributes)]
    schema, codes = _network(sizes, 1, 1.0)(np.random.default_rng(attributes), participants)
    _, rounds, fit = fitted_model(METHOD, schema, codes, 4.0, 0)
    return {"rounds_cpu_s": rounds, "fit_cpu_s": fit}


def _skipped(kind: str, participants: int, epsilon: float) -> bool:
    """Epsilons 1 and 4, or 2 and 8, alternating over kinds and sizes."""
    number = [*KINDS, *HELD_OUT].index(kind) + PEOPLE.index(participants)
    return epsilon not in EPSILONS[number % 2]


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The studies of one size; tables are generated, so no folder is read."""
    full, smoke = size == "full", size == "smoke"
    few = ("star", "xor") if smoke else ("strong", "none", "copies", "star")
    measures: dict[str, Any] = {
        "kind": tuple(KINDS) if full else few,
        "participants": PEOPLE if full else PEOPLE[:1],
        "epsilon": sorted(EPSILONS[0] + EPSILONS[1]),
    }
    grown = {"full": (20, 40, 80, 200), "quick": (20, 40), "smoke": (6, 12)}[size]
    compared = Study(
        "ratios",
        "Two-way error over that of the best other method",
        measures,
        partial(ratios, seeds=4 if full else 1),
        charts=(Chart("epsilon", "ratio", colour="kind", panels=("participants",), log_x=True),),
        skip=_skipped,
        note="Ratios are of means over four tables of a kind. The constants of the default method were chosen on these kinds.",
    )
    held_out = Study(
        "held_out",
        "The same on ten kinds that had no part in the design",
        {**measures, "kind": tuple(HELD_OUT) if full else ("quota", "Ising")}
        | {"participants": PEOPLE[:2] if full else PEOPLE[:1]},
        partial(ratios, seeds=4 if full else 1),
        charts=(Chart("epsilon", "ratio", colour="kind", panels=("participants",), log_x=True),),
        skip=_skipped,
    )
    squares = Study(
        "ranges",
        "Ranges of two of six ordered attributes of 64 values, correlation 0.8",
        {
            "shape": (NORMAL, LAPLACE),
            "epsilon": (1.0, 2.0),
            "participants": (10_000 if smoke else 100_000,),
            "seed": range(4 if full else 1),
        },
        grid_ranges,
        skip=lambda shape, epsilon, participants, seed: (shape == LAPLACE) != (epsilon == 2.0),
    )
    copies = Study(
        "copies",
        "Two columns that are copies: mass on pairs that occur, epsilon 4",
        {
            "participants": (20_000 if smoke else 200_000,),
            "values": (10 if smoke else 100,),
            "seed": range(4 if full else 1),
        },
        copied_mass,
    )
    grows = Study(
        "growth",
        "CPU seconds by number of attributes, epsilon 4",
        {
            "attributes": grown,
            "values": (MIXED, BINARY),
            "participants": (10_000 if smoke else 100_000,),
        },
        growth,
        skip=lambda attributes, values, participants: (values == BINARY) != (attributes == 200),
        charts=(Chart("attributes", "fit_cpu_s", colour="values", panels=()),),
    )
    about = "The default method beside other built-in methods on generated tables of 26 kinds."
    return Bench(
        "kinds", "Kinds of dependence", about, (compared, held_out, squares, copies, grows), size
    )
