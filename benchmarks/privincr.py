"""PrivIncr's evaluation, measured: table 2 and figures 3 to 7 (Liu, Tang, Hu, Jin, Guo, EDBT 2023).

Every method carries 2-, 3- and 4-way total variation and the CPU seconds from records to synthetic rows, and the product
of exact one-way marginals and the junction tree without privacy. Figure 3 compares joint estimators, figures 4 and 7 sweep
T, omega and phi, figure 6 trains an SVM on synthetic rows. Adult is resampled to 1.5 million participants as in the paper;
TPC-E's rows were not available.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.model_error import evaluate_model
from benchmarks.printed import by_epsilon
from benchmarks.rivals import RIVALS, rival_joint
from benchmarks.tables import PRODUCT, Table, exact_product
from benchmarks.tasks import classification, split_rows
from dither.evaluation.metrics import attribute_sets, marginal, tvd
from dither.fit import Model
from dither.lab.harness import Bench, Chart, Size, Study
from dither.methods import NONPRIVATE, bayesnet, calm, independent, lopub, privincr
from dither.methods.machine import Campaign, ProtocolMachine
from dither.schema import Schema
from dither.simulate import simulate

SEED = 20230328
POPULATION = 1_500_000
TREE = "junction tree without privacy"
LOPUB = "lopub"
SLOW = 100_000  # participants beyond which LoPub's EM over whole reports takes too long
PUBLISHED = {  # table 2, 2-way, 1.5 million participants, at the epsilons measured here
    name: {epsilon: value for epsilon, value in by_epsilon(method).items() if epsilon <= 30}
    for name, method in (
        ("privincr, as printed", "privincr"),
        ("noincremental, as printed", "noincremental"),
        (LOPUB, "lopub"),
    )
}
AS_PRINTED = {
    "threshold": "paper",
    "fit": "paper",
    "shares": "cells",
    "singles": 0.0,
    "mechanism": "oue",
}
SWEEPS: dict[str, tuple[float, ...]] = {
    "rounds": (1, 2, 4, 6, 8, 10),
    "omega": (0.1, 0.3, 0.5, 0.7, 0.9),
    "phi": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    "phi, threshold as printed": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
}
Start = Callable[[Campaign], ProtocolMachine]
METHODS: dict[str, Start] = {
    "privincr": lambda c: privincr.PrivIncr(c, privincr.PrivIncrParameters()),
    "privincr, fit=paper": lambda c: privincr.PrivIncr(c, privincr.PrivIncrParameters(fit="paper")),
    "privincr, as printed": lambda c: privincr.PrivIncr(
        c,
        privincr.PrivIncrParameters(rounds=6, **AS_PRINTED),  # type: ignore[arg-type]
    ),
    "noincremental": lambda c: privincr.NoIncremental(c, privincr.NoIncrementalParameters()),
    "noincremental, as printed": lambda c: privincr.NoIncremental(
        c,
        privincr.NoIncrementalParameters(**AS_PRINTED),  # type: ignore[arg-type]
    ),
    LOPUB: lambda c: lopub.LoPub(c, lopub.LoPubParameters()),
    "calm": lambda c: calm.Calm(c, calm.CalmParameters()),
    "fourier": lambda c: calm.Fourier(c, calm.FourierParameters()),
    "bayesnet, plan=sample": lambda c: bayesnet.BayesNetwork(
        c, bayesnet.BayesNetParameters(plan="sample")
    ),
    "independent": lambda c: independent.IndependentProtocol(
        c, independent.IndependentParameters()
    ),
}


def run_method(
    start: Start, table: Table, epsilon: float, seed: int
) -> tuple[ProtocolMachine, Model, float]:
    """One campaign, sampling as many rows as there are participants, and its CPU seconds."""
    begin = time.process_time()
    machine = start(Campaign(table.schema, epsilon, len(table.codes), seed))
    simulate(machine, table.codes, np.random.default_rng([SEED, seed, 1]))
    model = machine.model()
    model.sample(len(table.codes), np.random.default_rng([SEED, seed, 2]))
    return machine, model, time.process_time() - begin


def errors(model: Model, table: Table, ways: Sequence[int], sets: int) -> dict[str, float]:
    """Mean total variation of the model's k-way marginals."""
    found = evaluate_model(model, table.truth, ways, sets, np.random.default_rng(SEED))
    return {f"tvd_{k}": float(s.tvd) for k, s in found.items()}


@lru_cache(maxsize=32)
def without_noise(
    dataset: str, people: int, method: str, sets: int, data_dir: Path | None
) -> dict[str, float]:
    """The lines that no epsilon changes."""
    table = people_of(dataset, people, data_dir)
    plain = (
        exact_product(table)
        if method == PRODUCT
        else NONPRIVATE.fit(table.truth, table.schema, {}, no_privacy=True).model
    )
    return errors(plain, table, (2, 3, 4), sets)


