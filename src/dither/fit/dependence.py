"""Measures of dependence of two attributes, with and without correction for noise.

The plug-in mutual information of a noisy table is biased upward by about
k_i k_j (k_i-1)(k_j-1) s^2 / 2 nats (s^2 the noise variance of a cell), so a fixed threshold on
it selects wide domains, not strong dependence. `dependence` removes the bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dither.checks import check_between, check_choice
from dither.errors import ParameterError
from dither.types import AnyArray, Floats

# Mean squared dependences times cells, about Cramer's V squared times the smaller number of
# values less one: from undetectable to two attributes of 1,000 values that determine each other.
_SIZES = np.concatenate([[0.0], 4.0 ** np.arange(-9, 6)])
# Sizes up to complete dependence of a few values, which PrivIncr's figures rest on.
_SMALL_SIZES = _SIZES[:12]
_STEPS = 200


def shrunk_squares(tests: Sequence[Dependence], shapes: Sequence[tuple[int, int]]) -> Floats:
    """The posterior mean of each pair's squared distance from independence."""
    rows, columns = np.array(shapes, np.float64).reshape(-1, 2).T
    noise = np.array([test.noise for test in tests])
    observed = np.array([test.statistic for test in tests]) + noise
    degrees = (rows - 1) * (columns - 1)
    return posterior_squares(observed, noise, degrees, rows * columns, _SMALL_SIZES)


def posterior_squares(
    observed: Floats, noise: Floats, degrees: Floats, cells: Floats, sizes: Floats = _SIZES
) -> Floats:
    """The posterior mean of squared effects, with a prior learnt from all of them.

    For noise of variance s^2 in each of f directions, the residual's square over s^2 is (1 + r)
    times a chi-square of f degrees if the effects have variance r s^2; with B = r/(1+r) the
    effect's mean square is then B^2 |y|^2 + f B s^2.

    Args:
        observed: Squared lengths of the residuals, noise included.
        noise: Mean squared lengths of the noise, f s^2.
        degrees: f.
        cells: Of each table; an effect's size is its mean square times its cells.
        sizes: The sizes that an effect may have.
    """
    variance = np.maximum(noise / degrees, np.finfo(float).tiny)
    scaled = np.maximum(observed, 0.0) / variance
    ratio = sizes / (cells * degrees * variance)[:, None]
    log = -0.5 * (degrees[:, None] * np.log1p(ratio) + scaled[:, None] / (1 + ratio))
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    prior = np.full(len(sizes), 1.0 / len(sizes))
    for _ in range(_STEPS):
        weights = likelihood * prior
        prior = (weights / weights.sum(axis=1, keepdims=True)).sum(axis=0)
        prior[0] += 1.0  # in doubt, no dependence
        prior /= prior.sum()
    weights = likelihood * prior
    weights /= weights.sum(axis=1, keepdims=True)
    kept = ratio / (1 + ratio)
    squares = (weights * (kept**2 * scaled[:, None] + degrees[:, None] * kept)).sum(axis=1)
    return np.asarray(squares * variance)


def entropy(distribution: AnyArray) -> float:
    """Shannon entropy in nats of a distribution of any shape; non-positive cells are empty."""
    p = np.asarray(distribution, np.float64).ravel()
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def mutual_information(joint: AnyArray) -> float:
    """Mutual information in nats of a two-way distribution (LoPub eq. 24), at least zero."""
    table = np.asarray(joint, np.float64)
    if table.ndim != 2 or (table < 0).any():
        raise ParameterError(
            "mutual information is of a two-way table without negative cells", value=table.shape
        )
    total = table.sum()
    if not total > 0:
        return 0.0
    table = table / total
    return max(0.0, entropy(table.sum(1)) + entropy(table.sum(0)) - entropy(table))


def mutual_information_threshold(rows: int, columns: int, phi: float) -> float:
    """LoPub eq. 26: min(k_i-1, k_j-1) phi^2 / 2, the information at a Cramer's V of about phi."""
    check_between("phi", phi, 0, 1)
    return min(rows - 1, columns - 1) * phi**2 / 2


@dataclass(frozen=True)
class Dependence:
    """The unbiased squared distance of a pair from independence.

    With its standard deviation under independence, and the mean square of the noise that was
    subtracted.
    """

    statistic: float
    null_deviation: float
    noise: float = 0.0

    @property
    def score(self) -> float:
        """The statistic in standard deviations under independence; above 3 is significant."""
        return (
            self.statistic / self.null_deviation
            if self.null_deviation > 0
            else float(np.sign(self.statistic)) * np.inf
        )

    @property
    def strength(self) -> float:
        """The Euclidean distance from independence, zero if the unbiased square is negative."""
        return float(np.sqrt(max(self.statistic, 0.0)))


