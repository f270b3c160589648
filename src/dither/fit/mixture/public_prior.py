"""A fit averaged with what a public table says, so that a table that is wrong does no harm.

Candidates are the fit itself; the public table's latent classes as they are, which follow none of
the reports; a descent that starts from them; and a descent that starts from them after raking to
the fitted one-way marginals. Their shares are those of least estimated risk (`fit.average`): the
reports decide what the public table is worth. What the reports cannot judge, the table does not
contribute: attributes that were not asked in pairs keep the fit's own marginals and stay
independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dither.compiled import compiled
from dither.fit.average import MIN_SHARE, Candidate, averaged, best_shares, gram
from dither.fit.mixture.fit import (
    MAX_COLUMNS_FOR_ONE_THREAD,
    Descent,
    MixtureSettings,
    Weights,
    descend,
)
from dither.fit.mixture.model import Mixture
from dither.fit.mixture.targets import Columns, PairTargets
from dither.schema import Schema
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


@dataclass(frozen=True)
class PublicSettings:
    """Tuned constants of the average with a public table (docs/explanation/limit.md)."""

    # Descents from the public classes that are averaged.
    starts: int = 4
    # Standard deviation of the logits between them.
    distance: float = 0.1
    # Weight of the descents' degrees of freedom: twins and the choice of the stop miss some.
    penalty: float = 1.5
    # Standard errors that the estimated gain must exceed.
    caution: float = 1.5
    # A candidate is left out if its estimated risk is this many times that of the fit,
    far: float = 4.0
    # and not descended from if it is this many times.
    far_start: float = 10.0


SETTINGS = PublicSettings()
_MIN_START, _MIN_SHARE_OF_VALUE = 1e-9, 1e-6


def with_public(
    targets: PairTargets,
    moved: Sequence[PairTargets],
    moved_by: float,
    weights: Weights,
    fitted: Sequence[Candidate],
    fitted_shares: Floats,
    classes: LatentClasses,
    rng: np.random.Generator,
) -> tuple[list[Candidate], Floats, JsonObject]:
    """Average a fit with a public table's classes.

    Args:
        targets: The data.
        moved: The data with a little more noise, for twins.
        moved_by: That noise in units of the data's own.
        weights: Inverse variances of the data.
        fitted: The candidates of the fit,
        fitted_shares: and their shares.
        classes: Of the public table.
        rng: Source of the descents' starts.

    Returns:
        All candidates, their shares, and what a release states about the prior.
    """
    columns = targets.columns
    own = _own(fitted, fitted_shares)
    schema = own.model.schema
    known = _judged(targets, classes, own.one)
    raked = raked_classes(columns, known, _held(columns, own.one))
    free = columns.cardinalities - 1
    public = _candidate(schema, PUBLIC, known, float(free[~_paired(targets)].sum()))
    starts = [own, public, _candidate(schema, RAKED, raked, 0.0)]
    near = _near(gram(targets, weights, starts), own, targets.cells)
    candidates = [own, public]
    threads = 1 if columns.width <= MAX_COLUMNS_FOR_ONE_THREAD else None
    with threadpool_limits(limits=threads, user_api="blas"):
        for name, wanted in ((DESCENT, near[0]), (RAKED, near[1])):
            if wanted:
                found = _descended(targets, moved, moved_by, weights, own, classes, name, rng)
                candidates.append(found)
    shares, risks = cautious_shares(candidates, gram(targets, weights, candidates), targets.cells)
    note: JsonObject = {
        "shares": {c.name: float(s) for c, s in zip(candidates, shares, strict=True)},
        "share_of_prior": 1.0 - float(shares[0]),
        "estimated_risk": risks[0],
        "estimated_risk_without": risks[1],
    }
    return (
        [*fitted, *candidates[1:]],
        np.concatenate([shares[0] * np.asarray(fitted_shares), shares[1:]]),
        note,
    )


def _own(fitted: Sequence[Candidate], shares: Floats) -> Candidate:
    """The average of the fit as one candidate."""
    return Candidate(
        OWN,
        averaged(fitted, shares),
        np.tensordot(shares, [c.pairs for c in fitted], 1),
        np.tensordot(shares, [c.one for c in fitted], 1),
        float(shares @ [c.df for c in fitted]),
        float(shares @ [c.df * c.penalty for c in fitted])
        / max(float(shares @ [c.df for c in fitted]), 1e-300),
    )


def _candidate(schema: Schema, name: str, classes: LatentClasses, df: float) -> Candidate:
    pairs = np.asarray((classes.components.T * classes.weights) @ classes.components)
    model = Mixture.side_by_side(schema, classes.weights, classes.components)
    return Candidate(name, model, pairs, classes.weights @ classes.components, df, SETTINGS.penalty)


def cautious_shares(
    candidates: Sequence[Candidate], products: Floats, cells: float
) -> tuple[Floats, tuple[float, float]]:
    """The shares of candidates, the fit first, and the estimated risks of the average and of the fit.

    They lie on the way from the fit to the shares of least estimated risk. The step is zero if
    the estimated gain is within `caution` standard errors, else 1 - (caution error / gain)^2 of
    the way, the shrinkage of James and Stein for an uncertain gain.
    """
    # Twins of a start in a corner may estimate negative degrees of freedom.
    df = np.maximum([c.df for c in candidates], 0.0)
    degrees = df * np.array([c.penalty for c in candidates])
    risks = np.diag(products) + 2.0 * degrees - cells
    # A small share of a bad candidate can lower chi^2 by chance, so bad ones are left out.
    limit = SETTINGS.far * max(float(risks[0]), 0.0) + math.sqrt(2.0 * cells)
    heard = np.union1d([0], np.flatnonzero(risks <= limit))
    shares = np.zeros(len(candidates))
    shares[heard] = best_shares(products[np.ix_(heard, heard)], degrees[heard])
    shares = np.where(shares > MIN_SHARE, shares, 0.0) / shares[shares > MIN_SHARE].sum()

    def risk(at: Floats) -> float:
        return float(at @ products @ at + 2.0 * at @ degrees - cells)

    own = np.eye(len(candidates))[0]
    step = shares - own
    error, gain = SETTINGS.caution * gain_error(step, products, df), risk(own) - risk(shares)
    shares = own + (1.0 - (error / gain) ** 2 if gain > error else 0.0) * step
    return shares, (risk(shares), risk(own))


def gain_error(step: Floats, products: Floats, df: Floats) -> float:
    """The standard error of the estimated gain of a step from the fit.

    The difference of two estimated risks has variance 4 (|d|^2 + tr((dd/dy)^2)), with d the
    difference of the estimates and dd/dy how it follows the data (Bellec and Zhang, Second-order
    Stein, Annals of Statistics 2021). A candidate's tr((dP/dy)^2) is taken to be its degrees of
    freedom, which bound it where it shrinks; in a small campaign this is the larger term.
    """
    return 2.0 * math.sqrt(max(float(step @ products @ step), 0.0) + float(step**2 @ df))


def _paired(targets: PairTargets) -> Flags:
    """The attributes that were asked in a pair."""
    return np.asarray((targets.pair_noise[1] > 0).any(axis=0))


def _judged(targets: PairTargets, classes: LatentClasses, one: Floats) -> LatentClasses:
    """Classes that differ only in attributes whose dependence the reports can judge."""
    keep = np.repeat(_paired(targets), targets.columns.cardinalities)
    return LatentClasses(
        classes.weights, np.where(keep, classes.components, _held(targets.columns, one))
    )


def _near(products: Floats, own: Candidate, cells: float) -> Flags:
    """Whether starts are near enough to the reports to descend from.

    A descent from far off is one more fit to the same noise, whose estimated risk is too low
    by the choice of where to stop.
    """
    risks = np.diag(products) - cells
    mine = max(float(risks[0]) + 2.0 * own.penalty * own.df, 0.0)
    return np.asarray(risks[1:] <= SETTINGS.far_start * mine + math.sqrt(2.0 * cells))


def _descended(
    targets: PairTargets,
    moved: Sequence[PairTargets],
    moved_by: float,
    weights: Weights,
    own: Candidate,
    classes: LatentClasses,
    name: str,
    rng: np.random.Generator,
) -> Candidate:
    """Descents from classes, stopped by their estimated risk.

    Twins share the start, which does not depend on the reports. Raked, it follows the one-way
    marginals of the fit, and a twin's those that moved with its data.
    """
    columns = targets.columns

    def begin(offset: Floats, one: Floats) -> Descent:
        start = _judged(targets, classes, one)
        start = raked_classes(columns, start, one) if name == RAKED else start
        return Descent(
            columns,
            np.log(np.maximum(start.components, _MIN_START)) + offset,
            np.log(np.maximum(start.weights, _MIN_START)),
        )

    reach = SETTINGS.distance * columns.spread(_paired(targets).astype(np.float64))
    offsets = [
        reach * rng.standard_normal(classes.components.shape) for _ in range(SETTINGS.starts)
    ]
    starts = [begin(offset, own.one) for offset in offsets]
    twins = [
        (begin(offset, _held(columns, own.one + data.one - targets.one)), data)
        for offset, data in zip(offsets, moved, strict=False)
    ]
    found = descend(targets, weights, starts, twins, moved_by, MixtureSettings())
    stacked = LatentClasses(found.weights, found.components)
    return _candidate(own.model.schema, name, stacked, found.degrees_of_freedom)


def _held(columns: Columns, one: Floats) -> Floats:
    """One-way marginals that are still distributions."""
    held = np.maximum(one, _MIN_SHARE_OF_VALUE)
    return np.asarray(held / columns.spread(columns.sums(held)))
