"""How well `dither plan` predicts: predicted over realised mean two-way error on Adult and NLTCS.

    python benchmarks/planner.py [--quick] [-o FOLDER]

The prediction sees schema, participants and epsilon only, with one default assumption on dependence. The realised error is
that of simulated collections on the real table, resampled to the number of participants. Data: from beside the repository at
../shared/data; without it the bundled Adult alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from dither.datasets import open_table
from dither.evaluate.metrics import evaluate_model
from dither.planner import assumed_dependence, predict, reference_population
from dither.protocols import start
from dither.schema import Schema
from dither.schema.table import encode
from dither.simulate import simulate

TABLES = ("adult_coarse", "nltcs")
METHODS = ("independent", "mixture")
PEOPLE = (20_000, 100_000, 1_500_000)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SEED = 11


def load(name: str, data_dir: Path | None) -> tuple[Schema, np.ndarray] | None:
    """A table as codes, or None if it is not there."""
    here = data_dir or Path(__file__).resolve().parents[1].parent / "shared" / "data"
    path = here / f"{name}.parquet"
    if not path.is_file():
        return None
    table, schema, _ = open_table(path)
    return schema, np.asarray(encode(table, schema).codes)


def realised(schema: Schema, codes: np.ndarray, name: str, people: int, epsilon: float, seeds: int) -> dict[int, float]:
    """The mean errors of simulated collections on the real table."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng([SEED, seed])
        population = np.asfortranarray(codes[rng.integers(0, len(codes), people)])
        machine = start(name, schema, epsilon, people, {}, seed)
        simulate(machine, population, rng)
        ways = evaluate_model(machine.model(), population, (1, 2), 105)
        found.append((ways[1].tvd, ways[2].tvd))
    one, two = np.mean(found, axis=0)
    return {1: float(one), 2: float(two)}


def compare(name: str, schema: Schema, codes: np.ndarray, quick: bool) -> list[dict[str, Any]]:
    """One row for each method, number of participants and epsilon."""
    population = reference_population(schema, assumed_dependence(schema))
    rows = []
    for people in PEOPLE[:2] if quick else PEOPLE:
        for epsilon in EPSILONS[1::2] if quick else EPSILONS:
            for method in METHODS:
                guess = predict(method, population, people, epsilon, repeats=1 if quick else 5).tvd
                real = realised(schema, codes, method, people, epsilon, 1 if quick else 3)
                row = {"table": name, "method": method, "participants": people, "epsilon": epsilon}
                row |= {f"predicted_{k}": guess[k] for k in (1, 2)} | {f"realised_{k}": real[k] for k in (1, 2)}
                row["ratio"] = guess[2] / real[2]
                rows.append(row)
                print(
                    f"{name:13} {method:12} {people:>9,} eps {epsilon:<4g} predicted {guess[2]:.4f} realised {real[2]:.4f} "
                    f"ratio {row['ratio']:.2f}",
                    flush=True,
                )
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """The ratios as a table: one line a table, method and number of participants."""
    epsilons = sorted({row["epsilon"] for row in rows})
    lines = ["| table | method | participants | " + " | ".join(f"eps {e:g}" for e in epsilons) + " |"]
    lines.append("|---" * (3 + len(epsilons)) + "|")
    for key in dict.fromkeys((r["table"], r["method"], r["participants"]) for r in rows):
        ratios = {r["epsilon"]: r["ratio"] for r in rows if (r["table"], r["method"], r["participants"]) == key}
        lines.append(f"| {key[0]} | {key[1]} | {key[2]:,} | " + " | ".join(f"{ratios[e]:.2f}" for e in epsilons) + " |")
    return "\n".join(lines)


def run(quick: bool = False, out: Path = Path("bench-out/planner"), data_dir: Path | None = None) -> None:
    """Measure the ratios and write them as JSON and as a table."""
    rows: list[dict[str, Any]] = []
    found = {name: load(name, data_dir) for name in TABLES}
    if not any(found.values()):
        table, schema, _ = open_table("adult")
        found = {"adult": (schema, np.asarray(encode(table, schema).codes))}
    for name, loaded in found.items():
        if loaded is not None:
            rows += compare(name, *loaded, quick)
    worst = max(max(r["ratio"], 1 / r["ratio"]) for r in rows)
    print(markdown(rows))
    print(f"worst factor {worst:.2f}")
    out.mkdir(parents=True, exist_ok=True)
    (out / "planner.json").write_text(json.dumps({"rows": rows, "worst_factor": worst}, indent=1))
    (out / "planner.md").write_text(markdown(rows) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path("bench-out/planner"))
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    run(given.quick, given.output, given.data)
