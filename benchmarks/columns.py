"""Columns of every type, real and synthetic; and public tables without a schema.

Generated columns of 200,000 people: amounts that are zero for four in five, hours heaped at 40, prices that end in 99, skewed
incomes, ages, heights, days, times of visits and durations. Means, medians, the share of the most frequent value and the
Kolmogorov-Smirnov distance of the synthetic table are compared with the real ones.
"""

from __future__ import annotations

import pkgutil
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets as bundled

import dither
from dither.errors import InputError
from dither.evaluation.metrics import LEVELS, column_distances
from dither.lab.harness import Bench, NotAvailable, Size, Study
from dither.schema import Attribute, Schema, attribute_from_json, numeric

EPSILON = 8.0
SKLEARN = ("iris", "wine", "breast_cancer", "diabetes", "digits", "linnerud")
STATSMODELS = (
    *(
        "anes96",
        "cancer",
        "ccard",
        "china_smoking",
        "committee",
        "copper",
        "cpunish",
        "danish_data",
        "elec_equip",
        "elnino",
    ),
    *(
        "engel",
        "fair",
        "fertility",
        "grunfeld",
        "heart",
        "longley",
        "macrodata",
        "modechoice",
        "nile",
        "randhie",
        "scotland",
    ),
    *("spector", "stackloss", "star98", "statecrime", "strikes", "sunspots"),
)
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


def public_tables() -> dict[str, Callable[[], pd.DataFrame]]:
    """Tables that come with scikit-learn and statsmodels, read without a network."""
    out: dict[str, Callable[[], pd.DataFrame]] = {
        f"scikit-learn {name}": partial(_from_sklearn, name) for name in SKLEARN
    }
    return out | {f"statsmodels {name}": partial(_from_statsmodels, name) for name in STATSMODELS}


def _from_sklearn(name: str) -> pd.DataFrame:
    return getattr(bundled, f"load_{name}")(as_frame=True).frame.rename(columns=str)


def _from_statsmodels(name: str) -> pd.DataFrame:
    if find_spec("statsmodels") is None:
        raise NotAvailable("statsmodels is not installed; pip install -e '.[bench]'")
    package = import_module("statsmodels.datasets")
    assert name in {found.name for found in pkgutil.iter_modules(package.__path__)}
    return (
        import_module(f"statsmodels.datasets.{name}")
        .load_pandas()
        .data.rename(columns=str)
        .reset_index(drop=True)
    )


def publish_without_schema(table: str, method: str = "mixture") -> dict[str, object]:
    """A public table without a schema: a release, or the list of decisions to make, and then a release."""
    frame = public_tables()[table]()
    begun = time.process_time()
    dropped: list[str] = []
    try:
        release = dither.publish(frame, epsilon=EPSILON, seed=0, method=method)
    except InputError as error:
        dropped = list(error.value) if isinstance(error.value, list) else []
        if not dropped or len(dropped) == len(frame.columns):
            return {
                "outcome": "stopped",
                "columns": len(frame.columns),
                "to decide": max(len(dropped), 1),
            }
        release = dither.publish(frame, epsilon=EPSILON, seed=0, method=method, drop=dropped)
    kept = frame.drop(columns=dropped)
    found = dither.evaluate(kept, release.synthetic, release.schema, ways=[1])
    return {
        "outcome": "decided" if dropped else "published",
        "rows": len(frame),
        "columns": len(frame.columns),
        "to decide": len(dropped),
        "tvd_1": found.tvd[1],
        "cpu_s": time.process_time() - begun,
    }


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The two studies of one size."""
    count = {"full": 200_000, "quick": 50_000, "smoke": 4000}[size]
    names = {
        "full": tuple(public_tables()),
        "quick": tuple(public_tables())[:10],
        "smoke": ("scikit-learn linnerud",),
    }[size]
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
    tables = Study(
        "tables",
        f"Public tables without a schema, epsilon {EPSILON:g}",
        {"table": names},
        publish_without_schema,
        labels=("outcome",),
        note="`decided`: columns that cannot be asked were named all at once, dropped, and the rest was published. The tables are "
        "small: errors are those of few people, not of the method.",
    )
    about = "Generated columns with spikes, heaps, tails and dates, and tables that come with other packages."
    return Bench("columns", "Columns of every type", about, (columns, tables), size)
