"""The sections of a report that hold charts, each with its figures in a table beneath."""

from __future__ import annotations

from itertools import chain

import numpy as np

from dither.release.charts import attribute_chart, dependency_chart, heat_charts
from dither.release.figures import MOST_EDGES, AttributeFigure, Bar, HeatMap, attribute_figure, heat_map, strong_pairs
from dither.release.markup import folded, paragraph, percent, table, text
from dither.release.release import Release

MOST_CHARTS = 40
MOST_HEAT_MAPS = 6
TABLE_ROWS = 100
CELL_ROWS = 25
PAIR_ROWS = 12

_LEGEND_ESTIMATE = '<svg viewBox="0 0 26 14" aria-hidden="true"><circle cx="13" cy="7" r="3.6" fill="#0072b2"/></svg>'
_LEGEND_INTERVAL = (
    '<svg viewBox="0 0 26 14" aria-hidden="true"><path d="M1,7H25" stroke="#0072b2" stroke-width="2"/></svg>'
)
_LEGEND_TRUTH = (
    '<svg viewBox="0 0 26 14" aria-hidden="true">'
    '<path d="M13,2L17,7L13,12L9,7Z" fill="none" stroke="#b84c00" stroke-width="1.8"/></svg>'
)


def attribute_section(release: Release) -> str:
    """Every attribute's estimate: a chart for the first 40, a table for all."""
    figures = [attribute_figure(release, name) for name in release.schema.names]
    marks = [(_LEGEND_ESTIMATE, "estimate")]
    if any(bar.low is not None for figure in figures for bar in figure.bars):
        marks.append((_LEGEND_INTERVAL, "95 % interval"))
    if release.truth is not None:
        marks.append((_LEGEND_TRUTH, "truth, known in this simulation only"))
    legend = "".join(f"<li>{mark}{text(name)}</li>" for mark, name in marks)
    cards = [_attribute_card(figure, charted=i < MOST_CHARTS) for i, figure in enumerate(figures)]
    words = (
        "Estimates are what the model says. Intervals reach 1.96 standard errors of the measurement to either side, "
        "cut at 0 % and 100 %; they account for the noise that devices add and for who was asked, each figure on "
        "its own."
    )
    return f'{paragraph(words)}<ul class="legend">{legend}</ul><div class="grid">{"".join(cards)}</div>'


def pair_section(release: Release) -> str:
    """The dependency graph and heat maps of the strongest pairs, or a sentence if the model has none."""
    pairs = strong_pairs(release)
    if not pairs:
        why = " It was fitted that way." if release.model.kind == "independent" else ""
        return paragraph(
            f"The model takes the attributes as independent of each other: no pair has a dependence to show.{why}"
        )
    edges = pairs[:MOST_EDGES]
    involved = set(chain.from_iterable((p.first, p.second) for p in edges))
    names = [name for name in release.schema.names if len(release.schema) <= 30 or name in involved]
    rows = [(f"{p.first} and {p.second}", f"{p.bits:.4f}") for p in edges]
    strongest = (
        "A line joins attributes that depend on each other in the model; the thicker it is, the more one tells about "
        "the other (mutual information)."
    )
    if len(pairs) > len(edges):
        strongest += f" The {len(edges)} strongest of {len(pairs)} dependent pairs are drawn."
    drawn = dependency_chart(names, edges) + paragraph(strongest, "caption")
    head = ("Pair", "Mutual information, bits")
    listed = table(head, rows[:PAIR_ROWS])
    if len(rows) > PAIR_ROWS:
        listed += folded(f"{len(rows) - PAIR_ROWS} more pairs", table(head, rows[PAIR_ROWS:]), "More pairs")
    graph = (
        f'<div class="grid wide"><div class="card graph"><h3>Dependency graph</h3>{drawn}</div>'
        f'<div class="card"><h3>Strongest pairs</h3>{listed}</div></div>'
    )
    maps = "".join(_heat_card(heat_map(release, pair)) for pair in pairs[:MOST_HEAT_MAPS])
    words = "The strongest pairs: how often each combination occurs. Colours run from rare (dark) to frequent (bright)."
    return f'{graph}<p>{text(words)}</p><div class="grid wide">{maps}</div>'


def _attribute_card(figure: AttributeFigure, *, charted: bool) -> str:
    drawn = attribute_chart(figure) if charted else ""
    remark = paragraph(figure.remark, "caption") if figure.remark and charted else ""
    shown = list(figure.table[:TABLE_ROWS])
    rest = figure.table[TABLE_ROWS:]
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
    figures = folded(f"Figures ({len(figure.table)} values)", table(head, rows), f"Figures of {figure.name}")
    return f'<div class="card"><h3>{text(figure.name)}</h3>{drawn}{remark}{figures}</div>'


def _heat_card(heat: HeatMap) -> str:
    title = f"{heat.pair.first} and {heat.pair.second}"
    titles = ("Estimate", heat.beside_title.capitalize())
    drawn = "".join(
        f"<figure><figcaption>{text(name)}</figcaption>{svg}</figure>"
        for name, svg in zip(titles, heat_charts(heat), strict=False)
    )
    order = np.argsort(-heat.estimate, axis=None, kind="stable")[:CELL_ROWS]
    head = [heat.pair.first, heat.pair.second, "Estimate"]
    head += [heat.beside_title.capitalize()] if heat.beside is not None else []
    rows = []
    for flat in order:
        i, j = divmod(int(flat), heat.estimate.shape[1])
        row = [heat.rows[i], heat.columns[j], percent(float(heat.estimate[i, j]))]
        if heat.beside is not None:
            row.append(percent(float(heat.beside[i, j])))
        rows.append(row)
    figures = folded(f"The {len(rows)} largest cells", table(head, rows), f"Largest cells of {title}")
    caption = paragraph(
        f"Down: {heat.pair.first}. Across: {heat.pair.second}. "
        f"Mutual information in the model: {heat.pair.bits:.3f} bits.",
        "caption",
    )
    return f'<div class="card"><h3>{text(title)}</h3><div class="pairs">{drawn}</div>{caption}{figures}</div>'
