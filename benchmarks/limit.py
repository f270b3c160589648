"""The gain of a public table as prior, and the harm of a wrong table.

Every figure compares fits to the same reports, without and with the table. Errors are mean total variation
distances over all pairs (and 100 random triples) between exact marginals of the model and the participants' own records.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.mixture import PEOPLE
from benchmarks.model_error import evaluate_model
from benchmarks.tables import Table
from dither.datasets import generate_network
from dither.evaluation.metrics import attribute_sets, marginal
from dither.fit import Model
from dither.lab.harness import Bench, Size, Study
from dither.methods import MethodRun, start
from dither.methods.prior import PublicRows
from dither.planner import population_of, predict
from dither.planner.prediction import MAX_PUBLIC_ROWS
from dither.schema import Schema
from dither.simulate import simulate

STRONG, WEAK, NONE = "generated, strong", "generated, weak", "generated, no dependence"
FOURS, MIXED, FOURS_NONE = (
    "seven of four values",
    "five of two to six values",
    "seven of four values, no dependence",
)
SEVEN = "Adult, seven attributes"
NETWORKS: dict[str, dict[str, Any]] = {
    STRONG: {"attributes": [10] * 10, "parents": 2, "strength": 2.0, "seed": 5},
    WEAK: {"attributes": [6] * 14, "parents": 1, "strength": 1.0, "seed": 5},
    NONE: {"attributes": [6] * 12, "parents": 1, "strength": 0.0, "seed": 5},
    FOURS: {"attributes": [4] * 7, "parents": 1, "strength": 1.2, "seed": 3},
    MIXED: {"attributes": [3, 5, 2, 6, 4], "parents": 2, "strength": 1.5, "seed": 11},
    FOURS_NONE: {"attributes": [4] * 7, "parents": 1, "strength": 0.0, "seed": 3},
}
SEVEN_COLUMNS = (
    "age",
    "education",
    "marital_status",
    "occupation",
    "relationship",
    "sex",
    "income",
)
SMALL = (FOURS, MIXED, FOURS_NONE, SEVEN)
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
def population(
    name: str, people: int, seed: int, data_dir: Path | None
) -> tuple[Table, np.ndarray]:
    """The participants, and rows of the same kind that a public table is taken from."""
    if name in NETWORKS:
        options = dict(NETWORKS[name])
        network = generate_network(options.pop("attributes"), **options)
        codes = network.sample_codes(people, np.random.default_rng([seed, 77]))
        public = network.sample_codes(45_000, np.random.default_rng([seed, 78]))
        return Table(name, network.schema, codes, codes), public
    drawn = tables.resampled("Adult" if name == SEVEN else name, people, seed, data_dir)
    public, schema, codes = tables.load(drawn.name, data_dir).codes, drawn.schema, drawn.codes
    if name == SEVEN:
        kept = [schema.index(column) for column in SEVEN_COLUMNS]
        schema = Schema(tuple(schema.attributes[i] for i in kept))
        public, codes = public[:, kept], np.asfortranarray(codes[:, kept])
    return Table(name, schema, codes, codes), public


@lru_cache(maxsize=2)
def collected(
    name: str, people: int, epsilon: float, seed: int, data_dir: Path | None
) -> MethodRun:
    """A campaign with all its reports in. Generated tables are asked in one round, which always asks pairs."""
    table, _ = population(name, people, seed, data_dir)
    parameters = {"rounds": 1} if name in NETWORKS else {}
    machine = start("mixture", table.schema, epsilon, people, parameters, seed=seed)
    simulate(machine, table.codes, np.random.default_rng([seed, 1]))
    return machine


@lru_cache(maxsize=4)
def truth(
    name: str, people: int, seed: int, data_dir: Path | None, ways: int
) -> list[tuple[list[str], np.ndarray]]:
    """The true marginals of all pairs or of 100 random triples."""
    table, _ = population(name, people, seed, data_dir)
    sets = attribute_sets(
        len(table.schema), ways, 10_000 if ways == 2 else 100, np.random.default_rng(0)
    )
    return [
        ([table.schema.names[i] for i in s], marginal(table.codes, table.schema.cardinalities, s))
        for s in sets
    ]


def errors(
    model: Model, name: str, people: int, seed: int, data_dir: Path | None
) -> dict[str, float]:
    """Mean distances of a model's pairs and triples."""
    return {
        f"tvd_{ways}": float(
            np.mean(
                [
                    np.abs(model.marginal(s) - t).sum() / 2
                    for s, t in truth(name, people, seed, data_dir, ways)
                ]
            )
        )
        for ways in (2, 3)
    }


