"""The HTML report of a release; its text is in templates/report.html."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import TemplateError
from markupsafe import Markup

from dither.display import Bar, Picture, bar_chart, html_list, html_table, stand_alone
from dither.errors import ParameterError
from dither.notice import shown_epsilon
from dither.release.call import AskedRound, campaign_command, command, python_code
from dither.release.charts import attribute_chart, dependency_chart, heat_charts
from dither.release.figures import (
    MAX_SEARCHED,
    AttributeFigure,
    HeatMap,
    Pair,
    Quality,
    attribute_figure,
    graph_edges,
    group_shares,
    heat_map,
    pair_errors,
    quality,
    strong_pairs,
    telling_attributes,
)
from dither.release.pages import counted, percent, render_page, render_part
from dither.release.query.answer import figure_texts
from dither.release.words import RESTS_ON, hidden_sentence, in_words

if TYPE_CHECKING:
    from dither.release.release import Release

MAX_CHARTS = 24
MAX_HEAT_MAPS = 6
TABLE_ROWS = 100
COMPACT_ROWS = 12
COMPACT_ATTRIBUTES = 300
CELL_ROWS = 25
# Small charts next to the summary, and the bars of each.
MAX_MULTIPLES = 3
MULTIPLE_BARS = 4
MAX_DISTANCES = 8
WHOLE_SCHEMA = 30
_HIDDEN_NOTES = (
    *("prior", "warnings", "fallback", "fallbacks", "held_out", "held_out_skipped"),
    *("manipulation", "manipulation_claim", "rounds_agree"),
)
Rows = Sequence[Sequence[object]]


@dataclass(frozen=True)
class _Card:
    """One attribute on a page: its chart, and a collapsible table of its figures."""

    name: str
    summary: str
    head: Sequence[str]
    rows: Rows
    chart: Markup | None = None
    remark: str = ""
    question: str = ""


@dataclass(frozen=True)
class _Graph:
    """The dependency graph, its strongest pairs as rows, and the numbers that it omits."""

    chart: Markup
    rows: Rows
    names: int
    pairs: int
    possible: int
    whole: bool
    searched: int = MAX_SEARCHED


@dataclass(frozen=True)
class _PairCard:
    """The heat maps of one pair under their captions, and its largest cells."""

    pair: Pair
    charts: Sequence[tuple[str, Markup]]
    head: Sequence[str]
    rows: Rows
    intervals: bool

    @property
    def title(self) -> str:
        return f"{self.pair.first} and {self.pair.second}"


@dataclass(frozen=True)
class ReportBody:
    """The content of a report: sections as HTML, their anchors and headings, and the lead.

    `title` is the page's title in a browser, by default the heading.
    """

    html: Markup
    contents: Sequence[tuple[str, str]]
    heading: str
    subtitle: str
    facts: Sequence[tuple[str, object]]
    citation: str
    title: str = ""


def render_body(release: Release, body: ReportBody) -> str:
    """A whole page around the content of a report."""
    return render_page(
        "report.html",
        title=body.title or body.heading,
        heading=body.heading,
        subtitle=body.subtitle,
        version=release.dither_version,
        facts=body.facts,
        contents=list(body.contents),
        sections=body.html,
    )


def table_report(release: Release) -> ReportBody:
    """The report of a release about whole records."""
    found, pairs = quality(release), strong_pairs(release)
    errors = pair_errors(release) if pairs else None
    charted = telling_attributes(release, pairs, MAX_CHARTS)
    rest = [name for name in release.schema.names if name not in set(charted)]
    figures = [_figure(release, name) for name in charted]
    source = "" if release.call.table is None else f" · {release.call.table}"
    spent = shown_epsilon(release.epsilon_achieved, 4)
    contents: list[tuple[str, str]] = []
    html = render_part(
        "report_body.html",
        contents=contents,
        release=release,
        hidden=None if release.central is None else hidden_sentence(release.central),
        rests_on=RESTS_ON,
        warnings=release.warnings,
        quality=found,
        quality_rows=_quality_rows(found),
        distances=_distances(found),
        multiples=[
            _small_multiple(_figure(release, name, ranked=True))
            for name in telling_attributes(release, pairs, MAX_MULTIPLES)
        ],
        cards=[attribute_card(figure, release.schema[figure.name].question) for figure in figures],
        intervals=any(bar.low is not None for figure in figures for bar in figure.bars),
        rest=len(rest),
        compact=[
            _compact_card(_figure(release, name, ranked=True)) for name in rest[:COMPACT_ATTRIBUTES]
        ],
        graph=_graph(release, pairs) if pairs else None,
        maps=[_pair_card(heat_map(release, pair, errors)) for pair in pairs[:MAX_HEAT_MAPS]],
        manipulation=_manipulation(release.notes),
        asked=[_round(entry) for entry in release.asked],
        agreement=_agreement(release.notes.get("rounds_agree")),
        parameters=[
            (name, "none" if value is None else value) for name, value in release.parameters.items()
        ],
        seconds=_seconds(release.seconds),
        run=_run(release),
        citation=_citation(release),
        lead=_rerun_lead(release),
        command=_rerun_command(release),
        python=_rerun_python(release),
    )
    return ReportBody(
        html=html,
        contents=tuple(contents),
        heading="Simulated release" if release.simulated else "Release",
        subtitle=f"{_kind(release)} · method {release.method}{source}{_campaign(release)}",
        facts=(
            ("Participants", f"{release.participants:,}"),
            ("Epsilon per record", "not private" if release.no_privacy else spent),
            ("Attributes", len(release.schema)),
            ("Synthetic rows", f"{release.rows:,}"),
            ("Rounds", release.rounds),
        ),
        citation=_citation(release),
        title=f"Dither release: {release.method}, epsilon {spent}{source}",
    )


def attribute_card(figure: AttributeFigure, question: str = "") -> _Card:
    """The chart of an attribute with all its figures, and its question."""
    values = f"Figures ({len(figure.table)} values)", *_values(figure, TABLE_ROWS)
    return _Card(figure.name, *values, attribute_chart(figure), figure.remark, question)


def shown_note(value: object) -> str:
    """A note of a release in one line."""
    if isinstance(value, Mapping):
        shown = ", ".join(f"{name} {shown_note(item)}" for name, item in value.items())
    elif isinstance(value, (list, tuple)):
        shown = ", ".join(shown_note(item) for item in value)
    else:
        shown = f"{value:g}" if isinstance(value, float) else str(value)
    return shown if len(shown) <= 400 else f"{shown[:399]}…"


def _figure(release: Release, name: str, *, ranked: bool = False) -> AttributeFigure:
    truth = None if release.truth is None else release.truth.marginal([name])
    marginal = release.marginal([name])
    figure = attribute_figure(
        release.schema[name], marginal, truth, group_shares(release), ranked=ranked
    )
    if not marginal.reason or release.no_privacy:
        return figure
    return replace(figure, remark=f"{figure.remark} No interval: {marginal.reason}.".lstrip())


def _kind(release: Release) -> str:
    if release.no_privacy:
        return "NOT PRIVATE"
    if release.replayable:
        return "Local differential privacy, but NOT PRIVATE with its seed"
    if not release.private:
        return "Local differential privacy, but NOT PRIVATE with the seed of the earlier release that was used"
    return "Local differential privacy"


def _compact_card(figure: AttributeFigure) -> _Card:
    """One line that opens to the most frequent values."""
    largest = max(figure.table, key=lambda bar: bar.estimate)
    often, _ = figure_texts(largest.estimate, largest.low, largest.high, "share")
    line = f"{figure.name}: {len(figure.table)} values, most often {largest.label} ({often})"
    if len(figure.table) > COMPACT_ROWS:
        values = tuple(sorted(figure.table, key=lambda bar: -bar.estimate))
        figure = replace(figure, table=values)
    return _Card(figure.name, line, *_values(figure, COMPACT_ROWS))


TOGETHER = "Intervals, together 95 %"


def _values(figure: AttributeFigure, most: int) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table: the first values and, in one line, the others."""
    shown, rest = list(figure.table[:most]), figure.table[most:]
    if rest:
        truth = None if rest[0].truth is None else sum(bar.truth or 0.0 for bar in rest)
        shown.append(
            Bar(f"{len(rest)} more values together", sum(bar.estimate for bar in rest), truth=truth)
        )
    has_interval = any(bar.low is not None for bar in shown)
    has_truth = any(bar.truth is not None for bar in shown)
    head = [
        "Value",
        "Estimate",
        *([TOGETHER if figure.ranked else "95 % interval"] if has_interval else []),
        *(["Truth"] if has_truth else []),
    ]
    rows = []
    for bar in shown:
        estimate, interval = figure_texts(bar.estimate, bar.low, bar.high, "share")
        row = [bar.label, estimate]
        if has_interval:
            row.append("" if bar.low is None else interval)
        if has_truth:
            row.append("" if bar.truth is None else percent(bar.truth))
        rows.append(row)
    return head, rows


