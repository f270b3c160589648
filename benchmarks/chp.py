"""Figures 1 to 7 of the CHP paper, with `smart` and the paper's methods.

Data: the paper's own Baltimore salaries and a San Francisco table (not the paper's) from the data folder if
present; otherwise a GENERATED log-normal salary table, labelled as such. New York's table was not available. Errors are mean
squared errors of counts over all bins of a consumer, averaged over consumers, and over runs with fresh noise from a recorded
seed. `sue` is the paper's mechanism (basic RAPPOR), `best` picks one by cells and epsilon.
"""

from __future__ import annotations

import json
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import BESIDE
from dither._histogram import collect, histogram
from dither.fit import normal_interval
from dither.lab.harness import Bench, Chart, Size, Study
from dither.methods.histogram.consumer import (
    Consumer,
    Partition,
    ValueGroup,
    gather,
    read_consumers,
    union,
)
from dither.methods.histogram.estimates import ConsumerCounts
from dither.methods.histogram.smart import choose

SEED = 20210208
GROUPS = {1: (10,), 3: (3, 5, 7), 5: (3, 5, 7, 10, 15)}  # by number of consumers
THREE = GROUPS[3]
PAPER_EPSILONS = (3.0, 6.0, 9.0, 12.0, 15.0, 18.0)
SMALL_EPSILONS = (0.5, 1.0, 2.0)
METHODS = {
    "split, sue": ("split", "sue"),
    "sampled, sue": ("sampled", "sue"),
    "chp, sue": ("chp", "sue"),
    "split, best": ("split", "best"),
    "chp, best": ("chp", "best"),
    "smart": ("smart", "best"),
}
SALARIES = {
    "Baltimore": ("salary_baltimore", "annual_salary"),
    "San Francisco": ("salary_sf", "total_pay"),
}
GENERATED = "GENERATED log-normal salaries"


# ---- data ------------------------------------------------------------------------------------------------------------


def names(data_dir: Path | None) -> tuple[str, ...]:
    """The salary tables that are there, or the generated one."""
    here = data_dir or BESIDE
    return tuple(
        n for n, (file, _) in SALARIES.items() if (here / f"{file}.parquet").is_file()
    ) or (GENERATED,)


@lru_cache(maxsize=2)
def salaries(dataset: str, data_dir: Path | None) -> tuple[np.ndarray, float, float]:
    """Salaries with their public range."""
    import pyarrow.parquet as pq

    if dataset == GENERATED:
        values = np.random.default_rng(SEED).lognormal(10.8, 0.5, 13_683).clip(1_800, 250_000)
        return values, 1_800.0, 250_000.0
    file, column = SALARIES[dataset]
    here = data_dir or BESIDE
    domain = json.loads((here / f"{file}.domain.json").read_text(encoding="utf-8"))[column]
    values = pq.read_table(here / f"{file}.parquet")[column].to_numpy()
    return values, float(domain["min"]), float(domain["max"])


class Collection:
    """One table's people in the cells of one group of consumers."""

    def __init__(self, values: np.ndarray, low: float, high: float, bins: tuple[int, ...]) -> None:
        self.consumers: tuple[Consumer, ...] = read_consumers(bins, low, high)
        self.partition: Partition = union(self.consumers, low, high)
        self.people: ValueGroup = gather(values, self.partition, reports=False)
        self.truth = [self.partition.membership(c) @ self.people.by_cell for c in self.consumers]

    def answer(self, method: str, epsilon: float, rng: np.random.Generator) -> ConsumerCounts:
        way, mechanism = METHODS[method]
        given = {"mechanism": mechanism}
        return collect(
            way, self.people, self.consumers, self.partition, epsilon, rng, given
        ).answer()

    def errors(self, method: str, epsilon: float, runs: int, key: int) -> np.ndarray:
        """Mean squared error of each consumer (columns) in each run (rows)."""
        out = np.empty((runs, len(self.consumers)))
        for run in range(runs):
            answer = self.answer(method, epsilon, np.random.default_rng([SEED, key, run]))
            out[run] = [
                np.mean((c - t) ** 2) for c, t in zip(answer.counts, self.truth, strict=True)
            ]
        return out


@lru_cache(maxsize=4)
def collection(dataset: str, bins: tuple[int, ...], data_dir: Path | None) -> Collection:
    """A table's people, binned once."""
    return Collection(*salaries(dataset, data_dir), bins)


# ---- figures ---------------------------------------------------------------------------------------------------------


