"""Randomised Fourier coefficients: one sign of the Walsh-Hadamard transform of the cell.

The cell is written in bits and a coefficient is drawn uniformly, independently of the cell.
The parity of the chosen bits goes through randomised response. Attributes with more than
two values are written in ceil(log2 k) bits each, as in PrivIncr's comparison.

Privacy: the coefficient carries no information about the cell. Given the coefficient the
report is a sign, flipped with probability 1/(E+1), so epsilon = ln(p/(1-p)), exactly.

Two different codes have equal parities under exactly half of all coefficients. A report
therefore supports another cell with q = 1/2 exactly, the signs of different cells are
uncorrelated, and estimates, variances and pooling are those of any pure mechanism.

Reference: Cormode, Kulkarni, Srivastava, "Marginal release under local differential
privacy", SIGMOD 2018 (InpHT, MargHT).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dither.checks import check_whole
from dither.errors import ParameterError
from dither.mechanisms.base import PureMechanism, check_enumerable
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down

MAX_BITS = 22


@dataclass(frozen=True)
class Hadamard(PureMechanism):
    """One randomised coefficient. A report is its number and, in the lowest bit, the parity.

    Args:
        cells: The number of cells; they form rows of `columns`.
        columns: The number of values of the second attribute; `cells` for one attribute.
        flip: Of 2^threshold_bits draws, the number that flip the sign.
        threshold_bits: Bits of one draw.
    """

    cells: int
    columns: int
    flip: int
    threshold_bits: int = THRESHOLD_BITS
    name = "hadamard"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.columns <= self.cells or self.cells % self.columns:
            raise ParameterError(
                f"{self.cells} cells do not form rows of {self.columns}",
                where="columns",
                value=self.columns,
            )
        check_whole(f"the number of bits of {self.cells:,} cells", self.bits, 1, MAX_BITS)
        self.require(1 <= self.flip < 1 << (self.threshold_bits - 1))

    @classmethod
    def for_epsilon(
        cls, cells: int, columns: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS
    ) -> Hadamard:
        """The threshold for epsilon: a sign is flipped with 1/(E+1), rounded up."""
        flip = ceil_fraction((1 << threshold_bits) / (exp_down(check_epsilon(epsilon)) + 1))
        return cls(cells, columns, flip, threshold_bits)

    @classmethod
    def for_one(cls, cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS) -> Hadamard:
        """The mechanism for the cells of one attribute."""
        return cls.for_epsilon(cells, cells, epsilon, threshold_bits)

    @property
    def column_bits(self) -> int:
        """The number of bits of the second attribute's code."""
        return (self.columns - 1).bit_length()

    @property
    def bits(self) -> int:
        """The number of bits of a code; 2^bits coefficients exist."""
        return self.column_bits + (self.cells // self.columns - 1).bit_length()

    def code(self, cell: int) -> int:
        """The code of a cell: the bits of both attributes."""
        return (cell // self.columns) << self.column_bits | cell % self.columns

    @cached_property
    def p(self) -> Fraction:
        return 1 - Fraction(self.flip, 1 << self.threshold_bits)

    @property
    def q(self) -> Fraction:
        return Fraction(1, 2)

    @property
    def ratio(self) -> Fraction:
        return self.p / (1 - self.p)

    @property
    def report_limit(self) -> int:
        return 2 << self.bits

    @property
    def index_bytes(self) -> int:
        """The number of random bytes for the coefficient."""
        return (self.bits + 7) // 8

    @property
    def draw_bytes(self) -> int:
        return self.index_bytes + self.threshold_bits // 8

    def parity(self, index: int, cell: int) -> int:
        """The sign of a cell in a coefficient, as a bit."""
        return (index & self.code(cell)).bit_count() & 1

    def report(self, value: int, data: bytes) -> int:
        index = int.from_bytes(data[: self.index_bytes], "little") & ((1 << self.bits) - 1)
        flipped = int.from_bytes(data[self.index_bytes :], "little") < self.flip
        return index << 1 | self.parity(index, value) ^ flipped

    def probabilities(self, value: int) -> dict[int, Fraction]:
        check_enumerable(self.report_limit)
        law = {}
        for report in range(self.report_limit):
            kept = self.parity(report >> 1, value) == report & 1
            law[report] = (self.p if kept else 1 - self.p) / (1 << self.bits)
        return law

    def supports(self, report: bytes, cell: int) -> bool:
        number = int.from_bytes(report, "little")
        return self.parity(number >> 1, cell) == number & 1
