"""The compressed-sensing method, histogram form: random measurements, noise, sparse recovery.

The record form is `records`. Trust model: central. A curator holds the table.
Guarantee: pure epsilon-differential privacy from the exact L1 sensitivity of the drawn
integer matrix (see `measurement`), for any dictionary, recovery and data. The paper's
calibration (definition 5, theorem 2) is not used, because it does not establish that
guarantee.

**Expected error.** A record changes all s rows of a *dense* matrix, so the noise on
each has scale s / epsilon; with K recovered coefficients the error is about 2 K s /
epsilon^2 against 2 N / epsilon^2 for plain Laplace noise, a gain only if K s < N. In a
*sparse* matrix a record changes d rows and the total, so the scale is (d + 1) / epsilon
for any number of rows. More rows then cost nothing, and a cell is more precise the
fewer others share its rows. So the default has one row for each cell and one for the
total. The gain comes from recovery: few atoms exceed noise of known size, in the
dictionary where they are few.

**Recovery.** It uses the noisy measurement, the public matrix and the public variance
of the noise, never the table: it is post-processing and costs no privacy. Several
recoveries are tried, and the one with the least squared residual plus penalty for its
degrees of freedom is kept. The sparse signal is the deviation from an even spread of
the total.

References: Zheng et al., "Differentially private high-dimensional data publication in
Internet of Things", 2020, algorithm 1. Penalties 2 v K (1 + ln(N / K)) for K atoms out
of N: Birgé, Massart, "Gaussian model selection", JEMS 2001; 2 v K for a projection with
K free cells: Stein, "Estimation of the mean of a multivariate normal distribution",
1981.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from dither.central.measurement import MAX_RECORDS, CuratorTask, Neighbours, NoisyHistogram, observe
from dither.central.sensing import (
    DenseSensing,
    Measurement,
    Sensing,
    SparseSensing,
    check_tau,
    rows_for,
    sensing,
)
from dither.central.sparse import (
    UNION,
    Basis,
    Dictionary,
    dictionary,
    leaves_below,
    matching_pursuit,
    most_atoms,
)
from dither.checks import check_choice, check_whole, check_whole_or_none
from dither.fit import norm_sub
from dither.types import Flags, Floats, Integers, Singles

# From this number of atoms on, forming the product of a dense matrix and the dictionary is faster.
FORM_AFTER = 16
# Smaller variances count as no noise.
NO_NOISE = 1e-12


@dataclass(frozen=True)
class _CsmSettings:
    """Tuned constants of compressed sensing (docs/explanation/central-release.md)."""

    # Steps of non-negative least squares, which bound its time.
    steps: int = 150
    # Bias below this number of standard deviations of a Haar level's noise is not counted.
    significance: float = 1.0
    # Rows per cell if each cell enters several rows; with one entry there is a row for each cell.
    shared_tau: float = 0.3


SETTINGS = _CsmSettings()


@dataclass(frozen=True)
class _Recovery:
    """An estimate of the cells with its form, number of atoms and penalised squared residual."""

    estimate: Floats
    form: str
    atoms: int
    penalised: float


def _recover(
    matrix: Sensing,
    noisy: Floats,
    variance: float,
    dictionaries: Sequence[str],
    sparsity: int | None,
) -> _Recovery:
    """The best recovery with these dictionaries.

    Its cells are non-negative and keep the total, if that was measured.
    """
    variance = max(variance, NO_NOISE)
    total = float(noisy[0]) / matrix.unit if matrix.total else None
    # White noise over cells is white over the atoms of an orthonormal dictionary only.
    if isinstance(matrix, SparseSensing) and matrix.alone and UNION not in dictionaries:
        found = list(_by_cells(matrix, noisy, variance, dictionaries, sparsity))
    else:
        found = list(_by_pursuit(matrix, noisy, variance, dictionaries, sparsity, total))
    best = min(found, key=lambda one: one.penalised)
    if total is None:
        return best
    return _Recovery(non_negative(best.estimate, total), best.form, best.atoms, best.penalised)


def non_negative(cells: Floats, total: float) -> Floats:
    """The nearest non-negative cells with this total; all zero if the total is not positive."""
    return norm_sub(cells / total) * total if total > 0 else np.zeros_like(cells)


def price(atoms: Integers | int, candidates: int, variance: float) -> Floats:
    """The penalty for choosing this number of atoms."""
    kept: Floats = np.asarray(atoms, dtype=np.float64)
    penalty: Floats = 2 * variance * kept * (1 + np.log(candidates / np.maximum(kept, 1)))
    return penalty


# Recovery from separate measurements of all cells.


def _by_cells(
    matrix: SparseSensing,
    noisy: Floats,
    variance: float,
    dictionaries: Sequence[str],
    sparsity: int | None,
) -> Iterator[_Recovery]:
    """Recovery from noise that is white over cells, and so in every orthonormal dictionary.

    Atoms are then kept by size alone.
    """
    cells = matrix.size
    direct = matrix.signs[0] * noisy[int(matrix.total) :][matrix.places[0]]
    if matrix.total:
        # Least squares with the total.
        direct = direct + (noisy[0] - direct.sum()) / (cells + 1)
    mean, total = direct.mean(), float(direct.sum())
    for name in dictionaries:
        basis = dictionary(name)
        deviations = _padded(direct - mean, basis)
        coefficients = np.asarray(basis.analyse(deviations), dtype=np.float64)
        kept = largest(coefficients, basis.heights(deviations.size), variance, sparsity)
        estimate = mean + np.asarray(basis.synthesise(np.where(kept, coefficients, 0.0)))[:cells]
        if matrix.total:
            estimate = non_negative(estimate, total)
        chance = 0.0
        if name == "identity" and kept.any():
            least = float(np.abs(coefficients[kept]).min()) / math.sqrt(variance / 2)
            chance = cells * math.exp(-least) * (least + least**2 / 2)
        degrees = freedom(
            name, kept, estimate > 0 if matrix.total else np.ones(cells, dtype=np.bool_)
        )
        yield _Recovery(
            estimate,
            name,
            int(kept.sum()),
            expected_error(direct - estimate, degrees, variance, chance),
        )
    if "identity" in dictionaries and sparsity is None and matrix.total:
        estimate = non_negative(direct, total)
        above = estimate > 0
        cut = (
            max(0.0, float((direct - estimate)[above].mean())) / math.sqrt(variance / 2)
            if above.any()
            else 0.0
        )
        chance = cells * math.exp(-cut) * cut / 4
        degrees = freedom("identity", above, above)
        yield _Recovery(
            estimate,
            "identity",
            int(above.sum()),
            expected_error(direct - estimate, degrees, variance, chance),
        )


def freedom(name: str, kept: Flags, above: Flags) -> Floats:
    """The share of its noise that each Haar coefficient of an estimate keeps, from the kept atoms.

    Haar atoms of one run length lie in the span of Walsh atoms with the same number of
    trailing zero bits, and nearly in that of an octave of cosines. Cells that were
    raised to zero keep none.
    """
    share = _means(above.astype(np.float64))
    if name == "identity":
        return _means((kept & above).astype(np.float64))
    size, order = share.size, np.arange(1, kept.size)
    if name == "haar":
        return share * kept
    if name == "walsh":
        octave = size.bit_length() - 2 - np.log2(order & -order).astype(np.int64)
    else:
        octave = np.log2(order * (size / kept.size)).astype(np.int64)
    levels = size.bit_length() - 1
    octave = octave.clip(0, max(0, levels - 1))
    parts = np.bincount(octave, weights=kept[1:], minlength=levels) / np.maximum(
        np.bincount(octave, minlength=levels), 1
    )
    shares: Floats = share * np.concatenate([kept[:1], np.repeat(parts, 1 << np.arange(levels))])
    return shares


def _means(cells: Floats) -> Floats:
    """The mean of some cells over the run of each Haar atom, in the order of its coefficients."""
    sums = _padded(cells, dictionary("haar"))
    size = sums.size
    out = np.empty(size)
    out[0] = sums.mean()
    while sums.size > 1:
        sums = sums[0::2] + sums[1::2]
        out[sums.size : 2 * sums.size] = sums * (sums.size / size)
    return out


def expected_error(residual: Floats, degrees: Floats, variance: float, chance: float) -> float:
    """Estimate the mean squared error over subsets of cells and ranges, up to a constant.

    Stein's estimate: squared residual plus twice the variance for each degree of
    freedom, of which `chance` come from single cells that Laplace noise lifts above a
    threshold more often than normal noise. It is computed in the Haar basis, where a
    random subset of N cells weighs each coefficient by 1/4, and a random range that of
    a run of m cells by m^2 / (6 N): small errors that add up along the domain are worse
    than those of cells. Bias within the noise is not counted: the few coarse
    coefficients have such weight that their noise would decide. The total is not
    counted either; it is measured separately and kept by all.
    """
    basis = dictionary("haar")
    wide = np.asarray(basis.analyse(_padded(residual, basis)), dtype=np.float64)
    levels = wide.size.bit_length() - 1
    starts = np.append(0, 1 << np.arange(levels))
    runs = leaves_below(wide.size)[starts].astype(np.float64)
    weights = 0.25 + runs**2 / (6 * wide.size)
    bias = np.add.reduceat(wide**2 - variance * (1 - degrees), starts)
    counts = np.append(1, 1 << np.arange(levels))
    bias = (bias - SETTINGS.significance * variance * np.sqrt(2 * counts)).clip(0)
    kept = np.add.reduceat(degrees, starts) * variance
    errors = weights * (bias + kept)
    average = float((weights * counts).sum()) / wide.size
    return float(errors[1:].sum()) + 2 * variance * chance * average


def largest(coefficients: Floats, heights: Floats, variance: float, sparsity: int | None) -> Flags:
    """The kept coefficients of white noise plus signal: those with the least penalised residual.

    Laplace noise has heavier tails than normal noise in an atom of few cells, and
    lighter ones in sums of many. Bernstein's bound for the sum is the threshold of an
    atom, by its height.
    """
    size = coefficients.size
    squares = coefficients**2
    reach = math.sqrt(2 * math.log(size)) + heights * math.log(size) / math.sqrt(2)
    order = np.argsort(-np.abs(coefficients) / reach, kind="stable")
    left = np.append(squares.sum(), squares.sum() - np.cumsum(squares[order])).clip(0)
    counts = np.arange(size + 1)
    logs = 1 + np.log(size / np.maximum(counts, 1))
    ups, downs = (np.append(0.0, np.cumsum(heights[order] ** power)) for power in (1, 2))
    # sum over the kept of v (sqrt(2 L) + h L / sqrt(2))^2
    prices = variance * (2 * logs * counts + 2 * logs**1.5 * ups + logs**2 * downs / 2)
    best = int((left + prices).argmin()) if sparsity is None else min(sparsity, size)
    kept = np.zeros(size, dtype=np.bool_)
    kept[order[:best]] = True
    return kept


# Recovery from joint measurements of cells.


def _by_pursuit(
    matrix: Sensing,
    noisy: Floats,
    variance: float,
    dictionaries: Sequence[str],
    sparsity: int | None,
    total: float | None,
) -> Iterator[_Recovery]:
    mean = 0.0 if total is None else max(0.0, total) / matrix.size
    spread = np.full(matrix.size, mean)
    residual = noisy - matrix.forward(spread)
    for name in dictionaries:
        deviations, atoms = pursue(matrix, dictionary(name), residual, variance, sparsity)
        left = float(((residual - matrix.forward(deviations)) ** 2).sum())
        yield _Recovery(
            spread + deviations, name, atoms, left + float(price(atoms, matrix.size, variance))
        )
    if (
        "identity" in dictionaries
        and sparsity is None
        and total is not None
        and isinstance(matrix, SparseSensing)
    ):
        estimate = non_negative_least_squares(matrix, noisy, total)
        kept = int((estimate > 0).sum())
        left = float(((noisy - matrix.forward(estimate)) ** 2).sum())
        yield _Recovery(estimate, "identity", kept, left + 2 * variance * min(kept, matrix.rows))


def pursue(
    matrix: Sensing, basis: Dictionary, noisy: Floats, variance: float, sparsity: int | None
) -> tuple[Floats, int]:
    """Cells by matching pursuit, and the number of atoms above the noise's universal threshold."""
    cells, size = matrix.size, basis.atoms(_size(matrix.size, basis))
    atoms, stop = (sparsity, 0.0)
    if atoms is None:
        atoms, stop = most_atoms(matrix.rows), math.sqrt(variance * 2 * math.log(size))
    taken = 0
    products: Singles | None = None

    def atom(index: int) -> Floats:
        nonlocal taken, products
        taken += 1
        if taken == FORM_AFTER and isinstance(matrix, DenseSensing):
            products = np.asarray(basis.analyse(_padded(matrix.floating, basis)))
        if products is not None:
            return np.asarray(products[:, index], dtype=np.float64)
        unit = np.zeros(size)
        unit[index] = 1.0
        return matrix.forward(np.asarray(basis.synthesise(unit), dtype=np.float64)[:cells])

    def correlate(residual: Floats) -> Floats:
        if products is not None:
            return np.asarray(residual.astype(np.float32) @ products, dtype=np.float64)
        return np.asarray(
            basis.analyse(_padded(matrix.correlate(residual), basis)), dtype=np.float64
        )

    norms = _norms(matrix, basis)
    picked, values = matching_pursuit(
        noisy, atom, correlate, atoms=min(atoms, matrix.rows), stop=stop, norms=norms
    )
    coefficients = np.zeros(size)
    coefficients[picked] = values
    return np.asarray(basis.synthesise(coefficients), dtype=np.float64)[:cells], len(picked)


