"""Joint distributions of several attributes from reports that answer each of them, by expectation maximisation.

References: Ren et al., "LoPub", IEEE TIFS 2018, algorithm 1, and the m-way EM of BayesNet (algorithm 2), with the
likelihood that compares received bits with the candidate's filter (erratum 2), stopped on the largest change of a cell
(erratum 4); acceleration by SQUAREM (Varadhan, Roland, Scand. J. Statist. 2008), guarded by the likelihood.

An attribute's likelihoods are an n x k matrix. The attributes are put into two groups whose row-wise (Khatri-Rao)
products A and B have about equally many columns; with the joint P as a matrix between the groups, one step is two
matrix products,

    d = rowsum((A P) * B)        P <- P * (A' diag(w / d) B) / n,

done in blocks of rows, so that n x (product of domains) never exists.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dither.errors import ParameterError
from dither.types import Bytes, Floats, Integers, Singles

MAX_JOINT_CELLS = 1 << 24
"""The largest joint that EM takes on: six tables of doubles of this size are 800 MB, the stated bound on its memory."""

_BLOCK_ROWS = 4096
_BLOCK_BYTES = 1 << 25
_CACHE_BYTES = 1 << 28
_SMALLEST = 1e-30  # products of likelihoods stay above this, well inside what 32-bit floats hold


@dataclass(frozen=True)
class EMResult:
    """A joint distribution, one axis per attribute, and how it was reached; `steps` counts passes over the reports."""

    joint: Floats
    steps: int
    converged: bool
    log_likelihood: float


def bit_likelihood(
    bits: Bytes, filters: Bytes | None, p: float, q: float, attributes: int = 1
) -> Singles:
    """P(report | value), each row up to a factor, for every report (row of bits) and value.

    `filters` has the bits each value sets, one row per value; None for unary encoding, where value v sets bit v only. A
    set bit is reported as set with p, another with q. With `attributes` of them multiplied, no product leaves the
    range of 32-bit floats.
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
    return np.maximum(log, np.float32(floor))


def check_cells(
    cardinalities: Sequence[int], names: Sequence[str] | None = None, most: int = MAX_JOINT_CELLS
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
) -> EMResult:
    """The joint distribution of the attributes whose likelihood matrices are given, row by row of the same report.

    `weights` says how often each row occurred. Starts from `start` (even by default); cells that are zero there stay
    zero. Stops when a step changes no cell by more than `tolerance`, or after `steps`; passes are in single precision, so
    a tolerance below 1e-6 may never be reached. The likelihood never falls from one cycle to the next. `printed` takes plain
    steps and stops as LoPub's algorithm 1 reads, when the largest cell's value changes by no more than the tolerance.
    """
    shape = tuple(m.shape[1] for m in likelihoods)
    check_cells(shape)
    rows = len(likelihoods[0])
    total = float(rows if weights is None else weights.sum())
    if not total > 0:
        raise ParameterError("EM needs at least one report")
    products = RowProducts(likelihoods)
    joint = (
        np.full(shape, 1.0 / math.prod(shape))
        if start is None
        else np.asarray(start, np.float64) / np.sum(start)
    )
    passes = _Passes(products, None if weights is None else weights.astype(np.float32), total)
    iterate = _as_printed if printed else _squarem
    matrix, change = iterate(passes, products.fold(joint), tolerance, steps)
    return EMResult(
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
    """Cycles of two steps, an extrapolation along them, and a step from there; a plain one where that loses."""
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
        # A long step may leave the simplex; a tenth of the plain step's value keeps every cell alive that was.
        ahead = np.maximum(ahead, 0.1 * p2)
        ahead /= ahead.sum()
        after = passes.step(ahead)
        if passes.log_likelihood < likelihood - 1e-7 * passes.total:
            ahead, after = p2, passes.step(p2)
        p0, p1 = ahead, after


class _Passes:
    """One pass over the reports is one step of EM; keeps count, and the likelihood of the last point stepped from."""

    def __init__(self, products: RowProducts, weights: Singles | None, total: float) -> None:
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
        return new / new.sum()


class RowProducts:
    """The row-wise products of two groups of matrices with the same rows, in blocks; `fold` and `unfold` move a joint
    table between one axis per matrix and one axis per group."""

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
    """Two groups with the least sum of column counts; a lone attribute stands against a column of ones."""
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
