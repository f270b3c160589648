"""What a collection can be expected to give, before anybody is asked: from the schema, the participants and epsilon alone.

A method's error is predicted by playing its campaign on a made-up reference population, tallies only: seconds, and no data. From
the predictions follows a forecast: which method, whether pairs can be learnt at all, and what it would take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import combinations
from statistics import NormalDist

import numpy as np

from dither.checks import check_between, check_whole
from dither.errors import ParameterError, StateError, TooFewAnswers
from dither.evaluation.metrics import tvd
from dither.mechanisms.probability import check_epsilon
from dither.models import Model
from dither.models.mixture import Mixture
from dither.protocols import DEFAULT, METHODS, start
from dither.protocols import method as find_method
from dither.schema import Schema
from dither.types import Floats, JsonMapping, JsonObject
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
QUICK: Mapping[str, JsonMapping] = {"mixture": {"total": 240}}

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

    def to_json(self) -> JsonObject:
        """Plain JSON values."""
        out: JsonObject = {"name": self.name, "tvd": {str(k): v for k, v in self.tvd.items()}, "asks": self.asks}
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
    parameters: JsonMapping | None = None,
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
        return Prediction(name, asks=known.asks, reason=" ".join(str(error).split()))
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


BASELINE = "independent"
PREDICTED = (DEFAULT, BASELINE)  # the others take longer and are played when named
NOISE = 0.95  # pairs teach nothing if the error stays above this share of what one-way marginals alone give
LEARNT = 0.9  # and something below this one; the gap keeps the advice from hanging on one draw
TIE = 1.03
ROUGH = 0.1
MOST_PARTICIPANTS = 50_000_000  # simulated; more people only lower the error
MOST_EPSILON = 12.0


@dataclass(frozen=True)
class Forecast:
    """What a collection of this schema, so many participants and this epsilon can be expected to give.

    `dependence` is the assumed mean distance of a pair from independence: the two-way error of a product of exact one-way
    marginals. `needed` holds the participants (at this epsilon) and the epsilon (with these participants) from which pairs
    begin to be learnt, where they are not; None where nothing in reach does.
    """

    participants: int
    epsilon: float
    dependence: float
    methods: tuple[Prediction, ...]
    recommendation: str
    advice: str
    warnings: tuple[str, ...]
    needed: Mapping[str, float | None]

    def to_json(self) -> JsonObject:
        """Plain values, as `dither plan` prints them."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**own, "methods": [m.to_json() for m in self.methods], "warnings": list(self.warnings)}


def forecast(
    schema: Schema,
    participants: int,
    epsilon: float,
    *,
    dependence: str | float = "typical",
    methods: Sequence[str] | None = None,
    repeats: int = 5,
    seed: int = 0,
) -> Forecast:
    """Predict the mean 1-way and 2-way total variation distance of methods and say what to do.

    Reads public facts only. `dependence` is what nobody knows beforehand: weak, typical, strong, or the mean distance of a
    pair from independence. Without `methods` the default method and the baseline get figures; the others are listed.

    >>> import dither
    >>> schema = dither.Schema(tuple(dither.Attribute(name, "boolean", (False, True)) for name in "abcd"))
    >>> dither.forecast(schema, 200_000, 4.0).recommendation
    'mixture'
    """
    check_whole("participants", participants, 1)
    check_whole("repeats", repeats, 1)
    check_epsilon(epsilon)
    played = list(dict.fromkeys([*(methods or PREDICTED), BASELINE]))
    for name in played:
        find_method(name)
    amount = assumed_dependence(schema, dependence)
    population = reference_population(schema, amount, seed)
    people = min(participants, MOST_PARTICIPANTS)

    found = {name: predict(name, population, people, epsilon, repeats=repeats, seed=seed) for name in played}
    listed = [
        found.get(name) or Prediction(name, asks=METHODS[name].asks, reason="not played; name it to have it predicted")
        for name in dict.fromkeys([*METHODS, *played])
    ]
    ranked = sorted((p for p in found.values() if p.tvd), key=_error)
    if not ranked:
        reasons = "; ".join(p.reason for p in found.values())
        raise ParameterError(f"no method can be played with {participants:,} participants: {reasons}")
    noise = _pairs_are_noise(found)
    best = _recommended(ranked, noise)
    needed: dict[str, float | None] = {"participants": None, "epsilon": None}
    if noise and amount > 0:
        needed = _needed(population, people, epsilon, played, seed)
    warnings = _warnings(schema, participants, best, found, noise, needed)
    return Forecast(
        participants, float(epsilon), amount, tuple(listed), best.name, _advice(best, found, noise), warnings, needed
    )


