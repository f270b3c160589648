"""Unary encodings: one bit per cell, set with p for the true cell and with q for any other.

Privacy: two values differ in two bits, so epsilon = ln(p(1-q)/(q(1-p))), exactly.

References: SUE is the basic one-time RAPPOR of Erlingsson, Pihur, Korolova, CCS 2014
(f = 2/(e^(epsilon/2)+1), p = 1-f/2, q = f/2); OUE is Wang et al., USENIX Security 2017
(p = 1/2, q = 1/(E+1)).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self

from dither.checks import check_between, check_choice
from dither.errors import PrivacyError
from dither.mechanisms.base import Mechanism, PureMechanism, check_enumerable
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down


class BitMechanism(Mechanism):
    """A report is `counters` independent bits: set with p if the cell sets the bit, else with q.

    A cell sets `hashes` bits.
    """

    if TYPE_CHECKING:

        @property
        def hashes(self) -> int: ...

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """The probability that a bit set by the cell is reported as set."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """The probability that any other bit is reported as set."""

    @property
    def flip(self) -> Fraction:
        """RAPPOR's f, for reports that flip all bits with the same probability."""
        return 2 * self.q

    @property
    def filters(self) -> tuple[int, ...] | None:
        """The bits that each cell sets, as bit sets; None if cell i sets bit i only."""
        return None

    @property
    def distance(self) -> int:
        """The largest number of bits in which two cells differ."""
        return 2

    @abstractmethod
    def with_epsilon(self, epsilon: float) -> Self:
        """The same encoding, randomised for another epsilon."""


def bit_probabilities(set_probabilities: Sequence[Fraction]) -> dict[int, Fraction]:
    """The law of independent bits from the probability of each to be set."""
    check_enumerable(2 ** len(set_probabilities))
    law = {0: Fraction(1)}
    for bit, probability in enumerate(set_probabilities):
        extended = {}
        for bits, p in law.items():
            extended[bits] = p * (1 - probability)
            extended[bits | 1 << bit] = p * probability
        law = extended
    return law


@dataclass(frozen=True)
class Unary(BitMechanism, PureMechanism):
    """A unary encoding.

    Args:
        name: "sue" or "oue".
        cells: The number of cells.
        true_set: Of 2^threshold_bits draws, the number that set the bit of the true cell.
        other_set: The number of draws that set any other bit.
        threshold_bits: Bits of one draw.
    """

    name: Literal["sue", "oue"]
    cells: int
    true_set: int
    other_set: int
    threshold_bits: int = THRESHOLD_BITS
    hashes = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("name", self.name, ("sue", "oue"))
        self.require(1 <= self.other_set < self.true_set < 1 << self.threshold_bits)

    @cached_property
    def p(self) -> Fraction:
        return Fraction(self.true_set, 1 << self.threshold_bits)

    @cached_property
    def q(self) -> Fraction:
        return Fraction(self.other_set, 1 << self.threshold_bits)

    @property
    def ratio(self) -> Fraction:
        return self.p * (1 - self.q) / (self.q * (1 - self.p))

    def with_epsilon(self, epsilon: float) -> Unary:
        return (sue if self.name == "sue" else oue)(self.cells, epsilon, self.threshold_bits)

    @property
    def report_bits(self) -> int:
        return self.cells

    @property
    def draw_bytes(self) -> int:
        return self.cells * self.threshold_bits // 8

    def report(self, value: int, data: bytes) -> int:
        bits, step = 0, self.threshold_bits // 8
        for cell in range(self.cells):
            draw = int.from_bytes(data[cell * step : (cell + 1) * step], "little")
            bits |= (draw < (self.true_set if cell == value else self.other_set)) << cell
        return bits

    def probabilities(self, value: int) -> dict[int, Fraction]:
        return bit_probabilities(
            [self.p if cell == value else self.q for cell in range(self.cells)]
        )


def sue(cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS) -> Unary:
    """Symmetric unary encoding with at most this epsilon."""
    other = ceil_fraction((1 << threshold_bits) / (exp_down(check_epsilon(epsilon) / 2) + 1))
    return Unary("sue", cells, (1 << threshold_bits) - other, other, threshold_bits)


def sue_from_flip(cells: int, flip: float, threshold_bits: int = THRESHOLD_BITS) -> Unary:
    """Symmetric unary encoding with RAPPOR's flip probability f; q = f/2 is rounded up."""
    check_between("flip", flip, 0, 1, ends="()", error=PrivacyError)
    other = ceil_fraction(Fraction(flip) / 2 * (1 << threshold_bits))
    return Unary("sue", cells, (1 << threshold_bits) - other, other, threshold_bits)


def oue(cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS) -> Unary:
    """Optimised unary encoding with at most this epsilon."""
    other = ceil_fraction((1 << threshold_bits) / (exp_down(check_epsilon(epsilon)) + 1))
    return Unary("oue", cells, 1 << (threshold_bits - 1), other, threshold_bits)
