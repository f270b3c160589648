"""Reports that are bits, and unary encodings: a bit per cell; that of the true cell is set with p, any other with q.

References: SUE is the basic one-time RAPPOR of Erlingsson, Pihur, Korolova, CCS 2014 (f = 2/(e^(epsilon/2)+1), p = 1-f/2,
q = f/2); OUE is Wang et al., USENIX Security 2017 (p = 1/2, q = 1/(E+1)). Two values differ in two bits, so
epsilon = ln(p(1-q)/(q(1-p))). Standard library only at import time.
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
    """A report is `counters` bits, each randomised on its own: set with p if the cell sets it, else with q.

    `hashes` is how many bits a cell sets.
    """

    if TYPE_CHECKING:

        @property
        def hashes(self) -> int: ...

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """P(a bit that the cell sets is reported as set)."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """P(another bit is reported as set)."""

    @property
    def flip(self) -> Fraction:
        """RAPPOR's f, for reports that flip every bit alike."""
        return 2 * self.q

    @property
    def filters(self) -> tuple[int, ...] | None:
        """The bits that each cell sets, as a bit set; None where every cell has just a bit of its own."""
        return None

    @property
    def distance(self) -> int:
        """The largest number of bits in which two cells differ."""
        return 2

    @abstractmethod
    def with_epsilon(self, epsilon: float) -> Self:
        """The same bits, randomised for another epsilon."""


def bit_chances(chances: Sequence[Fraction]) -> dict[int, Fraction]:
    """The law of independent bits from the chance of each to be set."""
    check_enumerable(2 ** len(chances))
    law = {0: Fraction(1)}
    for bit, chance in enumerate(chances):
        law = {
            bits | on << bit: p * (chance if on else 1 - chance)
            for bits, p in law.items()
            for on in (0, 1)
        }
    return law


@dataclass(frozen=True)
class Unary(BitMechanism, PureMechanism):
    """Of 2^threshold_bits draws, `true_set` set the bit of the true cell and `other_set` set any other bit."""

    name: Literal["sue", "oue"]
    cells: int
    true_set: int
    other_set: int
    threshold_bits: int = THRESHOLD_BITS
    hashes = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("name", self.name, ("sue", "oue"))
        self.require(1 <= self.other_set < self.true_set < 2**self.threshold_bits)

    @cached_property
    def p(self) -> Fraction:
        return Fraction(self.true_set, 2**self.threshold_bits)

    @cached_property
    def q(self) -> Fraction:
        return Fraction(self.other_set, 2**self.threshold_bits)

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

    def chances(self, value: int) -> dict[int, Fraction]:
        return bit_chances([self.p if cell == value else self.q for cell in range(self.cells)])


def sue(cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS) -> Unary:
    """Symmetric unary encoding that keeps epsilon."""
    other = ceil_fraction(2**threshold_bits / (exp_down(check_epsilon(epsilon) / 2) + 1))
    return Unary("sue", cells, 2**threshold_bits - other, other, threshold_bits)


def sue_from_flip(cells: int, flip: float, threshold_bits: int = THRESHOLD_BITS) -> Unary:
    """Symmetric unary encoding with RAPPOR's flip probability f: q = f/2 rounded towards privacy."""
    check_between("flip", flip, 0, 1, ends="()", error=PrivacyError)
    other = ceil_fraction(Fraction(flip) / 2 * 2**threshold_bits)
    return Unary("sue", cells, 2**threshold_bits - other, other, threshold_bits)


def oue(cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS) -> Unary:
    """Optimised unary encoding that keeps epsilon."""
    other = ceil_fraction(2**threshold_bits / (exp_down(check_epsilon(epsilon)) + 1))
    return Unary("oue", cells, 2 ** (threshold_bits - 1), other, threshold_bits)
