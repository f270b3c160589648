"""A view of a release as charts, tables and files: labels and questions, never codes.

Every figure is written by `shown`, in the chart's mark, the table and the picture: without digits
that its interval blurs, as `figure_texts` does in English.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from dither.collector.exploring import (
    QUANTILE_LEVELS,
    QUANTILES,
    Axis,
    Cell,
    Contrast,
    Explored,
    Group,
    Histogram,
    Panel,
    View,
)
from dither.collector.pages.progress import answers, question_of
from dither.display import Bar, bar_chart, short_number
from dither.languages import decimal, ngettext, percent
from dither.languages import gettext as _
from dither.release.charts import heat_chart, histogram_chart
from dither.release.query.answer import Unit
from dither.schema import Attribute, Schema
from dither.types import Floats, JsonObject

# Bars of a chart; the table has all values.
MAX_BARS = 20
# Rows of a table on the page; the files have all.
MAX_ROWS = 500


@dataclass(frozen=True)
class Shown:
    """A figure and its interval as texts; `unclear` as in `Cell`."""

    text: str
    interval: str
    unclear: bool = False


@dataclass(frozen=True)
class Table:
    """A table of figures: head, labelled rows and, where shares add up, a row of totals."""

    head: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Shown]]]
    total: Sequence[Shown] = ()
    left: int = 0


@dataclass(frozen=True)
class Card:
    """One chart with its table.

    `attribute` is the attribute of a distribution, `other_sort` the other order of its values:
    "size", "order", or empty if there is one order only.
    """

    title: str
    chart: Markup
    table: Table
    attribute: str = ""
    left: int = 0
    density: bool = False
    other_sort: str = ""


def cards(explored: Explored, view: View, schema: Schema, sort: str = "") -> list[Card]:
    """The charts and tables of a view."""
    if explored.contrasts:
        return [_contrast_card(explored, view, schema)]
    if explored.histograms:
        return [_consumer_card(histogram) for histogram in explored.histograms]
    if explored.mean is not None:
        return []
    if explored.unit == "number":
        return [_number_card(explored, view, schema)]
    found = []
    for panel in explored.panels:
        if len(panel.axes) == 1:
            found.append(_distribution_card(panel, schema, sort))
            continue
        title = ""
        if explored.third is not None and panel.over is not None:
            title = axis_words(explored.third, schema)[panel.over]
        top = max((cell.estimate for each in explored.panels for cell in each.cells), default=1.0)
        found.append(_cross_card(panel, schema, title, top or 1.0))
    return found


def axis_words(axis: Axis, schema: Schema) -> list[str]:
    """The label of each position of an axis."""
    attribute = schema[axis.attribute]
    words = answers(attribute)
    return [_group_words(attribute, words, codes) for codes in axis.groups]


def _group_words(attribute: Attribute, words: Sequence[str], codes: Sequence[int]) -> str:
    if len(codes) == 1:
        return words[codes[0]]
    if not attribute.ordered:
        return ngettext("%(num)s other", "%(num)s others", len(codes))
    first, last = codes[0], codes[-1]
    if attribute.kind != "numeric":
        return _("%(low)s to %(high)s", low=words[first], high=words[last])
    low, high = attribute.line.ends[first][0], attribute.line.ends[last][1]
    if attribute.unit == 1.0 and high != attribute.edges[-1]:
        high -= 1
    return _("%(low)s to %(high)s", low=_plain(low), high=_plain(high))


def group_words(group: Group, schema: Schema) -> str:
    """The label of a group of people."""
    return answers(schema[group.attribute])[group.code]


def _plain(number: float) -> str:
    whole = number == int(number)
    return decimal(number) if whole else decimal(number, min(6, _plain_digits(number)))


def shown(cell: Cell, unit: Unit) -> Shown:
    """A figure and its interval, as every page writes them."""
    if math.isnan(cell.estimate):
        return Shown(_("unknown"), _("none"))
    scale = 100.0 if unit == "share" else 1.0
    digits = 2 if unit == "share" else _plain_digits(cell.estimate)
    if cell.low is None or cell.high is None:
        return Shown(_written(cell.estimate, unit, digits), _("none"), cell.unclear)
    half = scale * (cell.high - cell.low) / 2
    if half == 0 and unit == "share":
        return Shown(_written(cell.estimate, unit, 0), "", cell.unclear)
    if half > 0:
        digits = min(2 if unit == "share" else 9, max(0, 1 - math.floor(math.log10(half))))
    estimate, low, high = (
        _written(value, unit, digits) for value in (cell.estimate, cell.low, cell.high)
    )
    return Shown(estimate, _("%(low)s to %(high)s", low=low, high=high), cell.unclear)


def may_be_zero(cell: Cell) -> bool:
    """Whether the interval of a difference has zero, or is not known."""
    return cell.low is None or cell.high is None or cell.low <= 0.0 <= cell.high


def points(cell: Cell) -> Shown:
    """A difference of shares in points of the percentage; unclear if it may be zero."""
    if cell.low is None or cell.high is None:
        return Shown(_signed(100 * cell.estimate, 2), _("none"), True)
    half = 50 * (cell.high - cell.low)
    digits = 2 if half <= 0 else min(2, max(0, 1 - math.floor(math.log10(half))))
    low, high = (_signed(100 * end, digits) for end in (cell.low, cell.high))
    interval = _("%(low)s to %(high)s", low=low, high=high)
    return Shown(_signed(100 * cell.estimate, digits), interval, may_be_zero(cell))


def _signed(value: float, digits: int) -> str:
    rounded = round(value, digits)
    if rounded == 0:
        return decimal(0.0, digits)
    sign = "\N{MINUS SIGN}" if rounded < 0 else "+"
    return f"{sign}{decimal(abs(value), digits)}"


def _written(value: float, unit: Unit, digits: int) -> str:
    return percent(value, digits) if unit == "share" else decimal(value, digits)


def _plain_digits(value: float) -> int:
    """Digits after the point that keep five in all."""
    return 0 if value == 0 else min(9, max(0, 4 - math.floor(math.log10(abs(value)))))


def _spoken(label: str, cell: Cell, unit: Unit) -> str:
    """A figure with its interval, for the text of a mark."""
    figure = shown(cell, unit)
    if cell.low is None or cell.high is None:
        return f"{label}: {figure.text}"
    return f"{label}: {figure.text} ({figure.interval})"


def _bar(label: str, cell: Cell) -> Bar:
    return Bar(label, cell.estimate, cell.low, cell.high)


def _known(cells: Sequence[Cell]) -> list[int]:
    return [i for i, cell in enumerate(cells) if not math.isnan(cell.estimate)]


def _distribution_card(panel: Panel, schema: Schema, sort: str) -> Card:
    axis, cells = panel.axes[0], panel.cells
    attribute, words = schema[axis.attribute], axis_words(axis, schema)
    title = question_of(attribute)
    histogram = _histogram(attribute, axis, cells, words, title)
    by_size = sort == "size" if sort else not attribute.ordered
    order = list(range(len(cells)))
    if by_size and histogram is None:
        order.sort(key=lambda i: -cells[i].estimate if not math.isnan(cells[i].estimate) else 1.0)
    rows = [(words[i], (shown(cells[i], "share"),)) for i in order]
    total = math.fsum(cell.estimate for cell in cells)
    table = Table(
        (title, _("Share"), _("95 % interval")),
        rows[:MAX_ROWS],
        (Shown(percent(total, 0 if round(total, 9) == 1 else 2), ""),),
        max(0, len(rows) - MAX_ROWS),
    )
    if histogram is not None:
        chart, density = histogram
        return Card(title, chart, table, attribute.name, density=density)
    drawn = [i for i in order if i in set(_known(cells))]
    if len(drawn) > MAX_BARS:
        largest = sorted(drawn, key=lambda i: -cells[i].estimate)[:MAX_BARS]
        drawn = [i for i in drawn if i in set(largest)]
    chart = Markup("")
    if drawn:
        chart = bar_chart(
            [_bar(words[i], cells[i]) for i in drawn],
            title,
            marks=[_spoken(words[i], cells[i], "share") for i in drawn],
        )
    left = len(cells) - len(drawn)
    other = "order" if by_size else "size"
    return Card(title, chart, table, attribute.name, left, other_sort=other * (len(cells) > 2))


def _histogram(
    attribute: Attribute, axis: Axis, cells: Sequence[Cell], words: Sequence[str], title: str
) -> tuple[Markup, bool] | None:
    """The bins of a number to scale, and whether heights are densities; None for other attributes."""
    plain = attribute.kind in ("numeric", "duration") and not (attribute.cycles or attribute.atoms)
    bins = [i for i, codes in enumerate(axis.groups) if codes[-1] < attribute.answers]
    if not plain or len(bins) < 2 or len(_known([cells[i] for i in bins])) < len(bins):
        return None
    ends = attribute.line.ends
    edges = [ends[axis.groups[i][0]][0] for i in bins] + [ends[axis.groups[bins[-1]][-1]][1]]
    estimates, low, high = _percents([cells[i] for i in bins])
    chart = histogram_chart(
        np.array(edges),
        np.array(estimates),
        np.array(low),
        np.array(high),
        title,
        titles=("%", _("%% of people per unit")),
        marks=[_spoken(words[i], cells[i], "share") for i in bins],
    )
    return chart, not _equal(np.array(edges))


def _equal(edges: Floats) -> bool:
    widths = np.diff(edges)
    return bool(np.allclose(widths, widths[0], rtol=1e-6))


def _percents(cells: Sequence[Cell]) -> tuple[list[float], list[float], list[float]]:
    return (
        [100 * cell.estimate for cell in cells],
        [math.nan if cell.low is None else 100 * cell.low for cell in cells],
        [math.nan if cell.high is None else 100 * cell.high for cell in cells],
    )


def _cross_card(panel: Panel, schema: Schema, title: str, top: float) -> Card:
    rows, columns = (axis_words(axis, schema) for axis in panel.axes)
    questions = [question_of(schema[axis.attribute]) for axis in panel.axes]
    values = np.array([cell.estimate for cell in panel.cells]).reshape(len(rows), len(columns))
    labels = [f"{row}, {column}" for row in rows for column in columns]
    chart = Markup("")
    if not np.isnan(values).all():
        chart = heat_chart(
            rows,
            columns,
            np.nan_to_num(values),
            " / ".join((*questions, *([title] if title else []))),
            top=top,
            marks=[_spoken(*pair, "share") for pair in zip(labels, panel.cells, strict=True)],
            hatched=[cell.unclear for cell in panel.cells],
        )
    width = len(columns)
    body = [
        (
            row,
            [
                *(shown(cell, "share") for cell in panel.cells[i * width : (i + 1) * width]),
                shown(panel.row_totals[i], "share"),
            ],
        )
        for i, row in enumerate(rows)
    ]
    assert panel.total is not None
    total = [shown(cell, "share") for cell in (*panel.column_totals, panel.total)]
    return Card(title, chart, Table(["", *columns, _("All")], body, total))


def _number_card(explored: Explored, view: View, schema: Schema) -> Card:
    """A mean, or quantiles, of an attribute: one row for each group."""
    axes = explored.panels[0].axes
    title = question_of(schema[view.of])
    labels = axis_words(axes[0], schema) if axes else [_("All")]
    panels = explored.panels
    heads = [_("Mean")]
    if view.figure != "mean":
        levels = QUANTILE_LEVELS if view.figure == QUANTILES else (0.5,)
        heads = [_("Median") if level == 0.5 else percent(level) for level in levels]
    rows = [
        (label, [shown(panel.cells[i], "number") for panel in panels])
        for i, label in enumerate(labels)
    ]
    middle = panels[len(panels) // 2]
    drawn = _known(middle.cells)[:MAX_BARS]
    chart = Markup("")
    if drawn:
        chart = bar_chart(
            [_bar(labels[i], middle.cells[i]) for i in drawn],
            title,
            short_number,
            marks=[_spoken(labels[i], middle.cells[i], "number") for i in drawn],
        )
    first = question_of(schema[axes[0].attribute]) if axes else ""
    return Card(title, chart, Table([first, *heads], rows), left=len(labels) - len(drawn))


def _contrast_card(explored: Explored, view: View, schema: Schema) -> Card:
    assert view.versus is not None
    first, second = (group_words(group, schema) for group in view.versus)
    attribute = schema[view.by[0]] if view.by else None
    words = answers(attribute) if attribute is not None else []
    labels = [words[c.code] if c.code is not None else "" for c in explored.contrasts]
    unit = explored.unit
    rows = [
        (
            label,
            [shown(c.first, unit), shown(c.second, unit), _difference(c.difference, unit)],
        )
        for label, c in zip(labels, explored.contrasts, strict=True)
    ]
    title = f"{first} \N{MINUS SIGN} {second}"
    bars, marks = [], []
    for label, contrast in zip(labels, explored.contrasts, strict=True):
        if not math.isnan(contrast.difference.estimate):
            bars.append(_bar(label or first, contrast.difference))
            figure = _difference(contrast.difference, unit)
            marks.append(f"{label or title}: {figure.text} ({figure.interval})")
    chart = Markup("")
    if bars:
        tick = short_number if unit == "number" else _tick_points
        chart = bar_chart(bars[:MAX_BARS], title, tick, marks=marks[:MAX_BARS])
    head = [
        "" if attribute is None else question_of(attribute),
        first,
        second,
        _("Difference") if unit == "number" else _("Difference in points"),
    ]
    return Card(title, chart, Table(head, rows), left=max(0, len(bars) - MAX_BARS))


def _difference(cell: Cell, unit: Unit) -> Shown:
    """A difference: of shares in points of the percentage."""
    return (
        points(cell) if unit == "share" else replace(shown(cell, unit), unclear=may_be_zero(cell))
    )


def _tick_points(share: float) -> str:
    return f"{100 * share:.6g}".replace("-", "\N{MINUS SIGN}")


def _consumer_card(histogram: Histogram) -> Card:
    edges = np.array(histogram.edges)
    labels = [
        _("%(low)s to %(high)s", low=_plain(low), high=_plain(high))
        for low, high in zip(histogram.edges[:-1], histogram.edges[1:], strict=True)
    ]
    figures = [_count(cell) for cell in histogram.cells]
    low, high = (
        np.array([math.nan if end is None else end for end in ends])
        for ends in zip(*((cell.low, cell.high) for cell in histogram.cells), strict=True)
    )
    chart = histogram_chart(
        edges,
        np.array([cell.estimate for cell in histogram.cells]),
        low,
        high,
        histogram.name,
        titles=(_("people"), _("people per unit")),
        marks=[
            f"{label}: {figure.text} ({figure.interval})"
            for label, figure in zip(labels, figures, strict=True)
        ],
    )
    total = math.fsum(cell.estimate for cell in histogram.cells)
    rows = [(label, (figure,)) for label, figure in zip(labels, figures, strict=True)]
    table = Table(
        ("", _("People"), _("95 % interval")), rows, (Shown(decimal(max(0.0, total)), ""),)
    )
    return Card(histogram.name, chart, table, density=not _equal(edges))


def _count(cell: Cell) -> Shown:
    """A number of people, without digits that the error blurs."""
    estimate = max(0.0, cell.estimate)
    if cell.low is None or cell.high is None:
        return Shown(decimal(estimate), _("none"))
    half = (cell.high - cell.low) / 2
    digits = 0 if half <= 0 else min(6, max(0, 1 - math.floor(math.log10(half))))
    low, high = (decimal(max(0.0, end), digits) for end in (cell.low, cell.high))
    return Shown(decimal(estimate, digits), _("%(low)s to %(high)s", low=low, high=high))


def figures_table(explored: Explored, view: View, schema: Schema) -> pa.Table:
    """The figures of a view as a table with one row each, labels in words."""
    rows = [*_flat(explored, view, schema)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns: dict[str, pa.Array] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        text = any(isinstance(value, str) for value in values)
        kind = pa.string() if text else pa.float64()
        columns[name] = pa.array(values, kind, from_pandas=True)
    return pa.table(columns)


Row = dict[str, str | float | None]


def _flat(explored: Explored, view: View, schema: Schema) -> list[Row]:
    if explored.contrasts:
        return [_contrast_row(contrast, view, schema) for contrast in explored.contrasts]
    rows: list[Row] = []
    for histogram in explored.histograms:
        ends = zip(histogram.edges[:-1], histogram.edges[1:], strict=True)
        for (low, high), cell in zip(ends, histogram.cells, strict=True):
            start: Row = {"consumer": histogram.name, "from": low, "to": high}
            rows.append(start | _ends(cell, start))
    if explored.mean is not None:
        rows.append(_ends(explored.mean, {}))
    for position, panel in enumerate(explored.panels):
        rows += _panel_rows(panel, position, explored, view, schema)
    return rows


def _panel_rows(
    panel: Panel, position: int, explored: Explored, view: View, schema: Schema
) -> list[Row]:
    axes = [(axis.attribute, axis_words(axis, schema)) for axis in panel.axes]
    rows: list[Row] = []
    for place, cell in enumerate(panel.cells):
        row: Row = {}
        if not view.by and view.figure == "share":
            row = {"attribute": axes[0][0], "value": axes[0][1][place]}
        else:
            rest = place
            for name, words in reversed(axes):
                rest, at = divmod(rest, len(words))
                row = {name: words[at], **row}
        if explored.third is not None and panel.over is not None:
            row[explored.third.attribute] = axis_words(explored.third, schema)[panel.over]
        if view.figure == QUANTILES:
            row["level"] = QUANTILE_LEVELS[position]
        rows.append(row | _ends(cell, row))
    return rows


def _ends(cell: Cell, taken: Row) -> Row:
    """Estimate and interval under names that no attribute has."""
    found: Row = {}
    for name, value in (("estimate", cell.estimate), ("low", cell.low), ("high", cell.high)):
        free = name
        while free in taken:
            free += "_"
        found[free] = value
    return found


def _contrast_row(contrast: Contrast, view: View, schema: Schema) -> Row:
    row: Row = {}
    if contrast.code is not None:
        row[view.by[0]] = answers(schema[view.by[0]])[contrast.code]
    sides = {"first": contrast.first, "second": contrast.second, "difference": contrast.difference}
    for side, cell in sides.items():
        row |= {
            f"{side}_estimate": cell.estimate,
            f"{side}_low": cell.low,
            f"{side}_high": cell.high,
        }
    return row


def figures_json(explored: Explored, view: View, schema: Schema) -> JsonObject:
    """The figures of a view as JSON: one row each, with the warnings."""
    rows = []
    for row in _flat(explored, view, schema):
        plain = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in row.items()
        }
        rows.append(plain)
    return {
        "unit": explored.unit,
        "people": explored.people,
        "rows": rows,
        "warnings": [warning.to_json() for warning in explored.warnings],
    }
