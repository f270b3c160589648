"""The paper's baseline: every participant answers every consumer, at a share of epsilon each (section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dither.errors import PrivacyError
from dither.histogram.answer import Answer, read_off
from dither.histogram.cells import PureCells, build, report_bits
from dither.histogram.collect import People, ask
from dither.histogram.consumer import Consumer
from dither.histogram.partition import Partition, mapping, union


def split(
    people: People,
    partition: Partition,
    consumers: Sequence[Consumer],
    epsilon: float,
    frequency_mechanism: str,
    rng: np.random.Generator,
) -> Answer:
    """One report a consumer at epsilon/K, or at the consumer's own epsilon if that is smaller; the parts add up."""
    counts, variances, names, spent, bits = [], [], [], Fraction(0), 0
    share = epsilon / len(consumers)
    for consumer in consumers:
        own = union([consumer], partition.edges[0], partition.edges[-1])
        if own.cells == 1:
            counts.append(np.full(consumer.bins, float(people.n)))
            variances.append(np.zeros(consumer.bins))
            continue
        part = share if consumer.epsilon is None else min(share, consumer.epsilon)
        mechanism = build(frequency_mechanism, own.cells, part)
        tally = ask(mechanism, people, mapping(partition, own), rng)
        cells = PureCells(own, mechanism, mechanism.estimate(tally, people.n).frequencies, people.n, people.n)
        (count,), (variance,) = read_off(cells, [consumer])
        counts.append(count)
        variances.append(variance)
        names.append(mechanism.name)
        spent += Fraction(mechanism.epsilon)
        bits += report_bits(mechanism)
    total = _round_up(spent)
    if total > epsilon and spent > Fraction(epsilon):
        raise PrivacyError(
            f"the consumers' parts add up to epsilon {total}, more than {epsilon}", where="epsilon", value=total
        )
    return Answer(tuple(counts), tuple(variances), min(total, epsilon), bits, None, tuple(names))


def _round_up(value: Fraction) -> float:
    """The smallest float that is at least a fraction."""
    near = float(value)
    return near if Fraction(near) >= value else float(np.nextafter(near, np.inf))
