"""The house method: a mixture of products fitted to all noisy pair marginals at once.

Each participant is asked one pair (or a larger set where that tells more, or one single attribute) at full epsilon with the best
mechanism for its cells. All raw estimates together, weighted by inverse variance, determine one joint model: pairs through the
matrix of all pair marginals, larger sets through their whole tables unless the attributes are very many. The fit stops where its
estimated risk is least. Where pairs would cost one-way precision, a small first round looks for dependence; if it finds too
little, single attributes are asked and the model is their product. See docs/explanation/mixture.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from dither.checks import check_between, check_whole, check_whole_or_none
from dither.estimate import Marginal, answers_of, check_asked, pool
from dither.estimate.mixture_fit import FitOptions, MixtureFit, fit_mixture, product_fit
from dither.estimate.targets import pair_targets, set_targets, tables_pay
from dither.models.mixture import Mixture
from dither.protocols.machine import ProtocolMachine
from dither.protocols.mixture.plan import Sets, one_way_precision, pair_plan
from dither.protocols.mixture.screen import (
    ScreenDesign,
    ScreenEvidence,
    design,
    evidence,
    paying_members,
    rest_shares,
    second_round,
)
from dither.reports import Plan, question
from dither.schema import Schema
from dither.tally import CountTally, RoundTally
from dither.types import JsonObject


@dataclass(frozen=True)
class MixtureParameters:
    """All automatic unless set.

    `components` per start, `total` over all starts, `singles` the share asked one attribute; `screen`: whether a first round
    looks for dependence (`auto`: where pairs cost one-way precision and dependence could be seen at all; `never`: pairs, come
    what may).
    """

    components: int | None = None
    total: int = 600
    singles: float | None = None
    screen: Literal["auto", "always", "never"] = "auto"

    def __post_init__(self) -> None:
        check_whole_or_none("components", self.components, 1, 2000)
        check_whole("total", self.total, 2, 20_000)
        if self.singles is not None:
            check_between("singles", self.singles, 0, 1, ends="[)")


class MixtureProtocol(ProtocolMachine[MixtureParameters]):
    """One round of pair, set and single questions, or a screen and then such a round."""

    method = "mixture"
    parameters_class = MixtureParameters

    @cached_property
    def _design(self) -> ScreenDesign:
        c = self.campaign
        return design(c.schema.cardinalities, c.participants, c.epsilon, self.parameters.screen)

    def _plan(self, number: int, sets: Sets, population: float) -> Plan:
        schema, epsilon = self.campaign.schema, self.campaign.epsilon
        asked = [(members, share) for members, share in sets if share > 0]
        questions = tuple(question(schema, [schema.names[i] for i in members], epsilon) for members, _ in asked)
        total = math.fsum(share for _, share in asked)
        return Plan(number, questions, tuple(share / total for _, share in asked), population=population)

    @cached_property
    def _first(self) -> Plan:
        screen = self._design.screen
        if screen is not None:
            return self._plan(0, screen.sets, screen.share)
        members = range(len(self.campaign.schema)) if self._design.pairs else ()
        return self._plan(
            0,
            pair_plan(self.campaign.schema.cardinalities, self.campaign.epsilon, members, self.parameters.singles),
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
        return evidence(pair_targets(Schema(tuple(self.campaign.schema.attributes[i] for i in asked)), answers))

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
        screen, k, epsilon = self._design.screen, self.campaign.schema.cardinalities, self.campaign.epsilon
        if screen is None:
            return None
        if self._members:
            sets = second_round(screen, pair_plan(k, epsilon, self._members, self.parameters.singles))
        else:
            asked = screen.share * one_way_precision(k, epsilon, screen.sets)
            sets = [((i,), float(s)) for i, s in enumerate(rest_shares(k, epsilon, asked, screen.share))]
        return self._plan(1, sets, 1.0 - screen.share)

    def plan(self) -> Plan | None:
        if not self._closed:
            return self._first
        return self._second if len(self._closed) == 1 else None

    def _check_answers(self, tally: RoundTally) -> None:
        assert isinstance(tally, CountTally)
        if self._closed or self._design.screen is None:
            # An error here names the attributes nobody answered about, before the last round is closed.
            check_asked(self.campaign.schema, answers_of([*self.counted, tally]))

    @cached_property
    def _fitted(self) -> MixtureFit:
        answers = answers_of(self.counted)
        targets = pair_targets(self.campaign.schema, answers)
        if not self._members:
            return product_fit(targets)
        options = FitOptions(components=self.parameters.components, total=self.parameters.total)
        whole = tables_pay(len(self.campaign.schema), answers)
        sets = set_targets(self.campaign.schema, answers, targets.columns) if whole else None
        return fit_mixture(targets, np.random.default_rng([self.campaign.seed, 0x6D6978]), options, sets)

    def model(self) -> Mixture:
        self._finished()
        fitted, stops = self._fitted, np.cumsum(self.campaign.schema.cardinalities)
        tables = np.split(fitted.components, stops[:-1], axis=1)
        return Mixture(self.campaign.schema, fitted.weights, tuple(t / t.sum(axis=1, keepdims=True) for t in tables))

    def measured(self) -> list[Marginal]:
        if not self._closed:
            return []
        schema, answers = self.campaign.schema, answers_of(self.counted)
        return [pool(schema, answers, [name]) for name in schema.names]

    def notes(self) -> JsonObject:
        if self.plan() is not None:
            return {}
        notes: JsonObject = {"fit": self._fitted.diagnostics, "asked_in_pairs": len(self._members)}
        screen = self._design.screen
        if screen is not None:
            notes["screen"] = {"share": screen.share, "attributes": len(screen.members)}
            if self._seen is not None:
                notes["screen"] |= {"p_value": self._seen.p_value, "squared_distance": self._seen.strength}
        if not self._members:
            why = (
                "pairs would be noise at this epsilon and number of participants"
                if screen is None
                else "a first round found too little dependence for pairs to pay"
            )
            if len(self.campaign.schema) > 1:
                notes["fallbacks"] = [f"{why}, so single attributes were asked and the model takes them as independent"]
        return notes
