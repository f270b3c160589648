"""LoPub: every participant reports every attribute once, as randomised bits.

The server estimates joint distributions, a dependency graph and a junction tree. Reference:
Ren, Yu, Yu, Yang, Yang, McCann, Yu, "LoPub: high-dimensional crowdsourced data publication with
local differential privacy", IEEE TIFS 2018. One round, `split`. Two records may differ in all d
attributes, so the guarantee is the sum over the attributes (erratum 1). The paper's figure,
2h ln((2-f)/f), holds for one attribute and is stated as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Literal, get_args, get_type_hints

import numpy as np

from dither.checks import check_between, check_choice, check_finite, check_whole_or_none
from dither.errors import ParameterError, PrivacyError
from dither.fit import (
    Dependence,
    JunctionTree,
    Marginal,
    Pruning,
    TreeFit,
    Triangulation,
    Variant,
    dependence,
    fit_tree,
    mutual_information,
    mutual_information_threshold,
    prune_by_entropy,
    triangulate_capped,
)
from dither.fit.joint import JointEstimate, SplitReports, estimate_joints
from dither.mechanisms import (
    BitMechanism,
    BloomRappor,
    bloom_size,
    independent_filter_seed,
    sue_from_flip,
)
from dither.methods.diagnostics import Diagnostics, FitFacts, Names, TreeFacts, named
from dither.methods.machine import Campaign, ProtocolMachine, check_clique_cells
from dither.reports import Plan, Question
from dither.schema import Attribute, Schema
from dither.tally import PatternTally
from dither.types import Progress


@dataclass(frozen=True)
class _LoPubSettings:
    """Tuned constants of LoPub."""

    # False positive rate of a Bloom filter: four hashes, as in the paper's experiments.
    false_positive: float = 0.05


SETTINGS = _LoPubSettings()


@dataclass(frozen=True)
class LoPubParameters:
    """Parameters of LoPub.

    `flip` is the paper's f; by default it follows from the record's epsilon. `bits` and `hashes`
    of a Bloom filter follow from `false_positive` by default; `hash_seed` is the first one that
    separates an attribute's values. `threshold=noise` keeps a pair that exceeds the noise by
    `significance` standard deviations and, with `phi`, reaches the paper's threshold too;
    `threshold=paper` uses mutual information and phi (0.2) alone. `pruning=paper` starts full
    for binary schemas and empty for others. `fit=pairs` fits the tree to all pairs at once,
    `fit=cliques` estimates each clique separately with the `estimator`, as the paper does. The
    paper's figures need `em=printed` (even start, printed stopping rule) and
    `relative_entropy=degrees`, H/(k-1), used for its table 7. `sample` is the share of the
    participants who are asked; the paper takes a tenth of Adult.
    """

    estimator: Literal["em", "lasso", "hybrid"] = "em"
    lasso_features: Literal["cooccurrence", "paper"] = "cooccurrence"
    encoding: Literal["unary", "bloom"] = "unary"
    flip: float | None = None
    bits: int | None = None
    hashes: int | None = None
    false_positive: float | None = None
    hash_seed: int | None = None
    threshold: Literal["noise", "paper"] = "noise"
    phi: float | None = None
    significance: float = 3.0
    pruning: Literal["none", "paper", "empty", "full"] = "none"
    relative_entropy: Literal["values", "degrees"] = "values"
    max_clique_cells: int = 2_000
    fit: Literal["cliques", "pairs"] = "cliques"
    em: Literal["converged", "printed"] = "converged"
    tolerance: float = 1e-5
    steps: int = 2_000
    sample: float = 1.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            choices = get_args(get_type_hints(LoPubParameters)[name])
            if isinstance(value, str):
                check_choice(name, value, choices)
        for name in ("flip", "false_positive"):
            if getattr(self, name) is not None:
                check_between(name, getattr(self, name), 0, 1, ends="()")
        if self.phi is not None:
            check_between("phi", self.phi, 0, 1)
        for name in ("bits", "hashes", "max_clique_cells", "steps"):
            check_whole_or_none(name, getattr(self, name), 1)
        check_whole_or_none("hash_seed", self.hash_seed, 0)
        check_between("tolerance", self.tolerance, 0, math.inf, ends="()")
        check_between("sample", self.sample, 0, 1, ends="(]")
        check_finite("significance", self.significance)
        given = [
            n
            for n in ("bits", "hashes", "false_positive", "hash_seed")
            if getattr(self, n) is not None
        ]
        if self.encoding == "unary" and given:
            raise ParameterError(
                f"{given[0]} belongs to Bloom filters; add encoding=bloom or leave it out",
                where=given[0],
            )
        if self.bits is not None and self.hashes is not None and self.false_positive is not None:
            raise ParameterError(
                "give bits and hashes, or a false_positive rate, not all three",
                where="false_positive",
            )

    @property
    def degree(self) -> float:
        """phi with its default: 0.2 for the paper's rule, none with the noise test."""
        return self.phi if self.phi is not None else (0.2 if self.threshold == "paper" else 0.0)

    def filter_size(self, cells: int) -> tuple[int, int]:
        """Bits and hashes of a Bloom filter over some cells (eq. 6 and 7)."""
        if self.bits is not None:
            return self.bits, self.hashes or max(1, round(self.bits / cells * math.log(2)))
        if self.hashes is not None:
            return max(self.hashes + 1, math.ceil(self.hashes * cells / math.log(2))), self.hashes
        return bloom_size(
            cells,
            self.false_positive if self.false_positive is not None else SETTINGS.false_positive,
        )


