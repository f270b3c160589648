"""Write the golden release folders and their answers: `python -m tests.golden.make`.

The folders were written by version 0.2.0 and are not rewritten when the format changes: they show that
old folders still load. Run this only to add a kind of release.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import dither

FOLDERS = Path(__file__).parent
ANSWERS = FOLDERS / "answers.json"
COLUMNS = ["age", "education", "sex", "income"]


def table() -> Any:
    """Three thousand rows of four columns of Adult, and their schema."""
    bundled = dither.load_dataset("adult")
    schema = dither.Schema(tuple(bundled.schema[name] for name in COLUMNS))
    return bundled.table.select(COLUMNS).slice(0, 3000), schema


def build(kind: str, method: str) -> Any:
    """A release of one kind by one method."""
    rows, schema = table()
    if kind == "table":
        return dither.publish(
            rows, epsilon=4.0, schema=schema, rows=50, seed=1, method=method, replicates=5
        )
    if kind == "number":
        values = np.random.default_rng(2).gamma(2.0, 20.0, 3000).clip(0, 200)
        consumers = [] if method == "mean" else [3, 8]
        return dither.histogram(
            values, consumers=consumers, epsilon=2.0, low=0, high=200, method=method, seed=4
        )
    columns = ["education", "sex", "income"]
    return dither.central_release(
        rows, epsilon=1.0, method=method, columns=columns, schema=schema, seed=9, replicates=3
    )


KINDS = {
    "table": ("mixture", "privincr", "independent"),
    "number": ("chp", "ranges", "mean"),
    "central": ("laplace", "csm", "privbayes"),
}


def main() -> None:
    """Write what is missing."""
    from tests.golden.test_golden_releases import answers

    for kind, methods in KINDS.items():
        for method in methods:
            folder = FOLDERS / f"{kind}-{method}"
            if not folder.exists():
                build(kind, method).save(folder)
                for page in folder.rglob("*.html"):
                    page.unlink()
    stored = {
        f"{kind}-{method}": answers(kind, FOLDERS / f"{kind}-{method}")
        for kind, methods in KINDS.items()
        for method in methods
    }
    ANSWERS.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
