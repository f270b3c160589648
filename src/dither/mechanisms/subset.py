"""Subset selection: a report is a set of w cells that holds the true one with probability p.

p = wE/(wE+k-w). The set is drawn exactly and with a fixed number of random bytes: the cells
are put on a circle in a random order that does not depend on the value and never leaves the
device; the report is an arc of w neighbours. Each of the w arcs that cover the true cell has
`covering` draws of 2^threshold_bits. The k - w other arcs share the remaining draws: `missing`
each, and the remainder of the division is spread over them.

Privacy, for every parameter set that can be built: if all orders were equally likely, a set
would have w covering / C(k-1, w-1) draws under a value that it holds and left / C(k-1, w)
under one that it does not, a ratio of covering (k - w) / left. Orders are those of k keys of
64 bits, ties broken by number. An order with d descents has the probability
C(N+k-1-d, k) / N^k with N = 2^64, and no order is more likely than another by more than the
factor 1 + 2 k (k-1) / (N-k+1), which is included in epsilon. Parameters under which a set
without the value would be as likely as one with it are rejected.

References: Ye and Barg, "Optimal schemes for discrete distribution estimation under locally
differential privacy", IEEE Trans. Inf. Theory 2018; Wang et al., "Mutual information
optimally local private discrete distribution estimation", 2016.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dither.checks import check_whole
from dither.errors import PrivacyError, ReportError
from dither.mechanisms.base import PureMechanism, check_cells, check_enumerable
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down

# One sort key per cell: two of 64 cells tie, and bias the order, once in 10^16 reports.
KEY_BYTES = 8
_KEYS = 2 ** (8 * KEY_BYTES)


@dataclass(frozen=True)
class SubsetSelection(PureMechanism):
    """Sets of `size` of `cells` cells; the module's docstring has the construction.

    Args:
        cells: The number of cells, up to 2^20.
        size: The number of cells in a report, w.
        missing: Of 2^threshold_bits draws, the least number for an arc that misses the true
            cell.
        threshold_bits: Bits of one draw.
    """

    cells: int
    size: int
    missing: int
    threshold_bits: int = THRESHOLD_BITS
    name = "subset"
    # Beyond this the bias of the order would matter, and a device would draw 8 MiB.
    max_cells = 2**20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("size", self.size, 1, self.cells - 1, error=PrivacyError)
        self.require(self.missing >= 1 and self.covering * (self.cells - self.size) > self.left)

    @classmethod
    def for_epsilon(
        cls,
        cells: int,
        epsilon: float,
        size: int | None = None,
        threshold_bits: int = THRESHOLD_BITS,
    ) -> SubsetSelection:
        """The thresholds for epsilon; by default the size with the least total variance."""
        check_cells(cells)
        ratio = exp_down(check_epsilon(epsilon)) / _order_bias(cells)
        if size is not None:
            missing = ceil_fraction((1 << threshold_bits) / (size * ratio + cells - size))
            return cls(cells, size, missing, threshold_bits)
        # The best real size is k/(E+1); the best whole one is one of its neighbours.
        ideal = int(Fraction(cells) / (ratio + 1))
        candidates = [w for w in (ideal, ideal + 1) if 1 <= w < cells]
        built = [cls.for_epsilon(cells, epsilon, w, threshold_bits) for w in candidates]
        return min(built, key=lambda m: m.total_variance)

    @cached_property
    def covering(self) -> int:
        """Draws for each of the `size` arcs that cover the true cell."""
        return ((1 << self.threshold_bits) - (self.cells - self.size) * self.missing) // self.size

    @property
    def left(self) -> int:
        """The draws shared by all arcs that miss the true cell."""
        return (1 << self.threshold_bits) - self.size * self.covering

    @cached_property
    def p(self) -> Fraction:
        return Fraction(self.size * self.covering, 1 << self.threshold_bits)

    @cached_property
    def q(self) -> Fraction:
        return (self.size - self.p) / (self.cells - 1)

    @property
    def ratio(self) -> Fraction:
        return Fraction(self.covering * (self.cells - self.size), self.left) * _order_bias(
            self.cells
        )

    @property
    def report_bits(self) -> int:
        return self.cells

    @property
    def draw_bytes(self) -> int:
        return self.cells * KEY_BYTES + self.threshold_bits // 8

    def arc_start(self, position: int, draw: int) -> int:
        """The start of the arc, for the position of the true cell and a draw."""
        hits = self.size * self.covering
        if draw < hits:
            return (position - draw // self.covering) % self.cells
        arcs = self.cells - self.size
        # Every missing arc has at least `missing` draws; the remainder is spread over the
        # first ones. Which arcs get one more does not matter: over all orders, a set is
        # each of them equally often.
        return (position + 1 + (draw - hits) % arcs) % self.cells

    def report(self, value: int, data: bytes) -> int:
        # Keys are little-endian; reversed bytes sort like numbers.
        keys = [data[i * KEY_BYTES : (i + 1) * KEY_BYTES][::-1] for i in range(self.cells)]
        order = circle(keys)
        draw = int.from_bytes(data[self.cells * KEY_BYTES :], "little")
        return self.arc(order, self.arc_start(order.index(value), draw))

    def arc(self, order: Sequence[int], start: int) -> int:
        """The cells of an arc of the circle, as bits."""
        return sum(1 << order[(start + step) % self.cells] for step in range(self.size))

    def probabilities(self, value: int) -> dict[int, Fraction]:
        check_enumerable(math.factorial(min(self.cells, 20)) * self.cells)
        # The draws of each arc by its start, counted from the true cell.
        arcs = [0] * self.cells
        for i in range(self.size):
            arcs[-i] = self.covering
        for i in range(self.cells - self.size):
            arcs[1 + i] = len(range(i, self.left, self.cells - self.size))
        law: dict[int, Fraction] = {}
        for order in itertools.permutations(range(self.cells)):
            weight = order_probability(order) / (1 << self.threshold_bits)
            position = order.index(value)
            for shift, draws in enumerate(arcs):
                report = self.arc(order, position + shift)
                law[report] = law.get(report, Fraction(0)) + weight * draws
        return law

    def check_report(self, report: bytes) -> None:
        super().check_report(report)
        held = int.from_bytes(report, "little").bit_count()
        if held != self.size:
            raise ReportError(
                f"a set of {self.size} of {self.cells} cells was expected, not of {held}",
                value=held,
            )

    def support_range(self, size: int) -> tuple[int, int]:
        return max(0, self.size - (self.cells - size)), min(size, self.size)

    @property
    def pair_probabilities(self) -> tuple[float, float]:
        p, k, size = float(self.p), self.cells, self.size
        both_others = 0.0
        if k > 2:
            sets = p * (size - 1) * (size - 2) + (1 - p) * size * (size - 1)
            both_others = sets / ((k - 1) * (k - 2))
        return p * (size - 1) / (k - 1), both_others

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """Exact, with the negative correlation of the cells of a set of fixed size."""
        p, k, w = float(self.p), self.cells, self.size

        def spread(others: int, true_inside: bool) -> float:
            # A mixture over whether the true cell is in the set; the other members are a
            # hypergeometric draw.
            parts = [(p, w - 1, 1.0 if true_inside else 0.0), (1 - p, w, 0.0)]
            means = [extra + drawn * others / (k - 1) for _, drawn, extra in parts]
            mean = sum(share * m for (share, _, _), m in zip(parts, means, strict=True))
            within = sum(
                share * _hypergeometric_variance(drawn, others, k - 1) for share, drawn, _ in parts
            )
            return within + sum(
                share * (m - mean) ** 2 for (share, _, _), m in zip(parts, means, strict=True)
            )

        inside = spread(size - 1, True)
        outside = spread(min(size, k - 1), False)
        total = frequency * inside + (1 - frequency) * outside
        return total / (n * float(self.p - self.q) ** 2)


def circle(keys: Sequence[bytes]) -> list[int]:
    """The cells sorted by their keys; of equal keys the lower cell comes first."""
    return sorted(range(len(keys)), key=keys.__getitem__)


def order_probability(order: Sequence[int], keys: int = _KEYS) -> Fraction:
    """The exact probability of an order of independent keys, uniform over `keys` numbers.

    Along the order keys never fall, and rise wherever the cell number falls. Adding one at
    every other step makes that a strictly rising sequence in a range that is longer by the
    number of these steps; such sequences correspond to sets.
    """
    cells = len(order)
    descents = sum(a > b for a, b in itertools.pairwise(order))
    return Fraction(math.comb(keys + cells - 1 - descents, cells), keys**cells)


def _order_bias(cells: int) -> Fraction:
    """A bound for the ratio of two orders' probabilities.

    C(N+k-1, k) / C(N, k) is a product of k factors of at most 1 + (k-1)/(N-k+1), below e^x
    and so below 1 + 2x with x = k (k-1)/(N-k+1) < 1.
    """
    return 1 + Fraction(2 * cells * (cells - 1), _KEYS - cells + 1)


def _hypergeometric_variance(drawn: int, marked: int, total: int) -> float:
    """Variance of the number of marked items among `drawn` of `total` without replacement."""
    if total < 2:
        return 0.0
    share = marked / total
    return drawn * share * (1 - share) * (total - drawn) / (total - 1)
