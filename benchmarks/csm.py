"""Figures 2 to 6 of the CSM paper, measured: compressed sensing against its six rivals, under one exact guarantee.

    python benchmarks/csm.py [--quick] [-o FOLDER]

Trust model of everything here: central, a curator holds the table. Neighbours: one record added or removed. Every run
draws fresh noise and a fresh matrix from a recorded seed; spreads are standard deviations over 20 runs.

Data: Retail (50 items, beside the repository at ../shared/data when there), Adult (from there, or the bundled copy),
and a GENERATED table with the published cardinalities of TPC-E, whose rows could not be had. The fourth table of the
paper, AOL's query log, is not used: it was published by mistake, people were identified from it, and a benchmark is
no reason to spread it further.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dither.central.csm import compressed_sensing
from dither.central.csm import release as release_csm
from dither.central.domain import flat_counts
from dither.central.laplace import Cells
from dither.central.measure import rows_for
from dither.central.noise import calibrate, discrete_laplace, noise_variance, seeded_source
from dither.central.registry import CENTRAL
from dither.central.strategy import observe
from dither.central.workload import (
    Workload,
    mean_squared_errors,
    measured_usefulness,
    paper_usefulness,
    usefulness_bound,
)

SEED = 20200401
SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
EPSILONS = (0.1, 0.3, 0.5, 0.7, 0.9)
TAUS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
RIVALS = ("laplace", "privelet", "hierarchical", "fourier", "privbayes", "dppro")
TPCE = (16, 5, 2, 4, 16, 16, 8, 16, 16, 2, 5, 4, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 2, 2)
PUBLIC_RECORDS = 50_000  # the public guess of a table's size from which CSM's automatic tau is chosen
Table = tuple[np.ndarray, tuple[int, ...]]


# ---- data ------------------------------------------------------------------------------------------------------------


def load_tables(data_dir: Path | None) -> dict[str, Callable[[int], Table]]:
    """For each dataset a function from a domain size (a power of two) to codes and cardinalities with that product."""
    here = data_dir or Path(__file__).resolve().parents[1].parent / "shared" / "data"
    tables: dict[str, Callable[[int], Table]] = {}
    if (here / "retail50.parquet").is_file():
        tables["Retail"] = _retail(here / "retail50.parquet")
    tables["Adult"] = _adult(here / "adult.parquet")
    tables["TPC-E (generated)"] = _tpce()
    return tables


def _columns(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(path)


def _retail(path: Path) -> Callable[[int], Table]:
    table = _columns(path)
    items = np.stack([np.asarray(table.column(j)).astype(np.int64) for j in range(13)], axis=1)

    def cut(cells: int) -> Table:
        d = cells.bit_length() - 1
        return items[:, :d], (2,) * d

    return cut


def _adult(path: Path) -> Callable[[int], Table]:
    """Age in 16 bins, hours in 8, then yes-or-no columns: fixed public cuts."""
    if path.is_file():
        table = _columns(path)
    else:
        from dither.datasets import load_dataset

        table = load_dataset("adult").table

    def column(name: str) -> np.ndarray:
        return np.asarray(table[name].to_pylist() if hasattr(table[name], "to_pylist") else list(table[name]))

    age = ((column("age").astype(np.int64) - 17) * 16 // 74).clip(0, 15)
    hours = ((column("hours_per_week").astype(np.int64) - 1) * 8 // 99).clip(0, 7)
    flags = [
        column("sex") == "Male",
        column("income") == ">50K",
        column("marital_status") == "Married-civ-spouse",
        column("education_num").astype(np.int64) >= 10,
        column("race") == "White",
        column("relationship") == "Own-child",
    ]
    codes = np.stack([age, hours, *(flag.astype(np.int64) for flag in flags)], axis=1)

    def cut(cells: int) -> Table:
        extra = cells.bit_length() - 8
        return codes[:, : 2 + extra], (16, 8) + (2,) * extra

    return cut


def _tpce() -> Callable[[int], Table]:
    """40,000 rows from a mixture of 12 products of skewed distributions: TPC-E's shape, not its data."""
    rng = np.random.default_rng([SEED, 24])
    groups = rng.choice(12, size=40_000, p=rng.dirichlet(np.full(12, 1.0)))
    codes = np.zeros((40_000, len(TPCE)), dtype=np.int64)
    for j, k in enumerate(TPCE):
        cumulative = rng.dirichlet(np.full(k, 0.4), size=12).cumsum(axis=1)[:, :-1]
        codes[:, j] = (rng.random(40_000)[:, None] >= cumulative[groups]).sum(axis=1)
    first = {128: (0, 3, 2), 256: (0, 3, 2, 9), 512: (0, 3, 2, 9, 22), 1024: (0, 3, 2, 9, 22, 23)}
    second = {2048: (0, 4, 3, 2), 4096: (0, 4, 3, 2, 9), 8192: (0, 4, 3, 2, 9, 22)}
    chosen = first | second

    def cut(cells: int) -> Table:
        picked = list(chosen[cells])
        return codes[:, picked], tuple(TPCE[j] for j in picked)

    return cut


