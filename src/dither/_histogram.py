"""Values in, a histogram release out: each value is one simulated participant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dither.checks import check_choice
from dither.errors import ParameterError
from dither.mechanisms.probability import check_epsilon
from dither.notice import Notice
from dither.protocols import HISTOGRAMS, MEANS, start
from dither.protocols.histogram.consumer import Consumer, Partition, mapping, read_consumers, union
from dither.protocols.histogram.machine import HistogramMachine, consumers_to_text
from dither.protocols.histogram.values import (
    POLICIES,
    OutOfRange,
    ValueGroup,
    ValuePeople,
    as_numbers,
    check_range,
    gather,
    police,
)
from dither.protocols.mean import Mean
from dither.randomness import check_seed, generator
from dither.release.call import recorded
from dither.release.histogram import HistogramRelease
from dither.simulate import PATHS, NumberPeople, drive
from dither.simulate import Path as ReportPath
from dither.types import AnyArray, JsonMapping

DROPPED = Notice(
    "dropped",
    "people with a value outside the range were left out, if there were any; on a device, silence would tell that the value is "
    "outside",
)


def histogram(
    values: Any,
    *,
    consumers: Iterable[Any] = (),
    epsilon: float,
    low: float | None = None,
    high: float | None = None,
    method: str = "chp",
    parameters: JsonMapping | None = None,
    out_of_range: OutOfRange = "error",
    consistent: bool = False,
    path: ReportPath = "counts",
    seed: int | None = None,
    name: str = "the values",
) -> HistogramRelease:
    """Collect one numeric value per person for several consumers, each with its own bins.

    A consumer is a count of bins, a list of edges, a dictionary (name, bins | width | edges, epsilon) or a
    `Consumer`. [low, high] is the public range; taken from the data if left out, which leaks it and is said in a
    warning. Guarantee: everything one participant sends is epsilon-locally differentially private, whatever the
    consumers share among themselves. The noise comes from the operating system and cannot be drawn again, unless a
    `seed` is given: the same seed gives the same release, and whoever knows it can take the noise off, as a warning says. Every
    method has the parameter `mechanism` (the randomiser), `sampled` also `share` and `smart` also `objective`. `ranges` and
    `square-wave` need no consumer; `mean` takes none and gives `release.mean()` alone, with a smaller error than the others' means.

    >>> import dither
    >>> release = dither.histogram([1.0, 2.0, 7.5, 9.0] * 500, consumers=[2, 5], epsilon=3.0, low=0, high=10, seed=1)
    >>> [c.name for c in release.consumers], release.epsilon_achieved <= 3.0
    (['2 bins', '5 bins'], True)
    """
    consumers, seed = list(consumers), check_seed(seed)
    call = recorded(histogram, locals())
    check_epsilon(epsilon)
    check_choice("out_of_range", out_of_range, POLICIES)
    check_choice("path", path, PATHS)
    numbers = as_numbers(values, name)
    low, high, warnings = _range(numbers, low, high, name)
    if method in MEANS:
        check_mean(consumers, consistent=consistent)
    else:
        asked = read_consumers(consumers or histogram_machine(method).overview, low, high)
        partition = asked_partition(method, asked, low, high)
    policed = police(numbers, low, high, out_of_range, name)
    if out_of_range == "drop":
        warnings.append(DROPPED)
    rng, numbers = generator(seed, 6), policed.values
    known = {
        "seed": seed,
        "path": path,
        "warnings": tuple(warnings),
        "call": call,
        "moved": policed.outside,
    }
    if method in MEANS:
        return HistogramRelease.from_mean(
            collect_mean(numbers, low, high, epsilon, rng, parameters, path=path), **known
        )
    people = gather(numbers, partition, reports=path == "reports", name=name)
    machine = collect(
        method, people, asked, partition, epsilon, rng, parameters, path=path, name=name
    )
    return HistogramRelease.from_machine(machine, partition, consistent=consistent, **known)


def histogram_machine(method: str) -> type[HistogramMachine]:
    """The class of a histogram method; an error lists the ones there are."""
    check_choice("method", method, HISTOGRAMS | MEANS)
    machine_class = HISTOGRAMS[method].load()
    assert issubclass(machine_class, HistogramMachine)
    return machine_class


def asked_partition(
    method: str, consumers: Sequence[Consumer], low: float, high: float
) -> Partition:
    """The coarsest partition that tells everything that a method asks of a number and everything that its consumers want."""
    asked = histogram_machine(method).schema_of("a number", consumers, low, high)
    return union(
        [*consumers, *(Consumer(attribute.name, attribute.edges) for attribute in asked)], low, high
    )


def collect(
    method: str,
    people: ValueGroup,
    consumers: Sequence[Consumer],
    partition: Partition,
    epsilon: float,
    rng: np.random.Generator,
    parameters: JsonMapping | None = None,
    *,
    path: ReportPath = "counts",
    name: str = "the values",
) -> HistogramMachine:
    """The finished machine of a histogram method, driven over people by the cells of `asked_partition`."""
    schema = histogram_machine(method).schema_of(
        name, consumers, partition.edges[0], partition.edges[-1]
    )
    if "consumers" in (parameters or {}):
        raise ParameterError(
            "consumers are named on their own, not among the parameters", where="consumers"
        )
    given = {**(parameters or {}), "consumers": consumers_to_text(consumers)}
    machine = start(method, schema, epsilon, len(people), given)
    assert isinstance(machine, HistogramMachine)
    cell_of = {
        attribute.name: mapping(partition, Partition(attribute.edges)) for attribute in schema
    }
    drive(machine, ValuePeople(replace(people, cell_of=cell_of), rng), rng, path=path)
    return machine


def check_mean(consumers: Sequence[Any], *, consistent: bool = False) -> None:
    """An error if somebody wants more of the method `mean` than a mean."""
    if consumers or consistent:
        raise ParameterError(
            f"method 'mean' gives a mean and no {'bins' if consumers else 'counts to be consistent'}; leave them out, or take "
            "ranges, which gives both",
            where="consumers" if consumers else "consistent",
        )


def collect_mean(
    numbers: AnyArray,
    low: float,
    high: float,
    epsilon: float,
    rng: np.random.Generator,
    parameters: JsonMapping | None = None,
    *,
    path: ReportPath = "counts",
) -> Mean:
    """The finished machine of the method `mean`, driven over numbers that lie in [low, high]."""
    machine = start(
        "mean", Mean.schema_of("a number", low, high), epsilon, len(numbers), parameters
    )
    assert isinstance(machine, Mean)
    drive(machine, NumberPeople(numbers, low, high, rng), rng, path=path)
    return machine


def _range(
    numbers: Any, low: float | None, high: float | None, name: str
) -> tuple[float, float, list[Notice]]:
    """The public range, or the data's own with a warning."""
    warnings: list[Notice] = []
    if low is None or high is None:
        finite = numbers[np.isfinite(numbers)]
        if not finite.size:
            raise ParameterError(f"{name} hold no finite number; give low and high", where="low")
        if low is None and high is None and finite.min() == finite.max():
            raise ParameterError(
                f"every number of {name} is {finite[0]:g}, which makes no range; give a public low and high",
                where="low",
            )
        low = float(finite.min()) if low is None else low
        high = float(finite.max()) if high is None else high
        words = (
            f"the range [{low:g}, {high:g}] was taken from the data, which reveals the extreme values; "
            "give a public range instead"
        )
        warnings.append(Notice("range-from-data", words))
    return *check_range(low, high), warnings
