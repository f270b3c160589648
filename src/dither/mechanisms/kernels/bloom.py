"""Bloom-filter reports for many people, and the regression that reads them.

The expected frequency of bit j is q + (p-q) times the total frequency of the values whose filter sets it; least squares on the
filters' matrix inverts that without bias. Since p = 1-q, every bit has the variance q(1-q)/(n(p-q)^2) whatever the data, so the
estimate's covariance is that times the inverse Gram matrix of the filters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dither.errors import ParameterError
from dither.mechanisms.kernels.bits import bernoulli_rows
from dither.mechanisms.kernels.stream import check_values
from dither.mechanisms.mechanism import Estimate, PackedReports
from dither.types import Floats

if TYPE_CHECKING:
    from dither.mechanisms.bloom import BloomRappor
    from dither.mechanisms.kernels.stream import RandomStream
    from dither.types import Codes, Counts


def filter_matrix(mechanism: BloomRappor) -> npt.NDArray[np.uint8]:
    """One row a cell, one column a bit."""
    packed = np.frombuffer(
        b"".join(f.to_bytes(mechanism.report_bytes, "little") for f in mechanism.filters), np.uint8
    ).reshape(mechanism.cells, -1)
    return np.unpackbits(packed, axis=1, bitorder="little", count=mechanism.bits)


def randomise(mechanism: BloomRappor, values: Codes, stream: RandomStream) -> PackedReports:
    """Each person's filter with every bit flipped with probability f/2."""
    truth = check_values(values, mechanism.cells)
    filters = np.packbits(filter_matrix(mechanism), axis=1, bitorder="little")
    flips = bernoulli_rows(len(truth), mechanism.bits, mechanism.flipped, mechanism.threshold_bits, stream)
    return PackedReports(filters[truth] ^ flips)


def simulate(mechanism: BloomRappor, true_counts: Counts, rng: np.random.Generator) -> Counts:
    """The exact law in O(bits): given the filters, flips of different people and bits are independent."""
    set_bits = true_counts @ filter_matrix(mechanism).astype(np.int64)
    kept = rng.binomial(set_bits, float(mechanism.p))
    return (kept + rng.binomial(true_counts.sum() - set_bits, float(mechanism.q))).astype(np.int64)


def _regression(mechanism: BloomRappor) -> tuple[Floats, Floats]:
    """The filters' matrix (bits x cells) and the diagonal of its inverse Gram matrix."""
    design = filter_matrix(mechanism).T.astype(np.float64)
    if np.linalg.matrix_rank(design) < mechanism.cells:
        raise ParameterError(
            f"{mechanism.bits} bits with {mechanism.hashes} hashes cannot tell {mechanism.cells} values apart; use more bits or "
            "another seed",
            where="bits",
            value=mechanism.bits,
        )
    return design, np.diag(np.linalg.inv(design.T @ design))


def _bit_variance(mechanism: BloomRappor, n: int) -> float:
    p, q = float(mechanism.p), float(mechanism.q)
    return q * (1 - q) / (n * (p - q) ** 2)


def estimate(mechanism: BloomRappor, support: Counts, n: int) -> Estimate:
    """Unbiased frequencies by least squares."""
    if np.asarray(support).shape != (mechanism.bits,):
        raise ParameterError(f"a tally of {mechanism.bits} bits was expected, not shape {np.asarray(support).shape}")
    if n < 1:
        raise ParameterError("an estimate needs at least one report", where="n", value=n)
    design, spread = _regression(mechanism)
    p, q = float(mechanism.p), float(mechanism.q)
    solved = np.linalg.lstsq(design, (support / n - q) / (p - q), rcond=None)[0]
    frequencies = np.asarray(solved, dtype=np.float64)
    return Estimate(frequencies, np.sqrt(spread * _bit_variance(mechanism, n)), int(n))


def mean_variance(mechanism: BloomRappor, n: int) -> float:
    """The mean over the cells of the estimate's variance."""
    return float(_regression(mechanism)[1].mean()) * _bit_variance(mechanism, n)
