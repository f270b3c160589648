"""Measured rows in long form, their means over seeds, and both as Parquet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dither.lab.harness.study import REPEATED, Row, Study
from dither.schema.files import write_atomically

Long = dict[str, Any]  # study, labels, measure, value
Mean = dict[str, Any]  # study, labels (without seeds), measure, mean, spread, runs


def long_rows(study: Study, rows: Sequence[Row]) -> list[Long]:
    """One entry a number."""
    out = []
    for full in rows:
        row = {k: v for k, v in full.items() if k not in study.remarks}
        labels = {k: v for k, v in row.items() if v is not None and study.is_label(k, v)}
        out += [
            {"study": study.name, "labels": labels, "measure": k, "value": float(v)}
            for k, v in row.items()
            if v is not None and not study.is_label(k, v)
        ]
    return out


def means(rows: Sequence[Long]) -> list[Mean]:
    """Mean and standard deviation over what only differs in its seed, in the order of first appearance."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        labels = tuple((k, v) for k, v in row["labels"].items() if k not in REPEATED)
        groups.setdefault((row["study"], labels, row["measure"]), []).append(row["value"])
    out = []
    for (study, labels, measure), values in groups.items():
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        out.append(
            {
                "study": study,
                "labels": dict(labels),
                "measure": measure,
                "mean": float(np.mean(values)),
                "spread": spread,
                "runs": len(values),
            }
        )
    return out


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Labels become columns: numbers where all are numbers, text otherwise."""
    names = list(dict.fromkeys(name for row in rows for name in row["labels"]))
    columns: dict[str, Any] = {"study": pa.array([row["study"] for row in rows], pa.string())}
    for name in names:
        columns[name] = _column([row["labels"].get(name) for row in rows])
    for name in (k for k in rows[0] if k not in ("study", "labels")):
        columns[name] = _column([row[name] for row in rows])
    table = pa.table(columns)
    write_atomically(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def _column(values: list[Any]) -> Any:
    known = [v for v in values if v is not None]
    if all(isinstance(v, int) and not isinstance(v, bool) for v in known):
        return pa.array(values, pa.int64())
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in known):
        return pa.array(
            [None if v is None or math.isnan(v) else float(v) for v in values], pa.float64()
        )
    return pa.array([None if v is None else str(v) for v in values], pa.string())
