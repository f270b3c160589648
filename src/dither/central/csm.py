"""The compressed-sensing method, in two forms: few random measurements, noise, sparse recovery.

First the histogram form; the record form stands below it.

Trust model: central. A curator holds the table. Guarantee: pure epsilon-differential privacy from the exact L1
sensitivity of the drawn integer matrix (see `measurement`), whatever the dictionary, the recovery and the data. The
paper's own calibration (definition 5, theorem 2) is not followed: it does not establish that guarantee.

What to expect: each record touches every one of the s measurements, so the noise on each has scale about s / epsilon,
and a recovered coefficient carries about s times the variance that plain Laplace noise puts on a cell. With K
recovered coefficients the error is about 2 K s / epsilon^2 against 2 N / epsilon^2: the method gains only where K
s < N.

Reference: Zheng et al., "Differentially private high-dimensional data publication in Internet of Things", 2020,
algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dither.central.measurement import CuratorTask, Neighbours, NoisyHistogram, release_by
from dither.central.noise import ByteSource, achieved_epsilon, calibrate, discrete_laplace, noise_variance
from dither.central.sensing import DenseSensing, Measurement, Sensing, check_tau, rows_for, sensing
from dither.central.sparse import Basis, Dictionary, dictionary, matching_pursuit, most_atoms
from dither.checks import check_choice, check_whole, check_whole_or_none
from dither.errors import ParameterError
from dither.mechanisms.probability import check_epsilon
from dither.types import Codes, Floats, Integers, Singles

# A dense matrix is multiplied by the dictionary in full from this many atoms on: about where that starts to pay.
FORM_AFTER = 16
TAU_GRID = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class CompressedSensing:
    """A drawn measurement with the dictionary it is decoded in."""

    matrix: Sensing
    basis: Dictionary
    cells: int
    sparsity: int | None = None

    def measure(self, counts: Integers) -> Integers:
        padded = np.zeros(self.matrix.size, dtype=np.int64)
        padded[: counts.size] = counts
        return self.matrix.apply(padded)

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Exact over all columns of the drawn matrix, padding cells included."""
        return self.matrix.sensitivity(neighbours)

    def decode(self, noisy: Integers, variance: float) -> Floats:
        """Matching pursuit; atoms below the universal threshold of the known noise are not taken."""
        rows, size = self.matrix.rows, self.matrix.size
        stop = 0.0
        atoms = self.sparsity
        if atoms is None:
            atoms = most_atoms(rows)
            stop = math.sqrt(variance * 2 * math.log(size))
        picked, values = self._pursue(noisy.astype(np.float64), min(atoms, rows), stop)
        coefficients = np.zeros(size)
        coefficients[picked] = values
        return np.asarray(self.basis.synthesise(coefficients), dtype=np.float64)[: self.cells]

    def _pursue(self, noisy: Floats, atoms: int, stop: float) -> tuple[Integers, Floats]:
        matrix, taken = self.matrix, 0
        products: Singles | None = None

        def atom(index: int) -> Floats:
            nonlocal taken, products
            taken += 1
            if taken == FORM_AFTER and isinstance(matrix, DenseSensing):
                products = np.asarray(self.basis.analyse(matrix.floating))
            if products is not None:
                return np.asarray(products[:, index], dtype=np.float64)
            unit = np.zeros(matrix.size)
            unit[index] = 1.0
            return matrix.forward(np.asarray(self.basis.synthesise(unit), dtype=np.float64))

        def correlate(residual: Floats) -> Floats:
            if products is not None:
                return np.asarray(residual.astype(np.float32) @ products, dtype=np.float64)
            return np.asarray(self.basis.analyse(matrix.correlate(residual)), dtype=np.float64)

        return matching_pursuit(noisy, atom, correlate, atoms=atoms, stop=stop, norms=self._norms())

    def _norms(self) -> Floats:
        """The expected norm of every atom: random rows give unit^2 each, the row of ones its exact share."""
        matrix = self.matrix
        squares = np.full(matrix.size, float(matrix.rows - int(matrix.total)))
        if matrix.total:
            squares += np.asarray(self.basis.analyse(np.ones(matrix.size)), dtype=np.float64) ** 2
        squares[squares == 0] = math.inf  # an atom that nothing measures is never picked
        return np.asarray(matrix.unit * np.sqrt(squares))


