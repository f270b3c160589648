"""Means of several attributes from one report about all of them: a vector of signs.

References: Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private estimation", JASA 2018, section
4.2.3; Wang et al., ICDE 2019, algorithm 3.

Each value is rounded at random to a sign, without bias: together the signs are v. A report is a sign vector t. One that
agrees with v in more than half of the coordinates has `high` draws of 2^threshold_bits, any other one `low`, so
high/low is the largest likelihood ratio, exactly; mixing over v cannot raise it. A tie (an even number of attributes)
counts as low. Put into both half spaces, as the construction is usually written, a tie would have the draws of both and
the ratio would be e^eps + 1. Low is also the best that can be done: a tie tells nothing, and its draws are missing elsewhere.

The draws must come out even: high times its vectors plus low times its vectors is 2^threshold_bits. Solutions are less
than 2^(d-1) apart, so that with 2d + 64 bits `low` is within 2^-33 of the ideal up to epsilon 22. One draw is the rank
of t among all vectors, so nothing else is rounded and there are no sort keys to tie; the number of random bytes does
not depend on the values. Standard library only at import time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate

from dither.checks import check_whole
from dither.mechanisms.base import check_enumerable
from dither.mechanisms.means import MeanMechanism, round_to_level
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down

SIGN_BYTES = THRESHOLD_BITS // 8  # for rounding one value
MAX_ATTRIBUTES = 255
MAX_BITS = 576  # of one draw, as 255 attributes take


@dataclass(frozen=True)
class DuchiVector(MeanMechanism):
    """One sign for each of `attributes`; `low` draws for a vector that agrees in half of them or fewer."""

    attributes: int
    low: int
    threshold_bits: int
    name = "duchi-vector"
    levels = 2
    draw_widths = range(8, MAX_BITS + 1, 8)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("attributes", self.attributes, 1, MAX_ATTRIBUTES)
        left = 2**self.threshold_bits - (2**self.attributes - self._agreeing) * self.low
        self.require(self.low >= 1 and left % self._agreeing == 0 and self.high > self.low)

    @classmethod
    def for_epsilon(
        cls, attributes: int, epsilon: float, threshold_bits: int | None = None
    ) -> DuchiVector:
        """The smallest `low` that keeps epsilon; from epsilon 45 on not all of it is used."""
        check_whole("attributes", attributes, 1, MAX_ATTRIBUTES)
        bits = (
            8 * math.ceil((2 * attributes + 64) / 8) if threshold_bits is None else threshold_bits
        )
        agreeing = _majority(attributes)
        others = 2**attributes - agreeing
        least = ceil_fraction(2**bits / (exp_down(check_epsilon(epsilon)) * agreeing + others))
        # agreeing * high + others * low = 2^bits fixes low modulo agreeing / gcd. The two add up to 2^d, so that their
        # gcd is a power of two and there always is a solution.
        common = math.gcd(agreeing, others)
        step = agreeing // common
        residue = 2**bits // common * pow(others // common, -1, step) % step
        return cls(attributes, least + (residue - least) % step, bits)

    @cached_property
    def _agreeing(self) -> int:
        """How many vectors agree with v in more than half of the coordinates."""
        return _majority(self.attributes)

    @cached_property
    def high(self) -> int:
        """Draws of a vector that agrees with v in more than half of the coordinates."""
        return (
            2**self.threshold_bits - (2**self.attributes - self._agreeing) * self.low
        ) // self._agreeing

    @property
    def ratio(self) -> Fraction:
        return Fraction(self.high, self.low)

    def chance(self, agreements: int) -> Fraction:
        """The exact chance of one vector that agrees with v in so many coordinates."""
        return Fraction(
            self.high if 2 * agreements > self.attributes else self.low, 2**self.threshold_bits
        )

    def law(self, levels: Sequence[int]) -> dict[bytes, Fraction]:
        check_enumerable(2**self.attributes)
        signs = sum(level << j for j, level in enumerate(levels))
        return {
            report.to_bytes(self.report_bytes, "little"): self.chance(
                self.attributes - (report ^ signs).bit_count()
            )
            for report in range(2**self.attributes)
        }

    def numbers_in(self, report: bytes) -> tuple[Fraction | None, ...]:
        bits = int.from_bytes(report, "little")
        return tuple(self.scale if bits >> j & 1 else -self.scale for j in range(self.attributes))

    @cached_property
    def scale(self) -> Fraction:
        """What a reported sign stands for: its mean, times this, is the participant's sign exactly.

        A coordinate agrees in C(d-1, a-1) and disagrees in C(d-1, a) of the vectors with a agreements; summed over the
        majorities all but one of these terms cancel.
        """
        d = self.attributes
        return Fraction(2**self.threshold_bits, (self.high - self.low) * math.comb(d - 1, d // 2))

    def variance(self, value: float = 0.0) -> float:
        """Of one report, for an attribute of this value; largest at 0."""
        return float(self.scale**2) - value**2

    @property
    def worst_variance(self) -> float:
        return self.variance()

    @property
    def report_bits(self) -> int:
        return self.attributes

    @property
    def draw_bytes(self) -> int:
        return self.attributes * SIGN_BYTES + self.threshold_bits // 8

    @cached_property
    def _starts(self) -> list[int]:
        """The first draw of every number of agreements, and the end."""
        d, draws = self.attributes, (self.low, self.high)
        return list(
            accumulate((math.comb(d, a) * draws[2 * a > d] for a in range(d + 1)), initial=0)
        )

    def place(self, draw: int) -> tuple[int, int]:
        """The number of agreements, and the rank among the sets of that many coordinates."""
        agreements = bisect_right(self._starts, draw) - 1
        return agreements, (draw - self._starts[agreements]) % math.comb(
            self.attributes, agreements
        )

    def agreeing(self, draw: int) -> int:
        """The coordinates that agree, as bits: the set of this rank in the order of its highest members."""
        (left, rank), bits = self.place(draw), 0
        for j in reversed(range(self.attributes)):
            without = binomials(self.attributes)[j][left]
            if rank >= without:
                bits, rank, left = bits | 1 << j, rank - without, left - 1
        return bits

    def report(self, values: Sequence[float], data: bytes) -> bytes:
        signs = 0
        for j, value in enumerate(values):
            draw = int.from_bytes(data[j * SIGN_BYTES : (j + 1) * SIGN_BYTES], "little")
            signs |= round_to_level(value, 2, draw, THRESHOLD_BITS) << j
        differing = signs ^ self.agreeing(
            int.from_bytes(data[self.attributes * SIGN_BYTES :], "little")
        )
        return (differing ^ (2**self.attributes - 1)).to_bytes(self.report_bytes, "little")


def _majority(attributes: int) -> int:
    """How many of all sign vectors agree with a given one in more than half of the coordinates."""
    ties = 0 if attributes % 2 else math.comb(attributes, attributes // 2)
    return (2**attributes - ties) // 2


@lru_cache(maxsize=16)
def binomials(attributes: int) -> list[list[int]]:
    """C(j, a) for j below `attributes` and a up to it."""
    return [[math.comb(j, a) for a in range(attributes + 1)] for j in range(attributes)]
