"""A fit averaged with what a public table says, so that a table that is wrong does no harm.

Candidates are the fit itself; the public table's latent classes as they are, which follow none of the reports; a descent that
starts from them; and a descent that starts from them after raking to the fitted one-way marginals. Their shares are those of least
estimated risk (`blend`): the reports decide what the public table is worth. What the reports cannot judge, the table does not
bring: attributes that were not asked in pairs keep the fit's own marginals and stay independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dither.compiled import compiled
from dither.fit.mixture.descent import Descent, PairLockstep, State, drawn_probe
from dither.fit.mixture.fit import (
    MAX_COLUMNS_FOR_ONE_THREAD,
    MIN_SHARE,
    Candidate,
    FitOptions,
    MixtureFit,
    best_shares,
    blended,
    descend,
    gram,
)
from dither.fit.mixture.set_fit import SetTargets, tables_of, untied
from dither.fit.mixture.targets import Columns, PairTargets, inverse_variances
from dither.types import Codes, Flags, Floats, Indices, JsonObject

MAX_CLASSES, ROWS_PER_CLASS = 100, 60
# More rows do not improve the classes.
MAX_ROWS = 60_000
# Rows that decide whether classes help, and one in how many of them is held out.
ROWS_TO_JUDGE, HELD_OUT = 20_000, 5
TO_ONE_WAYS, TO_EVEN = 0.03, 0.001
ITERATIONS, TOLERANCE = 60, 1e-4  # of the mean log likelihood
# Standard deviation of the logits that the classes start from.
_START_SPREAD = 0.5
_MIN_PROBABILITY = 1e-12


@dataclass(frozen=True)
class LatentClasses:
    """Weights (C,) and class distributions (C, D), the domains of all attributes side by side."""

    weights: Floats
    components: Floats


@compiled
def counted_in(logs: Any, log_weights: Any, places: Any, sums: Any, totals: Any) -> float:
    """One expectation step: adds every row's share of every class to `sums` (column, class) and `totals`; the log likelihood."""
    classes = len(log_weights)
    chances = np.empty(classes, dtype=logs.dtype)
    likelihood = 0.0
    for row in range(places.shape[0]):
        chances[:] = log_weights
        for i in range(places.shape[1]):
            chances += logs[places[row, i]]
        top = chances.max()
        total = 0.0
        for c in range(classes):
            chances[c] = np.exp(chances[c] - top)
            total += chances[c]
        likelihood += top + np.log(total)
        for c in range(classes):
            chances[c] /= total
        totals += chances
        for i in range(places.shape[1]):
            sums[places[row, i]] += chances
    return likelihood


