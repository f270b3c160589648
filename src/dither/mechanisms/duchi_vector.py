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
from typing import TYPE_CHECKING, Any

from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.means import MeanEstimate, check_number, check_record, check_records, mean_of
from dither.mechanisms.mechanism import ByteSource, PackedReports, check_length
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down, log_up

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dither.mechanisms.kernels.stream import RandomStream
    from dither.types import Floats

_SIGN_BYTES = THRESHOLD_BITS // 8  # for rounding one value
MOST_BITS = 576  # of one draw, as 255 attributes take
_BLOCK = 1 << 15  # people randomised at a time: a draw may take 72 bytes
_INT64_UP_TO = 66  # the last number of attributes whose binomial coefficients all fit 63 bits


@dataclass(frozen=True)
class DuchiVector:
    """One sign for each of `attributes`; `low` draws for a vector that agrees in half of them or fewer."""

    attributes: int
    low: int
    threshold_bits: int
    name = "duchi-vector"

    def __post_init__(self) -> None:
        _check_attributes(self.attributes)
        for number in (self.low, self.threshold_bits):
            if isinstance(number, bool) or not isinstance(number, int):
                raise ParameterError(f"draws and widths must be whole numbers, not {number!r}", value=number)
        if self.threshold_bits % 8 or not 8 <= self.threshold_bits <= MOST_BITS:
            raise ParameterError(f"draws of {self.threshold_bits} bits are not supported", where="threshold_bits")
        left = 2**self.threshold_bits - self._others * self.low
        if self.low < 1 or left % self._agreeing or self.high <= self.low:
            raise PrivacyError(
                f"{self.attributes} signs cannot be drawn from 2^{self.threshold_bits} numbers at this epsilon; raise it",
                where="epsilon",
                value=self.low,
            )

    @classmethod
    def for_epsilon(cls, attributes: int, epsilon: float, threshold_bits: int | None = None) -> DuchiVector:
        """The smallest `low` that keeps epsilon; from epsilon 45 on not all of it is used."""
        _check_attributes(attributes)
        bits = 8 * math.ceil((2 * attributes + 64) / 8) if threshold_bits is None else threshold_bits
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

    @property
    def _others(self) -> int:
        return 2**self.attributes - self._agreeing

    @cached_property
    def high(self) -> int:
        """Draws of a vector that agrees with v in more than half of the coordinates."""
        return (2**self.threshold_bits - self._others * self.low) // self._agreeing

    @cached_property
    def epsilon(self) -> float:
        """Of the whole vector, from the whole numbers drawn; rounded up."""
        return log_up(Fraction(self.high, self.low))

    def law(self, agreements: int) -> Fraction:
        """The exact chance of one vector that agrees with v in so many coordinates."""
        return Fraction(self.high if 2 * agreements > self.attributes else self.low, 2**self.threshold_bits)

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
    def report_bytes(self) -> int:
        return (self.attributes + 7) // 8

    @property
    def draw_bytes(self) -> int:
        """The number of random bytes one report consumes, whatever the values."""
        return self.attributes * _SIGN_BYTES + self.threshold_bits // 8

    @cached_property
    def _starts(self) -> list[int]:
        """The first draw of every number of agreements, and the end."""
        d, draws = self.attributes, (self.low, self.high)
        return list(accumulate((math.comb(d, a) * draws[2 * a > d] for a in range(d + 1)), initial=0))

    def place(self, draw: int) -> tuple[int, int]:
        """The number of agreements, and the rank among the sets of that many coordinates."""
        agreements = bisect_right(self._starts, draw) - 1
        return agreements, (draw - self._starts[agreements]) % math.comb(self.attributes, agreements)

    def agreeing(self, draw: int) -> int:
        """The coordinates that agree, as bits: the set of this rank in the order of its highest members."""
        (left, rank), bits = self.place(draw), 0
        for j in reversed(range(self.attributes)):
            without = _binomials(self.attributes)[j][left]
            if rank >= without:
                bits, rank, left = bits | 1 << j, rank - without, left - 1
        return bits

    def randomise(self, values: Sequence[float], source: ByteSource) -> bytes:
        """The report of one participant with values in [-1, 1]."""
        check_record(values, self.attributes)
        uppers = [_upper_draws(check_number(value, f"values[{j}]")) for j, value in enumerate(values)]
        data = source(self.draw_bytes)
        signs = 0
        for j, upper in enumerate(uppers):
            signs |= (int.from_bytes(data[j * _SIGN_BYTES : (j + 1) * _SIGN_BYTES], "little") < upper) << j
        differing = signs ^ self.agreeing(int.from_bytes(data[self.attributes * _SIGN_BYTES :], "little"))
        return (differing ^ (2**self.attributes - 1)).to_bytes(self.report_bytes, "little")

    def check_report(self, report: bytes) -> None:
        """Raise `ReportError` unless some values can produce these bytes."""
        check_length(report, self.report_bytes)
        if int.from_bytes(report, "little") >> self.attributes:
            raise ReportError(f"a report has more than {self.attributes} signs", value=report)

    def randomise_many(self, values: Any, stream: RandomStream) -> PackedReports:
        """The reports of many simulated participants (rows of `values`), draw for draw as on a device."""
        import numpy as np

        table = check_records(values, self.attributes)
        if not np.all((table >= -1) & (table <= 1)):
            raise ParameterError("values must be numbers from -1 to 1", where="values")
        out = np.empty((len(table), self.report_bytes), np.uint8)
        for start in range(0, len(table), _BLOCK):
            block = table[start : start + _BLOCK]
            data = stream.words(len(block) * self.draw_bytes, np.uint8).reshape(len(block), self.draw_bytes)
            width = self.attributes * _SIGN_BYTES
            signs = np.ascontiguousarray(data[:, :width]).view("<u4") < np.round((block + 1) / 2 * 2**THRESHOLD_BITS)
            same = signs == self.agreeing_many(data[:, width:])
            out[start : start + _BLOCK] = np.packbits(same, axis=1, bitorder="little")
        return PackedReports(out)

    def agreeing_many(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """`agreeing` of many draws, one a row of bytes: the draws are too long for words, their ranks mostly are not."""
        import numpy as np

        kind: Any = np.int64 if self.attributes <= _INT64_UP_TO else object
        places = [self.place(int.from_bytes(row.tobytes(), "little")) for row in data]
        left = np.array([agreements for agreements, _ in places], np.int64)
        rank = np.array([rank for _, rank in places], kind)
        out = np.empty((len(data), self.attributes), np.bool_)
        for j in reversed(range(self.attributes)):
            without = np.array(_binomials(self.attributes)[j], kind)[left]
            out[:, j] = rank >= without
            rank -= without * out[:, j]
            left -= out[:, j]
        return out

    def numbers(self, reports: PackedReports) -> Floats:
        """The unbiased numbers that the reports stand for, one row a participant."""
        import numpy as np

        width = reports.rows.shape[1]
        if width != self.report_bytes:
            raise ReportError(f"reports of {self.report_bytes} bytes were expected, not {width}", value=width)
        bits = np.unpackbits(reports.rows, axis=1, bitorder="little")
        if bits[:, self.attributes :].any():
            raise ReportError(f"a report has more than {self.attributes} signs", where="reports")
        scale = float(self.scale)
        return np.where(bits[:, : self.attributes], scale, -scale)

    def estimate(self, reports: PackedReports) -> list[MeanEstimate]:
        """One mean an attribute, each from all reports."""
        return [mean_of(column) for column in self.numbers(reports).T]


def _check_attributes(attributes: int) -> None:
    if isinstance(attributes, bool) or not isinstance(attributes, int) or not 1 <= attributes <= 255:
        raise ParameterError(
            f"there must be 1 to 255 attributes, not {attributes}", where="attributes", value=attributes
        )


def _majority(attributes: int) -> int:
    """How many of all sign vectors agree with a given one in more than half of the coordinates."""
    ties = 0 if attributes % 2 else math.comb(attributes, attributes // 2)
    return (2**attributes - ties) // 2


def _upper_draws(value: float) -> int:
    """Draws of the upper sign: the rounding is unbiased to within 2^-32 and no part of the guarantee."""
    return round((value + 1) / 2 * 2**THRESHOLD_BITS)


@lru_cache(maxsize=16)
def _binomials(attributes: int) -> list[list[int]]:
    """C(j, a) for j below `attributes` and a up to it."""
    return [[math.comb(j, a) for a in range(attributes + 1)] for j in range(attributes)]