def people_of(dataset: str, people: int, data_dir: Path | None, seed: int = 0) -> Table:
    """The table itself, a random part of it, or rows drawn with replacement if more participants are wanted."""
    table = tables.load(dataset, data_dir)
    if people > len(table.codes):
        return tables.resampled(dataset, people, seed, data_dir)
    return tables.part(dataset, people, data_dir)


def measure_method(
    dataset: str,
    people: int,
    epsilon: float,
    method: str,
    seed: int,
    sets: int,
    data_dir: Path | None,
) -> dict[str, Any]:
    """Table 2 and figure 5: one method at one epsilon."""
    if method in (PRODUCT, TREE):
        return without_noise(dataset, people, method, sets, data_dir)
    table = people_of(dataset, people, data_dir)
    machine, model, seconds = run_method(METHODS[method], table, epsilon, seed)
    return {
        **errors(model, table, (2, 3, 4), sets),
        "cpu_s": seconds,
        "edges": len(machine.diagnostics().to_json().get("edges", [])),
    }


def measure_estimator(
    dataset: str,
    people: int,
    attributes: int,
    epsilon: float,
    method: str,
    sets: int,
    data_dir: Path | None,
) -> dict[str, float]:
    """Figure 3: a joint estimator over random attribute sets of at most 2,000 cells."""
    table = tables.part(dataset, people, data_dir)
    rng, sizes = np.random.default_rng([SEED, attributes]), table.schema.cardinalities
    candidates = attribute_sets(len(table.schema), attributes, 40 * sets, rng)
    order = rng.permutation(len(candidates))
    narrow = [candidates[i] for i in order if np.prod([sizes[a] for a in candidates[i]]) <= 2_000][
        :sets
    ]
    return {
        "tvd": float(np.mean([_joint_error(table, s, method, epsilon) for s in narrow])),
        "sets": len(narrow),
    }


def _joint_error(table: Table, positions: tuple[int, ...], rival: str, epsilon: float) -> float:
    part = table.codes[:, positions]
    schema = Schema(tuple(table.schema.attributes[i] for i in positions))
    exact = marginal(part, schema.cardinalities, range(len(positions)))
    if rival == PRODUCT:
        return tvd(exact_product(Table("", schema, part, part)).marginal(schema.names), exact)
    rng = np.random.default_rng([SEED, *positions])
    return tvd(rival_joint(schema, part, rival, epsilon, rng, steps=200), exact)  # type: ignore[arg-type]


def measure_sweep(
    dataset: str,
    people: int,
    epsilon: float,
    parameter: str,
    value: float,
    seed: int,
    sets: int,
    data_dir: Path | None,
) -> dict[str, float]:
    """Figures 4 and 7: one value of one parameter, the others at their defaults."""
    table = people_of(dataset, people, data_dir)
    name, _, printed = parameter.partition(", ")
    given: dict[str, Any] = {name: int(value) if name == "rounds" else value}
    if printed:
        given["threshold"] = "paper"
    _, model, seconds = run_method(
        lambda c: privincr.PrivIncr(c, privincr.PrivIncrParameters(**given)),
        table,
        epsilon,
        seed,
    )
    return {**errors(model, table, (2, 3), sets), "cpu_s": seconds}


