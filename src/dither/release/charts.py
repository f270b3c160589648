"""Charts of all pages as inline SVG: bars, heat maps, networks, histograms and lines.

Each is drawn for the width of a phone, so that its text keeps its size there.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, radians, sin, sqrt

import numpy as np
from markupsafe import Markup

from dither.display import (
    AMBER,
    FONT_SIZE,
    VIRIDIS,
    WIDTH,
    Bar,
    bar_chart,
    dot,
    drawing,
    fit,
    fit_all,
    label,
    mark,
    number,
    path,
    ramp,
    reads_dark,
    share,
    short_number,
    text_width,
    ticks,
)
from dither.release.figures import NUMBERED_COLUMNS, AttributeFigure, HeatMap, Pair
from dither.types import Floats

_GRAPH_RADIUS = 68
_NODE_GAP = 19


def attribute_chart(figure: AttributeFigure) -> Markup:
    """Draw an attribute's estimates with 95 % intervals; hollow diamonds mark the truth."""
    return bar_chart(figure.bars, _attribute_words(figure))


def dependency_chart(names: Sequence[str], pairs: Sequence[Pair]) -> Markup:
    """Draw attributes on an oval, with thicker lines for more mutual information.

    Nodes on each side are equally spaced in height, so names never overlap.
    """
    right = (len(names) + 1) // 2
    height = max(200, _NODE_GAP * right + 16)
    middle, tall = (WIDTH / 2, height / 2), height / 2 - 12
    place: dict[str, tuple[float, float]] = {}
    for side, members in ((1, names[:right]), (-1, names[right:][::-1])):
        for i, name in enumerate(members):
            up = -1 + (2 * i + 1) / len(members)
            place[name] = (
                middle[0] + side * _GRAPH_RADIUS * sqrt(1 - up * up),
                middle[1] + tall * up,
            )
    top = max(pair.bits for pair in pairs)
    lines = ""
    for pair in reversed(pairs):
        (x1, y1), (x2, y2) = place[pair.first], place[pair.second]
        weight = pair.bits / top
        look = f' stroke-width="{0.8 + 5.2 * weight:.1f}" opacity="{0.35 + 0.6 * weight:.2f}"'
        lines += path("edge", f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", look)
    dots = "".join(
        f'<circle cx="{number(x)}" cy="{number(y)}" r="3.6"/>' for x, y in place.values()
    )
    words = ""
    for name, (x, y) in place.items():
        side = 1 if x > middle[0] else -1
        room = (WIDTH - x if side > 0 else x) - 9
        words += label(x + 8 * side, y + FONT_SIZE / 3, fit(name, room), "" if side > 0 else "e")
    strongest = "; ".join(f"{p.first} and {p.second}, {p.bits:.3f} bits" for p in pairs[:3])
    count = f"{len(pairs)} dependenc{'y' if len(pairs) == 1 else 'ies'}"
    spoken = f"Graph of {count} between {len(names)} attributes. Strongest: {strongest}."
    return drawing(WIDTH, height, spoken, f'{lines}<g class="node">{dots}</g><g>{words}</g>')


def _attribute_words(figure: AttributeFigure) -> str:
    largest = max(figure.bars, key=lambda bar: bar.estimate)
    words = f"Estimated distribution of {figure.name}, {len(figure.bars)} values. "
    words += f"Largest: {largest.label}, {largest.estimate:.1%}"
    if largest.low is not None and largest.high is not None:
        words += f" (95 % interval {largest.low:.1%} to {largest.high:.1%})"
    if largest.truth is not None:
        words += f", truth {largest.truth:.1%}"
    return f"{words}. All figures are in the table below."


# Rotation of the columns' labels, in degrees.
_TURN = 50.0
_ROW_ROOM, _COLUMN_ROOM = 116, 96
_LEGEND_STEPS = 24


def heat_charts(heat: HeatMap) -> list[Markup]:
    """Draw the estimate and, if present, the truth or the half-widths of its intervals.

    The truth shares the estimate's colours. Half-widths have a separate scale, on which
    dark means uncertain.
    """
    pair = f"{heat.pair.first} and {heat.pair.second}"
    tops = [float(heat.estimate.max())]
    if heat.beside is None:
        shown = [("estimate", heat.estimate, VIRIDIS)]
    elif heat.intervals:
        tops.append(float(heat.beside.max()))
        shown = [("estimate", heat.estimate, VIRIDIS), (heat.beside_title, heat.beside, AMBER)]
    else:
        tops = [max(tops[0], float(heat.beside.max()))] * 2
        shown = [("estimate", heat.estimate, VIRIDIS), (heat.beside_title, heat.beside, VIRIDIS)]
    return [
        heat_chart(
            heat.rows,
            heat.columns,
            values,
            f"Heat map of {pair}, {title}. {_largest(heat, values)}",
            top=top or 1.0,
            stops=stops,
        )
        for (title, values, stops), top in zip(shown, tops, strict=True)
    ]


def _cell_text(value: float, top: float) -> str:
    """A share in per cent without its sign, in as few digits as a small cell holds."""
    shown = 100 * value
    if shown >= 9.95:
        return f"{shown:.0f}"
    return f"{shown:.1f}" if top >= 0.01 else f"{shown:.2f}"


def heat_chart(
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    values: Floats,
    words: str,
    *,
    top: float = 1.0,
    stops: list[str] = VIRIDIS,
    marks: Sequence[str] = (),
    hatched: Sequence[bool] = (),
) -> Markup:
    """Draw a table of shares as coloured cells, with numbers in them where there is room.

    Args:
        row_labels: The label of each row.
        column_labels: The label of each column.
        values: The shares.
        words: The text alternative.
        top: The share of the last colour.
        stops: The colours.
        marks: The text of each cell, row by row, where it can be pointed at.
        hatched: The cells to hatch, row by row.
    """
    rows, columns = fit_all(row_labels, _ROW_ROOM), fit_all(column_labels, _COLUMN_ROOM)
    numbered = len(columns) <= NUMBERED_COLUMNS
    across = max(text_width(name) for name in columns)
    left = max(text_width(name) + 8 for name in rows)
    turned = across > (WIDTH - 2 - left) / len(columns) - 4
    if turned:
        # The first column's label extends to the left.
        left = max(left, cos(radians(_TURN)) * across - 6)
    width = (WIDTH - 2 - left) / len(columns)
    height = 22.0 if numbered else 16.0
    # Frequencies span several orders of magnitude.
    power = 0.5 if stops is VIRIDIS else 1.0
    filled: dict[str, str] = defaultdict(str)
    inside, lines, areas = "", "", ""
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            colour = ramp(stops, (value / top) ** power)
            x, y = left + j * width, i * height
            filled[colour] += (
                f"M{number(x)} {number(y)}h{number(width - 0.6)}v{number(height - 0.6)}h-{number(width - 0.6)}z"
            )
            place = i * len(columns) + j
            if hatched and hatched[place]:
                lines += _hatch(x, y, width - 0.6, height - 0.6, reads_dark(colour))
            if marks:
                areas += mark(x, y, width - 0.6, height - 0.6, marks[place])
            if numbered:
                css = "n k" if reads_dark(colour) else "n w"
                inside += label(
                    x + width / 2, y + height / 2 + 4, _cell_text(float(value), top), css
                )
    cells = "".join(f'<path fill="{colour}" d="{steps}"/>' for colour, steps in filled.items())
    bottom = len(rows) * height
    names = "".join(
        label(left - 6, i * height + height / 2 + 4, name, "e") for i, name in enumerate(rows)
    )
    for j, name in enumerate(columns):
        middle = left + (j + 0.5) * width
        names += (
            label(middle + 5, bottom + 11, name, "e", -_TURN)
            if turned
            else label(middle, bottom + 15, name, "m")
        )
    below = bottom + (sin(radians(_TURN)) * across + 20 if turned else 24)
    key = _legend(left, below, top, stops, power)
    inside = f"{cells}{lines}<g>{inside}</g><g>{names}</g>{key}"
    return drawing(WIDTH, below + 26, words, inside, areas)


# Between the lines of a hatched cell, in pixels.
_HATCH = 6.0


def _hatch(x: float, y: float, width: float, height: float, dark: bool) -> str:
    """Diagonal lines across a cell, dark ones on a bright colour."""
    steps, start = "", _HATCH / 2
    while start < width + height:
        x1, x2 = max(0.0, start - height), min(start, width)
        steps += (
            f"M{number(x + x1)} {number(y + start - x1)}L{number(x + x2)} {number(y + start - x2)}"
        )
        start += _HATCH
    colour = "#000000" if dark else "#ffffff"
    return path("hatch", steps, f' stroke="{colour}" stroke-opacity=".45"')


def _legend(left: float, y: float, top: float, stops: list[str], power: float) -> str:
    """The colours from 0 to the top with three figures beneath."""
    left = min(left, WIDTH - 190.0)
    width = WIDTH - 22 - left
    step = width / _LEGEND_STEPS
    parts = "".join(
        f'<path fill="{ramp(stops, (i + 0.5) / _LEGEND_STEPS)}" d="M{number(left + i * step)} {number(y)}'
        f'h{number(step + 0.3)}v8h-{number(step + 0.3)}z"/>'
        for i in range(_LEGEND_STEPS)
    )
    middle = sqrt(0.25) if power < 1 else 0.5
    marks = [
        (0.0, "0%"),
        (middle, share(float(f"{top * (0.25 if power < 1 else 0.5):.2g}"))),
        (1.0, share(float(f"{top:.2g}"))),
    ]
    return parts + "".join(label(left + width * at, y + 21, words, "m") for at, words in marks)


def _largest(heat: HeatMap, values: Floats) -> str:
    i, j = divmod(int(values.argmax()), values.shape[1])
    return f"Largest cell: {heat.rows[i]} with {heat.columns[j]}, {values[i, j]:.1%}."


# Numbers against numbers.
HEIGHT, HEAD, FOOT = 220, 26, 40


@dataclass(frozen=True)
class Axis:
    """A linear map from the numbers `low` to `high` to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)

    def ticks(self, most: int = 5) -> list[float]:
        """Round figures."""
        return ticks(self.high, most, self.low)


def histogram_chart(
    edges: Floats,
    counts: Floats,
    low: Floats,
    high: Floats,
    words: str,
    *,
    titles: tuple[str, str] = ("people", "people per unit"),
    marks: Sequence[str] = (),
) -> Markup:
    """Bars between the bins' edges, each with its interval.

    Bars of unequal width show figures per unit of the number, so that areas are figures.
    `titles` are those of the vertical axis for equal and for unequal bins, `marks` the text of
    each bar where it can be pointed at. NaN ends of intervals are not drawn.
    """
    widths = np.diff(edges)
    equal = np.allclose(widths, widths[0], rtol=1e-6)
    if not equal:
        counts, low, high = counts / widths, low / widths, high / widths
    bottom = float(np.nanmin([0.0, *counts, *low]))
    top = float(np.nanmax([1e-9, *counts, *high]))
    up = Axis(bottom, top, HEIGHT - FOOT, HEAD)
    across = Axis(float(edges[0]), float(edges[-1]), _beside_labels(up), WIDTH - 20)
    bars, reaches, dots, areas = "", "", "", ""
    zero = number(up(0.0))
    for i, count in enumerate(counts):
        left, right = across(float(edges[i])), across(float(edges[i + 1]))
        middle, y = number((left + right) / 2), up(float(count))
        bars += f"M{number(left)} {zero}V{number(y)}H{number(max(right - 0.8, left + 0.2))}V{zero}z"
        if not math.isnan(low[i] + high[i]):
            reaches += f"M{middle} {number(up(float(low[i])))}V{number(up(float(high[i])))}"
        dots += dot((left + right) / 2, y)
        if marks:
            areas += mark(left, HEAD, right - left, HEIGHT - FOOT - HEAD, marks[i])
    inside = _frame(across, up, across.ticks(), "", titles[0] if equal else titles[1])
    inside += path("bar", bars) + path("reach", reaches) + path("dot", dots)
    return drawing(WIDTH, HEIGHT - FOOT + 22, words, inside, areas)


def _beside_labels(up: Axis) -> float:
    """Left edge of a chart, right of its axis labels."""
    return max(text_width(short_number(tick)) for tick in up.ticks()) + 10


def _frame(across: Axis, up: Axis, spots: Sequence[float], x_title: str, y_title: str) -> str:
    """Draw grid, labels and titles; overlapping labels on the x axis are omitted."""
    grid, words, taken = "", label(0, 13, y_title), 0.0
    for tick in up.ticks():
        y = up(tick)
        grid += f"M{number(across.start)} {number(y)}H{number(across.end)}"
        words += label(across.start - 6, y + 4, short_number(tick), "e")
    for tick in spots:
        x, shown = across(tick), short_number(tick)
        half = text_width(shown) / 2
        grid += f"M{number(x)} {number(up.start)}v4"
        if x - half > taken and x + half <= WIDTH:
            words += label(x, up.start + 17, shown, "m")
            taken = x + half + 4
    if x_title:
        words += label((across.start + across.end) / 2, up.start + 34, x_title, "m")
    return path("rule", grid) + f"<g>{words}</g>"


# The style sheet has this number of line colours.
HUES = 12


@dataclass(frozen=True)
class Line:
    """A line of a chart: its colour, and points with place, figure and ends of the spread."""

    hue: int
    points: Sequence[tuple[float, float, float, float]]


class _LogAxis(Axis):
    """The same by the numbers' logarithm."""

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self, most: int = 5) -> list[float]:
        """Powers of ten, or finer ticks if fewer than two of them fit."""
        powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
        if len(powers) < 2:
            around = [
                m * 10.0**k for k in range(powers.start - 1, powers.stop + 1) for m in (1, 2, 5)
            ]
            inside = [value for value in around if self.low <= value <= self.high]
            return inside if len(inside) > 1 else ticks(self.high, most, self.low)
        return [10.0**k for k in powers[:: math.ceil(len(powers) / most)]]