def _quality_rows(found: Quality | None) -> Rows:
    """Each measure with its value and its meaning."""
    if found is None:
        return []
    worst = max(found.one_way, key=lambda name: found.one_way[name])
    rows = [
        (
            "One-way distributions, mean",
            percent(found.one_way_mean),
            f"{len(found.one_way)} attributes",
        ),
        ("One-way distributions, worst", percent(found.one_way[worst]), worst),
    ]
    if found.two_way_mean is not None and found.two_way_worst is not None:
        pair, distance = found.two_way_worst
        possible = "" if found.pairs == found.possible_pairs else f" of {found.possible_pairs:,}"
        rows.append(
            (
                "Two-way distributions, mean",
                percent(found.two_way_mean),
                f"{found.pairs:,}{possible} pairs",
            )
        )
        rows.append(("Two-way distributions, worst", percent(distance), " and ".join(pair)))
    if found.covered is not None:
        covered = percent(found.covered)
        rows.append(
            ("True figures inside their 95 % interval", covered, f"{found.intervals} intervals")
        )
    return rows


def _distances(found: Quality | None) -> Markup | None:
    """The attributes that are furthest from the truth, as bars."""
    if found is None:
        return None
    worst = sorted(found.one_way.items(), key=lambda entry: -entry[1])[:MAX_DISTANCES]
    return bar_chart(
        [Bar(name, distance) for name, distance in worst],
        "Distance of single attributes from the truth",
    )


