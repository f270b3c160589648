"""All noisy marginals of a campaign as one matrix of pair marginals with known noise.

The domains of all attributes are side by side in D columns, so every pair marginal is a block of
one D x D matrix. Answers about larger sets enter through their pair marginals; several answers
about a pair are averaged with weights inverse to their variance. The variance of a cell of
frequency f is c0 + c1 f - c2 f^2: the mechanism's, which is linear in f, plus f(1-f)/n because
only n of the participants were asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dither.fit.pool import AnswerCounts, check_asked
from dither.fit.project import norm_sub
from dither.mechanisms import Mechanism, kernels
from dither.schema import Schema
from dither.types import Flags, Floats

Noise = tuple[Floats, Floats, Floats]


class Columns:
    """The attributes' domains side by side."""

    def __init__(self, cardinalities: Sequence[int], ordered: Sequence[int] | None = None) -> None:
        """`ordered` says of each attribute how many of its first codes are in an order that means something (0: none)."""
        self.cardinalities = np.asarray(cardinalities, dtype=np.intp)
        self.stops = np.cumsum(self.cardinalities)
        self.starts = self.stops - self.cardinalities
        self.width = int(self.stops[-1])
        self.left, self.right = np.arange(self.width), np.arange(self.width)
        self.ordered = tuple(ordered) if ordered else (0,) * len(self.cardinalities)
        for start, count in zip(self.starts, ordered or [], strict=False):
            self.left[start + 1 : start + count] -= 1
            self.right[start : start + max(count - 1, 0)] += 1

    def of(self, attribute: int) -> slice:
        """The columns of one attribute."""
        return slice(int(self.starts[attribute]), int(self.stops[attribute]))

    def spread(self, values: Floats) -> Floats:
        """One value per attribute, repeated over its columns (last axis)."""
        return np.asarray(np.repeat(values, self.cardinalities, axis=-1))

    def spread_pairs(self, values: Floats) -> Floats:
        """One value per pair of attributes, repeated over its block."""
        return self.spread(np.repeat(values, self.cardinalities, axis=0))

    def sums(self, values: Floats) -> Floats:
        """Sums over each attribute's columns (last axis)."""
        return np.asarray(np.add.reduceat(values, self.starts, axis=-1))

    def smooth(self, values: Floats) -> Floats:
        """Half of each column's value and a quarter of each neighbour's, where neighbouring codes are neighbouring values."""
        return np.asarray(0.5 * values + 0.25 * (values[:, self.left] + values[:, self.right]))

    def softmax(self, logits: Floats) -> Floats:
        """A distribution for each attribute from logits."""
        raised = np.exp(logits - self.spread(np.maximum.reduceat(logits, self.starts, axis=-1)))
        return np.asarray(raised / self.spread(self.sums(raised)))


@dataclass(frozen=True)
class PairTargets:
    """Marginal pair and single estimates; noise coefficients are zero where nothing was asked.

    `singles` pools questions about one attribute alone (those about pairs are in `pairs` already); `one` pools everything
    that was asked about an attribute and is projected to a distribution, `one_variance` is its variance.
    """

    columns: Columns
    pairs: Floats
    pair_noise: Noise
    singles: Floats
    single_noise: Noise
    one: Floats
    one_variance: Floats
    cells: float

    @property
    def has_pairs(self) -> bool:
        """Whether any pair was asked."""
        return bool((self.pair_noise[1] > 0).any())


class _Average:
    """A precision-weighted average of frequencies with the noise coefficients it ends up with."""

    def __init__(self, values: tuple[int, ...], groups: tuple[int, ...]) -> None:
        self.weighted = np.zeros(values)
        self.precision = np.zeros(groups)
        self.noise = np.zeros((3, *groups))

    def finished(self, spread: Floats) -> Floats:
        return np.asarray(self.weighted / spread)

    @property
    def safe(self) -> Floats:
        return np.where(self.precision > 0, self.precision, 1.0)

    @property
    def coefficients(self) -> Noise:
        c0, c1, c2 = self.noise / self.safe**2
        return c0, c1, c2


class NoiseBook:
    """The noise of one report by mechanism and number of cells summed, worked out once: thousands of questions share few."""

    def __init__(self) -> None:
        self._known: dict[tuple[Mechanism, int], Floats] = {}

    def of(self, answer: AnswerCounts, group: int, cells: int) -> tuple[float, Floats]:
        """The precision at frequency 1/cells, and the coefficients of a cell that sums `group` cells of the question."""
        mechanism = answer.question.mechanism
        c = self._known.get((mechanism, group))
        if c is None:
            low, high = (
                mechanism.group_variance(group, 0.0, 1),
                mechanism.group_variance(group, 1.0, 1),
            )
            c = self._known[mechanism, group] = np.array([low, high - low + 1.0, 1.0])
        f = 1.0 / cells
        return answer.n / float(c[0] + c[1] * f - c[2] * f * f), c / answer.n


