"""What a collection can be expected to give, before anybody is asked: from the schema, the participants and epsilon alone.

A method's error is predicted by playing its campaign on a made-up reference population. From the predictions follows a forecast:
which method, whether pairs can be learnt at all, and what it would take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from dither.checks import check_whole
from dither.datasets import schema_of
from dither.display import Picture
from dither.errors import ParameterError
from dither.fit import Model
from dither.mechanisms import check_epsilon
from dither.methods import DEFAULT
from dither.methods import method as find_method
from dither.methods import methods as all_methods
from dither.methods.prior import PublicRows
from dither.notice import certainty, weak_protection
from dither.planner.population import assumed_dependence, population_of, reference_population
from dither.planner.predict import MAX_PUBLIC_ROWS, Prediction, predict
from dither.release.prior import read_prior
from dither.schema import Schema
from dither.types import JsonObject, NativeTable

BASELINE = "independent"
ROUGH = 0.1
LITTLE = 0.95  # of the error without a prior
HINTS = 0.3  # two-way errors above this are hints and no results
MAX_PARTICIPANTS = 50_000_000  # simulated; more people only lower the error
MAX_EPSILON = 12.0

# alone: one attribute; learnt: some method gains by asking pairs; noise: none does; nothing: none could be played, so nobody
# knows; independent: there is no dependence by assumption
Verdict = Literal["alone", "learnt", "noise", "nothing", "independent"]


def advice(best: Prediction, found: Mapping[str, Prediction], verdict: Verdict) -> str:
    """What to do, in a sentence or two."""
    singles = f"expect them to be off by {best.tvd[1]:.3f} in total variation."
    if verdict == "alone":
        return f"Use {best.name}: there is one attribute, so only its own distribution matters."
    if verdict == "nothing":
        reasons = "; ".join(f"{p.name}: {p.reason}" for p in found.values() if not p.tvd)
        why = f" ({reasons})" if reasons else ""
        return (
            f"Use {best.name} and read one-way figures only: {singles} Whether dependence between attributes can be learnt is "
            f"not known, as no method that asks pairs could be played{why}."
        )
    if verdict == "independent":
        return f"Use {best.name}: attributes are assumed independent, so one-way figures are all there is; {singles}"
    if verdict == "noise":
        unused = " The prior would not help: where pairs are not learnt, nothing could tell whether it is right."
        given = any(p.without_prior is not None for p in found.values())
        return (
            f"Use {best.name} and read one-way figures only: {singles} Dependence between attributes cannot be learnt here."
            f"{unused if given else ''}"
        )
    baseline = found[BASELINE].tvd[2] if found[BASELINE].tvd else None
    kept = "" if baseline is None else f", against {baseline:.3f} without asking pairs"
    return f"Use {best.name}: pairs can be learnt, with an expected two-way error of {best.tvd[2]:.3f}{kept}.{_helped(best)}"


def _helped(best: Prediction) -> str:
    """What a public table brings, if one was given."""
    if best.without_prior is None or 2 not in best.without_prior:
        return ""
    alone = best.without_prior[2]
    if best.tvd[2] > LITTLE * alone:
        return f" The prior brings little: the error without it would be {alone:.3f}."
    return (
        f" Without the prior the error would be {alone:.3f}, so the prior is worth having if its people are like the participants; "
        "the more they differ, the less it brings."
    )


def warnings(
    schema: Schema,
    participants: int,
    best: Prediction,
    found: Mapping[str, Prediction],
    verdict: Verdict,
    needed: Mapping[str, float | None],
) -> tuple[str, ...]:
    """What a planner has to know before deciding, a sentence each without its full stop."""
    out = []
    if verdict == "noise":
        out.append(f"pairs would be pure noise; {_remedy(needed)}")
    if best.tvd[1] > ROUGH:
        out.append(
            f"even the distribution of a single attribute would be off by {best.tvd[1]:.2f} in total variation (0 is exact, 1 is "
            f"nothing in common); {_widest(schema)}"
        )
    out += [
        f"in {1 - p.prior_used:.0%} of the played campaigns {p.name} found too little dependence to ask pairs, or could not tell "
        "that the prior is right, and made no use of it: expect either that or the gain, not the mean of both"
        for p in found.values()
        if p.prior_used is not None and 0 < p.prior_used < 1
    ]
    if participants > MAX_PARTICIPANTS:
        out.append(
            f"figures are those of {MAX_PARTICIPANTS:,} participants; more people only lower the errors"
        )
    if verdict != "nothing" and any(not p.tvd for p in found.values()):
        missing = ", ".join(f"{p.name} ({p.reason})" for p in found.values() if not p.tvd)
        out.append(f"no figures for {missing}")
    if verdict == "learnt" and best.tvd[2] > HINTS:
        out.append(
            f"two-way figures would be off by {best.tvd[2]:.2f} in the mean; take them as hints, not as results"
        )
    return tuple(out)


def _remedy(needed: Mapping[str, float | None]) -> str:
    """What would let pairs be learnt; fewer or coarser attributes always help, the rest only where it was found."""
    ways = []
    if needed["participants"] is not None:
        ways.append(f"about {needed['participants']:,.0f} participants at this epsilon")
    if needed["epsilon"] is not None:
        ways.append(f"an epsilon of about {needed['epsilon']:g} with these participants")
    if ways:
        return f"{' or '.join(ways)} would change that, and so would fewer or coarser attributes"
    return (
        f"neither {MAX_PARTICIPANTS:,} participants nor an epsilon of {MAX_EPSILON:g} changes that; only fewer or coarser "
        "attributes can"
    )


def _widest(schema: Schema) -> str:
    """Where to begin: the attribute with the most values."""
    widest = max(schema, key=lambda attribute: attribute.cardinality)
    fewer = ", or ask fewer attributes" if len(schema) > 1 else ""
    return f"{widest.name} has {widest.cardinality:,} values; give it fewer or coarser ones{fewer}"


PREDICTED = (DEFAULT, BASELINE)  # the others take longer and are played when named
NOISE = 0.95  # pairs teach nothing if the error stays above this share of what one-way marginals alone give
LEARNT = 0.9  # and something below this one; the gap keeps the advice from hanging on one draw
TIE = 1.03
WIDE = 1000  # values of all attributes together
NOT_PLAYED = "not predicted, as that takes longer; name it to have it predicted"
STEPS = (-2, -1, 1, 2)  # powers of four times the participants, at which a curve has points beside


@dataclass(frozen=True)
class Point:
    """The errors of a method with so many participants, all else as in the forecast."""

    method: str
    participants: int
    tvd: Mapping[int, float]

    def to_json(self) -> JsonObject:
        """Plain values."""
        return {
            "method": self.method,
            "participants": self.participants,
            "tvd": {str(k): v for k, v in self.tvd.items()},
        }


@dataclass(frozen=True)
class Forecast:
    """What a collection of this schema, so many participants and this epsilon can be expected to give.

    `dependence` is the mean distance of a pair from independence, assumed or as `prior`, the public table, has it: the two-way
    error of a product of exact one-way marginals. `needed` holds the participants (at this epsilon) and the epsilon (with these
    participants) from which pairs begin to be learnt, where they are not; None where nothing in reach does. `points` are the
    errors with fewer and with more participants, where a curve was asked for.

    >>> import dither
    >>> expected = dither.forecast("adult", 45_000, 1.0, methods=["independent"], repeats=1)
    >>> expected.recommendation, expected.methods[1].tvd[1] > 0.05
    ('independent', True)
    """

    participants: int
    epsilon: float
    dependence: float
    methods: tuple[Prediction, ...]
    recommendation: str
    advice: str
    warnings: tuple[str, ...]
    needed: Mapping[str, float | None]
    points: tuple[Point, ...] = ()
    prior: str | None = None

    def to_json(self) -> JsonObject:
        """Plain values, as `dither plan --json` prints them."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        lists = {
            "methods": [m.to_json() for m in self.methods],
            "points": [p.to_json() for p in self.points],
        }
        return {
            **own,
            **lists,
            "certainty": certainty(self.epsilon),
            "warnings": list(self.warnings),
        }

    def plot(self) -> Picture:
        """The errors against the number of participants; needs a forecast with `curve`."""
        from dither.planner.chart import curve_picture

        if not self.points:
            raise ParameterError(
                "there is no curve to draw; ask for it with curve=True", where="curve"
            )
        return curve_picture(self)


