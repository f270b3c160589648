"""Values become cells, and cells become tallies of randomised reports."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dither.errors import ParameterError, TableError
from dither.protocols.histogram.consumer import Partition
from dither.types import Integers

if TYPE_CHECKING:
    from dither.mechanisms import Mechanism
    from dither.mechanisms.strategy import Strategy

OutOfRange = Literal["error", "clip", "drop"]
POLICIES: tuple[OutOfRange, ...] = ("error", "clip", "drop")
PATHS = ("counts", "reports")
_BLOCK = 1 << 18


@dataclass(frozen=True)
class People:
    """The true cells of everyone who takes part: how many are in each and, where reports are to be made, who."""

    counts: Integers
    codes: npt.NDArray[np.integer[Any]] | None = None

    @property
    def n(self) -> int:
        """How many people there are."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class Policed:
    """Values that all lie in the range, and how many had to be moved or left out for it."""

    values: npt.NDArray[Any]
    outside: int = 0


def as_numbers(values: Any, name: str = "the values") -> npt.NDArray[Any]:
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
    for option, bound in (("low", low), ("high", high)):
        if isinstance(bound, bool) or not isinstance(bound, (int, float, np.number)) or not _finite(bound):
            raise ParameterError(f"{option} must be a finite number, not {bound!r}", where=option, value=bound)
    low, high = float(low), float(high)
    if not low < high or not math.isfinite(high - low) or not math.isfinite(2.0**20 / (high - low)):
        raise ParameterError(f"low {low:g} must be below high {high:g}", where="low", value=(low, high))
    return low, high


def _finite(number: Any) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number that no float can hold
        return False


def police(values: npt.NDArray[Any], low: float, high: float, policy: OutOfRange, name: str = "the values") -> Policed:
    """Apply the policy for values outside [low, high]; a missing number (NaN) is outside and cannot be clipped."""
    if policy not in POLICIES:
        raise ParameterError(
            f"out-of-range must be one of {', '.join(POLICIES)}, not {policy!r}", where="out_of_range", value=policy
        )
    inside = (values >= low) & (values <= high)
    outside = int(values.size - np.count_nonzero(inside))
    if not outside:
        return Policed(values)
    if policy == "drop":
        if outside == values.size:
            raise TableError(f"{name}: every value lies outside [{low:g}, {high:g}]", where=name)
        return Policed(values[inside], outside)
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise TableError(f"{name}: row {row + 1} has no number; fill it in, or drop such rows", where=name)
    if policy == "clip":
        return Policed(np.clip(values, low, high), outside)
    row = int(np.flatnonzero(~inside)[0])
    raise TableError(
        f"{name}: {values[row]:g} in row {row + 1} is outside [{low:g}, {high:g}]; "
        "widen the range, or choose to clip or drop",
        where=name,
        value=float(values[row]),
    )


def gather(values: npt.NDArray[Any], partition: Partition, *, reports: bool, name: str = "the values") -> People:
    """The cells of values, an error if one lies outside the range.

    Who is in which cell is kept only if reports are to be made.
    """
    from dither.mechanisms.kernels import strategy as kernels

    edges = np.asarray(partition.edges)
    guess, scale = kernels.guesses(edges)
    numbers = np.ascontiguousarray(values, dtype=np.float64)
    if reports:
        codes = np.empty(len(numbers), np.uint16)
        wrong = kernels.code_cells(numbers, edges, guess, scale, codes)
        counts = np.bincount(codes, minlength=partition.cells) if wrong < 0 else np.zeros(partition.cells, np.int64)
    else:
        codes = None
        counts = np.zeros(partition.cells, np.int64)
        wrong = kernels.count_cells(numbers, edges, guess, scale, counts)
    if wrong >= 0:
        police(numbers, partition.edges[0], partition.edges[-1], "error", name)
    return People(counts.astype(np.int64, copy=False), codes)


def ask(mechanism: Mechanism | Strategy, people: People, cell_of: Integers, rng: np.random.Generator) -> Integers:
    """The tally of one question put to everybody; `cell_of` maps the partition's cells to the question's.

    With people's codes every report is made, packed as on the wire, and tallied in blocks; without them the tally is
    drawn directly from the counts. Both have the same law.
    """
    if people.codes is None:
        truth = np.bincount(cell_of, weights=people.counts, minlength=mechanism.cells).astype(np.int64)
        return mechanism.simulate(truth, rng)
    from dither.mechanisms.kernels.stream import RandomStream

    stream = RandomStream.from_generator(rng)
    tally = np.zeros(mechanism.counters, np.int64)
    for start in range(0, len(people.codes), _BLOCK):
        cells = cell_of[people.codes[start : start + _BLOCK]]
        tally += mechanism.support(mechanism.randomise_many(cells, stream))
    return tally


def draw_sample(people: People, size: int, rng: np.random.Generator) -> People:
    """Some of the people, drawn without replacement."""
    if people.codes is None:
        return People(rng.multivariate_hypergeometric(people.counts, size, method="marginals"))
    chosen = people.codes[rng.permutation(len(people.codes))[:size]]
    return People(np.bincount(chosen, minlength=len(people.counts)).astype(np.int64), chosen)
