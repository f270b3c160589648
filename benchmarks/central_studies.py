"""Beyond the CSM paper's figures: the forms of csm, a sparse table, ranges in one and two dimensions, records, and a peer.

Trust model of everything here: central, except the record form, which is local.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import csm, tables
from benchmarks.csm import PUBLIC_RECORDS, SEED, Effort, Shape, counts_of, release
from benchmarks.workload import mean_squared_errors
from dither.central import CuratorTask, seeded_source
from dither.central.records import RecordParameters, release_records
from dither.lab.harness import Chart, NotAvailable, Size, Study
from dither.schema import count_cells

CHOSEN = "csm, everything chosen"
FORMS: dict[str, dict[str, Any]] = {
    CHOSEN: {},
    **{
        f"{name}, a row a cell": {"dictionary": name}
        for name in ("identity", "haar", "dct", "walsh")
    },
    **{
        f"{d} entries, tau {tau}": {"entries": d, "tau": tau}
        for d, tau in ((2, 0.3), (4, 0.3), (4, 0.6), (8, 0.3))
    },
}
NARROW = "dense, identity, 128 rows"
SPARSE: dict[str, tuple[str, dict[str, Any]]] = {
    "csm": ("csm", {}),
    "4 entries, 1,024 rows": ("csm", {"entries": 4, "tau": 1024 / 65_536}),
    NARROW: ("csm", {"measurement": "hadamard", "dictionary": "identity", "tau": 128 / 65_536}),
    csm.AUTOMATIC: (
        "csm",
        {"measurement": "hadamard", "dictionary": "haar", "records": PUBLIC_RECORDS},
    ),
    "laplace": ("laplace", {}),
    "threshold": ("threshold", {}),
}
LINE: dict[str, tuple[str, dict[str, Any]]] = {
    "laplace": ("laplace", {}),
    "privelet": ("privelet", {}),
    "hierarchical, 2 children": ("hierarchical", {"branching": 2}),
    "hierarchical (HB)": ("hierarchical", {}),
    "dawa": ("dawa", {}),
    "csm": ("csm", {}),
}
PLANE: dict[str, tuple[str, dict[str, Any]]] = {
    "laplace": ("laplace", {}),
    "privelet, flattened": ("privelet", {"flatten": True}),
    "hierarchical, flattened": ("hierarchical", {"flatten": True}),
    "hierarchical (HB)": ("hierarchical", {}),
    "agrid": ("agrid", {}),
    "dawa": ("dawa", {}),
    "csm": ("csm", {}),
    "privbayes": ("privbayes", {}),
}
MST = "dpmm MST, delta 1e-9"
Error = Callable[[np.ndarray], dict[str, float]]


def _task(counts: np.ndarray, shape: Shape, epsilon: float, run: int) -> CuratorTask:
    return CuratorTask(
        counts, epsilon, seeded_source(SEED + run), np.random.default_rng([SEED, run]), shape=shape
    )


def _measured(
    methods: dict[str, tuple[str, dict[str, Any]]],
    counts: np.ndarray,
    shape: Shape,
    epsilon: float,
    runs: int,
    error: Error,
) -> list[dict[str, Any]]:
    rows = []
    with threadpool_limits(1):
        for label, (name, parameters) in methods.items():
            for run in range(runs):
                made = release(name, _task(counts, shape, epsilon, run), **parameters)
                rows.append({"method": label, "seed": run, **error(made)})
    return rows


def forms(dataset: str, cells: int, epsilon: float, effort: Effort) -> list[dict[str, Any]]:
    """Every form of csm on a table of figure 3; `worse` is the error over that of the best form with the same noise on average."""
    counts, shape = counts_of(dataset, cells, effort.data_dir)
    work = effort.workload(cells)

    def error(made: np.ndarray) -> dict[str, float]:
        return {"mse": float(mean_squared_errors(work.errors(counts, made), work.linear)["all"][0])}

    rows = _measured(
        {name: ("csm", given) for name, given in FORMS.items()},
        counts,
        shape,
        epsilon,
        effort.runs,
        error,
    )
    mean = {name: np.mean([row["mse"] for row in rows if row["method"] == name]) for name in FORMS}
    best = min(mean.values())
    return [{**row, "worse": float(mean[row["method"]] / best)} for row in rows]


def sparse(epsilon: float, cells: int, runs: int) -> list[dict[str, Any]]:
    """Ten cells that hold a thousand records each, and nothing else."""
    counts = np.zeros(cells, dtype=np.int64)
    counts[np.random.default_rng(SEED).choice(cells, 10, replace=False)] = 1000
    return _measured(
        SPARSE,
        counts,
        (cells,),
        epsilon,
        runs,
        lambda made: {"squared_error": float(((made - counts) ** 2).sum())},
    )


def line(table: str, cells: int) -> np.ndarray:
    """Generated counts along a line: three clusters, flat steps, a few spikes, or a long tail."""
    rng = np.random.default_rng(SEED)
    if table == "steps":
        return rng.poisson(np.repeat([0, 30, 2, 0, 80, 5, 0, 1], cells // 8))
    if table == "spikes":
        return np.bincount(rng.choice(rng.choice(cells, 30), 20_000), minlength=cells)
    if table == "tail":
        values = rng.gamma(3, cells / 20, 100_000)
    else:
        values = np.concatenate(
            [rng.normal(at * cells, cells / 200, 20_000) for at in (0.12, 0.44, 0.73)]
        )
    return np.bincount(values.astype(int).clip(0, cells - 1), minlength=cells)


def ranges(table: str, epsilon: float, cells: int, effort: Effort) -> list[dict[str, Any]]:
    """Ranges of one ordered column."""
    counts, work = line(table, cells), effort.workload(cells)

    def error(made: np.ndarray) -> dict[str, float]:
        return {
            "mse_range": float(
                mean_squared_errors(work.errors(counts, made), work.linear)["range"][0]
            )
        }

    return _measured(LINE, counts, (cells,), epsilon, effort.runs, error)


def boxes(table: str, epsilon: float, side: int, effort: Effort) -> list[dict[str, Any]]:
    """Rectangles of two ordered columns."""
    rng = np.random.default_rng(SEED)
    if table == "clusters":
        at = [
            rng.normal((0.3 * side, 0.5 * side), side / 12, (30_000, 2)),
            rng.normal(0.7 * side, side / 20, (10_000, 2)),
        ]
        codes = np.concatenate(at).astype(int).clip(0, side - 1)
    else:
        codes = rng.integers(0, side, (40_000, 2))
    counts = count_cells(codes, (side, side)).ravel()
    ends = np.sort(rng.integers(0, side, (effort.queries, 2, 2)), axis=2)
    (a, b), (c, d) = ends[:, 0].T, ends[:, 1].T

    def error(made: np.ndarray) -> dict[str, float]:
        sums = np.zeros((side + 1, side + 1))
        sums[1:, 1:] = (made - counts).reshape(side, side).cumsum(axis=0).cumsum(axis=1)
        off = sums[b + 1, d + 1] - sums[a, d + 1] - sums[b + 1, c] + sums[a, c]
        return {"mse_box": float((off**2).mean())}

    return _measured(PLANE, counts, (side, side), epsilon, effort.runs, error)


def records(dataset: str, epsilon: float, runs: int, data_dir: Path | None) -> list[dict[str, Any]]:
    """Shares of yes in yes-or-no columns: the record form, the histogram form, and answering one half."""
    codes = (
        csm.adult_codes()[:, 2:]
        if dataset == "Adult"
        else np.asarray(tables.load(dataset, data_dir).codes)
    )
    d = codes.shape[1]
    truth, counts = codes.mean(axis=0), count_cells(codes, (2,) * d).ravel()
    rows = [{"method": "one half", "seed": 0, "share_error": float(np.abs(0.5 - truth).mean())}]
    for run in range(runs):
        source, rng = seeded_source(SEED + run), np.random.default_rng([SEED, run])
        made = release_records(codes, (2,) * d, epsilon, source, rng, RecordParameters())
        off = float(np.abs(made.codes.mean(axis=0) - truth).mean())
        wrong = float((made.codes != codes).mean())
        rows.append(
            {"method": "csm-records (local)", "seed": run, "share_error": off, "wrong": wrong}
        )
        table = release("csm", _task(counts, (2,) * d, epsilon, run)).reshape((2,) * d)
        shares = [np.moveaxis(table, j, 0)[1].sum() / max(1.0, table.sum()) for j in range(d)]
        rows.append(
            {
                "method": "csm (central)",
                "seed": run,
                "share_error": float(np.abs(shares - truth).mean()),
            }
        )
    return rows


def peer(
    dataset: str, cells: int, epsilon: float, effort: Effort, size: Size
) -> list[dict[str, Any]]:
    """MST from its own package, where it installs: rows from its model, counted. It promises (epsilon, delta) only."""
    from benchmarks.peers import child, environments, synthesisers
    from dither.schema import Attribute, Schema

    if size != "full":
        raise NotAvailable(f"{MST} takes a minute to fit and is left to the full size")
    counts, shape = counts_of(dataset, cells, effort.data_dir)
    codes = np.repeat(np.stack(np.unravel_index(np.arange(cells), shape), axis=1), counts, axis=0)
    names = [f"c{j}" for j in range(len(shape))]
    schema = Schema(
        tuple(
            Attribute(n, "ordinal", values=tuple(range(k)))
            for n, k in zip(names, shape, strict=True)
        )
    )
    table = tables.Table(dataset, schema, codes, codes)
    python = environments.interpreter("dpmm", True)
    try:
        _, drawn = synthesisers.fit("dpmm", "MST", table, codes, epsilon, 0, python, 1800.0)
    except (child.MissingError, child.ChildFailedError) as failure:
        raise NotAvailable(f"{MST}: {failure}") from None
    work, (sample,) = effort.workload(cells), list(drawn.values())[:1]
    found = mean_squared_errors(
        work.errors(counts, count_cells(sample, shape).ravel()), work.linear
    )
    return [
        {
            "method": MST,
            "seed": 0,
            "mse": float(found["all"][0]),
            "mse_range": float(found["range"][0]),
        }
    ]


def more_studies(
    size: Size, effort: Effort, datasets: tuple[str, ...], sizes: tuple[int, ...]
) -> tuple[Study, ...]:
    """Results in addition to the paper's figures."""
    smoke = size == "smoke"
    few = Effort(min(effort.runs, 10), min(effort.queries, 2_000), effort.data_dir)
    epsilons = (1.0,) if smoke else (0.1, 1.0)
    cells, side = (256, 16) if smoke else (4096, 64)
    people = ("Adult",) if smoke else tables.names(effort.data_dir, "Adult", "NLTCS")
    return (
        Study(
            name="forms",
            title="The forms of csm against each other",
            axes={"dataset": datasets, "cells": sizes},
            measure=partial(forms, epsilon=0.1, effort=few),
            charts=(Chart(x="cells", y="worse", log_x=True, log_y=True, title="Error over that of the best form"),),
            note="Epsilon 0.1, all queries. 'Everything chosen': a row for each cell, the dictionary after the noise.",
        ),
        Study(
            name="sparse",
            title="Ten heavy cells of 65,536",
            axes={"epsilon": epsilons},
            measure=partial(sparse, cells=1024 if smoke else 65_536, runs=min(effort.runs, 10)),
            note="Squared error over all cells; every other cell is empty.",
        ),
        Study(
            name="ranges",
            title="Ranges of one ordered column",
            axes={"table": ("clusters",) if smoke else ("clusters", "steps", "spikes", "tail"),
                  "epsilon": epsilons if smoke else (0.01, *epsilons)},
            measure=partial(ranges, cells=cells, effort=few),
            charts=() if smoke else (Chart(x="epsilon", y="mse_range", panels=("table",), log_x=True, log_y=True),),
            note=f"{cells:,} cells, generated tables of 20,000 to 100,000 records.",
        ),
        Study(
            name="boxes",
            title="Rectangles of two ordered columns",
            axes={"table": ("clusters", "even"), "epsilon": epsilons if smoke else (0.01, *epsilons)},
            measure=partial(boxes, side=side, effort=few),
            note=f"{side} by {side} cells, 40,000 generated records.",
        ),
        Study(
            name="records",
            title="The record form",
            axes={"dataset": people, "epsilon": (4.0,) if smoke else (0.5, 1.0, 2.0, 4.0, 8.0, 32.0)},
            measure=partial(records, runs=min(effort.runs, 5), data_dir=effort.data_dir),
            note="Mean absolute error of the columns' shares of yes; wrong is the share of entries that differ from the record's.",
        ),
        Study(
            name="peers",
            title="A peer from its own package",
            axes={"dataset": datasets[:1] if smoke else datasets, "cells": sizes[-1:], "epsilon": (0.1, 1.0)},
            measure=partial(peer, effort=effort, size=size),
            note="MST promises (epsilon, delta) with delta 1e-9, which is weaker than the pure epsilon of every other line.",
        ),
    )  # fmt: skip
