"""Fit a mixture of products to all noisy pair and single marginals at once.

With the attributes' domains side by side the components form a C x D matrix A, and every pair
marginal of the mixture is a block of the product A' diag(w) A: a gradient is two matrix products.
The fit descends with momentum on logits, from the product of the one-way marginals plus a
perturbation, from several starts in lockstep. It stops where the risk of their average, by
Stein's unbiased risk estimate (SURE), is least: chi^2 - cells + 2 df, with the degrees of freedom
df from twin descents on slightly moved data (Ramani, Blu, Unser, IEEE TIP 2008). The average of
mixtures is a mixture. If sets of three attributes or more were asked, the descent is on their
whole tables (`set_fit`).

Several fits to the same data are averaged with the shares of least estimated risk. The risk of
an average sum a_k P_k is a' G a + 2 a' df up to a constant (Stein), with
G_kl = sum w (P_k - y)(P_l - y) over all cells y and df_k the degrees of freedom of candidate k.
Shares are at least zero and add up to one, so a candidate that the data contradict gets none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
from threadpoolctl import threadpool_limits

from dither.fit.mixture.descent import (
    Descent,
    PairLockstep,
    Probe,
    State,
    StepSize,
    Tied,
    drawn_probe,
    halves,
    joined,
)
from dither.fit.mixture.edges import Marginals, marginals_of, strong_pairs, warm_potentials
from dither.fit.mixture.set_fit import SetLockstep, SetTargets, untied
from dither.fit.mixture.targets import (
    Edges,
    PairTargets,
    chi_square,
    disjoint,
    inverse_variances,
    trees,
)
from dither.types import Floats, Indices

MAX_COLUMNS_FOR_ONE_THREAD = 600
MAX_TRIES = 4  # of fits with edges while they are chosen
MANY_CELLS = 20_000  # of sets: a start needs more components, and one twin measures its degrees of freedom well enough
CHANCE = 2.0  # standard deviations of chi^2


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
    penalty: float = (
        1.2  # weight of df when the stopping point is chosen: SURE alone overshoots on some seeds
    )
    shrink: bool = (
        True  # keep only the share of the fitted dependence that pays by the same estimate
    )
    edges: Edges | None = None  # None: chosen from the data, see `edges`
    # Always fit whole tables of sets; by default only if their estimated risk is lower.
    whole_tables: bool = False


@dataclass(frozen=True)
class MixtureFit:
    """Weights (C,) and components (C, D) side by side, with what the fit says of itself.

    Component c belongs to the group (start) `groups[c]`; `potentials` are the tables psi of every tree that the edges form,
    (group, u, v), u and v the values of its two halves. The components of its attributes are the factors that psi ties.
    """

    weights: Floats
    components: Floats
    diagnostics: dict[str, float]
    pairs: Floats
    one: Floats
    edges: Edges = ()
    potentials: tuple[Floats, ...] = ()
    groups: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    states: tuple[State, ...] = ()  # whose average the fit is, as they stood in the descent
    twins: tuple[
        tuple[State, State], ...
    ] = ()  # the first few states before anything was shrunk, and their twins


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
        state = start.model()
        pair, one = start.pairs(state), state.one
        if iteration % 20 == 0:
            w2, w1 = inverse_variances(targets, pair, one)
            control.last = math.inf
        residual, residual1 = pair - targets.pairs, one - targets.singles
        pull, pull1 = w2 * residual, w1 * residual1
        loss = 0.5 * float(np.vdot(pull, residual)) + float(pull1 @ residual1)
        if loss < targets.cells:
            break
        gradient = start.pair_gradient(state, pull, pull1)
        restart = control.update(loss, float(np.abs(gradient.logits).max()))
        start.step(gradient, control.size, options.momentum, restart)
    return pair, one


def component_count(targets: PairTargets, w2: Floats, w1: Floats) -> int:
    """60, more when the departure from independence exceeds the noise energy (fourth root), at most 200 or D."""
    chi2 = chi_square(targets, (w2, w1), np.outer(targets.one, targets.one), targets.one)
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


def product_fit(targets: PairTargets) -> MixtureFit:
    """The product of the pooled one-way marginals: one component, no dependence."""
    diagnostics = {"iterations": 0.0, "components": 1.0}
    pairs = np.outer(targets.one, targets.one)
    return MixtureFit(np.ones(1), targets.one[None, :].copy(), diagnostics, pairs, targets.one)


class _Beginning:
    """What all fits to the same data share: weights from a pilot fit to the pairs, the starts' offsets, the twins' probes."""

    def __init__(
        self,
        targets: PairTargets,
        rng: np.random.Generator,
        options: FitOptions,
        whole: SetTargets | None,
    ):
        self.targets, self.options, self.rng = targets, options, rng
        columns = targets.columns
        asked = np.asarray((targets.pair_noise[1] > 0).any(axis=0), dtype=np.float64)
        reach = options.perturbation * columns.spread(asked)

        def apart(size: int) -> Floats:
            return np.asarray(reach * rng.standard_normal((size, columns.width)))

        pilot = Descent(
            columns, _base_logits(targets, targets.one) + apart(options.components or 60)
        )
        self.w2, self.w1 = inverse_variances(targets, *_pilot(targets, pilot, options))
        self.pilot = pilot.model()
        size = options.components or (
            component_count(targets, self.w2, self.w1)
            if whole is None
            else set_component_count(whole.cells, options.total)
        )
        self.offsets = [apart(size) for _ in range(start_count(options.total, size, columns.width))]
        few = whole is not None and whole.cells >= MANY_CELLS
        self.twins = min(1 if few else options.twins, len(self.offsets))
        probes = self.twins if whole is None else 0
        self.probes: list[Probe] = [
            drawn_probe(targets, self.w2, self.w1, options.probe, rng) for _ in range(probes)
        ]

    def lockstep(self, edges: Edges, probes: Sequence[Probe] | None = None) -> PairLockstep:
        """All starts and twins of a fit to pairs before their first step."""
        t = self.targets
        start = marginals_of(t, edges)

        def begun(here: Marginals, offset: Floats) -> Descent:
            potentials = warm_potentials(t.columns, edges, here)
            return Descent(t.columns, _base_logits(t, here.one) + offset, edges, potentials)

        pairs = [
            (begun(probe.marginals(t, start), offset), probe)
            for probe, offset in zip(
                self.probes if probes is None else probes, self.offsets, strict=False
            )
        ]
        starts = [begun(start, offset) for offset in self.offsets]
        return PairLockstep(
            t, self.w2, self.w1, starts, pairs, self.options.probe, self.options.momentum
        )

    def set_lockstep(self, sets: SetTargets) -> SetLockstep:
        """The same for a fit to whole tables."""
        logits, options = partial(_base_logits, self.targets), self.options
        start = marginals_of(self.targets, sets.edges)
        return SetLockstep(
            sets,
            self.pilot,
            start,
            logits,
            self.offsets,
            self.twins,
            options.probe,
            options.momentum,
            self.rng,
        )


def _prepared(
    targets: PairTargets,
    rng: np.random.Generator,
    options: FitOptions,
    whole: SetTargets | None = None,
) -> PairLockstep | SetLockstep:
    """All starts and twins of a fit with given edges (none unless said) before their first step."""
    beginning = _Beginning(targets, rng, options, whole)
    return (
        beginning.lockstep(options.edges or ()) if whole is None else beginning.set_lockstep(whole)
    )


SetsOf = Callable[[Edges], SetTargets]


def fit_mixture(
    targets: PairTargets,
    rng: np.random.Generator,
    options: FitOptions | None = None,
    sets: SetsOf | None = None,
) -> MixtureFit:
    """Fit to all pairs, or to all sets if given; without any pair the fit is the product of the one-way marginals.

    `sets` returns the whole tables for a choice of edges. Fits to pairs choose the edges; whole
    tables may reject them.
    """
    # Matrices of a few hundred columns are too small to share: on a busy machine two threads take three times as long as one.
    few = 1 if targets.columns.width <= MAX_COLUMNS_FOR_ONE_THREAD else None
    options = options or FitOptions()
    if not targets.has_pairs:
        return product_fit(targets)
    if options.edges is not None:  # pairs that were not asked cannot be edges
        asked = targets.pair_noise[1] > 0
        edges = tuple(edge for edge in options.edges if asked[edge])
        options = replace(options, edges=edges if sets is None else disjoint(edges))
    with threadpool_limits(limits=few, user_api="blas"):
        if (
            sets is not None and options.whole_tables and options.edges is not None
        ):  # nothing is left to choose
            return descend(_prepared(targets, rng, options, sets(options.edges)), targets, options)
        beginning = _Beginning(targets, rng if sets is None else rng.spawn(1)[0], options, None)
        if options.edges is None:
            by_pairs = _chosen(beginning, grow=sets is None)
        else:
            by_pairs = descend(beginning.lockstep(options.edges), targets, options)
        if sets is None:
            return by_pairs
        again = deepcopy(rng)  # the fit without edges has the same starts
        group, whole = _whole_fit(targets, rng, options, sets(by_pairs.edges))
        if by_pairs.edges and options.edges is None:
            plain_group, plain = _whole_fit(targets, again, options, sets(()))
            if not _edges_pay((group, whole), (plain_group, plain), options.penalty):
                group, whole = plain_group, plain
                by_pairs = descend(beginning.lockstep(()), targets, options)
        if options.whole_tables or whole_tables_pay(group, whole, by_pairs, beginning):
            return whole
        return by_pairs


def _whole_fit(
    targets: PairTargets, rng: np.random.Generator, options: FitOptions, sets: SetTargets
) -> tuple[SetLockstep, MixtureFit]:
    group = _prepared(targets, rng, options, sets)
    assert isinstance(group, SetLockstep)
    return group, descend(group, targets, options)


def _edges_pay(
    tied: tuple[SetLockstep, MixtureFit], plain: tuple[SetLockstep, MixtureFit], penalty: float
) -> bool:
    """Whether edges lower the penalised risk of a fit to whole tables by more than the standard error of that estimate; both are
    judged with the weights of the fit without.

    Fits to pairs chose the edges as if the noise of pairs were independent; pairs of one set share its people, and so a set that
    errs speaks for several of them at once.
    """
    risks, unsure = [], 0.0
    for group, fit in (tied, plain):
        flat = group.tables(
            [replace(state, ties=untied(group.sets, state)) for state in plain[1].states]
        )
        precisions = group.precisions(flat)
        found, df = group.tables(list(fit.states)), group.followed(fit.twins, precisions)
        risks.append(group.chi2(found, precisions) + 2.0 * penalty * df)
        # A twin's random moves tell its degrees of freedom with twice their number as variance; chi^2 differs by what lies between.
        unsure += (2.0 * penalty) ** 2 * 2.0 * max(df, 0.0) / len(fit.twins)
        unsure += sum(
            4.0 * float((p * (t - f) ** 2).sum())
            for p, t, f in zip(precisions, found, flat, strict=True)
        )
    return risks[0] + math.sqrt(unsure) < risks[1]


def whole_tables_pay(
    group: SetLockstep, whole: MixtureFit, by_pairs: MixtureFit, beginning: _Beginning
) -> bool:
    """Whether a fit to whole tables has the lower penalised risk, both judged by the same tables with the same weights.

    Pairs of one set share its people, so their noise is not independent; how far a fit to pairs follows the noise is measured by
    twins whose pairs come from moved tables.
    """
    options = beginning.options
    probes = [group.moved_pairs(beginning.targets, twin) for twin in range(len(group.twins))]
    again = beginning.lockstep(by_pairs.edges, probes)
    for _ in range(int(by_pairs.diagnostics["iterations"])):
        again.advance(check=False)
    followed = [
        (start.model(), twin.model())
        for start, (twin, _) in zip(again.starts, again.twins, strict=False)
    ]
    tables = [group.tables(list(fit.states)) for fit in (whole, by_pairs)]
    middle = [0.5 * (a + b) for a, b in zip(*tables, strict=True)]
    precisions = group.precisions(middle)
    risks = [
        group.chi2(t, precisions) + 2.0 * options.penalty * group.followed(twins, precisions)
        for t, twins in zip(tables, (whole.twins, followed), strict=True)
    ]
    whole.diagnostics["risk_of_pairs_alone"] = by_pairs.diagnostics["risk_of_pairs_alone"] = (
        risks[1] - risks[0]
    )
    return risks[0] <= risks[1]


def _chosen(beginning: _Beginning, *, grow: bool) -> MixtureFit:
    """The fit to pairs with the strong pairs as edges that it contradicts, as long as the penalised risk falls.

    With `grow` they may share attributes. Where the risk does not fall, only those are tried that share none, then the stronger
    half of them, then half of the rest.
    """
    targets, options, rng = beginning.targets, beginning.options, beginning.rng
    best = descend(beginning.lockstep(()), targets, options)
    edges, grown = strong_pairs(targets, best.pairs, (), rng, grow=grow), grow
    for _ in range(MAX_TRIES):
        if len(edges) <= len(best.edges):
            break
        fit = descend(beginning.lockstep(edges), targets, options)
        if _penalised(fit, options) < _penalised(best, options):
            best = fit
            edges, grown = strong_pairs(targets, best.pairs, best.edges, rng, grow=grow), grow
            continue
        half = edges[: len(best.edges) + (len(edges) - len(best.edges)) // 2]
        apart = strong_pairs(targets, best.pairs, best.edges, rng) if grown else best.edges
        edges, grown = apart if len(best.edges) < len(apart) < len(edges) else half, False
    return best


def _penalised(fit: MixtureFit, options: FitOptions) -> float:
    return (
        fit.diagnostics["sure"]
        + 2.0 * (options.penalty - 1.0) * fit.diagnostics["degrees_of_freedom"]
    )


def descend(
    group: PairLockstep | SetLockstep, targets: PairTargets, options: FitOptions
) -> MixtureFit:
    """Descend until the estimated risk turns; the average of the starts where it is least."""
    start = group.starts[0]
    count, size, edges = len(group.starts), len(start.logits), start.edges
    best = (math.inf, 0.0, 0.0, 0)
    kept: list[State] = []
    twins: list[tuple[State, State]] = []
    trace: list[float] = []
    measured: list[float] = []
    for iteration in range(options.iterations):
        check = iteration % options.check_every == 0
        models, chi2, df = group.advance(check)
        if not check:
            continue
        usual = float(np.median(measured[-3:])) if len(measured) > 2 else df
        measured.append(df)
        df = max(
            df, usual
        )  # they grow; where they seem to fall, twins have left the path of their starts
        sure = chi2 - group.cells + 2.0 * df
        trace.append(chi2 - group.cells + 2.0 * options.penalty * df)
        if trace[-1] <= min(trace):
            best, kept = (sure, chi2, df, iteration), models
            twins = list(zip(models, group.twin_models, strict=False))
        past = trace[-1 - options.patience] if len(trace) > options.patience else math.inf
        scale = abs(best[0]) + math.sqrt(2.0 * group.cells)
        if past - min(trace[-options.patience :]) < options.tolerance * scale:
            break
        if iteration and iteration % options.reweigh_every == 0 and group.reweigh(models):
            trace.clear()
    weights = np.concatenate([state.weights for state in kept]) / count
    stacked = np.concatenate([state.factors for state in kept])
    groups = np.repeat(np.arange(count, dtype=np.intp), [len(state.weights) for state in kept])
    potentials = [np.stack([state.ties[e].psi for state in kept]) for e in range(len(start.trees))]
    pairs, one = (
        np.mean([start.pairs(s) for s in kept], axis=0),
        np.mean([s.one for s in kept], axis=0),
    )
    keep, product = 1.0, _product(targets, edges, kept)
    if options.shrink:
        keep = _dependence_kept(
            *group.dependence(kept, product),
            options.penalty * _spent_on_dependence(targets, edges, best[2]),
        )
        # With very few answers per cell a fit follows single reports, which twins do not detect,
        # and its estimated risk is negative. It is rejected unless the product fits badly.
        chance = CHANCE * math.sqrt(2.0 * group.cells)
        if best[0] < -chance and group.chi2_alone(product) < group.cells + chance:
            keep = 0.0
    # The rest of the mixture is the product of its marginals.
    if keep < 1.0:
        stacked = np.vstack([stacked, product.factors])
        weights = np.append(keep * weights, 1.0 - keep)
        groups = np.append(groups, count)
        potentials = [
            np.concatenate([psi, tied.psi[None]])
            for psi, tied in zip(potentials, product.ties, strict=True)
        ]
        pairs = keep * pairs + (1.0 - keep) * start.pairs(product)
        shares = [keep * (count + 1) / count] * count + [(1.0 - keep) * (count + 1)]
        kept = [
            replace(state, weights=s * state.weights)
            for s, state in zip(shares, [*kept, product], strict=True)
        ]
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
    return MixtureFit(
        weights / weights.sum(),
        stacked,
        diagnostics,
        pairs,
        one,
        edges,
        tuple(potentials),
        groups,
        tuple(kept),
        tuple(twins),
    )


def degrees_after_shrinking(targets: PairTargets, fit: MixtureFit) -> float:
    """Degrees of freedom of a fit as it is, of whose dependence a share was kept; its diagnostics have those of the descent."""
    df, kept = fit.diagnostics["degrees_of_freedom"], fit.diagnostics["dependence_kept"]
    return df - (1.0 - kept) * _spent_on_dependence(targets, fit.edges, df)


def _spent_on_dependence(targets: PairTargets, edges: Edges, df: float) -> float:
    """Degrees of freedom beyond those of the one-way marginals and of the edges' tables."""
    free = targets.columns.cardinalities - 1
    return max(df - float(free.sum()) - float(sum(free[i] * free[j] for i, j in edges)), 0.0)


