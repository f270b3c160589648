"""Figures 1 to 7 of the CHP paper, measured, with the house's `smart` beside the paper's methods.

    python benchmarks/chp.py [--quick] [-o FOLDER]

Data: the paper's own Baltimore salaries and a San Francisco table (another one than the paper's), beside the repository at
../shared/data when there; otherwise a GENERATED log-normal salary table, labelled as such. New York's table could not be
had. Errors are mean squared errors of counts over all bins of a consumer, averaged over consumers, and over runs with
fresh noise from a recorded seed. `sue` is the paper's mechanism (basic RAPPOR), `best` picks one by cells and epsilon.
"""

from __future__ import annotations

import argparse
import json
import time
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from dither.estimate.intervals import normal_interval
from dither.histogram.api import WAYS
from dither.histogram.collect import People, gather
from dither.histogram.consumer import Consumer, read_consumers
from dither.histogram.page import to_svg
from dither.histogram.partition import Partition, union
from dither.histogram.smart import choose

SEED = 20210208
GROUPS: tuple[tuple[int, ...], ...] = ((10,), (3, 5, 7), (3, 5, 7, 10, 15))
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
Table = tuple[np.ndarray, float, float]


def load_tables(data_dir: Path | None) -> dict[str, Table]:
    """Salaries with their public range."""
    import pyarrow.parquet as pq

    here = data_dir or Path(__file__).resolve().parents[1].parent / "shared" / "data"
    tables: dict[str, Table] = {}
    for name, file, column in (
        ("Baltimore", "salary_baltimore", "annual_salary"),
        ("San Francisco", "salary_sf", "total_pay"),
    ):
        if (here / f"{file}.parquet").is_file():
            domain = json.loads((here / f"{file}.domain.json").read_text(encoding="utf-8"))[column]
            values = pq.read_table(here / f"{file}.parquet")[column].to_numpy()
            tables[name] = (values, float(domain["min"]), float(domain["max"]))
    if not tables:
        values = np.random.default_rng(SEED).lognormal(10.8, 0.5, 13_683).clip(1_800, 250_000)
        tables["GENERATED log-normal salaries"] = (values, 1_800.0, 250_000.0)
    return tables


class Collection:
    """One table's people in the cells of one group of consumers."""

    def __init__(self, table: Table, bins: tuple[int, ...]) -> None:
        values, low, high = table
        self.consumers: tuple[Consumer, ...] = read_consumers(bins, low, high)
        self.partition: Partition = union(self.consumers, low, high)
        self.people: People = gather(values, self.partition, reports=False)
        self.truth = [self.partition.membership(c) @ self.people.counts for c in self.consumers]

    def answer(self, method: str, epsilon: float, rng: np.random.Generator) -> Any:
        way, mechanism = METHODS[method]
        return WAYS[way](self.people, self.partition, self.consumers, epsilon, mechanism, rng)

    def errors(self, method: str, epsilon: float, runs: int, key: int) -> np.ndarray:
        """Mean squared error of each consumer (columns) in each run (rows)."""
        out = np.empty((runs, len(self.consumers)))
        for run in range(runs):
            answer = self.answer(method, epsilon, np.random.default_rng([SEED, key, run]))
            out[run] = [np.mean((c - t) ** 2) for c, t in zip(answer.counts, self.truth, strict=True)]
        return out


def summary(errors: np.ndarray) -> dict[str, Any]:
    """The mean over consumers and runs, its standard error, and each consumer's mean."""
    each = errors.mean(axis=1)
    spread = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0
    return {"mse": float(each.mean()), "standard_error": spread, "consumers": errors.mean(axis=0).tolist()}


def figures_1_to_3(tables: dict[str, Table]) -> dict[str, Any]:
    """One collection at epsilon 15: truth and estimates of the 3, 5 and 7 bins."""
    out: dict[str, Any] = {}
    for name, table in tables.items():
        collection = Collection(table, (3, 5, 7))
        shown = {"truth": [t.tolist() for t in collection.truth]}
        for method in METHODS:
            answer = collection.answer(method, 15.0, np.random.default_rng([SEED, 1]))
            shown[method] = [c.tolist() for c in answer.counts]
        out[name] = {"edges": [list(c.edges) for c in collection.consumers], "counts": shown}
    return out


