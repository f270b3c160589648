"""Audit of a central method's epsilon: compare all its outputs on neighbouring tables.

Three checks, on the worst pair of neighbouring tables among those tried:

* Replay: the second table is made to release exactly the values of the first. The
  figures, the notes and the epsilon computed from it must be equal; otherwise the
  method releases something without noise.
* Exact: for the released values the losses of all steps are added: (L1 distance of the
  exact measurements) / (scale of the noise), in rational arithmetic, and the largest
  log-ratio of a choice's probabilities. A choice whose law has no closed form (the
  buckets of `dawa`) counts with its stated loss; the proof is in its module.
* Empirical: many releases. Noise is drawn independently for each value, so the losses
  of values add up, and the loss of one unit of distance is the rate of decay of the
  noise: ln(P(Z >= 0) / P(Z >= g)) is at most g times it, for any noise (group privacy).
  The rate is bounded by Clopper-Pearson limits from the noise that was added. Choices
  are bounded by the frequencies of each outcome on either table.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice, product

import numpy as np

from dither.central import CentralMethod
from dither.central.measurement import MAX_CELLS, CuratorTask, Neighbours, NoisyHistogram
from dither.central.noise import ByteSource, ChoiceStep, NoisyStep, NotPrivate, Recorder
from dither.central.records import NoisyRecords, release_records
from dither.checks import check_whole, check_whole_or_none
from dither.evaluation.auditing import (
    CELLS,
    CONFIDENCE,
    MIN_TRIALS,
    Audit,
    log_ratio_limit,
    upper_limit,
)
from dither.mechanisms import check_epsilon
from dither.release.call import plain
from dither.schema.cells import codes_of
from dither.types import Codes, Floats, Integers

# Releases of an audit, which take a few seconds.
RELEASES = 1_000
# With fewer cells `privelet` measures the cells themselves.
WAVELET_CELLS = 1024
# Distance of the tail's two ends in scales of the noise; the rate is most precise near it.
GAP = 1.6
# Neighbouring tables of each kind.
PAIRS_EACH = 16
# Records in the fullest cells.
LARGE_COUNT = 3_000
# Pairs that are compared along many paths.
FINALISTS = 6
# Replays of such a pair; adaptive methods take another path each time.
REPLAYS = 12
# Seed of public randomness (matrices, a network's first node), equal in all releases.
PUBLIC_SEED = 1

Step = NoisyStep | ChoiceStep
LEAK = "a release depends on the table beyond what was noted with its noise"


@dataclass(frozen=True)
class Release:
    """The result of one run: its output and its steps."""

    made: NoisyHistogram | NoisyRecords
    steps: list[Step]

    @property
    def figures(self) -> Floats | Codes:
        """The counts or records of a release."""
        return self.made.estimate if isinstance(self.made, NoisyHistogram) else self.made.codes

    @property
    def text(self) -> str:
        """Everything that was handed over, exactly: a release may publish all of it."""
        return json.dumps(plain(self.made), sort_keys=True)


@dataclass(frozen=True)
class Path:
    """The choices of one release, and a lower bound of the loss of the noise after them."""

    chosen: tuple[object, ...]
    bound: float


@dataclass(frozen=True)
class _Runner:
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
            return Release(rows, recorder.steps)
        counts = np.bincount(table, minlength=self.cells)
        task = CuratorTask(counts, self.epsilon, recorder, rng, self.neighbours, self.shape)
        made = self.method.release(task, parameters)
        return Release(made, recorder.steps)

    def pairs(self) -> list[tuple[Integers, Integers]]:
        """Neighbouring tables with a record added or changed in many places.

        They are full, nearly empty, lopsided, and large: a method may treat cells of
        thousands of records differently.
        """
        last = self.cells - 1
        tables = [np.arange(self.cells), np.zeros(1, dtype=np.int64), np.repeat([0, last], 20)]
        if self.method.release is not None:  # the record form treats each record by itself
            tables.append(
                np.concatenate([np.repeat([0, last], LARGE_COUNT), np.arange(self.cells)])
            )
        each = PAIRS_EACH
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
    """At most `most` of the first `count` numbers, evenly spread, both ends included."""
    places = np.linspace(0, count - 1, min(count, most)).round()
    return [int(place) for place in np.unique(places)]


def _step_losses(first: Sequence[Step], second: Sequence[Step]) -> list[Fraction]:
    """The largest log-ratio of every step's law on two tables, along the same path."""
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
    """Check a central method, with its default parameters, against an epsilon.

    Args:
        method: The method; see `central_method`.
        epsilon: The guarantee asked for.
        source: Random bytes for the noise.
        cells: The size of the domain; methods of several columns use two or three with
            about this number of cells.
        neighbours: The difference of neighbouring tables. The record form always
            protects any record against any other.
        trials: The number of releases, half of them of each table.
        confidence: The probability with which the empirical bound is at most the true
            epsilon.
    """
    check_epsilon(epsilon)
    check_whole_or_none("trials", trials, MIN_TRIALS)
    wanted = (WAVELET_CELLS if method.name == "privelet" else CELLS) if cells is None else cells
    check_whole("cells", wanted, 4, MAX_CELLS)
    notion: Neighbours = "replace" if method.release is None else neighbours
    runner = _Runner(method, epsilon, _shape(method.name, wanted), notion, source)
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
    """Columns for a method: two for grids and records, three for a network with a choice."""
    if name == "privbayes":
        return 2, 2, cells // 4
    if name in ("agrid", "csm-records"):
        return math.isqrt(cells), cells // math.isqrt(cells)
    return (cells,)


