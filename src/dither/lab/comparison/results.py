"""What a comparison found: plain figures, JSON, CSV and the page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dither
from dither.lab.comparison.measure import BASELINES, Task, majority
from dither.lab.harness import Bench, Outcome
from dither.lab.harness.page import render
from dither.notice import Notice
from dither.schema.files import write_atomically
from dither.types import JsonObject

MEASURES = {  # what a column of the results is, in words
    "tvd_1": "error of single columns",
    "tvd_2": "error of pairs",
    "tvd_3": "error of triples",
    "worst_pair": "error of the worst pair",
    "coverage": "coverage of 95 % intervals",
    "accuracy": "accuracy of a classifier trained on the synthetic rows",
    "cpu_seconds": "CPU seconds",
    "peak_megabytes": "megabytes",
}


@dataclass(frozen=True)
class Comparison:
    """What `compare` found: a line for each method and epsilon, what could not be run and why, and how it was measured.

    `results` has plain values: `method`, `epsilon`, `trust` ("local": nobody holds a record; "central": a curator does; "none": not
    private), `runs`, mean `tvd` by number of attributes, `worst_pair`, `coverage`, `accuracy`, `cpu_seconds`, `peak_megabytes`, and
    the `spread` of each over the runs.

    >>> import dither
    >>> table = dither.load_dataset("adult").table.select(["sex", "income"]).slice(0, 1000)
    >>> found = dither.compare(table, epsilons=2.0, methods="independent", replicates=0, isolated=False)
    >>> found.best(epsilon=2.0)
    'independent'
    """

    about: JsonObject
    results: tuple[JsonObject, ...]
    not_run: tuple[JsonObject, ...]
    warnings: tuple[Notice, ...]
    seconds: float
    resumed: int
    page: str = field(repr=False)

    def best(self, epsilon: float, measure: str = "tvd_2") -> str | None:
        """The local method with the least error (or the greatest accuracy) at an epsilon."""
        able = [
            r
            for r in self.results
            if r["epsilon"] == epsilon and r["trust"] == "local" and _of(r, measure) is not None
        ]
        order = max if measure == "accuracy" else min
        return (
            str(order(able, key=lambda r: float(_of(r, measure) or 0.0))["method"])
            if able
            else None
        )

    def to_json(self) -> JsonObject:
        """Plain values, as `dither compare --json` prints them."""
        return {
            **self.about,
            "results": list(self.results),
            "not_run": list(self.not_run),
            "warnings": [w.to_json() for w in self.warnings],
            "seconds": self.seconds,
            "dither_version": dither.__version__,
        }

    def to_csv(self) -> str:
        """One line for each method and epsilon, a column for each mean and its spread."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ["method", "epsilon", "trust", "runs", *MEASURES, *(f"{m}_spread" for m in MEASURES)]
        )
        for r in self.results:
            spreads = [r["spread"].get(m, "") for m in MEASURES]
            figures = ["" if (found := _of(r, m)) is None else found for m in MEASURES]
            writer.writerow([r["method"], r["epsilon"], r["trust"], r["runs"], *figures, *spreads])
        return text.getvalue()

    def save(self, directory: str | Path) -> Path:
        """Write index.html, comparison.json and comparison.csv into a folder, each whole or not at all."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        plain = json.dumps(self.to_json(), indent=1, allow_nan=False)
        for name, text in (
            ("index.html", self.page),
            ("comparison.json", plain),
            ("comparison.csv", self.to_csv()),
        ):
            write_atomically(folder / name, partial(_write, text))
        return folder

    def __repr__(self) -> str:
        lines = [
            f"Comparison of {len(self.results)} results on {self.about['participants']:,} participants"
        ]
        for epsilon in self.about["epsilons"]:
            lines.append(
                f"  epsilon {epsilon:g}: least error of pairs by {self.best(epsilon) or 'nothing that ran'}"
            )
        return "\n".join(lines)


def read_outcome(
    bench: Bench,
    task: Task,
    outcome: Outcome,
    levels: Sequence[float],
    chosen: Sequence[str],
    absent: Sequence[str],
) -> Comparison:
    """What a run of the harness measured, as a comparison."""
    results = []
    for method in (*chosen, *BASELINES):
        for epsilon in levels:
            points = [
                p for p in outcome.points if p["method"] == method and p["epsilon"] == epsilon
            ]
            if points:
                results.append(_result(method, epsilon, points))
    reasons: dict[tuple[Any, Any], str] = {}
    for point, reason in outcome.missing:
        reasons.setdefault((point["method"], point["epsilon"]), reason)
    not_run = [{"method": m, "epsilon": e, "reason": why} for (m, e), why in reasons.items()]
    not_run += [{"method": name, "epsilon": None, "reason": "not installed"} for name in absent]
    about: JsonObject = {
        "participants": task.population or len(task.people),
        "test_rows": len(task.test),
        "columns": list(task.schema.names),
        "target": task.target,
        "majority_accuracy": None if task.target is None else majority(task),
        "epsilons": list(levels),
        "methods": list(chosen),
    }
    # The page names each method beside its reason once, however many epsilons it failed at.
    outcome.notes = list(dict.fromkeys(f"{r['method']}: {r['reason']}" for r in not_run))
    page = render(outcome)
    return Comparison(
        about,
        tuple(results),
        tuple(not_run),
        bench.warnings,
        outcome.seconds,
        outcome.resumed,
        page,
    )


def _result(method: str, epsilon: float, points: Sequence[JsonObject]) -> JsonObject:
    found = {
        m: [p[m] for p in points if p.get(m) is not None] for m in (*MEASURES, "without_interval")
    }
    means = {m: float(np.mean(values)) for m, values in found.items() if values}
    spread = {m: float(np.std(v, ddof=1)) for m, v in found.items() if len(v) > 1}
    worst = max(
        (p for p in points if "worst_pair" in p), key=lambda p: float(p["worst_pair"]), default=None
    )
    out: JsonObject = {
        "method": method,
        "epsilon": epsilon,
        "trust": points[0]["trust"],
        "runs": len(points),
        "tvd": {str(k): means[f"tvd_{k}"] for k in (1, 2, 3) if f"tvd_{k}" in means},
        "worst_pair": None
        if worst is None
        else {"tvd": means["worst_pair"], "attributes": worst["worst_names"]},
        **{
            m: means.get(m)
            for m in ("coverage", "without_interval", "accuracy", "cpu_seconds", "peak_megabytes")
        },
        "spread": spread,
    }
    remarks = {p["no_intervals"] for p in points if "no_intervals" in p}
    return out | ({"no_intervals": sorted(remarks)[0]} if remarks else {})


def _of(result: JsonObject, measure: str) -> float | None:
    if measure.startswith("tvd_"):
        return result["tvd"].get(measure[4:])
    if measure == "worst_pair":
        return None if result["worst_pair"] is None else float(result["worst_pair"]["tvd"])
    found = result.get(measure)
    return None if found is None else float(found)


def _write(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")
