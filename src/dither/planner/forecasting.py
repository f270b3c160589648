"""Forecast a collection's accuracy from the schema, the participants and epsilon alone.

A method's error is predicted by simulating its campaign on a reference population. The
forecast recommends a method, states whether pairs can be learnt, and what that would need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from markupsafe import Markup

from dither import __version__
from dither.checks import check_between, check_whole
from dither.datasets import schema_of
from dither.display import WIDTH, Picture, drawing, label, stand_alone
from dither.errors import ParameterError
from dither.fit import Model
from dither.mechanisms import check_epsilon
from dither.methods import DEFAULT, METHODS
from dither.methods import method as find_method
from dither.methods import methods as all_methods
from dither.methods.prior import PublicRows
from dither.notice import certainty, weak_protection
from dither.planner.prediction import (
    MAX_PUBLIC_ROWS,
    MAX_REPEATS,
    Prediction,
    assumed_dependence,
    population_of,
    predict,
    reference_population,
)
from dither.release.charts import HEIGHT, Line, line_chart, line_plot
from dither.release.pages import TEMPLATES, render_page
from dither.release.prior import read_prior
from dither.schema import Schema
from dither.schema.files import write_atomically
from dither.types import JsonObject, NativeTable

BASELINE = "independent"
# One-way errors above this get a warning.
_MAX_ONE_WAY_ERROR = 0.1
# Two-way errors above this get a warning.
_MAX_TWO_WAY_ERROR = 0.3
# A prior is worth having if the error falls below this share of the error without it.
_PRIOR_GAIN = 0.95
# More participants are not simulated; they only lower the error.
_MAX_PARTICIPANTS = 50_000_000
MAX_EPSILON = 12.0

# alone: the schema has one attribute. learnt: a method gains by asking pairs. noise: none
# does. nothing: no method that asks pairs could be simulated. independent: no dependence,
# by assumption.
_Verdict = Literal["alone", "learnt", "noise", "nothing", "independent"]


def _advice(best: Prediction, found: Mapping[str, Prediction], verdict: _Verdict) -> str:
    """The recommendation in one or two sentences."""
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
    """The effect of the public table, if one was given."""
    if best.without_prior is None or 2 not in best.without_prior:
        return ""
    alone = best.without_prior[2]
    if best.tvd[2] > _PRIOR_GAIN * alone:
        return f" The prior brings little: the error without it would be {alone:.3f}."
    return (
        f" Without the prior the error would be {alone:.3f}, so the prior is worth having if its people are like the participants; "
        "the more they differ, the less it brings."
    )


def _warnings(
    schema: Schema,
    participants: int,
    best: Prediction,
    found: Mapping[str, Prediction],
    verdict: _Verdict,
    needed: Mapping[str, float | None],
) -> tuple[str, ...]:
    """The warnings of a forecast, each a sentence without its full stop."""
    out = []
    if verdict == "noise":
        out.append(f"pairs would be pure noise; {_remedy(needed)}")
    if best.tvd[1] > _MAX_ONE_WAY_ERROR:
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
    if participants > _MAX_PARTICIPANTS:
        out.append(
            f"figures are those of {_MAX_PARTICIPANTS:,} participants; more people only lower the errors"
        )
    if verdict != "nothing" and any(not p.tvd for p in found.values()):
        missing = ", ".join(f"{p.name} ({p.reason})" for p in found.values() if not p.tvd)
        out.append(f"no figures for {missing}")
    if verdict == "learnt" and best.tvd[2] > _MAX_TWO_WAY_ERROR:
        out.append(
            f"two-way figures would be off by {best.tvd[2]:.2f} in the mean; take them as hints, not as results"
        )
    return tuple(out)


def _remedy(needed: Mapping[str, float | None]) -> str:
    """The changes that would let pairs be learnt; fewer or coarser attributes always help."""
    ways = []
    if needed["participants"] is not None:
        ways.append(f"about {needed['participants']:,.0f} participants at this epsilon")
    if needed["epsilon"] is not None:
        ways.append(f"an epsilon of about {needed['epsilon']:g} with these participants")
    if ways:
        return f"{' or '.join(ways)} would change that, and so would fewer or coarser attributes"
    return (
        f"neither {_MAX_PARTICIPANTS:,} participants nor an epsilon of {MAX_EPSILON:g} changes that; only fewer or coarser "
        "attributes can"
    )


def _widest(schema: Schema) -> str:
    """Advice to coarsen the attribute with the most values."""
    widest = max(schema, key=lambda attribute: attribute.cardinality)
    fewer = ", or ask fewer attributes" if len(schema) > 1 else ""
    return f"{widest.name} has {widest.cardinality:,} values; give it fewer or coarser ones{fewer}"


# `lopub` tallies whole reports, which cannot be drawn from marginals.
_PREDICTED = (DEFAULT, *(name for name in METHODS if name not in (DEFAULT, BASELINE, "lopub")))
# Pairs are noise if the error stays above this share of the one-way marginals' error.
_NOISE = 0.95
# Pairs are learnt below this share. The gap keeps the advice from depending on one draw.
_LEARNT = 0.9
# One-way errors within this factor of the best are equally good.
_TIE = 1.03
# Another method is recommended if the default's two-way error is this much larger. Smaller
# differences are within the accuracy of a forecast (`dither bench planner`).
_DEFAULT_TIE = 1.25
# If all attributes together have more values than this, methods other than the default are
# simulated only if named, and searches take larger steps.
_WIDE = 1000
# The baseline is simulated this often: it takes milliseconds.
_BASELINE_REPEATS = 24
# Half-widths come from about this many independent errors, with at most so many campaigns.
_ERRORS_WANTED, _MAX_CAMPAIGNS = 60, 12
_MIN_TARGET, _MAX_TARGET = 0.0001, 0.5
_MIN_EPSILON = 0.01
NOT_PLAYED = "not predicted; name it to have it predicted"
# The curve's other points, as powers of four times the participants.
_STEPS = (-2, -1, 1, 2)


@dataclass(frozen=True)
class Point:
    """The errors of a method at another number of participants."""

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
    """The expected accuracy of a collection.

    Attributes:
        participants: Number of participants.
        epsilon: Guarantee of one participant's whole record.
        dependence: Mean distance of a pair from independence, assumed or of the public table:
            the two-way error of a product of exact one-way marginals.
        methods: The prediction of each method.
        recommendation: Name of the recommended method.
        advice: The recommendation in one or two sentences.
        warnings: What to know before deciding.
        needed: If pairs cannot be learnt, the `participants` (at this epsilon) and the
            `epsilon` (with these participants) from which they can; None if out of reach.
        points: The errors with fewer and with more participants, if a curve was requested.
        prior: Source of the public table; None without one.
        target_error: The half-width that was asked for; None if none was.

    >>> import dither
    >>> expected = dither.forecast("adult", 45_000, 1.0, methods=["independent"], repeats=1)
    >>> expected.recommendation, expected.methods[1].tvd[1] > 0.05
    ('independent', True)
    >>> f"{expected.certainty:.3f}"      # the most that anyone can come to believe
    '0.731'
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
    target_error: float | None = None

    @property
    def best(self) -> Prediction:
        """The prediction of the recommended method."""
        return next(each for each in self.methods if each.name == self.recommendation)

    @property
    def error_one_way(self) -> float:
        """The 95 % half-width of the share of a value, as a fraction."""
        return self.best.half_width[1]

    @property
    def error_two_way(self) -> float | None:
        """The 95 % half-width of the share of a pair of values; None with one attribute."""
        return self.best.half_width.get(2)

    @property
    def certainty(self) -> float:
        """The most that someone who considers two records equally likely can believe of one."""
        return certainty(self.epsilon)

    def to_json(self) -> JsonObject:
        """Plain values, as `dither plan --json` prints them."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        lists = {
            "methods": [m.to_json() for m in self.methods],
            "points": [p.to_json() for p in self.points],
        }
        return {
            **values,
            **lists,
            "method": self.recommendation,
            "error_one_way": self.error_one_way,
            "error_two_way": self.error_two_way,
            "certainty": self.certainty,
            "warnings": list(self.warnings),
        }

    def plot(self) -> Picture:
        """Plot the errors against the number of participants.

        Raises:
            ParameterError: The forecast was made without `curve=True`.
        """
        if not self.points:
            raise ParameterError(
                "the forecast has no curve; request it with curve=True", where="curve"
            )
        return _curve_picture(self)


def forecast(
    schema: Schema | NativeTable | str | Path,
    participants: int | None = None,
    epsilon: float | None = None,
    *,
    target_error: float | None = None,
    dependence: str | float = "typical",
    methods: Sequence[str] | None = None,
    repeats: int | None = None,
    seed: int = 0,
    curve: bool = False,
    prior: NativeTable | str | Path | None = None,
) -> Forecast:
    """Predict the errors of methods before anyone is asked; recommend a method.

    Every built-in method whose campaign can be simulated is predicted. With `target_error`,
    `participants` or `epsilon` may be left out: the smallest one that reaches it is found.

    Args:
        schema: A schema or its file, a bundled dataset's name, or a table or its file. Only
            the schema of a table is used; if it is inferred from the rows, a warning says so.
        participants: Number of participants.
        epsilon: Guarantee of one participant's whole record.
        target_error: Wanted 95 % half-width of the share of a value, as a fraction: 0.01 is
            one percentage point.
        dependence: How strongly attributes depend on each other, which is unknown before the
            collection: `weak`, `typical`, `strong`, or the mean distance of a pair from
            independence.
        methods: Methods to predict besides the baseline; by default all built-in ones, or the
            default method alone if the attributes have more than 1,000 values together.
        repeats: Simulated campaigns for each figure; by default two to twelve.
        seed: Seed of the simulation.
        curve: Predict for fewer and for more participants too (`points`, `plot()`).
        prior: The public table that the fit will use (`publish(prior=...)`). The campaigns
            are then simulated on the population that it is a sample of, which replaces
            `dependence`. A table of a different population helps less than predicted.

    Returns:
        The errors of each method and the recommended one.

    Raises:
        ParameterError: An argument is missing or out of range, the target cannot be reached,
            `prior` and `dependence` are both given, or no method can be simulated with so few
            participants.

    >>> import dither
    >>> schema = dither.Schema(tuple(dither.Attribute(name, "boolean", (False, True)) for name in "abcd"))
    >>> dither.forecast(schema, 200_000, 4.0).recommendation
    'mixture'
    >>> plan = dither.forecast(schema, epsilon=1.0, target_error=0.02, methods=["independent"])
    >>> plan.participants > 10_000, plan.error_one_way <= 0.02
    (True, True)
    """
    _check_asked(participants, epsilon, target_error)
    if repeats is not None:
        check_whole("repeats", repeats, 1)
    for name in methods or ():
        find_method(name)
    domain, notes = schema_of(schema)
    rows, source = _public(prior, domain, dependence)
    if rows is None:
        amount = assumed_dependence(domain, dependence)
        population = reference_population(domain, amount, seed)
    else:
        population, amount = population_of(domain, rows.codes, seed)
    public_rows = 0 if rows is None else min(len(rows.codes), MAX_PUBLIC_ROWS)
    chosen = methods or (_PREDICTED if sum(domain.cardinalities) <= _WIDE else (DEFAULT,))
    names = tuple(dict.fromkeys([*chosen, BASELINE]))
    study = _Study(_Player(population, public_rows, seed), names, amount, repeats)
    if participants is None or epsilon is None:
        assert target_error is not None
        participants, epsilon = _solve(study, participants, epsilon, target_error)
    people = min(participants, _MAX_PARTICIPANTS)
    found, verdict, best = study.outcome(people, epsilon)
    known = all_methods()
    listed = [
        found.get(name) or Prediction(name, asks=known[name].asks, reason=NOT_PLAYED)
        for name in dict.fromkeys([*known, *names])
    ]
    needed: dict[str, float | None] = {"participants": None, "epsilon": None}
    if verdict == "noise":
        needed = _needed(study.play, people, epsilon, names)
    weak = weak_protection(epsilon)
    notes = [*notes, *([] if weak is None else [weak])]
    messages = [
        *(str(note) for note in notes),
        *_warnings(domain, participants, best, found, verdict, needed),
    ]
    if target_error is not None and best.half_width[1] > target_error:
        messages.append(
            f"the target of \u00b1{100 * target_error:g} points is not reached: shares of single "
            f"values have a half-width of {100 * best.half_width[1]:.2g} points"
        )
    return Forecast(
        participants,
        float(epsilon),
        amount,
        tuple(listed),
        best.name,
        _advice(best, found, verdict),
        tuple(messages),
        needed,
        _curve(study.play, people, epsilon, found) if curve else (),
        source,
        target_error,
    )


@dataclass(frozen=True)
class Expectation:
    """What one method promises for these participants and this epsilon.

    Attributes:
        best: The prediction of that method, or of the baseline where asking pairs does not
            reduce the error.
        pairs: Whether dependence between attributes can be learnt.
    """

    participants: int
    epsilon: float
    best: Prediction
    pairs: bool

    @property
    def half_width(self) -> float:
        """The 95 % half-width of the share of a value, as a fraction."""
        return self.best.half_width[1]


def expect(
    schema: Schema,
    participants: int | None = None,
    epsilon: float | None = None,
    *,
    target_error: float | None = None,
    method: str = DEFAULT,
    repeats: int | None = None,
) -> Expectation:
    """Predict one method, as `forecast` does, without looking for what would let pairs be learnt.

    It takes a fraction of a second, so a form can show it while a person types.

    Args:
        schema: The schema.
        participants: Number of participants; None to find it from `target_error`.
        epsilon: Guarantee of one participant's whole record; None to find it likewise.
        target_error: Wanted 95 % half-width of the share of a value, as a fraction.
        method: The method.
        repeats: Simulated campaigns for each figure; by default as many as `forecast` takes.

    Raises:
        ParameterError: As `forecast` does.

    >>> import dither
    >>> schema = dither.Schema((dither.Attribute("a", "boolean", (False, True)),))
    >>> round(expect(schema, 10_000, 1.0).half_width, 2)
    0.02
    """
    _check_asked(participants, epsilon, target_error)
    amount = assumed_dependence(schema)
    names = tuple(dict.fromkeys([method, BASELINE]))
    player = _Player(reference_population(schema, amount), 0, 0)
    study = _Study(player, names, amount, repeats)
    if participants is None or epsilon is None:
        assert target_error is not None
        participants, epsilon = _solve(study, participants, epsilon, target_error)
    _, verdict, best = study.outcome(min(participants, _MAX_PARTICIPANTS), epsilon)
    return Expectation(participants, float(epsilon), best, verdict == "learnt")


def _check_asked(
    participants: int | None, epsilon: float | None, target_error: float | None
) -> None:
    """Check the numbers of a forecast."""
    if target_error is None and (participants is None or epsilon is None):
        raise ParameterError(
            "give participants and epsilon, or one of them with target_error", where="participants"
        )
    if participants is None and epsilon is None:
        raise ParameterError(
            "target_error needs participants or epsilon; the other one is worked out",
            where="participants",
        )
    if participants is not None:
        check_whole("participants", participants, 1)
    if epsilon is not None:
        check_epsilon(epsilon)
    if target_error is not None:
        check_between("target_error", target_error, _MIN_TARGET, _MAX_TARGET)


@dataclass(frozen=True)
class _Study:
    """Predictions of several methods on one population."""

    play: _Player
    names: tuple[str, ...]
    amount: float
    repeats: int | None

    def predict(self, name: str, people: int, epsilon: float) -> Prediction:
        """The prediction of one method, from as many campaigns as it needs."""
        return self.play(name, people, epsilon, self._campaigns(name), both=True)

    def _campaigns(self, name: str) -> int | None:
        if self.repeats is not None:
            return self.repeats
        if name == BASELINE:
            return _BASELINE_REPEATS
        free = sum(k - 1 for k in self.play.population.schema.cardinalities)
        wanted = math.ceil(_ERRORS_WANTED / free)
        # None: until the mean is precise, which is at most five campaigns.
        return min(wanted, _MAX_CAMPAIGNS) if wanted > MAX_REPEATS else None

    def outcome(
        self, people: int, epsilon: float
    ) -> tuple[dict[str, Prediction], _Verdict, Prediction]:
        """The predictions, what they say about pairs, and that of the recommended method."""
        found = {name: self.predict(name, people, epsilon) for name in self.names}
        if not any(p.tvd for p in found.values()):
            reasons = "; ".join(f"{p.name}: {p.reason}" for p in found.values())
            raise ParameterError(f"no method can be played with {people:,} participants: {reasons}")
        verdict = _verdict(found, self.amount)
        return found, verdict, _recommended(found, verdict)


def _solve(
    study: _Study, participants: int | None, epsilon: float | None, target: float
) -> tuple[int, float]:
    """The smallest participants or epsilon at which the recommended method reaches the target.

    The baseline gives a first value in milliseconds. The recommended method may need more or
    less: the search goes on from a third of it.
    """

    def setting(value: float) -> tuple[int, float]:
        # Two digits of people, two decimals of epsilon, both rounded up.
        if epsilon is not None:
            return min(_rounded(value), _MAX_PARTICIPANTS), epsilon
        assert participants is not None
        return min(participants, _MAX_PARTICIPANTS), math.ceil(round(100 * value, 6)) / 100

    def baseline_reaches(value: float) -> bool:
        found = study.predict(BASELINE, *setting(value))
        return found.half_width.get(1, math.inf) <= target

    def best_reaches(value: float) -> bool:
        return study.outcome(*setting(value))[2].half_width[1] <= target

    if epsilon is None:
        low, high, precision = _MIN_EPSILON, MAX_EPSILON, 1.05
    else:
        low, high, precision = 5.0, float(_MAX_PARTICIPANTS), 1.1
    value = _least(baseline_reaches, low, high, 4.0, precision)
    if value is not None:
        value = _least(best_reaches, max(value / 3, low), high, 2.0, precision)
    if value is not None:
        people, found = setting(value)
        return (people if participants is None else participants), found
    most = f"epsilon {MAX_EPSILON:g}" if epsilon is None else f"{_MAX_PARTICIPANTS:,} participants"
    raise ParameterError(
        f"shares cannot have a half-width of {100 * target:g} points with up to {most}; accept a "
        "larger error, or ask fewer or coarser attributes",
        where="target_error",
        value=target,
    )


def _public(
    prior: NativeTable | str | Path | None, schema: Schema, dependence: str | float
) -> tuple[PublicRows | None, str | None]:
    """The rows of a public table and their source."""
    if prior is None:
        return None, None
    if dependence != "typical":
        raise ParameterError(
            "dependence and prior exclude each other: the public table determines the dependence; leave one out",
            where="dependence",
            value=str(dependence),
        )
    rows = read_prior(prior, schema)
    if not isinstance(rows, PublicRows):
        raise ParameterError(
            f"prior {rows.source}: a forecast cannot use an earlier release; give a public table",
            where="prior",
            value=rows.source,
        )
    return rows, rows.source


@dataclass(frozen=True)
class _Player:
    """Simulated campaigns on one population, with a public table for methods that take one."""

    population: Model
    public_rows: int
    seed: int

    def __call__(
        self, name: str, people: int, epsilon: float, repeats: int | None = 1, *, both: bool = False
    ) -> Prediction:
        """The prediction; with `both`, also the errors without the public table."""
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
    """Every simulated method with fewer and more participants, one campaign each."""
    out = []
    for name, prediction in found.items():
        sizes = sorted(
            {min(max(round(people * 4.0**step), 1), _MAX_PARTICIPANTS) for step in _STEPS}
            - {people}
        )
        points = [(n, play(name, n, epsilon)) for n in sizes]
        out += [
            Point(name, n, p.tvd)
            for n, p in sorted([*points, (people, prediction)], key=lambda e: e[0])
            if p.tvd
        ]
    return tuple(out)


def _verdict(found: Mapping[str, Prediction], amount: float) -> _Verdict:
    if all(2 not in p.tvd for p in found.values()):
        return "alone"
    if amount == 0:
        return "independent"
    if not any(p.tvd for name, p in found.items() if name != BASELINE):
        return "nothing"
    return "learnt" if _gaining(found) else "noise"


def _recommended(found: Mapping[str, Prediction], verdict: _Verdict) -> Prediction:
    """The method with the least error.

    If pairs are learnt, it is the two-way error of the methods that gain by asking pairs, with
    ties going to the default method. Otherwise it is the one-way error of the default method
    and the baseline, with ties going to the baseline: no other method is made for that.
    """
    learnt = verdict == "learnt"
    if learnt:
        able = _gaining(found)
    else:
        able = [p for p in found.values() if p.tvd and p.name in (DEFAULT, BASELINE)]
        able = able or [p for p in found.values() if p.tvd]
    ways = 2 if learnt else 1
    ranked = sorted(able, key=lambda p: p.tvd[ways])
    tie = _DEFAULT_TIE if learnt else _TIE
    close = [p for p in ranked if p.tvd[ways] <= tie * ranked[0].tvd[ways]]
    return next((p for p in close if p.name == (DEFAULT if learnt else BASELINE)), ranked[0])


def _gaining(found: Mapping[str, Prediction], bar: float = _NOISE) -> list[Prediction]:
    """The methods below `bar` times their one-way marginals' error and not above the baseline."""
    baseline = found[BASELINE].tvd.get(2, math.inf)
    rivals = [p for name, p in found.items() if name != BASELINE and p.without_pairs is not None]
    return [
        p for p in rivals if p.tvd[2] <= bar * (p.without_pairs or 0.0) and p.tvd[2] <= baseline
    ]


