"""Small pieces of SVG for a report's charts, written as text: no script, no drawing library, nothing fetched when shown.

Colours and type come from classes that the report's style sheet paints, in dark mode too. Room for text is reckoned with a wide
font in mind: which font the reader's browser has is not known here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from math import cos, radians, sin, sqrt

from dither.release.figures import NUMBERED_COLUMNS, AttributeFigure, HeatMap
from dither.release.pairs import Pair
from dither.types import Floats

FONT_SIZE = 12
_NARROW = frozenset("iIjl.,:;'|!()[]{}ftr -/")
_WIDE = frozenset("MWmw@%&—…+<>=~")


def drawing(width: float, height: float, words: str, inside: str) -> str:
    """An inline picture with its text alternative."""
    box = f"0 0 {number(width)} {number(height)}"
    return f'<svg role="img" aria-label="{escape(words, quote=True)}" viewBox="{box}">{inside}</svg>'


def label(x: float, y: float, words: str, css: str = "", turn: float = 0.0) -> str:
    """A line of text; `css` e means that it ends at x, m that its middle is there; `turn` in degrees."""
    kind = f' class="{css}"' if css else ""
    place = f'x="{number(x)}" y="{number(y)}"'
    if turn:
        place = f'transform="translate({number(x)} {number(y)})rotate({number(turn)})"'
    return f"<text {place}{kind}>{escape(words, quote=False)}</text>"


def path(css: str, steps: str, more: str = "") -> str:
    """A path of a class."""
    return f'<path class="{css}" d="{steps}"{more}/>' if steps else ""


def number(value: float) -> str:
    """A coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def text_width(words: str, size: float = FONT_SIZE) -> float:
    """Pixels that a line takes in a wide sans-serif font."""
    return size * sum(_letter(letter) for letter in words)


def fit(words: str, room: float, size: float = FONT_SIZE) -> str:
    """The words, cut with an ellipsis where they would take more than so many pixels."""
    if text_width(words, size) <= room:
        return words
    room -= text_width("…", size)
    used = 0.0
    for i, letter in enumerate(words):
        used += size * _letter(letter)
        if used > room:
            return f"{words[:i].rstrip()}…"
    return words


def fit_all(labels: Sequence[str], room: float, size: float = FONT_SIZE) -> list[str]:
    """Labels cut to a width, numbered where cutting (or the schema) made two the same."""
    out: list[str] = []
    taken: set[str] = set()
    for given in labels:
        short, count = fit(given, room, size), 1
        while short in taken:
            count += 1
            mark = f" ({count})"
            short = fit(given, room - text_width(mark, size), size) + mark
        taken.add(short)
        out.append(short)
    return out


def ticks(top: float, most: int = 4) -> list[float]:
    """Round figures from 0 up to `top`, evenly spaced and at most so many steps."""
    if top <= 0:
        return [0.0]
    raw = top / most
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * m for m in (1, 2, 2.5, 5, 10) if scale * m >= raw * (1 - 1e-9))
    return [step * i for i in range(math.floor(top / step * (1 + 1e-9)) + 1)]


def share(value: float) -> str:
    """A share as a tick's label: per cent in as few digits as it needs."""
    return f"{100 * value:.6g}%"


def _letter(letter: str) -> float:
    """The width of a letter in ems; other scripts' are taken as square."""
    if letter in _NARROW:
        return 0.38
    if letter in _WIDE:
        return 0.95
    if letter.isupper():
        return 0.72
    return 0.62 if ord(letter) < 0x2E80 else 1.0


# --------------------
# Colours of heat maps: frequencies from dark to bright, half-widths of intervals from pale to dark.

# Viridis (Smith, van der Walt, Firing, 2015; public domain) at 16 even steps, and a ramp of one hue for uncertainty.
# fmt: off
VIRIDIS = [
    "#440154", "#481a6c", "#472f7d", "#414487", "#39568c", "#31688e", "#2a788e", "#23888e",
    "#1f988b", "#22a884", "#35b779", "#54c568", "#7ad151", "#a5db36", "#d2e21b", "#fde725",
]
AMBER = [
    "#fff6e5", "#ffe9c4", "#fedaa0", "#fcc87a", "#f7b355", "#ec9c39", "#db8425", "#c46c18", "#a85610", "#8a430b", "#6c3208",
]
# fmt: on
LEVELS = 33


