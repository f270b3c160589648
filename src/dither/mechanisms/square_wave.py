"""The square wave: reports near the true value, a smooth density and quantiles from them.

Reference: Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric, "Estimating numerical distributions under local differential
privacy", SIGMOD 2020: half-width b = (eps E - E + 1)/(2E(E - 1 - eps)) of the unit range (eq. 5), values put into d
buckets before they are randomised (section 5.4), estimation by EM, or by EM with a binomial smoothing step (EMS). The
estimate is smooth and therefore biased; its strength is quantiles and shapes at small epsilon, not unbiased counts
with error bars. Standard library only at import time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dither.errors import ParameterError, ReportError
from dither.mechanisms.mechanism import ByteSource, PackedReports, check_length, check_value
from dither.mechanisms.probability import THRESHOLD_BITS, check_epsilon
from dither.mechanisms.window import Window

if TYPE_CHECKING:
    import numpy as np

    from dither.mechanisms.kernels.stream import RandomStream
    from dither.types import Codes, Counts, Floats


def half_width(epsilon: float) -> float:
    """The half-width that carries most information, as a share of the range."""
    if epsilon < 1e-4:  # the formula's numerator and denominator both vanish; its limit is one half
        return 0.5
    if epsilon > 300:  # below any cell's width, and beyond what the formula's floats can hold
        return 0.0
    ratio = math.exp(epsilon)
    return (epsilon * ratio - ratio + 1) / (2 * ratio * (ratio - 1 - epsilon))


@dataclass(frozen=True)
class SquareWave:
    """Cells 0..cells-1 in order; an output is one of `counters` places, near the true cell more often than not."""

    window: Window
    name = "square-wave"

    @classmethod
    def for_epsilon(cls, cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS) -> SquareWave:
        """The wave of Li et al. over this many cells."""
        if isinstance(cells, bool) or not isinstance(cells, int) or not 2 <= cells <= 4096:
            raise ParameterError(f"a square wave covers 2 to 4,096 cells, not {cells!r}", where="cells", value=cells)
        reach = math.floor(half_width(check_epsilon(epsilon)) * cells)
        return cls(Window.for_epsilon(cells, 2 * reach + 1, epsilon, threshold_bits))

    @property
    def cells(self) -> int:
        return self.window.levels

    @property
    def counters(self) -> int:
        return self.window.outputs

    @property
    def epsilon(self) -> float:
        return self.window.epsilon

    @property
    def report_bytes(self) -> int:
        return ((self.counters - 1).bit_length() + 7) // 8

    @property
    def draw_bytes(self) -> int:
        return self.window.threshold_bits // 8

    def randomise(self, value: int, source: ByteSource) -> bytes:
        """The report of one participant."""
        check_value(value, self.cells)
        draw = int.from_bytes(source(self.draw_bytes), "little")
        return self.window.output(value, draw).to_bytes(self.report_bytes, "little")

    def law(self, value: int) -> dict[bytes, Fraction]:
        """The exact probability of every report of this value."""
        check_value(value, self.cells)
        return {
            output.to_bytes(self.report_bytes, "little"): Fraction(draws, 2**self.window.threshold_bits)
            for output, draws in enumerate(self.window.law(value))
        }

    def check_report(self, report: bytes) -> None:
        """Raise `ReportError` unless some value can produce these bytes."""
        check_length(report, self.report_bytes)
        output = int.from_bytes(report, "little")
        if output >= self.counters:
            raise ReportError(f"output {output} is outside 0..{self.counters - 1}", value=output)

    def randomise_many(self, values: Codes, stream: RandomStream) -> PackedReports:
        """The reports of many simulated participants, draw for draw as on a device."""
        import numpy as np

        from dither.mechanisms.kernels.stream import check_values, uniform_draws

        truth = check_values(values, self.cells)
        draws = uniform_draws(stream, len(truth), self.window.threshold_bits)
        raw = self.window.outputs_of(truth, draws).astype("<u4").view(np.uint8).reshape(-1, 4)
        return PackedReports(np.ascontiguousarray(raw[:, : self.report_bytes]))

    def support(self, reports: PackedReports) -> Counts:
        """How many reports gave each output."""
        import numpy as np

        from dither.mechanisms.kernels.stream import check_counts

        outputs = np.zeros(len(reports), np.int64)
        for i in range(self.report_bytes):
            outputs |= reports.rows[:, i].astype(np.int64) << (8 * i)
        return check_counts(np.bincount(outputs, minlength=self.counters), self.counters)

    @cached_property
    def chances(self) -> Floats:
        """The chance of each output (rows) in each cell (columns)."""
        import numpy as np

        return np.array([self.window.law(cell) for cell in range(self.cells)]).T / 2.0**self.window.threshold_bits

    def simulate(self, true_counts: Counts, rng: np.random.Generator) -> Counts:
        """The same law without people: one multinomial a cell."""
        import numpy as np

        return np.asarray(rng.multinomial(np.asarray(true_counts), self.chances.T).sum(axis=0), dtype=np.int64)

    def density(self, support: Counts, *, smooth: bool = True, most_steps: int = 10_000) -> Floats:
        """The cells' frequencies by EM, or EM with smoothing (EMS); non-negative and adding up to one.

        Stops when the log-likelihood of all reports gains less than 0.001 a step (times e^epsilon without smoothing).
        """
        import numpy as np

        counts = np.asarray(support, dtype=np.float64)
        if counts.shape != (self.counters,) or counts.sum() < 1:
            raise ParameterError(
                f"a tally of {self.counters} outputs with a report is needed", where="support", value=counts.shape
            )
        enough = 1e-3 if smooth else 1e-3 * math.exp(self.epsilon)
        theta = np.full(self.cells, 1 / self.cells)
        before = -math.inf
        for _ in range(most_steps):
            expected = self.chances @ theta
            theta = theta * (self.chances.T @ (counts / expected))
            theta /= theta.sum()
            if smooth:
                theta = _smoothed(theta)
            now = float(counts @ np.log(self.chances @ theta))
            if abs(now - before) < enough:
                break
            before = now
        return theta


def _smoothed(theta: Floats) -> Floats:
    """The binomial kernel (1, 2, 1)/4, reflected at the ends."""
    import numpy as np

    padded = np.concatenate([theta[:1], theta, theta[-1:]])
    out = padded[:-2] / 4 + padded[1:-1] / 2 + padded[2:] / 4
    return np.asarray(out / out.sum(), dtype=np.float64)


def quantiles(density: Floats, edges: Sequence[float], levels: Sequence[float]) -> Floats:
    """Quantiles of a density over cells between these edges, values taken as evenly spread within a cell."""
    import numpy as np

    wanted, places = np.asarray(levels, dtype=np.float64), np.asarray(edges, dtype=np.float64)
    if len(places) != len(density) + 1 or np.any(density < 0) or np.any((wanted < 0) | (wanted > 1)):
        raise ParameterError(
            "quantiles need one more edge than cells, a density and levels between 0 and 1", where="levels"
        )
    cumulative = np.concatenate([[0.0], np.cumsum(density) / np.sum(density)])
    # Where nobody is, the cumulative share stands still; the first edge that reaches a level is its quantile.
    place = np.clip(np.searchsorted(cumulative, wanted, side="left"), 1, len(density))
    rise = cumulative[place] - cumulative[place - 1]
    part = np.divide(wanted - cumulative[place - 1], rise, out=np.zeros_like(wanted), where=rise > 0)
    return np.asarray(places[place - 1] + part * (places[place] - places[place - 1]), dtype=np.float64)
