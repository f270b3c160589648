"""Joint distributions of attributes from split reports: by EM, by Lasso, or by Lasso and then EM.

Reference: Ren et al., "LoPub", IEEE TIFS 2018, algorithms 1 to 3, and the m-way EM of BayesNet
(algorithm 2). `SplitReports` reads a multiset of whole reports, each with an answer to every
question.

EM uses the likelihood that compares received bits with the candidate's filter (erratum 2) and
stops on the largest change of a cell (erratum 4). It is accelerated by SQUAREM (Varadhan,
Roland, Scand. J. Statist. 2008), guarded by the likelihood. An attribute's likelihoods are an
n x k matrix. The attributes form two groups whose row-wise (Khatri-Rao) products A and B have
about equally many columns. With the joint P as a matrix between the groups, one step is two
matrix products,

    d = rowsum((A P) * B)        P <- P * (A' diag(w / d) B) / n,

computed in blocks of rows, so that n x (product of domains) never exists.

The Lasso as printed regresses the bit sums of each attribute on the concatenated filters of all
combinations. Those sums carry one-way information only, so any two joints with equal one-way
marginals fit equally well (erratum 3): `paper_lasso` keeps it for comparison. `simplex_lasso`
regresses the unbiased co-occurrence of bits of different attributes on the Kronecker product of
the filters, with the co-occurrences of fewer attributes and the bit sums as further rows, every
row weighted by its inverse variance. Both use the constrained form (Tibshirani, JRSS B 1996,
eq. 2): least squares with non-negative coefficients whose L1 norm is at most a budget. For
frequencies the budget is 1, so there is no penalty to choose. With unary encoding and
co-occurrences alone the design is the identity and the solution is norm-sub.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso
from threadpoolctl import threadpool_limits

from dither.checks import check_choice
from dither.errors import ParameterError
from dither.fit.marginal import Marginal
from dither.fit.project import norm_sub
from dither.mechanisms import BitMechanism, Mechanism
from dither.reports import Plan
from dither.schema.cells import codes_of
from dither.tally import PatternTally, report_bits
from dither.types import AnyArray, Bytes, Floats, Integers, Singles

_MAX_JOINT_CELLS = 1 << 24
"""The largest joint that EM takes on: six tables of doubles of this size are 800 MB, the stated bound on its memory."""

_BLOCK_ROWS = 4096
_BLOCK_BYTES = 1 << 25
_CACHE_BYTES = 1 << 28
# Products of likelihoods stay above this, inside the range of 32-bit floats.
_SMALLEST = 1e-30


@dataclass(frozen=True)
class _EMResult:
    """A joint distribution, one axis per attribute; `steps` counts passes over the reports."""

    joint: Floats
    steps: int
    converged: bool
    log_likelihood: float


def bit_likelihood(
    bits: Bytes, filters: Bytes | None, p: float, q: float, attributes: int = 1
) -> Singles:
    """P(report | value), each row up to a factor, for every report (row of bits) and value.

    `filters` has the bits that each value sets, one row per value; None for unary encoding,
    where value v sets bit v only. A set bit is reported as set with p, another with q. Products
    over `attributes` of them stay in the range of 32-bit floats.
    """
    floor = _SMALLEST ** (1.0 / max(attributes, 1))
    if filters is None:
        ratio = q * (1 - p) / (p * (1 - q))
        return np.array([max(ratio, floor), 1.0], np.float32)[bits]
    given = filters.astype(np.float32)
    one = given * math.log(p) + (1 - given) * math.log(q)
    zero = given * math.log(1 - p) + (1 - given) * math.log(1 - q)
    log = bits.astype(np.float32) @ (one - zero).T.astype(np.float32) + zero.sum(1).astype(
        np.float32
    )
    log -= log.max(axis=1, keepdims=True)
    np.exp(log, out=log)
    return np.asarray(np.maximum(log, np.float32(floor)))


def check_cells(
    cardinalities: Sequence[int], names: Sequence[str] | None = None, most: int = _MAX_JOINT_CELLS
) -> int:
    """The number of cells of a joint that fits, or an error that says how large it is."""
    cells = math.prod(cardinalities)
    if cells > most:
        what = ", ".join(names) if names else f"{len(cardinalities)} attributes"
        raise ParameterError(
            f"the joint of {what} has {cells:,} cells, more than the {most:,} that fit the memory bound; "
            "ask fewer attributes",
            where="attributes",
            value=cells,
        )
    return cells


def expectation_maximisation(
    likelihoods: Sequence[Singles],
    weights: Integers | None = None,
    *,
    start: Floats | None = None,
    tolerance: float = 1e-5,
    steps: int = 2_000,
    printed: bool = False,
) -> _EMResult:
    """The joint distribution of attributes from their likelihood matrices, a row per report.

    `weights` has the frequency of each row. It starts from `start` (even by default), whose
    zero cells stay zero. It stops when a step changes no cell by more than `tolerance`, or
    after `steps`; passes are in single precision, so a tolerance below 1e-6 may never be
    reached. The likelihood never decreases between cycles. `printed` takes plain steps and
    stops as in LoPub's algorithm 1, when the largest cell changes by no more than the tolerance.
    """
    shape = tuple(m.shape[1] for m in likelihoods)
    check_cells(shape)
    rows = len(likelihoods[0])
    total = float(rows if weights is None else weights.sum())
    if not total > 0:
        raise ParameterError("EM needs at least one report")
    products = _RowProducts(likelihoods)
    joint = (
        np.full(shape, 1.0 / math.prod(shape))
        if start is None
        else np.asarray(start, np.float64) / np.sum(start)
    )
    passes = _Passes(products, None if weights is None else weights.astype(np.float32), total)
    iterate = _as_printed if printed else _squarem
    matrix, change = iterate(passes, products.fold(joint), tolerance, steps)
    return _EMResult(
        products.unfold(matrix), passes.count, change <= tolerance, passes.log_likelihood
    )


def _as_printed(
    passes: _Passes, before: Floats, tolerance: float, steps: int
) -> tuple[Floats, float]:
    """Plain steps until the largest value, in whichever cell, hardly changes (erratum 4)."""
    while True:
        after = passes.step(before)
        change = abs(float(after.max()) - float(before.max()))
        if change <= tolerance or passes.count >= steps:
            return after, change
        before = after


def _squarem(passes: _Passes, p0: Floats, tolerance: float, steps: int) -> tuple[Floats, float]:
    """Cycles of two steps, an extrapolation and a step; plain if that lowers the likelihood."""
    p1 = passes.step(p0)
    while True:
        first = p1 - p0
        change = float(np.abs(first).max())
        if change <= tolerance or passes.count >= steps:
            return p1, change
        likelihood = passes.log_likelihood
        p2 = passes.step(p1)
        second = p2 - p1
        change = float(np.abs(second).max())
        if change <= tolerance or passes.count >= steps:
            return p2, change
        curvature = float(np.linalg.norm(second - first))
        length = max(1.0, float(np.linalg.norm(first)) / curvature) if curvature > 0 else 1.0
        ahead = p0 + 2 * length * first + length**2 * (second - first)
        # A long step may leave the simplex; a tenth of the plain step keeps cells positive.
        ahead = np.maximum(ahead, 0.1 * p2)
        ahead /= ahead.sum()
        after = passes.step(ahead)
        if passes.log_likelihood < likelihood - 1e-7 * passes.total:
            ahead, after = p2, passes.step(p2)
        p0, p1 = ahead, after


class _Passes:
    """Steps of EM, one pass over the reports each, with their count and last likelihood."""

    def __init__(self, products: _RowProducts, weights: Singles | None, total: float) -> None:
        self.products, self.weights, self.total = products, weights, total
        self.count = 0
        self.log_likelihood = -math.inf

    def step(self, matrix: Floats) -> Floats:
        single = matrix.astype(np.float32)
        gained = np.zeros(matrix.shape)
        likelihood = 0.0
        for start, a, b in self.products:
            mixed = a @ single
            mixed *= b
            d = mixed.sum(axis=1)
            log = np.log(d)
            if self.weights is None:
                likelihood += float(log.sum(dtype=np.float64))
                np.divide(b, d[:, None], out=mixed)
            else:
                w = self.weights[start : start + len(d)]
                likelihood += float((w * log).sum(dtype=np.float64))
                np.multiply(b, (w / d)[:, None], out=mixed)
            gained += a.T @ mixed
        self.count += 1
        self.log_likelihood = likelihood
        new = matrix * gained
        return np.asarray(new / new.sum())


class _RowProducts:
    """The row-wise products of two groups of matrices, in blocks.

    `fold` and `unfold` convert a joint table between one axis per matrix and one per group.
    """

    def __init__(self, matrices: Sequence[Singles]) -> None:
        self.matrices = matrices
        self.shape = tuple(m.shape[1] for m in matrices)
        self.left, self.right = _halves(self.shape)
        self.widths = (
            math.prod(self.shape[i] for i in self.left),
            math.prod(self.shape[i] for i in self.right),
        )
        self.rows = len(matrices[0])
        self.block = max(
            64, min(_BLOCK_ROWS, _BLOCK_BYTES // (4 * (self.widths[0] + 2 * self.widths[1])))
        )
        small = self.rows * sum(self.widths) * 4 <= _CACHE_BYTES
        self._kept = list(self._blocks()) if small else None

    def __iter__(self) -> Iterator[tuple[int, Singles, Singles]]:
        return iter(self._kept) if self._kept is not None else self._blocks()

    def _blocks(self) -> Iterator[tuple[int, Singles, Singles]]:
        for start in range(0, self.rows, self.block):
            part = slice(start, start + self.block)
            yield start, self._product(self.left, part), self._product(self.right, part)

    def _product(self, group: tuple[int, ...], part: slice) -> Singles:
        rows = len(range(*part.indices(self.rows)))
        out = np.ones((rows, 1), np.float32)
        for i in group:
            factor = np.ascontiguousarray(self.matrices[i][part])
            out = (
                factor
                if out.shape[1] == 1
                else (out[:, :, None] * factor[:, None, :]).reshape(rows, -1)
            )
        return out

    def fold(self, joint: Floats) -> Floats:
        """A joint table as a matrix between the two groups."""
        return np.ascontiguousarray(np.transpose(joint, self.left + self.right)).reshape(
            self.widths
        )

    def unfold(self, matrix: Floats) -> Floats:
        """The inverse of `fold`."""
        order = self.left + self.right
        table = matrix.reshape([self.shape[i] for i in order])
        return np.ascontiguousarray(np.transpose(table, np.argsort(order)))


def _halves(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two groups with the least sum of column counts; one attribute alone has an empty group."""
    everything = range(len(shape))
    options = [c for size in range(1, len(shape)) for c in combinations(everything, size)]
    if not options:
        return (0,), ()
    total = math.prod(shape)

    def width(group: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        left = math.prod(shape[i] for i in group)
        return left + total // left, group

    left = min(options, key=width)
    return left, tuple(i for i in everything if i not in left)


_MAX_DESIGN = 1 << 27  # entries of the paper's design matrix: 1 GB of doubles


@dataclass(frozen=True)
class Encoding:
    """The encoding of one attribute's values in bits, and the noise of its unbiased estimate.

    `decode` converts a report's bits s to unbiased indicators of the values,
    decode @ (s - q)/(p - q): the pseudo-inverse of the filters. `gram` is filters times their
    transpose, the metric of the regression. `noise` is the variance of each indicator if the
    value is another one, `bump` the additional variance if it is this one.
    """

    filters: Bytes | None
    cells: int
    p: float
    q: float

    @property
    def decode(self) -> Floats | None:
        """None for unary encoding, where it is the identity."""
        return None if self.filters is None else np.linalg.pinv(self.filters.T.astype(np.float64))

    @property
    def gram(self) -> Floats | None:
        """None for unary encoding, where it is the identity."""
        if self.filters is None:
            return None
        dense = self.filters.astype(np.float64)
        return np.asarray(dense @ dense.T)

    @property
    def noise(self) -> Floats:
        """The variance of each value's indicator in one report of another value."""
        single = self.q * (1 - self.q) / (self.p - self.q) ** 2
        decode = self.decode
        return np.full(self.cells, single) if decode is None else single * (decode**2).sum(1)

    @property
    def bump(self) -> float:
        """The additional variance if the report is of this value; zero if p = 1 - q."""
        return (self.p * (1 - self.p) - self.q * (1 - self.q)) / (self.p - self.q) ** 2

    def spread(self, frequencies: Floats) -> Floats:
        """The covariance of one report's centred indicators at these frequencies."""
        single = self.q * (1 - self.q) / (self.p - self.q) ** 2
        decode = self.decode
        noise = (
            np.diag(single + self.bump * frequencies)
            if decode is None
            else single * decode @ decode.T
        )
        noise = noise - noise.mean(axis=0) - noise.mean(axis=1)[:, None] + noise.mean()
        return np.asarray(noise + np.diag(frequencies) - np.outer(frequencies, frequencies))

    def indicators(self, bits: Bytes) -> Singles:
        """Unbiased indicators of the values, one row per report."""
        unbiased = (bits.astype(np.float32) - np.float32(self.q)) / np.float32(self.p - self.q)
        decode = self.decode
        return unbiased if decode is None else unbiased @ decode.T.astype(np.float32)


def pair_cooccurrence(
    both: AnyArray, ones: Sequence[AnyArray], n: int, encodings: Sequence[Encoding]
) -> Floats:
    """Raw, unbiased joint frequencies of two attributes from counts of set bits."""
    a, b = encodings
    first, second = (np.asarray(c, np.float64) / n for c in ones)
    centred = (
        np.asarray(both, np.float64) / n - a.q * second[None, :] - b.q * first[:, None] + a.q * b.q
    )
    raw = centred / ((a.p - a.q) * (b.p - b.q))
    left, right = a.decode, b.decode
    raw = raw if left is None else left @ raw
    return raw if right is None else raw @ right.T


def pair_variance(
    encodings: Sequence[Encoding], rows: Floats, columns: Floats, joint: Floats, n: int
) -> Floats:
    """The variance of each cell of `pair_cooccurrence` at these frequencies."""
    a, b = encodings
    noise_a, noise_b = a.noise[:, None], b.noise[None, :]
    f_a, f_b = rows[:, None], columns[None, :]
    alone = noise_a * noise_b + f_a * noise_b * (a.bump + 1) + f_b * noise_a * (b.bump + 1)
    return np.asarray((alone + joint * (a.bump * b.bump + a.bump + b.bump)) / n)


@dataclass(frozen=True)
class View:
    """Raw frequencies of some axes of a joint, and their weight, an inverse variance."""

    axes: tuple[int, ...]
    target: Floats
    weight: float


def view_weight(encodings: Sequence[Encoding]) -> float:
    """The inverse variance of a co-occurrence of these attributes in one report, averaged over the cells.

    The square of a product of indicators is, on average, prod(s_j^2 + 1/k_j); of that prod(1/k_j) is signal.
    """
    squares = math.prod(e.q * (1 - e.q) / (e.p - e.q) ** 2 + 1 / e.cells for e in encodings)
    return 1.0 / (squares - 1 / math.prod(e.cells for e in encodings))


def simplex_lasso(
    start: Floats,
    views: Sequence[View],
    grams: Sequence[Floats | None],
    *,
    tolerance: float = 1e-6,
    iterations: int = 500,
) -> Floats:
    """Least squares over distributions: the X whose marginals are nearest to all views, in the metric of the filters.

    Minimises sum over views of weight ||F_view (X_view - target)||^2, F_view the Kronecker product of the filters of
    its attributes, over X not negative that add up to one, by accelerated projected gradient with restarts (Beck,
    Teboulle, SIAM J. Imaging Sci. 2009). With unary encoding and the joint itself as the only view it is norm-sub.
    """
    if (
        len(views) == 1
        and views[0].axes == tuple(range(start.ndim))
        and all(g is None for g in grams)
    ):
        return norm_sub(views[0].target)
    sizes = [1.0 if g is None else float(np.linalg.norm(g, 2)) for g in grams]
    steepest = sum(
        v.weight * math.prod(sizes[i] for i in v.axes) * start.size / v.target.size for v in views
    )
    estimate = norm_sub(start)
    ahead, momentum = estimate, 1.0
    for _ in range(iterations):
        gradient = np.zeros(start.shape)
        for v in views:
            others = tuple(a for a in range(start.ndim) if a not in v.axes)
            pull = _apply([grams[i] for i in v.axes], ahead.sum(axis=others) - v.target)
            gradient += np.expand_dims(v.weight * pull, others)
        new = norm_sub(ahead - gradient / steepest)
        if float((gradient * (new - estimate)).sum()) > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * (new - estimate)
        change = float(np.abs(new - estimate).max())
        estimate, momentum = new, following
        if change <= tolerance:
            break
    return estimate


def _apply(grams: Sequence[Floats | None], table: Floats) -> Floats:
    """Multiply each axis of a table by its matrix."""
    for axis, gram in enumerate(grams):
        if gram is not None:
            table = np.moveaxis(np.tensordot(gram, table, axes=(1, axis)), 0, axis)
    return table


def paper_lasso(bit_sums: Sequence[AnyArray], n: int, encodings: Sequence[Encoding]) -> Floats:
    """LoPub's regression as printed: unidentifiable, kept for comparison (erratum 3).

    The penalty is the usual noise level, sd * sqrt(2 ln cells), of the correlations of the design with pure noise.
    """
    shape = [e.cells for e in encodings]
    cells = math.prod(shape)
    rows = sum(len(s) for s in bit_sums)
    if rows * cells > _MAX_DESIGN:
        raise ParameterError(
            f"the paper's design matrix would have {rows:,} x {cells:,} entries; ask fewer attributes, or use "
            "lasso_features=cooccurrence",
            where="lasso_features",
        )
    target = np.concatenate(
        [(np.asarray(s) / n - e.q) / (e.p - e.q) for s, e in zip(bit_sums, encodings, strict=True)]
    )
    codes = codes_of(np.arange(cells), shape)
    design = np.concatenate(
        [_filters(e)[c] for e, c in zip(encodings, codes.T, strict=True)], axis=1
    ).T.astype(np.float64)
    noise = math.sqrt(max(e.q * (1 - e.q) / (e.p - e.q) ** 2 for e in encodings) / n)
    largest = math.sqrt(float((design**2).sum(0).max()))
    penalty = noise * largest * math.sqrt(2 * math.log(cells)) / rows
    model = Lasso(alpha=penalty, positive=True, fit_intercept=False, max_iter=5_000, tol=1e-4)
    found = np.maximum(_quietly(model, design, target), 0.0).reshape(shape)
    total = found.sum()
    return found / total if total > 0 else np.full(shape, 1.0 / cells)


def _quietly(model: Any, design: Floats, target: Floats) -> Floats:
    """The coefficients, without the convergence warning that a singular design always causes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(model.fit(design, target).coef_, np.float64)


def _filters(encoding: Encoding) -> Bytes:
    return np.eye(encoding.cells, dtype=np.uint8) if encoding.filters is None else encoding.filters


Estimator = Literal["em", "lasso", "hybrid"]
ESTIMATORS: tuple[Estimator, ...] = ("em", "lasso", "hybrid")
Features = Literal["cooccurrence", "paper"]
Progress = Callable[[int, int], None]

_ROWS = 1 << 15
_MAX_CODE_BITS = 22  # reports of few bits are counted by their bits as a number


@dataclass(frozen=True)
class JointEstimate:
    """A joint distribution of some attributes, and the steps of its fit."""

    attributes: tuple[str, ...]
    joint: Floats
    estimator: str
    steps: int
    converged: bool


@dataclass(frozen=True)
class SplitReports:
    """Distinct reports of a split plan with one attribute per question, and how often each came."""

    plan: Plan
    patterns: Bytes
    counts: Integers

    def __post_init__(self) -> None:
        for question in self.plan.questions:
            if len(question.attributes) != 1:
                raise ParameterError(
                    "joint estimation needs questions about one attribute each",
                    value=question.attributes,
                )
        if not len(self.patterns):
            raise ParameterError("there are no reports to estimate from")

    @classmethod
    def from_tally(cls, tally: PatternTally) -> SplitReports:
        """The reports of a closed round."""
        return cls(tally.plan, tally.patterns, tally.counts)

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes that the reports answer."""
        return tuple(q.attributes[0] for q in self.plan.questions)

    @cached_property
    def n(self) -> int:
        """How many people reported."""
        return int(self.counts.sum())

    def position(self, name: str) -> int:
        """Where the reports answer an attribute; an error lists the ones they do."""
        if name not in self.names:
            raise ParameterError(
                f"the reports hold no answer about {name!r}; they are about {', '.join(self.names)}",
                where=name,
            )
        return self.names.index(name)

    @cached_property
    def encodings(self) -> tuple[Encoding, ...]:
        """How each attribute's values became bits."""
        return tuple(_encoding_of(q.mechanism) for q in self.plan.questions)

    def bits(self, position: int, part: slice = slice(None)) -> Bytes:
        """One attribute's bits of the distinct reports."""
        offsets = self.plan.report_offsets
        rows = self.patterns[part, offsets[position] : offsets[position + 1]]
        width = self.plan.questions[position].mechanism.counters
        return np.unpackbits(np.ascontiguousarray(rows), axis=1, bitorder="little", count=width)

    def distinct(self, positions: Sequence[int]) -> tuple[list[Bytes], Integers | None]:
        """The bits of some attributes with weights; equal reports are merged if bits are few."""
        widths = [self.plan.questions[i].mechanism.counters for i in positions]
        if sum(widths) > _MAX_CODE_BITS or 2 ** sum(widths) > len(self.patterns):
            weights = None if self.n == len(self.counts) else self.counts
            return [self.bits(i) for i in positions], weights
        code = np.zeros(len(self.patterns), np.int64)
        for i, width in zip(positions, widths, strict=True):
            code = (code << width) | self.bits(i) @ (1 << np.arange(width, dtype=np.int64))
        weights = np.bincount(code, self.counts, 2 ** sum(widths)).astype(np.int64)
        seen = np.flatnonzero(weights)
        out, shift = [], sum(widths)
        for width in widths:
            shift -= width
            out.append((seen[:, None] >> (shift + np.arange(width)) & 1).astype(np.uint8))
        return out, weights[seen]

    def one_ways(self) -> list[Marginal]:
        """Every attribute's raw frequencies."""
        return [
            Marginal((name,), self.singles[i], np.sqrt(self.single_variance(i)), self.n)
            for i, name in enumerate(self.names)
        ]

    def pair_marginal(self, i: int, j: int) -> Marginal:
        """The raw frequencies of two attributes taken together."""
        raw, variance = self.pair(i, j)
        return Marginal((self.names[i], self.names[j]), raw, np.sqrt(variance), self.n)

    @cached_property
    def gram(self) -> Integers:
        """Counts of two bits set together, over all attributes; the diagonal has single bits."""
        total = sum(q.mechanism.counters for q in self.plan.questions)
        out = np.zeros((total, total))
        for start in range(0, len(self.patterns), _ROWS):
            bits = report_bits(self.plan, self.patterns[start : start + _ROWS]).astype(np.float32)
            weights = self.counts[start : start + _ROWS]
            # Exact: integers below 2^24 in a block.
            out += (
                bits.T @ bits
                if (weights == 1).all()
                else (bits * weights[:, None].astype(np.float32)).T @ bits
            )
        return np.rint(out).astype(np.int64)

    @cached_property
    def _columns(self) -> tuple[slice, ...]:
        ends = np.cumsum([0] + [q.mechanism.counters for q in self.plan.questions])
        return tuple(slice(int(a), int(b)) for a, b in pairwise(ends))

    @cached_property
    def singles(self) -> tuple[Floats, ...]:
        """Raw, unbiased one-way frequencies."""
        out = []
        for encoding, columns in zip(self.encodings, self._columns, strict=True):
            raw = (np.diag(self.gram)[columns] / self.n - encoding.q) / (encoding.p - encoding.q)
            decode = encoding.decode
            out.append(raw if decode is None else decode @ raw)
        return tuple(out)

    @cached_property
    def distributions(self) -> tuple[Floats, ...]:
        """One-way distributions, projected on the simplex in the metric of the filters."""
        return tuple(
            simplex_lasso(raw, [View((0,), raw, 1.0)], [e.gram])
            for raw, e in zip(self.singles, self.encodings, strict=True)
        )

    def single_variance(self, position: int) -> Floats:
        """The variance of each one-way frequency, given the participants."""
        encoding = self.encodings[position]
        return (encoding.noise + np.clip(self.singles[position], 0, 1) * encoding.bump) / self.n

    def pair(self, i: int, j: int) -> tuple[Floats, Floats]:
        """The raw, unbiased joint frequencies of two attributes and their variances."""
        encodings = (self.encodings[i], self.encodings[j])
        diagonal = np.diag(self.gram)
        ones = (diagonal[self._columns[i]], diagonal[self._columns[j]])
        raw = pair_cooccurrence(
            self.gram[self._columns[i], self._columns[j]], ones, self.n, encodings
        )
        f_i, f_j = (np.clip(self.singles[k], 0, 1) for k in (i, j))
        return raw, pair_variance(encodings, f_i, f_j, np.clip(raw, 0, 1), self.n)

    def cooccurrence(self, positions: Sequence[int]) -> Floats:
        """Raw, unbiased joint frequencies: the mean of the products of the indicators."""
        if len(positions) == 1:
            return self.singles[positions[0]]
        if len(positions) == 2:
            return self.pair(*positions)[0]
        check_cells(
            [self.encodings[i].cells for i in positions], [self.names[i] for i in positions]
        )
        bits, weights = self.distinct(positions)
        matrices = [self.encodings[i].indicators(b) for i, b in zip(positions, bits, strict=True)]
        if weights is not None:
            matrices[0] = matrices[0] * weights[:, None].astype(np.float32)
        products = _RowProducts(matrices)
        total = np.zeros(products.widths)
        for _, a, b in products:
            total += a.T @ b
        return products.unfold(total / self.n)


def _encoding_of(mechanism: Mechanism) -> Encoding:
    """How a mechanism whose reports are bits encodes its cells; others do not answer in bits."""
    if not isinstance(mechanism, BitMechanism):
        raise ParameterError(
            f"reports of {mechanism.name} are not bit vectors; use a unary or Bloom mechanism"
        )
    filters = None
    if mechanism.filters is not None:
        filters = np.array(
            [[f >> b & 1 for b in range(mechanism.counters)] for f in mechanism.filters], np.uint8
        )
    return Encoding(filters, mechanism.cells, float(mechanism.p), float(mechanism.q))


def _estimate_joint(
    reports: SplitReports,
    attributes: Sequence[str],
    estimator: Estimator = "em",
    *,
    features: Features = "cooccurrence",
    tolerance: float = 1e-5,
    steps: int = 2_000,
    printed: bool = False,
) -> JointEstimate:
    """The joint distribution of some attributes by one of LoPub's three estimators.

    `printed` is EM from the even table with the paper's stopping rule.
    """
    check_choice("estimator", estimator, ESTIMATORS)
    if len(set(attributes)) != len(attributes) or not attributes:
        raise ParameterError(
            "a joint needs at least one attribute, and each only once",
            where="attributes",
            value=attributes,
        )
    positions = [reports.position(name) for name in attributes]
    check_cells([reports.encodings[i].cells for i in positions], attributes)
    names = tuple(attributes)
    if estimator == "lasso":
        return JointEstimate(names, _lasso_joint(reports, positions, features), estimator, 0, True)
    start: Floats | None = None
    if estimator == "hybrid":
        start = _lasso_joint(reports, positions, features)
    elif not printed:  # the product of one-way estimates is nearer than the even table
        start = _product_start(reports, positions)
    found = em_joint(reports, positions, start, tolerance, steps, printed)
    return JointEstimate(names, found.joint, estimator, found.steps, found.converged)


def em_joint(
    reports: SplitReports,
    positions: Sequence[int],
    start: Floats | None = None,
    tolerance: float = 1e-5,
    steps: int = 2_000,
    printed: bool = False,
) -> _EMResult:
    """LoPub's algorithm 1 from a starting table; cells that are zero in it stay zero (algorithm 3)."""
    bits, weights = reports.distinct(positions)
    encodings = [reports.encodings[i] for i in positions]
    likelihoods = [
        bit_likelihood(b, e.filters, e.p, e.q, len(positions))
        for b, e in zip(bits, encodings, strict=True)
    ]
    return expectation_maximisation(
        likelihoods, weights, start=start, tolerance=tolerance, steps=steps, printed=printed
    )


def _lasso_joint(
    reports: SplitReports, positions: Sequence[int], features: Features = "cooccurrence"
) -> Floats:
    """LoPub's algorithm 2 on co-occurrences, or as printed."""
    encodings = [reports.encodings[i] for i in positions]
    if features == "paper":
        diagonal = np.diag(reports.gram)
        return paper_lasso([diagonal[reports._columns[i]] for i in positions], reports.n, encodings)
    if len(positions) == 1:
        return reports.distributions[positions[0]]
    # The joint, and its singles and pairs, which have much less noise.
    everything = range(len(positions))
    axes: list[tuple[int, ...]] = [*((i,) for i in everything), *combinations(everything, 2)]
    axes += [tuple(everything)] if len(positions) > 2 else []
    views = []
    for chosen in axes:
        inside = [positions[i] for i in chosen]
        target = (
            reports.distributions[inside[0]] if len(inside) == 1 else reports.cooccurrence(inside)
        )
        views.append(View(chosen, target, view_weight([reports.encodings[i] for i in inside])))
    return simplex_lasso(_product_start(reports, positions), views, [e.gram for e in encodings])


def _product_start(reports: SplitReports, positions: Sequence[int]) -> Floats:
    """The product of the one-way distributions, each mixed with a little of the even one."""
    joint = np.ones(())
    for i in positions:
        single = reports.distributions[i]
        joint = np.multiply.outer(joint, 0.95 * single + 0.05 / len(single))
    return np.asarray(joint)


def estimate_joints(
    reports: SplitReports,
    sets: Sequence[Sequence[str]],
    estimator: Estimator = "em",
    *,
    features: Features = "cooccurrence",
    tolerance: float = 1e-5,
    steps: int = 2_000,
    printed: bool = False,
    progress: Progress | None = None,
) -> list[JointEstimate]:
    """Many joints in the given order, computed in parallel with identical results."""
    options = {"features": features, "tolerance": tolerance, "steps": steps, "printed": printed}
    work = partial(_estimate_joint, reports, estimator=estimator, **options)  # type: ignore[arg-type]
    reports.gram, reports.distributions  # noqa: B018  computed once, before threads ask for them
    # The matrices are too small for BLAS threads, so joints are computed in parallel instead.
    with (
        threadpool_limits(1, user_api="blas"),
        ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool,
    ):
        futures = [pool.submit(work, names) for names in sets]
        try:
            out = []
            for done, future in enumerate(futures, 1):
                out.append(future.result())
                if progress:
                    progress(done, len(futures))
            return out
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
