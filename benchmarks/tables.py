"""The tables that benchmarks run on, as codes. Read from the data folder, or the bundled Adult if that is absent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from dither.evaluation.metrics import marginal
from dither.fit import Independent
from dither.schema import Schema

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
FILES = {"Adult": "adult_coarse", "NLTCS": "nltcs", "Retail": "retail16"}
TPCE = (16, 5, 2, 4, 16, 16, 8, 16, 16, 2, 5, 4, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 2, 2)
GENERATED = "TPC-E (generated)"
PRODUCT = "product of exact one-way marginals"  # the line that no table may go without
SEED = 20180301


@dataclass(frozen=True)
class Table:
    """The participants' records, and the rows that errors are measured against."""

    name: str
    schema: Schema
    codes: np.ndarray
    truth: np.ndarray

    @property
    def binary(self) -> bool:
        return max(self.schema.cardinalities) == 2


def names(data_dir: Path | None, *wanted: str) -> tuple[str, ...]:
    """The requested tables that are available; Adult always is."""
    folder = data_dir or BESIDE
    return tuple(
        n for n in wanted if n in ("Adult", GENERATED) or (folder / f"{FILES[n]}.parquet").is_file()
    )


@lru_cache(maxsize=8)
def load(name: str, data_dir: Path | None = None) -> Table:
    """A table by name. The generated one has TPC-E's published cardinalities; its rows are not TPC-E's."""
    if name == GENERATED:
        from dither.datasets import generate_network

        network = generate_network(TPCE, parents=1, strength=1.5, seed=SEED)
        codes = network.sample_codes(40_000, np.random.default_rng(SEED))
        return Table(name, network.schema, codes, codes)
    from dither.datasets import open_table
    from dither.schema import encode

    path = (data_dir or BESIDE) / f"{FILES[name]}.parquet"
    table, schema, _ = open_table(path if path.is_file() else "adult")
    codes = np.asfortranarray(encode(table, schema).codes)
    return Table(name, schema, codes, codes)


@lru_cache(maxsize=2)
def resampled(name: str, people: int, seed: int = 0, data_dir: Path | None = None) -> Table:
    """Rows drawn with replacement, as PrivIncr's paper enlarges Adult; errors are measured against the table itself."""
    table = load(name, data_dir)
    rows = np.random.default_rng([SEED, seed]).integers(0, len(table.codes), people)
    return Table(name, table.schema, np.asfortranarray(table.codes[rows]), table.truth)


@lru_cache(maxsize=8)
def part(name: str, rows: int, data_dir: Path | None = None) -> Table:
    """A random part of a table (NLTCS is sorted, so never a prefix), or all of it."""
    table = load(name, data_dir)
    if rows >= len(table.codes):
        return table
    chosen = np.random.default_rng(SEED).choice(len(table.codes), rows, replace=False)
    codes = np.asfortranarray(table.codes[chosen])
    return Table(name, table.schema, codes, codes)


def exact_product(table: Table) -> Independent:
    """The error of the exact product of marginals: independence without noise."""
    sizes = table.schema.cardinalities
    return Independent(
        table.schema, tuple(marginal(table.truth, sizes, (i,)) for i in range(len(sizes)))
    )
