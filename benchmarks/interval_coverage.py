"""Coverage of the 95 % intervals: on real tables, and on generated populations with known joint distribution.

A table's rows are drawn with replacement as participants, so its own shares are the truth that intervals have to hold. Asked are
cells of two and three attributes above 1 %, conjunctions of two and three attributes, ranges, and conditional shares, all of them
as random records have them. Each collection's figures err together, so several seeds are averaged. Where a method takes attributes
as independent there are no intervals; these are counted separately.

For each generated setting several random networks are collected once each; the intervals of all single attributes, of pairs and of
triples are compared with the networks' exact marginals.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tables
from dither.datasets import generate_network
from dither.fit import add_up
from dither.lab.harness import Bench, Chart, NotAvailable, Size, Study
from dither.methods import start
from dither.release.intervals import Bootstrap, student_quantile
from dither.release.replicates import prepare_bootstrap, redraw
from dither.schema import Attribute, Schema, count_cells

WAYS = (1, 2, 3)
SETS = 60  # of pairs, and of triples
KINDS = ("two at once", "three at once", "range", "conditional")
REAL = ("Adult", "NLTCS", "Retail", "San Francisco pay", "Baltimore pay")
PAY = {"San Francisco pay": "salary_sf", "Baltimore pay": "salary_baltimore"}
PAY_BINS, PAY_SEED = 16, 5
LIKE_ADULT = ("age", "sex", "education", "marital_status", "occupation", "hours_per_week", "income")
MIN_SHARE = 0.002  # a question about fewer people is not asked


@dataclass(frozen=True)
class Population:
    """A table of codes as a distribution: the truth of people drawn from it with replacement."""

    schema: Schema
    codes: np.ndarray

    @cached_property
    def _counted(self) -> dict[tuple[str, ...], np.ndarray]:
        """Marginals that were counted before: all points of a table ask for the same ones."""
        return {}

    def marginal(self, attributes: Any) -> np.ndarray:
        names = tuple(attributes)
        if names not in self._counted:
            at = [self.schema.index(name) for name in names]
            counts = count_cells(self.codes, self.schema.cardinalities, at)
            self._counted[names] = np.asarray(counts / len(self.codes))
        return self._counted[names]


@lru_cache(maxsize=6)
def population(name: str, data_dir: Path | None = None) -> Population:
    """A table by name; the pay tables are joined with Adult's attributes."""
    if name in PAY:
        return joined(name, data_dir)
    table = tables.load(name, data_dir)
    return Population(table.schema, table.codes)


def joined(name: str, data_dir: Path | None) -> Population:
    """A column of pay in bins of equal width, joined with a record of Adult of the same rank.

    Adult's records are put in an order by income, schooling and hours with some noise, pay in its own, and the two meet at equal
    ranks: pay depends on the attributes, and these depend on each other as they do in Adult.
    """
    import pyarrow.parquet as pq

    path = (data_dir or tables.BESIDE) / f"{PAY[name]}.parquet"
    if not path.is_file():
        raise NotAvailable(f"{path.name} is not here")
    pay = pq.read_table(path).column(0).to_numpy().astype(float)
    adult, rng = tables.load("Adult", data_dir), np.random.default_rng(PAY_SEED)
    standing = rng.normal(0, 0.7, len(adult.codes))
    for column, weight in (("income", 1.0), ("education_num", 0.6), ("hours_per_week", 0.5)):
        values = adult.codes[:, adult.schema.index(column)].astype(float)
        standing += weight * (values - values.mean()) / values.std()
    ranks = (
        np.argsort(np.argsort(pay + rng.uniform(0, 1e-3, len(pay)))) + rng.random(len(pay))
    ) / len(pay)
    rows = np.argsort(standing)[np.minimum((ranks * len(standing)).astype(int), len(standing) - 1)]
    edges = np.linspace(0, np.quantile(pay, 0.995), PAY_BINS)
    bins = np.clip(np.searchsorted(edges, pay, side="right") - 1, 0, PAY_BINS - 1)
    kept = [adult.schema.index(column) for column in LIKE_ADULT]
    column = Attribute("pay", "ordinal", values=tuple(range(PAY_BINS)))
    schema = Schema((column, *(adult.schema.attributes[i] for i in kept)))
    return Population(
        schema,
        np.asfortranarray(np.column_stack([bins, adult.codes[rows][:, kept]]).astype(np.int32)),
    )


