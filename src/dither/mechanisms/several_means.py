"""Means of several attributes at once: each participant answers about some of them, drawn at random, at a share of
epsilon.

Reference: Wang et al., ICDE 2019, algorithm 4 (Multi-PM, Multi-HM): of d attributes k = max(1, min(d,
floor(eps/2.5))) are drawn and each answered at eps/k. Which ones were drawn says nothing about the values and is part
of the report. Here an attribute's mean is the mean over those who were asked about it, which varies less than their
sum scaled by d/k. Standard library only at import time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Self

from dither.checks import check_whole
from dither.errors import ParameterError, ReportError
from dither.mechanisms.base import check_enumerable
from dither.mechanisms.duchi_vector import MAX_ATTRIBUTES, DuchiVector
from dither.mechanisms.means import GRIDS, GridMean, MeanMechanism, mean_mechanism
from dither.mechanisms.probability import check_epsilon
from dither.mechanisms.subset import KEY_BYTES, circle, order_chance

if TYPE_CHECKING:
    from dither.types import JsonMapping, JsonObject

EPSILON_EACH = 2.5  # Wang et al.: about what an answered attribute should get


@dataclass(frozen=True)
class MultiMean(MeanMechanism):
    """`asked` of `attributes` attributes, each through the same mechanism; reports are (attribute, answer) pairs in order."""

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
        """The number asked that Wang et al. advise, and the mechanism at its share of epsilon."""
        check_epsilon(epsilon)
        count = (
            max(1, min(attributes, math.floor(epsilon / EPSILON_EACH))) if asked is None else asked
        )
        check_whole("asked", count, 1, attributes)
        # Dividing a float by a whole number can round up; step down so that the answers' sum never exceeds epsilon.
        share = epsilon / count
        if Fraction(share) * count > Fraction(epsilon):
            share = math.nextafter(share, 0.0)
        return cls(attributes, count, mean_mechanism(mechanism, share))

    @property
    def levels(self) -> int:
        return self.grid.levels

    @property
    def ratio(self) -> Fraction:
        """The answers' ratios multiply; which attributes are asked says nothing."""
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
                    (bytes([attribute]) + answer, chance)
                    for answer, chance in self.grid.law([levels[attribute]]).items()
                ]
                for attribute in sorted(order[: self.asked])
            ]
            for parts in itertools.product(*answers):
                report = b"".join(answer for answer, _ in parts)
                chance = order_chance(order) * math.prod(chance for _, chance in parts)
                law[report] = law.get(report, Fraction(0)) + chance
        return law

    def numbers_in(self, report: bytes) -> tuple[Fraction | None, ...]:
        found: list[Fraction | None] = [None] * self.attributes
        for attribute, answer in self._pairs(report):
            found[attribute] = self.grid.numbers_in(answer)[0]
        return tuple(found)

    def check_report(self, report: bytes) -> None:
        super().check_report(report)
        pairs = self._pairs(report)
        if (
            any(a >= b for (a, _), (b, _) in itertools.pairwise(pairs))
            or pairs[-1][0] >= self.attributes
        ):
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
            raise ReportError("not a grid this version knows", value=grid)
        return cls(data["attributes"], data["asked"], GRIDS[grid["name"]].from_json(grid))


def multi_mean(
    attributes: int, epsilon: float, mechanism: str = "hybrid", asked: int | None = None
) -> MultiMean | DuchiVector:
    """A mechanism for the means of several attributes, by name; "duchi-vector" answers about all of them at once."""
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
            f"no mechanism {mechanism!r} for several means; there are {', '.join((*GRIDS, DuchiVector.name))}",
            where="mechanism",
            value=mechanism,
        )
    return MultiMean.for_epsilon(attributes, epsilon, mechanism, asked)
