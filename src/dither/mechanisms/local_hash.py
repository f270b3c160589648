"""Optimised local hashing (OLH): randomised response on the hash of the cell.

Each participant draws a hash function of the cells to g = round(E)+1 buckets and answers by
randomised response on the buckets. A report is the hash function and a bucket, so its
length does not grow with the number of cells.

Privacy: the hash function is drawn independently of the value. Given the function the
guarantee is that of randomised response on g buckets, epsilon = ln(keep/other), exactly.

The hash is multiply-add-shift on 32-bit words (Dietzfelbinger 1996):
v(x) = ((a x + b) mod 2^32) >> 16 and bucket(v) = (v g) >> 16. It is strongly universal for
cells below 2^17: their differences have at most 16 factors of two, so a times a difference
is uniform in the upper 16 bits. a and b are whole random words, so nothing is rounded and q
is one exact fraction for every pair of cells.

Reference: Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency
estimation", USENIX Security 2017.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dither.checks import check_whole
from dither.mechanisms.base import PureMechanism
from dither.mechanisms.grr import respond
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down

WORD_BITS = 32
HASH_BITS = 16
MAX_BUCKETS = 2**12
_WORD = 1 << WORD_BITS


@dataclass(frozen=True)
class LocalHash(PureMechanism):
    """Randomised response over hash values. A report is a + b 2^32 + bucket 2^64.

    Variances of sums take cells as uncorrelated, which holds because the hash values of two
    cells are independent.

    Args:
        cells: The number of cells, up to 2^17.
        buckets: The number of hash values, g.
        other: Of 2^threshold_bits draws, the number that lead to each other bucket.
        threshold_bits: Bits of one draw.
    """

    cells: int
    buckets: int
    other: int
    threshold_bits: int = THRESHOLD_BITS
    name = "olh"
    # Beyond this the hash values of two cells are dependent (see the module's docstring).
    max_cells = 2 ** (WORD_BITS - HASH_BITS + 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("buckets", self.buckets, 2, MAX_BUCKETS)
        self.require(1 <= self.other < self.keep)

    @classmethod
    def for_epsilon(
        cls,
        cells: int,
        epsilon: float,
        buckets: int | None = None,
        threshold_bits: int = THRESHOLD_BITS,
    ) -> LocalHash:
        """The thresholds for epsilon, by default with g = round(E)+1 buckets."""
        ratio = exp_down(check_epsilon(epsilon))
        g = min(round(ratio) + 1, MAX_BUCKETS) if buckets is None else buckets
        return cls(cells, g, ceil_fraction((1 << threshold_bits) / (ratio + g - 1)), threshold_bits)

    @property
    def keep(self) -> int:
        """The number of draws that lead to the true cell's bucket."""
        return (1 << self.threshold_bits) - (self.buckets - 1) * self.other

    def bucket_start(self, bucket: int) -> int:
        """The smallest hash value v with (v g) >> 16 equal to the bucket."""
        return -((-bucket << HASH_BITS) // self.buckets)

    @cached_property
    def p(self) -> Fraction:
        return Fraction(self.keep, 1 << self.threshold_bits)

    @cached_property
    def q(self) -> Fraction:
        """The exact probability that another cell's bucket is reported."""
        other = Fraction(self.other, 1 << self.threshold_bits)
        starts = [self.bucket_start(r) for r in range(self.buckets + 1)]
        widths = [Fraction(b - a, 2**HASH_BITS) for a, b in itertools.pairwise(starts)]
        # Hash values of two cells are independent and uniform.
        same = sum((w * w for w in widths), Fraction(0))
        return same * self.p + (1 - same) * other

    @property
    def ratio(self) -> Fraction:
        return Fraction(self.keep, self.other)

    @property
    def report_limit(self) -> int:
        return self.buckets * _WORD * _WORD

    @property
    def report_bits(self) -> int:
        return 2 * WORD_BITS + (8 if self.buckets <= 256 else 16)

    @property
    def draw_bytes(self) -> int:
        return 8 + self.threshold_bits // 8

    def bucket(self, a: int, b: int, value: int) -> int:
        """The bucket of a cell under the hash function (a, b)."""
        v = ((a * value + b) % _WORD) >> (WORD_BITS - HASH_BITS)
        return (v * self.buckets) >> HASH_BITS

    def report(self, value: int, data: bytes) -> int:
        a, b = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
        draw = int.from_bytes(data[8:], "little")
        answer = respond(draw, self.bucket(a, b, value), self.keep, self.other)
        return a + b * _WORD + answer * _WORD * _WORD

    def probabilities(self, value: int, a: int | None = None, b: int = 0) -> dict[int, Fraction]:
        """The law given the hash function (a, b); by default one that spreads the cells."""
        a = _WORD // self.cells if a is None else a
        true, other = self.bucket(a, b, value), Fraction(self.other, 1 << self.threshold_bits)
        return {
            a + b * _WORD + answer * _WORD * _WORD: self.p if answer == true else other
            for answer in range(self.buckets)
        }

    def supports(self, report: bytes, cell: int) -> bool:
        a, b = int.from_bytes(report[:4], "little"), int.from_bytes(report[4:8], "little")
        return self.bucket(a, b, cell) == int.from_bytes(report[8:], "little")
