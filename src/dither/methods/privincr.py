"""PrivIncr: rounds of pair questions that prune weak pairs, then questions about cliques.

Reference: Liu, Tang, Hu, Jin, Guo, "Multi-dimensional data publishing with local differential
privacy", EDBT 2023. Every participant answers one question at full epsilon. Answers are pooled
by their whole variance, of noise and sampling (the paper's weights: erratum 6). Pairs are
pruned by risk by default, since the paper's relaxed rule prunes nothing (erratum 7). The
parameters of the paper itself are in `dither.methods.published`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np

from dither.checks import (
    check_between,
    check_choice,
    check_finite,
    check_whole,
    check_whole_or_none,
)
from dither.errors import ParameterError, TooFewAnswers
from dither.fit import (
    MAX_EXHAUSTIVE,
    Factorisation,
    JunctionTree,
    Marginal,
    TreeFit,
    Triangulation,
    answers_of,
    check_asked,
    compose,
    factorise,
    factorise_by_information,
    factorise_exhaustively,
    mutual_information,
    mutual_information_threshold,
    norm_sub,
    shrunk_squares,
    triangulate_capped,
)
from dither.mechanisms import POOLED_NAMES, Mechanism, mechanism
from dither.methods.calm import Table, reconstruct
from dither.methods.diagnostics import Diagnostics, FitFacts, TreeFacts
from dither.methods.evidence import Evidence, Pair, PairEvidence, merged
from dither.methods.independent import question_shares
from dither.methods.machine import Campaign, ProtocolMachine, check_clique_cells
from dither.methods.tree import (
    FALLBACK,
    factor_cells,
    fit_jointly,
    without_dependence,
)
from dither.reports import Plan, Question, question
from dither.schema import Schema
from dither.tally import CountTally, RoundTally
from dither.types import Floats, Integers


@dataclass(frozen=True)
class _PrivIncrSettings:
    """Tuned constants of PrivIncr (docs/explanation/privincr.md)."""

    # Rounds of pairs if the participants suffice, the paper's T. More rounds prune earlier with
    # fewer answers in each.
    rounds: int = 3
    # Cap on the cells of a clique if the tree is fitted to all answers at once.
    joint_cells: int = 8_000
    # The same if each clique is estimated alone, where a large one is mostly noise.
    paper_cells: int = 1_500
    # Share of one-attribute questions if pairs tell nothing about single attributes.
    singles: float = 0.3
    # Cramer's V of a strong pair. Pairs in which it would not stand out from noise are not asked:
    # one-way answers serve better there.
    strong_v: float = 0.35
    # Standard deviations by which a pair may fall short before the last round. A dropped pair
    # seldom comes back.
    slack: float = 1.0
    # Mean score, in standard deviations, of the dropped pairs that may come back late.
    late_mean_z: float = 1.0
    # Score, in standard deviations, of one dropped pair that comes back late.
    late_z: float = 2.0


SETTINGS = _PrivIncrSettings()


@dataclass(frozen=True)
class PrivIncrParameters:
    """Parameters of PrivIncr. Defaults are those with the least measured error.

    `rounds` is T (by default three, or as many as the participants allow), `omega` the share of
    participants in these rounds. `threshold=calibrated` prunes by risk: a pair is kept if its
    estimated squared dependence exceeds `price` times its noise after the last round; with
    `phi` it must also reach the paper's mutual information then. `threshold=paper` is eq. 18
    with `alpha` and phi (0.3), `threshold=plain` the mutual information of eq. 15 alone, in
    `unit` (the paper names no base of its logarithm). `weights=paper` averages the answers of
    each round by eq. 6 to 13. Pairs in which strong dependence would not exceed `significance`
    standard deviations are not asked. `shares` of the pairs grow with the root of their cells,
    or with their `cells` as in the paper. `singles` is the share of one-attribute questions (by
    default from the domains' widths; the paper: 0). `fit=joint` fits the tree to all answers at
    once, `fit=paper` each clique separately, larger ones by factors of at most `factor_cells`.
    `search=exhaustive` tries every factorisation of cliques of up to twelve attributes
    (algorithm 2 as an exhaustive search); it needs one of the paper's thresholds.
    """

    rounds: int | None = None
    omega: float = 0.5
    threshold: Literal["calibrated", "paper", "plain"] = "calibrated"
    unit: Literal["nats", "bits"] = "nats"
    weights: Literal["variance", "paper"] = "variance"
    phi: float | None = None
    alpha: float = 0.05
    significance: float = 2.0
    price: float = 0.7
    mechanism: str = "best"
    shares: Literal["root", "cells", "uniform"] = "root"
    singles: float | None = None
    fit: Literal["joint", "paper"] = "joint"
    search: Literal["greedy", "exhaustive"] = "greedy"
    max_clique_cells: int | None = None
    factor_cells: int | None = None

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, POOLED_NAMES)
        check_between("omega", self.omega, 0, 1, ends="()")
        if self.singles is not None:
            check_between("singles", self.singles, 0, 1, ends="[)")
        check_between("alpha", self.alpha, 0, 1, ends="(]")
        if self.phi is not None:
            check_between("phi", self.phi, 0, 1)
        for name, least in (("rounds", 1), ("max_clique_cells", 2), ("factor_cells", 2)):
            check_whole_or_none(name, getattr(self, name), least)
        check_finite("significance", self.significance)
        check_between("price", self.price, 0, math.inf, ends="[)")
        if self.search == "exhaustive" and not self.printed:
            raise ParameterError(
                "search=exhaustive is the paper's algorithm 2; add threshold=plain or threshold=paper",
                where="search",
                value=self.search,
            )

    @property
    def degree(self) -> float:
        """phi with its default: the paper's 0.3 for its rules, none with the noise test."""
        if self.phi is not None:
            return self.phi
        return 0.3 if self.printed else 0.0

    @property
    def printed(self) -> bool:
        """Whether pairs are selected by one of the paper's rules."""
        return self.threshold != "calibrated"

    @property
    def clique_cells(self) -> int:
        """The cap on a clique's cells; a clique that is fitted separately must be smaller."""
        return self.max_clique_cells or (
            SETTINGS.joint_cells if self.fit == "joint" else SETTINGS.paper_cells
        )


def _check_campaign(campaign: Campaign, parameters: PrivIncrParameters) -> None:
    """Raise `ParameterError` for parameters that cannot work."""
    check_clique_cells(campaign.schema, parameters.clique_cells)
    if parameters.rounds is not None:
        people = int(campaign.participants * parameters.omega / parameters.rounds)
        questions = _first_questions(campaign, parameters)
        if people < questions and parameters.rounds == 1:
            raise TooFewAnswers(
                f"{campaign.participants:,} participants are too few: {people:,} of them answer the first round's {questions} "
                "questions; ask more participants",
                where="participants",
                value=campaign.participants,
            )
        if people < questions:
            raise ParameterError(
                f"rounds={parameters.rounds} leaves {people:,} participants per round for {questions} questions; "
                "ask for fewer rounds, a larger omega, or more participants",
                where="rounds",
                value=parameters.rounds,
            )


def _rounds_of(campaign: Campaign, parameters: PrivIncrParameters) -> int:
    """T: as given, else at most three, with ten participants for every question of a round."""
    if parameters.rounds is not None:
        return parameters.rounds
    enough = (
        campaign.participants * parameters.omega / (10 * _first_questions(campaign, parameters))
    )
    return max(1, min(SETTINGS.rounds, int(enough)))


def _first_questions(campaign: Campaign, parameters: PrivIncrParameters) -> int:
    d = len(campaign.schema)
    return math.comb(d, 2) + (d if _usual_singles(campaign, parameters) > 0 else 0)


def _usual_singles(campaign: Campaign, parameters: PrivIncrParameters) -> float:
    """The share of one-attribute questions while all pairs are asked."""
    if parameters.singles is not None:
        return parameters.singles
    return SETTINGS.singles * max(0.0, 1 - _single_information(campaign, parameters))


def _single_information(campaign: Campaign, parameters: PrivIncrParameters) -> float:
    """The mean information of a pair answer on its attributes, in one-attribute answers.

    The information is one over the variance of a frequency, of noise and sampling. The limit
    for large epsilon is two. It is small for wide pairs, whose noise adds up over the cells of
    a row.
    """
    sizes = campaign.schema.cardinalities
    told = weight = 0.0
    for k, m in combinations(sizes, 2):
        pair: Mechanism = mechanism(parameters.mechanism, k * m, campaign.epsilon)
        for own, other in ((k, m), (m, k)):
            alone: Mechanism = mechanism(parameters.mechanism, own, campaign.epsilon)
            chance = (1 - 1 / own) / own
            one = alone.variance(1 / own, 1) + chance
            told += math.sqrt(k * m) * one / (pair.group_variance(other, 1 / own, 1) + chance)
        weight += math.sqrt(k * m)
    return told / weight if weight else 0.0


def learnable_pairs(campaign: Campaign, parameters: PrivIncrParameters) -> list[Pair]:
    """The pairs in which strong dependence would exceed the noise if d pairs were asked.

    A pair with Cramer's V of phi lies about phi^2 (min(k_i, k_j) - 1) / (k_i k_j) from independence, squared; the
    null standard deviation is sqrt(2 (k_i-1)(k_j-1)) s^2. Other pairs would cost participants
    without information. The paper's rule asks about all pairs.
    """
    schema = campaign.schema
    every = list(combinations(range(len(schema)), 2))
    if parameters.printed:
        return every
    people = campaign.participants * (1 - _usual_singles(campaign, parameters)) / len(schema)
    out = []
    for i, j in every:
        k, m = schema.cardinalities[i], schema.cardinalities[j]
        chosen: Mechanism = mechanism(parameters.mechanism, k * m, campaign.epsilon)
        noise = chosen.total_variance / (k * m * people)
        seen = SETTINGS.strong_v**2 * (min(k, m) - 1) / (k * m)
        if seen >= parameters.significance * math.sqrt(2 * (k - 1) * (m - 1)) * noise:
            out.append((i, j))
    return out


def singles_share(
    campaign: Campaign, learnable: int, left: int, parameters: PrivIncrParameters
) -> float:
    """The share of one-attribute questions, given how many pairs can be learnt and how many are left.

    Singles get the share of the pairs that cannot be learnt. If fewer pairs than attributes are
    left, most attributes have only their marginal to learn, so singles get the share of the
    missing pairs too.
    """
    d = len(campaign.schema)
    every, usual = math.comb(d, 2), _usual_singles(campaign, parameters)
    if parameters.printed or not every or parameters.singles == 0:
        return usual
    return max(1 - (1 - usual) * learnable / every, 1 - left / d)


def round_plan(
    campaign: Campaign,
    parameters: PrivIncrParameters,
    number: int,
    population: float,
    sets: Sequence[tuple[int, ...]],
    singles: float,
) -> Plan:
    """A round of questions about some attribute sets, with a share of `singles`.

    If a pair answer has more information on single attributes than a one-attribute answer
    (`_single_information`), all other pairs are asked in place of singles.
    """
    schema = campaign.schema
    names = schema.names
    questions: list[Question] = []
    shares: list[float] = []
    if sets:
        questions = [_ask(schema, campaign, parameters, [names[a] for a in s]) for s in sets]
        shares = [(1 - singles) * float(w) for w in _weights(questions, parameters.shares)]
    if singles > 0 or not sets:
        whole = singles if sets else 1.0
        others = [p for p in combinations(range(len(names)), 2) if p not in set(sets)]
        if (
            number
            and parameters.singles is None
            and others
            and _single_information(campaign, parameters) >= 1
        ):
            alone = [_ask(schema, campaign, parameters, [names[i], names[j]]) for i, j in others]
            shares += [whole * float(w) for w in _weights(alone, parameters.shares)]
        else:
            alone = [_ask(schema, campaign, parameters, [name]) for name in names]
            shares += [whole * s for s in question_shares(alone, "least-error")]
        questions += alone
    total = math.fsum(shares)
    return Plan(number, tuple(questions), tuple(s / total for s in shares), population=population)


def _ask(
    schema: Schema, campaign: Campaign, parameters: PrivIncrParameters, names: Sequence[str]
) -> Question:
    return question(schema, names, campaign.epsilon, parameters.mechanism)


def _weights(
    questions: Sequence[Question], rule: str
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    power = {"cells": 1.0, "root": 0.5, "uniform": 0.0}[rule]
    weights = np.array([float(q.mechanism.cells) ** power for q in questions])
    return np.asarray(weights / weights.sum())


def relaxed_threshold(rows: int, columns: int, n: int, phi: float, alpha: float) -> float:
    """Eq. 18: the mutual information, in nats, below which the paper prunes a pair with n answers.

    Theorem 5.2's bound is so wide that this is negative for ordinary domains (erratum 7), so
    that nothing is pruned.
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


def _printed_threshold(rows: int, columns: int, n: int, parameters: PrivIncrParameters) -> float:
    """The mutual information, in nats, that the paper asks of a pair with n answers.

    Eq. 18 with `threshold=paper`, eq. 15 with `threshold=plain`. The right side of eq. 15 has
    no unit: read in bits it is a smaller number of nats.
    """
    if parameters.threshold == "paper":
        return relaxed_threshold(rows, columns, n, parameters.degree, parameters.alpha)
    plain = mutual_information_threshold(rows, columns, parameters.degree)
    return plain * math.log(2) if parameters.unit == "bits" else plain


def _prune(
    evidence: Evidence,
    edges: Sequence[Pair],
    parameters: PrivIncrParameters,
    people: float,
    last: bool,
) -> list[Pair]:
    """The pairs that stay after a round, when `people` are left to be asked about pairs."""
    sizes = evidence.schema.cardinalities
    found = {pair: e for pair in edges if (e := evidence.pair(*pair)) is not None}
    if parameters.printed:
        return [
            (i, j)
            for (i, j), e in found.items()
            if mutual_information(e.projected)
            >= _printed_threshold(sizes[i], sizes[j], e.pooled.n, parameters)
        ]
    if not last:
        return _may_be_worth(evidence, list(found), parameters.price, people)
    return _reaching(
        evidence, worth_asking(evidence, list(found), parameters.price, people), parameters
    )


def _reaching(
    evidence: Evidence, pairs: Sequence[Pair], parameters: PrivIncrParameters
) -> list[Pair]:
    """The pairs that reach phi's mutual information."""
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
    """The pairs whose estimated squared dependence exceeds `price` times their final noise.

    Dropping a pair costs its squared dependence D, keeping it the noise of its table. D is its
    posterior mean given all asked pairs (`shrunk_squares`). The noise falls with the remaining
    participants, who are shared between the kept pairs. Pairs are added by dependence relative
    to noise, as many as gain most together. Squares are multiplied by the pair's cells, which
    makes them comparable: half the L1 distance is at most half the root.
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


def _may_be_worth(
    evidence: Evidence, pairs: Sequence[Pair], price: float, people: float
) -> list[Pair]:
    """The pairs whose unbiased squared dependence falls short by at most `slack` standard deviations.

    Few participants have answered so far, so each pair is judged alone.
    """
    noise = _Asked.of(evidence, pairs).noise_to_come(people)
    tests = [e.test for pair in pairs if (e := evidence.pair(*pair)) is not None]
    return [
        pair
        for pair, test, final in zip(pairs, tests, noise, strict=True)
        if test.statistic >= price * final - SETTINGS.slack * test.null_deviation
    ]


@dataclass(frozen=True)
class _Asked:
    """The cells, participants and squared noise of some pairs."""

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
        """The squared noise after more participants, shared by the roots of the cells."""
        roots = np.sqrt(self.cells)
        return np.asarray(
            self.noise * self.people / (self.people + people * roots / max(roots.sum(), 1.0))
        )


@dataclass(frozen=True)
class _CliqueLayout:
    """The junction tree and the questions about its cliques."""

    tree: Triangulation
    sets: tuple[tuple[int, ...], ...]
    factorisations: tuple[Factorisation, ...] = field(default=())


def _with_late_pairs(
    evidence: Evidence, layout: _CliqueLayout, asked: Plan, parameters: PrivIncrParameters
) -> _CliqueLayout:
    """The layout with pruned pairs of the last round that now exceed their noise.

    Narrow pairs are asked in place of singles to the end (`round_plan`), so that they have
    about twice as many answers as when they were pruned.
    """
    schema, tree = evidence.schema, layout.tree
    held = {pair for clique in tree.cliques for pair in combinations(sorted(clique), 2)}
    pairs = {
        tuple(sorted(map(schema.index, q.attributes)))
        for q in asked.questions
        if len(q.attributes) == 2
    }
    found = {(i, j): e for i, j in sorted(pairs - held) if (e := evidence.pair(i, j)) is not None}
    late = _reaching(evidence, _late(evidence, found, parameters.price), parameters)
    if not late:
        return layout
    strengths = {
        pair: e.distance for pair in (*tree.kept, *late) if (e := evidence.pair(*pair)) is not None
    }
    return replace(
        layout, tree=triangulate_capped(schema.cardinalities, strengths, parameters.clique_cells)
    )


def _late(evidence: Evidence, found: Mapping[Pair, PairEvidence], price: float) -> list[Pair]:
    """The pruned pairs to take back.

    If all pairs together show dependence, many weak pairs are real, and each significant one is
    taken. Otherwise significant pairs are likely false positives, and a pair is taken only if
    its dependence exceeds its noise given all others.
    """
    tests = {pair: e.test for pair, e in found.items()}
    if sum(test.score for test in tests.values()) < SETTINGS.late_mean_z * math.sqrt(len(tests)):
        return worth_asking(evidence, list(found), price, 0.0)
    return [
        pair
        for pair, test in tests.items()
        if test.score >= SETTINGS.late_z and test.statistic >= price * test.noise
    ]


def _lay_out(
    evidence: Evidence,
    edges: Sequence[Pair],
    parameters: PrivIncrParameters,
    epsilon: float,
    people: float,
) -> _CliqueLayout:
    """The tree of the kept pairs, weakest dropped if a clique exceeds the cap, and its questions.

    Questions are the factors of each clique (algorithm 2); a small clique is asked whole.
    `fit=joint` asks a factor pair by pair if that is more precise, and every pair of a clique
    that no factor contains.
    """
    schema = evidence.schema
    strengths = {}
    for pair in edges:
        found = evidence.pair(*pair)
        if found is not None:
            strengths[pair] = found.distance
            if parameters.printed:
                strengths[pair] = mutual_information(found.projected)
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
    return _CliqueLayout(tree, tuple(sets), split)


def asked_whole(
    cardinalities: Sequence[int], members: Sequence[int], epsilon: float, name: str
) -> bool:
    """Whether answers about the whole set measure its pairs as precisely as pair answers do.

    Compares the mean variance, of noise and sampling, of a pair's frequencies: all participants
    on the set, against an equal share on each pair.
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
    """A clique's factors of at most `factor_cells` cells.

    By minimal redundancy as printed, greedily where trying every order would take too long. Else
    by conditional information in the maximum entropy distribution of its denoised pairs.
    """
    schema = evidence.schema
    sizes = schema.cardinalities
    if math.prod(sizes[a] for a in clique) <= most:
        return Factorisation(clique, ())
    if parameters.printed:
        exhaustive = parameters.search == "exhaustive" and len(clique) <= MAX_EXHAUSTIVE
        split = factorise_exhaustively if exhaustive else factorise
        return split(clique, sizes, evidence.information(), most)
    names = [schema.names[a] for a in clique]
    tables: list[Table] = [((names[i],), evidence.distributions[a]) for i, a in enumerate(clique)]
    for i, j in combinations(clique, 2):
        found = evidence.pair(i, j)
        if found is not None:
            tables.append(((schema.names[i], schema.names[j]), found.shrunk))
    joint = reconstruct(schema, tables, names, rounds=20, tolerance=1e-5)
    return factorise_by_information(clique, sizes, joint, most)


def _fit_cliques(evidence: Evidence, layout: _CliqueLayout) -> JunctionTree:
    """Each clique from its own pooled factors, projected on the simplex (algorithms 2 and 3)."""
    schema = evidence.schema
    asked = [set(a.question.attributes) for a in evidence.answers]
    tables = []
    for clique, split in zip(layout.tree.cliques, layout.factorisations, strict=True):
        factors = []
        for positions in split.sets:
            names = [schema.names[a] for a in positions]
            if any(set(names) <= question for question in asked):
                factors.append((positions, norm_sub(evidence.pooled(names).frequencies)))
            else:  # not asked: the attributes are modelled as independent
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


@dataclass(frozen=True, kw_only=True)
class _PrivIncrDiagnostics(Diagnostics):
    """The pairs asked and kept, the tree and its fit."""

    pairs: int
    pairs_asked: int
    rounds_of_pairs: int
    pairs_left_after_each_round: list[int]
    pairs_that_came_back: int
    threshold: str
    fit: str
    tree: TreeFacts | None
    tree_fit: FitFacts | None


class PrivIncr(ProtocolMachine[PrivIncrParameters]):
    """T rounds about pairs, one about cliques; one about singles if no pair can be learnt."""

    method = "privincr"
    parameters_class = PrivIncrParameters

    def __init__(self, campaign: Campaign, parameters: PrivIncrParameters) -> None:
        _check_campaign(campaign, parameters)
        super().__init__(campaign, parameters)
        self.rounds = _rounds_of(campaign, parameters)
        self.evidence = Evidence(campaign.schema, ())
        self._learnable = learnable_pairs(campaign, parameters)
        self._edges: list[Pair] = list(self._learnable)
        self._history: list[int] = []
        self._used = 0.0
        self._layout: _CliqueLayout | None = None
        self._late = 0
        self._open: Plan | None = self._next_plan()

    def _next_plan(self) -> Plan:
        """The next round of pairs while there are rounds and pairs left, else the last round."""
        number = len(self._closed)
        share = singles_share(
            self.campaign, len(self._learnable), len(self._edges), self.parameters
        )
        if self._edges and number < self.rounds:
            population = self.parameters.omega / self.rounds
            return round_plan(
                self.campaign, self.parameters, number, population, self._edges, share
            )
        left = 1.0 - self._used
        sets: tuple[tuple[int, ...], ...] = ()
        if number:
            people = left * self.campaign.participants
            self._layout = _lay_out(
                self.evidence, self._edges, self.parameters, self.campaign.epsilon, people
            )
            sets = self._layout.sets
        return round_plan(self.campaign, self.parameters, number, left, sets, share)

    def plan(self) -> Plan | None:
        return self._open

    def _check_answers(self, tally: RoundTally) -> None:
        assert isinstance(tally, CountTally)
        check_asked(self.campaign.schema, (*self.evidence.answers, *answers_of([tally])))

    def _go_on(self, tally: RoundTally) -> None:
        assert self._open is not None
        finished = not (self._edges and len(self._closed) <= self.rounds)
        answers = answers_of(self.counted)
        if self.parameters.weights == "variance":
            # The printed weights depend on the number of answers in each round.
            answers = merged(answers)
        self.evidence = Evidence(self.campaign.schema, answers, self.parameters.weights)
        self._used = min(1.0, self._used + self._open.population)
        if finished:
            if (
                self._layout is not None
                and self.parameters.fit == "joint"
                and self.parameters.threshold == "calibrated"
            ):
                before = self._layout.tree.kept
                self._layout = _with_late_pairs(
                    self.evidence, self._layout, self._open, self.parameters
                )
                self._late = len(set(self._layout.tree.kept) - set(before))
            self._open = None
            return
        last = len(self._closed) == self.rounds
        people = (
            (1 - self._used)
            * (1 - _usual_singles(self.campaign, self.parameters))
            * self.campaign.participants
        )
        self._edges = _prune(self.evidence, self._edges, self.parameters, people, last)
        self._history.append(len(self._edges))
        self._open = self._next_plan()

    @cached_property
    def _fitted(self) -> tuple[JunctionTree, TreeFit | None]:
        self._finished()
        evidence = self.evidence
        if self._layout is None or not self._layout.tree.kept:
            return without_dependence(evidence), None
        if self.parameters.fit == "paper":
            return _fit_cliques(evidence, self._layout), None
        fitted = fit_jointly(evidence, self._layout.tree)
        return fitted.model, fitted

    def model(self) -> JunctionTree:
        return self._fitted[0]

    def measured(self) -> list[Marginal]:
        if not self._closed:
            return []
        return self.evidence.measured(self._layout.tree.kept if self._layout else self._edges)

    def diagnostics(self) -> _PrivIncrDiagnostics:
        schema = self.campaign.schema
        tree = None if self._layout is None else self._layout.tree
        fitted = self._fitted[1] if self._open is None else None
        independent = self._open is None and (tree is None or not tree.kept)
        return _PrivIncrDiagnostics(
            pairs=math.comb(len(schema), 2),
            pairs_asked=len(self._learnable),
            rounds_of_pairs=self.rounds if self._learnable else 0,
            pairs_left_after_each_round=list(self._history),
            pairs_that_came_back=self._late,
            threshold=self.parameters.threshold,
            fit=self.parameters.fit,
            tree=None if tree is None else TreeFacts.of(schema, tree),
            tree_fit=None if fitted is None else FitFacts.of(fitted),
            fallback=FALLBACK if independent else None,
        )


@dataclass(frozen=True)
class NoIncrementalParameters(PrivIncrParameters):
    """PrivIncr's parameters, with one round; see there."""

    rounds: int | None = 1

    def __post_init__(self) -> None:
        check_whole("rounds", self.rounds, 1, 1)
        super().__post_init__()


class NoIncremental(PrivIncr):
    """One round about all pairs, one about cliques."""

    method = "noincremental"
    parameters_class = NoIncrementalParameters
