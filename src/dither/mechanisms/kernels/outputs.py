"""Reports that are numbers, for many people: randomised response, Fourier coefficients, and tables of outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from dither.errors import ParameterError
from dither.mechanisms.base import Estimate, PackedReports
from dither.mechanisms.grr import GRR, respond
from dither.mechanisms.hadamard import Hadamard
from dither.mechanisms.kernels.batch import (
    check_cell_numbers,
    check_tally,
    estimate,
    randomise,
    read_numbers,
    simulate,
    simulate_people,
    support,
    write_numbers,
)
from dither.mechanisms.kernels.stream import RandomStream, uniform_draws
from dither.mechanisms.outputs import OutputMechanism
from dither.mechanisms.square_wave import SquareWave
from dither.types import Codes, Counts, Floats, Integers

_COEFFICIENT_BLOCK = 1 << 18  # people simulated at a time; a transform per block


# Randomised response.


@randomise.register(GRR)
def _grr(mechanism: GRR, values: Codes, stream: RandomStream) -> PackedReports:
    """One draw of threshold_bits per person, mapped exactly as on a device."""
    truth = check_cell_numbers(values, mechanism.cells)
    draws = uniform_draws(stream, len(truth), mechanism.threshold_bits)
    return write_numbers(mechanism, respond(draws, truth, mechanism.keep, mechanism.other))


@simulate.register(GRR)
def _simulate_grr(mechanism: GRR, true_counts: Counts, rng: np.random.Generator) -> Counts:
    """The exact law in O(cells): with p-q a person tells the truth, else a cell uniform over all of them is reported."""
    truthful = rng.binomial(true_counts, float(mechanism.p - mechanism.q))
    guesses = rng.multinomial(
        int(true_counts.sum() - truthful.sum()), np.full(mechanism.cells, 1 / mechanism.cells)
    )
    return (truthful + guesses).astype(np.int64)


# Fourier coefficients: the supports of all cells come from one fast Walsh-Hadamard transform.


def _codes(mechanism: Hadamard) -> Integers:
    cells = np.arange(mechanism.cells, dtype=np.int64)
    return (cells // mechanism.columns) << mechanism.column_bits | cells % mechanism.columns


@randomise.register(Hadamard)
def _coefficients(mechanism: Hadamard, values: Codes, stream: RandomStream) -> PackedReports:
    """Each person's coefficient number and randomised parity, in one number."""
    truth = check_cell_numbers(values, mechanism.cells)
    index = stream.words(len(truth), np.uint32).astype(np.int64) & (2**mechanism.bits - 1)
    turned = uniform_draws(stream, len(truth), mechanism.threshold_bits) < mechanism.flip
    parity = np.bitwise_count(index & _codes(mechanism)[truth]).astype(np.int64) & 1
    return write_numbers(mechanism, index << 1 | (parity ^ turned))


@support.register(Hadamard)
def _support_coefficients(mechanism: Hadamard, reports: PackedReports) -> Counts:
    """Half of the people, and half of what the signs of the coefficients add up to in a cell."""
    answers = read_numbers(mechanism, reports)
    signs = np.bincount(
        answers >> 1, weights=1.0 - 2.0 * (answers & 1), minlength=2**mechanism.bits
    )
    transformed = _walsh(np.asarray(signs, np.float64))
    return np.rint((len(answers) + transformed[_codes(mechanism)]) / 2).astype(np.int64)


def _walsh(signs: Floats) -> Floats:
    """Sum over coefficients of (-1)^popcount(coefficient & code) times the sign, for every code; exact for integers."""
    out, step = signs.copy(), 1
    while step < len(out):
        pairs = out.reshape(-1, 2, step)
        out = np.concatenate(
            [pairs[:, :1] + pairs[:, 1:], pairs[:, :1] - pairs[:, 1:]], axis=1
        ).ravel()
        step *= 2
    return out


