"""Predicts one method's error by playing its campaign on the reference population, tallies only: seconds, no data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np

from dither.errors import DitherError, ParameterError, StateError, TooFewAnswers
from dither.evaluation.metrics import tvd
from dither.models import Model
from dither.models.mixture import Mixture
from dither.protocols import method as find_method
from dither.protocols import start
from dither.schema import Schema
from dither.types import Floats
from dither.uncertainty.replicates import redraw

DEPENDENCE = {"weak": 0.25, "typical": 1.0, "strong": 1.75}  # in units of `typical_dependence`
CLASSES = 12
OWN = 0.5  # spread of a class's own preferences beside the common factor
SKEWS = (1.0, 2.5, 0.5, 2.0, 4.0)
MOST_PAIRS = 200


def typical_dependence(cardinalities: Sequence[int]) -> float:
    """0.16 sqrt(2/k) with k the geometric mean of the cardinalities: 0.16 for binary tables, 0.07 at ten values.

    An assumption, not a law: it was read off two public tables (NLTCS, all binary: 0.161; Adult, geometric mean 10: 0.074).
    Market baskets have far less (the sixteen most frequent items of the Retail data: 0.006).
    """
    mean = math.exp(sum(math.log(k) for k in cardinalities) / len(cardinalities))
    return 0.16 * math.sqrt(2.0 / mean)


def assumed_dependence(schema: Schema, dependence: str | float = "typical") -> float:
    """The mean total variation distance of a pair from independence that a word or a number stands for."""
    if isinstance(dependence, str):
        if dependence in DEPENDENCE:
            return DEPENDENCE[dependence] * typical_dependence(schema.cardinalities)
        try:
            dependence = float(dependence)
        except ValueError:
            raise ParameterError(
                f"dependence {dependence!r}: give {', '.join(DEPENDENCE)}, or a number from 0 to 0.5",
                where="dependence",
                value=dependence,
            ) from None
    if not 0 <= dependence <= 0.5:
        raise ParameterError(
            f"dependence {dependence!r}: a mean distance from independence lies from 0 to 0.5",
            where="dependence",
            value=dependence,
        )
    return float(dependence)


def reference_population(schema: Schema, dependence: float, seed: int = 0) -> Mixture:
    """A population over the schema whose pairs are `dependence` away from independence in the mean.

    The same arguments give the same population. Where no strength of the classes reaches that much dependence, it is the
    strongest there is.
    """
    rng = np.random.default_rng([seed, 0x706C616E])
    factor = np.array([NormalDist().inv_cdf((c + 0.5) / CLASSES) for c in range(CLASSES)])
    scores = [_scores(factor, k, rng) for k in schema.cardinalities]
    order = rng.permutation(len(schema))
    shares = np.sqrt(-np.log1p(-(order + 0.5) / len(schema)))
    low, high = 0.0, 16.0
    for _ in range(30 if dependence > 0 else 0):
        middle = (low + high) / 2
        if _distance(_mixture(schema, scores, shares, middle)) < dependence:
            low = middle
        else:
            high = middle
    return _mixture(schema, scores, shares, low)


def _scores(factor: Floats, values: int, rng: np.random.Generator) -> Floats:
    """How much each class favours each value: the common factor times a profile of unit spread, plus the class's own part."""
    profile = rng.standard_normal(values)
    profile = (profile - profile.mean()) / profile.std()
    return np.asarray(np.outer(factor, profile) + OWN * rng.standard_normal((len(factor), values)))


def _mixture(schema: Schema, scores: Sequence[Floats], shares: Floats, scale: float) -> Mixture:
    tables = []
    for i, score in enumerate(scores):
        base = -SKEWS[i % len(SKEWS)] * np.log(np.arange(1, score.shape[1] + 1))
        raised = np.exp(
            base + scale * shares[i] * score - (base + scale * shares[i] * score).max(axis=1, keepdims=True)
        )
        tables.append(raised / raised.sum(axis=1, keepdims=True))
    return Mixture(schema, np.full(CLASSES, 1.0 / CLASSES), tuple(tables))


