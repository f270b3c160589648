"""What a benchmark declares (studies, axes, charts), and what a run of it measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, TypedDict

from dither.notice import Notice

Size = Literal["full", "quick", "smoke"]
Value = str | int | float | bool | None
Row = Mapping[str, Value]
Point = dict[str, Value]
# Labels that are averaged over.
REPEATED = ("seed",)


class NotAvailable(Exception):
    """A point that cannot be measured on this machine; it is tried again by the next run."""


@dataclass(frozen=True)
class Chart:
    """Lines of a measure against a numeric label.

    Attributes:
        x: The label on the horizontal axis.
        y: The measure on the vertical axis.
        colour: The label that has a line for each value.
        panels: The labels that have a panel for each combination of values.
        log_x: Whether the horizontal axis is logarithmic.
        log_y: Whether the vertical axis is logarithmic.
        title: The title; empty for one made of `y` and `x`.
        only: Values of labels; rows with others are not drawn.
    """

    x: str
    y: str
    colour: str = "method"
    panels: tuple[str, ...] = ("dataset",)
    log_x: bool = False
    log_y: bool = False
    title: str = ""
    only: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """One table or figure of a benchmark.

    Attributes:
        name: Short name.
        title: Heading on the page.
        axes: The grid: the values of each axis by name.
        measure: Called with a value for each axis by name; returns a row or several. It must
            depend on its arguments alone. A text in a row is a label, a number a measure.
        labels: Names of numbers that are labels all the same.
        remarks: Names of texts that are neither label nor measure and are not averaged.
        charts: The charts of this study.
        skip: Called like `measure`; points for which it is true are left out.
        known: Rows that are shown but not measured here, such as published figures.
        note: A paragraph below the heading.
    """

    name: str
    title: str
    axes: Mapping[str, Sequence[Value]]
    measure: Callable[..., Row | Sequence[Row]]
    labels: tuple[str, ...] = ()
    remarks: tuple[str, ...] = field(default=(), kw_only=True)
    charts: tuple[Chart, ...] = ()
    skip: Callable[..., bool] | None = None
    known: tuple[Row, ...] = ()
    note: str = ""

    def points(self) -> Iterator[Point]:
        """The points of the grid that are not skipped; the last axis varies fastest."""
        for values in product(*self.axes.values()):
            point = dict(zip(self.axes, values, strict=True))
            if self.skip is None or not self.skip(**point):
                yield point

    def is_label(self, name: str, value: Any) -> bool:
        """Whether an entry of a row is a label and not a measure."""
        return (
            name in self.axes or name in self.labels or name in REPEATED or isinstance(value, str)
        )


@dataclass(frozen=True)
class Bench:
    """A named set of studies.

    Attributes:
        name: Short name.
        title: Title of the page.
        about: A few sentences on what is measured and on which data.
        studies: The studies.
        size: "full", "quick" (under a minute) or "smoke" (a few seconds, for tests).
        data: Fingerprint of data and settings that no axis names. Points that were measured
            with another one are not reused.
        facts: Labels and values for the head of the page.
        warnings: Warnings for the head of the page.
    """

    name: str
    title: str
    about: str
    studies: tuple[Study, ...]
    size: Size = "full"
    data: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    warnings: tuple[Notice, ...] = ()


class LongRow(TypedDict):
    """One measured number."""

    study: str
    labels: dict[str, Any]
    measure: str
    value: float


class MeanRow(TypedDict):
    """The mean and the standard deviation of one measure over seeds."""

    study: str
    labels: dict[str, Any]
    measure: str
    mean: float
    spread: float | None
    runs: int


@dataclass
class Outcome:
    """What a run of a benchmark measured.

    Attributes:
        bench: The benchmark.
        rows: All measured numbers.
        summary: Means over seeds.
        notes: What could not be measured, once for each study and reason.
        points: The rows as measured, including remarks.
        missing: Points that could not be measured, with the reason.
        seconds: Time of measuring, including earlier runs.
        resumed: Number of points that earlier runs had measured.
        code: Fingerprint of the code.
    """

    bench: Bench
    rows: list[LongRow] = field(default_factory=list)
    summary: list[MeanRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    points: list[dict[str, Any]] = field(default_factory=list)
    missing: list[tuple[Point, str]] = field(default_factory=list)
    seconds: float = 0.0
    resumed: int = 0
    code: str = ""

    def mean(self, study: str, measure: str, **labels: Any) -> float:
        """The mean of one measure.

        Raises:
            KeyError: If no row, or more than one, has these labels.
        """
        rows = [
            row
            for row in self.summary
            if row["study"] == study
            and row["measure"] == measure
            and all(row["labels"].get(name) == value for name, value in labels.items())
        ]
        if len(rows) != 1:
            raise KeyError(f"{len(rows)} rows of {study} have {measure} with {labels}")
        return rows[0]["mean"]
