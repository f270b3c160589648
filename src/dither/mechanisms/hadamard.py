"""Randomised Fourier coefficients: a participant answers with one sign of the Walsh-Hadamard transform of the own cell.

Reference: Cormode, Kulkarni, Srivastava, "Marginal release under local differential privacy", SIGMOD 2018 (InpHT, MargHT):
the cell is written in bits, a coefficient is drawn uniformly (it carries no secret), and the parity of the chosen bits goes
through randomised response. Non-binary attributes are written in ceil(log2 k) bits each, as PrivIncr's comparison does.

Two different codes have equal parities under exactly half of all coefficients, so a report supports another cell with
q = 1/2 exactly, and estimates, variances and pooling are those of every other mechanism here. Standard library only at
import time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.mechanism import (
    ByteSource,
    Estimate,
    PackedReports,
    check_cells,
    check_enumerable,
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

MOST_BITS = 22


@dataclass(frozen=True)
class Hadamard:
    """Cells laid out in rows of `columns` (the second attribute's values; all cells for one attribute).

    Of 2^threshold_bits draws, `flip` turn the sign round.
    """

    cells: int
    columns: int
    flip: int
    threshold_bits: int = THRESHOLD_BITS
    name = "hadamard"

    def __post_init__(self) -> None:
        check_whole_numbers(self)
        check_cells(self.cells)
        if not 1 <= self.columns <= self.cells or self.cells % self.columns:
            raise ParameterError(
                f"{self.cells} cells do not form rows of {self.columns}", where="columns", value=self.columns
            )
        if self.bits > MOST_BITS:
            raise ParameterError(
                f"{self.cells:,} cells need {self.bits} bits, more than {MOST_BITS}; ask fewer attributes together",
                where="cells",
                value=self.cells,
            )
        if not 1 <= self.flip < 2 ** (self.threshold_bits - 1):
            raise PrivacyError("epsilon is too small or too large for 32-bit draws", where="epsilon", value=self.flip)

    @classmethod
    def for_epsilon(cls, cells: int, columns: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS) -> Hadamard:
        """The threshold that keeps epsilon: a sign is turned round with 1/(E+1), rounded towards privacy."""
        flip = ceil_fraction(2**threshold_bits / (exp_down(check_epsilon(epsilon)) + 1))
        return cls(cells, columns, flip, threshold_bits)

    @property
    def column_bits(self) -> int:
        """The bits that the second attribute's code takes."""
        return (self.columns - 1).bit_length()

    @property
    def bits(self) -> int:
        """The bits of a whole code; there are 2^bits coefficients."""
        return self.column_bits + (self.cells // self.columns - 1).bit_length()

    def code(self, cell: int) -> int:
        """A cell in bits, attribute by attribute."""
        return (cell // self.columns) << self.column_bits | cell % self.columns

    @cached_property
    def p(self) -> Fraction:
        return 1 - Fraction(self.flip, 2**self.threshold_bits)

    @property
    def q(self) -> Fraction:
        return Fraction(1, 2)

    @cached_property
    def epsilon(self) -> float:
        return log_up(self.p / (1 - self.p))

    @property
    def index_bytes(self) -> int:
        """Random bytes that the coefficient's number takes."""
        return (self.bits + 7) // 8

    @property
    def report_bytes(self) -> int:
        return (self.bits + 8) // 8

    @property
    def draw_bytes(self) -> int:
        return self.index_bytes + self.threshold_bits // 8

    @property
    def counters(self) -> int:
        return self.cells

    def randomise(self, value: int, source: ByteSource) -> bytes:
        """The coefficient's number and, in the lowest bit, the parity after randomised response."""
        check_value(value, self.cells)
        draws = source(self.draw_bytes)
        index = int.from_bytes(draws[: self.index_bytes], "little") & (2**self.bits - 1)
        turned = int.from_bytes(draws[self.index_bytes :], "little") < self.flip
        parity = ((index & self.code(value)).bit_count() & 1) ^ int(turned)
        return (index << 1 | parity).to_bytes(self.report_bytes, "little")

    def law(self, value: int) -> dict[bytes, Fraction]:
        check_value(value, self.cells)
        check_enumerable(2 ** (self.bits + 1))
        law = {}
        for index in range(2**self.bits):
            true = (index & self.code(value)).bit_count() & 1
            for parity in (0, 1):
                chance = self.p if parity == true else 1 - self.p
                law[(index << 1 | parity).to_bytes(self.report_bytes, "little")] = chance / 2**self.bits
        return law

    def check_report(self, report: bytes) -> None:
        check_length(report, self.report_bytes)
        if int.from_bytes(report, "little") >> (self.bits + 1):
            raise ReportError(f"a report names a coefficient outside 0..{2**self.bits - 1}")

    def randomise_many(self, values: Codes, stream: RandomStream) -> PackedReports:
        from dither.mechanisms.kernels import hadamard

        return hadamard.randomise(self, values, stream)

    def support(self, reports: PackedReports) -> Counts:
        from dither.mechanisms.kernels import hadamard

        return hadamard.support(self, reports)

    def simulate(self, true_counts: Counts, rng: np.random.Generator) -> Counts:
        from dither.mechanisms.kernels import hadamard

        return hadamard.simulate(self, true_counts, rng)

    def estimate(self, support: Counts, n: int) -> Estimate:
        return invert(self, support, n)

    def variance(self, frequency: float, n: int) -> float:
        return frequency_variance(self.p, self.q, frequency, n)

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """Exact: over a uniform coefficient the signs of different cells are uncorrelated."""
        return independent_group_variance(self.p, self.q, size, frequency, n)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "cells": self.cells,
            "columns": self.columns,
            "flip": self.flip,
            "threshold_bits": self.threshold_bits,
        }