def _small_multiple(figure: AttributeFigure) -> tuple[str, Markup]:
    """An attribute at a glance: its most frequent values."""
    largest = sorted(figure.bars, key=lambda bar: -bar.estimate)[:MULTIPLE_BARS]
    shown = [bar for bar in figure.bars if bar in largest]
    return figure.name, bar_chart(
        shown,
        f"{figure.name} at a glance: the {len(shown)} most frequent of {len(figure.table)} values."
        + (" The intervals hold together." if any(bar.low is not None for bar in shown) else ""),
    )


def _graph(release: Release, pairs: Sequence[Pair]) -> _Graph:
    edges = graph_edges(pairs)
    involved = {name for pair in edges for name in (pair.first, pair.second)}
    whole = len(release.schema) <= WHOLE_SCHEMA
    names = [name for name in release.schema.names if whole or name in involved]
    return _Graph(
        chart=dependency_chart(names, edges),
        rows=[(f"{pair.first} and {pair.second}", f"{pair.bits:.4f}") for pair in edges],
        names=len(names),
        pairs=len(pairs),
        possible=math.comb(len(release.schema), 2),
        whole=whole,
    )


def _pair_card(heat: HeatMap) -> _PairCard:
    captions = (
        "Estimate, %",
        "Half-width of the 95 % interval, ± %" if heat.intervals else "Truth, %",
    )
    head = [f"{heat.pair.first} · {heat.pair.second}", "Estimate"]
    if heat.beside is not None:
        head.append("± (all together)" if heat.intervals else "Truth")
    beside = heat.ranked if heat.intervals else heat.beside
    rows = []
    for flat in np.argsort(-heat.estimate, axis=None, kind="stable")[:CELL_ROWS]:
        i, j = divmod(int(flat), heat.estimate.shape[1])
        label, share = f"{heat.rows[i]} · {heat.columns[j]}", float(heat.estimate[i, j])
        row = [label, percent(share)]
        if beside is not None and not heat.intervals:
            row.append(percent(float(beside[i, j])))
        elif beside is not None:
            half = float(beside[i, j])
            # The half-width with two digits, and the share with as many decimals.
            row = [label, figure_texts(share, share - half, share + half, "share")[0]]
            row.append(f"± {figure_texts(half, -half, half, 'share')[0]}")
        rows.append(row)
    charts = list(zip(captions, heat_charts(heat), strict=False))
    return _PairCard(heat.pair, charts, head, rows, heat.intervals)


