"""What every way of collecting gives: raw counts of each consumer's bins with their variances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dither.histogram.cells import CellEstimates
from dither.histogram.consumer import Consumer
from dither.histogram.partition import Partition
from dither.types import Floats


@dataclass(frozen=True)
class Answer:
    """Raw unbiased counts and variances, one array a consumer; what a participant spent and sent; and, if there is one
    partition behind it all, its cells.
    """

    counts: tuple[Floats, ...]
    variances: tuple[Floats, ...]
    epsilon: float
    bits: int
    cells: CellEstimates | None = None
    mechanisms: tuple[str, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)


def read_off(cells: CellEstimates, consumers: Sequence[Consumer]) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Each consumer's bins as sums of cells (paper, eq. 15), with exact variances.

    A bin over the whole range holds everybody: its count is known without asking.
    """
    counts, variances = [], []
    for consumer in consumers:
        spans = cells.partition.spans(consumer)
        sums = np.array([cells.counts[start:stop].sum() for start, stop in spans])
        spread = cells.bin_variances(consumer)
        whole = np.array([stop - start == cells.partition.cells for start, stop in spans])
        counts.append(np.where(whole, float(cells.population), sums))
        variances.append(np.where(whole, 0.0, spread))
    return tuple(counts), tuple(variances)


def nothing_to_ask(partition: Partition, consumers: Sequence[Consumer], population: int) -> Answer:
    """One cell: everybody is in it."""
    return Answer(
        tuple(np.full(c.bins, float(population)) for c in consumers), tuple(np.zeros(c.bins) for c in consumers), 0.0, 0
    )
