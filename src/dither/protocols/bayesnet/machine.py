"""The refined Bayes network: attributes added one by one with the parents that tell most about them.

Reference: Ju, Gu, Wu, Zhang, "Local differential privacy protection of high-dimensional perceptual data by the refined
Bayes network", Sensors 2020. `plan=sample` asks each participant one question at full epsilon: pairs first, then each
attribute with its parents. `plan=split` is the paper's method: one round in which everybody reports every attribute, at an
epsilon that is shared out between them (its eq. 6 counts it right).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from dither.errors import StateError
from dither.estimate import Marginal, answers_of, check_asked
from dither.estimate.joint import SplitReports
from dither.models.bayes_net import BayesNet
from dither.protocols.bayesnet.learn import (
    BayesNetParameters,
    NetworkFit,
    joints_from_answers,
    learn_split,
    question_sets,
    structure_from_pairs,
)
from dither.protocols.evidence import Evidence, merged
from dither.protocols.lopub import plan as lopub_plan
from dither.protocols.machine import Campaign, ProtocolMachine
from dither.protocols.privincr import plan as privincr_plan
from dither.protocols.tree import FALLBACK
from dither.reports import Plan
from dither.structure.bayes_search import Network, candidates_computed
from dither.tally import CountTally, PatternTally, RoundTally
from dither.types import JsonObject


class BayesNetwork(ProtocolMachine[BayesNetParameters]):
    """One split round, or two rounds of single questions; then the network and its conditionals."""

    method = "bayesnet"
    parameters_class = BayesNetParameters

    def __init__(self, campaign: Campaign, parameters: BayesNetParameters) -> None:
        super().__init__(campaign, parameters)
        self.evidence = Evidence(campaign.schema, ())
        self._network: Network | None = None
        self._asked: tuple[tuple[int, ...], ...] = ()
        self._asking = privincr_plan.PrivIncrParameters(
            mechanism=parameters.mechanism,
            singles=parameters.singles,
            significance=parameters.significance,
        )
        self._learnable = (
            privincr_plan.learnable_pairs(campaign, self._asking)
            if parameters.plan == "sample"
            else []
        )
        self._open: Plan | None = self._first_plan()

    def _first_plan(self) -> Plan:
        if self.parameters.plan == "split":
            unary = lopub_plan.LoPubParameters(encoding="unary", flip=self.parameters.flip)
            return lopub_plan.lopub_plan(self.campaign.schema, self.campaign.epsilon, unary)
        population = self.parameters.omega if self._learnable else 1.0
        return self._questions(0, population, self._learnable, len(self._learnable))

    def _questions(
        self, number: int, population: float, sets: Sequence[tuple[int, ...]], left: int
    ) -> Plan:
        share = privincr_plan.singles_share(self.campaign, len(self._learnable), left, self._asking)
        return privincr_plan.round_plan(
            self.campaign, self._asking, number, population, sets, share
        )

    def plan(self) -> Plan | None:
        return self._open

    def _check_answers(self, tally: RoundTally) -> None:
        if isinstance(tally, CountTally):
            check_asked(self.campaign.schema, (*self.evidence.answers, *answers_of([tally])))

    def _go_on(self, tally: RoundTally) -> None:
        self.evidence = Evidence(self.campaign.schema, merged(answers_of(self.counted)))
        self._open = (
            self._second_plan()
            if self.parameters.plan == "sample" and len(self._closed) == 1
            else None
        )

    def _second_plan(self) -> Plan | None:
        """Questions about the families of the network; none when everybody has been asked already."""
        if not self._learnable:
            return None
        self._network = structure_from_pairs(self.evidence, self.parameters, self.campaign.seed)
        people = (1 - self.parameters.omega) * self.campaign.participants
        self._asked = question_sets(
            self.campaign.schema, self._network, self.campaign.epsilon, people, self.parameters
        )
        return self._questions(1, 1 - self.parameters.omega, self._asked, len(self._asked))

    @cached_property
    def reports(self) -> SplitReports:
        """The whole reports of the split plan."""
        tally = self._closed[0] if self._closed else None
        if not isinstance(tally, PatternTally):
            raise StateError(
                "there are no whole reports: the round is still open, or the plan is not split"
            )
        return SplitReports.from_tally(tally)

    @cached_property
    def learnt(self) -> NetworkFit:
        """The network and its model."""
        self._finished()
        schema, parameters = self.campaign.schema, self.parameters
        if parameters.plan == "split":
            return learn_split(schema, self.reports, parameters, self.campaign.seed)
        network = self._network or structure_from_pairs(
            self.evidence, parameters, self.campaign.seed
        )
        answered_sets = {frozenset(a.question.attributes) for a in self.evidence.answers}
        asked = [s for s in self._asked if frozenset(schema.names[a] for a in s) in answered_sets]
        return NetworkFit(network, joints_from_answers(self.evidence, network, asked), len(asked))

    def model(self) -> BayesNet:
        return self.learnt.model

    def measured(self) -> list[Marginal]:
        if not self._closed:
            return []
        if self.parameters.plan == "sample":
            return self.evidence.measured(sorted(self._network.edges()) if self._network else [])
        return self.reports.one_ways()

    def notes(self) -> JsonObject:
        parameters, names = self.parameters, self.campaign.schema.names
        out: JsonObject = {
            "plan": parameters.plan,
            "root": parameters.root,
            "candidates": parameters.candidates,
            "degree": parameters.degree,
        }
        if self._closed and self._open is None:
            network = self.learnt.network
            out["order"] = [names[a] for a in network.order]
            out["edges"] = [
                [names[p], names[a]] for a, given in enumerate(network.parents) for p in given
            ]
            out["sum_of_mutual_information"] = network.total
            out["mutual_informations_computed"] = network.computed
            d = len(names)
            out["mutual_informations_by_algorithm_3_and_4"] = [
                candidates_computed(d, parameters.degree, cached) for cached in (False, True)
            ]
            out["joints_estimated"] = self.learnt.joints
            if not network.edges():
                out["fallback"] = FALLBACK
        return out
