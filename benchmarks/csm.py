"""Figures 2 to 6 of the CSM paper: compressed sensing against its rivals and newer ones, under one exact guarantee.

Trust model of everything here: central, a curator holds the table. Neighbours: one record added or removed. Every run
draws fresh noise and a fresh matrix from a recorded seed.

Data: Retail (50 items, from the data folder if present), Adult, and a GENERATED table with the published cardinalities of
TPC-E, whose rows were not available. The fourth table of the paper, AOL's query log, is not used: it was published by
mistake, people were identified from it, and a benchmark does not justify spreading it.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import tables
from benchmarks.tables import GENERATED
from benchmarks.workload import (
    Workload,
    mean_squared_errors,
    measured_usefulness,
    paper_usefulness,
    usefulness_bound,
)
from dither.central import (
    CENTRAL,
    CuratorTask,
    calibrate,
    discrete_laplace,
    noise_variance,
    observe,
    seeded_source,
)
from dither.central.csm import CsmParameters, compressed_sensing
from dither.central.linear import Cells
from dither.central.sensing import rows_for
from dither.lab.harness import Bench, Chart, NotAvailable, Size, Study
from dither.schema import count_cells

SEED = 20200401
SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
DENSE, AUTOMATIC, PAPER = (
    "csm, dense",
    "csm, dense, automatic tau",
    "csm, paper's noise (not private)",
)
METHODS = (
    "csm",
    DENSE,
    AUTOMATIC,
    "laplace",
    "threshold",
    "privelet",
    "hierarchical",
    "dawa",
    "fourier",
    "privbayes",
    "projection",
    "uniform",
)
FLAT = {
    "privelet": {"flatten": True},
    "hierarchical": {"flatten": True},
}  # the queries are ranges of the flattened domain
CHERNOFF, STATED = "laplace, Chernoff bound", "csm, the paper's proposition 2"
BOUNDED = (
    "csm",
    DENSE,
    STATED,
    "laplace",
    CHERNOFF,
    "privelet",
    "fourier",
    "privbayes",
)  # few enough lines to distinguish
PUBLIC_RECORDS = (
    50_000  # the public guess of a table's size from which CSM's automatic tau is chosen
)
TPCE_COLUMNS = {  # those whose cardinalities multiply to the domain size
    **{128: (0, 3, 2), 256: (0, 3, 2, 9), 512: (0, 3, 2, 9, 22), 1024: (0, 3, 2, 9, 22, 23)},
    **{2048: (0, 4, 3, 2), 4096: (0, 4, 3, 2, 9), 8192: (0, 4, 3, 2, 9, 22)},
}
PRINTED = CsmParameters(
    measurement="hadamard", dictionary="haar"
)  # a dense matrix and one dictionary, as the paper has it
Shape = tuple[int, ...]


# ---- data ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def counts_of(dataset: str, cells: int, data_dir: Path | None) -> tuple[np.ndarray, Shape]:
    """A table's histogram over columns whose cardinalities multiply to `cells`, a power of two."""
    if dataset == GENERATED:
        picked = list(TPCE_COLUMNS[cells])
        codes, shape = (
            tables.load(GENERATED).codes[:, picked],
            tuple(tables.TPCE[j] for j in picked),
        )
    elif dataset == "Adult":
        extra = cells.bit_length() - 8
        codes, shape = adult_codes()[:, : 2 + extra], (16, 8) + (2,) * extra
    else:
        items = cells.bit_length() - 1
        codes, shape = (
            _retail((data_dir or tables.BESIDE) / "retail50.parquet")[:, :items],
            (2,) * items,
        )
    return count_cells(codes, shape).ravel(), shape


@lru_cache(maxsize=1)
def _retail(path: Path) -> np.ndarray:
    import pyarrow.parquet as pq

    if not path.is_file():
        raise NotAvailable(f"{path.name} is not there; --data names its folder")
    table = pq.read_table(path)
    return np.stack([np.asarray(table.column(j)).astype(np.int64) for j in range(13)], axis=1)


