"""The made-up population that campaigns are played on before anybody is asked, and how strongly its attributes depend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist

import numpy as np

from dither.checks import check_between
from dither.errors import ParameterError
from dither.fit.mixture.latent_class import latent_classes
from dither.fit.mixture.model import Mixture
from dither.fit.mixture.targets import Columns
from dither.schema import Schema
from dither.types import Codes, Floats

DEPENDENCE = {"weak": 0.25, "typical": 1.0, "strong": 1.75}  # in units of `typical_dependence`
CLASSES = 12
OWN = 0.5  # spread of a class's own preferences beside the common factor
SKEWS = (1.0, 2.5, 0.5, 2.0, 4.0)
MAX_PAIRS = 200
MAX_CELLS = 1 << 20  # of a pair whose tables are held whole


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
    return float(check_between("dependence", dependence, 0, 0.5))


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


def population_of(schema: Schema, codes: Codes, seed: int = 0) -> tuple[Mixture, float]:
    """The population that a public table is taken to be a sample of: its latent classes; and how far their pairs are from
    independence in the mean."""
    columns = Columns(schema.cardinalities)
    found = latent_classes(columns, codes, np.random.default_rng([seed, 0x706F70]))
    tables = np.split(found.components, np.cumsum(schema.cardinalities)[:-1], axis=1)
    model = Mixture(schema, found.weights, tuple(np.ascontiguousarray(table) for table in tables))
    return model, _distance(model)


def _scores(factor: Floats, values: int, rng: np.random.Generator) -> Floats:
    """How much each class favours each value: the common factor times a profile of unit spread, plus the class's own part."""
    profile = rng.standard_normal(values)
    profile = (profile - profile.mean()) / profile.std()
    return np.asarray(np.outer(factor, profile) + OWN * rng.standard_normal((len(factor), values)))


def _mixture(schema: Schema, scores: Sequence[Floats], shares: Floats, scale: float) -> Mixture:
    tables = []
    for i, score in enumerate(scores):
        base = -SKEWS[i % len(SKEWS)] * np.log(np.arange(1, score.shape[1] + 1))
        exponents = base + scale * shares[i] * score
        raised = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        tables.append(raised / raised.sum(axis=1, keepdims=True))
    return Mixture(schema, np.full(CLASSES, 1.0 / CLASSES), tuple(tables))


def some_pairs(cardinalities: Sequence[int], most: int = MAX_PAIRS) -> list[tuple[int, int]]:
    """All pairs of attributes, or evenly many of them; those with very many cells only where there are no others."""
    pairs = list(combinations(range(len(cardinalities)), 2))
    cells = {(i, j): cardinalities[i] * cardinalities[j] for i, j in pairs}
    narrow = [pair for pair in pairs if cells[pair] <= MAX_CELLS]
    if pairs and not narrow:
        least = min(cells.values())
        if least > 16 * MAX_CELLS:
            raise ParameterError(
                f"every pair of these attributes has {least:,} cells or more, too many to play; give them fewer or coarser values",
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
    for i, j in some_pairs([len(mean) for mean in means]):
        joint = (model.components[i].T * model.weights) @ model.components[j]
        found.append(0.5 * np.abs(joint - np.outer(means[i], means[j])).sum())
    return float(np.mean(found)) if found else 0.0
