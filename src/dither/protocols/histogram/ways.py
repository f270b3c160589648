"""CHP: everybody answers once, over the union of all consumers' edges, and each consumer's bins are summed from its
cells.

Reference: Zheng, Yan, Duan, Tang, Tian, "Histogram publication over numerical values under local differential
privacy", 2021, section 4.2, at the smallest epsilon asked. Theorem 2's ratio is ((1-f/2)/(f/2))^2, bins are half-open
(erratum 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dither.errors import ParameterError, PrivacyError
from dither.protocols.histogram.collect import People, ask, draw_sample
from dither.protocols.histogram.consumer import Consumer, Partition, mapping, union
from dither.protocols.histogram.estimates import Answer, PureCells, build, nothing_to_ask, read_off, report_bits


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


# --------------------
# SHP: one consumer, everybody answers over its bins (paper, section 4.1).


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


# --------------------
# The paper's baseline: every participant answers every consumer, at a share of epsilon each (section 5).


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


# --------------------
# The paper's sampling variant: a random share of the participants answers as in CHP, the rest stays silent.
#
# No amplification is counted: the collector sees the reports themselves, and a report's likelihood ratio is e^epsilon
# whoever was drawn (erratum 5). The errors include who was drawn.

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