def _product(targets: PairTargets, edges: Edges, states: list[State]) -> State:
    """One component with the one-way marginals and the edges' tables of the average of some models."""
    columns, one = targets.columns, np.mean([state.one for state in states], axis=0)
    ties = []
    for number, tree in enumerate(trees(edges)):
        table = np.mean([state.ties[number].mean(state.weights) for state in states], axis=0)
        first, second = (joined(columns, one[None], half) for half in halves(tree))
        lines = np.outer(first, second)
        ties.append(
            Tied(first, np.where(lines > 0, table / np.where(lines > 0, lines, 1.0), 0.0), second)
        )
    return State(np.ones(1), one[None], one[None], tuple(ties))


MIN_SHARE = 1e-3  # a smaller one is not worth its components


@dataclass(frozen=True)
class Candidate:
    """A fit, the degrees of freedom that it took, and what to call it."""

    name: str
    fit: MixtureFit
    df: float


def gram(targets: PairTargets, w2: Floats, w1: Floats, fits: Sequence[MixtureFit]) -> Floats:
    """G: weighted products of what the fits leave of the data."""
    off = [fit.pairs - targets.pairs for fit in fits]
    off1 = [fit.one - targets.singles for fit in fits]
    out = np.empty((len(fits), len(fits)))
    for k in range(len(fits)):
        pull, pull1 = w2 * off[k], w1 * off1[k]
        for other in range(k + 1):
            out[k, other] = 0.5 * float(np.vdot(pull, off[other])) + float(pull1 @ off1[other])
            out[other, k] = out[k, other]
    return out