def figure_4(tables: dict[str, Table], runs: int) -> dict[str, Any]:
    """MSE against epsilon for consumers with 3, 5 and 7 bins."""
    out: dict[str, Any] = {}
    for name, table in tables.items():
        collection = Collection(table, (3, 5, 7))
        out[name] = {
            method: {str(e): summary(collection.errors(method, e, runs, 4)) for e in SMALL_EPSILONS + PAPER_EPSILONS}
            for method in METHODS
        }
    return out


def figure_5(tables: dict[str, Table], runs: int) -> dict[str, Any]:
    """MSE against the number of consumers, at the paper's epsilon 15 and at 1."""
    return {
        name: {
            str(epsilon): {
                method: {
                    str(len(bins)): summary(Collection(table, bins).errors(method, epsilon, runs, 5)) for bins in GROUPS
                }
                for method in METHODS
            }
            for epsilon in (15.0, 1.0)
        }
        for name, table in tables.items()
    }


def figure_6() -> dict[str, Any]:
    """Bits a participant sends: one a cell of the union (CHP) against one a bin of every consumer (split), with sue."""
    out = {}
    for bins in GROUPS:
        consumers = read_consumers(bins, 0.0, 1.0)
        people = People(np.ones(union(consumers, 0.0, 1.0).cells, np.int64))
        partition, rng = union(consumers, 0.0, 1.0), np.random.default_rng(SEED)
        bits = {m: METHODS[m] for m in ("chp, sue", "split, sue", "chp, best", "smart")}
        out[str(len(bins))] = {
            "union_cells": partition.cells,
            **{m: WAYS[way](people, partition, consumers, 15.0, kind, rng).bits for m, (way, kind) in bits.items()},
        }
    return out


def figure_7(tables: dict[str, Table], runs: int) -> dict[str, Any]:
    """MSE of each of the 3-, 5- and 7-bin consumers."""
    return {
        name: {
            str(epsilon): {
                method: summary(Collection(table, (3, 5, 7)).errors(method, epsilon, runs, 7)) for method in METHODS
            }
            for epsilon in (15.0, 3.0, 1.0)
        }
        for name, table in tables.items()
    }


def coverage(tables: dict[str, Table], runs: int) -> dict[str, Any]:
    """How often 95 % intervals hold the truth, over all bins of the 3, 5 and 7; and the lowest and highest bin."""
    name, table = next(iter(tables.items()))
    collection, out = Collection(table, (3, 5, 7)), {}
    for method in METHODS:
        for epsilon in (1.0, 3.0, 15.0):
            hits = []
            for run in range(runs):
                answer = collection.answer(method, epsilon, np.random.default_rng([SEED, 8, run]))
                inside = []
                for count, variance, truth in zip(answer.counts, answer.variances, collection.truth, strict=True):
                    low, high = normal_interval(count, np.sqrt(variance), 0.95)
                    inside.append((low <= truth) & (truth <= high))
                hits.append(np.concatenate(inside))
            share = np.mean(hits, axis=0)
            out[f"{method}, epsilon {epsilon:g}"] = {
                "mean": float(share.mean()),
                "lowest_bin": float(share.min()),
                "highest_bin": float(share.max()),
            }
    return {"table": name, "collections": runs, "coverage": out}


def smart_gain(quick: bool) -> list[dict[str, Any]]:
    """What smart promises against CHP with `best`, from the queries alone: variance ratios in each consumer's worst cell."""
    out = []
    for bins in (*GROUPS[1:], (16, 17, 19, 23)) if not quick else GROUPS[1:2]:
        consumers = read_consumers(bins, 0.0, 1.0)
        partition = union(consumers, 0.0, 1.0)
        for epsilon in (0.5, 1.0, 2.0, 3.0, 5.0):
            begin = time.perf_counter()
            plan = choose(partition, consumers, epsilon, "best")
            out.append(
                {
                    "bins": list(bins),
                    "cells": partition.cells,
                    "epsilon": epsilon,
                    "mechanism": plan.mechanism.name,
                    "variance_ratios": list(plan.ratios),
                    "gain": plan.gain,
                    "seconds": round(time.perf_counter() - begin, 2),
                }
            )
    return out


