"""Participants with several values each: the two methods of the paper's section 4.3, with what they really cost.

Everybody sends the same number of answers, `most`; who has fewer values fills up with "no value", which is one more
cell, since otherwise the number of answers would tell how many values there are. Two participants may differ in all
their values, so the guarantees of the answers add up: each is asked at epsilon/most.

`independent` sends every answer. `summed` adds up the randomised bit vectors and sends one vector of counts: fewer
bits, the same estimates, and the same epsilon. Adding up never reveals more; nor does it hide anything in the worst
case: between "all values in cell a" and "all in cell b" the vector with `most` at a and 0 at b has the ratio
(p(1-q)/(q(1-p)))^most, the sum of the answers' epsilons.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from dither.checks import check_choice, check_whole
from dither.errors import ParameterError, TableError
from dither.mechanisms import NAMES, BitMechanism, Mechanism
from dither.mechanisms.kernels.stream import RandomStream
from dither.mechanisms.probability import check_epsilon
from dither.protocols.histogram.consumer import Partition, read_consumers, union
from dither.protocols.histogram.estimates import PureCells, build, read_off
from dither.protocols.histogram.machine import smallest
from dither.protocols.histogram.values import as_numbers, check_range, gather
from dither.protocols.parameters import build_parameters
from dither.randomness import check_seed, generator
from dither.release.call import recorded
from dither.release.histogram import ConsumerHistogram, HistogramRelease
from dither.simulate import PATHS
from dither.simulate import Path as ReportPath
from dither.types import Floats, Integers, JsonMapping

SeveralMethod = Literal["independent", "summed"]


@dataclass(frozen=True)
class SeveralParameters:
    """`mechanism`: through what every answer goes."""

    mechanism: str = "sue"

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, NAMES)


@dataclass(frozen=True)
class Slots:
    """Every participant's answers as cells, `most` in a row; the last cell means no value."""

    cells: Integers
    counts: Integers


def several_values(
    values: Sequence[Any],
    *,
    consumers: Iterable[Any],
    epsilon: float,
    low: float,
    high: float,
    most: int,
    method: SeveralMethod = "summed",
    parameters: JsonMapping | None = None,
    path: ReportPath = "counts",
    seed: int | None = None,
) -> HistogramRelease:
    """Histograms of all values of all participants; `values` holds one list of numbers per participant, at most `most`
    long.

    Guarantee: everything one participant sends is epsilon-locally differentially private for all its values together.
    The parameter `mechanism` is the randomiser; `summed` takes unary ones (sue, oue).
    With a `seed` whoever knows it can draw the noise again; without one nobody can.

    >>> import dither
    >>> trips = [[3.0, 12.0], [7.5], []] * 400
    >>> found = dither.several_values(trips, consumers=[4], epsilon=4.0, low=0, high=20, most=2)
    >>> found.participants
    1200
    """
    consumers, seed = list(consumers), check_seed(seed)
    call = recorded(several_values, locals())
    check_epsilon(epsilon)
    check_choice("method", method, get_args(SeveralMethod))
    built = build_parameters(SeveralParameters, parameters or {}, method)
    check_whole("most", most, 1, 255)
    check_choice("path", path, PATHS)
    low, high = check_range(low, high)
    asked = read_consumers(consumers, low, high)
    partition = union(asked, low, high)
    slots = fill(values, partition, most)
    # Dividing a float by a whole number can round up; step down so that the answers' sum never exceeds epsilon.
    each = math.nextafter(smallest(asked, epsilon) / most, 0.0) if most > 1 else smallest(asked, epsilon)
    chosen = build(built.mechanism, partition.cells + 1, each)
    if method == "summed" and not (isinstance(chosen, BitMechanism) and chosen.filters is None):
        raise ParameterError(
            f"only unary reports, a bit per cell, can be summed, not {chosen.name}",
            where="mechanism",
            value=chosen.name,
        )
    tally = _collect(chosen, slots, method, path, generator(seed, 43))
    answers = slots.cells.size
    frequencies = chosen.estimate(tally, answers).frequencies
    cells = PureCells(_with_none(partition), chosen, frequencies, answers, answers)
    counts, variances = read_off(cells, asked)
    bits = chosen.report_bits
    return HistogramRelease(
        consumers=tuple(
            ConsumerHistogram(c.name, np.asarray(c.edges), count, np.sqrt(variance), count, c.epsilon)
            for c, count, variance in zip(asked, counts, variances, strict=True)
        ),
        epsilon_asked=float(epsilon),
        epsilon_achieved=chosen.epsilon_of(most),
        bits_per_report=bits * most if method == "independent" else chosen.cells * most.bit_length(),
        method=f"several-{method}",
        mechanisms=(chosen.name,),
        participants=len(slots.cells),
        low=low,
        high=high,
        partition=partition.edges,
        seed=seed,
        path=path,
        parameters=asdict(built),
        notes={"most": most, "epsilon_each": chosen.epsilon},
        call=call,
    )


def fill(values: Sequence[Any], partition: Partition, most: int) -> Slots:
    """Cells of everybody's values, filled up with "no value"."""
    held = _per_person(values)
    lengths = np.array([own.size for own in held], dtype=np.int64)
    if not len(lengths):
        raise TableError("there is nobody to ask", where="values")
    if lengths.max() > most:
        person = int(lengths.argmax())
        raise TableError(
            f"participant {person + 1} has {lengths.max()} values, more than {most}; raise most", where="values"
        )
    cells = np.full((len(lengths), most), partition.cells, np.int64)
    if lengths.any():
        codes = gather(np.concatenate(held), partition, reports=True).codes
        assert codes is not None
        cells[np.arange(most) < lengths[:, None]] = codes
    return Slots(cells, np.bincount(cells.ravel(), minlength=partition.cells + 1).astype(np.int64))


def _per_person(values: Sequence[Any]) -> list[Floats]:
    """Each participant's values as an array; an error names the participant whose values are no list of numbers."""
    held = []
    for person, own in enumerate(values):
        name = f"the values of participant {person + 1}"
        if isinstance(own, (str, bytes)) or not hasattr(own, "__len__"):
            raise TableError(f"{name} must be a list of numbers, not {own!r}", where="values")
        numbers = np.asarray(as_numbers(own, name), np.float64) if len(own) else np.zeros(0)
        if not np.isfinite(numbers).all():
            raise TableError(f"{name} hold a number that is missing or infinite; leave it out", where="values")
        held.append(numbers)
    return held


def _collect(
    mechanism: Mechanism, slots: Slots, method: SeveralMethod, path: str, rng: np.random.Generator
) -> Integers:
    """The tally of all answers: sums of summed vectors are sums of all vectors, so both methods have one law."""
    if path == "counts":
        return mechanism.simulate(slots.counts, rng)
    stream = RandomStream.from_generator(rng)
    if method == "independent":
        return mechanism.support(mechanism.randomise_many(slots.cells.ravel(), stream))
    total = np.zeros((len(slots.cells), mechanism.cells), np.int64)
    for place in range(slots.cells.shape[1]):
        rows = mechanism.randomise_many(slots.cells[:, place], stream).rows
        total += np.unpackbits(rows, axis=1, bitorder="little")[:, : mechanism.cells]
    return np.asarray(total.sum(axis=0), dtype=np.int64)


def _with_none(partition: Partition) -> Partition:
    """The partition with one more cell beyond its end, for no value."""
    high = partition.edges[-1]
    return Partition((*partition.edges, high + (high - partition.edges[0])))
