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
from dither.structure import Triangulation, mutual_information, mutual_information_threshold, triangulate_capped
from dither.structure.factorise import Factorisation, compose, factorise
from dither.types import Floats


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
    evidence: Evidence, edges: Sequence[Pair], parameters: PrivIncrParameters, share: float, last: bool
) -> list[Pair]:
    """The pairs that stay after a round, when `share` of all participants have been asked."""
    kept = []
    sizes = evidence.schema.cardinalities
    for i, j in edges:
        found = evidence.pair(i, j)
        if found is None:
            continue
        if parameters.threshold == "paper":
            limit = relaxed_threshold(sizes[i], sizes[j], found.pooled.n, parameters.degree, parameters.alpha)
            stays = mutual_information(found.projected) >= limit
        elif last:
            enough = mutual_information_threshold(sizes[i], sizes[j], parameters.degree)
            stays = found.test.score >= parameters.significance and found.information >= enough
        else:
            # The score grows with the number of people, so this is what it would be now for a pair that just passes.
            stays = found.test.score >= parameters.significance * share - parameters.slack
        if stays:
            kept.append((i, j))
    return kept


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
