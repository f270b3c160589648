"""Distances of two tables: on k-way marginals, and column by column.

Marginals are compared by total variation, Kullback-Leibler divergence and squared error.
Numbers and times are also compared value by value, so that bins cannot hide a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np

from dither.checks import check_whole
from dither.errors import ParameterError
from dither.schema import Schema
from dither.schema.cells import cells_of, count_cells
from dither.schema.columns import line_numbers
from dither.schema.table import to_arrow
from dither.types import Codes, Floats, JsonObject, NativeTable, Progress

# Beyond this a marginal is counted over the cells that occur; 32 MB per table.
DENSE_CELLS = 4_000_000
_CODE_LIMIT = 1 << 62
# The levels of the reported quantiles.
LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True)
class Distances:
    """The distances of one attribute set's two marginals."""

    tvd: float
    kl: float
    mse: float


@dataclass(frozen=True)
class WaySummary:
    """The distances of the compared k-way marginals: means, spread of the TVD, worst set."""

    tvd: float
    kl: float
    mse: float
    tvd_spread: float
    worst: tuple[str, ...]
    worst_tvd: float
    sets: int
    possible_sets: int


def marginal(codes: Codes, cardinalities: Sequence[int], positions: Sequence[int]) -> Floats:
    """The relative frequencies of the product domain of some columns, one axis per column."""
    return np.asarray(
        count_cells(codes, cardinalities, positions) / max(len(codes), 1), dtype=np.float64
    )


def tvd(first: Floats, second: Floats) -> float:
    """Total variation distance, half the sum of absolute differences, in [0, 1]."""
    return float(0.5 * np.abs(first - second).sum())


def kl(real: Floats, synthetic: Floats, floor: float) -> float:
    """Kullback-Leibler divergence of the synthetic from the real distribution, in nats.

    A cell of the real table that the synthetic one lacks would make it infinite. Cells below
    `floor` are therefore raised to `floor` and the synthetic distribution is rescaled to one;
    with m synthetic rows the floor is half a row, 1/(2m). Without such cells nothing changes, so
    equal tables have exactly 0.
    """
    seen = real > 0
    p, q = real[seen], synthetic[seen]
    raised = np.maximum(q, floor)
    total = 1.0 + float((raised - q).sum())
    return max(0.0, float((p * np.log(p / raised)).sum()) + math.log(total))


def mse(first: Floats, second: Floats, cells: int | None = None) -> float:
    """Mean squared difference over all cells of the domain.

    `cells` is their number if the arrays leave out cells that are empty in both.
    """
    return float(np.square(first - second).sum()) / (first.size if cells is None else cells)


