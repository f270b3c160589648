"""Generalised randomised response for many people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dither.mechanisms.kernels.stream import check_counts, check_values, uniform_draws
from dither.mechanisms.mechanism import PackedReports
from dither.types import Integers

if TYPE_CHECKING:
    from dither.mechanisms.grr import GRR
    from dither.mechanisms.kernels.stream import RandomStream
    from dither.types import Codes, Counts


def respond(draws: Integers, truth: Integers, keep: int, other: int) -> Integers:
    """Randomised response from whole draws, as the scalar mechanism maps them."""
    answer = (draws - keep) // other
    answer += answer >= truth
    return np.where(draws < keep, truth, answer)


def randomise(mechanism: GRR, values: Codes, stream: RandomStream) -> PackedReports:
    """One draw of threshold_bits a person, mapped exactly as on a device."""
    truth = check_values(values, mechanism.cells)
    draws = uniform_draws(stream, len(truth), mechanism.threshold_bits)
    cells = respond(draws, truth, mechanism.keep, mechanism.other)
    raw = cells.astype("<u4").view(np.uint8).reshape(-1, 4)
    return PackedReports(np.ascontiguousarray(raw[:, : mechanism.report_bytes]))


def support(mechanism: GRR, reports: PackedReports) -> Counts:
    """How often each cell was reported."""
    width = mechanism.report_bytes
    cells = np.zeros(len(reports), np.int64)
    for i in range(width):
        cells |= reports.rows[:, i].astype(np.int64) << (8 * i)
    return check_counts(np.bincount(cells, minlength=mechanism.cells), mechanism.cells)


def simulate(mechanism: GRR, true_counts: Counts, rng: np.random.Generator) -> Counts:
    """The exact law in O(cells): with p-q a person tells the truth, else a cell uniform over all of them is reported."""
    truthful = rng.binomial(true_counts, float(mechanism.p - mechanism.q))
    guesses = rng.multinomial(int(true_counts.sum() - truthful.sum()), np.full(mechanism.cells, 1 / mechanism.cells))
    return (truthful + guesses).astype(np.int64)