# ---- runs ------------------------------------------------------------------------------------------------------------


def one_release(
    name: str, counts: np.ndarray, shape: tuple[int, ...], epsilon: float, tau: float, seed: int
) -> np.ndarray:
    """One run of a mechanism, a baseline or the diagnostic."""
    rng = np.random.default_rng([seed, 1])
    source = seeded_source(seed)
    if name == "csm":
        return release_csm(counts, epsilon, source, rng=rng, tau=tau).estimate
    if name == "csm, automatic tau":
        return release_csm(counts, epsilon, source, rng=rng, records=PUBLIC_RECORDS).estimate
    if name == "uniform":
        total = observe(Cells(1), counts.sum(keepdims=True), epsilon, source).values[0]
        return np.full(counts.size, total / counts.size)
    if name.startswith("csm, paper"):
        return _paper_noise(counts, epsilon, tau, rng)[0]
    return CENTRAL[name].release(counts, epsilon, source, rng=rng, shape=shape).estimate


def _paper_noise(counts: np.ndarray, epsilon: float, tau: float, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """CSM with noise of scale 1 / epsilon for columns of unit length, as definition 5 suggests. NOT epsilon-DP.

    The second value is the epsilon that this noise really gives: the exact L1 sensitivity over the scale.
    """
    strategy = compressed_sensing(counts.size, tau=tau, rng=rng)
    scale = Fraction(math.ceil(2**16 * strategy.matrix.unit * math.sqrt(strategy.matrix.rows) / epsilon), 2**16)
    exact = strategy.measure(counts)
    noisy = exact + discrete_laplace(scale, exact.size, seeded_source(int(rng.integers(2**31))))
    return strategy.decode(noisy, noise_variance(scale)), float(strategy.sensitivity("add-remove") / scale)


def measure(
    names: tuple[str, ...],
    counts: np.ndarray,
    shape: tuple[int, ...],
    epsilon: float,
    tau: float,
    runs: int,
    queries: int,
) -> tuple[dict[str, dict[str, Any]], dict[str, np.ndarray]]:
    """Mean squared errors with spreads and seconds a release for each mechanism, and the raw query errors."""
    estimates, seconds = [], {}
    for name in names:
        started = time.perf_counter()
        estimates += [one_release(name, counts, shape, epsilon, tau, SEED + run) for run in range(runs)]
        seconds[name] = (time.perf_counter() - started) / runs
    work = Workload(counts.size, queries, SEED)
    errors = work.errors(counts, np.stack(estimates, axis=1))
    rows, raw = {}, {}
    for i, name in enumerate(names):
        raw[name] = errors[:, i * runs : (i + 1) * runs]
        parts = mean_squared_errors(raw[name], work.linear)
        rows[name] = {"seconds": seconds[name]} | {
            key: {"mean": float(v.mean()), "sd": float(v.std(ddof=1)) if runs > 1 else 0.0} for key, v in parts.items()
        }
        spread = np.stack(estimates[i * runs : (i + 1) * runs]) - counts
        rows[name]["per_cell"] = {"mean": float((spread**2).mean()), "sd": float((spread**2).mean(axis=1).std())}
    return rows, raw


def figure2(
    tables: dict[str, Callable[[int], Table]], runs: int, queries: int, cells: int, taus: tuple[float, ...]
) -> list[dict]:
    """Mean squared error of CSM against its compression ratio."""
    out = []
    for dataset, cut in tables.items():
        codes, shape = cut(cells)
        counts = flat_counts(codes, shape)
        for epsilon in (1.0, 0.5, 0.1):
            for tau in taus:
                rows, _ = measure(("csm",), counts, shape, epsilon, tau, runs, queries)
                out.append({"dataset": dataset, "cells": cells, "epsilon": epsilon, "tau": tau, **rows["csm"]})
            rows, _ = measure(("csm, automatic tau", "laplace", "uniform"), counts, shape, epsilon, 0.3, runs, queries)
            for name, row in rows.items():
                out.append({"dataset": dataset, "cells": cells, "epsilon": epsilon, "tau": None, "line": name, **row})
    return out


def figure3(tables: dict[str, Callable[[int], Table]], runs: int, queries: int, sizes: tuple[int, ...]) -> list[dict]:
    """Mean squared error and seconds against the domain size, at epsilon 0.1 and tau 0.3."""
    names = ("csm", "csm, automatic tau", *RIVALS, "uniform")
    out = []
    for dataset, cut in tables.items():
        for cells in sizes:
            codes, shape = cut(cells)
            rows, _ = measure(names, flat_counts(codes, shape), shape, 0.1, 0.3, runs, queries)
            out += [
                {"dataset": dataset, "cells": cells, "epsilon": 0.1, "mechanism": n, **row} for n, row in rows.items()
            ]
    return out


def few_records(tables: dict[str, Callable[[int], Table]], runs: int, queries: int) -> list[dict]:
    """8,192 cells at epsilon 0.01: little signal in a large domain, where measuring less can pay."""
    names = ("csm", "csm, automatic tau", *RIVALS, "uniform")
    out = []
    for dataset, cut in tables.items():
        codes, shape = cut(8192)
        rows, _ = measure(names, flat_counts(codes, shape), shape, 0.01, 0.3, runs, queries)
        out += [{"dataset": dataset, "cells": 8192, "epsilon": 0.01, "mechanism": n, **row} for n, row in rows.items()]
    return out


def figure4(tables: dict[str, Callable[[int], Table]], runs: int, queries: int) -> list[dict]:
    """(mu, eta)-usefulness at 256 cells, tau 0.4, epsilon 1: measured, and what theory says."""
    names = ("csm", "csm, automatic tau", *RIVALS, "uniform")
    mus = np.geomspace(1, 20_000, 40)
    weights = next(Workload(256, queries, SEED).linear_blocks())[:20]
    scale = calibrate(1, 1.0)
    out = []
    for dataset, cut in tables.items():
        codes, shape = cut(256)
        _, raw = measure(names, flat_counts(codes, shape), shape, 1.0, 0.4, runs, queries)
        linear = Workload(256, queries, SEED).linear
        for name, errors in raw.items():
            etas, linear_etas = measured_usefulness(errors, mus), measured_usefulness(errors[:linear], mus)
            for mu, eta, lin in zip(mus, etas, linear_etas, strict=True):
                row = {
                    "dataset": dataset,
                    "mechanism": name,
                    "mu": float(mu),
                    "eta": float(eta),
                    "eta_linear": float(lin),
                }
                if name == "laplace":
                    row["bound_linear"] = float(np.mean([usefulness_bound(w, scale, mu) for w in weights]))
                if name == "csm":
                    row["paper_formula"] = paper_usefulness(float(mu), 1.0, rows_for(0.4, 256))
                out.append(row)
    return out


def figure5(
    tables: dict[str, Callable[[int], Table]], runs: int, queries: int, epsilons: tuple[float, ...]
) -> list[dict]:
    """Mean squared error against epsilon at 256 cells and tau 0.4, with the paper's own noise as a diagnostic."""
    names = ("csm", "csm, automatic tau", *RIVALS, "uniform", "csm, paper's noise (not private)")
    out = []
    for dataset, cut in tables.items():
        codes, shape = cut(256)
        counts = flat_counts(codes, shape)
        for epsilon in epsilons:
            rows, _ = measure(names, counts, shape, epsilon, 0.4, runs, queries)
            for name, row in rows.items():
                entry = {"dataset": dataset, "cells": 256, "epsilon": epsilon, "mechanism": name, **row}
                if name.endswith("(not private)"):
                    entry["epsilon_real"] = _paper_noise(counts, epsilon, 0.4, np.random.default_rng(SEED))[1]
                out.append(entry)
    return out


def figure6(tables: dict[str, Callable[[int], Table]], sizes: tuple[int, ...], repeats: int) -> list[dict]:
    """Seconds of one CSM release plus answering Q queries, for each measurement."""
    out = []
    cut = tables["Adult"]
    for cells in sizes:
        codes, shape = cut(cells)
        counts = flat_counts(codes, shape)
        for kind in ("hadamard", "bernoulli", "gaussian"):
            taken, estimate = [], counts.astype(np.float64)
            for run in range(repeats):
                started = time.perf_counter()
                rng = np.random.default_rng([SEED, run])
                estimate = release_csm(counts, 0.1, seeded_source(run), rng=rng, tau=0.3, measurement=kind).estimate
                taken.append(time.perf_counter() - started)
            for queries in (64, 128, 256):
                started = time.perf_counter()
                Workload(cells, queries, SEED).answers(estimate)
                answering = time.perf_counter() - started
                seconds = float(np.median(taken)) + answering
                out.append({"cells": cells, "measurement": kind, "queries": queries, "seconds": seconds})
    return out


def settings(tables: dict[str, Callable[[int], Table]], runs: int, queries: int, cells: int) -> list[dict]:
    """CSM's own choices at epsilon 1 and tau 0.1: dictionary, measurement, and whether the total is measured."""
    out = []
    for dataset, cut in tables.items():
        codes, shape = cut(cells)
        counts = flat_counts(codes, shape)
        work = Workload(cells, queries, SEED)
        for dictionary in ("dct", "haar", "identity"):
            for kind in ("hadamard", "bernoulli", "gaussian"):
                for total in (True, False):
                    made = [
                        release_csm(
                            counts, 1.0, seeded_source(SEED + run), rng=np.random.default_rng([SEED, run]), tau=0.1,
                            measurement=kind, dictionary=dictionary, total=total,
                        ).estimate
                        for run in range(runs)
                    ]  # fmt: skip
                    parts = mean_squared_errors(work.errors(counts, np.stack(made, axis=1)), work.linear)
                    out.append(
                        {
                            "dataset": dataset,
                            "cells": cells,
                            "dictionary": dictionary,
                            "measurement": kind,
                            "total": total,
                        }
                        | {key: {"mean": float(v.mean()), "sd": float(v.std(ddof=1))} for key, v in parts.items()}
                    )
    return out


# ---- out -------------------------------------------------------------------------------------------------------------


def run(quick: bool = False, out: Path | None = None, data_dir: Path | None = None) -> dict[str, Any]:
    """Measure all figures; with `out` write csm.json and csm.html there. `quick` uses fewer runs, sizes and queries."""
    from threadpoolctl import threadpool_limits

    # One thread: the products are small, and threads that wait for each other cost more than they bring.
    with threadpool_limits(1):
        result = _run(quick, data_dir)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        _replace(out / "csm.json", json.dumps(result, indent=1) + "\n")
        _replace(out / "csm.html", page(result))
    return result


def _run(quick: bool, data_dir: Path | None) -> dict[str, Any]:
    started = time.perf_counter()
    tables = load_tables(data_dir)
    runs, queries = (3, 1000) if quick else (20, 10_000)
    sizes = (128, 1024, 8192) if quick else SIZES
    result: dict[str, Any] = {
        "what": "CSM paper, figures 2 to 6; trust model central (a curator holds the table); neighbours add-remove",
        "seed": SEED,
        "runs": runs,
        "queries": queries,
        "datasets": list(tables),
        "figure2": figure2(tables, runs, queries, 1024, (0.1, 0.5, 0.9) if quick else TAUS),
        "figure3": figure3(tables, runs, queries, sizes),
        "few_records": few_records(tables, runs, queries),
        "figure4": figure4(tables, runs, queries),
        "figure5": figure5(tables, runs, queries, (0.1, 0.9) if quick else EPSILONS),
        "figure6": figure6(tables, sizes, 1 if quick else 3),
        "settings": settings(tables, min(runs, 10), queries, 1024),
    }
    result["seconds"] = time.perf_counter() - started
    return result


def _replace(path: Path, text: str) -> None:
    import os

    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def page(result: dict[str, Any]) -> str:
    """All charts in one HTML file: inline SVG, no script, nothing fetched."""
    from html import escape

    notes = (
        "Trust model: central, a curator holds the table. Neighbours: one record added or removed. "
        f"{result['runs']} runs, {result['queries']:,} queries (half random subsets of cells, half ranges). "
        "TPC-E's table is generated. AOL's query log is not used: it is a known privacy breach."
    )
    parts = [f"<h2>{escape(title)}</h2>{svg}" for title, svg in charts(result)]
    style = "body{font-family:system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}svg{max-width:100%}"
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>CSM and its rivals</title>"
        f"<style>{style}</style><h1>CSM and its rivals</h1><p>{escape(notes)}</p>{''.join(parts)}</html>\n"
    )


