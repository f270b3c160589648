"""Audit a mechanism: epsilon from its exact law, and a lower bound from sampled reports.

The lower bound comes from an attack. The attacker knows that a report was made from one of two
inputs, the two with the most different laws, and uses the event with the largest likelihood
ratio (Neyman and Pearson). With hits counted over many reports of each input, exact
(Clopper-Pearson) limits imply epsilon >= ln(lower_1 / upper_2) with the stated confidence. A
correct mechanism has a bound just below its epsilon; a bound above it proves a violation.

A report may consist of many parts, each with a small share of epsilon, such as the bits of a
Bloom filter. The event that all of them favour one input is then too rare to observe. If a
mechanism draws its parts independently from one law, their losses add up, so the bound of one
part, pooled over all parts, is multiplied by their number. The event of the whole report is
tested as well, which assumes nothing; the better of the two bounds counts.

Reference: Ding, Wang, Wang, Zhang, Kifer, "Detecting violations of differential privacy",
CCS 2018.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import singledispatch
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtri

from dither.checks import check_choice, check_whole, check_whole_or_none
from dither.errors import ParameterError
from dither.mechanisms import (
    GRIDS,
    MAX_ATTRIBUTES,
    MEANS,
    MECHANISMS,
    NAMES,
    BitMechanism,
    BloomRappor,
    ByteSource,
    DuchiVector,
    GridMean,
    Mechanism,
    MultiMean,
    OutputMechanism,
    Randomiser,
    SquareWave,
    log_up,
    mean_mechanism,
    mechanism,
    plugin_kind,
)
from dither.methods.histogram.ranges import interval_strategy
from dither.types import Counts, Floats, JsonObject

# Of a bound: a correct mechanism fails an audit at most once in a thousand runs.
CONFIDENCE = 0.999
MIN_TRIALS = 100  # fewer would say nothing
_USUAL_TRIALS = 20_000
# The default number of trials, a few seconds.
_MAX_TRIALS = 16 * _USUAL_TRIALS
# The share of what an event can show that the bound is expected to reach.
TARGET = 0.85
PILOT = 2_000
# Two laws of this size are enumerated in a fraction of a second.
_LAW_BITS = 13
CELLS, ATTRIBUTES = 16, 4
ALL_PAIRS = 24  # cells up to which the attack compares every pair of inputs
# Exact probabilities of all laws together, about two seconds.
_MAX_LAW_ENTRIES = 100_000
ALL_INPUTS, TWO_INPUTS, STATED = "all inputs", "two inputs", "stated"
LOCAL_NAMES = (*NAMES, *(name for name in (*MECHANISMS, *MEANS) if name not in NAMES))


@dataclass(frozen=True)
class Audit:
    """The result of auditing one mechanism at one epsilon.

    Attributes:
        epsilon_stated: The epsilon that the mechanism states.
        epsilon_exact: The epsilon of its law; None if the loss is unbounded (see `problem`).
        law: How much of a local mechanism's law was compared: "all inputs", the "two inputs" of
            the attack, or "stated" if the law is too long to enumerate; then `epsilon_exact` is
            the stated figure. (For `olh` it is the law under one hash function, which is drawn
            independently of the input.)
        trials: The number of reports for each of two inputs, or of releases of a central method.
    """

    mechanism: str
    cells: int | None
    attributes: int | None
    epsilon_asked: float
    epsilon_stated: float
    epsilon_exact: float | None
    epsilon_empirical_lower: float
    trials: int
    confidence: float
    report_bytes: int | None
    neighbours: str | None = None
    problem: str | None = None
    law: str | None = None

    @property
    def passed(self) -> bool:
        """Whether neither the law nor the reports exceed the stated and the requested epsilon."""
        if self.problem is not None or self.epsilon_exact is None:
            return False
        given_away = max(self.epsilon_exact, self.epsilon_empirical_lower)
        return given_away <= self.epsilon_stated <= self.epsilon_asked

    def to_json(self) -> JsonObject:
        """Plain values."""
        return asdict(self) | {"passed": self.passed}


# A cell, or the numbers of a record.
Input = int | tuple[float, ...]


@dataclass(frozen=True)
class _Attack:
    """Two inputs, and the number of a report's independent parts that favour the first."""

    first: Input
    second: Input
    hits: Callable[[bytes], int]
    parts: int = 1


