"""Whole tables of sets of attributes, fitted as the default method does, and the same reports fitted through their pairs.

Real tables are resampled as for `dither bench mixture`; generated networks have strong interactions of several attributes and are
measured against their exact marginals. Only settings in which the method asks sets of three attributes or more are here.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks import tables
from benchmarks.mixture import PEOPLE, population, truth
from dither.datasets import generate_network
from dither.fit import answers_of
from dither.fit.mixture.fit import fit_mixture
from dither.fit.mixture.set_fit import set_targets
from dither.fit.mixture.targets import pair_targets
from dither.lab.harness import Bench, Chart, Size, Study
from dither.methods import MethodRun, start
from dither.methods.mixture.machine import as_model
from dither.release.replicates import redraw
from dither.simulate import simulate

NETWORKS = {
    "12 binary": (2,) * 12,
    "30 binary": (2,) * 30,
    "12 of three values": (3,) * 12,
    "60 binary": (2,) * 60,
}
SETS = 120  # of pairs, and of triples, that a network is measured on
TITLES = {w: f"{w}-way error of whole tables over that of pairs alone" for w in (2, 3)}
Truth = list[tuple[list[str], np.ndarray]]


def both_fits(machine: MethodRun, truths: dict[int, Truth], seed: int) -> dict[str, float]:
    """Errors and CPU seconds of both fits to the same reports, and their ratios (below 1: whole tables are better)."""
    schema, answers = machine.campaign.schema, answers_of(machine.counted)
    if not any(len(answer.question.attributes) > 2 for answer in answers):
        raise ValueError("this plan asks no sets")
    targets = pair_targets(schema, answers)
    found: dict[str, float] = {}
    for name, sets in (
        ("tables", partial(set_targets, schema, answers, targets.columns)),
        ("pairs", None),
    ):
        begin = time.process_time()
        fitted = fit_mixture(targets, np.random.default_rng([seed, 7]), sets=sets)
        found[f"{name}_cpu_s"] = time.process_time() - begin
        model = as_model(schema, fitted)
        for ways, true in truths.items():
            gaps = [np.abs(model.marginal(names) - t).sum() / 2 for names, t in true]
            found[f"{name}_tvd_{ways}"] = float(np.mean(gaps))
    return found | {
        f"ratio_{w}": found[f"tables_tvd_{w}"] / found[f"pairs_tvd_{w}"] for w in truths
    }


def on_table(
    dataset: str, epsilon: float, seed: int, divide: int, data_dir: Path | None
) -> dict[str, float]:
    """Rows of a real table, resampled; each population is its own truth."""
    people = PEOPLE[dataset] // divide
    table = population(dataset, people, seed, data_dir)
    machine = start("mixture", table.schema, epsilon, people, {"screen": "never"}, seed)
    simulate(machine, table.codes, np.random.default_rng([seed, 1]))
    return both_fits(machine, {w: truth(dataset, people, seed, data_dir, w) for w in (2, 3)}, seed)


def on_network(network: str, participants: int, epsilon: float, seed: int) -> dict[str, float]:
    """People drawn from a random network whose joint distribution is known."""
    known = generate_network(NETWORKS[network], strength=1.5, seed=seed)
    machine = start("mixture", known.schema, epsilon, participants, {"screen": "never"}, seed)
    redraw(machine, known, np.random.default_rng([seed, 1]))
    truths: dict[int, Truth] = {}
    for ways in (2, 3):
        every = list(combinations(known.schema.names, ways))
        chosen = np.random.default_rng(ways).choice(
            len(every), min(SETS, len(every)), replace=False
        )
        truths[ways] = [(list(every[i]), known.marginal(every[i])) for i in chosen]
    return both_fits(machine, truths, seed)


def left_out(network: str, participants: int, epsilon: float, seed: int) -> bool:
    """Attributes of three values are asked in pairs below epsilon 4; sixty attributes are slow, so they get a part of the grid."""
    return (network == "12 of three values" and epsilon < 4) or (
        network == "60 binary" and (epsilon in (1, 4) or seed > 1)
    )


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The two studies of one size."""
    full = size == "full"
    seeds = range(3 if full else 1)
    there = tables.names(data_dir, "NLTCS", "Adult")
    divide = 1 if full else 20
    networks = {"full": tuple(NETWORKS), "quick": ("12 binary",), "smoke": ("12 binary",)}[size]
    people = {"full": (50_000, 1_000_000), "quick": (50_000, 1_000_000), "smoke": (20_000,)}[size]
    real = Study(
        "tables",
        "Real tables",
        {"dataset": there, "epsilon": (0.5, 1.0, 2.0, 4.0, 8.0) if full else (8.0,), "seed": seeds},
        partial(on_table, divide=divide, data_dir=data_dir),
        skip=lambda dataset, epsilon, seed: (
            dataset == "Adult" and epsilon < 8
        ),  # there pairs are asked
        charts=tuple(
            Chart("epsilon", f"ratio_{w}", colour="dataset", panels=(), log_x=True, title=TITLES[w])
            for w in (2, 3)
        ),
        note="Adult is asked sets at epsilon 8 only.",
    )
    generated = Study(
        "networks",
        "Generated networks",
        {
            "network": networks,
            "participants": people,
            "epsilon": (1.0, 2.0, 4.0, 8.0) if full else (4.0,),
            "seed": range(1, 3 if full else 2),
        },
        on_network,
        skip=left_out,
        charts=tuple(
            Chart(
                "epsilon",
                f"ratio_{w}",
                colour="participants",
                panels=("network",),
                log_x=True,
                title=TITLES[w],
            )
            for w in (2, 3)
        ),
        note="Strength 1.5. Beyond 40 attributes the method itself fits pairs alone; 60 are here to show why.",
    )
    about = (
        "Mean total variation distances of pairs and triples when the whole tables of sets are fitted, and when the same reports "
        "are fitted through their pairs alone. Ratios below 1 speak for whole tables."
    )
    studies = (generated,) if size == "smoke" else (real, generated)
    return Bench("whole_tables", "Whole tables of sets, or their pairs alone", about, studies, size)
