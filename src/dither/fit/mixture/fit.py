"""Fit a mixture of products to all noisy pair and single marginals at once.

With the attributes' domains side by side the components form a C x D matrix A, and every pair
marginal of the mixture is a block of A' diag(w) A: a gradient is two matrix products. The fit
descends with momentum on logits, from the product of the one-way marginals plus a perturbation,
from several starts in lockstep, and averages them. It stops where the estimated risk of the
average is least (Stein's unbiased risk estimate): chi^2 - cells + 2 df. The degrees of freedom df
come from twins, which descend alongside on slightly moved data (Ramani, Blu, Unser, IEEE TIP
2008).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from dither.fit.mixture.targets import Columns, PairTargets, chi_square, inverse_variances
from dither.types import Floats, Progress

# Matrices of fewer columns are too small to share between threads.
MAX_COLUMNS_FOR_ONE_THREAD = 600


@dataclass(frozen=True)
class MixtureSettings:
    """Numerical settings of a fit; docs/explanation/mixture.md says what was measured."""

    # Components of one start; None takes them from the signal-to-noise ratio.
    components: int | None = None
    # Components over all starts. More starts average away more of the fit's own noise.
    total: int = 600
    # Standard deviation of the logits around the product at the start.
    perturbation: float = 0.5
    momentum: float = 0.9
    # Steps of a first descent that gives the frequencies at which variances are computed.
    pilot_iterations: int = 150
    iterations: int = 600
    # Steps between two estimates of the risk.
    check_every: int = 5
    # Estimates of the risk without a fall by `tolerance` after which the descent ends.
    patience: int = 6
    tolerance: float = 2e-3
    # Weight of df where the descent stops. Stein's estimate alone stops too late on some seeds.
    penalty: float = 1.2


@dataclass(frozen=True)
class State:
    """A mixture in the middle of a fit: weights (C,) and components (C, D) side by side."""

    weights: Floats
    components: Floats

    @property
    def one(self) -> Floats:
        """The one-way marginals."""
        return np.asarray(self.weights @ self.components)

    @property
    def pairs(self) -> Floats:
        """The matrix of all pair marginals."""
        return np.asarray((self.components.T * self.weights) @ self.components)


@dataclass(frozen=True)
class MixtureFit:
    """A fitted mixture, its pair and one-way marginals, and what its fit used.

    Attributes:
        degrees_of_freedom: How far the fit follows the noise, from twins.
        risk: Stein's estimate of the weighted squared error.
        iterations: Steps of the descent.
        starts: Descents that were averaged.
        twins: For each twin, what its pairs and one-way marginals differ by from its start's.
    """

    weights: Floats
    components: Floats
    pairs: Floats
    one: Floats
    degrees_of_freedom: float
    risk: float
    iterations: int
    starts: int
    twins: tuple[tuple[Floats, Floats], ...] = ()


class Descent:
    """One start: logits of components and weights, with their velocities."""

    def __init__(
        self, columns: Columns, logits: Floats, weight_logits: Floats | None = None
    ) -> None:
        self.columns, self.logits = columns, logits
        self.weight_logits = np.zeros(len(logits)) if weight_logits is None else weight_logits
        self._velocity = np.zeros_like(logits)
        self._weight_velocity = np.zeros(len(logits))

    def model(self) -> State:
        raised = np.exp(self.weight_logits - self.weight_logits.max())
        return State(raised / raised.sum(), self.columns.softmax(self.logits))

    def gradient(self, state: State, pair_pull: Floats, single_pull: Floats) -> _Gradient:
        """In the logits, from the derivative of a loss in the pairs and in the singles.

        Components' parts are divided by their weights, which keeps their steps alike.
        """
        g = state.components @ pair_pull
        by_weight = (
            0.5 * np.einsum("cd,cd->c", g, state.components) + state.components @ single_pull
        )
        out = (g + single_pull) * state.components
        out -= state.components * self.columns.spread(self.columns.sums(out))
        return _Gradient(out, by_weight - float(state.weights @ by_weight))

    def step(self, gradient: _Gradient, size: float, momentum: float, restart: bool) -> None:
        if restart:
            self._velocity[:] = 0.0
            self._weight_velocity[:] = 0.0
        self._velocity *= momentum
        # Neighbouring values of an ordered attribute learn alike.
        self._velocity -= size * self.columns.smooth(gradient.logits)
        self._weight_velocity *= momentum
        self._weight_velocity -= size / len(self.weight_logits) * gradient.weights
        self.logits = self.logits + self._velocity
        self.weight_logits = self.weight_logits + self._weight_velocity


@dataclass(frozen=True)
class _Gradient:
    logits: Floats
    weights: Floats


class _StepSize:
    """One step size for all starts: grows by 2 % per step, shrinks when the loss rises."""

    def __init__(self) -> None:
        self.size, self.last = 0.0, math.inf

    def update(self, loss: float, steepest: float) -> bool:
        """Adapt; true if momentum should restart."""
        if self.size == 0.0:
            self.size = 0.3 / max(steepest, 1e-300)
        worse = loss > self.last * 1.0002
        self.size *= 0.6 if worse else 1.02
        self.last = loss
        return worse


@dataclass(frozen=True)
class Weights:
    """Inverse variances of all pair cells and single cells."""

    pairs: Floats
    singles: Floats

    def chi_square(self, targets: PairTargets, pairs: Floats, one: Floats) -> float:
        return chi_square(targets, (self.pairs, self.singles), pairs, one)

    def followed(
        self, moved: PairTargets, targets: PairTargets, pairs: Floats, one: Floats
    ) -> float:
        """How far a change of a fit goes along with the change of its data."""
        return 0.5 * float(np.vdot(self.pairs * (moved.pairs - targets.pairs), pairs)) + float(
            (self.singles * (moved.singles - targets.singles)) @ one
        )


def base_logits(targets: PairTargets) -> Floats:
    """Logits of the one-way marginals, none so small that a step could not raise it again."""
    floor = np.maximum(targets.one, 0.1 * np.sqrt(targets.one_variance))
    return np.asarray(np.log(floor / targets.columns.spread(targets.columns.sums(floor))))


def fit_mixture(
    targets: PairTargets,
    moved: Sequence[PairTargets],
    moved_by: float,
    rng: np.random.Generator,
    settings: MixtureSettings | None = None,
    progress: Progress | None = None,
) -> MixtureFit:
    """Fit a mixture to all pairs and singles.

    Args:
        targets: The data; some pair must have been asked.
        moved: The same data with a little more noise each, for the twins.
        moved_by: Their noise in units of the data's own.
        rng: Source of the starts.
        settings: Numerical settings.
        progress: Called with the steps done.
    """
    settings = settings or MixtureSettings()
    columns = targets.columns
    asked = np.asarray((targets.pair_noise[1] > 0).any(axis=0), dtype=np.float64)
    reach = settings.perturbation * columns.spread(asked)

    def offset(size: int) -> Floats:
        return np.asarray(reach * rng.standard_normal((size, columns.width)))

    threads = 1 if columns.width <= MAX_COLUMNS_FOR_ONE_THREAD else None
    with threadpool_limits(limits=threads, user_api="blas"):
        pilot = Descent(columns, base_logits(targets) + offset(settings.components or 60))
        weights = _pilot_weights(targets, pilot, settings)
        size = settings.components or component_count(targets, weights)
        offsets = [offset(size) for _ in range(start_count(settings.total, size, columns.width))]
        starts = [Descent(columns, base_logits(targets) + o) for o in offsets]
        twins = [
            (Descent(columns, base_logits(m) + o), m) for m, o in zip(moved, offsets, strict=False)
        ]
        return descend(targets, weights, starts, twins, moved_by, settings, progress)


def _pilot_weights(targets: PairTargets, start: Descent, settings: MixtureSettings) -> Weights:
    """Weights at the frequencies of one descent, stopped by the discrepancy principle."""
    control = _StepSize()
    pairs, one = np.outer(targets.one, targets.one), targets.one
    weights = Weights(*inverse_variances(targets, pairs, one))
    for iteration in range(settings.pilot_iterations):
        state = start.model()
        pairs, one = state.pairs, state.one
        if iteration % 20 == 0:
            weights = Weights(*inverse_variances(targets, pairs, one))
            control.last = math.inf
        loss = weights.chi_square(targets, pairs, one)
        if loss < targets.cells:
            break
        pull, pull1 = (
            weights.pairs * (pairs - targets.pairs),
            weights.singles * (one - targets.singles),
        )
        gradient = start.gradient(state, pull, pull1)
        restart = control.update(loss, float(np.abs(gradient.logits).max()))
        start.step(gradient, control.size, settings.momentum, restart)
    return Weights(*inverse_variances(targets, pairs, one))


def component_count(targets: PairTargets, weights: Weights) -> int:
    """60, more when dependence exceeds the noise (fourth root), at most 200 or D."""
    product = np.outer(targets.one, targets.one)
    ratio = max(weights.chi_square(targets, product, targets.one) / targets.cells - 1.0, 0.0)
    return int(min(60.0 * max(1.0, ratio / 2.0) ** 0.25, 200.0, max(16.0, targets.columns.width)))


def start_count(total: int, size: int, width: int) -> int:
    """Starts that share `total` components; fewer for wide tables, at least three."""
    return max(int(total / size / max(1.0, (width / 500) ** 2)), 3)


def descend(
    targets: PairTargets,
    weights: Weights,
    starts: Sequence[Descent],
    twins: Sequence[tuple[Descent, PairTargets]],
    moved_by: float,
    settings: MixtureSettings,
    progress: Progress | None = None,
) -> MixtureFit:
    """Descend until the estimated risk rises; the average of the starts where it is least."""
    control = _StepSize()
    least = math.inf
    best: tuple[list[State], float, float, int] = ([], 0.0, 0.0, 0)
    best_twins: list[State] = []
    trace: list[float] = []
    degrees: list[float] = []
    for iteration in range(settings.iterations):
        states = [start.model() for start in starts]
        if iteration % settings.check_every == 0:
            if progress:
                progress("fit: steps of the mixture", iteration, settings.iterations)
            mean, one = _average(states)
            twin_states = [twin.model() for twin, _ in twins]
            measured = [
                weights.followed(m, targets, t.pairs - state.pairs, t.one - state.one) / moved_by**2
                for (_, m), t, state in zip(twins, twin_states, states, strict=False)
            ]
            # Now and then one twin leaves its start's path for a few steps.
            df = float(np.median(measured)) if measured else 0.0
            usual = float(np.median(degrees[-3:])) if len(degrees) > 2 else df
            degrees.append(df)
            df = max(df, usual)  # degrees of freedom grow during a descent
            risk = weights.chi_square(targets, mean, one) - targets.cells
            trace.append(risk + 2.0 * settings.penalty * df)
            if trace[-1] < least:
                least, best = trace[-1], (states, df, risk + 2.0 * df, iteration)
                best_twins = twin_states
            before = trace[-1 - settings.patience] if len(trace) > settings.patience else math.inf
            scale = abs(best[2]) + math.sqrt(2.0 * targets.cells)
            if before - min(trace[-settings.patience :]) < settings.tolerance * scale:
                break
        loss, steepest = 0.0, 0.0
        moves: list[tuple[Descent, _Gradient]] = []
        for start, state in zip(starts, states, strict=True):
            change, gradient = _pull(targets, weights, start, state)
            loss += change
            steepest = max(steepest, float(np.abs(gradient.logits).max()))
            moves.append((start, gradient))
        for twin, data in twins:
            moves.append((twin, _pull(data, weights, twin, twin.model())[1]))
        restart = control.update(loss, steepest)
        for descent, gradient in moves:
            descent.step(gradient, control.size, settings.momentum, restart)
    states, df, risk, iteration = best
    pairs, one = _average(states)
    return MixtureFit(
        np.concatenate([state.weights for state in states]) / len(states),
        np.concatenate([state.components for state in states]),
        pairs,
        one,
        df,
        risk,
        iteration,
        len(states),
        tuple(
            (t.pairs - state.pairs, t.one - state.one)
            for t, state in zip(best_twins, states, strict=False)
        ),
    )


def _pull(
    targets: PairTargets, weights: Weights, descent: Descent, state: State
) -> tuple[float, _Gradient]:
    """The loss of a state and its gradient."""
    off, off1 = state.pairs - targets.pairs, state.one - targets.singles
    pull, pull1 = weights.pairs * off, weights.singles * off1
    loss = 0.5 * float(np.vdot(pull, off)) + float(pull1 @ off1)
    return loss, descent.gradient(state, pull, pull1)


def _average(states: Sequence[State]) -> tuple[Floats, Floats]:
    """The mean pair and one-way marginals of several mixtures."""
    pairs, one = states[0].pairs, states[0].one
    for state in states[1:]:
        pairs = pairs + state.pairs
        one = one + state.one
    return pairs / len(states), one / len(states)
