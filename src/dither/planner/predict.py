"""Predicts one method's error by playing its campaign on the reference population, tallies only: seconds, no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dither.errors import DitherError, ParameterError, StateError, TooFewAnswers
from dither.evaluate.metrics import tvd
from dither.evaluate.redraw import redraw
from dither.models import Model
from dither.planner.reference import some_pairs
from dither.protocols import method as find_method
from dither.protocols import start
from dither.schema import Schema

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
