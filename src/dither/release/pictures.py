"""The sections of a report that hold charts, each with its figures in a table beneath."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dither.release.charts import attribute_chart, dependency_chart, heat_charts
from dither.release.figures import AttributeFigure, Bar, HeatMap, attribute_figure, heat_map
from dither.release.markup import folded, paragraph, percent, table, text
from dither.release.pairs import MOST_SEARCHED, Pair, graph_edges, telling_attributes
from dither.release.release import Release
from dither.release.standard_errors import pair_errors

MOST_CHARTS = 24
MOST_HEAT_MAPS = 6
TABLE_ROWS = 100
COMPACT_ROWS = 12
COMPACT_ATTRIBUTES = 300
CELLS_SHOWN, CELL_ROWS = 8, 25
PAIR_ROWS = 12
WHOLE_SCHEMA = 30

_LEGEND_ESTIMATE = '<svg viewBox="0 0 26 14" aria-hidden="true"><circle class="dot" cx="13" cy="7" r="3.6"/></svg>'
_LEGEND_INTERVAL = (
    '<svg viewBox="0 0 26 14" aria-hidden="true"><path class="reach" d="M2 7H24M2 3.5v7M24 3.5v7"/></svg>'
)
_LEGEND_TRUTH = '<svg viewBox="0 0 26 14" aria-hidden="true"><path class="true" d="M13 2l4.2 5l-4.2 5l-4.2 -5z"/></svg>'

_NO_INTERVAL = "No interval is known: no answer tells of both attributes."
_INTERVALS = (
    "Beside each estimate stands, in percentage points, half the width of its 95 % interval: the estimate plus or minus "
    "this. It is that of the answers about the pair alone, as if nothing else had been asked; the smaller, the surer. Where "
    "it exceeds the estimate, the answers cannot tell that combination from one that never occurs."
)


def attribute_section(release: Release, pairs: Sequence[Pair]) -> str:
    """Every attribute's estimate: charts of the most telling ones, a compact table of each of the others."""
    names = telling_attributes(release, pairs, MOST_CHARTS)
    rest = [name for name in release.schema.names if name not in set(names)]
    figures = [attribute_figure(release, name) for name in names]
    marks = [(_LEGEND_ESTIMATE, "estimate")]
    if any(bar.low is not None for figure in figures for bar in figure.bars):
        marks.append((_LEGEND_INTERVAL, "95 % interval"))
    if release.truth is not None:
        marks.append((_LEGEND_TRUTH, "truth, known in this simulation only"))
    legend = "".join(f"<li>{mark}{text(name)}</li>" for mark, name in marks)
    words = (
        "Estimates are what the model says. Intervals reach 1.96 standard errors of the measurement to either side, "
        "cut at 0 % and 100 %; they account for the noise that devices add and for who was asked, each figure on "
        "its own."
    )
    if rest:
        words += f" Drawn are the {len(names)} attributes that depend most on others; the other {len(rest)} are folded up below."
    cards = "".join(_attribute_card(figure) for figure in figures)
    out = f'{paragraph(words)}<ul class="legend">{legend}</ul><div class="grid">{cards}</div>'
    return out + (_compact_section(release, rest) if rest else "")


def pair_section(release: Release, pairs: Sequence[Pair]) -> str:
    """The dependency graph and heat maps of the strongest pairs, or a sentence if the model has none."""
    if not pairs:
        why = " It was fitted that way." if release.model.kind == "independent" else ""
        return paragraph(
            f"The model takes the attributes as independent of each other: no pair has a dependence to show.{why}"
        )
    errors = pair_errors(release)
    maps = [heat_map(release, pair, errors) for pair in pairs[:MOST_HEAT_MAPS]]
    cards = "".join(_heat_card(heat, simulated=release.truth is not None) for heat in maps)
    words = (
        "The strongest pairs: how often each combination occurs, in per cent of all people. Colours run from rare (dark) to "
        "frequent (bright)."
    )
    if any(heat.intervals for heat in maps):
        words += f" {_INTERVALS}"
    return f"{_graph(release, pairs)}{paragraph(words)}{cards}"


def _graph(release: Release, pairs: Sequence[Pair]) -> str:
    edges = graph_edges(pairs)
    involved = {name for pair in edges for name in (pair.first, pair.second)}
    whole = len(release.schema) <= WHOLE_SCHEMA
    names = [name for name in release.schema.names if whole or name in involved]
    words = (
        "A line joins attributes that depend on each other in the model; the thicker it is, the more one tells about "
        "the other (mutual information)."
    )
    if len(pairs) > len(edges):
        words += f" Drawn are {len(edges)} of the strongest among {len(pairs):,} dependent pairs"
        words += "." if whole else f", between {len(names)} of {len(release.schema)} attributes."
    possible = math.comb(len(release.schema), 2)
    if possible > MOST_SEARCHED:
        words += f" {MOST_SEARCHED:,} of all {possible:,} pairs were looked at."
    head = ("Pair", "Bits")
    rows = [(f"{p.first} and {p.second}", f"{p.bits:.4f}") for p in edges]
    listed = table(head, rows[:PAIR_ROWS], "Mutual information in the model")
    if len(rows) > PAIR_ROWS:
        listed += folded(f"{len(rows) - PAIR_ROWS} more pairs", table(head, rows[PAIR_ROWS:]), "More pairs")
    return (
        f'<div class="grid wide"><div class="card graph"><h3>Dependency graph</h3>{dependency_chart(names, edges)}'
        f'{paragraph(words, "caption")}</div><div class="card"><h3>Strongest pairs</h3>{listed}</div></div>'
    )


