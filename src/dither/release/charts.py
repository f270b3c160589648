"""Charts as inline SVG: drawn by Altair and vl-convert, no script and nothing fetched when they are shown.

Colours are fixed markers that the report's style sheet repaints in dark mode. Every chart is drawn for the width of a
phone, so that its text keeps its size there. Room for labels is reckoned from their length with a wide font in mind:
which font the reader's browser has is not known here.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from html import escape
from math import cos, pi, sin
from typing import Any

from dither.release.figures import AttributeFigure, HeatMap, Pair

WIDTH = 340
INK = "#25313c"
LINE = "#d9dfe5"
ESTIMATE = "#0072b2"
TRUTH = "#b84c00"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_LABEL_LENGTH = 19


def attribute_chart(figure: AttributeFigure) -> str:
    """An attribute's estimates as points over pale bars, with 95 % intervals, and hollow diamonds for the truth."""
    import altair as alt

    labels = _distinct([bar.label for bar in figure.bars])
    rows = [
        {"label": label, "estimate": bar.estimate, "low": bar.low, "high": bar.high, "truth": bar.truth}
        for label, bar in zip(labels, figure.bars, strict=True)
    ]
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        y=alt.Y("label:N", sort=None, title=None, axis=alt.Axis(minExtent=_room(labels), grid=False, ticks=False))
    )
    x = alt.X("estimate:Q", title=None, axis=alt.Axis(format="~%", tickCount=4, labelFlush=False, labelOverlap=True))
    layers = [base.mark_bar(color=ESTIMATE, opacity=0.22, cornerRadiusEnd=2).encode(x=x)]
    if any(bar.low is not None for bar in figure.bars):
        layers.append(base.mark_rule(color=ESTIMATE, strokeWidth=2).encode(x="low:Q", x2="high:Q"))
    layers.append(base.mark_point(color=ESTIMATE, filled=True, size=34, opacity=1).encode(x=x))
    if any(bar.truth is not None for bar in figure.bars):
        diamond = base.mark_point(color=TRUTH, shape="diamond", size=62, strokeWidth=1.8, opacity=1)
        layers.append(diamond.encode(x="truth:Q"))
    chart = alt.layer(*layers).properties(width=WIDTH, height=max(60, 18 * len(rows) + 30))
    return _svg(chart, _attribute_words(figure))


def heat_charts(heat: HeatMap) -> list[str]:
    """An SVG of the estimate and, if there is something to set beside it, of that; both share their colours."""
    shown = [("estimate", heat.estimate)]
    if heat.beside is not None:
        shown.append((heat.beside_title, heat.beside))
    top = max(float(values.max()) for _, values in shown)
    pair = f"{heat.pair.first} and {heat.pair.second}"
    return [
        _heat_chart(heat, values, top, f"Heat map of {pair}, {title}. {_largest(heat, values)}")
        for title, values in shown
    ]


def dependency_chart(names: Sequence[str], pairs: Sequence[Pair]) -> str:
    """The attributes on a circle, a line between dependent ones, thicker for more mutual information."""
    import altair as alt

    place = {name: (cos(t), sin(t)) for name, t in _angles(names)}
    top = max(pair.bits for pair in pairs)
    edges = [
        {
            "x": place[p.first][0],
            "y": place[p.first][1],
            "x2": place[p.second][0],
            "y2": place[p.second][1],
            "width": 0.8 + 5.2 * p.bits / top,
            "opacity": 0.3 + 0.6 * p.bits / top,
        }
        for p in reversed(pairs)
    ]
    scale = alt.Scale(domain=[-2.05, 2.05], nice=False, zero=False)
    x, y = (
        alt.X("x:Q", axis=None, scale=scale),
        alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-1.3, 1.3], nice=False)),
    )
    lines = alt.Chart(alt.InlineData(values=edges)).mark_rule(color=ESTIMATE, strokeCap="round")
    lines = lines.encode(
        x=x,
        y=y,
        x2="x2:Q",
        y2="y2:Q",
        strokeWidth=alt.StrokeWidth("width:Q", scale=None),
        opacity=alt.Opacity("opacity:Q", scale=None),
    )
    dots = [{"x": a, "y": b} for a, b in place.values()]
    layers = [lines, alt.Chart(alt.InlineData(values=dots)).mark_circle(color=INK, size=40, opacity=1).encode(x=x, y=y)]
    for align, wanted in (("left", 1), ("right", -1), ("center", 0)):
        named = [
            {"x": 1.09 * a, "y": 1.09 * b if side else 1.16 * b, "name": _short(name, 17)}
            for name, (a, b) in place.items()
            for side in [0 if abs(a) < 0.05 else (1 if a > 0 else -1)]
            if side == wanted
        ]
        if named:
            text = alt.Chart(alt.InlineData(values=named)).mark_text(align=align, color=INK, fontSize=11)
            layers.append(text.encode(x=x, y=y, text="name:N"))
    height = 260 if len(names) <= 24 else 340
    strongest = "; ".join(f"{p.first} and {p.second}, {p.bits:.3f} bits" for p in pairs[:3])
    words = f"Graph of {len(pairs)} dependencies between {len(names)} attributes. Strongest: {strongest}."
    return _svg(alt.layer(*layers).properties(width=WIDTH + 20, height=height), words)


