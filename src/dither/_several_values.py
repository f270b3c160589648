"""Participants with several values each: one of them at full epsilon, or the two methods of the paper's section 4.3.

Everybody has the same number of places for values, `most`; who has fewer values fills up with "no value", which is one more
cell, since otherwise the number of answers would tell how many values there are.

`one` (the default) answers for one place, drawn evenly by the participant, at full epsilon: whatever the other values are, they are
not told, and two participants may differ in all of them. The other two answer for every place, so the guarantees of the answers add
up and each is asked at epsilon/most. `independent` sends every answer. `summed` adds up the randomised bit vectors and sends one
vector of counts: fewer bits, the same estimates, and the same epsilon. Adding up never reveals more; nor does it hide anything
in the worst case: between "all values in cell a" and "all in cell b" the vector with `most` at a and 0 at b has the ratio
(p(1-q)/(q(1-p)))^most, the sum of the answers' epsilons. Noise falls faster than linearly with epsilon, so one answer at the whole
of it beats `most` answers at a part (`dither bench ranges`, table several_values).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
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

SeveralMethod = Literal["one", "independent", "summed"]


@dataclass(frozen=True)
class SeveralParameters:
    """`mechanism`: through what every answer goes; left out it is best for `one`, and the paper's own, sue, for the others."""

    mechanism: str | None = None

    def __post_init__(self) -> None:
        if self.mechanism is not None:
            check_choice("mechanism", self.mechanism, NAMES)


@dataclass(frozen=True)
class Slots:
    """Every participant's answers as cells, `most` in a row; the last cell means no value."""

    cells: Integers


def several_values(
    values: Sequence[Any],
    *,
    consumers: Iterable[Any],
    epsilon: float,
    low: float,
    high: float,
    most: int,
    method: SeveralMethod = "one",
    parameters: JsonMapping | None = None,
    path: ReportPath = "counts",
    seed: int | None = None,
) -> HistogramRelease:
    """Histograms of all values of all participants; `values` holds one list of numbers per participant, at most `most`
    long.

    Guarantee: everything one participant sends is epsilon-locally differentially private for all its values together.
    The parameter `mechanism` is the randomiser; `summed` takes unary ones (sue, oue). Methods: `one`, `independent`, `summed`.
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
    given = build_parameters(SeveralParameters, parameters or {}, method)
    built = replace(given, mechanism=given.mechanism or ("best" if method == "one" else "sue"))
    check_whole("most", most, 1, 255)
    check_choice("path", path, PATHS)
    low, high = check_range(low, high)
    asked = read_consumers(consumers, low, high)
    partition = union(asked, low, high)
    slots = fill(values, partition, most)
    each = _each(smallest(asked, epsilon), most, method)
    chosen = build(built.mechanism or "best", partition.cells + 1, each)
    if method == "summed" and not (isinstance(chosen, BitMechanism) and chosen.filters is None):
        raise ParameterError(
            f"only unary reports, a bit per cell, can be summed, not {chosen.name}",
            where="mechanism",
            value=chosen.name,
        )
    tally, answers = _collect(chosen, slots, method, path, generator(seed, 43))
    frequencies = chosen.estimate(tally, answers).frequencies
    cells = PureCells(_with_none(partition), chosen, frequencies, answers, answers)
    counts, variances = read_off(cells, asked)
    reports = 1 if method == "one" else most
    if method == "one":
        counts = tuple(count * most for count in counts)
        variances = tuple(
            most**2 * v + _which(c / most, answers, most)
            for c, v in zip(counts, variances, strict=True)
        )
    return HistogramRelease(
        consumers=tuple(
            ConsumerHistogram(
                c.name, np.asarray(c.edges), count, np.sqrt(variance), count, c.epsilon
            )
            for c, count, variance in zip(asked, counts, variances, strict=True)
        ),
        epsilon_asked=float(epsilon),
        epsilon_achieved=chosen.epsilon_of(reports),
        bits_per_report=chosen.cells * most.bit_length()
        if method == "summed"
        else chosen.report_bits * reports,
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
            f"participant {person + 1} has {lengths.max()} values, more than {most}; raise most",
            where="values",
        )
    cells = np.full((len(lengths), most), partition.cells, np.int64)
    if lengths.any():
        codes = gather(np.concatenate(held), partition, reports=True).codes
        assert codes is not None
        cells[np.arange(most) < lengths[:, None]] = codes
    return Slots(cells)


def _per_person(values: Sequence[Any]) -> list[Floats]:
    """Each participant's values as an array; an error names the participant whose values are no list of numbers."""
    held = []
    for person, own in enumerate(values):
        name = f"the values of participant {person + 1}"
        if isinstance(own, (str, bytes)) or not hasattr(own, "__len__"):
            raise TableError(f"{name} must be a list of numbers, not {own!r}", where="values")
        numbers = np.asarray(as_numbers(own, name), np.float64) if len(own) else np.zeros(0)
        if not np.isfinite(numbers).all():
            raise TableError(
                f"{name} hold a number that is missing or infinite; leave it out", where="values"
            )
        held.append(numbers)
    return held


def _each(epsilon: float, most: int, method: SeveralMethod) -> float:
    """What an answer may spend. Dividing a float by a whole number can round up; one step down, the sum never exceeds epsilon."""
    return epsilon if method == "one" or most == 1 else math.nextafter(epsilon / most, 0.0)


def _which(counts: Floats, people: int, most: int) -> Floats:
    """What drawing one place of each participant adds to the variance of a bin's count, at most.

    A participant with k of `most` places in the bin adds k(most-k); for a given sum of all k that is largest when all are alike.
    """
    share = np.clip(counts / people, 0.0, 1.0)
    return np.asarray(most**2 * people * share * (1 - share), dtype=np.float64)


def _collect(
    mechanism: Mechanism, slots: Slots, method: SeveralMethod, path: str, rng: np.random.Generator
) -> tuple[Integers, int]:
    """The tally of all answers and how many there are: sums of summed vectors are sums of all vectors, so both have one law."""
    people, most = slots.cells.shape
    told = slots.cells
    if method == "one":
        told = np.take_along_axis(slots.cells, rng.integers(most, size=(people, 1)), axis=1)
    if path == "counts":
        by_cell = np.bincount(told.ravel(), minlength=mechanism.cells).astype(np.int64)
        return mechanism.simulate(by_cell, rng), told.size
    stream = RandomStream.from_generator(rng)
    if method != "summed":
        return mechanism.support(mechanism.randomise_many(told.ravel(), stream)), told.size
    total = np.zeros((people, mechanism.cells), np.int64)
    for place in range(most):
        rows = mechanism.randomise_many(told[:, place], stream).rows
        total += np.unpackbits(rows, axis=1, bitorder="little")[:, : mechanism.cells]
    return np.asarray(total.sum(axis=0), dtype=np.int64), told.size


def _with_none(partition: Partition) -> Partition:
    """The partition with one more cell beyond its end, for no value."""
    high = partition.edges[-1]
    return Partition((*partition.edges, high + (high - partition.edges[0])))
