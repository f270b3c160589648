"""LoPub: every participant reports every attribute once, as randomised bits; the server learns joints, a graph, a tree.

Reference: Ren, Yu, Yu, Yang, Yang, McCann, Yu, "LoPub: high-dimensional crowdsourced data publication with local
differential privacy", IEEE TIFS 2018. One round, `split`. Two records may differ in all d attributes, so the guarantee
is the sum over the attributes (erratum 1); the paper's figure, 2h ln((2-f)/f), is of one attribute and is stated
beside it as such.
"""

from __future__ import annotations

import math
from functools import cached_property

from dither.estimate import Marginal
from dither.estimate.joint import SplitReports
from dither.mechanisms import BitMechanism
from dither.models.junction_tree import JunctionTree
from dither.protocols.lopub.learn import LoPubFit, learn
from dither.protocols.lopub.plan import LoPubParameters, lopub_plan
from dither.protocols.machine import Campaign, ProtocolMachine, check_clique_cells
from dither.protocols.tree import fit_notes, named, tree_notes
from dither.reports import Plan
from dither.schema import Schema
from dither.tally import PatternTally
from dither.types import JsonObject


class LoPub(ProtocolMachine[LoPubParameters]):
    """One round in which everybody answers everything; then pairs, graph, junction tree."""

    method = "lopub"
    parameters_class = LoPubParameters

    def __init__(self, campaign: Campaign, parameters: LoPubParameters) -> None:
        check_clique_cells(campaign.schema, parameters.max_clique_cells)
        super().__init__(campaign, parameters)
        self._round = lopub_plan(campaign.schema, campaign.epsilon, parameters)

    def plan(self) -> Plan | None:
        return None if self._closed else self._round

    @cached_property
    def reports(self) -> SplitReports:
        """The closed round's reports."""
        self._finished()
        tally = self._closed[0]
        assert isinstance(tally, PatternTally)
        return SplitReports.from_tally(tally)

    @cached_property
    def _learnt(self) -> LoPubFit:
        return learn(self.campaign.schema, self.reports, self.parameters, self.progress)

    def model(self) -> JunctionTree:
        self._finished()
        return self._learnt.model

    def measured(self) -> list[Marginal]:
        if not self._closed:
            return []
        reports = self.reports
        return [
            *reports.one_ways(),
            *(reports.pair_marginal(i, j) for i, j in self._learnt.tree.kept),
        ]

    def notes(self) -> JsonObject:
        out = _encoding_notes(self._round, self.parameters)
        if self._closed:
            out |= _learnt_notes(self.campaign.schema, self._learnt)
        return out


def _encoding_notes(plan: Plan, parameters: LoPubParameters) -> JsonObject:
    mechanisms = [q.mechanism for q in plan.questions if isinstance(q.mechanism, BitMechanism)]
    flips, hashes = [float(m.flip) for m in mechanisms], [m.hashes for m in mechanisms]
    return {
        "encoding": parameters.encoding,
        "flip": max(flips),
        "bits_per_report": sum(m.counters for m in mechanisms),
        "hashes": max(hashes),
        "epsilon_record": plan.epsilon,
        "epsilon_per_attribute_as_in_the_paper": max(
            2 * h * math.log((2 - f) / f) for h, f in zip(hashes, flips, strict=True)
        ),
        "epsilon_remark": "epsilon_record holds for the whole record; the paper's eq. 8 is of one attribute",
        "estimator": parameters.estimator,
    }


def _learnt_notes(schema: Schema, learnt: LoPubFit) -> JsonObject:
    tree = learnt.tree
    out: JsonObject = {
        "pairs": learnt.pruned.pairs,
        "pairs_examined": len(learnt.pruned.examined),
        "dependences_found": len(learnt.pruned.dependent),
        **tree_notes(schema, tree),
        "edges_filled_in": named(schema, sorted(tree.fill)),
    }
    if learnt.tree_fit is not None:
        out["fit"] = fit_notes(learnt.tree_fit)
    else:
        out["em_steps"] = sum(c.steps for c in learnt.cliques)
        out["em_converged"] = all(c.converged for c in learnt.cliques)
    return out