def lopub_plan(schema: Schema, epsilon: float, parameters: LoPubParameters) -> Plan:
    """The one round: all attributes, one flip probability, at most epsilon for the whole record."""
    flip = parameters.flip if parameters.flip is not None else 0.5
    mechanisms = [_mechanism(attribute, flip, parameters) for attribute in schema]
    if parameters.flip is None:
        mechanisms = _for_epsilon(mechanisms, epsilon)
    questions = tuple(Question((a.name,), m) for a, m in zip(schema, mechanisms, strict=True))
    plan = Plan(0, questions, split=True, tally="patterns", population=parameters.sample)
    if plan.epsilon > epsilon:
        raise PrivacyError(
            f"flip={parameters.flip} gives a whole record epsilon {plan.epsilon:.6g}, more than the {epsilon:g} asked "
            "for; raise epsilon or flip, or leave flip out",
            where="flip",
            value=parameters.flip,
        )
    return plan


def _mechanism(attribute: Attribute, flip: float, parameters: LoPubParameters) -> BitMechanism:
    """The bits of one attribute; an error if the filters do not separate its values."""
    cells = attribute.cardinality
    if parameters.encoding == "unary":
        return sue_from_flip(cells, flip)
    bits, hashes = parameters.filter_size(cells)
    try:
        seed = independent_filter_seed(cells, bits, hashes, parameters.hash_seed)
    except ParameterError as error:
        raise ParameterError(
            f"{attribute.name}: {error}", where=error.where, value=error.value
        ) from None
    return BloomRappor.for_flip(cells, flip, bits, hashes, seed)


def _for_epsilon(mechanisms: list[BitMechanism], epsilon: float) -> list[BitMechanism]:
    """The bits with the flip probability of the record's epsilon, equal for all attributes."""
    # Slightly below the share, so that rounding up cannot carry the sum past epsilon.
    share = epsilon * (1 - 1e-12) / sum(m.distance for m in mechanisms)
    try:
        return [m.with_epsilon(share * m.distance) for m in mechanisms]
    except PrivacyError:
        raise PrivacyError(
            f"epsilon {epsilon:g} split over {len(mechanisms)} attributes is so small that the flip probability "
            "rounds to 1 and reports say nothing; raise epsilon or ask fewer attributes",
            where="epsilon",
            value=epsilon,
        ) from None


Pair = tuple[int, int]


@dataclass(frozen=True)
class _LoPubFit:
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
) -> _LoPubFit:
    """From reports to a junction tree: algorithms 4 (or 5), then the joints of the cliques."""
    pruned, _, _, strengths = find_dependences(schema, reports, parameters, progress)
    chosen = {pair: strengths[pair] for pair in pruned.dependent}
    tree = triangulate_capped(schema.cardinalities, chosen, parameters.max_clique_cells)
    if parameters.fit == "pairs":
        fitted = _fit_pairs(schema, reports, tree, progress)
        return _LoPubFit(pruned, tree, fitted.model, tree_fit=fitted)
    sets = [tuple(schema.names[a] for a in clique) for clique in tree.cliques]
    cliques = _joints(reports, sets, parameters, _named(progress, "cliques estimated"))
    model = JunctionTree.from_cliques(schema, tree, [c.joint for c in cliques])
    return _LoPubFit(pruned, tree, model, cliques=cliques)


