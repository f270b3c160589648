"""Model bias of each pair's table: the error that replicates drawn from the model cannot show.

The raw estimate y of a pair's table is unbiased with known noise, so the squared
residuals of the model m measure its bias: E|m - y|^2 is that of the replicates (their
refits against their raw estimates) plus the squared bias that they lack. For one pair
the noise of y usually hides that excess. Two things help. The bias lies where the
replicates err and along slow waves of ordered attributes (`shape`): a few directions
out of hundreds, in which each residual is examined. And all pairs together estimate the
size of biases, in units of bootstrapped squared error; that is the prior of each pair,
which its residuals update.

References: Efron and Morris, JASA 1973 (empirical Bayes); Armstrong, Kolesar,
Plagborg-Moller, Econometrica 2022 (intervals that cover on average over the figures);
docs/explanation/uncertainty.md has the measured coverage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import gammaincc, gammaln

from dither.fit import Model, answers_of
from dither.fit.mixture.targets import PairTargets, pair_targets
from dither.fit.ruled import add_up
from dither.methods import ProtocolMachine
from dither.schema import Attribute, Schema
from dither.types import Floats, Indices, JsonObject

# Slow waves of an ordered attribute; a wave's square decreases with that of its number.
WAVES = 4


@dataclass(frozen=True)
class Moves:
    """Random errors of a table's cells that leave its one-way marginals alone.

    Independent moves of variance `own` are made to add up to zero along every axis by
    spreading each line's sum over the line by the marginal.
    """

    own: Floats
    ones: tuple[Floats, ...]

    @property
    def _fixes(self) -> list[Floats]:
        return [np.eye(len(one)) - one[:, None] for one in self.ones]

    @cached_property
    def variances(self) -> Floats:
        """Of each cell."""
        out = self.own
        for axis, fix in enumerate(self._fixes):
            out = np.moveaxis(np.tensordot(out, fix**2, (axis, 1)), -1, axis)
        return np.asarray(out)

    def covariance(self, rows: Floats) -> Floats:
        """Of sums with a row of weights each, shaped like the table."""
        moved = rows
        for axis, fix in enumerate(self._fixes):
            moved = np.moveaxis(np.tensordot(moved, fix, (axis + 1, 0)), -1, axis + 1)
        flat = moved.reshape(len(rows), -1)
        return np.asarray((flat * self.own.ravel()) @ flat.T)


# Moves of the first and of the second attribute: a row for each value, a column for each move.
Products = tuple[Floats, Floats]


@dataclass(frozen=True)
class PairBias:
    """Random errors of a pair's table.

    They lie along each of `lines`, and along each product of a move of the first
    attribute and one of the second: moves of single values (`values`) and of `waves`.
    """

    lines: Floats
    values: Products
    waves: Products

    @cached_property
    def variances(self) -> Floats:
        """Of each cell."""
        out = (self.lines**2).sum(axis=0)
        for first, second in (self.values, self.waves):
            out = out + np.outer((first**2).sum(axis=1), (second**2).sum(axis=1))
        return np.asarray(out)

    def covariance(self, rows: Floats, groups: Sequence[Indices]) -> Floats:
        """Of sums with a row of weights each, shaped like the table of grouped values."""
        every = [np.arange(len(self.lines)), *groups]
        along = [
            rows.reshape(len(rows), -1) @ add_up(self.lines, every).reshape(len(self.lines), -1).T
        ]
        for products in (self.values, self.waves):
            first, second = (
                add_up(moves.T, [np.arange(moves.shape[1]), group]).T
                for moves, group in zip(products, groups, strict=True)
            )
            along.append(
                np.tensordot(np.tensordot(rows, first, (1, 0)), second, (1, 0)).reshape(
                    len(rows), -1
                )
            )
        return np.asarray(sum(part @ part.T for part in along))

    def times(self, factor: float) -> PairBias:
        """The same errors, the squares of all but the waves multiplied."""
        root = np.sqrt(factor)
        return PairBias(root * self.lines, (root * self.values[0], self.values[1]), self.waves)

    def strongest(self, noise: Floats, most: int | None) -> Floats:
        """The lines and products of values, or those largest relative to this cell noise."""
        first, second = self.values
        sizes = (first**2).T @ (1 / noise) @ second**2
        kept = np.unravel_index(np.argsort(-sizes, axis=None)[:most], sizes.shape)
        products = first.T[kept[0], :, None] * second.T[kept[1], None, :]
        return np.concatenate([self.lines, products])


def pair_bias(
    attributes: Sequence[Attribute], fitted: Floats, refits: Floats, spread: float
) -> PairBias:
    """Errors of a pair's table, as large as the refits' in its dependence.

    Errors along products of single values' moves, and of slow waves if the pair has
    any, are added; the squares of either sum to `spread`.
    """
    errors = _departures(refits) - _departures(fitted[None])
    ones = (fitted.sum(axis=1), fitted.sum(axis=0))
    values = [_moves_of(one) for one in ones]
    waves = [_waves_of(attribute, one) for attribute, one in zip(attributes, ones, strict=True)]
    # Two ordered attributes: products of waves. One: products of its waves and the other's values.
    slowly = [wave if wave.size else move for wave, move in zip(waves, values, strict=True)]
    slow = spread if any(wave.size for wave in waves) else 0.0
    return PairBias(errors / np.sqrt(len(refits)), _sized(values, spread), _sized(slowly, slow))


def _sized(moves: Sequence[Floats], total: float) -> Products:
    """Moves of two attributes whose products' squares add up to a total."""
    first, second = moves
    root = np.sqrt(total / max(float((first**2).sum() * (second**2).sum()), 1e-300))
    return root * first, second


