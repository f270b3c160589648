"""FT: each participant answers with one randomised Fourier coefficient of a pair of attributes written in bits.

Reference: Cormode, Kulkarni, Srivastava, "Marginal release under local differential privacy", SIGMOD 2018 (MargHT), with
non-binary attributes encoded in bits as in PrivIncr's and CALM's comparisons. One round; coefficients are drawn uniformly
over all that the pairs need. FT stops at marginals: for a synthetic table a junction tree is fitted to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from dither.errors import ParameterError, StateError
from dither.estimate import answered, norm_sub, pool
from dither.mechanisms.hadamard import Hadamard
from dither.models.junction_tree import JunctionTree
from dither.models.tree_fit import TreeFit
from dither.protocols.consistent import reconstruct
from dither.protocols.evidence import Evidence
from dither.protocols.machine import Campaign, Measured, check_close, pack_state, replay
from dither.protocols.privincr.learn import fit_jointly, without_dependence
from dither.reports import Plan, Question
from dither.structure import Triangulation, triangulate_capped
from dither.tally import CountTally, RoundTally
from dither.types import Floats


@dataclass(frozen=True)
class Parameters:
    """`significance` and `max_clique_cells` are of the tree that the synthetic table is drawn from."""

    significance: float = 2.0
    max_clique_cells: int = 8_000

    def __post_init__(self) -> None:
        if self.max_clique_cells < 2:
            raise ParameterError("max_clique_cells must be at least 2", where="max_clique_cells")


class Fourier:
    """One round of coefficients of all pairs."""

    method = "fourier"

    def __init__(self, campaign: Campaign, parameters: Parameters) -> None:
        self.campaign = campaign
        self.parameters = parameters
        self._closed: list[RoundTally] = []

    @classmethod
    def start(cls, campaign: Campaign, parameters: Parameters) -> Fourier:
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

    @cached_property
    def _round(self) -> Plan:
        names, sizes = self.campaign.schema.names, self.campaign.schema.cardinalities
        sets: list[tuple[int, ...]] = list(combinations(range(len(names)), 2)) or [(0,)]
        questions = []
        for s in sets:
            cells = int(np.prod([sizes[a] for a in s]))
            coefficients = Hadamard.for_epsilon(cells, sizes[s[-1]], self.campaign.epsilon)
            questions.append(Question(tuple(names[a] for a in s), coefficients))
        weights = np.array([2.0**q.mechanism.bits for q in questions if isinstance(q.mechanism, Hadamard)])
        return Plan(0, tuple(questions), tuple(float(w) for w in weights / weights.sum()))

    def plan(self) -> Plan | None:
        return None if self._closed else self._round

    def close(self, tally: RoundTally) -> None:
        check_close(self.plan(), tally)
        assert isinstance(tally, CountTally)
        Evidence(self.campaign.schema, answered([tally])).singles  # noqa: B018  refuses unanswered attributes first
        self._closed.append(tally)

    @cached_property
    def evidence(self) -> Evidence:
        """The answers, read as singles and pairs."""
        if not self._closed:
            raise StateError("the round is still open: close it before asking for the model")
        return Evidence(self.campaign.schema, answered([t for t in self._closed if isinstance(t, CountTally)]))

    def marginal(self, attributes: Sequence[str]) -> Floats:
        """FT's own answer: a pair by inverting its coefficients, anything larger by maximum entropy given the pairs."""
        schema = self.campaign.schema
        if len(attributes) <= 2:
            return norm_sub(pool(schema, self.evidence.answers, attributes).frequencies)
        inside = [p for p in combinations(attributes, 2) if self.evidence.pair(*sorted(map(schema.index, p)))]
        return reconstruct(schema, [(p, self.marginal(p)) for p in inside], attributes)

    @cached_property
    def _tree(self) -> Triangulation:
        found = self.evidence.pairs()
        strengths = {p: e.distance for p, e in found.items() if e.test.score >= self.parameters.significance}
        return triangulate_capped(self.campaign.schema.cardinalities, strengths, self.parameters.max_clique_cells)

    @cached_property
    def _fitted(self) -> TreeFit | None:
        return fit_jointly(self.evidence, self._tree) if self._tree.kept else None

    def model(self) -> JunctionTree:
        evidence = self.evidence
        return self._fitted.model if self._fitted is not None else without_dependence(evidence)

    def measured(self) -> list[Measured]:
        return self.evidence.measured(self._tree.kept) if self._closed else []

    def notes(self) -> dict[str, Any]:
        names = self.campaign.schema.names
        bits = [q.mechanism.bits for q in self._round.questions if isinstance(q.mechanism, Hadamard)]
        out: dict[str, Any] = {"coefficients": sum(2**b for b in bits)}
        if self._closed:
            out["edges"] = [[names[i], names[j]] for i, j in self._tree.kept]
            out["cliques"] = [[names[a] for a in clique] for clique in self._tree.cliques]
            if self._fitted is None:
                out["fallback"] = "no pair stands out from noise: attributes are taken as independent"
        return out

    def state(self) -> bytes:
        return pack_state(self.method, self.campaign, self.parameters, self._closed)

    @classmethod
    def restore(cls, state: bytes) -> Fourier:
        return replay(cls, Parameters, state)
