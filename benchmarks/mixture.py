"""The house method on Adult and NLTCS: error against epsilon, with time and memory, beside what others published.

    python -m benchmarks.mixture [--quick] [-o FOLDER]

Each line is the mean over seeds of the mean total variation distance over all pairs and 100 random triples, exact marginals of
the model against the resampled population. Data: beside the repository at ../shared/data; without it the bundled Adult.
"""

from __future__ import annotations

import argparse
import html
import json
import resource
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pictures import line_chart
from dither.models import Independent, Model
from dither.protocols import start
from dither.schema import Schema, load_schema
from dither.simulate import simulate

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = {"adult_coarse": 1_500_000, "adult": 1_500_000, "nltcs": 1_000_000}
# PrivIncr (Liu, Tang, Hu, Jin, Guo, EDBT 2023), table 2: Adult, 1.5 million participants, mean 2-way distance; LoPub (Ren et
# al., 2018) as run there.
PUBLISHED = {
    "PrivIncr, as published": {1.0: 0.162, 4.0: 0.073, 8.0: 0.040},
    "LoPub, as published by PrivIncr": {1.0: 0.721, 4.0: 0.68, 8.0: 0.633},
}


def tables(data_dir: Path | None) -> dict[str, tuple[Schema, np.ndarray]]:
    """The tables there are, as codes."""
    folder = data_dir or DATA
    out = {}
    for name in ("adult_coarse", "nltcs"):
        if (folder / f"{name}.parquet").is_file():
            import pyarrow.parquet as pq

            schema = load_schema(folder / f"{name}.domain.json")
            table = pq.read_table(folder / f"{name}.parquet")
            out[name] = (schema, np.column_stack([np.asarray(table[n]) for n in schema.names]).astype(np.int32))
    if not out:
        from dither.datasets import load_dataset
        from dither.schema.table import encode

        dataset = load_dataset("adult")
        out["adult"] = (dataset.schema, np.asarray(encode(dataset.table, dataset.schema), dtype=np.int32))
    return out


class Truth:
    """The true marginals of a population: all pairs and 100 random triples."""

    def __init__(self, schema: Schema, codes: np.ndarray) -> None:
        k, d = schema.cardinalities, len(schema)
        triples = list(combinations(range(d), 3))
        chosen = np.random.default_rng(0).choice(len(triples), min(100, len(triples)), replace=False)
        self.marginals: dict[int, list[tuple[list[str], np.ndarray]]] = {2: [], 3: []}
        for members in [*combinations(range(d), 2), *(triples[i] for i in chosen)]:
            cell = np.zeros(len(codes), dtype=np.int64)
            for i in members:
                cell = cell * k[i] + codes[:, i]
            shape = [k[i] for i in members]
            counts = np.bincount(cell, minlength=int(np.prod(shape))).reshape(shape)
            self.marginals[len(members)].append(([schema.names[i] for i in members], counts / len(codes)))
        self.product = Independent(
            schema, tuple(np.bincount(codes[:, i], minlength=k[i]) / len(codes) for i in range(d))
        )

    def error(self, model: Model, ways: int) -> float:
        return float(np.mean([np.abs(model.marginal(names) - true).sum() / 2 for names, true in self.marginals[ways]]))


def measure(
    method: str, schema: Schema, codes: np.ndarray, truth: Truth, epsilon: float, seed: int
) -> dict[str, float]:
    """One campaign of a method: errors and CPU seconds."""
    machine = start(method, schema, epsilon, len(codes), seed=seed)
    rng = np.random.default_rng([seed, 1])
    simulate(machine, codes, rng)
    begin = time.process_time()
    model = machine.model()
    fitted = time.process_time()
    model.sample(len(codes), rng)
    sampled = time.process_time()
    return {
        "2": truth.error(model, 2),
        "3": truth.error(model, 3),
        "fit_s": fitted - begin,
        "sample_s": sampled - fitted,
    }


