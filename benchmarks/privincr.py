"""PrivIncr's evaluation, measured: table 2 and figures 3 to 7.

    python -m benchmarks.privincr [--quick] [-o FOLDER]

Every row of methods carries 2-, 3- and 4-way total variation and the seconds from reports to synthetic rows (figures 5 and
7), beside the product of exact one-way marginals, which no table may go without, and the junction tree without privacy.
Figure 3 compares joint estimators, figure 4 sweeps T, omega and phi, figure 6 trains an SVM on synthetic rows.

Data: Adult and NLTCS from beside the repository at ../shared/data; without it the bundled Adult alone. Adult is also
resampled to 1.5 million participants, as in the paper. TPC-E's rows could not be had.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dither.estimate.rivals import RIVALS, rival_joint
from dither.evaluate.metrics import attribute_sets, evaluate_model, marginal, tvd
from dither.evaluate.tasks import classification, split_rows
from dither.models import Independent, Model
from dither.protocols import bayesnet, calm, fourier, independent, noincremental, privincr
from dither.protocols.jtree_nonprivate import publish_nonprivate
from dither.protocols.machine import Campaign, ProtocolMachine
from dither.schema import Schema
from dither.simulate import simulate

SEED = 20230328
POPULATION = 1_500_000
PRODUCT = "product of exact one-way marginals"
PUBLISHED = {  # table 2, 2-way, 1.5 million participants; nobody else published figures for these rows
    "privincr": {1: 0.162, 4: 0.073, 8: 0.04},
    "noincremental": {1: 0.46, 4: 0.166, 8: 0.044},
    "lopub": {1: 0.721, 4: 0.68, 8: 0.633},
}
AS_PRINTED = {"threshold": "paper", "fit": "paper", "shares": "cells", "singles": 0.0, "mechanism": "oue"}
Start = Callable[[Campaign], ProtocolMachine]
METHODS: dict[str, Start] = {
    "privincr": lambda c: privincr.PrivIncr.start(c, privincr.Parameters()),
    "privincr, fit=paper": lambda c: privincr.PrivIncr.start(c, privincr.Parameters(fit="paper")),
    "privincr, as printed": lambda c: privincr.PrivIncr.start(c, privincr.Parameters(**AS_PRINTED)),  # type: ignore[arg-type]
    "noincremental": lambda c: noincremental.NoIncremental.start(c, noincremental.Parameters()),
    "calm": lambda c: calm.Calm.start(c, calm.Parameters()),
    "fourier": lambda c: fourier.Fourier.start(c, fourier.Parameters()),
    "bayesnet, plan=sample": lambda c: bayesnet.BayesNetwork.start(c, bayesnet.Parameters(plan="sample")),
    "independent": lambda c: independent.IndependentProtocol.start(c, independent.Parameters()),
}


@dataclass(frozen=True)
class Table:
    """A table as codes: the participants, and the rows that errors are measured against."""

    name: str
    schema: Schema
    codes: np.ndarray
    truth: np.ndarray


def load_tables(data_dir: Path | None, quick: bool) -> list[Table]:
    """Adult as it is, Adult resampled, NLTCS: whatever there is."""
    from dither.datasets import open_table
    from dither.schema.table import encode

    here = data_dir or Path(__file__).resolve().parents[1].parent / "shared" / "data"
    out = []
    for name, file in (("Adult", "adult_coarse"), ("NLTCS", "nltcs")):
        if (here / f"{file}.parquet").is_file():
            table, schema, _ = open_table(here / f"{file}.parquet")
            codes = np.asarray(encode(table, schema).codes)
            out.append(Table(name, schema, codes, codes))
    if not out:
        table, schema, _ = open_table("adult")
        codes = np.asarray(encode(table, schema).codes)
        out.append(Table("Adult", schema, codes, codes))
    if not quick:
        out.insert(1, resampled(out[0], POPULATION, 0))
    return out


def resampled(table: Table, people: int, seed: int) -> Table:
    """Rows drawn with replacement, as the paper enlarges Adult."""
    rows = np.random.default_rng([SEED, seed]).integers(0, len(table.codes), people)
    name = f"{table.name} at {people:,}" if people != len(table.codes) else table.name
    return Table(name, table.schema, np.asfortranarray(table.codes[rows]), table.codes)


def run_method(
    start: Start, table: Table, epsilon: float, seed: int
) -> tuple[ProtocolMachine, Model, dict[str, float]]:
    """One campaign with the time of each stage, sampling as many rows as there are participants."""
    wall, cpu = time.perf_counter(), time.process_time()
    machine = start(Campaign(table.schema, epsilon, len(table.codes), seed))
    simulate(machine, table.codes, np.random.default_rng([SEED, seed, 1]))
    model = machine.model()
    model.sample(len(table.codes), np.random.default_rng([SEED, seed, 2]))
    return machine, model, {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def errors(model: Model, table: Table, ways: Sequence[int], sets: int) -> dict[str, float]:
    """Mean total variation of the model's k-way marginals."""
    found = evaluate_model(model, table.truth, ways, sets, np.random.default_rng(SEED))
    return {f"tvd_{k}": float(s.tvd) for k, s in found.items()}


