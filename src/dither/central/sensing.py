"""Integer measurement matrices: sparse, Gaussian, Bernoulli, subsampled Hadamard and Fourier.

Guarantee: `apply` is exact integer arithmetic and `sensitivity` is the exact L1
sensitivity of the integers that are measured. A Gaussian or Fourier matrix is drawn once,
rounded to a grid of 1/256 and from then on is an integer matrix: rounding changes which
matrix is used, never the guarantee. Matrices are drawn from public randomness and are no
secret.

A record moves every row of a dense matrix (all but the sparse one), so the
sensitivity grows with the rows; it moves `entries` rows of a sparse one and the total,
however many rows there are.

References: Candes, Tao, "Near-optimal signal recovery from random projections", 2006;
Zheng et al. 2020, section III-C; sparse matrices: Gilbert, Indyk, "Sparse recovery
using sparse matrices", Proceedings of the IEEE 2010.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from dither.central.measurement import Neighbours
from dither.checks import check_between, check_choice
from dither.errors import ParameterError
from dither.types import AnyIntegers, Codes, Floats, Integers, Singles

Measurement = Literal["sparse", "hadamard", "gaussian", "bernoulli", "fourier"]
GRID = 256
DENSE_ENTRIES = 2**25
LARGEST_EXACT = 2**53
PAIRED = 2048

T = TypeVar("T", np.int64, np.float64)


@dataclass(frozen=True)
class DenseSensing:
    """A matrix of `rows` by `size` small integers; `unit` is the root mean square entry.

    With `total` the first row is `unit` in every cell, so it measures the number of
    records. `apply` is exact; `forward` and its transpose `correlate` are floating
    point, for decoding only.
    """

    matrix: AnyIntegers
    unit: float
    total: bool = False

    @property
    def rows(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def size(self) -> int:
        return int(self.matrix.shape[1])

    @cached_property
    def floating(self) -> Singles:
        """The same entries for fast products; integers below 2**24 are exact in 32-bit floats."""
        return self.matrix.astype(np.float32)

    def apply(self, counts: Integers) -> Integers:
        """Whole-number products; only cells that are not empty cost anything."""
        filled = np.flatnonzero(counts)
        return exact_product(self.matrix[:, filled], counts[filled])

    def forward(self, vector: Floats) -> Floats:
        return np.asarray(self.floating @ vector.astype(np.float32), dtype=np.float64)

    def correlate(self, residual: Floats) -> Floats:
        return np.asarray(residual.astype(np.float32) @ self.floating, dtype=np.float64)

    def sensitivity(self, neighbours: Neighbours) -> int:
        return matrix_sensitivity(self.matrix, neighbours)


@dataclass(frozen=True)
class HadamardSensing:
    """Some rows of H diag(signs), H the Hadamard matrix of a power-of-two order.

    It has the interface of `DenseSensing`. Cells beyond `size` are always empty. Random
    signs make the rows unlike cosines and wavelets, which are close to rows of a plain
    Hadamard matrix.

    Reference: Ailon, Chazelle, "The fast Johnson-Lindenstrauss transform", 2009.
    """

    chosen: Integers
    signs: Integers
    order: int
    total: bool = False
    unit: float = 1.0

    @property
    def rows(self) -> int:
        return int(self.chosen.size) + int(self.total)

    @property
    def size(self) -> int:
        return int(self.signs.size)

    def apply(self, counts: Integers) -> Integers:
        return self._measured(counts)

    def forward(self, vector: Floats) -> Floats:
        return self._measured(vector)

    def _measured(self, vector: npt.NDArray[T]) -> npt.NDArray[T]:
        mixed: npt.NDArray[T] = walsh_hadamard(_padded(vector * self.signs, self.order))[
            self.chosen
        ]
        return np.concatenate([[vector.sum()], mixed]) if self.total else mixed

    def correlate(self, residual: Floats) -> Floats:
        spread = np.zeros(self.order)
        spread[self.chosen] = residual[int(self.total) :]
        mixed: Floats = walsh_hadamard(spread)[: self.size] * self.signs
        return mixed + residual[0] if self.total else mixed

    def sensitivity(self, neighbours: Neighbours) -> int:
        """`rows` for an added record; exact over all pairs of cells for a replaced one.

        Columns i and j have distance rows - s_i s_j <h_i, h_j>, and <h_i, h_j> depends
        on i xor j only. One transform yields that product for every xor; the xor
        autocorrelation of the signs shows which sign products occur for it. The row
        that measures the total does not change.
        """
        if neighbours == "add-remove":
            return self.rows
        mixing = int(self.chosen.size)
        marks = np.zeros(self.order, dtype=np.int64)
        marks[self.chosen] = 1
        inner = walsh_hadamard(marks)[1:]
        pairs = _xor_correlation(_padded(np.ones(self.size, dtype=np.int64), self.order))[1:]
        products = _xor_correlation(_padded(self.signs, self.order))[1:]
        equal = np.where(pairs + products > 0, mixing - inner, 0)
        opposite = np.where(pairs - products > 0, mixing + inner, 0)
        return int(np.maximum(equal, opposite).max())


@dataclass(frozen=True)
class SparseSensing:
    """`entries` rows of plus or minus one for each cell, and with `total` a row of ones first.

    `places` and `signs` have a line for each entry: cell i adds signs[e, i] to row
    places[e, i]. Lines use separate rows, so the rows of a cell differ. With one entry
    and one row per cell each cell has a separate row.
    """

    places: Integers
    signs: Integers
    mixing: int
    total: bool = True
    unit: float = 1.0

    @property
    def rows(self) -> int:
        return self.mixing + int(self.total)

    @property
    def size(self) -> int:
        return int(self.places.shape[1])

    @property
    def entries(self) -> int:
        return int(self.places.shape[0])

    @property
    def alone(self) -> bool:
        """Whether every cell has a row to itself."""
        return self.entries == 1 and self.mixing == self.size

    def apply(self, counts: Integers) -> Integers:
        _check_exact(self.entries * int(counts.sum()))
        return np.rint(self.forward(counts.astype(np.float64))).astype(np.int64)

    def forward(self, vector: Floats) -> Floats:
        """Exact for whole numbers: every partial sum stays below 2**53."""
        out = np.zeros(self.mixing)
        for rows, signs in zip(self.places, self.signs, strict=True):
            out += np.bincount(rows, weights=signs * vector, minlength=self.mixing)
        return np.concatenate([[vector.sum()], out]) if self.total else out

    def correlate(self, residual: Floats) -> Floats:
        mixed = residual[int(self.total) :]
        out: Floats = (self.signs * mixed[self.places]).sum(axis=0)
        return out + residual[0] if self.total else out

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Exact: entries and the total for an added record.

        The total does not change for a replaced one. Two columns have distance 2
        entries, less 2 for each row that both have with the same sign. Up to `PAIRED`
        cells all pairs are compared; above it the bound 2 entries is used, which nearly
        every pair attains.
        """
        if neighbours == "add-remove":
            return self.entries + int(self.total)
        if self.size > PAIRED:
            return 2 * self.entries
        agree = np.zeros((self.size, self.size), dtype=np.int64)
        for rows, signs in zip(self.places, self.signs, strict=True):
            agree += (rows[:, None] == rows) & (signs[:, None] == signs)
        return int((2 * self.entries - 2 * agree)[~np.eye(self.size, dtype=bool)].max())


