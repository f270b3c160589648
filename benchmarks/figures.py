"""Pictures of the stored results, as SVG for light and dark pages: one for each chart of a study.

`dither bench NAME --store` and `python -m benchmarks.results` write them to docs/pictures/results from results.json. Figures that
a paper prints are hollow markers. Charts that only the pictures have, such as the bars of a paper's figure, are in `MORE`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from dither.lab.harness.page import digits, label, words

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "results"
Figure = dict[str, Any]
WIDTH, HEIGHT, COLUMNS = 250, 190, 3
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 26, 34
HUES_LIGHT = (
    "#0b5fa5", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#0f766e", "#a16207", "#475569",
)  # fmt: skip
HUES_DARK = (
    "#60a5fa", "#fb923c", "#4ade80", "#c084fc", "#f87171", "#2dd4bf", "#facc15", "#94a3b8",
)  # fmt: skip
DASHES = ("", "5 3", "2 2", "8 3 2 3")
# Values further apart than this are drawn on a logarithmic axis.
LOG_RATIO = 15
# Charts of the papers' figures that a benchmark's page shows as a table only.
MORE: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("chp", "figures_1_to_3"): [
        {"x": "bin", "y": None, "colour": "measure", "panels": ["dataset", "consumer"], "only": {}}
    ],
    ("chp", "figure7"): [
        {
            "x": "measure",
            "y": None,
            "colour": "method",
            "panels": ["dataset", "epsilon"],
            "only": {},
        }
    ],
    ("lopub", "joints_as_printed"): [
        {"x": "f", "y": "avd", "colour": "method", "panels": ["dataset", "k"], "only": {}}
    ],
    ("csm", "records"): [
        {"x": "epsilon", "y": "share_error", "colour": "method", "panels": ["dataset"], "only": {}}
    ],
}


def pictures(stored: dict[str, dict[str, Any]]) -> dict[str, str]:
    """All pictures by file name."""
    found = {}
    for bench, entry in stored.items():
        for study in entry["studies"]:
            for name, chart in charts_of(bench, study).items():
                drawn = draw(entry, study, chart)
                if drawn:
                    found[name] = drawn
    return found


def charts_of(bench: str, study: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The charts of a study by the file name of their picture."""
    charts = [*study["charts"], *MORE.get((bench, study["name"]), [])]
    named: dict[str, dict[str, Any]] = {}
    for chart in charts:
        base = "-".join(filter(None, (bench, study["name"], chart["y"]))).replace("_", "-")
        number = sum(name.startswith(base) for name in named)
        named[f"{base}{f'-{number + 1}' if number else ''}.svg"] = chart
    return named


def write(stored: dict[str, dict[str, Any]], folder: Path = PICTURES) -> None:
    """Write all pictures and delete those of charts that are gone."""
    folder.mkdir(exist_ok=True)
    made = pictures(stored)
    for old in folder.glob("*.svg"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


def draw(entry: dict[str, Any], study: dict[str, Any], chart: dict[str, Any]) -> str:
    """One chart: a panel for each combination of the panels' labels; empty if it has no figures."""
    rows = _rows(entry["figures"], study["name"], chart)
    if not rows:
        return ""
    places = {tuple(row["labels"].get(name) for name in chart["panels"]): None for row in rows}
    lines = list(dict.fromkeys(_line(row, chart) for row in rows))
    columns = min(COLUMNS, len(places))
    deep = math.ceil(len(places) / columns)
    legend = 22 + 16 * math.ceil(len(lines) / 2)
    width, height = max(columns * WIDTH, 2 * WIDTH), deep * HEIGHT + legend
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="10" role="img">',
        f"<title>{escape(study['title'])}: {escape(words(chart['y'] or 'value'))}</title>",
        f"<style>{_style()}</style>",
        f'<rect class="back" width="{width}" height="{height}"/>',
    ]
    for number, place in enumerate(places):
        chosen = [r for r in rows if tuple(r["labels"].get(n) for n in chart["panels"]) == place]
        x, y = number % columns * WIDTH, number // columns * HEIGHT
        title = ", ".join(_named(n, v) for n, v in zip(chart["panels"], place, strict=True))
        out.append(f'<g transform="translate({x} {y})">')
        out += _panel(title, chosen, chart, lines)
        out.append("</g>")
    out += _legend(lines, deep * HEIGHT, width)
    return "\n".join([*out, "</svg>"]) + "\n"


def _named(name: str, value: Any) -> str:
    """A panel's label: a text as it is, a number with its name."""
    return value if isinstance(value, str) else f"{words(name)} {label(value)}"


def _rows(figures: Sequence[Figure], study: str, chart: dict[str, Any]) -> list[Figure]:
    """The figures of a chart; the measure is a label of its own."""
    rows = [
        {**f, "labels": {**f["labels"], "measure": f["measure"]}}
        for f in figures
        if f["study"] == study and chart["y"] in (None, f["measure"])
    ]
    return [
        row
        for row in rows
        if chart["x"] in row["labels"]
        and all(row["labels"].get(name) in kept for name, kept in chart["only"].items())
    ]


def _line(row: Figure, chart: dict[str, Any]) -> tuple[str, bool]:
    """A line's name and whether a paper prints its figures."""
    name = _named(chart["colour"], row["labels"].get(chart["colour"], "all"))
    return words(name), row["labels"].get("source") == "published"


