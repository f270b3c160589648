"""PrivIncr: rounds of pair questions that prune weak pairs, then questions about the cliques of a junction tree.

Reference: Liu, Tang, Hu, Jin, Guo, "Multi-dimensional data publishing with local differential privacy", EDBT 2023. Every
participant answers one question at full epsilon. Pooling weights are n/C (erratum 6); the pruning rule is noise-aware
unless the paper's is asked for, since that prunes nothing (erratum 7).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from dither.errors import StateError
from dither.estimate import answered
from dither.models.junction_tree import JunctionTree
from dither.models.tree_fit import TreeFit
from dither.protocols.evidence import Evidence
from dither.protocols.machine import Campaign, Measured, check_close, pack_state, replay
from dither.protocols.privincr.learn import (
    Layout,
    fit_cliques,
    fit_jointly,
    lay_out,
    prune,
    without_dependence,
)
from dither.protocols.privincr.plan import (
    Pair,
    Parameters,
    check_campaign,
    learnable_pairs,
    round_plan,
    rounds_of,
    singles_share,
)
from dither.reports import Plan
from dither.tally import CountTally, RoundTally


class PrivIncr:
    """T rounds about pairs, one about cliques. No pair that can be learnt, or none left: one round about singles."""

    method = "privincr"

    def __init__(self, campaign: Campaign, parameters: Parameters) -> None:
        self.campaign = campaign
        self.parameters = parameters
        self.rounds = rounds_of(campaign, parameters)
        self._closed: list[RoundTally] = []
        self.evidence = Evidence(campaign.schema, ())
        self._learnable = learnable_pairs(campaign, parameters)
        self._edges: list[Pair] = list(self._learnable)
        self._history: list[int] = []
        self._used = 0.0
        self._layout: Layout | None = None
        self._open: Plan | None = self._next_plan()

    @classmethod
    def start(cls, campaign: Campaign, parameters: Parameters) -> PrivIncr:
        """A campaign before its first round."""
        check_campaign(campaign, parameters)
        return cls(campaign, parameters)

    def _next_plan(self) -> Plan:
        """The next round of pairs while there are rounds and pairs left, else the last round."""
        number = len(self._closed)
        share = singles_share(self.campaign.schema, len(self._learnable), len(self._edges), self.parameters)
        if self._edges and number < self.rounds:
            population = self.parameters.omega / self.rounds
            return round_plan(self.campaign, self.parameters, number, population, self._edges, share)
        left = 1.0 - self._used
        sets: tuple[tuple[int, ...], ...] = ()
        if number:
            people = left * self.campaign.participants
            self._layout = lay_out(self.evidence, self._edges, self.parameters, self.campaign.epsilon, people)
            sets = self._layout.sets
        return round_plan(self.campaign, self.parameters, number, left, sets, share)

    def plan(self) -> Plan | None:
        return self._open

    def close(self, tally: RoundTally) -> None:
        check_close(self._open, tally)
        assert isinstance(tally, CountTally)
        assert self._open is not None
        evidence = Evidence(self.campaign.schema, (*self.evidence.answers, *answered([tally])))
        evidence.singles  # noqa: B018  an attribute without a single answer is refused before anything is taken in
        finished = not (self._edges and len(self._closed) < self.rounds)
        self._closed.append(tally)
        self.evidence = evidence
        self._used = min(1.0, self._used + self._open.population)
        if finished:
            self._open = None
            return
        last = len(self._closed) == self.rounds
        self._edges = prune(evidence, self._edges, self.parameters, self._used, last)
        self._history.append(len(self._edges))
        self._open = self._next_plan()

    @cached_property
    def _fitted(self) -> tuple[JunctionTree, TreeFit | None]:
        if self._open is not None:
            raise StateError(f"round {self._open.round} is still open: close it before asking for the model")
        evidence = self.evidence
        if self._layout is None or not self._layout.tree.kept:
            return without_dependence(evidence), None
        if self.parameters.fit == "paper":
            return fit_cliques(evidence, self._layout), None
        fitted = fit_jointly(evidence, self._layout.tree)
        return fitted.model, fitted

    def model(self) -> JunctionTree:
        return self._fitted[0]

    def measured(self) -> list[Measured]:
        if not self._closed:
            return []
        return self.evidence.measured(self._layout.tree.kept if self._layout else self._edges)

    def notes(self) -> dict[str, Any]:
        names = self.campaign.schema.names
        d = len(names)
        out: dict[str, Any] = {
            "pairs": d * (d - 1) // 2,
            "pairs_asked": len(self._learnable),
            "rounds_of_pairs": self.rounds if self._learnable else 0,
            "pairs_left_after_each_round": list(self._history),
            "threshold": self.parameters.threshold,
            "fit": self.parameters.fit,
        }
        if self._layout is not None:
            tree = self._layout.tree
            out["edges"] = [[names[i], names[j]] for i, j in tree.kept]
            out["edges_dropped_for_the_cap"] = [[names[i], names[j]] for i, j in tree.dropped]
            out["cliques"] = [[names[a] for a in clique] for clique in tree.cliques]
            out["largest_clique_cells"] = max(tree.cells(self.campaign.schema.cardinalities))
        if self._open is None:
            fitted = self._fitted[1]
            if fitted is not None:
                out["tree_fit"] = {
                    "iterations": fitted.iterations,
                    "discrepancy": fitted.discrepancy,
                    "stopped": fitted.stopped,
                }
            if self._layout is None or not self._layout.tree.kept:
                out["fallback"] = "no pair stands out from noise: attributes are taken as independent"
        return out

    def state(self) -> bytes:
        return pack_state(self.method, self.campaign, self.parameters, self._closed)

    @classmethod
    def restore(cls, state: bytes) -> PrivIncr:
        return replay(cls, Parameters, state)