def _heat_chart(heat: HeatMap, values: Any, top: float, words: str) -> str:
    import altair as alt

    rows, columns = _distinct(heat.rows, 16), _distinct(heat.columns, 13)
    cells = [
        {"row": row, "column": column, "value": float(values[i, j])}
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    ]
    scale = alt.Scale(type="sqrt", domain=[0, top or 1.0], scheme="viridis", nice=False)
    legend = alt.Legend(format="~%", title=None, orient="bottom", gradientLength=190, gradientThickness=8, tickCount=3)
    shown = alt.Chart(alt.InlineData(values=cells)).mark_rect()
    across = alt.Axis(labelAngle=-55, grid=False, ticks=False, minExtent=0.85 * _room(columns) + 4)
    down = alt.Axis(grid=False, ticks=False, minExtent=_room(rows))
    shown = shown.encode(
        x=alt.X("column:N", sort=None, title=None, axis=across),
        y=alt.Y("row:N", sort=None, title=None, axis=down),
        color=alt.Color("value:Q", scale=scale, legend=legend),
    )
    height = max(110, 15 * len(rows)) + 0.85 * _room(columns) + 44
    return _svg(shown.properties(width=WIDTH, height=height), words)


def _svg(chart: Any, words: str) -> str:
    """Render, drop what inline SVG does not need, keep ids apart from other charts', and give it a text alternative."""
    import vl_convert

    axis = {"labelColor": INK, "titleColor": INK, "gridColor": LINE, "domainColor": LINE, "tickColor": LINE}
    text = {"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal", "labelLimit": 150, "labelPadding": 5}
    spec = chart.to_dict()
    spec["autosize"] = {"type": "fit", "contains": "padding"}
    spec["background"] = None
    spec["padding"] = 2
    spec["config"] = {
        "aria": False,
        "font": _FONT,
        "view": {"stroke": None},
        "axis": {**axis, **text},
        "legend": {"labelColor": INK, "titleColor": INK, "labelFontSize": 10, "labelOverlap": True},
    }
    svg: str = vl_convert.vegalite_to_svg(spec)
    svg = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", svg)
    svg = svg.replace(' aria-hidden="true"', "").replace(' pointer-events="none"', "")
    mark = f"c{zlib.crc32((svg + words).encode()):x}-"
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{mark}\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{mark}\1)", svg)
    shown = escape(words, quote=True)
    opening = f'<svg role="img" aria-label="{shown}"'
    return re.sub(r"<svg\b([^>]*)>", lambda m: f"{opening}{m.group(1)}><title>{shown}</title>", svg, count=1)


def _attribute_words(figure: AttributeFigure) -> str:
    largest = max(figure.bars, key=lambda bar: bar.estimate)
    words = f"Estimated distribution of {figure.name}, {len(figure.bars)} values. "
    words += f"Largest: {largest.label}, {largest.estimate:.1%}"
    if largest.low is not None and largest.high is not None:
        words += f" (95 % interval {largest.low:.1%} to {largest.high:.1%})"
    if largest.truth is not None:
        words += f", truth {largest.truth:.1%}"
    return f"{words}. All figures are in the table below."


def _largest(heat: HeatMap, values: Any) -> str:
    i, j = divmod(int(values.argmax()), values.shape[1])
    return f"Largest cell: {heat.rows[i]} with {heat.columns[j]}, {values[i, j]:.1%}."


def _room(labels: Sequence[str]) -> float:
    """Pixels that labels of size 11 take in a wide font."""
    return 6.7 * max(len(label) for label in labels) + 8


def _angles(names: Sequence[str]) -> list[tuple[str, float]]:
    return [(name, pi / 2 - 2 * pi * i / len(names)) for i, name in enumerate(names)]


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _distinct(labels: Sequence[str], most: int = _LABEL_LENGTH) -> list[str]:
    """Labels cut to a length that fits, numbered where cutting (or the schema) made two the same."""
    out: list[str] = []
    taken: set[str] = set()
    for label in labels:
        short, number = _short(label, most), 1
        while short in taken:
            number += 1
            short = f"{_short(label, most - 4)} ({number})"
        taken.add(short)
        out.append(short)
    return out
