"""Adult by central-privacy synthesisers and by Dither's local one.

Central methods work for a curator who holds every record and adds noise to aggregates only. That is a far weaker promise
than local privacy, at the same epsilon, and a far easier problem: their lines are a yardstick, not a competitor's.

All rows are judged alike: as many rows as the table has are drawn from the fitted model, and their marginals compared with
the table's: all pairs, and 100 random triples.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.peers import child, environments
from benchmarks.tables import PRODUCT, Table, exact_product
from dither.evaluation.metrics import attribute_sets, marginal, tvd
from dither.lab.harness import NotAvailable

CENTRAL, LOCAL, NONE = (
    "central, a curator holds the table",
    "local, nobody holds a record",
    "none, the exact table",
)
RESAMPLED = "the table's own rows, drawn anew"  # the sampling error of this many rows
MANY, DELTA = 1_500_000, 1e-9
METHODS = {
    "dpmm MST": ("dpmm", "MST"),
    "dpmm AIM": ("dpmm", "AIM"),
    "smartnoise MST": ("smartnoise", "MST"),
    "smartnoise AIM": ("smartnoise", "AIM"),
    "dither mixture": ("dither", "mixture"),
    "dither mixture, 1.5 million people": ("dither", "mixture"),
}
CENTRAL_METHODS = ("dpmm MST", "smartnoise MST")  # the others of METHODS are there to be asked for
LINES = (
    "dither mixture, 1.5 million people",
    "dither mixture",
    *CENTRAL_METHODS,
    PRODUCT,
    RESAMPLED,
)


def measure(
    method: str,
    epsilon: float,
    seed: int,
    rows: int | None = None,
    data_dir: Path | None = None,
    build: bool = True,
    limit: float = 3600.0,
) -> list[dict[str, Any]]:
    """Errors, fit seconds and memory of one synthesiser; one row, or one per sampler where the library has several.

    `rows` takes a part of the table only; `build` makes an environment that is not there yet; a fit that takes longer than
    `limit` seconds is given up and said so.
    """
    table = tables.load("Adult", data_dir) if rows is None else tables.part("Adult", rows, data_dir)
    if method in (PRODUCT, RESAMPLED):
        rng = np.random.default_rng(seed)
        drawn = (
            exact_product(table).sample(len(table.codes), rng)
            if method == PRODUCT
            else table.codes[rng.integers(0, len(table.codes), len(table.codes))]
        )
        return [{"trust": NONE, "records": len(table.codes), **errors(table, np.asarray(drawn))}]
    library, name = METHODS[method]
    records = table.codes
    if "million" in method:
        many = MANY if rows is None else rows * MANY // len(tables.load("Adult", data_dir).codes)
        records = records[
            np.random.default_rng([tables.SEED, seed]).integers(0, len(records), many)
        ]
    python = None if library == "dither" else environments.interpreter(library, build)
    try:
        costs, samples = fit(library, name, table, records, epsilon, seed, python, limit)
    except child.MissingError as missing:
        raise NotAvailable(f"{method}: its environment has no module {missing}") from None
    except child.ChildFailedError as failure:
        if library == "dither":
            raise
        raise NotAvailable(f"{method} at epsilon {epsilon:g}: {failure}") from None
    said = {"trust": LOCAL if library == "dither" else CENTRAL, "records": len(records)}
    return [
        {**said, "sampler": sampler, **costs, **errors(table, codes)}
        for sampler, codes in samples.items()
    ]


def fit(
    library: str,
    name: str,
    table: Table,
    records: np.ndarray,
    epsilon: float,
    seed: int,
    python: Path | None,
    limit: float,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Costs of fitting some records with a library, and as many rows as the table has from each of its samplers."""
    schema = table.schema
    about = {
        "domain": dict(zip(schema.names, schema.cardinalities, strict=True)),
        "schema": schema.to_json(),
    }
    with tempfile.TemporaryDirectory() as folder:
        source, drawn = Path(folder, "table.npy"), Path(folder, "drawn.npz")
        np.save(source, records.astype(np.int64))
        source.with_suffix(".json").write_text(json.dumps(about))
        request = {
            "library": library, "method": name, "epsilon": epsilon, "delta": DELTA, "seed": seed,
            "rows": len(table.codes), "table": str(source), "drawn": str(drawn),
        }  # fmt: skip
        costs = child.run("benchmarks.peers.synthesiser_worker", request, python, limit)
        with np.load(drawn) as arrays:
            return costs, {key: arrays[key] for key in arrays.files}


def errors(table: Table, codes: np.ndarray) -> dict[str, float]:
    """Mean total variation distance of drawn rows from the table: all pairs, 100 random triples."""
    sizes = table.schema.cardinalities
    found = {}
    for ways, most in ((2, 10_000), (3, 100)):
        sets = attribute_sets(len(sizes), ways, most, np.random.default_rng(0))
        distances = [tvd(marginal(codes, sizes, s), marginal(table.codes, sizes, s)) for s in sets]
        found[f"tvd_{ways}"] = float(np.mean(distances))
    return found
