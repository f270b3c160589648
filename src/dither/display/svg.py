"""Small pieces of SVG, written as text: no script, no drawing library, nothing fetched when shown.

Colours and type come from classes that the pages' style sheet paints, in dark mode too. Room for text is reckoned with a wide
font in mind: which font the reader's browser has is not known here. `drawing` marks a picture as safe to stand in a page; all
text in it went through `label`, which escapes, or is escaped there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from markupsafe import Markup

FONT_SIZE = 12
_NARROW = frozenset("iIjl.,:;'|!()[]{}ftr -/")
_WIDE = frozenset("MWmw@%&—…+<>=~")


def drawing(width: float, height: float, words: str, inside: str) -> Markup:
    """An inline picture with its text alternative, safe to stand in a page; `inside` is made of the pieces below."""
    box = f"0 0 {number(width)} {number(height)}"
    return Markup(
        f'<svg role="img" aria-label="{escape(words, quote=True)}" viewBox="{box}">{inside}</svg>'
    )


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


def ticks(top: float, most: int = 4, low: float = 0.0) -> list[float]:
    """Round figures from `low` up to `top`, evenly spaced and at most so many steps."""
    if top <= low:
        return [low]
    raw = (top - low) / most
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * m for m in (1, 2, 2.5, 5, 10) if scale * m >= raw * (1 - 1e-9))
    return [
        step * i for i in range(math.ceil(low / step - 1e-9), math.floor(top / step + 1e-9) + 1)
    ]


def short_number(value: float) -> str:
    """A number as a tick's label: in as few digits as it needs, large ones in thousands (k) and millions (M)."""
    size = abs(value)
    scale, unit = (
        (1e6, "M") if 1e6 <= size < 1e12 else (1e3, "k") if 1e4 <= size < 1e6 else (1.0, "")
    )
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
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (v / 255 for v in _channels(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
