"""Standard errors and intervals of any marginal and of sums over its cells, read off refitted models.

A figure's squared error is the scatter of the refits and their distance from the model they were drawn from, and what no
replicate can show: the bias that the residuals of each pair tell of (`misfit`), and interactions of three attributes that nobody
was asked about together. Where the residuals of a pair reject the model, its figures rest on the reports about it as well, with one
weight for the whole table, so that sums over its cells agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np

from dither.checks import check_between
from dither.fit import Model
from dither.fit.ruled import add_up, grouped_marginal, root_of, told_within_groups
from dither.release.misfit import Misfit, Moves, PairBias
from dither.release.raw_sums import Reports
from dither.types import Floats, Indices, JsonObject

Basis = Literal["model", "reports", "model and reports", "noisy cells", "synthetic table"]


@dataclass(frozen=True)
class LinearAnswer:
    """Estimates of several sums over the cells of one marginal, with the covariance of their errors.

    The errors are deviations from the population that the participants are a sample of, scatter and bias together, so a
    difference of two sums has the variance that the covariance says. `freedom` is Student's for intervals. `basis` says
    what the figures rest on: the fitted model, the reports about just these attributes, or both. `caution` says in words what
    the errors do not cover, if anything.
    """

    estimates: Floats
    covariance: Floats
    freedom: float
    basis: Basis = "model"
    caution: str = ""


INTERACTION = 0.5  # strength of unmeasured three-way interactions, in units of the pairs'
FAR = 3.0  # standard errors of the reports alone; what a figure lies farther from them than that is error too
MANY = 1000.0  # degrees of freedom where the errors are known and not estimated
UNKNOWN = "some of these attributes were taken as independent and nobody was asked about them together: no interval can be had"


@dataclass(frozen=True)
class Interval:
    """A marginal with its uncertainty, one axis per attribute; the intervals are for each cell on its own.

    `standard_errors` are root mean squared errors: scatter and bias together, for the population that the participants are a
    sample of; they and the ends are not numbers where no interval can be had, and `caution` says why. `basis` says what the
    figures rest on.
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
    """Nested lists, None if there is no figure."""
    return None if np.isnan(values).any() else values.tolist()


