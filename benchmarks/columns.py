"""Columns of every type, real and synthetic.

Generated columns of 200,000 people: amounts that are zero for four in five, hours heaped at 40, prices that end in 99, skewed
incomes, ages, heights, days, times of visits and durations. Means, medians, the share of the most frequent value and the
Kolmogorov-Smirnov distance of the synthetic table are compared with the real ones.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

import dither
from dither.evaluation.metrics import LEVELS, column_distances
from dither.lab.harness import Bench, Size, Study
from dither.schema import Attribute, Schema, attribute_from_json, numeric

EPSILON = 8.0
COLUMNS = ("gift", "hours", "price", "income", "age", "height", "joined", "visit", "stay")
MIDDLE = LEVELS.index(0.5)


def people(count: int, seed: int) -> pd.DataFrame:
    """Columns of every type; those of one person depend on each other through age."""
    rng = np.random.default_rng([seed, 0x636F6C])
    age = np.clip(np.rint(rng.gamma(9, 4.5, count) + 15), 18, 99).astype(np.int64)
    income = np.round(np.exp(rng.normal(9.6 + 0.01 * age, 0.8, count)), 0)
    hours = np.where(
        rng.random(count) < 0.45, 40, np.clip(np.rint(rng.normal(38, 12, count)), 1, 99)
    ).astype(np.int64)
    day = np.datetime64("2022-01-01") + np.minimum(
        rng.exponential(250, count).astype(np.int64), 1094
    )
    hour = np.clip(rng.normal(14 + 0.02 * age, 4, count), 0, 23.99)
    return pd.DataFrame(
        {
            "gift": np.where(
                rng.random(count) < 0.8,
                0.0,
                np.minimum(np.round(rng.lognormal(7.7, 1.2, count), 2), 250_000.0),
            ),
            "hours": hours,
            "price": rng.choice([0.99, 1.99, 4.99, 9.99], count, p=[0.45, 0.3, 0.2, 0.05]),
            "income": np.minimum(income, 500_000.0),
            "age": age,
            "height": np.clip(rng.normal(171, 9, count), 120, 220),
            "joined": day,
            "visit": day.astype("datetime64[s]") + np.rint(hour * 3600).astype(np.int64),
            "stay": np.minimum(rng.exponential(900, count), 7199).astype("timedelta64[s]"),
            "member": rng.random(count) < 0.2 + 0.005 * age,
            "region": rng.choice(["N", "E", "S", "W"], count, p=[0.4, 0.3, 0.2, 0.1]),
        }
    )


def public_schema() -> Schema:
    """The domain from public knowledge alone: ranges, shapes and atoms that are known without the table."""
    times = [
        {"name": "joined", "kind": "date", "min": "2022-01-01", "max": "2024-12-31", "by": "month"},
        {
            "name": "visit",
            "kind": "datetime",
            "min": "2022-01-01",
            "max": "2024-12-31",
            "by": ["quarter", "hour"],
        },
        {"name": "stay", "kind": "duration", "min": 0, "max": 7200, "shape": "skewed", "unit": 1},
    ]
    return Schema(
        (
            numeric("gift", low=0, high=250_000, shape="skewed", unit=0.01),
            numeric("hours", low=1, high=99, atoms=(20, 30, 35, 40, 45, 50, 60), unit=1.0),
            Attribute("price", "ordinal", (0.99, 1.99, 4.99, 9.99)),
            numeric("income", low=0, high=500_000, shape="skewed", unit=1.0),
            numeric("age", low=18, high=99, unit=1.0),
            numeric("height", low=120.0, high=220.0),
            *(attribute_from_json(str(entry["name"]), entry) for entry in times),
            Attribute("member", "boolean", (False, True)),
            Attribute("region", "categorical", ("N", "E", "S", "W")),
        )
    )


def compare_column(column: str, domain: str, seed: int, count: int) -> dict[str, float]:
    """One column's figures, real and synthetic, in a table with two others that depend on it a little."""
    table = people(count, seed)[[column, "member", "region"]]
    known = public_schema()
    others = tuple(known[name] for name in ("member", "region"))
    own = known[column] if domain == "public" else dither.infer_schema(table[[column]])[column]
    schema = Schema((own, *others))
    made = dither.publish(table, epsilon=EPSILON, schema=schema, seed=seed).synthetic
    # Prices are codes to the schema; here they are compared as numbers.
    scale = Schema((own if own.on_line else numeric(column, low=0.0, high=10.0),))
    (found,) = column_distances(table[[column]], made[[column]], scale)
    real, drawn = found.real, found.synthetic
    return {
        "real mean": real.mean,
        "synthetic mean": drawn.mean,
        "real median": real.quantiles[MIDDLE],
        "synthetic median": drawn.quantiles[MIDDLE],
        "real top share": real.top_share,
        "synthetic top share": drawn.top_share,
        "KS": found.ks,
    }


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The study of one size."""
    count = {"full": 200_000, "quick": 50_000, "smoke": 4000}[size]
    columns = Study(
        "columns",
        f"Columns of every type, {count:,} people, epsilon {EPSILON:g}",
        {
            "column": COLUMNS[:2] if size == "smoke" else COLUMNS,
            "domain": ("public", "inferred"),
            "seed": range(3 if size == "full" else 1),
        },
        partial(compare_column, count=count),
        note="Each in a table with two others. Days count from 1970, instants and durations in seconds. `public` states range and "
        "shape without a look at the table; `inferred` leaks it.",
    )
    about = "Generated columns with spikes, heaps, tails and dates."
    return Bench("columns", "Columns of every type", about, (columns,), size)