@dataclass(frozen=True)
class _ManipulationTable:
    """A release's claim about dishonest participants: a sentence, and a row per attribute."""

    sentence: str
    head: Sequence[str]
    rows: Rows


_OPEN, _ISSUED = "open", "issued"
_PARTICIPATION = {_OPEN: "open campaign", _ISSUED: "issued tokens"}
_EARLIER = (
    "These bounds were computed by an earlier version, and attacks are known that exceed them. They cover "
    "single values, not ranges or means, and assume that participants cannot wait for a round that asks "
    "about the attribute."
)
_FIRST = f"{_EARLIER} They do not hold for an open campaign, where a participant can try tokens until one fits."


def _manipulation(notes: Mapping[str, Any]) -> _ManipulationTable | None:
    """Bounds for the campaign's kind of participation first, the most exposed attribute on top."""
    bounds, claim = notes.get("manipulation") or {}, notes.get("manipulation_claim")
    if not bounds and claim is None:
        return None
    ordered = sorted(bounds.items(), key=lambda entry: -entry[1]["5%"])
    if claim is None:
        rows = [(name, percent(moved["1%"]), percent(moved["5%"])) for name, moved in ordered]
        return _ManipulationTable(_FIRST, ("Attribute", "1 % dishonest", "5 % dishonest"), rows)
    first = claim["participation"]
    kinds = (first, _ISSUED if first == _OPEN else _OPEN)
    columns = [(kind, share) for kind in kinds for share in ("1%", "5%")]
    head = [f"{_PARTICIPATION[kind]}, {share.replace('%', ' %')}" for kind, share in columns]
    rows = [
        (name, *(_bound(moved[kind][share]) for kind, share in columns)) for name, moved in ordered
    ]
    earlier = bool(bounds) and "covers" not in claim
    return _ManipulationTable(
        _EARLIER if earlier else claim["sentence"], ("Attribute", *head), rows
    )


def _bound(moved: float) -> str:
    return percent(moved) if moved < 1 else "no useful bound"


def _round(entry: AskedRound) -> Sequence[object]:
    sizes = ", ".join(
        f"{count:,} about {counted(size, 'attribute')}" + (" together" if size > 1 else "")
        for size, count in entry.sizes.items()
    )
    mechanisms = ", ".join(
        f"{name} ({count:,})" if len(entry.mechanisms) > 1 else name
        for name, count in entry.mechanisms.items()
    )
    return (
        entry.round + 1,
        sizes,
        "every question" if entry.split else "one question",
        mechanisms,
        shown_epsilon(entry.epsilon, 4),
        counted(entry.report_bytes, "byte"),
        percent(entry.population),
    )


def _agreement(found: Mapping[str, Any] | None) -> Rows:
    """The attributes asked in several rounds, in order of increasing agreement."""
    return [
        (t["attribute"], ", ".join(str(n + 1) for n in t["rounds"]), f"{t['p']:.3g}")
        for t in (found["tests"] if found else [])
    ]


def _seconds(stages: Mapping[str, float]) -> Rows:
    if not stages:
        return []
    return [
        (stage, f"{taken:,.3f} s")
        for stage, taken in (*stages.items(), ("total", sum(stages.values())))
    ]


def check_table_report(release: Release) -> None:
    """Raise the error that the report would raise for this manifest, without rendering it."""
    notes = release.notes
    _manipulation(notes)
    _agreement(notes.get("rounds_agree"))
    for entry in release.asked:
        _round(entry)
    _seconds(release.seconds)
    _run(release)
    _rerun_command(release)
    _rerun_python(release)
    _citation(release)
    try:
        render_part("report_notes.html", release=release, contents=[])
    except TemplateError as error:
        raise ValueError(f"notes: {error}") from None


