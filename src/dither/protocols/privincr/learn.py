"""What PrivIncr makes of the answers: which pairs stay, the tree, its questions, and the two ways to fit it.

Reference: Liu et al., EDBT 2023, algorithms 1 to 3 and theorem 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from dither.estimate import norm_sub, pool
from dither.mechanisms import Mechanism, mechanism
from dither.models.junction_tree import JunctionTree
from dither.protocols.consistent import Table, reconstruct
from dither.protocols.evidence import Evidence, PairEvidence
from dither.protocols.privincr.plan import Pair, PrivIncrParameters
from dither.protocols.tree import factor_cells
from dither.reports import Plan
from dither.structure import (
    Triangulation,
    mutual_information,
    mutual_information_threshold,
    shrunk_squares,
    triangulate_capped,
)
from dither.structure.factorise import Factorisation, compose, factorise, factorise_by_information
from dither.types import Floats, Integers

SLACK = 1.0  # standard deviations by which a pair may fall short before the last round: one that is dropped seldom comes back
TOGETHER = 1.0  # standard deviations of the mean score of the pairs that may come back late
STANDS_OUT = 2.0  # standard deviations of one of them


def relaxed_threshold(rows: int, columns: int, n: int, phi: float, alpha: float) -> float:
    """Eq. 18: the mutual information below which the paper prunes a pair of which n people were asked, in nats.

    Theorem 5.2's bound is so wide that this is negative for ordinary domains (erratum 7), and then nothing is pruned.
    """
    small, large = min(rows, columns), max(rows, columns)
    cells = small * large
    # ln((2^cells - 2) / (2 alpha)) without forming 2^cells.
    log = cells * math.log(2) + math.log1p(-(2.0 ** (1 - cells))) - math.log(2 * alpha)
    eta = math.sqrt(max(0.0, 2 / n * log))
    if eta > 2 - 2 / small:
        reach = math.log(small)
    else:
        half = eta / 2
        binary = -sum(x * math.log(x) for x in (half, 1 - half) if x > 0)
        reach = half * math.log((cells - 1) * (small - 1) * (large - 1)) + 3 * binary
    return mutual_information_threshold(rows, columns, phi) - reach


def prune(
    evidence: Evidence,
    edges: Sequence[Pair],
    parameters: PrivIncrParameters,
    people: float,
    last: bool,
) -> list[Pair]:
    """The pairs that stay after a round, when `people` are left to be asked about pairs."""
    sizes = evidence.schema.cardinalities
    found = {pair: e for pair in edges if (e := evidence.pair(*pair)) is not None}
    if parameters.threshold == "paper":
        return [
            (i, j)
            for (i, j), e in found.items()
            if mutual_information(e.projected)
            >= relaxed_threshold(
                sizes[i], sizes[j], e.pooled.n, parameters.degree, parameters.alpha
            )
        ]
    if not last:
        return may_be_worth(evidence, list(found), parameters.price, people)
    return reaching(
        evidence, worth_asking(evidence, list(found), parameters.price, people), parameters
    )


def reaching(
    evidence: Evidence, pairs: Sequence[Pair], parameters: PrivIncrParameters
) -> list[Pair]:
    """Those that reach phi's mutual information."""
    sizes = evidence.schema.cardinalities
    enough = {
        (i, j): mutual_information_threshold(sizes[i], sizes[j], parameters.degree)
        for i, j in pairs
    }
    return [
        pair
        for pair in pairs
        if (e := evidence.pair(*pair)) is not None and e.information >= enough[pair]
    ]


def worth_asking(
    evidence: Evidence, pairs: Sequence[Pair], price: float, people: float
) -> list[Pair]:
    """The pairs whose estimated squared dependence is worth `price` times the noise that they will have in the end.

    Taking a pair as independent costs its squared dependence D, keeping it the noise of its table. D is its posterior mean
    given all pairs that were asked (`shrunk_squares`); the noise falls with the people still to come, who are shared between
    the pairs that stay: from the pair of most dependence for its noise on, as many stay as gain most together. Squares are
    multiplied by the pair's cells, which makes them comparable between pairs: half the L1 distance is at most half the root.
    """
    if not pairs:
        return []
    every, sizes = evidence.pairs(), evidence.schema.cardinalities
    shrunk = shrunk_squares(
        [e.test for e in every.values()], [(sizes[i], sizes[j]) for i, j in every]
    )
    squares = dict(zip(every, shrunk, strict=True))
    now = _Asked.of(evidence, pairs)
    dependence = now.cells * np.array([squares[pair] for pair in pairs])
    order = np.argsort(-dependence / (now.cells * now.noise), kind="stable")
    best, most = 0, 0.0
    for count in range(1, len(pairs) + 1):
        chosen = now.part(order[:count])
        gain = float(
            (dependence[order[:count]] - price * chosen.cells * chosen.noise_to_come(people)).sum()
        )
        if gain > most:
            best, most = count, gain
    return sorted(pairs[k] for k in order[:best])


