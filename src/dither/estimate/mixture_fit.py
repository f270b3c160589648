"""Fits a mixture of products to all noisy pair and single marginals at once.

With the attributes' domains side by side the components form a C x D matrix A, and every pair marginal of the mixture is a block
of the one product A' diag(w) A: a gradient is two matrix products. The fit descends with momentum on logits from the product
of the one-way marginals plus a perturbation, from several starts in lockstep, and stops where the risk of their average, as
estimated by Stein's unbiased risk estimate (SURE), is least: chi^2 - cells + 2 df, with the degrees of freedom df from twin
descents on slightly moved data (Ramani, Blu, Unser, IEEE TIP 2008). The average of mixtures is a mixture.

Where sets of three attributes or more were asked, the descent is on their whole tables instead (`set_fit`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from dither.estimate.project import norm_sub
from dither.estimate.set_fit import Descent, SetLockstep, StepSize
from dither.estimate.targets import PairTargets, SetTargets, inverse_variances
from dither.types import Floats

MOST_COLUMNS_FOR_ONE_THREAD = 600
MANY_CELLS = 20_000  # of sets: a start needs more components, and one twin measures its degrees of freedom well enough


@dataclass(frozen=True)
class FitOptions:
    """Numerical settings; docs/explanation/mixture.md says what was measured to choose them."""

    components: int | None = None  # None: from the signal-to-noise ratio, see `component_count`
    total: int = 600  # components of the average over all starts
    twins: int = 3
    perturbation: float = 0.5
    momentum: float = 0.9
    pilot_iterations: int = 150
    iterations: int = 600
    check_every: int = 5
    reweigh_every: int = 25  # only whole tables of sets are reweighed
    patience: int = 6
    tolerance: float = 2e-3
    probe: float = 0.1
    penalty: float = 1.2  # weight of df when the stopping point is chosen: SURE alone overshoots on some seeds
    shrink: bool = True  # keep only the share of the fitted dependence that pays by the same estimate


@dataclass(frozen=True)
class MixtureFit:
    """Weights (C,) and components (C, D) side by side, with what the fit says of itself."""

    weights: Floats
    components: Floats
    diagnostics: dict[str, float]


def _base_logits(targets: PairTargets, one: Floats) -> Floats:
    """Logits of one-way marginals, none so small that a step could not raise it again."""
    floor = np.maximum(one, 0.1 * np.sqrt(targets.one_variance))
    return np.asarray(np.log(floor / targets.columns.spread(targets.columns.sums(floor))))


def _pilot(targets: PairTargets, start: Descent, options: FitOptions) -> tuple[Floats, Floats]:
    """Frequencies to take the variances at: one descent, reweighted as it goes, stopped by the discrepancy principle."""
    control = StepSize()
    pair, one = np.outer(targets.one, targets.one), targets.one
    w2, w1 = inverse_variances(targets, pair, one)
    for iteration in range(options.pilot_iterations):
        weights, a = start.model()
        pair, one = (a.T * weights) @ a, weights @ a
        if iteration % 20 == 0:
            w2, w1 = inverse_variances(targets, pair, one)
            control.last = math.inf
        residual, residual1 = pair - targets.pairs, one - targets.singles
        pull, pull1 = w2 * residual, w1 * residual1
        loss = 0.5 * float(np.vdot(pull, residual)) + float(pull1 @ residual1)
        if loss < targets.cells:
            break
        gradient = start.pair_gradient(weights, a, pull, pull1)
        restart = control.update(loss, float(np.abs(gradient[0]).max()))
        start.step(gradient, control.size, options.momentum, restart)
    return pair, one


def component_count(targets: PairTargets, w2: Floats, w1: Floats) -> int:
    """60, more when the departure from independence exceeds the noise energy (fourth root), at most 200 or D."""
    residual = np.outer(targets.one, targets.one) - targets.pairs
    chi2 = 0.5 * float(np.vdot(w2 * residual, residual)) + float(w1 @ (targets.one - targets.singles) ** 2)
    ratio = max(chi2 / targets.cells - 1.0, 0.0)
    return int(min(60.0 * max(1.0, ratio / 2.0) ** 0.25, 200.0, max(16.0, targets.columns.width)))


def set_component_count(cells: int, total: int) -> int:
    """Whole tables have more to tell than pairs: 100 components per start, up to 200 where there are many cells."""
    return 100 if cells < MANY_CELLS else min(200, max(100, total // 3))


def start_count(total: int, size: int, width: int) -> int:
    """As many starts as share out `total` components; fewer for wide tables, whose steps cost width^2, but at least three."""
    return max(int(total / size / max(1.0, (width / 500) ** 2)), 3)


def _dependence_kept(cross: float, square: float, extra: float) -> float:
    """The share of the fitted dependence to keep (0 to 1 in tenths) by penalised SURE; the marginals stay as they are."""
    grid = np.linspace(0.0, 1.0, 11)
    return float(grid[np.argmin(grid * cross + grid**2 * square + 2.0 * grid * extra)])


class _Probe:
    """Data moved by a little noise: how far a twin descent follows it measures the degrees of freedom."""

    def __init__(self, targets: PairTargets, w2: Floats, w1: Floats, scale: float, rng: np.random.Generator) -> None:
        columns, width = targets.columns, targets.columns.width
        half = np.triu(rng.standard_normal((width, width)), 1)
        direction, direction1 = half + half.T, rng.standard_normal(width)
        moved, moved1 = direction * _deviation(w2), direction1 * _deviation(w1)
        self.pairs, self.singles = targets.pairs + scale * moved, targets.singles + scale * moved1
        self.pair_score, self.single_score = direction * np.sqrt(w2), direction1 * np.sqrt(w1)
        # The start rests on the same data: its one-way marginals move along, pooled from pairs and singles.
        by_pair, alone = _pooling_weights(targets)
        lines = np.add.reduceat(moved, columns.starts, axis=1) * np.repeat(by_pair, columns.cardinalities, axis=0)
        shifted = targets.one + scale * (lines.sum(axis=1) + columns.spread(alone) * moved1)
        self.one = np.concatenate([norm_sub(shifted[columns.of(i)]) for i in range(len(columns.cardinalities))])

    def followed(self, pair_change: Floats, single_change: Floats) -> float:
        return 0.5 * float(np.vdot(pair_change, self.pair_score)) + float(single_change @ self.single_score)


def _pooling_weights(targets: PairTargets) -> tuple[Floats, Floats]:
    """What share of an attribute's pooled marginal comes from each pair and from single questions."""
    k = targets.columns.cardinalities.astype(np.float64)
    c0, c1, _ = targets.pair_noise
    s0, s1, _ = targets.single_noise
    pairs = np.where(c1 > 0, 1.0 / np.where(c1 > 0, c0 * k[None, :] + c1 / k[:, None], 1.0), 0.0)
    alone = np.where(s1 > 0, 1.0 / np.where(s1 > 0, s0 + s1 / k, 1.0), 0.0)
    total = np.asarray(pairs.sum(axis=1)) + alone
    return np.asarray(pairs / total[:, None]), np.asarray(alone / total)


