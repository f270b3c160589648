"""Simulate a collection of one number: each value is one participant."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from dither.checks import check_choice, check_whole
from dither.errors import ParameterError, TableError
from dither.mechanisms import NAMES, BitMechanism, Mechanism, check_epsilon, kernels
from dither.methods import HISTOGRAMS, MEANS, published_parameters, start
from dither.methods.histogram.consumer import (
    POLICIES,
    Consumer,
    OutOfRange,
    Partition,
    ValueGroup,
    ValuePeople,
    as_numbers,
    check_range,
    check_step,
    gather,
    mapping,
    police,
    read_consumers,
    union,
)
from dither.methods.histogram.estimates import PureCells, build, read_off
from dither.methods.histogram.machine import (
    HistogramMachine,
    consumers_to_text,
    partition_of,
    smallest,
)
from dither.methods.machine import build_parameters
from dither.methods.mean import Mean
from dither.notice import Notice
from dither.randomness import RandomStream, check_seed, generator
from dither.release import ConsumerHistogram, NumberContent, Release
from dither.release.call import recorded, recorded_call
from dither.release.query.numbers import number_schema
from dither.simulate import PATHS, drive, number_people
from dither.simulate import Path as ReportPath
from dither.types import AnyArray, Floats, Integers, JsonMapping

# The name of a number that has none.
NUMBER = "number"
SeveralMethod = Literal["one", "independent", "summed"]


@dataclass(frozen=True)
class _SeveralParameters:
    """`mechanism` is the randomiser of all answers.

    By default it is the best one for `one`, and the paper's choice, sue, for the
    others.
    """

    mechanism: str | None = None

    def __post_init__(self) -> None:
        if self.mechanism is not None:
            check_choice("mechanism", self.mechanism, NAMES)


@dataclass(frozen=True)
class _Slots:
    """All participants' answers as cells, `most` in a row; the last cell means no value."""

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
) -> Release:
    """Collect histograms of all values of all participants.

    Guarantee: everything one participant sends is epsilon-locally differentially
    private for all its values together. Methods: `one`, `independent`, `summed`. The
    parameter `mechanism` is the randomiser; `summed` takes unary ones (sue, oue).
    Anyone who knows the `seed` can draw the noise again; without a seed it comes from
    the operating system and cannot be replayed.

    Args:
        values: One list of numbers for each participant, at most `most` long.
        consumers: As for `histogram`.
        epsilon: The guarantee of one participant, for all its values together.
        low: Lower end of the public range.
        high: Upper end of the public range.
        most: The largest number of values of one participant.
        method: `one`, `independent` or `summed`.
        parameters: Parameters of the method.
        path: As for `histogram`.
        seed: Seed of the noise.

    Returns:
        The release, with a histogram for each consumer.

    >>> import dither
    >>> trips = [[3.0, 12.0], [7.5], []] * 400
    >>> found = dither.several_values(trips, consumers=[4], epsilon=4.0, low=0, high=20, most=2)
    >>> found.participants
    1200
    """
    consumers, seed = list(consumers), check_seed(seed)
    record = recorded(several_values, locals())
    check_epsilon(epsilon)
    check_choice("method", method, get_args(SeveralMethod))
    given = build_parameters(_SeveralParameters, parameters or {}, method)
    built = replace(given, mechanism=given.mechanism or ("best" if method == "one" else "sue"))
    check_whole("most", most, 1, 255)
    check_choice("path", path, PATHS)
    low, high = check_range(low, high)
    asked = read_consumers(consumers, low, high)
    partition = union(asked, low, high)
    slots = _fill(values, partition, most)
    each = _each(smallest(asked, epsilon), most, method)
    chosen = build(built.mechanism or "best", partition.cells + 1, each)
    if method == "summed" and not (isinstance(chosen, BitMechanism) and chosen.filters is None):
        raise ParameterError(
            f"only unary reports, a bit per cell, can be summed, not {chosen.name}",
            where="mechanism",
            value=chosen.name,
        )
    tally, answers = _collect(chosen, slots, method, path, generator(seed, 43))
    frequencies = kernels.estimate(chosen, tally, answers).frequencies
    cells = PureCells(_with_none(partition), chosen, frequencies, answers, answers)
    reports = 1 if method == "one" else most
    bits = chosen.report_bits * reports
    if method == "summed":
        bits = chosen.cells * most.bit_length()
    content = NumberContent(
        attribute=NUMBER,
        low=low,
        high=high,
        partition=partition.edges,
        consumers=_several_histograms(cells, asked, answers, most, method),
        mechanisms=(chosen.name,),
        bits_per_report=bits,
    )
    return Release(
        call=recorded_call(
            record,
            epsilon=float(epsilon),
            method=f"several-{method}",
            seed=seed,
            path=path,
            parameters=asdict(built),
        ),
        content=content,
        schema=number_schema(NUMBER, partition.edges),
        epsilon_achieved=chosen.epsilon_of(reports),
        participants=len(slots.cells),
        rounds=1,
        rows=0,
        notes={"most": most, "epsilon_each": chosen.epsilon},
    )


