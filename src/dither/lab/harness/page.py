"""The page of a benchmark: one HTML file with inline SVG that runs no script and loads no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dither
from dither.lab.harness.study import Chart, MeanRow, Outcome
from dither.release.charts import HUES, Line, line_chart
from dither.release.pages import render_page

TEMPLATES = Path(__file__).with_name("templates")
# Longer tables are folded.
_OPEN_ROWS = 24


def render(outcome: Outcome) -> str:
    """The page of one benchmark."""
    bench = outcome.bench
    studies = []
    for study in bench.studies:
        rows = [row for row in outcome.summary if row["study"] == study.name]
        drawn = [chart for each in study.charts if (chart := draw(each, rows))]
        studies.append(
            {
                "name": study.name,
                "title": study.title,
                "note": study.note,
                **_charts(drawn),
                "table": table(rows),
            }
        )
    return render_page(
        "benchmark.html",
        title=bench.title,
        version=dither.__version__,
        folder=TEMPLATES,
        bench=bench,
        facts=bench.facts,
        seconds=outcome.seconds,
        notes=outcome.notes,
        studies=studies,
        open_rows=_OPEN_ROWS,
    )


def _charts(drawn: list[dict[str, Any]]) -> dict[str, Any]:
    """Charts below each other; charts of one panel each share a row and a legend."""
    single = len(drawn) > 1 and all(len(c["panels"]) == 1 and not c["panels"][0][0] for c in drawn)
    legend = sorted({entry for chart in drawn for entry in chart["legend"]})
    return {"charts": drawn, "legend": legend if single else None}


def contents(outcomes: Mapping[str, Outcome]) -> str:
    """A page with links to the pages of several benchmarks."""
    benches = {name: outcome.bench for name, outcome in outcomes.items()}
    return render_page(
        "benchmarks.html",
        title="Benchmarks",
        version=dither.__version__,
        folder=TEMPLATES,
        benches=benches,
    )


def table(rows: Sequence[MeanRow]) -> dict[str, Any]:
    """A line for each combination of labels, a column for each measure."""
    labels = list(dict.fromkeys(name for row in rows for name in row["labels"]))
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    lines: dict[tuple[Any, ...], dict[str, MeanRow]] = {}
    for row in rows:
        key = tuple(row["labels"].get(name) for name in labels)
        lines.setdefault(key, {})[row["measure"]] = row
    return {
        "labels": [words(name) for name in labels],
        "measures": [words(name) for name in measures],
        "lines": [
            ([label(v) for v in key], [_figure(figures.get(m)) for m in measures])
            for key, figures in lines.items()
        ],
    }


def draw(chart: Chart, rows: Sequence[MeanRow]) -> dict[str, Any] | None:
    """The panels of a chart, with bars of one spread to each side; None without any point.

    The table below a chart is its text alternative.
    """
    # A line has the same colour in all charts of a study, even if a chart omits other lines.
    names = dict.fromkeys(_line(chart, row) for row in rows)
    hues = {name: i % HUES for i, name in enumerate(names)}
    panels: dict[str, dict[str, list[tuple[float, float, float, float]]]] = {}
    for row in rows:
        if (point := _point(chart, row)) is not None:
            lines = panels.setdefault(_panel(chart, row), {})
            lines.setdefault(_line(chart, row), []).append(point)
    if not panels:
        return None
    places = [
        sorted({x for points in lines.values() for x, *_ in points}) for lines in panels.values()
    ]
    # A panel with one place has no scale, so it takes the places of all panels.
    shared: Sequence[float] = ()
    if any(len(each) == 1 for each in places):
        shared = sorted({x for each in places for x in each})
    title = chart.title or f"{words(chart.y)} against {words(chart.x)}"
    shown = dict.fromkeys(name for lines in panels.values() for name in lines)
    axes = (words(chart.x), words(chart.y))
    drawings = []
    for panel, lines in panels.items():
        heading = f"{title}, {panel}" if panel else title
        drawing = line_chart(
            [Line(hues[name], sorted(points)) for name, points in lines.items()],
            axes,
            f"{heading}; the table below has the numbers",
            places=shared,
            log_x=chart.log_x,
            log_y=chart.log_y,
        )
        drawings.append((panel, drawing))
    return {
        "title": title,
        "legend": [(hues[name], name) for name in shown],
        "panels": drawings,
    }


def _point(chart: Chart, row: MeanRow) -> tuple[float, float, float, float] | None:
    """Place, mean and the ends of its spread; None for a row that the chart does not show."""
    labels, mean = row["labels"], row["mean"]
    wanted = row["measure"] == chart.y and all(labels.get(k) in v for k, v in chart.only.items())
    numeric = isinstance(labels.get(chart.x), int | float)
    if not wanted or not numeric or (chart.log_y and mean <= 0):
        return None
    spread = row["spread"] or 0.0
    low = max(mean - spread, mean / 20) if chart.log_y else mean - spread
    return float(labels[chart.x]), mean, low, mean + spread


def _panel(chart: Chart, row: MeanRow) -> str:
    shown = [(name, row["labels"][name]) for name in chart.panels if name in row["labels"]]
    return ", ".join(
        label(v) if isinstance(v, str) else f"{words(name)} {label(v)}" for name, v in shown
    )


def _line(chart: Chart, row: MeanRow) -> str:
    """The name of the line that a row belongs to."""
    published = " (published)" if row["labels"].get("source") == "published" else ""
    return label(row["labels"].get(chart.colour, "")) + published


def words(name: str) -> str:
    """The name of a column in words."""
    return name.replace("_", " ")


def label(value: Any) -> str:
    """The value of a label as text: thousands with commas, empty for None."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1000:
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _figure(row: MeanRow | None) -> str:
    if row is None:
        return ""
    mean = digits(row["mean"], 4)
    if row["spread"] is None or row["runs"] < 2:
        return mean
    return f"{mean} ± {digits(row['spread'], 2)}"


def digits(value: float, figures: int) -> str:
    """A number with this many significant digits; large numbers are whole, without exponent."""
    return f"{value:,.0f}" if abs(value) >= 10**figures else f"{value:.{figures}g}"