def _norms(matrix: Sensing, basis: Dictionary) -> Floats:
    """The expected norm of each atom: from random rows, and exactly from the row of ones."""
    mixing = (
        matrix.entries if isinstance(matrix, SparseSensing) else matrix.rows - int(matrix.total)
    )
    squares = np.full(basis.atoms(_size(matrix.size, basis)), float(mixing))
    if matrix.total:
        squares += (
            np.asarray(basis.analyse(_padded(np.ones(matrix.size), basis)), dtype=np.float64) ** 2
        )
    # An atom without a measurement is never picked.
    squares[squares == 0] = math.inf
    return np.asarray(matrix.unit * np.sqrt(squares))


def non_negative_least_squares(matrix: SparseSensing, noisy: Floats, total: float) -> Floats:
    """Non-negative cells with this total and the nearest measurement.

    Reference: accelerated projected gradients, Beck, Teboulle, "A fast iterative
    shrinkage-thresholding algorithm", 2009; non-negativity alone recovers sparse
    vectors: Slawski, Hein, "Non-negative least squares for high-dimensional linear
    models", 2013.
    """
    size = matrix.size
    probe = np.cos(np.arange(size, dtype=np.float64))
    steepest = 1.0
    for _ in range(20):
        # The total is fixed, so its row does not count.
        probe = matrix.correlate(matrix.forward(probe)) - probe.sum()
        steepest = max(1.0, float(np.linalg.norm(probe)))
        probe /= steepest
    here = non_negative(np.ones(size), total)
    ahead, pace = here, 1.0
    for _ in range(SETTINGS.steps):
        slope = matrix.correlate(matrix.forward(ahead) - noisy)
        new = non_negative(ahead - slope / (1.1 * steepest), total)
        # Restart the momentum after an overshoot.
        if float(slope @ (new - here)) > 0:
            ahead, pace = new, 1.0
        else:
            faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2
            ahead, pace = new + (pace - 1) / faster * (new - here), faster
        here = new
    return here