def some_pairs(count: int, most: int = MOST_PAIRS) -> list[tuple[int, int]]:
    """All pairs of `count` attributes, or evenly many of them."""
    pairs = list(combinations(range(count), 2))
    return pairs if len(pairs) <= most else [pairs[i] for i in np.linspace(0, len(pairs) - 1, most).astype(int)]


def _distance(model: Mixture) -> float:
    """The mean distance of a pair from independence."""
    means = [model.weights @ table for table in model.components]
    found = []
    for i, j in some_pairs(len(means)):
        joint = (model.components[i].T * model.weights) @ model.components[j]
        found.append(0.5 * np.abs(joint - np.outer(means[i], means[j])).sum())
    return float(np.mean(found)) if found else 0.0


# A forecast needs no more than a rough fit: fewer components change the error by a few per cent and take a fraction of the time.
QUICK: Mapping[str, Mapping[str, Any]] = {"mixture": {"total": 240}}

_PRODUCT = 0  # where `_errors` keeps the error of the product of the model's own one-way marginals


@dataclass(frozen=True)
class Prediction:
    """The mean total variation distance to expect of one method, by number of attributes; why there is none otherwise.

    `without_pairs` is the two-way error of the product of the model's own one-way marginals: what it has learnt of the
    dependence shows in the difference, whatever the noise of the one-way marginals.
    """

    name: str
    tvd: Mapping[int, float] = field(default_factory=dict)
    without_pairs: float | None = None
    asks: str = ""
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"name": self.name, "tvd": {str(k): v for k, v in self.tvd.items()}, "asks": self.asks}
        if self.without_pairs is not None:
            out["tvd_without_pairs"] = self.without_pairs
        if self.reason:
            out["reason"] = self.reason
        return out


def predict(
    name: str,
    population: Model,
    participants: int,
    epsilon: float,
    *,
    parameters: Mapping[str, Any] | None = None,
    repeats: int = 1,
    seed: int = 0,
) -> Prediction:
    """The error of a method on a known population, the mean of a few simulated campaigns.

    Guarantee: reads nothing but its arguments; the same arguments give the same figures. A method that cannot be played on
    a model's marginals, or not with so few people, comes back without figures and with the reason.
    """
    schema, known = population.schema, find_method(name)
    if parameters is None:
        parameters = {k: v for k, v in QUICK.get(name, {}).items() if k in known.defaults()}
    found: list[dict[int, float]] = []
    try:
        for repeat in range(repeats):
            machine = start(name, schema, epsilon, participants, parameters, seed + repeat)
            redraw(machine, population, np.random.default_rng([seed, repeat, 0x70726564]))
            found.append(_errors(schema, population, machine.model()))
    except (ParameterError, StateError, TooFewAnswers) as error:
        return Prediction(name, asks=known.asks, reason=_one_line(error))
    means = {ways: float(np.mean([f[ways] for f in found])) for ways in found[0]}
    return Prediction(name, means, means.pop(_PRODUCT, None), known.asks)


def _errors(schema: Schema, truth: Model, model: Model) -> dict[int, float]:
    singles = [tvd(truth.marginal([n]), model.marginal([n])) for n in schema.names]
    pairs = [[schema.names[i], schema.names[j]] for i, j in some_pairs(len(schema))]
    out = {1: float(np.mean(singles))}
    if pairs:
        own = {n: model.marginal([n]) for n in schema.names}
        exact = [truth.marginal(p) for p in pairs]
        out[2] = float(np.mean([tvd(t, model.marginal(p)) for t, p in zip(exact, pairs, strict=True)]))
        out[_PRODUCT] = float(
            np.mean([tvd(t, np.outer(own[a], own[b])) for t, (a, b) in zip(exact, pairs, strict=True)])
        )
    return out


def _one_line(error: DitherError) -> str:
    return " ".join(str(error).split())