def _several_histograms(
    cells: PureCells,
    consumers: Sequence[Consumer],
    answers: int,
    most: int,
    method: SeveralMethod,
) -> tuple[ConsumerHistogram, ...]:
    """The consumers' counts of all values; under `one` a report stands for `most` values."""
    counts, variances = read_off(cells, consumers)
    if method == "one":
        counts = tuple(count * most for count in counts)
        variances = tuple(
            most**2 * v + _which(c / most, answers, most)
            for c, v in zip(counts, variances, strict=True)
        )
    return tuple(
        ConsumerHistogram(c.name, np.asarray(c.edges), count, np.sqrt(variance), count, c.epsilon)
        for c, count, variance in zip(consumers, counts, variances, strict=True)
    )


def _fill(values: Sequence[Any], partition: Partition, most: int) -> _Slots:
    """Cells of all values, filled up with "no value"."""
    held = _per_person(values)
    lengths = np.array([own.size for own in held], dtype=np.int64)
    if not len(lengths):
        raise TableError("there is nobody to ask", where="values")
    if lengths.max() > most:
        person = int(lengths.argmax())
        raise TableError(
            f"participant {person + 1} has {lengths.max()} values, more than {most}; raise most (--values-per-person)",
            where="values",
        )
    cells = np.full((len(lengths), most), partition.cells, np.int64)
    if lengths.any():
        codes = gather(np.concatenate(held), partition, reports=True).codes
        assert codes is not None
        cells[np.arange(most) < lengths[:, None]] = codes
    return _Slots(cells)


def _per_person(values: Sequence[Any]) -> list[Floats]:
    """Each participant's values as an array; errors name the participant."""
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
    """The epsilon of one answer.

    Dividing a float by an integer can round up; one step down, the sum never exceeds
    epsilon.
    """
    return epsilon if method == "one" or most == 1 else math.nextafter(epsilon / most, 0.0)


def _which(counts: Floats, people: int, most: int) -> Floats:
    """Bound on the variance added to a bin's count by drawing one place of each participant.

    A participant with k of `most` places in the bin adds k(most-k); for a given sum of
    all k that is largest if all are equal.
    """
    share = np.clip(counts / people, 0.0, 1.0)
    return np.asarray(most**2 * people * share * (1 - share), dtype=np.float64)


