"""Optimised local hashing (OLH): each participant hashes the cells to g buckets and answers by randomised response on them.

Reference: Wang et al., USENIX Security 2017, with g = round(E)+1. A report is the participant's own hash function and a
bucket, so its length does not grow with the number of cells.

The hash is multiply-add-shift on 32-bit words (Dietzfelbinger 1996): v(x) = ((a x + b) mod 2^32) >> 16 is strongly universal
for cells below 2^17 (their differences have at most 16 factors of two, so a times one is uniform in the upper 16 bits), and
bucket(v) = (v g) >> 16. a and b are whole random words, so nothing is rounded and q is one exact
fraction for every pair of cells. The hash carries no secret: it is drawn before the value is looked at, and the guarantee
is that of the randomised response given the hash. Standard library only at import time.
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
_WORD = 2**WORD_BITS


@dataclass(frozen=True)
class LocalHash(PureMechanism):
    """Randomised response over `buckets` hash values: of 2^threshold_bits draws, `other` lead to each other bucket.

    As a number a report is a + b 2^32 + bucket 2^64. Variances of sums take cells as uncorrelated, which pairs of hash values are.
    """

    cells: int
    buckets: int
    other: int
    threshold_bits: int = THRESHOLD_BITS
    name = "olh"
    most_cells = 2 ** (
        WORD_BITS - HASH_BITS + 1
    )  # so far two cells' hash values are independent (see the module)

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
        """The thresholds that keep epsilon, with g = round(E)+1 buckets unless given."""
        ratio = exp_down(check_epsilon(epsilon))
        g = min(round(ratio) + 1, MAX_BUCKETS) if buckets is None else buckets
        return cls(cells, g, ceil_fraction(2**threshold_bits / (ratio + g - 1)), threshold_bits)

    @property
    def keep(self) -> int:
        """The number of draws that lead to the true cell's bucket."""
        return 2**self.threshold_bits - (self.buckets - 1) * self.other

    def bucket_start(self, bucket: int) -> int:
        """The smallest hash value v with (v g) >> 16 equal to the bucket."""
        return -((-bucket << HASH_BITS) // self.buckets)

    @cached_property
    def p(self) -> Fraction:
        return Fraction(self.keep, 2**self.threshold_bits)

    @cached_property
    def q(self) -> Fraction:
        """P(another cell's bucket is the answer), exact: hash values of two cells are independent and uniform."""
        other = Fraction(self.other, 2**self.threshold_bits)
        starts = [self.bucket_start(r) for r in range(self.buckets + 1)]
        widths = [Fraction(b - a, 2**HASH_BITS) for a, b in itertools.pairwise(starts)]
        same = sum((w * w for w in widths), Fraction(0))
        return same * self.p + (1 - same) * other

    @property
    def ratio(self) -> Fraction:
        return Fraction(self.keep, self.other)

    @property
    def report_limit(self) -> int:
        return self.buckets * _WORD**2

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
        answer = respond(
            int.from_bytes(data[8:], "little"), self.bucket(a, b, value), self.keep, self.other
        )
        return a + b * _WORD + answer * _WORD**2

    def chances(self, value: int, a: int | None = None, b: int = 0) -> dict[int, Fraction]:
        """Given the hash function, which is drawn without a look at the value; by default one that spreads the cells."""
        a = _WORD // self.cells if a is None else a
        true, other = self.bucket(a, b, value), Fraction(self.other, 2**self.threshold_bits)
        return {
            a + b * _WORD + answer * _WORD**2: self.p if answer == true else other
            for answer in range(self.buckets)
        }

    def supports(self, report: bytes, cell: int) -> bool:
        a, b = int.from_bytes(report[:4], "little"), int.from_bytes(report[4:8], "little")
        return self.bucket(a, b, cell) == int.from_bytes(report[8:], "little")
