"""Closer to the limit: what `effort=thorough` and a public table as a prior bring, and whether a wrong table does harm.

Every figure compares fits to the same reports: the method as it is, and with one of the two. Errors are mean total variation
distances over all pairs (and 100 random triples) between exact marginals of the model and the participants' own records.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.harness import Bench, Chart, Size, Study
from benchmarks.mixture import PEOPLE
from benchmarks.tables import Table
from dither.datasets import generate_network
from dither.evaluation.metrics import attribute_sets, marginal
from dither.models import Model
from dither.protocols import ProtocolMachine, start
from dither.protocols.prior import PublicRows, give_prior
from dither.simulate import simulate

STRONG, WEAK, NONE = "generated, strong", "generated, weak", "generated, no dependence"
NETWORKS: dict[str, dict[str, Any]] = {
    STRONG: {"attributes": [10] * 10, "parents": 2, "strength": 2.0},
    WEAK: {"attributes": [6] * 14, "parents": 1, "strength": 1.0},
    NONE: {"attributes": [6] * 12, "parents": 1, "strength": 0.0},
}
GENERATED_PEOPLE = 1_000_000
TILTED, RANDOM, FEW = "a third, tilted by the first attribute", "a random third", "300 random rows"
RIGHT = (TILTED, RANDOM, "2,000 random rows", FEW)
WRONG = (
    "columns shuffled",
    "every other column shuffled",
    "values renamed",
    "all values equally likely",
    "one row, again and again",
    "only the upper third of the first attribute",
    "only one value of the last attribute",
)


@lru_cache(maxsize=2)
def population(name: str, people: int, seed: int, data_dir: Path | None) -> tuple[Table, np.ndarray]:
    """The participants, and rows of the same kind that a public table is taken from."""
    if name in NETWORKS:
        options = dict(NETWORKS[name])
        network = generate_network(options.pop("attributes"), seed=5, **options)
        codes = network.sample_codes(people, np.random.default_rng([seed, 77]))
        public = network.sample_codes(45_000, np.random.default_rng([seed, 78]))
        return Table(name, network.schema, codes, codes), public
    drawn = tables.resampled(name, people, seed, data_dir)
    return Table(name, drawn.schema, drawn.codes, drawn.codes), tables.load(name, data_dir).codes


@lru_cache(maxsize=2)
def collected(name: str, people: int, epsilon: float, seed: int, data_dir: Path | None) -> ProtocolMachine[Any]:
    """A campaign with all its reports in. Generated tables are asked pairs, come what may: it is their fits that are compared."""
    table, _ = population(name, people, seed, data_dir)
    parameters = {"screen": "never"} if name in NETWORKS else {}
    machine = start("mixture", table.schema, epsilon, people, parameters, seed=seed)
    simulate(machine, table.codes, np.random.default_rng([seed, 1]))
    return machine


@lru_cache(maxsize=4)
def truth(name: str, people: int, seed: int, data_dir: Path | None, ways: int) -> list[tuple[list[str], np.ndarray]]:
    """The true marginals of all pairs or of 100 random triples."""
    table, _ = population(name, people, seed, data_dir)
    sets = attribute_sets(len(table.schema), ways, 10_000 if ways == 2 else 100, np.random.default_rng(0))
    return [([table.schema.names[i] for i in s], marginal(table.codes, table.schema.cardinalities, s)) for s in sets]


def errors(model: Model, name: str, people: int, seed: int, data_dir: Path | None) -> dict[str, float]:
    """Mean distances of a model's pairs and triples."""
    return {
        f"tvd_{ways}": float(
            np.mean([np.abs(model.marginal(s) - t).sum() / 2 for s, t in truth(name, people, seed, data_dir, ways)])
        )
        for ways in (2, 3)
    }


@lru_cache(maxsize=2)
def plain(name: str, people: int, epsilon: float, seed: int, data_dir: Path | None) -> tuple[dict[str, float], float]:
    """The method as it is: errors, and CPU seconds of the fit."""
    machine = collected(name, people, epsilon, seed, data_dir)
    begin = time.process_time()
    model = machine.model()
    return errors(model, name, people, seed, data_dir), time.process_time() - begin


def compared(found: dict[str, float], name: str, people: int, epsilon: float, seed: int, data: Path | None) -> Any:
    before, seconds = plain(name, people, epsilon, seed, data)
    ratios = {f"ratio_{ways}": found[f"tvd_{ways}"] / before[f"tvd_{ways}"] for ways in (2, 3)}
    return {**{f"plain_{key}": value for key, value in before.items()}, **found, **ratios, "plain_fit_cpu_s": seconds}


def thorough(name: str, people: int, epsilon: float, seed: int, data_dir: Path | None) -> dict[str, Any]:
    """The same reports with `effort=thorough`; the fit's seconds include those of the quick fit."""
    machine = collected(name, people, epsilon, seed, data_dir)
    given = {**machine.plain_parameters(), "effort": "thorough"}
    again = start("mixture", machine.campaign.schema, epsilon, people, given, seed=seed)
    for tally in machine.closed:
        again.close(tally)
    begin = time.process_time()
    model = again.model()
    seconds = time.process_time() - begin
    said = again.notes()["fit"].get("bayesian_member", {"share": 0.0})
    row = compared(errors(model, name, people, seed, data_dir), name, people, epsilon, seed, data_dir)
    return {**row, "share": said["share"], "mixing": said.get("mixing", np.nan), "fit_cpu_s": seconds}


