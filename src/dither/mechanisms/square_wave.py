"""The square wave: reports near the true value, a smooth density and quantiles from them.

Reference: Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric, "Estimating numerical distributions under local differential
privacy", SIGMOD 2020: half-width b = (eps E - E + 1)/(2E(E - 1 - eps)) of the unit range (eq. 5), values put into d
buckets before they are randomised (section 5.4), estimation by EM, or by EM with a binomial smoothing step (EMS). That
estimate (`density`) is smooth and therefore biased; its strength is quantiles and shapes at small epsilon. `estimate` gives
unbiased counts with error bars, as for every mechanism, but others do that better. Standard library only at import time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dither.checks import check_whole
from dither.mechanisms.base import batch_code, check_cells
from dither.mechanisms.outputs import OutputMechanism, Window
from dither.mechanisms.probability import THRESHOLD_BITS, check_epsilon

if TYPE_CHECKING:
    from dither.types import Counts, Floats


def half_width(epsilon: float) -> float:
    """The half-width that carries most information, as a share of the range."""
    if epsilon < 1e-4:  # the formula's numerator and denominator both vanish; its limit is one half
        return 0.5
    if epsilon > 300:  # below any cell's width, and beyond what the formula's floats can hold
        return 0.0
    ratio = math.exp(epsilon)
    return (epsilon * ratio - ratio + 1) / (2 * ratio * (ratio - 1 - epsilon))


@dataclass(frozen=True)
class SquareWave(OutputMechanism):
    """Cells 0..cells-1 in order; an output is one of `counters` places, near the true cell more often than not."""

    cells: int
    width: int
    base: int
    threshold_bits: int = THRESHOLD_BITS
    name = "square-wave"
    most_cells = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("width", self.width, 1, 2 * self.most_cells)
        self.window  # noqa: B018  refuses what cannot be drawn

    @classmethod
    def for_epsilon(
        cls, cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS
    ) -> SquareWave:
        """The wave of Li et al. over this many cells."""
        reach = math.floor(half_width(check_epsilon(epsilon)) * check_cells(cells, cls.most_cells))
        window = Window.for_epsilon(cells, 2 * reach + 1, epsilon, threshold_bits)
        return cls(cells, window.width, window.base, threshold_bits)

    @cached_property
    def window(self) -> Window:
        """The window that slides with the cell."""
        return Window(self.cells, self.width, self.base, self.threshold_bits)

    @property
    def counters(self) -> int:
        return self.window.outputs

    @property
    def ratio(self) -> Fraction:
        return self.window.ratio

    def column(self, cell: int) -> list[int]:
        return self.window.column(cell)

    def report(self, value: int, data: bytes) -> int:
        return self.window.output(value, int.from_bytes(data, "little"))

    def density(self, support: Counts, *, smooth: bool = True, most_steps: int = 10_000) -> Floats:
        """The cells' frequencies by EM, or EM with smoothing (EMS); non-negative and adding up to one."""
        return batch_code().outputs.density(self, support, smooth=smooth, most_steps=most_steps)
