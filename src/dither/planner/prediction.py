"""Predict a method's error by simulating its campaign on a reference population, without data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import NormalDist

import numpy as np

from dither.checks import check_between
from dither.errors import ParameterError, StateError, TooFewAnswers
from dither.evaluation.metrics import tvd
from dither.fit import Model
from dither.fit.mixture.model import Mixture
from dither.fit.mixture.public_prior import latent_classes
from dither.fit.mixture.targets import Columns
from dither.methods import method as find_method
from dither.methods import start
from dither.methods.prior import PublicRows
from dither.release.replicates import redraw
from dither.schema import Schema
from dither.types import Codes, Floats, JsonMapping, JsonObject

# In units of `_typical_dependence`.
_DEPENDENCE = {"weak": 0.25, "typical": 1.0, "strong": 1.75}
_CLASSES = 12
# Standard deviation of a class's preferences around the common factor.
_CLASS_SPREAD = 0.5
_SKEWS = (1.0, 2.5, 0.5, 2.0, 4.0)
_MAX_PAIRS = 200
# Pairs with more cells are left out where others exist.
_MAX_CELLS = 1 << 20


def _typical_dependence(cardinalities: Sequence[int]) -> float:
    """The assumed mean distance of a pair from independence: 0.16 sqrt(2/k).

    k is the geometric mean of the cardinalities. The rule interpolates two public tables
    (NLTCS, all binary: 0.161; Adult, geometric mean 10: 0.074). Market baskets have far less
    (the sixteen most frequent items of the Retail data: 0.006).
    """
    mean = math.exp(sum(math.log(k) for k in cardinalities) / len(cardinalities))
    return 0.16 * math.sqrt(2.0 / mean)


def assumed_dependence(schema: Schema, dependence: str | float = "typical") -> float:
    """A word or number as the mean total variation distance of a pair from independence."""
    if isinstance(dependence, str):
        if dependence in _DEPENDENCE:
            return _DEPENDENCE[dependence] * _typical_dependence(schema.cardinalities)
        try:
            dependence = float(dependence)
        except ValueError:
            raise ParameterError(
                f"dependence {dependence!r}: give {', '.join(_DEPENDENCE)}, or a number from 0 to 0.5",
                where="dependence",
                value=dependence,
            ) from None
    return float(check_between("dependence", dependence, 0, 0.5))


def reference_population(schema: Schema, dependence: float, seed: int = 0) -> Mixture:
    """A population over the schema with a given mean distance of a pair from independence.

    It is deterministic. If the distance cannot be reached, the population has the largest
    distance possible.
    """
    rng = np.random.default_rng([seed, 0x706C616E])
    factor = np.array([NormalDist().inv_cdf((c + 0.5) / _CLASSES) for c in range(_CLASSES)])
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


def population_of(schema: Schema, codes: Codes, seed: int = 0) -> tuple[Mixture, float]:
    """The latent classes of a public table, and their mean distance from independence."""
    columns = Columns(schema.cardinalities)
    found = latent_classes(columns, codes, np.random.default_rng([seed, 0x706F70]))
    tables = np.split(found.components, np.cumsum(schema.cardinalities)[:-1], axis=1)
    model = Mixture(schema, found.weights, tuple(np.ascontiguousarray(table) for table in tables))
    return model, _distance(model)


def _scores(factor: Floats, values: int, rng: np.random.Generator) -> Floats:
    """Scores of each class and value: common factor times a profile, plus a part per class."""
    profile = rng.standard_normal(values)
    profile = (profile - profile.mean()) / profile.std()
    return np.asarray(
        np.outer(factor, profile) + _CLASS_SPREAD * rng.standard_normal((len(factor), values))
    )


def _mixture(schema: Schema, scores: Sequence[Floats], shares: Floats, scale: float) -> Mixture:
    tables = []
    for i, score in enumerate(scores):
        base = -_SKEWS[i % len(_SKEWS)] * np.log(np.arange(1, score.shape[1] + 1))
        exponents = base + scale * shares[i] * score
        raised = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        tables.append(raised / raised.sum(axis=1, keepdims=True))
    return Mixture(schema, np.full(_CLASSES, 1.0 / _CLASSES), tuple(tables))


def _some_pairs(cardinalities: Sequence[int], most: int = _MAX_PAIRS) -> list[tuple[int, int]]:
    """At most `most` pairs of attributes, evenly spread; very wide pairs only if all are wide."""
    pairs = list(combinations(range(len(cardinalities)), 2))
    cells = {(i, j): cardinalities[i] * cardinalities[j] for i, j in pairs}
    narrow = [pair for pair in pairs if cells[pair] <= _MAX_CELLS]
    if pairs and not narrow:
        least = min(cells.values())
        if least > 16 * _MAX_CELLS:
            raise ParameterError(
                f"every pair of these attributes has {least:,} cells or more, "
                "too many to simulate; give them fewer or coarser values",
                where="schema",
            )
        narrow = [min(pairs, key=lambda pair: cells[pair])]
    pairs = narrow
    return (
        pairs
        if len(pairs) <= most
        else [pairs[i] for i in np.linspace(0, len(pairs) - 1, most).astype(int)]
    )


def _distance(model: Mixture) -> float:
    """The mean distance of a pair from independence."""
    means = [model.weights @ table for table in model.components]
    found = []
    for i, j in _some_pairs([len(mean) for mean in means]):
        joint = (model.components[i].T * model.weights) @ model.components[j]
        found.append(0.5 * np.abs(joint - np.outer(means[i], means[j])).sum())
    return float(np.mean(found)) if found else 0.0


# A rough fit is enough for a forecast: fewer components change the error by a few per cent and
# take a third of the time (tests/planner).
_QUICK: Mapping[str, JsonMapping] = {"mixture": {"total": 120, "components": 40}}
_MIN_REPEATS, MAX_REPEATS = 2, 5
# Campaigns are repeated until the standard error of the mean is below this share of it.
_TARGET_PRECISION = 0.03
# More rows of a public table take longer and hardly change the error.
MAX_PUBLIC_ROWS = 20_000
# Key of `_errors` for the product of the model's one-way marginals.
_PRODUCT = 0
# Half-width of a 95 % interval in standard errors.
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Prediction:
    """The expected error of one method.

    Attributes:
        name: The method.
        tvd: Mean total variation distance by number of attributes; empty if the method could
            not be simulated.
        without_pairs: Two-way error of the product of the model's one-way marginals. The
            difference from `tvd[2]` is the gain from learning dependence.
        asks: What the method asks of a participant.
        reason: Why there are no figures.
        without_prior: The errors without the public table, if the method uses one.
        prior_used: Share of the simulated campaigns whose result the public table changed.
        half_width: By number of attributes, 1.96 times the root mean square error of a
            share. Within an attribute or a pair, values count by the people who have them.
    """

    name: str
    tvd: Mapping[int, float] = field(default_factory=dict)
    without_pairs: float | None = None
    asks: str = ""
    reason: str = ""
    without_prior: Mapping[int, float] | None = None
    prior_used: float | None = None
    half_width: Mapping[int, float] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """Plain JSON values."""
        out: JsonObject = {
            "name": self.name,
            "tvd": {str(k): v for k, v in self.tvd.items()},
            "asks": self.asks,
            "half_width": {str(k): v for k, v in self.half_width.items()},
        }
        if self.without_pairs is not None:
            out["tvd_without_pairs"] = self.without_pairs
        if self.without_prior is not None:
            out["tvd_without_prior"] = {str(k): v for k, v in self.without_prior.items()}
        if self.prior_used is not None:
            out["prior_used"] = self.prior_used
        if self.reason:
            out["reason"] = self.reason
        return out


def predict(
    name: str,
    population: Model,
    participants: int,
    epsilon: float,
    *,
    parameters: JsonMapping | None = None,
    repeats: int | None = 1,
    seed: int = 0,
    public_rows: int = 0,
) -> Prediction:
    """Predict the error of a method on a known population by simulating campaigns.

    The result depends on the arguments only.

    Args:
        name: A method.
        population: The model that the participants are drawn from.
        participants: Number of participants.
        epsilon: Guarantee of one participant's whole record.
        parameters: The method's parameters; by default those of a quick fit.
        repeats: Simulated campaigns; None for two to five, until the mean is precise enough.
        seed: Seed of the simulation.
        public_rows: Rows of the public table that each campaign draws from the population
            and uses as prior; 0 for none.

    Returns:
        The mean errors. If the method cannot be simulated on marginals, or not with so few
        participants, the prediction has a reason instead.
    """
    schema, known = population.schema, find_method(name)
    if parameters is None:
        parameters = {k: v for k, v in _QUICK.get(name, {}).items() if k in known.defaults()}
    found: list[dict[int, float]] = []
    squares: list[dict[int, float]] = []
    used: list[bool] = []
    try:
        for repeat in range(repeats or MAX_REPEATS):
            if repeats is None and _precise(found):
                break
            run = start(name, schema, epsilon, participants, parameters, seed + repeat)
            redraw(run, population, np.random.default_rng([seed, repeat, 0x70726564]))
            if public_rows:
                rows = population.sample(
                    public_rows, np.random.default_rng([seed, repeat, 0x7075626C])
                )
                run.give_prior(PublicRows(rows, "a public table", ""))
            model = run.model()
            found.append(_errors(schema, population, model))
            squares.append(_squared_errors(schema, population, model))
            if public_rows:
                used.append(run.diagnostics().share_of_prior > 0)
    except (ParameterError, StateError, TooFewAnswers) as error:
        return Prediction(name, asks=known.asks, reason=" ".join(str(error).split()))
    means = {ways: float(np.mean([f[ways] for f in found])) for ways in found[0]}
    share = float(np.mean(used)) if used else None
    half_width = {
        ways: _Z * math.sqrt(float(np.mean([each[ways] for each in squares])))
        for ways in squares[0]
    }
    return Prediction(
        name,
        means,
        means.pop(_PRODUCT, None),
        known.asks,
        prior_used=share,
        half_width=half_width,
    )


def _precise(found: list[dict[int, float]]) -> bool:
    """Whether the mean is precise enough."""
    if len(found) < _MIN_REPEATS:
        return False
    last = [f[max(f)] for f in found]
    return bool(
        float(np.std(last, ddof=1)) / len(last) ** 0.5 <= _TARGET_PRECISION * float(np.mean(last))
    )


def _errors(schema: Schema, truth: Model, model: Model) -> dict[int, float]:
    singles = [tvd(truth.marginal([n]), model.marginal([n])) for n in schema.names]
    pairs = [[schema.names[i], schema.names[j]] for i, j in _some_pairs(schema.cardinalities)]
    out = {1: float(np.mean(singles))}
    if pairs:
        single = {n: model.marginal([n]) for n in schema.names}
        exact = [truth.marginal(p) for p in pairs]
        out[2] = float(
            np.mean([tvd(t, model.marginal(p)) for t, p in zip(exact, pairs, strict=True)])
        )
        out[_PRODUCT] = float(
            np.mean(
                [
                    tvd(t, np.outer(single[a], single[b]))
                    for t, (a, b) in zip(exact, pairs, strict=True)
                ]
            )
        )
    return out


def _squared_errors(schema: Schema, truth: Model, model: Model) -> dict[int, float]:
    """The mean squared error of a share, by number of attributes.

    A value counts by its true share. Otherwise the many rare values of a wide attribute,
    which a fit sets to zero, would hide the error of the values that people have.
    """
    singles = [[name] for name in schema.names]
    pairs = [[schema.names[i], schema.names[j]] for i, j in _some_pairs(schema.cardinalities)]
    out = {}
    for ways, sets in ((1, singles), (2, pairs)):
        squares = []
        for attributes in sets:
            exact = truth.marginal(attributes)
            squares.append(float((exact * (model.marginal(attributes) - exact) ** 2).sum()))
        if squares:
            out[ways] = float(np.mean(squares))
    return out
