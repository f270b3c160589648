"""Bloom-filter RAPPOR as LoPub uses it: a value sets h of m bits, then each bit is randomised with flip probability f.

References: Ren et al., "LoPub", IEEE TIFS 2018, section 4.1 and eq. 6 to 8; Erlingsson, Pihur, Korolova, CCS 2014. A bit that
is 1 is reported as 1 with probability 1-f/2, a bit that is 0 with f/2. Epsilon here is exact for the filters at hand: the
largest number of bits in which two values' filters differ (2h at most) times ln((1-f/2)/(f/2)).

The bits of a value are taken from SHA-256 of "dither-bloom:<seed>:<value>:<counter>", four bytes at a time, little-endian,
modulo m, skipping repeats, so that a browser finds the same ones. Standard library only at import time.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.mechanism import (
    ByteSource,
    Estimate,
    PackedReports,
    bit_law,
    check_cells,
    check_length,
    check_value,
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

MOST_CELLS = 2**16
MOST_HASHES = (
    64  # a false-positive rate of 1e-19; with more, near `bits`, finding the last free bit would take for ever
)
MOST_FILTER_BYTES = 1 << 26  # all cells' filters together
ALL_PAIRS = 1024  # filters up to which all pairs are compared, in search of the two that are farthest apart
_COMPARED_BYTES = 1 << 24


def bloom_size(cells: int, false_positive: float) -> tuple[int, int]:
    """LoPub eq. 6 and 7: the number of bits m and of hashes h for a false-positive rate, rounded up and to nearest."""
    if not 0 < false_positive < 1:
        raise ParameterError(
            f"the false-positive rate must lie between 0 and 1, not {false_positive!r}", where="false_positive"
        )
    strength = math.log(1 / false_positive)
    return max(2, math.ceil(strength / math.log(2) ** 2 * cells)), max(1, round(strength / math.log(2)))


@dataclass(frozen=True)
class BloomRappor:
    """`bits` bits, `hashes` of them set by a value; `flipped` of 2^threshold_bits draws report the opposite of a bit."""

    cells: int
    bits: int
    hashes: int
    flipped: int
    seed: int = 0
    threshold_bits: int = THRESHOLD_BITS
    name = "bloom"

    def __post_init__(self) -> None:
        check_whole_numbers(self)
        check_cells(self.cells)
        if self.cells > MOST_CELLS:
            raise ParameterError(
                f"a Bloom question covers at most {MOST_CELLS:,} cells", where="cells", value=self.cells
            )
        if not 1 <= self.hashes <= MOST_HASHES or self.hashes >= self.bits:
            raise ParameterError(
                f"a Bloom filter needs 1 to {MOST_HASHES} hashes and more bits than hashes, not {self.hashes} hashes and "
                f"{self.bits} bits",
                where="bits",
            )
        if self.cells * self.report_bytes > MOST_FILTER_BYTES:
            raise ParameterError(
                f"the filters of {self.cells:,} cells with {self.bits:,} bits each are too large; use fewer bits",
                where="bits",
                value=self.bits,
            )
        if not 1 <= self.flipped < 2 ** (self.threshold_bits - 1):
            raise PrivacyError(
                "the flip probability rounds to 0 or 1: choose f strictly between, or a larger epsilon", where="flip"
            )

    @classmethod
    def for_flip(
        cls, cells: int, flip: float, bits: int, hashes: int, seed: int = 0, threshold_bits: int = THRESHOLD_BITS
    ) -> BloomRappor:
        """From LoPub's flip probability f; f/2 is rounded up, towards privacy."""
        if not 0 < flip < 1:
            raise PrivacyError(f"the flip probability must lie between 0 and 1, not {flip!r}", where="flip", value=flip)
        flipped = ceil_fraction(Fraction(flip) / 2 * 2**threshold_bits)
        return cls(cells, bits, hashes, flipped, seed, threshold_bits)

    @classmethod
    def for_epsilon(
        cls, cells: int, epsilon: float, bits: int, hashes: int, seed: int = 0, threshold_bits: int = THRESHOLD_BITS
    ) -> BloomRappor:
        """The smallest flip probability that keeps epsilon for the filters at hand."""
        distance = cls(cells, bits, hashes, 1, seed, threshold_bits).distance
        # Dividing a float by a whole number can round up; step down so that distance * share never exceeds epsilon.
        share = math.nextafter(check_epsilon(epsilon) / distance, 0.0)
        flipped = ceil_fraction(2**threshold_bits / (exp_down(share) + 1))
        return cls(cells, bits, hashes, flipped, seed, threshold_bits)

    @cached_property
    def filters(self) -> tuple[int, ...]:
        """The filter of each cell as a bit set."""
        return tuple(_filter(self.seed, value, self.bits, self.hashes) for value in range(self.cells))

    @cached_property
    def distance(self) -> int:
        """The largest number of bits in which two filters differ.

        No two sets of h of m bits differ in more than 2 min(h, m-h). The search ends when two do; should it take too long,
        that bound is given, which can only overstate epsilon.
        """
        distinct = list(dict.fromkeys(self.filters))
        if len(distinct) < 2:
            raise ParameterError("all cells share one Bloom filter; use more bits", where="bits", value=self.bits)
        most = 2 * min(self.hashes, self.bits - self.hashes)
        largest, left = 0, min(ALL_PAIRS**2 // 2, _COMPARED_BYTES // self.report_bytes)
        for a, b in ((a, b) for i, a in enumerate(distinct) for b in distinct[:i]):
            largest, left = max(largest, (a ^ b).bit_count()), left - 1
            if largest == most or not left:
                return most
        return largest

    @property
    def flip(self) -> Fraction:
        """LoPub's f."""
        return 2 * self.q

    @cached_property
    def p(self) -> Fraction:
        """P(a set bit is reported as set)."""
        return 1 - self.q

    @cached_property
    def q(self) -> Fraction:
        """P(an unset bit is reported as set)."""
        return Fraction(self.flipped, 2**self.threshold_bits)

    @cached_property
    def epsilon(self) -> float:
        return log_up((self.p / self.q) ** self.distance)

    @property
    def report_bytes(self) -> int:
        return (self.bits + 7) // 8

    @property
    def draw_bytes(self) -> int:
        return self.bits * self.threshold_bits // 8

    @property
    def counters(self) -> int:
        return self.bits

    def randomise(self, value: int, source: ByteSource) -> bytes:
        check_value(value, self.cells)
        step = self.threshold_bits // 8
        draws = source(self.draw_bytes)
        out = self.filters[value]
        for bit in range(self.bits):
            out ^= (int.from_bytes(draws[bit * step : (bit + 1) * step], "little") < self.flipped) << bit
        return out.to_bytes(self.report_bytes, "little")

    def law(self, value: int) -> dict[bytes, Fraction]:
        check_value(value, self.cells)
        return bit_law([self.p if self.filters[value] >> bit & 1 else self.q for bit in range(self.bits)])

    def check_report(self, report: bytes) -> None:
        check_length(report, self.report_bytes)
        if int.from_bytes(report, "little") >> self.bits:
            raise ReportError(f"a bit beyond the {self.bits} bits is set")

    def randomise_many(self, values: Codes, stream: RandomStream) -> PackedReports:
        from dither.mechanisms.kernels import bloom

        return bloom.randomise(self, values, stream)

    def support(self, reports: PackedReports) -> Counts:
        from dither.mechanisms.kernels import bits

        return bits.count_bits(reports.rows, self.bits)

    def simulate(self, true_counts: Counts, rng: np.random.Generator) -> Counts:
        from dither.mechanisms.kernels import bloom

        return bloom.simulate(self, true_counts, rng)

    def estimate(self, support: Counts, n: int) -> Estimate:
        from dither.mechanisms.kernels import bloom

        return bloom.estimate(self, support, n)

    def variance(self, frequency: float, n: int) -> float:
        """The mean over the cells of the regression's variance; it does not depend on the frequency, see `fleet.bloom`."""
        from dither.mechanisms.kernels import bloom

        return bloom.mean_variance(self, n)

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """The mean over all groups of this size, neglecting correlations between cells that the regression leaves."""
        return size * self.variance(frequency, n)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "cells": self.cells,
            "bits": self.bits,
            "hashes": self.hashes,
            "flipped": self.flipped,
            "seed": self.seed,
            "threshold_bits": self.threshold_bits,
        }


def _filter(seed: int, value: int, bits: int, hashes: int) -> int:
    """The first `hashes` different bit positions that SHA-256 gives for a value."""
    chosen: set[int] = set()
    counter = 0
    while len(chosen) < hashes:
        digest = hashlib.sha256(f"dither-bloom:{seed}:{value}:{counter}".encode()).digest()
        for i in range(0, 32, 4):
            if len(chosen) < hashes:
                chosen.add(int.from_bytes(digest[i : i + 4], "little") % bits)
        counter += 1
    out = bytearray(
        (bits + 7) // 8
    )  # a filter may be long: bytes are set in place, an integer would be copied for each
    for bit in chosen:
        out[bit >> 3] |= 1 << (bit & 7)
    return int.from_bytes(out, "little")
