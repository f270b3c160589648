"""The refined Bayes network: attributes added one by one with their most informative parents.

Reference: Ju, Gu, Wu, Zhang, "Local differential privacy protection of high-dimensional
perceptual data by the refined Bayes network", Sensors 2020. `plan=sample` asks each participant
one question at full epsilon: pairs first, then each attribute with its parents. `plan=split` is
the paper's method: one round in which participants report every attribute, with epsilon split
over the attributes (its eq. 6 is correct).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from dither.checks import (
    check_between,
    check_choice,
    check_finite,
    check_whole,
    check_whole_or_none,
)
from dither.errors import ParameterError, StateError
from dither.fit import (
    BayesNet,
    Marginal,
    Network,
    Triangulation,
    answers_of,
    candidates_computed,
    chain_joint,
    check_asked,
    entropy,
    fit_tree,
    mutual_information,
    search_network,
)
from dither.fit.joint import SplitReports, estimate_joints
from dither.mechanisms import POOLED_NAMES
from dither.methods import lopub as lopub_plan
from dither.methods import privincr as privincr_plan
from dither.methods.calm import reconstruct
from dither.methods.diagnostics import Diagnostics, Names, named
from dither.methods.evidence import Evidence, merged
from dither.methods.machine import Campaign, ProtocolMachine
from dither.methods.tree import FALLBACK, TREE, factor_cells
from dither.reports import Plan
from dither.schema import Schema
from dither.tally import CountTally, PatternTally, RoundTally
from dither.types import Floats

Candidate = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class _BayesNetSettings:
    """Tuned constants of the refined Bayes network."""

    # Parents of an attribute. More parents hold more dependence, in larger tables with more noise.
    degree: int = 2
    # The same on tables of yes-or-no attributes, whose tables are small: on NLTCS with exact
    # tables two parents leave an error of 0.038, four 0.008 (docs/explanation/bayesnet.md).
    binary_degree: int = 4


SETTINGS = _BayesNetSettings()


@dataclass(frozen=True)
class BayesNetParameters:
    """Parameters of the refined Bayes network.

    `plan=sample` asks one question at full epsilon per participant, in two rounds. `plan=split`
    is the paper's: every participant reports every attribute, epsilon split over them, joints
    by EM. `candidates=all` tests every attribute with every parent set at each step (algorithm
    3), `candidates=cached` those with the attribute just added and the runner-up of the
    previous step (algorithm 4). `root` is the attribute of largest entropy (algorithm 4) or a
    random one (algorithm 3). `degree` is the largest number of parents, 1 to 4: by default two,
    and four with `plan=sample` if all attributes have two values. A candidate whose joint
    exceeds `max_cells` is replaced by smaller ones. For `split`: `flip` (the paper's f, by
    default from epsilon), EM's `tolerance` and `steps`; `em=printed` has the printed stopping
    rule (erratum 4). For `sample`:
    `significance` of a parent, `omega` (the share of the first round), `singles` and
    `factor_cells` as in PrivIncr.
    """

    plan: Literal["split", "sample"] = "sample"
    root: Literal["entropy", "random"] = "entropy"
    candidates: Literal["all", "cached"] = "all"
    degree: int | None = None
    max_cells: int = 2_000
    flip: float | None = None
    tolerance: float = 1e-4
    steps: int = 500
    em: Literal["converged", "printed"] = "converged"
    mechanism: str = "best"
    significance: float = 2.0
    omega: float = 0.5
    singles: float = 0.3
    factor_cells: int | None = None

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, POOLED_NAMES)
        if self.degree is not None:
            check_whole("degree", self.degree, 1, 4)
        check_between("omega", self.omega, 0, 1, ends="()")
        check_between("singles", self.singles, 0, 1, ends="[)")
        check_between("tolerance", self.tolerance, 0, math.inf, ends="()")
        check_finite("significance", self.significance)
        for name, least in (("max_cells", 4), ("steps", 1), ("factor_cells", 2)):
            check_whole_or_none(name, getattr(self, name), least)
        if self.flip is not None:
            check_between("flip", self.flip, 0, 1, ends="()")
            if self.plan == "sample":
                raise ParameterError(
                    "flip belongs to plan=split; add that or leave it out",
                    where="flip",
                    value=self.flip,
                )

    def parents_of(self, schema: Schema) -> int:
        """`degree`, or its default for this table."""
        if self.degree is not None:
            return self.degree
        binary = max(schema.cardinalities) == 2
        return SETTINGS.binary_degree if binary and self.plan == "sample" else SETTINGS.degree


@dataclass(frozen=True)
class _NetworkFit:
    """The network, its model, and how many different joints were estimated on the way."""

    network: Network
    model: BayesNet
    joints: int


def choose_root(marginals: Sequence[Floats], parameters: BayesNetParameters, seed: int) -> int:
    """The attribute of largest entropy (algorithm 4), or one drawn at random (algorithm 3)."""
    if parameters.root == "random":
        return int(np.random.default_rng([seed, 0xB0]).integers(len(marginals)))
    entropies = [entropy(m) for m in marginals]
    return int(np.argmax(entropies))


def _learn_split(
    schema: Schema, reports: SplitReports, parameters: BayesNetParameters, seed: int
) -> _NetworkFit:
    """Algorithms 2 to 4: each candidate's joint once by EM, then those of the network."""
    joints: dict[tuple[int, ...], Floats] = {}

    def estimate(sets: Sequence[tuple[int, ...]]) -> None:
        wanted = [s for s in dict.fromkeys(sets) if s not in joints]
        if wanted:
            names = [tuple(schema.names[a] for a in s) for s in wanted]
            found = estimate_joints(
                reports,
                names,
                "em",
                tolerance=parameters.tolerance,
                steps=parameters.steps,
                printed=parameters.em == "printed",
            )
            joints.update({s: f.joint for s, f in zip(wanted, found, strict=True)})

    def score(a: int, given: tuple[int, ...]) -> float:
        return _information(joints[_scope(a, given)], a, given, schema)

    network = search_network(
        len(schema),
        parameters.parents_of(schema),
        score,
        choose_root(reports.distributions, parameters, seed),
        cached=parameters.candidates == "cached",
        fits=lambda a, given: _cells(schema, a, given) <= parameters.max_cells,
        ahead=lambda options: estimate([_scope(a, given) for a, given in options]),
    )
    estimate([_scope(a, given) for a, given in enumerate(network.parents) if given])
    tables = [
        chain_joint(joints[_scope(a, given)], _scope(a, given), given, a)
        if given
        else reports.distributions[a]
        for a, given in enumerate(network.parents)
    ]
    return _NetworkFit(network, BayesNet.from_joints(schema, network.parents, tables), len(joints))


