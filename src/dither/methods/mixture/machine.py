"""The house method: a mixture of products fitted to all noisy pair marginals at once.

Each participant is asked one pair (or a larger set if that is more informative, or one single
attribute) at full epsilon with the best mechanism for its cells. All raw estimates, weighted by
inverse variance, determine one joint model: pairs through the matrix of all pair marginals,
larger sets through their whole tables unless the attributes are very many or pairs alone have
the lower estimated risk. The fit stops at the least estimated risk. If pairs would cost one-way
precision, a small first round tests for dependence; if it finds too little, single attributes
are asked and the model is their product. See docs/explanation/mixture.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np

from dither.checks import check_between, check_choice, check_whole, check_whole_or_none
from dither.errors import ParameterError
from dither.fit import Marginal, answers_of, check_asked, pool
from dither.fit.mixture.bayes import thorough_fit
from dither.fit.mixture.edges import local_chi2, pair_cells
from dither.fit.mixture.fit import (
    FitOptions,
    MixtureFit,
    degrees_after_shrinking,
    fit_mixture,
    product_fit,
)
from dither.fit.mixture.model import Edge, Mixture
from dither.fit.mixture.public_prior import with_public
from dither.fit.mixture.set_fit import SetTargets, set_targets
from dither.fit.mixture.targets import Edges, PairTargets, pair_targets, tables_pay, trees
from dither.methods.diagnostics import Diagnostics
from dither.methods.machine import Campaign, Pairs, ProtocolMachine
from dither.methods.mixture.plan import (
    ScreenDesign,
    ScreenEvidence,
    Sets,
    design,
    evidence,
    one_way_precision,
    pair_plan,
    paying_members,
    rest_shares,
    second_round,
)
from dither.methods.prior import EarlierReports, PooledAnswers, PublicPrior, pooled_answers
from dither.reports import Plan, question
from dither.schema import Schema
from dither.tally import CountTally, RoundTally
from dither.types import JsonObject

_WITH_SETS = "sets of three attributes or more were asked, where it does not gain"
_NOT_JUDGED = "no pairs were asked, so nothing could tell whether its dependence is right"
# A release states the local fit of the edges and of this many worst pairs.
_WORST_PAIRS = 10


@dataclass(frozen=True)
class MixtureParameters:
    """Parameters of the mixture, chosen automatically by default.

    Attributes:
        components: Components per start.
        total: Components over all starts.
        singles: Share of one-attribute questions.
        screen: Whether a first round tests for dependence. `auto`: if pairs cost one-way
            precision and dependence could be detected; `never`: always ask pairs.
        edges: The strong pairs that the fit ties together. `auto` chooses them from the
            reports, `none` leaves them out, a list of pairs of names ties exactly these.
        tables: Whether larger sets are fitted as whole tables. `auto`: if the estimated risk is
            lower; `never`: through their pairs only, in a fraction of the time.
        effort: `thorough` averages the fit with a posterior mean, which takes some seconds more
            and reduces the error if pairs are noisy.
    """

    components: int | None = None
    total: int = 600
    singles: float | None = None
    screen: Literal["auto", "always", "never"] = "auto"
    edges: Pairs | str = "auto"
    tables: Literal["auto", "always", "never"] = "auto"
    effort: Literal["quick", "thorough"] = "quick"

    def __post_init__(self) -> None:
        check_whole_or_none("components", self.components, 1, 2000)
        check_whole("total", self.total, 2, 20_000)
        check_choice("tables", self.tables, ("auto", "always", "never"))
        check_choice("effort", self.effort, ("quick", "thorough"))
        if self.singles is not None:
            check_between("singles", self.singles, 0, 1, ends="[)")
        if isinstance(self.edges, str):
            check_choice("edges", self.edges, ("auto", "none"))
        elif (name := _too_often(self.edges)) is not None:
            raise ParameterError(
                f"edges name {name!r} too often; they may tie up to four attributes in a row, without a branch or a ring",
                where="edges",
                value=name,
            )


def _too_often(pairs: Pairs) -> str | None:
    """The first name at which pairs would tie more than four attributes together, or not in a row."""
    number: dict[str, int] = {}
    edges: Edges = ()
    for a, b in pairs:
        edges = (*edges, (number.setdefault(a, len(number)), number.setdefault(b, len(number))))
        try:
            trees(edges)
        except ValueError:
            return a
    return None


def as_model(schema: Schema, fitted: MixtureFit) -> Mixture:
    """The model of a fit."""
    tables = np.split(fitted.components, np.cumsum(schema.cardinalities)[:-1], axis=1)
    return Mixture(
        schema,
        fitted.weights,
        tuple(t / t.sum(axis=1, keepdims=True) for t in tables),
        tuple(
            Edge(i, j, psi.reshape(len(psi), schema.cardinalities[i], -1), *more)
            for (i, j, *more), psi in zip(trees(fitted.edges), fitted.potentials, strict=True)
        ),
        fitted.groups if fitted.edges else None,
    )


class MixtureProtocol(ProtocolMachine[MixtureParameters]):
    """One round of pair, set and single questions, or a screen and then such a round."""

    method = "mixture"
    parameters_class = MixtureParameters
    takes_prior = True

    def __init__(self, campaign: Campaign, parameters: MixtureParameters) -> None:
        super().__init__(campaign, parameters)
        self._edges: Edges | None = None  # the fit chooses
        if parameters.edges != "auto":
            pairs = () if isinstance(parameters.edges, str) else parameters.edges
            ends = [sorted(campaign.schema.index(name) for name in pair) for pair in pairs]
            self._edges = tuple((i, j) for i, j in ends)

    @cached_property
    def _design(self) -> ScreenDesign:
        c, wanted = self.campaign, self.parameters.screen
        ordered = all(attribute.ordered for attribute in c.schema)
        return design(c.schema.cardinalities, c.participants, c.epsilon, wanted, ordered=ordered)

    def _plan(self, number: int, sets: Sets, population: float) -> Plan:
        schema, epsilon = self.campaign.schema, self.campaign.epsilon
        asked = [(members, share) for members, share in sets if share > 0]
        questions = tuple(
            question(schema, [schema.names[i] for i in members], epsilon) for members, _ in asked
        )
        total = math.fsum(share for _, share in asked)
        return Plan(
            number, questions, tuple(share / total for _, share in asked), population=population
        )

    @cached_property
    def _first(self) -> Plan:
        screen = self._design.screen
        if screen is not None:
            return self._plan(0, screen.sets, screen.share)
        members = range(len(self.campaign.schema)) if self._design.pairs else ()
        alone = self._design.alone if self.parameters.singles is None else self.parameters.singles
        return self._plan(
            0,
            pair_plan(self.campaign.schema.cardinalities, self.campaign.epsilon, members, alone),
            1.0,
        )

    @cached_property
    def _seen(self) -> ScreenEvidence | None:
        """What the screen's reports say; None if too few came in to say anything."""
        screen = self._design.screen
        assert screen is not None
        answers = answers_of(self.counted[:1])
        names = {name for answer in answers for name in answer.question.attributes}
        asked = [i for i in screen.members if self.campaign.schema.names[i] in names]
        if len(asked) < 2:
            return None
        return evidence(
            pair_targets(Schema(tuple(self.campaign.schema.attributes[i] for i in asked)), answers)
        )

    @cached_property
    def _members(self) -> list[int]:
        """The attributes that are asked in pairs in the end."""
        if self._design.screen is None:
            return list(range(len(self.campaign.schema))) if self._design.pairs else []
        c = self.campaign
        if self._seen is None:
            return []
        return paying_members(c.schema.cardinalities, c.participants, c.epsilon, self._seen)

    @cached_property
    def _second(self) -> Plan | None:
        screen, k, epsilon = (
            self._design.screen,
            self.campaign.schema.cardinalities,
            self.campaign.epsilon,
        )
        if screen is None:
            return None
        if self._members:
            sets = second_round(
                screen, pair_plan(k, epsilon, self._members, self.parameters.singles)
            )
        else:
            asked = screen.share * one_way_precision(k, epsilon, screen.sets)
            sets = [
                ((i,), float(s)) for i, s in enumerate(rest_shares(k, epsilon, asked, screen.share))
            ]
        return self._plan(1, sets, 1.0 - screen.share)

    def plan(self) -> Plan | None:
        if not self._closed:
            return self._first
        return self._second if len(self._closed) == 1 else None

    def _check_answers(self, tally: RoundTally) -> None:
        assert isinstance(tally, CountTally)
        if self._closed or self._design.screen is None:
            # Raises an error for attributes without answers before the last round is closed.
            check_asked(self.campaign.schema, answers_of([*self.counted, tally]))

    @cached_property
    def _answers(self) -> PooledAnswers:
        """What the fit is to: all answers, with those of an earlier campaign if one is known."""
        own = answers_of(self.counted)
        if not isinstance(self.prior, EarlierReports):
            return PooledAnswers(own, {})
        return pooled_answers(self.campaign.schema, own, self.prior)

    @cached_property
    def _targets(self) -> PairTargets:
        return pair_targets(self.campaign.schema, self._answers.answers)

    @cached_property
    def _sets(self) -> Callable[[Edges], SetTargets] | None:
        """The whole tables for a choice of edges, where they are fitted."""
        answers, targets = self._answers.answers, self._targets
        if self.parameters.tables == "never" or not tables_pay(len(self.campaign.schema), answers):
            return None
        return partial(set_targets, self.campaign.schema, answers, targets.columns)

    @cached_property
    def _fit(self) -> tuple[MixtureFit, JsonObject]:
        """The fit, and what to say of its Bayesian member if one was wanted."""
        targets = self._targets
        if not self._members:
            return product_fit(targets), {}
        options = FitOptions(
            components=self.parameters.components,
            total=self.parameters.total,
            edges=self._edges,
            whole_tables=self.parameters.tables == "always",
        )
        rng = np.random.default_rng([self.campaign.seed, 0x6D6978])
        fitted = fit_mixture(targets, rng, options, self._sets)
        if self.parameters.effort == "quick" or not targets.has_pairs:
            return fitted, {}
        if self._sets is not None:
            return fitted, {"bayesian_member": {"share": 0.0, "left_out": _WITH_SETS}}
        rng = np.random.default_rng([self.campaign.seed, 0x626179])
        fitted, said = thorough_fit(targets, fitted, rng, progress=self.progress)
        return fitted, {"bayesian_member": said}

    @cached_property
    def _blend(self) -> tuple[MixtureFit, JsonObject]:
        """The fit averaged with the prior if there is one, and what a release says of that."""
        fitted, said = self._fit
        if not isinstance(self.prior, PublicPrior):
            return fitted, self._answers.note
        known = {**self.prior.facts(), "classes": len(self.prior.classes.weights)}
        if not self._members or not self._targets.has_pairs:
            return fitted, {**known, "share_of_prior": 0.0, "left_out": _NOT_JUDGED}
        member = said.get("bayesian_member", {"share": 0.0, "degrees_of_freedom": 0.0})
        df = degrees_after_shrinking(self._targets, fitted)
        if member["share"] > 0.0:
            df += member["share"] * (member["degrees_of_freedom"] - df)
        sets = None if self._sets is None else self._sets(fitted.edges)
        rng = np.random.default_rng([self.campaign.seed, 0x7072696F])
        blend = with_public(self._targets, fitted, df, self.prior.classes, rng, sets)
        return blend.fit, {**known, **blend.note}

    @property
    def _fitted(self) -> MixtureFit:
        return self._blend[0]

    def model(self) -> Mixture:
        self._finished()
        return as_model(self.campaign.schema, self._fitted)

    def measured(self) -> list[Marginal]:
        if not self._closed:
            return []
        schema, answers = self.campaign.schema, answers_of(self.counted)
        return [pool(schema, answers, [name]) for name in schema.names]

    @cached_property
    def _local(self) -> JsonObject:
        """The edges by name, and chi^2 of their pairs and of the worst pairs against the reports."""
        fitted, names = self._fitted, self.campaign.schema.names
        targets = self._targets
        if not targets.has_pairs:
            return {"edges": [], "local": []}
        chi2, cells = local_chi2(targets, fitted.pairs, fitted.one), pair_cells(targets.columns)
        excess = np.triu((chi2 - cells) / np.sqrt(2.0 * cells), 1)
        asked = np.argwhere(np.triu(targets.pair_noise[1] > 0, 1)).tolist()
        worst = sorted(((int(i), int(j)) for i, j in asked), key=lambda pair: -float(excess[pair]))[
            :_WORST_PAIRS
        ]
        shown = [*fitted.edges, *(pair for pair in worst if pair not in fitted.edges)]
        return {
            "edges": [[names[i], names[j]] for i, j in fitted.edges],
            "local": [
                {"pair": [names[i], names[j]], "chi2": float(chi2[i, j]), "cells": int(cells[i, j])}
                for i, j in shown
            ],
        }

    def diagnostics(self) -> Diagnostics:
        if self.plan() is not None:
            return Diagnostics()
        notes: JsonObject = {
            "fit": {**self._fitted.diagnostics, **self._local, **self._fit[1]},
            "asked_in_pairs": len(self._members),
        }
        if self.prior is not None:
            notes["prior"] = self._blend[1]
        screen = self._design.screen
        if screen is not None:
            notes["screen"] = {"share": screen.share, "attributes": len(screen.members)}
            if self._seen is not None:
                notes["screen"] |= {
                    "p_value": self._seen.p_value,
                    "squared_distance": self._seen.strength,
                }
        if not self._members:
            why = (
                "pairs would be noise at this epsilon and number of participants"
                if screen is None
                else "a first round found too little dependence for pairs to pay"
            )
            if len(self.campaign.schema) > 1:
                notes["fallbacks"] = [
                    f"{why}, so single attributes were asked and the model takes them as independent"
                ]
        return Diagnostics.from_json(notes)
