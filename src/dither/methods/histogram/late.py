"""Questions asked after the collection: means of a function of the number, from measured cells.

A question is a function g of the number: 1 inside a range and 0 outside, the number itself, its
square. Its mean over the population is a sum over cells, of each cell's share times the mean of
g inside the cell. Shares have unbiased estimates with exact variances. If g is not constant in
a cell, its mean there is unknown and computed as if the values were evenly spread.

The error of this assumption depends on the cell. In a *fine* cell, at most 1/64 of the range
wide, it is treated as a variance: a part of the variance that results if all values of the cell
are equal, anywhere in it. That part is estimated from the cells, because values heaped inside
cells make neighbouring cells uneven too (`heaping`). In a *coarse* cell the mean of g may be
anything between its least and its greatest value there. The answer is then an identified set
between two sums that can both be estimated, and the interval covers every value of the set at
the requested level (Imbens and Manski, Econometrica 2004): each end of a long set needs a
one-sided margin, an empty set the usual two-sided one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from dither.fit.project import norm_sub
from dither.methods.histogram.consumer import Consumer, Partition
from dither.methods.histogram.estimates import CellEstimates
from dither.types import Flags, Floats, JsonObject


@dataclass(frozen=True)
class _LateSettings:
    """Tuned constants of questions asked after the collection (docs/explanation/histograms.md)."""

    # Cells up to this share of the range are fine: an edge inside one is interpolated.
    fine: float = 1 / 64
    # Least heaping assumed if all cells look alike.
    min_heaping: float = 0.01


SETTINGS = _LateSettings()


# Edges nearer than this share of a cell are equal.
_SAME = 1e-9
# Steps of the search for an end of a quantile's interval inside its cell.
_STEPS = 16
_INTERPOLATION = (
    "values are taken as evenly spread within a cell of the partition that an edge cuts"
)


@dataclass(frozen=True)
class Functional:
    """A function g by cell: mean and variance over an even spread, least and greatest value.

    In `open_cells` the mean may be anything from the least to the greatest value, even if the
    cells are fine.
    """

    mean: Floats
    spread: Floats
    least: Floats
    most: Floats
    open_cells: tuple[int, ...] = ()


def inside(partition: Partition, low: float, high: float) -> Functional:
    """Whether a number lies in [low, high)."""
    edges = np.asarray(partition.edges)
    low, high = partition.place(low), partition.place(high)
    reach = np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1])
    share = np.clip(reach / np.diff(edges), 0.0, 1.0)
    share[np.abs(share - 1) < _SAME] = 1.0
    share[share < _SAME] = 0.0
    return Functional(
        share, share * (1 - share), (share == 1).astype(float), (share > 0).astype(float)
    )


def number(partition: Partition) -> Functional:
    """The number itself."""
    low, high = _ends(partition)
    return Functional((low + high) / 2, _square_widths(partition) / 12, low, high)


def _ends(partition: Partition) -> tuple[Floats, Floats]:
    """The smallest and the largest number of each cell; equal for a single multiple of the unit."""
    edges = np.asarray(partition.edges)
    low, high = edges[:-1] + partition.half, edges[1:] - partition.half
    single = high - low < _SAME * (edges[1:] - edges[:-1])
    middle = (low + high) / 2
    return np.where(single, middle, low), np.where(single, middle, high)


def _square_widths(partition: Partition) -> Floats:
    """Twelve times the variance of numbers that are spread evenly over each cell."""
    low, high = _ends(partition)
    wide = high - low
    # Multiples of u from a to b have the variance (b - a)(b - a + 2u) / 12.
    return np.asarray(wide * (wide + 4 * partition.half))


def squared_distance(partition: Partition, centre: float) -> Functional:
    """The squared distance of the number from a centre."""
    low, high = (ends - centre for ends in _ends(partition))
    middle, square = (low + high) / 2, _square_widths(partition)
    nearest = np.where((low < 0) & (high > 0), 0.0, np.minimum(low**2, high**2))
    spread = square * middle**2 / 3 + square**2 / 180
    return Functional(middle**2 + square / 12, spread, nearest, np.maximum(low**2, high**2))


@dataclass(frozen=True)
class Stretch:
    """An estimate and its identified set from `least` to `most`, each end with its error."""

    estimate: float
    least: float
    most: float
    errors: tuple[float, float]

    def interval(self, level: float) -> tuple[float, float]:
        """An interval that covers every value of the set at the level."""
        reach = one_or_two_sided(level, self.most - self.least, max(self.errors))
        return self.least - reach * self.errors[0], self.most + reach * self.errors[1]

    def interval_within(self, level: float, ends: tuple[float, float]) -> tuple[float, float]:
        """The interval of a figure that can't lie outside `ends`.

        The set is moved inside the ends before the margin is added: the truth lies there too,
        so that coverage does not fall, and the interval keeps its width. It includes the
        estimate.
        """
        least, most = (float(np.clip(end, *ends)) for end in (self.least, self.most))
        moved = Stretch(self.estimate, least, most, self.errors).interval(level)
        low, high = (float(np.clip(end, *ends)) for end in moved)
        return min(low, self.estimate), max(high, self.estimate)

    @property
    def standard_error(self) -> float:
        """The standard error of the noise and of an even spread over the set."""
        return math.hypot(max(self.errors), (self.most - self.least) / math.sqrt(12))


def one_or_two_sided(level: float, length: float, error: float) -> float:
    """The margin, in standard errors, with which both ends of a set cover each of its values."""
    two, one = NormalDist().inv_cdf((1 + level) / 2), NormalDist().inv_cdf(level)
    if length <= 0 or error <= 0:
        return two
    low, high = max(one, 0.0), two
    for _ in range(60):
        middle = (low + high) / 2
        covered = NormalDist().cdf(middle + length / error) - NormalDist().cdf(-middle)
        low, high = (middle, high) if covered < level else (low, middle)
    return high


def distribution(cells: CellEstimates) -> Floats:
    """The published share of each cell: the most likely one, or the nearest to the raw shares.

    All shares are sums over it, so that those of a partition add up to one.
    """
    if cells.smoothed is not None:
        return cells.smoothed
    return norm_sub(cells.counts / cells.population)


def ask_shares(cells: CellEstimates, questions: Sequence[Functional]) -> list[Stretch]:
    """The share of people in each of some sets of numbers, as sums over the distribution."""
    shares = distribution(cells)
    return [
        replace(known, estimate=float(question.mean @ shares))
        for question, known in zip(questions, ask(cells, questions), strict=True)
    ]


def ask(cells: CellEstimates, questions: Sequence[Functional]) -> list[Stretch]:
    """The estimate of each question's mean over the population."""
    fine, shares = is_fine(cells.partition), cells.counts / cells.population
    likely = np.clip(shares, 0.0, 1.0) if cells.smoothed is None else cells.smoothed
    uneven = heaping(cells)
    usual, below, above, heaped = [], [], [], []
    for one in questions:
        usual.append(one.mean)
        known = fine.copy()
        known[list(one.open_cells)] = False
        below.append(np.where(known, one.mean, one.least))
        above.append(np.where(known, one.mean, one.most))
        heaped.append(uneven * float(np.where(fine, one.spread, 0.0) @ likely**2))
    ends = np.array([*below, *above])
    # If both ends are equal, their variances are computed once.
    if (ends[: len(questions)] == ends[len(questions) :]).all():
        variances = (
            np.tile(cells.weighted_variances(ends[: len(questions)]), 2) / cells.population**2
        )
    else:
        variances = cells.weighted_variances(ends) / cells.population**2
    out = []
    for i, (mean, extra) in enumerate(zip(usual, heaped, strict=True)):
        least, most = float(ends[i] @ shares), float(ends[i + len(questions)] @ shares)
        errors = tuple(
            math.sqrt(max(float(v), 0.0) + extra) for v in variances[[i, i + len(questions)]]
        )
        estimate = float(mean @ (shares if cells.smoothed is None else cells.smoothed))
        out.append(Stretch(estimate, min(least, most), max(least, most), (errors[0], errors[1])))
    return out


