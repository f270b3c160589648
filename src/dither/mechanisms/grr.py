"""Generalised randomised response (k-RR): the true cell with probability p, each other one with probability q.

Reference: Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential privacy", NeurIPS 2014. With E = e^epsilon:
p = E/(E+k-1), q = 1/(E+k-1), and a report is one cell. Standard library only at import time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dither.mechanisms.base import PureMechanism, Whole, check_cells, check_enumerable
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down


@dataclass(frozen=True)
class GRR(PureMechanism):
    """Of 2^threshold_bits equally likely draws, `other` lead to each other cell and the rest to the true one."""

    cells: int
    other: int
    threshold_bits: int = THRESHOLD_BITS
    name = "grr"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(1 <= self.other < self.keep)

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

    @property
    def ratio(self) -> Fraction:
        return self.p / self.q

    @property
    def in_common(self) -> Fraction:
        """No answer is likely under two cells: q is left of p + q."""
        return self.q / (self.p + self.q)

    @property
    def report_limit(self) -> int:
        return self.cells

    def report(self, value: int, data: bytes) -> int:
        return respond(int.from_bytes(data, "little"), value, self.keep, self.other)

    def chances(self, value: int) -> dict[int, Fraction]:
        check_enumerable(self.cells)
        return {cell: self.p if cell == value else self.q for cell in range(self.cells)}

    def supports(self, report: bytes, cell: int) -> bool:
        return int.from_bytes(report, "little") == cell

    def support_range(self, size: int) -> tuple[int, int]:
        return int(size == self.cells), 1

    @property
    def pair_chances(self) -> tuple[float, float]:
        return 0.0, 0.0

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """Exact: whether a report falls into a group of cells is one coin."""
        inside = float(self.p + (size - 1) * self.q)
        outside = float(size * self.q)
        spread = frequency * inside * (1 - inside) + (1 - frequency) * outside * (1 - outside)
        return spread / (n * float(self.p - self.q) ** 2)


def respond(draw: Whole, true: Whole, keep: int, other: int) -> Whole:
    """Randomised response from whole draws, one or many: the truth for `keep`, each other number for `other` of them."""
    answer = (draw - keep) // other
    answer = answer + (answer >= true)
    return answer + (draw < keep) * (true - answer)