def collect(
    truth: Any,
    method: str,
    participants: int,
    epsilon: float,
    seed: int,
    replicates: int,
    **parameters: Any,
) -> Bootstrap:
    """One collection of people drawn from a distribution, and its replicates."""
    machine = start(method, truth.schema, epsilon, participants, parameters, seed)
    redraw(machine, truth, np.random.default_rng([seed, 1]))
    return prepare_bootstrap(machine, replicates=replicates, seed=seed)


def ask(
    truth: Population, kind: str, rng: np.random.Generator, count: int
) -> Iterator[tuple[list[str], list[np.ndarray]]]:
    """Questions of one kind: attributes, and for each which of its codes are meant (group 1)."""
    schema, cards = truth.schema, truth.schema.cardinalities
    ordered = [i for i, attribute in enumerate(schema) if attribute.ordered and cards[i] > 3]
    for _ in range(count):
        row = truth.codes[rng.integers(len(truth.codes))]
        if kind == "range":
            if not ordered:
                return
            at = list(
                dict.fromkeys([ordered[rng.integers(len(ordered))], int(rng.integers(len(schema)))])
            )
        else:
            at = rng.choice(
                len(schema), 3 if kind == "three at once" else 2, replace=False
            ).tolist()
        groups = []
        for i in at:
            low = high = int(row[i])
            if kind == "range" and i in ordered:
                low, high = sorted(rng.integers(0, cards[i], 2).tolist())
            chosen = np.zeros(cards[i], dtype=np.intp)
            chosen[low : high + 1] = 1
            groups.append(
                chosen if 0 < chosen.sum() < cards[i] else np.zeros(cards[i], dtype=np.intp)
            )
        yield [schema.names[i] for i in at], groups


def answered(
    found: Bootstrap, truth: Population, kind: str, names: list[str], groups: list[np.ndarray]
) -> Any:
    """(truth, low, high, estimate, error) of one question; None for groups that are too small, NaN without an interval."""
    table = add_up(truth.marginal(names), groups)
    rows = np.zeros((2, *table.shape))
    rows[(0, *(-1 for _ in table.shape))] = 1.0
    rows[1][..., -1] = 1.0  # the condition: the last attribute alone
    exact = rows.reshape(2, -1) @ table.ravel()
    if not MIN_SHARE < exact[0] < 1 - MIN_SHARE:
        return None
    answer = found.linear(names, groups, rows)
    value, slope, wanted = answer.estimates[0], np.array([1.0, 0.0]), exact[0]
    if kind == "conditional":
        below = max(answer.estimates[1], 1e-9)
        value, wanted = answer.estimates[0] / below, exact[0] / exact[1]
        slope = np.array([1.0, -value]) / below
    error = float(np.sqrt(slope @ answer.covariance @ slope))
    reach = student_quantile(0.95, answer.freedom) * error
    return wanted, max(value - reach, 0.0), min(value + reach, 1.0), value, error


def questions_held(
    found: Bootstrap, truth: Population, count: int, seed: int
) -> dict[str, np.ndarray]:
    """For each kind of question held, held with half the error, and whether there was an interval, one line a question."""
    rng, out = np.random.default_rng([seed, 2]), {}
    for kind in KINDS:
        lines = []
        for names, groups in ask(truth, kind, rng, count):
            told = answered(found, truth, kind, names, groups)
            if told is not None:
                wanted, low, high, value, error = told
                held = low - 1e-12 <= wanted <= high + 1e-12
                lines.append((held, abs(wanted - value) <= 0.98 * error, not np.isnan(error)))
        out[kind] = np.array(lines, dtype=bool).reshape(-1, 3)
    for ways in (2, 3, 1):
        every = list(combinations(truth.schema.names, ways))
        lines = []
        for index in rng.permutation(len(every))[:count]:
            interval, exact = found.interval(every[index]), truth.marginal(every[index])
            large, known = exact > 0.01, not interval.caution
            held = (interval.low <= exact) & (exact <= interval.high)
            half = np.abs(exact - interval.frequencies) <= 0.98 * interval.standard_errors
            lines += [(h, g, known) for h, g in zip(held[large], half[large], strict=True)]
        out[f"cells of {ways}"] = np.array(lines, dtype=bool).reshape(-1, 3)
    return out


