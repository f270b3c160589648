"""LoPub's evaluation, measured: joint estimation, correlations, pruning, classification.

    python benchmarks/lopub.py [--quick] [-o FOLDER]

Reproduces figures 13 to 18 (AVD against f) with the times of figures 7 to 12, figures 19 to 21 (correlation
identification), tables 7 to 9 (entropy pruning), figures 22 to 27 (SVM and random forest) with the times of figures 28
to 30, and adds the AVD of the finished model for k = 2, 3, 5. Every AVD table has the line of the product of exact
one-way marginals.

Data: Adult and Retail (and NLTCS as a second binary table) from beside the repository at ../shared/data; without it the
bundled Adult alone. TPC-E's rows could not be had: a GENERATED table with its published cardinalities stands in.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from dither.estimate.joint import SplitReports, estimate_joints
from dither.evaluate.metrics import attribute_sets, evaluate_model, marginal, tvd
from dither.evaluate.tasks import binary_attributes, classification, correlation_identification, split_rows
from dither.protocols.lopub import LoPub, Parameters
from dither.protocols.lopub_learn import find_dependences
from dither.protocols.machine import Campaign
from dither.schema import Schema
from dither.simulate import simulate
from dither.structure import mutual_information, mutual_information_threshold, prune_by_entropy

SEED = 20180301
FLIPS = (0.1, 0.3, 0.5, 0.7, 0.9)
ESTIMATORS = (("em", "cooccurrence"), ("hybrid", "cooccurrence"), ("lasso", "cooccurrence"), ("lasso", "paper"))
TPCE = (16, 5, 2, 4, 16, 16, 8, 16, 16, 2, 5, 4, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 2, 2)
GENERATED = "TPC-E (generated)"
TABLE_PHI = {"Retail": (0.1, 0.15, 0.2, 0.25, 0.3), "NLTCS": (0.1, 0.15, 0.2, 0.25, 0.3)}
FIGURE_PHI = {"Retail": 0.25, "NLTCS": 0.25}
CELLS = {2: 10_000, 3: 10_000, 5: 10_000}  # larger joints are left to the model


@dataclass(frozen=True)
class Table:
    """A dataset as codes."""

    name: str
    schema: Schema
    codes: np.ndarray
    binary: bool


# ---- data ------------------------------------------------------------------------------------------------------------


def load_tables(data_dir: Path | None) -> list[Table]:
    """The tables there are, as codes."""
    here = data_dir or Path(__file__).resolve().parents[1].parent / "shared" / "data"
    tables = []
    for name, file in (("Adult", "adult_coarse"), ("Retail", "retail16"), ("NLTCS", "nltcs")):
        if (here / f"{file}.parquet").is_file():
            tables.append(_read(name, here / f"{file}.parquet"))
    if not tables:
        tables.append(_read("Adult", "adult"))
    return [*tables, _generated()]


def _read(name: str, source: str | Path) -> Table:
    from dither.datasets import open_table
    from dither.schema.table import encode

    table, schema, _ = open_table(source)
    codes = np.asarray(encode(table, schema).codes)
    return Table(name, schema, codes, max(schema.cardinalities) == 2)


def _generated() -> Table:
    from dither.datasets import generate_network

    network = generate_network(TPCE, parents=1, strength=1.5, seed=SEED)
    return Table(GENERATED, network.schema, network.sample_codes(40_000, np.random.default_rng(SEED)), False)


def smaller(table: Table, rows: int) -> Table:
    """A random part of a table: NLTCS is sorted, so never a prefix."""
    if rows >= len(table.codes):
        return table
    chosen = np.random.default_rng(SEED).choice(len(table.codes), rows, replace=False)
    return Table(table.name, table.schema, table.codes[chosen], table.binary)


def collect(table: Table, flip: float, codes: np.ndarray | None = None, **parameters: Any) -> LoPub:
    """One simulated round; the epsilon asked is whatever the flip probability costs."""
    people = table.codes if codes is None else codes
    machine = LoPub.start(Campaign(table.schema, 1e6, len(people), SEED), Parameters(flip=flip, **parameters))
    simulate(machine, people, np.random.default_rng([SEED, round(1000 * flip)]))
    return machine


# ---- figures 13 to 18: joints ----------------------------------------------------------------------------------------


def accuracy(table: Table, flips: Sequence[float], sets: int) -> list[dict[str, Any]]:
    """Mean AVD and seconds a joint for each k, f and estimator, over random attribute sets."""
    rng = np.random.default_rng(SEED)
    ways = (3, 5) if table.binary else (2, 3)
    chosen = {k: _fitting(table.schema, attribute_sets(len(table.schema), k, 4 * sets, rng), k)[:sets] for k in ways}
    rows = []
    for flip in flips:
        reports = collect(table, flip).reports
        for k, positions in chosen.items():
            rows += _accuracy(table, flip, k, positions, reports)
    return rows


def _fitting(schema: Schema, sets: list[tuple[int, ...]], k: int) -> list[tuple[int, ...]]:
    return [s for s in sets if schema.cells([schema.names[i] for i in s]) <= CELLS[k]]


def _accuracy(
    table: Table, flip: float, k: int, sets: list[tuple[int, ...]], reports: SplitReports
) -> list[dict[str, Any]]:
    names = [tuple(table.schema.names[i] for i in s) for s in sets]
    exact = [marginal(table.codes, table.schema.cardinalities, s) for s in sets]
    singles = [marginal(table.codes, table.schema.cardinalities, (i,)) for i in range(len(table.schema))]
    product = [np.asarray(_outer([singles[i] for i in s])) for s in sets]
    common = {"dataset": table.name, "f": flip, "k": k, "sets": len(sets)}
    error = float(np.mean([tvd(p, e) for p, e in zip(product, exact, strict=True)]))
    rows = [{**common, "estimator": "product of exact one-way marginals", "avd": error, "seconds": 0.0}]
    for estimator, features in ESTIMATORS:
        started = time.perf_counter()
        found = estimate_joints(reports, names, estimator, features=features)  # type: ignore[arg-type]
        seconds = (time.perf_counter() - started) / len(sets)
        error = float(np.mean([tvd(f.joint, e) for f, e in zip(found, exact, strict=True)]))
        label = estimator if features == "cooccurrence" else "lasso (as printed)"
        rows.append({**common, "estimator": label, "avd": error, "seconds": seconds})
    return rows


def _outer(vectors: list[np.ndarray]) -> np.ndarray:
    out = np.ones(())
    for vector in vectors:
        out = np.multiply.outer(out, vector)
    return out


# ---- figures 19 to 21 and tables 7 to 9: correlations and pruning ---------------------------------------------------


def exact_information(table: Table) -> dict[tuple[int, int], float]:
    """The mutual information of every pair of the real table."""
    pairs = combinations(range(len(table.schema)), 2)
    return {p: mutual_information(marginal(table.codes, table.schema.cardinalities, p)) for p in pairs}


def dependent(table: Table, information: dict[tuple[int, int], float], phi: float) -> set[tuple[int, int]]:
    """The pairs at or above the paper's threshold."""
    sizes = table.schema.cardinalities
    limit = {(i, j): mutual_information_threshold(sizes[i], sizes[j], phi) for i, j in information}
    return {p for p, value in information.items() if value >= limit[p]}


