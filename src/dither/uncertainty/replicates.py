"""Standard errors and intervals for any marginal of a release, by a parametric bootstrap through the same plan.

People are drawn from the fitted model, asked as the real ones were, and the model is fitted anew; how far the refits lie from
the model they were drawn from measures variance and bias at once. Three things a plain bootstrap misses are added, each
one visible in `Bootstrap`:

- a fit that stops early leaves dependence out, and a population drawn from it has less of it to leave out. The residuals
tell: where the real ones exceed the replicates' by more than nothing, all errors of two attributes and more are scaled
(`misfit`);
- within one marginal the error of a cell is half its own and half the mean of the cells, because the model may be smooth
just where the truth is not;
- reports about pairs say nothing about interactions of three attributes. Where three were not asked together, interactions
are allowed for at half the strength of the pairs' (the hierarchy of effects), unless the attributes hardly depend on each
other.

Reference: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 6 and 10; docs/explanation/uncertainty.md
has the measured coverage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dither.checks import check_between, check_choice, check_whole
from dither.errors import ParameterError, PrivacyError
from dither.estimate import answers_of
from dither.estimate.targets import PairTargets, pair_targets, tables_pay
from dither.models import Model
from dither.models.grouped import grouped_marginal
from dither.models.ruled import core_of
from dither.protocols import ProtocolMachine, method, restore, start
from dither.protocols.holdout import HoldOut
from dither.protocols.reduction import with_groups
from dither.reports import Plan, Question
from dither.schema import Schema
from dither.tally import CountTally
from dither.types import Floats, Indices, JsonMapping, JsonObject, Progress
from dither.uncertainty.linear import LinearAnswer

if TYPE_CHECKING:
    from dither.release import Release


def redraw(machine: ProtocolMachine, model: Model, rng: np.random.Generator) -> None:
    """Run every round of a campaign with independent people of the model's distribution.

    Guarantee: for plans that are tallied by counts each question's tally has exactly the law it would have with so many
    people sampled from the model. In a split plan different questions' tallies are drawn apart, which leaves each one's
    law as it is. Tallies of whole reports cannot be drawn this way and are refused.
    """
    people = machine.campaign.participants
    known: dict[tuple[str, ...], Floats] = {}  # rounds and replicates ask the same questions again
    while (plan := machine.plan()) is not None:
        if plan.epsilon > machine.campaign.epsilon:
            raise PrivacyError(f"round {plan.round} would spend more than epsilon {machine.campaign.epsilon}")
        machine.close(draw_tally(plan, model, max(round(plan.population * people), 1), rng, known))


def draw_tally(
    plan: Plan,
    model: Model,
    people: int,
    rng: np.random.Generator,
    known: dict[tuple[str, ...], Floats] | None = None,
) -> CountTally:
    """One round's tally of so many people drawn from the model."""
    if plan.tally != "counts":
        raise ParameterError(
            f"round {plan.round} is tallied by whole reports ({plan.tally}), which cannot be drawn from a model's marginals",
            where="method",
            value=plan.tally,
        )
    known = {} if known is None else known
    tally = CountTally(plan)
    asked = [people] * len(plan.questions) if plan.split else whole_shares(people, plan.shares)
    for i, (question, n) in enumerate(zip(plan.questions, asked, strict=True)):
        if n == 0:
            continue
        key = question.attributes + question.grouped
        if key not in known:
            cells = asked_marginal(model, question).ravel()
            known[key] = cells / cells.sum()
        truth = rng.multinomial(n, known[key])
        tally.add_counts(i, question.mechanism.simulate(truth, rng), n)
    return tally


def asked_marginal(model: Model, question: Question) -> Floats:
    """A model's distribution over the cells of a question, of groups where it asks for groups."""
    if not question.grouped:
        return model.marginal(question.attributes)
    attributes = [model.schema[name] for name in question.attributes]
    attributes = [with_groups(a) if a.name in question.grouped else a for a in attributes]
    groups = [
        np.asarray(a.group_codes if a.name in question.grouped else range(a.cardinality), dtype=np.intp)
        for a in attributes
    ]
    return grouped_marginal(model, question.attributes, groups)


