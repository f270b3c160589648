"""Regressions on releases: how often the coefficients' intervals hold.

Generated tables with known coefficients, and Adult, where the truth is the regression on the
participants. Beside `release.regress` stands the common mistake: the same regression on the
synthetic rows as if they were data; and several synthetic tables, combined.
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import patsy
import statsmodels.api as sm
from scipy.stats import norm, poisson

import dither
from benchmarks import tables
from dither.lab.harness import Bench, NotAvailable, Size, Study
from dither.release import Release
from dither.schema import Attribute, Schema
from dither.types import Floats

FAMILIES = {
    "gaussian": sm.families.Gaussian(),
    "binomial": sm.families.Binomial(),
    "poisson": sm.families.Poisson(),
}
FORMULA = "y ~ x + g + f"
ADULT = {
    "gaussian": "hours_per_week ~ age + sex",
    "binomial": "income ~ age + sex",
}
# The largest value of the response, and one more: discretised normal and Poisson.
VALUES = {"gaussian": 13, "binomial": 2, "poisson": 10}
LEVEL = 0.95
REPLICATES = 20
# Rows of each synthetic table.
SYNTHETIC = 20_000
# Collections of the default method, at the smallest number of people.
DEFAULT_COLLECTIONS = 20


def schema_of(family: str) -> Schema:
    """A response, a number, three groups, a flag, and an attribute that is no predictor."""
    return Schema(
        (
            Attribute("y", "ordinal", values=tuple(range(VALUES[family]))),
            Attribute("x", "ordinal", values=tuple(range(6))),
            Attribute("g", "categorical", values=("a", "b", "c")),
            Attribute("f", "boolean", values=(False, True)),
            Attribute("z", "ordinal", values=tuple(range(4))),
        )
    )


@lru_cache(maxsize=3)
def population(family: str) -> pd.DataFrame:
    """Every combination with its probability `w`. Predictors depend on each other."""
    cells = pd.MultiIndex.from_product([a.values for a in schema_of(family)][:4]).to_frame(
        index=False, name=["y", "x", "g", "f"]
    )
    place = cells.g.map({"a": 0, "b": 1, "c": 2})
    weight = np.exp(-0.5 * ((cells.x - 2.5 - 0.7 * (place - 1)) / 1.6) ** 2)
    weight *= place.map({0: 0.45, 1: 0.33, 2: 0.22})
    flag = 1 / (1 + np.exp(-0.4 * (cells.x - 2.5)))
    weight *= np.where(cells.f, flag, 1 - flag)
    effect = 0.6 * (cells.g == "b") - 0.5 * (cells.g == "c") + 0.5 * cells.f
    if family == "gaussian":
        ends = np.append(np.arange(VALUES[family] - 1) + 0.5, np.inf)
        mean = 4 + 0.6 * cells.x + 2 * effect
        below = np.where(cells.y > 0, norm.cdf(cells.y - 0.5, mean, 2), 0.0)
        weight *= norm.cdf(ends[cells.y], mean, 2) - below
    elif family == "binomial":
        success = 1 / (1 + np.exp(-(-1.2 + 0.35 * cells.x + effect)))
        weight *= np.where(cells.y == 1, success, 1 - success)
    else:
        mean = np.exp(0.1 + 0.15 * cells.x + 0.6 * effect)
        last = poisson.sf(VALUES[family] - 2, mean)
        weight *= np.where(cells.y == VALUES[family] - 1, last, poisson.pmf(cells.y, mean))
    return cells.assign(w=weight / weight.sum())


def fitted(
    formula: str, family: str, rows: pd.DataFrame, weights: Floats | None = None
) -> pd.Series:
    """The coefficients of a regression on rows, which may have weights."""
    y, x = patsy.dmatrices(formula, rows, return_type="dataframe")
    model = sm.GLM(y.iloc[:, -1], x, family=FAMILIES[family], freq_weights=weights)
    return model.fit()


def generated(family: str, people: int, seed: int) -> tuple[pd.DataFrame, Schema, str, pd.Series]:
    """A table, its schema, the formula and the true coefficients."""
    cells = population(family)
    rng = np.random.default_rng([seed, 0x726567])
    table = cells.iloc[rng.choice(len(cells), people, p=cells.w)][["y", "x", "g", "f"]]
    table = table.assign(z=rng.integers(0, 4, people)).reset_index(drop=True)
    truth = fitted(FORMULA, family, cells, cells.w * 1e6).params
    return table, schema_of(family), FORMULA, truth


def adult(
    family: str, people: int, seed: int, data_dir: Path | None
) -> tuple[pd.DataFrame, Schema, str, pd.Series]:
    """Rows of Adult drawn with replacement; the truth is the regression on them."""
    if family not in ADULT:
        raise NotAvailable(f"no {family} regression on Adult is defined")
    if "Adult" not in tables.names(data_dir, "Adult"):
        raise NotAvailable("Adult's table is not there; --data names its folder")
    whole = dither.load_dataset("adult")
    names = ["age", "hours_per_week", "sex", "income", "relationship"]
    rng = np.random.default_rng([seed, 0x6164])
    rows = whole.table.select(names).to_pandas()
    rows = rows.iloc[rng.integers(0, len(rows), people)].reset_index(drop=True)
    schema = Schema(tuple(whole.schema[name] for name in names))
    return rows, schema, ADULT[family], fitted(ADULT[family], family, rows).params


def measure(
    table: str,
    family: str,
    method: str,
    people: int,
    epsilon: float,
    seed: int,
    data_dir: Path | None,
) -> list[dict[str, str | float]]:
    """Coverage and half-width of one collection's coefficients, by way of inference."""
    draw = generated if table == "generated" else partial(adult, data_dir=data_dir)
    rows, schema, formula, truth = draw(family, people, seed)
    release = dither.publish(
        rows,
        schema=schema,
        method=method,
        epsilon=epsilon,
        seed=seed,
        replicates=REPLICATES,
        rows=SYNTHETIC,
    )
    out: list[dict[str, str | float]] = []
    for way, coefficients in _ways(release, formula, family, seed).items():
        if coefficients is None:
            out.append({"way": way, "refused": 1.0})
            continue
        low, high = coefficients["low"], coefficients["high"]
        held = (low <= truth[low.index]) & (truth[low.index] <= high)
        error = np.abs((low + high) / 2 - truth[low.index])
        out.append(
            {
                "way": way,
                "coverage": float(held.mean()),
                "half_width": float(((high - low) / 2).mean()),
                "error": float(error.mean()),
                "refused": 0.0,
            }
        )
    return out