@lru_cache(maxsize=1)
def adult_codes() -> np.ndarray:
    """Age in 16 bins, hours in 8, then yes-or-no columns: fixed public cuts."""
    from dither.datasets import load_dataset

    table = load_dataset("adult").table
    column = {name: np.asarray(table[name].to_pylist()) for name in table.column_names}
    age = ((column["age"].astype(np.int64) - 17) * 16 // 74).clip(0, 15)
    hours = ((column["hours_per_week"].astype(np.int64) - 1) * 8 // 99).clip(0, 7)
    flags = [
        column["sex"] == "Male",
        column["income"] == ">50K",
        column["marital_status"] == "Married-civ-spouse",
        column["education_num"].astype(np.int64) >= 10,
        column["race"] == "White",
        column["relationship"] == "Own-child",
    ]
    return np.stack([age, hours, *(flag.astype(np.int64) for flag in flags)], axis=1)


# ---- releases --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effort:
    """How many runs and queries a figure takes, and where Retail's table lies."""

    runs: int
    queries: int
    data_dir: Path | None = None

    def workload(self, cells: int) -> Workload:
        return Workload(cells, self.queries, SEED)


def one_release(
    method: str, counts: np.ndarray, shape: Shape, epsilon: float, tau: float, seed: int
) -> np.ndarray:
    """One run of a method, a baseline or the diagnostic."""
    rng, source = np.random.default_rng([seed, 1]), seeded_source(seed)
    task = CuratorTask(counts, epsilon, source, rng, shape=shape)
    dense = {"measurement": PRINTED.measurement, "dictionary": PRINTED.dictionary}
    if method == DENSE:
        return release("csm", task, tau=tau, **dense)
    if method == AUTOMATIC:
        return release("csm", task, records=PUBLIC_RECORDS, **dense)
    if method == "uniform":
        total = observe(Cells(1), counts.sum(keepdims=True), epsilon, source).values[0]
        return np.full(counts.size, total / counts.size)
    if method == PAPER:
        return paper_noise(counts, epsilon, tau, rng)[0]
    return release(method, task, **FLAT.get(method, {}))


def release(method: str, task: CuratorTask, **parameters: Any) -> np.ndarray:
    """The estimate of one method."""
    chosen = CENTRAL[method]
    return chosen.release(task, chosen.parameters(**parameters)).estimate


def paper_noise(
    counts: np.ndarray, epsilon: float, tau: float, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """CSM as printed, with noise of scale 1 / (tau epsilon) for columns of unit length: definition 5 with its 1 / tau. NOT
    epsilon-DP.

    The second value is the epsilon that this noise really gives: the exact L1 sensitivity over the scale.
    """
    drawn = compressed_sensing(counts.size, tau, rng, PRINTED)
    scale = Fraction(
        math.ceil(2**16 * drawn.matrix.unit * math.sqrt(drawn.matrix.rows) / (tau * epsilon)), 2**16
    )
    exact = drawn.measure(counts)
    noisy = exact + discrete_laplace(scale, exact.size, seeded_source(int(rng.integers(2**31))))
    return drawn.decode(noisy, noise_variance(scale)), float(
        drawn.sensitivity("add-remove") / scale
    )


def released(
    methods: tuple[str, ...], dataset: str, cells: int, epsilon: float, tau: float, effort: Effort
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """A row for each method and run, and each method's errors, queries by runs.

    One thread: the products are small, and threads would cost more than they save.
    """
    counts, shape = counts_of(dataset, cells, effort.data_dir)
    work, rows, raw = effort.workload(cells), [], {}
    estimates, seconds = [], []
    with threadpool_limits(1):
        for method in methods:
            for run in range(effort.runs):
                begin = time.process_time()
                estimates.append(one_release(method, counts, shape, epsilon, tau, SEED + run))
                seconds.append(time.process_time() - begin)
        errors = work.errors(counts, np.stack(estimates, axis=1))
    parts = mean_squared_errors(errors, work.linear)
    for i, method in enumerate(methods):
        raw[method] = errors[:, i * effort.runs : (i + 1) * effort.runs]
        for run in range(effort.runs):
            at = i * effort.runs + run
            rows.append(
                {"method": method, "seed": run, **_squares(parts, at), "cpu_s": seconds[at]}
            )
            rows[-1]["mse_cell"] = float(((estimates[at] - counts) ** 2).mean())
    return rows, raw


def _squares(parts: dict[str, np.ndarray], at: int) -> dict[str, float]:
    return {
        name: float(parts[key][at])
        for name, key in (("mse", "all"), ("mse_linear", "linear"), ("mse_range", "range"))
    }


# ---- figures ---------------------------------------------------------------------------------------------------------


def figure2(
    dataset: str, epsilon: float, cells: int, taus: tuple[float, ...], effort: Effort
) -> list[dict[str, Any]]:
    """Dense CSM's error against its compression ratio; what does not depend on it is repeated, to be drawn as level lines."""
    rows = []
    level, _ = released(
        ("csm", AUTOMATIC, "laplace", "uniform"), dataset, cells, epsilon, 0.3, effort
    )
    for tau in taus:
        own, _ = released((DENSE,), dataset, cells, epsilon, tau, effort)
        rows += [{**row, "tau": tau} for row in own + level]
    return rows


def compared(
    dataset: str,
    cells: int,
    epsilon: float,
    tau: float,
    effort: Effort,
    methods: tuple[str, ...] = METHODS,
) -> list[dict[str, Any]]:
    """Every method at one domain size and epsilon; the diagnostic also says the epsilon that it really gives."""
    rows, _ = released(methods, dataset, cells, epsilon, tau, effort)
    if PAPER in methods:
        counts, _ = counts_of(dataset, cells, effort.data_dir)
        real = paper_noise(counts, epsilon, tau, np.random.default_rng(SEED))[1]
        rows = [
            {**row, "real_epsilon": real if row["method"] == PAPER else epsilon} for row in rows
        ]
    return rows


def figure4(dataset: str, mus: tuple[float, ...], effort: Effort) -> list[dict[str, Any]]:
    """(mu, eta)-usefulness at 256 cells, tau 0.4, epsilon 1: measured, what theory allows, and what the paper states."""
    _, raw = released(METHODS, dataset, 256, 1.0, 0.4, effort)
    work = effort.workload(256)
    weights, scale = next(work.linear_blocks())[:20], calibrate(1, 1.0)
    rows: list[dict[str, Any]] = []
    for method, errors in raw.items():
        pairs = zip(
            mus,
            measured_usefulness(errors, mus),
            measured_usefulness(errors[: work.linear], mus),
            strict=True,
        )
        rows += [
            {"method": method, "mu": mu, "eta": float(a), "eta_linear": float(b)}
            for mu, a, b in pairs
        ]
    for mu in mus:
        bound = float(np.mean([usefulness_bound(w, scale, mu) for w in weights]))
        rows.append({"method": CHERNOFF, "mu": mu, "eta_linear": bound})
        stated = paper_usefulness(mu, 1.0, rows_for(0.4, 256))
        rows.append({"method": STATED, "mu": mu, "eta": stated, "eta_linear": stated})
    return rows


def figure6(cells: int, measurement: str, repeats: int) -> list[dict[str, Any]]:
    """CPU seconds of one CSM release of Adult plus answering queries; a first, unmeasured release warms up."""
    counts, _ = counts_of("Adult", cells, None)
    rows = []
    with threadpool_limits(1):
        for run in range(-1, repeats):
            begin = time.process_time()
            task = CuratorTask(
                counts, 0.1, seeded_source(run + 1), np.random.default_rng([SEED, run + 1])
            )
            made = release(
                "csm", task, tau=1.0 if measurement == "sparse" else 0.3, measurement=measurement
            )
            taken = time.process_time() - begin
            for queries in (64, 128, 256) if run >= 0 else ():
                begin = time.process_time()
                Workload(cells, queries, SEED).answers(made)
                rows.append(
                    {"queries": queries, "seed": run, "cpu_s": taken + time.process_time() - begin}
                )
    return rows


def by_queries(dataset: str, queries: int, method: str, effort: Effort) -> list[dict[str, Any]]:
    """Errors and answering time of one release's answers to more and more queries, 1,024 cells, epsilon 1 and tau 0.4."""
    counts, shape = counts_of(dataset, 1024, effort.data_dir)
    work, rows = Workload(1024, queries, SEED), []
    with threadpool_limits(1):
        for run in range(effort.runs):
            made = one_release(method, counts, shape, 1.0, 0.4, SEED + run)
            begin = time.process_time()
            answers = work.answers(np.stack([made, counts], axis=1))
            seconds = (time.process_time() - begin) / 2
            off = answers[:, 0] - answers[:, 1]
            rows.append(
                {
                    "seed": run,
                    "mse": float(np.mean(off**2)),
                    "largest_error": float(np.abs(off).max()),
                    "cpu_s": seconds,
                }
            )
    return rows


def settings(
    dataset: str, dictionary: str, measurement: str, total: str, effort: Effort
) -> list[dict[str, Any]]:
    """Dense CSM's own choices at 1,024 cells, epsilon 1 and tau 0.1."""
    counts, _ = counts_of(dataset, 1024, effort.data_dir)
    work = effort.workload(1024)
    with threadpool_limits(1):
        made = [
            release(
                "csm",
                CuratorTask(
                    counts, 1.0, seeded_source(SEED + run), np.random.default_rng([SEED, run])
                ),
                tau=0.1,
                measurement=measurement,
                dictionary=dictionary,
                total=total == "measured",
            )
            for run in range(effort.runs)
        ]
        parts = mean_squared_errors(work.errors(counts, np.stack(made, axis=1)), work.linear)
    return [{"seed": run, **_squares(parts, run)} for run in range(effort.runs)]


# ---- declaration -----------------------------------------------------------------------------------------------------


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The studies of one size. Without Retail's table the other two are used."""
    from benchmarks.central_studies import more_studies  # it measures with this module

    small, smoke = size != "full", size == "smoke"
    effort = {
        "full": Effort(20, 10_000, data_dir),
        "quick": Effort(3, 1_000, data_dir),
        "smoke": Effort(2, 200),
    }[size]
    here = ((data_dir or tables.BESIDE) / "retail50.parquet").is_file() and not smoke
    datasets = (*(("Retail",) if here else ()), "Adult", GENERATED)
    sizes = (128,) if smoke else (128, 1024, 8192) if small else SIZES
    tau = (
        (0.2, 0.6)
        if smoke
        else (0.1, 0.5, 0.9)
        if small
        else (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    )
    cells = 128 if smoke else 1024
    mus = tuple(
        float(f"{mu:.3g}") for mu in np.geomspace(1, 20_000, 6 if smoke else 16 if small else 32)
    )
    studies = (
        Study(
            name="figure2",
            title="Figure 2. CSM's error against its compression ratio",
            axes={"dataset": datasets, "epsilon": (1.0,) if smoke else (1.0, 0.5, 0.1)},
            measure=partial(figure2, cells=cells, taus=tau, effort=effort),
            labels=("tau",),
            charts=(Chart(x="tau", y="mse", panels=("dataset", "epsilon"), log_y=True),),
            note=f"{cells:,} cells. Only dense csm is drawn over tau; the others are level lines to compare it with.",
        ),
        Study(
            name="figure3",
            title="Figure 3. Error against the domain size",
            axes={"dataset": datasets, "cells": sizes},
            measure=partial(compared, epsilon=0.1, tau=0.3, effort=effort),
            charts=tuple(
                Chart(x="cells", y=y, log_x=True, log_y=True, title=words)
                for y, words in (
                    ("mse", "Mean squared error over all queries"),
                    ("mse_range", "Mean squared error over the ranges"),
                )
            ),
            note="Epsilon 0.1, tau 0.3. Uniform spreads a noisy total over the cells: what does not beat it has learnt nothing.",
        ),
        Study(
            name="few_records",
            title="Little signal: 8,192 cells at epsilon 0.01" if not smoke else "Little signal",
            axes={"dataset": datasets},
            measure=partial(compared, cells=128 if smoke else 8192, epsilon=0.01, tau=0.3, effort=effort),
            note="A large domain in which little stands above the noise, where measuring less can pay.",
        ),
        Study(
            name="figure4",
            title="Figure 4. Usefulness: share of answers that are off by mu or more",
            axes={"dataset": datasets},
            measure=partial(figure4, mus=mus, effort=effort),
            labels=("mu",),
            charts=(
                Chart(x="mu", y="eta", log_x=True, title="eta, all queries"),
                Chart(x="mu", y="eta_linear", log_x=True, title="eta, linear queries", only={"method": BOUNDED}),
            ),
            note="256 cells, tau 0.4, epsilon 1. The Chernoff bound holds for Laplace's linear queries.",
        ),
        Study(
            name="figure5",
            title="Figure 5. Error against epsilon",
            axes={"dataset": datasets, "epsilon": (0.5,) if smoke else (0.1, 0.9) if small else (0.1, 0.3, 0.5, 0.7, 0.9)},
            measure=partial(compared, cells=128 if smoke else 256, tau=0.4, effort=effort, methods=(*METHODS, PAPER)),
            charts=(Chart(x="epsilon", y="mse", log_y=True),),
            note="256 cells, tau 0.4. The paper's noise does not give the epsilon it is drawn for; real epsilon is what it gives.",
        ),
        Study(
            name="figure6",
            title="Figure 6. CPU seconds of a CSM release and its answers",
            axes={"cells": sizes, "measurement": ("sparse", "hadamard", "bernoulli", "gaussian", "fourier")},
            measure=partial(figure6, repeats=1 if small else 3),
            labels=("queries",),
            charts=(
                Chart(x="cells", y="cpu_s", colour="measurement", panels=(), log_x=True, log_y=True, only={"queries": (256,)},
                      title="CPU seconds with 256 answers"),
                Chart(x="queries", y="cpu_s", colour="measurement", panels=(), log_y=True, only={"cells": (sizes[-1],)},
                      title=f"CPU seconds with {sizes[-1]:,} cells"),
            ),
            note="Adult, epsilon 0.1; tau 0.3, sparse 1.",
        ),
        Study(
            name="queries",
            title="Figure 6's other axis. Errors and time over the number of queries",
            axes={
                "dataset": datasets,
                "queries": (16, 256) if small else (16, 64, 256, 1_024, 4_096, 16_384),
                "method": ("csm", DENSE, "laplace", "hierarchical"),
            },
            measure=partial(by_queries, effort=Effort(min(effort.runs, 5), effort.queries, data_dir)),
            charts=tuple(
                Chart(x="queries", y=y, panels=("dataset",), log_x=True, log_y=True)
                for y in ("mse", "largest_error")
            ),
            note="1,024 cells, epsilon 1, tau 0.4. A release is made once, and its noise does not depend on the queries: the mean "
            "error stays, the largest of many errors grows slowly.",
        ),
        Study(
            name="settings",
            title="Dense CSM's own choices",
            axes={
                "dataset": datasets[:1] if smoke else datasets,
                "dictionary": ("dct", "haar", "identity"),
                "measurement": ("hadamard",) if smoke else ("hadamard", "bernoulli", "gaussian"),
                "total": ("measured", "not measured"),
            },
            measure=partial(settings, effort=Effort(min(effort.runs, 10), effort.queries, data_dir)),
            note="1,024 cells, epsilon 1, tau 0.1; total says whether one row measures the number of records.",
        ),
        *more_studies(size, effort, datasets, sizes),
    )  # fmt: skip
    about = (
        "Trust model: central, a curator holds the table; neighbours differ by one record added or removed. "
        f"{effort.runs} runs, {effort.queries:,} queries (half random subsets of cells, half ranges). "
        "TPC-E's table is generated. AOL's query log is not used: it is a known privacy breach."
    )
    return Bench("csm", "CSM and its rivals", about, studies, size)
