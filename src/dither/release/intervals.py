"""Standard errors and intervals of marginals, and of sums over their cells, from replicates.

A figure's squared error has three parts: the scatter of the refits and their distance
from the model that they were drawn from; the bias estimated from the residuals of each
pair (`misfit`); and interactions of three attributes that were never asked together.
The last two do not show in replicates. If the residuals of a pair reject the model, its
figures also use the reports about the pair, with one weight for the whole table.

Figures about the same people agree: every table is a distribution, and its one-way
tables are the model's. A table that mixes model and reports is scaled to them
(iterative proportional fitting), and a larger table to those of its pairs.

Attributes that the model takes as independent have the model's figures too. If some
people were asked about them together, the interval covers what these reports allow.

`Reports` computes unbiased sums over cells from the reports alone, with the exact
covariance of their errors. Each question that covers the attributes contributes an
estimate; they are averaged as in `fit.pool`, with weights that do not depend on the
answers. The covariance has the devices' noise, known from the mechanism, and the
sampling error f(1-f)/n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from dither.checks import check_between
from dither.fit import Model
from dither.fit.pool import AnswerCounts, WeightedAnswer, noise_variances, weigh_answers
from dither.fit.project import scale_to
from dither.fit.ruled import add_up, grouped_marginal, root_of, told_within_groups
from dither.mechanisms import Mechanism, PureMechanism
from dither.release.misfit import Misfit, Moves, PairBias
from dither.schema import Schema
from dither.types import Floats, Indices, JsonObject


@dataclass(frozen=True)
class _RawSums:
    """Unbiased estimates of several sums over cells, and the covariance of their errors."""

    estimates: Floats
    covariance: Floats


@dataclass(frozen=True)
class Reports:
    """All answers of a campaign that were tallied as counts."""

    schema: Schema
    answers: tuple[AnswerCounts, ...]

    @cached_property
    def _by_set(self) -> dict[frozenset[str], list[AnswerCounts]]:
        out: dict[frozenset[str], list[AnswerCounts]] = {}
        for answer in self.answers:
            out.setdefault(frozenset(answer.question.attributes), []).append(answer)
        return out

    def _holding(self, attributes: Sequence[str]) -> list[AnswerCounts]:
        wanted = frozenset(attributes)
        return [
            answer
            for asked, answers in self._by_set.items()
            if wanted <= asked
            for answer in answers
        ]

    def tell(self, attributes: Sequence[str]) -> bool:
        """Whether a question covers all of these attributes."""
        wanted = frozenset(attributes)
        return any(wanted <= asked for asked in self._by_set)

    def _parts(self, attributes: Sequence[str]) -> list[tuple[WeightedAnswer, float]]:
        """Each answer that covers the attributes, and its share in the average."""
        holding = self._holding(attributes)
        found = weigh_answers(self.schema, holding, attributes, poisson=True)
        total = sum(part.weight for part in found)
        return [(part, part.weight / total) for part in found]

    def people(self, attributes: Sequence[str]) -> int:
        """How many answers cover all of these attributes."""
        return sum(answer.n for answer in self._holding(attributes))

    def marginal(self, attributes: Sequence[str], frequencies: Floats) -> tuple[Floats, Floats]:
        """The averaged table of some attributes, and each cell's variance at `frequencies`."""
        raw, variances = np.zeros(frequencies.shape), np.zeros(frequencies.shape)
        for part, share in self._parts(attributes):
            raw += share * part.marginal
            noise = noise_variances(part.answer, part.group, frequencies)
            sampling = frequencies * (1 - frequencies) / part.answer.n
            variances += share**2 * (noise + sampling)
        return raw, variances

    def sums(
        self,
        attributes: Sequence[str],
        groups: Sequence[Indices],
        weights: Floats,
        frequencies: Floats,
    ) -> _RawSums:
        """Sums over the grouped table, one row of weights each; variances are at `frequencies`."""
        estimates, covariance = np.zeros(len(weights)), np.zeros((len(weights), len(weights)))
        spread = _spread_over_codes(weights, groups)
        for part, share in self._parts(attributes):
            answer = part.answer
            estimates += share * (weights @ add_up(part.marginal, groups).ravel())
            asked = answer.question.attributes
            rows = _broadcast(spread, attributes, asked, self.schema)
            even = _broadcast(frequencies[None], attributes, asked, self.schema)[0]
            covariance += share**2 * answer_covariance(
                answer.question.mechanism, rows, even / (even.size // frequencies.size), answer.n
            )
        return _RawSums(estimates, covariance)


def _spread_over_codes(weights: Floats, groups: Sequence[Indices]) -> Floats:
    """Rows of weights over groups as weights over codes, one axis per attribute."""
    spread = weights.reshape(len(weights), *(int(group.max()) + 1 for group in groups))
    for axis, group in enumerate(groups):
        spread = np.take(spread, group, axis=axis + 1)
    return spread


def interaction_weights(weights: Floats) -> Floats:
    """Weights over codes without their constant and the effects of single attributes.

    They ask only how attributes depend on each other: with one-way tables known, the
    rest of a sum is known too. For cells of equal variance, no other choice has less
    noise.
    """
    axes = tuple(range(1, weights.ndim))
    centred = weights + (len(axes) - 1) * weights.mean(axis=axes, keepdims=True)
    for axis in axes:
        others = tuple(other for other in axes if other != axis)
        centred = centred - weights.mean(axis=others, keepdims=True)
    return np.asarray(centred)


def _broadcast(
    tables: Floats, attributes: Sequence[str], asked: Sequence[str], schema: Schema
) -> Floats:
    """Repeat tables over a question's other attributes, in its order of axes, flattened."""
    order = [0, *(1 + list(attributes).index(name) for name in asked if name in attributes)]
    moved = np.transpose(tables, order)
    wide = moved.reshape(
        [len(tables), *(schema[n].cardinality if n in attributes else 1 for n in asked)]
    )
    return np.broadcast_to(wide, (len(tables), *(schema[n].cardinality for n in asked))).reshape(
        len(tables), -1
    )


def answer_covariance(mechanism: Mechanism, rows: Floats, frequencies: Floats, n: int) -> Floats:
    """Covariance of weighted sums of one question's estimates, from noise and sampling."""
    own = rows @ frequencies
    by_cell = (rows * frequencies) @ rows.T
    sampling = (by_cell - np.outer(own, own)) / n
    if not isinstance(mechanism, PureMechanism):
        return np.asarray(sampling + _polarised(mechanism, rows, frequencies, n))
    p, q = float(mechanism.p), float(mechanism.q)
    squares = rows @ rows.T
    if mechanism.pair_probabilities is None:
        noise = p * (1 - p) * by_cell + q * (1 - q) * (squares - by_cell)
    else:
        with_own, others = mechanism.pair_probabilities
        first = rows.sum(axis=1)
        own_pairs = np.outer(first, own) + np.outer(own, first) - 2 * by_cell
        moment = p * by_cell + q * (squares - by_cell) + with_own * own_pairs
        moment += others * (np.outer(first, first) - squares - own_pairs)
        mean = q**2 * np.outer(first, first) + (p - q) ** 2 * by_cell
        noise = moment - mean - q * (p - q) * (np.outer(first, own) + np.outer(own, first))
    return np.asarray(sampling + noise / (n * (p - q) ** 2))


def _polarised(mechanism: Mechanism, rows: Floats, frequencies: Floats, n: int) -> Floats:
    """Covariances from variances of sums: cov(a, b) = (var(a + b) - var(a) - var(b)) / 2."""
    alone = [mechanism.weighted_variance(row, frequencies, n) for row in rows]
    out = np.diag(alone)
    for i in range(len(rows)):
        for j in range(i):
            both = mechanism.weighted_variance(rows[i] + rows[j], frequencies, n)
            out[i, j] = out[j, i] = (both - alone[i] - alone[j]) / 2
    return out


Basis = Literal["model", "reports", "model and reports", "noisy cells", "synthetic table"]


@dataclass(frozen=True)
class LinearAnswer:
    """Estimates of several sums over the cells of one marginal, with their error covariance.

    Errors are deviations from the population that the participants are a sample of,
    scatter and bias together. So the covariance also yields the variance of a
    difference of two sums. `freedom` is Student's for intervals. `basis` names the
    source of the figures: the fitted model, the reports about these attributes, or
    both. `caution` describes errors that are not covered.
    """

    estimates: Floats
    covariance: Floats
    freedom: float
    basis: Basis = "model"
    caution: str = ""


# Assumed strength of unmeasured three-way interactions, in units of the pairs'.
INTERACTION = 0.5
# A figure's distance from the reports beyond this number of standard errors counts as error.
FAR = 3.0
# Largest table of three or more attributes that is scaled to the tables of its pairs.
MAX_SCALED_CELLS = 200_000
# Share of the model's cell that is left where reports are below zero, so that tables can be scaled.
FLOOR = 1e-6
# Cells of all rows of weights that are held at once.
CHUNK_CELLS = 2_000_000
UNKNOWN = (
    "some of these attributes are modelled as independent and were never asked together: "
    "no interval can be had"
)


@dataclass(frozen=True)
class Interval:
    """A marginal with its uncertainty, one axis per attribute; each interval covers one cell.

    `standard_errors` are root mean squared errors, scatter and bias together, for the
    population that the participants are a sample of. Without an interval they and the
    ends are NaN, and `caution` has the reason. `basis` names the source of the figures.
    """

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    frequencies: Floats
    standard_errors: Floats
    low: Floats
    high: Floats
    level: float
    caution: str = ""
    basis: Basis = "model"

    def to_json(self) -> JsonObject:
        """Plain JSON values."""
        return {
            "attributes": list(self.attributes),
            "frequencies": self.frequencies.tolist(),
            "standard_errors": _plain(self.standard_errors),
            "low": _plain(self.low),
            "high": _plain(self.high),
            "level": self.level,
            "caution": self.caution,
            "basis": self.basis,
        }


def _plain(values: Floats) -> list[object] | None:
    """Nested lists, with None for NaN."""
    return None if np.isnan(values).any() else values.tolist()


@dataclass(frozen=True)
class Bootstrap:
    """The refitted models of a bootstrap, from which intervals of any marginal follow.

    Attributes:
        dependence_learnt: False if the model treats attributes as independent.
        misfit: Bias of the pairs, estimated from their residuals.
        asked: Pairs and triples of attributes that were asked together and used; None
            if unknown.
        reports: The real answers, if known.
    """

    model: Model
    replicates: tuple[Model, ...]
    dependence_learnt: bool
    misfit: Misfit = field(default_factory=lambda: Misfit({}))
    asked: frozenset[frozenset[str]] | None = None
    reports: Reports | None = None

    def interval(self, attributes: Sequence[str], level: float = 0.95) -> Interval:
        """Standard errors and intervals of one marginal.

        Without an interval they are NaN, and the caution has the reason.
        """
        names = tuple(attributes)
        fitted, refits = self._tables(names)
        figures, basis = self._figures(names, fitted), self._basis(names)
        squared, caution = np.full(fitted.shape, np.nan), ""
        if basis is None or told_within_groups(self.model, names):
            basis, caution = "model", told_within_groups(self.model, names) or UNKNOWN
        elif basis == "reports":
            basis, caution = "model", self._few_people(names)
            squared = self._unlearnt_variances(names)
        else:
            scatter = refits.var(axis=0, ddof=1) + (refits.mean(axis=0) - fitted) ** 2
            bias = self._bias(names, fitted)
            squared = scatter + bias
            if self._heard(names):
                assert self.reports is not None
                raw, noise = self.reports.marginal(names, fitted)
                share, shared = self._weight(names)
                squared = (
                    (1 - share) ** 2 * squared
                    + share**2 * noise
                    + 2 * share * (1 - share) * shared * scatter
                )
                squared = (
                    squared + np.maximum(np.abs(figures - raw) - FAR * np.sqrt(noise), 0.0) ** 2
                )
                basis = "model and reports" if share > 0 else "model"
        errors = np.sqrt(squared)
        reach = self.reach(level) * errors
        low, high = np.clip(figures - reach, 0, 1), np.clip(figures + reach, 0, 1)
        labels = tuple(self.model.schema[name].labels for name in names)
        return Interval(names, labels, figures, errors, low, high, level, caution, basis)

    def reach(self, level: float = 0.95) -> float:
        """The half-width of an interval in standard errors."""
        return student_quantile(level, self._freedom())

    def figures(self, attributes: Sequence[str], groups: Sequence[Indices]) -> Floats:
        """The table of grouped values from which `linear` takes its sums."""
        return self._grouped_figures(tuple(attributes), groups)

    def learnt(self, attributes: Sequence[str]) -> bool:
        """Whether the model has learnt how these attributes depend on each other."""
        return self._basis(tuple(attributes)) == "model"

    def linear(
        self, attributes: Sequence[str], groups: Sequence[Indices], questions: Floats
    ) -> LinearAnswer:
        """Sums over the cells of a marginal of grouped values.

        `questions` has a row of weights, shaped like the marginal, for each sum.
        Without an interval the covariance is NaN and the caution has the reason.
        """
        names, rows = tuple(attributes), questions.reshape(len(questions), -1)
        table = grouped_marginal(self.model, names, groups)
        estimates, basis = rows @ self._grouped_figures(names, groups).ravel(), self._basis(names)
        unknown = told_within_groups(self.model, names, groups)
        if basis is None or unknown:
            missing = np.full((len(rows), len(rows)), np.nan)
            return LinearAnswer(estimates, missing, self._freedom(), "model", unknown or UNKNOWN)
        refits = self._refitted(names, groups) @ rows.T
        shift = refits.mean(axis=0) - rows @ table.ravel()
        scatter = np.atleast_2d(np.cov(refits, rowvar=False)) + np.outer(shift, shift)
        if basis == "reports":
            covariance = scatter + self._unlearnt(names, groups, rows)
            caution = self._few_people(names)
            return LinearAnswer(estimates, covariance, self._freedom(), "model", caution)
        bias = np.zeros_like(scatter)
        tables = rows.reshape(len(rows), *table.shape)
        for members in self._parts(names):
            chosen = [groups[names.index(m)] for m in members]
            part = self._part(members, chosen)
            pressed = _press(tables * table, members, names) / np.maximum(part, 1e-300)
            if len(members) == 2:
                bias += self._pair_bias(members).covariance(pressed, chosen)
            else:
                bias += interaction(part).covariance(pressed)
        covariance = scatter + bias
        if self._heard(names):
            assert self.reports is not None
            raw = self.reports.sums(names, groups, rows, self.model.marginal(names))
            noise = raw.covariance
            share, shared = self._weight(names)
            covariance = (
                (1 - share) ** 2 * covariance
                + share**2 * noise
                + 2 * share * (1 - share) * shared * scatter
            )
            gap = estimates - raw.estimates
            far = np.sign(gap) * np.maximum(
                np.abs(gap) - FAR * np.sqrt(np.maximum(np.diag(noise), 0.0)), 0.0
            )
            covariance = covariance + np.outer(far, far)
            basis = "model and reports" if share > 0 else "model"
        return LinearAnswer(estimates, covariance, self._freedom(), basis)

    def _figures(self, names: tuple[str, ...], fitted: Floats) -> Floats:
        """The published table of some attributes: the model's, or one that also uses reports."""
        pairs = [pair for pair in combinations(names, 2) if self._mixed(pair)]
        if not pairs or (len(names) > 2 and fitted.size > MAX_SCALED_CELLS):
            return fitted
        if names in self._mixed_tables:
            return self._mixed_tables[names]
        table = fitted
        if self._mixed(names):
            assert self.reports is not None
            share, _ = self._weight(names)
            raw, _ = self.reports.marginal(names, fitted)
            table = np.maximum(fitted + share * (raw - fitted), FLOOR * fitted)
        targets: dict[tuple[int, ...], Floats] = {}
        if len(names) == 2:
            targets = {(axis,): fitted.sum(axis=1 - axis) for axis in range(2)}
        else:
            for axes in combinations(range(len(names)), 2):
                pair = names[axes[0]], names[axes[1]]
                targets[axes] = self._figures(pair, self._tables(pair)[0])
        self._mixed_tables[names] = scale_to(table, targets)
        return self._mixed_tables[names]

    def _grouped_figures(self, names: tuple[str, ...], groups: Sequence[Indices]) -> Floats:
        """The published table of grouped values."""
        if any(self._mixed(pair) for pair in combinations(names, 2)):
            cells = self.model.schema.cells(names)
            if len(names) == 2:
                return add_up(self._figures(names, self._tables(names)[0]), groups)
            if cells <= MAX_SCALED_CELLS:
                return add_up(self._figures(names, self.model.marginal(names)), groups)
        return grouped_marginal(self.model, names, groups)

    def _mixed(self, names: tuple[str, ...]) -> bool:
        """Whether figures about these attributes use the reports besides the model."""
        return (
            self._basis(names) == "model"
            and not told_within_groups(self.model, names)
            and self._heard(names)
            and self._weight(names)[0] > 0
        )

    @cached_property
    def _mixed_tables(self) -> dict[tuple[str, ...], Floats]:
        """Tables of model and reports that were needed before."""
        return {}

    def _unlearnt(self, names: tuple[str, ...], groups: Sequence[Indices], rows: Floats) -> Floats:
        """Covariance of errors from dependence that the model leaves out, as reports show it.

        The reports' estimate of the dependence has the covariance `noise` and differs
        from the model's by `gap`. With noise + gap gap' an interval around the model's
        figure covers the truth at least as often as one around the reports' estimate.
        """
        assert self.reports is not None
        fitted = self.model.marginal(names)
        weights = interaction_weights(_spread_over_codes(rows, groups)).reshape(len(rows), -1)
        codes = [np.arange(size) for size in fitted.shape]
        raw = self.reports.sums(names, codes, weights, fitted)
        gap = raw.estimates - weights @ fitted.ravel()
        return np.asarray(raw.covariance + np.outer(gap, gap))

    def _unlearnt_variances(self, names: tuple[str, ...]) -> Floats:
        """The squared errors of a table whose attributes the model takes as independent."""
        fitted, refits = self._tables(names)
        scatter = refits.var(axis=0, ddof=1) + (refits.mean(axis=0) - fitted) ** 2
        codes = [np.arange(size) for size in fitted.shape]
        unlearnt = np.zeros(fitted.size)
        step = max(1, CHUNK_CELLS // fitted.size)
        for start in range(0, fitted.size, step):
            rows = np.zeros((min(step, fitted.size - start), fitted.size))
            rows[np.arange(len(rows)), start + np.arange(len(rows))] = 1.0
            unlearnt[start : start + len(rows)] = np.diag(self._unlearnt(names, codes, rows))
        return np.asarray(scatter + unlearnt.reshape(fitted.shape))

    def _few_people(self, names: tuple[str, ...]) -> str:
        assert self.reports is not None
        return (
            f"{' and '.join(names)} are modelled as independent: the figures are products of "
            f"shares, and their intervals rest on the {self.reports.people(names):,} people who "
            "were asked about them together"
        )

    def _basis(self, names: tuple[str, ...]) -> Basis | None:
        """The possible source of figures about these attributes: model, reports, or neither."""
        pairs = [frozenset(pair) for pair in combinations(self._roots(names), 2)]
        if not pairs or (
            self.dependence_learnt and (self.asked is None or all(p in self.asked for p in pairs))
        ):
            return "model"
        return "reports" if self.reports is not None and self.reports.tell(names) else None

    def _roots(self, names: Sequence[str]) -> tuple[str, ...]:
        """The attributes that were asked about for these, each once."""
        return tuple(dict.fromkeys(root_of(self.model, name) for name in names))

    def _freedom(self) -> float:
        return float(len(self.replicates) - 1)

    @cached_property
    def _pair_tables(self) -> dict[tuple[str, ...], tuple[Floats, Floats]]:
        """Tables of pairs that were needed before, fitted and of all replicates."""
        return {}

    @cached_property
    def _pair_biases(self) -> dict[tuple[str, ...], PairBias]:
        """Biases of pairs that were needed before."""
        return {}

    def _tables(self, names: tuple[str, ...]) -> tuple[Floats, Floats]:
        """The fitted table of some attributes, then those of all replicates; pairs are cached."""
        if names in self._pair_tables:
            return self._pair_tables[names]
        found = (
            self.model.marginal(names),
            np.stack([replicate.marginal(names) for replicate in self.replicates]),
        )
        if len(names) == 2:
            self._pair_tables[names] = found
        return found

    def _part(self, members: tuple[str, ...], groups: Sequence[Indices] | None = None) -> Floats:
        """The fitted table of some attributes, of grouped values if groups are given."""
        if len(members) == 2:
            fitted = self._tables(members)[0]
            return fitted if groups is None else add_up(fitted, groups)
        return (
            self.model.marginal(members)
            if groups is None
            else grouped_marginal(self.model, members, groups)
        )

    def _refitted(self, names: tuple[str, ...], groups: Sequence[Indices]) -> Floats:
        """The replicates' tables of grouped values, flat; pairs use the cached whole tables."""
        if len(names) == 2 and len(self._roots(names)) == 2:
            refits = self._tables(names)[1]
            return add_up(refits, [np.arange(len(refits)), *groups]).reshape(len(refits), -1)
        return np.stack(
            [grouped_marginal(replicate, names, groups).ravel() for replicate in self.replicates]
        )

    def _parts(self, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Errors beyond the replicates: biases of pairs, interactions of triples not asked."""
        for pair in combinations(names, 2):
            # Neither attribute determines the other.
            if len(self._roots(pair)) == 2:
                yield pair
        for triple in combinations(names, 3):
            roots = self._roots(triple)
            if len(roots) == 3 and (self.asked is None or frozenset(roots) not in self.asked):
                yield triple

    def _pair_bias(self, pair: tuple[str, ...]) -> PairBias:
        if pair not in self._pair_biases:
            self._pair_biases[pair] = self.misfit.bias(
                self.model.schema, pair, *self._tables(pair), self._roots(pair)
            )
        return self._pair_biases[pair]

    def _heard(self, names: tuple[str, ...]) -> bool:
        """Whether reports about these attributes exist for comparison."""
        # Figures of a determined attribute follow from those of the attribute that determines it.
        if len(names) < 2 or self._roots(names) != names:
            return False
        return self.reports is not None and self.reports.tell(names)

    def _bias(self, names: tuple[str, ...], fitted: Floats) -> Floats:
        """Squared errors that no replicate shows, by cell.

        Those of a part of the table move its cells in proportion.
        """
        bias = np.zeros(fitted.shape)
        for members in self._parts(names):
            part = self._part(members)
            moves = self._pair_bias(members) if len(members) == 2 else interaction(part)
            bias += fitted**2 * _lift(moves.variances / np.maximum(part**2, 1e-300), members, names)
        return bias

    def _weight(self, names: tuple[str, ...]) -> tuple[float, float]:
        """The weight of the reports and `shared`; 0 unless a pair's residuals reject the model."""
        pairs = [self.misfit.of(pair) for pair in combinations(names, 2)]
        shared = float(np.mean([pair.shared for pair in pairs]))
        if len(pairs) == 1 or not any(pair.weight > 0 for pair in pairs):
            return (pairs[0].weight if len(pairs) == 1 else 0.0), shared
        assert self.reports is not None
        fitted = self.model.marginal(names)
        bias, noise = (
            float(self._bias(names, fitted).sum()),
            float(self.reports.marginal(names, fitted)[1].sum()),
        )
        return bias / max(bias + noise, 1e-300), shared


def interaction(table: Floats) -> Moves:
    """Allowance for interactions of three attributes of which only pairs were asked.

    Relative to a cell's frequency, the error is half (INTERACTION) as large as the
    pairs' departures from independence: the mean over the pairs of the cell's squared
    departure and of phi^2, the mean of all. It is zero for independent attributes.
    """
    ones = [table.sum(axis=tuple(a for a in range(3) if a != axis)) for axis in range(3)]
    relative = np.zeros(table.shape)
    for axis in range(3):
        pair, product = (
            table.sum(axis=axis),
            np.multiply.outer(*(ones[a] for a in range(3) if a != axis)),
        )
        own = ((pair - product) / np.maximum(product, 1e-12)) ** 2
        relative += np.expand_dims((own + float((own * product).sum())) / 6, axis)
    return Moves(INTERACTION**2 * relative * table**2, tuple(ones))


def _lift(values: Floats, members: Sequence[str], names: Sequence[str]) -> Floats:
    """A table over some attributes, shaped so that it broadcasts over all."""
    sizes = iter(values.shape)
    return values.reshape([next(sizes) if name in members else 1 for name in names])


def _press(tables: Floats, members: Sequence[str], names: Sequence[str]) -> Floats:
    """Tables with a row axis in front, summed over the attributes that are not members."""
    return np.asarray(
        tables.sum(axis=tuple(1 + a for a, name in enumerate(names) if name not in members))
    )


def student_quantile(level: float, freedom: float) -> float:
    """Half-width of an interval in standard errors estimated from few replicates."""
    check_between("level", level, 0, 1, ends="()")
    return float(stdtrit(freedom, (1 + level) / 2))