def best_shares(products: Floats, df: Floats) -> Floats:
    """The shares that make a' G a + 2 a' df least on the simplex: exact, by its active set.

    On a set of candidates the least is where G a + df is the same for all of them; candidates with a negative share leave the
    set, and those whose slope is lower than that of the set come back.
    """
    count = len(df)
    slope = np.diag(products) + 2.0 * df
    inside = [int(np.argmin(slope))]
    shares = np.zeros(count)
    shares[inside[0]] = 1.0
    for _ in range(10 * count + 10):
        gradient = products @ shares + df
        level = float(shares @ gradient)
        entering = int(np.argmin(gradient))
        if gradient[entering] >= level - 1e-9 * max(1.0, abs(level)) or entering in inside:
            return shares
        inside.append(entering)
        while True:
            found = _level_point(products, df, inside)
            if (found >= -1e-12).all():
                break
            # Step towards it while all stay positive, and drop those that become zero.
            here = shares[inside]
            falling = found < here
            reach = float(
                np.min(here[falling & (found < 0)] / (here - found)[falling & (found < 0)])
            )
            moved = here + reach * (found - here)
            shares[:] = 0.0
            shares[inside] = np.maximum(moved, 0.0)
            zero = int(np.argmin(np.where(found < 0, moved, np.inf)))
            shares[inside[zero]] = 0.0
            inside.pop(zero)
        shares[:] = 0.0
        shares[inside] = np.maximum(found, 0.0)
        shares /= shares.sum()
        inside = [k for k in inside if shares[k] > 0.0]
    return shares