def _size(cells: int, basis: Dictionary) -> int:
    return 1 << (cells - 1).bit_length() if basis.power_of_two else cells


def _padded(vector: npt.NDArray[Any], basis: Dictionary) -> npt.NDArray[Any]:
    """With empty cells after the last, where the dictionary needs a power of two."""
    more = _size(vector.shape[-1], basis) - vector.shape[-1]
    return np.pad(vector, [*[(0, 0)] * (vector.ndim - 1), (0, more)]) if more else vector


MAX_ENTRIES = 8
TAU_GRID = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.03,
    0.05,
    0.08,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
)


@dataclass(frozen=True)
class _CompressedSensing:
    """A drawn measurement with the dictionaries it may be decoded in."""

    matrix: Sensing
    dictionaries: tuple[str, ...]
    cells: int
    sparsity: int | None = None

    def measure(self, counts: Integers) -> Integers:
        padded = np.zeros(self.matrix.size, dtype=np.int64)
        padded[: counts.size] = counts
        return self.matrix.apply(padded)

    def sensitivity(self, neighbours: Neighbours) -> int:
        """Of the drawn matrix, over all its columns, padding cells included."""
        return self.matrix.sensitivity(neighbours)

    def recover(self, noisy: Integers, variance: float) -> _Recovery:
        """The estimate of all columns, and which dictionary was taken."""
        return _recover(
            self.matrix, noisy.astype(np.float64), variance, self.dictionaries, self.sparsity
        )

    def decode(self, noisy: Integers, variance: float) -> Floats:
        return self.recover(noisy, variance).estimate[: self.cells]


