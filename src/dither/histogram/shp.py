"""SHP: one consumer, everybody answers over its bins (paper, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dither.errors import ParameterError
from dither.histogram.answer import Answer
from dither.histogram.chp import chp
from dither.histogram.collect import People
from dither.histogram.consumer import Consumer
from dither.histogram.partition import Partition


def shp(
    people: People,
    partition: Partition,
    consumers: Sequence[Consumer],
    epsilon: float,
    frequency_mechanism: str,
    rng: np.random.Generator,
) -> Answer:
    """CHP with a single consumer; for several it would have to be run again for each, and every run spends epsilon."""
    if len(consumers) != 1:
        raise ParameterError(
            f"shp answers one consumer, not {len(consumers)}: use chp (one report for all) or split (epsilon divided)",
            where="mechanism",
            value="shp",
        )
    return chp(people, partition, consumers, epsilon, frequency_mechanism, rng)
