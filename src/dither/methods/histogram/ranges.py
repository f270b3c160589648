"""The method `ranges`: one report designed for every interval of a line.

It answers ranges, quantiles and means that are chosen after the collection. A participant
answers once, at full epsilon, about one of 128 cells of equal width. The first and the last cell
are divided further, because values often concentrate at the ends of a range. Every edge that a
consumer named is an edge of a cell too. The report is the optimal design for all intervals. Raw
counts are unbiased with exact variances, as for `smart`; intervals use them. Estimates are read
off a penalised maximum likelihood density. The square wave of Li et al. (SIGMOD 2020), with its
own estimate (EM with smoothing), is available by name.

Density: reports say little about single cells and much about wide stretches, so the unbiased
estimate of every cell is mostly noise, and the maximum likelihood (EM) follows that noise. The
logarithm of the density is penalised for its first or second differences: an even density has no
first-difference penalty, an exponential tail no second-difference penalty. There is a fit for
each strength of both penalties; they are averaged with weights exp(-criterion/2). The criterion
is Akaike's with the effective degrees of freedom of a penalised fit (Hastie, Tibshirani,
"Generalized additive models", 1990; Buckland, Burnham, Augustin, Biometrics 1997 for the average)
and a price of 2.5 instead of 2 for each: the best of many fits looks better than it is, which a
higher price corrects (Bhansali, Downham, Biometrika 1977). The choice uses the noisy reports alone
and costs no privacy. The likelihood is that of the outputs' least-variance linear estimate, which
with its information matrix is asymptotically sufficient; both are computed at a rough fit by EM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from dither.checks import check_choice, check_whole
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.fit import Independent
from dither.mechanisms import (
    OutputMechanism,
    SetStrategy,
    SquareWave,
    check_epsilon,
    kernels,
    mechanism_from_json,
)
from dither.methods.diagnostics import Diagnostics
from dither.methods.histogram.consumer import Consumer, Partition, union
from dither.methods.histogram.estimates import ConsumerCounts, OutputCells, read_off
from dither.methods.histogram.machine import (
    HistogramParameters,
    PartitionMachine,
    numeric_attribute,
    smallest,
)
from dither.methods.histogram.smart import (
    MAX_EPSILON,
    Design,
    design_strategy,
    fresh_sets,
    likelihood_shares,
)
from dither.reports import Question
from dither.schema import Schema
from dither.types import AnyIntegers, Flags, Floats, Integers, JsonObject


@dataclass(frozen=True)
class _RangesSettings:
    """Tuned constants of the method `ranges` and its density (docs/explanation/histograms.md)."""

    # Price of a degree of freedom. 2 to 3 measured the same on most shapes; less follows noise
    # if the truth is even.
    price: float = 2.5
    # EM steps to the point at which the information is taken.
    rough_steps: int = 60
    # Part of an even density in that point, so that no output looks impossible.
    even_part: float = 0.1
    # Limit of Newton steps for one penalised fit.
    newton_steps: int = 60
    # Of the penalised log-likelihood: a hundredth of the price of one degree of freedom.
    tolerance: float = 1e-3
    # Largest change of a cell's logarithm in one step.
    max_step: float = 4.0
    # Weight of single cells, relative to the mean diagonal, so that all stay estimable.
    ridge: float = 1e-3
    # Sets drawn at the start and kept between the rounds of the search.
    drawn: int = 1500
    # Sets in the final design, at least; each with its mirror image.
    kept: int = 400
    # The same for each cell.
    kept_per_cell: int = 7
    # Sets in use from which each round of the search starts.
    searched: int = 300
    # Rounds of the search.
    rounds: int = 8
    # Steps of the weights in each round.
    steps: int = 12
    # Steps of the weights of the final design; half as many before its sets are chosen.
    last_steps: int = 80
    # Exponent of a multiplicative step, as in `smart`.
    step: float = 0.7


SETTINGS = _RangesSettings()


# With these strengths the density is even or exponential.
_STRONG = (1e6, 1e5, 1e4)
# Strengths of the penalties on first and on second differences.
_FIRST = (*_STRONG, 1000.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
_SECOND = (*_STRONG, 1000.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)


def likely_density(probabilities: Floats, outputs: AnyIntegers, widths: Floats) -> Floats:
    """The cells' most likely shares, all above zero with sum one.

    Args:
        probabilities: Probability of each output (rows) in each cell (columns).
        outputs: Reports of each output.
        widths: Widths of the cells on the line.
    """
    # Threads slow down matrices of this size.
    with threadpool_limits(1):
        evidence = DensityEvidence.of(probabilities, np.asarray(outputs, np.float64), widths)
        fits = [
            fit
            for order, strengths in ((1, _FIRST), (2, _SECOND))
            for fit in evidence.path(order, strengths)
        ]
    criteria = np.array([fit.criterion for fit in fits])
    weights = np.exp(-(criteria - criteria.min()) / 2)
    return np.asarray(
        weights @ np.array([fit.shares for fit in fits]) / weights.sum(), dtype=np.float64
    )


def _rough_shares(probabilities: Floats, outputs: Floats, widths: Floats) -> Floats:
    """A few steps of EM from an even density, mixed with a little of that density."""
    even = widths / widths.sum()
    shares, total = even, outputs.sum()
    for _ in range(SETTINGS.rough_steps):
        shares = shares * (probabilities.T @ (outputs / (probabilities @ shares))) / total
    return np.asarray(
        (1 - SETTINGS.even_part) * shares + SETTINGS.even_part * even, dtype=np.float64
    )


@dataclass(frozen=True)
class _DensityFit:
    """Shares, the logarithms of their density, and the criterion."""

    shares: Floats
    logs: Floats
    criterion: float


@dataclass(frozen=True)
class DensityEvidence:
    """The linear estimate of the shares, the information of one report, and a rough fit."""

    estimate: Floats
    information: Floats
    reports: float
    widths: Floats
    rough: Floats

    @classmethod
    def of(cls, probabilities: Floats, outputs: Floats, widths: Floats) -> DensityEvidence:
        """The estimate of least variance near the rough fit."""
        rough = _rough_shares(probabilities, outputs, widths)
        expected = probabilities @ rough
        information = probabilities.T @ (probabilities / expected[:, None])
        estimate = np.linalg.solve(
            information, probabilities.T @ (outputs / expected) / outputs.sum()
        )
        return cls(estimate, information, float(outputs.sum()), widths / widths.sum(), rough)

    def path(self, order: int, strengths: tuple[float, ...]) -> list[_DensityFit]:
        """Fits from the smoothest to the roughest, each started from the previous one."""
        out: list[_DensityFit] = []
        logs = np.log(self.rough.mean() * np.ones_like(self.rough))
        for strength in strengths:
            out.append(self.fit(self._differences[order - 1], strength, logs))
            logs = out[-1].logs
        return out

    @cached_property
    def _differences(self) -> tuple[Floats, Floats]:
        """First and second differences of the logarithms, per distance of the cells' centres."""
        wide = self.widths * len(self.widths)
        apart = (wide[1:] + wide[:-1]) / 2
        first = np.diff(np.eye(len(wide)), axis=0)
        slopes = first / apart[:, None]
        second = np.diff(slopes, axis=0) / np.sqrt((apart[1:] + apart[:-1]) / 2)[:, None]
        return first / np.sqrt(apart)[:, None], second

    def fit(self, differences: Floats, strength: float, logs: Floats) -> _DensityFit:
        """The most likely density under a penalty, by damped Newton steps."""
        penalty = strength * differences.T @ differences
        now, damping = self._loss(logs, penalty), 1e-6
        for _ in range(SETTINGS.newton_steps):
            curvature, pull = self._local(logs, penalty)
            scale = float(np.trace(curvature)) / len(logs)
            for _ in range(12):
                step = np.linalg.solve(
                    curvature + (damping + 1e-9) * scale * np.eye(len(logs)), pull
                )
                step *= min(1.0, SETTINGS.max_step / max(float(np.abs(step).max()), 1e-300))
                ahead = self._loss(logs + step, penalty)
                if ahead <= now:
                    break
                damping *= 8
            else:
                break  # no step reduces the loss in float precision
            logs, gained, now = logs + step, now - ahead, ahead
            logs = logs - logs.max()
            damping = max(damping / 4, 1e-9)
            if gained < SETTINGS.tolerance:
                break
        return _DensityFit(self._shares(logs), logs, self._criterion(logs, penalty))

    def _shares(self, logs: Floats) -> Floats:
        weight = self.widths * np.exp(logs - logs.max())
        return np.asarray(weight / weight.sum(), dtype=np.float64)

    def _loss(self, logs: Floats, penalty: Floats) -> float:
        miss = self.estimate - self._shares(logs)
        return float(self.reports * miss @ self.information @ miss + logs @ penalty @ logs) / 2

    def _local(self, logs: Floats, penalty: Floats) -> tuple[Floats, Floats]:
        """The expected curvature of the loss and its negative gradient."""
        shares = self._shares(logs)
        jacobian = np.diag(shares) - np.outer(shares, shares)
        weighted = self.reports * jacobian @ self.information
        return weighted @ jacobian + penalty, weighted @ (self.estimate - shares) - penalty @ logs

    def _criterion(self, logs: Floats, penalty: Floats) -> float:
        """Twice the loss without penalty, plus the price of the effective degrees of freedom."""
        shares = self._shares(logs)
        curvature, _ = self._local(logs, penalty)
        known = curvature - penalty
        scale = 1e-9 * float(np.trace(curvature)) / len(logs)
        freedom = float(np.trace(np.linalg.solve(curvature + scale * np.eye(len(logs)), known)))
        miss = self.estimate - shares
        return float(self.reports * miss @ self.information @ miss) + SETTINGS.price * freedom


