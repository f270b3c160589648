"""A mechanism made for the consumers' own bins instead of for single cells, never worse than CHP.

CHP asks for cells and sums them, so a wide bin of a fine partition pays for every cell in it (erratum 9). Here the
report itself is chosen for the bins that will be read off (`optimise`): a participant still sends one report at full
epsilon. The choice uses the consumers' edges and epsilon only. It is taken if, for every consumer and whatever cell a
person is in, that person's report adds no more variance than CHP's would; else CHP's own report is used. So the
expected squared error is at or below CHP's for each consumer on any data.

Which sets of cells the outputs should favour, and how often, is the design with the least variance of given sums of cells.
With E = e^epsilon an output that favours a set S has likelihood proportional to s = 1 + (E-1)[u in S] over the cells
u. Let c be how much each of the k cells counts (they add up to k; all 1 unless told), p = s/(s c), and pi the
outputs' chances when cells are as frequent as they count. Unbiased estimates of workload W then have variance tr(W
A^-1 W') less a constant, averaged over cells by c, with A = k sum(pi p p') (McKenna, Maity, Mazumdar, Miklau, "A
workload-adaptive mechanism for linear queries under local differential privacy", VLDB 2020, theorem 3.3, there with c
= 1). For given sets this is an A-optimal design, convex in pi, under the linear constraint sum(pi p) = 1/k (every
cell's chances add up to one). It is solved by multiplicative steps, each followed by an exact projection in relative
entropy onto the constraint; sets are found by local search for the one that breaks the optimality condition k p'Bp <=
mu p most (column generation). No design reads data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from dither.checks import check_choice
from dither.errors import PrivacyError, ReportError
from dither.mechanisms import Mechanism, SetStrategy, mechanism_from_json
from dither.methods.histogram.consumer import Consumer, Partition
from dither.methods.histogram.estimates import build, variance_by_type
from dither.types import Flags, Floats, JsonObject


@dataclass(frozen=True)
class SmartSettings:
    """Tuned constants of the search for a strategy (docs/explanation/histograms.md)."""

    # Sets are searched up to this number of cells. Beyond, only cells, bins and their
    # complements are tried.
    search_cells: int = 96
    # No strategy is designed for more cells.
    max_cells: int = 400
    # Designs tried, each with new weights of the consumers, to find the best for all of them.
    attempts: int = 12
    # A strategy must reduce the variance by 2 % to be preferred to a simpler report.
    max_variance_ratio: float = 0.98
    # All intervals are candidates from the start up to this number of cells.
    interval_cells: int = 48
    # Candidate sets; time grows with their number.
    max_sets: int = 2560
    # Weight of single cells, relative to the mean diagonal, so that all stay estimable.
    ridge: float = 1e-3
    # Sets in use from which each round of the search starts.
    searched: int = 300
    # Rounds of a search from nothing.
    rounds: int = 12
    # Rounds of a search that starts from an earlier design.
    rounds_on: int = 4
    # Steps of the weights in each round.
    steps: int = 15
    # Exponent of a multiplicative step: 1/2 is safe for A-optimality, a little more is quicker.
    step: float = 0.7


SETTINGS = SmartSettings()


Objective = Literal["mean", "worst"]

MAX_EPSILON = 12.0  # beyond, nothing is left to gain over randomised response, and e^epsilon swamps the arithmetic


@dataclass(frozen=True)
class Choice:
    """The mechanism chosen, and each consumer's predicted variance over CHP's in the cell where that is largest."""

    mechanism: Mechanism
    ratios: tuple[float, ...]
    counts_for: tuple[float, ...] = ()

    @cached_property
    def decoder(self) -> Floats | None:
        """The decoder of a strategy, made for cells as frequent as they count."""
        if not isinstance(self.mechanism, SetStrategy):
            return None
        return self.mechanism.decoder(np.asarray(self.counts_for))

    @property
    def gain(self) -> float:
        """By how much the mean variance over the consumers is below CHP's."""
        return 1 - float(np.mean(self.ratios))

    def to_json(self) -> JsonObject:
        """Whole numbers for the mechanism: the search for it is in floats, which no two computers need round alike."""
        return {
            "mechanism": self.mechanism.to_json(),
            "ratios": list(self.ratios),
            "counts_for": list(self.counts_for),
        }

    @classmethod
    def from_json(cls, data: JsonObject, cells: int, consumers: int, epsilon: float) -> Choice:
        """A choice that was kept, for so many cells and consumers at most this epsilon."""
        try:
            ratios, counts_for = (tuple(map(float, data[key])) for key in ("ratios", "counts_for"))
            made = cls(mechanism_from_json(data["mechanism"]), ratios, counts_for)
        except (KeyError, TypeError, ValueError) as error:
            raise ReportError(f"not a choice of a mechanism: {error!r}"[:200]) from None
        weighed = cells if isinstance(made.mechanism, SetStrategy) else 0
        finite = all(math.isfinite(x) and x > 0 for x in counts_for) and all(
            map(math.isfinite, ratios)
        )
        if (made.mechanism.cells, len(ratios), len(counts_for)) != (
            cells,
            consumers,
            weighed,
        ) or not finite:
            raise ReportError(
                f"the mechanism that was kept is not one for {cells} cells and {consumers} consumers"
            )
        if made.mechanism.epsilon > epsilon:
            raise PrivacyError(
                f"the mechanism that was kept spends epsilon {made.mechanism.epsilon}",
                where="epsilon",
            )
        return made


