"""Optimised local hashing (OLH): each participant hashes the cells to g buckets and answers by randomised response on them.

Reference: Wang et al., USENIX Security 2017, with g = round(E)+1. A report is the participant's own hash function and a
bucket, so its length does not grow with the number of cells.

The hash is multiply-add-shift on 32-bit words (Dietzfelbinger 1996): v(x) = ((a x + b) mod 2^32) >> 16 is strongly universal
for cells below 2^16, and bucket(v) = (v g) >> 16. a and b are whole random words, so nothing is rounded and q is one exact
fraction for every pair of cells. The hash carries no secret: it is drawn before the value is looked at, and the guarantee
is that of the randomised response given the hash. Standard library only at import time.
"""

from __future__ import annotations

import itertools
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

WORD_BITS = 32
HASH_BITS = 16
MOST_CELLS = 2**HASH_BITS
MOST_BUCKETS = 2**12


@dataclass(frozen=True)
class LocalHash:
    """Randomised response over `buckets` hash values: of 2^threshold_bits draws, `other` lead to each other bucket."""

    cells: int
    buckets: int
    other: int
    threshold_bits: int = THRESHOLD_BITS
    name = "olh"

    def __post_init__(self) -> None:
        check_whole_numbers(self)
        check_cells(self.cells)
        if self.cells > MOST_CELLS:
            raise ParameterError(
                f"local hashing covers at most {MOST_CELLS:,} cells, not {self.cells:,}; ask fewer attributes together or use "
                "coarser bins",
                where="cells",
                value=self.cells,
            )
        if not 2 <= self.buckets <= MOST_BUCKETS:
            raise ParameterError(
                f"the number of buckets must lie in 2..{MOST_BUCKETS}, not {self.buckets}", where="buckets"
            )
        if not 1 <= self.other < self.keep:
            raise PrivacyError(
                "epsilon is too small for local hashing with 32-bit draws", where="epsilon", value=self.other
            )

    @classmethod
    def for_epsilon(
        cls, cells: int, epsilon: float, buckets: int | None = None, threshold_bits: int = THRESHOLD_BITS
    ) -> LocalHash:
        """The thresholds that keep epsilon, with g = round(E)+1 buckets unless given."""
        ratio = exp_down(check_epsilon(epsilon))
        g = min(round(ratio) + 1, MOST_BUCKETS) if buckets is None else buckets
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

    @cached_property
    def epsilon(self) -> float:
        return log_up(Fraction(self.keep, self.other))

    @property
    def report_bytes(self) -> int:
        return 8 + (1 if self.buckets <= 256 else 2)

    @property
    def draw_bytes(self) -> int:
        return 8 + self.threshold_bits // 8

    @property
    def counters(self) -> int:
        return self.cells

    def bucket(self, a: int, b: int, value: int) -> int:
        """The bucket of a cell under the hash function (a, b)."""
        v = ((a * value + b) % 2**WORD_BITS) >> (WORD_BITS - HASH_BITS)
        return (v * self.buckets) >> HASH_BITS

    def randomise(self, value: int, source: ByteSource) -> bytes:
        check_value(value, self.cells)
        data = source(self.draw_bytes)
        a, b = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
        true = self.bucket(a, b, value)
        draw = int.from_bytes(data[8:], "little")
        if draw < self.keep:
            answer = true
        else:
            answer = (draw - self.keep) // self.other
            answer += answer >= true
        return data[:8] + answer.to_bytes(self.report_bytes - 8, "little")

    def law(self, value: int, a: int | None = None, b: int = 0) -> dict[bytes, Fraction]:
        """Given the hash function, which is drawn without a look at the value; by default one that spreads the cells."""
        check_value(value, self.cells)
        a = 2**WORD_BITS // self.cells if a is None else a
        shown = a.to_bytes(4, "little") + b.to_bytes(4, "little")
        true, other = self.bucket(a, b, value), Fraction(self.other, 2**self.threshold_bits)
        return {
            shown + answer.to_bytes(self.report_bytes - 8, "little"): self.p if answer == true else other
            for answer in range(self.buckets)
        }

    def check_report(self, report: bytes) -> None:
        check_length(report, self.report_bytes)
        answer = int.from_bytes(report[8:], "little")
        if answer >= self.buckets:
            raise ReportError(f"bucket {answer} is outside 0..{self.buckets - 1}", value=answer)

    def randomise_many(self, values: Codes, stream: RandomStream) -> PackedReports:
        from dither.mechanisms.kernels import local_hash

        return local_hash.randomise(self, values, stream)

    def support(self, reports: PackedReports) -> Counts:
        from dither.mechanisms.kernels import local_hash

        return local_hash.support(self, reports)

    def simulate(self, true_counts: Counts, rng: np.random.Generator) -> Counts:
        from dither.mechanisms.kernels import local_hash

        return local_hash.simulate(self, true_counts, rng)

    def estimate(self, support: Counts, n: int) -> Estimate:
        return invert(self, support, n)

    def variance(self, frequency: float, n: int) -> float:
        return frequency_variance(self.p, self.q, frequency, n)

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """Cells taken as independent, which they are in pairs of hash values."""
        return independent_group_variance(self.p, self.q, size, frequency, n)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "cells": self.cells,
            "buckets": self.buckets,
            "other": self.other,
            "threshold_bits": self.threshold_bits,
        }
