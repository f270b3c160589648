"""Does a central method keep its epsilon? Its release is run on neighbouring tables and everything it releases is compared.

Three checks, on the worst pair of neighbouring tables among those tried:

* Replay: the second table is made to release exactly what the first did. The figures computed from it must be the
  same, else something leaves the method without noise.
* Exact: for the released values the losses of all steps are added up: (L1 distance of the exact measurements) /
  (scale of the noise), in rational arithmetic, and the largest log-ratio of a choice's chances. A choice whose law has
  no closed form (the buckets of `dawa`) counts with what the method states for it; its proof is in the module.
* Empirical: many releases. Noise is drawn value by value, so losses of values add up, and how much one unit of distance
  tells is the rate at which the noise falls off: ln(P(Z >= 0) / P(Z >= g)) is at most g times it, whatever the noise
  (group privacy). The rate is bounded by Clopper-Pearson limits from the noise really added. Choices are bounded by how
  often each outcome comes up on either table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice, product, zip_longest

import numpy as np

from dither.central.measurement import MOST_CELLS, CuratorTask, Neighbours
from dither.central.methods import CentralMethod
from dither.central.noise import ByteSource, ChoiceStep, NoisyStep, NotPrivate, Recorder
from dither.central.records import release_records
from dither.checks import check_whole, check_whole_or_none
from dither.evaluation.audit import CELLS, CONFIDENCE, MIN_TRIALS, Audit, ratio_bound, upper_limit
from dither.mechanisms.probability import check_epsilon
from dither.schema.cells import codes_of
from dither.types import Codes, Floats, Integers

RELEASES = 1_000  # a few seconds
WAVELET_CELLS = 1024  # fewer, and `privelet` measures the cells themselves
GAP = 1.6  # scales of the noise between the two ends of its tail: about where the rate is known best
PAIRS = 48  # of neighbouring tables that are compared
FINALISTS = 6  # of them, which are compared along many paths
REPLAYS = 12  # of a finalist; adaptive methods take other paths each time
PUBLIC_SEED = 1  # of public randomness, the same in every release: matrices, a network's first node

Step = NoisyStep | ChoiceStep
LEAK = "a release depends on the table beyond what was noted with its noise"


@dataclass(frozen=True)
class Release:
    """What one run gave: the figures, the epsilon that the method states, and the steps it took."""

    figures: Floats | Codes
    epsilon: float
    steps: list[Step]


@dataclass(frozen=True)
class Runner:
    """A method on tables of a shape; a table is the cell of every record."""

    method: CentralMethod
    epsilon: float
    shape: tuple[int, ...]
    neighbours: Neighbours
    source: ByteSource

    @cached_property
    def cells(self) -> int:
        return math.prod(self.shape)

    def run(self, table: Integers, replayed: Sequence[Step] | None = None) -> Release:
        """One release of a table, or a replay of another table's."""
        recorder, rng = Recorder(self.source, replayed), np.random.default_rng(PUBLIC_SEED)
        parameters = self.method.parameters()
        if self.method.release is None:
            codes = codes_of(table, self.shape).astype(np.int32)
            rows = release_records(codes, self.shape, self.epsilon, recorder, rng, parameters)
            return Release(rows.codes, rows.epsilon, recorder.steps)
        counts = np.bincount(table, minlength=self.cells)
        task = CuratorTask(counts, self.epsilon, recorder, rng, self.neighbours, self.shape)
        made = self.method.release(task, parameters)
        return Release(made.estimate, made.epsilon, recorder.steps)

    def pairs(self) -> list[tuple[Integers, Integers]]:
        """Neighbouring tables: full, nearly empty and lopsided ones, with a record added or changed in many places."""
        last = self.cells - 1
        tables = [np.arange(self.cells), np.zeros(1, dtype=np.int64), np.repeat([0, last], 20)]
        each = PAIRS // len(tables)
        found = []
        for table in tables:
            if self.neighbours == "add-remove":
                found += [(table, np.append(table, cell)) for cell in _spread(self.cells, each)]
                continue
            moves = product(_spread(len(table), each), _spread(self.cells, math.isqrt(each) + 1))
            different = ((place, cell) for place, cell in moves if table[place] != cell)
            for place, cell in islice(different, each):
                changed = table.copy()
                changed[place] = cell
                found.append((table, changed))
        return found


