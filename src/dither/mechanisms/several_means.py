"""Means of several attributes at once: each participant answers about some of them, drawn at random, at a share of
epsilon.

Reference: Wang et al., ICDE 2019, algorithm 4 (Multi-PM, Multi-HM): of d attributes k = max(1, min(d,
floor(eps/2.5))) are drawn and each answered at eps/k. Which ones were drawn says nothing about the values and is part
of the report. Here an attribute's mean is the mean over those who were asked about it, which varies less than their
sum scaled by d/k. Standard library only at import time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dither.errors import ParameterError, PrivacyError
from dither.mechanisms.duchi_vector import DuchiVector
from dither.mechanisms.means import (
    KINDS,
    Duchi,
    Hybrid,
    MeanEstimate,
    Piecewise,
    check_record,
    check_records,
    draw_bytes,
    estimate_mean,
    mean_mechanism,
    randomise,
    randomise_many,
    report_bytes,
)
from dither.mechanisms.mechanism import ByteSource, PackedReports
from dither.mechanisms.probability import check_epsilon

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dither.mechanisms.kernels.stream import RandomStream

EPSILON_EACH = 2.5  # Wang et al.: about what an answered attribute should get
_KEY_BYTES = 8


@dataclass(frozen=True)
class MultiMean:
    """`asked` of `attributes` attributes, each through the same mechanism; reports are (attribute, answer) pairs."""

    attributes: int
    asked: int
    grid: Duchi | Piecewise | Hybrid

    def __post_init__(self) -> None:
        if not 1 <= self.asked <= self.attributes <= 255:
            raise ParameterError(
                f"cannot ask {self.asked} of {self.attributes} attributes (at most 255)", where="asked"
            )

    @classmethod
    def for_epsilon(
        cls, attributes: int, epsilon: float, mechanism: str = "hybrid", asked: int | None = None
    ) -> MultiMean:
        """The number asked that Wang et al. advise, and the mechanism at its share of epsilon."""
        check_epsilon(epsilon)
        count = max(1, min(attributes, math.floor(epsilon / EPSILON_EACH))) if asked is None else asked
        if count < 1:
            raise ParameterError(f"at least one attribute must be asked, not {count}", where="asked", value=count)
        built = cls(attributes, count, mean_mechanism(mechanism, epsilon / count))
        if Fraction(built.grid.epsilon) * count > Fraction(epsilon):
            raise PrivacyError(
                f"{count} answers would spend more than epsilon {epsilon}", where="epsilon", value=epsilon
            )
        return built

    @property
    def epsilon(self) -> float:
        """The answers' guarantees add up; rounded up."""
        exact = Fraction(self.grid.epsilon) * self.asked
        near = float(exact)
        return near if Fraction(near) >= exact else math.nextafter(near, math.inf)

    @property
    def report_bytes(self) -> int:
        return self.asked * (1 + report_bytes(self.grid))

    def randomise(self, values: Sequence[float], source: ByteSource) -> bytes:
        """The report of one participant; the random bytes for the choice are read before any value is."""
        check_record(values, self.attributes)
        data = source(self.attributes * _KEY_BYTES)
        keys = [data[i * _KEY_BYTES : (i + 1) * _KEY_BYTES] for i in range(self.attributes)]
        chosen = sorted(sorted(range(self.attributes), key=keys.__getitem__)[: self.asked])
        out = b""
        for attribute in chosen:
            out += bytes([attribute]) + randomise(self.grid, values[attribute], source)
        return out

    @property
    def draw_bytes(self) -> int:
        return self.attributes * _KEY_BYTES + self.asked * draw_bytes(self.grid)

    def randomise_many(self, values: Any, stream: RandomStream) -> PackedReports:
        """The reports of many simulated participants (rows of `values`), the same law as `randomise`."""
        import numpy as np

        table = check_records(values, self.attributes)
        keys = stream.words(table.size).reshape(table.shape)
        chosen = np.sort(np.argsort(keys, axis=1, kind="stable")[:, : self.asked], axis=1)
        parts: list[npt.NDArray[np.uint8]] = []
        for place in range(self.asked):
            attribute = chosen[:, place]
            answers = randomise_many(self.grid, table[np.arange(len(table)), attribute], stream)
            parts += [attribute.astype(np.uint8)[:, None], answers.rows]
        return PackedReports(np.concatenate(parts, axis=1))

    def estimate(self, reports: PackedReports) -> list[MeanEstimate]:
        """One mean an attribute."""
        import numpy as np

        width = 1 + report_bytes(self.grid)
        pairs = reports.rows.reshape(-1, width)
        if pairs.size and pairs[:, 0].max() >= self.attributes:
            raise ParameterError(f"a report names attribute {int(pairs[:, 0].max())}", where="reports")
        return [
            estimate_mean(self.grid, PackedReports(np.ascontiguousarray(pairs[pairs[:, 0] == a, 1:])))
            for a in range(self.attributes)
        ]


def multi_mean(
    attributes: int, epsilon: float, mechanism: str = "hybrid", asked: int | None = None
) -> MultiMean | DuchiVector:
    """A mechanism for the means of several attributes, by name; "duchi-vector" answers about all of them at once."""
    if mechanism == DuchiVector.name:
        if asked not in (None, attributes):
            raise ParameterError(
                f"{mechanism} asks about all attributes, not {asked} of {attributes}", where="asked", value=asked
            )
        return DuchiVector.for_epsilon(attributes, epsilon)
    if mechanism not in KINDS:
        raise ParameterError(
            f"no mechanism {mechanism!r} for several means; there are {', '.join((*KINDS, DuchiVector.name))}",
            where="mechanism",
            value=mechanism,
        )
    return MultiMean.for_epsilon(attributes, epsilon, mechanism, asked)
