"""Figures as points over pale bars with their intervals: the chart of attributes in pages and of answers in notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dither.display.svg import drawing, fit_all, label, number, path, share, text_width, ticks

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


def bar_chart(bars: Sequence[Bar], words: str, tick: Callable[[float], str] = share) -> Markup:
    """Estimates as points over pale bars from zero, with intervals, and hollow diamonds for the truth; `words` are read aloud."""
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
    return drawing(WIDTH, bottom + 20, words, inside)


def dot(x: float, y: float) -> str:
    """A filled circle as steps of a path."""
    return f"M{number(x - 2.8)} {number(y)}a2.8 2.8 0 1 0 5.6 0a2.8 2.8 0 1 0 -5.6 0"
