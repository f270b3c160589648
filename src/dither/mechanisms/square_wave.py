"""The square wave: reports near the true value, for densities and quantiles.

Privacy: a cell favours a window of outputs. Every output has `peak` draws inside the window
and `base` outside, so epsilon = ln(peak/base), exactly (see `outputs.Window`).

Reference: Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric, "Estimating numerical distributions
under local differential privacy", SIGMOD 2020: half-width
b = (eps E - E + 1)/(2E(E - 1 - eps)) of the unit range (eq. 5); values are put into d
buckets before they are randomised (section 5.4). `kernels.density` is the paper's estimate
by EM, with or without a binomial smoothing step (EMS): smooth, hence biased, and best for
quantiles and shapes at small epsilon. `kernels.estimate` is unbiased but less accurate than
other mechanisms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dither.checks import check_whole
from dither.mechanisms.base import check_cells
from dither.mechanisms.outputs import OutputMechanism, Window
from dither.mechanisms.probability import THRESHOLD_BITS, check_epsilon


def _half_width(epsilon: float) -> float:
    """The half-width of the window with the most information, as a share of the range."""
    # Numerator and denominator both vanish; the limit is one half.
    if epsilon < 1e-4:
        return 0.5
    # The formula overflows; the width is below that of any cell.
    if epsilon > 300:
        return 0.0
    ratio = math.exp(epsilon)
    return (epsilon * ratio - ratio + 1) / (2 * ratio * (ratio - 1 - epsilon))


@dataclass(frozen=True)
class SquareWave(OutputMechanism):
    """Ordered cells; an output is more often near the true cell than far from it.

    Args:
        cells: The number of cells, 2 to 4096.
        width: The number of outputs that a cell favours.
        base: Draws of an output that the cell does not favour.
        threshold_bits: Bits of one draw.
    """

    cells: int
    width: int
    base: int
    threshold_bits: int = THRESHOLD_BITS
    name = "square-wave"
    max_cells = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("width", self.width, 1, 2 * self.max_cells)
        # Building the window rejects parameters that cannot be drawn.
        self.window  # noqa: B018

    @classmethod
    def for_epsilon(
        cls, cells: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS
    ) -> SquareWave:
        """The wave of Li et al. over this many cells."""
        reach = math.floor(_half_width(check_epsilon(epsilon)) * check_cells(cells, cls.max_cells))
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
