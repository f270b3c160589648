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
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dither.checks import check_between, check_whole
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.base import DeviceWork, batch_code
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down
from dither.mechanisms.unary import BitMechanism, bit_chances

if TYPE_CHECKING:
    from dither.types import Floats, JsonMapping

MAX_HASHES = 64  # a false-positive rate of 1e-19; with more, near `bits`, finding the last free bit would take for ever
MAX_FILTER_BYTES = 1 << 26  # all cells' filters together
ALL_PAIRS = (
    1024  # filters up to which all pairs are compared, in search of the two that are farthest apart
)
FALSE_POSITIVE = 0.022  # LoPub's
SEEDS_TRIED = 1_000
_COMPARED_BYTES = 1 << 24
_PRIME = 2**31 - 1


def bloom_size(cells: int, false_positive: float) -> tuple[int, int]:
    """LoPub eq. 6 and 7: the number of bits m and of hashes h for a false-positive rate, rounded up and to nearest."""
    check_between("the false-positive rate", false_positive, 0, 1, ends="()")
    strength = math.log(1 / false_positive)
    return max(2, math.ceil(strength / math.log(2) ** 2 * cells)), max(
        1, round(strength / math.log(2))
    )


def telling_seed(cells: int, bits: int, hashes: int, only: int | None = None) -> int:
    """The first seed of the hash functions, from 0 on, whose filters tell all cells apart; or whether `only` one does.

    Frequencies are read off the bits by regression, so the filters must be linearly independent, not merely different. The
    seed is public and chosen before anybody is asked: it costs no privacy.
    """
    if cells > bits:
        raise ParameterError(
            f"{bits:,} bits cannot tell {cells:,} values apart; use at least {cells:,} bits",
            where="bits",
            value=bits,
        )
    for seed in range(SEEDS_TRIED) if only is None else (only,):
        if _independent(BloomRappor(cells, bits, hashes, 1, seed).filters):
            return seed
    if only is not None:
        raise ParameterError(
            f"the hash seed {only} does not tell {cells:,} values apart by {bits:,} bits with {hashes} set; give another, or "
            "none and one will be found",
            where="hash_seed",
            value=only,
        )
    raise ParameterError(
        f"none of {SEEDS_TRIED:,} hash seeds tells {cells:,} values apart by {bits:,} bits with {hashes} set; use more bits",
        where="bits",
        value=bits,
    )