@dataclass(frozen=True)
class CsmParameters:
    """Without `tau`, the compression ratio, `automatic_tau` chooses it from `records`, a public guess of the table's size.

    `sparsity` is the number of atoms, from the noise level unless given. With `total` one of the rows measures the
    number of records. The paper has random rows only, which leave the number of records, and with it every broad query,
    under sqrt(cells) times more noise than need be.
    """

    tau: float | None = None
    measurement: Measurement = "hadamard"
    dictionary: Basis = "haar"
    sparsity: int | None = None
    total: bool = True
    records: int = 10_000

    def __post_init__(self) -> None:
        if self.tau is not None:
            check_tau(self.tau)
        check_choice("measurement", self.measurement, get_args(Measurement))
        check_choice("dictionary", self.dictionary, get_args(Basis))
        check_whole_or_none("sparsity", self.sparsity, 1)
        check_whole("records", self.records, 1)


def compressed_sensing(
    cells: int, tau: float, rng: np.random.Generator, parameters: CsmParameters
) -> CompressedSensing:
    """Draw the measurement of a domain of this many cells, padded to a power of two where a transform needs one."""
    basis = dictionary(parameters.dictionary)
    size = 1 << (cells - 1).bit_length() if basis.power_of_two or parameters.measurement == "hadamard" else cells
    matrix = sensing(parameters.measurement, rows_for(tau, size), size, rng, total=parameters.total)
    return CompressedSensing(matrix, basis, cells, parameters.sparsity)


def release(task: CuratorTask, parameters: CsmParameters) -> NoisyHistogram:
    """Release a histogram by compressed sensing; under `replace` the number of records is public and no guess is needed."""
    chosen = parameters.tau
    if chosen is None:
        public = max(1, int(task.counts.sum())) if task.neighbours == "replace" else parameters.records
        chosen = automatic_tau(task.cells, task.epsilon, public)
    how = "automatically, without looking at the data" if parameters.tau is None else "given"
    notes = {"tau": chosen, "tau_chosen": how}
    return release_by(compressed_sensing(task.cells, chosen, task.rng, parameters), task, notes)


def automatic_tau(cells: int, epsilon: float, records: int = 10_000) -> float:
    """A compression ratio from public figures only, so it costs no privacy.

    It minimises the predicted squared error for a compressible histogram whose sorted squared coefficients fall like
    i^-1.5, scaled so that `records` records are spread evenly over sqrt(cells) cells: energy of the coefficients that
    s measurements cannot carry, plus noise 2 K s / epsilon^2 on the K that stand above the noise.
    """
    check_whole("records", records, 1)
    ranks = np.arange(1, cells + 1, dtype=np.float64)
    energy = records**2 / math.sqrt(cells)
    squares = energy * ranks**-1.5 / (ranks**-1.5).sum()
    best, least = TAU_GRID[-1], math.inf
    for tau in TAU_GRID:
        rows = rows_for(tau, cells)
        noise = 2.0 * rows / epsilon**2
        standing = int((squares > noise * 2 * math.log(cells)).sum())
        kept = min(standing, most_atoms(rows))
        tail = float(squares[kept:].sum())
        # What is not recovered also disturbs what is: the residual spreads over the measurements like noise.
        error = tail + kept * (noise + tail / rows)
        if error < least:
            best, least = tau, error
    return best


# The record form: each record measured, noised and recovered on its own.

EXACT_ATTRIBUTES = 16


@dataclass(frozen=True)
class RecordParameters:
    """`tau` is the compression ratio of one record."""

    tau: float = 0.5
    measurement: Literal["gaussian", "bernoulli"] = "gaussian"
    dictionary: Basis = "identity"

    def __post_init__(self) -> None:
        check_tau(self.tau)
        check_choice("measurement", self.measurement, ("gaussian", "bernoulli"))
        check_choice("dictionary", self.dictionary, get_args(Basis))


@dataclass(frozen=True)
class NoisyRecords:
    """Recovered rows of codes, each within its domain, and what they cost each person."""

    codes: Codes
    epsilon: float
    sensitivity: int
    exact: bool