@lru_cache(maxsize=64)
def choose(
    partition: Partition,
    consumers: tuple[Consumer, ...],
    epsilon: float,
    mechanism: str,
    objective: Objective = "mean",
) -> Choice:
    """The choice for these queries; the same queries give the same one, and data play no part."""
    check_choice("objective", objective, get_args(Objective))
    plain = build(mechanism, partition.cells, epsilon)
    fallback = Choice(plain, tuple(1.0 for _ in consumers))
    rivals = [variance_by_type(plain, partition, c) for c in consumers]
    asked = [i for i, rival in enumerate(rivals) if rival.any()]
    if not asked or partition.cells > SETTINGS.max_cells or epsilon > MAX_EPSILON:
        return fallback
    bins = [partition.membership(consumers[i]) for i in asked]
    bins = [b[b.sum(axis=1) < partition.cells] for b in bins]
    weights = [np.full(len(b), 1.0 / len(b)) for b in bins]
    counts_for = np.ones(partition.cells)
    best, best_score, design = fallback, 1 - SETTINGS.max_variance_ratio, None
    rival_bin = max(float(_bin_variances(plain, partition, consumers[i]).max()) for i in asked)
    for _ in range(SETTINGS.attempts):
        workload = np.concatenate(
            [b * np.sqrt(w)[:, None] for b, w in zip(bins, weights, strict=True)]
        )
        try:
            design = optimise(
                workload,
                epsilon,
                counts_for,
                design,
                search=partition.cells <= SETTINGS.search_cells,
            )
            strategy = design_strategy(design, epsilon)
            decoder = strategy.decoder(counts_for)
        except (PrivacyError, np.linalg.LinAlgError):
            break  # too small an epsilon for whole draws, or cells that no bin tells apart: CHP's report it is
        spread = [_by_type(strategy, decoder, b) for b in bins]
        ratios = [s.sum(axis=0) / rivals[i] for s, i in zip(spread, asked, strict=True)]
        worst = {i: float(r.max()) for i, r in zip(asked, ratios, strict=True)}
        found = Choice(
            strategy,
            tuple(worst.get(i, 1.0) for i in range(len(consumers))),
            tuple(counts_for.tolist()),
        )
        fits = max(worst.values()) <= 1.0
        score = (
            found.gain
            if objective == "mean"
            else 1 - max(float(s.mean(axis=1).max()) for s in spread) / rival_bin
        )
        if fits and score > best_score:
            best, best_score = found, score
        if objective == "mean" and fits:
            break
        weights, counts_for = _reweigh(weights, counts_for, spread, ratios, objective)
    return best


def _bin_variances(mechanism: Mechanism, partition: Partition, consumer: Consumer) -> Floats:
    """The variance of each asked bin from one report, averaged over the cells a person may be in."""
    k = partition.cells
    sizes = [stop - start for start, stop in partition.spans(consumer) if stop - start < k]
    return np.array([mechanism.group_variance(size, size / k, 1) for size in sizes])


def design_strategy(design: Design, epsilon: float) -> SetStrategy:
    """A design in whole numbers, rounded towards privacy."""
    masks = [sum(1 << int(cell) for cell in np.flatnonzero(row)) for row in design.sets]
    return SetStrategy.for_epsilon(design.sets.shape[1], masks, design.weights.tolist(), epsilon)


def _by_type(strategy: SetStrategy, decoder: Floats, bins: Floats) -> Floats:
    """The variance of each bin from one report of a person in each cell, exact for the strategy's own integers."""
    return np.asarray((bins @ decoder) ** 2 @ strategy.probability_table - bins, dtype=np.float64)


