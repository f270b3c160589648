"""Ranges, quantiles and means of a number: errors compared with PriPL-Tree, AHEAD, hierarchies and the square wave, and coverage.

Errors are mean squared errors of the share of people in random ranges, both ends anywhere on the line. Data: the salary tables
from the data folder if present, otherwise a GENERATED one, labelled as such; and made-up shapes. While the cells and the choice
of smoothness were designed, the salaries and the shapes from even to three humps were used; triangle and even with a gap were
added afterwards.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chp import GENERATED, names, salaries
from benchmarks.range_rivals import ahead, hdg, hierarchy, pripl
from dither._histogram import asked_partition, collect, several_values
from dither.datasets import load_dataset
from dither.fit import norm_sub
from dither.lab.harness import Bench, Chart, Size, Study
from dither.mechanisms import SquareWave, kernels, mechanism
from dither.methods.histogram.consumer import Partition, gather, read_consumers
from dither.methods.histogram.estimates import OutputCells
from dither.methods.histogram.late import distribution
from dither.release.query.numbers import NumberInquiry

SEED = 20261117
FINE = 256  # cells of the rivals
OURS = "ranges"
METHODS = ("ranges", "square wave, EMS", "PriPL-Tree", "AHEAD", "hierarchy", "chp, 64 bins")
RIVALS = {"PriPL-Tree": pripl, "AHEAD": ahead, "hierarchy": hierarchy}
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
LOOKED_AT = (
    "even",
    "two humps",
    "spikes",
    "heavy tail",
    "stairs",
    "exponential with zeros",
    "three humps",
)
UNSEEN = ("triangle", "even with a gap")
SHAPES = (*LOOKED_AT, *UNSEEN)
PEOPLE = 20_000


# ---- data ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def shaped(shape: str) -> tuple[np.ndarray, float, float]:
    """GENERATED numbers in [0, 1]."""
    rng, n = np.random.default_rng([SEED, SHAPES.index(shape)]), PEOPLE
    half = n // 2
    made = {
        "even": lambda: rng.random(n),
        "two humps": lambda: np.concatenate(
            [rng.normal(0.25, 0.05, half), rng.normal(0.7, 0.08, half)]
        ),
        "spikes": lambda: np.concatenate(
            [rng.choice([0.1, 0.25, 0.5, 0.52, 0.9], half), rng.random(half)]
        ),
        "heavy tail": lambda: 0.02 * rng.pareto(1.5, n),
        "stairs": lambda: (rng.choice(5, n, p=[0.35, 0.05, 0.3, 0.1, 0.2]) + rng.random(n)) / 5,
        "exponential with zeros": lambda: np.concatenate(
            [np.zeros(n // 4), rng.exponential(0.15, n - n // 4)]
        ),
        "three humps": lambda: np.concatenate(
            [rng.beta(2, 20, half), rng.normal(0.5, 0.02, n // 4), rng.beta(30, 6, n // 4)]
        ),
        "triangle": lambda: rng.triangular(0.0, 0.3, 1.0, n),
        "even with a gap": lambda: np.concatenate(
            [rng.uniform(0.0, 0.4, half), rng.uniform(0.6, 1.0, half)]
        ),
    }[shape]()
    return made.clip(0.0, 1.0), 0.0, 1.0


def table(dataset: str, data_dir: Path | None) -> tuple[np.ndarray, float, float]:
    """Numbers with their public range."""
    return shaped(dataset) if dataset in SHAPES else salaries(dataset, data_dir)


def random_ranges(low: float, high: float, number: int) -> np.ndarray:
    return np.sort(np.random.default_rng([SEED, 1]).uniform(low, high, (number, 2)), axis=1)


def true_shares(values: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    ordered = np.sort(values)
    return (np.searchsorted(ordered, ranges[:, 1]) - np.searchsorted(ordered, ranges[:, 0])) / len(
        values
    )


def read(shares: np.ndarray, edges: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Shares of ranges, people spread evenly inside cells."""
    below = np.concatenate([[0.0], np.cumsum(shares)])
    return np.interp(ranges[:, 1], edges, below) - np.interp(ranges[:, 0], edges, below)


# ---- one number ------------------------------------------------------------------------------------------------------