def exact_product(table: Table) -> Independent:
    """The best that can be had without any dependence: no noise at all, only independence."""
    sizes = table.schema.cardinalities
    return Independent(table.schema, tuple(marginal(table.truth, sizes, (i,)) for i in range(len(sizes))))


def methods(
    table: Table, epsilons: Sequence[float], seeds: int, sets: int, names: Sequence[str] = tuple(METHODS)
) -> list[dict[str, Any]]:
    """Table 2 and figure 5: every method at every epsilon, mean of the seeds, with the lines without noise."""
    ways = (2, 3, 4)
    without = {
        PRODUCT: errors(exact_product(table), table, ways, sets),
        "junction tree without privacy": errors(
            publish_nonprivate(table.truth, table.schema, no_privacy=True), table, ways, sets
        ),
    }
    rows = []
    for epsilon in epsilons:
        rows += [{"dataset": table.name, "epsilon": epsilon, "method": name, **e} for name, e in without.items()]
        for name in names:
            found = []
            for seed in range(seeds):
                machine, model, seconds = run_method(METHODS[name], table, epsilon, seed)
                notes = machine.notes()
                found.append({**errors(model, table, ways, sets), **seconds, "edges": len(notes.get("edges", []))})
            row = {"dataset": table.name, "epsilon": epsilon, "method": name}
            row |= {key: float(np.mean([f[key] for f in found])) for key in found[0]}
            row["spread_2"] = float(np.std([f["tvd_2"] for f in found]))
            row["published_2"] = PUBLISHED.get(name, {}).get(epsilon) if len(table.codes) == POPULATION else None
            rows.append(row)
    return rows


def figure_3(table: Table, epsilons: Sequence[float], people: int, sets: int) -> list[dict[str, Any]]:
    """Joint estimators by epsilon and number of attributes, over random attribute sets of at most 2,000 cells."""
    rng = np.random.default_rng(SEED)
    codes = table.codes[rng.choice(len(table.codes), min(people, len(table.codes)), replace=False)]
    rows = []
    for d in (2, 3, 4):
        chosen = attribute_sets(len(table.schema), d, 40 * sets, rng)
        order = rng.permutation(len(chosen))
        narrow = [chosen[i] for i in order if np.prod([table.schema.cardinalities[a] for a in chosen[i]]) <= 2_000][
            :sets
        ]
        for epsilon in epsilons:
            for rival in (*RIVALS, PRODUCT):
                found = [_rival_error(table, codes, s, rival, epsilon) for s in narrow]
                rows.append(
                    {
                        "dataset": table.name,
                        "attributes": d,
                        "epsilon": epsilon,
                        "method": rival,
                        "tvd": float(np.mean(found)),
                        "sets": len(narrow),
                    }
                )
    return rows


def _rival_error(table: Table, codes: np.ndarray, positions: tuple[int, ...], rival: str, epsilon: float) -> float:
    part = codes[:, positions]
    schema = Schema(tuple(table.schema.attributes[i] for i in positions))
    exact = marginal(part, schema.cardinalities, range(len(positions)))
    if rival == PRODUCT:
        return tvd(exact_product(Table("", schema, part, part)).marginal(schema.names), exact)
    rng = np.random.default_rng([SEED, *positions])
    return tvd(rival_joint(schema, part, rival, epsilon, rng, steps=200), exact)  # type: ignore[arg-type]