def charts(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Titles and SVG of the five figures."""
    flat = [_with_spread(row) for row in result["figure3"]]
    eps = [_with_spread(row) for row in result["figure5"]]
    ratio = [_with_spread(row) for row in result["figure2"] if row["tau"] is not None]
    useful = [{**row, "eta": max(row["eta"], 1e-4)} for row in result["figure4"]]
    times = [{**row, "dataset": "Adult"} for row in result["figure6"] if row["queries"] == 256]
    kind = "mechanism:N"
    return [
        ("Figure 2. CSM's error against its compression ratio (1,024 cells)", _lines(ratio, "tau", "mse", "epsilon:N")),
        ("Figure 3. Error against domain size (epsilon 0.1, tau 0.3)", _lines(flat, "cells", "mse", kind, log_x=True)),
        (
            "Figure 4. Usefulness: share of answers off by mu or more (256 cells, epsilon 1)",
            _lines(useful, "mu", "eta", kind, log_x=True),
        ),
        ("Figure 5. Error against epsilon (256 cells, tau 0.4)", _lines(eps, "epsilon", "mse", kind)),
        (
            "Figure 6. Seconds of a CSM release and 256 answers",
            _lines(times, "cells", "seconds", "measurement:N", log_x=True),
        ),
    ]


def _with_spread(row: dict) -> dict:
    """The mean with one standard deviation to each side, cut at a twentieth of the mean: the axis is logarithmic."""
    mean, sd = row["all"]["mean"], row["all"]["sd"]
    return {**row, "mse": mean, "low": max(mean - sd, mean / 20), "high": mean + sd}


def _lines(rows: list[dict], x: str, y: str, colour: str, log_x: bool = False) -> str:
    import altair as alt
    import vl_convert

    wanted = {x, y, "low", "high", "dataset", colour.partition(":")[0]}
    data = alt.InlineData(values=[{k: v for k, v in row.items() if k in wanted} for row in rows])
    base = alt.Chart(data).encode(x=alt.X(f"{x}:Q", scale=alt.Scale(type="log" if log_x else "linear")), color=colour)
    layers = [base.mark_line(point=True).encode(y=alt.Y(f"{y}:Q", scale=alt.Scale(type="log")))]
    if "low" in rows[0]:
        layers.append(base.mark_rule(opacity=0.5).encode(y=alt.Y("low:Q", title=y), y2="high:Q"))
    chart = alt.layer(*layers, data=data).properties(width=280, height=240).facet("dataset:N")
    return vl_convert.vegalite_to_svg(chart.to_dict())


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="CSM and its six rivals (central trust model)")
    parser.add_argument("--quick", action="store_true", help="fewer runs, sizes and queries: under a minute")
    parser.add_argument("-o", "--out", type=Path, default=None, help="folder for csm.json and csm.html")
    given = parser.parse_args()
    result = run(quick=given.quick, out=given.out)
    print_summary(result)


def print_summary(result: dict[str, Any]) -> None:
    """The headline table."""
    print(f"{result['runs']} runs, {result['queries']:,} queries, {result['seconds']:.0f} s")
    print("mean squared error over all queries, epsilon 0.1, tau 0.3")
    sizes = sorted({row["cells"] for row in result["figure3"]})
    for dataset in result["datasets"]:
        print(f"\n{dataset:24s}" + "".join(f"{size:>12,}" for size in sizes))
        names = list(dict.fromkeys(row["mechanism"] for row in result["figure3"]))
        for name in names:
            found = {r["cells"]: r for r in result["figure3"] if r["dataset"] == dataset and r["mechanism"] == name}
            print(f"{name:24s}" + "".join(f"{found[size]['all']['mean']:12.4g}" for size in sizes))


if __name__ == "__main__":
    main()
