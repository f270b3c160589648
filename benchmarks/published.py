"""The papers' methods with their own parameters (`--as-published`), next to the printed figures and to the defaults.

PrivIncr's table 2 and figure 4a, its tree without privacy in nats and in bits, and the methods on Adult, NLTCS and Retail.
One seed each.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import privincr, tables
from benchmarks.printed import by_epsilon
from benchmarks.privincr import POPULATION, errors, people_of
from benchmarks.rivals import central_jtree
from dither.central import seeded_source
from dither.lab.harness import Bench, Chart, Size, Study
from dither.methods import NONPRIVATE, published_parameters, start
from dither.methods.published import SUFFIX
from dither.simulate import simulate

SEED = 20231128
LOPUB, TREE = "lopub", "junction tree without privacy"
# PrivIncr's table 2: 2-way total variation on Adult.
TABLE_2 = {method: by_epsilon(method) for method in (LOPUB, "noincremental", "privincr")}
# LoPub as published asks a tenth of the real rows, as its authors did.
PEOPLE = {LOPUB + SUFFIX: 45_222}
# A clique is asked whole, however large: algorithm 2 names no size for which it is split.
WHOLE = {"factor_cells": 2_000_000}
RULES: dict[str, dict[str, Any]] = {
    "eq. 15 in bits, cliques whole": {"weights": "variance", **WHOLE},
    "eq. 15 in bits, cliques split": {"weights": "variance"},
    "eq. 15 in bits, split, weights of eq. 6": {},
    "eq. 15 in nats, cliques whole": {"unit": "nats", "weights": "variance", **WHOLE},
    "eq. 18, cliques split": {"threshold": "paper", "weights": "variance"},
}


# Cells of the largest factor of a clique that is asked, algorithm 2's sigma; the paper names no value.
SIGMAS = (64, 256, 1_000, 4_000, 16_000, 100_000)
JTREE = "JTree (central)"


def measure(
    dataset: str,
    people: int,
    method: str,
    epsilon: float,
    more: dict[str, Any],
    sets: int,
    data_dir: Path | None,
) -> dict[str, Any]:
    """One campaign of a method, or of a method as published, and its errors."""
    table = people_of(dataset, people, data_dir)
    name = method.removesuffix(SUFFIX)
    parameters: dict[str, Any] = dict(more)
    if method.endswith(SUFFIX):
        parameters = published_parameters(name, more, table.schema.cardinalities)
    begun = time.process_time()
    machine = start(name, table.schema, epsilon, len(table.codes), parameters, seed=SEED)
    simulate(machine, table.codes, np.random.default_rng([SEED, 1]))
    model = machine.model()
    found = errors(model, table, (2, 3), sets)
    facts = machine.diagnostics().to_json()
    edges = {"edges": len(facts["edges"])} if "edges" in facts else {}
    return {**found, **edges, "cpu_s": time.process_time() - begun}


def trees_with_noise(
    method: str, epsilon: float, people: int, sets: int, data_dir: Path | None
) -> dict[str, Any]:
    """LoPub and its central rival on the same rows; the guarantees differ: a curator against none."""
    if method != JTREE:
        return measure("Adult", people, method, epsilon, {}, sets, data_dir)
    table = people_of("Adult", people, data_dir)
    begun = time.process_time()
    made = central_jtree(table.schema, table.codes, epsilon, seeded_source(SEED))
    row = {**errors(made.model, table, (2, 3), sets), "edges": made.edges}
    return {**row, "cpu_s": time.process_time() - begun}


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The studies of one size; smoke takes a part of the bundled Adult."""
    full, smoke = size == "full", size == "smoke"
    data_dir = Path("nowhere") if smoke else data_dir
    sets = 105 if full else 6
    largest = POPULATION if full else 3_000 if smoke else 45_222
    epsilons = (1.0, 2.0, 4.0, 8.0, 30.0, 165.0, 442.0) if full else (8.0,)
    known = tuple(
        {"method": method + SUFFIX, "epsilon": epsilon, "tvd_2": value}
        for method, values in TABLE_2.items()
        for epsilon, value in values.items()
    )

    def table_2(method: str, epsilon: float) -> dict[str, Any]:
        people = min(PEOPLE.get(method, POPULATION), largest)
        return measure("Adult", people, method, epsilon, {}, sets, data_dir)

    def rounds(rule: str, epsilon: float, rounds: int) -> dict[str, Any]:
        more = {"rounds": rounds, **RULES[rule]}
        return measure("Adult", largest, "privincr" + SUFFIX, epsilon, more, sets, data_dir)

    def trees(unit: str) -> dict[str, Any]:
        table = privincr.people_of("Adult", largest, data_dir)
        fitted = NONPRIVATE.fit(table.truth, table.schema, {"unit": unit}, no_privacy=True)
        edges = fitted.diagnostics.to_json()["edges"]
        return {**errors(fitted.model, table, (2, 3), sets), "edges": len(edges)}

    def methods(dataset: str, method: str, epsilon: float) -> dict[str, Any]:
        people = len(tables.load(dataset, data_dir).codes)
        return measure(dataset, min(people, largest), method, epsilon, {}, sets, data_dir)

    datasets = tables.names(data_dir, "Adult", "NLTCS", "Retail") if not smoke else ("Adult",)
    compared = [f"{m}{end}" for m in ("lopub", "bayesnet", "privincr") for end in (SUFFIX, "")]
    studies = (
        Study(
            "table_2",
            "PrivIncr's table 2: mean total variation of pairs, Adult",
            {"method": [m + SUFFIX for m in TABLE_2], "epsilon": epsilons},
            table_2,
            charts=(Chart("epsilon", "tvd_2", panels=(), log_x=True, log_y=True),),
            known=known if full else (),
            note="1.5 million participants, except for lopub@published, which asks a tenth of 45,222.",
        ),
        Study(
            "rounds",
            "PrivIncr's figure 4a: error and the number of rounds, by the rule that keeps pairs",
            {
                "rule": list(RULES) if not smoke else list(RULES)[:1],
                "epsilon": (1.0, 4.0, 8.0) if full else (8.0,),
                "rounds": (1, 2, 4, 6, 10) if full else (1, 2),
            },
            rounds,
            charts=(Chart("rounds", "tvd_2", colour="rule", panels=("epsilon",)),),
            note="Weights are inverse to the variance unless eq. 6 is named.",
        ),
        Study(
            "trees",
            "The junction tree of the true table (NoPrivJTree), information in nats and in bits",
            {"unit": ("nats", "bits")},
            trees,
        ),
        Study(
            "methods",
            "Methods as published and by default",
            {
                "dataset": datasets,
                "method": compared if not smoke else compared[:2],
                "epsilon": (1.0, 4.0, 8.0) if full else (8.0,),
            },
            methods,
            charts=(Chart("epsilon", "tvd_2", log_x=True),),
            note="Each row of a table is one participant.",
        ),
        Study(
            "sigma",
            "PrivIncr's table 2 at epsilon 1, by the size of factor for which a clique is split (sigma of algorithm 2)",
            {
                "method": [m + SUFFIX for m in ("noincremental", "privincr")],
                "weights": ("variance", "paper"),
                "search": ("greedy", "exhaustive"),
                "sigma": SIGMAS if full else SIGMAS[:1],
            },
            lambda method, weights, search, sigma: measure(
                "Adult",
                largest,
                method,
                1.0,
                {"weights": weights, "search": search, "factor_cells": sigma},
                sets,
                data_dir,
            ),
            skip=lambda method, weights, search, sigma: search != "greedy" and weights == "paper",
            charts=(Chart("sigma", "tvd_2", panels=("weights", "search"), log_x=True, log_y=True),),
            known=tuple(
                {
                    "method": method,
                    "weights": "variance",
                    "search": "greedy",
                    "sigma": sigma,
                    "tvd_2": value,
                }
                for method, value in (
                    ("noincremental, table 2", 0.46),
                    ("privincr, table 2", 0.162),
                )
                for sigma in (SIGMAS[0], SIGMAS[-1])
            )
            if full
            else (),
            note="The paper names no sigma. Its two figures at epsilon 1, drawn as level lines, need different ones.",
        ),
        Study(
            "other_tables",
            "PrivIncr as published and by default on NLTCS and Retail, 1.5 million participants",
            {
                "dataset": [d for d in datasets if d != "Adult"] or datasets,
                "method": [*(m + SUFFIX for m in ("noincremental", "privincr")), "privincr"],
                "epsilon": (1.0, 2.0, 4.0, 8.0, 30.0) if full else (8.0,),
            },
            lambda dataset, method, epsilon: measure(
                dataset, largest, method, epsilon, {}, sets, data_dir
            ),
            charts=tuple(
                Chart("epsilon", y, panels=("dataset",), log_x=True, log_y=True)
                for y in ("tvd_2", "tvd_3")
            ),
            note="The paper has Adult and TPC-E. Participants are drawn from the tables with replacement.",
        ),
        Study(
            "jtree",
            "LoPub next to its central rival JTree, Adult",
            {
                "method": (JTREE, LOPUB, LOPUB + SUFFIX) if not smoke else (JTREE,),
                "epsilon": (0.1, 1.0, 4.0, 8.0) if full else (8.0,),
            },
            lambda method, epsilon: trees_with_noise(
                method, epsilon, min(45_222, largest), sets, data_dir
            ),
            skip=lambda method, epsilon: method != JTREE and epsilon < 1,
            charts=(Chart("epsilon", "tvd_2", panels=(), log_x=True, log_y=True),),
            note="45,222 records. JTree's curator holds the table; LoPub's does not. Table 1 of LoPub compares them by features "
            "only.",
        ),
        Study(
            "lopub",
            "LoPub with Dither's defaults and 1.5 million participants, Adult",
            {"epsilon": (1.0, 2.0, 4.0, 8.0) if full else (8.0,)},
            lambda epsilon: table_2(LOPUB, epsilon),
            note="Unary bits, converged EM, the noise-aware test.",
        ),
    )
    about = (
        "Every method with its paper's parameters, one seed; epsilon is that of the whole record."
    )
    return Bench("published", "The papers' methods as published", about, studies, size)
