"""What a benchmark declares: studies, their axes, and how a study is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from dither.notice import Notice

Size = Literal["full", "quick", "smoke"]
Value = str | int | float | bool | None
Row = Mapping[str, Value]
Point = dict[str, Value]
REPEATED = ("seed",)  # labels that are averaged over


class NotAvailable(Exception):
    """A point that this machine cannot measure: a table or a library is not there. It is tried again next time."""


@dataclass(frozen=True)
class Chart:
    """Lines of a measure against a numeric label; one line per `colour`, one panel for each combination of `panels`."""

    x: str
    y: str
    colour: str = "method"
    panels: tuple[str, ...] = ("dataset",)
    log_x: bool = False
    log_y: bool = False
    title: str = ""
    only: Mapping[str, tuple[Value, ...]] = field(
        default_factory=dict
    )  # draw rows with these labels only


@dataclass(frozen=True)
class Study:
    """One table or figure.

    `measure` is called with the value of every axis by name and returns a row, or several: text in a row is a label, a
    number is a measure, unless its name stands in `labels`. What it returns must follow from its arguments alone. Text named in
    `remarks` is neither: it stays with the point and is not averaged over.
    `known` are rows that were not measured here, published figures for instance; they appear beside the measured ones.
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
        """Every point of the grid that is not skipped, the last axis fastest."""
        for values in product(*self.axes.values()):
            point = dict(zip(self.axes, values, strict=True))
            if self.skip is None or not self.skip(**point):
                yield point

    def is_label(self, name: str, value: Any) -> bool:
        """Whether this entry of a row says what was measured rather than how much."""
        return (
            name in self.axes or name in self.labels or name in REPEATED or isinstance(value, str)
        )


@dataclass(frozen=True)
class Bench:
    """A named set of studies with a title and a few sentences on what is measured and on which data.

    `data` is a fingerprint of data and settings that the studies' axes do not name: points of other data are not reused.
    `facts` and `warnings` stand at the head of the page.
    """

    name: str
    title: str
    about: str
    studies: tuple[Study, ...]
    size: Size = "full"
    data: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    warnings: tuple[Notice, ...] = ()
