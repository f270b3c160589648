"""Unary encodings: one bit a cell, each randomised on its own; the bit of the true cell is set with p, any other with q.

References: SUE is the basic one-time RAPPOR of Erlingsson, Pihur, Korolova, CCS 2014 (f = 2/(e^(epsilon/2)+1), p = 1-f/2,
q = f/2); OUE is Wang et al., USENIX Security 2017 (p = 1/2, q = 1/(E+1)). Two values differ in two bits, so
epsilon = ln(p(1-q)/(q(1-p))). Standard library only at import time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.mechanism import (
    ByteSource,
    Estimate,
    PackedReports,
    bit_law,
    check_cells,
    check_length,
    check_value,
    frequency_variance,
    independent_group_variance,
    invert,
)
from dither.mechanisms.probability import (
    THRESHOLD_BITS,
    ceil_fraction,
    check_epsilon,
    check_whole_numbers,
    exp_down,
    log_up,
)

if TYPE_CHECKING:
    import numpy as np

    from dither.mechanisms.kernels.stream import RandomStream
    from dither.types import Codes, Counts


@dataclass(frozen=True)
class Unary:
    """Of 2^threshold_bits draws, `true_set` set the bit of the true cell and `other_set` set any other bit."""

    name: Literal["sue", "oue"]
    cells: int
    true_set: int
    other_set: int
    threshold_bits: int = THRESHOLD_BITS

    def __post_init__(self) -> None:
        check_whole_numbers(self)
        check_cells(self.cells)
        if self.name not in ("sue", "oue"):
            raise ParameterError(f"a unary mechanism is sue or oue, not {self.name!r}", where="name", value=self.name)
        if not 1 <= self.other_set < self.true_set < 2**self.threshold_bits:
            raise PrivacyError(
                f"unary thresholds {self.other_set} and {self.true_set} of 2^{self.threshold_bits} do not give a usable "
                "guarantee; epsilon is too small or too large",
                value=(self.true_set, self.other_set),
            )

    @cached_property
    def p(self) -> Fraction:
        return Fraction(self.true_set, 2**self.threshold_bits)

    @cached_property
    def q(self) -> Fraction:
        return Fraction(self.other_set, 2**self.threshold_bits)

    @cached_property
    def epsilon(self) -> float:
        return log_up(self.p * (1 - self.q) / (self.q * (1 - self.p)))

    @property
    def report_bytes(self) -> int:
        return (self.cells + 7) // 8

    @property
    def draw_bytes(self) -> int:
        return self.cells * self.threshold_bits // 8

    @property
    def counters(self) -> int:
        return self.cells

    def randomise(self, value: int, source: ByteSource) -> bytes:
        check_value(value, self.cells)
        step = self.threshold_bits // 8
        draws = source(self.draw_bytes)
        bits = 0
        for cell in range(self.cells):
            draw = int.from_bytes(draws[cell * step : (cell + 1) * step], "little")
            bits |= (draw < (self.true_set if cell == value else self.other_set)) << cell
        return bits.to_bytes(self.report_bytes, "little")

    def law(self, value: int) -> dict[bytes, Fraction]:
        check_value(value, self.cells)
        return bit_law([self.p if cell == value else self.q for cell in range(self.cells)])

    def check_report(self, report: bytes) -> None:
        check_length(report, self.report_bytes)
        if int.from_bytes(report, "little") >> self.cells:
            raise ReportError(f"a bit beyond the {self.cells} cells is set")

    def randomise_many(self, values: Codes, stream: RandomStream) -> PackedReports:
        from dither.mechanisms.kernels import bits

        return bits.randomise_unary(self, values, stream)

    def support(self, reports: PackedReports) -> Counts:
        from dither.mechanisms.kernels import bits

        return bits.count_bits(reports.rows, self.cells)

    def simulate(self, true_counts: Counts, rng: np.random.Generator) -> Counts:
        from dither.mechanisms.kernels import bits

        return bits.simulate_unary(self, true_counts, rng)

    def estimate(self, support: Counts, n: int) -> Estimate:
        return invert(self, support, n)

    def variance(self, frequency: float, n: int) -> float:
        return frequency_variance(self.p, self.q, frequency, n)

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """Exact: bits are independent."""
        return independent_group_variance(self.p, self.q, size, frequency, n)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "cells": self.cells,
            "true_set": self.true_set,
            "other_set": self.other_set,
            "threshold_bits": self.threshold_bits,
        }


def sue(cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS) -> Unary:
    """Symmetric unary encoding that keeps epsilon."""
    root = exp_down(check_epsilon(epsilon) / 2)
    other = ceil_fraction(2**threshold_bits / (root + 1))
    return Unary("sue", cells, 2**threshold_bits - other, other, threshold_bits)


def sue_from_flip(cells: int, flip: float, threshold_bits: int = THRESHOLD_BITS) -> Unary:
    """Symmetric unary encoding with RAPPOR's flip probability f: q = f/2 rounded towards privacy."""
    if not 0 < flip < 1:
        raise PrivacyError(f"the flip probability must lie between 0 and 1, not {flip!r}", where="flip", value=flip)
    other = ceil_fraction(Fraction(flip) / 2 * 2**threshold_bits)
    return Unary("sue", cells, 2**threshold_bits - other, other, threshold_bits)


def oue(cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS) -> Unary:
    """Optimised unary encoding that keeps epsilon."""
    other = ceil_fraction(2**threshold_bits / (exp_down(check_epsilon(epsilon)) + 1))
    return Unary("oue", cells, 2 ** (threshold_bits - 1), other, threshold_bits)
