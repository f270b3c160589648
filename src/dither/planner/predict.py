"""A method's error on a known population, by playing its campaign: tallies only, seconds, and no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dither.errors import ParameterError, StateError, TooFewAnswers
from dither.evaluation.metrics import tvd
from dither.fit import Model
from dither.methods import method as find_method
from dither.methods import start
from dither.methods.prior import PublicRows
from dither.planner.population import some_pairs
from dither.release.replicates import redraw
from dither.schema import Schema
from dither.types import JsonMapping, JsonObject

# A forecast needs no more than a rough fit: fewer components, and larger sets through their pairs only, change the error by a few
# per cent and take a tenth of the time (tests/planner).
QUICK: Mapping[str, JsonMapping] = {"mixture": {"total": 120, "components": 40, "tables": "never"}}
MIN_REPEATS, MAX_REPEATS = 2, 5
SETTLED = 0.03  # a mean whose standard error is below this share of it needs no further campaign

MAX_PUBLIC_ROWS = 20_000  # of a public table that a played campaign learns from: more take longer and tell little more

_PRODUCT = 0  # where `_errors` keeps the error of the product of the model's own one-way marginals


@dataclass(frozen=True)
class Prediction:
    """The mean total variation distance to expect of one method, by number of attributes; why there is none otherwise.

    `without_pairs` is the two-way error of the product of the model's own one-way marginals: what it has learnt of the
    dependence shows in the difference, whatever the noise of the one-way marginals. `without_prior` are the errors without the
    public table that was given, where the method has a use for one, and `prior_used` is the share of the played campaigns in which
    that table had a part in the result.
    """

    name: str
    tvd: Mapping[int, float] = field(default_factory=dict)
    without_pairs: float | None = None
    asks: str = ""
    reason: str = ""
    without_prior: Mapping[int, float] | None = None
    prior_used: float | None = None

    def to_json(self) -> JsonObject:
        """Plain JSON values."""
        out: JsonObject = {
            "name": self.name,
            "tvd": {str(k): v for k, v in self.tvd.items()},
            "asks": self.asks,
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
    """The error of a method on a known population, the mean of a few simulated campaigns (None: as many as it takes, two to five).

    With `public_rows` each campaign knows a public table of so many rows of the same population, drawn anew for each.

    Guarantee: reads nothing but its arguments; the same arguments give the same figures. A method that cannot be played on
    a model's marginals, or not with so few people, comes back without figures and with the reason.
    """
    schema, known = population.schema, find_method(name)
    if parameters is None:
        parameters = {k: v for k, v in QUICK.get(name, {}).items() if k in known.defaults()}
    found: list[dict[int, float]] = []
    used: list[bool] = []
    try:
        for repeat in range(repeats or MAX_REPEATS):
            if repeats is None and _settled(found):
                break
            run = start(name, schema, epsilon, participants, parameters, seed + repeat)
            redraw(run, population, np.random.default_rng([seed, repeat, 0x70726564]))
            if public_rows:
                rows = population.sample(
                    public_rows, np.random.default_rng([seed, repeat, 0x7075626C])
                )
                run.give_prior(PublicRows(rows, "a public table", ""))
            found.append(_errors(schema, population, run.model()))
            if public_rows:
                used.append(run.notes()["prior"]["share_of_prior"] > 0)
    except (ParameterError, StateError, TooFewAnswers) as error:
        return Prediction(name, asks=known.asks, reason=" ".join(str(error).split()))
    means = {ways: float(np.mean([f[ways] for f in found])) for ways in found[0]}
    share = float(np.mean(used)) if used else None
    return Prediction(name, means, means.pop(_PRODUCT, None), known.asks, prior_used=share)


def _settled(found: list[dict[int, float]]) -> bool:
    """Whether more campaigns would hardly move the mean."""
    if len(found) < MIN_REPEATS:
        return False
    last = [f[max(f)] for f in found]
    return bool(float(np.std(last, ddof=1)) / len(last) ** 0.5 <= SETTLED * float(np.mean(last)))


def _errors(schema: Schema, truth: Model, model: Model) -> dict[int, float]:
    singles = [tvd(truth.marginal([n]), model.marginal([n])) for n in schema.names]
    pairs = [[schema.names[i], schema.names[j]] for i, j in some_pairs(schema.cardinalities)]
    out = {1: float(np.mean(singles))}
    if pairs:
        own = {n: model.marginal([n]) for n in schema.names}
        exact = [truth.marginal(p) for p in pairs]
        out[2] = float(
            np.mean([tvd(t, model.marginal(p)) for t, p in zip(exact, pairs, strict=True)])
        )
        out[_PRODUCT] = float(
            np.mean(
                [tvd(t, np.outer(own[a], own[b])) for t, (a, b) in zip(exact, pairs, strict=True)]
            )
        )
    return out
