"""Bins, atoms and units that suit a column of numbers or times, read off its values: a proposal, which leaks them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from dither.schema.attribute import Attribute
from dither.schema.calendar import DAY, PERIODS, Cycle, Period, period_edges
from dither.schema.read import DEFAULT_BINS, numeric
from dither.types import Counts, Floats

MOST_ATOMS = 16
ATOM_SHARE = 0.02  # of all values: rarer ones are left to their bin
ATOM_ROWS = 20  # fewer repeats can be chance
STANDS_OUT = 4.0  # an atom is so many times as frequent as the values around it
CROWDED = 0.5  # a share of one of the even bins from which on bins follow the quantiles
MOST_DECIMALS = 4
MOST_PERIODS = 40
_TAIL = (0.99, 0.999)


def propose_numbers(
    name: str,
    values: Floats,
    missing: bool,
    *,
    whole: bool,
    kind: Literal["numeric", "duration"] = "numeric",
) -> Attribute:
    """Atoms where values heap up, the unit in which they are written, and even bins unless most values crowd into one.

    `values` has at least two different ones, all finite; `whole` says that the column's type is whole numbers.
    """
    unit = 1.0 if whole else find_unit(values)
    seen, counts = np.unique(values, return_counts=True)
    atoms = find_atoms(seen, counts)
    rest = values[~np.isin(values, atoms)]
    if len(rest) < 2 or rest.min() == rest.max():
        rest, atoms = values, atoms[:0]
    low, high = _settled(float(seen[0]), float(seen[-1]), unit)
    edges: tuple[float, ...]
    if _crowded(rest, low, high):
        edges = _quantile_edges(rest, low, high, unit)
    else:
        ends = (int(low), int(high)) if whole and max(abs(low), abs(high)) < 2**53 else (low, high)
        edges = numeric(name, low=ends[0], high=ends[1]).edges
    return Attribute(
        name, kind, edges=edges, missing=missing, atoms=tuple(float(a) for a in atoms), unit=unit
    )


def _settled(low: float, high: float, unit: float | None) -> tuple[float, float]:
    """Bounds that hold both the values and the multiples of the unit that they mean: 0.1 + 0.2 is not 0.3."""
    if unit is None:
        return low, high
    exact = [float(f"{round(bound / unit) * unit:.12g}") for bound in (low, high)]
    return min(low, exact[0]), max(high, exact[1])


def find_unit(values: Floats) -> float | None:
    """The power of ten, from 1 to 0.0001, of which all values are multiples; None if there is none."""
    if np.abs(values).max() >= 2**50:
        return None
    for digits in range(MOST_DECIMALS + 1):
        scaled = values * 10**digits
        if (np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(1.0, np.abs(scaled))).all():
            return float(f"1e-{digits}") if digits else 1.0
    return None


def find_atoms(seen: Floats, counts: Counts) -> Floats:
    """The values that stand out from those around them, at most MOST_ATOMS, in order."""
    total = counts.sum()
    often = np.flatnonzero(counts >= max(ATOM_SHARE * total, ATOM_ROWS))
    found = []
    for i in often:
        around = np.concatenate([counts[max(0, i - 5) : i], counts[i + 1 : i + 6]])
        if len(around) and counts[i] >= STANDS_OUT * np.median(around):
            found.append(int(i))
    found.sort(key=lambda i: -int(counts[i]))
    return np.sort(seen[found[:MOST_ATOMS]])


def _crowded(values: Floats, low: float, high: float) -> bool:
    held, _ = np.histogram(
        values / 2, bins=DEFAULT_BINS, range=(low / 2, high / 2)
    )  # halves: a range may be near the largest number
    return bool(held.max() > CROWDED * len(values))


def _quantile_edges(
    values: Floats, low: float, high: float, unit: float | None
) -> tuple[float, ...]:
    """Edges that share the values out evenly, and two more where the tail begins; three digits each."""
    levels = [*np.arange(1, DEFAULT_BINS - 2) / (DEFAULT_BINS - 2), *_TAIL]
    inner = [float(f"{q:.3g}") for q in np.quantile(values, levels)]
    if unit is not None:
        inner = [float(f"{np.rint(edge / unit) * unit:.12g}") for edge in inner]
    return (low, *sorted({edge for edge in inner if low < edge < high}), high)


def propose_moments(
    name: str, kind: Literal["date", "datetime"], values: Floats, missing: bool
) -> Attribute:
    """The finest period that cuts the range into at most MOST_PERIODS, and the hour of the day where times differ.

    `values` are days for a date, seconds for an instant; they are not all alike.
    """
    scale = 1 if kind == "date" else DAY
    first, last = float(np.floor(values.min() / scale)), float(np.floor(values.max() / scale))
    cycles: tuple[Cycle, ...] = ()
    most = MOST_PERIODS
    if kind == "datetime" and (values % DAY != 0).any():
        if last - first < 3:
            low, high = (
                np.floor(values.min() / 3600) * 3600,
                np.floor(values.max() / 3600 + 1) * 3600,
            )
            return Attribute(
                name, kind, edges=tuple(np.arange(low, high + 1, 3600).tolist()), missing=missing
            )
        cycles, most = ("hour",), MOST_PERIODS // 2
    return Attribute(
        name,
        kind,
        edges=tuple(day * scale for day in period_edges(first, last, _period(first, last, most))),
        missing=missing,
        cycles=cycles,
    )


def _period(first: float, last: float, most: int) -> Period | None:
    about = {"day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}
    for period in reversed(PERIODS):
        if (last - first) / about[period] <= most:
            return period
    return "year"
