"""Means of several attributes from one report: sampled attributes, or a vector of signs.

`MultiMean` draws some attributes and answers each at a share of epsilon. The choice of
attributes is independent of the values and part of the report, so the answers' ratios
multiply and nothing else counts.

`DuchiVector` reports one sign per attribute. Each value is rounded at random to a sign,
without bias: together the signs are v. A report is a sign vector t. A vector that agrees
with v in more than half of the coordinates has `high` draws of 2^threshold_bits, any other
one `low`, so high/low is the largest likelihood ratio, exactly; mixing over v cannot raise
it. A tie (an even number of attributes) counts as low. In both half spaces, as the
construction is usually written, a tie would have the draws of both and the ratio would be
e^eps + 1. Low is also optimal: a tie carries no information.

The draws must come out even: high times its vectors plus low times its vectors is
2^threshold_bits. Neighbouring solutions differ by less than 2^(d-1), so that with 2d + 64 bits `low` is
within 2^-33 of the ideal up to epsilon 22. One draw is the rank of t among all vectors, so
nothing else is rounded and no sort keys can tie. The number of random bytes does not depend
on the values.

References: Wang et al., ICDE 2019, algorithms 3 and 4 (Multi-PM, Multi-HM); Duchi, Jordan,
Wainwright, "Minimax optimal procedures for locally private estimation", JASA 2018, section
4.2.3.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Self

from dither.checks import check_whole
from dither.errors import ParameterError, ReportError
from dither.mechanisms.base import check_enumerable
from dither.mechanisms.means import GRIDS, GridMean, MeanMechanism, mean_mechanism, round_to_level
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down
from dither.mechanisms.subset import KEY_BYTES, circle, order_probability

if TYPE_CHECKING:
    from dither.types import JsonMapping, JsonObject

MAX_ATTRIBUTES = 255
# The bytes that round one value to a sign.
SIGN_BYTES = THRESHOLD_BITS // 8
# The bits of one draw of a sign vector, enough for 255 attributes.
MAX_BITS = 576
# About the best epsilon for one answered attribute (Wang et al.).
EPSILON_EACH = 2.5


@dataclass(frozen=True)
class MultiMean(MeanMechanism):
    """Some attributes, drawn at random, each through the same mechanism.

    A report has (attribute, answer) pairs in order. An attribute's mean is the mean over
    the participants asked about it, which varies less than their sum scaled by d/k.

    Args:
        attributes: The number of attributes, d.
        asked: The number of attributes that a participant answers, k.
        grid: The mechanism of one answer.
    """

    attributes: int
    asked: int
    grid: GridMean
    name = "several-means"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("attributes", self.attributes, 1, MAX_ATTRIBUTES)
        check_whole("asked", self.asked, 1, self.attributes)

    @classmethod
    def for_epsilon(
        cls, attributes: int, epsilon: float, mechanism: str = "hybrid", asked: int | None = None
    ) -> MultiMean:
        """Wang et al.'s choice: k = max(1, min(d, floor(eps/2.5))), each answer at eps/k."""
        check_epsilon(epsilon)
        count = asked
        if count is None:
            count = max(1, min(attributes, math.floor(epsilon / EPSILON_EACH)))
        check_whole("asked", count, 1, attributes)
        # Division can round up; step down so that the answers' sum never exceeds epsilon.
        share = epsilon / count
        if Fraction(share) * count > Fraction(epsilon):
            share = math.nextafter(share, 0.0)
        return cls(attributes, count, mean_mechanism(mechanism, share))

    @property
    def levels(self) -> int:
        return self.grid.levels

    @property
    def ratio(self) -> Fraction:
        """The product of the answers' ratios."""
        return self.grid.ratio**self.asked

    @property
    def report_bits(self) -> int:
        return 8 * self.asked * (1 + self.grid.report_bytes)

    @property
    def draw_bytes(self) -> int:
        return self.attributes * KEY_BYTES + self.asked * self.grid.draw_bytes

    @property
    def worst_variance(self) -> float:
        return self.grid.worst_variance * self.attributes / self.asked

    def report(self, values: Sequence[float], data: bytes) -> bytes:
        keys = [data[i * KEY_BYTES : (i + 1) * KEY_BYTES] for i in range(self.attributes)]
        out, start, step = b"", self.attributes * KEY_BYTES, self.grid.draw_bytes
        for place, attribute in enumerate(sorted(circle(keys)[: self.asked])):
            draws = data[start + place * step : start + (place + 1) * step]
            out += bytes([attribute]) + self.grid.report([values[attribute]], draws)
        return out

    def law(self, levels: Sequence[int]) -> dict[bytes, Fraction]:
        check_enumerable(math.factorial(min(self.attributes, 20)) * self.grid.outputs**self.asked)
        law: dict[bytes, Fraction] = {}
        for order in itertools.permutations(range(self.attributes)):
            answers = [
                [
                    (bytes([attribute]) + answer, probability)
                    for answer, probability in self.grid.law([levels[attribute]]).items()
                ]
                for attribute in sorted(order[: self.asked])
            ]
            for parts in itertools.product(*answers):
                report = b"".join(answer for answer, _ in parts)
                given_order = math.prod(probability for _, probability in parts)
                probability = order_probability(order) * given_order
                law[report] = law.get(report, Fraction(0)) + probability
        return law

    def numbers_in(self, report: bytes) -> tuple[Fraction | None, ...]:
        numbers: list[Fraction | None] = [None] * self.attributes
        for attribute, answer in self._pairs(report):
            numbers[attribute] = self.grid.numbers_in(answer)[0]
        return tuple(numbers)

    def check_report(self, report: bytes) -> None:
        super().check_report(report)
        pairs = self._pairs(report)
        unordered = any(a >= b for (a, _), (b, _) in itertools.pairwise(pairs))
        if unordered or pairs[-1][0] >= self.attributes:
            raise ReportError(
                f"a report must be about {self.asked} of {self.attributes} attributes, in order"
            )
        for _, answer in pairs:
            self.grid.check_report(answer)

    def _pairs(self, report: bytes) -> list[tuple[int, bytes]]:
        width = 1 + self.grid.report_bytes
        return [(report[i], report[i + 1 : i + width]) for i in range(0, len(report), width)]

    def to_json(self) -> JsonObject:
        return super().to_json() | {"grid": self.grid.to_json()}

    @classmethod
    def from_json(cls, data: JsonMapping) -> Self:
        grid = data.get("grid")
        if set(data) != {"name", "attributes", "asked", "grid"} or not isinstance(grid, dict):
            raise ReportError("several means need attributes, asked and a grid", value=data)
        if grid.get("name") not in tuple(GRIDS):
            raise ReportError("not a grid that this version supports", value=grid)
        return cls(data["attributes"], data["asked"], GRIDS[grid["name"]].from_json(grid))


