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
from dither.protocols import HISTOGRAMS, start
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
from dither.randomness import check_seed, generator
from dither.release.call import recorded
from dither.release.histogram import HistogramRelease
from dither.simulate import PATHS, drive
from dither.simulate import Path as ReportPath
from dither.types import JsonMapping

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
    method has the parameter `mechanism` (the randomiser), `sampled` also `share` and `smart` also `objective`. `ranges` needs no
    consumer.

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
    asked = read_consumers(consumers or histogram_machine(method).overview, low, high)
    moved = 0
    if out_of_range != "error":
        policed = police(numbers, low, high, out_of_range, name)
        numbers, moved = policed.values, policed.outside
    if out_of_range == "drop":
        warnings.append(DROPPED)
    partition = asked_partition(method, asked, low, high)
    people = gather(numbers, partition, reports=path == "reports", name=name)
    machine = collect(method, people, asked, partition, epsilon, generator(seed, 6), parameters, path=path, name=name)
    return HistogramRelease.from_machine(
        machine,
        partition,
        consistent=consistent,
        seed=seed,
        path=path,
        warnings=tuple(warnings),
        call=call,
        moved=moved,
    )


def histogram_machine(method: str) -> type[HistogramMachine]:
    """The class of a histogram method; an error lists the ones there are."""
    machine_class = HISTOGRAMS[check_choice("method", method, HISTOGRAMS)].load()
    assert issubclass(machine_class, HistogramMachine)
    return machine_class


def asked_partition(method: str, consumers: Sequence[Consumer], low: float, high: float) -> Partition:
    """The coarsest partition that tells everything that a method asks of a number and everything that its consumers want."""
    asked = histogram_machine(method).schema_of("a number", consumers, low, high)
    return union([*consumers, *(Consumer(attribute.name, attribute.edges) for attribute in asked)], low, high)


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
    schema = histogram_machine(method).schema_of(name, consumers, partition.edges[0], partition.edges[-1])
    if "consumers" in (parameters or {}):
        raise ParameterError("consumers are named on their own, not among the parameters", where="consumers")
    given = {**(parameters or {}), "consumers": consumers_to_text(consumers)}
    machine = start(method, schema, epsilon, len(people), given)
    assert isinstance(machine, HistogramMachine)
    cell_of = {attribute.name: mapping(partition, Partition(attribute.edges)) for attribute in schema}
    drive(machine, ValuePeople(replace(people, cell_of=cell_of), rng), rng, path=path)
    return machine


def _range(numbers: Any, low: float | None, high: float | None, name: str) -> tuple[float, float, list[Notice]]:
    """The public range, or the data's own with a warning."""
    warnings: list[Notice] = []
    if low is None or high is None:
        finite = numbers[np.isfinite(numbers)]
        if not finite.size:
            raise ParameterError(f"{name} hold no finite number; give low and high", where="low")
        low = float(finite.min()) if low is None else low
        high = float(finite.max()) if high is None else high
        words = (
            f"the range [{low:g}, {high:g}] was taken from the data, which reveals the extreme values; "
            "give a public range instead"
        )
        warnings.append(Notice("range-from-data", words))
    return *check_range(low, high), warnings
