"""What the Bayes-network method makes of its reports: the network, and each attribute's joint with its parents.

Reference: Ju, Gu, Wu, Zhang, Sensors 2020, algorithms 2 to 4. `learn_split` reads reports that answer every attribute;
`structure_from_pairs` and `joints_from_answers` read full-epsilon answers about a few attributes each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dither.checks import (
    check_between,
    check_choice,
    check_finite,
    check_whole,
    check_whole_or_none,
)
from dither.errors import ParameterError
from dither.estimate import Marginal
from dither.estimate.joint import SplitReports, estimate_joints
from dither.mechanisms import POOLED_NAMES
from dither.models.bayes_net import BayesNet, chain_joint
from dither.models.tree_fit import fit_tree
from dither.protocols.consistent import reconstruct
from dither.protocols.evidence import Evidence
from dither.protocols.tree import DISCREPANCY, factor_cells
from dither.schema import Schema
from dither.structure import Triangulation, entropy, mutual_information
from dither.structure.bayes_search import Network, search_network
from dither.types import Floats

Candidate = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class BayesNetParameters:
    """`plan=sample` learns the network from one full-epsilon question per participant, in two rounds. `plan=split` is the
    paper's: every participant reports every attribute, epsilon split over them, joints by EM.

    `candidates=all` looks at every attribute with every parent set at each step (algorithm 3), `candidates=cached` at
    those with the attribute just added and the runner-up of the step before (algorithm 4). `root`: the attribute of
    largest entropy (algorithm 4) or a random one (algorithm 3). `degree` is the largest number of parents, 1 to 4; a
    candidate whose joint exceeds `max_cells` gives way to smaller ones. For `split`: `flip` (the paper's f) instead of
    what epsilon gives, EM's `tolerance` and `steps`. For `sample`: `significance` of a parent, `omega` (the share of
    the first round), `singles` and `factor_cells` as in PrivIncr.
    """

    plan: Literal["split", "sample"] = "sample"
    root: Literal["entropy", "random"] = "entropy"
    candidates: Literal["all", "cached"] = "all"
    degree: int = 2
    max_cells: int = 2_000
    flip: float | None = None
    tolerance: float = 1e-4
    steps: int = 500
    mechanism: str = "best"
    significance: float = 2.0
    omega: float = 0.5
    singles: float = 0.3
    factor_cells: int | None = None

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, POOLED_NAMES)
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


@dataclass(frozen=True)
class NetworkFit:
    """The network, its model, and how many different joints were estimated on the way."""

    network: Network
    model: BayesNet
    joints: int


def choose_root(marginals: Sequence[Floats], parameters: BayesNetParameters, seed: int) -> int:
    """The attribute of largest entropy (algorithm 4), or one drawn with the campaign's seed (algorithm 3)."""
    if parameters.root == "random":
        return int(np.random.default_rng([seed, 0xB0]).integers(len(marginals)))
    entropies = [entropy(m) for m in marginals]
    return int(np.argmax(entropies))


def learn_split(
    schema: Schema, reports: SplitReports, parameters: BayesNetParameters, seed: int
) -> NetworkFit:
    """Algorithms 2 to 4: joints by EM as candidates come up, each one once, then the network's own."""
    joints: dict[tuple[int, ...], Floats] = {}

    def estimate(sets: Sequence[tuple[int, ...]]) -> None:
        wanted = [s for s in dict.fromkeys(sets) if s not in joints]
        if wanted:
            names = [tuple(schema.names[a] for a in s) for s in wanted]
            found = estimate_joints(
                reports, names, "em", tolerance=parameters.tolerance, steps=parameters.steps
            )
            joints.update({s: f.joint for s, f in zip(wanted, found, strict=True)})

    def score(a: int, given: tuple[int, ...]) -> float:
        return _information(joints[_scope(a, given)], a, given, schema)

    network = search_network(
        len(schema),
        parameters.degree,
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
    return NetworkFit(network, BayesNet.from_joints(schema, network.parents, tables), len(joints))


def structure_from_pairs(evidence: Evidence, parameters: BayesNetParameters, seed: int) -> Network:
    """The same search on pairs alone: a larger joint is the one of largest entropy that its pairs, noise taken out,
    allow.

    A parent whose pair with the child does not stand out from noise is left out, since its conditional would be noise;
    an attribute that has none left takes the best of those that came before it.
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
        parameters.degree,
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


def question_sets(
    schema: Schema, network: Network, epsilon: float, people: float, parameters: BayesNetParameters
) -> tuple[tuple[int, ...], ...]:
    """What the second round asks: each attribute with its parents, or pair by pair where that would be too noisy."""
    families = [(a, given) for a, given in enumerate(network.parents) if given]
    most = parameters.factor_cells or factor_cells(schema, epsilon, people, len(families))
    out: dict[tuple[int, ...], None] = {}
    for a, given in families:
        if len(given) == 1 or _cells(schema, a, given) <= most:
            out[_scope(a, given)] = None
        else:
            out.update({_scope(a, (p,)): None for p in given})
    return tuple(out)


def joints_from_answers(
    evidence: Evidence, network: Network, asked: Sequence[tuple[int, ...]]
) -> BayesNet:
    """Each attribute's joint with its parents, fitted to every answer about any of them, weighted by precision."""
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
    return fit_tree(schema, alone, inside, start=start, discrepancy=DISCREPANCY).model.marginals[0]


def _scope(a: int, given: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted((a, *given)))


def _cells(schema: Schema, a: int, given: Sequence[int]) -> int:
    return math.prod(schema.cardinalities[p] for p in (a, *given))


def _information(joint: Floats, a: int, given: tuple[int, ...], schema: Schema) -> float:
    table = chain_joint(joint, _scope(a, given), given, a)
    return mutual_information(table.reshape(-1, schema.cardinalities[a]))