def _error(prediction: Prediction) -> float:
    return prediction.tvd[max(prediction.tvd)]


def _recommended(ranked: Sequence[Prediction], noise: bool) -> Prediction:
    """The least two-way error; the default method where it is as good, the baseline where pairs are noise."""
    if noise:
        return next((p for p in ranked if p.name == BASELINE), ranked[0])
    close = [p for p in ranked if _error(p) <= TIE * _error(ranked[0])]
    return next((p for p in close if p.name == DEFAULT), ranked[0])


def _pairs_are_noise(found: Mapping[str, Prediction], bar: float = NOISE) -> bool:
    """Whether no method gets below `bar` of what its own one-way marginals would give, and below the baseline."""
    baseline = found[BASELINE].tvd.get(2, math.inf)
    rivals = [p for name, p in found.items() if name != BASELINE and p.without_pairs is not None]
    return bool(rivals) and not any(
        p.tvd[2] <= bar * p.without_pairs and p.tvd[2] <= baseline for p in rivals if p.without_pairs is not None
    )


def _needed(
    population: Model, participants: int, epsilon: float, methods: Sequence[str], seed: int
) -> dict[str, float | None]:
    """From how many participants on, and from which epsilon on, a method gains by asking pairs."""

    def learnt(people: int, eps: float) -> bool:
        found = {m: predict(m, population, people, eps, repeats=1, seed=seed) for m in methods}
        return not _pairs_are_noise(found, LEARNT)

    people = least(lambda n: learnt(round(n), epsilon), participants, MOST_PARTICIPANTS, 4.0)
    eps = least(lambda e: learnt(participants, e), epsilon, max(MOST_EPSILON, epsilon), 1.6)
    return {
        "participants": None if people is None else _rounded(people),
        "epsilon": None if eps is None else round(eps, 2),
    }


def least(
    holds: Callable[[float], bool], start: float, stop: float, factor: float, precision: float = 1.2
) -> float | None:
    """The least value from `start` to `stop`, within a factor `precision`, at which a condition that stays true holds.

    Steps by `factor` until it holds, then bisects on the logarithm; the value given is one at which it held.
    """
    low, high = start, min(start * factor, stop)
    while not holds(high):
        if high >= stop:
            return None
        low, high = high, min(high * factor, stop)
    while high / low > precision:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _rounded(number: float) -> int:
    """Two digits, rounded up: more would pretend."""
    step = 10 ** max(math.floor(math.log10(number)) - 1, 0)
    return int(math.ceil(number / step) * step)


def _advice(best: Prediction, found: Mapping[str, Prediction], noise: bool) -> str:
    if 2 not in best.tvd:
        return f"Use {best.name}: there is one attribute, so only its own distribution matters."
    if noise:
        return (
            f"Use {best.name} and read one-way figures only: expect them to be off by {best.tvd[1]:.3f} in total variation. "
            "Dependence between attributes cannot be learnt here."
        )
    baseline = found[BASELINE].tvd[2]
    kept = f", against {baseline:.3f} without asking pairs" if best.name != BASELINE else ""
    return f"Use {best.name}: pairs can be learnt, with an expected two-way error of {best.tvd[2]:.3f}{kept}."


def _warnings(
    schema: Schema,
    participants: int,
    best: Prediction,
    found: Mapping[str, Prediction],
    noise: bool,
    needed: Mapping[str, float | None],
) -> tuple[str, ...]:
    out = []
    if noise:
        ways = []
        if needed["participants"] is not None:
            ways.append(f"about {needed['participants']:,.0f} participants at this epsilon")
        if needed["epsilon"] is not None:
            ways.append(f"an epsilon of about {needed['epsilon']:g} with these participants")
        remedy = f"{' or '.join(ways)} would change that" if ways else "no number of participants in reach changes that"
        out.append(f"pairs would be pure noise; {remedy}, and so would fewer or coarser attributes")
    if best.tvd[1] > ROUGH:
        out.append(
            f"even the distribution of a single attribute would be off by {best.tvd[1]:.2f} in total variation (0 is exact, 1 is "
            "nothing in common)"
        )
    if participants > MOST_PARTICIPANTS:
        out.append(f"figures are those of {MOST_PARTICIPANTS:,} participants; more people only lower the errors")
    if any(not p.tvd for p in found.values()):
        missing = ", ".join(f"{p.name} ({p.reason})" for p in found.values() if not p.tvd)
        out.append(f"no figures for {missing}")
    if len(schema) > 1 and not noise and best.tvd[2] > 0.3:
        out.append("two-way figures would be off by a third or more; take them as hints, not as results")
    return tuple(out)