def measure_svm(
    dataset: str, people: int, epsilon: float, method: str, rows: int, data_dir: Path | None
) -> list[dict[str, Any]]:
    """Figure 6: accuracy on real rows of an SVM trained on synthetic, real or independent rows, and of guessing."""
    table = tables.part(dataset, min(people, len(tables.load(dataset, data_dir).codes)), data_dir)
    train, test = split_rows(table.codes, 0.2, np.random.default_rng(SEED))
    wanted = [t for t in ("income", "salary", "sex", "education") if t in table.schema.names]
    plain = method == PRODUCT
    if plain:
        model: Model = exact_product(Table("", table.schema, train, train))
    elif method == TREE:
        model = NONPRIVATE.fit(train, table.schema, {}, no_privacy=True).model
    else:
        drawn = np.asfortranarray(
            train[np.random.default_rng([SEED, 7]).integers(0, len(train), people)]
        )
        _, model, _ = run_method(METHODS[method], Table("", table.schema, drawn, train), epsilon, 0)
    scores = classification(
        table.schema,
        model.sample(rows, np.random.default_rng(SEED)),
        test,
        classifier="svm",
        real=train if plain else None,
        targets=wanted,
        seed=SEED,
        rows=rows,
    )
    out: list[dict[str, Any]] = [
        {"method": method, "target": s.target, "accuracy": s.synthetic} for s in scores
    ]
    if plain:
        out += [
            {"method": "real rows, no privacy", "target": s.target, "accuracy": s.real}
            for s in scores
        ]
        out += [
            {"method": "most frequent value", "target": s.target, "accuracy": s.majority}
            for s in scores
        ]
    return out


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """Declared for each size: quick leaves out the 1.5 million participants, smoke takes a part of the bundled Adult."""
    full, smoke = size == "full", size == "smoke"
    data_dir = Path("nowhere") if smoke else data_dir
    sets = 105 if full else 12
    largest = POPULATION if full else 3_000 if smoke else 45_222
    epsilons: tuple[float, ...] = (
        (1.0, 2.0, 4.0, 8.0, 30.0) if full else (1.0, 4.0) if size == "quick" else (8.0,)
    )
    published = tuple(
        {
            "dataset": "Adult",
            "participants": POPULATION,
            "epsilon": e,
            "method": method,
            "tvd_2": value,
        }
        for method, values in PUBLISHED.items()
        for e, value in values.items()
    )
    sizes = {"Adult": (45_222, POPULATION) if full else (largest,), "NLTCS": (21_574,)}
    some = ("privincr", "noincremental", "calm", "independent", PRODUCT)
    cases = [f"{d} at {n:,}" for d in tables.names(data_dir, "Adult", "NLTCS") for n in sizes[d]]

    def table_2(table: str, epsilon: float, method: str, seed: int) -> dict[str, Any]:
        dataset, people = table.split(" at ")
        n = int(people.replace(",", ""))
        row = measure_method(dataset, n, epsilon, method, seed, sets, data_dir)
        return {"dataset": dataset, "participants": n, **row}

    def figure_3(attributes: int, epsilon: float, method: str) -> dict[str, Any]:
        people = 45_222 if full else 1_000 if smoke else 5_000
        return {
            "dataset": "Adult",
            **measure_estimator(
                "Adult", people, attributes, epsilon, method, 20 if full else 2, data_dir
            ),
        }

    def figure_4(epsilon: float, sweep: str, seed: int) -> dict[str, Any]:
        parameter, value = sweep.split(" = ")
        row = measure_sweep(
            "Adult", largest, epsilon, parameter, float(value), seed, sets, data_dir
        )
        return {"parameter": parameter, "value": float(value), **row}

    def figure_6(epsilon: float, method: str) -> list[dict[str, Any]]:
        return measure_svm("Adult", largest, epsilon, method, 20_000 if full else 1_000, data_dir)

    sweeps = [
        f"{name} = {value:g}"
        for name, values in SWEEPS.items()
        for value in (values if full else values[1:2])
    ]
    everyone = ("privincr", "privincr, fit=paper", "noincremental", "calm", TREE, PRODUCT)
    compared = everyone if full else ("privincr", TREE, PRODUCT)
    by_way = tuple(
        Chart("epsilon", f"tvd_{k}", panels=("dataset", "participants"), log_x=True, log_y=True)
        for k in (2, 3, 4)
    )
    studies = (
        Study(
            "table_2",
            "Table 2 and figure 5. Mean total variation of 2-, 3- and 4-way marginals",
            {
                "table": cases,
                "epsilon": epsilons,
                "method": (*METHODS, PRODUCT, TREE) if not smoke else some,
                "seed": range(3 if full else 1),
            },
            table_2,
            ("participants",),
            by_way,
            skip=lambda table, epsilon, method, seed: (
                (method in (PRODUCT, TREE, LOPUB) and seed > 0)
                or (method == LOPUB and int(table.split(" at ")[1].replace(",", "")) > SLOW)
                or (
                    size == "quick"
                    and table.startswith("NLTCS")
                    and (method not in some or epsilon < 4)
                )
            ),
            known=published if full else (),
        ),
        Study(
            "figure_3",
            "Figure 3. Joint estimators of 2, 3 and 4 attributes",
            {
                "attributes": (2, 3, 4) if not smoke else (2,),
                "epsilon": epsilons,
                "method": (*RIVALS, PRODUCT),
            },
            figure_3,
            charts=(Chart("epsilon", "tvd", panels=("attributes",), log_x=True),),
        ),
        Study(
            "figure_4",
            "Figures 4 and 7. Error and CPU seconds while one parameter varies",
            {
                "epsilon": (1.0, 4.0, 8.0) if full else (4.0,),
                "sweep": sweeps,
                "seed": range(2 if full else 1),
            },
            figure_4,
            ("value",),
            tuple(
                Chart("value", y, colour="epsilon", panels=("parameter",))
                for y in ("tvd_3", "cpu_s")
            ),
        ),
        Study(
            "figure_6",
            "Figure 6. Accuracy of an SVM on real rows",
            {"epsilon": epsilons if full else epsilons[-1:], "method": compared},
            figure_6,
            charts=(Chart("epsilon", "accuracy", panels=("target",), log_x=True),),
        ),
    )
    about = "PrivIncr and the methods it is measured against; one simulated participant per record."
    return Bench("privincr", "PrivIncr, measured", about, studies, size)