def dependence(
    joint: AnyArray,
    variance: float,
    rows: AnyArray | None = None,
    columns: AnyArray | None = None,
    row_variance: float = 0.0,
    column_variance: float = 0.0,
) -> Dependence:
    """Noise-aware dependence of a raw, unbiased pair table.

    U = ||C (y - a b') C||^2 - (k_i-1)(k_j-1) s^2 with C the centring matrix, and its standard
    deviation sqrt(2 (k_i-1)(k_j-1)) s^2 under independence.

    Centring does not change the dependence, since f_ij - f_i f_j adds up to zero along rows and
    columns, and makes the degrees of freedom of the noise exactly (k_i-1)(k_j-1). Without it
    they are (k_i-2+k_i|a|^2)(k_j-2+k_j|b|^2), far more for attributes with one frequent value,
    and such pairs would be kept wrongly.

    Args:
        table: The raw frequencies.
        variance: Noise variance of each cell; cells are independent.
        rows: One-way frequencies a with the variances of their cells. By default the table's
            sums, whose noise centring removes only if the other marginal is even.
        columns: The same for b.
    """
    table = np.asarray(joint, np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        raise ParameterError(
            "dependence needs a two-way table of at least two rows and columns", value=table.shape
        )
    if not variance >= 0:
        raise ParameterError(f"a variance cannot be {variance!r}", where="variance", value=variance)
    k, m = table.shape
    a = table.sum(1) if rows is None else np.asarray(rows, np.float64)
    b = table.sum(0) if columns is None else np.asarray(columns, np.float64)
    a, b = a - a.mean(), b - b.mean()
    residual = table - table.mean(0) - table.mean(1)[:, None] + table.mean() - np.outer(a, b)
    # The noise of a and b enters through the product, to first order as a's noise times b and
    # b's noise times a.
    spread = variance + row_variance * column_variance
    extra = (k - 1) * row_variance * float(b @ b) + (m - 1) * column_variance * float(a @ a)
    degrees = (k - 1) * (m - 1)
    statistic = float((residual**2).sum()) - degrees * spread - extra
    # The extra noise lies in one direction per row or column, so its share of the null variance is that of k-1 or m-1
    # degrees.
    null = 2 * degrees * spread**2
    null += (
        2 * (k - 1) * (row_variance * float(b @ b)) ** 2
        + 2 * (m - 1) * (column_variance * float(a @ a)) ** 2
    )
    null += 4 * spread * extra
    return Dependence(statistic, float(np.sqrt(null)), degrees * spread + extra)


Pair = tuple[int, int]
Variant = Literal["none", "empty", "full"]
_VARIANTS: tuple[Variant, ...] = ("none", "empty", "full")


@dataclass(frozen=True)
class Pruning:
    """The dependences found and what finding them cost; each pair is counted once (erratum 10)."""

    dependent: frozenset[Pair]
    examined: tuple[Pair, ...]
    pairs: int

    @property
    def reduction(self) -> float:
        """The share of pairs that were never estimated."""
        return 1 - len(self.examined) / self.pairs if self.pairs else 0.0

    def against(self, truth: Iterable[Pair]) -> dict[str, float]:
        """Dependences kept, added and lost against the ones that estimating every pair gives."""
        reference = frozenset(truth)
        kept = len(self.dependent & reference)
        return {
            "dependences": len(self.dependent),
            "dependences_unpruned": len(reference),
            "kept": kept,
            "added": len(self.dependent - reference),
            "lost": len(reference) - kept,
            "loss_ratio": (len(reference) - kept) / len(reference) if reference else 0.0,
            "pairs_computed": len(self.examined),
            "pairs": self.pairs,
            "reduction_ratio": self.reduction,
        }


Relative = Literal["values", "degrees"]


def relative_entropy(marginals: Sequence[AnyArray], relative: Relative = "values") -> list[float]:
    """H(A)/|domain| of each attribute (algorithm 5, line 4), or H(A)/(|domain| - 1) (table 7)."""
    less = {"values": 0, "degrees": 1}[relative]
    return [entropy(np.clip(m, 0, None)) / (len(m) - less) for m in marginals]


def prune_by_entropy(
    marginals: Sequence[AnyArray],
    phi: float,
    variant: Variant,
    depends: Callable[[int, int], bool],
    relative: Relative = "values",
) -> Pruning:
    """LoPub's entropy pruning (algorithm 5): test `depends(i, j)`, i < j, for some pairs only.

    The paper starts non-binary tables without dependence (`empty`) and tests the attributes of
    largest relative entropy, H(A)/|domain|. It starts binary tables with all pairs dependent
    (`full`) and tests the attributes of least relative entropy; untested pairs count as
    dependent. d (1-phi) attributes, rounded half up, are tested. `none` tests all pairs. (Line
    7 reads as rounding down, but the pair counts of tables 7 and 9 are those of rounding to
    nearest.)

    Reference: Ren et al., "LoPub", IEEE TIFS 2018, section 5.5.2.
    """
    check_choice("pruning", variant, _VARIANTS)
    check_between("phi", phi, 0, 1)
    d = len(marginals)
    every = [(i, j) for i in range(d) for j in range(i + 1, d)]
    examined = every
    if variant != "none":
        ranked = sorted(
            range(d),
            key=_order(relative_entropy(marginals, relative), -1.0 if variant == "empty" else 1.0),
        )
        # Slightly more than a half, so that 15 * (1 - 0.3) = 10.499.. counts as 10.5.
        chosen = set(ranked[: math.floor(d * (1 - phi) + 0.5 + 1e-9)])
        examined = [(i, j) for i, j in every if i in chosen and j in chosen]
    found = {pair for pair in examined if depends(*pair)}
    if variant == "full":
        found |= set(every) - set(examined)
    return Pruning(frozenset(found), tuple(examined), len(every))


def _order(values: Sequence[float], sign: float) -> Callable[[int], tuple[float, int]]:
    return lambda i: (sign * values[i], i)