@dataclass(frozen=True)
class CsmParameters:
    """Parameters of measurement and recovery.

    The paper has dense random rows only. They leave the number of records, and with it
    all broad queries, with sqrt(cells) times more noise than necessary.

    Attributes:
        entries: Rows of a sparse matrix that a record changes besides the total.
        tau: Compression ratio, rows over cells. By default a sparse matrix has one row
            for each cell, or 0.3 times that number with two or more `entries`; a dense
            one has `automatic_tau`.
        records: A public guess of the table's size, for `automatic_tau`.
        dictionary: The dictionary; by default the orthonormal one with the least penalised
            residual after the noise. `dct+haar` is not orthonormal.
        sparsity: The number of atoms; by default chosen likewise.
        total: Whether one row measures the number of records.
    """

    tau: float | None = None
    measurement: Measurement = "sparse"
    entries: int | None = None
    dictionary: Literal["automatic", "dct", "haar", "walsh", "identity", "dct+haar"] = "automatic"
    sparsity: int | None = None
    total: bool = True
    records: int = 10_000

    def __post_init__(self) -> None:
        if self.tau is not None:
            check_tau(self.tau)
        check_choice("measurement", self.measurement, get_args(Measurement))
        check_choice("dictionary", self.dictionary, ("automatic", *get_args(Basis), UNION))
        check_whole_or_none("entries", self.entries, 1, MAX_ENTRIES)
        check_whole_or_none("sparsity", self.sparsity, 1)
        check_whole("records", self.records, 1, MAX_RECORDS)

    def ratio(self, cells: int, epsilon: float, records: int) -> float:
        """The compression ratio, from public figures."""
        if self.tau is not None:
            return self.tau
        if self.measurement == "sparse":
            return SETTINGS.shared_tau if (self.entries or 1) > 1 else 1.0
        return automatic_tau(cells, epsilon, records)

    def columns(self, tau: float) -> int:
        """Rows of a sparse matrix that a record changes: one if each cell has a row, else four."""
        return self.entries or (1 if tau == 1.0 else 4)


