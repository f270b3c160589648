"""LoPub: every participant reports every attribute once, as randomised bits; the server learns joints, a graph, a tree.

Reference: Ren, Yu, Yu, Yang, Yang, McCann, Yu, "LoPub: high-dimensional crowdsourced data publication with local
differential privacy", IEEE TIFS 2018. One round, `split`. Two records may differ in all d attributes, so the guarantee
is the sum over the attributes (erratum 1); the paper's figure, 2h ln((2-f)/f), is of one attribute and is stated
beside it as such.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from dither.errors import ParameterError, StateError
from dither.estimate.joint import SplitReports
from dither.mechanisms import BloomRappor
from dither.models.junction_tree import JunctionTree
from dither.protocols.lopub.learn import Learnt, learn
from dither.protocols.lopub.plan import Parameters, lopub_plan
from dither.protocols.machine import Campaign, Measured, check_close, pack_state, replay
from dither.reports import Plan
from dither.schema import Schema
from dither.tally import PatternTally, RoundTally
from dither.types import Progress


class LoPub:
    """One round in which everybody answers everything; then pairs, graph, junction tree."""

    method = "lopub"

    def __init__(self, campaign: Campaign, parameters: Parameters) -> None:
        self.campaign = campaign
        self.parameters = parameters
        self.progress: Progress | None = None
        self._round = lopub_plan(campaign.schema, campaign.epsilon, parameters)
        self._closed: list[RoundTally] = []

    @classmethod
    def start(cls, campaign: Campaign, parameters: Parameters) -> LoPub:
        """A campaign before its round."""
        widest = max(campaign.schema.cardinalities)
        if widest > parameters.max_clique_cells:
            raise ParameterError(
                f"an attribute has {widest:,} values, more than max_clique_cells={parameters.max_clique_cells:,}; "
                "raise it",
                where="max_clique_cells",
                value=parameters.max_clique_cells,
            )
        return cls(campaign, parameters)

    def plan(self) -> Plan | None:
        return None if self._closed else self._round

    def close(self, tally: RoundTally) -> None:
        check_close(self.plan(), tally)
        self._closed.append(tally)

    @cached_property
    def reports(self) -> SplitReports:
        """The closed round's reports."""
        if not self._closed:
            raise StateError("the round is still open: close it before asking for the model")
        tally = self._closed[0]
        assert isinstance(tally, PatternTally)
        return SplitReports.from_tally(tally)

    @cached_property
    def _learnt(self) -> Learnt:
        return learn(self.campaign.schema, self.reports, self.parameters, self.progress)

    def model(self) -> JunctionTree:
        if not self._closed:
            raise StateError("the round is still open: close it before asking for the model")
        return self._learnt.model

    def measured(self) -> list[Measured]:
        if not self._closed:
            return []
        reports, names = self.reports, self.campaign.schema.names
        out = [
            Measured((name,), reports.singles[i], np.sqrt(reports.single_variance(i)), reports.n)
            for i, name in enumerate(names)
        ]
        for i, j in self._learnt.tree.kept:
            raw, variance = reports.pair(i, j)
            out.append(Measured((names[i], names[j]), raw, np.sqrt(variance), reports.n))
        return out

    def notes(self) -> dict[str, Any]:
        out = _encoding_notes(self._round, self.parameters)
        if self._closed:
            out |= _learnt_notes(self.campaign.schema, self._learnt)
        return out

    def state(self) -> bytes:
        return pack_state(self.method, self.campaign, self.parameters, self._closed)

    @classmethod
    def restore(cls, state: bytes) -> LoPub:
        return replay(cls, Parameters, state)


def _encoding_notes(plan: Plan, parameters: Parameters) -> dict[str, Any]:
    mechanisms = [q.mechanism for q in plan.questions]
    flips = [float(2 * m.q) for m in mechanisms]
    hashes = [m.hashes if isinstance(m, BloomRappor) else 1 for m in mechanisms]
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


def _learnt_notes(schema: Schema, learnt: Learnt) -> dict[str, Any]:
    tree = learnt.tree

    def named(pairs: Any) -> list[list[str]]:
        return [[schema.names[i], schema.names[j]] for i, j in sorted(pairs)]

    out: dict[str, Any] = {
        "pairs": learnt.pruned.pairs,
        "pairs_examined": len(learnt.pruned.examined),
        "dependences_found": len(learnt.pruned.dependent),
        "edges": named(tree.kept),
        "edges_dropped_for_the_cap": named(tree.dropped),
        "edges_filled_in": named(tree.fill),
        "cliques": [[schema.names[a] for a in clique] for clique in tree.cliques],
        "largest_clique_cells": max(tree.cells(schema.cardinalities)),
    }
    if learnt.tree_fit is not None:
        fit = learnt.tree_fit
        out["fit"] = {"iterations": fit.iterations, "discrepancy": fit.discrepancy, "stopped": fit.stopped}
    else:
        out["em_steps"] = sum(c.steps for c in learnt.cliques)
        out["em_converged"] = all(c.converged for c in learnt.cliques)
    return out