def correlations(table: Table, flips: Sequence[float]) -> list[dict[str, Any]]:
    """Pairs judged rightly, added and lost, by the paper's rule and with the noise test on top of it."""
    phi = FIGURE_PHI.get(table.name, 0.4)
    information = exact_information(table)
    truth = dependent(table, information, phi)
    rows = []
    for flip in flips:
        reports = collect(table, flip).reports
        for estimator in ("em", "hybrid", "lasso"):
            parameters = Parameters(estimator=estimator, threshold="paper", phi=phi)  # type: ignore[arg-type]
            pruned, scores, _, _ = find_dependences(table.schema, reports, parameters)
            significant = {p for p in pruned.dependent if scores[p] >= parameters.significance}
            for rule, found in (("paper", pruned.dependent), ("noise", significant)):
                rates = correlation_identification(truth, found, len(information))
                rows.append(
                    {"dataset": table.name, "f": flip, "phi": phi, "estimator": estimator, "rule": rule, **rates}
                )
    return rows


def pruning(table: Table) -> list[dict[str, Any]]:
    """Tables 7 to 9 on the real table, as in the paper's evaluation; each pair is counted once."""
    information = exact_information(table)
    singles = [marginal(table.codes, table.schema.cardinalities, (i,)) for i in range(len(table.schema))]
    rows = []
    for phi in TABLE_PHI.get(table.name, (0.1, 0.2, 0.3, 0.4, 0.5)):
        truth = dependent(table, information, phi)
        variant = "full" if table.binary else "empty"
        result = prune_by_entropy(singles, phi, variant, _member(truth))
        rows.append({"dataset": table.name, "phi": phi, "variant": variant, **result.against(truth)})
    return rows


