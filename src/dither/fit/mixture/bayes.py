"""The Bayesian member of the fit to pairs: its posterior, its sampler and its average with the fit.

Posterior: C components of equal weight. The logits of attribute i in component c are b_i + W_ci
with W_ci ~ N(0, tau_i^2 S_i) and b_i ~ N(0, tau_b^2 S_i). S_i is the identity, or for ordered
values 0.2 I + 0.8 exp(-|u - v|/4), so that neighbours tend to be alike; tau_i^2 has an inverse
gamma law. The likelihood is exp(-chi^2 / 2) of the estimates' noise, at fixed weights. Edges
keep the potentials of the fit. Coordinates are white: W = tau L z with L L' = S. A Householder
reflection of the components moves what they share to row 0, where b is integrated out with the
scale sqrt(C tau_b^2 + tau_i^2). The one stiff direction, the one-way marginals, is then separate,
and the sampler has its curvature in closed form.

Sampler: Hamiltonian Monte Carlo (Duane, Kennedy, Pendleton, Roweth 1987; Neal 2011) with a fixed
metric. The step size is adapted during warm-up by dual averaging to an acceptance of 0.8
(Hoffman, Gelman, JMLR 2014, section 3.2) and varied by a factor of 0.7 to 1.3 in each trajectory,
so that no trajectory returns to its start.

Average: the shares lie halfway between even ones and those of least estimated risk. The estimate
is in chi^2 and noisy, and an even average of two different fits is seldom worse than either. A
member whose chains have not mixed, or whose estimated risk is clearly higher, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from dither.fit.mixture.descent import Descent, State
from dither.fit.mixture.edges import warm_degrees
from dither.fit.mixture.fit import (
    MAX_COLUMNS_FOR_ONE_THREAD,
    MixtureFit,
    best_shares,
    blended,
    gram,
)
from dither.fit.mixture.targets import Columns, Edges, PairTargets, inverse_variances, links, trees
from dither.types import Floats, JsonObject, Progress

Density = Callable[
    [Floats], tuple[float, Floats]
]  # x -> energy (minus the log density, up to a constant), gradient

WANTED_ACCEPTANCE = 0.8
SHRINKAGE, OFFSET, FORGETTING = 0.05, 10.0, 0.75  # gamma, t0 and kappa of dual averaging
JITTER = (0.7, 1.3)


class Metric:
    """The masses: one for each coordinate, and a whole matrix for the first few. A mass of infinity holds its coordinate."""

    def __init__(self, masses: Floats, first: Floats | None = None) -> None:
        self.inverse = (1.0 / masses).astype(masses.dtype)
        self.root = np.where(
            np.isinf(masses), 0.0, np.sqrt(np.where(np.isinf(masses), 1.0, masses))
        ).astype(masses.dtype)
        self.count = 0 if first is None else len(first)
        if first is not None:
            values, vectors = np.linalg.eigh(first.astype(np.float64))
            self.first_root = ((vectors * np.sqrt(values)) @ vectors.T).astype(masses.dtype)
            self.first_inverse = ((vectors / values) @ vectors.T).astype(masses.dtype)

    def momentum(self, rng: np.random.Generator) -> Floats:
        """Drawn from N(0, mass)."""
        out = rng.standard_normal(len(self.root), dtype=np.float32).astype(
            self.root.dtype, copy=False
        )
        if self.count:
            first = self.first_root @ out[: self.count]
        out *= self.root
        if self.count:
            out[: self.count] = first
        return out

    def velocity(self, momentum: Floats) -> Floats:
        """Mass^-1 times momentum."""
        out = self.inverse * momentum
        if self.count:
            out[: self.count] = self.first_inverse @ momentum[: self.count]
        return np.asarray(out)


@dataclass
class Chain:
    """Where a chain stands, and how its step size comes along."""

    density: Density
    x: Floats
    metric: Metric
    leaps: int
    step: float

    def __post_init__(self) -> None:
        self.energy, self.gradient = self.density(self.x)
        self.acceptance = 0.0
        self.restart_adapting(self.step)

    def restart_adapting(self, step: float) -> None:
        """Look for a step size from here on."""
        self.step = step
        self._centre, self._lag, self._settled, self._adapted = (
            math.log(2.0 * step),
            0.0,
            math.log(step),
            0,
        )

    def settle(self) -> None:
        """Keep the averaged step size from now on."""
        self.step = math.exp(self._settled)

    def move_to(self, x: Floats) -> None:
        """Go on from another position: a step of another kernel."""
        self.x = x
        self.energy, self.gradient = self.density(x)

    def advance(self, rng: np.random.Generator, *, adapt: bool) -> None:
        """One trajectory, accepted or not."""
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # a trajectory that leaves all bounds is refused below
            self._advance(rng)
        if adapt:
            self._adapt()

    def _advance(self, rng: np.random.Generator) -> None:
        momentum = self.metric.momentum(rng)
        before = self.energy + 0.5 * float(np.vdot(momentum, self.metric.velocity(momentum)))
        size = self.x.dtype.type(self.step * rng.uniform(*JITTER))
        x, gradient, energy = self.x, self.gradient, self.energy
        momentum = momentum - 0.5 * size * gradient
        for leap in range(self.leaps):
            x = x + size * self.metric.velocity(momentum)
            energy, gradient = self.density(x)
            if (
                not energy < before + 1000.0
            ):  # it has left the region of any probability, or is not a number
                energy = math.inf
                break
            momentum -= (size if leap + 1 < self.leaps else 0.5 * size) * gradient
        after = (
            energy + 0.5 * float(np.vdot(momentum, self.metric.velocity(momentum)))
            if energy < math.inf
            else energy
        )
        self.acceptance = math.exp(min(0.0, before - after)) if after < math.inf else 0.0
        if rng.random() < self.acceptance:
            self.x, self.energy, self.gradient = x, energy, gradient

    def _adapt(self) -> None:
        self._adapted += 1
        share = 1.0 / (self._adapted + OFFSET)
        self._lag = (1.0 - share) * self._lag + share * (WANTED_ACCEPTANCE - self.acceptance)
        logarithm = self._centre - math.sqrt(self._adapted) / SHRINKAGE * self._lag
        weight = self._adapted**-FORGETTING
        self._settled = weight * logarithm + (1.0 - weight) * self._settled
        self.step = math.exp(logarithm)


SHARED_SCALE = 2.0  # tau_b
SHAPE, SCALE = 1.0, 0.05  # of the inverse gamma law of tau_i^2
# Independent part of an ordered value's variance, and the correlation length in values.
OWN, REACH = 0.2, 4.0


class Likeness:
    """L with L L' = S, which is the identity but for ordered values."""

    def __init__(self, columns: Columns, precision: type[np.floating]) -> None:
        self.blocks = [
            (slice(int(start), int(start) + count), _root(count).astype(precision))
            for start, count in zip(columns.starts, columns.ordered, strict=True)
            if count > 1
        ]

    def spread(self, rows: Floats) -> Floats:
        """L times every row, in place."""
        for at, root in self.blocks:
            rows[:, at] = rows[:, at] @ root.T
        return rows

    def gathered(self, rows: Floats) -> Floats:
        """L' times every row, in place."""
        for at, root in self.blocks:
            rows[:, at] = rows[:, at] @ root
        return rows

    def undone(self, rows: Floats) -> Floats:
        """L^-1 times every row, in place."""
        for at, root in self.blocks:
            rows[:, at] = np.linalg.solve(root, rows[:, at].T).T
        return rows


