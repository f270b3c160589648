"""PrivIncr: rounds of pair questions that prune weak pairs, then questions about the cliques of a junction tree.

Reference: Liu, Tang, Hu, Jin, Guo, "Multi-dimensional data publishing with local differential privacy", EDBT 2023. Every
participant answers one question at full epsilon. Answers are pooled by their whole variance, of noise and of who was asked (the
paper's weights: erratum 6); pairs are pruned by risk unless the paper's rule is asked for, since that prunes nothing (erratum 7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from dither.checks import check_whole
from dither.estimate import Marginal, answers_of, check_asked
from dither.models.junction_tree import JunctionTree
from dither.models.tree_fit import TreeFit
from dither.protocols.evidence import Evidence, Pair, merged
from dither.protocols.machine import Campaign, ProtocolMachine
from dither.protocols.privincr.learn import (
    CliqueLayout,
    fit_cliques,
    lay_out,
    prune,
    with_late_pairs,
)
from dither.protocols.privincr.plan import (
    PrivIncrParameters,
    check_campaign,
    learnable_pairs,
    round_plan,
    rounds_of,
    singles_share,
    usual_singles,
)
from dither.protocols.tree import FALLBACK, fit_jointly, fit_notes, tree_notes, without_dependence
from dither.reports import Plan
from dither.tally import CountTally, RoundTally
from dither.types import JsonObject


class PrivIncr(ProtocolMachine[PrivIncrParameters]):
    """T rounds about pairs, one about cliques. No pair that can be learnt, or none left: one round about singles."""

    method = "privincr"
    parameters_class = PrivIncrParameters

    def __init__(self, campaign: Campaign, parameters: PrivIncrParameters) -> None:
        check_campaign(campaign, parameters)
        super().__init__(campaign, parameters)
        self.rounds = rounds_of(campaign, parameters)
        self.evidence = Evidence(campaign.schema, ())
        self._learnable = learnable_pairs(campaign, parameters)
        self._edges: list[Pair] = list(self._learnable)
        self._history: list[int] = []
        self._used = 0.0
        self._layout: CliqueLayout | None = None
        self._late = 0
        self._open: Plan | None = self._next_plan()

    def _next_plan(self) -> Plan:
        """The next round of pairs while there are rounds and pairs left, else the last round."""
        number = len(self._closed)
        share = singles_share(
            self.campaign, len(self._learnable), len(self._edges), self.parameters
        )
        if self._edges and number < self.rounds:
            population = self.parameters.omega / self.rounds
            return round_plan(
                self.campaign, self.parameters, number, population, self._edges, share
            )
        left = 1.0 - self._used
        sets: tuple[tuple[int, ...], ...] = ()
        if number:
            people = left * self.campaign.participants
            self._layout = lay_out(
                self.evidence, self._edges, self.parameters, self.campaign.epsilon, people
            )
            sets = self._layout.sets
        return round_plan(self.campaign, self.parameters, number, left, sets, share)

    def plan(self) -> Plan | None:
        return self._open

    def _check_answers(self, tally: RoundTally) -> None:
        assert isinstance(tally, CountTally)
        check_asked(self.campaign.schema, (*self.evidence.answers, *answers_of([tally])))

    def _go_on(self, tally: RoundTally) -> None:
        assert self._open is not None
        finished = not (self._edges and len(self._closed) <= self.rounds)
        self.evidence = Evidence(self.campaign.schema, merged(answers_of(self.counted)))
        self._used = min(1.0, self._used + self._open.population)
        if finished:
            if (
                self._layout is not None
                and self.parameters.fit == "joint"
                and self.parameters.threshold == "calibrated"
            ):
                before = self._layout.tree.kept
                self._layout = with_late_pairs(
                    self.evidence, self._layout, self._open, self.parameters
                )
                self._late = len(set(self._layout.tree.kept) - set(before))
            self._open = None
            return
        last = len(self._closed) == self.rounds
        people = (
            (1 - self._used)
            * (1 - usual_singles(self.campaign, self.parameters))
            * self.campaign.participants
        )
        self._edges = prune(self.evidence, self._edges, self.parameters, people, last)
        self._history.append(len(self._edges))
        self._open = self._next_plan()

    @cached_property
    def _fitted(self) -> tuple[JunctionTree, TreeFit | None]:
        self._finished()
        evidence = self.evidence
        if self._layout is None or not self._layout.tree.kept:
            return without_dependence(evidence), None
        if self.parameters.fit == "paper":
            return fit_cliques(evidence, self._layout), None
        fitted = fit_jointly(evidence, self._layout.tree)
        return fitted.model, fitted

    def model(self) -> JunctionTree:
        return self._fitted[0]

    def measured(self) -> list[Marginal]:
        if not self._closed:
            return []
        return self.evidence.measured(self._layout.tree.kept if self._layout else self._edges)

    def notes(self) -> JsonObject:
        schema = self.campaign.schema
        out: JsonObject = {
            "pairs": math.comb(len(schema), 2),
            "pairs_asked": len(self._learnable),
            "rounds_of_pairs": self.rounds if self._learnable else 0,
            "pairs_left_after_each_round": list(self._history),
            "pairs_that_came_back": self._late,
            "threshold": self.parameters.threshold,
            "fit": self.parameters.fit,
        }
        if self._layout is not None:
            out |= tree_notes(schema, self._layout.tree)
        if self._open is None:
            fitted = self._fitted[1]
            if fitted is not None:
                out["tree_fit"] = fit_notes(fitted)
            if self._layout is None or not self._layout.tree.kept:
                out["fallback"] = FALLBACK
        return out


@dataclass(frozen=True)
class NoIncrementalParameters(PrivIncrParameters):
    """PrivIncr's parameters, with one round; see there."""

    rounds: int | None = 1

    def __post_init__(self) -> None:
        check_whole("rounds", self.rounds, 1, 1)
        super().__post_init__()


class NoIncremental(PrivIncr):
    """One round about all pairs, one about cliques."""

    method = "noincremental"
    parameters_class = NoIncrementalParameters