def _deviation(weights: Floats) -> Floats:
    return np.where(weights > 0, 1.0 / np.sqrt(np.where(weights > 0, weights, 1.0)), 0.0)


class _Lockstep:
    """All starts and the twins of the first few, advanced together."""

    def __init__(
        self,
        targets: PairTargets,
        w2: Floats,
        w1: Floats,
        starts: list[Descent],
        twins: list[tuple[Descent, _Probe]],
        options: FitOptions,
    ) -> None:
        self.targets, self.w2, self.w1, self.starts, self.twins, self.options = targets, w2, w1, starts, twins, options
        self.control, self.cells = StepSize(), targets.cells

    def reweigh(self, models: list[tuple[Floats, Floats]]) -> bool:
        """The pilot's weights serve for pairs: weights that follow the fit made no measurable difference."""
        return False

    def dependence(self, weights: Floats, a: Floats) -> tuple[float, float]:
        """chi^2 as a function of the share s of dependence that is kept is constant + s cross + s^2 square."""
        one = weights @ a
        flat = np.outer(one, one) - self.targets.pairs
        gap = (a.T * weights) @ a - self.targets.pairs - flat
        return float(np.vdot(self.w2 * gap, flat)), 0.5 * float(np.vdot(self.w2 * gap, gap))

    def advance(self, check: bool) -> tuple[list[tuple[Floats, Floats]], float, float]:
        """One step; gives the models before it and, on a check, chi^2 of their average and its degrees of freedom."""
        t, count = self.targets, len(self.starts)
        mean2, mean1 = np.zeros_like(t.pairs) if check else t.pairs, np.zeros(t.columns.width)
        df, loss, steepest = 0.0, 0.0, 0.0
        moves: list[tuple[Descent, tuple[Floats, Floats]]] = []
        models: list[tuple[Floats, Floats]] = []
        for s, start in enumerate(self.starts):
            weights, a = start.model()
            pair, one = (a.T * weights) @ a, weights @ a
            models.append((weights, a))
            if check:
                mean2 += pair / count
                mean1 += one / count
            if s < len(self.twins):
                twin, probe = self.twins[s]
                twin_weights, twin_a = twin.model()
                twin_pair, twin_one = (twin_a.T * twin_weights) @ twin_a, twin_weights @ twin_a
                if check:
                    df += probe.followed(twin_pair - pair, twin_one - one)
                twin_pair -= probe.pairs
                twin_pair *= self.w2
                pull1 = self.w1 * (twin_one - probe.singles)
                moves.append((twin, twin.pair_gradient(twin_weights, twin_a, twin_pair, pull1)))
            pair -= t.pairs
            pull, pull1 = self.w2 * pair, self.w1 * (one - t.singles)
            loss += 0.5 * float(np.vdot(pull, pair)) + float(pull1 @ (one - t.singles))
            moves.append((start, start.pair_gradient(weights, a, pull, pull1)))
            steepest = max(steepest, float(np.abs(moves[-1][1][0]).max()))
        chi2 = 0.0
        if check:
            df /= max(len(self.twins), 1) * self.options.probe
            mean2 -= t.pairs
            chi2 = 0.5 * float(np.vdot(self.w2 * mean2, mean2)) + float(self.w1 @ (mean1 - t.singles) ** 2)
        restart = self.control.update(loss, steepest)
        for start, gradient in moves:
            start.step(gradient, self.control.size, self.options.momentum, restart)
        return models, chi2, df


