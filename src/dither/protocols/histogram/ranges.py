"""The method `ranges`: one report made for every interval of a line, for ranges, quantiles and means that nobody named before.

A participant answers once, at full epsilon, about one of 128 cells of equal width, the first and the last of them cut further,
since people are often heaped at the ends of a range: zeros, and whatever was moved there from beyond. Every edge that a consumer
named is an edge of a cell too. The report is the optimal design for all intervals (`intervals.py`). Raw counts are unbiased with
exact variances, as for `smart`; intervals rest on them. Beside them stand the cells' shares as they most likely are, by penalised
maximum likelihood with the smoothness that the reports call for (`estimate/density.py`); estimates are read off these. The square
wave of Li et al. (SIGMOD 2020) with its own estimate, EM with smoothing, stands beside it by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from dither.checks import check_choice
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.estimate.density import likely_density, rough_shares
from dither.mechanisms import SetStrategy, mechanism_from_json
from dither.mechanisms.outputs import OutputMechanism
from dither.mechanisms.square_wave import SquareWave
from dither.models import Independent
from dither.protocols.histogram.consumer import Consumer, Partition, union
from dither.protocols.histogram.estimates import ConsumerCounts, OutputCells, read_off
from dither.protocols.histogram.intervals import MOST_CELLS, interval_strategy
from dither.protocols.histogram.machine import (
    HistogramParameters,
    PartitionMachine,
    numeric_attribute,
    smallest,
)
from dither.reports import Question
from dither.schema import Schema
from dither.types import Integers, JsonObject

CELLS = 128
_END_PARTS = 8
_END_CUTS = (
    1,
    2,
    4,
)  # the first and the last cell have edges at an eighth, a quarter and a half of them
OVERVIEW = 16  # bins for those who name no consumer; their edges are edges of cells
RangeMechanism = Literal["strategy", "square-wave"]


@dataclass(frozen=True)
class RangesParameters(HistogramParameters):
    """`consumers`: who wants which bins besides; `mechanism`: strategy (made for all ranges) or square-wave."""

    consumers: str = str(OVERVIEW)
    mechanism: RangeMechanism = "strategy"

    def __post_init__(self) -> None:
        """The mechanisms of other methods are of no use here; these two are checked as they are read."""


def range_cells(consumers: Sequence[Consumer], low: float, high: float) -> Partition:
    """Cells of equal width, finer at both ends, with every consumer's edges among theirs, at most 256; who names 128 cells or more
    gets those."""
    partition = union(consumers, low, high)
    if partition.cells < CELLS:
        even = Consumer.by_count(CELLS, low, high)
        fine = union([*consumers, even, _ends(low, high)], low, high)
        partition = fine if fine.cells <= MOST_CELLS else union([*consumers, even], low, high)
    if partition.cells > MOST_CELLS:
        raise ParameterError(
            f"the consumers' edges make {partition.cells:,} cells, and method 'ranges' takes at most {MOST_CELLS}; name fewer "
            "bins, or use chp",
            where="consumers",
            value=partition.cells,
        )
    return partition


def _ends(low: float, high: float) -> Consumer:
    """The edges inside the first and the last cell."""
    edges = Consumer.by_count(_END_PARTS * CELLS, low, high).edges
    last = len(edges) - 1
    return Consumer(
        "both ends",
        tuple(edges[i] for i in (0, *_END_CUTS, *(last - i for i in _END_CUTS[::-1]), last)),
    )


class Ranges(PartitionMachine[RangesParameters]):
    """Everybody answers once through a report made for all intervals; estimates are smooth, and raw counts stay beside them."""

    method = "ranges"
    parameters_class = RangesParameters
    overview = (OVERVIEW,)

    @classmethod
    def schema_of(cls, name: str, consumers: Sequence[Consumer], low: float, high: float) -> Schema:
        return Schema((numeric_attribute(name, range_cells(consumers, low, high)),))

    @property
    def _budget(self) -> float:
        return smallest(self.consumers, self.campaign.epsilon)

    @cached_property
    def _mechanism(self) -> OutputMechanism:
        if self.parameters.mechanism == "square-wave":
            return SquareWave.for_epsilon(self.partition.cells, self._budget)
        return interval_strategy(self.partition.cells, self._budget)

    @cached_property
    def _questions(self) -> tuple[Question, ...]:
        return (Question(self.campaign.schema.names, self._mechanism),)

    def design(self) -> JsonObject | None:
        return self._mechanism.to_json() if self.parameters.mechanism == "strategy" else None

    def take_design(self, design: JsonObject) -> None:
        kept = mechanism_from_json(design)
        if not isinstance(kept, SetStrategy) or kept.cells != self.partition.cells:
            raise ReportError(
                f"the mechanism that was kept is no strategy for {self.partition.cells} cells"
            )
        if kept.epsilon > self._budget:
            raise PrivacyError(
                f"the mechanism that was kept spends epsilon {kept.epsilon}", where="epsilon"
            )
        self._mechanism = kept

    def _cells(self, counts: Integers, n: int) -> OutputCells:
        mechanism, outputs = self._mechanism, counts.astype(np.float64)
        widths = np.diff(self.partition.edges)
        rough = rough_shares(mechanism.chance_table, outputs, widths)
        smoothed = (
            mechanism.density(counts)
            if isinstance(mechanism, SquareWave)
            else likely_density(mechanism.chance_table, counts, widths)
        )
        return OutputCells(
            self.partition, mechanism, rough * len(rough), counts, self.population, smoothed
        )

    def answer(self) -> ConsumerCounts:
        cells = self.cells
        assert isinstance(cells, OutputCells)  # there is always something to ask
        assert cells.smoothed is not None
        likely = [
            self.partition.membership(c) @ cells.smoothed * self.population for c in self.consumers
        ]
        return ConsumerCounts(*read_off(cells, self.consumers), cells, tuple(likely))

    def model(self) -> Independent:
        self._finished()
        assert self.cells is not None
        assert self.cells.smoothed is not None
        return Independent(self.campaign.schema, (self.cells.smoothed,))

    def notes(self) -> JsonObject:
        return {"cells": self.partition.cells}


@dataclass(frozen=True)
class WaveParameters(RangesParameters):
    """`consumers`: who wants which bins; the mechanism is the square wave."""

    mechanism: RangeMechanism = "square-wave"

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, ("square-wave",))


class Wave(Ranges):
    """The same cells asked through the square wave of Li et al., with their own estimate."""

    method = "square-wave"
    parameters_class = WaveParameters
