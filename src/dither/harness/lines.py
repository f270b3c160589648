"""Line charts of the benchmarks' pages and of the pictures in the docs, as SVG; the frame is that of the releases' charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dither.display.bars import WIDTH, dot
from dither.display.svg import drawing, number, path, ticks
from dither.release.charts import FOOT, HEAD, HEIGHT, Axis, beside_labels, frame

HUES = 12  # the style sheet has a colour for each


@dataclass(frozen=True)
class Line:
    """A line of a chart by its colour; a point is its place, its figure and the ends of that figure's spread."""

    hue: int
    points: Sequence[tuple[float, float, float, float]]


class LogAxis(Axis):
    """The same by the numbers' logarithm."""

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self, most: int = 5) -> list[float]:
        """Powers of ten, unless there are fewer than two of them."""
        powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
        if len(powers) < 2:
            around = [
                m * 10.0**k for k in range(powers.start - 1, powers.stop + 1) for m in (1, 2, 5)
            ]
            inside = [value for value in around if self.low <= value <= self.high]
            return inside if len(inside) > 1 else ticks(self.high, most, self.low)
        return [10.0**k for k in powers[:: math.ceil(len(powers) / most)]]


def _axis(log: bool) -> type[Axis]:
    return LogAxis if log else Axis


def line_chart(
    lines: Sequence[Line],
    titles: tuple[str, str],
    words: str,
    *,
    places: Sequence[float] = (),
    log_x: bool = False,
    log_y: bool = False,
) -> Markup:
    """Lines with their points and spreads; `titles` are those of x and y, `places` further x that the axis has to hold."""
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
    """What is inside such a chart, for a picture that stands alone."""
    spots = sorted({*places, *(x for line in lines for x, *_ in line.points)})
    values = [v for line in lines for _, *reached in line.points for v in reached]
    bottom, top = _padded(min(values), max(values), log_y)
    up = _axis(log_y)(bottom if log_y else min(0.0, bottom), max(top, 1e-9), HEIGHT - FOOT, HEAD)
    first, last = (spots[0], spots[-1]) if len(spots) > 1 else _padded(spots[0], spots[0], log_x)
    across = _axis(log_x)(first, last, beside_labels(up), WIDTH - 20)
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
    return frame(across, up, spots if len(spots) <= 10 else across.ticks(), *titles) + drawn


def _padded(low: float, high: float, log: bool) -> tuple[float, float]:
    """A little room around what is drawn, and some where there is one figure only."""
    if log:
        return low / 1.3, high * 1.3
    room = 0.04 * (high - low) or 0.5 * abs(high) or 1.0
    return low - (room if low < 0 or low == high else 0.0), high + room
