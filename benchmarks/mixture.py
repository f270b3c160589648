"""The default method on Adult and NLTCS: error against epsilon, time and memory, and published figures.

Errors are mean total variation distances over all pairs and over 100 random triples: exact marginals of the model against
those of the participants' own records, who are rows of the table drawn with replacement for each seed.
"""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.tables import PRODUCT, Table, exact_product
from dither.evaluation.metrics import attribute_sets, marginal
from dither.fit import Model
from dither.lab.harness import Bench, Chart, Size, Study, peak_megabytes, run_isolated
from dither.methods import MethodRun, start
from dither.simulate import simulate

PEOPLE = {"Adult": 1_500_000, "NLTCS": 1_000_000}
COPIES = ("education", "education_num")  # of Adult: either determines the other
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
# PrivIncr (Liu, Tang, Hu, Jin, Guo, EDBT 2023), table 2: Adult, 1.5 million participants, mean 2-way distance, LoPub (Ren et
# al., 2018) as run there.
PUBLISHED = {
    "PrivIncr": {1.0: 0.162, 4.0: 0.073, 8.0: 0.040},
    "LoPub, as run for PrivIncr": {1.0: 0.721, 4.0: 0.68, 8.0: 0.633},
}


@lru_cache(maxsize=3)
def population(name: str, people: int, seed: int, data_dir: Path | None) -> Table:
    """Participants who are their own truth."""
    drawn = tables.resampled(name, people, seed, data_dir)
    return Table(name, drawn.schema, drawn.codes, drawn.codes)


@lru_cache(maxsize=6)
def truth(
    name: str, people: int, seed: int, data_dir: Path | None, ways: int
) -> list[tuple[list[str], np.ndarray]]:
    """The true marginals of all pairs or of 100 random triples."""
    table = population(name, people, seed, data_dir)
    most = 10_000 if ways == 2 else 100
    sets = attribute_sets(len(table.schema), ways, most, np.random.default_rng(0))
    return [
        ([table.schema.names[i] for i in s], marginal(table.codes, table.schema.cardinalities, s))
        for s in sets
    ]


def errors(
    model: Model, name: str, people: int, seed: int, data_dir: Path | None
) -> dict[str, float]:
    """Mean distances of a model's pairs and triples, and that of its worst pair."""
    out = {}
    for ways in (2, 3):
        exact = truth(name, people, seed, data_dir, ways)
        distances = [np.abs(model.marginal(names) - t).sum() / 2 for names, t in exact]
        out[f"tvd_{ways}"] = float(np.mean(distances))
        if ways == 2:
            out["worst_pair"] = float(max(distances))
    return out


def collected(
    method: str, table: Table, epsilon: float, seed: int
) -> tuple[MethodRun, np.random.Generator]:
    """A campaign of a method with all its reports in, and its random numbers."""
    machine = start(method, table.schema, epsilon, len(table.codes), seed=seed)
    rng = np.random.default_rng([seed, 1])
    simulate(machine, table.codes, rng)
    return machine, rng


def impossible_rows(
    method: str, people: int, epsilon: float, seed: int, data_dir: Path | None
) -> dict[str, float]:
    """The share of synthetic rows of Adult whose two copies of education never occur together in the table."""
    table = population("Adult", people, seed, data_dir)
    machine, rng = collected(method, table, epsilon, seed)
    first, second = (table.schema.index(name) for name in COPIES)
    occurs = marginal(table.codes, table.schema.cardinalities, (first, second)) > 0
    rows = machine.model().sample(people, rng)
    return {"impossible_rows": float(1.0 - occurs[rows[:, first], rows[:, second]].mean())}


def measure(
    dataset: str, method: str, people: int, epsilon: float, seed: int, data_dir: Path | None
) -> dict[str, Any]:
    """One campaign of a method: errors, and CPU seconds from reports to a model and to as many rows as participants."""
    table = population(dataset, people, seed, data_dir)
    if method == PRODUCT:
        return {
            "participants": people,
            **errors(exact_product(table), dataset, people, seed, data_dir),
        }
    machine, rng = collected(method, table, epsilon, seed)
    begin = time.process_time()
    model = machine.model()
    fitted = time.process_time()
    model.sample(people, rng)
    sampled = time.process_time()
    found = errors(model, dataset, people, seed, data_dir)
    return {
        "participants": people,
        **found,
        "fit_cpu_s": fitted - begin,
        "sample_cpu_s": sampled - fitted,
    }