def _departures(tables: Floats) -> Floats:
    """Differences of tables from the products of their one-way marginals."""
    return np.asarray(tables - tables.sum(axis=2)[:, :, None] * tables.sum(axis=1)[:, None, :])


def _moves_of(one: Floats) -> Floats:
    """Moves of single values, in columns that sum to zero, each with the variance of a share."""
    return np.asarray((np.eye(len(one)) - one[:, None]) * np.sqrt(one))


def _waves_of(attribute: Attribute, one: Floats) -> Floats:
    """Slow waves over the ranks of an ordered attribute, in columns that sum to zero."""
    if not attribute.ordered or attribute.answers <= WAVES:
        return np.zeros((len(one), 0))
    real = np.where(np.arange(len(one)) < attribute.answers, one, 0.0)
    ranks = (np.cumsum(real) - real / 2) / max(float(real.sum()), 1e-300)
    numbers = np.arange(1, WAVES + 1)
    waves = real[:, None] * np.cos(np.pi * numbers * ranks[:, None])
    return np.asarray((waves - one[:, None] * waves.sum(axis=0)) / numbers)


# Pairs whose residuals are compared with those of each replicate.
MAX_PAIRS = 400
# Directions of a pair's table that are examined singly, besides those of the replicates.
PRODUCTS = 40
# All directions are examined in a table with at most this number of cells.
WHOLE = 120
# Errors along products of moves, over all pairs, in units of the bootstrapped ones: those of
# single values for a factor of one, and the same amount of slow waves for every factor.
SPREAD = 0.5
# Replicates differ by at least this share of the raw estimates' noise.
UNSEEN = 0.02
# Prior mean of the logarithm of the factor: for pairs whose replicates show most of what
# `pair_bias` allows for (True), and for omitted or hardly learnt pairs (False).
EXPECTED = {True: 0.0, False: 2.0}
# Standard deviation of that mean between releases.
APART = 1.0
MEDIANS = np.linspace(-4.0, 4.0, 33)
WIDTHS = np.array([0.5, 1.0, 1.5, 2.0])
# Figures use the raw estimates if the residuals' p-value is below this level.
REJECTS = 1e-3
# Smaller squared singular values, relative to the largest, count as zero.
RANK_TOLERANCE = 1e-12
# Probability of a misfit warning although the model fits.
MISFIT_LEVEL = 1e-3
# Logarithms of squared bias in units of bootstrapped error.
STEPS = np.linspace(-6.0, 8.0, 71)


@dataclass(frozen=True)
class PairMisfit:
    """Bias of one pair, estimated from its residuals.

    Attributes:
        factor: Expected squared bias in units of `pair_bias`.
        shared: Covariance of the model's error with the raw estimate's, in units of the
            model's variance.
        weight: Weight of the raw estimate in the best average of both.
    """

    factor: float
    shared: float = 1.0
    weight: float = 0.0