def scale(quick: bool) -> dict[str, Any]:
    """Seconds to bin and randomise many values, every person's report made, and by counts only (second of two runs)."""
    from dither.histogram.api import histogram

    n = 1_000_000 if quick else 10_000_000
    values = np.random.default_rng(SEED).lognormal(10.8, 0.5, n).clip(0, 250_000)
    out: dict[str, Any] = {"values": n}
    for way, mechanism in (("chp", "sue"), ("chp", "best"), ("smart", "best")):
        for path in ("counts", "reports"):
            for _ in range(2):
                begin = time.perf_counter()
                histogram(
                    values,
                    consumers=[3, 5, 7],
                    epsilon=3.0,
                    low=0,
                    high=250_000,
                    mechanism=way,
                    frequency_mechanism=mechanism,
                    path=path,  # type: ignore[arg-type]
                    seed=SEED,
                )
                out[f"{way}, {mechanism}, {path}"] = round(time.perf_counter() - begin, 3)
    return out


def run(quick: bool = False, out: str | Path | None = None, data_dir: str | Path | None = None) -> dict[str, Any]:
    """Measure everything; with `out`, write chp.json and chp.html there."""
    begin = time.perf_counter()
    tables = load_tables(None if data_dir is None else Path(data_dir))
    runs = 20 if quick else 200  # the paper took 20
    if quick:
        tables = dict(list(tables.items())[:1])
    results: dict[str, Any] = {
        "seed": SEED,
        "runs": runs,
        "tables": {name: {"people": len(t[0]), "range": [t[1], t[2]]} for name, t in tables.items()},
        "figures_1_to_3": figures_1_to_3(tables),
        "figure_4": figure_4(tables, runs),
        "figure_5": figure_5(tables, runs),
        "figure_6": figure_6(),
        "figure_7": figure_7(tables, runs),
        "coverage": coverage(tables, 100 if quick else 1000),
        "smart_gain": smart_gain(quick),
        "scale": scale(quick),
    }
    results["seconds"] = round(time.perf_counter() - begin, 1)
    if out is not None:
        from dither.schema.files import write_atomically

        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        document, page = json.dumps(results, indent=1) + "\n", render(results)
        write_atomically(folder / "chp.json", lambda path: path.write_text(document, encoding="utf-8"))
        write_atomically(folder / "chp.html", lambda path: path.write_text(page, encoding="utf-8"))
    return results


# ---- the page --------------------------------------------------------------------------------------------------------


