"""The compressed-sensing method, histogram form: random measurements, noise, sparse recovery. The record form is `records`.

Trust model: central. A curator holds the table. Guarantee: pure epsilon-differential privacy from the exact L1
sensitivity of the drawn integer matrix (see `measurement`), whatever the dictionary, the recovery and the data. The
paper's own calibration (definition 5, theorem 2) is not followed: it does not establish that guarantee.

What to expect. A record touches every one of the s rows of a *dense* matrix, so the noise on each has scale s / epsilon; with K
recovered coefficients the error is about 2 K s / epsilon^2 against 2 N / epsilon^2 for plain Laplace noise, a gain only where
K s < N. In a *sparse* matrix it touches d rows and the total, so the scale is (d + 1) / epsilon however many rows there are.
More rows then cost nothing, and every cell is known the better the fewer others share its rows. So the default has one row for
each cell and one for the total, and what is gained comes from recovery: few atoms stand above noise of known size, whichever
dictionary they are few in.

Reference: Zheng et al., "Differentially private high-dimensional data publication in Internet of Things", 2020,
algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dither.central.measurement import (
    MAX_RECORDS,
    CuratorTask,
    Neighbours,
    NoisyHistogram,
    observe,
)
from dither.central.recovery import Recovery, recover
from dither.central.sensing import Measurement, Sensing, check_tau, rows_for, sensing
from dither.central.sparse import Basis, most_atoms
from dither.checks import check_choice, check_whole, check_whole_or_none
from dither.types import Floats, Integers

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

    def recover(self, noisy: Integers, variance: float) -> Recovery:
        """The estimate of all columns, and which dictionary was taken."""
        return recover(
            self.matrix, noisy.astype(np.float64), variance, self.dictionaries, self.sparsity
        )

    def decode(self, noisy: Integers, variance: float) -> Floats:
        return self.recover(noisy, variance).estimate[: self.cells]


@dataclass(frozen=True)
class CsmParameters:
    """How to measure, and how to recover.

    `entries` is how many rows of a sparse matrix a record moves beside the total, `tau` the compression ratio: rows over cells.
    Unless given, a sparse matrix has one row for each cell, or with `entries` of 2 and more 0.3 times as many, and
    `automatic_tau` gives the ratio of a dense one from `records`, a public guess of the table's size. The `dictionary` and the
    `sparsity`, the number of atoms, are chosen after the noise by penalised residuals. With `total` one row measures the number
    of records. The paper has dense random rows only, which leave the number of records, and with it every broad query, under
    sqrt(cells) times more noise than need be.
    """

    tau: float | None = None
    measurement: Measurement = "sparse"
    entries: int | None = None
    dictionary: Literal["automatic", "dct", "haar", "walsh", "identity"] = "automatic"
    sparsity: int | None = None
    total: bool = True
    records: int = 10_000

    def __post_init__(self) -> None:
        if self.tau is not None:
            check_tau(self.tau)
        check_choice("measurement", self.measurement, get_args(Measurement))
        check_choice("dictionary", self.dictionary, ("automatic", *get_args(Basis)))
        check_whole_or_none("entries", self.entries, 1, MAX_ENTRIES)
        check_whole_or_none("sparsity", self.sparsity, 1)
        check_whole("records", self.records, 1, MAX_RECORDS)

    def ratio(self, cells: int, epsilon: float, records: int) -> float:
        """The compression ratio, from public figures."""
        if self.tau is not None:
            return self.tau
        if self.measurement == "sparse":
            return SHARED if (self.entries or 1) > 1 else 1.0
        return automatic_tau(cells, epsilon, records)

    def columns(self, tau: float) -> int:
        """How many rows of a sparse matrix a record moves: one where each cell has its own, four where it shares them."""
        return self.entries or (1 if tau == 1.0 else 4)


SHARED = 0.3


def compressed_sensing(
    cells: int, tau: float, rng: np.random.Generator, parameters: CsmParameters
) -> _CompressedSensing:
    """Draw the measurement of a domain of this many cells, padded to a power of two where the Hadamard matrix needs one."""
    kind = parameters.measurement
    size = 1 << (cells - 1).bit_length() if kind == "hadamard" else cells
    entries = parameters.columns(tau)
    matrix = sensing(kind, rows_for(tau, size), size, rng, total=parameters.total, entries=entries)
    names: tuple[str, ...] = (parameters.dictionary,)
    if parameters.dictionary == "automatic":
        names = get_args(Basis)
    return _CompressedSensing(matrix, names, cells, parameters.sparsity)


def release(task: CuratorTask, parameters: CsmParameters) -> NoisyHistogram:
    """Release a histogram by compressed sensing; under `replace` the number of records is public and no guess is needed."""
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
