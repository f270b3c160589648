"""All noisy marginals of a campaign as one matrix of pair marginals with known noise: what the mixture is fitted to.

The domains of all attributes are laid side by side in D columns, so that every pair marginal is a block of one D x D matrix.
Answers about larger sets enter through their pair marginals; several answers about a pair are averaged with weights inverse to
their variance. The variance of a cell of frequency f is c0 + c1 f - c2 f^2: the mechanism's, which is linear in f, plus
f(1-f)/n because only n of the participants were asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dither.estimate.pool import AnswerCounts, check_asked
from dither.estimate.project import norm_sub
from dither.mechanisms import Mechanism
from dither.schema import Schema
from dither.types import Flags, Floats, Indices, Reals

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
        """Whether anybody was asked about two attributes together."""
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
            low, high = mechanism.group_variance(group, 0.0, 1), mechanism.group_variance(group, 1.0, 1)
            c = self._known[mechanism, group] = np.array([low, high - low + 1.0, 1.0])
        f = 1.0 / cells
        return answer.n / float(c[0] + c[1] * f - c[2] * f * f), c / answer.n


def pair_targets(schema: Schema, answers: Sequence[AnswerCounts]) -> PairTargets:
    """Pool all answers into pair and single targets; every attribute must have been asked about."""
    check_asked(schema, answers)
    columns, d = Columns(schema.cardinalities, [a.answers if a.ordered else 0 for a in schema]), len(schema)
    place = {name: i for i, name in enumerate(schema.names)}
    pairs = _Average((columns.width, columns.width), (d, d))
    singles, one = _Average((columns.width,), (d,)), _Average((columns.width,), (d,))
    book = NoiseBook()
    for answer in answers:
        members = [place[name] for name in answer.question.attributes]
        raw = answer.question.mechanism.estimate(answer.support, answer.n).frequencies
        table = raw.reshape([schema.cardinalities[i] for i in members])
        for axis, i in enumerate(members):
            marginal = table.sum(axis=tuple(a for a in range(table.ndim) if a != axis))
            precision, c = book.of(answer, raw.size // marginal.size, marginal.size)
            for average in (one, singles) if len(members) == 1 else (one,):
                average.weighted[columns.of(i)] += precision * marginal
                average.precision[i] += precision
                average.noise[:, i] += precision**2 * c
        for (first, i), (second, j) in combinations(enumerate(members), 2):
            marginal = table.sum(axis=tuple(a for a in range(table.ndim) if a not in (first, second)))
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
    cells = float((np.outer(k, k) * (pairs.precision > 0)).sum() / 2 + (k * (singles.precision > 0)).sum())
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


def inverse_variances(targets: PairTargets, pair: Floats, one: Floats) -> tuple[Floats, Floats]:
    """Weights of all pair cells and single cells at given frequencies; zero where nothing was asked."""
    c0, c1, c2 = (targets.columns.spread_pairs(c) for c in targets.pair_noise)
    s0, s1, s2 = (targets.columns.spread(c) for c in targets.single_noise)
    return _inverse(c0 + pair * (c1 - c2 * pair), c1 > 0, c2), _inverse(s0 + one * (s1 - s2 * one), s1 > 0, s2)


def _inverse(variance: Floats, asked: Flags, sampling: Floats) -> Floats:
    # At a frequency of exactly 0 or 1 and a large epsilon the variance vanishes; a floor keeps one cell from ruling the fit.
    floored = np.maximum(variance, 1e-3 * sampling)
    return np.where(asked, 1.0 / np.where(asked, floored, 1.0), 0.0)


# Answers about sets of attributes, each table whole, and what a mixture of products says of them.


MOST_ATTRIBUTES = 40  # of a schema whose tables are fitted whole; with 60 it took longer and was no better than pairs
_BLOCK_ROWS = 512  # rows of the thin matrices that go through together: what a processor's cache holds


@dataclass(frozen=True)
class SetBlock:
    """Answered sets of one shape: their tables as (set, 1, row, column), rows the first `cut` members, columns the others.

    `noise` are the coefficients c0, c1, c2 of a cell's variance c0 + c1 f - c2 f^2; `shares` say how much of a member's pooled
    one-way marginal comes from each set; `where` are the members' columns in the matrix of all domains side by side.
    """

    members: Indices
    shape: tuple[int, ...]
    cut: int
    tables: Reals
    noise: tuple[Reals, Reals, Reals]
    shares: Reals
    where: tuple[Indices, ...]

    def variances(self, f: Reals) -> Reals:
        """The variances of the cells at given frequencies; never zero, so that one cell cannot rule a fit."""
        c0, c1, c2 = self.noise
        return np.asarray(np.maximum(c0 + f * (c1 - c2 * f), 1e-3 * c2 / math.prod(self.shape)))

    def halves(self, by_column: Reals) -> tuple[Reals, Reals]:
        """The two thin matrices of all starts: (set, start, cells of the half, component); no members make a column of ones."""
        rows, columns = (_product(self.factors(by_column, part)) for part in self.parts)
        if columns is None:
            columns = np.ones((len(self.members), 1, *by_column.shape[1:]))
        assert rows is not None
        return rows.transpose(0, 2, 1, 3), columns.transpose(0, 2, 1, 3)

    @property
    def parts(self) -> tuple[range, range]:
        """The places of the members in either half."""
        return range(self.cut), range(self.cut, len(self.shape))

    def factors(self, by_column: Reals, places: range) -> list[Reals]:
        """The components of some members: (set, value, start, component) each."""
        return [by_column[self.where[p]] for p in places]

    def one_way(self, tables: Reals) -> Iterator[tuple[int, int, Reals]]:
        """Every set's marginal of every member: (set, member's place, values)."""
        whole = tables.reshape(len(tables), *self.shape)
        for place in range(len(self.shape)):
            marginals = whole.sum(axis=tuple(1 + p for p in range(len(self.shape)) if p != place))
            yield from ((number, place, values) for number, values in enumerate(marginals))


@dataclass(frozen=True)
class SetTargets:
    """All answered sets, in blocks of equal shape, which go through together.

    Pair marginals of a larger set's table tell nothing of what three of its attributes do together; the table itself does. A
    set's members are put into two groups. The mixture's table is then one product of two thin matrices, component by component,
    and so is each half of its gradient.
    """

    columns: Columns
    blocks: tuple[SetBlock, ...]
    cells: int


def tables_pay(attributes: int, answers: Sequence[AnswerCounts]) -> bool:
    """Whether to fit whole tables: somebody was asked about three attributes or more together, of not too many."""
    return attributes <= MOST_ATTRIBUTES and any(len(answer.question.attributes) > 2 for answer in answers)


@dataclass
class _AskedSet:
    """What was answered about one set: precision-weighted sums."""

    table: Reals
    precision: float
    noise: Reals
    one_way: Reals  # the precision of each member's marginal

    def add(self, other: _AskedSet) -> None:
        self.table += other.table
        self.precision += other.precision
        self.noise += other.noise
        self.one_way += other.one_way


def set_targets(schema: Schema, answers: Sequence[AnswerCounts], columns: Columns) -> SetTargets:
    """Each set's table once, several answers about a set averaged with weights inverse to their variance."""
    k, place, book = schema.cardinalities, {name: i for i, name in enumerate(schema.names)}, NoiseBook()
    asked: dict[tuple[int, ...], _AskedSet] = {}
    total = np.zeros(len(k))
    for answer in answers:
        given = [place[name] for name in answer.question.attributes]
        order = sorted(range(len(given)), key=lambda p: (k[given[p]], given[p]))
        members = tuple(given[p] for p in order)
        raw = answer.question.mechanism.estimate(answer.support, answer.n).frequencies
        table = raw.reshape([k[i] for i in given]).transpose(order).ravel()
        precision, c = book.of(answer, 1, raw.size)
        one_way = np.array([book.of(answer, raw.size // k[i], k[i])[0] for i in members])
        found = _AskedSet(precision * table, precision, precision**2 * c, one_way)
        if members in asked:
            asked[members].add(found)
        else:
            asked[members] = found
        total[list(members)] += one_way
    by_shape: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for members in asked:
        by_shape.setdefault(tuple(k[i] for i in members), []).append(members)
    blocks = []
    for shape, sets in by_shape.items():
        cut = _balanced(shape)
        rows, width = math.prod(shape[:cut]), math.prod(shape[cut:])
        step = max(1, _BLOCK_ROWS // (rows + width))
        for begin in range(0, len(sets), step):
            part = sets[begin : begin + step]
            found_here = [asked[members] for members in part]
            index = np.array(part, dtype=np.intp)
            noise = np.array([f.noise / f.precision**2 for f in found_here])[:, :, None, None, None]
            blocks.append(
                SetBlock(
                    index,
                    shape,
                    cut,
                    np.array([f.table / f.precision for f in found_here]).reshape(len(part), 1, rows, width),
                    (noise[:, 0], noise[:, 1], noise[:, 2]),
                    np.array([f.one_way for f in found_here]) / total[index],
                    tuple(columns.starts[index[:, p]][:, None] + np.arange(size) for p, size in enumerate(shape)),
                )
            )
    return SetTargets(columns, tuple(blocks), sum(block.tables.size for block in blocks))


def _balanced(shape: tuple[int, ...]) -> int:
    """Where to cut a set's members so that the two halves have the fewest cells together; a single member is a row."""
    cuts = range(1, max(2, len(shape)))
    return min(cuts, key=lambda c: math.prod(shape[:c]) + math.prod(shape[c:]))


def _product(factors: list[Reals]) -> Reals | None:
    """Row-wise outer products of (set, values, start, component) arrays."""
    out: Reals | None = None
    for factor in factors:
        out = factor if out is None else (out[:, :, None] * factor[:, None]).reshape(len(out), -1, *out.shape[2:])
    return out


def predicted(weights: Reals, halves: tuple[Reals, Reals]) -> Reals:
    """A block's tables of all starts: (set, start, row, column)."""
    return np.asarray((halves[0] * weights[:, None, :]) @ halves[1].swapaxes(-1, -2))


def pull_back(
    block: SetBlock, columns: Columns, by_column: Reals, halves: tuple[Reals, Reals], pull: Reals, out: Reals
) -> Reals:
    """Add the gradient in the components (each divided by its weight) to `out`; gives the gradient in the weights.

    `pull` is the derivative of the loss in the block's tables; `out` is laid out as `by_column`: (column, start, component).
    """
    toward = pull @ halves[1], pull.swapaxes(-1, -2) @ halves[0]
    for part, gradient in zip(block.parts, toward, strict=True):
        _chain(block, columns, part, gradient, by_column, out)
    return np.asarray(np.einsum("nskc,nskc->sc", toward[0], halves[0]))


def _chain(block: SetBlock, columns: Columns, places: range, toward: Reals, by_column: Reals, out: Reals) -> None:
    """From the gradient in a half's product to that in each of its factors: the factors are split in two, again and again."""
    if len(places) <= 1:
        for place in places:
            for number, attribute in enumerate(block.members[:, place]):
                out[columns.of(int(attribute))] += toward[number].swapaxes(0, 1)
        return
    parts = places[: len(places) // 2], places[len(places) // 2 :]
    first, second = (_product(block.factors(by_column, part)) for part in parts)
    assert first is not None
    assert second is not None
    sets, starts, _, components = toward.shape
    split = toward.reshape(sets, starts, first.shape[1], second.shape[1], components)
    _chain(block, columns, parts[0], np.einsum("nsabc,nbsc->nsac", split, second), by_column, out)
    _chain(block, columns, parts[1], np.einsum("nsabc,nasc->nsbc", split, first), by_column, out)
