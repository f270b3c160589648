"""Several descents in lockstep on the matrix of all pair marginals, with twins that measure their degrees of freedom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dither.fit.mixture.descent import Descent, Gradient, State, StepSize
from dither.fit.mixture.edges import Marginals, block, projected
from dither.fit.mixture.targets import PairTargets, chi_square, inverse_variances, pooling_weights
from dither.types import Floats


@dataclass(frozen=True)
class Probe:
    """Data moved by a little noise: how far a twin descent follows it measures the degrees of freedom."""

    pairs: Floats
    singles: Floats
    one: Floats

    def marginals(self, targets: PairTargets, start: Marginals) -> Marginals:
        """What the twin of a descent from `start` starts from."""
        raw = {(i, j): block(targets.columns, self.pairs, i, j) for i, j in start.pairs}
        return Marginals(self.one, raw, start.warming)


@dataclass(frozen=True)
class DrawnProbe(Probe):
    """One whose cells move independently; the scores say which way each has moved, divided by its deviation."""

    pair_score: Floats
    single_score: Floats

    def followed(self, pair_change: Floats, single_change: Floats) -> float:
        return 0.5 * float(np.vdot(pair_change, self.pair_score)) + float(
            single_change @ self.single_score
        )


def drawn_probe(
    targets: PairTargets, w2: Floats, w1: Floats, scale: float, rng: np.random.Generator
) -> DrawnProbe:
    """Every cell of pairs and singles moved by its own noise."""
    columns, width = targets.columns, targets.columns.width
    half = np.triu(rng.standard_normal((width, width)), 1)
    direction, direction1 = half + half.T, rng.standard_normal(width)
    moved, moved1 = direction * _deviation(w2), direction1 * _deviation(w1)
    # The start rests on the same data: its one-way marginals move along, pooled from pairs and singles.
    by_pair, alone = pooling_weights(targets)
    lines = np.add.reduceat(moved, columns.starts, axis=1) * np.repeat(
        by_pair, columns.cardinalities, axis=0
    )
    shifted = targets.one + scale * (lines.sum(axis=1) + columns.spread(alone) * moved1)
    return DrawnProbe(
        targets.pairs + scale * moved,
        targets.singles + scale * moved1,
        projected(columns, shifted),
        direction * np.sqrt(w2),
        direction1 * np.sqrt(w1),
    )


def _deviation(weights: Floats) -> Floats:
    return np.where(weights > 0, 1.0 / np.sqrt(np.where(weights > 0, weights, 1.0)), 0.0)


class PairLockstep:
    """All starts and the twins of the first few, advanced together."""

    def __init__(
        self,
        targets: PairTargets,
        w2: Floats,
        w1: Floats,
        starts: list[Descent],
        twins: Sequence[tuple[Descent, Probe]],
        probe: float,
        momentum: float,
    ) -> None:
        self.targets, self.w2, self.w1, self.starts, self.twins = targets, w2, w1, starts, twins
        self.probe, self.momentum = probe, momentum
        self.control, self.cells = StepSize(), targets.cells
        self.twin_models: list[State] = []

    def reweigh(self, models: list[State]) -> bool:
        """The pilot's weights serve for pairs: weights that follow the fit made no measurable difference."""
        return False

    def dependence(self, models: list[State], product: State) -> tuple[float, float]:
        """chi^2 as a function of the share s of dependence that is kept is constant + s cross + s^2 square."""
        start = self.starts[0]
        flat = start.pairs(product)
        gap = np.mean([start.pairs(state) for state in models], axis=0) - flat
        flat -= self.targets.pairs
        return float(np.vdot(self.w2 * gap, flat)), 0.5 * float(np.vdot(self.w2 * gap, gap))

    def chi2_alone(self, state: State) -> float:
        """chi^2 of a state with the variances at itself."""
        pair = self.starts[0].pairs(state)
        return chi_square(
            self.targets, inverse_variances(self.targets, pair, state.one), pair, state.one
        )

    def advance(self, check: bool) -> tuple[list[State], float, float]:
        """One step; gives the models before it and, on a check, chi^2 of their average and its degrees of freedom."""
        t, count = self.targets, len(self.starts)
        mean2, mean1 = np.zeros_like(t.pairs) if check else t.pairs, np.zeros(t.columns.width)
        followed: list[float] = []
        loss, steepest = 0.0, 0.0
        moves: list[tuple[Descent, Gradient]] = []
        models: list[State] = []
        for s, start in enumerate(self.starts):
            state = start.model()
            pair, one = start.pairs(state), state.one
            models.append(state)
            if check:
                mean2 += pair / count
                mean1 += one / count
            if s < len(self.twins):
                twin, probe = self.twins[s]
                twin_state = twin.model()
                twin_pair, twin_one = twin.pairs(twin_state), twin_state.one
                if check and isinstance(probe, DrawnProbe):
                    followed.append(probe.followed(twin_pair - pair, twin_one - one))
                twin_pair -= probe.pairs
                twin_pair *= self.w2
                pull1 = self.w1 * (twin_one - probe.singles)
                moves.append((twin, twin.pair_gradient(twin_state, twin_pair, pull1)))
            pair -= t.pairs
            pull, pull1 = self.w2 * pair, self.w1 * (one - t.singles)
            loss += 0.5 * float(np.vdot(pull, pair)) + float(pull1 @ (one - t.singles))
            moves.append((start, start.pair_gradient(state, pull, pull1)))
            steepest = max(steepest, float(np.abs(moves[-1][1].logits).max()))
        chi2, df = 0.0, 0.0
        if check:
            # Now and then one twin leaves its start's path for a few steps, and is off by as much as all others together.
            df = float(np.median(followed)) / self.probe if followed else 0.0
            chi2 = chi_square(t, (self.w2, self.w1), mean2, mean1)
        restart = self.control.update(loss, steepest)
        for start, gradient in moves:
            start.step(gradient, self.control.size, self.momentum, restart)
        return models, chi2, df