def audited_mechanism(
    name: str, epsilon: float, cells: int = CELLS, attributes: int = ATTRIBUTES
) -> Randomiser:
    """A local mechanism by name, built for an audit.

    Args:
        name: One of `LOCAL_NAMES` or a plug-in's name.
        epsilon: The requested guarantee.
        cells: The number of values of a categorical question; ignored by mechanisms for means.
        attributes: The number of attributes of `duchi-vector` and `several-means`; ignored by the
            others.

    Raises:
        ParameterError: No mechanism has this name, or it cannot be built for these cells.
    """
    check_whole("attributes", attributes, 1, MAX_ATTRIBUTES)
    if name == SquareWave.name:
        return SquareWave.for_epsilon(cells, epsilon)
    if name == "strategy":
        return interval_strategy(cells, epsilon)
    if name in GRIDS:
        return mean_mechanism(name, epsilon)
    if name == DuchiVector.name:
        return DuchiVector.for_epsilon(attributes, epsilon)
    if name == MultiMean.name:
        return MultiMean.for_epsilon(attributes, epsilon)
    if plugin_kind(name) is None:
        check_choice("mechanism", name, LOCAL_NAMES)
    return mechanism(name, cells, epsilon)


# The attack that suits a mechanism.


@singledispatch
def _attack_on(mechanism: Randomiser) -> _Attack:
    """The inputs and the event of the most powerful attack on a mechanism."""
    raise TypeError(f"no attack is known on {type(mechanism).__name__}")


@_attack_on.register
def _(mechanism: Mechanism) -> _Attack:
    first, second = mechanism.most_distinct_cells
    event = mechanism.distinguishing_event(first, second)
    return _Attack(first, second, lambda report: int(event(report)))


@_attack_on.register
def _(mechanism: BloomRappor) -> _Attack:
    """The bits in which two filters differ; each is flipped on its own."""
    first, second = mechanism.most_distinct_cells
    wanted = mechanism.filters[first]
    differ = wanted ^ mechanism.filters[second]

    def hits(report: bytes) -> int:
        return (differ & ~(int.from_bytes(report, "little") ^ wanted)).bit_count()

    return _Attack(first, second, hits, differ.bit_count())


@_attack_on.register
def _(mechanism: OutputMechanism) -> _Attack:
    """Rounding makes the ratios of outputs differ a little, so an event has all outputs that are nearly as good."""
    cells = range(mechanism.cells)
    columns = {
        cell: np.array(mechanism.column(cell), dtype=np.float64) / 2**mechanism.threshold_bits
        for cell in cells
    }
    pairs = list(itertools.permutations(cells, 2))
    if mechanism.cells > ALL_PAIRS:
        pairs = [mechanism.most_distinct_cells, _extremes_of_outputs(mechanism)[1]]
    favoured = {pair: _favoured_outputs(columns[pair[0]], columns[pair[1]]) for pair in pairs}
    first, second = max(pairs, key=lambda pair: favoured[pair][1])
    outputs = favoured[first, second][0]
    return _Attack(first, second, lambda report: int(int.from_bytes(report, "little") in outputs))


@_attack_on.register
def _(mechanism: GridMean) -> _Attack:
    outputs = _favoured_of_grid(mechanism)
    return _Attack((1.0,), (-1.0,), lambda report: int(int.from_bytes(report, "little") in outputs))


@_attack_on.register
def _(mechanism: MultiMean) -> _Attack:
    """Every answer is a part; which attributes were asked says nothing."""
    outputs = _favoured_of_grid(mechanism.grid)
    width = 1 + mechanism.grid.report_bytes

    def hits(report: bytes) -> int:
        answers = (report[start + 1 : start + width] for start in range(0, len(report), width))
        return sum(int.from_bytes(answer, "little") in outputs for answer in answers)

    upper = (1.0,) * mechanism.attributes
    return _Attack(upper, tuple(-value for value in upper), hits, mechanism.asked)


@_attack_on.register
def _(mechanism: DuchiVector) -> _Attack:
    """A vector that agrees with all signs of one record in more than half of the places."""
    upper = (1.0,) * mechanism.attributes

    def hits(report: bytes) -> int:
        return int(2 * int.from_bytes(report, "little").bit_count() > mechanism.attributes)

    return _Attack(upper, tuple(-value for value in upper), hits)


def _favoured_of_grid(grid: GridMean) -> frozenset[int]:
    """The outputs that speak for the upper end against the lower one."""
    upper = np.array([float(chance) for chance in grid.probabilities(grid.levels - 1)])
    lower = np.array([float(chance) for chance in grid.probabilities(0)])
    return _favoured_outputs(upper, lower)[0]