def _needed(
    play: _Player, participants: int, epsilon: float, methods: Sequence[str]
) -> dict[str, float | None]:
    """The participants and the epsilon from which a method gains by asking pairs."""

    def learnt(people: int, eps: float) -> bool:
        baseline = play(BASELINE, people, eps)
        # Most methods agree, so the first that learns pairs ends the search.
        return any(
            _gaining({name: play(name, people, eps), BASELINE: baseline}, _LEARNT)
            for name in methods
            if name != BASELINE
        )

    # With many values each step takes long, so steps are larger and the answer rougher.
    wide = sum(play.population.schema.cardinalities) > _WIDE
    factors, precision = ((16.0, 4.0), 4.0) if wide else ((4.0, 1.6), 1.2)
    people = _least(
        lambda n: learnt(round(n), epsilon), participants, _MAX_PARTICIPANTS, factors[0], precision
    )
    eps = _least(
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


def _least(
    holds: Callable[[float], bool], start: float, stop: float, factor: float, precision: float = 1.2
) -> float | None:
    """The least value from `start` to `stop` at which a monotone condition holds.

    Steps by `factor` until it holds, then bisects on the logarithm.

    Returns:
        A value at which the condition held, within a factor `precision` of the least; None if
        it does not hold at `stop`.
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
    """Two digits, rounded up: the estimate is no more precise."""
    step = 10 ** max(math.floor(math.log10(number)) - 1, 0)
    return int(math.ceil(number / step) * step)


_SUFFIXES = (".svg", ".html")
_WAYS = {1: "error of single attributes", 2: "error of pairs"}
_TITLE, _LEGEND, _STEP = 24, 20, 18


def _lines(given: Forecast, ways: int) -> list[Line]:
    """A line for each simulated method, with the same colour in all charts."""
    names = list(dict.fromkeys(p.method for p in given.points))
    points = {
        name: [
            (float(p.participants), v, v, v)
            for p in given.points
            if p.method == name and (v := p.tvd.get(ways))
        ]
        for name in names
    }
    return [Line(hue, points[name]) for hue, name in enumerate(names) if points[name]]


def _curve_picture(given: Forecast) -> Picture:
    """Both charts above each other in one self-contained picture."""
    inside, y = "", 0
    drawn = [(title, lines) for ways, title in _WAYS.items() if (lines := _lines(given, ways))]
    for title, lines in drawn:
        plot = line_plot(lines, ("participants", title), log_x=True, log_y=True)
        inside += f'<g transform="translate(0 {y})">{plot}</g>'
        y += HEIGHT + _TITLE
    names = list(dict.fromkeys(p.method for p in given.points))
    for hue, name in enumerate(names):
        inside += f'<path class="course hue{hue}" d="M8 {y + _LEGEND / 2}h18"/>{label(32, y + _LEGEND / 2 + 4, name)}'
        y += _STEP
    words = (
        f"Predicted errors of {', '.join(names)} against participants at epsilon {given.epsilon:g}"
    )
    hues = (TEMPLATES / "hues.css").read_text(encoding="utf-8").partition(".figures")[0]
    picture = stand_alone(drawing(WIDTH, y + 6, words, inside))
    return Picture(picture.svg.replace("</style>", f"{hues}</style>", 1), picture.words)


def check_picture(path: Path) -> None:
    """Raise `ParameterError` unless the file name ends in .svg or .html."""
    if path.suffix.lower() not in _SUFFIXES:
        raise ParameterError(
            f"{path}: a plot's name ends in {' or '.join(_SUFFIXES)}", where="plot", value=str(path)
        )


def write_picture(given: Forecast, path: Path) -> None:
    """Write the picture (.svg), or a page with it and all figures (.html), atomically."""
    check_picture(path)
    text = given.plot().svg if path.suffix.lower() == ".svg" else _page(given)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _page(given: Forecast) -> str:
    """One file with the advice, the charts and their figures."""
    charts: list[tuple[str, Markup]] = []
    for ways, title in _WAYS.items():
        if lines := _lines(given, ways):
            words = f"Predicted {title} against participants; the table has the figures"
            charts.append(
                (title, line_chart(lines, ("participants", title), words, log_x=True, log_y=True))
            )
    names = list(dict.fromkeys(p.method for p in given.points))
    rows = [
        (p.method, f"{p.participants:,}", *(f"{p.tvd[w]:.4f}" if w in p.tvd else "" for w in _WAYS))
        for p in given.points
    ]
    return render_page(
        "forecast.html",
        title="What to expect of a collection",
        version=__version__,
        facts=(
            ("Participants", f"{given.participants:,}"),
            ("Epsilon", f"{given.epsilon:g}"),
            ("Use", given.recommendation),
        ),
        given=given,
        charts=charts,
        legend=list(enumerate(names)),
        head=("method", "participants", *_WAYS.values()),
        rows=rows,
    )