@dataclass(frozen=True)
class BloomRappor(BitMechanism):
    """`bits` bits, `hashes` of them set by a value; `flipped` of 2^threshold_bits draws report the opposite of a bit.

    The counters, p and q are those of bits; the cells are read from them by regression.
    """

    cells: int
    bits: int
    hashes: int
    flipped: int
    seed: int = 0
    threshold_bits: int = THRESHOLD_BITS
    name = "bloom"
    most_cells = 2**16
    exact_groups = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("hashes", self.hashes, 1, min(MAX_HASHES, self.bits - 1))
        if self.cells * self.report_bytes > MAX_FILTER_BYTES:
            raise ParameterError(
                f"the filters of {self.cells:,} cells with {self.bits:,} bits each are too large; use fewer bits",
                where="bits",
                value=self.bits,
            )
        self.require(1 <= self.flipped < 2 ** (self.threshold_bits - 1))

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
        flipped = ceil_fraction(Fraction(flip) / 2 * 2**threshold_bits)
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
        """The smallest flip probability that keeps epsilon for the filters at hand."""
        distance = cls(cells, bits, hashes, 1, seed, threshold_bits).distance
        # Dividing a float by a whole number can round up; step down so that distance * share never exceeds epsilon.
        share = math.nextafter(check_epsilon(epsilon) / distance, 0.0)
        flipped = ceil_fraction(2**threshold_bits / (exp_down(share) + 1))
        return cls(cells, bits, hashes, flipped, seed, threshold_bits)

    @classmethod
    def for_cells(
        cls, cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS
    ) -> BloomRappor:
        """The same with LoPub's size of a filter for a false-positive rate of 2.2 %."""
        bits, hashes = bloom_size(cells, FALSE_POSITIVE)
        seed = telling_seed(cells, bits, hashes)
        return cls.for_epsilon(cells, epsilon, bits, hashes, seed, threshold_bits)

    def with_epsilon(self, epsilon: float) -> BloomRappor:
        return self.for_epsilon(
            self.cells, epsilon, self.bits, self.hashes, self.seed, self.threshold_bits
        )

    @classmethod
    def device_work(cls, numbers: JsonMapping) -> DeviceWork:
        """The digests are those that the filters are expected to take; eight positions come from each."""
        cells, bits, hashes = numbers["cells"], numbers["bits"], numbers["hashes"]
        if not 1 <= hashes <= MAX_HASHES or hashes >= bits:
            raise ReportError(
                f"a Bloom filter sets 1 to {MAX_HASHES} bits, and fewer than it has", value=hashes
            )
        # The i-th new bit is found after bits/(bits-i) positions, as with collected coupons.
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

        No two sets of h of m bits differ in more than 2 min(h, m-h). The search ends when two do; should it take too long,
        that bound is given, which can only overstate epsilon.
        """
        distinct = list(dict.fromkeys(self.filters))
        if len(distinct) < 2:
            raise ParameterError(
                "all cells share one Bloom filter; use more bits", where="bits", value=self.bits
            )
        most = 2 * min(self.hashes, self.bits - self.hashes)
        largest, left = 0, min(ALL_PAIRS**2 // 2, _COMPARED_BYTES // self.report_bytes)
        for a, b in ((a, b) for i, a in enumerate(distinct) for b in distinct[:i]):
            largest, left = max(largest, (a ^ b).bit_count()), left - 1
            if largest == most or not left:
                return most
        return largest

    @cached_property
    def p(self) -> Fraction:
        """P(a set bit is reported as set)."""
        return 1 - self.q

    @cached_property
    def q(self) -> Fraction:
        """P(an unset bit is reported as set)."""
        return Fraction(self.flipped, 2**self.threshold_bits)

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

    def chances(self, value: int) -> dict[int, Fraction]:
        return bit_chances(
            [self.p if self.filters[value] >> bit & 1 else self.q for bit in range(self.bits)]
        )

    def variance(self, frequency: float, n: int) -> float:
        """The mean over the cells of the regression's variance; it does not depend on the frequency."""
        return float(batch_code().bits.bloom_covariance(self, n).diagonal().mean())

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """The mean over all groups of this size, neglecting correlations between cells that the regression leaves."""
        return size * self.variance(frequency, n)

    def weighted_variance(self, weights: Floats, frequencies: Floats, n: int) -> float:
        return float(weights @ batch_code().bits.bloom_covariance(self, n) @ weights)

    def forged_range(self, targeted: int | Sequence[int]) -> tuple[float, float]:
        """For a number of cells r times the worst cell's."""
        return batch_code().bits.bloom_forged(self, targeted)

    def tells(self, first: int, second: int) -> Callable[[bytes], bool]:
        differ = self.filters[first] ^ self.filters[second]
        return lambda report: (
            int.from_bytes(report, "little") & differ == self.filters[first] & differ
        )

    @property
    def far_apart(self) -> tuple[int, int]:
        filters = self.filters[:256]
        pairs = ((i, j) for i in range(len(filters)) for j in range(i))
        return max(pairs, key=lambda p: (filters[p[0]] ^ filters[p[1]]).bit_count())


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
    # A filter may be long: bytes are set in place, an integer would be copied for each.
    out = bytearray((bits + 7) // 8)
    for bit in chosen:
        out[bit >> 3] |= 1 << (bit & 7)
    return int.from_bytes(out, "little")


def _independent(filters: Sequence[int]) -> bool:
    """Whether filters are linearly independent, by elimination modulo a prime: independent there is independent everywhere.

    Each pivot is the rarest bit that a filter still has, which keeps the rows short: a thousand filters take some
    hundredths of a second.
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
