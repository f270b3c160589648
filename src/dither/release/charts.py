"""Charts of all pages as inline SVG: bars, heat maps, networks, histograms and lines.

Each is drawn for the width of a phone, so that its text keeps its size there.
"""

from __future__ import annotations

import math
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
    bar_chart,
    dot,
    drawing,
    fit,
    fit_all,
    label,
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
        _heat_chart(
            heat,
            values,
            top or 1.0,
            stops,
            f"Heat map of {pair}, {title}. {_largest(heat, values)}",
        )
        for (title, values, stops), top in zip(shown, tops, strict=True)
    ]


def _cell_text(value: float, top: float) -> str:
    """A share in per cent without its sign, in as few digits as a small cell holds."""
    shown = 100 * value
    if shown >= 9.95:
        return f"{shown:.0f}"
    return f"{shown:.1f}" if top >= 0.01 else f"{shown:.2f}"


def _heat_chart(heat: HeatMap, values: Floats, top: float, stops: list[str], words: str) -> Markup:
    rows, columns = fit_all(heat.rows, _ROW_ROOM), fit_all(heat.columns, _COLUMN_ROOM)
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
    inside = ""
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            colour = ramp(stops, (value / top) ** power)
            x, y = left + j * width, i * height
            filled[colour] += (
                f"M{number(x)} {number(y)}h{number(width - 0.6)}v{number(height - 0.6)}h-{number(width - 0.6)}z"
            )
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
    return drawing(WIDTH, below + 26, words, f"{cells}<g>{inside}</g><g>{names}</g>{key}")


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


def histogram_chart(edges: Floats, counts: Floats, low: Floats, high: Floats, words: str) -> Markup:
    """Bars between the bins' edges, each with its interval.

    Bars of unequal width show people per unit of the number, so that areas are counts.
    """
    widths = np.diff(edges)
    equal = np.allclose(widths, widths[0], rtol=1e-6)
    if not equal:
        counts, low, high = counts / widths, low / widths, high / widths
    bottom, top = (
        min(0.0, float(counts.min()), float(low.min())),
        max(1e-9, float(counts.max()), float(high.max())),
    )
    up = Axis(bottom, top, HEIGHT - FOOT, HEAD)
    across = Axis(float(edges[0]), float(edges[-1]), _beside_labels(up), WIDTH - 20)
    bars, reaches, dots = "", "", ""
    zero = number(up(0.0))
    for i, count in enumerate(counts):
        left, right = across(float(edges[i])), across(float(edges[i + 1]))
        middle, y = number((left + right) / 2), up(float(count))
        bars += f"M{number(left)} {zero}V{number(y)}H{number(max(right - 0.8, left + 0.2))}V{zero}z"
        reaches += f"M{middle} {number(up(float(low[i])))}V{number(up(float(high[i])))}"
        dots += dot((left + right) / 2, y)
    inside = _frame(across, up, across.ticks(), "", "people" if equal else "people per unit")
    inside += path("bar", bars) + path("reach", reaches) + path("dot", dots)
    return drawing(WIDTH, HEIGHT - FOOT + 22, words, inside)


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