def _structure_from_pairs(evidence: Evidence, parameters: BayesNetParameters, seed: int) -> Network:
    """The search on pairs alone: a larger joint is the maximum entropy one of its denoised pairs.

    A parent whose pair with the child does not exceed the noise is left out; an attribute
    without parents gets the best preceding attribute.
    """
    schema = evidence.schema
    found = evidence.pairs()
    tables = [((schema.names[i], schema.names[j]), e.shrunk) for (i, j), e in found.items()]
    kept = {p for p, e in found.items() if e.test.score >= parameters.significance}
    information = evidence.information()
    known: dict[Candidate, float] = {}

    def score(a: int, given: tuple[int, ...]) -> float:
        if (a, given) not in known:
            known[a, given] = _pairwise_information(evidence, tables, information, a, given)
        return known[a, given]

    network = search_network(
        len(schema),
        parameters.parents_of(schema),
        score,
        choose_root(evidence.distributions, parameters, seed),
        cached=parameters.candidates == "cached",
        fits=lambda a, given: _cells(schema, a, given) <= parameters.max_cells,
    )
    parents = list(network.parents)
    for place, a in enumerate(network.order):
        given = tuple(p for p in parents[a] if (min(a, p), max(a, p)) in kept)
        earlier = [p for p in network.order[:place] if (min(a, p), max(a, p)) in kept]
        if not given and earlier:
            given = (max(earlier, key=lambda p: (information[a, p], -p)),)
        parents[a] = given
    gained = tuple(score(a, given) if given else 0.0 for a, given in enumerate(parents))
    return Network(network.order, tuple(parents), gained, network.computed)


def _pairwise_information(
    evidence: Evidence,
    tables: Sequence[tuple[tuple[str, ...], Floats]],
    information: Floats,
    a: int,
    given: tuple[int, ...],
) -> float:
    bearing = tuple(p for p in given if information[a, p] > 0)
    if len(bearing) < 2:
        return float(information[a, bearing[0]]) if bearing else 0.0
    schema = evidence.schema
    scope = _scope(a, given)
    names = [schema.names[p] for p in scope]
    # Attributes that no asked pair ties to the others still bring their own distribution.
    singles = [((schema.names[p],), evidence.distributions[p]) for p in scope]
    joint = reconstruct(schema, [*tables, *singles], names, rounds=20, tolerance=1e-5)
    return _information(joint, a, given, schema)