def _ways(release: Release, formula: str, family: str, seed: int) -> dict[str, pd.DataFrame | None]:
    try:
        ours = release.regress(formula, family, level=LEVEL).coefficients.set_index("name")
    except dither.DitherError:
        ours = None
    alone = fitted(formula, family, release.to_pandas())
    ends = alone.conf_int(1 - LEVEL)
    naive = pd.DataFrame({"low": ends[0], "high": ends[1]})
    several = [fitted(formula, family, rows) for rows in release.tables(10, seed=seed)]
    found = {
        name: dither.combine([f.params[name] for f in several], [f.bse[name] for f in several])
        for name in naive.index
    }
    combined = pd.DataFrame({n: {"low": c.low, "high": c.high} for n, c in found.items()}).T
    return {"regress": ours, "one table as if real": naive, "ten tables combined": combined}


def _left_out(table: str, family: str, method: str, people: int, seed: int, **_: object) -> bool:
    """No Poisson response in Adult; the default method takes longer, so it has fewer collections."""
    slow = method == "mixture" and (people > 100_000 or seed >= DEFAULT_COLLECTIONS)
    return slow or (table == "Adult" and family not in ADULT)


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The study of one size."""
    collections = {"full": 50, "quick": 2, "smoke": 1}[size]
    people = {"full": (100_000, 1_000_000), "quick": (100_000,), "smoke": (20_000,)}[size]
    epsilons = {"full": (2.0, 4.0), "quick": (4.0,), "smoke": (4.0,)}[size]
    families = ("gaussian", "binomial", "poisson") if size != "smoke" else ("binomial",)
    study = Study(
        name="coverage",
        title="Coverage of 95 % intervals of regression coefficients",
        axes={
            "table": ("generated", "Adult") if size == "full" else ("generated",),
            "family": families,
            "method": ("calm", "mixture") if size == "full" else ("calm",),
            "people": people,
            "epsilon": epsilons,
            "seed": tuple(range(collections)),
        },
        measure=partial(measure, data_dir=data_dir),
        labels=("people", "epsilon"),
        skip=_left_out,
        note="`coverage` is the mean over coefficients and collections, `error` the mean distance of "
        "the intervals' middles from the truth. `refused` is the share of collections in which "
        "`regress` raised an error instead of an estimate.",
    )
    about = (
        "Linear, logistic and Poisson regressions on releases of `calm` and the default. The truth is "
        "the regression on the population (generated tables) or on the participants (Adult)."
    )
    return Bench("regression", "Regressions on releases", about, (study,), size)
