"""From a noisy measurement back to a histogram: sparse recovery, its dictionary and sparsity chosen by penalised residuals.

Everything here sees the noisy measurement, the public matrix and the public variance of the noise, never the table: it is
post-processing and costs no privacy. So several ways of recovering are tried, and the one is kept whose squared residual,
plus a price for what it was free to choose, is least. Deviations from an even spread of the total are what is sparse.

Reference: penalties 2 v K (1 + ln(N / K)) for K atoms out of N: Birgé, Massart, "Gaussian model selection", JEMS 2001;
2 v K for a projection with K free cells: Stein, "Estimation of the mean of a multivariate normal distribution", 1981.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.central.sensing import DenseSensing, Sensing, SparseSensing
from dither.central.sparse import Dictionary, dictionary, leaves_below, matching_pursuit, most_atoms
from dither.fit.project import norm_sub
from dither.types import Flags, Floats, Integers, Singles

# A dense matrix is multiplied by the dictionary in full from this many atoms on: about where that starts to pay.
FORM_AFTER = 16
STEPS = 150
SIGNIFICANT = 1.0  # standard deviations of the noise on a level of the Haar basis: bias below it is not counted
NO_NOISE = 1e-12  # a variance that stands for none


@dataclass(frozen=True)
class Recovery:
    """An estimate of the cells, how it was found, with how many atoms, and its penalised squared residual."""

    estimate: Floats
    form: str
    atoms: int
    penalised: float


def recover(
    matrix: Sensing,
    noisy: Floats,
    variance: float,
    dictionaries: Sequence[str],
    sparsity: int | None,
) -> Recovery:
    """The best of all recoveries with these dictionaries; one that measured the total keeps it, and no cell below zero."""
    variance = max(variance, NO_NOISE)
    total = float(noisy[0]) / matrix.unit if matrix.total else None
    if isinstance(matrix, SparseSensing) and matrix.alone:
        found = list(_by_cells(matrix, noisy, variance, dictionaries, sparsity))
    else:
        found = list(_by_pursuit(matrix, noisy, variance, dictionaries, sparsity, total))
    best = min(found, key=lambda one: one.penalised)
    if total is None:
        return best
    return Recovery(non_negative(best.estimate, total), best.form, best.atoms, best.penalised)


def non_negative(cells: Floats, total: float) -> Floats:
    """The nearest cells, none below zero, with this total; no cells at all where the total is not above zero."""
    return norm_sub(cells / total) * total if total > 0 else np.zeros_like(cells)


def price(atoms: Integers | int, candidates: int, variance: float) -> Floats:
    """What the free choice of so many atoms is charged."""
    kept = np.asarray(atoms, dtype=np.float64)
    return 2 * variance * kept * (1 + np.log(candidates / np.maximum(kept, 1)))


# ---- every cell measured by itself ------------------------------------------------------------------------------------


def _by_cells(
    matrix: SparseSensing,
    noisy: Floats,
    variance: float,
    dictionaries: Sequence[str],
    sparsity: int | None,
) -> Iterator[Recovery]:
    """Noise that is white over the cells is white in every orthonormal dictionary, so atoms are kept by size alone."""
    cells = matrix.size
    direct = matrix.signs[0] * noisy[int(matrix.total) :][matrix.places[0]]
    if matrix.total:
        direct = direct + (noisy[0] - direct.sum()) / (cells + 1)  # least squares with the total
    mean, total = direct.mean(), float(direct.sum())
    for name in dictionaries:
        basis = dictionary(name)
        deviations = padded(direct - mean, basis)
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
        yield Recovery(
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
        yield Recovery(
            estimate,
            "identity",
            int(above.sum()),
            expected_error(direct - estimate, degrees, variance, chance),
        )


def freedom(name: str, kept: Flags, above: Flags) -> Floats:
    """What part of its own noise each Haar coefficient of an estimate keeps, from the kept atoms of its dictionary.

    Haar atoms of one run length lie in the span of Walsh atoms with as many trailing zero bits, and nearly in that of an octave
    of cosines. Cells that were raised to zero keep none.
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
    return share * np.concatenate([kept[:1], np.repeat(parts, 1 << np.arange(levels))])


def _means(cells: Floats) -> Floats:
    """The mean of some cells over the run of every Haar atom, in the order of its coefficients."""
    sums = padded(cells, dictionary("haar"))
    size = sums.size
    out = np.empty(size)
    out[0] = sums.mean()
    while sums.size > 1:
        sums = sums[0::2] + sums[1::2]
        out[sums.size : 2 * sums.size] = sums * (sums.size / size)
    return out


def expected_error(residual: Floats, degrees: Floats, variance: float, chance: float) -> float:
    """A guess, unbiased but for a constant, of the mean squared error over broad questions: subsets of cells and ranges.

    Stein's: squared residual plus twice the variance for every degree of freedom, of which `chance` come from single cells that
    Laplace noise lifts over a threshold oftener than normal noise would. It is taken in the Haar basis, where a random subset of
    N cells weighs every coefficient by 1/4, and a random range that of a run of m cells by m^2 / (6 N): small errors that
    add up along the domain are worse than the cells say. Bias that noise may be is not counted: the few coarse coefficients weigh
    so much that their noise would choose. Nor is the total, which is measured by itself and kept by all.
    """
    basis = dictionary("haar")
    wide = np.asarray(basis.analyse(padded(residual, basis)), dtype=np.float64)
    levels = wide.size.bit_length() - 1
    starts = np.append(0, 1 << np.arange(levels))
    runs = leaves_below(wide.size)[starts].astype(np.float64)
    weights = 0.25 + runs**2 / (6 * wide.size)
    bias = np.add.reduceat(wide**2 - variance * (1 - degrees), starts)
    counts = np.append(1, 1 << np.arange(levels))
    bias = (bias - SIGNIFICANT * variance * np.sqrt(2 * counts)).clip(0)
    kept = np.add.reduceat(degrees, starts) * variance
    errors = weights * (bias + kept)
    average = float((weights * counts).sum()) / wide.size
    return float(errors[1:].sum()) + 2 * variance * chance * average