@lru_cache(maxsize=2)
def plain(
    name: str, people: int, epsilon: float, seed: int, data_dir: Path | None
) -> tuple[dict[str, float], float]:
    """The method as it is: errors, and CPU seconds of the fit."""
    machine = collected(name, people, epsilon, seed, data_dir)
    begin = time.process_time()
    model = machine.model()
    return errors(model, name, people, seed, data_dir), time.process_time() - begin


def compared(
    found: dict[str, float], name: str, people: int, epsilon: float, seed: int, data: Path | None
) -> Any:
    before, seconds = plain(name, people, epsilon, seed, data)
    ratios = {f"ratio_{ways}": found[f"tvd_{ways}"] / before[f"tvd_{ways}"] for ways in (2, 3)}
    return {
        **{f"plain_{key}": value for key, value in before.items()},
        **found,
        **ratios,
        "plain_fit_cpu_s": seconds,
    }


def refitted(machine: MethodRun) -> MethodRun:
    """A campaign with the same reports and no fit yet."""
    again = start(
        "mixture",
        machine.campaign.schema,
        machine.campaign.epsilon,
        machine.campaign.participants,
        machine.plain_parameters(),
        seed=machine.campaign.seed,
    )
    for tally in machine.closed:
        again.close(tally)
    return again