def heaping(cells: CellEstimates) -> float:
    """The unevenness of neighbouring cells, from 0 (linear density) to 1 (one heap).

    It is the sum of squared deviations of each cell from the line through its neighbours,
    relative to that of a cell whose values form one heap. With heaping h the share of a cell
    below a cut varies by h times its maximum; measured on 128 cells of six tables, from even
    to five heaps, this holds within a factor of 2 (docs/explanation/histograms.md). The
    expected part of the noise is subtracted from sums of raw shares.
    """
    if cells.partition.cells < 3:
        return 1.0
    shares = cells.counts / cells.population if cells.smoothed is None else cells.smoothed
    lines = _off_the_line(np.diff(cells.partition.edges))
    one_heap = (lines**2).sum(axis=0)
    bends, squares = float(((lines @ shares) ** 2).sum()), float(one_heap @ shares**2)
    if cells.smoothed is None:
        noise = (
            cells.weighted_variances(np.concatenate([lines, np.eye(len(shares))]))
            / cells.population**2
        )
        bends -= float(noise[: len(lines)].sum())
        squares -= float(one_heap @ noise[len(lines) :])
    return min(max(bends / squares, SETTINGS.min_heaping), 1.0) if squares > 0 else 1.0


def _off_the_line(widths: Floats) -> Floats:
    """A row per cell: the line through its neighbours' densities, less the cell's density.

    The unit is the narrowest of the three cells, so that noise of a narrow cell is not scaled
    up. Both ends are reflected, so that a heap there counts as much.
    """
    wide = np.concatenate([widths[1:2], widths, widths[-2:-1]])
    left, own, right = wide[:-2], wide[1:-1], wide[2:]
    before, after, least = left + own, own + right, np.minimum(np.minimum(left, own), right)
    cell = np.arange(len(widths))
    out = np.diag(-least / own)
    np.add.at(out, (cell, np.abs(cell - 1)), least / left * after / (before + after))
    np.add.at(
        out,
        (cell, len(cell) - 1 - np.abs(len(cell) - 2 - cell)),
        least / right * before / (before + after),
    )
    return out