def run(quick: bool = False, out: Path | None = None, data_dir: Path | None = None) -> dict[str, Any]:
    """Measure everything; with `out` write results.json and report.html there."""
    seeds = range(1 if quick else 3)
    results: dict[str, Any] = {"quick": quick, "seeds": len(seeds), "published": PUBLISHED, "tables": {}}
    for name, (schema, rows) in tables(data_dir).items():
        n = SIZES[name] // (20 if quick else 1)
        lines: list[dict[str, Any]] = []
        populations = []
        for seed in seeds:
            rng = np.random.default_rng([seed, 0])
            codes = np.asfortranarray(rows[rng.integers(0, len(rows), n)])
            populations.append((codes, Truth(schema, codes)))
        for epsilon in (1.0, 4.0) if quick else EPSILONS:
            for method in ("mixture", "independent"):
                runs = [measure(method, schema, c, t, epsilon, s) for s, (c, t) in zip(seeds, populations, strict=True)]
                line: dict[str, Any] = {"epsilon": epsilon, "method": method}
                for key in runs[0]:
                    values = [r[key] for r in runs]
                    line[key], line[f"{key}_spread"] = float(np.mean(values)), float(np.std(values))
                lines.append(line)
        product = {w: float(np.mean([t.error(t.product, int(w)) for _, t in populations])) for w in ("2", "3")}
        results["tables"][name] = {"participants": n, "lines": lines, "product_of_exact_one_ways": product}
    results["peak_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (out / "report.html").write_text(page(results), encoding="utf-8")
    return results


def page(results: dict[str, Any]) -> str:
    """One self-contained page: a chart and a table for each data set."""
    parts = [
        "<!doctype html><meta charset=utf-8><title>Mixture</title><style>body{font:15px sans-serif;max-width:60em;"
    ]
    parts.append(
        "margin:2em auto}td,th{padding:.2em .8em;text-align:right}svg{max-width:48em}</style><h1>Mixture of products</h1>"
    )
    parts.append(
        f"<p>Mean of {results['seeds']} seeds, ± their spread; peak memory {results['peak_megabytes']:.0f} MB.</p>"
    )
    for name, table in results["tables"].items():
        parts.append(f"<h2>{html.escape(name)}, {table['participants']:,} participants</h2>")
        epsilons = sorted({line["epsilon"] for line in table["lines"]})
        for ways in ("2", "3"):
            lines: dict[str, list[tuple[float, float | None]]] = {}
            for line in table["lines"]:
                lines.setdefault(line["method"], []).append((line["epsilon"], line[ways]))
            lines["exact one-ways"] = [(e, table["product_of_exact_one_ways"][ways]) for e in epsilons]
            if ways == "2" and name != "nltcs":
                lines["PrivIncr"] = [(e, PUBLISHED["PrivIncr, as published"].get(e)) for e in epsilons]
            parts.append(line_chart(f"Mean {ways}-way distance", "epsilon", "distance", lines, log_x=True))
        parts.append("<table><tr><th>epsilon<th>method<th>2-way<th>3-way<th>fit, CPU s<th>sampling, CPU s</tr>")
        for line in table["lines"]:
            cells = [f"{line['epsilon']:g}", line["method"]]
            cells += [f"{line[w]:.4f} ± {line[w + '_spread']:.4f}" for w in ("2", "3")]
            cells += [f"{line['fit_s']:.1f}", f"{line['sample_s']:.1f}"]
            parts.append("<tr>" + "".join(f"<td>{html.escape(c)}" for c in cells) + "</tr>")
        parts.append("</table>")
        if name != "nltcs":
            for label, values in PUBLISHED.items():
                figures = ", ".join(f"{v:g} at epsilon {e:g}" for e, v in values.items())
                parts.append(f"<p>{html.escape(label)}: {figures}.</p>")
    return "\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path("bench-out/mixture"))
    given = parser.parse_args()
    for table_name, figures in run(given.quick, given.output)["tables"].items():
        for shown in figures["lines"]:
            print(
                table_name,
                shown["epsilon"],
                shown["method"],
                *(f"{shown[w]:.4f}" for w in ("2", "3", "fit_s", "sample_s")),
            )
