"""Heat maps of pairs as inline SVG, with the numbers in the cells where there is room for them."""

from __future__ import annotations

from collections import defaultdict
from math import cos, radians, sin, sqrt

from dither.release.figures import NUMBERED_COLUMNS, HeatMap
from dither.release.palette import AMBER, VIRIDIS, ramp, reads_dark
from dither.release.svg import drawing, fit_all, label, number, share, text_width
from dither.types import Floats

WIDTH = 340
_TURN = 50.0  # degrees by which the columns' labels are turned
_ROW_ROOM, _COLUMN_ROOM = 116, 96
_LEGEND_STEPS = 24


def heat_charts(heat: HeatMap) -> list[str]:
    """An SVG of the estimate and, if there is something to set beside it, of that.

    The truth shares the estimate's colours. Half-widths of intervals have a scale of their own: pale is certain, dark is not.
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
        _heat_chart(heat, values, top or 1.0, stops, f"Heat map of {pair}, {title}. {_largest(heat, values)}")
        for (title, values, stops), top in zip(shown, tops, strict=True)
    ]


def cell_text(value: float, top: float) -> str:
    """A share in per cent without its sign, in as few digits as a small cell holds."""
    shown = 100 * value
    if shown >= 9.95:
        return f"{shown:.0f}"
    return f"{shown:.1f}" if top >= 0.01 else f"{shown:.2f}"


def _heat_chart(heat: HeatMap, values: Floats, top: float, stops: list[str], words: str) -> str:
    rows, columns = fit_all(heat.rows, _ROW_ROOM), fit_all(heat.columns, _COLUMN_ROOM)
    numbered = len(columns) <= NUMBERED_COLUMNS
    across = max(text_width(name) for name in columns)
    left = max(text_width(name) + 8 for name in rows)
    turned = across > (WIDTH - 2 - left) / len(columns) - 4
    if turned:
        left = max(left, cos(radians(_TURN)) * across - 6)  # the first column's label runs out to the left
    width = (WIDTH - 2 - left) / len(columns)
    height = 22.0 if numbered else 16.0
    power = 0.5 if stops is VIRIDIS else 1.0  # frequencies span decades
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
                inside += label(x + width / 2, y + height / 2 + 4, cell_text(float(value), top), css)
    cells = "".join(f'<path fill="{colour}" d="{steps}"/>' for colour, steps in filled.items())
    bottom = len(rows) * height
    names = "".join(label(left - 6, i * height + height / 2 + 4, name, "e") for i, name in enumerate(rows))
    for j, name in enumerate(columns):
        middle = left + (j + 0.5) * width
        names += label(middle + 5, bottom + 11, name, "e", -_TURN) if turned else label(middle, bottom + 15, name, "m")
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
