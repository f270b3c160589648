"""A benchmark's page: charts and tables in one HTML file; inline SVG, no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from benchmarks.harness.frames import Mean
from benchmarks.harness.study import Chart, Study

if TYPE_CHECKING:
    from benchmarks.harness.run import Outcome

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:0 auto;padding:1rem;color:#1c1c1c;background:#fff}"
    "h1{line-height:1.2}h2{margin-top:2.5rem;border-top:1px solid #ccc;padding-top:1rem}.wide{overflow-x:auto}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}"
    "th,td{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}"
    "th.label,td.label{text-align:left}svg{max-width:100%;height:auto}.note{background:#fff6da;padding:.5rem .8rem}"
    "summary{cursor:pointer}figure{margin:1rem 0}figcaption{color:#444}"
)
PALETTE = (
    *("#1b6ca8", "#c8553d", "#3a8f62", "#8e6c8a", "#b8860b", "#4d4d4d", "#2ca3a3", "#d1477a"),
    *("#6b4ea0", "#7a8b1f", "#e07b39", "#5c7fa3"),
)
OPEN_ROWS = 24  # longer tables are folded


def render(outcome: Outcome) -> str:
    """The whole page."""
    bench = outcome.bench
    parts = [
        f"<p>{escape(bench.about)}</p>",
        f"<p>Size: {bench.size}. Measuring took {outcome.seconds:,.0f} s. ± is the standard deviation over seeds.</p>",
        _notes(outcome.notes),
    ]
    for study in bench.studies:
        rows = [row for row in outcome.summary if row["study"] == study.name]
        parts.append(f"<h2>{escape(study.title)}</h2>")
        if study.note:
            parts.append(f"<p>{escape(study.note)}</p>")
        if not rows:
            parts.append("<p>Nothing was measured.</p>")
            continue
        parts += [draw(chart, rows, study) for chart in study.charts]
        parts.append(table(rows))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{escape(bench.title)}</title>'
        f"<style>{STYLE}</style></head><body><main><h1>{escape(bench.title)}</h1>{''.join(parts)}</main></body></html>\n"
    )


def _notes(notes: Sequence[str]) -> str:
    """What could not be measured; folded when there is much of it."""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    if not items:
        return ""
    shown = " open" if len(notes) <= 3 else ""
    return f'<details class="note"{shown}><summary>{len(notes)} not measured</summary><ul>{items}</ul></details>'


def contents(outcomes: Mapping[str, Outcome]) -> str:
    """A page that leads to the pages of several benchmarks."""
    items = "".join(
        f'<li><a href="{escape(name)}/index.html">{escape(outcome.bench.title)}</a>: {escape(outcome.bench.about)}</li>'
        for name, outcome in outcomes.items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,'
        f'initial-scale=1"><title>Benchmarks</title><style>{STYLE}</style></head><body><main><h1>Benchmarks</h1>'
        f"<ul>{items}</ul></main></body></html>\n"
    )


def table(rows: list[Mean]) -> str:
    """One line a combination of labels, one column a measure."""
    labels = list(dict.fromkeys(name for row in rows for name in row["labels"]))
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    lines: dict[tuple[Any, ...], dict[str, Mean]] = {}
    for row in rows:
        lines.setdefault(tuple(row["labels"].get(name) for name in labels), {})[row["measure"]] = row
    head = "".join(f'<th class="label" scope="col">{escape(words(n))}</th>' for n in labels)
    head += "".join(f'<th scope="col">{escape(words(m))}</th>' for m in measures)
    body = []
    for key, found in lines.items():
        cells = "".join(f'<td class="label">{escape(label(v))}</td>' for v in key)
        cells += "".join(f"<td>{_figure(found.get(m))}</td>" for m in measures)
        body.append(f"<tr>{cells}</tr>")
    html = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    if len(lines) <= OPEN_ROWS:
        return html
    return f"<details><summary>All {len(lines)} lines</summary>{html}</details>"


def draw(chart: Chart, rows: list[Mean], study: Study) -> str:
    """A chart with a bar of one spread to each side; the table below it is its text alternative."""
    import altair as alt
    import vl_convert

    values = _values(chart, rows)
    if not values:
        return ""
    title = chart.title or f"{words(chart.y)} against {words(chart.x)}"
    data = alt.InlineData(values=values)
    spots = sorted({v["x"] for v in values})
    x = alt.X(
        "x:Q",
        title=words(chart.x),
        axis=alt.Axis(values=spots, labelOverlap=True, format=",~r") if len(spots) <= 10 else alt.Axis(tickCount=6),
        scale=alt.Scale(type="log" if chart.log_x else "linear", zero=False, nice=False),
    )
    up = alt.Axis(tickCount=4, format="~g") if chart.log_y else alt.Axis(tickCount=5)
    scale = alt.Scale(type="log" if chart.log_y else "linear", zero=not chart.log_y)
    # A line keeps its colour in all charts of a study, whichever other lines a chart leaves out.
    every = list(dict.fromkeys(_line(chart, row) for row in rows))
    drawn = list(dict.fromkeys(v["line"] for v in values))
    hues = alt.Scale(domain=drawn, range=[PALETTE[every.index(line) % len(PALETTE)] for line in drawn])
    panels = list(dict.fromkeys(v["panel"] for v in values))
    places = {panel: {v["x"] for v in values if v["panel"] == panel} for panel in panels}
    alone = any(len(xs) == 1 for xs in places.values())  # a panel of one place has no scale of its own
    colour = alt.Color("line:N", sort=None, scale=hues, legend=alt.Legend(title=None, labelLimit=0))
    columns = min(3, len(panels))
    lines = alt.Chart().mark_line(point=True).encode(x=x, y=alt.Y("y:Q", title=words(chart.y), axis=up, scale=scale))
    bars = alt.Chart().mark_rule(opacity=0.6).encode(x=x, y=alt.Y("low:Q", title=words(chart.y)), y2="high:Q")
    picture = (
        alt.layer(lines.encode(color=colour), bars.encode(color=colour), data=data)
        .properties(width=270 if columns > 1 else 480, height=230)
        .facet(alt.Facet("panel:N", title=None, sort=panels), columns=columns)
        .resolve_scale(x="shared" if alone else "independent", y="independent")
        .configure_axis(gridColor="#e6e6e6", labelFontSize=11, titleFontSize=12)
        .configure_legend(labelFontSize=12, orient="bottom", columns=2)
        .configure_header(labelFontSize=13)
    )
    svg: str = vl_convert.vegalite_to_svg(picture.to_dict())
    named = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}; the numbers stand in the table" ', 1)
    return f"<figure>{named}<figcaption>{escape(title)}</figcaption></figure>"


def _values(chart: Chart, rows: list[Mean]) -> list[dict[str, Any]]:
    out = []
    for row in rows:
        labels = row["labels"]
        wanted = row["measure"] == chart.y and all(labels.get(k) in v for k, v in chart.only.items())
        if not wanted or not isinstance(labels.get(chart.x), int | float) or (chart.log_y and row["mean"] <= 0):
            continue
        spread = row["spread"] or 0.0
        low = row["mean"] - spread
        panel = ", ".join(f"{label(labels[p])}" if isinstance(labels[p], str) else f"{words(p)} {label(labels[p])}"
                          for p in chart.panels if p in labels)  # fmt: skip
        out.append(
            {
                "x": labels[chart.x],
                "y": row["mean"],
                "low": max(low, row["mean"] / 20) if chart.log_y else low,
                "high": row["mean"] + spread,
                "line": _line(chart, row),
                "panel": panel,
            }
        )
    return out


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
    spread = f" ± {digits(row['spread'], 2)}" if row["spread"] is not None and row["runs"] > 1 else ""
    return f"{digits(row['mean'], 4)}{spread}"


def digits(value: float, figures: int) -> str:
    """At least so many significant digits; large numbers whole rather than as powers of ten."""
    return f"{value:,.0f}" if abs(value) >= 10**figures else f"{value:.{figures}g}"