def _member(pairs: set[tuple[int, int]]) -> Callable[[int, int], bool]:
    return lambda i, j: (i, j) in pairs


# ---- figures 22 to 30 and the model ----------------------------------------------------------------------------------


def synthesis(
    table: Table, flips: Sequence[float], *, forest: int, rows: int, sets: int, cells: int
) -> dict[str, list[dict[str, Any]]]:
    """Classification on synthetic rows, the model's own AVD, and the seconds from reports to rows."""
    train, test = split_rows(table.codes, 0.2, np.random.default_rng(SEED))
    out: dict[str, list[dict[str, Any]]] = {"classification": [], "model": []}
    reference: dict[tuple[str, str], float] = {}
    for flip in flips:
        shared = collect(table, flip, train)
        for estimator in ("em", "hybrid", "lasso"):
            machine = LoPub.start(
                shared.campaign,
                Parameters(flip=flip, estimator=estimator, max_clique_cells=cells),  # type: ignore[arg-type]
            )
            machine.close(shared._closed[0])
            started = time.perf_counter()
            model = machine.model()
            synthetic = model.sample(len(train), np.random.default_rng(SEED))
            seconds = time.perf_counter() - started
            common = {"dataset": table.name, "f": flip, "estimator": estimator}
            notes = machine.notes()
            row = {
                **common,
                "seconds": seconds,
                "edges": len(notes["edges"]),
                "epsilon_record": notes["epsilon_record"],
            }
            ways = evaluate_model(model, train, (2, 3, 5), sets, np.random.default_rng(SEED))
            row |= {f"avd_{k}": value for k, value in _means(ways).items()}
            out["model"].append(row)
            for classifier in ("svm", "forest"):
                out["classification"].append(
                    {**common, "classifier": classifier}
                    | _score(table, synthetic, train, test, classifier, forest, rows, reference)
                )
    return out


def _means(ways: Any) -> dict[int, float]:
    return {int(k): float(summary.tvd) for k, summary in ways.items()}


