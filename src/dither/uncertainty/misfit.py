"""What a fitted model leaves out, pair by pair: the part of its error that people drawn from the model itself cannot show.

The raw estimate y of a pair's table is unbiased with known noise, so the squared residuals of the model m tell of its bias:
E|m - y|^2 is what the replicates show (their refits against their own raw estimates) plus the squared bias that they do not have.
For one pair that excess drowns in the noise of y more often than not. So the squared bias of a pair, in units of bootstrapped
squared error, gets a log-normal prior, larger where the errors are as large as the dependence learnt, and the pair's own residuals
decide as far as they can.

Within a pair the bias is spread over the cells as products of attributes err: mostly like the cells' own frequencies, in a
direction that leaves the one-way marginals alone, a part along the dependence itself, which a fit that stops early shrinks, and a
small part in whole blocks of neighbouring values, which ranges add up.

References: Efron and Morris, JASA 1973 (empirical Bayes); Armstrong, Kolesar, Plagborg-Moller, Econometrica 2022 (intervals that
hold on average over the figures); docs/explanation/uncertainty.md has what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
from scipy.special import gammaincc, gammaln

from dither.estimate import answers_of
from dither.estimate.targets import PairTargets, pair_targets
from dither.models import Model
from dither.models.grouped import add_up
from dither.models.ruled import core_of
from dither.protocols import ProtocolMachine
from dither.schema import Attribute, Schema
from dither.types import Floats, Indices, JsonObject

MOST_PAIRS = 400  # whose residuals are compared with every replicate's
# Shares of the squared bias that lie along the fitted dependence, and in whole blocks of neighbouring values; the rest is in cells.
ALONG, SMOOTH, BLOCKS = 0.2, 0.04, 4
OWN = 0.4  # share of the scale of a pair's bias that is its own bootstrapped error; the rest is the mean of all pairs
# Squared bias to expect in units of that scale: so much at least, more where the errors are as large as the dependence that was
# learnt, for then much of it was not; and the deviation of its logarithm from pair to pair.
LEAST, MISSED, MOST_UNLEARNT, APART = 0.25, 2.5, 0.5, 1.4
REJECTS = 1e-3  # the chance of residuals, were the model right, below which the raw estimates are heard
MISFIT_LEVEL = 1e-3  # how often a release of a model that fits may be said not to
STEPS = np.linspace(-5.0, 7.0, 61)  # logarithms of squared bias in units of its scale


@dataclass(frozen=True)
class PairMisfit:
    """What the residuals say of one pair.

    `bias` is the squared bias to expect, added up over the cells. `shared` is the covariance of the model's error with that of
    the raw estimate in units of the model's variance, and `weight` the share of the raw estimate in the best average of both.
    """

    bias: float
    shared: float = 1.0
    weight: float = 0.0


@dataclass(frozen=True)
class Moves:
    """Random errors of a table's cells that leave its one-way marginals alone.

    Independent moves of variance `own` are made to add up to zero along every axis by spreading each line's sum over the line
    by the marginal; `along`, if any, is one more random direction, which does so already.
    """

    own: Floats
    ones: tuple[Floats, ...]
    along: Floats | None = None

    @property
    def _fixes(self) -> list[Floats]:
        return [np.eye(len(one)) - one[:, None] for one in self.ones]

    @cached_property
    def variances(self) -> Floats:
        """Of each cell."""
        out = self.own
        for axis, fix in enumerate(self._fixes):
            out = np.moveaxis(np.tensordot(out, fix**2, (axis, 1)), -1, axis)
        return np.asarray(out if self.along is None else out + self.along**2)

    def covariance(self, rows: Floats) -> Floats:
        """Of sums with a row of weights each, shaped like the table."""
        moved = rows
        for axis, fix in enumerate(self._fixes):
            moved = np.moveaxis(np.tensordot(moved, fix, (axis + 1, 0)), -1, axis + 1)
        flat = moved.reshape(len(rows), -1)
        out = (flat * self.own.ravel()) @ flat.T
        if self.along is not None:
            sums = rows.reshape(len(rows), -1) @ self.along.ravel()
            out = out + np.outer(sums, sums)
        return np.asarray(out)


@dataclass(frozen=True)
class PairBias:
    """Random errors of a pair's table: of single cells, along the dependence, and of whole `blocks` of neighbouring values, whose
    cells move in proportion to their frequencies."""

    fine: Moves
    coarse: Moves
    blocks: tuple[Indices, Indices]

    @cached_property
    def _shares(self) -> Floats:
        """Of each cell in its block, by its row and its column, so that blocks leave the one-way marginals alone as well."""
        parts = zip(self.fine.ones, self.coarse.ones, self.blocks, strict=True)
        return np.outer(*(one / np.maximum(whole[block], 1e-300) for one, whole, block in parts))

    @cached_property
    def variances(self) -> Floats:
        """Of each cell."""
        return np.asarray(self.fine.variances + self._shares**2 * self.coarse.variances[np.ix_(*self.blocks)])

    def covariance(self, rows: Floats, groups: Sequence[Indices]) -> Floats:
        """Of sums with a row of weights each, shaped like the table of grouped values."""
        spread = rows[:, groups[0]][:, :, groups[1]] * self._shares
        by_block = np.stack([add_up(row, self.blocks) for row in spread])
        own = add_up(self.fine.own, groups)
        ones = tuple(add_up(one, [group]) for one, group in zip(self.fine.ones, groups, strict=True))
        along = None if self.fine.along is None else add_up(self.fine.along, groups)
        return np.asarray(Moves(own, ones, along).covariance(rows) + self.coarse.covariance(by_block))


def bias_shape(table: Floats, blocks: tuple[Indices, Indices], size: float = 1.0) -> PairBias:
    """How a pair's squared bias, `size` when added up over the cells, is spread over its table."""
    ones = (table.sum(axis=1), table.sum(axis=0))
    fine = Moves(table * (1 - table), ones)
    along = table - np.outer(*ones)
    rough = add_up(table, blocks)
    coarse = Moves(rough * (1 - rough), (rough.sum(axis=1), rough.sum(axis=0)))
    by_cell = PairBias(Moves(np.zeros(table.shape), ones), coarse, blocks)
    own, whole, line = (
        size * part / max(float(total.sum()), 1e-300)
        for part, total in (
            (1 - ALONG - SMOOTH, fine.variances),
            (SMOOTH, by_cell.variances),
            (ALONG, along**2),
        )
    )
    return PairBias(Moves(own * fine.own, ones, np.sqrt(line) * along), Moves(whole * coarse.own, coarse.ones), blocks)