def _spread(count: int, most: int) -> list[int]:
    """At most so many of the first `count` numbers, evenly spread, both ends among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)).tolist()


def step_losses(first: Sequence[Step], second: Sequence[Step]) -> list[Fraction]:
    """The largest log-ratio of every step's law on two tables, along one and the same path."""
    losses = []
    for mine, theirs in zip(first, second, strict=True):
        if isinstance(mine, NoisyStep) and isinstance(theirs, NoisyStep):
            if mine.scale != theirs.scale:
                raise NotPrivate("the scale of the noise depends on the table")
            losses.append(Fraction(int(np.abs(mine.exact - theirs.exact).sum())) / mine.scale)
        elif isinstance(mine, ChoiceStep) and isinstance(theirs, ChoiceStep):
            if mine.log_chances is None or theirs.log_chances is None:
                losses.append(Fraction(mine.epsilon))
            else:
                losses.append(Fraction(float(np.abs(mine.log_chances - theirs.log_chances).max())))
    return losses


def audit_central(
    method: CentralMethod,
    epsilon: float,
    *,
    source: ByteSource,
    cells: int | None = None,
    neighbours: Neighbours = "add-remove",
    trials: int | None = None,
    confidence: float = CONFIDENCE,
) -> Audit:
    """Check a central method, with its default parameters, against the epsilon that was asked of it.

    Args:
        method: The method; `central_method` gives it by name.
        epsilon: The guarantee asked for.
        source: Random bytes for the noise.
        cells: The size of the domain; methods of several columns get two or three with about as many cells.
        neighbours: What neighbouring tables differ in. The record form always protects any record against any other.
        trials: The number of releases, half of them of each table.
        confidence: The probability with which the empirical bound is at most the true epsilon.
    """
    check_epsilon(epsilon)
    check_whole_or_none("trials", trials, MIN_TRIALS)
    wanted = (WAVELET_CELLS if method.name == "privelet" else CELLS) if cells is None else cells
    check_whole("cells", wanted, 4, MOST_CELLS)
    notion: Neighbours = "replace" if method.release is None else neighbours
    runner = Runner(method, epsilon, _shape(method.name, wanted), notion, source)
    releases = RELEASES if trials is None else trials
    stated, exact, bound, problem = epsilon, None, 0.0, None
    try:
        stated, exact, bound = _compare(runner, releases, 1 - confidence)
    except NotPrivate as error:
        problem = str(error)
    return Audit(
        mechanism=f"central:{method.name}",
        cells=runner.cells,
        attributes=None,
        epsilon_asked=float(epsilon),
        epsilon_stated=stated,
        epsilon_exact=exact,
        epsilon_empirical_lower=bound,
        trials=releases,
        confidence=confidence,
        report_bytes=None,
        neighbours=notion,
        problem=problem,
    )


def _shape(name: str, cells: int) -> tuple[int, ...]:
    """Columns for a method: two for grids and records, three for a network, so that it has a choice."""
    if name == "privbayes":
        return 2, 2, cells // 4
    if name in ("agrid", "csm-records"):
        return math.isqrt(cells), cells // math.isqrt(cells)
    return (cells,)


