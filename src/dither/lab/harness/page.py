"""A benchmark's page: charts and tables in one HTML file; inline SVG, no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dither
from dither.lab.harness.frames import Mean
from dither.lab.harness.study import Chart
from dither.release.charts import HUES, Line, line_chart
from dither.release.pages import render_page

if TYPE_CHECKING:
    from dither.lab.harness.run import Outcome

TEMPLATES = Path(__file__).with_name("templates")
OPEN_ROWS = 24  # longer tables are folded


def render(outcome: Outcome) -> str:
    """The whole page."""
    bench = outcome.bench
    rows = {
        study.name: [row for row in outcome.summary if row["study"] == study.name]
        for study in bench.studies
    }
    return render_page(
        "benchmark.html",
        title=bench.title,
        version=dither.__version__,
        folder=TEMPLATES,
        bench=bench,
        facts=bench.facts,
        seconds=outcome.seconds,
        notes=outcome.notes,
        studies=[
            {
                "name": study.name,
                "title": study.title,
                "note": study.note,
                **_charts(
                    [drawn for chart in study.charts if (drawn := draw(chart, rows[study.name]))]
                ),
                "table": table(rows[study.name]),
            }
            for study in bench.studies
        ],
        open_rows=OPEN_ROWS,
    )


def _charts(drawn: list[dict[str, Any]]) -> dict[str, Any]:
    """Charts one below the other, or side by side under one legend where each is a single panel."""
    single = len(drawn) > 1 and all(len(c["panels"]) == 1 and not c["panels"][0][0] for c in drawn)
    legend = sorted({entry for chart in drawn for entry in chart["legend"]})
    return {"charts": drawn, "legend": legend if single else None}


def contents(outcomes: Mapping[str, Outcome]) -> str:
    """A page that leads to the pages of several benchmarks."""
    benches = {name: outcome.bench for name, outcome in outcomes.items()}
    return render_page(
        "benchmarks.html",
        title="Benchmarks",
        version=dither.__version__,
        folder=TEMPLATES,
        benches=benches,
    )


def table(rows: Sequence[Mean]) -> dict[str, Any]:
    """One line for each combination of labels, one column for each measure."""
    labels = list(dict.fromkeys(name for row in rows for name in row["labels"]))
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    lines: dict[tuple[Any, ...], dict[str, Mean]] = {}
    for row in rows:
        lines.setdefault(tuple(row["labels"].get(name) for name in labels), {})[row["measure"]] = (
            row
        )
    return {
        "labels": [words(name) for name in labels],
        "measures": [words(name) for name in measures],
        "lines": [
            ([label(v) for v in key], [_figure(found.get(m)) for m in measures])
            for key, found in lines.items()
        ],
    }


def draw(chart: Chart, rows: Sequence[Mean]) -> dict[str, Any] | None:
    """A chart's panels, with a bar of one spread to each side; the table below it is its text alternative."""
    # A line keeps its colour in all charts of a study, whichever other lines a chart leaves out.
    hues = {
        name: i % HUES for i, name in enumerate(dict.fromkeys(_line(chart, row) for row in rows))
    }
    panels: dict[str, dict[str, list[tuple[float, float, float, float]]]] = {}
    for row in rows:
        if (point := _point(chart, row)) is not None:
            panels.setdefault(_panel(chart, row), {}).setdefault(_line(chart, row), []).append(
                point
            )
    if not panels:
        return None
    spots = [
        sorted({x for points in lines.values() for x, *_ in points}) for lines in panels.values()
    ]
    # A panel of one place has no scale of its own.
    shared = (
        sorted({x for places in spots for x in places})
        if any(len(places) == 1 for places in spots)
        else ()
    )
    title = chart.title or f"{words(chart.y)} against {words(chart.x)}"
    drawn = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    return {
        "title": title,
        "legend": [(hues[name], name) for name in drawn],
        "panels": [
            (
                panel,
                line_chart(
                    [Line(hues[name], sorted(points)) for name, points in lines.items()],
                    (words(chart.x), words(chart.y)),
                    f"{title}{', ' if panel else ''}{panel}; the numbers stand in the table",
                    places=shared,
                    log_x=chart.log_x,
                    log_y=chart.log_y,
                ),
            )
            for panel, lines in panels.items()
        ],
    }


def _point(chart: Chart, row: Mean) -> tuple[float, float, float, float] | None:
    """Place, mean and the ends of its spread; None for a row that the chart does not show."""
    labels, mean = row["labels"], row["mean"]
    wanted = row["measure"] == chart.y and all(labels.get(k) in v for k, v in chart.only.items())
    if (
        not wanted
        or not isinstance(labels.get(chart.x), int | float)
        or (chart.log_y and mean <= 0)
    ):
        return None
    spread = row["spread"] or 0.0
    low = max(mean - spread, mean / 20) if chart.log_y else mean - spread
    return float(labels[chart.x]), mean, low, mean + spread


def _panel(chart: Chart, row: Mean) -> str:
    shown = [(name, row["labels"][name]) for name in chart.panels if name in row["labels"]]
    return ", ".join(
        label(v) if isinstance(v, str) else f"{words(name)} {label(v)}" for name, v in shown
    )


def _line(chart: Chart, row: Mean) -> str:
    """The name of the line that a row belongs to."""
    published = " (published)" if row["labels"].get("source") == "published" else ""
    return label(row["labels"].get(chart.colour, "")) + published


def words(name: str) -> str:
    """A column's name as people write it."""
    return name.replace("_", " ")


def label(value: Any) -> str:
    """A label's value as people write it: thousands with commas, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1000:
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _figure(row: Mean | None) -> str:
    if row is None:
        return ""
    spread = (
        f" ± {digits(row['spread'], 2)}" if row["spread"] is not None and row["runs"] > 1 else ""
    )
    return f"{digits(row['mean'], 4)}{spread}"


def digits(value: float, figures: int) -> str:
    """At least so many significant digits; large numbers whole rather than as powers of ten."""
    return f"{value:,.0f}" if abs(value) >= 10**figures else f"{value:.{figures}g}"
