"""Charts, tables and text for notebooks, pages and terminals; outside text is escaped."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from dither.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from dither.types import NativeTable

FONT_SIZE = 12
_NARROW = frozenset("iIjl.,:;'|!()[]{}ftr -/")
# Control characters, and those that change the direction of text (Unicode annex 9).
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_WIDE = frozenset("MWmw@%&—…+<>=~")


def printable(text: str) -> str:
    """The text with control characters and bidirectional overrides escaped.

    Tabs and line ends stay.

    Labels, names and warnings of a release come from its files. Printed as they are, they could
    move the cursor or recolour a terminal.
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def drawing(width: float, height: float, words: str, inside: str, marks: str = "") -> Markup:
    """An inline SVG with its text alternative; `inside` consists of the pieces below.

    With `marks` it is a group whose marks can be pointed at and read one by one.
    """
    box = f"0 0 {number(width)} {number(height)}"
    role = "group" if marks else "img"
    return Markup(
        f'<svg role="{role}" aria-label="{escape(words, quote=True)}" viewBox="{box}">'
        f"{inside}{marks}</svg>"
    )


def mark(x: float, y: float, width: float, height: float, words: str) -> str:
    """A transparent area over a figure of a chart, which names it with its interval."""
    place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return (
        f'<g class="mark" role="img"><title>{escape(words, quote=False)}</title><rect {place}/></g>'
    )


def label(x: float, y: float, words: str, css: str = "", turn: float = 0.0) -> str:
    """A line of text; `css` "e" ends at x, "m" is centred at x; `turn` is in degrees."""
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
    """The text, cut with an ellipsis at this number of pixels."""
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


def ticks(top: float, most: int = 4, low: float = 0.0) -> list[float]:
    """Evenly spaced round numbers from `low` to `top`, with at most this number of steps."""
    if top <= low:
        return [low]
    raw = (top - low) / most
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * m for m in (1, 2, 2.5, 5, 10) if scale * m >= raw * (1 - 1e-9))
    return [
        step * i for i in range(math.ceil(low / step - 1e-9), math.floor(top / step + 1e-9) + 1)
    ]


def short_number(value: float) -> str:
    """A number as a tick's label, with few digits, thousands as k and millions as M."""
    size = abs(value)
    scale, unit = 1.0, ""
    if 1e6 <= size < 1e12:
        scale, unit = 1e6, "M"
    elif 1e4 <= size < 1e6:
        scale, unit = 1e3, "k"
    return f"{value / scale:.4g}{unit}".replace("-", "\N{MINUS SIGN}")


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