def _collect(
    mechanism: Mechanism, slots: _Slots, method: SeveralMethod, path: str, rng: np.random.Generator
) -> tuple[Integers, int]:
    """The tally of all answers and their number.

    Sums of summed vectors are sums of all vectors, so both have one law.
    """
    people, most = slots.cells.shape
    told = slots.cells
    if method == "one":
        told = np.take_along_axis(slots.cells, rng.integers(most, size=(people, 1)), axis=1)
    if path == "counts":
        by_cell = np.bincount(told.ravel(), minlength=mechanism.cells).astype(np.int64)
        return kernels.simulate(mechanism, by_cell, rng), told.size
    stream = RandomStream.from_generator(rng)
    if method != "summed":
        return kernels.support(
            mechanism, kernels.randomise(mechanism, told.ravel(), stream)
        ), told.size
    total = np.zeros((people, mechanism.cells), np.int64)
    for place in range(most):
        rows = kernels.randomise(mechanism, told[:, place], stream).rows
        total += np.unpackbits(rows, axis=1, bitorder="little")[:, : mechanism.cells]
    return np.asarray(total.sum(axis=0), dtype=np.int64), told.size


def _with_none(partition: Partition) -> Partition:
    """The partition with one more cell beyond its end, for no value."""
    high = partition.edges[-1]
    return Partition((*partition.edges, high + (high - partition.edges[0])))


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
    unit: float | None = None,
    method: str = "chp",
    parameters: JsonMapping | None = None,
    out_of_range: OutOfRange = "error",
    consistent: bool = False,
    path: ReportPath = "counts",
    seed: int | None = None,
    as_published: bool = False,
    name: str = "the values",
    attribute: str | None = None,
) -> Release:
    """Collect one numeric value per person for several consumers with separate bins.

    Guarantee: everything one participant sends is epsilon-locally differentially
    private, also if consumers share their counts. The noise comes from the operating
    system and cannot be replayed unless a `seed` is given: then the release is
    reproducible, and anyone who knows the seed can remove the noise, as a warning says.

    Every method has the parameter `mechanism` (the randomiser), `sampled` also `share`
    and `smart` also `objective`. `ranges` and `square-wave` need no consumer; `mean`
    takes none and yields only `release.mean()`, with a smaller error than the others'
    means.

    Args:
        values: The numbers, one for each participant.
        consumers: Each is a number of bins, a list of edges, a dictionary (name, bins |
            width | edges, epsilon) or a `Consumer`.
        epsilon: The guarantee of one participant.
        low: Lower end of the public range. If omitted it is taken from the data, which
            leaks it; a warning says so.
        high: Upper end of the public range.
        unit: What every number, `low` and `high` among them, is a multiple of; 1 by default if
            the values have an integer type and the range has whole ends. `ranges` and
            `square-wave` then ask about whole numbers.
        as_published: Use the mechanism of the method's paper, Basic RAPPOR, unless
            `parameters` names another.
        method: See `dither methods`: `chp`, `ranges`, `square-wave`, `mean`, ...
        parameters: Parameters of the method.
        out_of_range: What becomes of values outside the range: an "error", or "clip".
        consistent: Whether counts are made consistent and non-negative.
        path: "counts" draws tallies directly, "reports" makes each participant's report.
        seed: Seed of the noise.
        name: What the values are, for messages.
        attribute: The number's name in the release.

    Returns:
        The release: `consumers`, `query`, `mean`, `quantile` and the other questions.

    >>> import dither
    >>> release = dither.histogram(
    ...     [1.0, 2.0, 7.5, 9.0] * 500, consumers=[2, 5], epsilon=3.0, low=0, high=10, seed=1
    ... )
    >>> [c.name for c in release.consumers], release.epsilon_achieved <= 3.0
    (['2 bins', '5 bins'], True)
    """
    consumers, seed = list(consumers), check_seed(seed)
    record = recorded(histogram, locals())
    if as_published:
        parameters = published_parameters(method, parameters)
    check_epsilon(epsilon)
    check_choice("out_of_range", out_of_range, POLICIES)
    check_choice("path", path, PATHS)
    numbers = as_numbers(values, name)
    low, high, warnings = _range(numbers, low, high, name)
    unit = _counted_in(unit, numbers, low, high)
    if method in MEANS:
        check_mean(consumers, consistent=consistent)
    else:
        asked = read_consumers(consumers or histogram_machine(method).overview, low, high)
        partition = asked_partition(method, asked, low, high, unit)
    policed = police(numbers, low, high, out_of_range, name)
    if out_of_range == "drop":
        warnings.append(DROPPED)
    rng, numbers = generator(seed, 6), policed.values
    call = recorded_call(record, epsilon=epsilon, method=method, seed=seed, path=path)
    attribute = attribute or _name_of(values)
    release_of = partial(
        Release.from_number,
        warnings=tuple(warnings),
        clipped={attribute: policed.outside} if policed.outside else {},
    )
    if method in MEANS:
        mean = _collect_mean(numbers, low, high, epsilon, rng, parameters, path=path)
        return release_of(mean, call, attribute)
    people = gather(numbers, partition, reports=path == "reports", name=name)
    machine = collect(
        method, people, asked, partition, epsilon, rng, parameters, path=path, name=name
    )
    return release_of(machine, call, attribute, partition, consistent=consistent)