@dataclass(frozen=True)
class _Pair:
    """One pair's table with its replicates, raw estimates and noise.

    It has the fitted frequencies, the distribution over cells of a bias as large as the
    bootstrapped error, the replicates' squared error, and the expected squared
    residuals in units of the noise.
    """

    fitted: Floats
    shape: PairBias
    boot: Floats
    raw: Floats | None = None
    noise: Floats = field(default_factory=lambda: np.zeros(0))
    ratio: float = 1.0

    @cached_property
    def waves(self) -> float:
        """The size of the bias along slow waves."""
        return float((self.shape.waves[0] ** 2).sum() * (self.shape.waves[1] ** 2).sum())

    @cached_property
    def size(self) -> float:
        """Of the rest of it, were the factor one."""
        return float(self.shape.variances.sum()) - self.waves

    @cached_property
    def shown(self) -> bool:
        """Whether most of that is errors of the replicates."""
        return float((self.shape.lines**2).sum()) > 0.5 * self.size

    @cached_property
    def shared(self) -> float:
        """From var(r - y) = var(r) + var(y) - 2 cov(r, y)."""
        boot = float(self.boot.sum())
        return float(
            np.clip(
                (boot + float(self.noise.sum()) * (1 - self.ratio)) / 2 / max(boot, 1e-300),
                0.0,
                1.0,
            )
        )

    @property
    def residuals(self) -> Floats:
        """In units of the noise."""
        assert self.raw is not None
        return np.asarray((self.fitted - self.raw) / np.sqrt(self.noise))

    @property
    def chance(self) -> float:
        """Of residuals at least as large, were there no bias."""
        return _chance(self.residuals**2 / self.ratio, self.shape.variances / self.noise)

    @cached_property
    def likelihood(self) -> Floats:
        """Log-likelihood ratio of each factor exp(STEPS) of the squared bias against none.

        Along the directions of the bias the squared residuals are 1 + factor x bias in
        units of noise. The rest of the table is one sum with a gamma law.
        """
        root, found = np.sqrt(self.noise).ravel(), self.residuals.ravel()
        whole = len(root) <= WHOLE
        lines = (
            self.shape.strongest(self.noise, None if whole else PRODUCTS).reshape(-1, len(root))
            / root
        )
        squares, directions = principal(lines)
        along, factors = directions @ found, np.append(np.exp(STEPS), 0.0)[:, None]
        spread = self.ratio + factors * squares
        out = -0.5 * (np.log(spread) + along**2 / spread).sum(axis=1)
        if not whole:
            rest = np.maximum(
                self.shape.variances.ravel() / root**2 - (lines**2).sum(axis=0), 1e-12
            )
            each = rest * (1 - (directions**2).sum(axis=0)) * (self.ratio + factors * rest)
            mean, variance = each.sum(axis=1), 2 * (each**2).sum(axis=1)
            shape, width = mean**2 / variance, variance / mean
            left = float(rest @ (found - along @ directions) ** 2)
            out = (
                out
                + (shape - 1) * np.log(left)
                - left / width
                - shape * np.log(width)
                - gammaln(shape)
            )
        return np.asarray(out[:-1] - out[-1])

    def summary(self) -> _PairSummary:
        """Summarise the pair for the empirical Bayes step, without its tables."""
        if self.raw is None:
            return _PairSummary(None, self.shown)
        boot, noise = float(self.boot.sum()), float(self.noise.sum())
        apart = max(boot + noise - 2 * self.shared * boot, 0.05 * noise)
        alone, rejected = boot * (1 - self.shared), self.chance < REJECTS
        return _PairSummary(
            self.likelihood, self.shown, rejected, self.shared, self.size, self.waves, alone, apart
        )


@dataclass(frozen=True)
class _PairSummary:
    """Summary of one pair's residuals, see `_Pair`.

    `alone` and `apart` are squared errors that raw estimates and model do not share, of
    the model and of their difference.
    """

    likelihood: Floats | None
    shown: bool
    rejected: bool = False
    shared: float = 1.0
    size: float = 0.0
    waves: float = 0.0
    alone: float = 0.0
    apart: float = 1.0

    def judged(self, prior: Floats) -> PairMisfit:
        """The misfit of this pair if factors are exp(STEPS) with these chances."""
        chances = prior
        if self.likelihood is not None:
            # The constant: one odd pair does not rule out everything else.
            chances = prior * (np.exp(self.likelihood - self.likelihood.max()) + 1e-9)
        factor = float(chances @ np.exp(STEPS) / chances.sum())
        bias = factor * self.size + self.waves
        return PairMisfit(
            factor,
            self.shared,
            min((bias + self.alone) / (bias + self.apart), 1.0) if self.rejected else 0.0,
        )


