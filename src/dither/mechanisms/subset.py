"""Subset selection: a report is a set of w cells, the true one among them with probability p = wE/(wE+k-w).

References: Ye and Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy", IEEE
Trans. Inf. Theory 2018; Wang et al., "Mutual information optimally local private discrete distribution estimation", 2016.

How the set is drawn, exactly and with a fixed number of random bytes: the cells are put on a circle in a random order that
does not depend on the value; the report is an arc of w neighbours, and an arc that covers the true cell has `covering` draws
of 2^threshold_bits while any other arc has `missing` (a few of them one more, so that all draws are used). Even someone who
saw the order could learn no more than ratio covering/missing, so the guarantee does not rest on the order being uniform.
Standard library only at import time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dither.errors import PrivacyError, ReportError
from dither.mechanisms.mechanism import ByteSource, Estimate, PackedReports
from dither.mechanisms.probability import THRESHOLD_BITS, ceil_fraction, check_epsilon, exp_down, log_up
from dither.mechanisms.pure import check_cells, check_length, check_value, frequency_variance, invert, total_variance

if TYPE_CHECKING:
    import numpy as np

    from dither.mechanisms.fleet.stream import RandomStream
    from dither.mechanisms.mechanism import Codes, Counts

KEY_BYTES = 8  # a sort key a cell: two of 64 cells tie, and bias the order, once in 10^16 reports


@dataclass(frozen=True)
class SubsetSelection:
    """Sets of `size` of `cells` cells; `missing` draws for an arc that misses the true cell, see the module's text."""

    cells: int
    size: int
    missing: int
    threshold_bits: int = THRESHOLD_BITS
    name = "subset"

    def __post_init__(self) -> None:
        check_cells(self.cells)
        if not 1 <= self.size < self.cells:
            raise PrivacyError(f"the subset's size must lie in 1..{self.cells - 1}, not {self.size}", value=self.size)
        if not 1 <= self.missing < self.covering:
            raise PrivacyError(
                f"subset selection of {self.size} of {self.cells} cells cannot be drawn from 2^{self.threshold_bits} numbers at "
                "this epsilon; raise epsilon or ask fewer cells",
                value=self.missing,
            )

    @classmethod
    def for_epsilon(
        cls, cells: int, epsilon: float, size: int | None = None, threshold_bits: int = THRESHOLD_BITS
    ) -> SubsetSelection:
        """The thresholds that keep epsilon; the size with the least total variance unless one is given."""
        check_cells(cells)
        ratio = exp_down(check_epsilon(epsilon))
        if size is not None:
            return cls(cells, size, ceil_fraction(2**threshold_bits / (size * ratio + cells - size)), threshold_bits)
        # The best real size is k/(E+1); the best whole one is one of its neighbours.
        ideal = int(Fraction(cells) / (ratio + 1))
        candidates = [w for w in (ideal, ideal + 1) if 1 <= w < cells]
        built = [cls.for_epsilon(cells, epsilon, w, threshold_bits) for w in candidates]
        return min(built, key=lambda m: total_variance(m.p, m.q, cells))

    @cached_property
    def covering(self) -> int:
        """Draws for each of the `size` arcs that cover the true cell."""
        return (2**self.threshold_bits - (self.cells - self.size) * self.missing) // self.size

    @cached_property
    def p(self) -> Fraction:
        return Fraction(self.size * self.covering, 2**self.threshold_bits)

    @cached_property
    def q(self) -> Fraction:
        return (self.size - self.p) / (self.cells - 1)

    @cached_property
    def epsilon(self) -> float:
        return log_up(Fraction(self.covering, self.missing))

    @property
    def report_bytes(self) -> int:
        return (self.cells + 7) // 8

    @property
    def draw_bytes(self) -> int:
        return self.cells * KEY_BYTES + self.threshold_bits // 8

    @property
    def counters(self) -> int:
        return self.cells

    def arc_start(self, position: int, draw: int) -> int:
        """Where the arc begins, for a true cell at this position of the circle and a draw of threshold_bits."""
        hits = self.size * self.covering
        if draw < hits:
            return (position - draw // self.covering) % self.cells
        arcs = self.cells - self.size
        # Every missing arc has at least `missing` draws; the remainder is spread over them in turn.
        return (position + 1 + (draw - hits) % arcs) % self.cells

    def randomise(self, value: int, source: ByteSource) -> bytes:
        check_value(value, self.cells)
        data = source(self.draw_bytes)
        keys = [data[i * KEY_BYTES : (i + 1) * KEY_BYTES][::-1] for i in range(self.cells)]  # little-endian numbers
        order = sorted(range(self.cells), key=keys.__getitem__)
        start = self.arc_start(order.index(value), int.from_bytes(data[self.cells * KEY_BYTES :], "little"))
        bits = 0
        for step in range(self.size):
            bits |= 1 << order[(start + step) % self.cells]
        return bits.to_bytes(self.report_bytes, "little")

    def check_report(self, report: bytes) -> None:
        check_length(report, self.report_bytes)
        bits = int.from_bytes(report, "little")
        if bits >> self.cells or bits.bit_count() != self.size:
            raise ReportError(f"a subset of {self.size} of {self.cells} cells was expected", value=bits.bit_count())

    def randomise_many(self, values: Codes, stream: RandomStream) -> PackedReports:
        from dither.mechanisms.fleet import subset

        return subset.randomise(self, values, stream)

    def support(self, reports: PackedReports) -> Counts:
        from dither.mechanisms.fleet import bits

        return bits.count_bits(reports.rows, self.cells)

    def simulate(self, true_counts: Counts, rng: np.random.Generator) -> Counts:
        from dither.mechanisms.fleet import subset

        return subset.simulate(self, true_counts, rng)

    def estimate(self, support: Counts, n: int) -> Estimate:
        return invert(self, support, n)

    def variance(self, frequency: float, n: int) -> float:
        return frequency_variance(self.p, self.q, frequency, n)

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """Exact: how many cells of a group a report holds, with the negative correlation of a set of fixed size."""
        p, k, w = float(self.p), self.cells, self.size

        def spread(others: int, own: bool) -> float:
            # A mixture over whether the true cell is in the set; the other members are a hypergeometric draw.
            parts = [(p, w - 1, 1.0 if own else 0.0), (1 - p, w, 0.0)]
            means = [extra + drawn * others / (k - 1) for _, drawn, extra in parts]
            mean = sum(share * m for (share, _, _), m in zip(parts, means, strict=True))
            within = sum(share * _hypergeometric_variance(drawn, others, k - 1) for share, drawn, _ in parts)
            return within + sum(share * (m - mean) ** 2 for (share, _, _), m in zip(parts, means, strict=True))

        total = frequency * spread(size - 1, True) + (1 - frequency) * spread(min(size, k - 1), False)
        return total / (n * float(self.p - self.q) ** 2)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "cells": self.cells,
            "size": self.size,
            "missing": self.missing,
            "threshold_bits": self.threshold_bits,
        }


def _hypergeometric_variance(drawn: int, marked: int, total: int) -> float:
    """Variance of the number of marked items among `drawn` of `total` without replacement."""
    if total < 2:
        return 0.0
    share = marked / total
    return drawn * share * (1 - share) * (total - drawn) / (total - 1)
