"""A report's charts as inline SVG, each drawn for the width of a phone, so that its text keeps its size there."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from dither.release.figures import AttributeFigure
from dither.release.pairs import Pair
from dither.release.svg import FONT_SIZE, drawing, fit, fit_all, label, number, path, share, text_width, ticks

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