# Colours of heat maps: frequencies from dark to bright, half-widths of intervals from
# pale to dark. Viridis (Smith, van der Walt, Firing, 2015; public domain) at 16 even
# steps, and a ramp of one hue for uncertainty. fmt: off
VIRIDIS = [
    "#440154",
    "#481a6c",
    "#472f7d",
    "#414487",
    "#39568c",
    "#31688e",
    "#2a788e",
    "#23888e",
    "#1f988b",
    "#22a884",
    "#35b779",
    "#54c568",
    "#7ad151",
    "#a5db36",
    "#d2e21b",
    "#fde725",
]
AMBER = [
    "#fff6e5",
    "#ffe9c4",
    "#fedaa0",
    "#fcc87a",
    "#f7b355",
    "#ec9c39",
    "#db8425",
    "#c46c18",
    "#a85610",
    "#8a430b",
    "#6c3208",
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
    """Whether black has more contrast than white on this colour; the better one has 4.5 to 1."""
    return _luminance(colour) > 0.1791  # where (L + 0.05) / 0.05 = 1.05 / (L + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance of a colour such as #25313c (WCAG 2.2)."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (v / 255 for v in _channels(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


WIDTH = 340  # of a phone
_ROW = 19
_LABEL_ROOM = 128


@dataclass(frozen=True)
class Bar:
    """One value, or a group of values, of an attribute, or one answer."""

    label: str
    estimate: float
    low: float | None = None
    high: float | None = None
    truth: float | None = None


def bar_chart(
    bars: Sequence[Bar],
    words: str,
    tick: Callable[[float], str] = share,
    marks: Sequence[str] = (),
) -> Markup:
    """Estimates as points over pale bars from zero, with intervals; diamonds mark the truth.

    `words` is the text alternative, `marks` the text of each bar where it can be pointed at.
    """
    labels = fit_all([bar.label for bar in bars], _LABEL_ROOM)
    left = max(text_width(shown) for shown in labels) + 8
    reach = [
        v for bar in bars for v in (bar.estimate, bar.low, bar.high, bar.truth) if v is not None
    ]
    low, top = min(0.0, *reach), max(*reach, 1e-6) * 1.02
    bottom = _ROW * len(labels) + 4
    right = WIDTH - 16

    def x(value: float) -> float:
        return left + (right - left) * (value - low) / (top - low)

    grid, axis = "", ""
    for at in ticks(top, low=low):
        grid += f"M{number(x(at))} 0V{number(bottom)}"
        axis += label(x(at), bottom + 15, tick(at), "m")
    drawn, intervals, dots, diamonds, names = "", "", "", "", ""
    for i, (shown, bar) in enumerate(zip(labels, bars, strict=True)):
        y = _ROW * i + _ROW / 2 + 1
        end, zero = x(bar.estimate), number(x(0.0))
        names += label(left - 6, y + 4, shown, "e")
        drawn += f"M{zero} {number(y - 6)}H{number(end)}v12H{zero}z"
        if bar.low is not None and bar.high is not None:
            begins, ends = number(x(bar.low)), number(x(bar.high))
            intervals += (
                f"M{begins} {number(y)}H{ends}M{begins} {number(y - 3)}v6M{ends} {number(y - 3)}v6"
            )
        dots += dot(end, y)
        if bar.truth is not None:
            diamonds += f"M{number(x(bar.truth))} {number(y - 5)}l4.2 5l-4.2 5l-4.2 -5z"
    inside = path("rule", grid) + path("bar", drawn) + path("reach", intervals) + path("dot", dots)
    inside += path("true", diamonds) + f"<g>{names}{axis}</g>"
    areas = "".join(mark(0, _ROW * i + 1, WIDTH, _ROW, text) for i, text in enumerate(marks))
    return drawing(WIDTH, bottom + 20, words, inside, areas)


def dot(x: float, y: float) -> str:
    """A filled circle as steps of a path."""
    return f"M{number(x - 2.8)} {number(y)}a2.8 2.8 0 1 0 5.6 0a2.8 2.8 0 1 0 -5.6 0"


# A picture on its own has no page to paint it: the same colours as the pages'.
STYLE = """svg { background: #ffffff; font-family: system-ui, sans-serif; --ink: #25313c; --line: #d9dfe5; --estimate: #0072b2; }
@media (prefers-color-scheme: dark) { svg { background: #1b232b; --ink: #e4eaf0; --line: #38444f; --estimate: #56b4e9; } }
text { fill: var(--ink); font-size: 12px; } .e { text-anchor: end; } .m { text-anchor: middle; }
.rule { fill: none; stroke: var(--line); } .bar { fill: var(--estimate); opacity: .22; } .dot { fill: var(--estimate); }
.reach { fill: none; stroke: var(--estimate); stroke-width: 1.8; } .node { fill: var(--ink); }
.edge { fill: none; stroke: var(--estimate); stroke-linecap: round; } .mark rect { fill: none; pointer-events: all; }
.k { fill: #000; } .w { fill: #fff; } .n { text-anchor: middle; font-size: 11px; } .hatch { fill: none; stroke-width: 1; }
.first { color: #0072b2; } .second { color: #b84c00; } .side { fill: currentColor; stroke: currentColor; stroke-width: 1.6; }
@media (prefers-color-scheme: dark) { .first { color: #56b4e9; } .second { color: #f39c4a; } }"""
_OPENING = re.compile(
    r'<svg role="(?:img|group)" aria-label="([^"]*)" viewBox="0 0 ([\d.]+) ([\d.]+)">'
)


@dataclass(frozen=True)
class Picture:
    """A picture that a notebook shows; `svg` is the file, `words` the text alternative."""

    svg: str
    words: str

    def save(self, path: str | Path) -> Path:
        """Write it as an SVG file."""
        Path(path).write_text(self.svg, encoding="utf-8")
        return Path(path)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        # As an image: its style stays its own, and nothing in it can act on the page.
        data = base64.b64encode(self.svg.encode()).decode()
        return f'<img alt="{escape(self.words)}" src="data:image/svg+xml;base64,{data}">'

    def __repr__(self) -> str:
        return f"Picture({self.words})"


def stand_alone(chart: Markup) -> Picture:
    """A chart of a page as a standalone picture with its own style."""
    opening = _OPENING.match(chart)
    if opening is None:
        raise ValueError("not a chart")
    words, width, height = opening.groups()
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{words}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{STYLE}</style>'
    )
    return Picture(head + str(chart)[opening.end() :], str(Markup(words).unescape()))


def html_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str, figures: int
) -> str:
    """A table of text; the last `figures` columns are numbers and stand to the right."""
    words = len(headings) - figures

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ["left"] * words + ["right"] * figures
        return "".join(
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    head = f"<thead><tr>{line(headings, 'th')}</tr></thead>" if any(headings) else ""
    title = f'<caption style="text-align:left">{escape(caption)}</caption>'
    return f"<table>{title}{head}<tbody>{body}</tbody></table>"


def html_list(items: Sequence[str], title: str) -> str:
    """Sentences under a title; nothing if there are none."""
    if not items:
        return ""
    return f"<p>{escape(title)}</p><ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


def as_pandas(table: pa.Table) -> NativeTable:
    """A pandas DataFrame of a PyArrow table."""
    _needed("pandas")
    return table.to_pandas()


def as_polars(table: pa.Table) -> NativeTable:
    """A polars DataFrame of a PyArrow table."""
    return _needed("polars").from_arrow(table)


def _needed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InputError(
            f"{name} is not installed: pip install {name}, or use to_arrow()", where=name
        ) from None