def may_be_worth(
    evidence: Evidence, pairs: Sequence[Pair], price: float, people: float
) -> list[Pair]:
    """The pairs that may yet be worth their noise: whose unbiased squared dependence falls short by at most `SLACK` standard
    deviations of noise. Few people have been asked so far, so this does not go by what all pairs together tell."""
    noise = _Asked.of(evidence, pairs).noise_to_come(people)
    tests = [e.test for pair in pairs if (e := evidence.pair(*pair)) is not None]
    return [
        pair
        for pair, test, final in zip(pairs, tests, noise, strict=True)
        if test.statistic >= price * final - SLACK * test.null_deviation
    ]


@dataclass(frozen=True)
class _Asked:
    """What has been asked about some pairs: their cells, the people and the squared noise of each."""

    cells: Floats
    people: Floats
    noise: Floats

    @classmethod
    def of(cls, evidence: Evidence, pairs: Sequence[Pair]) -> _Asked:
        found = [e for pair in pairs if (e := evidence.pair(*pair)) is not None]
        return cls(
            np.array([e.product.size for e in found], np.float64),
            np.array([e.pooled.n for e in found], np.float64),
            np.array([e.test.noise for e in found]),
        )

    def part(self, chosen: Integers) -> _Asked:
        return _Asked(self.cells[chosen], self.people[chosen], self.noise[chosen])

    def noise_to_come(self, people: float) -> Floats:
        """The squared noise when more people have been shared between these pairs by the roots of their cells."""
        roots = np.sqrt(self.cells)
        return np.asarray(
            self.noise * self.people / (self.people + people * roots / max(roots.sum(), 1.0))
        )


@dataclass(frozen=True)
class CliqueLayout:
    """The junction tree and what is asked about its cliques."""

    tree: Triangulation
    sets: tuple[tuple[int, ...], ...]
    factorisations: tuple[Factorisation, ...] = field(default=())


def with_late_pairs(
    evidence: Evidence, layout: CliqueLayout, asked: Plan, parameters: PrivIncrParameters
) -> CliqueLayout:
    """The layout with the pairs that the last round asked although they had been pruned, and that are worth their noise by now.

    Narrow pairs are asked for the singles' sake to the end (`round_plan`), by which time they have about twice the answers that
    they were judged by.
    """
    schema, tree = evidence.schema, layout.tree
    held = {pair for clique in tree.cliques for pair in combinations(sorted(clique), 2)}
    pairs = {
        tuple(sorted(map(schema.index, q.attributes)))
        for q in asked.questions
        if len(q.attributes) == 2
    }
    found = {(i, j): e for i, j in sorted(pairs - held) if (e := evidence.pair(i, j)) is not None}
    late = reaching(evidence, _late(evidence, found, parameters.price), parameters)
    if not late:
        return layout
    strengths = {
        pair: e.distance for pair in (*tree.kept, *late) if (e := evidence.pair(*pair)) is not None
    }
    return replace(
        layout, tree=triangulate_capped(schema.cardinalities, strengths, parameters.clique_cells)
    )


def _late(evidence: Evidence, found: Mapping[Pair, PairEvidence], price: float) -> list[Pair]:
    """Where all pairs together show dependence, many weak ones are real, and each that stands out is taken; where they do not,
    those that stand out do so by chance, and only what is worth its noise given all the others is."""
    tests = {pair: e.test for pair, e in found.items()}
    if sum(test.score for test in tests.values()) < TOGETHER * math.sqrt(len(tests)):
        return worth_asking(evidence, list(found), price, 0.0)
    return [
        pair
        for pair, test in tests.items()
        if test.score >= STANDS_OUT and test.statistic >= price * test.noise
    ]


