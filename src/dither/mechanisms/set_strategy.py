"""A mechanism made for given queries: each output favours a set of cells.

Of 2^threshold_bits draws, output o has `high[o]` in the cells of its set and `low[o]` in all
others. The draws that rounding leaves in a cell go to one last output, `rest`.

Privacy: epsilon is the logarithm of the largest ratio within any output, in rational
arithmetic: high/low for each set, and the largest to the smallest `rest`.

Two levels per output are enough for the best accuracy (Kairouz, Oh, Viswanath, JMLR 2016,
theorem 2). The histogram method `smart` chooses the sets and their weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Self

from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.base import DeviceWork
from dither.mechanisms.outputs import OutputMechanism
from dither.mechanisms.probability import THRESHOLD_BITS, check_epsilon, exp_down

if TYPE_CHECKING:
    from dither.types import JsonMapping, JsonObject


@dataclass(frozen=True)
class SetStrategy(OutputMechanism):
    """Outputs that each favour a set of cells.

    Args:
        cells: The number of cells, up to 4096.
        sets: The set of each output, as a bit mask of cells.
        high: The draws of each output in the cells of its set.
        low: The draws of each output in all other cells.
        rest: The draws of the last output in each cell.
        threshold_bits: Bits of one draw.
    """

    cells: int
    sets: tuple[int, ...]
    high: tuple[int, ...]
    low: tuple[int, ...]
    rest: tuple[int, ...]
    threshold_bits: int = THRESHOLD_BITS
    name = "strategy"
    max_cells = 4096
    list_fields = ("sets", "high", "low", "rest")

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = (*self.sets, *self.high, *self.low, *self.rest)
        if not self.sets or any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
            raise ParameterError(
                "a strategy needs at least one set, and whole numbers", where="sets"
            )
        if not len(self.sets) == len(self.high) == len(self.low) or len(self.rest) != self.cells:
            raise ParameterError(
                "a strategy needs a set, a high and a low for each output, and a rest for each cell"
            )
        if min(self.sets) < 0 or max(self.sets) >> self.cells:
            raise ParameterError(
                f"a strategy's sets must lie within its {self.cells} cells", where="sets"
            )
        least = min(*self.high, *self.low, *self.rest)
        if least < 1:
            raise PrivacyError(
                "an output that some value never produces would reveal that value", value=least
            )
        for cell in range(self.cells):
            if sum(self.column(cell)) != 1 << self.threshold_bits:
                raise PrivacyError(
                    f"the draws of cell {cell} do not add up to 2^{self.threshold_bits}", value=cell
                )

    @classmethod
    def for_epsilon(
        cls,
        cells: int,
        sets: Sequence[int],
        weights: Sequence[float],
        epsilon: float,
        threshold_bits: int = THRESHOLD_BITS,
    ) -> SetStrategy:
        """Round a strategy to integers with at most this epsilon.

        A small share of all draws is reserved for the last output, just enough to take the
        remainders while its ratio stays within e^epsilon. Outputs too rare for a single draw
        are dropped.

        Args:
            cells: The number of cells.
            sets: The set of each output, as a bit mask.
            weights: The probability of each output outside its set; inside it is e^epsilon
                times that.
            epsilon: The largest epsilon.
            threshold_bits: Bits of one draw.

        Raises:
            PrivacyError: The draws cannot express the strategy at this epsilon.
        """
        ratio = exp_down(check_epsilon(epsilon))
        total = 1 << threshold_bits
        reserved = Fraction(1, 2**20)
        while reserved < Fraction(1, 4):
            low = [int(Fraction(w) * total * (1 - reserved)) for w in weights]
            kept = [i for i, draws in enumerate(low) if draws >= 1]
            high = [int(low[i] * ratio) for i in kept]
            chosen = tuple(sets[i] for i in kept)
            outside = tuple(low[i] for i in kept)
            rest = tuple(total - sum(_column(cell, chosen, high, outside)) for cell in range(cells))
            if min(rest) >= 1 and max(rest) <= min(rest) * ratio:
                return cls(cells, chosen, tuple(high), outside, rest, threshold_bits)
            reserved *= 2
        raise PrivacyError(
            f"this strategy cannot be drawn from 2^{threshold_bits} numbers at epsilon {epsilon}",
            value=epsilon,
        )

    @classmethod
    def device_work(cls, numbers: JsonMapping) -> DeviceWork:
        """Every cell's draws are summed; lists of unequal length are rejected before that."""
        return DeviceWork(0, min(numbers["cells"], cls.max_cells) * len(numbers["sets"]), 0)

    def column(self, cell: int) -> list[int]:
        return [*_column(cell, self.sets, self.high, self.low), self.rest[cell]]

    @property
    def counters(self) -> int:
        return len(self.sets) + 1

    @cached_property
    def ratio(self) -> Fraction:
        full = (1 << self.cells) - 1
        ratios = [
            Fraction(max(high, low), min(high, low))
            for mask, high, low in zip(self.sets, self.high, self.low, strict=True)
            if mask not in (0, full)
        ]
        return max([*ratios, Fraction(max(self.rest), min(self.rest))])

    def to_json(self) -> JsonObject:
        """Sets are written in base 16, because they exceed a browser's numbers."""
        out = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in super().to_json().items()
        }
        return out | {"sets": [format(mask, "x") for mask in self.sets]}

    @classmethod
    def from_json(cls, data: JsonMapping) -> Self:
        try:
            sets = tuple(int(text, 16) for text in data["sets"])
            high, low, rest = (tuple(data[key]) for key in ("high", "low", "rest"))
            built = cls(data["cells"], sets, high, low, rest, data["threshold_bits"])
        except (KeyError, TypeError, ValueError):
            raise ReportError(
                "not a strategy that this version supports", value=data.get("name")
            ) from None
        if built.to_json() != data:
            raise ReportError(
                "a strategy must be written in its canonical form", value=data.get("name")
            )
        return built


def _column(cell: int, sets: Sequence[int], high: Sequence[int], low: Sequence[int]) -> list[int]:
    """The draws of every set's output for a participant in this cell."""
    return [h if mask >> cell & 1 else lo for mask, h, lo in zip(sets, high, low, strict=True)]