def compressed_sensing(
    cells: int, tau: float, rng: np.random.Generator, parameters: CsmParameters
) -> _CompressedSensing:
    """Draw the measurement of a domain; the Hadamard matrix pads it to a power of two."""
    kind = parameters.measurement
    size = 1 << (cells - 1).bit_length() if kind == "hadamard" else cells
    entries = parameters.columns(tau)
    matrix = sensing(kind, rows_for(tau, size), size, rng, total=parameters.total, entries=entries)
    names: tuple[str, ...] = (parameters.dictionary,)
    if parameters.dictionary == "automatic":
        names = get_args(Basis)
    return _CompressedSensing(matrix, names, cells, parameters.sparsity)


def release(task: CuratorTask, parameters: CsmParameters) -> NoisyHistogram:
    """Release a histogram by compressed sensing.

    Under `replace` the number of records is public and needs no guess.
    """
    public = max(1, int(task.counts.sum())) if task.neighbours == "replace" else parameters.records
    chosen = parameters.ratio(task.cells, task.epsilon, public)
    drawn = compressed_sensing(task.cells, chosen, task.rng, parameters)
    seen = observe(drawn, task.counts, task.epsilon, task.source, task.neighbours)
    found = drawn.recover(seen.values, seen.variance)
    how = "without looking at the data" if parameters.tau is None else "given"
    notes = {
        "tau": chosen,
        "tau_chosen": how,
        "dictionary_used": found.form,
        "atoms": found.atoms,
        **seen.notes,
    }
    return NoisyHistogram(found.estimate[: task.cells], seen.epsilon, notes)


def automatic_tau(cells: int, epsilon: float, records: int = 10_000) -> float:
    """A compression ratio for a dense matrix, from public figures only, so it costs no privacy.

    It minimises the predicted squared error for a compressible histogram whose sorted
    squared coefficients decrease like i^-1.5, scaled so that `records` records are
    spread evenly over sqrt(cells) cells: energy of the coefficients that s measurements
    cannot carry, plus noise 2 K s / epsilon^2 on the K that exceed the noise.
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
        # The residual of coefficients that are not recovered adds to the noise of the others.
        error = tail + kept * (noise + tail / rows)
        if error < least:
            best, least = tau, error
    return best