def forecast(
    schema: Schema | NativeTable | str | Path,
    participants: int,
    epsilon: float,
    *,
    dependence: str | float = "typical",
    methods: Sequence[str] | None = None,
    repeats: int | None = None,
    seed: int = 0,
    curve: bool = False,
    prior: NativeTable | str | Path | None = None,
) -> Forecast:
    """Predict the mean 1-way and 2-way total variation distance of methods and say what to do.

    `schema` is a schema or its file, or what `publish` takes: a bundled dataset's name, a table or its file, whose own schema is
    used, or one inferred from its rows, which a warning then says. Of a table nothing else is read. `dependence` is what nobody
    knows beforehand: weak, typical, strong, or the mean distance of a pair from independence. Without `methods` the default method
    and the baseline get figures; the others are listed. Each figure is the mean of `repeats` played campaigns, of two to five
    unless said. With `curve` the same is predicted for fewer and for more participants (`points`, `plot()`).

    `prior` is the public table that the fit will be given (`publish(prior=...)`). The campaigns are then played on the population
    that it is a sample of, so it takes the place of `dependence`; a method that has a use for it gets a table of as many rows,
    drawn anew. A table of other people helps less than predicted.

    >>> import dither
    >>> schema = dither.Schema(tuple(dither.Attribute(name, "boolean", (False, True)) for name in "abcd"))
    >>> dither.forecast(schema, 200_000, 4.0).recommendation
    'mixture'
    """
    check_whole("participants", participants, 1)
    if repeats is not None:
        check_whole("repeats", repeats, 1)
    check_epsilon(epsilon)
    played = list(dict.fromkeys([*(methods or PREDICTED), BASELINE]))
    for name in played:
        find_method(name)
    domain, notes = schema_of(schema)
    rows, source = _public(prior, domain, dependence)
    if rows is None:
        amount = assumed_dependence(domain, dependence)
        population = reference_population(domain, amount, seed)
    else:
        population, amount = population_of(domain, rows.codes, seed)
    people = min(participants, MAX_PARTICIPANTS)
    play = _Player(population, 0 if rows is None else min(len(rows.codes), MAX_PUBLIC_ROWS), seed)
    found = {name: play(name, people, epsilon, repeats, both=True) for name in played}
    known = all_methods()
    listed = [
        found.get(name) or Prediction(name, asks=known[name].asks, reason=NOT_PLAYED)
        for name in dict.fromkeys([*known, *played])
    ]
    if not any(p.tvd for p in found.values()):
        reasons = "; ".join(f"{p.name}: {p.reason}" for p in found.values())
        raise ParameterError(
            f"no method can be played with {participants:,} participants: {reasons}"
        )
    verdict = _verdict(found, amount)
    best = _recommended(found, verdict)
    needed: dict[str, float | None] = {"participants": None, "epsilon": None}
    if verdict == "noise":
        needed = _needed(play, people, epsilon, played)
    weak = weak_protection(epsilon)
    notes = [*notes, *([] if weak is None else [weak])]
    told = (
        *(str(note) for note in notes),
        *warnings(domain, participants, best, found, verdict, needed),
    )
    return Forecast(
        participants,
        float(epsilon),
        amount,
        tuple(listed),
        best.name,
        advice(best, found, verdict),
        told,
        needed,
        _curve(play, people, epsilon, found) if curve else (),
        source,
    )