def _compare(runner: Runner, releases: int, error: float) -> tuple[float, float, float]:
    """The largest epsilon stated, the largest exact loss, and the empirical bound for the pair that has it."""
    compared = [(pair, *_losses(runner, *pair)) for pair in runner.pairs()]
    compared.sort(key=lambda one: sum(one[2]), reverse=True)
    stated = max(epsilon for _, epsilon, _ in compared)
    largest = sum(compared[0][2], Fraction(0))
    # Along other paths a step may tell less. The bound takes the least of each, and the pair where that is largest.
    finalists = []
    for pair, _, first in compared[:FINALISTS]:
        paths = [first, *(_losses(runner, *pair)[1] for _ in range(REPLAYS))]
        largest = max(largest, *(sum(losses, Fraction(0)) for losses in paths))
        finalists.append((pair, [min(losses) for losses in zip_longest(*paths, fillvalue=Fraction(0))]))
    pair, least = max(finalists, key=lambda one: sum(one[1]))
    exact = float(largest)
    exact = exact if Fraction(exact) >= largest else math.nextafter(exact, math.inf)
    return stated, exact, _empirical(runner, pair, least, releases, error)


def _losses(runner: Runner, table: Integers, neighbour: Integers) -> tuple[float, list[Fraction]]:
    """The stated epsilon and the exact loss of every step of one release, and of its replay on the neighbour."""
    made = runner.run(table)
    again = runner.run(neighbour, made.steps)
    if len(again.steps) != len(made.steps) or not np.array_equal(again.figures, made.figures):
        raise NotPrivate(LEAK)
    return max(made.epsilon, again.epsilon), step_losses(made.steps, again.steps)


def _empirical(
    runner: Runner, pair: tuple[Integers, Integers], losses: Sequence[Fraction], releases: int, error: float
) -> float:
    """The bound of all steps together, wrong with at most this probability."""
    runs = [[runner.run(table).steps for _ in range(releases // 2)] for table in pair]
    longest = max((steps for half in runs for steps in half), key=len)
    kinds = [isinstance(step, ChoiceStep) for step in longest]
    each = error / (kinds.count(False) + 1)
    bounds = []
    for place, loss in enumerate(losses):
        if kinds[place]:
            continue
        rate = noise_rate([steps[place] for half in runs for steps in half if place < len(steps)], each)
        if rate > 1:
            raise NotPrivate(f"the noise of step {place + 1} has at most {1 / rate:.3g} of its stated scale")
        bounds.append(float(loss) * rate)
    if not any(kinds):
        return sum(bounds)
    # Noise that comes before a choice may show in it: its loss is not counted a second time.
    after = sum(bounds[kinds.index(True) :])
    return max(sum(bounds), choice_bound(runs[0], runs[1], each) + after)


def noise_rate(steps: Sequence[Step], error: float) -> float:
    """A lower bound of the rate at which noise falls off, times its stated scale: 1 if it is what is stated."""
    widest, above, beyond = 0.0, 0, 0
    for step in steps:
        assert isinstance(step, NoisyStep)
        gap = max(1, round(GAP * float(step.scale)))
        noise = step.released - step.exact
        widest = max(widest, gap / float(step.scale))
        above += int((noise >= 0).sum())
        beyond += int((noise >= gap).sum())
    if not above:
        return 0.0
    return max(0.0, -math.log(upper_limit(beyond, above, error))) / widest


def choice_bound(first: Sequence[list[Step]], second: Sequence[list[Step]], error: float) -> float:
    """A lower bound of what all choices together tell: the event is chosen on one half of the releases."""
    outcomes = [[_outcome(steps) for steps in runs] for runs in (first, second)]
    half = len(first) // 2
    pilot = [Counter(of[:half]) for of in outcomes]
    favoured = {outcome for outcome in pilot[0] if pilot[0][outcome] > pilot[1][outcome]}
    hits = [sum(outcome in favoured for outcome in of[half:]) for of in outcomes]
    return ratio_bound(hits[0], hits[1], len(first) - half, error)


def _outcome(steps: Sequence[Step]) -> tuple[object, ...]:
    return tuple(step.released for step in steps if isinstance(step, ChoiceStep))