def table_coverage(
    table: str,
    participants: int,
    epsilon: float,
    method: str,
    seed: int,
    replicates: int,
    count: int,
    data_dir: Path | None = None,
) -> dict[str, Any]:
    """The share of each kind of question whose interval holds the truth, and of those without an interval."""
    truth = population(table, data_dir)
    begun = time.process_time()
    found = collect(truth, method, participants, epsilon, seed, replicates)
    row: dict[str, Any] = {"replicates_cpu_seconds": time.process_time() - begun}
    begun = time.process_time()
    lines = questions_held(found, truth, count, seed)
    row["question_cpu_milliseconds"] = (
        1000 * (time.process_time() - begun) / max(sum(len(k) for k in lines.values()), 1)
    )
    for kind, held in lines.items():
        known = held[held[:, 2]] if len(held) else held
        name = kind.replace(" ", "_")
        row[name] = float(known[:, 0].mean()) if len(known) else None
        row[f"half_the_error_{name}"] = float(known[:, 1].mean()) if len(known) else None
    every = np.concatenate(list(lines.values()))
    return row | {"without_interval": float(1 - every[:, 2].mean())}


@dataclass(frozen=True)
class Setting:
    """A kind of population and a collection on it."""

    name: str
    cardinalities: tuple[int, ...]
    participants: int
    epsilon: float
    strength: float = 1.5
    method: str = "mixture"

    @property
    def key(self) -> str:
        return f"{self.name}, {self.method}, {self.participants:,}, epsilon {self.epsilon:g}"


MIXED, BINARY, WIDE = (2, 3, 4, 5, 6, 3, 2, 4), (2,) * 8 + (3, 3), (4, 8, 10, 6, 12, 5, 8)
SETTINGS = (
    Setting("mixed", MIXED, 100_000, 2.0),
    Setting("mixed", MIXED, 1_000_000, 1.0),
    Setting("mixed", MIXED, 1_000_000, 4.0),
    Setting("mixed, weak", MIXED, 300_000, 2.0, 0.5),
    Setting("binary", BINARY, 100_000, 1.0),
    Setting("binary", BINARY, 500_000, 4.0),
    Setting("wide", WIDE, 1_000_000, 2.0),
    Setting("mixed, independent attributes", MIXED, 20_000, 1.0, 0.0, "independent"),
    Setting("mixed, independent attributes", MIXED, 500_000, 4.0, 0.0, "independent"),
)
SMOKE = (
    Setting("small", (2, 3, 4), 50_000, 4.0),
    Setting("small, independent attributes", (2, 3, 4), 20_000, 1.0, 0.0, "independent"),
)
BY_KEY = {setting.key: setting for setting in SETTINGS + SMOKE}


def cover(
    setting: Setting, seed: int, replicates: int
) -> tuple[dict[int, dict[str, np.ndarray]], float]:
    """Hits and cells for each number of attributes of one population collected once, and the share without an interval."""
    network = generate_network(setting.cardinalities, strength=setting.strength, seed=seed)
    prepared = collect(
        network, setting.method, setting.participants, setting.epsilon, seed, replicates
    )
    out: dict[int, dict[str, np.ndarray]] = {}
    cautions = np.zeros(2)
    for ways in WAYS:
        sums = {key: np.zeros(2) for key in ("cells", "frequency", "half")}
        for chosen in list(combinations(network.schema.names, ways))[:SETS]:
            found, truth = prepared.interval(chosen), network.marginal(chosen)
            cautions += (bool(found.caution), 1)
            if found.caution:
                continue
            inside = (found.low <= truth) & (truth <= found.high)
            half = np.abs(truth - found.frequencies) <= 1.96 * found.standard_errors / 2
            sums["cells"] += (inside.sum(), truth.size)
            sums["frequency"] += (float((inside * truth).sum()), 1.0)
            sums["half"] += (half.sum(), truth.size)
        out[ways] = sums
    return out, float(cautions[0] / cautions[1])