def _level_point(products: Floats, df: Floats, inside: Sequence[int]) -> Floats:
    """Where G a + df is level on some candidates and a adds up to one."""
    m = len(inside)
    system = np.zeros((m + 1, m + 1))
    system[:m, :m] = products[np.ix_(inside, inside)]
    system[:m, m], system[m, :m] = -1.0, 1.0
    return np.asarray(np.linalg.lstsq(system, np.append(-df[list(inside)], 1.0), rcond=None)[0][:m])


def blended(fits: Sequence[MixtureFit], shares: Floats) -> MixtureFit:
    """The average of fits with the same edges; diagnostics are those of the first."""
    kept = [
        (fit, float(share)) for fit, share in zip(fits, shares, strict=True) if share > MIN_SHARE
    ]
    if len(kept) == 1:
        return replace(kept[0][0], diagnostics=fits[0].diagnostics)
    total = sum(share for _, share in kept)
    tables = [len(fit.potentials[0]) if fit.potentials else 1 for fit, _ in kept]
    before = np.concatenate([[0], np.cumsum(tables)])
    return MixtureFit(
        np.concatenate([share / total * fit.weights for fit, share in kept]),
        np.concatenate([fit.components for fit, _ in kept]),
        fits[0].diagnostics,
        np.asarray(sum(share / total * fit.pairs for fit, share in kept)),
        np.asarray(sum(share / total * fit.one for fit, share in kept)),
        kept[0][0].edges,
        tuple(
            np.concatenate([fit.potentials[e] for fit, _ in kept])
            for e in range(len(kept[0][0].potentials))
        ),
        np.concatenate(
            [
                _groups(fit) + first
                for (fit, _), (first, _) in zip(kept, pairwise(before), strict=True)
            ]
        ),
    )


def _groups(fit: MixtureFit) -> Indices:
    return fit.groups if len(fit.groups) else np.zeros(len(fit.weights), dtype=np.intp)
