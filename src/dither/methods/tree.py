"""Junction trees of the significant pairs, their fit to all measured marginals, and their notes.

Shared by PrivIncr, CALM, FT, the Bayes network and LoPub.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeVar

from dither.errors import StateError
from dither.fit import (
    JunctionTree,
    Marginal,
    TreeFit,
    Triangulation,
    answers_of,
    check_asked,
    fit_tree,
    independent_tree,
    triangulate_capped,
)
from dither.mechanisms import oue
from dither.methods.diagnostics import Diagnostics, Names, named
from dither.methods.evidence import Evidence
from dither.methods.machine import Campaign, ProtocolMachine, check_clique_cells
from dither.reports import Plan
from dither.schema import Schema
from dither.tally import CountTally, RoundTally


@dataclass(frozen=True)
class _TreeSettings:
    """Tuned constants of a tree fitted to all answers at once (docs/explanation/privincr.md)."""

    # Residual per cell at which the fit stops. A fitted tree absorbs a part of the noise, so the
    # best residual is below one; 0.8 measured best.
    discrepancy: float = 0.8
    # The fit goes on down to this residual while it still falls steeply.
    min_discrepancy: float = 0.6
    # Relative fall of the residual in fifty steps below which the rest is noise.
    tolerance: float = 0.01
    # Total variation that the raw noise of a factor may have; larger factors are split. More
    # allows larger factors with more noise and less bias.
    factor_error: float = 0.15


TREE = _TreeSettings()


FALLBACK = "no pair stands out from noise: attributes are taken as independent"


def factor_cells(schema: Schema, epsilon: float, people: float, factors: int) -> int:
    """sigma: the cells of a factor whose raw noise, with an even share, stays within `factor_error`.

    Half the expected L1 norm of k cells with standard error s is k s / sqrt(2 pi); s is that of
    a rare cell in unary reports. At least the smallest pair, so that every clique can be
    written in factors of two attributes or more.
    """
    n = max(1.0, people / max(1, factors))
    spread = math.sqrt((oue(2, epsilon).variance(0.0, 1) + 1e-9) / n)
    most = int(TREE.factor_error * math.sqrt(2 * math.pi) / spread)
    sizes = sorted(schema.cardinalities)
    return max(most, sizes[0] * sizes[min(1, len(sizes) - 1)], 2)


def fit_jointly(evidence: Evidence, tree: Triangulation) -> TreeFit:
    """The tree fitted to all pooled singles, pairs and larger sets by inverse variance.

    The fit stops at the noise level, or when it hardly improves.
    """
    schema = evidence.schema
    asked = dict.fromkeys(
        tuple(sorted(schema.index(n) for n in a.question.attributes)) for a in evidence.answers
    )
    larger = [s for s in asked if len(s) > 2]
    measured = evidence.measurements(larger)
    start = evidence.distributions
    return fit_tree(
        schema,
        tree,
        measured,
        start=start,
        discrepancy=TREE.discrepancy,
        least=TREE.min_discrepancy,
        tolerance=TREE.tolerance,
    )


def without_dependence(evidence: Evidence) -> JunctionTree:
    """The tree without any pair."""
    return independent_tree(evidence.schema, evidence.distributions)


class _TreeParameters(Protocol):
    """What the tree of a method that stops at marginals needs."""

    @property
    def significance(self) -> float: ...

    @property
    def max_clique_cells(self) -> int: ...


T = TypeVar("T", bound=_TreeParameters)


@dataclass(frozen=True, kw_only=True)
class OneRoundDiagnostics(Diagnostics):
    """The pairs and cliques of the tree from which rows are drawn."""

    edges: Names | None = None
    cliques: Names | None = None


D = TypeVar("D", bound=OneRoundDiagnostics)


class OneRoundTree(ProtocolMachine[T]):
    """A method with one round that stops at marginals; rows are drawn from a tree."""

    def __init__(self, campaign: Campaign, parameters: T) -> None:
        check_clique_cells(campaign.schema, parameters.max_clique_cells)
        super().__init__(campaign, parameters)

    @property
    @abstractmethod
    def _round(self) -> Plan:
        """The one round."""

    def plan(self) -> Plan | None:
        return None if self._closed else self._round

    def _check_answers(self, tally: RoundTally) -> None:
        assert isinstance(tally, CountTally)
        check_asked(self.campaign.schema, answers_of([tally]))

    @cached_property
    def evidence(self) -> Evidence:
        """The answers, read as singles and pairs."""
        if not self._closed:
            raise StateError("the round is still open: close it before asking for the model")
        return Evidence(self.campaign.schema, answers_of(self.counted))

    @cached_property
    def _tree(self) -> Triangulation:
        found = self.evidence.pairs()
        strengths = {
            p: e.distance for p, e in found.items() if e.test.score >= self.parameters.significance
        }
        return triangulate_capped(
            self.campaign.schema.cardinalities, strengths, self.parameters.max_clique_cells
        )

    @cached_property
    def _fitted(self) -> TreeFit | None:
        return fit_jointly(self.evidence, self._tree) if self._tree.kept else None

    def model(self) -> JunctionTree:
        evidence = self.evidence
        return self._fitted.model if self._fitted is not None else without_dependence(evidence)

    def measured(self) -> list[Marginal]:
        return self.evidence.measured(self._tree.kept) if self._closed else []

    def _state_tree(self, facts: D) -> D:
        """The facts with those of the tree, once the round is closed."""
        if not self._closed:
            return facts
        schema = self.campaign.schema
        return replace(
            facts,
            edges=named(schema, self._tree.kept),
            cliques=named(schema, self._tree.cliques),
            fallback=None if self._fitted is not None else FALLBACK,
        )