def coverage(setting: str, populations: int, replicates: int) -> dict[str, Any]:
    """Hits over cells of all populations together, for one, two and three attributes."""
    given = BY_KEY[setting]
    collected = [cover(given, seed, replicates) for seed in range(populations)]
    row: dict[str, Any] = {
        "setting": None,  # in the labels that follow
        "population": given.name,
        "method": given.method,
        "participants": given.participants,
        "epsilon": given.epsilon,
    }
    for key, words in (
        ("cells", "coverage"),
        ("frequency", "by_frequency"),
        ("half", "half_the_error"),
    ):
        for ways in WAYS:
            hits, cells = sum(found[ways][key] for found, _ in collected)
            row[f"{words}_{ways}way"] = (
                hits / cells if cells else None
            )  # None: no interval could be had
    return row | {"cautions": float(np.mean([share for _, share in collected]))}


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """Both studies of one size; tables that are not here are left out."""
    settings = {"full": SETTINGS, "quick": SETTINGS[::4], "smoke": SMOKE}[size]
    populations, replicates = {"full": (4, 20), "quick": (2, 10), "smoke": (2, 6)}[size]
    folder = data_dir or tables.BESIDE
    here = [
        n
        for n in REAL
        if (folder / f"{PAY.get(n) or tables.FILES[n]}.parquet").is_file() or n == "Adult"
    ]
    axes: dict[str, tuple[Any, ...]] = {
        "table": tuple(here),
        "participants": (45_000, 300_000, 1_500_000),
        "epsilon": (1.0, 2.0, 4.0, 8.0),
        "method": ("mixture", "independent", "privincr"),
        "seed": (0, 1),
    }
    if size != "full":
        axes |= {"participants": (45_000,), "epsilon": (4.0,), "seed": (0,)}
        axes |= {"table": tuple(here[:3:2]), "method": ("mixture",)} if size == "quick" else {}
    if size == "smoke":
        axes |= {"table": ("Adult",), "method": ("independent",), "participants": (20_000,)}
    real = Study(
        name="tables",
        title="Share of questions whose 95 % interval holds the truth, real tables",
        axes=axes,
        measure=partial(
            table_coverage,
            replicates=replicates,
            count=100 if size == "full" else 40,
            data_dir=data_dir,
        ),
        charts=(Chart("epsilon", "two_at_once", panels=("table", "participants"), log_x=True),),
        note=f"{replicates} replicates. Cells are those above 1 %; questions are as random records have them. Half the error is "
        "what intervals of half the standard error would hold. Without interval: attributes that the method takes as independent. "
        "Two collections each: figures of one collection err together, by about 2 points from seed to seed, so that the mean of "
        "two is good to 1.4 points (of three 1.2, for half as much time again), that of a table and method in all settings to 0.4.",
    )
    generated = Study(
        name="coverage",
        title="Share of cells whose 95 % interval holds the truth, generated populations",
        axes={"setting": tuple(setting.key for setting in settings)},
        measure=partial(coverage, populations=populations, replicates=replicates),
        labels=("participants", "epsilon"),
        note=f"{populations} populations each, {replicates} replicates. Coverage counts every cell once, by frequency weighs it by "
        "its true frequency; half the error is what intervals of half the standard error would give. Networks have strong "
        "interactions (strength 1.5; weak: 0.5). Cautions is the share of marginals for which no interval can be had.",
    )
    about = "Tables resampled with replacement and random networks, collected once each; intervals against exact shares."
    return Bench(
        "interval_coverage", "Coverage of the 95 % intervals", about, (real, generated), size
    )