def _public(
    prior: NativeTable | str | Path | None, schema: Schema, dependence: str | float
) -> tuple[PublicRows | None, str | None]:
    """The rows of a public table, and where they came from."""
    if prior is None:
        return None, None
    if dependence != "typical":
        raise ParameterError(
            "dependence and prior exclude each other: the public table says how strongly attributes depend; leave one out",
            where="dependence",
            value=str(dependence),
        )
    rows = read_prior(prior, schema)
    if not isinstance(rows, PublicRows):
        raise ParameterError(
            f"prior {rows.source}: an earlier release cannot be planned with; give a public table",
            where="prior",
            value=rows.source,
        )
    return rows, rows.source


@dataclass(frozen=True)
class _Player:
    """Campaigns on one population, with a public table of so many rows for the methods that take one."""

    population: Model
    public_rows: int
    seed: int

    def __call__(
        self, name: str, people: int, epsilon: float, repeats: int | None = 1, *, both: bool = False
    ) -> Prediction:
        """The prediction; with `both`, the errors without the public table too."""
        if not self.public_rows or not find_method(name).load().takes_prior:
            return predict(name, self.population, people, epsilon, repeats=repeats, seed=self.seed)
        found = predict(
            name,
            self.population,
            people,
            epsilon,
            repeats=repeats,
            seed=self.seed,
            public_rows=self.public_rows,
        )
        if not both or not found.tvd:
            return found
        without = predict(name, self.population, people, epsilon, repeats=repeats, seed=self.seed)
        return replace(found, without_prior=without.tvd)