def figure_4(table: Table, epsilons: Sequence[float], seeds: int, sets: int, quick: bool) -> list[dict[str, Any]]:
    """3-way error and run time while T, omega or phi varies (figures 4 and 7)."""
    sweeps: dict[str, tuple[Any, ...]] = {
        "rounds": (1, 6) if quick else (1, 2, 4, 6, 8, 10),
        "omega": (0.3,) if quick else (0.1, 0.3, 0.5, 0.7, 0.9),
        "phi": (0.3,) if quick else (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    }
    product = errors(exact_product(table), table, (2, 3), sets)
    rows = []
    for epsilon in epsilons:
        for name, values in sweeps.items():
            rows.append({"dataset": table.name, "epsilon": epsilon, "parameter": name, "value": PRODUCT, **product})
            for value in values:
                found = []
                for seed in range(seeds):

                    def start(c: Campaign, name: str = name, value: Any = value) -> ProtocolMachine:
                        return privincr.PrivIncr.start(c, privincr.Parameters(**{name: value}))

                    _, model, seconds = run_method(start, table, epsilon, seed)
                    found.append({**errors(model, table, (2, 3), sets), **seconds})
                row = {"dataset": table.name, "epsilon": epsilon, "parameter": name, "value": value}
                rows.append(row | {key: float(np.mean([f[key] for f in found])) for key in found[0]})
    return rows


def figure_6(
    table: Table, people: int, epsilons: Sequence[float], names: Sequence[str], rows: int
) -> list[dict[str, Any]]:
    """SVM accuracy on real rows; training on real rows, on rows without dependence and guessing stand beside it."""
    train, test = split_rows(table.codes, 0.2, np.random.default_rng(SEED))
    source = resampled(Table(table.name, table.schema, train, train), people, 7)
    wanted = [t for t in ("income", "salary", "sex", "education") if t in table.schema.names] or list(
        table.schema.names[:3]
    )
    out = []

    def score(synthetic: np.ndarray, real: bool) -> list[Any]:
        return classification(
            table.schema,
            synthetic,
            test,
            classifier="svm",
            real=train if real else None,
            targets=wanted,
            seed=SEED,
            rows=rows,
        )

    plain = score(exact_product(source).sample(rows, np.random.default_rng(SEED)), True)
    for epsilon in epsilons:
        for s in plain:
            common = {"dataset": source.name, "epsilon": epsilon, "target": s.target}
            out.append({**common, "method": PRODUCT, "accuracy": s.synthetic})
            out.append({**common, "method": "real rows, no privacy", "accuracy": s.real})
            out.append({**common, "method": "most frequent value", "accuracy": s.majority})
        for name in names:
            _, model, _ = run_method(METHODS[name], source, epsilon, 0)
            for s in score(model.sample(rows, np.random.default_rng(SEED)), False):
                out.append(
                    {
                        "dataset": source.name,
                        "epsilon": epsilon,
                        "target": s.target,
                        "method": name,
                        "accuracy": s.synthetic,
                    }
                )
    return out


def run(quick: bool = False, out: Path | None = None, data_dir: Path | None = None) -> dict[str, Any]:
    """Measure everything; with `out` write privincr.json and privincr.html there. `quick` is under a minute."""
    started = time.perf_counter()
    tables = load_tables(data_dir, quick)
    epsilons: tuple[float, ...] = (1, 4) if quick else (1, 2, 4, 8)
    seeds, sets = (1, 12) if quick else (3, 105)
    result: dict[str, Any] = {
        "what": "PrivIncr, table 2 and figures 3 to 7; one simulated participant a row",
        "seed": SEED,
        "quick": quick,
        "datasets": {t.name: {"rows": len(t.codes), "attributes": len(t.schema)} for t in tables},
        "methods": [],
    }
    for table in tables:
        brief = quick and table is not tables[0]
        chosen = ("calm", "noincremental", "independent") if brief else tuple(METHODS)
        result["methods"] += methods(table, epsilons[-1:] if brief else epsilons, seeds, sets, chosen)
    adult = tables[0]
    largest = adult if quick else tables[1]
    result["figure_3"] = figure_3(
        adult, (1, 4) if quick else (1, 2, 4, 8), 5_000 if quick else 45_222, 2 if quick else 20
    )
    result["figure_4"] = figure_4(largest, (4,) if quick else (1, 4, 8), 1 if quick else 2, sets, quick)
    compared = ("privincr",) if quick else ("privincr", "privincr, fit=paper", "noincremental", "calm")
    result["figure_6"] = figure_6(
        adult,
        len(adult.codes) if quick else POPULATION,
        (4,) if quick else epsilons,
        compared,
        2_000 if quick else 20_000,
    )
    result["seconds"] = time.perf_counter() - started
    write(result, out, "privincr", page(result) if out is not None else "")
    return result


def write(result: dict[str, Any], out: Path | None, name: str, html: str) -> None:
    """Both files under a temporary name first."""
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    for suffix, text in ((".json", json.dumps(result, indent=1) + "\n"), (".html", html)):
        temporary = out / f".{name}{suffix}.tmp"
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, out / f"{name}{suffix}")


