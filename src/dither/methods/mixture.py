"""The default method: rounds that follow dependence, and an average of models fitted to all reports.

Every participant answers one question at full epsilon: one attribute, a pair, or a larger set.

Asking
 1. `Menu`: the questions that may be asked. Singles; pairs in which complete dependence could be
    detected; larger sets if one report about a set tells more about its pairs than a pair does.
 2. `pilot`: a first round over the whole menu. Its share of the participants is the largest whose
    cost, if nothing depends on anything, stays below `pilot_loss` of the one-way error.
 3. `measured_dependence`: after each round, the squared dependence D^2 of every pair as a posterior
    mean. A pair outside the strongest forest counts without what the forest implies of it, so
    that a dependence that follows from others is not paid for twice.
 4. `Menu.allocate`: the participants that are left go where the predicted error falls most,

        sum over pairs  sqrt(rho D^2 V / (D^2 + V) + E_i^2 + E_j^2)  +  one-way errors E_i,

    with V the noise of a pair and E^2 that of a single after all rounds, and rho the share of cells
    that hold mass. The one-way errors stay below `max_one_way` times those of `independent`.

Fitting, to all reports of all rounds
 5. `fit_mixture`: a mixture of products.
 6. `fit_forest`: a junction tree of the strongest forest, and of further pairs that it contradicts.
 7. `shrunk_forest`: the forest again, its tables shrunk cell by cell with a learnt prior.
 8. `average`: these and the product of the one-way marginals, averaged with the shares of least
    estimated risk (`fit.average`).

docs/explanation/mixture.md has the reasons and the measured errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from scipy.special import ndtri

from dither.checks import check_whole, check_whole_or_none
from dither.fit import (
    Marginal,
    Model,
    Triangulation,
    answers_of,
    check_asked,
    pool,
    triangulate_capped,
)
from dither.fit.average import Candidate, averaged, best_shares, gram
from dither.fit.dependence import posterior_squares
from dither.fit.junction_tree import JunctionTree, TreeFit, fit_tree
from dither.fit.mixture.fit import MixtureSettings, Weights, fit_mixture
from dither.fit.mixture.model import Mixture
from dither.fit.mixture.public_prior import with_public
from dither.fit.mixture.targets import (
    PairTargets,
    inverse_variances,
    one_way_precisions,
    pair_targets,
)
from dither.fit.residuals import (
    Pair,
    Residuals,
    forest_pairs,
    low_frequencies,
    residuals,
    strongest_forest,
)
from dither.fit.shrunk_tables import shrunk_forest
from dither.mechanisms import best
from dither.methods.diagnostics import Diagnostics, Names, named
from dither.methods.evidence import merged
from dither.methods.independent import question_shares
from dither.methods.machine import ProtocolMachine
from dither.methods.prior import EarlierReports, PooledAnswers, PublicPrior, pooled_answers
from dither.methods.question_sets import (
    Members,
    detectable_pairs,
    informative_sets,
    marginal_variance,
)
from dither.methods.tree import TREE
from dither.reports import Plan, Question, question
from dither.schema import Schema
from dither.tally import CountTally, RoundTally
from dither.types import Floats, Indices, JsonObject, Progress

_NO_DEPENDENCE = "no dependence detected; columns are modelled as independent"
_TOO_FEW = (
    "too few participants to detect dependence at this epsilon; columns are modelled as independent"
)
_MIN_VARIANCE = 1e-12
# Twins of each fit, whose changes measure its degrees of freedom: one for each of the fewest starts.
_TWINS = 3
_NOT_JUDGED = "no pairs were asked, so nothing could tell whether its dependence is right"


@dataclass(frozen=True)
class Settings:
    """Tuned constants, chosen with `dither bench kinds` (docs/explanation/mixture.md)."""

    # Increase of the one-way error that the pilot may cost if nothing depends on anything. Less
    # misses strong single pairs, more costs that much on independent tables.
    pilot_loss: float = 0.06
    # Bounds of the pilot's share of the participants.
    min_pilot: float = 0.10
    max_pilot: float = 0.40
    # Share of singles in the pilot, for attributes in no pair of the menu.
    pilot_singles: float = 0.10
    # All are asked single attributes if the pilot would ask fewer about one of those: with 3
    # expected one collection in 20 has no answer about it and ends, with 8 one in 3,000.
    min_answers: float = 8.0
    # Share of the later rounds that repeats the pilot's questions, so that a pair missed by
    # the pilot can still be found.
    stay: float = 0.05
    # Questions of later rounds for fewer people are not asked. They tell little, and a reader
    # who knows who was asked what finds few people to hide among.
    min_people: float = 20.0
    # The later rounds' shares of the participants that the pilot leaves, by number of rounds.
    later: tuple[tuple[float, ...], ...] = ((1.0,), (0.4, 0.6), (0.25, 0.25, 0.5))
    # Complete dependence assumed of every pair where one round leaves nothing to learn from.
    assumed_share: float = 0.1
    # Limit of the predicted one-way errors, in those of `independent` with the same people.
    max_one_way: float = 1.4
    # Dependence is taken as absent if all pairs together score less than this many standard
    # deviations and no pair alone is significant at this level over all tests.
    pooled_z: float = 1.0
    level: float = 0.1
    # Standard deviations from which a pair may be an edge of the forest.
    edge_z: float = 2.0
    # A pair joins the tree if its squared dependence exceeds this many times its noise.
    edge_price: float = 0.7
    # Cap on the cells of a clique of three attributes or more.
    clique_cells: int = 8_000
    # Noise added to the reports to measure degrees of freedom, in units of their own noise.
    moved_by: float = 0.1
    # Weight of the degrees of freedom of fitted models: twins miss what choosing a structure
    # and a stopping point costs.
    penalty: float = 1.2


SETTINGS = Settings()


@dataclass(frozen=True)
class MixtureParameters:
    """Parameters of the default method.

    Attributes:
        rounds: Rounds of questions, one to four. More rounds follow dependence better.
        components: Components of each mixture; by default from the signal-to-noise ratio.
        total: Components over all mixtures that are averaged.
    """

    rounds: int = 4
    components: int | None = None
    total: int = 600

    def __post_init__(self) -> None:
        check_whole("rounds", self.rounds, 1, 1 + len(SETTINGS.later))
        check_whole_or_none("components", self.components, 1, 2000)
        check_whole("total", self.total, 2, 20_000)


def single_shares(cardinalities: Sequence[int], epsilon: float) -> Floats:
    """Shares of single questions with the least sum of one-way errors, as in `independent`."""
    questions = [Question((str(i),), best(k, epsilon)) for i, k in enumerate(cardinalities)]
    return np.asarray(question_shares(questions, "least-error"))


# Step 1: the menu.


class Menu:
    """The questions that may be asked, and what one report to each tells.

    Attributes:
        questions: Sets of attributes: singles first, then pairs or larger sets.
        pairs: All pairs of attributes, the rows of `cells` and `degrees`.
    """

    def __init__(
        self,
        cardinalities: Sequence[int],
        epsilon: float,
        people: int,
        in_full: Mapping[int, int] | None = None,
    ) -> None:
        """`in_full` has the values of attributes that are asked alone in full, else in groups."""
        self.cardinalities, self.people = cardinalities, people
        self._in_full = bool(in_full)
        self._alone_cells = [(in_full or {}).get(i, k) for i, k in enumerate(cardinalities)]
        self.k = np.asarray(cardinalities, dtype=np.float64)
        d = len(cardinalities)
        detectable = detectable_pairs(cardinalities, people, epsilon)
        sets = informative_sets(detectable, cardinalities, epsilon)
        self.alone = single_shares(self._alone_cells, epsilon)
        self.questions: list[Members] = [
            *((i,) for i in range(d)),
            *sets,
            *detectable,
        ]
        # The pilot asks pairs that no set covers.
        covered = {pair for members in sets for pair in combinations(members, 2)}
        self.in_pilot = np.array([len(q) > 1 and q not in covered for q in self.questions])
        self.pairs = list(combinations(range(d), 2))
        self.first, self.second = np.array(self.pairs, dtype=np.intp).reshape(-1, 2).T
        self.cells = self.k[self.first] * self.k[self.second]
        self.degrees = (self.k[self.first] - 1) * (self.k[self.second] - 1)
        self._pair_information = self._information(2, epsilon)
        self._single_information = self._information(1, epsilon)
        alone = np.zeros(len(self.questions))
        alone[:d] = self.alone
        self._independent_error = self.one_way_error(alone)

    @property
    def has_pairs(self) -> bool:
        return len(self.questions) > len(self.k)

    def _information(self, size: int, epsilon: float) -> tuple[Indices, Indices, Floats]:
        """Question, marginal of `size` attributes, and one over the variance of a cell of it."""
        number = {pair: n for n, pair in enumerate(self.pairs)}
        rows, columns, values = [], [], []
        for q, members in enumerate(self.questions):
            cells = math.prod(self.cardinalities[a] for a in members)
            if len(members) == 1:
                cells = self._alone_cells[members[0]]
            for part in combinations(members, size):
                kept = math.prod(self.cardinalities[a] for a in part)
                rows.append(q)
                columns.append(part[0] if size == 1 else number[part[0], part[1]])
                values.append(1.0 / marginal_variance(cells, kept, epsilon))
        return np.array(rows, np.intp), np.array(columns, np.intp), np.array(values)

    def precisions(self, people: Floats) -> tuple[Floats, Floats]:
        """One over the variance of a cell, by pair and by attribute, after people were asked."""
        q, pair, value = self._pair_information
        by_pair: Floats = np.bincount(pair, value * people[q], len(self.pairs)).astype(np.float64)
        q, single, value = self._single_information
        return by_pair, np.maximum(np.bincount(single, value * people[q], len(self.k)), 1e-12)

    def one_way_error(self, people: Floats) -> float:
        """The sum of k times the standard error of a cell, proportional to the one-way error."""
        return float(np.sqrt(self.k * (self.k - 1) / self.precisions(people)[1]).sum())

    def cost(self, people: Floats) -> float:
        """The one-way error over that of `independent` with as many people."""
        return self.one_way_error(people) * math.sqrt(people.sum()) / self._independent_error

    def slopes(self, people: Floats, squares: Floats, mass: Floats, one_way: float) -> Floats:
        """The fall of the predicted error with one more participant, by question.

        Squared errors are multiplied by the cells of their table, which makes tables
        comparable: half the L1 distance is at most half the root.

        Args:
            people: Participants by question.
            squares: D^2 by pair.
            mass: rho by pair.
            one_way: Weight of the one-way errors.
        """
        by_pair, by_single = self.precisions(people)
        by_pair = np.maximum(by_pair, 1e-12)
        noise = self.cells * self.degrees / by_pair
        single = self.k * (self.k - 1) / by_single
        lost = mass * squares * noise / (squares + noise)
        root = np.sqrt(lost + single[self.first] + single[self.second] + 1e-12)
        fall = 0.5 / root * mass * squares**2 / (squares + noise) ** 2 * noise / by_pair
        d = len(self.k)
        share = 0.5 / root
        pairs_of = np.bincount(self.first, share, d) + np.bincount(self.second, share, d)
        touched = pairs_of + one_way * (d - 1) / 4 / np.sqrt(single)
        single_fall = touched * single / by_single
        q, pair, value = self._pair_information
        out = np.bincount(q, value * fall[pair], len(self.questions))
        q, attribute, value = self._single_information
        return np.asarray(out + np.bincount(q, value * single_fall[attribute], len(self.questions)))

    def allocate(
        self, people: float, asked: Floats, squares: Floats, mass: Floats, one_way: float = 1.0
    ) -> Floats:
        """Share `people` among the questions so that the predicted error is least.

        Multiplicative steps by the root of the slope keep shares positive and leave the error
        stationary where all slopes are equal. The weight of the one-way errors is raised until
        they stay below `max_one_way`.
        """
        if self._in_full and not squares.any():
            # Only single questions tell the values inside groups.
            return np.append(people * self.alone, np.zeros(len(self.questions) - len(self.k)))
        found = self._least(people, asked, squares, mass, one_way)
        if self.cost(found + asked) <= SETTINGS.max_one_way:
            return found
        low, high = one_way, 64.0 * one_way
        for _ in range(6):
            middle = math.sqrt(low * high)
            tried = self._least(people, asked, squares, mass, middle)
            if self.cost(tried + asked) > SETTINGS.max_one_way:
                low = middle
            else:
                high = middle
        return self._least(people, asked, squares, mass, high)

    def _least(
        self, people: float, asked: Floats, squares: Floats, mass: Floats, one_way: float
    ) -> Floats:
        found = np.full(len(self.questions), people / len(self.questions))
        for _ in range(300):
            found = found * np.sqrt(self.slopes(found + asked, squares, mass, one_way))
            found *= people / found.sum()
        # A question for a handful of people only lengthens the plan.
        found[found < min(1e-4, 0.2 / len(found)) * people] = 0.0
        return np.asarray(found * people / found.sum())


# Step 2: the pilot.


def pilot(menu: Menu) -> tuple[Floats, float]:
    """Shares of the questions in the first round, and its share of all participants."""
    d = len(menu.k)
    shares = np.zeros(len(menu.questions))
    if not menu.has_pairs:
        shares[:] = menu.alone
        return shares, 1.0
    sizes = [math.prod(menu.cardinalities[a] for a in members) for members in menu.questions]
    larger = any(len(members) > 2 for members in menu.questions)
    shares[menu.in_pilot] = 1.0 if larger else np.sqrt(sizes)[menu.in_pilot]
    shares /= shares.sum()
    covered = {a for members in menu.questions[d:] for a in members}
    bare = [i for i in range(d) if i not in covered]
    if bare and _expected(menu, bare) < SETTINGS.min_answers:
        # Only so few people leave attributes without any answer. Half of the people are spread
        # evenly, because the least error alone would ask hardly anyone about short attributes.
        return np.append((menu.alone + 1.0 / d) / 2.0, np.zeros(len(shares) - d)), 1.0
    if bare:
        shares *= 1 - SETTINGS.pilot_singles
        shares[bare] = SETTINGS.pilot_singles * menu.alone[bare] / menu.alone[bare].sum()
    low, high = SETTINGS.min_pilot, SETTINGS.max_pilot
    if _pilot_cost(menu, shares, high) <= SETTINGS.pilot_loss:
        return shares, high
    for _ in range(20):
        middle = (low + high) / 2
        affordable = _pilot_cost(menu, shares, middle) <= SETTINGS.pilot_loss
        low, high = (middle, high) if affordable else (low, middle)
    return shares, low


def _expected(menu: Menu, bare: Sequence[int]) -> float:
    """The people that the largest pilot would ask the least asked of some single attributes."""
    part = SETTINGS.max_pilot * SETTINGS.pilot_singles
    return float(menu.people * part * menu.alone[bare].min() / menu.alone[bare].sum())


def _pilot_cost(menu: Menu, shares: Floats, part: float) -> float:
    """By what part a pilot raises the one-way error if all others are asked single attributes."""
    d = len(menu.k)
    variance = 1.0 / menu.precisions(np.eye(len(shares))[:d].sum(axis=0))[1]
    asked = menu.precisions(part * shares)[1]
    wanted = menu.alone / variance
    low, high = 0.0, 2.0 / (1.0 - part) + float((asked / wanted).max())
    rest = np.zeros(len(shares))
    for _ in range(60):
        # The precisions of the best plan from scratch times a level, less those of the pilot.
        level = (low + high) / 2
        rest[:d] = np.maximum(level * wanted - asked, 0.0) * variance
        low, high = (level, high) if rest.sum() < 1.0 - part else (low, level)
    return menu.cost(part * shares + rest) - 1.0


# Step 3: the dependence measured so far.


@dataclass(frozen=True)
class Dependence:
    """The dependence that the reports show.

    Attributes:
        squares: D^2 of every pair of the menu, times its cells.
        mass: rho of every pair: the product of exp(entropy) / k of its attributes.
    """

    squares: Floats
    mass: Floats


def measured_dependence(schema: Schema, menu: Menu, targets: PairTargets) -> Dependence:
    """The squared dependence of all pairs, less what the strongest forest of them implies."""
    columns = targets.columns
    one = [targets.one[columns.of(i)] for i in range(len(schema))]
    spread = np.array([math.exp(-float((p[p > 0] * np.log(p[p > 0])).sum())) / len(p) for p in one])
    mass = spread[menu.first] * spread[menu.second]
    squares = np.zeros(len(menu.pairs))
    asked = np.flatnonzero(targets.pair_noise[1][menu.first, menu.second] > 0)
    if not len(asked):
        return Dependence(squares, mass)
    i, j = menu.first[asked], menu.second[asked]
    found = residuals(targets, np.outer(targets.one, targets.one), product=True)
    squares[asked] = _posterior(menu, asked, found)
    scores = [*found.scores[i, j]]
    for n, (a, b) in zip(asked, zip(i.tolist(), j.tolist(), strict=True), strict=True):
        waves = low_frequencies(schema, targets, (a, b))
        if waves is not None:
            energy, variance = waves
            scores.append((energy - 4 * variance) / (math.sqrt(8.0) * variance))
            low = energy - (4 + math.sqrt(8.0)) * variance
            squares[n] = max(squares[n], menu.cells[n] * low)
    pooled = float(np.sum(scores)) / math.sqrt(len(scores))
    if pooled < SETTINGS.pooled_z and max(scores) < -ndtri(SETTINGS.level / len(scores)):
        return Dependence(np.zeros(len(menu.pairs)), mass)
    strength = {
        menu.pairs[n]: float(squares[n])
        for n in asked
        if squares[n] > 0 and found.scores[menu.pairs[n]] > SETTINGS.edge_z
    }
    forest = strongest_forest(strength, len(schema))
    if forest:
        predicted = forest_pairs(targets, forest, found)
        implied = columns.sums(
            columns.sums((predicted - np.outer(targets.one, targets.one)) ** 2).T
        )
        outside = np.array([menu.pairs[n] not in set(forest) for n in asked])
        left = np.maximum(squares[asked] - menu.cells[asked] * implied[i, j], 0.0)
        squares[asked] = np.where(outside, left, squares[asked])
    return Dependence(squares, mass)


def _posterior(menu: Menu, asked: Indices, found: Residuals) -> Floats:
    """The posterior mean of D^2 of the asked pairs, times their cells."""
    i, j = menu.first[asked], menu.second[asked]
    noise = found.noise[i, j]
    cells, degrees = menu.cells[asked], menu.degrees[asked]
    return cells * posterior_squares(found.excess[i, j] + noise, noise, degrees, cells)


# Steps 5 to 8: the fit.


def dependent_pairs(targets: PairTargets) -> dict[Pair, float]:
    """Asked pairs whose squared dependence exceeds `edge_price` times its noise, with its size."""
    product = np.outer(targets.one, targets.one)
    return _worth_pairs(targets, residuals(targets, product, product=True), SETTINGS.edge_price)


def fit_forest(
    schema: Schema, targets: PairTargets, strength: dict[Pair, float], forest: Sequence[Pair]
) -> TreeFit:
    """A junction tree of the strongest forest of dependent pairs, and of pairs it contradicts.

    Pairs whose distance from the fitted tree exceeds its noise are added, and the tree is
    fitted again.
    """
    edges = list(forest)
    fitted = _fit_pairs(schema, targets, {pair: strength[pair] for pair in edges})
    while True:
        further = residuals(targets, fitted.model.all_pairs(), product=False)
        late = _worth_pairs(targets, further, 1.0)
        added = [pair for pair in late if pair in strength and pair not in edges]
        if not added:
            return fitted
        edges += added
        fitted = _fit_pairs(schema, targets, {pair: strength[pair] for pair in edges})


def _worth_pairs(targets: PairTargets, found: Residuals, price: float) -> dict[Pair, float]:
    """Asked pairs whose squared dependence exceeds `price` times its noise, with its size."""
    i, j = np.nonzero(np.triu(targets.pair_noise[1] > 0, 1))
    if not len(i):
        return {}
    k = targets.columns.cardinalities.astype(np.float64)
    cells, degrees, noise = k[i] * k[j], (k[i] - 1) * (k[j] - 1), found.noise[i, j]
    squares = posterior_squares(found.excess[i, j] + noise, noise, degrees, cells)
    worth = np.flatnonzero(squares > price * noise)
    return {(int(i[n]), int(j[n])): float(cells[n] * squares[n]) for n in worth}


def _fit_pairs(schema: Schema, targets: PairTargets, strength: dict[Pair, float]) -> TreeFit:
    """The junction tree of some pairs; the weakest are dropped if a clique exceeds the cap."""
    widest = max(schema.cardinalities[i] * schema.cardinalities[j] for i, j in strength)
    most = max(SETTINGS.clique_cells, widest)
    tree = triangulate_capped(schema.cardinalities, strength, most)
    return fit_tree(
        schema,
        tree,
        _measurements(schema, targets, tree),
        start=_one_ways(targets),
        discrepancy=TREE.discrepancy,
        least=TREE.min_discrepancy,
        tolerance=TREE.tolerance,
    )


def _fit_again(schema: Schema, moved: PairTargets, fitted: TreeFit) -> JunctionTree:
    """The tree of a fit with as many steps on moved data."""
    tree = fitted.model.tree
    measured = _measurements(schema, moved, tree)
    return fit_tree(
        schema,
        tree,
        measured,
        start=_one_ways(moved),
        discrepancy=0.0,
        tolerance=0.0,
        iterations=fitted.iterations,
    ).model


def _one_ways(targets: PairTargets) -> list[Floats]:
    columns = targets.columns
    return [targets.one[columns.of(i)] for i in range(len(columns.cardinalities))]


def _measurements(schema: Schema, targets: PairTargets, tree: Triangulation) -> list[Marginal]:
    """The data as a tree sees them: pairs inside a clique, and single attributes.

    What pairs outside every clique tell of an attribute is pooled with its single questions.
    """
    columns, names = targets.columns, schema.names
    asked = targets.pair_noise[1] > 0
    inside = np.zeros_like(asked)
    for clique in tree.cliques:
        for i, j in combinations(clique, 2):
            inside[i, j] = inside[j, i] = asked[i, j]
    out = []
    for i, j in np.argwhere(np.triu(inside, 1)).tolist():
        table = targets.pairs[columns.of(i), columns.of(j)]
        c0, c1, c2 = (float(c[i, j]) for c in targets.pair_noise)
        f = np.clip(table, 0.0, 1.0)
        variance = np.maximum(c0 + f * (c1 - c2 * f), _MIN_VARIANCE)
        out.append(Marginal((names[i], names[j]), table, np.sqrt(variance), round(1 / c2)))
    by_pair, alone = one_way_precisions(targets)
    by_pair = np.where(inside, 0.0, by_pair)
    rows = np.add.reduceat(targets.pairs, columns.starts, axis=1)
    for i, name in enumerate(names):
        precision = float(by_pair[i].sum() + alone[i])
        if precision > 0:
            at = columns.of(i)
            table = (rows[at] @ by_pair[i] + alone[i] * targets.singles[at]) / precision
            error = np.full(len(table), 1.0 / math.sqrt(precision))
            out.append(Marginal((name,), table, error, round(precision)))
    return out


def average(
    schema: Schema,
    targets: PairTargets,
    moved: Sequence[PairTargets],
    settings: MixtureSettings,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> tuple[list[Candidate], Floats, Weights]:
    """The candidates, their shares, and the weights of the data by which they were judged.

    The degrees of freedom of a candidate are measured by how far it follows moved data.
    """
    product = targets.one
    mixture = fit_mixture(targets, moved, SETTINGS.moved_by, rng, settings, progress)
    models: list[tuple[str, Model, Floats, Floats, Sequence[tuple[Floats, Floats]]]] = [
        (
            "product",
            Mixture.side_by_side(schema, np.ones(1), product[None]),
            np.outer(product, product),
            product,
            [(np.outer(m.one, m.one) - np.outer(product, product), m.one - product) for m in moved],
        ),
        (
            "mixture",
            Mixture.side_by_side(schema, mixture.weights, mixture.components),
            mixture.pairs,
            mixture.one,
            mixture.twins,
        ),
    ]
    if progress:
        progress("fit: junction tree", 0, 1)
    strength = dependent_pairs(targets)
    forest = strongest_forest(strength, len(schema))
    if forest:
        fitted = fit_forest(schema, targets, strength, forest)
        pairs, one = _marginals(fitted.model)
        again = [_marginals(_fit_again(schema, data, fitted)) for data in moved]
        moves = [(p - pairs, o - one) for p, o in again]
        models.append(("tree", fitted.model, pairs, one, moves))
        shrunk, priors = shrunk_forest(schema, targets, forest)
    if forest and priors:
        pairs, one = _marginals(shrunk)
        again = [_marginals(shrunk_forest(schema, m, forest, priors)[0]) for m in moved]
        moves = [(p - pairs, o - one) for p, o in again]
        models.append(("shrunk forest", shrunk, pairs, one, moves))
    if progress:
        progress("fit: junction tree", 1, 1)
    middle = np.mean([pairs for _, _, pairs, _, _ in models[1:]], axis=0)
    one = np.mean([one for _, _, _, one, _ in models[1:]], axis=0)
    weights = Weights(*inverse_variances(targets, middle, one))
    candidates = []
    for name, model, pairs, one, changes in models:
        followed = [
            weights.followed(data, targets, *change) / SETTINGS.moved_by**2
            for data, change in zip(moved, changes, strict=True)
        ]
        penalty = 1.0 if name == "product" else SETTINGS.penalty
        df = max(float(np.mean(followed)), 0.0)
        candidates.append(Candidate(name, model, pairs, one, df, penalty))
    penalised = np.array([c.df * c.penalty for c in candidates])
    return candidates, best_shares(gram(targets, weights, candidates), penalised), weights


def _marginals(tree: JunctionTree) -> tuple[Floats, Floats]:
    """All pairs and all one-way marginals side by side."""
    pairs = tree.all_pairs()
    return pairs, np.diag(pairs).copy()


def product_candidate(schema: Schema, targets: PairTargets, free: float) -> Candidate:
    """The product of the pooled one-way marginals, which follows them with all its freedom."""
    one = targets.one
    model = Mixture.side_by_side(schema, np.ones(1), one[None])
    return Candidate("product", model, np.outer(one, one), one, free)


@dataclass(frozen=True)
class _FitFacts:
    """The shares of the average, the pairs of its tree, and the mixtures' size."""

    shares: dict[str, float]
    edges: Names
    components: int