def counts(dataset: str, data_dir: Path | None) -> list[dict[str, Any]]:
    """Figures 1 to 3: one collection at epsilon 15, truth and estimates of the 3, 5 and 7 bins, one row per bin."""
    people = collection(dataset, THREE, data_dir)
    answers = {m: people.answer(m, 15.0, np.random.default_rng([SEED, 1])).counts for m in METHODS}
    return [
        {
            "consumer": f"{len(consumer.edges) - 1} bins",
            "bin": f"{consumer.edges[b]:,.0f} to {consumer.edges[b + 1]:,.0f}",
            "truth": float(people.truth[place][b]),
            **{method: float(found[place][b]) for method, found in answers.items()},
        }
        for place, consumer in enumerate(people.consumers)
        for b in range(len(consumer.edges) - 1)
    ]


def errors(
    dataset: str, epsilon: float, consumers: int, runs: int, key: int, data_dir: Path | None
) -> list[dict[str, Any]]:
    """Figures 4 and 5: the error averaged over the consumers, one row per method and run."""
    people = collection(dataset, GROUPS[consumers], data_dir)
    return [
        {"method": method, "seed": run, "mse": float(value)}
        for method in METHODS
        for run, value in enumerate(people.errors(method, epsilon, runs, key).mean(axis=1))
    ]


def by_consumer(
    dataset: str, epsilon: float, runs: int, data_dir: Path | None
) -> list[dict[str, Any]]:
    """Figure 7: the error of each of the 3-, 5- and 7-bin consumers."""
    people = collection(dataset, THREE, data_dir)
    return [
        {
            "method": method,
            "seed": run,
            **{f"mse_{b}_bins": float(v) for b, v in zip(THREE, values, strict=True)},
        }
        for method in METHODS
        for run, values in enumerate(people.errors(method, epsilon, runs, 7))
    ]


def bits(consumers: int) -> list[dict[str, Any]]:
    """Figure 6: bits that a participant sends; with sue one per cell of the union (CHP) or per bin of every consumer (split)."""
    group = read_consumers(GROUPS[consumers], 0.0, 1.0)
    partition, rng = union(group, 0.0, 1.0), np.random.default_rng(SEED)
    people = ValueGroup(np.ones(partition.cells, np.int64))
    return [
        {
            "method": method,
            "bits": collect(
                way, people, group, partition, 15.0, rng, {"mechanism": mechanism}
            ).bits,
            "cells_of_union": partition.cells,
        }
        for method, (way, mechanism) in METHODS.items()
        if method in ("chp, sue", "split, sue", "chp, best", "smart")
    ]


def coverage(
    dataset: str, epsilon: float, runs: int, data_dir: Path | None
) -> list[dict[str, Any]]:
    """How often 95 % intervals hold the truth, over all bins of the 3, 5 and 7; and the lowest and highest bin."""
    people, out = collection(dataset, THREE, data_dir), []
    for method in METHODS:
        hits = np.zeros(sum(THREE))
        for run in range(runs):
            answer = people.answer(method, epsilon, np.random.default_rng([SEED, 8, run]))
            inside = []
            for count, variance, truth in zip(
                answer.counts, answer.variances, people.truth, strict=True
            ):
                low, high = normal_interval(count, np.sqrt(variance), 0.95)
                inside.append((low <= truth) & (truth <= high))
            hits += np.concatenate(inside)
        share = hits / runs
        row = {"coverage": share.mean(), "lowest_bin": share.min(), "highest_bin": share.max()}
        out.append({"method": method, **{k: float(v) for k, v in row.items()}})
    return out


def smart_gain(bins: str, epsilon: float) -> dict[str, Any]:
    """What smart promises against CHP with `best`, from the queries alone: the variance saved in each consumer's worst cell."""
    consumers = read_consumers(tuple(int(b) for b in bins.split(", ")), 0.0, 1.0)
    partition = union(consumers, 0.0, 1.0)
    begin = time.process_time()
    choice = choose(partition, consumers, epsilon, "best")
    return {
        "mechanism": choice.mechanism.name,
        "variance_ratios": ", ".join(f"{ratio:.2f}" for ratio in choice.ratios),  # one per consumer
        "cells": partition.cells,
        "gain": choice.gain,
        "cpu_s": time.process_time() - begin,
    }


@lru_cache(maxsize=1)
def _many(values: int) -> np.ndarray:
    return np.random.default_rng(SEED).lognormal(10.8, 0.5, values).clip(0, 250_000)