def _attribute_card(figure: AttributeFigure) -> str:
    remark = paragraph(figure.remark, "caption") if figure.remark else ""
    shown = _values(figure.table, TABLE_ROWS)
    figures = folded(f"Figures ({len(figure.table)} values)", shown, f"Figures of {figure.name}")
    return f'<div class="card"><h3>{text(figure.name)}</h3>{attribute_chart(figure)}{remark}{figures}</div>'


def _compact_section(release: Release, names: Sequence[str]) -> str:
    """The attributes that have no chart, each one line that opens to its most frequent values."""
    shown = names[:COMPACT_ATTRIBUTES]
    parts = []
    for name in shown:
        figure = attribute_figure(release, name)
        largest = max(figure.table, key=lambda bar: bar.estimate)
        line = f"{name}: {len(figure.table)} values, most often {largest.label} ({percent(largest.estimate)})"
        by_share = tuple(sorted(figure.table, key=lambda bar: -bar.estimate))
        values = figure.table if len(figure.table) <= COMPACT_ROWS else by_share
        parts.append(folded(line, _values(values, COMPACT_ROWS), f"Figures of {name}"))
    more = ""
    if len(names) > len(shown):
        more = paragraph(f"{len(names) - len(shown)} more attributes are in release.json only.", "caption")
    inside = f'<div class="compact">{"".join(parts)}</div>{more}'
    return (
        f'<details class="rest"><summary>The other {len(names)} attributes</summary>{inside}</details>'
        f"{paragraph('Every value of every attribute is in release.json.', 'caption')}"
    )


def _values(bars: Sequence[Bar], most: int) -> str:
    """A table of the first values and, in one line, the others."""
    shown, rest = list(bars[:most]), bars[most:]
    if rest:
        truth = None if rest[0].truth is None else sum(bar.truth or 0.0 for bar in rest)
        shown.append(Bar(f"{len(rest)} more values together", sum(bar.estimate for bar in rest), truth=truth))
    head = ["Value", "Estimate"]
    has_interval = any(bar.low is not None for bar in shown)
    has_truth = any(bar.truth is not None for bar in shown)
    head += ["95 % interval"] if has_interval else []
    head += ["Truth"] if has_truth else []
    rows = []
    for bar in shown:
        row = [bar.label, percent(bar.estimate)]
        if has_interval:
            row.append("" if bar.low is None or bar.high is None else f"{100 * bar.low:.2f} – {100 * bar.high:.2f} %")
        if has_truth:
            row.append("" if bar.truth is None else percent(bar.truth))
        rows.append(row)
    return table(head, rows)


def _heat_card(heat: HeatMap, *, simulated: bool) -> str:
    title = f"{heat.pair.first} and {heat.pair.second}"
    titles = ("Estimate, %", "Half-width of the 95 % interval, ± %" if heat.intervals else "Truth, %")
    drawn = "".join(
        f"<figure><figcaption>{text(name)}</figcaption>{svg}</figure>"
        for name, svg in zip(titles, heat_charts(heat), strict=False)
    )
    rows = _cells(heat)
    head = [f"{heat.pair.first} · {heat.pair.second}", "Estimate"]
    if heat.beside is not None:
        head.append("±" if heat.intervals else "Truth")
    listed = table(head, rows[:CELLS_SHOWN], "Largest cells", css="pair")
    if len(rows) > CELLS_SHOWN:
        more = table(head, rows[CELLS_SHOWN:], css="pair")
        listed += folded(f"{len(rows) - CELLS_SHOWN} more cells", more, f"More cells of {title}")
    words = (
        f"Down: {heat.pair.first}. Across: {heat.pair.second}. "
        f"Mutual information in the model: {heat.pair.bits:.3f} bits."
    )
    if heat.beside is None and not simulated:
        words += f" {_NO_INTERVAL}"
    return (
        f'<div class="card pair"><h3>{text(title)}</h3><div class="pairs">{drawn}<div>{listed}</div></div>'
        f"{paragraph(words, 'caption')}</div>"
    )


def _cells(heat: HeatMap) -> list[list[str]]:
    """The largest cells of a heat map as rows of a table."""
    rows = []
    for flat in np.argsort(-heat.estimate, axis=None, kind="stable")[:CELL_ROWS]:
        i, j = divmod(int(flat), heat.estimate.shape[1])
        row = [f"{heat.rows[i]} · {heat.columns[j]}", percent(float(heat.estimate[i, j]))]
        if heat.beside is not None:
            row.append(("±\N{NO-BREAK SPACE}" if heat.intervals else "") + percent(float(heat.beside[i, j])))
        rows.append(row)
    return rows