def largest(coefficients: Floats, heights: Floats, variance: float, sparsity: int | None) -> Flags:
    """Which coefficients of white noise plus signal are kept: those with the least penalised residual.

    Laplace noise has heavier tails than normal noise in an atom of few cells, lighter ones after summing many: Bernstein's
    bound for the sum gives what an atom has to exceed, by the height of the atom.
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


# ---- cells measured together ------------------------------------------------------------------------------------------


def _by_pursuit(
    matrix: Sensing,
    noisy: Floats,
    variance: float,
    dictionaries: Sequence[str],
    sparsity: int | None,
    total: float | None,
) -> Iterator[Recovery]:
    mean = 0.0 if total is None else max(0.0, total) / matrix.size
    spread = np.full(matrix.size, mean)
    residual = noisy - matrix.forward(spread)
    for name in dictionaries:
        deviations, atoms = pursue(matrix, dictionary(name), residual, variance, sparsity)
        left = float(((residual - matrix.forward(deviations)) ** 2).sum())
        yield Recovery(
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
        yield Recovery(estimate, "identity", kept, left + 2 * variance * min(kept, matrix.rows))


def pursue(
    matrix: Sensing, basis: Dictionary, noisy: Floats, variance: float, sparsity: int | None
) -> tuple[Floats, int]:
    """Cells by matching pursuit, and how many atoms; atoms below the universal threshold of the known noise are not taken."""
    cells, size = matrix.size, _size(matrix.size, basis)
    atoms, stop = (sparsity, 0.0)
    if atoms is None:
        atoms, stop = most_atoms(matrix.rows), math.sqrt(variance * 2 * math.log(size))
    taken = 0
    products: Singles | None = None

    def atom(index: int) -> Floats:
        nonlocal taken, products
        taken += 1
        if taken == FORM_AFTER and isinstance(matrix, DenseSensing):
            products = np.asarray(basis.analyse(padded(matrix.floating, basis)))
        if products is not None:
            return np.asarray(products[:, index], dtype=np.float64)
        unit = np.zeros(size)
        unit[index] = 1.0
        return matrix.forward(np.asarray(basis.synthesise(unit), dtype=np.float64)[:cells])

    def correlate(residual: Floats) -> Floats:
        if products is not None:
            return np.asarray(residual.astype(np.float32) @ products, dtype=np.float64)
        return np.asarray(
            basis.analyse(padded(matrix.correlate(residual), basis)), dtype=np.float64
        )

    norms = _norms(matrix, basis)
    picked, values = matching_pursuit(
        noisy, atom, correlate, atoms=min(atoms, matrix.rows), stop=stop, norms=norms
    )
    coefficients = np.zeros(size)
    coefficients[picked] = values
    return np.asarray(basis.synthesise(coefficients), dtype=np.float64)[:cells], len(picked)


def _norms(matrix: Sensing, basis: Dictionary) -> Floats:
    """The expected norm of every atom: random rows give their share of unit^2, the row of ones its exact share."""
    mixing = (
        matrix.entries if isinstance(matrix, SparseSensing) else matrix.rows - int(matrix.total)
    )
    squares = np.full(_size(matrix.size, basis), float(mixing))
    if matrix.total:
        squares += (
            np.asarray(basis.analyse(padded(np.ones(matrix.size), basis)), dtype=np.float64) ** 2
        )
    squares[squares == 0] = math.inf  # an atom that nothing measures is never picked
    return np.asarray(matrix.unit * np.sqrt(squares))


def non_negative_least_squares(matrix: SparseSensing, noisy: Floats, total: float) -> Floats:
    """The cells, none below zero and with this total, whose measurement is nearest: few cells, without a dictionary.

    Reference: accelerated projected gradients, Beck, Teboulle, "A fast iterative shrinkage-thresholding algorithm", 2009;
    non-negativity alone recovers sparse vectors: Slawski, Hein, "Non-negative least squares for high-dimensional linear
    models", 2013.
    """
    size = matrix.size
    probe = np.cos(np.arange(size, dtype=np.float64))
    steepest = 1.0
    for _ in range(20):
        probe = (
            matrix.correlate(matrix.forward(probe)) - probe.sum()
        )  # the total is held, so its row does not count
        steepest = max(1.0, float(np.linalg.norm(probe)))
        probe /= steepest
    here = non_negative(np.ones(size), total)
    ahead, pace = here, 1.0
    for _ in range(STEPS):
        slope = matrix.correlate(matrix.forward(ahead) - noisy)
        new = non_negative(ahead - slope / (1.1 * steepest), total)
        if float(slope @ (new - here)) > 0:  # overshot: start the momentum anew
            ahead, pace = new, 1.0
        else:
            faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2
            ahead, pace = new + (pace - 1) / faster * (new - here), faster
        here = new
    return here


def _size(cells: int, basis: Dictionary) -> int:
    return 1 << (cells - 1).bit_length() if basis.power_of_two else cells


def padded(vector: npt.NDArray[Any], basis: Dictionary) -> npt.NDArray[Any]:
    """With empty cells after the last, where the dictionary needs a power of two."""
    more = _size(vector.shape[-1], basis) - vector.shape[-1]
    return np.pad(vector, [*[(0, 0)] * (vector.ndim - 1), (0, more)]) if more else vector
