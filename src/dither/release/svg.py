"""Small pieces of SVG for a report's charts, written as text: no script, no drawing library, nothing fetched when shown.

Colours and type come from classes that the report's style sheet paints, in dark mode too. Room for text is reckoned with a wide
font in mind: which font the reader's browser has is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

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