@dataclass(frozen=True)
class Bootstrap:
    """The refitted models of a bootstrap; any number of marginals can be read off it.

    `dependence_learnt` is false where the model takes attributes as independent. `misfit` is what the residuals of the pairs
    say, `asked` the pairs and triples of attributes that were asked together and used (None: not known), `reports` the real
    answers, if they are known.
    """

    model: Model
    replicates: tuple[Model, ...]
    dependence_learnt: bool
    misfit: Misfit = field(default_factory=lambda: Misfit({}))
    asked: frozenset[frozenset[str]] | None = None
    reports: Reports | None = None

    def interval(self, attributes: Sequence[str], level: float = 0.95) -> Interval:
        """Standard errors and intervals of one marginal; not a number, with a caution, where no interval can be had."""
        names = tuple(attributes)
        fitted, refits = self._tables(names)
        figures, squared, basis, caution = (
            fitted,
            np.full(fitted.shape, np.nan),
            self._basis(names),
            "",
        )
        if basis is None or told_within_groups(self.model, names):
            basis, caution = "model", told_within_groups(self.model, names) or UNKNOWN
        elif basis == "reports" and self.reports is not None:
            figures, squared = self.reports.marginal(names, fitted)
        else:
            scatter = refits.var(axis=0, ddof=1) + (refits.mean(axis=0) - fitted) ** 2
            bias = self._bias(names, fitted)
            squared = scatter + bias
            if self._heard(names):
                assert self.reports is not None
                raw, noise = self.reports.marginal(names, fitted)
                share, shared = self._weight(names)
                figures = fitted + share * (raw - fitted)
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
        reach = student_quantile(level, self._freedom(basis)) * errors
        low, high = np.clip(figures - reach, 0, 1), np.clip(figures + reach, 0, 1)
        labels = tuple(self.model.schema[name].labels for name in names)
        return Interval(
            names, labels, np.clip(figures, 0, 1), errors, low, high, level, caution, basis
        )

    def linear(
        self, attributes: Sequence[str], groups: Sequence[Indices], questions: Floats
    ) -> LinearAnswer:
        """Sums over the cells of a marginal of grouped values; `questions` has a row of weights, shaped like it, for each sum.

        Where no interval can be had the covariance is not a number and the caution says why.
        """
        names, rows = tuple(attributes), questions.reshape(len(questions), -1)
        table = grouped_marginal(self.model, names, groups)
        estimates, basis = rows @ table.ravel(), self._basis(names)
        unknown = told_within_groups(self.model, names, groups)
        if basis is None or unknown:
            missing = np.full((len(rows), len(rows)), np.nan)
            return LinearAnswer(
                estimates, missing, self._freedom("model"), "model", unknown or UNKNOWN
            )
        if basis == "reports" and self.reports is not None:
            told = self.reports.sums(names, groups, rows, self.model.marginal(names))
            return LinearAnswer(told.estimates, told.covariance, self._freedom(basis), basis)
        refits = self._refitted(names, groups) @ rows.T
        shift = refits.mean(axis=0) - estimates
        scatter = np.atleast_2d(np.cov(refits, rowvar=False)) + np.outer(shift, shift)
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
            told = self.reports.sums(names, groups, rows, self.model.marginal(names))
            noise = told.covariance
            share, shared = self._weight(names)
            estimates = estimates + share * (told.estimates - estimates)
            covariance = (
                (1 - share) ** 2 * covariance
                + share**2 * noise
                + 2 * share * (1 - share) * shared * scatter
            )
            gap = estimates - told.estimates
            far = np.sign(gap) * np.maximum(
                np.abs(gap) - FAR * np.sqrt(np.maximum(np.diag(noise), 0.0)), 0.0
            )
            covariance = covariance + np.outer(far, far)
            basis = "model and reports" if share > 0 else "model"
        return LinearAnswer(estimates, covariance, self._freedom(basis), basis)

    def _basis(self, names: tuple[str, ...]) -> Basis | None:
        """What figures about these attributes can rest on: the model, the reports alone, or nothing."""
        pairs = [frozenset(pair) for pair in combinations(self._roots(names), 2)]
        if not pairs or (
            self.dependence_learnt and (self.asked is None or all(p in self.asked for p in pairs))
        ):
            return "model"
        return "reports" if self.reports is not None and self.reports.tell(names) else None

    def _roots(self, names: Sequence[str]) -> tuple[str, ...]:
        """The attributes that were asked about for these, each once."""
        return tuple(dict.fromkeys(root_of(self.model, name) for name in names))

    def _freedom(self, basis: Basis) -> float:
        return MANY if basis == "reports" else float(len(self.replicates) - 1)

    @cached_property
    def _pair_tables(self) -> dict[tuple[str, ...], tuple[Floats, Floats]]:
        """Tables of pairs that were needed before, fitted and of all replicates."""
        return {}

    @cached_property
    def _pair_biases(self) -> dict[tuple[str, ...], PairBias]:
        """Biases of pairs that were needed before."""
        return {}

    def _tables(self, names: tuple[str, ...]) -> tuple[Floats, Floats]:
        """The fitted table of some attributes and, one behind the other, those of all replicates; pairs are kept."""
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
        """The replicates' tables of grouped values, flat, one behind the other; of a pair its bias needs the whole ones anyway."""
        if len(names) == 2 and len(self._roots(names)) == 2:
            refits = self._tables(names)[1]
            return add_up(refits, [np.arange(len(refits)), *groups]).reshape(len(refits), -1)
        return np.stack(
            [grouped_marginal(replicate, names, groups).ravel() for replicate in self.replicates]
        )

    def _parts(self, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """What errs beyond the replicates: every pair by its bias, every triple not asked together by its interaction."""
        for pair in combinations(names, 2):
            if len(self._roots(pair)) == 2:  # neither determines the other
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
        """Whether there are reports about just these attributes to compare with."""
        told = (
            len(names) > 1 and self._roots(names) == names
        )  # what is determined rests on what determines it
        return told and self.reports is not None and self.reports.tell(names)

    def _bias(self, names: tuple[str, ...], fitted: Floats) -> Floats:
        """The squared errors that no replicate shows, cell by cell: those of parts of the table move its cells in proportion."""
        bias = np.zeros(fitted.shape)
        for members in self._parts(names):
            part = self._part(members)
            moves = self._pair_bias(members) if len(members) == 2 else interaction(part)
            bias += fitted**2 * _lift(moves.variances / np.maximum(part**2, 1e-300), members, names)
        return bias

    def _weight(self, names: tuple[str, ...]) -> tuple[float, float]:
        """The share of the reports in the figures, none unless the residuals of some pair reject the model; and `shared`."""
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
    """The interactions of three attributes to allow for where pairs alone were asked: errors of their table.

    Half (INTERACTION) as strong, in relation to a cell's frequency, as the departures from independence of the pairs that the
    cell lies in: the mean over the pairs of the cell's own squared departure and of phi^2, the mean of all. Zero for independent
    attributes.
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
    """How many standard errors, themselves estimated from few replicates, an interval of this level reaches each way."""
    from scipy.special import stdtrit

    check_between("level", level, 0, 1, ends="()")
    return float(stdtrit(freedom, (1 + level) / 2))
