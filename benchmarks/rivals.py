"""The papers' rivals: four ways to learn a joint distribution (PrivIncr's figure 3), and JTree in the central model.

Reference: Liu et al., EDBT 2023, section 5.2.3. VOUE and VRAPPOR treat the attributes as one with the product domain and
spend the whole epsilon on it; OUE+EM and RAPPOR+EM split epsilon over the attributes and put the joint together by EM.
Each simulates its own participants, so that the four differ in nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from dither.central.noise import ByteSource, achieved_epsilon, add_noise, calibrate
from dither.central.privbayes import (
    SCORE_GRID,
    dependence_score,
    score_sensitivity,
    table_counts,
)
from dither.errors import ParameterError
from dither.fit import JunctionTree, mutual_information_threshold, norm_sub, triangulate_capped
from dither.fit.joint import SplitReports, em_joint
from dither.mechanisms import PackedReports, kernels, mechanism
from dither.randomness import RandomStream
from dither.reports import Plan, Question
from dither.schema import Schema
from dither.tally import PatternTally
from dither.types import Codes, Floats

Rival = Literal["voue", "vrappor", "oue+em", "rappor+em"]
RIVALS: tuple[Rival, ...] = ("voue", "vrappor", "oue+em", "rappor+em")
_BITS = {"voue": "oue", "vrappor": "sue", "oue+em": "oue", "rappor+em": "sue"}


def rival_joint(
    schema: Schema,
    codes: Codes,
    rival: Rival,
    epsilon: float,
    rng: np.random.Generator,
    steps: int = 500,
) -> Floats:
    """The joint distribution of all the schema's attributes as one rival learns it, at epsilon a record."""
    if rival not in RIVALS:
        raise ParameterError(
            f"no rival {rival!r}; there are {', '.join(RIVALS)}", where="rival", value=rival
        )
    if codes.ndim != 2 or codes.shape[1] != len(schema) or not len(codes):
        raise ParameterError(
            f"codes of {len(schema)} columns and at least one row are needed, not {codes.shape}"
        )
    if rival in ("voue", "vrappor"):
        return _whole_domain(schema, codes, _BITS[rival], epsilon, rng)
    return _split_and_em(schema, codes, _BITS[rival], epsilon, rng, steps)


def _whole_domain(
    schema: Schema, codes: Codes, name: str, epsilon: float, rng: np.random.Generator
) -> Floats:
    shape = schema.cardinalities
    cells = np.ravel_multi_index(tuple(np.asarray(c, np.int64) for c in codes.T), shape)
    chosen = mechanism(name, int(np.prod(shape)), epsilon)
    support = kernels.simulate(chosen, np.bincount(cells, minlength=chosen.cells), rng)
    return norm_sub(kernels.estimate(chosen, support, len(codes)).frequencies).reshape(shape)


def _split_and_em(
    schema: Schema, codes: Codes, name: str, epsilon: float, rng: np.random.Generator, steps: int
) -> Floats:
    # A hair below the even share, so that rounding each part up cannot carry the sum past the whole.
    part = epsilon * (1 - 1e-12) / len(schema)
    questions = tuple(Question((a.name,), mechanism(name, a.cardinality, part)) for a in schema)
    plan = Plan(0, questions, split=True, tally="patterns")
    stream = RandomStream.from_generator(rng)
    rows = [
        kernels.randomise(q.mechanism, codes[:, i], stream).rows for i, q in enumerate(questions)
    ]
    tally = PatternTally(plan)
    tally.add(-1, PackedReports(np.concatenate(rows, axis=1)))
    reports = SplitReports.from_tally(tally)
    return em_joint(reports, range(len(schema)), steps=steps).joint


@dataclass(frozen=True)
class CentralTree:
    """A junction tree with noise, as a curator would release it: the model, its edges and what it spent."""

    model: JunctionTree
    edges: int
    epsilon: float


def central_jtree(
    schema: Schema,
    codes: Codes,
    epsilon: float,
    source: ByteSource,
    phi: float = 0.3,
    theta: float = 4.0,
) -> CentralTree:
    """JTree (Chen, Xiao, Zhang, Xu, KDD 2015) in the central model: LoPub's table 1 names it as a rival.

    Half of epsilon goes to the dependence of every pair, half to the clique tables; both have
    exact integer noise for one record added or removed. Dependence is PrivBayes's R, half the L1
    distance from independence, whose sensitivity is far below that of mutual information; a pair
    is kept if 2 R^2, which bounds its mutual information from below (Pinsker), reaches eq. 15. A
    clique has at most so many cells that its average count is `theta` times the noise. The
    paper's own test samples the table and stops at the first answer above a noisy threshold.
    """
    counts_of = table_counts(codes, schema.cardinalities)
    pairs = list(combinations(range(len(schema)), 2))
    count_scale = calibrate(1, 0.01 * epsilon)
    total = float(max(1, add_noise(np.array([len(codes)]), count_scale, source)[0]))
    sensitivity = score_sensitivity(len(codes), "add-remove")
    score_scale = calibrate(sensitivity, 0.49 * epsilon / len(pairs))
    scores = np.array([dependence_score(counts_of(pair)) for pair in pairs])
    noisy = add_noise(scores, score_scale, source) / (SCORE_GRID * total)
    strengths = {}
    for (i, j), distance in zip(pairs, noisy, strict=True):
        threshold = mutual_information_threshold(
            schema.cardinalities[i], schema.cardinalities[j], phi
        )
        if distance > 0 and 2 * distance**2 >= threshold:
            strengths[i, j] = float(distance)
    # Slightly less than the rest, so that rounding in the sums cannot exceed epsilon.
    for_tables = 0.5 * epsilon * (1 - 2**-40)
    widest = max(schema.cardinalities)
    most = max(widest, int(total * for_tables / (len(schema) * theta)))
    tree = triangulate_capped(schema.cardinalities, strengths, most)
    table_scale = calibrate(len(tree.cliques), for_tables)
    tables = [
        norm_sub(add_noise(counts_of(clique), table_scale, source) / total)
        for clique in tree.cliques
    ]
    spent = (
        achieved_epsilon(1, count_scale)
        + len(pairs) * achieved_epsilon(sensitivity, score_scale)
        + achieved_epsilon(len(tree.cliques), table_scale)
    )
    return CentralTree(JunctionTree.from_cliques(schema, tree, tables), len(tree.kept), spent)