@dataclass(frozen=True)
class DuchiVector(MeanMechanism):
    """One sign per attribute; the module's docstring has the construction.

    Args:
        attributes: The number of attributes, d.
        low: Draws of a vector that agrees in half of the coordinates or fewer.
        threshold_bits: Bits of one draw.
    """

    attributes: int
    low: int
    threshold_bits: int
    name = "duchi-vector"
    levels = 2
    draw_widths = range(8, MAX_BITS + 1, 8)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("attributes", self.attributes, 1, MAX_ATTRIBUTES)
        left = (1 << self.threshold_bits) - ((1 << self.attributes) - self._agreeing) * self.low
        self.require(self.low >= 1 and left % self._agreeing == 0 and self.high > self.low)

    @classmethod
    def for_epsilon(
        cls, attributes: int, epsilon: float, threshold_bits: int | None = None
    ) -> DuchiVector:
        """The smallest `low` for epsilon; from epsilon 45 on not all of it is used."""
        check_whole("attributes", attributes, 1, MAX_ATTRIBUTES)
        bits = threshold_bits
        if bits is None:
            bits = 8 * math.ceil((2 * attributes + 64) / 8)
        agreeing = _majority(attributes)
        others = (1 << attributes) - agreeing
        least = ceil_fraction((1 << bits) / (exp_down(check_epsilon(epsilon)) * agreeing + others))
        # agreeing * high + others * low = 2^bits fixes low modulo agreeing / gcd. The sum
        # of the two is 2^d, so their gcd is a power of two and a solution always exists.
        common = math.gcd(agreeing, others)
        step = agreeing // common
        residue = (1 << bits) // common * pow(others // common, -1, step) % step
        return cls(attributes, least + (residue - least) % step, bits)

    @cached_property
    def _agreeing(self) -> int:
        """The number of vectors that agree with v in more than half of the coordinates."""
        return _majority(self.attributes)

    @cached_property
    def high(self) -> int:
        """Draws of a vector that agrees with v in more than half of the coordinates."""
        low_draws = ((1 << self.attributes) - self._agreeing) * self.low
        return ((1 << self.threshold_bits) - low_draws) // self._agreeing

    @property
    def ratio(self) -> Fraction:
        return Fraction(self.high, self.low)

    def probability(self, agreements: int) -> Fraction:
        """The exact probability of one vector with this number of agreements with v."""
        draws = self.high if 2 * agreements > self.attributes else self.low
        return Fraction(draws, 1 << self.threshold_bits)

    def law(self, levels: Sequence[int]) -> dict[bytes, Fraction]:
        check_enumerable(1 << self.attributes)
        signs = sum(level << j for j, level in enumerate(levels))
        law = {}
        for report in range(1 << self.attributes):
            agreements = self.attributes - (report ^ signs).bit_count()
            law[report.to_bytes(self.report_bytes, "little")] = self.probability(agreements)
        return law

    def numbers_in(self, report: bytes) -> tuple[Fraction | None, ...]:
        bits = int.from_bytes(report, "little")
        return tuple(self.scale if bits >> j & 1 else -self.scale for j in range(self.attributes))

    @cached_property
    def scale(self) -> Fraction:
        """The factor that makes a reported sign unbiased, exactly.

        A coordinate agrees in C(d-1, a-1) and disagrees in C(d-1, a) of the vectors with a
        agreements; summed over the majorities all but one of these terms cancel.
        """
        d = self.attributes
        return Fraction(1 << self.threshold_bits, (self.high - self.low) * math.comb(d - 1, d // 2))

    def variance(self, value: float = 0.0) -> float:
        """The variance of one report for an attribute of this value; largest at 0."""
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
        """The first draw of every number of agreements, then 2^threshold_bits."""
        d, draws = self.attributes, (self.low, self.high)
        return list(
            accumulate((math.comb(d, a) * draws[2 * a > d] for a in range(d + 1)), initial=0)
        )

    def place(self, draw: int) -> tuple[int, int]:
        """The number of agreements, and the rank among the sets of that size."""
        agreements = bisect_right(self._starts, draw) - 1
        sets = math.comb(self.attributes, agreements)
        return agreements, (draw - self._starts[agreements]) % sets

    def agreeing(self, draw: int) -> int:
        """The agreeing coordinates as bits: the set of this rank in colexicographic order."""
        left, rank = self.place(draw)
        bits = 0
        for j in reversed(range(self.attributes)):
            without = binomials(self.attributes)[j][left]
            if rank >= without:
                bits |= 1 << j
                rank -= without
                left -= 1
        return bits

    def report(self, values: Sequence[float], data: bytes) -> bytes:
        signs = 0
        for j, value in enumerate(values):
            draw = int.from_bytes(data[j * SIGN_BYTES : (j + 1) * SIGN_BYTES], "little")
            signs |= round_to_level(value, 2, draw, THRESHOLD_BITS) << j
        draw = int.from_bytes(data[self.attributes * SIGN_BYTES :], "little")
        differing = signs ^ self.agreeing(draw)
        return (differing ^ ((1 << self.attributes) - 1)).to_bytes(self.report_bytes, "little")


def _majority(attributes: int) -> int:
    """The number of sign vectors that agree with a given one in more than half of the coordinates."""
    ties = 0 if attributes % 2 else math.comb(attributes, attributes // 2)
    return ((1 << attributes) - ties) // 2


@lru_cache(maxsize=16)
def binomials(attributes: int) -> list[list[int]]:
    """C(j, a) for j below `attributes` and a up to it."""
    return [[math.comb(j, a) for a in range(attributes + 1)] for j in range(attributes)]


def multi_mean(
    attributes: int, epsilon: float, mechanism: str = "hybrid", asked: int | None = None
) -> MultiMean | DuchiVector:
    """A mechanism for the means of several attributes, by name.

    Args:
        attributes: The number of attributes.
        epsilon: The largest epsilon of one report.
        mechanism: A grid ("duchi", "piecewise", "hybrid"), or "duchi-vector", which answers
            about all attributes at once.
        asked: The number of attributes that a participant answers; chosen by default.
    """
    if mechanism == DuchiVector.name:
        if asked not in (None, attributes):
            raise ParameterError(
                f"{mechanism} asks about all attributes, not {asked} of {attributes}",
                where="asked",
                value=asked,
            )
        return DuchiVector.for_epsilon(attributes, epsilon)
    if mechanism not in GRIDS:
        raise ParameterError(
            f"no mechanism {mechanism!r} for several means; choose one of "
            f"{', '.join((*GRIDS, DuchiVector.name))}",
            where="mechanism",
            value=mechanism,
        )
    return MultiMean.for_epsilon(attributes, epsilon, mechanism, asked)