Sensing = DenseSensing | HadamardSensing | SparseSensing


def _xor_correlation(vector: Integers) -> Integers:
    """sum_i v_i v_(i xor d) for every d, in integers, by the Hadamard transform."""
    return walsh_hadamard(walsh_hadamard(vector) ** 2) // vector.size


def sensing(
    kind: str,
    rows: int,
    size: int,
    rng: np.random.Generator,
    *,
    total: bool = False,
    entries: int = 1,
) -> Sensing:
    """Draw a measurement matrix from public randomness; `total` adds a row for the record count.

    A sparse matrix has that row in addition to `rows`.
    """
    check_choice("measurement", kind, get_args(Measurement))
    if not 1 <= rows <= size:
        raise ParameterError(
            f"{rows} measurements of {size} cells are not between 1 and the number of cells",
            where="tau",
        )
    if kind == "sparse":
        return _sparse(rows, size, rng, total, entries)
    if kind == "hadamard":
        order = 1 << (size - 1).bit_length()
        chosen = np.sort(rng.permutation(order)[: rows - int(total)]).astype(np.int64)
        return HadamardSensing(
            chosen, rng.integers(0, 2, size, dtype=np.int64) * 2 - 1, order, total
        )
    if rows * size > DENSE_ENTRIES:
        raise ParameterError(
            f"a {kind} matrix of {rows:,} by {size:,} does not fit (limit {DENSE_ENTRIES:,} entries); "
            "use the hadamard measurement, a smaller tau or fewer columns",
            where="measurement",
            value=rows * size,
        )
    if kind == "bernoulli":
        matrix, unit = (
            rng.integers(0, 2, size=(rows, size), dtype=np.int16) * np.int16(2) - np.int16(1),
            1,
        )
    else:
        drawn = (
            _fourier_rows(rows, size, rng)
            if kind == "fourier"
            else rng.standard_normal((rows, size), dtype=np.float32)
        )
        drawn *= GRID
        matrix, unit = np.rint(drawn, out=drawn).astype(np.int16), GRID
    if total:
        matrix[0] = unit
    return DenseSensing(matrix, float(unit), total)


def _fourier_rows(rows: int, size: int, rng: np.random.Generator) -> Singles:
    """Random rows of the real Fourier matrix with random signs of the cells.

    Row 0 is constant, the others are cosines and sines of one frequency each, all with mean
    square one. The signs make the rows unlike the atoms of a cosine dictionary, which a few of
    them could not tell apart otherwise.
    """
    chosen = np.sort(rng.permutation(size)[:rows])
    frequency = (chosen + 1) // 2
    # Odd rows are cosines, even rows sines; the last row of an even size alternates its sign.
    phase = np.where((chosen % 2 == 1) | (chosen == 0), np.pi / 2, 0.0)
    angle = 2 * np.pi * np.outer(frequency, np.arange(size)) / size + phase[:, None]
    waves = np.sin(angle)
    waves /= np.sqrt((waves**2).mean(axis=1, keepdims=True))
    signs = rng.integers(0, 2, size) * 2 - 1
    return (waves * signs).astype(np.float32)