def _question_sets(
    schema: Schema, network: Network, epsilon: float, people: float, parameters: BayesNetParameters
) -> tuple[tuple[int, ...], ...]:
    """Questions of the second round: each attribute with its parents, in pairs if too noisy."""
    families = [(a, given) for a, given in enumerate(network.parents) if given]
    most = parameters.factor_cells or factor_cells(schema, epsilon, people, len(families))
    out: dict[tuple[int, ...], None] = {}
    for a, given in families:
        if len(given) == 1 or _cells(schema, a, given) <= most:
            out[_scope(a, given)] = None
        else:
            out.update({_scope(a, (p,)): None for p in given})
    return tuple(out)


def _joints_from_answers(
    evidence: Evidence, network: Network, asked: Sequence[tuple[int, ...]]
) -> BayesNet:
    """Each attribute's joint with its parents, fitted to all answers by precision."""
    schema = evidence.schema
    measurements = evidence.measurements([s for s in asked if len(s) > 2])
    tables = []
    for a, given in enumerate(network.parents):
        scope = _scope(a, given)
        joint = (
            _fit_family(schema, scope, measurements, evidence.distributions)
            if given
            else evidence.distributions[a]
        )
        tables.append(chain_joint(joint, scope, given, a))
    return BayesNet.from_joints(schema, network.parents, tables)


def _fit_family(
    schema: Schema,
    scope: tuple[int, ...],
    measurements: Sequence[Marginal],
    start: Sequence[Floats],
) -> Floats:
    names = {schema.names[a] for a in scope}
    inside = [m for m in measurements if names.issuperset(m.attributes)]
    alone = Triangulation((scope,), (-1,), (), ())
    return fit_tree(
        schema, alone, inside, start=start, discrepancy=TREE.discrepancy
    ).model.marginals[0]


def _scope(a: int, given: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted((a, *given)))


def _cells(schema: Schema, a: int, given: Sequence[int]) -> int:
    return math.prod(schema.cardinalities[p] for p in (a, *given))


def _information(joint: Floats, a: int, given: tuple[int, ...], schema: Schema) -> float:
    table = chain_joint(joint, _scope(a, given), given, a)
    return mutual_information(table.reshape(-1, schema.cardinalities[a]))


@dataclass(frozen=True, kw_only=True)
class _BayesDiagnostics(Diagnostics):
    """The choices of the search, the network, and how many mutual informations it computed."""

    plan: str
    root: str
    candidates: str
    degree: int
    order: list[str] | None = None
    edges: Names | None = None
    sum_of_mutual_information: float | None = None
    mutual_informations_computed: int | None = None
    mutual_informations_by_algorithm_3_and_4: list[int] | None = None
    joints_estimated: int | None = None


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
        """Questions about the families of the network; none if no participants are left."""
        if not self._learnable:
            return None
        self._network = _structure_from_pairs(self.evidence, self.parameters, self.campaign.seed)
        people = (1 - self.parameters.omega) * self.campaign.participants
        self._asked = _question_sets(
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
    def learnt(self) -> _NetworkFit:
        """The network and its model."""
        self._finished()
        schema, parameters = self.campaign.schema, self.parameters
        if parameters.plan == "split":
            return _learn_split(schema, self.reports, parameters, self.campaign.seed)
        network = self._network or _structure_from_pairs(
            self.evidence, parameters, self.campaign.seed
        )
        answered_sets = {frozenset(a.question.attributes) for a in self.evidence.answers}
        asked = [s for s in self._asked if frozenset(schema.names[a] for a in s) in answered_sets]
        return _NetworkFit(network, _joints_from_answers(self.evidence, network, asked), len(asked))

    def model(self) -> BayesNet:
        return self.learnt.model

    def measured(self) -> list[Marginal]:
        if not self._closed:
            return []
        if self.parameters.plan == "sample":
            return self.evidence.measured(sorted(self._network.edges()) if self._network else [])
        return self.reports.one_ways()

    def diagnostics(self) -> _BayesDiagnostics:
        given, names = self.parameters, self.campaign.schema.names
        degree = given.parents_of(self.campaign.schema)
        facts = _BayesDiagnostics(
            plan=given.plan, root=given.root, candidates=given.candidates, degree=degree
        )
        if not self._closed or self._open is not None:
            return facts
        network = self.learnt.network
        computed = [candidates_computed(len(names), degree, cached) for cached in (False, True)]
        edges = [(p, a) for a, parents in enumerate(network.parents) for p in parents]
        return replace(
            facts,
            order=[names[a] for a in network.order],
            edges=named(self.campaign.schema, edges),
            sum_of_mutual_information=network.total,
            mutual_informations_computed=network.computed,
            mutual_informations_by_algorithm_3_and_4=computed,
            joints_estimated=self.learnt.joints,
            fallback=None if network.edges() else FALLBACK,
        )
