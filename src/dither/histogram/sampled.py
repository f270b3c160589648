"""The paper's sampling variant: a random share of the participants answers as in CHP, the rest stays silent.

No amplification is counted: the collector sees the reports themselves, and a report's likelihood ratio is e^epsilon
whoever was drawn (erratum 5). The errors include who was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dither.errors import ParameterError
from dither.histogram.answer import Answer, nothing_to_ask, read_off
from dither.histogram.cells import PureCells, build, report_bits
from dither.histogram.chp import smallest
from dither.histogram.collect import People, ask, draw_sample
from dither.histogram.consumer import Consumer
from dither.histogram.partition import Partition

SHARE = 0.8  # the paper's sampling ratio


def sampled(
    people: People,
    partition: Partition,
    consumers: Sequence[Consumer],
    epsilon: float,
    frequency_mechanism: str,
    rng: np.random.Generator,
    share: float = SHARE,
) -> Answer:
    """Ask `share` of the people at full epsilon and scale up."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise ParameterError(
            f"the share of people asked must lie above 0 and at most at 1, not {share!r}", where="share", value=share
        )
    if partition.cells == 1:
        return nothing_to_ask(partition, consumers, people.n)
    size = max(1, round(share * people.n))
    mechanism = build(frequency_mechanism, partition.cells, smallest(consumers, epsilon))
    tally = ask(mechanism, draw_sample(people, size, rng), np.arange(partition.cells), rng)
    cells = PureCells(partition, mechanism, mechanism.estimate(tally, size).frequencies, size, people.n)
    counts, variances = read_off(cells, consumers)
    notes = {"asked": size, "share": share}
    return Answer(counts, variances, mechanism.epsilon, report_bits(mechanism), cells, (mechanism.name,), notes)