def principal(lines: Floats) -> tuple[Floats, Floats]:
    """Squared singular values and right singular vectors in rows, without tiny ones.

    They come from the smaller Gram matrix, because LAPACK's fast decomposition fails to
    converge on some matrices with many rows close to zero.
    """
    wide = lines.shape[0] < lines.shape[1]
    squares, vectors = np.linalg.eigh(lines @ lines.T if wide else lines.T @ lines)
    kept = squares > RANK_TOLERANCE * max(float(squares[-1]), 1e-300)
    squares, vectors = squares[kept], vectors.T[kept]
    return squares, vectors @ lines / np.sqrt(squares)[:, None] if wide else vectors


def _chance(squares: Floats, weights: Floats) -> float:
    """Probability of a weighted sum of squared standard normals at least this large."""
    mean, variance = float(weights.sum()), 2 * float((weights**2).sum())
    return float(gammaincc(mean**2 / variance, float((weights * squares).sum()) * mean / variance))


@dataclass(frozen=True)
class Misfit:
    """Bias of the examined pairs, and the factor expected for others.

    `spread` is the squared error along products of moves for a factor of one, in units
    of a pair's size.
    """

    pairs: Mapping[frozenset[str], PairMisfit]
    typical: float = 0.0
    spread: float = 0.0

    def of(self, pair: Sequence[str]) -> PairMisfit:
        """Of any pair."""
        return self.pairs.get(frozenset(pair)) or PairMisfit(self.typical)

    def bias(
        self,
        schema: Schema,
        pair: Sequence[str],
        fitted: Floats,
        refits: Floats,
        asked: Sequence[str] | None = None,
    ) -> PairBias:
        """Expected errors of a pair that its replicates do not show.

        `asked` names the attributes that were asked instead of the pair, if they
        differ.
        """
        spread = self.spread * _size_of(fitted)
        return pair_bias([schema[name] for name in pair], fitted, refits, spread).times(
            self.of(asked or pair).factor
        )


