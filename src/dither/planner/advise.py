"""From predictions to advice: which method, whether pairs can be learnt at all, and what it would take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dither.errors import ParameterError
from dither.mechanisms.probability import check_epsilon
from dither.models import Model
from dither.planner.predict import Prediction, assumed_dependence, predict, reference_population
from dither.protocols import DEFAULT, METHODS
from dither.protocols import method as find_method
from dither.schema import Schema

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

    def to_json(self) -> dict[str, Any]:
        return {
            "participants": self.participants,
            "epsilon": self.epsilon,
            "dependence": self.dependence,
            "methods": [m.to_json() for m in self.methods],
            "recommendation": self.recommendation,
            "advice": self.advice,
            "warnings": list(self.warnings),
            "needed": dict(self.needed),
        }


def plan(
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

    >>> from dither.planner import plan
    >>> from dither.schema import Attribute, Schema
    >>> schema = Schema(tuple(Attribute(name, "boolean", (False, True)) for name in "abcd"))
    >>> plan(schema, 200_000, 4.0).recommendation
    'mixture'
    """
    _check(participants, repeats)
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


def _check(participants: int, repeats: int) -> None:
    for name, value in (("participants", participants), ("repeats", repeats)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ParameterError(f"{name} must be a whole number of at least 1, not {value!r}", where=name, value=value)


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