def our_cells(
    values: np.ndarray, low: float, high: float, epsilon: float, rng: np.random.Generator
) -> OutputCells:
    """One collection by the method as it stands."""
    consumers, partition, people = _asked(values.tobytes(), low, high)
    cells = collect(OURS, people, consumers, partition, epsilon, rng).answer().cells
    assert isinstance(cells, OutputCells)
    return cells


@lru_cache(maxsize=2)
def _asked(data: bytes, low: float, high: float) -> tuple[Any, Partition, Any]:
    consumers = read_consumers([16], low, high)
    partition = asked_partition(OURS, consumers, low, high)
    return consumers, partition, gather(np.frombuffer(data), partition, reports=False)


def estimate(
    method: str,
    values: np.ndarray,
    low: float,
    high: float,
    epsilon: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of cells and their edges, by a method."""
    if method == OURS:
        cells = our_cells(values, low, high, epsilon, rng)
        assert cells.smoothed is not None
        return cells.smoothed, np.asarray(cells.partition.edges)
    edges = np.linspace(low, high, (64 if method == "chp, 64 bins" else FINE) + 1)
    counts = np.histogram(values, edges)[0]
    if method == "square wave, EMS":
        wave = SquareWave.for_epsilon(FINE, epsilon)
        return kernels.density(wave, kernels.simulate(wave, counts, rng)), edges
    if method == "chp, 64 bins":
        asked = mechanism("best", 64, epsilon)
        return kernels.estimate(
            asked, kernels.simulate(asked, counts, rng), len(values)
        ).frequencies, edges
    return RIVALS[method](counts, epsilon, rng), edges


def errors(dataset: str, epsilon: float, runs: int, data_dir: Path | None) -> list[dict[str, Any]]:
    """Mean squared error of random ranges, one row per method and run, and the ratio of the means to the best method's."""
    values, low, high = table(dataset, data_dir)
    values = np.ascontiguousarray(values, dtype=np.float64)
    ranges = random_ranges(low, high, 400)
    truth, found = true_shares(values, ranges), {}
    for method in METHODS:
        found[method] = [
            float(
                np.mean(
                    (read(*estimate(method, values, low, high, epsilon, rng), ranges) - truth) ** 2
                )
            )
            for rng in (np.random.default_rng([SEED, 2, run]) for run in range(runs))
        ]
    best = min(np.mean(one) for one in found.values())
    return [
        {"method": method, "seed": run, "mse": value, "over_best": value / best}
        for method, values_ in found.items()
        for run, value in enumerate(values_)
    ]


# ---- intervals -------------------------------------------------------------------------------------------------------


def coverage(
    dataset: str, epsilon: float, seed: int, runs: int, data_dir: Path | None
) -> list[dict[str, Any]]:
    """How often 95 % intervals hold, and how long they are, by kind of question; `seed` numbers parts of all collections."""
    values, low, high = table(dataset, data_dir)
    values = np.ascontiguousarray(values, dtype=np.float64)
    ranges, ordered = random_ranges(low, high, 40), np.sort(values)
    shares = true_shares(values, ranges)
    ranks = [float(ordered[math.ceil(level * len(ordered)) - 1]) for level in LEVELS]
    true = {
        "ranges": shares,
        "cdf": true_shares(values, np.column_stack([np.full(40, low), ranges[:, 1]])),
        "quantiles": np.array(ranks),
        "mean": np.array([values.mean()]),
        "variance": np.array([values.var()]),
    }
    held: dict[str, list[float]] = {kind: [] for kind in true}
    long: dict[str, list[float]] = {kind: [] for kind in true}
    for run in range(seed * runs, (seed + 1) * runs):
        inquiry = NumberInquiry(
            our_cells(values, low, high, epsilon, np.random.default_rng([SEED, 3, run]))
        )
        answers = {
            "ranges": [inquiry.share(a, b, 0.95) for a, b in ranges],
            "cdf": [inquiry.below(b, 0.95) for _, b in ranges],
            "quantiles": inquiry.quantiles(LEVELS, 0.95).rows,
            "mean": [inquiry.mean(0.95)],
            "variance": [inquiry.variance(0.95)],
        }
        for kind, given in answers.items():
            ends = np.array([(one.low, one.high) for one in given])
            held[kind].append(
                float(((ends[:, 0] <= true[kind]) & (true[kind] <= ends[:, 1])).mean())
            )
            long[kind].append(float((ends[:, 1] - ends[:, 0]).mean()))
    return [
        {
            "question": kind,
            "seed": seed,
            "coverage": float(np.mean(held[kind])),
            "length": float(np.mean(long[kind])),
        }
        for kind in true
    ]


# ---- whole numbers ---------------------------------------------------------------------------------------------------

WHOLE = {"hours a week": ("hours_per_week", 1, 99), "age": ("age", 17, 90)}
WHOLE_PEOPLE = (
    32_561  # as many as in the training rows of Adult, on which the rivals were published
)
LENGTHS = (0.5, 0.1)  # of the asked ranges, as shares of the domain


@lru_cache(maxsize=4)
def whole_numbers(dataset: str) -> tuple[np.ndarray, int, int]:
    """A column of the bundled table, of some of its people, with its public range."""
    column, low, high = WHOLE[dataset]
    values = load_dataset("adult").table[column].to_numpy()
    kept = np.random.default_rng([SEED, 7]).permutation(len(values))[:WHOLE_PEOPLE]
    return values[kept].astype(np.int64), low, high


def whole_collection(dataset: str, epsilon: float, rng: np.random.Generator) -> OutputCells:
    """One collection by the method, which asks on whole numbers."""
    values, low, high = whole_numbers(dataset)
    consumers = read_consumers([16], float(low), float(high))
    partition = asked_partition(OURS, consumers, float(low), float(high), 1.0)
    people = gather(values, partition, reports=False)
    cells = collect(OURS, people, consumers, partition, epsilon, rng).answer().cells
    assert isinstance(cells, OutputCells)
    return cells


def whole_shares(method: str, dataset: str, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """The estimated share of each number. A hierarchy asks about more numbers, which nobody has."""
    if method == OURS:
        return distribution(whole_collection(dataset, epsilon, rng))
    values, low, high = whole_numbers(dataset)
    counts = np.bincount(values - low, minlength=high - low + 1)
    size = len(counts)
    if method == "square wave, EMS":
        wave = SquareWave.for_epsilon(size, epsilon)
        return kernels.density(wave, kernels.simulate(wave, counts, rng))
    padded = {"AHEAD": 128, "hierarchy": FINE}.get(method, size)
    counts = np.append(counts, np.zeros(padded - size, counts.dtype))
    return RIVALS[method](counts, epsilon, rng)[:size]


def whole_errors(dataset: str, epsilon: float, runs: int) -> list[dict[str, Any]]:
    """Mean squared error of all ranges of half and of a tenth of the domain, by method and run."""
    values, low, high = whole_numbers(dataset)
    counts = np.bincount(values - low, minlength=high - low + 1)
    truth, out = np.cumsum(np.append(0, counts)) / len(values), []
    for method in METHODS[:-1]:
        for run in range(runs):
            shares = whole_shares(method, dataset, epsilon, np.random.default_rng([SEED, 8, run]))
            missed = np.append(0.0, np.cumsum(shares)) - truth
            row: dict[str, Any] = {"method": method, "seed": run}
            for name, part in zip(("mse_half", "mse_tenth"), LENGTHS, strict=True):
                width = round(part * len(counts))
                row[name] = float(np.mean((missed[width:] - missed[:-width]) ** 2))
            out.append(row)
    return out


def whole_coverage(dataset: str, epsilon: float, runs: int) -> dict[str, Any]:
    """How often 95 % intervals of ranges, quantiles and means of whole numbers hold."""
    values, low, high = whole_numbers(dataset)
    ordered = np.sort(values)
    ranks = [float(ordered[math.ceil(level * len(values)) - 1]) for level in LEVELS]
    held: dict[str, list[bool]] = {"ranges": [], "quantiles": [], "mean": []}
    for run in range(runs):
        rng = np.random.default_rng([SEED, 9, run])
        inquiry = NumberInquiry(whole_collection(dataset, epsilon, rng))
        ends = np.sort(rng.integers(low, high + 2, (20, 2)), axis=1)
        for a, b in ends[ends[:, 0] < ends[:, 1]].tolist():
            true = float(np.mean((values >= a) & (values < b)))
            one = inquiry.share_of([(a, b if b <= high else math.inf)], 0.95, "")
            held["ranges"].append(_holds(one, true))
        rows = inquiry.quantiles(LEVELS, 0.95).rows
        held["quantiles"] += [_holds(row, x) for row, x in zip(rows, ranks, strict=True)]
        held["mean"].append(_holds(inquiry.mean(0.95), float(values.mean())))
    return {kind: float(np.mean(found)) for kind, found in held.items()}


def _holds(answer: Any, truth: float) -> bool:
    return bool(answer.low - 1e-12 <= truth <= answer.high + 1e-12)


# ---- several values, two numbers -------------------------------------------------------------------------------------


def several(strategy: str, runs: int) -> list[dict[str, Any]]:
    """Squared error of a bin's count where each participant has three values: one at full epsilon, and the paper's two strategies.

    Every report is made. Both of the paper's strategies estimate from the sum of the same randomised vectors, so their errors have
    one law; drawn by counts with the same seed they would be the same to the last digit, and say nothing about either.
    """
    people = np.random.default_rng([SEED, 4]).lognormal(10.8, 0.5, (13_683, 3)).clip(0, 250_000)
    truth = np.histogram(people, np.linspace(0, 250_000, 6))[0]
    given = {
        "consumers": [5],
        "epsilon": 3.0,
        "low": 0.0,
        "high": 250_000.0,
        "most": 3,
        "path": "reports",
    }
    made = [
        several_values(people.tolist(), method=strategy, seed=run, **given) for run in range(runs)
    ]  # type: ignore[arg-type]
    return [
        {
            "seed": run,
            "mse": float(np.mean((one.consumers[0].estimates - truth) ** 2)),
            "bits": one.content.bits_per_report,
        }
        for run, one in enumerate(made)
    ]


def two_numbers(epsilon: float, runs: int) -> list[dict[str, Any]]:
    """Squared error of shares of random rectangles: HDG, a plain grid, and the mixture on bins."""
    import pyarrow as pa

    import dither

    rng = np.random.default_rng([SEED, 5])
    first = rng.beta(2, 4, PEOPLE)
    pairs = np.column_stack([first, np.clip(0.6 * first + 0.4 * rng.beta(4, 2, PEOPLE), 0, 1)])
    boxes = np.sort(rng.uniform(0, 1, (200, 2, 2)), axis=2)
    inside = (pairs[None] >= boxes[:, :, 0][:, None]) & (pairs[None] < boxes[:, :, 1][:, None])
    truth = inside.all(axis=2).mean(axis=1)
    counts = np.histogram2d(*pairs.T, bins=64, range=[(0, 1), (0, 1)])[0].astype(np.int64)
    data = pa.table({"a": pairs[:, 0], "b": pairs[:, 1]})
    out = []
    for run in range(runs):
        noise = np.random.default_rng([SEED, 6, run])
        grid = mechanism("best", 64, epsilon)
        coarse = counts.reshape(8, 8, 8, 8).sum(axis=(1, 3)).ravel()
        plain = norm_sub(
            kernels.estimate(grid, kernels.simulate(grid, coarse, noise), PEOPLE).frequencies
        ).reshape(8, 8)
        tables = {"HDG": hdg(counts, epsilon, noise), "grid of 8 x 8": plain}
        for bins in (8, 16):
            edges = tuple(np.linspace(0, 1, bins + 1).tolist())
            schema = dither.Schema(
                tuple(dither.Attribute(name, "numeric", edges=edges) for name in ("a", "b"))
            )
            release = dither.publish(
                data, epsilon=epsilon, schema=schema, method="mixture", seed=run
            )
            found = np.asarray(release.marginal(["a", "b"]).frequencies)
            tables[f"mixture, {bins} bins each"] = found.reshape(bins, bins)
        for method, shares in tables.items():
            out.append(
                {
                    "method": method,
                    "seed": run,
                    "mse": float(np.mean((_boxes(shares, boxes) - truth) ** 2)),
                }
            )
    return out


def _boxes(shares: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Shares of rectangles, people spread evenly inside cells."""
    edges = [np.linspace(0, 1, size + 1) for size in shares.shape]
    parts = [
        np.clip(
            np.minimum(boxes[:, axis, 1, None], e[1:])
            - np.maximum(boxes[:, axis, 0, None], e[:-1]),
            0,
            None,
        )
        * (len(e) - 1)
        for axis, e in enumerate(edges)
    ]
    return np.einsum("ri,ij,rj->r", parts[0], shares, parts[1])


# ---- declaration -----------------------------------------------------------------------------------------------------


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The studies of one size; the quick one takes one table."""
    full, smoke = size == "full", size == "smoke"
    found = (GENERATED,) if smoke else names(data_dir)
    datasets = found if full else found[:1]
    epsilons = (0.5, 1.0, 2.0) if full else (1.0,)
    runs = {"full": 20, "quick": 3, "smoke": 2}[size]
    blocks, each = {"full": (20, 50), "quick": (1, 10), "smoke": (1, 3)}[size]
    whole_epsilons = (1.0, 2.0, 4.0, 8.0) if full else (4.0,)
    studies = (
        Study(
            name="range_errors",
            title="Random ranges: mean squared error of their shares",
            axes={"dataset": datasets, "epsilon": epsilons},
            measure=partial(errors, runs=runs, data_dir=data_dir),
            charts=(Chart(x="epsilon", y="over_best", log_y=True),),
            note="400 ranges. over_best is the error over that of the best method of the cell.",
        ),
        Study(
            name="shape_errors",
            title="The same for made-up shapes",
            axes={"dataset": SHAPES if full else SHAPES[:1], "epsilon": epsilons},
            measure=partial(errors, runs=min(runs, 8), data_dir=data_dir),
            note=f"20,000 people. The shapes {' and '.join(UNSEEN)} were not looked at while the method was designed.",
        ),
        Study(
            name="coverage",
            title="How often 95 % intervals hold the truth, by kind of question",
            axes={"dataset": datasets, "epsilon": (1.0,), "seed": tuple(range(blocks))},
            measure=partial(coverage, runs=each, data_dir=data_dir),
            note=f"{blocks * each:,} collections by the method ranges; 40 ranges, 40 ends, 5 quantiles each.",
        ),
        Study(
            name="whole_errors",
            title="Whole numbers: mean squared error of ranges of half and of a tenth of the domain",
            axes={"dataset": tuple(WHOLE)[: 1 if smoke else 2], "epsilon": whole_epsilons},
            measure=partial(whole_errors, runs=runs),
            charts=(Chart(x="epsilon", y="mse_half", log_y=True),),
            note=f"Columns of Adult, {WHOLE_PEOPLE:,} people drawn from the bundled table. PriPL-Tree and the hierarchies were "
            "written from their papers; the authors' figures were not reproduced.",
        ),
        Study(
            name="whole_coverage",
            title="Whole numbers: how often 95 % intervals hold",
            axes={"dataset": tuple(WHOLE)[: 1 if smoke else 2], "epsilon": whole_epsilons},
            measure=partial(whole_coverage, runs=blocks * each // 5 + 1),
            note=f"{blocks * each // 5 + 1} collections by the method ranges; about 20 ranges and 5 quantiles each.",
        ),
        Study(
            name="several_values",
            title="Three values per person at epsilon 3",
            axes={"strategy": ("one", "independent", "summed")},
            measure=partial(several, runs=runs),
            note="GENERATED log-normal pay, 5 bins, 13,683 people; squared error of a bin's count. The errors of independent and "
            "summed have one law and differ by chance; what summing saves is bits.",
        ),
        Study(
            name="two_numbers",
            title="Rectangles of two numbers: mean squared error of their shares",
            axes={"epsilon": epsilons},
            measure=partial(two_numbers, runs=min(runs, 5)),
            note="GENERATED dependent pairs, 20,000 people, 200 rectangles.",
        ),
    )
    about = (
        f"{runs} runs per figure. Each value is one simulated participant. Salaries are the tables of the CHP benchmark; without "
        "them a generated log-normal table is used."
    )
    return Bench("ranges", "Ranges, quantiles and means of a number", about, studies, size)