def page(result: dict[str, Any]) -> str:
    """Charts and tables in one HTML file: inline SVG, no script, nothing fetched."""
    sweep = [{**r, "panel": f"{r['parameter']}"} for r in result["figure_4"] if r["value"] != PRODUCT]
    joint = [{**r, "panel": f"{r['attributes']} attributes"} for r in result["figure_3"]]
    by_way = [
        {**r, "panel": f"{r['dataset']}, {k}-way", "tvd": r[f"tvd_{k}"]} for r in result["methods"] for k in (2, 3, 4)
    ]
    svm = [{**r, "panel": r["target"]} for r in result["figure_6"]]
    parts = [
        ("Table 2 and figure 5. Mean total variation of k-way marginals", lines(by_way, "epsilon", "tvd", "method")),
        ("Figure 3. Joint estimators", lines(joint, "epsilon", "tvd", "method")),
        ("Figure 4. 3-way error while one parameter varies", lines(sweep, "value", "tvd_3", "epsilon")),
        ("Figure 7. CPU seconds from reports to synthetic rows", lines(sweep, "value", "cpu_seconds", "epsilon")),
        ("Figure 6. SVM accuracy on real rows", lines(svm, "epsilon", "accuracy", "method")),
    ]
    parts += [(f"Figures of {key}", html_table(result[key])) for key in ("methods", "figure_3", "figure_4", "figure_6")]
    return html_page("PrivIncr, measured", result["what"], parts)


def html_page(title: str, what: str, parts: Sequence[tuple[str, str]]) -> str:
    """One page of headed parts."""
    from html import escape

    style = "body{font:15px sans-serif;margin:2em;max-width:75em}table{border-collapse:collapse}"
    style += "td,th{padding:2px 9px;text-align:right;border-bottom:1px solid #ddd}svg{max-width:100%;height:auto}"
    body = "".join(f"<h2>{escape(head)}</h2>{content}" for head, content in parts)
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title><style>{style}</style>"
        f"<h1>{escape(title)}</h1><p>{escape(what)}</p>{body}</html>\n"
    )


def lines(rows: Sequence[dict[str, Any]], x: str, y: str, colour: str) -> str:
    """A chart a panel, drawn as SVG."""
    import altair as alt
    import vl_convert

    values = [{k: r[k] for k in (x, y, colour, "panel")} for r in rows if r.get(y) is not None]
    if not values:
        return ""
    chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(point=True)
        .encode(
            x=alt.X(f"{x}:Q", title=x),
            y=alt.Y(f"{y}:Q", title=y.replace("_", " "), scale=alt.Scale(zero=False)),
            color=alt.Color(f"{colour}:N", title=colour),
        )
        .properties(width=230, height=190)
        .facet(alt.Facet("panel:N", title=None), columns=3)
        .resolve_scale(x="independent", y="independent")
    )
    svg: str = vl_convert.vegalite_to_svg(chart.to_dict())
    return svg


def html_table(rows: Sequence[dict[str, Any]]) -> str:
    """All rows; a cell that a row lacks stays empty."""
    from html import escape

    keys = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{escape(key.replace('_', ' '))}</th>" for key in keys)
    body = []
    for row in rows:
        cells = (row.get(key) for key in keys)
        shown = (f"{v:.4g}" if isinstance(v, float) else escape("" if v is None else str(v)) for v in cells)
        body.append("<tr>" + "".join(f"<td>{c}</td>" for c in shown) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def print_summary(result: dict[str, Any]) -> None:
    """The methods' table."""
    for r in result["methods"]:
        seconds = f"{r['cpu_seconds']:.1f} s of processor" if "cpu_seconds" in r else ""
        print(
            f"{r['dataset']:20} eps {r['epsilon']:<4} {r['method']:36} 2-way {r['tvd_2']:.4f} 3-way {r['tvd_3']:.4f} "
            f"4-way {r['tvd_4']:.4f} {seconds}"
        )
    print(f"{result['seconds']:.0f} s in all")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="PrivIncr's tables and figures, measured")
    parser.add_argument("--quick", action="store_true", help="Adult and NLTCS as they are, one seed: under a minute")
    parser.add_argument("-o", "--out", type=Path, default=None, help="folder for privincr.json and privincr.html")
    given = parser.parse_args()
    print_summary(run(quick=given.quick, out=given.out))


if __name__ == "__main__":
    main()