def _favoured_outputs(
    first: Floats, second: Floats, trials: int = _USUAL_TRIALS
) -> tuple[frozenset[int], float]:
    """The outputs above the likelihood ratio with the largest expected bound, and that bound."""
    possible = np.flatnonzero(first)
    # Outputs that the second input never produces.
    with np.errstate(divide="ignore", invalid="ignore"):
        order = possible[np.argsort(-first[possible] / second[possible], kind="stable")]
        expected = _expected_bound(np.cumsum(first[order]), np.cumsum(second[order]), trials)
    expected = np.nan_to_num(expected, nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    best = int(np.argmax(expected))
    return frozenset(order[: best + 1].tolist()), float(expected[best])


# Bounds.


def _expected_bound(
    first: Floats | np.float64,
    second: Floats | np.float64,
    trials: float,
    confidence: float = CONFIDENCE,
) -> Floats:
    """About what `_ratio_bound` gives for an event of these probabilities."""
    reach = ndtri(1 - (1 - confidence) / 2)
    spread = np.sqrt((1 - first).clip(0) / (trials * first)) + np.sqrt(
        (1 - second).clip(0) / (trials * second)
    )
    return np.asarray(np.log(first / second) - reach * spread, dtype=np.float64)


def _lower_limit(hits: int, trials: int, error: float) -> float:
    """The Clopper-Pearson lower limit of a probability, wrong with at most `error`."""
    return float(betaincinv(hits, trials - hits + 1, error)) if hits else 0.0


def upper_limit(hits: int, trials: int, error: float) -> float:
    """The Clopper-Pearson upper limit of a probability, wrong with at most `error`."""
    return float(betaincinv(hits + 1, trials - hits, 1 - error)) if hits < trials else 1.0


def _ratio_bound(first: int, second: int, trials: int, error: float) -> float:
    """A lower bound of epsilon from the hits of both inputs, wrong with at most `error`."""
    return max(0.0, log_ratio_limit(first, second, trials, error))


def log_ratio_limit(first: int, second: int, trials: int, error: float) -> float:
    """A lower limit of ln(P_1 / P_2), wrong with at most `error`; it may be negative."""
    lower, upper = _lower_limit(first, trials, error / 2), upper_limit(second, trials, error / 2)
    return math.log(lower / upper) if lower > 0 else -math.inf


def _empirical_lower_bound(
    mechanism: Randomiser, trials: int | None, source: ByteSource, confidence: float = CONFIDENCE
) -> tuple[float, int]:
    """A lower bound of epsilon with the stated confidence, and the number of reports per input.

    Args:
        mechanism: The mechanism to attack; reports come from `randomise`, which devices run.
        trials: Reports for each of two inputs. By default enough for the bound to reach `TARGET`
            of what the event can show, from `_USUAL_TRIALS` to `_MAX_TRIALS`. Rare events (large
            epsilons, many cells of `grr`) need more; the bound is then valid but low.
        source: Random bytes.
        confidence: The probability that the bound is at most the true epsilon.
    """
    attack = _attack_on(mechanism)
    # The pilot's reports choose the event and the number of trials, and are not used
    # again: the bound stays valid.
    pilot = _hits(mechanism, attack, PILOT if trials is None else min(PILOT, trials), source)
    count = _trials_for(pilot, attack.parts, confidence) if trials is None else trials
    first, second = _hits(mechanism, attack, count, source)
    error = 1 - confidence
    if attack.parts == 1:
        return _ratio_bound(int(first[1]), int(second[1]), count, error), count
    sizes = np.arange(attack.parts + 1)
    pooled = _ratio_bound(int(first @ sizes), int(second @ sizes), count * attack.parts, error / 2)
    least = _least_hits(*pilot)
    whole = _ratio_bound(int(first[least:].sum()), int(second[least:].sum()), count, error / 2)
    return max(attack.parts * pooled, whole), count


def _hits(
    mechanism: Randomiser, attack: _Attack, trials: int, source: ByteSource
) -> tuple[Counts, Counts]:
    """How many reports of each input had 0, 1, ... parts that favour the first."""
    made: Any = mechanism  # `randomise` takes a cell or numbers
    counts = []
    for value in (attack.first, attack.second):
        hits = [attack.hits(made.randomise(value, source)) for _ in range(trials)]
        counts.append(np.bincount(hits, minlength=attack.parts + 1))
    return counts[0], counts[1]


def _least_hits(first: Counts, second: Counts) -> int:
    """The number of favourable parts from which a report is a hit, chosen by a pilot."""
    above = [
        (counts[::-1].cumsum()[::-1][1:] + 1) / (counts.sum() + 2) for counts in (first, second)
    ]
    return 1 + int(np.argmax(_expected_bound(above[0], above[1], _USUAL_TRIALS)))


def _trials_for(pilot: tuple[Counts, Counts], parts: int, confidence: float) -> int:
    """The trials after which the bound is expected to be near what the event can show."""
    sizes = np.arange(parts + 1)
    rates = [np.float64((counts @ sizes + 1) / (counts.sum() * parts + 2)) for counts in pilot]
    trials = _USUAL_TRIALS
    while trials < _MAX_TRIALS:
        if _expected_bound(rates[0], rates[1], trials * parts, confidence) >= TARGET * np.log(
            rates[0] / rates[1]
        ):
            break
        trials *= 2
    return trials


def _epsilon_of_law(mechanism: Randomiser, attack: _Attack) -> tuple[float | None, str]:
    """The epsilon of a mechanism's law, and the inputs that were compared.

    Args:
        mechanism: Any local mechanism.
        attack: Its attack, whose two inputs are compared if all of them are too many.

    Returns:
        ln of the largest ratio between the probabilities of one report under two inputs, rounded
        up; infinite if only one of them can produce that report, None if the law is too long to
        enumerate. And one of `ALL_INPUTS`, `TWO_INPUTS` and `STATED`.
    """
    if isinstance(mechanism, OutputMechanism):
        ratio = _extremes_of_outputs(mechanism)[0]
        return math.inf if ratio is None else log_up(ratio), ALL_INPUTS
    if isinstance(mechanism, BitMechanism) and mechanism.report_bits > _LAW_BITS:
        return None, STATED
    made: Any = mechanism
    inputs: Iterable[Any] = [attack.first, attack.second]
    if not isinstance(mechanism, Mechanism):
        inputs = [[(made.levels - 1) * (value > 0) for value in numbers] for numbers in inputs]
    try:
        laws = [made.law(value) for value in inputs]
    except ParameterError:  # too many reports to write out
        return None, STATED
    compared = TWO_INPUTS
    count = mechanism.cells if isinstance(mechanism, Mechanism) else made.levels**made.attributes
    if count * len(laws[0]) <= _MAX_LAW_ENTRIES:
        compared = ALL_INPUTS
        inputs = range(count)
        if not isinstance(mechanism, Mechanism):
            inputs = itertools.product(range(made.levels), repeat=made.attributes)
        laws = [made.law(value) for value in inputs]
    ratio = _largest_ratio(laws)
    return math.inf if ratio is None else log_up(ratio), compared


def _largest_ratio(laws: Sequence[dict[bytes, Fraction]]) -> Fraction | None:
    """The largest ratio of a report's probabilities under two laws; None if unbounded."""
    largest = Fraction(1)
    for report in set().union(*laws):
        probabilities = [law.get(report, Fraction(0)) for law in laws]
        if max(probabilities) == 0:
            continue
        if min(probabilities) == 0:
            return None
        largest = max(largest, max(probabilities) / min(probabilities))
    return largest


def _extremes_of_outputs(mechanism: OutputMechanism) -> tuple[Fraction | None, tuple[int, int]]:
    """The largest ratio of an output's draws in two cells, None if unbounded, and these cells.

    One pass over the cells is enough, so all inputs of an `OutputMechanism` are compared.
    """
    most = [(draws, 0) for draws in mechanism.column(0)]
    least = list(most)
    for cell in range(1, mechanism.cells):
        for output, draws in enumerate(mechanism.column(cell)):
            most[output] = max(most[output], (draws, cell))
            least[output] = min(least[output], (draws, cell))
    largest, pair = Fraction(0), (0, mechanism.cells - 1)
    for (high, first), (low, second) in zip(most, least, strict=True):
        if low == 0 and high > 0:
            return None, (first, second)
        if high > 0 and Fraction(high, low) > largest:
            largest, pair = Fraction(high, low), (first, second)
    return largest, pair


def audit(
    mechanism: Randomiser,
    epsilon: float,
    trials: int | None,
    source: ByteSource,
    confidence: float = CONFIDENCE,
) -> Audit:
    """Audit a local mechanism.

    Args:
        mechanism: The mechanism; reports come from `randomise`, which devices run.
        epsilon: The guarantee that was asked for.
        trials: Reports for each of two inputs; None for enough to give the bound power.
        source: Random bytes.
        confidence: The probability that the lower bound is at most the true epsilon.
    """
    check_whole_or_none("trials", trials, MIN_TRIALS)
    bound, made = _empirical_lower_bound(mechanism, trials, source, confidence)
    of_law, compared = _epsilon_of_law(mechanism, _attack_on(mechanism))
    finite = of_law is None or math.isfinite(of_law)
    return Audit(
        mechanism=mechanism.name,
        cells=getattr(mechanism, "cells", None),
        attributes=getattr(mechanism, "attributes", None),
        epsilon_asked=float(epsilon),
        epsilon_stated=mechanism.epsilon,
        epsilon_exact=max(mechanism.epsilon, of_law or 0.0) if finite else None,
        epsilon_empirical_lower=bound,
        trials=made,
        confidence=confidence,
        report_bytes=mechanism.report_bytes,
        problem=None
        if finite
        else "a report that one of two inputs never gives reveals which it was",
        law=compared,
    )