def local_misfit(
    model: Model,
    refits: Sequence[Model],
    targets: PairTargets | None,
    redrawn: Sequence[PairTargets],
) -> Misfit:
    """Estimate the bias of pairs asked together from the real and replicates' residuals.

    Without the real answers each pair has its prior bias.
    """
    names = model.schema.names
    every = list(combinations(range(len(names)), 2))
    if targets is not None:
        every = [pair for pair in every if targets.pair_noise[1][pair] > 0]
    chosen = every[:: max(1, -(-len(every) // MAX_PAIRS))]
    errors = size = unseen = 0.0
    for pair in chosen:
        fitted, again = _tables(model, refits, pair)
        errors += float(((_departures(again) - _departures(fitted[None])) ** 2).sum()) / len(again)
        size += _size_of(fitted)
        if targets is not None:
            unseen += float(_noise(targets, pair, fitted).sum())
    # A model without dependence draws people without it, and its replicates agree. The
    # dependence that noise could have hidden is then the measure of the bias.
    spread = SPREAD * max(errors, UNSEEN * unseen) / max(size, 1e-300)
    summaries = {
        pair: _compare(model, refits, spread, targets, redrawn, pair).summary() for pair in chosen
    }
    priors = {}
    for shown, expected in EXPECTED.items():
        alike = [
            one.likelihood
            for one in summaries.values()
            if one.likelihood is not None and one.shown is shown
        ]
        priors[shown] = learnt_prior(alike, expected)
    out = {
        frozenset((names[i], names[j])): one.judged(priors[one.shown])
        for (i, j), one in summaries.items()
    }
    typical = float(np.mean([pair.factor for pair in out.values()])) if out else 0.0
    return Misfit(out, typical, spread)


def learnt_prior(likelihoods: Sequence[Floats], expected: float) -> Floats:
    """Prior probabilities of the factors exp(STEPS): log-normal, fitted to all pairs together."""
    medians, widths = MEDIANS[:, None], WIDTHS[None, :]
    priors = np.exp(-0.5 * ((STEPS - medians[..., None]) / widths[..., None]) ** 2)
    priors /= priors.sum(axis=-1, keepdims=True)
    logs = -0.5 * ((medians - expected) / APART) ** 2 + np.zeros_like(widths)
    for one in likelihoods:
        logs = logs + np.log(priors @ np.exp(one - one.max()) + 1e-9)
    chances = np.exp(logs - logs.max())
    return np.asarray(np.tensordot(chances / chances.sum(), priors, 2))


def _tables(model: Model, refits: Sequence[Model], pair: tuple[int, int]) -> tuple[Floats, Floats]:
    names = [model.schema.names[i] for i in pair]
    return model.marginal(names), np.stack([refit.marginal(names) for refit in refits])


def _compare(
    model: Model,
    refits: Sequence[Model],
    spread: float,
    targets: PairTargets | None,
    redrawn: Sequence[PairTargets],
    pair: tuple[int, int],
) -> _Pair:
    (i, j), (fitted, again) = pair, _tables(model, refits, pair)
    boot = again.var(axis=0, ddof=1) + (again.mean(axis=0) - fitted) ** 2
    shape = pair_bias(
        [model.schema.attributes[i], model.schema.attributes[j]],
        fitted,
        again,
        spread * _size_of(fitted),
    )
    if targets is None:
        return _Pair(fitted, shape, boot)
    block = targets.columns.of(i), targets.columns.of(j)
    noise = _noise(targets, pair, fitted)
    # A replicate may have asked this pair more or less often than the real campaign, so its
    # residuals are in units of its noise. Replicates are few, so one ratio serves for a table.
    ratios = [
        float(((refit - drawn.pairs[block]) ** 2 / _noise(drawn, pair, fitted)).mean())
        for refit, drawn in zip(again, redrawn, strict=True)
        if drawn.pair_noise[1][i, j] > 0
    ]
    return _Pair(
        fitted, shape, boot, targets.pairs[block], noise, float(np.mean(ratios)) if ratios else 1.0
    )


def _size_of(table: Floats) -> float:
    """Size of a pair's table: the sum of p(1-p) q(1-q) over its cells."""
    first, second = table.sum(axis=1), table.sum(axis=0)
    return float((first * (1 - first)).sum() * (second * (1 - second)).sum())


def _noise(targets: PairTargets, pair: tuple[int, int], frequencies: Floats) -> Floats:
    """Variances of a pair's raw estimates, with a floor for nearly empty cells."""
    c0, c1, c2 = (float(c[pair]) for c in targets.pair_noise)
    return np.asarray(np.maximum(c0 + frequencies * (c1 - c2 * frequencies), 1e-3 * c2))


def misfit_notes(machine: ProtocolMachine[Any], model: Model) -> JsonObject:
    """A release's notes on pairs whose raw estimates reject the model; empty if none do.

    The test needs no replicates: it uses squared residuals in units of the raw noise,
    which a fit to the data can only reduce. The level is shared by all pairs. Rules and
    values inside groups are not tested, because no pairs of them were asked.
    """
    answers = answers_of(machine.counted)
    if not any(len(answer.question.attributes) > 1 for answer in answers):
        return {}
    targets, names = pair_targets(machine.campaign.schema, answers), model.schema.names
    every = [p for p in combinations(range(len(names)), 2) if targets.pair_noise[1][p] > 0]
    found = []
    for pair in every[:: max(1, -(-len(every) // MAX_PAIRS))]:
        fitted = model.marginal([names[i] for i in pair])
        noise, block = _noise(targets, pair, fitted), tuple(targets.columns.of(i) for i in pair)
        shape = pair_bias(
            [model.schema.attributes[i] for i in pair], fitted, fitted[None], 1.0
        ).variances
        # The model knows one attribute for certain, so a dependence cannot be biased.
        if not shape.any():
            continue
        chance = _chance((fitted - targets.pairs[block]) ** 2 / noise, shape / noise)
        if chance < MISFIT_LEVEL / len(every):
            found.append((chance, " x ".join(names[i] for i in pair)))
    return {"misfit": [words for _, words in sorted(found)]} if found else {}