def render(results: dict[str, Any]) -> str:
    """One HTML page that needs nothing else."""
    parts = [
        f"<p>{results['runs']} runs a figure, seed {results['seed']}, {results['seconds']} s in all.</p>",
        _tables(results),
    ]
    for name, methods in results["figure_4"].items():
        rows = [
            {"method": method, "x": float(e), "mse": max(entry["mse"], 1e-3)}
            for method, by_epsilon in methods.items()
            for e, entry in by_epsilon.items()
        ]
        parts.append(f"<h2>Figure 4, {escape(name)}: error against epsilon</h2>")
        parts.append(_lines(rows, "epsilon", f"Mean squared error against epsilon, {name}"))
        parts.append(_grid(methods, lambda entry: entry["mse"]))
    for name, by_epsilon in results["figure_5"].items():
        for epsilon, methods in by_epsilon.items():
            parts.append(f"<h2>Figure 5, {escape(name)}: error against the number of consumers, epsilon {epsilon}</h2>")
            parts.append(_grid(methods, lambda entry: entry["mse"]))
    parts.append("<h2>Figure 6: bits a participant sends, by number of consumers</h2>")
    parts.append(_grid(results["figure_6"], float))
    for name, by_epsilon in results["figure_7"].items():
        for epsilon, methods in by_epsilon.items():
            parts.append(
                f"<h2>Figure 7, {escape(name)}: error of the 3-, 5- and 7-bin consumer, epsilon {epsilon}</h2>"
            )
            table = {m: dict(zip(("3", "5", "7"), e["consumers"], strict=True)) for m, e in methods.items()}
            parts.append(_grid(table, float))
    parts.append(f"<h2>Coverage of 95 % intervals, {results['coverage']['collections']} collections</h2>")
    parts.append(_grid(results["coverage"]["coverage"], float, "{:.1%}"))
    parts.append("<h2>What smart promises from the queries alone</h2>")
    gains = {f"{g['bins']}, epsilon {g['epsilon']:g}": {"gain": g["gain"]} for g in results["smart_gain"]}
    parts.append(_grid(gains, float, "{:.1%}"))
    parts.append("<h2>Seconds</h2>")
    parts.append(_grid({k: {"": v} for k, v in results["scale"].items()}, float))
    style = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem}table{border-collapse:collapse}"
    style += "th,td{padding:.2rem .6rem;border-bottom:1px solid #ccc;text-align:right}svg{max-width:100%;height:auto}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>CHP, figures 1 to 7</title>'
        f"<style>{style}</style></head><body><h1>CHP, figures 1 to 7</h1>{''.join(parts)}</body></html>\n"
    )


def _tables(results: dict[str, Any]) -> str:
    out = []
    for name, entry in results["figures_1_to_3"].items():
        people = results["tables"][name]["people"]
        out.append(f"<h2>Figures 1 to 3, {escape(name)} ({people:,} people): counts at epsilon 15</h2>")
        for place, edges in enumerate(entry["edges"]):
            table = {
                method: {f"{a:,.0f} to {b:,.0f}": c for a, b, c in zip(edges, edges[1:], counts[place], strict=False)}
                for method, counts in entry["counts"].items()
            }
            out.append(_grid(table, float))
    return "".join(out)


def _grid(table: dict[str, Any], read: Any, form: str = "{:,.4g}") -> str:
    heads = list(dict.fromkeys(key for row in table.values() for key in row))
    top = "".join(f'<th scope="col">{escape(h)}</th>' for h in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{form.format(read(row[h])) if h in row else ''}</td>" for h in heads)
        + "</tr>"
        for name, row in table.items()
    )
    return f"<table><thead><tr><th></th>{top}</tr></thead><tbody>{body}</tbody></table>"


def _lines(rows: list[dict[str, Any]], title: str, words: str) -> str:
    import altair as alt

    chart = alt.Chart(alt.InlineData(values=rows)).mark_line(point=True)
    chart = chart.encode(
        x=alt.X("x:Q", title=title),
        y=alt.Y("mse:Q", title="mean squared error of a count", scale=alt.Scale(type="log")),
        color=alt.Color("method:N", title=None),
    )
    return to_svg(chart.properties(width=520, height=300), f"{words}. The figures are in the table below.")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one table, 20 runs, under a minute")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("bench-out") / "chp", help="folder for chp.json and chp.html"
    )
    given = parser.parse_args()
    results = run(given.quick, given.out)
    for name, methods in results["figure_4"].items():
        print(f"{name}: mean squared error of a count")
        for method, by_epsilon in methods.items():
            print(f"  {method:<13}" + "  ".join(f"eps {e}: {v['mse']:.4g}" for e, v in by_epsilon.items()))
    print("bits a participant:", results["figure_6"])
    for method, share in results["coverage"]["coverage"].items():
        print(f"coverage {method}: {share['mean']:.1%} (bins {share['lowest_bin']:.1%} to {share['highest_bin']:.1%})")
    print("seconds:", results["scale"])
    print(f"{results['seconds']} s; see {given.out / 'chp.html'}")


if __name__ == "__main__":
    main()