def _style() -> str:
    """Colours for light pages, and for dark ones by the reader's setting."""
    light = "".join(f".h{i}{{stroke:{c}}}.f{i}{{fill:{c}}}" for i, c in enumerate(HUES_LIGHT))
    dark = "".join(f".h{i}{{stroke:{c}}}.f{i}{{fill:{c}}}" for i, c in enumerate(HUES_DARK))
    return (
        "text{fill:#222}.back{fill:#fff}.rule{stroke:#ddd}.line{fill:none;stroke-width:1.6}"
        f".hollow{{fill:#fff;stroke-width:1.6}}{light}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.back{fill:#16181c}.rule{stroke:#3a3f47}"
        f".hollow{{fill:#16181c}}{dark}}}"
    )


class _Axis:
    """Positions along one axis: by size, by logarithm, or side by side for names."""

    def __init__(self, values: Sequence[Any], start: float, end: float, zero: bool) -> None:
        self.start, self.end = start, end
        self.names = [] if all(isinstance(v, (int, float)) for v in values) else list(values)
        numbers = [] if self.names else [float(v) for v in values]
        positive = bool(numbers) and min(numbers) > 0
        self.log = positive and max(numbers) > LOG_RATIO * min(numbers)
        self.low = min(numbers, default=0.0)
        self.high = max(numbers, default=1.0)
        if zero and not self.log:
            self.low = min(0.0, self.low)
        if self.high == self.low:
            self.high = self.low + 1

    def at(self, value: Any) -> float:
        """The position of a value."""
        if self.names:
            share = (self.names.index(value) + 0.5) / len(self.names)
        elif self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def marks(self) -> list[Any]:
        """Values that get a text."""
        if self.names:
            return self.names
        if self.log:
            least, most = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            powers = [10.0**k for k in range(least, most + 1)]
            if len(powers) > 2:
                return powers
            finer = [f * 10.0**k for k in range(least - 1, most + 1) for f in (1, 2, 5)]
            return [mark for mark in finer if self.low <= mark <= self.high]
        step = 10.0 ** math.floor(math.log10(self.high - self.low))
        for finer in (1.0, 0.5, 0.25, 0.2):
            first = math.ceil(self.low / (step * finer) - 1e-9)
            last = math.floor(self.high / (step * finer) + 1e-9)
            if last - first >= 2:
                break
        return [k * step * finer for k in range(first, last + 1)]


def _panel(
    title: str,
    rows: Sequence[Figure],
    chart: dict[str, Any],
    lines: Sequence[tuple[str, bool]],
) -> list[str]:
    """Axes, lines and markers of one panel."""
    ups = [row["mean"] for row in rows if math.isfinite(row["mean"])]
    across = dict.fromkeys(row["labels"][chart["x"]] for row in rows)
    horizontal = _Axis(list(across), LEFT, WIDTH - RIGHT, zero=False)
    vertical = _Axis(ups, HEIGHT - BOTTOM, TOP, zero=True)
    out = [f'<text x="{LEFT}" y="16" font-weight="bold">{escape(title)}</text>']
    for mark in vertical.marks():
        y = vertical.at(mark)
        out.append(f'<path class="rule" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        out.append(
            f'<text x="{LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{digits(mark, 2)}</text>'
        )
    room = int(34 / max(1, len(horizontal.names)))
    for mark in horizontal.marks():
        # Bins are named by their lower ends.
        text = label(mark).split(" to ")[0][:room] if horizontal.names else digits(mark, 2)
        out.append(
            f'<text x="{horizontal.at(mark):.1f}" y="{HEIGHT - BOTTOM + 13}" text-anchor="middle">'
            f"{escape(words(text))}</text>"
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(
        f'<text x="{middle:.0f}" y="{HEIGHT - 7}" text-anchor="middle">'
        f"{escape(words(chart['x']))}; up: {escape(words(chart['y'] or 'value'))}</text>"
    )
    for number, line in enumerate(lines):
        own = [row for row in rows if _line(row, chart) == line and math.isfinite(row["mean"])]
        points = [(horizontal.at(r["labels"][chart["x"]]), vertical.at(r["mean"])) for r in own]
        out += _drawn(sorted(points), number, line[1], bool(horizontal.names))
    return out


def _drawn(
    points: Sequence[tuple[float, float]], number: int, published: bool, names: bool
) -> list[str]:
    """A line with markers; figures that a paper prints are hollow, and names are not joined."""
    hue = number % len(HUES_LIGHT)
    out = []
    if len(points) > 1 and not names:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dash = DASHES[number // len(HUES_LIGHT) % len(DASHES)]
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        out.append(f'<path class="line h{hue}"{dashed} d="M{path}"/>')
    kind = f"hollow h{hue}" if published else f"f{hue}"
    radius = 3.2 if published else 2.2
    out += [f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>' for x, y in points]
    return out


def _legend(lines: Sequence[tuple[str, bool]], top: float, width: float) -> list[str]:
    out = []
    for number, (name, published) in enumerate(lines):
        x = LEFT + number % 2 * width / 2
        y = top + 14 + number // 2 * 16
        out += _drawn([(x, y), (x + 18, y)], number, published, names=False)
        text = f"{name}, published" if published else name
        out.append(f'<text x="{x + 26:.0f}" y="{y + 3:.0f}">{escape(text)}</text>')
    return out