def _score(
    table: Table,
    synthetic: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
    classifier: str,
    forest: int,
    rows: int,
    reference: dict[tuple[str, str], float],
) -> dict[str, float]:
    """Mean accuracy over the targets; classifiers trained on real rows are trained once."""
    names = binary_attributes(table.schema) if classifier == "svm" else list(table.schema.names)
    names = names[:: max(1, len(names) // forest)][:forest]
    known = all((classifier, n) in reference for n in names)
    scores = classification(
        table.schema,
        synthetic,
        test,
        classifier=classifier,  # type: ignore[arg-type]
        real=None if known else train,
        targets=names,
        seed=SEED,
        rows=rows,
    )
    for s in scores:
        if s.real is not None:
            reference[classifier, s.target] = s.real
    return {
        "synthetic": float(np.mean([s.synthetic for s in scores])),
        "real": float(np.mean([reference[classifier, s.target] for s in scores])),
        "majority": float(np.mean([s.majority for s in scores])),
        "targets": len(scores),
    }


# ---- out -------------------------------------------------------------------------------------------------------------


def run(quick: bool = False, out: Path | None = None, data_dir: Path | None = None) -> dict[str, Any]:
    """Measure everything; with `out` write lopub.json and lopub.html there. `quick` takes fewer rows, sets and f."""
    started = time.perf_counter()
    tables = load_tables(data_dir)
    flips: tuple[float, ...] = (0.1, 0.5, 0.9) if quick else FLIPS
    if quick:
        tables = [smaller(t, 4_000) for t in tables]
    result: dict[str, Any] = {
        "what": "LoPub, figures 7 to 30 and tables 7 to 9; unary encoding, participants simulated person by person",
        "generated": f"{GENERATED} is a generated table with the published cardinalities; its rows are not TPC-E's",
        "seed": SEED,
        "quick": quick,
        "datasets": {t.name: {"rows": len(t.codes), "attributes": len(t.schema)} for t in tables},
    }
    for name in ("accuracy", "correlations", "pruning", "classification", "model"):
        result[name] = []
    for table in tables:
        result["accuracy"] += accuracy(table, flips, 4 if quick else 100)
        result["correlations"] += correlations(table, (0.5,) if quick else flips)
        result["pruning"] += pruning(table)
        size = (
            {"forest": 2, "rows": 1_000, "sets": 10, "cells": 200}
            if quick
            else {"forest": 99, "rows": 10_000, "sets": 100, "cells": 2_000}
        )
        done = synthesis(table, (0.5,) if quick else flips, **size)
        result["classification"] += done["classification"]
        result["model"] += done["model"]
    result["seconds"] = time.perf_counter() - started
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        _replace(out / "lopub.json", json.dumps(result, indent=1) + "\n")
        _replace(out / "lopub.html", page(result))
    return result


def _replace(path: Path, text: str) -> None:
    import os

    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def page(result: dict[str, Any]) -> str:
    """Charts and tables in one HTML file: inline SVG, no script, nothing fetched."""
    from html import escape

    accurate = [{**r, "panel": f"{r['dataset']}, k = {r['k']}"} for r in result["accuracy"]]
    models = [{**r, "panel": r["dataset"]} for r in result["model"]]
    timed = [r for r in accurate if r["seconds"] > 0]
    parts = [
        ("Figures 13 to 18. AVD of joint estimates against f", _lines(accurate, "avd", "estimator")),
        ("Figures 7 to 12. Seconds a joint", _lines(timed, "seconds", "estimator", True)),
        ("The finished model: AVD of pairs", _lines(models, "avd_2", "estimator")),
        ("Figures 28 to 30. Seconds from reports to synthetic rows", _lines(models, "seconds", "estimator", True)),
        ("Figures 22 to 27. Accuracy on real rows", _lines(_task_rows(result), "accuracy", "trained on")),
        ("Figures 19 to 21. Correlations", _html_table(result["correlations"])),
        ("Tables 7 to 9. Pruning", _html_table(result["pruning"])),
    ]
    body = "".join(f"<h2>{escape(title)}</h2>{content}" for title, content in parts)
    style = (
        "body{font-family:system-ui,sans-serif;max-width:80rem;margin:2rem auto;padding:0 1rem}svg{max-width:100%}"
        "td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid #ddd}"
    )
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>LoPub, measured</title>"
        f"<style>{style}</style><h1>LoPub, measured</h1><p>{escape(result['what'])}. {escape(result['generated'])}.</p>"
        f"{body}</html>\n"
    )


def _task_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for r in result["classification"]:
        panel = {"panel": f"{r['dataset']}, {r['classifier']}", "f": r["f"]}
        rows.append({**panel, "accuracy": r["synthetic"], "trained on": f"synthetic ({r['estimator']})"})
        if r["estimator"] == "em":
            rows.append({**panel, "accuracy": r["real"], "trained on": "real rows, no privacy"})
            rows.append({**panel, "accuracy": r["majority"], "trained on": "most frequent value"})
    return rows


def _lines(rows: list[dict[str, Any]], y: str, colour: str, log: bool = False) -> str:
    import altair as alt
    import vl_convert

    values = [{"f": r["f"], y: r[y], colour: r[colour], "panel": r["panel"]} for r in rows if r.get(y) is not None]
    chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(point=True)
        .encode(
            x=alt.X("f:Q", title="flip probability f"),
            y=alt.Y(f"{y}:Q", title=y, scale=alt.Scale(type="log" if log else "linear", zero=not log)),
            color=alt.Color(f"{colour}:N", title=colour),
        )
        .properties(width=230, height=190)
        .facet(alt.Facet("panel:N", title=None), columns=4)
        .resolve_scale(y="independent")
    )
    svg: str = vl_convert.vegalite_to_svg(chart.to_dict())
    return svg


def _html_table(rows: list[dict[str, Any]]) -> str:
    from html import escape

    if not rows:
        return ""
    head = "".join(f"<th>{escape(str(key).replace('_', ' '))}</th>" for key in rows[0])
    lines = []
    for row in rows:
        cells = (f"{v:.3g}" if isinstance(v, float) else escape(str(v)) for v in row.values())
        lines.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def print_summary(result: dict[str, Any]) -> None:
    """AVD by dataset, k, estimator and f; then where everything else is."""
    for r in result["accuracy"]:
        print(
            f"{r['dataset']:18} k={r['k']} f={r['f']} {r['estimator']:34} AVD {r['avd']:.4f}  {r['seconds']:.3f} s each"
        )
    for r in result["model"]:
        print(f"{r['dataset']:18} model f={r['f']} {r['estimator']:8} 2-way AVD {r['avd_2']:.4f}  {r['seconds']:.1f} s")
    print(f"{result['seconds']:.0f} s in all")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="LoPub's figures and tables, measured")
    parser.add_argument("--quick", action="store_true", help="fewer rows, sets and flip probabilities: under a minute")
    parser.add_argument("-o", "--out", type=Path, default=None, help="folder for lopub.json and lopub.html")
    given = parser.parse_args()
    print_summary(run(quick=given.quick, out=given.out))


if __name__ == "__main__":
    main()