def _compare(runner: _Runner, releases: int, error: float) -> tuple[float, float, float]:
    """The largest stated epsilon, the largest exact loss, and the empirical bound for its pair."""
    compared = [(pair, *_losses(runner, *pair)) for pair in runner.pairs()]
    compared.sort(key=lambda one: sum(one[2]), reverse=True)
    stated = max(epsilon for _, epsilon, _ in compared)
    # Adaptive methods take another path each time: use the pair with the largest loss over many.
    means = {}
    largest = sum(compared[0][2], Fraction(0))
    for place, (pair, _, _) in enumerate(compared[:FINALISTS]):
        totals = [sum(_losses(runner, *pair)[1], Fraction(0)) for _ in range(REPLAYS)]
        largest, means[place] = max(largest, *totals), sum(totals)
    worst = compared[max(means, key=means.__getitem__)][0]
    exact = float(largest)
    exact = exact if Fraction(exact) >= largest else math.nextafter(exact, math.inf)
    return stated, exact, _empirical(runner, worst, releases, error)


def _losses(runner: _Runner, table: Integers, neighbour: Integers) -> tuple[float, list[Fraction]]:
    """The stated epsilon and exact loss of a release's steps and of its replay."""
    made = runner.run(table)
    again = runner.run(neighbour, made.steps)
    if len(again.steps) != len(made.steps) or not np.array_equal(again.figures, made.figures):
        raise NotPrivate(LEAK)
    if again.text != made.text:
        raise NotPrivate(f"{LEAK}: its notes, or the epsilon that it states")
    return made.made.epsilon, _step_losses(made.steps, again.steps)


def _empirical(
    runner: _Runner, pair: tuple[Integers, Integers], releases: int, error: float
) -> float:
    """The bound of all steps together, wrong with at most this probability."""
    runs = [[runner.run(table) for _ in range(releases // 2)] for table in pair]
    longest = max((made.steps for half in runs for made in half), key=len)
    noisy = [place for place, step in enumerate(longest) if isinstance(step, NoisyStep)]
    each = error / (len(noisy) + 1)
    rates = {}
    for place in noisy:
        taken = [made.steps[place] for half in runs for made in half if place < len(made.steps)]
        rates[place] = _noise_rate(taken, each)
        if rates[place] > 1:
            raise NotPrivate(
                f"the noise of step {place + 1} has at most {1 / rates[place]:.3g} of its stated scale"
            )
    if len(noisy) == len(longest):
        losses = _losses(runner, *pair)[1]
        return float(sum(float(losses[place]) * rate for place, rate in rates.items()))
    # Noise before the first choice may affect that choice, so its loss is not counted twice.
    after = {
        place: rate
        for place, rate in rates.items()
        if any(isinstance(s, ChoiceStep) for s in longest[:place])
    }
    paths = [
        [_path(runner, made, other, after) for made in half]
        for half, other in zip(runs, reversed(pair), strict=True)
    ]
    return max(_path_bound(paths[0], paths[1], each / 2), _path_bound(paths[1], paths[0], each / 2))


def _path(runner: _Runner, made: Release, other: Integers, rates: Mapping[int, float]) -> Path:
    """The choices of a release, and the loss bound of its noise against the neighbour."""
    losses = _step_losses(made.steps, runner.run(other, made.steps).steps)
    chosen = tuple(step.released for step in made.steps if isinstance(step, ChoiceStep))
    return Path(
        chosen,
        sum(float(losses[place]) * rate for place, rate in rates.items() if place < len(losses)),
    )


def _noise_rate(steps: Sequence[Step], error: float) -> float:
    """Lower bound of the noise's rate of decay times its stated scale: 1 if as stated."""
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


def _path_bound(first: Sequence[Path], second: Sequence[Path], error: float) -> float:
    """Lower bound of the joint loss of choices and noise, from the paths on two tables.

    An event is a set of choices after which the noise has at least a given loss; its
    frequencies on the two tables bound the loss of the choices. An eighth of the
    releases finds choices that favour the first table, another eighth selects the
    event, and the rest tests it.
    """
    eighth = len(first) // 8
    finding, picking, testing = slice(eighth), slice(eighth, 2 * eighth), slice(2 * eighth, None)
    seen = [Counter(path.chosen for path in paths[finding]) for paths in (first, second)]
    favoured = {chosen for chosen in seen[0] if seen[0][chosen] > seen[1][chosen]}
    levels = np.unique(
        np.quantile([path.bound for path in first[finding]], np.linspace(0, 1, 11), method="lower")
    )

    def told(level: float, only: bool, part: slice) -> float:
        hits = [
            sum(
                path.bound >= level and (not only or path.chosen in favoured)
                for path in paths[part]
            )
            for paths in (first, second)
        ]
        return level + log_ratio_limit(hits[0], hits[1], len(first[part]), error)

    events = [(level, only) for level in levels.tolist() for only in (False, True)]
    level, only = max(events, key=lambda event: told(event[0], event[1], picking))
    return max(0.0, told(level, only, testing))