MAX_CELLS = 256
# Below this epsilon the search cannot distinguish sets in float precision.
_MIN_EPSILON = 1e-6
_ROOT = np.sqrt(2.0)


@lru_cache(maxsize=64)
def interval_strategy(cells: int, epsilon: float) -> SetStrategy:
    """The strategy for all intervals of a line of cells.

    Above epsilon 12 nothing can be gained, so no more is spent. The strategy is deterministic
    on one machine; to use it on another, store its integers (`ProtocolMachine.design`).

    Raises:
        ParameterError: `cells` or `epsilon` is out of range.
    """
    check_whole("cells", cells, 2, MAX_CELLS)
    spent = min(check_epsilon(epsilon), MAX_EPSILON)
    if spent < _MIN_EPSILON:
        raise ParameterError(
            f"method 'ranges' takes an epsilon of {_MIN_EPSILON:g} or more, not {epsilon:g}; raise it, or use chp",
            where="epsilon",
            value=epsilon,
        )
    # Threads slow down matrices of this size.
    with threadpool_limits(1):
        made = design_strategy(_optimise_intervals(cells + cells % 2, spent), spent)
    if made.cells == cells:
        return made
    # The search needs an even number of cells. The extra cell stays empty, and dropping it does
    # not change the draws of the others.
    within = (1 << cells) - 1
    return SetStrategy(
        cells, tuple(mask & within for mask in made.sets), made.high, made.low, made.rest[:cells]
    )