def _root(count: int) -> Floats:
    place = np.arange(count)
    alike = OWN * np.eye(count) + (1.0 - OWN) * np.exp(-np.abs(place[:, None] - place) / REACH)
    return np.asarray(np.linalg.cholesky(alike))


@dataclass(frozen=True)
class _Placed:
    """The model at a position of the sampler."""

    state: State
    pairs: Floats


class Posterior:
    """Energy (minus the log density) and gradient at x = (z of all components, log tau of all attributes), flat."""

    def __init__(
        self,
        targets: PairTargets,
        weights: tuple[Floats, Floats],
        components: int,
        edges: Edges = (),
        potentials: Sequence[Floats] = (),
        precision: type[np.floating] = np.float32,
    ) -> None:
        self.columns, self.components, self.precision = targets.columns, components, precision
        self.w2, self.w1 = (w.astype(precision) for w in weights)
        self.pairs, self.singles = (
            targets.pairs.astype(precision),
            targets.singles.astype(precision),
        )
        self.likeness = Likeness(targets.columns, precision)
        width = targets.columns.width
        self.descent = Descent(
            targets.columns,
            np.zeros((components, width), dtype=precision),
            edges,
            [potential.astype(precision) for potential in potentials],
        )
        self.descent.weight_logits = np.zeros(components, dtype=precision)
        mirror = np.full(components, -1.0 / np.sqrt(components))
        mirror[0] += 1.0
        length = float(np.linalg.norm(mirror))
        self.mirror = (mirror / length if length > 0 else mirror).astype(precision)
        self.attributes = len(targets.columns.cardinalities)

    @property
    def size(self) -> int:
        """The number of coordinates: first C x D of z, then one log tau per attribute."""
        return self.components * self.columns.width + self.attributes

    def split(self, x: Floats) -> tuple[Floats, Floats]:
        """z and log tau."""
        inner = self.components * self.columns.width
        return x[:inner].reshape(self.components, self.columns.width), x[inner:]

    def _scale(self, log_tau: Floats) -> Floats:
        """Of every row and column of z; row 0 holds b too."""
        tau = self.columns.spread(np.exp(log_tau)).astype(self.precision)
        out = np.empty((self.components, self.columns.width), dtype=self.precision)
        out[1:] = tau
        out[0] = np.sqrt(self.components * SHARED_SCALE**2 + tau * tau)
        return out

    def _reflected(self, rows: Floats) -> Floats:
        return np.asarray(rows - (2.0 * self.mirror)[:, None] * (self.mirror @ rows))

    def logits(self, x: Floats) -> Floats:
        """Of all components."""
        z, log_tau = self.split(x)
        return self._reflected(self.likeness.spread(z * self._scale(log_tau)))

    def at(self, logits: Floats, log_tau: Floats) -> Floats:
        """The position with these logits."""
        rows = self.likeness.undone(self._reflected(logits))
        return np.concatenate([(rows / self._scale(log_tau)).ravel(), log_tau]).astype(
            self.precision
        )

    def placed(self, x: Floats) -> _Placed:
        """The mixture at a position."""
        self.descent.logits = self.logits(x)
        state = self.descent.model()
        return _Placed(state, self.descent.pairs(state))

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        """Energy and gradient."""
        z, log_tau = self.split(x)
        scale = self._scale(log_tau)
        scaled = z * scale
        self.descent.logits = self._reflected(self.likeness.spread(scaled.copy()))
        state = self.descent.model()
        off, off1 = self.descent.pairs(state), state.one - self.singles
        off -= self.pairs
        pull, pull1 = self.w2 * off, self.w1 * off1
        half_chi2 = 0.25 * float(np.vdot(pull, off)) + 0.5 * float(pull1 @ off1)
        slope = self.descent.pair_gradient(state, pull, pull1).logits
        slope /= self.precision(self.components)
        by_scaled = self.likeness.gathered(self._reflected(slope))
        # log tau: through the rows' scale, and its own law with the factor that the change of variable brings.
        variance = np.exp(2.0 * log_tau.astype(np.float64))
        through = by_scaled * scaled
        by_tau = self.columns.sums(through[1:].sum(axis=0, dtype=np.float64))
        share = (
            self.columns.spread(variance) / scale[0].astype(np.float64) ** 2
        )  # of tau^2 in row 0's variance
        by_tau += self.columns.sums(share * through[0]) + 2.0 * SHAPE - 2.0 * SCALE / variance
        prior = float((2.0 * SHAPE * log_tau + SCALE / variance).sum())
        energy = half_chi2 + 0.5 * float(np.vdot(z, z)) + prior
        gradient = np.empty(self.size, dtype=self.precision)
        into, into_tau = self.split(gradient)
        np.multiply(by_scaled, scale, out=into)
        into += z
        into_tau[:] = by_tau
        return energy, gradient

    def rescaled(self, x: Floats, rng: np.random.Generator) -> Floats:
        """A Gibbs step: tau_i^2 drawn given W (inverse gamma), with W as it is. Row 0, which holds b too, is left out of W's law
        by keeping z there: its scale hardly depends on tau."""
        z, log_tau = self.split(x)
        variance = np.exp(2.0 * log_tau.astype(np.float64))
        squares = self.columns.sums((z[1:].astype(np.float64) ** 2).sum(axis=0)) * variance
        free = (self.components - 1) * self.columns.cardinalities
        drawn = (SCALE + 0.5 * squares) / rng.gamma(SHAPE + 0.5 * free)
        out = x.copy()
        into, into_tau = self.split(out)
        into[1:] *= self.columns.spread(np.sqrt(variance / drawn)).astype(self.precision)
        into_tau[:] = 0.5 * np.log(drawn)
        return out

    def shared_curvature(self, one: Floats, log_tau: Floats) -> Floats:
        """The curvature of row 0 (Gauss and Newton), as if components were alike: they move the one-way marginals `one`.

        A shift d of all logits moves an attribute's marginal by a = (diag p - p p') d and the pair's table by a p' + p a'.
        """
        w2, w1 = self.w2.astype(np.float64), self.w1.astype(np.float64)
        inner = np.diag(w2 @ one**2 + w1) + w2 * np.outer(one, one)
        moves = np.zeros_like(inner)
        for i in range(self.attributes):
            at = self.columns.of(i)
            moves[at, at] = np.diag(one[at]) - np.outer(one[at], one[at])
        reach = self._scale(log_tau)[0].astype(np.float64) / np.sqrt(self.components)
        across = self.likeness.gathered(moves) * reach
        return np.asarray(across.T @ inner @ across + np.eye(len(inner)))