def blocks_of(attribute: Attribute) -> Indices:
    """The block of each code: neighbouring values of an ordered attribute are put together, other values stand alone."""
    codes = np.arange(attribute.cardinality)
    if not attribute.ordered or attribute.answers < 2 * BLOCKS:
        return codes
    return np.where(codes < attribute.answers, codes * BLOCKS // attribute.answers, BLOCKS + codes - attribute.answers)


def pair_bias(schema: Schema, names: Sequence[str], table: Floats, size: float = 1.0) -> PairBias:
    """The bias of a pair of a schema's attributes with this fitted table."""
    first, second = (blocks_of(schema[name]) for name in names)
    return bias_shape(table, (first, second), size)


@dataclass(frozen=True)
class _Pair:
    """One pair's table: fitted frequencies, how a bias of one would be spread over it, squared error of the replicates, raw
    estimates, noise, and residuals to expect."""

    fitted: Floats
    shape: Floats
    boot: Floats
    raw: Floats | None = None
    noise: Floats = field(default_factory=lambda: np.zeros(0))
    residual: Floats = field(default_factory=lambda: np.zeros(0))

    @cached_property
    def unsure(self) -> float:
        """The squared error of the replicates that is not about the one-way marginals, by degrees of freedom."""
        a, b = self.fitted.shape
        return float(self.boot.sum()) * (a - 1) * (b - 1) / (a * b - 1)

    @cached_property
    def learnt(self) -> float:
        """The squared distance of the model's table from independence."""
        return float(((self.fitted - np.outer(self.fitted.sum(axis=1), self.fitted.sum(axis=0))) ** 2).sum())

    @cached_property
    def size(self) -> float:
        return _size(self.fitted)

    @cached_property
    def shared(self) -> float:
        """From var(r - y) = var(r) + var(y) - 2 cov(r, y)."""
        boot = float(self.boot.sum())
        return float(np.clip((boot + float((self.noise - self.residual).sum())) / 2 / max(boot, 1e-300), 0.0, 1.0))

    def _law(self, bias: Floats) -> tuple[float, Floats, Floats]:
        """The weighted squared residuals, and shape and scale of the gamma law that they follow at each squared bias."""
        weights = self.shape / self.residual**2
        each = weights * (self.residual + bias[:, None, None] * self.shape)
        mean, variance = each.sum(axis=(1, 2)), 2 * (each**2).sum(axis=(1, 2))
        assert self.raw is not None
        return float((weights * (self.fitted - self.raw) ** 2).sum()), mean**2 / variance, variance / mean

    @property
    def chance(self) -> float:
        """Of residuals at least as large, were there no bias."""
        found, shape, width = self._law(np.zeros(1))
        return float(gammaincc(shape, found / width)[0])

    def judged(self, scale: float, prior: Floats) -> PairMisfit:
        """The misfit of this pair if squared biases are `scale` times exp(STEPS) with these chances."""
        bias = scale * np.exp(STEPS)
        if self.raw is None:
            return PairMisfit(float(prior @ bias / prior.sum()))
        found, shape, width = self._law(bias)
        logs = (shape - 1) * np.log(found) - found / width - shape * np.log(width) - gammaln(shape)
        chances = prior * (
            np.exp(logs - logs.max()) + 1e-9
        )  # the constant: one odd pair does not rule out everything else
        expected = float(chances @ bias / chances.sum())
        if self.chance > REJECTS:
            return PairMisfit(expected, self.shared)
        boot, noise = float(self.boot.sum()), float(self.noise.sum())
        apart = expected + max(boot + noise - 2 * self.shared * boot, 0.05 * noise)
        return PairMisfit(expected, self.shared, min((expected + boot * (1 - self.shared)) / apart, 1.0))


@dataclass(frozen=True)
class Misfit:
    """The misfit of the pairs that were looked at, and for others the squared bias in units of their `size`."""

    pairs: Mapping[frozenset[str], PairMisfit]
    typical: float = 0.0

    def of(self, pair: Sequence[str], table: Floats) -> PairMisfit:
        """Of any pair, with its fitted table."""
        return self.pairs.get(frozenset(pair)) or PairMisfit(self.typical * _size(table))


def local_misfit(
    model: Model, refits: Sequence[Model], targets: PairTargets | None, redrawn: Sequence[PairTargets]
) -> Misfit:
    """The misfit of the pairs that were asked together, from the real residuals and those of the replicates.

    Without the real answers every pair gets what is to be expected before any residual is seen.
    """
    names = model.schema.names
    every = list(combinations(range(len(names)), 2))
    if targets is not None:
        every = [pair for pair in every if targets.pair_noise[1][pair] > 0]
    chosen = every[:: max(1, -(-len(every) // MOST_PAIRS))]
    pairs = {pair: _compare(model, refits, targets, redrawn, pair) for pair in chosen}
    unsure = sum(pair.unsure for pair in pairs.values())
    by_size = unsure / max(sum(pair.size for pair in pairs.values()), 1e-300)
    unlearnt = min(unsure / max(sum(pair.learnt for pair in pairs.values()), 1e-300), MOST_UNLEARNT)
    prior = np.exp(-0.5 * ((STEPS - np.log(LEAST + MISSED * unlearnt)) / APART) ** 2)
    out = {}
    for (i, j), pair in pairs.items():
        scale = max(OWN * pair.unsure + (1 - OWN) * by_size * pair.size, 1e-300)
        out[frozenset((names[i], names[j]))] = pair.judged(scale, prior)
    sizes = sum(pair.size for pair in pairs.values())
    return Misfit(out, sum(pair.bias for pair in out.values()) / max(sizes, 1e-300))


def _compare(
    model: Model,
    refits: Sequence[Model],
    targets: PairTargets | None,
    redrawn: Sequence[PairTargets],
    pair: tuple[int, int],
) -> _Pair:
    i, j = pair
    names = [model.schema.names[i], model.schema.names[j]]
    fitted = model.marginal(names)
    again = np.stack([refit.marginal(names) for refit in refits])
    boot = again.var(axis=0, ddof=1) + (again.mean(axis=0) - fitted) ** 2
    shape = pair_bias(model.schema, names, fitted).variances
    if targets is None:
        return _Pair(fitted, shape, boot)
    block = targets.columns.of(i), targets.columns.of(j)
    noise = _noise(targets, pair, fitted)
    # A replicate may have asked this pair more or less often than the real campaign, so its residuals count in units of its own
    # noise; the replicates are few, so that one ratio serves for the whole table.
    ratios = [
        float(((refit - drawn.pairs[block]) ** 2 / _noise(drawn, pair, fitted)).mean())
        for refit, drawn in zip(again, redrawn, strict=True)
        if drawn.pair_noise[1][i, j] > 0
    ]
    ratio = float(np.mean(ratios)) if ratios else 1.0
    return _Pair(fitted, shape, boot, targets.pairs[block], noise, noise * ratio)


def _size(table: Floats) -> float:
    """How much there is to err: the sum of p(1-p) q(1-q) over a pair's cells."""
    first, second = table.sum(axis=1), table.sum(axis=0)
    return float((first * (1 - first)).sum() * (second * (1 - second)).sum())


def _noise(targets: PairTargets, pair: tuple[int, int], frequencies: Floats) -> Floats:
    """The variances of a pair's raw estimates; the floor keeps cells that are nearly empty from ruling at a large epsilon."""
    c0, c1, c2 = (float(c[pair]) for c in targets.pair_noise)
    return np.asarray(np.maximum(c0 + frequencies * (c1 - c2 * frequencies), 1e-3 * c2))


def misfit_notes(machine: ProtocolMachine, model: Model) -> JsonObject:
    """The pairs whose raw estimates the model does not fit, for a release's notes; nothing where all fit or none were asked.

    The test needs no replicates: squared residuals in units of the raw noise, which a model fitted to the data can only make
    smaller. The level is shared by all pairs.
    """
    machine, model = machine.core, core_of(model)  # what was fitted, against what it was fitted to
    answers = answers_of(machine.counted)
    if not any(len(answer.question.attributes) > 1 for answer in answers):
        return {}
    targets, names = pair_targets(machine.campaign.schema, answers), model.schema.names
    every = [p for p in combinations(range(len(names)), 2) if targets.pair_noise[1][p] > 0]
    found = []
    for pair in every[:: max(1, -(-len(every) // MOST_PAIRS))]:
        fitted = model.marginal([names[i] for i in pair])
        noise, block = _noise(targets, pair, fitted), tuple(targets.columns.of(i) for i in pair)
        shape = pair_bias(model.schema, [names[i] for i in pair], fitted).variances
        chance = _Pair(fitted, shape, np.zeros_like(fitted), targets.pairs[block], noise, noise).chance
        if chance < MISFIT_LEVEL / len(every):
            found.append((chance, " x ".join(names[i] for i in pair)))
    return {"misfit": [words for _, words in sorted(found)]} if found else {}