def pair_targets(
    schema: Schema,
    answers: Sequence[AnswerCounts],
    moved_by: float = 0.0,
    rng: np.random.Generator | None = None,
) -> PairTargets:
    """Pool all answers into pair and single targets.

    Args:
        schema: The attributes; every one must have been asked about.
        answers: The answers to all questions.
        moved_by: Noise to add to each answer's table, in units of its own noise. Pairs of one
            set move together, as its people answered all of them.
        rng: Source of that noise.
    """
    check_asked(schema, answers)
    columns, d = (
        Columns(schema.cardinalities, [a.answers if a.ordered else 0 for a in schema]),
        len(schema),
    )
    place = {name: i for i, name in enumerate(schema.names)}
    pairs = _Average((columns.width, columns.width), (d, d))
    singles, one = _Average((columns.width,), (d,)), _Average((columns.width,), (d,))
    book = NoiseBook()
    for answer in answers:
        members = [place[name] for name in answer.question.attributes]
        raw = kernels.estimate(answer.question.mechanism, answer.support, answer.n).frequencies
        if rng is not None:
            raw = raw + moved_by * _own_noise(raw, book.of(answer, 1, raw.size)[1], rng)
        table = raw.reshape([schema.cardinalities[i] for i in members])
        for axis, i in enumerate(members):
            marginal = table.sum(axis=tuple(a for a in range(table.ndim) if a != axis))
            precision, c = book.of(answer, raw.size // marginal.size, marginal.size)
            for average in (one, singles) if len(members) == 1 else (one,):
                average.weighted[columns.of(i)] += precision * marginal
                average.precision[i] += precision
                average.noise[:, i] += precision**2 * c
        for (first, i), (second, j) in combinations(enumerate(members), 2):
            marginal = table.sum(
                axis=tuple(a for a in range(table.ndim) if a not in (first, second))
            )
            precision, c = book.of(answer, raw.size // marginal.size, marginal.size)
            # Each block once; the other triangle is mirrored below.
            low, high, block = (i, j, marginal) if i < j else (j, i, marginal.T)
            pairs.weighted[columns.of(low), columns.of(high)] += precision * block
            pairs.precision[low, high] += precision
            pairs.noise[:, low, high] += precision**2 * c
    pairs.weighted += pairs.weighted.T
    pairs.precision += pairs.precision.T
    pairs.noise += pairs.noise.transpose(0, 2, 1)
    raw_one = one.finished(columns.spread(one.precision))
    projected = np.concatenate([norm_sub(raw_one[columns.of(i)]) for i in range(d)])
    k = columns.cardinalities.astype(np.float64)
    cells = float(
        (np.outer(k, k) * (pairs.precision > 0)).sum() / 2 + (k * (singles.precision > 0)).sum()
    )
    return PairTargets(
        columns,
        pairs.finished(columns.spread_pairs(pairs.safe)),
        pairs.coefficients,
        singles.finished(columns.spread(singles.safe)),
        singles.coefficients,
        projected,
        columns.spread(1.0 / one.precision),
        cells,
    )


def _own_noise(raw: Floats, noise: Floats, rng: np.random.Generator) -> Floats:
    """A draw of an answer's noise; cells are taken as independent."""
    f = np.clip(raw, 0.0, 1.0)
    variance = np.maximum(noise[0] + f * (noise[1] - noise[2] * f), 0.0)
    return np.asarray(np.sqrt(variance) * rng.standard_normal(len(raw)))


def inverse_variances(targets: PairTargets, pair: Floats, one: Floats) -> tuple[Floats, Floats]:
    """Weights of all pair cells and single cells at given frequencies; zero where nothing was asked."""
    c0, c1, c2 = (targets.columns.spread_pairs(c) for c in targets.pair_noise)
    s0, s1, s2 = (targets.columns.spread(c) for c in targets.single_noise)
    return _inverse(c0 + pair * (c1 - c2 * pair), c1 > 0, c2), _inverse(
        s0 + one * (s1 - s2 * one), s1 > 0, s2
    )


def chi_square(
    targets: PairTargets, weights: tuple[Floats, Floats], pairs: Floats, one: Floats
) -> float:
    """The weighted squares between a model's pairs and single frequencies and the data; every pair is in the matrix twice."""
    w2, w1 = weights
    off = pairs - targets.pairs
    return 0.5 * float(np.vdot(w2 * off, off)) + float(w1 @ (one - targets.singles) ** 2)


def _inverse(variance: Floats, asked: Flags, sampling: Floats) -> Floats:
    # At a frequency of exactly 0 or 1 and a large epsilon the variance vanishes; a floor keeps one cell from ruling the fit.
    floored = np.maximum(variance, 1e-3 * sampling)
    return np.where(asked, 1.0 / np.where(asked, floored, 1.0), 0.0)


def one_way_precisions(targets: PairTargets) -> tuple[Floats, Floats]:
    """One over the variance of an attribute's marginal in each pair, and in single questions.

    The first is (attribute, other attribute of the pair). Frequencies are taken as equal.
    """
    k = targets.columns.cardinalities.astype(np.float64)
    c0, c1, _ = targets.pair_noise
    s0, s1, _ = targets.single_noise
    pairs = np.where(c1 > 0, 1.0 / np.where(c1 > 0, c0 * k[None, :] + c1 / k[:, None], 1.0), 0.0)
    alone = np.where(s1 > 0, 1.0 / np.where(s1 > 0, s0 + s1 / k, 1.0), 0.0)
    return np.asarray(pairs), np.asarray(alone)