@dataclass(frozen=True, kw_only=True)
class _MixtureDiagnostics(Diagnostics):
    fit: _FitFacts | None = None
    prior: JsonObject | None = None
    pairs: int | None = None
    pairs_asked: int | None = None
    people_in_pairs: float | None = None

    @property
    def share_of_prior(self) -> float:
        return float((self.prior or {}).get("share_of_prior", 0.0))


@dataclass(frozen=True)
class _Fitted:
    """The finished model with what a release states of it."""

    model: Model
    facts: _FitFacts
    prior: JsonObject | None
    fallback: str | None


class MixtureProtocol(ProtocolMachine[MixtureParameters]):
    """A pilot, and rounds whose questions follow the dependence that the reports show."""

    method = "mixture"
    parameters_class = MixtureParameters
    takes_prior = True
    fits_pairs_only = True
    coarse_grids = True

    @cached_property
    def _menu(self) -> Menu:
        c = self.campaign
        in_full = {c.schema.index(name): values for name, values in c.in_full}
        return Menu(c.schema.cardinalities, c.epsilon, c.participants, in_full)

    @cached_property
    def _pilot(self) -> tuple[Floats, float]:
        return pilot(self._menu)

    @cached_property
    def _populations(self) -> list[float]:
        """The share of all participants in each round."""
        share = self._pilot[1]
        if share == 1.0 or self.parameters.rounds == 1:
            return [1.0]
        later = SETTINGS.later[self.parameters.rounds - 2]
        return [share, *((1.0 - share) * part for part in later)]

    @cached_property
    def _plans(self) -> dict[int, Plan]:
        return {}

    def plan(self) -> Plan | None:
        number = len(self._closed)
        if number == len(self._populations):
            return None
        if number not in self._plans:
            self._plans[number] = self._round(number)
        return self._plans[number]

    def _round(self, number: int) -> Plan:
        """The plan of a round from the reports of the rounds before."""
        menu, (first, _) = self._menu, self._pilot
        people = self.campaign.participants
        if number == 0 and self.parameters.rounds > 1:
            return self._question_plan(0, first)
        if number == 0 and not menu.has_pairs:
            return self._question_plan(0, first)
        left = people * math.fsum(self._populations[number:])
        if number == 0:
            complete = np.minimum(menu.k[menu.first], menu.k[menu.second]) - 1
            squares, mass = SETTINGS.assumed_share * complete, np.ones(len(menu.pairs))
            stay = np.zeros(len(first))
        else:
            targets = pair_targets(self.campaign.schema, merged(answers_of(self.counted)))
            found = measured_dependence(self.campaign.schema, menu, targets)
            squares, mass = found.squares, found.mass
            # The last round has nothing left to find out.
            last = number == len(self._populations) - 1
            stay = (0.0 if last else SETTINGS.stay) * left * first
        asked = self._asked() + stay
        return self._question_plan(
            number, stay + menu.allocate(left - float(stay.sum()), asked, squares, mass)
        )

    def _asked(self) -> Floats:
        """Participants so far, by question of the menu."""
        index, place = (
            self.campaign.schema.index,
            {q: n for n, q in enumerate(self._menu.questions)},
        )
        out = np.zeros(len(place))
        for answer in answers_of(self.counted):
            out[place[tuple(index(name) for name in answer.question.attributes)]] += answer.n
        return out

    def _question_plan(self, number: int, people: Floats) -> Plan:
        schema, epsilon = self.campaign.schema, self.campaign.epsilon
        present = people / people.sum() * self._populations[number] * self.campaign.participants
        if number > 0 and (present >= SETTINGS.min_people).any():
            people = np.where(present >= SETTINGS.min_people, people, 0.0)
        chosen = np.flatnonzero(people > 0)
        questions = tuple(
            question(schema, [schema.names[a] for a in self._menu.questions[q]], epsilon)
            for q in chosen
        )
        shares = (people[chosen] / people[chosen].sum()).tolist()
        total = math.fsum(shares)
        return Plan(
            number,
            questions,
            tuple(share / total for share in shares),
            population=self._populations[number],
        )

    def _check_answers(self, tally: RoundTally) -> None:
        assert isinstance(tally, CountTally)
        # Every round estimates all one-way marginals from the answers so far.
        check_asked(self.campaign.schema, answers_of([*self.counted, tally]))

    @cached_property
    def _answers(self) -> PooledAnswers:
        """What the fit is to: all answers, with those of an earlier campaign if one is known."""
        own = merged(answers_of(self.counted))
        if not isinstance(self.prior, EarlierReports):
            return PooledAnswers(own, {})
        return pooled_answers(self.campaign.schema, own, self.prior)

    @cached_property
    def _fitted(self) -> _Fitted:
        schema, answers = self.campaign.schema, self._answers.answers
        targets = pair_targets(schema, answers)
        prior = self._answers.note if isinstance(self.prior, EarlierReports) else None
        public = self.prior if isinstance(self.prior, PublicPrior) else None
        found = measured_dependence(schema, self._menu, targets)
        if not targets.has_pairs or not (found.squares.any() or public):
            free = float((targets.columns.cardinalities - 1).sum())
            product = product_candidate(schema, targets, free)
            facts = _FitFacts({"product": 1.0}, [], 1)
            if public is not None:
                prior = {
                    **public.facts(),
                    "classes": len(public.classes.weights),
                    "share_of_prior": 0.0,
                    "left_out": _NOT_JUDGED,
                }
            reason = None
            if len(schema) > 1:
                reason = _NO_DEPENDENCE if targets.has_pairs else _TOO_FEW
            return _Fitted(product.model, facts, prior, reason)
        rng = np.random.default_rng([self.campaign.seed, 0x6D6978])
        moved = [pair_targets(schema, answers, SETTINGS.moved_by, rng) for _ in range(_TWINS)]
        settings = MixtureSettings(self.parameters.components, self.parameters.total)
        candidates, shares, weights = average(schema, targets, moved, settings, rng, self.progress)
        facts = _FitFacts(
            {c.name: float(s) for c, s in zip(candidates, shares, strict=True)},
            _tree_edges(schema, candidates),
            sum(len(c.model.weights) for c in candidates if isinstance(c.model, Mixture)),
        )
        if public is not None:
            candidates, shares, note = with_public(
                targets, moved, SETTINGS.moved_by, weights, candidates, shares, public.classes, rng
            )
            prior = {**public.facts(), "classes": len(public.classes.weights), **note}
        fallback = None if float(shares[0]) < 1.0 else _NO_DEPENDENCE
        return _Fitted(averaged(candidates, shares), facts, prior, fallback)

    def model(self) -> Model:
        self._finished()
        return self._fitted.model

    def measured(self) -> list[Marginal]:
        if not self._closed:
            return []
        schema, answers = self.campaign.schema, answers_of(self.counted)
        return [pool(schema, answers, [name]) for name in schema.names]

    def diagnostics(self) -> _MixtureDiagnostics:
        if self.plan() is not None:
            return _MixtureDiagnostics()
        asked, questions = self._asked(), self._menu.questions
        in_pairs = np.array([len(members) > 1 for members in questions])
        reached = {p for q in np.flatnonzero(asked) for p in combinations(questions[q], 2)}
        return _MixtureDiagnostics(
            fit=self._fitted.facts,
            prior=self._fitted.prior,
            pairs=len(self._menu.pairs),
            pairs_asked=len(reached),
            people_in_pairs=float(asked[in_pairs].sum() / asked.sum()),
            fallback=self._fitted.fallback,
        )


def _tree_edges(schema: Schema, candidates: Sequence[Candidate]) -> Names:
    """The pairs of the junction tree among the candidates."""
    for candidate in candidates:
        if isinstance(candidate.model, JunctionTree):
            return named(schema, candidate.model.tree.kept)
    return []
