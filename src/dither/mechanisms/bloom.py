"""Bloom-filter RAPPOR as LoPub uses it.

A value sets h of m bits; then each bit is randomised with flip probability f: a bit that
is 1 is reported as 1 with probability 1-f/2, a bit that is 0 with f/2.

Privacy: two values' reports differ only through the bits in which their filters differ,
2h at most. Each such bit contributes a likelihood ratio of (1-f/2)/(f/2), so epsilon is the
largest distance of two filters times ln((1-f/2)/(f/2)), exact for the given filters.

The bits of a value are taken from SHA-256 of "dither-bloom:<seed>:<value>:<counter>", four
bytes at a time, little-endian, modulo m, skipping repeats, so that a browser computes the
same ones. Importing this module needs the standard library only; variances need NumPy.

References: Ren et al., "LoPub", IEEE TIFS 2018, section 4.1 and eq. 6 to 8; Erlingsson,
Pihur, Korolova, CCS 2014.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dither.checks import check_between, check_whole
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.base import DeviceWork, load_numpy
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down
from dither.mechanisms.unary import BitMechanism, bit_probabilities

if TYPE_CHECKING:
    from dither.types import Bytes, Floats, JsonMapping

# A false-positive rate of 1e-19. With more hashes, close to the number of bits, the
# search for the last free bit would not end.
MAX_HASHES = 64
# All cells' filters together.
MAX_FILTER_BYTES = 1 << 26
# Up to this number of filters all pairs are compared for the largest distance.
ALL_PAIRS = 1024
# LoPub's false-positive rate.
FALSE_POSITIVE = 0.022
SEEDS_TRIED = 1_000
_COMPARED_BYTES = 1 << 24
_PRIME = 2**31 - 1


def bloom_size(cells: int, false_positive: float) -> tuple[int, int]:
    """The size of a filter for a false-positive rate (LoPub, eq. 6 and 7).

    Returns:
        The number of bits m, rounded up, and of hashes h, rounded to nearest.
    """
    check_between("the false-positive rate", false_positive, 0, 1, ends="()")
    strength = math.log(1 / false_positive)
    bits = max(2, math.ceil(strength / math.log(2) ** 2 * cells))
    hashes = max(1, round(strength / math.log(2)))
    return bits, hashes


def independent_filter_seed(cells: int, bits: int, hashes: int, only: int | None = None) -> int:
    """The first seed whose filters are linearly independent.

    Frequencies are estimated from the bits by regression, so distinct filters are not
    enough. The seed is public and chosen before the collection: it costs no privacy.

    Args:
        cells: The number of cells.
        bits: The number of bits of a filter.
        hashes: The number of bits that a value sets.
        only: Check this seed instead of searching from 0 on.

    Raises:
        ParameterError: No seed, or not the given one, has independent filters.
    """
    if cells > bits:
        raise ParameterError(
            f"{bits:,} bits cannot distinguish {cells:,} values; use at least {cells:,} bits",
            where="bits",
            value=bits,
        )
    for seed in range(SEEDS_TRIED) if only is None else (only,):
        if _independent(BloomRappor(cells, bits, hashes, 1, seed).filters):
            return seed
    if only is not None:
        raise ParameterError(
            f"the hash seed {only} does not distinguish {cells:,} values by {bits:,} bits with "
            f"{hashes} set; give another seed, or none to search for one",
            where="hash_seed",
            value=only,
        )
    raise ParameterError(
        f"none of {SEEDS_TRIED:,} hash seeds distinguishes {cells:,} values by {bits:,} bits "
        f"with {hashes} set; use more bits",
        where="bits",
        value=bits,
    )


@dataclass(frozen=True)
class BloomRappor(BitMechanism):
    """A randomised Bloom filter.

    The counters, p and q are those of bits; frequencies of cells are estimated from them by
    regression.

    Args:
        cells: The number of cells, up to 65,536.
        bits: The number of bits of a filter, m.
        hashes: The number of bits that a value sets, h.
        flipped: Of 2^threshold_bits draws, the number that flip a bit: f/2.
        seed: The public seed of the hash functions.
        threshold_bits: Bits of one draw.
    """

    cells: int
    bits: int
    hashes: int
    flipped: int
    seed: int = 0
    threshold_bits: int = THRESHOLD_BITS
    name = "bloom"
    max_cells = 2**16
    exact_groups = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("hashes", self.hashes, 1, min(MAX_HASHES, self.bits - 1))
        if self.cells * self.report_bytes > MAX_FILTER_BYTES:
            raise ParameterError(
                f"the filters of {self.cells:,} cells with {self.bits:,} bits each are too "
                "large; use fewer bits",
                where="bits",
                value=self.bits,
            )
        self.require(1 <= self.flipped < 1 << (self.threshold_bits - 1))

    @classmethod
    def for_flip(
        cls,
        cells: int,
        flip: float,
        bits: int,
        hashes: int,
        seed: int = 0,
        threshold_bits: int = THRESHOLD_BITS,
    ) -> BloomRappor:
        """From LoPub's flip probability f; f/2 is rounded up, towards privacy."""
        check_between("flip", flip, 0, 1, ends="()", error=PrivacyError)
        flipped = ceil_fraction(Fraction(flip) / 2 * (1 << threshold_bits))
        return cls(cells, bits, hashes, flipped, seed, threshold_bits)

    @classmethod
    def for_epsilon(
        cls,
        cells: int,
        epsilon: float,
        bits: int,
        hashes: int,
        seed: int = 0,
        threshold_bits: int = THRESHOLD_BITS,
    ) -> BloomRappor:
        """The smallest flip probability that keeps epsilon for these filters."""
        distance = cls(cells, bits, hashes, 1, seed, threshold_bits).distance
        # Division can round up; step down so that distance * share never exceeds epsilon.
        share = math.nextafter(check_epsilon(epsilon) / distance, 0.0)
        flipped = ceil_fraction((1 << threshold_bits) / (exp_down(share) + 1))
        return cls(cells, bits, hashes, flipped, seed, threshold_bits)

    @classmethod
    def for_cells(
        cls, cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS
    ) -> BloomRappor:
        """The mechanism with LoPub's filter size for a false-positive rate of 2.2 %."""
        bits, hashes = bloom_size(cells, FALSE_POSITIVE)
        seed = independent_filter_seed(cells, bits, hashes)
        return cls.for_epsilon(cells, epsilon, bits, hashes, seed, threshold_bits)

    def with_epsilon(self, epsilon: float) -> BloomRappor:
        return self.for_epsilon(
            self.cells, epsilon, self.bits, self.hashes, self.seed, self.threshold_bits
        )

    @classmethod
    def device_work(cls, numbers: JsonMapping) -> DeviceWork:
        """The expected number of digests for the filters; each digest gives eight positions."""
        cells, bits, hashes = numbers["cells"], numbers["bits"], numbers["hashes"]
        if not 1 <= hashes <= MAX_HASHES or hashes >= bits:
            raise ReportError(
                f"a Bloom filter sets 1 to {MAX_HASHES} bits, and fewer than it has", value=hashes
            )
        # The coupon collector: the i-th new bit takes bits/(bits-i) positions on average.
        expected = sum(bits / (bits - i) for i in range(hashes))
        return DeviceWork(
            cells * math.ceil(expected / 8),
            min(cells, ALL_PAIRS) ** 2 // 2,
            cells * (bits // 8 + 1),
        )

    @cached_property
    def filters(self) -> tuple[int, ...]:
        """The filter of each cell as a bit set."""
        return tuple(
            _filter(self.seed, value, self.bits, self.hashes) for value in range(self.cells)
        )

    @cached_property
    def distance(self) -> int:
        """The largest number of bits in which two filters differ.

        No two sets of h of m bits differ in more than 2 min(h, m-h) bits. The search ends
        at that bound; if it takes too long it returns the bound, which can only overstate
        epsilon.
        """
        distinct = list(dict.fromkeys(self.filters))
        if len(distinct) < 2:
            raise ParameterError(
                "all cells share one Bloom filter; use more bits", where="bits", value=self.bits
            )
        bound = 2 * min(self.hashes, self.bits - self.hashes)
        comparisons = min(ALL_PAIRS**2 // 2, _COMPARED_BYTES // self.report_bytes)
        largest = 0
        for i, a in enumerate(distinct):
            for b in distinct[:i]:
                largest = max(largest, (a ^ b).bit_count())
                comparisons -= 1
                if largest == bound or not comparisons:
                    return bound
        return largest

    @cached_property
    def p(self) -> Fraction:
        """P(a set bit is reported as set)."""
        return 1 - self.q

    @cached_property
    def q(self) -> Fraction:
        """P(an unset bit is reported as set)."""
        return Fraction(self.flipped, 1 << self.threshold_bits)

    @property
    def ratio(self) -> Fraction:
        return (self.p / self.q) ** self.distance

    @property
    def report_bits(self) -> int:
        return self.bits

    @property
    def draw_bytes(self) -> int:
        return self.bits * self.threshold_bits // 8

    @property
    def counters(self) -> int:
        return self.bits

    def report(self, value: int, data: bytes) -> int:
        out, step = self.filters[value], self.threshold_bits // 8
        for bit in range(self.bits):
            out ^= (
                int.from_bytes(data[bit * step : (bit + 1) * step], "little") < self.flipped
            ) << bit
        return out

    def probabilities(self, value: int) -> dict[int, Fraction]:
        return bit_probabilities(
            [self.p if self.filters[value] >> bit & 1 else self.q for bit in range(self.bits)]
        )

    def filter_matrix(self) -> Bytes:
        """The filters as a matrix: one row per cell, one column per bit."""
        np = load_numpy()
        packed = b"".join(f.to_bytes(self.report_bytes, "little") for f in self.filters)
        rows = np.frombuffer(packed, np.uint8).reshape(self.cells, -1)
        table: Bytes = np.unpackbits(rows, axis=1, bitorder="little", count=self.bits)
        return table

    def design_matrix(self) -> Floats:
        """The matrix of the regression, bits x cells.

        Raises:
            ParameterError: The filters are linearly dependent.
        """
        np = load_numpy()
        design: Floats = self.filter_matrix().T.astype(np.float64)
        if np.linalg.matrix_rank(design) < self.cells:
            raise ParameterError(
                f"{self.bits} bits with {self.hashes} hashes cannot distinguish {self.cells} "
                "values; use more bits or another seed",
                where="bits",
                value=self.bits,
            )
        return design

    def covariance(self, n: int) -> Floats:
        """The covariance of the cells' estimates from n reports, for any data.

        Since p = 1-q, every bit has the variance q(1-q)/(n(p-q)^2) for any data, so the
        covariance is that times the inverse Gram matrix of the filters.
        """
        np = load_numpy()
        design, p, q = self.design_matrix(), float(self.p), float(self.q)
        inverse: Floats = np.asarray(np.linalg.inv(design.T @ design))
        return inverse * (q * (1 - q) / (n * (p - q) ** 2))

    def variance(self, frequency: float, n: int) -> float:
        """The mean variance over the cells; it does not depend on the frequency."""
        return float(self.covariance(n).diagonal().mean())

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """The mean over all groups, neglecting the correlations left by the regression."""
        return size * self.variance(frequency, n)

    def weighted_variance(self, weights: Floats, frequencies: Floats, n: int) -> float:
        return float(weights @ self.covariance(n) @ weights)

    def forged_range(self, targeted: int | Sequence[int]) -> tuple[float, float]:
        """For a number of cells r: r times the bounds of the worst cell."""
        # The estimate is linear in the bits: a forger sets each by the sign of its
        # weight.
        np = load_numpy()
        p, q = float(self.p), float(self.q)
        # Cells x bits.
        weights = np.linalg.pinv(self.filter_matrix().T.astype(np.float64))
        unset, set_ = -q / (p - q), (1 - q) / (p - q)

        def bounds(row: Floats) -> tuple[float, float]:
            up = np.where(row > 0, set_ * row, unset * row)
            down = np.where(row > 0, unset * row, set_ * row)
            return float(down.sum()), float(up.sum())

        if isinstance(targeted, int):
            each = [bounds(row) for row in weights]
            return targeted * min(low for low, _ in each), targeted * max(high for _, high in each)
        return bounds(weights[list(targeted)].sum(axis=0))

    def distinguishing_event(self, first: int, second: int) -> Callable[[bytes], bool]:
        differ = self.filters[first] ^ self.filters[second]
        expected = self.filters[first] & differ
        return lambda report: int.from_bytes(report, "little") & differ == expected

    @property
    def most_distinct_cells(self) -> tuple[int, int]:
        filters = self.filters[:256]
        pairs = [(i, j) for i in range(len(filters)) for j in range(i)]
        return max(pairs, key=lambda pair: (filters[pair[0]] ^ filters[pair[1]]).bit_count())


def _filter(seed: int, value: int, bits: int, hashes: int) -> int:
    """The filter of a value: the first `hashes` distinct bit positions from SHA-256."""
    chosen: set[int] = set()
    counter = 0
    while len(chosen) < hashes:
        digest = hashlib.sha256(f"dither-bloom:{seed}:{value}:{counter}".encode()).digest()
        for i in range(0, 32, 4):
            if len(chosen) < hashes:
                chosen.add(int.from_bytes(digest[i : i + 4], "little") % bits)
        counter += 1
    # Bytes are set in place; an integer of a long filter would be copied for each bit.
    out = bytearray((bits + 7) // 8)
    for bit in chosen:
        out[bit >> 3] |= 1 << (bit & 7)
    return int.from_bytes(out, "little")


def _independent(filters: Sequence[int]) -> bool:
    """Whether filters are linearly independent.

    Elimination is modulo a prime: independence there implies independence over the
    rationals. Each pivot is the rarest bit that a row still has, which keeps the rows
    short: a thousand filters take some hundredths of a second.
    """
    rows = [dict.fromkeys(_members(f), 1) for f in filters]
    uses = Counter(bit for row in rows for bit in row)
    rarity = {bit: (count, bit) for bit, count in uses.items()}
    pivots: dict[int, dict[int, int]] = {}
    for given in rows:
        row = given
        while row:
            rarest = min(row, key=rarity.__getitem__)
            factor = row[rarest]
            if rarest not in pivots:
                inverse = pow(factor, -1, _PRIME)
                pivots[rarest] = {bit: value * inverse % _PRIME for bit, value in row.items()}
                break
            other = pivots[rarest]
            mixed = {
                bit: (row.get(bit, 0) - factor * other.get(bit, 0)) % _PRIME
                for bit in row.keys() | other.keys()
            }
            row = {bit: value for bit, value in mixed.items() if value}
        else:
            return False
    return True


def _members(bits: int) -> list[int]:
    """The positions of the bits that are set."""
    out = []
    while bits:
        low = bits & -bits
        out.append(low.bit_length() - 1)
        bits ^= low
    return out