def ramp(stops: list[str], position: float) -> str:
    """The colour at a position from 0 to 1, one of 33 levels."""
    level = round(min(max(position, 0.0), 1.0) * (LEVELS - 1)) / (LEVELS - 1)
    place = level * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    first, second = _channels(stops[low]), _channels(stops[low + 1])
    mixed = (round(a + (b - a) * (place - low)) for a, b in zip(first, second, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def reads_dark(colour: str) -> bool:
    """Whether black stands out more on this colour than white; either way the contrast is at least 4.5 to 1."""
    return luminance(colour) > 0.1791  # where (L + 0.05) / 0.05 = 1.05 / (L + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of a colour such as #25313c (WCAG 2.2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


# --------------------
# A report's charts as inline SVG, each drawn for the width of a phone, so that its text keeps its size there.

WIDTH = 340
_ROW = 19
_LABEL_ROOM = 128
_GRAPH_RADIUS = 68
_NODE_GAP = 19


def attribute_chart(figure: AttributeFigure) -> str:
    """An attribute's estimates as points over pale bars, with 95 % intervals, and hollow diamonds for the truth."""
    labels = fit_all([bar.label for bar in figure.bars], _LABEL_ROOM)
    left = max(text_width(words) for words in labels) + 8
    reach = [bar.estimate for bar in figure.bars]
    reach += [v for bar in figure.bars for v in (bar.high, bar.truth) if v is not None]
    top = max(*reach, 1e-6) * 1.02
    bottom = _ROW * len(labels) + 4
    right = WIDTH - 16

    def x(value: float) -> float:
        return left + (right - left) * value / top

    grid, axis = "", ""
    for tick in ticks(top):
        grid += f"M{number(x(tick))} 0V{number(bottom)}"
        axis += label(x(tick), bottom + 15, share(tick), "m")
    bars, intervals, dots, diamonds, names = "", "", "", "", ""
    for i, (words, bar) in enumerate(zip(labels, figure.bars, strict=True)):
        y = _ROW * i + _ROW / 2 + 1
        at = x(bar.estimate)
        names += label(left - 6, y + 4, words, "e")
        bars += f"M{number(left)} {number(y - 6)}H{number(at)}v12H{number(left)}z"
        if bar.low is not None and bar.high is not None:
            low, high = number(x(bar.low)), number(x(bar.high))
            intervals += f"M{low} {number(y)}H{high}M{low} {number(y - 3)}v6M{high} {number(y - 3)}v6"
        dots += f"M{number(at - 2.8)} {number(y)}a2.8 2.8 0 1 0 5.6 0a2.8 2.8 0 1 0 -5.6 0"
        if bar.truth is not None:
            diamonds += f"M{number(x(bar.truth))} {number(y - 5)}l4.2 5l-4.2 5l-4.2 -5z"
    shown = path("rule", grid) + path("bar", bars) + path("reach", intervals) + path("dot", dots)
    return drawing(
        WIDTH, bottom + 20, _attribute_words(figure), shown + path("true", diamonds) + f"<g>{names}{axis}</g>"
    )


def dependency_chart(names: Sequence[str], pairs: Sequence[Pair]) -> str:
    """The attributes on an oval, a line between dependent ones, thicker for more mutual information.

    Neighbours on either side are equally far apart in height, so that names never overlap however many there are.
    """
    right = (len(names) + 1) // 2
    height = max(200, _NODE_GAP * right + 16)
    middle, tall = (WIDTH / 2, height / 2), height / 2 - 12
    place: dict[str, tuple[float, float]] = {}
    for side, members in ((1, names[:right]), (-1, names[right:][::-1])):
        for i, name in enumerate(members):
            up = -1 + (2 * i + 1) / len(members)
            place[name] = middle[0] + side * _GRAPH_RADIUS * sqrt(1 - up * up), middle[1] + tall * up
    top = max(pair.bits for pair in pairs)
    lines = ""
    for pair in reversed(pairs):
        (x1, y1), (x2, y2) = place[pair.first], place[pair.second]
        weight = pair.bits / top
        look = f' stroke-width="{0.8 + 5.2 * weight:.1f}" opacity="{0.35 + 0.6 * weight:.2f}"'
        lines += path("edge", f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", look)
    dots = "".join(f'<circle cx="{number(x)}" cy="{number(y)}" r="3.6"/>' for x, y in place.values())
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


# --------------------
# Heat maps of pairs as inline SVG, with the numbers in the cells where there is room for them.

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
