"""A sliding window over a grid of outputs: the exact core of the piecewise mechanism and of the square wave.

Input levels 0..levels-1; level i favours the outputs i..i+width-1 of levels+width-1. Of 2^threshold_bits draws each
favoured output has `peak`, any other `base`; what division leaves over (fewer than width draws) goes to the middle
output whatever the level, which adds the same to both sides of its ratio and so cannot raise it. The mean output is
exactly affine in the level. Standard library only at import time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dither.errors import ParameterError, PrivacyError
from dither.mechanisms.probability import (
    THRESHOLD_BITS,
    ceil_fraction,
    check_epsilon,
    check_whole_numbers,
    exp_down,
    log_up,
)

if TYPE_CHECKING:
    from dither.types import Integers


@dataclass(frozen=True)
class Window:
    """See the module's text; `base` determines everything else."""

    levels: int
    width: int
    base: int
    threshold_bits: int = THRESHOLD_BITS

    def __post_init__(self) -> None:
        check_whole_numbers(self)
        if self.levels < 2 or self.width < 1:
            raise ParameterError(
                f"a window needs two levels and a width of 1, not {self.levels} and {self.width}", where="levels"
            )
        if not 1 <= self.base < self.peak:
            raise PrivacyError(
                f"a window of {self.width} of {self.outputs} outputs cannot be drawn from 2^{self.threshold_bits} "
                "numbers at this epsilon; raise epsilon or use a coarser grid",
                value=self.base,
            )

    @classmethod
    def for_epsilon(cls, levels: int, width: int, epsilon: float, threshold_bits: int = THRESHOLD_BITS) -> Window:
        """The thresholds that keep epsilon: base rounded up, so peak/base is at most e^epsilon."""
        ratio = exp_down(check_epsilon(epsilon))
        return cls(levels, width, ceil_fraction(2**threshold_bits / (width * ratio + levels - 1)), threshold_bits)

    @property
    def outputs(self) -> int:
        """How many outputs there are."""
        return self.levels + self.width - 1

    @cached_property
    def peak(self) -> int:
        """Draws of each output inside the window."""
        return (2**self.threshold_bits - (self.levels - 1) * self.base) // self.width

    @property
    def middle(self) -> int:
        """The output that takes the draws left over."""
        return (self.outputs - 1) // 2

    @cached_property
    def epsilon(self) -> float:
        return log_up(Fraction(self.peak, self.base))

    def law(self, level: int) -> list[int]:
        """The draws of every output."""
        out = [self.base] * self.outputs
        for output in range(level, level + self.width):
            out[output] = self.peak
        out[self.middle] += 2**self.threshold_bits - self.width * self.peak - (self.levels - 1) * self.base
        return out

    def output(self, level: int, draw: int) -> int:
        """The output that a draw leads to."""
        inside = self.width * self.peak
        if draw < inside:
            return level + draw // self.peak
        place = (draw - inside) // self.base
        if place >= self.levels - 1:
            return self.middle
        return place if place < level else place + self.width

    def outputs_of(self, levels: Integers, draws: Integers) -> Integers:
        """`output` for many people at once."""
        import numpy as np

        inside = self.width * self.peak
        place = (draws - inside) // self.base
        other = np.where(place < levels, place, place + self.width)
        other = np.where(place >= self.levels - 1, self.middle, other)
        return np.where(draws < inside, levels + draws // self.peak, other)

    @cached_property
    def line(self) -> tuple[Fraction, Fraction]:
        """Intercept and slope of the mean output over the level, exact."""
        total, outputs, width = 2**self.threshold_bits, self.outputs, self.width
        spare = total - width * self.peak - (self.levels - 1) * self.base
        extra = self.peak - self.base
        at_zero = self.base * outputs * (outputs - 1) // 2 + extra * width * (width - 1) // 2 + spare * self.middle
        return Fraction(at_zero, total), Fraction(extra * width, total)