def _axis(log: bool) -> type[Axis]:
    return _LogAxis if log else Axis


def line_chart(
    lines: Sequence[Line],
    titles: tuple[str, str],
    words: str,
    *,
    places: Sequence[float] = (),
    log_x: bool = False,
    log_y: bool = False,
) -> Markup:
    """Draw lines with their points and spreads.

    `titles` are those of x and y; `places` are further x values that the axis must
    include.
    """
    return drawing(
        WIDTH, HEIGHT, words, line_plot(lines, titles, places=places, log_x=log_x, log_y=log_y)
    )


def line_plot(
    lines: Sequence[Line],
    titles: tuple[str, str],
    *,
    places: Sequence[float] = (),
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    """The inside of a line chart, for a stand-alone picture."""
    spots = sorted({*places, *(x for line in lines for x, *_ in line.points)})
    values = [v for line in lines for _, *reached in line.points for v in reached]
    bottom, top = _padded(min(values), max(values), log_y)
    up = _axis(log_y)(bottom if log_y else min(0.0, bottom), max(top, 1e-9), HEIGHT - FOOT, HEAD)
    first, last = (spots[0], spots[-1]) if len(spots) > 1 else _padded(spots[0], spots[0], log_x)
    across = _axis(log_x)(first, last, _beside_labels(up), WIDTH - 20)
    drawn = ""
    for line in lines:
        course, reaches, dots = "", "", ""
        for x, y, low, high in line.points:
            at = across(x)
            course += f"{'L' if course else 'M'}{number(at)} {number(up(y))}"
            reaches += f"M{number(at)} {number(up(low))}V{number(up(high))}" if low < high else ""
            dots += dot(at, up(y))
        few = path("spot", dots) if len(line.points) <= 24 else ""
        drawn += f'<g class="hue{line.hue % HUES}">{path("course", course)}{path("spread", reaches)}{few}</g>'
    return _frame(across, up, spots if len(spots) <= 10 else across.ticks(), *titles) + drawn


def _padded(low: float, high: float, log: bool) -> tuple[float, float]:
    """Widen a range a little, more if it holds one figure only."""
    if log:
        return low / 1.3, high * 1.3
    room = 0.04 * (high - low) or 0.5 * abs(high) or 1.0
    return low - (room if low < 0 or low == high else 0.0), high + room


_PAIR_ROW = 30


@dataclass(frozen=True)
class Sides:
    """One value in two releases; the text of each figure where it can be pointed at."""

    label: str
    first: Bar
    second: Bar
    marks: tuple[str, str]


def pair_chart(values: Sequence[Sides], words: str) -> Markup:
    """Two releases on one axis: circles for the first, diamonds below them for the second."""
    labels = fit_all([value.label for value in values], _ROW_ROOM)
    left = max(text_width(shown) for shown in labels) + 8
    bars = [bar for value in values for bar in (value.first, value.second)]
    top = 1.02 * max(1e-6, *(v for bar in bars for v in (bar.estimate, bar.high or 0.0)))
    across = Axis(0.0, top, left, WIDTH - 16)
    bottom = _PAIR_ROW * len(values) + 4
    grid, names, areas = "", "", ""
    for tick in across.ticks(4):
        grid += f"M{number(across(tick))} 0V{number(bottom)}"
        names += label(across(tick), bottom + 15, share(tick), "m")
    sides = {"first": "", "second": ""}
    for i, value in enumerate(values):
        middle = _PAIR_ROW * i + _PAIR_ROW / 2 + 1
        names += label(left - 6, middle + 4, labels[i], "e")
        for j, (side, bar) in enumerate((("first", value.first), ("second", value.second))):
            y, x = middle + (-6 if j == 0 else 6), across(bar.estimate)
            if bar.low is not None and bar.high is not None:
                sides[side] += f"M{number(across(bar.low))} {number(y)}H{number(across(bar.high))}"
            sides[side] += dot(x, y) if j == 0 else f"M{number(x)} {number(y - 4)}l4 4l-4 4l-4 -4z"
            areas += mark(0, y - 7, WIDTH, 13, value.marks[j])
    drawn = "".join(f'<g class="{side}">{path("side", d)}</g>' for side, d in sides.items())
    inside = path("rule", grid) + drawn + f"<g>{names}</g>"
    return drawing(WIDTH, bottom + 20, words, inside, areas)


def trend_chart(
    names: Sequence[str], cells: Sequence[Bar], words: str, marks: Sequence[str]
) -> Markup:
    """One figure over a series of releases: a line with the band of its intervals."""
    top = 1.02 * max(1e-6, *(v for bar in cells for v in (bar.estimate, bar.high or 0.0)))
    up = Axis(0.0, top, HEIGHT - FOOT, 8.0)
    left = max(text_width(share(tick)) for tick in up.ticks(4)) + 10
    last = max(1, len(cells) - 1)
    across = Axis(0.0, float(last), left + 24, WIDTH - 28)
    grid, texts, course, dots, areas = "", "", "", "", ""
    for tick in up.ticks(4):
        grid += f"M{number(left)} {number(up(tick))}H{number(WIDTH - 8)}"
        texts += label(left - 6, up(tick) + 4, share(tick), "e")
    room = (across.end - across.start) / last
    for i, bar in enumerate(cells):
        x, y = across(float(i)), up(bar.estimate)
        course += f"{'L' if course else 'M'}{number(x)} {number(y)}"
        dots += dot(x, y)
        texts += label(x, up.start + 17, fit(names[i], room - 4), "m")
        areas += mark(x - room / 2, 0, room, up.start, marks[i])
    known = [
        (i, bar) for i, bar in enumerate(cells) if bar.low is not None and bar.high is not None
    ]
    band = ""
    for i, bar in known:
        band += f"{'L' if band else 'M'}{number(across(float(i)))} {number(up(bar.high or 0.0))}"
    for i, bar in reversed(known):
        band += f"L{number(across(float(i)))} {number(up(bar.low or 0.0))}"
    inside = path("rule", grid) + path("bar", f"{band}z" if band else "")
    inside += path("reach", course) + path("dot", dots) + f"<g>{texts}</g>"
    return drawing(WIDTH, HEIGHT - FOOT + 22, words, inside, areas)


_VIEW_BOX = re.compile(r'<svg role="[a-z]+" aria-label="[^"]*" viewBox="0 0 ([\d.]+) ([\d.]+)">')
_GAP = 24


def sheet_of_charts(title: str, charts: Sequence[tuple[str, Markup]], source: str) -> Markup:
    """Several charts under their titles in one drawing, in two columns if there are many.

    Args:
        title: A title above all.
        charts: The title and the drawing of each.
        source: A line below all.
    """
    across = 2 if len(charts) > 1 else 1
    width = across * (WIDTH + _GAP) - _GAP
    inside, top = label(0, 14, fit(title, width)), 30.0
    for start in range(0, len(charts), across):
        tallest = 0.0
        for i, (name, chart) in enumerate(charts[start : start + across]):
            opening = _VIEW_BOX.match(chart)
            if opening is None:
                raise ValueError("not a chart")
            wide, tall = (float(size) for size in opening.groups())
            x = i * (WIDTH + _GAP)
            below = 22.0 if name and name != title else 0.0
            if below:
                inside += label(x, top + 12, fit(name, WIDTH))
            inside += f'<svg x="{number(x)}" y="{number(top + below)}" width="{number(wide)}" height="{number(tall)}">'
            inside += str(chart)[opening.end() :]
            tallest = max(tallest, below + tall)
        top += tallest + 14
    inside += label(0, top + 8, fit(source, width))
    return drawing(width, top + 16, title, inside)