def public_rows(kind: str, codes: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """A public table, right or wrong, from rows of the population's kind."""
    rng = np.random.default_rng(3)
    mixed = codes[rng.permutation(len(codes))]
    third = mixed[: len(codes) // 3]
    first, last = mixed[:, 0], third[:, -1]
    if (
        kind == TILTED
    ):  # the chance to be in it grows with the first attribute's value, from a sixth to a half
        return mixed[rng.random(len(mixed)) < (1.0 + 2.0 * first / max(sizes[0] - 1, 1)) / 6.0]
    made: dict[str, Callable[[], np.ndarray]] = {
        RANDOM: lambda: third,
        "2,000 random rows": lambda: third[:2_000],
        FEW: lambda: third[:300],
        "columns shuffled": lambda: np.stack(
            [rng.permutation(column) for column in third.T], axis=1
        ),
        "every other column shuffled": lambda: np.stack(
            [rng.permutation(column) if i % 2 else column for i, column in enumerate(third.T)],
            axis=1,
        ),
        "values renamed": lambda: np.stack(
            [rng.permutation(k)[column] for k, column in zip(sizes, third.T, strict=True)], axis=1
        ),
        "all values equally likely": lambda: np.stack(
            [rng.integers(0, k, 5_000) for k in sizes], axis=1
        ),
        "one row, again and again": lambda: np.repeat(third[:1], 500, axis=0),
        "only the upper third of the first attribute": lambda: mixed[
            first >= np.quantile(first, 2 / 3)
        ],
        "only one value of the last attribute": lambda: third[last == np.bincount(last).argmin()],
    }
    return made[kind]()


def with_prior(
    kind: str, name: str, people: int, epsilon: float, seed: int, data_dir: Path | None
) -> dict[str, Any]:
    """The same reports with a public table as prior."""
    machine = collected(name, people, epsilon, seed, data_dir)
    _, near = population(name, people, seed, data_dir)
    rows = public_rows(kind, near, tuple(machine.campaign.schema.cardinalities))
    again = refitted(machine)
    begin = time.process_time()
    again.give_prior(PublicRows(np.ascontiguousarray(rows, dtype=np.int32), kind, ""))
    model = again.model()
    seconds = time.process_time() - begin
    found = compared(
        errors(model, name, people, seed, data_dir), name, people, epsilon, seed, data_dir
    )
    share = again.diagnostics().to_json()["prior"]["share_of_prior"]
    kind_of_table = "wrong" if kind in WRONG else "right"
    return {
        "table_is": kind_of_table,
        **found,
        "rows": len(rows),
        "share": share,
        "more_cpu_s": seconds - found["plain_fit_cpu_s"],
    }


@lru_cache(maxsize=1)
def public_third(data_dir: Path | None) -> np.ndarray:
    """A random third of Adult."""
    table = tables.load("Adult", data_dir)
    return np.ascontiguousarray(
        public_rows(RANDOM, table.codes, tuple(table.schema.cardinalities)), dtype=np.int32
    )


@lru_cache(maxsize=4)
def forecast_with_third(
    participants: int, epsilon: float, data_dir: Path | None
) -> tuple[float, float]:
    """The 2-way error that the planner predicts with a random third of Adult as prior, and without it."""
    public = public_third(data_dir)
    model, _ = population_of(tables.load("Adult", data_dir).schema, public)
    rows = min(len(public), MAX_PUBLIC_ROWS)
    known = predict("mixture", model, participants, epsilon, repeats=2, public_rows=rows)
    return known.tvd[2], predict("mixture", model, participants, epsilon, repeats=2).tvd[2]


def forecast_checked(
    participants: int, epsilon: float, seed: int, data_dir: Path | None
) -> dict[str, float]:
    """The planner with a random third of Adult as prior, and a campaign with that prior; errors against the whole table."""
    known, alone = forecast_with_third(participants, epsilon, data_dir)
    table = tables.load("Adult", data_dir)
    machine = collected("Adult", participants, epsilon, seed, data_dir)
    real_alone = evaluate_model(machine.model(), table.codes, (2,), 105)[2].tvd
    again = refitted(machine)
    again.give_prior(PublicRows(public_third(data_dir), RANDOM, ""))
    real = evaluate_model(again.model(), table.codes, (2,), 105)[2].tvd
    return {
        "predicted": known,
        "realised": real,
        "ratio": known / real,
        "predicted_without": alone,
        "realised_without": real_alone,
        "ratio_without": alone / real_alone,
    }


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """Declared for each size; the smoke size takes a few thousand participants of generated tables."""
    if size == "smoke":
        data_dir = data_dir or Path("nowhere")
    full = size == "full"
    real = tables.names(data_dir, "Adult", "NLTCS")
    names = (*real, STRONG, WEAK, NONE) if full else real[:1] if size == "quick" else (WEAK,)
    divide = {"full": 1, "quick": 20, "smoke": 50}[size]
    seeds = range(3 if full else 1)

    def people(dataset: str) -> int:
        return PEOPLE.get(dataset, GENERATED_PEOPLE) // divide

    def by_prior(dataset: str, seed: int, epsilon: float, prior: str) -> dict[str, Any]:
        return with_prior(prior, dataset, people(dataset), epsilon, seed, data_dir)

    def by_small(
        dataset: str, participants: int, seed: int, epsilon: float, prior: str
    ) -> dict[str, Any]:
        return with_prior(prior, dataset, participants, epsilon, seed, data_dir)

    studies = (
        # Right and wrong tables in one study, the table fastest, so that every campaign is collected and fitted once.
        Study(
            "priors",
            "A public table that is right, nearly so, or wrong",
            {"dataset": names, "seed": seeds, "epsilon": (1.0, 4.0) if full else (4.0,)}
            | {"prior": (*RIGHT, *WRONG) if full else (RANDOM, "values renamed")},
            by_prior,
            skip=lambda dataset, seed, epsilon, prior: seed > 0 and prior in WRONG,
            note="With a wrong table the ratio should stay below 1.01. Right tables: three seeds, wrong ones: one.",
        ),
        Study(
            "small_campaigns",
            "A public table in a small campaign, where noise can favour a wrong one",
            {
                "dataset": SMALL if full else SMALL[:1],
                "participants": (20_000, 100_000) if full else (20_000,),
            }
            | {"seed": seeds, "epsilon": (1.0, 2.0, 4.0) if full else (2.0,)}
            | {
                "prior": (TILTED, "2,000 random rows", *WRONG)
                if full
                else ("2,000 random rows", "values renamed")
            },
            by_small,
            note="Generated tables are asked in one round, which always asks pairs. Where no pairs are asked the ratio is 1.",
        ),
        Study(
            "forecasts",
            "What `dither plan --prior` predicts, and what comes out: Adult with a random third as prior",
            {
                "participants": (45_000, 300_000) if full else (60_000,),
                "epsilon": (1.0, 4.0) if full else (4.0,),
            }
            | {"seed": seeds},
            partial(forecast_checked, data_dir=data_dir),
            note="Mean 2-way errors against the whole table, of which the participants are a sample.",
        ),
    )
    about = "Errors with a public table over those without, on the same reports."
    return Bench("limit", "Closer to the limit: a public prior", about, studies, size)
