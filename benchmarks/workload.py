"""A workload of random counting queries, and how well an estimate answers it.

Half of the queries are linear (each cell is counted with probability one half), half are ranges of the flattened
domain with uniform ends. Queries are determined by the seed. Usefulness is in the sense of Blum, Ligett and Roth:
the probability eta that an answer is off by mu or more; it falls as mu grows (the paper's definition 6 swaps the two
letters, and its proposition 2 is a tail of a single Laplace draw).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dither.types import Floats, Integers

QUERIES = 10_000
_BLOCK = 500


@dataclass(frozen=True)
class Workload:
    """`queries` random queries over `cells` cells: the first half linear, the rest ranges."""

    cells: int
    queries: int = QUERIES
    seed: int = 0

    @property
    def linear(self) -> int:
        """How many queries are linear."""
        return self.queries // 2

    def linear_blocks(self) -> Iterator[npt.NDArray[np.float32]]:
        """The 0/1 weights of the linear queries, a block of rows at a time."""
        rng = np.random.default_rng([self.seed, self.cells, 1])
        done = 0
        while done < self.linear:
            rows = min(_BLOCK, self.linear - done)
            packed = np.frombuffer(
                rng.bytes(rows * ((self.cells + 7) // 8)), dtype=np.uint8
            ).reshape(rows, -1)
            yield np.unpackbits(packed, axis=1, count=self.cells).astype(np.float32)
            done += rows

    def ranges(self) -> tuple[Integers, Integers]:
        """First and last cell of each range, both counted."""
        rng = np.random.default_rng([self.seed, self.cells, 2])
        ends = np.sort(rng.integers(0, self.cells, size=(self.queries - self.linear, 2)), axis=1)
        return ends[:, 0], ends[:, 1]

    def answers(self, vectors: npt.ArrayLike) -> Floats:
        """The answers for each column of an array of cells by columns (or one vector): queries by columns."""
        columns = np.asarray(vectors, dtype=np.float64)
        columns = columns[:, None] if columns.ndim == 1 else columns
        if columns.shape[0] != self.cells:
            raise ValueError(
                f"vectors of {columns.shape[0]} cells do not fit a workload over {self.cells}"
            )
        out = np.empty((self.queries, columns.shape[1]))
        done = 0
        for block in self.linear_blocks():
            out[done : done + block.shape[0]] = block.astype(np.float64) @ columns
            done += block.shape[0]
        sums = np.concatenate([np.zeros((1, columns.shape[1])), np.cumsum(columns, axis=0)])
        first, last = self.ranges()
        out[done:] = sums[last + 1] - sums[first]
        return out

    def errors(self, truth: npt.ArrayLike, estimates: npt.ArrayLike) -> Floats:
        """Answers of estimates (cells by runs) minus the true ones: queries by runs."""
        estimates = np.asarray(estimates, dtype=np.float64)
        estimates = estimates[:, None] if estimates.ndim == 1 else estimates
        return self.answers(estimates - np.asarray(truth, dtype=np.float64)[:, None])


def mean_squared_errors(errors: Floats, linear: int) -> dict[str, Floats]:
    """For each run: the mean squared error over all queries, over the linear ones and over the ranges."""
    squares = errors**2
    return {
        "all": squares.mean(axis=0),
        "linear": squares[:linear].mean(axis=0),
        "range": squares[linear:].mean(axis=0),
    }


def measured_usefulness(errors: Floats, mus: npt.ArrayLike) -> Floats:
    """eta for each mu: the share of queries (over all runs) whose answer is off by mu or more."""
    sizes = np.sort(np.abs(errors).ravel())
    return 1.0 - np.searchsorted(sizes, np.asarray(mus, dtype=np.float64), side="left") / sizes.size


def usefulness_bound(weights: npt.ArrayLike, scale: Fraction, mu: float) -> float:
    """An upper bound on P(|sum_j w_j z_j| >= mu) for independent discrete Laplace noise: Chernoff, both tails.

    It holds for any query whose answer is unbiased and linear in the noise; for the Laplace mechanism the weights are
    the query itself.
    """
    w = np.abs(np.asarray(weights, dtype=np.float64))
    w = w[w > 0]
    if mu <= 0 or w.size == 0:
        return 1.0 if mu <= 0 else 0.0
    limit = 1.0 / (float(scale) * w.max())
    values, repeats = np.unique(w, return_counts=True)
    thetas = limit * np.concatenate(
        [np.geomspace(1e-4, 0.5, 120), 1 - np.geomspace(1e-4, 0.5, 120)]
    )
    logs = (noise_log_mgf(thetas[:, None] * values[None, :], scale) * repeats).sum(
        axis=1
    ) - thetas * mu
    return min(1.0, 2.0 * math.exp(min(0.0, float(logs.min()))))


def paper_usefulness(
    mu: float, epsilon: float, rows: int, sensing_sensitivity: float = 1.0
) -> float:
    """eta as proposition 2 of the CSM paper states it, for comparison only: exp(-mu epsilon / (s Delta)) / 2."""
    return 0.5 * math.exp(-mu * epsilon / (rows * sensing_sensitivity))


def noise_log_mgf(theta: Floats, scale: Fraction) -> Floats:
    """log E exp(theta Z) for |theta| < 1 / scale; infinite outside."""
    inverse = 1.0 / float(scale)
    theta = np.abs(np.asarray(theta, dtype=np.float64))
    inside = theta < inverse
    safe = np.where(inside, theta, 0.0)
    value = (
        2 * np.log(-np.expm1(-inverse))
        - np.log(-np.expm1(safe - inverse))
        - np.log(-np.expm1(-safe - inverse))
    )
    return np.where(inside, value, np.inf)