def lay_out(
    evidence: Evidence,
    edges: Sequence[Pair],
    parameters: PrivIncrParameters,
    epsilon: float,
    people: float,
) -> CliqueLayout:
    """The tree of the pairs that stayed, weakest dropped where a clique would exceed the cap, and the last questions.

    Asked are the factors of each clique (algorithm 2), a clique that is small enough as a whole; `fit=joint` asks a factor
    pair by pair where its pairs become more exact that way, and about every pair inside a clique that no factor holds.
    """
    schema = evidence.schema
    strengths = {}
    for pair in edges:
        found = evidence.pair(*pair)
        if found is not None:
            paper = parameters.threshold == "paper"
            strengths[pair] = mutual_information(found.projected) if paper else found.distance
    tree = triangulate_capped(schema.cardinalities, strengths, parameters.clique_cells)
    most = parameters.factor_cells or factor_cells(schema, epsilon, people, len(tree.cliques))
    split = tuple(_factorise(evidence, clique, most, parameters) for clique in tree.cliques)
    sets = dict.fromkeys(s for f in split for s in f.sets if len(s) > 1)
    if parameters.fit == "joint":
        sets = {
            s: None
            for s in sets
            if asked_whole(schema.cardinalities, s, epsilon, parameters.mechanism)
        }
        inside = sorted({pair for clique in tree.cliques for pair in combinations(clique, 2)})
        sets |= dict.fromkeys(p for p in inside if not any(set(p) <= set(s) for s in sets))
    return CliqueLayout(tree, tuple(sets), split)


def asked_whole(
    cardinalities: Sequence[int], members: Sequence[int], epsilon: float, name: str
) -> bool:
    """Whether a set's pairs are read at least as exactly off answers about the whole set as off answers about each pair.

    The variance, of noise and of who was asked, of a pair's frequencies: all people asked about the set, against each pair's
    share of them; the mean over its pairs.
    """
    pairs = list(combinations(members, 2))
    whole: Mechanism = mechanism(name, math.prod(cardinalities[a] for a in members), epsilon)
    together = apart = 0.0
    for i, j in pairs:
        cells = cardinalities[i] * cardinalities[j]
        alone: Mechanism = mechanism(name, cells, epsilon)
        chance = (1 - 1 / cells) / cells
        together += cells * (whole.group_variance(whole.cells // cells, 1 / cells, 1) + chance)
        apart += cells * len(pairs) * (alone.variance(1 / cells, 1) + chance)
    return together <= apart


def _factorise(
    evidence: Evidence, clique: tuple[int, ...], most: int, parameters: PrivIncrParameters
) -> Factorisation:
    """A clique's factors of at most so many cells: by minimal redundancy as printed, else by conditional information in the
    distribution of largest entropy that its pairs, noise taken out, allow."""
    schema = evidence.schema
    sizes = schema.cardinalities
    if math.prod(sizes[a] for a in clique) <= most:
        return Factorisation(clique, ())
    if parameters.threshold == "paper":
        return factorise(clique, sizes, evidence.information(), most)
    names = [schema.names[a] for a in clique]
    tables: list[Table] = [((names[i],), evidence.distributions[a]) for i, a in enumerate(clique)]
    for i, j in combinations(clique, 2):
        found = evidence.pair(i, j)
        if found is not None:
            tables.append(((schema.names[i], schema.names[j]), found.shrunk))
    joint = reconstruct(schema, tables, names, rounds=20, tolerance=1e-5)
    return factorise_by_information(clique, sizes, joint, most)


def fit_cliques(evidence: Evidence, layout: CliqueLayout) -> JunctionTree:
    """Each clique from its own pooled factors, projected on the simplex (algorithms 2 and 3)."""
    schema = evidence.schema
    asked = [set(a.question.attributes) for a in evidence.answers]
    tables = []
    for clique, split in zip(layout.tree.cliques, layout.factorisations, strict=True):
        factors = []
        for positions in split.sets:
            names = [schema.names[a] for a in positions]
            if any(set(names) <= question for question in asked):
                factors.append(
                    (positions, norm_sub(pool(schema, evidence.answers, names).frequencies))
                )
            else:  # nobody was asked: take its attributes as independent
                factors.append(
                    (positions, _product([evidence.distributions[a] for a in positions]))
                )
        tables.append(compose(clique, split, factors))
    return JunctionTree.from_cliques(schema, layout.tree, tables)


def _product(vectors: Sequence[Floats]) -> Floats:
    out = np.ones(())
    for vector in vectors:
        out = np.multiply.outer(out, vector)
    return np.asarray(out)