def cost(method: str, epsilon: float, path: str, values: int) -> dict[str, float]:
    """CPU seconds to bin and randomise many values, by counts or with every person's report made.

    The second of two calls: the first designs and compiles.
    """
    way, mechanism = METHODS[method]
    given = {
        "consumers": THREE,
        "epsilon": epsilon,
        "low": 0,
        "high": 250_000,
        "seed": SEED,
        "path": path,
    }
    seconds = 0.0
    for many in (_many(values)[:1000], _many(values)):
        begin = time.process_time()
        histogram(many, method=way, parameters={"mechanism": mechanism}, **given)  # type: ignore[arg-type]
        seconds = time.process_time() - begin
    return {"cpu_s": seconds, "cpu_s_per_million": seconds / values * 1e6}


# ---- declaration -----------------------------------------------------------------------------------------------------


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The studies of one size; the quick one takes one table."""
    full, smoke = size == "full", size == "smoke"
    found = (GENERATED,) if smoke else names(data_dir)
    datasets = found if full else found[:1]
    runs = {"full": 200, "quick": 20, "smoke": 8}[size]  # the paper took 20
    collections = {"full": 1000, "quick": 100, "smoke": 20}[size]
    epsilons = (1.0, 3.0, 15.0) if smoke else SMALL_EPSILONS + PAPER_EPSILONS
    groups = (1, 3) if smoke else tuple(GROUPS)
    values = {"full": 10_000_000, "quick": 1_000_000, "smoke": 20_000}[size]
    studies = (
        Study(
            name="figures_1_to_3",
            title="Figures 1 to 3. True and estimated counts at epsilon 15",
            axes={"dataset": datasets},
            measure=partial(counts, data_dir=data_dir),
            note="One collection, consumers with 3, 5 and 7 bins.",
        ),
        Study(
            name="figure4",
            title="Figure 4. Error against epsilon",
            axes={"dataset": datasets, "epsilon": epsilons},
            measure=partial(errors, consumers=3, runs=runs, key=4, data_dir=data_dir),
            charts=(Chart(x="epsilon", y="mse", log_y=True),),
            note="Mean squared error of a count, consumers with 3, 5 and 7 bins. Epsilon below 3 is not in the paper.",
        ),
        Study(
            name="figure5",
            title="Figure 5. Error against the number of consumers",
            axes={"dataset": datasets, "epsilon": (15.0, 1.0), "consumers": groups},
            measure=partial(errors, runs=runs, key=5, data_dir=data_dir),
            charts=(Chart(x="consumers", y="mse", panels=("dataset", "epsilon"), log_y=True),),
            note="One consumer has 10 bins, three have 3, 5 and 7, five have 10 and 15 besides.",
        ),
        Study(
            name="figure6",
            title="Figure 6. Bits that a participant sends",
            axes={"consumers": groups},
            measure=bits,
            charts=(Chart(x="consumers", y="bits", panels=()),),
        ),
        Study(
            name="figure7",
            title="Figure 7. Error of each consumer",
            axes={"dataset": datasets, "epsilon": (15.0,) if smoke else (15.0, 3.0, 1.0)},
            measure=partial(by_consumer, runs=runs, data_dir=data_dir),
            note="The paper finds that the error does not depend on the query. It does.",
        ),
        Study(
            name="coverage",
            title="How often 95 % intervals hold the truth",
            axes={"dataset": datasets[:1], "epsilon": (1.0, 3.0, 15.0)},
            measure=partial(coverage, runs=collections, data_dir=data_dir),
            note=f"{collections:,} collections, 15 bins. At epsilon 15 randomised response hardly ever errs, and no interval "
            "around an exact count can miss one time in twenty.",
        ),
        Study(
            name="smart_gain",
            title="What smart promises, from the queries alone",
            axes={
                "bins": ("3, 5, 7", "3, 5, 7, 10, 15", "16, 17, 19, 23") if full else ("3, 5, 7",),
                "epsilon": (1.0, 3.0) if smoke else (0.5, 1.0, 2.0, 3.0, 5.0),
            },
            measure=smart_gain,
            charts=(Chart(x="epsilon", y="gain", colour="bins", panels=()),),
            note="The share of variance that smart saves against CHP with the best mechanism.",
        ),
        Study(
            name="cost",
            title="CPU seconds of many values",
            axes={
                "method": ("chp, sue", "chp, best", "smart"),
                "epsilon": (1.0, 3.0),
                "path": ("counts", "reports"),
                "values": (values,),
            },
            measure=cost,
            note="Consumers with 3, 5 and 7 bins; counts draws each bin's tally, reports makes every person's report. Planning and "
            "compiling are not counted.",
        ),
    )
    about = (
        f"{runs} runs per figure. Each value is one simulated participant. Baltimore is the paper's own table, San Francisco "
        "another one than the paper's; without them a generated log-normal table is used."
    )
    return Bench("chp", "CHP: one histogram collection for many consumers", about, studies, size)
