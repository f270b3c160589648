"""A mechanism designed for the consumers' bins instead of single cells, never worse than CHP.

CHP asks for cells and sums them, so the noise of a wide bin grows with its cells (erratum 9).
Here the report is designed for the bins (`optimise`): a participant still sends one report at
full epsilon. The design uses the consumers' edges and epsilon only, no data. It is used if, for
every consumer and every cell, a report adds no more variance than CHP's. Its expected squared
error is therefore at most CHP's for each consumer on any data. Otherwise CHP's report is used.

A design is the sets of cells that outputs favour and their probabilities, with the least
variance of given sums of cells. With E = e^epsilon an output that favours a set S has
likelihood proportional to s = 1 + (E-1)[u in S] over the cells u. Let c be the weights of the k
cells (with sum k; all 1 by default), p = s/(s c), and pi the outputs' probabilities if cells
are as frequent as their weights. Unbiased estimates of workload W then have variance
tr(W A^-1 W') less a constant, averaged over cells by c, with A = k sum(pi p p') (McKenna,
Maity, Mazumdar, Miklau, "A workload-adaptive mechanism for linear queries under local
differential privacy", VLDB 2020, theorem 3.3, there with c = 1). For given sets this is an
A-optimal design, convex in pi, under the linear constraint sum(pi p) = 1/k (the probabilities
of every cell add up to one). It is solved by multiplicative steps, each followed by an exact
projection in relative entropy onto the constraint. Sets are found by local search for the one
that violates the optimality condition k p'Bp <= mu p most (column generation).
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
class _SmartSettings:
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


SETTINGS = _SmartSettings()


Objective = Literal["mean", "worst"]

# Above this epsilon randomised response is as good, and e^epsilon exceeds float precision.
MAX_EPSILON = 12.0


@dataclass(frozen=True)
class Choice:
    """The chosen mechanism, and each consumer's largest predicted variance relative to CHP's."""

    mechanism: Mechanism
    ratios: tuple[float, ...]
    counts_for: tuple[float, ...] = ()

    @cached_property
    def decoder(self) -> Floats | None:
        """The decoder of a strategy for the cell weights `counts_for`."""
        if not isinstance(self.mechanism, SetStrategy):
            return None
        return self.mechanism.decoder(np.asarray(self.counts_for))

    @property
    def gain(self) -> float:
        """The relative reduction of the consumers' mean variance below CHP's."""
        return 1 - float(np.mean(self.ratios))

    def to_json(self) -> JsonObject:
        """The choice with the mechanism's integers, since searches in floats differ by machine."""
        return {
            "mechanism": self.mechanism.to_json(),
            "ratios": list(self.ratios),
            "counts_for": list(self.counts_for),
        }

    @classmethod
    def from_json(cls, data: JsonObject, cells: int, consumers: int, epsilon: float) -> Choice:
        """Read a stored choice and check it against the cells, consumers and epsilon.

        Raises:
            ReportError: The choice is malformed or has other cells or consumers.
            PrivacyError: The mechanism exceeds epsilon.
        """
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
                f"the stored mechanism is not one for {cells} cells and {consumers} consumers"
            )
        if made.mechanism.epsilon > epsilon:
            raise PrivacyError(
                f"the stored mechanism spends epsilon {made.mechanism.epsilon}",
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
    """Choose the mechanism for these queries, deterministically and without data."""
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
            # Epsilon is too small for integer draws, or no bin separates some cells.
            break
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
    """The variance of each bin from one report, averaged over cells."""
    k = partition.cells
    sizes = [stop - start for start, stop in partition.spans(consumer) if stop - start < k]
    return np.array([mechanism.group_variance(size, size / k, 1) for size in sizes])


def design_strategy(design: Design, epsilon: float) -> SetStrategy:
    """A design in integers, rounded towards privacy."""
    masks = [sum(1 << int(cell) for cell in np.flatnonzero(row)) for row in design.sets]
    return SetStrategy.for_epsilon(design.sets.shape[1], masks, design.weights.tolist(), epsilon)


def _by_type(strategy: SetStrategy, decoder: Floats, bins: Floats) -> Floats:
    """The exact variance of each bin from one report of a value in each cell."""
    return np.asarray((bins @ decoder) ** 2 @ strategy.probability_table - bins, dtype=np.float64)


def _reweigh(
    weights: list[Floats],
    counts_for: Floats,
    spread: list[Floats],
    ratios: list[Floats],
    objective: Objective,
) -> tuple[list[Floats], Floats]:
    """More weight for bins above CHP's variance or, for `worst`, with the largest variance."""
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
    """Sets, their probabilities (pi), and each output's probability outside its set."""

    sets: Flags
    probabilities: Floats
    weights: Floats


def optimise(
    workload: Floats,
    epsilon: float,
    counts_for: Floats | None = None,
    start: Design | None = None,
    *,
    search: bool = True,
) -> Design:
    """A strategy for a workload (rows are sums of cells, scaled by the root of their weight).

    `counts_for` is c; `start` is an earlier design of similar queries to continue from.
    """
    # Threads slow down matrices of this size.
    with threadpool_limits(1):
        return _optimise(workload, epsilon, counts_for, start, search)


def _optimise(
    workload: Floats, epsilon: float, counts_for: Floats | None, start: Design | None, search: bool
) -> Design:
    ratio = float(np.exp(epsilon))
    gram = workload.T @ workload
    cells = len(gram)
    # Single cells get a small weight: cells that no bin separates must stay estimable, for
    # later questions and for the inverse.
    gram += SETTINGS.ridge * float(np.trace(gram)) / cells * np.eye(cells)
    c = np.ones(cells) if counts_for is None else counts_for * (cells / counts_for.sum())
    # A fixed seed makes the design deterministic.
    rng = np.random.default_rng(cells)
    if start is None:
        sets = _first_sets(workload > 0, gram, ratio, rng, few=not search)
        probabilities = np.full(len(sets), 1 / len(sets))
    else:
        sets, probabilities = start.sets, start.probabilities
    for number in range(
        (SETTINGS.rounds if start is None else SETTINGS.rounds_on) if search else 0
    ):
        probabilities, posterior, pull = _improve(
            sets, gram, ratio, c, probabilities, SETTINGS.steps
        )
        fresh = _search(sets, probabilities, posterior, pull, ratio, c, rng)
        sets, probabilities = _keep(
            sets, probabilities, SETTINGS.max_sets, 1e-7 if number > 2 else 0.0
        )
        fresh = fresh[~_contains(sets, fresh)]
        if len(fresh):
            sets = np.concatenate([sets, fresh])
            probabilities = np.concatenate(
                [0.9 * probabilities, np.full(len(fresh), 0.1 / len(fresh))]
            )
    probabilities, posterior, _ = _improve(sets, gram, ratio, c, probabilities, 4 * SETTINGS.steps)
    # Rare outputs cost draws and report bits; their probability goes to the others.
    kept = probabilities > 1e-6
    sets, posterior = sets[kept], posterior[kept]
    probabilities = _balance(probabilities[kept], posterior)
    return Design(sets, probabilities, cells * probabilities * posterior.min(axis=1))


def likelihood_shares(sets: Flags, ratio: float, c: Floats | None = None) -> Floats:
    """p of each set: the cells' likelihoods, normalised by the cell weights."""
    likelihood = np.where(sets, ratio, 1.0)
    total = likelihood.sum(axis=1) if c is None else likelihood @ c
    return np.asarray(likelihood / total[:, None], dtype=np.float64)


def _improve(
    sets: Flags, gram: Floats, ratio: float, c: Floats, probabilities: Floats, steps: int
) -> tuple[Floats, Floats, Floats]:
    """Multiplicative steps; returns the probabilities, the posteriors and the matrix B."""
    cells = len(gram)
    posterior = likelihood_shares(sets, ratio, c)
    probabilities = _balance(probabilities, posterior)
    pull = gram
    for _ in range(steps):
        inverse = np.linalg.inv(cells * (posterior * probabilities[:, None]).T @ posterior)
        pull = inverse @ gram @ inverse
        gain = cells * np.einsum("ij,ij->i", posterior @ pull, posterior)
        probabilities = _balance(
            probabilities * (gain / float(np.trace(gram @ inverse))) ** SETTINGS.step, posterior
        )
    return probabilities, posterior, pull


def _balance(probabilities: Floats, posterior: Floats) -> Floats:
    """Project onto the constraint in relative entropy, by Newton's method on the dual."""
    cells = posterior.shape[1]
    dual = np.zeros(cells)
    current = probabilities
    for _ in range(60):
        miss = current @ posterior - 1 / cells
        if np.abs(miss).max() < 1e-13:
            break
        curvature = (posterior * current[:, None]).T @ posterior
        step = np.linalg.lstsq(curvature, miss, rcond=None)[0]
        # A long step could overflow the exponential; the dual is convex, so shorter ones get there too.
        reach = float(np.abs(posterior @ step).max())
        dual -= step / max(1.0, reach / 2.0)
        current = probabilities * np.exp(posterior @ dual)
    return np.asarray(current, dtype=np.float64)


def _first_sets(
    bins: Flags, gram: Floats, ratio: float, rng: np.random.Generator, *, few: bool
) -> Flags:
    """Cells, bins, intervals if not too many, complements, and random sets along the workload."""
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
    probabilities: Floats,
    posterior: Floats,
    pull: Floats,
    ratio: float,
    c: Floats,
    rng: np.random.Generator,
) -> Flags:
    """Sets that violate the optimality condition, searched from sets in use."""
    root = np.sqrt(probabilities)
    gain = sets.shape[1] * np.einsum("ij,ij->i", posterior @ pull, posterior)
    price = np.linalg.lstsq(posterior * root[:, None], gain * root, rcond=None)[0]
    tried = sets[
        rng.choice(len(sets), size=min(SETTINGS.searched, len(sets)), replace=False)
    ].copy()
    return fresh_sets(tried, pull, price, ratio, c, rng)


def fresh_sets(
    current: Flags, pull: Floats, price: Floats, ratio: float, c: Floats, rng: np.random.Generator
) -> Flags:
    """Steepest ascent over flips of one cell to sets with k p'Bp > price p.

    Half of the starting sets are perturbed first.
    """
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


def _keep(sets: Flags, probabilities: Floats, most: int, share: float) -> tuple[Flags, Floats]:
    """Drop rarely used sets, and the least used ones beyond a limit."""
    kept = probabilities > share * probabilities.max()
    if kept.sum() > most:
        kept &= probabilities >= np.sort(probabilities)[-most]
    return sets[kept], probabilities[kept]


def _contains(sets: Flags, wanted: Flags) -> Flags:
    known = {row.tobytes() for row in np.packbits(sets, axis=1)}
    return np.array([row.tobytes() in known for row in np.packbits(wanted, axis=1)], dtype=bool)