CHAINS = 2
MAX_RATIO = (
    1.3  # of the spread of all draws to that inside the chains, from which they have not mixed
)
STAGE = "fit, Bayesian member"
MIN_PSI, MIN_ONE = 1e-12, 1e-4  # before a logarithm


@dataclass(frozen=True)
class SampleOptions:
    """Of one chain; docs/explanation/mixture.md says what was measured to choose them."""

    iterations: int = 250
    leaps: int = 30
    held: int = 30  # trajectories with tau as it is
    metric_again: int = 60
    warm: int = 100  # trajectories that settle the step size; draws are kept after them
    every: int = 5  # draw that is kept
    climb: int = 80  # steps of L-BFGS to the mode with tau = 1
    apart: float = 0.3  # of the starts' logits
    step: float = 0.1


@dataclass(frozen=True)
class Drawn:
    """The draws of one chain: component tables, and mean and variance of all pair and single marginals."""

    factors: list[Floats]
    pairs: Floats
    pair_variance: Floats
    one: Floats
    one_variance: Floats
    acceptance: float


@dataclass(frozen=True)
class BayesMember:
    """The mean of all draws as a mixture, its degrees of freedom, and how far the chains agree (1: wholly)."""

    fit: MixtureFit
    df: float
    mixing: float

    @property
    def mixed(self) -> bool:
        return self.mixing <= MAX_RATIO


