"""The compressed-sensing mechanism, record form: each record measured, noised and recovered on its own.

Trust model: the law is LOCAL, unlike everything else in this package. Each record's vector of codes is measured and
noised alone, so a person could do it on the device, and the noise would protect the record even from whoever collects the
measurements. Run here on a table, it is a curator who does it.
Guarantee: pure epsilon for one whole record, any record against any other. The price is noise that does not average
out within a record: for more than a handful of attributes the recovered rows are close to random.

Sensitivity: records lie in the box of their domains, and the L1 distance of two measurements is convex in their
difference, so its maximum is at a corner. It is exact for up to `EXACT_ATTRIBUTES` attributes (all corners are
tried), beyond that the sum of the column norms, an upper bound.

Reference: Zheng et al. 2020, section IV-A (their d x n matrix, column by column).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dither.central.measure import HadamardSensing, rows_for, sensing
from dither.central.noise import ByteSource, achieved_epsilon, calibrate, discrete_laplace, noise_variance
from dither.central.sparse import dictionary as find_dictionary
from dither.errors import ParameterError
from dither.mechanisms.probability import check_epsilon
from dither.types import Codes, Integers

EXACT_ATTRIBUTES = 16
TRUST = "local law, run by a curator who holds the table: each record is noised on its own"


@dataclass(frozen=True)
class RecordRelease:
    """Recovered rows of codes, each within its domain, and what they cost each person."""

    codes: Codes
    epsilon: float
    sensitivity: int
    exact: bool


def record_sensitivity(matrix: npt.NDArray[np.integer], cardinalities: Sequence[int]) -> tuple[int, bool]:
    """The largest L1 distance of the measurements of two records, and whether it is exact."""
    wide = matrix.astype(np.int64) * (np.asarray(cardinalities, dtype=np.int64) - 1)
    d = wide.shape[1]
    if d > EXACT_ATTRIBUTES:
        return int(np.abs(wide).sum()), False
    # Corners come in opposite pairs with equal norms: the first sign can stay +1.
    corners = np.arange(1 << (d - 1))
    signs = 1 - 2 * ((corners[:, None] << 1 >> np.arange(d)) & 1)
    return int(np.abs(signs @ wide.T).sum(axis=1).max()), True


def release_records(
    codes: npt.NDArray[np.integer],
    cardinalities: Sequence[int],
    epsilon: float,
    source: ByteSource,
    *,
    rng: np.random.Generator,
    tau: float = 0.5,
    measurement: str = "gaussian",
    dictionary: str = "identity",
) -> RecordRelease:
    """Measure, noise and recover every row; `rng` is public randomness for the one matrix that all records share."""
    check_epsilon(epsilon)
    sizes = np.asarray(cardinalities, dtype=np.int64)
    d = codes.shape[1]
    if sizes.size != d or (codes < 0).any() or (codes >= sizes).any():
        raise ParameterError("codes do not lie in the domains given", where="codes")
    drawn = sensing(measurement, rows_for(tau, d), d, rng)
    if isinstance(drawn, HadamardSensing):
        raise ParameterError("the record form measures with a gaussian or bernoulli matrix", where="measurement")
    matrix = drawn.matrix
    sensitivity, exact = record_sensitivity(matrix, cardinalities)
    scale = calibrate(sensitivity, epsilon)
    measured: Integers = codes.astype(np.int64) @ matrix.T.astype(np.int64)
    noisy = measured + discrete_laplace(scale, measured.size, source).reshape(measured.shape)
    recovered = _recover(noisy, matrix, dictionary, sizes, noise_variance(scale))
    return RecordRelease(recovered, achieved_epsilon(sensitivity, scale), sensitivity, exact)


def _recover(
    noisy: Integers, matrix: npt.NDArray[np.integer], dictionary: str, sizes: Integers, variance: float
) -> Codes:
    """Matching pursuit for all rows through one Gram matrix, about the middle of the domain, then rounding into it."""
    from sklearn.linear_model import orthogonal_mp_gram

    basis = find_dictionary(dictionary)
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
