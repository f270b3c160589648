"""Numbers and times compared value by value, so that bins cannot hide a difference."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from dither.schema import Schema
from dither.schema.columns import line_numbers
from dither.schema.native import to_arrow
from dither.types import Floats, JsonObject, NativeTable

LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True)
class Scale:
    """Statistics of one table's column; dates in days since 1970, other times in seconds."""

    mean: float
    quantiles: tuple[float, ...]
    top_share: float
    repeats: float
    missing: float


@dataclass(frozen=True)
class OwnScale:
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
    real: Scale
    synthetic: Scale

    def to_json(self) -> JsonObject:
        """Plain values."""
        sides = {}
        for side in ("real", "synthetic"):
            scale: Scale = getattr(self, side)
            named = dict(zip((f"{level:g}" for level in LEVELS), scale.quantiles, strict=True))
            sides[side] = {**asdict(scale), "quantiles": named}
        return {
            "kind": self.kind,
            "ks": self.ks,
            "wasserstein": self.wasserstein,
            "top": self.top,
            **sides,
        }


def ks_distance(first: Floats, second: Floats) -> float:
    """The largest difference of two cumulative distributions."""
    places = np.concatenate([first, second])
    return float(np.abs(_cumulative(first, places) - _cumulative(second, places)).max())


def wasserstein_distance(first: Floats, second: Floats) -> float:
    """The area between two cumulative distributions."""
    places = np.sort(np.concatenate([first, second]))
    between = np.abs(_cumulative(first, places[:-1]) - _cumulative(second, places[:-1]))
    return float((between * np.diff(places)).sum())


def own_scales(real: NativeTable, synthetic: NativeTable, schema: Schema) -> tuple[OwnScale, ...]:
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
            _scale(held, len(held) / len(side), top)
            for held, side in zip(present, sides, strict=True)
        ]
        out.append(
            OwnScale(
                attribute.name,
                attribute.kind,
                ks_distance(*present),
                wasserstein_distance(*present),
                top,
                *scales,
            )
        )
    return tuple(out)


def _scale(values: Floats, present: float, top: float) -> Scale:
    _, counts = np.unique(values, return_counts=True)
    return Scale(
        mean=float(values.mean()),
        quantiles=tuple(float(q) for q in np.quantile(values, LEVELS)),
        top_share=float((values == top).mean()),
        repeats=float(counts[counts > 1].sum() / len(values)),
        missing=1.0 - present,
    )


def _cumulative(values: Floats, places: Floats) -> Floats:
    return np.asarray(np.searchsorted(np.sort(values), places, side="right") / len(values))