def public_rows(kind: str, codes: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """A public table, right or wrong, from rows of the population's kind."""
    rng = np.random.default_rng(3)
    mixed = codes[rng.permutation(len(codes))]
    third = mixed[: len(codes) // 3]
    first, last = mixed[:, 0], third[:, -1]
    if kind == TILTED:  # the chance to be in it grows with the first attribute's value, from a sixth to a half
        return mixed[rng.random(len(mixed)) < (1.0 + 2.0 * first / max(sizes[0] - 1, 1)) / 6.0]
    made: dict[str, Callable[[], np.ndarray]] = {
        RANDOM: lambda: third,
        "2,000 random rows": lambda: third[:2_000],
        FEW: lambda: third[:300],
        "columns shuffled": lambda: np.stack([rng.permutation(column) for column in third.T], axis=1),
        "every other column shuffled": lambda: np.stack(
            [rng.permutation(column) if i % 2 else column for i, column in enumerate(third.T)], axis=1
        ),
        "values renamed": lambda: np.stack(
            [rng.permutation(k)[column] for k, column in zip(sizes, third.T, strict=True)], axis=1
        ),
        "all values equally likely": lambda: np.stack([rng.integers(0, k, 5_000) for k in sizes], axis=1),
        "one row, again and again": lambda: np.repeat(third[:1], 500, axis=0),
        "only the upper third of the first attribute": lambda: mixed[first >= np.quantile(first, 2 / 3)],
        "only one value of the last attribute": lambda: third[last == np.bincount(last).argmin()],
    }
    return made[kind]()


def with_prior(kind: str, name: str, people: int, epsilon: float, seed: int, data_dir: Path | None) -> dict[str, Any]:
    """The same reports with a public table as prior."""
    machine = collected(name, people, epsilon, seed, data_dir)
    plain(name, people, epsilon, seed, data_dir)  # the fit to the reports is the same for all priors, and is kept
    _, near = population(name, people, seed, data_dir)
    rows = public_rows(kind, near, tuple(machine.campaign.schema.cardinalities))
    again = copy(machine)
    vars(again).pop("_blend", None)
    begin = time.process_time()
    give_prior(again, PublicRows(np.ascontiguousarray(rows, dtype=np.int32), kind, ""))
    model = again.model()
    seconds = time.process_time() - begin
    found = compared(errors(model, name, people, seed, data_dir), name, people, epsilon, seed, data_dir)
    return {**found, "rows": len(rows), "share": again.notes()["prior"]["share_of_prior"], "more_cpu_s": seconds}


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """Declared for each size; the smoke size takes a few thousand participants of the bundled Adult."""
    if size == "smoke":
        data_dir = Path("nowhere")
    real = tables.names(data_dir, "Adult", "NLTCS")
    names = (*real, STRONG, WEAK, NONE) if size == "full" else real[:1] if size == "quick" else (WEAK,)
    divide = {"full": 1, "quick": 20, "smoke": 50}[size]
    seeds = range(3 if size == "full" else 1)

    def people(dataset: str) -> int:
        return PEOPLE.get(dataset, GENERATED_PEOPLE) // divide

    def by_thorough(dataset: str, seed: int, epsilon: float) -> dict[str, Any]:
        return thorough(dataset, people(dataset), epsilon, seed, data_dir)

    def by_prior(dataset: str, seed: int, epsilon: float, prior: str) -> dict[str, Any]:
        return with_prior(prior, dataset, people(dataset), epsilon, seed, data_dir)

    studies = (
        Study(
            "thorough",
            "effort=thorough over the same reports",
            {"dataset": names, "seed": seeds, "epsilon": (1.0, 2.0, 4.0) if size == "full" else (2.0,)},
            by_thorough,
            charts=(Chart("epsilon", "ratio_2", colour="dataset", log_x=True),),
            note="NLTCS is asked in sets of three attributes or more, where the member is left out: a ratio of exactly 1.",
        ),
        Study(
            "right_prior",
            "A public table that is right, or nearly",
            {"dataset": names, "seed": seeds, "epsilon": (1.0, 4.0), "prior": RIGHT}
            if size == "full"
            else {"dataset": names, "seed": seeds, "epsilon": (4.0,), "prior": (RANDOM,)},
            by_prior,
        ),
        Study(
            "wrong_prior",
            "A public table that is wrong",
            {"dataset": names, "seed": seeds, "epsilon": (1.0, 4.0), "prior": WRONG}
            if size == "full"
            else {"dataset": names, "seed": seeds, "epsilon": (4.0,), "prior": ("values renamed",)},
            by_prior,
            note="The ratio should stay below 1.01, whatever the table.",
        ),
    )
    about = "Errors with a Bayesian member, or with a public table, over those without, on the same reports."
    return Bench("limit", "Closer to the limit: a Bayesian member, and a public prior", about, studies, size)
