"""Columns of every type at their smallest, and the column that is mostly zero at full size."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import dither
from benchmarks import columns
from dither.lab.harness import execute
from dither.schema import Schema, numeric

pytestmark = pytest.mark.slow


def test_the_bench_runs(tmp_path: Path) -> None:
    outcome = execute(columns.bench("smoke"), tmp_path)
    for domain in ("public", "inferred"):
        assert (
            abs(outcome.mean("columns", "synthetic top share", domain=domain, column="gift") - 0.8)
            < 0.05
        )
        assert outcome.mean("columns", "KS", domain=domain, column="hours") < 0.15


def zero_heavy() -> pd.DataFrame:
    return columns.people(200_000, 1)[["gift", "hours", "age"]]


def test_a_column_that_is_mostly_zero_comes_back_as_it_is() -> None:
    """Within 5 % of its mean, and 0.80 +- 0.01 zeros: 200,000 people, epsilon 8."""
    table = zero_heavy()
    made = dither.publish(table, epsilon=8.0, seed=3).synthetic
    assert abs(made["gift"].mean() / table["gift"].mean() - 1) < 0.05
    assert abs((made["gift"] == 0).mean() - 0.8) < 0.01
    assert made["gift"].median() == 0.0
    assert abs((made["hours"] == 40).mean() - (table["hours"] == 40).mean()) < 0.01


def test_even_bins_without_an_atom_would_not_pass() -> None:
    table = zero_heavy()[["gift", "hours"]]
    even = Schema(
        (
            numeric("gift", low=0.0, high=float(table["gift"].max())),
            numeric("hours", low=1, high=99),
        )
    )
    made = dither.publish(table, epsilon=8.0, schema=even, seed=3).synthetic
    assert (made["gift"] == 0).mean() < 0.1
    assert made["gift"].mean() > 1.5 * table["gift"].mean()