@simulate.register(Hadamard)
def _simulate_coefficients(
    mechanism: Hadamard, true_counts: Counts, rng: np.random.Generator
) -> Counts:
    return simulate_people(mechanism, true_counts, rng, _COEFFICIENT_BLOCK)


# Tables of outputs: strategies and the square wave.


@njit(cache=True)
def _look_up(cells: Any, draws: Any, ends: Any, out: Any) -> None:
    """For each person the first output whose cumulative draws, in the row of the person's cell, exceed the draw."""
    for i in range(len(cells)):
        row = ends[cells[i]]
        low, high = 0, len(row) - 1
        while low < high:
            middle = (low + high) >> 1
            if draws[i] < row[middle]:
                high = middle
            else:
                low = middle + 1
        out[i] = low


@randomise.register(OutputMechanism)
def _outputs(mechanism: OutputMechanism, values: Codes, stream: RandomStream) -> PackedReports:
    """Draw for draw as on a device."""
    truth = check_cell_numbers(values, mechanism.cells)
    ends = np.cumsum(
        [mechanism.column(cell) for cell in range(mechanism.cells)], axis=1, dtype=np.int64
    )
    outputs = np.empty(len(truth), np.int64)
    _look_up(truth, uniform_draws(stream, len(truth), mechanism.threshold_bits), ends, outputs)
    return write_numbers(mechanism, outputs)


@randomise.register(SquareWave)
def _square_wave(mechanism: SquareWave, values: Codes, stream: RandomStream) -> PackedReports:
    """Draw for draw as on a device."""
    truth = check_cell_numbers(values, mechanism.cells)
    draws = uniform_draws(stream, len(truth), mechanism.threshold_bits)
    return write_numbers(mechanism, mechanism.window.output(truth, draws))


@simulate.register(OutputMechanism)
def _simulate_outputs(
    mechanism: OutputMechanism, true_counts: Counts, rng: np.random.Generator
) -> Counts:
    """The same law without people: one multinomial per cell."""
    drawn = rng.multinomial(np.asarray(true_counts), mechanism.chance_table.T).sum(axis=0)
    return np.asarray(drawn, dtype=np.int64)


def chance_table(mechanism: OutputMechanism) -> Floats:
    """The chance of each output (rows) in each cell (columns)."""
    draws = np.array([mechanism.column(cell) for cell in range(mechanism.cells)], dtype=np.int64)
    return np.asarray(draws.T / 2.0**mechanism.threshold_bits)


def decoder(mechanism: OutputMechanism, counts_for: Floats | None) -> Floats:
    """What one report of each output adds to each cell's estimated count, see `OutputMechanism.decoder`."""
    chances = mechanism.chance_table
    average = chances.sum(axis=1) if counts_for is None else chances @ counts_for
    scaled = chances / average[:, None]
    return np.asarray(np.linalg.solve(chances.T @ scaled, scaled.T), dtype=np.float64)


@estimate.register(OutputMechanism)
def _estimate_outputs(mechanism: OutputMechanism, support: Counts, n: int) -> Estimate:
    """Unbiased frequencies by the decoder; standard errors at the estimated frequencies, clipped for that purpose."""
    shares = check_tally(mechanism, support, n) / n
    frequencies = mechanism.even_decoder @ shares
    f = np.clip(frequencies, 0.0, None)
    f /= max(float(f.sum()), 1e-300)
    by_cell = mechanism.even_decoder**2 @ mechanism.chance_table
    return Estimate(frequencies, np.sqrt(np.maximum(by_cell @ f - f, 0.0) / n), int(n))