def is_fine(partition: Partition) -> Flags:
    """Which cells are narrow enough to interpolate."""
    edges = np.asarray(partition.edges)
    return np.asarray(
        np.diff(edges) <= SETTINGS.fine * (1 + 1e-9) * (edges[-1] - edges[0]), dtype=np.bool_
    )


def quantiles(
    cells: CellEstimates, shares: Sequence[float], level: float
) -> list[tuple[float, float, float]]:
    """The quantile of each share, with its interval: estimate, low, high.

    The interval has every number x for which the share below x may be the given one. It
    extends to the next point of the search, since many values may be equal. The share below a
    point lies between the shares below the edges of its cell, so the edges determine the cell
    of each end of the interval, and only that cell is searched. Where numbers are multiples of
    a unit, the estimate is the nearest one in its cell and the interval ends at multiples.
    """
    edges = np.asarray(cells.partition.edges)
    known = ask(cells, [inside(cells.partition, edges[0], float(x)) for x in edges[1:-1]])
    reach = np.array([(0.0, 0.0), *(one.interval(level) for one in known), (1.0, 1.0)])
    # Shares below x rise with x, so the ends of their intervals are made monotone.
    most, least = np.maximum.accumulate(reach[:, 1]), np.minimum.accumulate(reach[::-1, 0])[::-1]
    likely = np.maximum.accumulate(np.clip([0.0, *(one.estimate for one in known), 1.0], 0.0, 1.0))
    within = [
        (
            int(np.searchsorted(most, s, side="left")) - 1,
            int(np.searchsorted(least, s, side="left")) - 1,
        )
        for s in shares
    ]
    fine = _finer(cells, sorted({cell for pair in within for cell in pair}), level)
    out = []
    for share, (first, last) in zip(shares, within, strict=True):
        points, _, highs = fine[first]
        low = float(points[int((np.maximum.accumulate(highs) < share).sum())])
        points, lows, _ = fine[last]
        high = float(points[1 + int((np.minimum.accumulate(lows[::-1])[::-1] < share).sum())])
        middle = _crossing(edges, likely, share)
        low, high = _multiple(cells.partition, low, -1), _multiple(cells.partition, high, 1)
        middle = _multiple(cells.partition, middle, 0)
        out.append((min(max(middle, low), max(low, high)), low, max(low, high)))
    return out


