"""CHP: everybody answers once, over the union of all consumers' edges, and each consumer's bins are summed from its
cells.

Reference: Zheng, Yan, Duan, Tang, Tian, "Histogram publication over numerical values under local differential
privacy", 2021, section 4.2, at the smallest epsilon asked. Theorem 2's ratio is ((1-f/2)/(f/2))^2, bins are half-open
(erratum 9).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dither.histogram.answer import Answer, nothing_to_ask, read_off
from dither.histogram.cells import PureCells, build, report_bits
from dither.histogram.collect import People, ask
from dither.histogram.consumer import Consumer
from dither.histogram.partition import Partition


def smallest(consumers: Sequence[Consumer], epsilon: float) -> float:
    """The smallest epsilon that anybody asked for."""
    return min([epsilon, *(c.epsilon for c in consumers if c.epsilon is not None)])


def chp(
    people: People,
    partition: Partition,
    consumers: Sequence[Consumer],
    epsilon: float,
    frequency_mechanism: str,
    rng: np.random.Generator,
) -> Answer:
    """Ask everybody the whole partition; the guarantee holds though all consumers share what they get (theorem 8)."""
    if partition.cells == 1:
        return nothing_to_ask(partition, consumers, people.n)
    mechanism = build(frequency_mechanism, partition.cells, smallest(consumers, epsilon))
    tally = ask(mechanism, people, np.arange(partition.cells), rng)
    cells = PureCells(partition, mechanism, mechanism.estimate(tally, people.n).frequencies, people.n, people.n)
    counts, variances = read_off(cells, consumers)
    return Answer(counts, variances, mechanism.epsilon, report_bits(mechanism), cells, (mechanism.name,))
