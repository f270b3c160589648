"""Generalised randomised response (k-RR): the true cell with probability p, each other one with probability q.

Reference: Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential privacy", NeurIPS 2014. With E = e^epsilon:
p = E/(E+k-1), q = 1/(E+k-1), and a report is one cell. Standard library only at import time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dither.errors import PrivacyError, ReportError
from dither.mechanisms.mechanism import (
    ByteSource,
    Estimate,
    PackedReports,
    check_cells,
    check_enumerable,
    check_length,
    check_value,
    frequency_variance,
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
class GRR:
    """Of 2^threshold_bits equally likely draws, `other` lead to each other cell and the rest to the true one."""

    cells: int
    other: int
    threshold_bits: int = THRESHOLD_BITS
    name = "grr"

    def __post_init__(self) -> None:
        check_whole_numbers(self)
        check_cells(self.cells)
        if not 1 <= self.other < self.keep:
            raise PrivacyError(
                f"randomised response over {self.cells} cells with {self.other} of 2^{self.threshold_bits} draws for each other "
                "cell leaves too few for the true one; raise epsilon or ask fewer cells",
                value=self.other,
            )

    @classmethod
    def for_epsilon(cls, cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS) -> GRR:
        """The most accurate thresholds that keep epsilon."""
        check_cells(cells)
        other = ceil_fraction(2**threshold_bits / (exp_down(check_epsilon(epsilon)) + cells - 1))
        return cls(cells, other, threshold_bits)

    @property
    def keep(self) -> int:
        """The number of draws that lead to the true cell."""
        return 2**self.threshold_bits - (self.cells - 1) * self.other

    @cached_property
    def p(self) -> Fraction:
        return Fraction(self.keep, 2**self.threshold_bits)

    @cached_property
    def q(self) -> Fraction:
        return Fraction(self.other, 2**self.threshold_bits)

    @cached_property
    def epsilon(self) -> float:
        return log_up(self.p / self.q)

    @property
    def report_bytes(self) -> int:
        return ((self.cells - 1).bit_length() + 7) // 8

    @property
    def draw_bytes(self) -> int:
        return self.threshold_bits // 8

    @property
    def counters(self) -> int:
        return self.cells

    def randomise(self, value: int, source: ByteSource) -> bytes:
        check_value(value, self.cells)
        draw = int.from_bytes(source(self.draw_bytes), "little")
        if draw < self.keep:
            cell = value
        else:
            cell = (draw - self.keep) // self.other
            cell += cell >= value
        return cell.to_bytes(self.report_bytes, "little")

    def law(self, value: int) -> dict[bytes, Fraction]:
        check_value(value, self.cells)
        check_enumerable(self.cells)
        width = self.report_bytes
        return {cell.to_bytes(width, "little"): self.p if cell == value else self.q for cell in range(self.cells)}

    def check_report(self, report: bytes) -> None:
        check_length(report, self.report_bytes)
        cell = int.from_bytes(report, "little")
        if cell >= self.cells:
            raise ReportError(f"cell {cell} is outside 0..{self.cells - 1}", value=cell)

    def randomise_many(self, values: Codes, stream: RandomStream) -> PackedReports:
        from dither.mechanisms.kernels import grr

        return grr.randomise(self, values, stream)

    def support(self, reports: PackedReports) -> Counts:
        from dither.mechanisms.kernels import grr

        return grr.support(self, reports)

    def simulate(self, true_counts: Counts, rng: np.random.Generator) -> Counts:
        from dither.mechanisms.kernels import grr

        return grr.simulate(self, true_counts, rng)

    def estimate(self, support: Counts, n: int) -> Estimate:
        return invert(self, support, n)

    def variance(self, frequency: float, n: int) -> float:
        return frequency_variance(self.p, self.q, frequency, n)

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """Exact: whether a report falls into a group of cells is one coin."""
        inside = float(self.p + (size - 1) * self.q)
        outside = float(size * self.q)
        spread = frequency * inside * (1 - inside) + (1 - frequency) * outside * (1 - outside)
        return spread / (n * float(self.p - self.q) ** 2)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "cells": self.cells, "other": self.other, "threshold_bits": self.threshold_bits}
