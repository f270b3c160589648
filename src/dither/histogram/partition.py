"""The partition that all consumers' bins are sums of: the union of their edges (paper, eq. 9 and 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dither.errors import ParameterError
from dither.histogram.consumer import MOST_BINS, Consumer
from dither.types import Floats, Integers

_SAME = 1e-12  # edges this close, as a share of the range, are one edge that was computed in two ways


@dataclass(frozen=True)
class Partition:
    """Cells between neighbouring edges, half-open, the last one closed."""

    edges: tuple[float, ...]

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.edges) - 1

    def spans(self, consumer: Consumer) -> list[tuple[int, int]]:
        """For each bin of a consumer the cells [start, stop) it is the sum of."""
        edges = np.asarray(self.edges)
        slack = _SAME * (edges[-1] - edges[0])
        positions = [int(np.abs(edges - edge).argmin()) for edge in consumer.edges]
        for edge, position in zip(consumer.edges, positions, strict=True):
            if abs(edges[position] - edge) > slack:
                raise ParameterError(
                    f"consumer {consumer.name!r}: edge {edge:g} is not in the partition; ask for a late answer instead",
                    where=consumer.name,
                    value=edge,
                )
        return list(pairwise(positions))

    def membership(self, consumer: Consumer) -> Floats:
        """One row a bin, 1 where a cell belongs to it."""
        out = np.zeros((consumer.bins, self.cells))
        for row, (start, stop) in zip(out, self.spans(consumer), strict=True):
            row[start:stop] = 1.0
        return out


def union(consumers: Sequence[Consumer], low: float, high: float) -> Partition:
    """The coarsest partition of [low, high] whose cells make up every consumer's bins."""
    everything = np.unique(
        np.array([low, high, *(edge for consumer in consumers for edge in consumer.edges)], dtype=np.float64)
    )
    apart = np.diff(everything) > _SAME * (high - low)
    kept = everything[np.concatenate([[True], apart])]
    kept[-1] = high  # the range's own end, even if an edge a rounding error below it came first
    if len(kept) - 1 > MOST_BINS:
        raise ParameterError(
            f"the consumers' edges make {len(kept) - 1:,} cells; at most {MOST_BINS:,} can be asked", where="consumers"
        )
    return Partition(tuple(kept.tolist()))


def mapping(fine: Partition, coarse: Partition) -> Integers:
    """For each cell of a partition the cell of a coarser one that holds it."""
    middles = (np.asarray(fine.edges)[1:] + np.asarray(fine.edges)[:-1]) / 2
    return np.searchsorted(np.asarray(coarse.edges)[1:-1], middles, side="right").astype(np.int64)
