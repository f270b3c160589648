"""The fit to pairs averaged with a Bayesian member, if the data bear it out.

Shares lie halfway between even ones and those of least estimated risk: the estimate is in chi^2 and noisy, while an even average of
two different fits is seldom worse than either. A member whose chains have not mixed, or whose estimated risk is clearly
higher, is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from dither.fit.mixture.blend import best_shares, blended, gram
from dither.fit.mixture.edges import warm_degrees
from dither.fit.mixture.fit import MAX_COLUMNS_FOR_ONE_THREAD, MixtureFit
from dither.fit.mixture.hamiltonian import Chain, Metric
from dither.fit.mixture.posterior import Posterior
from dither.fit.mixture.targets import PairTargets, inverse_variances, links, trees
from dither.types import Floats, JsonObject, Progress

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