def _multiple(partition: Partition, number: float, side: int) -> float:
    """A multiple of the unit: the first (-1) or the last (1) of an interval, or the nearest (0)."""
    if partition.unit is None:
        return number
    place = round(number / partition.unit, 9)
    # Half-way between two multiples, at an edge, the share up to the lower one is reached.
    step = {-1: math.ceil(place), 0: math.ceil(place - 0.5), 1: math.floor(place)}[side]
    return float(np.clip(step * partition.unit, partition.low, partition.high))


def _finer(
    cells: CellEstimates, wanted: Sequence[int], level: float
) -> dict[int, tuple[Floats, Floats, Floats]]:
    """Points inside some cells, with the interval of the share below each inner point.

    The excess of a cell over the line through its neighbours is likely a heap, which may lie
    anywhere in the cell.
    """
    edges, steps = cells.partition.edges, np.arange(_STEPS + 1) / _STEPS
    places = {cell: edges[cell] + steps * (edges[cell + 1] - edges[cell]) for cell in wanted}
    asked = [
        inside(cells.partition, edges[0], float(x))
        for points in places.values()
        for x in points[1:-1]
    ]
    ends = np.array([one.interval(level) for one in ask(cells, asked)]).reshape(
        len(wanted), _STEPS - 1, 2
    )
    heaps = _standing_out(cells)
    return {
        cell: (
            points,
            found[:, 0] - heaps[cell] * steps[1:-1],
            found[:, 1] + heaps[cell] * (1 - steps[1:-1]),
        )
        for (cell, points), found in zip(places.items(), ends, strict=True)
    }


def _standing_out(cells: CellEstimates) -> Floats:
    """The share of the population by which each cell exceeds the line through its neighbours."""
    shares = cells.counts / cells.population if cells.smoothed is None else cells.smoothed
    if cells.partition.cells < 3:
        return np.maximum(shares, 0.0)
    lines = _off_the_line(np.diff(cells.partition.edges))
    return np.clip((lines @ shares) / np.diag(lines), 0.0, np.maximum(shares, 0.0))


def _crossing(points: Floats, rising: Floats, share: float) -> float:
    """The position where a rising line first reaches a share."""
    first = int(np.searchsorted(rising, share, side="left"))
    if first in (0, len(points)):
        return float(points[min(first, len(points) - 1)])
    rise = rising[first] - rising[first - 1]
    return float(
        points[first - 1] + (points[first] - points[first - 1]) * (share - rising[first - 1]) / rise
    )


@dataclass(frozen=True)
class LateAnswer:
    """Counts with intervals, and standard errors that include noise and interpolation."""

    name: str
    edges: Floats
    estimates: Floats
    standard_errors: Floats
    low: Floats
    high: Floats
    level: float
    interpolation: str = _INTERPOLATION

    def interval(self) -> tuple[Floats, Floats]:
        """The ends of the intervals, valid for any values inside coarse cells."""
        return self.low, self.high

    def to_json(self) -> JsonObject:
        """Plain JSON values."""
        return {
            "name": self.name,
            "edges": self.edges.tolist(),
            "estimates": self.estimates.tolist(),
            "standard_errors": self.standard_errors.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "interpolation": self.interpolation,
            "level": self.level,
        }


def late_answer(cells: CellEstimates, consumer: Consumer, level: float = 0.95) -> LateAnswer:
    """Answer a consumer after the collection, at no further cost in privacy.

    The paper mentions online queries as an extension (section 6) without a rule; the module's
    docstring describes ours. Counts and intervals lie between zero and the population, and the
    counts of a partition add up to it. A bin over the whole range has the whole population.
    """
    wanted, people = np.asarray(consumer.edges), float(cells.population)
    whole = cells.partition.low, cells.partition.high
    last = cells.partition.high
    bins = [
        inside(cells.partition, a, math.inf if b >= last else b)
        for a, b in pairwise(consumer.edges)
    ]
    stretches = ask_shares(cells, bins)
    ends = np.array([one.interval_within(level, (0.0, 1.0)) for one in stretches]) * people
    estimates = np.array([one.estimate for one in stretches]) * people
    errors = np.array([one.standard_error for one in stretches]) * people
    if consumer.bins == 1 and (wanted[0], wanted[-1]) == whole:
        estimates, errors, ends = np.array([people]), np.zeros(1), np.full((1, 2), people)
    return LateAnswer(consumer.name, wanted, estimates, errors, ends[:, 0], ends[:, 1], level)
