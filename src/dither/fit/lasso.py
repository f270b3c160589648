"""Joint distributions by regression on the bits of the reports: the co-occurrence Lasso, and LoPub's own.

Reference: Ren et al., "LoPub", IEEE TIFS 2018, algorithm 2. As printed it regresses the bit sums of each attribute,
side by side, on the concatenated filters of all combinations. Those sums hold one-way information only, so any two
joints with equal one-way marginals fit equally well (erratum 3): `paper_lasso` keeps it for comparison.
`simplex_lasso` regresses the unbiased co-occurrence of bits of different attributes on the Kronecker product of the
filters, with the co-occurrences of fewer attributes and the bit sums of each as further rows, every row weighted by its
inverse variance.

The Lasso is taken in its constrained form (Tibshirani, JRSS B 1996, eq. 2): least squares with not negative
coefficients whose L1 norm is at most a budget. For frequencies the budget is known to be 1, so there is no penalty to
choose. With unary encoding and co-occurrences alone the design is the identity and the solution is the projection on
the simplex (norm-sub).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dither.errors import ParameterError
from dither.fit.project import norm_sub
from dither.schema.cells import codes_of
from dither.types import AnyArray, Bytes, Floats, Singles

_MAX_DESIGN = 1 << 27  # entries of the paper's design matrix: 1 GB of doubles


@dataclass(frozen=True)
class Encoding:
    """How one attribute's values become bits, and what that does to an unbiased estimate.

    `decode` turns a report's bits s into unbiased indicators of the values, decode @ (s - q)/(p - q): the
    pseudo-inverse of the filters. `gram` is filters times their transpose, the metric in which the regression
    measures. `noise` is the variance of each indicator when the value is another one, `bump` what is added when it is
    this one.
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
        """The variance of the indicator of each value in one report of somebody with another value."""
        single = self.q * (1 - self.q) / (self.p - self.q) ** 2
        decode = self.decode
        return np.full(self.cells, single) if decode is None else single * (decode**2).sum(1)

    @property
    def bump(self) -> float:
        """What somebody's own value adds to that variance; nothing where p = 1 - q."""
        return (self.p * (1 - self.p) - self.q * (1 - self.q)) / (self.p - self.q) ** 2

    def spread(self, frequencies: Floats) -> Floats:
        """The covariance of the centred indicators of one report of somebody drawn from these frequencies."""
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
    """Raw, unbiased joint frequencies of two attributes from counts of bits set together and alone."""
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
    """The variance of each cell of `pair_cooccurrence`, given the participants, at these frequencies."""
    a, b = encodings
    noise_a, noise_b = a.noise[:, None], b.noise[None, :]
    f_a, f_b = rows[:, None], columns[None, :]
    alone = noise_a * noise_b + f_a * noise_b * (a.bump + 1) + f_b * noise_a * (b.bump + 1)
    return np.asarray((alone + joint * (a.bump * b.bump + a.bump + b.bump)) / n)


@dataclass(frozen=True)
class View:
    """Raw frequencies of some axes of a joint, and their weight: the inverse of a cell's variance, up to a factor."""

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
    from sklearn.linear_model import Lasso

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
    """The coefficients; the design is singular, so a remark that the fit may not have converged says nothing new."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(model.fit(design, target).coef_, np.float64)


def _filters(encoding: Encoding) -> Bytes:
    return np.eye(encoding.cells, dtype=np.uint8) if encoding.filters is None else encoding.filters