def _curve(
    play: _Player, people: int, epsilon: float, found: Mapping[str, Prediction]
) -> tuple[Point, ...]:
    """Every played method with fewer and more participants, one campaign each."""
    out = []
    for name, here in found.items():
        sizes = sorted(
            {min(max(round(people * 4.0**step), 1), MAX_PARTICIPANTS) for step in STEPS} - {people}
        )
        points = [(n, play(name, n, epsilon)) for n in sizes]
        out += [
            Point(name, n, p.tvd)
            for n, p in sorted([*points, (people, here)], key=lambda e: e[0])
            if p.tvd
        ]
    return tuple(out)


def _verdict(found: Mapping[str, Prediction], amount: float) -> Verdict:
    if all(2 not in p.tvd for p in found.values()):
        return "alone"
    if amount == 0:
        return "independent"
    if not any(p.tvd for name, p in found.items() if name != BASELINE):
        return "nothing"
    return "learnt" if _gaining(found) else "noise"


def _recommended(found: Mapping[str, Prediction], verdict: Verdict) -> Prediction:
    """Of those that gain by asking pairs the least two-way error, the default method where it is as good; else the least one-way
    error, as that is what is read then, the baseline where it is as good."""
    learnt = verdict == "learnt"
    able = _gaining(found) if learnt else [p for p in found.values() if p.tvd]
    ways = 2 if learnt else 1
    ranked = sorted(able, key=lambda p: p.tvd[ways])
    close = [p for p in ranked if p.tvd[ways] <= TIE * ranked[0].tvd[ways]]
    return next((p for p in close if p.name == (DEFAULT if learnt else BASELINE)), ranked[0])


def _gaining(found: Mapping[str, Prediction], bar: float = NOISE) -> list[Prediction]:
    """The methods below `bar` of what their own one-way marginals would give, and not above the baseline."""
    baseline = found[BASELINE].tvd.get(2, math.inf)
    rivals = [p for name, p in found.items() if name != BASELINE and p.without_pairs is not None]
    return [
        p for p in rivals if p.tvd[2] <= bar * (p.without_pairs or 0.0) and p.tvd[2] <= baseline
    ]


def _needed(
    play: _Player, participants: int, epsilon: float, methods: Sequence[str]
) -> dict[str, float | None]:
    """From how many participants on, and from which epsilon on, a method gains by asking pairs."""

    def learnt(people: int, eps: float) -> bool:
        found = {m: play(m, people, eps) for m in methods}
        return bool(_gaining(found, LEARNT))

    wide = (
        sum(play.population.schema.cardinalities) > WIDE
    )  # each step takes long there: larger ones, and a rougher answer
    factors, precision = ((16.0, 4.0), 4.0) if wide else ((4.0, 1.6), 1.2)
    people = least(
        lambda n: learnt(round(n), epsilon), participants, MAX_PARTICIPANTS, factors[0], precision
    )
    eps = least(
        lambda e: learnt(participants, e),
        epsilon,
        max(MAX_EPSILON, epsilon),
        factors[1],
        precision,
    )
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