def _interval_gram(cells: int) -> Floats:
    """W'W of all intervals: the share of intervals that contain both of two cells."""
    place = np.arange(cells)
    together = np.minimum.outer(place + 1, place + 1) * (cells - np.maximum.outer(place, place))
    return np.asarray(together / (cells * (cells + 1) / 2), dtype=np.float64)


@dataclass(frozen=True)
class _Mirrored:
    """The problem in the basis of symmetric and antisymmetric vectors.

    One of each pair of mirrored sets represents both.
    """

    cells: int
    ratio: float
    grams: tuple[Floats, Floats]

    def split(self, rows: Floats) -> tuple[Floats, Floats]:
        half = self.cells // 2
        left, right = rows[:, :half], rows[:, : half - 1 : -1]
        return (left + right) / _ROOT, (left - right) / _ROOT

    def join(self, symmetric: Floats, anti: Floats) -> Floats:
        same, across = (symmetric + anti) / 2, (symmetric - anti) / 2
        return np.block([[same, across[:, ::-1]], [across[::-1], same[::-1, ::-1]]])

    def balance(self, probabilities: Floats, symmetric: Floats) -> Floats:
        """Project onto the constraint in relative entropy, by Newton's method on the dual."""
        dual, current = np.zeros(symmetric.shape[1]), probabilities
        for _ in range(60):
            miss = current @ symmetric - _ROOT / self.cells
            if np.abs(miss).max() < 1e-12:
                break
            curvature = (symmetric * current[:, None]).T @ symmetric
            step = np.linalg.solve(
                curvature + 1e-12 * float(np.trace(curvature)) * np.eye(len(miss)), miss
            )
            reach = float(np.abs(symmetric @ step).max())
            dual -= step / max(1.0, reach / 2.0)  # a long step could overflow the exponential
            current = probabilities * np.exp(symmetric @ dual)
        return np.asarray(current, dtype=np.float64)

    def improve(
        self, sets: Flags, probabilities: Floats, steps: int
    ) -> tuple[Floats, tuple[Floats, Floats]]:
        """Multiplicative steps; returns the probabilities and both parts of the matrix B."""
        parts = self.split(likelihood_shares(sets, self.ratio))
        probabilities = self.balance(probabilities, parts[0])
        for step in range(steps + 1):
            inverses = [
                np.linalg.inv(self.cells * (part * probabilities[:, None]).T @ part)
                for part in parts
            ]
            pulls = [
                inverse @ gram @ inverse for inverse, gram in zip(inverses, self.grams, strict=True)
            ]
            if step == steps:
                break
            gain = self.cells * sum(
                np.einsum("ij,ij->i", part @ pull, part)
                for part, pull in zip(parts, pulls, strict=True)
            )
            now = sum(float(np.trace(g @ i)) for g, i in zip(self.grams, inverses, strict=True))
            probabilities = self.balance(probabilities * (gain / now) ** SETTINGS.step, parts[0])
        return probabilities, (pulls[0], pulls[1])