def _sparse(
    rows: int, size: int, rng: np.random.Generator, total: bool, entries: int
) -> SparseSensing:
    """Each line of entries deals the cells evenly to its own share of the rows."""
    each = max(1, rows // entries)
    places = np.stack([line * each + rng.permutation(size) % each for line in range(entries)])
    signs = rng.integers(0, 2, (entries, size), dtype=np.int64) * 2 - 1
    return SparseSensing(places, signs, each * entries, total)


def _check_exact(largest: int) -> None:
    """An error unless whole numbers of this size are exact in 64-bit floats."""
    if largest >= LARGEST_EXACT:
        raise ParameterError(
            "the table has too many records for an exact measurement", where="counts", value=largest
        )


def exact_product(matrix: AnyIntegers, counts: Integers) -> Integers:
    """matrix @ counts in whole numbers, through floating point only where that is exact."""
    if counts.size == 0:
        return np.zeros(matrix.shape[0], dtype=np.int64)
    _check_exact(max(int(matrix.max()), -int(matrix.min())) * int(counts.sum()))
    # Every partial sum is an integer below 2**53, so 64-bit floats are exact in any order.
    return np.rint(matrix.astype(np.float64) @ counts.astype(np.float64)).astype(np.int64)


def walsh_hadamard(vector: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The Walsh-Hadamard transform along the last axis in natural order, unnormalised; exact for integers."""
    out = vector.copy()
    half = 1
    while half < out.shape[-1]:
        pairs = out.reshape(*out.shape[:-1], -1, 2, half)
        upper = pairs[..., 0, :] + pairs[..., 1, :]
        pairs[..., 1, :] = pairs[..., 0, :] - pairs[..., 1, :]
        pairs[..., 0, :] = upper
        half *= 2
    return out


def _padded(vector: npt.NDArray[T], order: int) -> npt.NDArray[T]:
    out = np.zeros(order, dtype=vector.dtype)
    out[: vector.size] = vector
    return out


def check_tau(tau: float) -> float:
    """A compression ratio in (0, 1]."""
    return check_between("tau", tau, 0, 1, ends="(]")


def rows_for(tau: float, size: int) -> int:
    """The number of measurements of a compression ratio."""
    return max(1, math.ceil(check_tau(tau) * size))


def matrix_sensitivity(matrix: AnyIntegers, neighbours: Neighbours) -> int:
    """The exact L1 sensitivity of x -> matrix x for integer histograms x.

    Guarantee: the integer returned is the largest L1 distance between the measurements
    of two neighbouring histograms. One record is one unit in one cell, so for added or
    removed records it is the largest column norm, for replaced ones the largest
    distance between two columns. The paper's "sensing sensitivity" (definition 5) is
    not used: it does not bound this.

    Reference: Dwork, McSherry, Nissim, Smith, "Calibrating noise to sensitivity in
    private data analysis", TCC 2006.
    """
    if not np.issubdtype(matrix.dtype, np.integer):
        raise TypeError("sensitivity is exact for integer matrices only; round the matrix first")
    if neighbours == "add-remove":
        return _largest_column_norm(matrix)
    return _largest_column_distance(matrix)


def _largest_column_norm(matrix: AnyIntegers) -> int:
    """The largest sum of absolute entries of a column."""
    return int(
        np.abs(matrix.astype(np.int32 if matrix.dtype.itemsize < 4 else np.int64))
        .sum(axis=0, dtype=np.int64)
        .max()
    )


def _largest_column_distance(matrix: AnyIntegers) -> int:
    """The largest L1 distance of two columns, over all pairs: no cheaper exact rule exists."""
    columns = np.ascontiguousarray(matrix.T, dtype=np.int32)
    if max(int(matrix.max()), -int(matrix.min())) * 2 * matrix.shape[0] >= 2**31:
        raise ValueError("entries too large for 32-bit distances")
    return int(_pair_kernel()(columns))


@functools.cache
def _pair_kernel() -> Callable[[Codes], int]:
    """The compiled double loop over pairs, on all cores."""
    import numba

    def largest(columns: Any) -> Any:
        count = columns.shape[0]
        rows = columns.shape[1]
        best = np.zeros(count, dtype=np.int32)
        for i in numba.prange(count):
            top = np.int32(0)
            for j in range(i + 1, count):
                total = np.int32(0)
                for r in range(rows):
                    total += abs(columns[i, r] - columns[j, r])
                top = max(top, total)
            best[i] = top
        return best.max()

    kernel: Callable[[Codes], int] = numba.njit(parallel=True, cache=True)(largest)
    return kernel