def record_sensitivity(matrix: Codes, cardinalities: Sequence[int]) -> tuple[int, bool]:
    """The largest L1 distance of the measurements of two records, and whether it is exact.

    Records lie in the box of their domains, and the L1 distance of two measurements is convex in their difference, so its
    maximum is at a corner. All corners are tried for up to `EXACT_ATTRIBUTES` attributes; beyond that the sum of the
    column norms is given, an upper bound.
    """
    wide = matrix.astype(np.int64) * (np.asarray(cardinalities, dtype=np.int64) - 1)
    d = wide.shape[1]
    if d > EXACT_ATTRIBUTES:
        return int(np.abs(wide).sum()), False
    # Corners come in opposite pairs with equal norms: the first sign can stay +1.
    corners = np.arange(1 << (d - 1))
    signs = 1 - 2 * ((corners[:, None] << 1 >> np.arange(d)) & 1)
    return int(np.abs(signs @ wide.T).sum(axis=1).max()), True


def release_records(
    codes: Codes,
    cardinalities: Sequence[int],
    epsilon: float,
    source: ByteSource,
    rng: np.random.Generator,
    parameters: RecordParameters,
) -> NoisyRecords:
    """Measure, noise and recover every row; `rng` is public randomness for the one matrix that all records share.

    Trust model: the law is LOCAL, unlike everything else in this package. Each record's vector of codes is measured and noised
    alone, so a person could do it on the device, and the noise would protect the record even from whoever collects the
    measurements. Run here on a table, it is a curator who does it. Guarantee: pure epsilon for one whole record, any record
    against any other. The price is noise that does not average out within a record: for more than a handful of attributes
    the recovered rows are close to random.

    Reference: Zheng et al. 2020, section IV-A (their d x n matrix, column by column).
    """
    check_epsilon(epsilon)
    sizes = np.asarray(cardinalities, dtype=np.int64)
    d = codes.shape[1]
    if sizes.size != d or (codes < 0).any() or (codes >= sizes).any():
        raise ParameterError("codes do not lie in the domains given", where="codes")
    drawn = sensing(parameters.measurement, rows_for(parameters.tau, d), d, rng)
    assert isinstance(drawn, DenseSensing)  # of either kind that the parameters allow
    matrix = drawn.matrix
    sensitivity, exact = record_sensitivity(matrix, cardinalities)
    scale = calibrate(sensitivity, epsilon)
    measured: Integers = codes.astype(np.int64) @ matrix.T.astype(np.int64)
    noisy = measured + discrete_laplace(scale, measured.size, source).reshape(measured.shape)
    recovered = _recover(noisy, matrix, dictionary(parameters.dictionary), sizes, noise_variance(scale))
    return NoisyRecords(recovered, achieved_epsilon(sensitivity, scale), sensitivity, exact)


def _recover(noisy: Integers, matrix: Codes, basis: Dictionary, sizes: Integers, variance: float) -> Codes:
    """Matching pursuit for all rows through one Gram matrix, about the middle of the domain, then rounding into it."""
    from sklearn.linear_model import orthogonal_mp_gram

    middle = (sizes - 1) / 2
    atoms = np.asarray(basis.analyse(matrix.astype(np.float64)), dtype=np.float64)
    norms = np.linalg.norm(atoms, axis=0)
    norms[norms == 0] = 1.0
    atoms = atoms / norms
    centred = noisy - middle @ matrix.T
    sparsity = max(1, int(matrix.shape[0] / (2 * math.log(max(sizes.size, 3)))))
    coefficients = orthogonal_mp_gram(atoms.T @ atoms, atoms.T @ centred.T, n_nonzero_coefs=sparsity).reshape(
        sizes.size, -1
    )
    # Shrink by signal over signal-plus-noise: the signal's variance is at most that of a uniform code, a public figure.
    spread = float(((sizes**2 - 1) / 12).mean()) * norms.mean() ** 2
    values = np.asarray(basis.synthesise((coefficients / norms[:, None]).T)) * (spread / (spread + variance))
    return np.rint(values + middle).clip(0, sizes - 1).astype(np.int32)