def _optimise_intervals(cells: int, epsilon: float) -> Design:
    """The sets for an even number of cells, drawn along the workload and then searched for."""
    ratio, rng = float(np.exp(epsilon)), np.random.default_rng(cells)
    gram = _interval_gram(cells)
    gram += SETTINGS.ridge * float(np.trace(gram)) / cells * np.eye(cells)
    half = cells // 2
    same, across = gram[:half, :half], gram[:half, : half - 1 : -1]
    problem = _Mirrored(cells, ratio, (same + across, same - across))
    sets = _first_sets(cells, ratio, rng)
    probabilities = np.full(len(sets), 1 / len(sets))
    for _ in range(SETTINGS.rounds):
        probabilities, pulls = problem.improve(sets, probabilities, SETTINGS.steps)
        found = _one_of_each(_search(problem, sets, probabilities, pulls, rng))
        sets, probabilities = _most_used(sets, probabilities, SETTINGS.drawn)
        fresh = found[~_known(sets, found)]
        if len(fresh):
            sets = np.concatenate([sets, fresh])
            probabilities = np.concatenate(
                [0.9 * probabilities, np.full(len(fresh), 0.1 / len(fresh))]
            )
    probabilities, _ = problem.improve(sets, probabilities, SETTINGS.last_steps // 2)
    sets, probabilities = _most_used(
        sets, probabilities, max(SETTINGS.kept, SETTINGS.kept_per_cell * cells)
    )
    probabilities, _ = problem.improve(sets, probabilities, SETTINGS.last_steps)
    return _both(sets, probabilities, ratio)


def _both(sets: Flags, probabilities: Floats, ratio: float) -> Design:
    """The design with mirror images; a symmetric set appears once."""
    alone = (sets == sets[:, ::-1]).all(axis=1)
    whole = np.concatenate([sets, sets[~alone][:, ::-1]])
    shares = np.concatenate(
        [np.where(alone, probabilities, probabilities / 2), probabilities[~alone] / 2]
    )
    posterior = likelihood_shares(whole, ratio)
    return Design(whole, shares, whole.shape[1] * shares * posterior.min(axis=1))


def _first_sets(cells: int, ratio: float, rng: np.random.Generator) -> Flags:
    """Intervals of fitting lengths, single cells, and random sets along the workload."""
    middle = 1 / (1 + ratio**0.5)
    values, vectors = np.linalg.eigh(_interval_gram(cells))
    scores = (
        rng.normal(size=(SETTINGS.drawn, cells)) @ (vectors * np.maximum(values, 0.0) ** 0.25).T
    )
    sizes = np.maximum(
        1, np.round(np.clip(rng.normal(middle, 0.1, SETTINGS.drawn), 1 / cells, 0.6) * cells)
    )
    drawn = scores.argsort(axis=1).argsort(axis=1) >= cells - sizes[:, None]
    lengths = {max(1, round(cells * (middle + more))) for more in np.linspace(-0.15, 0.1, 8)}
    place = np.arange(cells)
    runs = [
        (place >= a) & (place < a + length)
        for length in sorted(lengths)
        for a in range(1 - length, cells)
    ]
    sets = np.concatenate([drawn, np.array(runs), np.eye(cells, dtype=bool)])
    size = sets.sum(axis=1)
    return _one_of_each(sets[(size > 0) & (size < cells)])


def _one_of_each(sets: Flags) -> Flags:
    """The first of each set and its mirror image, without duplicates."""
    own, image = np.packbits(sets, axis=1), np.packbits(sets[:, ::-1], axis=1)
    first = np.array(
        [a.tobytes() <= b.tobytes() for a, b in zip(own, image, strict=True)], dtype=bool
    )
    return np.unique(np.where(first[:, None], sets, sets[:, ::-1]), axis=0)


def _search(
    problem: _Mirrored,
    sets: Flags,
    probabilities: Floats,
    pulls: tuple[Floats, Floats],
    rng: np.random.Generator,
) -> Flags:
    """Sets that violate the optimality condition, searched from sets in use."""
    posterior = likelihood_shares(sets, problem.ratio)
    symmetric, anti = problem.split(posterior)
    gain = problem.cells * (
        np.einsum("ij,ij->i", symmetric @ pulls[0], symmetric)
        + np.einsum("ij,ij->i", anti @ pulls[1], anti)
    )
    root = np.sqrt(probabilities)
    price = np.linalg.lstsq(symmetric * root[:, None], gain * root, rcond=None)[0] / _ROOT
    tried = sets[
        rng.choice(len(sets), size=min(SETTINGS.searched, len(sets)), replace=False)
    ].copy()
    ones = np.ones(problem.cells)
    whole_price = np.concatenate([price, price[::-1]])
    return fresh_sets(tried, problem.join(*pulls), whole_price, problem.ratio, ones, rng)


def _most_used(sets: Flags, probabilities: Floats, most: int) -> tuple[Flags, Floats]:
    if len(sets) <= most:
        return sets, probabilities
    kept = np.sort(np.argsort(-probabilities, kind="stable")[:most])
    return sets[kept], probabilities[kept]


def _known(sets: Flags, wanted: Flags) -> Flags:
    known = {row.tobytes() for row in np.packbits(sets, axis=1)}
    return np.array([row.tobytes() in known for row in np.packbits(wanted, axis=1)], dtype=bool)


CELLS = 128
_END_PARTS = 8
# The first and the last cell are cut at an eighth, a quarter and a half.
_END_CUTS = (1, 2, 4)
# Bins if no consumer is named; their edges are edges of cells.
_OVERVIEW = 16
_RangeMechanism = Literal["strategy", "square-wave"]


@dataclass(frozen=True)
class _RangesParameters(HistogramParameters):
    """`consumers`: their bins; `mechanism`: strategy (designed for all ranges) or square-wave."""

    consumers: str = str(_OVERVIEW)
    mechanism: _RangeMechanism = "strategy"

    def __post_init__(self) -> None:
        """Skip the base class's check: this method has other mechanisms, checked by their type."""


def _range_cells(
    consumers: Sequence[Consumer], low: float, high: float, unit: float | None
) -> Partition:
    """At most 256 cells of equal width, finer at both ends, with every consumer's edges.

    Multiples of a unit have a cell each, if they are at most 256. Consumers whose edges make 128
    cells or more get those cells.
    """
    if unit is not None and (high - low) / unit < MAX_CELLS:
        between = [low + (i + 0.5) * unit for i in range(round((high - low) / unit))]
        return union([Consumer("each", (low, *between, high))], low, high, unit)
    partition = union(consumers, low, high, unit)
    if partition.cells < CELLS:
        even = Consumer.by_count(CELLS, low, high)
        fine = union([*consumers, even, _ends(low, high)], low, high, unit)
        if fine.cells > MAX_CELLS:
            fine = union([*consumers, even], low, high, unit)
        partition = fine
    if partition.cells > MAX_CELLS:
        raise ParameterError(
            f"the consumers' edges make {partition.cells:,} cells, and method 'ranges' takes at most {MAX_CELLS}; name fewer "
            "bins, or use chp",
            where="consumers",
            value=partition.cells,
        )
    return partition


def _ends(low: float, high: float) -> Consumer:
    """The edges inside the first and the last cell."""
    edges = Consumer.by_count(_END_PARTS * CELLS, low, high).edges
    last = len(edges) - 1
    return Consumer(
        "both ends",
        tuple(edges[i] for i in (0, *_END_CUTS, *(last - i for i in _END_CUTS[::-1]), last)),
    )


@dataclass(frozen=True, kw_only=True)
class _RangesDiagnostics(Diagnostics):
    """How many fine cells the range has."""

    cells: int


class Ranges(PartitionMachine[_RangesParameters]):
    """One report designed for all intervals; estimates are smooth, raw counts are kept."""

    method = "ranges"
    parameters_class = _RangesParameters
    overview = (_OVERVIEW,)

    @classmethod
    def schema_of(
        cls,
        name: str,
        consumers: Sequence[Consumer],
        low: float,
        high: float,
        unit: float | None = None,
    ) -> Schema:
        return Schema((numeric_attribute(name, _range_cells(consumers, low, high, unit)),))

    @property
    def _budget(self) -> float:
        return smallest(self.consumers, self.campaign.epsilon)

    @cached_property
    def _mechanism(self) -> OutputMechanism:
        if self.parameters.mechanism == "square-wave":
            return SquareWave.for_epsilon(self.partition.cells, self._budget)
        return interval_strategy(self.partition.cells, self._budget)

    @cached_property
    def _questions(self) -> tuple[Question, ...]:
        return (Question(self.campaign.schema.names, self._mechanism),)

    def design(self) -> JsonObject | None:
        return self._mechanism.to_json() if self.parameters.mechanism == "strategy" else None

    def take_design(self, design: JsonObject) -> None:
        kept = mechanism_from_json(design)
        if not isinstance(kept, SetStrategy) or kept.cells != self.partition.cells:
            raise ReportError(
                f"the stored mechanism is not a strategy for {self.partition.cells} cells"
            )
        if kept.epsilon > self._budget:
            raise PrivacyError(
                f"the stored mechanism spends epsilon {kept.epsilon}", where="epsilon"
            )
        self._mechanism = kept

    def _cells(self, counts: Integers, n: int) -> OutputCells:
        mechanism, outputs = self._mechanism, counts.astype(np.float64)
        widths = np.diff(self.partition.edges)
        rough = _rough_shares(mechanism.probability_table, outputs, widths)
        smoothed = (
            kernels.density(mechanism, counts)
            if isinstance(mechanism, SquareWave)
            else likely_density(mechanism.probability_table, counts, widths)
        )
        return OutputCells(
            self.partition, mechanism, rough * len(rough), counts, self.population, smoothed
        )

    def answer(self) -> ConsumerCounts:
        cells = self.cells
        assert isinstance(cells, OutputCells)  # there is always something to ask
        assert cells.smoothed is not None
        likely = [
            self.partition.membership(c) @ cells.smoothed * self.population for c in self.consumers
        ]
        return ConsumerCounts(*read_off(cells, self.consumers), cells, tuple(likely))

    def model(self) -> Independent:
        self._finished()
        assert self.cells is not None
        assert self.cells.smoothed is not None
        return Independent(self.campaign.schema, (self.cells.smoothed,))

    def diagnostics(self) -> _RangesDiagnostics:
        return _RangesDiagnostics(cells=self.partition.cells)


@dataclass(frozen=True)
class _WaveParameters(_RangesParameters):
    """`consumers`: their bins; the mechanism is the square wave."""

    mechanism: _RangeMechanism = "square-wave"

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, ("square-wave",))


class Wave(Ranges):
    """The cells of `ranges` through the square wave of Li et al., with its estimate."""

    method = "square-wave"
    parameters_class = _WaveParameters