def against_independent(
    dataset: str, people: int, epsilon: float, seed: int, data_dir: Path | None
) -> dict[str, float]:
    """Both methods on the same participants: how much worse or better looking for dependence comes out."""
    found = {
        m: measure(dataset, m, people, epsilon, seed, data_dir)["tvd_2"]
        for m in ("mixture", "independent")
    }
    return {**found, "ratio": found["mixture"] / found["independent"]}


def cost(dataset: str, epsilon: float, people: int, folder: str | None) -> dict[str, float]:
    """CPU seconds from reports to as many rows as participants, and the most memory held, population included."""
    drawn = tables.resampled(dataset, people, 0, Path(folder) if folder else None)
    machine = start("mixture", drawn.schema, epsilon, people, seed=0)
    rng = np.random.default_rng(1)
    simulate(machine, drawn.codes, rng)
    begin = time.process_time()
    machine.model().sample(people, rng)
    return {"cpu_s": time.process_time() - begin, "peak_megabytes": peak_megabytes()}


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """Declared for each size; the smoke size takes a few thousand participants of the bundled Adult, if no folder is named."""
    if size == "smoke":
        data_dir = data_dir or Path("nowhere")
    datasets = tables.names(data_dir, "Adult", "NLTCS")
    divide = {"full": 1, "quick": 20, "smoke": 75}[size]
    epsilons = EPSILONS if size == "full" else (1.0, 4.0) if size == "quick" else (8.0,)

    def at(dataset: str, method: str, epsilon: float, seed: int) -> dict[str, Any]:
        return measure(dataset, method, PEOPLE[dataset] // divide, epsilon, seed, data_dir)

    def alone(dataset: str, epsilon: float) -> dict[str, float]:
        found: dict[str, float] = run_isolated(
            cost, dataset, epsilon, PEOPLE[dataset] // divide, data_dir and str(data_dir)
        )
        return found

    def ratio(dataset: str, participants: int, seed: int, epsilon: float) -> dict[str, float]:
        return against_independent(dataset, participants, epsilon, seed, data_dir)

    def broken(method: str, participants: int, seed: int) -> dict[str, float]:
        return impossible_rows(method, participants, 4.0, seed, data_dir)

    published = tuple(
        {
            "dataset": "Adult",
            "method": method,
            "epsilon": e,
            "participants": PEOPLE["Adult"],
            "tvd_2": value,
        }
        for method, values in PUBLISHED.items()
        for e, value in values.items()
    )
    charts = tuple(
        Chart("epsilon", y, log_x=True, log_y=True, title=f"Mean {y[-1]}-way distance")
        for y in ("tvd_2", "tvd_3")
    )
    axes: dict[str, Any] = {"dataset": datasets, "seed": range(3 if size == "full" else 1)}
    axes |= {"epsilon": epsilons, "method": ("mixture", "independent", PRODUCT)}
    studies = (
        Study(
            "errors",
            "Error of pairs and triples",
            axes,
            at,
            ("participants",),
            charts,
            known=published if size == "full" else (),
        ),
        Study(
            "against_independent",
            "Little noise or much: 2-way error over that of independent attributes",
            {
                "dataset": tables.names(data_dir, "Adult", "NLTCS", "Retail", tables.GENERATED)
                if size == "full"
                else datasets,
                "participants": (20_000, 200_000) if size == "full" else (5_000,),
                "seed": range(8 if size == "full" else 1),
                "epsilon": (0.1, 0.25, 0.5, 1.0, 2.0) if size == "full" else (0.1, 1.0),
            },
            ratio,
            charts=(
                Chart("epsilon", "ratio", colour="dataset", panels=("participants",), log_x=True),
            ),
            note="Where the noise drowns dependence the method should fall back to independence: a ratio of 1 or less.",
        ),
        Study(
            "impossible_rows",
            "Synthetic rows of Adult at epsilon 4 that no person could have",
            {
                "method": ("mixture", "privincr"),
                "participants": (45_222, 1_000_000) if size == "full" else (5_000,),
                "seed": range(3 if size == "full" else 1),
            },
            broken,
            note="education and education_num determine each other; no rule says so to the method.",
        ),
        Study(
            "cost",
            "A process of its own, from records to rows",
            {"dataset": datasets[:1], "epsilon": (4.0,)},
            alone,
        ),
    )
    about = "The default method beside independent attributes, the exact product, and published figures on the same table."
    return Bench(
        "mixture",
        "The default method: an average of models fitted to all reports",
        about,
        studies,
        size,
    )