def member_size(fit: MixtureFit) -> int:
    """Half the components of a start: the posterior needs fewer, since its draws are many."""
    return max(8, int(fit.diagnostics["components"]) // 2)


def bayes_member(
    targets: PairTargets,
    weights: tuple[Floats, Floats],
    fit: MixtureFit,
    rng: np.random.Generator,
    options: SampleOptions | None = None,
    progress: Progress | None = None,
) -> BayesMember:
    """Sample the posterior whose edges have the mean potentials of a fit."""
    options = options or SampleOptions()
    posterior = Posterior(
        targets, weights, member_size(fit), fit.edges, mean_potentials(targets, fit)
    )
    chains = [
        _chain(posterior, targets, options, rng, progress, number) for number in range(CHAINS)
    ]
    w2, w1 = weights

    def total(pair: Floats, one: Floats) -> float:
        return 0.5 * float(np.vdot(w2, pair)) + float(w1 @ one)

    pairs = np.mean([c.pairs for c in chains], axis=0)
    one = np.mean([c.one for c in chains], axis=0)
    inside = float(np.mean([total(c.pair_variance, c.one_variance) for c in chains]))
    between = float(np.mean([total((c.pairs - pairs) ** 2, (c.one - one) ** 2) for c in chains]))
    known = sum(warm_degrees(targets, *link) for tree in trees(fit.edges) for link in links(tree))
    factors = np.concatenate([f for chain in chains for f in chain.factors])
    count = len(factors)
    mean = MixtureFit(
        np.full(count, 1.0 / count),
        factors,
        {},
        pairs,
        one,
        fit.edges,
        tuple(tied.psi[None].astype(np.float64) for tied in posterior.descent.model().ties),
        np.zeros(count, dtype=np.intp),
    )
    ratio = (inside + CHAINS / (CHAINS - 1) * between) / max(inside, 1e-300)
    return BayesMember(mean, inside + between + known, float(np.sqrt(ratio)))


def mean_potentials(targets: PairTargets, fit: MixtureFit) -> list[Floats]:
    """The mean over a fit's starts of log psi, one table for each link of every tree."""
    out: list[Floats] = []
    starts = int(fit.diagnostics["starts"])
    for tree, psi in zip(trees(fit.edges), fit.potentials, strict=True):
        mean = np.log(np.maximum(psi[:starts], MIN_PSI)).mean(axis=0)
        # A sum a(u, v) + b(v, w) + ..., taken apart: every link's mean, less that of the attribute it shares with the one before.
        whole = mean.reshape([int(k) for k in targets.columns.cardinalities[list(tree)]])
        for link in range(len(tree) - 1):
            lines = whole.mean(
                axis=tuple(axis for axis in range(len(tree)) if axis not in (link, link + 1))
            )
            out.append(lines - lines.mean(axis=1, keepdims=True) if link else lines)
    return out


def _mode(
    posterior: Posterior, targets: PairTargets, options: SampleOptions, rng: np.random.Generator
) -> Floats:
    """A start near the mode with tau = 1, which is held: with tau free there is no mode worth the name."""
    floor = np.maximum(targets.one, MIN_ONE)
    shape = (posterior.components, targets.columns.width)
    logits = (np.log(floor) + options.apart * rng.standard_normal(shape)).astype(
        posterior.precision
    )
    x = posterior.at(logits, np.zeros(posterior.attributes, dtype=posterior.precision))
    held = len(x) - posterior.attributes

    def slope(at: Floats) -> tuple[float, Floats]:
        energy, gradient = posterior(at.astype(posterior.precision))
        gradient[held:] = 0.0
        return energy, gradient.astype(np.float64)

    limits = {"maxiter": options.climb, "maxfun": 2 * options.climb}
    found = minimize(slope, x.astype(np.float64), jac=True, method="L-BFGS-B", options=limits)
    return np.asarray(found.x.astype(posterior.precision))


def _metric(
    posterior: Posterior,
    one: Floats,
    x: Floats,
    rng: np.random.Generator,
    *,
    free: bool,
    probes: int = 6,
) -> Metric:
    """Curvatures at a position: of row 0 in closed form, of the rest by random signs (Hutchinson 1990; Bekas, Kokiopoulou, Saad
    2007), averaged over components, which change places anyway. Without `free` tau is held."""
    reach, inner = posterior.precision(1e-2), len(x) - posterior.attributes
    curvature = np.zeros(len(x))
    for number in range(2 * probes if free else probes):
        part = slice(inner, None) if number >= probes else slice(0, inner)
        signs = np.zeros_like(x)
        signs[part] = rng.choice(np.array([-1.0, 1.0], dtype=x.dtype), size=len(signs[part]))
        change = posterior(x + reach * signs)[1] - posterior(x - reach * signs)[1]
        curvature += signs * change / (2.0 * reach * probes)
    rows, by_tau = posterior.split(curvature)
    rows[1:] = np.maximum(rows[1:].mean(axis=0), 1.0)
    rows[0] = 1.0  # not used: row 0 has a matrix
    by_tau[:] = np.maximum(by_tau, 2.0) if free else np.inf
    first = posterior.shared_curvature(one, posterior.split(x)[1])
    return Metric(curvature.astype(x.dtype), first.astype(x.dtype))


def _chain(
    posterior: Posterior,
    targets: PairTargets,
    options: SampleOptions,
    rng: np.random.Generator,
    progress: Progress | None,
    number: int,
) -> Drawn:
    """Warm up, then keep every few draws."""
    x = _mode(posterior, targets, options, rng)
    chain = Chain(
        posterior,
        x,
        _metric(posterior, targets.one, x, rng, free=False),
        options.leaps,
        options.step,
    )
    factors: list[Floats] = []
    sums: list[Floats] = []
    accepted = 0.0
    for iteration in range(options.iterations):
        chain.advance(rng, adapt=iteration < options.warm)
        if iteration in (options.held, options.metric_again):
            chain.metric = _metric(posterior, targets.one, chain.x, rng, free=True)
            chain.restart_adapting(chain.step)
        if iteration > options.held:
            chain.move_to(posterior.rescaled(chain.x, rng))
        if iteration == options.warm:
            chain.settle()
        if iteration >= options.warm:
            accepted += chain.acceptance / (options.iterations - options.warm)
            if (iteration - options.warm) % options.every == 0:
                factors.append(_count(sums, posterior, chain.x))
        if progress:
            progress(
                STAGE, number * options.iterations + iteration + 1, CHAINS * options.iterations
            )
    pair, pair2, one, one2 = (total / len(factors) for total in sums)
    return Drawn(
        factors,
        pair,
        np.maximum(pair2 - pair**2, 0.0),
        one,
        np.maximum(one2 - one**2, 0.0),
        accepted,
    )


def _count(sums: list[Floats], posterior: Posterior, x: Floats) -> Floats:
    """Add a draw's marginals and their squares to the sums, and give its factors."""
    placed = posterior.placed(x)
    pairs, one = placed.pairs.astype(np.float64), placed.state.one.astype(np.float64)
    new = [pairs, pairs**2, one, one**2]
    sums[:] = [total + value for total, value in zip(sums, new, strict=True)] if sums else new
    factors = placed.state.factors.astype(np.float64)
    return np.asarray(factors / posterior.columns.spread(posterior.columns.sums(factors)))


CLEARLY = 2.0  # times the estimated risk of the fit


def thorough_fit(
    targets: PairTargets,
    fit: MixtureFit,
    rng: np.random.Generator,
    options: SampleOptions | None = None,
    progress: Progress | None = None,
) -> tuple[MixtureFit, JsonObject]:
    """The average, and what a release says of the member."""
    weights = inverse_variances(targets, fit.pairs, fit.one)
    few = 1 if targets.columns.width <= MAX_COLUMNS_FOR_ONE_THREAD else None
    with threadpool_limits(limits=few, user_api="blas"):
        member = bayes_member(targets, weights, fit, rng, options, progress)
    products = gram(targets, *weights, [fit, member.fit])
    df = np.array([fit.diagnostics["degrees_of_freedom"], member.df])
    risks = np.diag(products) + 2.0 * df - targets.cells
    note: JsonObject = {
        "degrees_of_freedom": member.df,
        "mixing": member.mixing,
        "estimated_risk": float(risks[1]),
        "estimated_risk_of_fit": float(risks[0]),
    }
    reason = _left_out(targets, member, risks)
    if reason is not None:
        return fit, {"share": 0.0, **note, "left_out": reason}
    shares = 0.5 * best_shares(products, df) + 0.25
    return blended([fit, member.fit], shares), {"share": float(shares[1]), **note}


def _left_out(targets: PairTargets, member: BayesMember, risks: Floats) -> str | None:
    """Why a member takes no part, if so."""
    if not member.mixed:
        return f"its two chains disagree ({member.mixing:.2f} times the spread inside them)"
    chance = math.sqrt(2.0 * targets.cells)
    if risks[1] > CLEARLY * max(float(risks[0]), 0.0) + chance:
        return "its estimated risk is clearly higher than that of the fit"
    return None
