"""The compressed-sensing mechanism, histogram form: few random measurements, noise, sparse recovery.

Trust model: central. A curator holds the table. Guarantee: pure epsilon-differential privacy from the exact L1
sensitivity of the drawn integer matrix (see `strategy`), whatever the dictionary, the recovery and the data. The
paper's own calibration (definition 5, theorem 2) is not followed: it does not establish that guarantee.

What to expect: each record touches every one of the s measurements, so the noise on each has scale about s / epsilon,
and a recovered coefficient carries about s times the variance that the plain Laplace mechanism puts on a cell. With K
recovered coefficients the error is about 2 K s / epsilon^2 against 2 N / epsilon^2: the mechanism gains only where K
s < N.

Reference: Zheng et al., "Differentially private high-dimensional data publication in Internet of Things", 2020,
algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dither.central.measure import DenseSensing, HadamardSensing, rows_for, sensing
from dither.central.noise import ByteSource
from dither.central.sparse import Dictionary, dictionary, matching_pursuit, most_atoms
from dither.central.strategy import HistogramRelease, Neighbours, check_counts, check_neighbours, release_by
from dither.errors import ParameterError
from dither.types import Floats, Integers

DEFAULT_RECORDS = 10_000
# A dense matrix is multiplied by the dictionary in full from this many atoms on: about where that starts to pay.
FORM_AFTER = 16
TAU_GRID = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class CompressedSensing:
    """A drawn measurement with the dictionary it is decoded in."""

    matrix: DenseSensing | HadamardSensing
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
        products: npt.NDArray[np.float32] | None = None

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


def compressed_sensing(
    cells: int,
    *,
    tau: float,
    measurement: str = "hadamard",
    basis: str = "haar",
    sparsity: int | None = None,
    total: bool = True,
    rng: np.random.Generator,
) -> CompressedSensing:
    """Draw the measurement of a domain of this many cells, padded to a power of two where a transform needs one.

    With `total` one of the rows measures the number of records. The paper has random rows only, which leave the
    number of records, and with it every broad query, under sqrt(cells) times more noise than need be.
    """
    chosen = dictionary(basis)
    size = 1 << (cells - 1).bit_length() if chosen.power_of_two or measurement == "hadamard" else cells
    if sparsity is not None and (isinstance(sparsity, bool) or not isinstance(sparsity, int) or sparsity < 1):
        raise ParameterError(f"sparsity must be a whole number of at least 1, not {sparsity!r}", where="sparsity")
    return CompressedSensing(sensing(measurement, rows_for(tau, size), size, rng, total=total), chosen, cells, sparsity)


def release(
    counts: npt.ArrayLike,
    epsilon: float,
    source: ByteSource,
    *,
    rng: np.random.Generator,
    neighbours: str = "add-remove",
    shape: tuple[int, ...] | None = None,
    tau: float | None = None,
    measurement: str = "hadamard",
    dictionary: str = "haar",
    sparsity: int | None = None,
    total: bool = True,
    records: int = DEFAULT_RECORDS,
) -> HistogramRelease:
    """Release a histogram by compressed sensing.

    `rng` is public randomness for the matrix, `source` the secret noise. Without `tau` it is chosen by
    `automatic_tau` from the domain size, epsilon and `records`, a public guess of the table's size; under `replace`
    that size is public.
    """
    histogram = check_counts(counts)
    notion = check_neighbours(neighbours)
    chosen = tau
    if chosen is None:
        public = int(histogram.sum()) if notion == "replace" else records
        chosen = automatic_tau(histogram.size, epsilon, public)
    strategy = compressed_sensing(
        histogram.size, tau=chosen, measurement=measurement, basis=dictionary, sparsity=sparsity, total=total, rng=rng
    )
    return release_by(
        strategy, histogram, epsilon, source, notion,
        tau=chosen, tau_chosen="given" if tau is not None else "automatically, without looking at the data",
        measurement=measurement, dictionary=dictionary, total_measured=total,
    )  # fmt: skip


def automatic_tau(cells: int, epsilon: float, records: int = DEFAULT_RECORDS) -> float:
    """A compression ratio from public figures only, so it costs no privacy.

    It minimises the predicted squared error for a compressible histogram whose sorted squared coefficients fall like
    i^-1.5, scaled so that `records` records are spread evenly over sqrt(cells) cells: energy of the coefficients that
    s measurements cannot carry, plus noise 2 K s / epsilon^2 on the K that stand above the noise.
    """
    if records < 1:
        raise ParameterError(f"records must be at least 1, not {records!r}", where="records", value=records)
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