def _counted_in(unit: float | None, numbers: AnyArray, low: float, high: float) -> float | None:
    """The unit of the numbers: the given one, or 1 for integers in a range with whole ends."""
    if unit is not None:
        return check_step(unit, low, high)
    whole = numbers.dtype.kind in "iu" and low.is_integer() and high.is_integer()
    return 1.0 if whole else None


def _name_of(values: Any) -> str:
    """The name of a pandas or polars column, else "number"."""
    name = getattr(values, "name", None)
    return name if isinstance(name, str) and name else NUMBER


def histogram_machine(method: str) -> type[HistogramMachine[Any]]:
    """The class of a histogram method; an error lists the known methods."""
    check_choice("method", method, HISTOGRAMS | MEANS)
    machine_class = HISTOGRAMS[method].load()
    assert issubclass(machine_class, HistogramMachine)
    return machine_class


def asked_partition(
    method: str, consumers: Sequence[Consumer], low: float, high: float, unit: float | None = None
) -> Partition:
    """The coarsest partition that resolves a method's questions and its consumers' bins."""
    asked = histogram_machine(method).schema_of("a number", consumers, low, high, unit)
    cells = [Consumer(attribute.name, attribute.edges) for attribute in asked]
    kept = partition_of(asked.attributes[0]).unit
    return union([*consumers, *cells], low, high, kept)


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
) -> HistogramMachine[Any]:
    """Run a histogram method over people given by the cells of `asked_partition`."""
    schema = histogram_machine(method).schema_of(
        name, consumers, partition.low, partition.high, partition.unit
    )
    if "consumers" in (parameters or {}):
        raise ParameterError(
            "consumers are named on their own, not among the parameters", where="consumers"
        )
    given = {**(parameters or {}), "consumers": consumers_to_text(consumers)}
    machine = start(method, schema, epsilon, len(people), given).machine
    assert isinstance(machine, HistogramMachine)
    cell_of = {
        attribute.name: mapping(partition, Partition(attribute.edges)) for attribute in schema
    }
    drive(machine, ValuePeople(replace(people, cell_of=cell_of), rng), rng, path=path)
    return machine


def check_mean(consumers: Sequence[Any], *, consistent: bool = False) -> None:
    """Raise an error if more than the mean is requested of the method `mean`."""
    if consumers or consistent:
        raise ParameterError(
            f"method 'mean' gives a mean and no {'bins' if consumers else 'counts to be consistent'}; leave them out, or take "
            "ranges, which gives both",
            where="consumers" if consumers else "consistent",
        )


def _collect_mean(
    numbers: AnyArray,
    low: float,
    high: float,
    epsilon: float,
    rng: np.random.Generator,
    parameters: JsonMapping | None = None,
    *,
    path: ReportPath = "counts",
) -> Mean:
    """Run the method `mean` over numbers in [low, high]."""
    machine = start(
        "mean", Mean.schema_of("a number", low, high), epsilon, len(numbers), parameters
    ).machine
    assert isinstance(machine, Mean)
    drive(machine, number_people(numbers, low, high, rng), rng, path=path)
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
