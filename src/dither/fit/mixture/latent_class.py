"""A mixture of products of rows that are public: latent classes, by expectation and maximisation.

Reference: Lazarsfeld and Henry, Latent Structure Analysis, 1968; Dempster, Laird, Rubin, JRSS B 1977. The classes are smoothed
towards the rows' one-way marginals and a little towards evenness, so that what a small table has not seen stays possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dither.compiled import compiled
from dither.fit.mixture.targets import Columns
from dither.types import Codes, Floats, Indices

MAX_CLASSES, ROWS_PER_CLASS = 100, 60
MAX_ROWS = 60_000  # that the classes are learnt from; more tell them no better
ROWS_TO_JUDGE, HELD_OUT = (
    20_000,
    5,
)  # the rows that say whether classes help, and one in how many of them is held out
TO_ONE_WAYS, TO_EVEN = 0.03, 0.001
ITERATIONS, TOLERANCE = 60, 1e-4  # of the mean log likelihood
APART = 0.5  # of the logits that the classes start from
LEAST = 1e-12


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
    components = columns.softmax(start + APART * rng.standard_normal((count, columns.width)))
    weights, last = np.full(count, 1.0 / count), -np.inf
    for _ in range(iterations):
        logs = np.ascontiguousarray(np.log(np.maximum(components, LEAST)).T)
        sums, totals = np.zeros((columns.width, count)), np.zeros(count)
        likelihood = counted_in(
            logs, np.log(np.maximum(weights, LEAST)), places, sums, totals
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
    logs = np.ascontiguousarray(np.log(np.maximum(classes.components, LEAST)).T)
    sums, totals = np.zeros((columns.width, len(classes.weights))), np.zeros(len(classes.weights))
    log_weights = np.log(np.maximum(classes.weights, LEAST))
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
            part = components[:, at] * (one[at] / np.maximum(now, LEAST))
            lines = np.maximum(part.sum(axis=1), LEAST)
            components = components.copy()
            components[:, at] = part / lines[:, None]
            weights = weights * lines
            weights = weights / weights.sum()
        if worst < 1e-6:
            break
    return LatentClasses(weights, components)