def _run(release: Release) -> Rows:
    notes = in_words(
        {name: value for name, value in release.notes.items() if name not in _HIDDEN_NOTES}
    )
    asked, achieved = (
        shown_epsilon(e, 9) for e in (release.epsilon_asked, release.epsilon_achieved)
    )
    return [
        *notes,
        ("Epsilon", asked if asked == achieved else f"{asked} was asked for, {achieved} is spent"),
        (
            "Seed" if release.simulated else "Seed of the fit",
            "None" if release.seed is None else str(release.seed),
        ),
        ("Noise", release.noise),
        ("Kind of model", release.model.kind.replace("_", " ")),
        ("Schema", f"fingerprint {release.schema_fingerprint[:16]}"),
        ("Made with", f"Dither {release.dither_version}"),
    ]


# Citation, and how to repeat a release or its questions.


def _rerun_command(release: Release) -> str | None:
    """The command that repeats the release.

    With a seed it makes the same release from the same table, otherwise one with new
    noise. After a collection these are the commands that ask the same questions again.
    """
    return (
        command(release.call)
        if release.simulated
        else campaign_command(release.call, release.people)
    )


def _rerun_python(release: Release) -> str:
    """The same in Python; after a collection, how to read the release and its intervals."""
    if release.simulated:
        return python_code(release.call)
    names = list(release.schema.names[:2])
    return f'import dither\n\nrelease = dither.load_release("out")\nintervals = dither.bootstrap(release, [{names!r}])'


def _rerun_lead(release: Release) -> tuple[str, str]:
    """One sentence each about the command and the Python code."""
    if not release.simulated:
        return (
            "The same questions to other people, with a running collector and the schema of this folder. The first command prints "
            "the id of the CAMPAIGN; the second follows when its rounds are closed:",
            "This release in Python, with the intervals of any figure:",
        )
    if release.seed is None and not release.no_privacy:
        return (
            "From the command line. The very same noise cannot be drawn again, so the figures come out anew, within their errors:",
            "The same in Python:",
        )
    return "The very same release from the same table, on the command line:", "In Python:"


def _citation(release: Release) -> str:
    """One sentence that identifies this release."""
    kind = "simulated release" if release.simulated else "release"
    if release.no_privacy:
        return (
            f"Dither {release.dither_version}, release WITHOUT privacy for comparison: method {release.method}, "
            f"{release.participants:,} records, schema {release.schema_fingerprint[:12]}."
        )
    seed = ""
    if release.simulated:
        seed = ", noise not replayable" if release.seed is None else f", seed {release.seed}"
    return (
        f"Dither {release.dither_version}, {kind} by local differential privacy: method {release.method}, epsilon "
        f"{shown_epsilon(release.epsilon_achieved)} per record, {release.participants:,} participants{seed}, "
        f"schema {release.schema_fingerprint[:12]}{_campaign(release).replace(' · ', ', ')}."
    )


def _campaign(release: Release) -> str:
    """The campaign's name, id and days, after a dot; nothing for a simulation."""
    campaign = release.campaign
    if campaign is None or not campaign["id"]:
        return ""
    days = " to ".join(str(day) for day in (campaign["created"], campaign["finalised"]) if day)
    name = campaign["title"] or campaign["name"]
    return f" · campaign {f'{name}, ' if name else ''}{campaign['id']}" + (
        f", {days}" if days else ""
    )


def plot_dependence(release: Release) -> Picture:
    """The graph of the dependences that a picture can show."""
    edges = graph_edges(strong_pairs(release))
    if not edges:
        raise ParameterError(
            "no attributes of this release depend on each other; name some to draw",
            where="attributes",
        )
    linked = {name for pair in edges for name in (pair.first, pair.second)}
    names = [name for name in release.schema.names if name in linked]
    return stand_alone(dependency_chart(names, edges))


def release_html(release: Release) -> str:
    """The facts, the guarantee and the warnings of a release, for a notebook."""
    facts = [("method", release.method)]
    if release.participants is not None:
        origin = "collected from participants"
        if release.simulated:
            origin = "simulated, each row of a table one participant"
        facts.append(("participants", f"{release.participants:,} ({origin})"))
    epsilon = shown_epsilon(release.epsilon_achieved)
    facts += [
        ("epsilon", f"{epsilon} for each participant's whole record"),
        ("guarantee", release.guarantee),
    ]
    if release.rows:
        facts.append(("synthetic rows", f"{release.rows:,}"))
    facts.append(("attributes", ", ".join(release.schema.names)))
    table = html_table(("", ""), facts, "Dither release", 0)
    return table + html_list([str(warning) for warning in release.warnings], "Read with care:")