def attribute_sets(
    count: int, ways: int, max_sets: int, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """All sets of `ways` out of `count` positions, or `max_sets` distinct random ones.

    Each set is equally likely to be drawn; the list of all combinations is never built.
    """
    total = math.comb(count, ways)
    if total <= max_sets:
        return list(combinations(range(count), ways))
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < max_sets:
        drawn[tuple(sorted(int(i) for i in rng.choice(count, ways, replace=False)))] = None
    return sorted(drawn)


def _check_ways(ways: Sequence[int], attributes: int) -> tuple[int, ...]:
    """Distinct whole numbers from 1 to the number of attributes, in order, or an error."""
    if not ways:
        raise ParameterError("ways needs at least one number, such as 1,2,3", where="ways")
    return tuple(
        sorted({check_whole("a number of attributes in ways", k, 1, attributes) for k in ways})
    )


def evaluate_codes(
    real: Codes,
    synthetic: Codes,
    schema: Schema,
    ways: Sequence[int] = (1, 2, 3),
    max_sets: int = 100,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> dict[int, WaySummary]:
    """Compare two tables of codes on their k-way marginals, for each k of `ways`.

    At most `max_sets` attribute sets per way are used, drawn with `rng` (by default with seed 0).
    Large marginals are counted sparsely, so memory stays bounded for any domain.
    """
    check_codes(real, schema, "real")
    check_codes(synthetic, schema, "synthetic")
    floor = 1 / (2 * len(synthetic))

    def compare(positions: tuple[int, ...]) -> Distances:
        cells = math.prod(schema.cardinalities[i] for i in positions)
        if cells <= DENSE_CELLS:
            first = marginal(real, schema.cardinalities, positions)
            second = marginal(synthetic, schema.cardinalities, positions)
        else:
            first, second = _sparse_marginals(real, synthetic, schema.cardinalities, positions)
        return Distances(tvd(first, second), kl(first, second, floor), mse(first, second, cells))

    return summarise_ways(schema, ways, max_sets, rng, compare, progress)


def _sparse_marginals(
    first: Codes, second: Codes, cardinalities: Sequence[int], positions: Sequence[int]
) -> tuple[Floats, Floats]:
    """The frequencies of both tables over the cells that occur in either, in one common order."""
    columns, sizes = list(positions), [cardinalities[i] for i in positions]
    both = np.concatenate([first[:, columns], second[:, columns]])
    if math.prod(sizes) < _CODE_LIMIT:
        seen, cell = np.unique(cells_of(both, sizes), return_inverse=True)
    else:
        seen, cell = np.unique(both, axis=0, return_inverse=True)
    counts = [
        np.bincount(part, minlength=len(seen)) for part in (cell[: len(first)], cell[len(first) :])
    ]
    return counts[0] / max(len(first), 1), counts[1] / max(len(second), 1)


def summarise_ways(
    schema: Schema,
    ways: Sequence[int],
    max_sets: int,
    rng: np.random.Generator | None,
    compare: Callable[[tuple[int, ...]], Distances],
    progress: Progress | None = None,
) -> dict[int, WaySummary]:
    """`compare` on at most `max_sets` sets of attributes per way, in brief."""
    check_whole("max_sets", max_sets, 1)
    rng = np.random.default_rng(0) if rng is None else rng
    out = {}
    for k in _check_ways(ways, len(schema)):
        sets = attribute_sets(len(schema), k, max_sets, rng)
        compared = []
        for positions in sets:
            compared.append(compare(positions))
            if progress:
                progress(f"sets of {k} compared", len(compared), len(sets))
        distances = np.array([d.tvd for d in compared])
        worst = int(distances.argmax())
        out[k] = WaySummary(
            tvd=float(distances.mean()),
            kl=float(np.mean([d.kl for d in compared])),
            mse=float(np.mean([d.mse for d in compared])),
            tvd_spread=float(distances.std()),
            worst=tuple(schema.names[i] for i in sets[worst]),
            worst_tvd=float(distances[worst]),
            sets=len(sets),
            possible_sets=math.comb(len(schema), k),
        )
    return out


def check_codes(codes: Codes, schema: Schema, which: str) -> None:
    """An error unless there are rows and all of them lie in the schema's domain."""
    if codes.ndim != 2 or codes.shape[1] != len(schema) or len(codes) == 0:
        raise ParameterError(
            f"the {which} codes must have at least one row and {len(schema)} columns, not {codes.shape}"
        )
    if (codes < 0).any() or (codes >= np.array(schema.cardinalities)).any():
        raise ParameterError(f"the {which} codes leave the schema's domain")


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of one table's column; dates in days since 1970, other times in seconds."""

    mean: float
    quantiles: tuple[float, ...]
    top_share: float
    repeats: float
    missing: float


@dataclass(frozen=True)
class ColumnDistances:
    """One column of numbers or times in the real and in the synthetic table.

    Attributes:
        ks: The Kolmogorov-Smirnov distance, 0 to 1.
        wasserstein: The mean distance by which values would have to move, in the column's unit.
        top: The most frequent value of the real table.
        top_share: The share of exactly this value in each table.
        repeats: The share of values that occur more than once.
        quantiles: The quantiles at 1, 5, 25, 50, 75, 95 and 99 %.
    """

    name: str
    kind: str
    ks: float
    wasserstein: float
    top: float
    real: ColumnStatistics
    synthetic: ColumnStatistics

    def to_json(self) -> JsonObject:
        """Plain values."""
        sides = {}
        for side in ("real", "synthetic"):
            scale: ColumnStatistics = getattr(self, side)
            named = dict(zip((f"{level:g}" for level in LEVELS), scale.quantiles, strict=True))
            sides[side] = {**asdict(scale), "quantiles": named}
        return {
            "kind": self.kind,
            "ks": self.ks,
            "wasserstein": self.wasserstein,
            "top": self.top,
            **sides,
        }


def _ks(first: Floats, second: Floats) -> float:
    """The largest difference of two cumulative distributions."""
    places = np.concatenate([first, second])
    return float(np.abs(_cumulative(first, places) - _cumulative(second, places)).max())


def _wasserstein(first: Floats, second: Floats) -> float:
    """The area between two cumulative distributions."""
    places = np.sort(np.concatenate([first, second]))
    between = np.abs(_cumulative(first, places[:-1]) - _cumulative(second, places[:-1]))
    return float((between * np.diff(places)).sum())


def column_distances(
    real: NativeTable, synthetic: NativeTable, schema: Schema
) -> tuple[ColumnDistances, ...]:
    """All columns of numbers or times of two tables; columns empty in either are left out."""
    first, second = to_arrow(real), to_arrow(synthetic)
    out = []
    for attribute in schema:
        if not attribute.on_line:
            continue
        sides = [line_numbers(attribute, table.column(attribute.name)) for table in (first, second)]
        present = [side[~np.isnan(side)] for side in sides]
        if not (len(present[0]) and len(present[1])):
            continue
        seen, counts = np.unique(present[0], return_counts=True)
        top = float(seen[counts.argmax()])
        scales = [
            _statistics(held, len(held) / len(side), top)
            for held, side in zip(present, sides, strict=True)
        ]
        out.append(
            ColumnDistances(
                attribute.name,
                attribute.kind,
                _ks(*present),
                _wasserstein(*present),
                top,
                *scales,
            )
        )
    return tuple(out)


def _statistics(values: Floats, present: float, top: float) -> ColumnStatistics:
    _, counts = np.unique(values, return_counts=True)
    return ColumnStatistics(
        mean=float(values.mean()),
        quantiles=tuple(float(q) for q in np.quantile(values, LEVELS)),
        top_share=float((values == top).mean()),
        repeats=float(counts[counts > 1].sum() / len(values)),
        missing=1.0 - present,
    )


def _cumulative(values: Floats, places: Floats) -> Floats:
    return np.asarray(np.searchsorted(np.sort(values), places, side="right") / len(values))
