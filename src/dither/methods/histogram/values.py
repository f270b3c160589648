"""The values of a numeric column as people to ask: checked, counted by cell, drawn where only some are asked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dither.checks import check_choice, check_finite
from dither.compiled import compiled
from dither.errors import ParameterError, TableError
from dither.methods.histogram.consumer import Partition
from dither.reports import Question
from dither.types import AnyArray, AnyIntegers, Counts, Floats, Integers

OutOfRange = Literal["error", "clip", "drop"]
POLICIES: tuple[OutOfRange, ...] = ("error", "clip", "drop")
_BLOCK = 1 << 18
SLOTS_PER_CELL = 8
MAX_SLOTS = 1 << 16


@dataclass(frozen=True)
class _CheckedValues:
    """Values that all lie in the range, and how many had to be moved or left out for it."""

    values: AnyArray
    outside: int = 0


def as_numbers(values: Any, name: str = "the values") -> AnyArray:
    """A one-dimensional array of numbers from a list, array, Series or Arrow column."""
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        kind = "not a single column" if array.ndim != 1 else f"not numbers ({array.dtype})"
        raise TableError(f"{name} must be a list of numbers; this is {kind}", where=name)
    if not array.size:
        raise TableError(f"{name} hold no row, so there is nobody to ask", where=name)
    return array


def check_range(low: Any, high: Any) -> tuple[float, float]:
    """The public range as floats; an error unless both are finite and in order."""
    low, high = (bound.item() if isinstance(bound, np.number) else bound for bound in (low, high))
    low, high = float(check_finite("low", low)), float(check_finite("high", high))
    if not low < high:
        raise ParameterError(
            f"low {low:g} must be below high {high:g}", where="low", value=(low, high)
        )
    if not math.isfinite(high - low) or not math.isfinite(2.0**20 / (high - low)):
        raise ParameterError(
            f"low {low:g} and high {high:g} are too far apart, or too close, to be cut into bins",
            where="low",
            value=(low, high),
        )
    return low, high


def police(
    values: AnyArray, low: float, high: float, policy: OutOfRange, name: str = "the values"
) -> _CheckedValues:
    """Apply the policy for values outside [low, high]; a missing number (NaN) is outside and cannot be clipped."""
    check_choice("out_of_range", policy, POLICIES)
    inside = (values >= low) & (values <= high)
    outside = int(values.size - np.count_nonzero(inside))
    if not outside:
        return _CheckedValues(values)
    if policy == "drop":
        if outside == values.size:
            raise TableError(f"{name}: every value lies outside [{low:g}, {high:g}]", where=name)
        return _CheckedValues(values[inside], outside)
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise TableError(
            f"{name}: row {row + 1} has no number; fill it in, or take out_of_range=drop, which leaves such rows out",
            where=name,
        )
    if policy == "clip":
        return _CheckedValues(np.clip(values, low, high), outside)
    row = int(np.flatnonzero(~inside)[0])
    raise TableError(
        f"{name}: {values[row]:g} in row {row + 1} is outside [{low:g}, {high:g}]; widen low and high, or take out_of_range=clip "
        "(it counts as the nearer end) or out_of_range=drop (it is left out)",
        where=name,
        value=float(values[row]),
    )


@dataclass(frozen=True)
class ValueGroup:
    """People by the cell of a partition that their value is in: how many, and who where reports are to be made.

    `cell_of` maps the partition's cells to those of each attribute that is asked about.
    """

    by_cell: Integers
    codes: AnyIntegers | None = None
    cell_of: Mapping[str, Integers] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.by_cell.sum())

    def counts(self, question: Question) -> Integers:
        cell_of = self.cell_of[question.attributes[0]]
        return np.bincount(
            cell_of, weights=self.by_cell, minlength=question.mechanism.cells
        ).astype(np.int64)

    def cells(self, question: Question) -> Integers:
        assert self.codes is not None
        return self.cell_of[question.attributes[0]][self.codes]

    def divide(self, sizes: Sequence[int]) -> Iterator[ValueGroup]:
        assert list(sizes) == [len(self)]  # everybody who is asked is asked the same
        yield self

    def blocks(self) -> Iterator[ValueGroup]:
        assert self.codes is not None
        for start in range(0, len(self.codes), _BLOCK):
            part = self.codes[start : start + _BLOCK]
            counts = np.bincount(part, minlength=len(self.by_cell)).astype(np.int64)
            yield ValueGroup(counts, part, self.cell_of)


class ValuePeople:
    """The values of a numeric column, each one participant; some of them are drawn without replacement."""

    def __init__(self, everybody: ValueGroup, rng: np.random.Generator) -> None:
        self._everybody, self._rng = everybody, rng

    def __len__(self) -> int:
        return len(self._everybody)

    def next(self, number: int) -> ValueGroup:
        group = self._everybody
        if number == len(group):
            return group
        if group.codes is None:
            drawn = self._rng.multivariate_hypergeometric(group.by_cell, number, method="marginals")
            return ValueGroup(drawn, None, group.cell_of)
        chosen = group.codes[self._rng.permutation(len(group.codes))[:number]]
        return ValueGroup(
            np.bincount(chosen, minlength=len(group.by_cell)).astype(np.int64),
            chosen,
            group.cell_of,
        )


def gather(
    values: AnyArray, partition: Partition, *, reports: bool, name: str = "the values"
) -> ValueGroup:
    """People with these values, an error if one lies outside the range; who is in which cell is kept only for `reports`."""
    numbers, counts = (
        np.ascontiguousarray(values, dtype=np.float64),
        np.zeros(partition.cells, np.int64),
    )
    codes = np.empty(len(numbers) if reports else 0, np.uint16)
    if _bin_values(numbers, np.asarray(partition.edges), counts, codes) >= 0:
        police(numbers, partition.edges[0], partition.edges[-1], "error", name)
    return ValueGroup(counts, codes if reports else None)


# Millions of values put into cells, compiled. A table of evenly spaced slots gives a first guess of a value's cell, which is then
# set right by comparing with the edges themselves: no rounding decides a cell.


def _bin_values(values: Floats, edges: Floats, counts: Counts, codes: AnyIntegers) -> int:
    """Add the values to the counts of their cells and, unless there is no room for any, write their cells.

    Gives the position of the first value outside the edges, or -1.
    """
    slots = min(MAX_SLOTS, SLOTS_PER_CELL * (len(edges) - 1))
    scale = slots / (edges[-1] - edges[0])
    starts = (
        edges[0] + np.arange(slots + 2) / scale
    )  # one more slot for the upper end and one for rounding
    guess = np.searchsorted(edges[1:-1], starts, side="right").astype(np.int64)
    return int(_bin(values, edges, guess, float(scale), counts, codes))


@compiled
def _bin(values: Any, edges: Any, guess: Any, scale: float, counts: Any, codes: Any) -> int:
    low, high, last, kept = edges[0], edges[-1], len(edges) - 2, len(codes) > 0
    for i in range(len(values)):
        x = values[i]
        if not (low <= x <= high):
            return i
        c = guess[int((x - low) * scale)]
        while x < edges[c]:
            c -= 1
        while c < last and x >= edges[c + 1]:
            c += 1
        counts[c] += 1
        if kept:
            codes[i] = c
    return -1