def _reweigh(
    weights: list[Floats],
    counts_for: Floats,
    spread: list[Floats],
    ratios: list[Floats],
    objective: Objective,
) -> tuple[list[Floats], Floats]:
    """More weight where the design is not good enough: what is above CHP or, for `worst`, the bins of most variance."""
    above = np.max(ratios, axis=0)
    cells = counts_for * np.where(above > 1, above**1.5, np.maximum(above, 0.8) ** 0.5)
    if objective == "worst":
        means = [s.mean(axis=1) for s in spread]
        top = max(float(m.max()) for m in means)
        return [
            w * (m / top) ** 0.5 * max(1.0, float(r.max())) ** 1.5
            for w, m, r in zip(weights, means, ratios, strict=True)
        ], cells
    tops = [float(r.max()) for r in ratios]
    return [
        w * (top**1.5 if top > 1 else max(top, 0.8) ** 0.5)
        for w, top in zip(weights, tops, strict=True)
    ], cells


# The design.


@dataclass(frozen=True)
class Design:
    """Sets, how often each is used (pi), and each output's chance outside its set."""

    sets: Flags
    chances: Floats
    weights: Floats


def optimise(
    workload: Floats,
    epsilon: float,
    counts_for: Floats | None = None,
    start: Design | None = None,
    *,
    search: bool = True,
) -> Design:
    """A strategy for a workload (rows are sums of cells, scaled by the root of how much they matter).

    `counts_for` is c; `start` is an earlier design of similar queries, to go on from.
    """
    with threadpool_limits(1):  # matrices of this size lose time by being shared out
        return _optimise(workload, epsilon, counts_for, start, search)


def _optimise(
    workload: Floats, epsilon: float, counts_for: Floats | None, start: Design | None, search: bool
) -> Design:
    ratio = float(np.exp(epsilon))
    gram = workload.T @ workload
    cells = len(gram)
    # Single cells matter a little too: what no bin asks must stay estimable, for late queries and for the arithmetic.
    gram += SETTINGS.ridge * float(np.trace(gram)) / cells * np.eye(cells)
    c = np.ones(cells) if counts_for is None else counts_for * (cells / counts_for.sum())
    rng = np.random.default_rng(
        cells
    )  # where the search starts; the same queries give the same design
    if start is None:
        sets = _first_sets(workload > 0, gram, ratio, rng, few=not search)
        chances = np.full(len(sets), 1 / len(sets))
    else:
        sets, chances = start.sets, start.chances
    for number in range(
        (SETTINGS.rounds if start is None else SETTINGS.rounds_on) if search else 0
    ):
        chances, posterior, pull = _improve(sets, gram, ratio, c, chances, SETTINGS.steps)
        fresh = _search(sets, chances, posterior, pull, ratio, c, rng)
        sets, chances = _keep(sets, chances, SETTINGS.max_sets, 1e-7 if number > 2 else 0.0)
        fresh = fresh[~_contains(sets, fresh)]
        if len(fresh):
            sets = np.concatenate([sets, fresh])
            chances = np.concatenate([0.9 * chances, np.full(len(fresh), 0.1 / len(fresh))])
    chances, posterior, _ = _improve(sets, gram, ratio, c, chances, 4 * SETTINGS.steps)
    # Outputs that hardly ever occur cost draws and report bits; what they held is spread over the others.
    kept = chances > 1e-6
    sets, posterior = sets[kept], posterior[kept]
    chances = _balance(chances[kept], posterior)
    return Design(sets, chances, cells * chances * posterior.min(axis=1))


def likelihood_shares(sets: Flags, ratio: float, c: Floats | None = None) -> Floats:
    """p of each set: the cells' likelihoods, which add up to one by how much the cells count."""
    likelihood = np.where(sets, ratio, 1.0)
    total = likelihood.sum(axis=1) if c is None else likelihood @ c
    return np.asarray(likelihood / total[:, None], dtype=np.float64)


def _improve(
    sets: Flags, gram: Floats, ratio: float, c: Floats, chances: Floats, steps: int
) -> tuple[Floats, Floats, Floats]:
    """Multiplicative steps; gives the chances, the posteriors and B, how much each product of cells still matters."""
    cells = len(gram)
    posterior = likelihood_shares(sets, ratio, c)
    chances = _balance(chances, posterior)
    pull = gram
    for _ in range(steps):
        inverse = np.linalg.inv(cells * (posterior * chances[:, None]).T @ posterior)
        pull = inverse @ gram @ inverse
        gain = cells * np.einsum("ij,ij->i", posterior @ pull, posterior)
        chances = _balance(
            chances * (gain / float(np.trace(gram @ inverse))) ** SETTINGS.step, posterior
        )
    return chances, posterior, pull


def _balance(chances: Floats, posterior: Floats) -> Floats:
    """The nearest chances in relative entropy under which every cell's add up to one: Newton's method on the dual."""
    cells = posterior.shape[1]
    dual = np.zeros(cells)
    current = chances
    for _ in range(60):
        miss = current @ posterior - 1 / cells
        if np.abs(miss).max() < 1e-13:
            break
        curvature = (posterior * current[:, None]).T @ posterior
        step = np.linalg.lstsq(curvature, miss, rcond=None)[0]
        # A long step could overflow the exponential; the dual is convex, so shorter ones get there too.
        reach = float(np.abs(posterior @ step).max())
        dual -= step / max(1.0, reach / 2.0)
        current = chances * np.exp(posterior @ dual)
    return np.asarray(current, dtype=np.float64)


