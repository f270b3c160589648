"""The pages of a release about one number: the whole of it, and each consumer's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dither.notice import shown_epsilon
from dither.release.call import command_again, python_again
from dither.release.charts import histogram_chart
from dither.release.pages import render_page, render_part
from dither.release.report import ReportBody

if TYPE_CHECKING:
    from dither.release.histogram import ConsumerHistogram, HistogramRelease


def number_body(
    release: HistogramRelease,
    consumers: Sequence[ConsumerHistogram] | None = None,
    heading: str = "",
) -> ReportBody:
    """What a page says, of all consumers unless some are given; how to run it again stands on the page of all."""
    contents: list[tuple[str, str]] = []
    again = release.call if consumers is None else None
    html = render_part(
        "histogram_body.html",
        contents=contents,
        release=release,
        histograms=[
            _section(consumer)
            for consumer in (release.consumers if consumers is None else consumers)
        ],
        command=None if again is None else command_again(again),
        python=None if again is None else python_again(again),
    )
    title = (release.campaign and release.campaign.title) or (
        "Histograms" if release.consumers else "Mean"
    )
    return ReportBody(
        html=html,
        contents=tuple(contents),
        heading=heading or title,
        subtitle=f"Local differential privacy{', but NOT PRIVATE with its seed' if release.seed is not None else ''} · "
        f"collected by {release.method} ({', '.join(release.mechanisms) or 'nothing to ask'})",
        facts=(
            ("Participants", f"{release.participants:,}"),
            ("Epsilon per participant", shown_epsilon(release.epsilon_achieved, 4)),
            ("Bits per participant", f"{release.bits_per_report:,}"),
        ),
        citation=f"{'Histograms' if release.consumers else 'Mean'} of one number from {release.participants:,} participants, "
        f"collected with Dither {release.dither_version}, method {release.method}, under local differential privacy with "
        f"epsilon {shown_epsilon(release.epsilon_achieved, 4)} for everything that a participant sent.",
    )


def number_page(release: HistogramRelease, body: ReportBody) -> str:
    """A whole page, one HTML file without any outside resource."""
    return render_page(
        "report.html",
        title=body.heading,
        subtitle=body.subtitle,
        version=release.dither_version,
        facts=body.facts,
        contents=list(body.contents),
        sections=body.html,
    )


def _section(consumer: ConsumerHistogram) -> Mapping[str, object]:
    """A consumer's chart and the rows of its table."""
    low, high = consumer.interval()
    figures = list(
        zip(consumer.labels, consumer.estimates, consumer.standard_errors, low, high, strict=True)
    )
    name, count, _, least, most = max(figures, key=lambda row: row[1])
    words = (
        f"Histogram for {consumer.name}, {len(figures)} bins. Largest: {name} with about {count:,.0f} people "
        f"(95 % interval {least:,.0f} to {most:,.0f}). All figures are in the table below."
    )
    return {
        "name": consumer.name,
        "chart": histogram_chart(consumer.edges, consumer.estimates, low, high, words),
        "rows": [
            (bin_, f"{n:,.1f}", f"{error:,.1f}", f"{a:,.1f} to {b:,.1f}")
            for bin_, n, error, a, b in figures
        ],
    }
