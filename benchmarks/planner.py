"""How well `dither plan` predicts: predicted over realised mean two-way error on Adult and NLTCS.

The prediction sees schema, participants and epsilon only, with one default assumption on dependence. The realised error is
that of simulated collections on the real table, resampled to the number of participants.
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from benchmarks import tables
from benchmarks.model_error import evaluate_model
from dither.lab.harness import Bench, Chart, NotAvailable, Outcome, Size, Study
from dither.methods import start
from dither.planner import assumed_dependence, predict, reference_population
from dither.simulate import simulate

SEED = 11


@lru_cache(maxsize=2)
def _reference(dataset: str, data_dir: Path | None) -> object:
    schema = tables.load(dataset, data_dir).schema
    return reference_population(schema, assumed_dependence(schema))


def realised(
    table: tables.Table, method: str, participants: int, epsilon: float, seeds: int
) -> dict[int, float]:
    """The mean errors of simulated collections on the real table."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng([SEED, seed])
        population = np.asfortranarray(table.codes[rng.integers(0, len(table.codes), participants)])
        machine = start(method, table.schema, epsilon, participants, {}, seed)
        simulate(machine, population, rng)
        ways = evaluate_model(machine.model(), population, (1, 2), 105)
        found.append((ways[1].tvd, ways[2].tvd))
    one, two = np.mean(found, axis=0)
    return {1: float(one), 2: float(two)}


def compare(
    dataset: str,
    method: str,
    participants: int,
    epsilon: float,
    repeats: int,
    seeds: int,
    data_dir: Path | None,
) -> dict[str, float]:
    """Both errors, predicted over realised, and that ratio or its inverse, whichever is above one."""
    if dataset not in tables.names(data_dir, dataset):
        raise NotAvailable(f"{dataset}'s table is not there; --data names its folder")
    guess = predict(
        method, _reference(dataset, data_dir), participants, epsilon, repeats=repeats
    ).tvd
    real = realised(tables.load(dataset, data_dir), method, participants, epsilon, seeds)
    ratio = guess[2] / real[2]
    return {
        "ratio": ratio,
        "factor": max(ratio, 1 / ratio),
        "predicted_2way": guess[2],
        "realised_2way": real[2],
        "predicted_1way": guess[1],
        "realised_1way": real[1],
    }


def worst_factor(outcome: Outcome) -> float:
    """By how much the worst of all predictions is off."""
    return max(row["mean"] for row in outcome.summary if row["measure"] == "factor")


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The study of one size."""
    datasets = ("Adult",) if size == "smoke" else ("Adult", "NLTCS")
    people = {"full": (20_000, 100_000, 1_500_000), "quick": (20_000, 100_000), "smoke": (20_000,)}[
        size
    ]
    epsilons = {"full": (0.5, 1.0, 2.0, 4.0, 8.0), "quick": (1.0, 4.0), "smoke": (8.0,)}[size]
    repeats, seeds = {"full": (5, 3), "quick": (1, 1), "smoke": (1, 1)}[size]
    study = Study(
        name="ratios",
        title="Predicted over realised two-way error",
        axes={
            "dataset": datasets,
            "method": ("independent", "mixture"),
            "participants": people,
            "epsilon": epsilons,
        },
        measure=partial(compare, repeats=repeats, seeds=seeds, data_dir=data_dir),
        charts=(
            Chart(
                x="epsilon",
                y="ratio",
                colour="participants",
                panels=("dataset", "method"),
                log_x=True,
            ),
        ),
        note="A ratio of one is a perfect forecast; the factor is the ratio or its inverse, whichever is above one. "
        f"Predictions are means of {repeats}, realised errors of {seeds} simulated collections.",
    )
    about = (
        "The planner sees schema, participants and epsilon. The level of dependence that it assumes was read off these two tables, "
        "so this is no independent test."
    )
    return Bench("planner", "The planner's predictions, checked", about, (study,), size)