def whole_shares(people: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers that add up to `people`, each within one of its share.

    Not `apportion`: its largest remainders put some people elsewhere, which would move every seeded interval.
    """
    ends = np.rint(np.cumsum(shares) / sum(shares) * people).astype(np.int64)
    return [int(n) for n in np.diff(ends, prepend=0)]


INTERACTION = 0.5  # strength of unmeasured three-way interactions, in units of the pairs'
POOLED = 0.5  # share of a cell's squared error that is the mean of its marginal's
MOST_PAIRS = 300  # whose residuals are compared
LEAST_REPLICATES = 5
# Replicates need the scatter of the fit, not its last per cent: fewer starts take a third of the time.
QUICK: Mapping[str, JsonMapping] = {"mixture": {"total": 200}}


@dataclass(frozen=True)
class Interval:
    """A marginal with its uncertainty, one axis per attribute; the intervals are for each cell on its own.

    `standard_errors` are root mean squared errors: scatter and bias together, for the population that the participants are a
    sample of. `caution` says what an interval does not cover, if anything.
    """

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    frequencies: Floats
    standard_errors: Floats
    low: Floats
    high: Floats
    level: float
    caution: str = ""

    def to_json(self) -> JsonObject:
        """Plain JSON values."""
        return {
            "attributes": list(self.attributes),
            "frequencies": self.frequencies.tolist(),
            "standard_errors": self.standard_errors.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "level": self.level,
            "caution": self.caution,
        }


@dataclass(frozen=True)
class Bootstrap:
    """The refitted models of a bootstrap; any number of marginals can be read off it.

    `asked` holds the pairs and triples of attributes that were asked together, None where that is not known. `misfit` is the
    factor on squared errors of two attributes and more that the real residuals ask for; 1 for none, or where the residuals
    are not known.
    """

    model: Model
    replicates: tuple[Model, ...]
    dependence_learnt: bool
    misfit: float = 1.0
    asked: frozenset[frozenset[str]] | None = None

    def interval(self, attributes: Sequence[str], level: float = 0.95) -> Interval:
        """Standard errors and intervals of one marginal."""
        names = tuple(attributes)
        frequencies = self.model.marginal(names)
        refits = np.stack([replicate.marginal(names) for replicate in self.replicates])
        squared = refits.var(axis=0, ddof=1) + (refits.mean(axis=0) - frequencies) ** 2
        caution = ""
        if len(names) > 1:
            squared = self.misfit * ((1 - POOLED) * squared + POOLED * squared.mean())
            squared = squared + interaction_allowance(self.model, names, self.asked or frozenset()) * frequencies**2
            if not self._learnt(names):
                caution = "some of these attributes were taken as independent; this holds only as far as they are"
        errors = np.sqrt(squared)
        reach = student_quantile(level, len(self.replicates) - 1) * errors
        low, high = frequencies - reach, frequencies + reach
        labels = tuple(self.model.schema[name].labels for name in names)
        return Interval(names, labels, frequencies, errors, np.clip(low, 0, 1), np.clip(high, 0, 1), level, caution)

    def linear(self, attributes: Sequence[str], groups: Sequence[Indices], questions: Floats) -> LinearAnswer:
        """Sums over the cells of a marginal of grouped values; `questions` has a row of weights, shaped like it, for each sum."""
        names, weights = tuple(attributes), questions.reshape(len(questions), -1)
        estimates = weights @ grouped_marginal(self.model, names, groups).ravel()
        refits = np.stack([weights @ grouped_marginal(r, names, groups).ravel() for r in self.replicates])
        bias = refits.mean(axis=0) - estimates
        covariance = np.atleast_2d(np.cov(refits, rowvar=False)) + np.outer(bias, bias)
        caution = ""
        if len(names) > 1:
            covariance = self.misfit * covariance
            allowance = interaction_allowance(self.model, names, self.asked or frozenset())
            covariance = covariance + allowance * np.diag(estimates**2)
            if not self._learnt(names):
                caution = "some of these attributes were taken as independent; this holds only as far as they are"
        return LinearAnswer(estimates, covariance, len(self.replicates) - 1, "model", caution)

    def _learnt(self, names: Sequence[str]) -> bool:
        pairs = (frozenset(pair) for pair in combinations(names, 2))
        return self.dependence_learnt and (self.asked is None or all(pair in self.asked for pair in pairs))


def bootstrap(
    source: Release | ProtocolMachine,
    attributes: Sequence[Sequence[str]],
    *,
    replicates: int = 20,
    level: float = 0.95,
    seed: int = 0,
    effort: str = "quick",
    progress: Progress | None = None,
) -> list[Interval]:
    """Standard errors and intervals of marginals of a release, or of a machine that has finished.

    Time is `replicates` fits; `effort` "quick" fits with fewer starts, "full" exactly as the release was. The tallies, which a
    machine knows and a release carries in `state`, let the residuals be checked; without them the fit is taken at its word.
    """
    prepared = prepare_bootstrap(source, replicates=replicates, seed=seed, effort=effort, progress=progress)
    return [prepared.interval([names] if isinstance(names, str) else names, level) for names in attributes]


def prepare_bootstrap(
    source: Release | ProtocolMachine,
    *,
    replicates: int = 20,
    seed: int = 0,
    effort: str = "quick",
    progress: Progress | None = None,
) -> Bootstrap:
    """Draw and refit; the same seed gives the same replicates."""
    check_whole("replicates", replicates, LEAST_REPLICATES)
    check_choice("effort", effort, ("quick", "full"))
    source = _machine_of(source)
    name, model, schema, epsilon, participants, parameters = _facts(source)
    if effort == "quick":
        quick = {k: v for k, v in QUICK.get(name, {}).items() if k in method(name).defaults()}
        parameters = {**parameters, **{k: min(parameters.get(k, v), v) for k, v in quick.items()}}
    residuals = None if not isinstance(source, ProtocolMachine) else _residuals_of(source, core_of(model))
    refits: list[Model] = []
    squares: list[float] = []
    risks: list[float] = []
    for replicate in range(replicates):
        machine = start(name, schema, epsilon, participants, parameters, seed * 1_000_003 + replicate)
        redraw(machine, model, np.random.default_rng([seed, replicate, 0x626F6F74]))
        refit = machine.model()
        refits.append(refit)
        if residuals is not None:
            drawn = _pair_targets_of(machine)
            squares.append(residuals.squares(drawn, core_of(refit)))
            risks.append(residuals.distance(core_of(refit)))
        if progress:
            progress("bootstrap: models fitted again", replicate + 1, replicates)
    if residuals is None:
        return Bootstrap(model, tuple(refits), _learns_dependence(source))
    misfit = 1.0
    if risks and np.mean(risks) > 0:
        misfit = max(1.0, 1.0 + (residuals.real - float(np.mean(squares))) / float(np.mean(risks)))
    asked = None if not isinstance(source, ProtocolMachine) else _asked_together(source)
    return Bootstrap(model, tuple(refits), _learns_dependence(source), misfit, asked)


def student_quantile(level: float, freedom: int) -> float:
    """How many standard errors, themselves estimated from few replicates, an interval of this level reaches each way."""
    from scipy.special import stdtrit

    check_between("level", level, 0, 1, ends="()")
    return float(stdtrit(freedom, (1 + level) / 2))


def interaction_allowance(
    model: Model, attributes: Sequence[str], asked: frozenset[frozenset[str]] = frozenset()
) -> float:
    """The squared relative error to allow for interactions of three attributes that pairs cannot show.

    For each triple that was not asked together a quarter (INTERACTION squared) of the mean of its pairs' mean square
    contingency phi^2, the squared relative departure from independence. Zero for fewer than three attributes and for
    independent ones.
    """
    ones = {name: model.marginal([name]) for name in attributes}
    phi = {}
    if len(attributes) >= 3:
        for a, b in combinations(attributes, 2):
            product = np.outer(ones[a], ones[b])
            phi[a, b] = float(((model.marginal([a, b]) - product) ** 2 / np.maximum(product, 1e-12)).sum())
    triples = (triple for triple in combinations(attributes, 3) if frozenset(triple) not in asked)
    return INTERACTION**2 * sum((phi[a, b] + phi[a, c] + phi[b, c]) / 3 for a, b, c in triples)


def _machine_of(source: Release | ProtocolMachine) -> Release | ProtocolMachine:
    """The finished protocol that a release carries, without what was held out of the fit; else the source itself."""
    if not isinstance(source, ProtocolMachine) and source.state is not None:
        source = restore(source.state)
    return source.machine if isinstance(source, HoldOut) else source


def _facts(source: Release | ProtocolMachine) -> tuple[str, Model, Schema, float, int, JsonObject]:
    if not isinstance(source, ProtocolMachine):
        given = dict(source.parameters)
        return source.method, source.model, source.schema, source.epsilon_asked, source.participants, given
    campaign = source.campaign
    given = source.plain_parameters()
    return source.method, source.model(), campaign.schema, campaign.epsilon, campaign.participants, given


def _pair_targets_of(machine: ProtocolMachine) -> PairTargets:
    return pair_targets(machine.core.campaign.schema, answers_of(machine.core.counted))


def _asked_together(machine: ProtocolMachine) -> frozenset[frozenset[str]]:
    """The pairs and triples of attributes that somebody answered about together; no triples if the fit looks at pairs alone."""
    machine = machine.core
    answers = answers_of(machine.counted)
    pairs_alone = machine.method == "mixture" and not tables_pay(len(machine.campaign.schema), answers)
    sets, sizes = {answer.question.attributes for answer in answers}, (2,) if pairs_alone else (2, 3)
    return frozenset(frozenset(some) for names in sets for size in sizes for some in combinations(names, size))


class _Residuals:
    """Weighted squared differences of a model from raw pair estimates, with weights fixed by the real campaign."""

    def __init__(self, targets: PairTargets, model: Model) -> None:
        self.model, self.schema, self.columns = model, model.schema, targets.columns
        every = [(i, j) for i, j in combinations(range(len(self.schema)), 2) if targets.pair_noise[1][i, j] > 0]
        step = max(1, -(-len(every) // MOST_PAIRS))
        self.pairs = every[::step]
        self.weights = [self._weights(targets, i, j) for i, j in self.pairs]
        self.real = self.squares(targets, model)

    def _marginal(self, model: Model, i: int, j: int) -> Floats:
        return model.marginal([self.schema.names[i], self.schema.names[j]])

    def _weights(self, targets: PairTargets, i: int, j: int) -> Floats:
        c0, c1, c2 = (float(c[i, j]) for c in targets.pair_noise)
        f = self._marginal(self.model, i, j)
        # The floor keeps cells of frequency zero, whose variance vanishes at large epsilon, from ruling the sum.
        return np.asarray(1.0 / np.maximum(c0 + f * (c1 - c2 * f), 1e-3 * c2))

    def squares(self, targets: PairTargets, model: Model) -> float:
        """The weighted squared residuals of a model and the raw estimates it was fitted to."""
        total = 0.0
        for (i, j), weights in zip(self.pairs, self.weights, strict=True):
            raw = targets.pairs[self.columns.of(i), self.columns.of(j)]
            total += float((weights * (self._marginal(model, i, j) - raw) ** 2).sum())
        return total

    def distance(self, model: Model) -> float:
        """The weighted squared distance of a refit from the model that its people were drawn from."""
        return sum(
            float((weights * (self._marginal(model, i, j) - self._marginal(self.model, i, j)) ** 2).sum())
            for (i, j), weights in zip(self.pairs, self.weights, strict=True)
        )


def _residuals_of(machine: ProtocolMachine, model: Model) -> _Residuals | None:
    return _Residuals(_pair_targets_of(machine), model) if machine.core.counted else None


def _learns_dependence(source: Release | ProtocolMachine) -> bool:
    """Whether pairs were asked of all attributes and used; a method that leaves some out says so in its notes."""
    if not isinstance(source, ProtocolMachine):
        together = source.notes.get("asked_in_pairs", len(source.schema))
        return source.method != "independent" and not source.notes.get("fallbacks") and together >= len(source.schema)
    return source.method != "independent" and not source.notes().get("fallbacks")
