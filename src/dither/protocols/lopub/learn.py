"""What LoPub's server makes of the reports: dependent pairs, a junction tree, the joints of its cliques.

Reference: Ren et al., "LoPub", IEEE TIFS 2018, algorithms 4 to 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from dither.estimate.joint import JointEstimate, SplitReports, estimate_joints
from dither.models.junction_tree import JunctionTree
from dither.models.tree_fit import TreeFit, fit_tree
from dither.protocols.lopub.plan import LoPubParameters
from dither.schema import Schema
from dither.structure import (
    Dependence,
    Pruning,
    Triangulation,
    dependence,
    mutual_information,
    mutual_information_threshold,
    prune_by_entropy,
    triangulate_capped,
)
from dither.structure.dependence import Variant
from dither.types import Progress

Pair = tuple[int, int]


@dataclass(frozen=True)
class LoPubFit:
    """What the server makes of the reports."""

    pruned: Pruning
    tree: Triangulation
    model: JunctionTree
    cliques: list[JointEstimate] = field(default_factory=list)
    tree_fit: TreeFit | None = None


def learn(
    schema: Schema,
    reports: SplitReports,
    parameters: LoPubParameters,
    progress: Progress | None = None,
) -> LoPubFit:
    """From reports to a junction tree: algorithms 4 (or 5), then the joints of the cliques."""
    pruned, _, _, strengths = find_dependences(schema, reports, parameters, progress)
    chosen = {pair: strengths[pair] for pair in pruned.dependent}
    tree = triangulate_capped(schema.cardinalities, chosen, parameters.max_clique_cells)
    if parameters.fit == "pairs":
        fitted = _fit_pairs(schema, reports, tree, progress)
        return LoPubFit(pruned, tree, fitted.model, tree_fit=fitted)
    sets = [tuple(schema.names[a] for a in clique) for clique in tree.cliques]
    cliques = _joints(reports, sets, parameters, _named(progress, "cliques estimated"))
    model = JunctionTree.from_cliques(schema, tree, [c.joint for c in cliques])
    return LoPubFit(pruned, tree, model, cliques=cliques)


def find_dependences(
    schema: Schema,
    reports: SplitReports,
    parameters: LoPubParameters,
    progress: Progress | None = None,
) -> tuple[Pruning, dict[Pair, float], dict[Pair, float], dict[Pair, float]]:
    """The dependent pairs, with each examined pair's score, mutual information (paper's rule or phi) and strength."""
    tests: dict[Pair, Dependence] = {
        (i, j): noise_aware(reports, i, j) for i, j in combinations(range(len(schema)), 2)
    }
    phi, names = parameters.degree, schema.names
    variant = _variant(schema, parameters)
    information: dict[Pair, float] = {}
    if parameters.threshold == "paper" or phi > 0:
        relative = parameters.relative_entropy
        examined = prune_by_entropy(
            reports.distributions, phi, variant, lambda i, j: True, relative
        ).examined
        sets = [(names[i], names[j]) for i, j in examined]
        found = _joints(reports, sets, parameters, _named(progress, "pairs estimated"))
        information = {
            pair: mutual_information(f.joint) for pair, f in zip(examined, found, strict=True)
        }

    def depends(i: int, j: int) -> bool:
        enough = mutual_information_threshold(schema.cardinalities[i], schema.cardinalities[j], phi)
        if information and information[i, j] < enough:
            return False
        return parameters.threshold == "paper" or tests[i, j].score >= parameters.significance

    pruned = prune_by_entropy(
        reports.distributions, phi, variant, depends, parameters.relative_entropy
    )
    scores = {pair: test.score for pair, test in tests.items()}
    # Half the L1 distance from independence is at most sqrt(cells)/2 times the Euclidean one: the error of dropping a
    # pair.
    strengths = {
        (i, j): t.strength * math.sqrt(schema.cells([names[i], names[j]]))
        for (i, j), t in tests.items()
    }
    return pruned, scores, information, strengths


def noise_aware(reports: SplitReports, i: int, j: int) -> Dependence:
    """The noise-aware test of one pair, with the one-way frequencies a, b that the same reports give.

    The residual is then the mean of (t - a)(u - b) over people, t and u the indicators of one report. For independent
    attributes its covariance is that of t times that of u, over n (Kronecker), so the null mean and deviation of its sum
    of squares are exact, chance of who took part included; noise of a and b cancels against the same in the pair.
    """
    raw, _ = reports.pair(i, j)
    first, second = (reports.encodings[k].spread(reports.distributions[k]) for k in (i, j))
    squares = dependence(raw, 0.0, reports.singles[i], reports.singles[j]).statistic
    expected = float(np.trace(first) * np.trace(second)) / reports.n
    deviation = math.sqrt(2 * float((first**2).sum() * (second**2).sum())) / reports.n
    return Dependence(squares - expected, deviation)


def _variant(schema: Schema, parameters: LoPubParameters) -> Variant:
    if parameters.pruning == "paper":
        return "full" if max(schema.cardinalities) == 2 else "empty"
    return parameters.pruning


def _joints(
    reports: SplitReports,
    sets: Sequence[tuple[str, ...]],
    parameters: LoPubParameters,
    progress: Callable[[int, int], None] | None,
) -> list[JointEstimate]:
    return estimate_joints(
        reports,
        sets,
        parameters.estimator,
        features=parameters.lasso_features,
        tolerance=parameters.tolerance,
        steps=parameters.steps,
        printed=parameters.em == "printed",
        progress=progress,
    )


def _fit_pairs(
    schema: Schema, reports: SplitReports, tree: Triangulation, progress: Progress | None
) -> TreeFit:
    """The tree fitted to all raw singles and pairs at once."""
    pairs = [reports.pair_marginal(i, j) for i, j in combinations(range(len(schema)), 2)]
    measured = [
        replace(m, standard_errors=np.sqrt(np.maximum(m.variances, 1e-12)))
        for m in (*reports.one_ways(), *pairs)
    ]
    report = _named(progress, "tree fitted")
    most = 1_000
    return fit_tree(
        schema,
        tree,
        measured,
        start=reports.distributions,
        iterations=most,
        progress=None if report is None else lambda done, _: report(done, most),
    )


def _named(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(what, done, total)