def _first_sets(
    bins: Flags, gram: Floats, ratio: float, rng: np.random.Generator, *, few: bool
) -> Flags:
    """Cells, asked bins, intervals where there are not too many, complements, and random sets along the workload."""
    cells = len(gram)
    groups: list[Flags] = [np.eye(cells, dtype=bool), bins]
    if cells <= SETTINGS.interval_cells:
        places = np.arange(cells)
        groups.append(
            np.array(
                [
                    (places >= i) & (places < j)
                    for i in range(cells)
                    for j in range(i + 1, cells + 1)
                ]
            )
        )
    plain = np.concatenate(groups)
    groups = [plain, ~plain]
    if not few:
        values, vectors = np.linalg.eigh(gram)
        scores = (
            rng.normal(size=(12 * cells, cells)) @ (vectors * np.maximum(values, 0.0) ** 0.25).T
        )
        share = np.clip(rng.normal(1 / (1 + ratio**0.5), 0.1, len(scores)), 1 / cells, 0.6)
        order = scores.argsort(axis=1).argsort(axis=1)
        groups.append(order >= cells - np.maximum(1, np.round(share * cells))[:, None])
    sets = np.concatenate(groups)
    size = sets.sum(axis=1)
    return np.unique(sets[(size > 0) & (size < cells)], axis=0)


def _search(
    sets: Flags,
    chances: Floats,
    posterior: Floats,
    pull: Floats,
    ratio: float,
    c: Floats,
    rng: np.random.Generator,
) -> Flags:
    """Sets that break the optimality condition, reached from sets in use."""
    root = np.sqrt(chances)
    gain = sets.shape[1] * np.einsum("ij,ij->i", posterior @ pull, posterior)
    price = np.linalg.lstsq(posterior * root[:, None], gain * root, rcond=None)[0]
    tried = sets[
        rng.choice(len(sets), size=min(SETTINGS.searched, len(sets)), replace=False)
    ].copy()
    return fresh_sets(tried, pull, price, ratio, c, rng)


def fresh_sets(
    current: Flags, pull: Floats, price: Floats, ratio: float, c: Floats, rng: np.random.Generator
) -> Flags:
    """Steepest ascent over flips of one cell to sets with k p'Bp > price p; half of those it starts from are shaken first."""
    cells = current.shape[1]
    current[: len(current) // 2] ^= rng.random((len(current) // 2, cells)) < 2 / cells
    size = current.sum(axis=1)
    current = current[(size > 0) & (size < cells)]
    diagonal = np.diag(pull)
    likelihood = np.where(current, ratio, 1.0)
    total, pulled = likelihood @ c, likelihood @ pull
    square, cost = np.einsum("ij,ij->i", pulled, likelihood), likelihood @ price
    for _ in range(3 * cells):
        now = cells * square / total**2 - cost / total
        change = np.where(current, 1 - ratio, ratio - 1)
        new_total = total[:, None] + change * c
        new = cells * (square[:, None] + 2 * change * pulled + change**2 * diagonal) / new_total**2
        new -= (cost[:, None] + change * price) / new_total
        size = current.sum(axis=1, keepdims=True) + np.where(current, -1, 1)
        new[(size < 1) | (size >= cells)] = -np.inf
        flip = new.argmax(axis=1)
        better = np.flatnonzero(new[np.arange(len(current)), flip] - now > 1e-9 * np.abs(now).max())
        if not len(better):
            break
        cell = flip[better]
        step = change[better, cell]
        square[better] += 2 * step * pulled[better, cell] + step**2 * diagonal[cell]
        total[better] += step * c[cell]
        cost[better] += step * price[cell]
        pulled[better] += step[:, None] * pull[cell]
        current[better, cell] ^= True
    return np.unique(current[now > 0], axis=0)


def _keep(sets: Flags, chances: Floats, most: int, share: float) -> tuple[Flags, Floats]:
    """Drop sets that are hardly used, and the least used beyond a limit."""
    kept = chances > share * chances.max()
    if kept.sum() > most:
        kept &= chances >= np.sort(chances)[-most]
    return sets[kept], chances[kept]


def _contains(sets: Flags, wanted: Flags) -> Flags:
    known = {row.tobytes() for row in np.packbits(sets, axis=1)}
    return np.array([row.tobytes() in known for row in np.packbits(wanted, axis=1)], dtype=bool)
