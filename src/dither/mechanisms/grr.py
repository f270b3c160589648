"""Generalised randomised response (k-RR): the true cell with p, each other cell with q.

Privacy: a report is one cell. Its probability is p under that cell and q under any other,
so epsilon = ln(p/q), exactly. With E = e^epsilon the best choice is p = E/(E+k-1) and
q = 1/(E+k-1); q is rounded up to whole draws, which only lowers epsilon.

Reference: Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential privacy",
NeurIPS 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dither.mechanisms.base import PureMechanism, Whole, check_cells, check_enumerable
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down


@dataclass(frozen=True)
class GRR(PureMechanism):
    """Randomised response over all cells.

    Args:
        cells: The number of cells, k.
        other: Of 2^threshold_bits equally likely draws, the number that lead to each other
            cell; the rest lead to the true one.
        threshold_bits: Bits of one draw.
    """

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
        other = ceil_fraction(
            (1 << threshold_bits) / (exp_down(check_epsilon(epsilon)) + cells - 1)
        )
        return cls(cells, other, threshold_bits)

    @property
    def keep(self) -> int:
        """The number of draws that lead to the true cell."""
        return (1 << self.threshold_bits) - (self.cells - 1) * self.other

    @cached_property
    def p(self) -> Fraction:
        return Fraction(self.keep, 1 << self.threshold_bits)

    @cached_property
    def q(self) -> Fraction:
        return Fraction(self.other, 1 << self.threshold_bits)

    @property
    def ratio(self) -> Fraction:
        return self.p / self.q

    @property
    def in_common(self) -> Fraction:
        """The worst report is another cell: q, against p + q under two cells of which one is true."""
        return self.q / (self.p + self.q)

    @property
    def report_limit(self) -> int:
        return self.cells

    def report(self, value: int, data: bytes) -> int:
        return respond(int.from_bytes(data, "little"), value, self.keep, self.other)

    def probabilities(self, value: int) -> dict[int, Fraction]:
        check_enumerable(self.cells)
        return {cell: self.p if cell == value else self.q for cell in range(self.cells)}

    def supports(self, report: bytes, cell: int) -> bool:
        return int.from_bytes(report, "little") == cell

    def support_range(self, size: int) -> tuple[int, int]:
        return int(size == self.cells), 1

    @property
    def pair_probabilities(self) -> tuple[float, float]:
        return 0.0, 0.0

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """Exact: whether a report falls into a group of cells is a Bernoulli variable."""
        inside = float(self.p + (size - 1) * self.q)
        outside = float(size * self.q)
        spread = frequency * inside * (1 - inside) + (1 - frequency) * outside * (1 - outside)
        return spread / (n * float(self.p - self.q) ** 2)


def respond(draw: Whole, true: Whole, keep: int, other: int) -> Whole:
    """Randomised response from whole draws, for one participant or an array.

    Args:
        draw: A uniform draw.
        true: The true number.
        keep: The number of draws that report the truth.
        other: The number of draws that report each other number.
    """
    answer = (draw - keep) // other
    answer = answer + (answer >= true)
    return answer + (draw < keep) * (true - answer)
