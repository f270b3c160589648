"""Releases of one schema beside each other: two on one axis with differences, more as trends.

The figures of each release are those of its explorer. The releases have different participants,
so their errors are independent, and the interval of a difference follows from both intervals:
b - a reaches from its value by the root of the squared distances to the ends that face each
other (the method of variance estimates recovery; Newcombe, Stat. Med. 17, 1998, method 10, has it
for two proportions).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dither.collector.exploring import Axis, Cell, Explored
from dither.collector.pages.explorer import Table, axis_words, may_be_zero, points, shown
from dither.collector.pages.progress import question_of
from dither.display import Bar
from dither.errors import ParameterError
from dither.languages import decimal
from dither.languages import gettext as _
from dither.release.charts import Sides, pair_chart, trend_chart
from dither.schema import Schema

# Releases in one comparison.
MAX_RELEASES = 12
# Values of an attribute in a chart of two releases, and trends of an attribute.
MAX_PAIRED, MAX_TRENDS = 20, 8


@dataclass(frozen=True)
class Series:
    """One release of a comparison: its short name, and the figures of its attributes."""

    name: str
    explored: Explored


@dataclass(frozen=True)
class Compared:
    """An attribute in all releases.

    Attributes:
        charts: One of two releases, or a trend for each value under the value's label.
        differ: The number of values whose difference between the first and the last release has
            an interval without zero.
        distance: Half the sum of the absolute differences.
    """

    title: str
    charts: Sequence[tuple[str, Markup]]
    table: Table
    differ: int
    values: int
    distance: float
    left: int


def difference(first: Cell, second: Cell) -> Cell:
    """Second minus first, of two releases with different participants."""
    value = second.estimate - first.estimate
    ends = (first.low, first.high, second.low, second.high)
    if any(end is None for end in ends) or math.isnan(value):
        return Cell(value, None, None)
    a_low, a_high, b_low, b_high = (end or 0.0 for end in ends)
    below = math.hypot(second.estimate - b_low, a_high - first.estimate)
    above = math.hypot(b_high - second.estimate, first.estimate - a_low)
    return Cell(value, value - below, value + above)


def compare(series: Sequence[Series], schema: Schema) -> list[Compared]:
    """The attributes that all releases show, in the first one's order.

    Raises:
        ParameterError: There is only one release, or there are too many.
    """
    if not 2 <= len(series) <= MAX_RELEASES:
        raise ParameterError(f"compare two to {MAX_RELEASES} releases", where="with")
    by_name = [{panel.axes[0].attribute: panel for panel in one.explored.panels} for one in series]
    found = []
    for name, panel in by_name[0].items():
        if all(name in each for each in by_name):
            # Rare values share a position, which are not the same in every release.
            if any(each[name].axes != panel.axes for each in by_name):
                continue
            columns = [each[name].cells for each in by_name]
            found.append(_attribute(series, schema, panel.axes[0], columns))
    return found


def _attribute(
    series: Sequence[Series], schema: Schema, axis: Axis, columns: Sequence[Sequence[Cell]]
) -> Compared:
    title = question_of(schema[axis.attribute])
    labels = axis_words(axis, schema)
    first, last = columns[0], columns[-1]
    differences = [difference(a, b) for a, b in zip(first, last, strict=True)]
    drawn = _largest(columns, MAX_PAIRED if len(series) == 2 else MAX_TRENDS)
    charts = (
        [("", _pair(series, title, labels, columns, drawn))]
        if len(series) == 2
        else [(labels[i], _trend(series, labels[i], columns, i)) for i in drawn]
    )
    rows = [
        (
            label,
            [*(shown(column[i], "share") for column in columns), points(differences[i])],
        )
        for i, label in enumerate(labels)
    ]
    head = ["", *(one.name for one in series), _("Difference")]
    return Compared(
        title,
        charts,
        Table(head, rows),
        sum(not may_be_zero(each) for each in differences),
        len(labels),
        0.5 * math.fsum(abs(each.estimate) for each in differences),
        len(labels) - len(drawn),
    )


def _largest(columns: Sequence[Sequence[Cell]], most: int) -> list[int]:
    """The positions with the largest figures, in the schema's order."""
    sizes = [max(cell.estimate for cell in cells) for cells in zip(*columns, strict=True)]
    return sorted(sorted(range(len(sizes)), key=lambda i: -sizes[i])[:most])


def _bar(label: str, cell: Cell) -> Bar:
    return Bar(label, cell.estimate, cell.low, cell.high)


def _spoken(release: str, label: str, cell: Cell) -> str:
    figure = shown(cell, "share")
    return f"{release}, {label}: {figure.text} ({figure.interval})"


def _pair(
    series: Sequence[Series],
    title: str,
    labels: Sequence[str],
    columns: Sequence[Sequence[Cell]],
    drawn: Sequence[int],
) -> Markup:
    values = []
    for i in drawn:
        bars = [_bar(labels[i], column[i]) for column in columns]
        texts = [
            _spoken(one.name, labels[i], column[i])
            for one, column in zip(series, columns, strict=True)
        ]
        values.append(Sides(labels[i], bars[0], bars[1], (texts[0], texts[1])))
    return pair_chart(values, title)


def _trend(
    series: Sequence[Series], label: str, columns: Sequence[Sequence[Cell]], position: int
) -> Markup:
    cells = [column[position] for column in columns]
    texts = [_spoken(one.name, label, cell) for one, cell in zip(series, cells, strict=True)]
    return trend_chart(
        [decimal(place) for place in range(1, len(series) + 1)],
        [_bar(label, cell) for cell in cells],
        label,
        texts,
    )
