"""LOLOHA: reports of one participant over the waves of a panel.

A device draws, once: a hash function of the cells to g buckets, and one permanent answer for
each bucket, by randomised response. In each wave it reports a fresh randomised response of the
permanent answer for its value's bucket. Averaging the reports of many waves reveals the
permanent answers and nothing behind them.

Privacy. The paper bounds the permanent answers: epsilon_inf for each bucket, g epsilon_inf for
all of them (`values_ratio`). That covers two histories which change at the same waves, for any
number of waves. It does not cover *when* a value changes. The histories (0, 0, ..., 1, 1, ...)
and (0, 0, ..., 0, 0, ...) differ in whether one permanent answer or two are used, and with
enough waves any wave noise is averaged away: the ratio grows without bound. No mechanism that
is accurate in every wave avoids this: information about a history of independent values is at
most epsilon nats in total, so the information per wave falls at least as 1/waves.

The guarantee here is therefore stated for a number of waves that is fixed beforehand, after which
a device sends nothing more: `ratio` bounds the law of all reports together over every pair of
histories. For two buckets it is exact, for more it is a bound:

- g = 2. Given the reports, the likelihood of a history is largest when each wave's bucket is the
  report. The smallest one is found among all ways to split the reports between the two buckets;
  only the numbers matter, not the order.
- g > 2. The first report has the ratio `first_ratio`. Given the earlier ones, a further report is
  a mixture of randomised responses and has at most the ratio of one.

Reference: Arcolezi, Pinzon, Palamidessi, Gambs, "Frequency estimation of evolving data under
local differential privacy", EDBT 2023.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

from dither.checks import check_whole
from dither.errors import ParameterError, PrivacyError
from dither.mechanisms.base import check_cells, check_enumerable, load_numpy
from dither.mechanisms.grr import respond
from dither.mechanisms.local_hash import LocalHash
from dither.mechanisms.probability import (
    THRESHOLD_BITS,
    ceil_fraction,
    check_epsilon,
    check_whole_numbers,
    exp_down,
    log_up,
)

# A panel of more waves is not offered: little can be seen in each wave.
MAX_WAVES = 104
# More buckets never help at the epsilon of a panel's wave.
MAX_BUCKETS = 64
# Wave noise below this is of no use beside the permanent noise.
_MAX_LOG_RATIO = 20.0
_BISECTIONS = 60


class Membership(NamedTuple):
    """What a device keeps for the life of a panel.

    Attributes:
        a: First word of the hash function.
        b: Second word of the hash function.
        permanent: The permanent answer for each bucket.
    """

    a: int
    b: int
    permanent: tuple[int, ...]


@dataclass(frozen=True)
class Loloha:
    """Permanent and instantaneous randomised response over hash values.

    Args:
        cells: The number of cells, up to 2^17.
        buckets: The number of hash values, g.
        permanent_other: Of 2^threshold_bits draws, the number that lead to each other bucket in a
            permanent answer.
        wave_other: The same in a wave's report.
        waves: The most reports that a device sends.
        threshold_bits: Bits of one draw.

    >>> from dither.mechanisms.loloha import Loloha
    >>> panel = Loloha.for_epsilon(cells=5, epsilon=4.0, waves=6)
    >>> panel.buckets, panel.first_epsilon < panel.epsilon <= 4.0
    (2, True)
    """

    cells: int
    buckets: int
    permanent_other: int
    wave_other: int
    waves: int
    threshold_bits: int = THRESHOLD_BITS

    def __post_init__(self) -> None:
        check_whole_numbers(self)
        check_cells(self.cells, LocalHash.max_cells)
        check_whole("buckets", self.buckets, 2, MAX_BUCKETS)
        check_whole("waves", self.waves, 1)
        for other in (self.permanent_other, self.wave_other):
            if not 1 <= other < self._keep(other):
                raise PrivacyError(
                    f"a panel with {self.buckets} buckets cannot be drawn from "
                    f"2^{self.threshold_bits} numbers at this epsilon; choose another epsilon",
                    where="epsilon",
                    value=other,
                )

    @classmethod
    def for_epsilon(
        cls, cells: int, epsilon: float, waves: int, first_epsilon: float | None = None
    ) -> Loloha:
        """The most accurate panel within a lifetime epsilon.

        Args:
            cells: The number of cells.
            epsilon: The guarantee for all reports of a participant together. All permanent
                answers together keep it too, so that it holds for any number of waves if
                the histories change at the same waves.
            waves: The most reports that a device sends.
            first_epsilon: A tighter guarantee for the first report; none if omitted.

        Returns:
            The mechanism with the number of buckets of least variance.

        Raises:
            PrivacyError: An epsilon is out of range.
            ParameterError: `waves` is.
        """
        check_epsilon(epsilon)
        check_whole("waves", waves, 1, MAX_WAVES)
        if first_epsilon is not None and check_epsilon(first_epsilon) > epsilon:
            raise PrivacyError(
                f"the first report's epsilon, {first_epsilon:g}, is more than the lifetime's, "
                f"{epsilon:g}",
                where="epsilon_first",
                value=first_epsilon,
            )
        most = min(MAX_BUCKETS, max(2, round(exp_down(epsilon)) + 1))
        built = []
        for buckets in range(2, most + 1):
            found = _fitted(cells, buckets, epsilon, waves, first_epsilon)
            if found is not None:
                built.append(found)
        if not built:
            raise PrivacyError(
                f"epsilon {epsilon:g} over {waves} waves is too small for a panel; "
                "use a larger epsilon or fewer waves",
                where="epsilon_lifetime",
                value=epsilon,
            )
        return min(built, key=lambda one: one.variance(0.0, 1))

    # The integers behind both layers.

    def _keep(self, other: int) -> int:
        return (1 << self.threshold_bits) - (self.buckets - 1) * other

    @property
    def permanent_keep(self) -> int:
        """The number of draws of a permanent answer that lead to the true bucket."""
        return self._keep(self.permanent_other)

    @property
    def wave_keep(self) -> int:
        """The number of draws of a wave that lead to the permanent answer."""
        return self._keep(self.wave_other)

    @cached_property
    def _first(self) -> tuple[Fraction, Fraction]:
        """The probabilities that one report is the true bucket, and that it is a given other."""
        keep, other = self.permanent_keep, self.permanent_other
        rest = self.buckets - 1
        whole = 1 << (2 * self.threshold_bits)
        true = keep * self.wave_keep + rest * other * self.wave_other
        false = keep * self.wave_other + other * self.wave_keep
        false += (self.buckets - 2) * other * self.wave_other
        return Fraction(true, whole), Fraction(false, whole)

    # Guarantees.

    @property
    def values_ratio(self) -> Fraction:
        """Bounds the ratio for histories that change at the same waves, whatever their number."""
        return Fraction(self.permanent_keep, self.permanent_other) ** self.buckets

    @property
    def first_ratio(self) -> Fraction:
        """The largest ratio of one report's probabilities under two values."""
        true, false = self._first
        return true / false

    @property
    def wave_ratio(self) -> Fraction:
        """The largest ratio that one further wave adds, given all reports before it."""
        return Fraction(self.wave_keep, self.wave_other)

    @cached_property
    def ratio(self) -> Fraction:
        """Bounds the ratio for all reports together, over every pair of histories."""
        if self.buckets == 2 and self.waves <= MAX_WAVES:
            return _two_bucket_ratio(self)
        return self.first_ratio * self.wave_ratio ** (self.waves - 1)

    @cached_property
    def epsilon(self) -> float:
        """The lifetime guarantee: everything that a device sends in the panel, rounded up."""
        return log_up(self.ratio)

    @property
    def values_epsilon(self) -> float:
        """The guarantee for histories that change at the same waves, whatever their number."""
        return log_up(self.values_ratio)

    @property
    def first_epsilon(self) -> float:
        """The guarantee of one report by itself."""
        return log_up(self.first_ratio)

    @property
    def wave_epsilon(self) -> float:
        """The most that one further wave adds."""
        return log_up(self.wave_ratio)

    # On the device.

    def join(self, data: bytes) -> Membership:
        """Draw what a device keeps, once for the life of the panel.

        Args:
            data: `join_bytes` random bytes.
        """
        if len(data) != self.join_bytes:
            raise ParameterError(f"joining takes {self.join_bytes} random bytes, not {len(data)}")
        size = self.threshold_bits // 8
        draws = [
            int.from_bytes(data[8 + size * i : 8 + size * (i + 1)], "little")
            for i in range(self.buckets)
        ]
        permanent = tuple(
            respond(draw, bucket, self.permanent_keep, self.permanent_other)
            for bucket, draw in enumerate(draws)
        )
        a, b = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
        return Membership(a, b, permanent)

    @property
    def join_bytes(self) -> int:
        """The number of random bytes that joining takes."""
        return 8 + self.buckets * self.threshold_bits // 8

    def report(self, membership: Membership, value: int, data: bytes) -> int:
        """The bucket that a device reports in a wave.

        Args:
            membership: What the device drew when it joined.
            value: Its cell in this wave.
            data: `threshold_bits / 8` random bytes.
        """
        answer = membership.permanent[self.bucket(membership.a, membership.b, value)]
        draw = int.from_bytes(data, "little")
        return respond(draw, answer, self.wave_keep, self.wave_other)

    def bucket(self, a: int, b: int, value: int) -> int:
        """The bucket of a cell under the hash function (a, b)."""
        return self._hash.bucket(a, b, value)

    def law(self, history: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
        """The exact probability of every sequence of reports, given the hash function.

        The hash function does not depend on the values, so all that matters of a history is the
        bucket of each wave.

        Args:
            history: The bucket of each wave.

        Raises:
            ParameterError: There are too many sequences to enumerate.
        """
        check_enumerable(self.buckets ** len(history))
        places = [
            [t for t, one in enumerate(history) if one == bucket] for bucket in range(self.buckets)
        ]
        probabilities = {}
        for reports in itertools.product(range(self.buckets), repeat=len(history)):
            product = 1
            for bucket, waves in enumerate(places):
                product *= self._likelihood(bucket, [reports[t] for t in waves])
            bits = self.threshold_bits * (self.buckets + len(history))
            probabilities[reports] = Fraction(product, 1 << bits)
        return probabilities

    def _likelihood(self, bucket: int, reports: list[int]) -> int:
        """The probability of the reports made from one permanent answer, as an integer."""
        total = 0
        for answer in range(self.buckets):
            same = reports.count(answer)
            weight = self.permanent_keep if answer == bucket else self.permanent_other
            total += weight * self.wave_keep**same * self.wave_other ** (len(reports) - same)
        return total

    # Accuracy.

    @cached_property
    def _hash(self) -> LocalHash:
        """Local hashing with the law of one report."""
        return LocalHash(self.cells, self.buckets, self.permanent_other, self.threshold_bits)

    @cached_property
    def p(self) -> Fraction:
        """The probability that a report supports its participant's true cell."""
        return self._first[0]

    @cached_property
    def q(self) -> Fraction:
        """The probability that a report supports another cell."""
        hashed = self._hash
        # The hash is the same, so the collision probability follows from its p and q.
        other = Fraction(self.permanent_other, 1 << self.threshold_bits)
        same = (hashed.q - other) / (hashed.p - other)
        return same * self._first[0] + (1 - same) * self._first[1]

    def variance(self, frequency: float, n: int) -> float:
        """The variance of one wave's estimate of a cell, from the noise of n reports."""
        p, q = float(self.p), float(self.q)
        spread = frequency * p * (1 - p) + (1 - frequency) * q * (1 - q)
        return spread / (n * (p - q) ** 2)


def _fitted(
    cells: int, buckets: int, epsilon: float, waves: int, first: float | None
) -> Loloha | None:
    """The panel with this number of buckets and the least wave noise; None if there is none."""
    whole = 1 << THRESHOLD_BITS
    permanent = ceil_fraction(whole / (exp_down(epsilon / buckets) + buckets - 1))
    if permanent * buckets >= whole:
        return None
    low, high = 0.0, _MAX_LOG_RATIO
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _rough_log_ratio(permanent / whole, buckets, middle, waves) <= epsilon and (
            first is None or _rough_log_ratio(permanent / whole, buckets, middle, 1) <= first
        ):
            low = middle
        else:
            high = middle
    other = math.ceil(whole / (math.exp(low) + buckets - 1))
    # The floats above are only near: exact arithmetic decides.
    limit, step = exp_down(epsilon), 1
    first_limit = limit if first is None else exp_down(first)
    while other * buckets < whole:
        found = Loloha(cells, buckets, permanent, other, waves)
        if found.ratio <= limit and found.first_ratio <= first_limit:
            return found
        other += step
        step *= 2
    return None


def _rough_log_ratio(permanent: float, buckets: int, log_ratio: float, waves: int) -> float:
    """`Loloha.ratio` in floats, for a search: ln, with the wave's ratio given as its ln."""
    keep = 1 - (buckets - 1) * permanent
    if buckets > 2 or waves == 1:
        other = 1 / (math.exp(log_ratio) + buckets - 1)
        wave_keep = 1 - (buckets - 1) * other
        true = keep * wave_keep + (buckets - 1) * permanent * other
        false = keep * other + permanent * wave_keep + (buckets - 2) * permanent * other
        return math.log(true / false) + (waves - 1) * log_ratio
    np = load_numpy()
    count = np.arange(waves + 1)
    # Logarithms of the likelihood of a0 reports of one bucket and a1 of the other, in units of
    # the wave's smaller probability.
    same = np.log(keep) + log_ratio * count
    swapped = np.log(permanent) + log_ratio * count
    table = np.logaddexp(same[:, None], swapped[None, :])
    worst = 0.0
    for first in range(waves // 2 + 1):
        rest = waves - first
        smallest = (
            table[: first + 1, : rest + 1] + table[: rest + 1, : first + 1][::-1, ::-1].T
        ).min()
        worst = max(worst, float(table[first, 0] + table[rest, 0] - smallest))
    return worst


@lru_cache(maxsize=256)
def _two_bucket_ratio(panel: Loloha) -> Fraction:
    """The exact largest ratio over all pairs of histories and all reports, for two buckets."""
    waves = panel.waves
    keep = [panel.wave_keep**i for i in range(waves + 1)]
    other = [panel.wave_other**i for i in range(waves + 1)]

    def likelihood(same: int, swapped: int) -> int:
        """A bucket's waves of which so many reports are the bucket itself, so many the other."""
        true: int = panel.permanent_keep * keep[same] * other[swapped]
        false: int = panel.permanent_other * keep[swapped] * other[same]
        return true + false

    table = [[likelihood(i, j) for j in range(waves + 1 - i)] for i in range(waves + 1)]
    worst = Fraction(1)
    for first in range(waves // 2 + 1):
        rest = waves - first
        largest = table[first][0] * table[rest][0]
        # Of the reports 0 and 1, so many come from waves in bucket 0; the others from bucket 1.
        smallest = min(
            table[i][j] * table[rest - j][first - i]
            for i in range(first + 1)
            for j in range(rest + 1)
        )
        worst = max(worst, Fraction(largest, smallest))
    return worst
