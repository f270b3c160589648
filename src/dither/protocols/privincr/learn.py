"""What PrivIncr makes of the answers: which pairs stay, the tree, its questions, and the two ways to fit it.

Reference: Liu et al., EDBT 2023, algorithms 1 to 3 and theorem 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from dither.estimate import norm_sub, pool
from dither.models.junction_tree import JunctionTree
from dither.protocols.evidence import Evidence
from dither.protocols.privincr.plan import Pair, PrivIncrParameters
from dither.protocols.tree import factor_cells
from dither.structure import (
    Triangulation,
    mutual_information,
    mutual_information_threshold,
    shrunk_squares,
    triangulate_capped,
)
from dither.structure.factorise import Factorisation, compose, factorise
from dither.types import Floats

EARLY = 0.05  # the part of the price that counts before the last round of pairs: a pair dropped does not come back


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
    evidence: Evidence, edges: Sequence[Pair], parameters: PrivIncrParameters, people: float, last: bool
) -> list[Pair]:
    """The pairs that stay after a round, when `people` are left to be asked about pairs."""
    sizes = evidence.schema.cardinalities
    found = {pair: e for pair in edges if (e := evidence.pair(*pair)) is not None}
    if parameters.threshold == "paper":
        return [
            (i, j)
            for (i, j), e in found.items()
            if mutual_information(e.projected)
            >= relaxed_threshold(sizes[i], sizes[j], e.pooled.n, parameters.degree, parameters.alpha)
        ]
    kept = worth_asking(evidence, list(found), parameters.price * (1.0 if last else EARLY), people)
    if not last:
        return kept
    enough = {(i, j): mutual_information_threshold(sizes[i], sizes[j], parameters.degree) for i, j in kept}
    return [pair for pair in kept if found[pair].information >= enough[pair]]


def worth_asking(evidence: Evidence, pairs: Sequence[Pair], price: float, people: float) -> list[Pair]:
    """The pairs whose estimated squared dependence is worth `price` times the noise that they will have in the end.

    Taking a pair as independent costs its squared dependence D, keeping it the noise of its table. D is its posterior mean
    given all pairs that were asked (`shrunk_squares`); the noise falls with the people still to come, who are shared between
    the pairs that stay: from the pair of most dependence for its noise on, as many stay as gain most together. Squares are
    multiplied by the pair's cells, which makes them comparable between pairs: half the L1 distance is at most half the root.
    """
    every = evidence.pairs()
    if not pairs:
        return []
    sizes = evidence.schema.cardinalities
    squares = dict(
        zip(
            every,
            shrunk_squares([e.test for e in every.values()], [(sizes[i], sizes[j]) for i, j in every]),
            strict=True,
        )
    )
    cells = np.array([sizes[i] * sizes[j] for i, j in pairs], np.float64)
    dependence = cells * np.array([squares[pair] for pair in pairs])
    noise = cells * np.array([every[pair].test.noise for pair in pairs])
    asked = np.array([every[pair].pooled.n for pair in pairs], np.float64)
    order = np.argsort(-dependence / noise, kind="stable")
    best, most = 0, 0.0
    for count in range(1, len(pairs) + 1):
        chosen = order[:count]
        coming = people * np.sqrt(cells[chosen]) / np.sqrt(cells[chosen]).sum()
        gain = float((dependence[chosen] - price * noise[chosen] * asked[chosen] / (asked[chosen] + coming)).sum())
        if gain > most:
            best, most = count, gain
    return sorted(pairs[k] for k in order[:best])


@dataclass(frozen=True)
class CliqueLayout:
    """The junction tree and what is asked about its cliques."""

    tree: Triangulation
    sets: tuple[tuple[int, ...], ...]
    factorisations: tuple[Factorisation, ...] = field(default=())


def lay_out(
    evidence: Evidence, edges: Sequence[Pair], parameters: PrivIncrParameters, epsilon: float, people: float
) -> CliqueLayout:
    """The tree of the pairs that stayed, weakest dropped where a clique would exceed the cap, and the last questions.

    Asked are the factors of each clique (algorithm 2), a clique that is small enough as a whole; `fit=joint` asks about
    every pair inside a clique that no factor holds as well.
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
    information = evidence.information()
    split = tuple(factorise(clique, schema.cardinalities, information, most) for clique in tree.cliques)
    sets = dict.fromkeys(s for f in split for s in f.sets if len(s) > 1)
    if parameters.fit == "joint":
        inside = sorted({pair for clique in tree.cliques for pair in combinations(clique, 2)})
        sets |= dict.fromkeys(p for p in inside if not any(set(p) <= set(s) for s in sets))
    return CliqueLayout(tree, tuple(sets), split)


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
                factors.append((positions, norm_sub(pool(schema, evidence.answers, names).frequencies)))
            else:  # nobody was asked: take its attributes as independent
                factors.append((positions, _product([evidence.distributions[a] for a in positions])))
        tables.append(compose(clique, split, factors))
    return JunctionTree.from_cliques(schema, layout.tree, tables)


def _product(vectors: Sequence[Floats]) -> Floats:
    out = np.ones(())
    for vector in vectors:
        out = np.multiply.outer(out, vector)
    return np.asarray(out)
