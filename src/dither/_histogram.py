"""Values in, a histogram release out: each value is one simulated participant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from dither.checks import check_choice
from dither.errors import ParameterError
from dither.mechanisms.choose import NAMES
from dither.mechanisms.probability import check_epsilon
from dither.notice import Notice
from dither.protocols.histogram.collect import PATHS, POLICIES, OutOfRange, as_numbers, check_range, gather, police
from dither.protocols.histogram.consumer import read_consumers, union
from dither.protocols.histogram.estimates import Answer, make_consistent
from dither.protocols.histogram.smart import Objective, smart
from dither.protocols.histogram.ways import SHARE, chp, sampled, shp, split
from dither.protocols.parameters import build_parameters
from dither.randomness import check_seed, generator
from dither.release.histogram import ConsumerHistogram, HistogramRelease

DROPPED = Notice(
    "dropped",
    "people with a value outside the range were left out, if there were any; on a device, silence would tell that the value is "
    "outside",
)
WAYS: dict[str, Callable[..., Answer]] = {"shp": shp, "chp": chp, "split": split, "sampled": sampled, "smart": smart}


@dataclass(frozen=True)
class HistogramParameters:
    """`mechanism` is the randomiser through which everybody answers; `best` is the one of least variance."""

    mechanism: str = "best"


@dataclass(frozen=True)
class SampledParameters:
    """`share` is the share of the people that is asked."""

    mechanism: str = "best"
    share: float = SHARE


@dataclass(frozen=True)
class SmartParameters:
    """`objective` is what the report is made for: the mean or the worst variance of the bins."""

    mechanism: str = "best"
    objective: Objective = "mean"


PARAMETERS: dict[str, type] = {"sampled": SampledParameters, "smart": SmartParameters}


def histogram(
    values: Any,
    *,
    consumers: Iterable[Any],
    epsilon: float,
    low: float | None = None,
    high: float | None = None,
    method: str = "chp",
    parameters: Mapping[str, Any] | None = None,
    out_of_range: OutOfRange = "error",
    consistent: bool = False,
    path: Literal["counts", "reports"] = "counts",
    seed: int | None = None,
    name: str = "the values",
) -> HistogramRelease:
    """Collect one numeric value per person for several consumers, each with its own bins.

    A consumer is a count of bins, a list of edges, a dictionary (name, bins | width | edges, epsilon) or a
    `Consumer`. [low, high] is the public range; taken from the data if left out, which leaks it and is said in a
    warning. Guarantee: everything one participant sends is epsilon-locally differentially private, whatever the
    consumers share among themselves. The noise comes from the operating system and cannot be drawn again, unless a
    `seed` is given: that gives the same release again, and away to whoever knows it, which a warning says. Every
    method has the parameter `mechanism` (the randomiser), `sampled` also `share` and `smart` also `objective`.

    >>> import dither
    >>> release = dither.histogram([1.0, 2.0, 7.5, 9.0] * 500, consumers=[2, 5], epsilon=3.0, low=0, high=10, seed=1)
    >>> [c.name for c in release.consumers], release.epsilon_achieved <= 3.0
    (['2 bins', '5 bins'], True)
    """
    check_epsilon(epsilon)
    check_choice("method", method, tuple(WAYS))
    check_choice("out_of_range", out_of_range, POLICIES)
    check_choice("path", path, PATHS)
    check_seed(seed)
    options = asdict(build_parameters(PARAMETERS.get(method, HistogramParameters), parameters or {}, method))
    mechanism = check_choice("mechanism", options.pop("mechanism"), NAMES)
    numbers = as_numbers(values, name)
    low, high, warnings = _range(numbers, low, high, name)
    asked = read_consumers(consumers, low, high)
    partition = union(asked, low, high)
    moved = 0
    if out_of_range != "error":
        policed = police(numbers, low, high, out_of_range, name)
        numbers, moved = policed.values, policed.outside
    if out_of_range == "drop":
        warnings.append(DROPPED)
    people = gather(numbers, partition, reports=path == "reports", name=name)
    answer = WAYS[method](people, partition, asked, epsilon, mechanism, generator(seed, 6), **options)
    estimates: list[Any] = list(answer.counts)
    if consistent:
        estimates = make_consistent([partition.membership(c) for c in asked], answer.counts, answer.variances, people.n)
    return HistogramRelease(
        consumers=tuple(
            ConsumerHistogram(c.name, np.asarray(c.edges), estimate, np.sqrt(variance), raw)
            for c, estimate, raw, variance in zip(asked, estimates, answer.counts, answer.variances, strict=True)
        ),
        epsilon_asked=float(epsilon),
        epsilon_achieved=answer.epsilon,
        bits_per_report=answer.bits,
        mechanism=method,
        frequency_mechanisms=answer.mechanisms,
        participants=people.n,
        low=low,
        high=high,
        partition=partition.edges,
        seed=seed,
        consistent=consistent,
        path=path,
        cells=answer.cells,
        notes=answer.notes,
        warnings=tuple(warnings),
        moved=moved,
    )


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