def group_variance(mechanism: OutputMechanism, size: int, frequency: float, n: int) -> float:
    """The mean over all groups of `size` cells of their sum's variance, for people evenly inside and outside.

    A person of cell c has the covariance V_c of what its report adds. The mean of its sum over the groups that hold c, or do
    not, follows from four sums of V_c: the cell itself, it with others, others alone, others in pairs.
    """
    k, gain = mechanism.cells, mechanism.even_decoder
    inside = outside = 0.0
    for cell, chances in enumerate(mechanism.chance_table.T):
        spread = (gain * chances) @ gain.T
        spread[cell, cell] -= 1.0
        own, cross = spread[cell, cell], spread[cell].sum() - spread[cell, cell]
        alone = np.trace(spread) - own
        pairs = spread.sum() - own - 2 * cross - alone
        held = (size - 1) / (k - 1)
        inside += own + held * (2 * cross + alone) + _two_of(size - 1, k - 1) * pairs
        outside += min(size, k - 1) / (k - 1) * alone + _two_of(min(size, k - 1), k - 1) * pairs
    return float(frequency * inside + (1 - frequency) * outside) / (k * n)


def _two_of(drawn: int, total: int) -> float:
    """The chance that two given ones of `total` are both among `drawn`."""
    return drawn * (drawn - 1) / (total * (total - 1)) if total > 1 else 0.0


def forged_range(mechanism: OutputMechanism, targeted: int | Sequence[int]) -> tuple[float, float]:
    """The outputs that add least and most to the cells given, or to the worst of so many."""
    gain = mechanism.even_decoder
    if isinstance(targeted, int):
        ordered = np.sort(gain, axis=0)
        return float(ordered[:targeted].sum(axis=0).min()), float(
            ordered[-targeted:].sum(axis=0).max()
        )
    sums = gain[list(targeted)].sum(axis=0)
    return float(sums.min()), float(sums.max())


# The square wave's own estimate: a density and its quantiles.


def density(mechanism: SquareWave, support: Counts, *, smooth: bool, most_steps: int) -> Floats:
    """The cells' frequencies by EM, or EM with smoothing (EMS).

    Stops when the log-likelihood of all reports gains less than 0.001 per step (times e^epsilon without smoothing).
    """
    counts = check_tally(mechanism, support, int(np.sum(support))).astype(np.float64)
    enough = 1e-3 if smooth else 1e-3 * math.exp(mechanism.epsilon)
    chances, theta, before = (
        mechanism.chance_table,
        np.full(mechanism.cells, 1 / mechanism.cells),
        -math.inf,
    )
    for _ in range(most_steps):
        theta = theta * (chances.T @ (counts / (chances @ theta)))
        theta /= theta.sum()
        if smooth:
            theta = _smoothed(theta)
        now = float(counts @ np.log(chances @ theta))
        if abs(now - before) < enough:
            break
        before = now
    return theta


def _smoothed(theta: Floats) -> Floats:
    """The binomial kernel (1, 2, 1)/4, reflected at the ends."""
    padded = np.concatenate([theta[:1], theta, theta[-1:]])
    out = padded[:-2] / 4 + padded[1:-1] / 2 + padded[2:] / 4
    return np.asarray(out / out.sum(), dtype=np.float64)


def quantiles(shares: Floats, edges: Sequence[float], levels: Sequence[float]) -> Floats:
    """Quantiles of a density over cells between these edges, values taken as evenly spread within a cell."""
    wanted, places = np.asarray(levels, dtype=np.float64), np.asarray(edges, dtype=np.float64)
    if len(places) != len(shares) + 1 or np.any(shares < 0) or np.any((wanted < 0) | (wanted > 1)):
        raise ParameterError(
            "quantiles need one more edge than cells, a density and levels between 0 and 1",
            where="levels",
        )
    cumulative = np.concatenate([[0.0], np.cumsum(shares) / np.sum(shares)])
    # Where nobody is, the cumulative share stands still; the first edge that reaches a level is its quantile.
    place = np.clip(np.searchsorted(cumulative, wanted, side="left"), 1, len(shares))
    rise = cumulative[place] - cumulative[place - 1]
    part = np.divide(
        wanted - cumulative[place - 1], rise, out=np.zeros_like(wanted), where=rise > 0
    )
    return np.asarray(
        places[place - 1] + part * (places[place] - places[place - 1]), dtype=np.float64
    )