def find_dependences(
    schema: Schema,
    reports: SplitReports,
    parameters: LoPubParameters,
    progress: Progress | None = None,
) -> tuple[Pruning, dict[Pair, float], dict[Pair, float], dict[Pair, float]]:
    """The dependent pairs, with score, mutual information and strength of each tested pair."""
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
    """The noise-aware test of one pair, with the one-way frequencies a, b of the same reports.

    The residual is the mean of (t - a)(u - b) over reports, t and u the indicators of one
    report. For independent attributes its covariance is that of t times that of u, over n
    (Kronecker), so the null mean and deviation of its sum of squares are exact, sampling
    included; the noise of a and b cancels.
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


class LoPub(ProtocolMachine[LoPubParameters]):
    """One round in which participants answer everything; then pairs, graph, junction tree."""

    method = "lopub"
    parameters_class = LoPubParameters

    def __init__(self, campaign: Campaign, parameters: LoPubParameters) -> None:
        check_clique_cells(campaign.schema, parameters.max_clique_cells)
        super().__init__(campaign, parameters)
        self._round = lopub_plan(campaign.schema, campaign.epsilon, parameters)

    def plan(self) -> Plan | None:
        return None if self._closed else self._round

    @cached_property
    def reports(self) -> SplitReports:
        """The closed round's reports."""
        self._finished()
        tally = self._closed[0]
        assert isinstance(tally, PatternTally)
        return SplitReports.from_tally(tally)

    @cached_property
    def _learnt(self) -> _LoPubFit:
        return learn(self.campaign.schema, self.reports, self.parameters, self.progress)

    def model(self) -> JunctionTree:
        self._finished()
        return self._learnt.model

    def measured(self) -> list[Marginal]:
        if not self._closed:
            return []
        reports = self.reports
        return [
            *reports.one_ways(),
            *(reports.pair_marginal(i, j) for i, j in self._learnt.tree.kept),
        ]

    def diagnostics(self) -> _LoPubDiagnostics:
        facts = _encoding_facts(self._round, self.parameters)
        return _state_fit(facts, self.campaign.schema, self._learnt) if self._closed else facts


@dataclass(frozen=True, kw_only=True)
class _LoPubDiagnostics(Diagnostics):
    """The encoding with its epsilon as the paper counts it, the structure search and the fit."""

    encoding: str
    flip: float
    bits_per_report: int
    hashes: int
    epsilon_record: float
    epsilon_per_attribute_as_in_the_paper: float
    epsilon_remark: str
    estimator: str
    pairs: int | None = None
    pairs_examined: int | None = None
    dependences_found: int | None = None
    tree: TreeFacts | None = None
    edges_filled_in: Names | None = None
    fit: FitFacts | None = None
    em_steps: int | None = None
    em_converged: bool | None = None


def _encoding_facts(plan: Plan, parameters: LoPubParameters) -> _LoPubDiagnostics:
    mechanisms = [q.mechanism for q in plan.questions if isinstance(q.mechanism, BitMechanism)]
    flips, hashes = [float(m.flip) for m in mechanisms], [m.hashes for m in mechanisms]
    return _LoPubDiagnostics(
        encoding=parameters.encoding,
        flip=max(flips),
        bits_per_report=sum(m.counters for m in mechanisms),
        hashes=max(hashes),
        epsilon_record=plan.epsilon,
        epsilon_per_attribute_as_in_the_paper=max(
            2 * h * math.log((2 - f) / f) for h, f in zip(hashes, flips, strict=True)
        ),
        epsilon_remark=(
            "epsilon_record holds for the whole record; the paper's eq. 8 is of one attribute"
        ),
        estimator=parameters.estimator,
    )


def _state_fit(facts: _LoPubDiagnostics, schema: Schema, learnt: _LoPubFit) -> _LoPubDiagnostics:
    """The facts with those of the structure search and the fit."""
    facts = replace(
        facts,
        pairs=learnt.pruned.pairs,
        pairs_examined=len(learnt.pruned.examined),
        dependences_found=len(learnt.pruned.dependent),
        tree=TreeFacts.of(schema, learnt.tree),
        edges_filled_in=named(schema, sorted(learnt.tree.fill)),
    )
    if learnt.tree_fit is not None:
        return replace(facts, fit=FitFacts.of(learnt.tree_fit))
    return replace(
        facts,
        em_steps=sum(c.steps for c in learnt.cliques),
        em_converged=all(c.converged for c in learnt.cliques),
    )