def class_count(rows: int) -> int:
    """One class for every 60 rows, at most 100."""
    return max(1, min(MAX_CLASSES, rows // ROWS_PER_CLASS))


def one_ways(columns: Columns, codes: Codes) -> Floats:
    """The share of each value among rows."""
    shares = [
        np.bincount(codes[:, i], minlength=k) / len(codes)
        for i, k in enumerate(columns.cardinalities)
    ]
    return np.concatenate(shares)


def latent_classes(
    columns: Columns,
    codes: Codes,
    rng: np.random.Generator,
    classes: int | None = None,
    iterations: int = ITERATIONS,
) -> LatentClasses:
    """Classes of rows of codes, as learnt, without smoothing; the likelihood never falls on the way."""
    if len(codes) > MAX_ROWS:
        codes = codes[rng.choice(len(codes), MAX_ROWS, replace=False)]
    count = class_count(len(codes)) if classes is None else classes
    places = _places(columns, codes)
    start = np.log(np.maximum(one_ways(columns, codes), 1.0 / len(codes)))
    components = columns.softmax(
        start + _START_SPREAD * rng.standard_normal((count, columns.width))
    )
    weights, last = np.full(count, 1.0 / count), -np.inf
    for _ in range(iterations):
        logs = np.ascontiguousarray(np.log(np.maximum(components, _MIN_PROBABILITY)).T)
        sums, totals = np.zeros((columns.width, count)), np.zeros(count)
        likelihood = counted_in(
            logs, np.log(np.maximum(weights, _MIN_PROBABILITY)), places, sums, totals
        ) / len(codes)
        held = np.maximum(sums.T, 0.0)
        lines = columns.spread(columns.sums(held))
        components = np.where(lines > 0, held / np.where(lines > 0, lines, 1.0), components)
        weights = totals / totals.sum()
        if likelihood - last < TOLERANCE:
            break
        last = likelihood
    return LatentClasses(weights, components)


def classes_help(columns: Columns, codes: Codes, rng: np.random.Generator) -> bool:
    """Whether classes of four fifths of the rows make the other rows likelier than those rows' one-way marginals do.

    Where they do not, as in rows whose columns were shuffled, the dependence in the classes is that of chance. Pairs of reports
    could tell that only of pairs, not of three attributes together.
    """
    order = rng.permutation(len(codes))[:ROWS_TO_JUDGE]
    held, learnt = codes[order[: len(order) // HELD_OUT]], codes[order[len(order) // HELD_OUT :]]
    if not len(held):
        return False
    one = one_ways(columns, learnt)
    alike = LatentClasses(np.ones(1), one[None])
    apart = latent_classes(columns, learnt, rng)
    likelihoods = [
        mean_log_likelihood(columns, smoothed(columns, found, one), held)
        for found in (alike, apart)
    ]
    return likelihoods[0] < likelihoods[1]


def mean_log_likelihood(columns: Columns, classes: LatentClasses, codes: Codes) -> float:
    """Of rows of codes, each."""
    logs = np.ascontiguousarray(np.log(np.maximum(classes.components, _MIN_PROBABILITY)).T)
    sums, totals = np.zeros((columns.width, len(classes.weights))), np.zeros(len(classes.weights))
    log_weights = np.log(np.maximum(classes.weights, _MIN_PROBABILITY))
    return float(counted_in(logs, log_weights, _places(columns, codes), sums, totals)) / len(codes)


def _places(columns: Columns, codes: Codes) -> Indices:
    """The column of every row's every value."""
    return np.ascontiguousarray(codes + columns.starts.astype(codes.dtype)).astype(np.intp)


def smoothed(columns: Columns, classes: LatentClasses, one: Floats) -> LatentClasses:
    """With 3 % of the one-way marginals and 0.1 % of evenness in every class."""
    even = columns.spread(1.0 / columns.cardinalities)
    mixed = (1.0 - TO_ONE_WAYS) * classes.components + TO_ONE_WAYS * one
    return LatentClasses(classes.weights, (1.0 - TO_EVEN) * mixed + TO_EVEN * even)


def raked_classes(
    columns: Columns, classes: LatentClasses, one: Floats, steps: int = 200
) -> LatentClasses:
    """The nearest distribution with other one-way marginals: P(x) times a factor for every attribute's value, still a mixture.

    Every class's distributions take the factors and are normalised, and its weight takes what that took away (iterative
    proportional fitting; Deming and Stephan, 1940).
    """
    weights, components = classes.weights, classes.components
    for _ in range(steps):
        worst = 0.0
        for i in range(len(columns.cardinalities)):
            at = columns.of(i)
            now = weights @ components[:, at]
            worst = max(worst, float(np.abs(now - one[at]).max()))
            part = components[:, at] * (one[at] / np.maximum(now, _MIN_PROBABILITY))
            lines = np.maximum(part.sum(axis=1), _MIN_PROBABILITY)
            components = components.copy()
            components[:, at] = part / lines[:, None]
            weights = weights * lines
            weights = weights / weights.sum()
        if worst < 1e-6:
            break
    return LatentClasses(weights, components)


OWN, PUBLIC, DESCENT, RAKED = (
    "reports alone",
    "public table as it is",
    "descent from it",
    "descent from it, raked",
)
STARTS, TWINS, _TWIN_DISTANCE = 4, 3, 0.1
OPTIONS = FitOptions(shrink=False)  # degrees of freedom count as much as in the fit
DESCENT_PENALTY = 1.5  # how much their degrees of freedom count: twins and the choice of the stop miss some of them
CAUTION = 1.5  # standard errors that the estimated gain has to exceed
FAR, FAR_START = 4.0, 10.0  # times the estimated risk of the fit
_MIN_START, MIN_SHARE_OF_VALUE = 1e-9, 1e-6


@dataclass(frozen=True)
class _Blend:
    """The average, the candidates' shares, and the estimated risks of it and of the fit alone."""

    fit: MixtureFit
    shares: dict[str, float]
    risks: tuple[float, float]

    @property
    def note(self) -> JsonObject:
        return {
            "shares": self.shares,
            "share_of_prior": 1.0 - self.shares.get(OWN, 0.0),
            "estimated_risk": self.risks[0],
            "estimated_risk_without": self.risks[1],
        }


def with_public(
    targets: PairTargets,
    own: MixtureFit,
    df: float,
    classes: LatentClasses,
    rng: np.random.Generator,
    sets: SetTargets | None = None,
) -> _Blend:
    """The blend of a fit with df degrees of freedom and a public table's classes.

    If whole tables of sets were fitted, they are used too, without descents, because pairs of
    one set have the same participants.
    """
    weights = inverse_variances(targets, own.pairs, own.one)
    few = 1 if targets.columns.width <= MAX_COLUMNS_FOR_ONE_THREAD else None
    known = judged(targets, classes, own.one)
    raked = raked_classes(targets.columns, known, _moved(targets.columns, own.one))
    starts = {PUBLIC: as_fit(targets, own, known), RAKED: as_fit(targets, own, raked)}
    free = targets.columns.cardinalities - 1
    candidates = [
        Candidate(OWN, own, df),
        Candidate(PUBLIC, starts[PUBLIC], float(free[~paired(targets)].sum())),
    ]
    cells = targets.cells if sets is None else float(sets.cells)
    with threadpool_limits(limits=few, user_api="blas"):
        if sets is None:
            near = _near(gram(targets, *weights, [own, *starts.values()]), df, cells)
            if near[0]:
                candidates.append(
                    _descended(targets, own, weights, classes, DESCENT, rng, raked=False)
                )
            if near[1]:
                candidates.append(
                    _descended(targets, own, weights, classes, RAKED, rng, raked=True)
                )
            products = gram(targets, *weights, [c.fit for c in candidates])
        else:
            # Raking follows the one-way marginals at most wholly.
            candidates.append(Candidate(RAKED, starts[RAKED], float(free.sum())))
            products = _set_gram(sets, [own.states, *((_state(c.fit),) for c in candidates[1:])])
    shares, risks = cautious_shares(candidates, products, cells)
    return _Blend(
        replace(blended([c.fit for c in candidates], shares), states=own.states),
        {c.name: float(s) for c, s in zip(candidates, shares, strict=True)},
        risks,
    )


def cautious_shares(
    candidates: list[Candidate], products: Floats, cells: float
) -> tuple[Floats, tuple[float, float]]:
    """The shares of candidates, the fit first, and the estimated risks of the average and of the fit.

    From the fit towards the shares of least estimated risk, not at all where the estimated gain is within CAUTION standard errors
    and by 1 - (CAUTION error / gain)^2 of the way beyond: the shrinkage of James and Stein, for a gain that is not sure.
    """
    # Twins that part from a start in a corner estimate degrees of freedom far below zero, which no fit has.
    df = np.maximum([c.df for c in candidates], 0.0)
    degrees = df * np.array(
        [DESCENT_PENALTY if c.name in (DESCENT, RAKED) else OPTIONS.penalty for c in candidates]
    )
    risks = np.diag(products) + 2.0 * degrees - cells
    # A small share of a bad candidate can lower chi^2 by chance, so bad ones are left out.
    heard = np.union1d(
        [0], np.flatnonzero(risks <= FAR * max(float(risks[0]), 0.0) + math.sqrt(2.0 * cells))
    )
    shares = np.zeros(len(candidates))
    shares[heard] = best_shares(products[np.ix_(heard, heard)], degrees[heard])
    shares = np.where(shares > MIN_SHARE, shares, 0.0) / shares[shares > MIN_SHARE].sum()

    def risk(at: Floats) -> float:
        return float(at @ products @ at + 2.0 * at @ degrees - cells)

    own = np.eye(len(candidates))[0]
    step = shares - own
    error, gain = CAUTION * gain_error(step, products, df), risk(own) - risk(shares)
    shares = own + (1.0 - (error / gain) ** 2 if gain > error else 0.0) * step
    return shares, (risk(shares), risk(own))


def gain_error(step: Floats, products: Floats, df: Floats) -> float:
    """The standard error of the estimated gain of a step from the fit.

    The difference of two estimated risks has variance 4 (|d|^2 + tr((dd/dy)^2)), with d the difference of the estimates and dd/dy
    how it follows the data (Bellec and Zhang, Second-order Stein, Annals of Statistics 2021). A candidate's tr((dP/dy)^2) is
    taken to be its degrees of freedom, which bound it where it shrinks; in a small campaign this is the larger term.
    """
    return 2.0 * math.sqrt(max(float(step @ products @ step), 0.0) + float(step**2 @ df))


def paired(targets: PairTargets) -> Flags:
    """The attributes that were asked in a pair."""
    return np.asarray((targets.pair_noise[1] > 0).any(axis=0))


def judged(targets: PairTargets, classes: LatentClasses, one: Floats) -> LatentClasses:
    """Classes that differ in those attributes alone whose dependence the reports can judge."""
    keep = np.repeat(paired(targets), targets.columns.cardinalities)
    return LatentClasses(
        classes.weights, np.where(keep, classes.components, _moved(targets.columns, one))
    )


def _near(products: Floats, df: float, cells: float) -> Flags:
    """Whether starts are near enough to the reports to descend from: a fit that begins far off is one more fit to the same noise,
    whose estimated risk is too low by the choice of where to stop."""
    risks = np.diag(products) - cells
    own = max(float(risks[0]) + 2.0 * OPTIONS.penalty * df, 0.0)
    return np.asarray(risks[1:] <= FAR_START * own + math.sqrt(2.0 * cells))


def as_fit(targets: PairTargets, own: MixtureFit, classes: LatentClasses) -> MixtureFit:
    """Classes as a fit with the edges of another one, whose tables tie nothing."""
    pairs = np.asarray((classes.components.T * classes.weights) @ classes.components)
    flat = tuple(np.ones((1, *psi.shape[1:])) for psi in own.potentials)
    return MixtureFit(
        classes.weights,
        classes.components,
        {},
        pairs,
        classes.weights @ classes.components,
        own.edges,
        flat,
        np.zeros(len(classes.weights), dtype=np.intp),
    )


def _descended(
    targets: PairTargets,
    own: MixtureFit,
    weights: tuple[Floats, Floats],
    classes: LatentClasses,
    name: str,
    rng: np.random.Generator,
    *,
    raked: bool,
) -> Candidate:
    """Descents from classes, stopped by their estimated risk. Twins share the start, which owes nothing to the reports; raked, it
    follows the one-way marginals of the fit, and the start of a twin those that have moved along with its data."""
    columns = targets.columns

    def begun(offset: Floats, one: Floats) -> Descent:
        start = judged(targets, classes, one)
        start = raked_classes(columns, start, one) if raked else start
        descent = Descent(columns, np.log(np.maximum(start.components, _MIN_START)) + offset)
        descent.weight_logits = np.log(np.maximum(start.weights, _MIN_START))
        return descent

    reach = _TWIN_DISTANCE * columns.spread(paired(targets).astype(np.float64))
    offsets = [reach * rng.standard_normal(classes.components.shape) for _ in range(STARTS)]
    probes = [drawn_probe(targets, *weights, OPTIONS.probe, rng) for _ in range(TWINS)]
    starts = [begun(offset, own.one) for offset in offsets]
    twins = [
        (begun(offset, _moved(columns, own.one + probe.one - targets.one)), probe)
        for offset, probe in zip(offsets, probes, strict=False)
    ]
    group = PairLockstep(targets, *weights, starts, twins, OPTIONS.probe, OPTIONS.momentum)
    found = descend(group, targets, OPTIONS)
    stacked = LatentClasses(found.weights, found.components)
    return Candidate(name, as_fit(targets, own, stacked), found.diagnostics["degrees_of_freedom"])


def _moved(columns: Columns, one: Floats) -> Floats:
    """One-way marginals that are distributions still."""
    held = np.maximum(one, MIN_SHARE_OF_VALUE)
    return np.asarray(held / columns.spread(columns.sums(held)))


def _state(fit: MixtureFit) -> State:
    return State(fit.weights, fit.components, fit.components)


def _set_gram(sets: SetTargets, models: list[tuple[State, ...]]) -> Floats:
    """G on the whole tables, with the precision of the first model, whose states have the edges' tables already."""
    tied = [
        [s if s.ties or not sets.edges else replace(s, ties=untied(sets, s)) for s in states]
        for states in models
    ]
    tables = [tables_of(sets, states) for states in tied]
    out = np.zeros((len(models), len(models)))
    for number, block in enumerate(sets.blocks):
        precision = 1.0 / block.variances(tables[0][number])
        off = [np.asarray(t[number] - block.tables, dtype=np.float64) for t in tables]
        for k in range(len(models)):
            for other in range(len(models)):
                out[k, other] += float((precision * off[k] * off[other]).sum())
    return out