def product_fit(targets: PairTargets) -> MixtureFit:
    """The product of the pooled one-way marginals: one component, no dependence."""
    return MixtureFit(np.ones(1), targets.one[None, :].copy(), {"iterations": 0.0, "components": 1.0})


def _prepared(
    targets: PairTargets, rng: np.random.Generator, options: FitOptions, sets: SetTargets | None = None
) -> _Lockstep | SetLockstep:
    """All starts and twins before their first step, with weights from a pilot fit to the pairs."""
    columns = targets.columns
    asked = np.asarray((targets.pair_noise[1] > 0).any(axis=0), dtype=np.float64)
    reach = options.perturbation * columns.spread(asked)

    def apart(size: int) -> Floats:
        return np.asarray(reach * rng.standard_normal((size, columns.width)))

    base = _base_logits(targets, targets.one)
    pilot = Descent(columns, base + apart(options.components or 60))
    w2, w1 = inverse_variances(targets, *_pilot(targets, pilot, options))
    fitting = component_count(targets, w2, w1) if sets is None else set_component_count(sets.cells, options.total)
    size = options.components or fitting
    offsets = [apart(size) for _ in range(start_count(options.total, size, columns.width))]
    twins = min(options.twins if sets is None or sets.cells < MANY_CELLS else 1, len(offsets))
    if sets is not None:
        logits = partial(_base_logits, targets)
        return SetLockstep(
            sets, pilot.model(), targets.one, logits, offsets, twins, options.probe, options.momentum, rng
        )
    probes = [_Probe(targets, w2, w1, options.probe, rng) for _ in range(twins)]
    pairs = [
        (Descent(columns, _base_logits(targets, probe.one) + offset), probe)
        for probe, offset in zip(probes, offsets, strict=False)
    ]
    return _Lockstep(targets, w2, w1, [Descent(columns, base + offset) for offset in offsets], pairs, options)


def fit_mixture(
    targets: PairTargets,
    rng: np.random.Generator,
    options: FitOptions | None = None,
    sets: SetTargets | None = None,
) -> MixtureFit:
    """Fit to all pairs, or to all sets if given; without any pair the fit is the product of the one-way marginals."""
    # Matrices of a few hundred columns are too small to share: on a busy machine two threads take three times as long as one.
    few = 1 if targets.columns.width <= MOST_COLUMNS_FOR_ONE_THREAD else None
    with threadpool_limits(limits=few, user_api="blas"):
        return _fit(targets, rng, options or FitOptions(), sets)


def _fit(targets: PairTargets, rng: np.random.Generator, options: FitOptions, sets: SetTargets | None) -> MixtureFit:
    if not targets.has_pairs:
        return product_fit(targets)
    group = _prepared(targets, rng, options, sets)
    count, size = len(group.starts), len(group.starts[0].logits)
    best = (math.inf, 0.0, 0.0, 0)
    kept: list[tuple[Floats, Floats]] = []
    trace: list[float] = []
    for iteration in range(options.iterations):
        check = iteration % options.check_every == 0
        models, chi2, df = group.advance(check)
        if not check:
            continue
        sure = chi2 - group.cells + 2.0 * df
        trace.append(chi2 - group.cells + 2.0 * options.penalty * df)
        if trace[-1] <= min(trace):
            best, kept = (sure, chi2, df, iteration), models
        past = trace[-1 - options.patience] if len(trace) > options.patience else math.inf
        scale = abs(best[0]) + math.sqrt(2.0 * group.cells)
        if past - min(trace[-options.patience :]) < options.tolerance * scale:
            break
        if iteration and iteration % options.reweigh_every == 0 and group.reweigh(models):
            trace.clear()
    weights = np.concatenate([w for w, _ in kept]) / count
    stacked = np.concatenate([a for _, a in kept])
    keep = 1.0
    if options.shrink:
        extra = max(best[2] - float((targets.columns.cardinalities - 1).sum()), 0.0)
        keep = _dependence_kept(*group.dependence(weights, stacked), options.penalty * extra)
    if keep < 1.0:  # the rest of the mixture is the product of its own one-way marginals
        stacked = np.vstack([stacked, weights @ stacked])
        weights = np.append(keep * weights, 1.0 - keep)
    diagnostics = {
        "sure": best[0],
        "chi2": best[1],
        "degrees_of_freedom": best[2],
        "iterations": float(best[3]),
        "cells": group.cells,
        "components": float(size),
        "starts": float(count),
        "dependence_kept": keep,
    }
    return MixtureFit(weights / weights.sum(), stacked, diagnostics)
