"""Consumers of a histogram with their bins, the partition of all bins, and values in its cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from dither.checks import check_between, check_choice, check_finite, check_whole, is_finite
from dither.compiled import compiled
from dither.errors import ParameterError, TableError
from dither.mechanisms import check_epsilon
from dither.reports import Question
from dither.types import AnyArray, AnyIntegers, Counts, Floats, Integers, JsonObject

# The largest domain of local hashing.
_MAX_BINS = 1 << 16
# Limit for all consumers together: a short text can describe more edges than fit in memory.
MAX_EDGES = 1 << 18


@dataclass(frozen=True)
class Consumer:
    """A recipient of a histogram: a name, bin edges and optionally an epsilon.

    Bins are half-open, [a, b); only the bin that ends at the range's upper end is closed.

    >>> import dither
    >>> minors = dither.Consumer("minors and adults", (0.0, 18.0, 100.0))
    >>> found = dither.histogram([3, 14, 40, 70] * 500, consumers=[minors], epsilon=3.0, low=0, high=100)
    >>> len(found.consumers[0].estimates)
    2
    """

    name: str
    edges: tuple[float, ...]
    epsilon: float | None = None

    def __post_init__(self) -> None:
        finite = all(map(is_finite, self.edges))
        if (
            len(self.edges) < 2
            or not finite
            or any(a >= b for a, b in zip(self.edges, self.edges[1:], strict=False))
        ):
            raise ParameterError(
                f"consumer {self.name!r}: edges must be at least two finite, strictly increasing numbers",
                where=self.name,
                value=self.edges,
            )
        object.__setattr__(self, "edges", tuple(float(e) for e in self.edges))
        if self.epsilon is not None:
            check_epsilon(self.epsilon)

    @property
    def bins(self) -> int:
        """How many bins there are."""
        return len(self.edges) - 1

    def to_json(self) -> JsonObject:
        """Name, edges and, if there is one, its epsilon."""
        own = {} if self.epsilon is None else {"epsilon": self.epsilon}
        return {"name": self.name, "edges": list(self.edges), **own}

    @classmethod
    def by_count(
        cls,
        bins: int,
        low: float,
        high: float,
        name: str | None = None,
        epsilon: float | None = None,
    ) -> Consumer:
        """Bins of equal width over [low, high]."""
        check_whole("bins", bins, 1, _MAX_BINS)
        start, span = Fraction(low), Fraction(high) - Fraction(low)
        # Rational arithmetic: the third of one consumer and five fifteenths of another are the same number.
        edges = tuple(float(start + span * i / bins) for i in range(bins + 1))
        return cls(name or f"{bins} bins", edges, epsilon)

    @classmethod
    def by_width(
        cls,
        width: float,
        low: float,
        high: float,
        name: str | None = None,
        epsilon: float | None = None,
    ) -> Consumer:
        """Bins of this width from low on; the last one ends at high and may be narrower (paper, eq. 5)."""
        check_between("width", check_finite("width", width), 0, math.inf, ends="()")
        start, span, step = Fraction(low), Fraction(high) - Fraction(low), Fraction(width)
        count = -(-span // step)
        if count > _MAX_BINS:
            raise ParameterError(
                f"width {width} makes more than {_MAX_BINS:,} bins, which is as many as can be asked",
                where="width",
                value=width,
            )
        edges = (*(float(start + step * i) for i in range(count)), float(high))
        return cls(name or f"width {width:g}", edges, epsilon)


def read_consumers(given: Iterable[Any], low: float, high: float) -> tuple[Consumer, ...]:
    """Consumers from a caller's list.

    Args:
        given: Each entry is a number of bins, a list of edges, a mapping with "name", one of
            "bins", "width" and "edges", and "epsilon", or a `Consumer`. Repeated default names
            are numbered.
        low: Lower end of the range.
        high: Upper end of the range.

    Raises:
        ParameterError: An entry is malformed, an edge lies outside [low, high], or the edges
            are too many.
    """
    made: list[Consumer] = []
    edges = 0
    for entry in given:
        made.append(_read(entry, low, high))
        edges += len(made[-1].edges)
        if edges > MAX_EDGES:
            raise ParameterError(
                f"the consumers have more than {MAX_EDGES:,} edges; name fewer, or coarser bins",
                where="consumers",
            )
    if not made:
        raise ParameterError("name at least one consumer", where="consumers")
    taken: set[str] = set()
    numbers: dict[str, int] = {}  # the last one given to consumers of a name
    out = []
    for consumer in made:
        name = consumer.name
        while name in taken:
            numbers[consumer.name] = numbers.get(consumer.name, 1) + 1
            name = f"{consumer.name} ({numbers[consumer.name]})"
        taken.add(name)
        for edge in (consumer.edges[0], consumer.edges[-1]):
            if not low <= edge <= high:
                raise ParameterError(
                    f"consumer {consumer.name!r}: edge {edge:g} is outside [{low:g}, {high:g}]",
                    where=consumer.name,
                    value=edge,
                )
        out.append(Consumer(name, consumer.edges, consumer.epsilon))
    return tuple(out)


def _read(entry: Any, low: float, high: float) -> Consumer:
    if isinstance(entry, Consumer):
        return entry
    if isinstance(entry, dict):
        return _read_entry(entry, low, high)
    if hasattr(entry, "tolist"):  # a NumPy number or array
        entry = entry.tolist()
    if isinstance(entry, Sequence) and not isinstance(entry, str):
        return Consumer(f"{len(entry) - 1} bins", tuple(entry))
    return Consumer.by_count(entry, low, high)


def _read_entry(entry: JsonObject, low: float, high: float) -> Consumer:
    unknown = sorted(set(entry) - {"name", "bins", "width", "edges", "epsilon"})
    forms = [key for key in ("bins", "width", "edges") if key in entry]
    if unknown or len(forms) != 1:
        fault = f"unknown key {unknown[0]!r}" if unknown else "give one of bins, width and edges"
        raise ParameterError(
            f"consumer {entry.get('name', entry)!r}: {fault}", where="consumers", value=entry
        )
    name, epsilon = entry.get("name"), entry.get("epsilon")
    if not isinstance(name, str | None):
        raise ParameterError(
            f"a consumer's name must be text, not {name!r}", where="consumers", value=name
        )
    if forms[0] == "bins":
        return Consumer.by_count(entry["bins"], low, high, name, epsilon)
    if forms[0] == "width":
        return Consumer.by_width(entry["width"], low, high, name, epsilon)
    edges = entry["edges"].tolist() if hasattr(entry["edges"], "tolist") else entry["edges"]
    if not isinstance(edges, Sequence):
        raise ParameterError(
            f"a consumer's edges must be a list, not {edges!r}", where="consumers", value=edges
        )
    return Consumer(name or f"{len(edges) - 1} bins", tuple(edges), epsilon)


_SAME = (
    1e-12  # edges this close, as a share of the range, are one edge that was computed in two ways
)


@dataclass(frozen=True)
class Partition:
    """Cells between neighbouring edges, half-open, the last one closed.

    With a `unit` every number is a multiple of it. The edges then lie half a unit below the first
    multiple of a cell, and the last one half a unit above the range, so that no edge is a number.
    """

    edges: tuple[float, ...]
    unit: float | None = None

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.edges) - 1

    @property
    def half(self) -> float:
        """Half the unit; 0 for real numbers."""
        return 0.0 if self.unit is None else self.unit / 2

    @property
    def low(self) -> float:
        """The smallest number."""
        return self.edges[0] + self.half

    @property
    def high(self) -> float:
        """The largest number."""
        return self.edges[-1] - self.half

    def place(self, edge: float) -> float:
        """Where a bin that begins with this number, or ends before it, is cut.

        >>> Partition((0.5, 1.5, 2.5), unit=1.0).place(2.0)
        1.5
        """
        if self.unit is None or math.isinf(edge):
            return edge
        return float((math.ceil(round(edge / self.unit, 9)) - 0.5) * self.unit)

    def spans(self, consumer: Consumer) -> list[tuple[int, int]]:
        """For each bin of a consumer the cells [start, stop) it is the sum of."""
        edges = np.asarray(self.edges)
        slack = _SAME * (edges[-1] - edges[0])
        wanted = np.array([self.place(edge) for edge in consumer.edges])
        if consumer.edges[-1] >= self.high:  # the bin that ends the range is closed
            wanted[-1] = edges[-1]
        after = np.clip(np.searchsorted(edges, wanted), 1, len(edges) - 1)
        nearer = wanted - edges[after - 1] <= edges[after] - wanted
        positions = (after - nearer).tolist()
        for edge, cut, position in zip(consumer.edges, wanted, positions, strict=True):
            if abs(edges[position] - cut) > slack:
                raise ParameterError(
                    f"consumer {consumer.name!r}: edge {edge:g} is not among the edges that are asked; add it to the attribute's "
                    "bins before anybody is asked, or take a late answer",
                    where=consumer.name,
                    value=edge,
                )
        return list(pairwise(positions))

    def membership(self, consumer: Consumer) -> Floats:
        """One row per bin, 1 where a cell belongs to it."""
        out = np.zeros((consumer.bins, self.cells))
        for row, (start, stop) in zip(out, self.spans(consumer), strict=True):
            row[start:stop] = 1.0
        return out


def union(
    consumers: Sequence[Consumer], low: float, high: float, unit: float | None = None
) -> Partition:
    """The coarsest partition of [low, high] whose cells make up every consumer's bins (paper, eq. 9 and 10).

    Args:
        consumers: Their edges.
        low: The smallest number.
        high: The largest number.
        unit: Every number, `low` and `high` among them, is a multiple of it; None for real numbers.
    """
    given = [low, high, *(edge for consumer in consumers for edge in consumer.edges)]
    if unit is not None:
        whole = Partition((low - unit / 2, high + unit / 2), unit)
        low, high = whole.edges
        given = [high if edge >= whole.high else whole.place(edge) for edge in given]
        given.append(low)
    everything = np.unique(np.array(given, dtype=np.float64))
    apart = np.diff(everything) > _SAME * (high - low)
    kept = everything[np.concatenate([[True], apart])]
    # An edge a rounding error below the upper end may have replaced it.
    kept[-1] = high
    if len(kept) - 1 > _MAX_BINS:
        raise ParameterError(
            f"the consumers' edges make {len(kept) - 1:,} cells; at most {_MAX_BINS:,} can be asked",
            where="consumers",
        )
    return Partition(tuple(kept.tolist()), unit)


def mapping(fine: Partition, coarse: Partition) -> Integers:
    """For each cell of a partition the cell of a coarser one that contains it."""
    middles = (np.asarray(fine.edges)[1:] + np.asarray(fine.edges)[:-1]) / 2
    return np.asarray(
        np.searchsorted(np.asarray(coarse.edges)[1:-1], middles, side="right").astype(np.int64)
    )


OutOfRange = Literal["error", "clip", "drop"]
POLICIES: tuple[OutOfRange, ...] = ("error", "clip", "drop")
_BLOCK = 1 << 18
_SLOTS_PER_CELL = 8
_MAX_SLOTS = 1 << 16


@dataclass(frozen=True)
class _CheckedValues:
    """Values in the range, and how many were clipped or dropped."""

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
        raise TableError(f"{name} have no rows", where=name)
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


def check_step(unit: float, low: float, high: float) -> float:
    """The unit of the numbers of a range as a float; an error unless it divides both ends."""
    unit = float(check_finite("unit", unit))
    check_between("unit", unit, 0, high - low, ends="(]")
    if not ends_at_multiples(unit, low, high):
        raise ParameterError(
            f"the range [{low:g}, {high:g}] does not end at multiples of the unit {unit:g}; move its ends there",
            where="unit",
            value=unit,
        )
    return unit


def ends_at_multiples(unit: float, low: float, high: float) -> bool:
    """Whether both ends of a range are multiples of a unit."""
    places = [end / unit for end in (low, high)]
    return all(abs(place - round(place)) <= 1e-9 * max(1.0, abs(place)) for place in places)


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
        # A round has one question for all participants.
        assert list(sizes) == [len(self)]
        yield self

    def blocks(self) -> Iterator[ValueGroup]:
        assert self.codes is not None
        for start in range(0, len(self.codes), _BLOCK):
            part = self.codes[start : start + _BLOCK]
            counts = np.bincount(part, minlength=len(self.by_cell)).astype(np.int64)
            yield ValueGroup(counts, part, self.cell_of)


class ValuePeople:
    """The values of a numeric column, one participant each, drawn without replacement."""

    def __init__(self, everyone: ValueGroup, rng: np.random.Generator) -> None:
        self._everyone, self._rng = everyone, rng

    def __len__(self) -> int:
        return len(self._everyone)

    def next(self, number: int) -> ValueGroup:
        group = self._everyone
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
    """Participants with these values, counted by cell; their codes are kept only for `reports`.

    Raises:
        TableError: A value lies outside the range.
    """
    numbers, counts = (
        np.ascontiguousarray(values, dtype=np.float64),
        np.zeros(partition.cells, np.int64),
    )
    codes = np.empty(len(numbers) if reports else 0, np.uint16)
    if _bin_values(numbers, np.asarray(partition.edges), counts, codes) >= 0:
        police(numbers, partition.edges[0], partition.edges[-1], "error", name)
    return ValueGroup(counts, codes if reports else None)


def _bin_values(values: Floats, edges: Floats, counts: Counts, codes: AnyIntegers) -> int:
    """Add the values to the counts of their cells and, if `codes` is not empty, write their cells.

    A table of evenly spaced slots has a first guess of a value's cell. Comparing with the edges
    corrects the guess, so that rounding never decides a cell.

    Returns:
        The position of the first value outside the edges, or -1.
    """
    slots = min(_MAX_SLOTS, _SLOTS_PER_CELL * (len(edges) - 1))
    scale = slots / (edges[-1] - edges[0])
    # One more slot for the upper end and one for rounding.
    starts = edges[0] + np.arange(slots + 2) / scale
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
