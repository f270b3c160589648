"""What a histogram collection publishes: each consumer's counts and errors, and what it cost a participant."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np

from dither.errors import InputError, ParameterError, PrivacyError
from dither.estimate.project import normal_interval
from dither.notice import REPLAYABLE, Notice
from dither.protocols.histogram.consumer import Consumer, Partition, read_consumers
from dither.protocols.histogram.estimates import CellEstimates, LateAnswer, late_answer, make_consistent
from dither.protocols.histogram.machine import HistogramMachine
from dither.release.words import noise_sentence, shown_epsilon
from dither.types import Floats

FORMAT = "dither-histogram-1"


@dataclass(frozen=True)
class ConsumerHistogram:
    """One consumer's counts.

    `raw` is unbiased and may be negative; `estimates` is the same, or the consistent, non-negative version if that
    was asked for. Standard errors and intervals are those of the raw counts: noise and, where only some people were
    asked, who was drawn.
    """

    name: str
    edges: Floats
    estimates: Floats
    standard_errors: Floats
    raw: Floats

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Two-sided intervals for each bin on its own, around the raw counts."""
        return normal_interval(self.raw, self.standard_errors, level)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        out = {
            "name": self.name,
            "edges": self.edges.tolist(),
            "estimates": self.estimates.tolist(),
            "standard_errors": self.standard_errors.tolist(),
        }
        if self.raw is not self.estimates:
            out["raw"] = self.raw.tolist()
        return out


@dataclass(frozen=True)
class HistogramRelease:
    """All consumers' histograms of one simulated collection; `seed` is what the caller gave, if anything.

    `moved` is how many values lay outside the range: a true count, for whoever holds the values, and written nowhere.
    """

    consumers: tuple[ConsumerHistogram, ...]
    epsilon_asked: float
    epsilon_achieved: float
    bits_per_report: int
    mechanism: str
    frequency_mechanisms: tuple[str, ...]
    participants: int
    low: float
    high: float
    partition: tuple[float, ...]
    seed: int | None = None
    consistent: bool = False
    path: str = "counts"
    cells: CellEstimates | None = field(default=None, repr=False, compare=False)
    notes: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()
    moved: int = field(default=0, repr=False, compare=False)

    @classmethod
    def from_machine(cls, machine: HistogramMachine, partition: Partition, *, consistent: bool, **known: Any) -> Self:
        """The release of a finished histogram method; `partition` is the union of all consumers' edges."""
        answer = machine.answer()
        estimates: list[Floats] = list(answer.counts)
        if consistent:
            memberships = [partition.membership(c) for c in machine.consumers]
            estimates = make_consistent(memberships, answer.counts, answer.variances, machine.population)
        return cls(
            consumers=tuple(
                ConsumerHistogram(c.name, np.asarray(c.edges), estimate, np.sqrt(variance), raw)
                for c, estimate, raw, variance in zip(
                    machine.consumers, estimates, answer.counts, answer.variances, strict=True
                )
            ),
            epsilon_asked=machine.campaign.epsilon,
            epsilon_achieved=machine.epsilon,
            bits_per_report=machine.bits,
            mechanism=machine.method,
            frequency_mechanisms=machine.mechanisms,
            participants=machine.population,
            low=machine.low,
            high=machine.high,
            partition=partition.edges,
            consistent=consistent,
            cells=answer.cells,
            notes=machine.notes(),
            **known,
        )

    def __post_init__(self) -> None:
        if self.epsilon_achieved > self.epsilon_asked:
            raise PrivacyError(
                f"the collection spent epsilon {self.epsilon_achieved!r}, more than the {self.epsilon_asked!r} asked for",
                where="epsilon_achieved",
                value=self.epsilon_achieved,
            )
        if self.seed is not None and REPLAYABLE not in self.warnings:
            object.__setattr__(self, "warnings", (*self.warnings, REPLAYABLE))

    @property
    def noise(self) -> str:
        """Where the noise came from and whether it can be drawn again, in one sentence."""
        return noise_sentence(self.seed, simulated=True)

    def consumer(self, name: str) -> ConsumerHistogram:
        """A consumer's histogram by name."""
        for entry in self.consumers:
            if entry.name == name:
                return entry
        raise ParameterError(
            f"no consumer {name!r}; there are {', '.join(c.name for c in self.consumers)}", where="consumer"
        )

    def late(self, consumer: Consumer | Any, level: float = 0.95) -> LateAnswer:
        """Answer somebody who comes afterwards, from the same reports: a count of bins, edges or a `Consumer`."""
        if self.cells is None:
            raise ParameterError(
                f"{self.mechanism} keeps no common partition to answer late queries from; collect with chp or smart",
                where="mechanism",
                value=self.mechanism,
            )
        (wanted,) = read_consumers([consumer], self.low, self.high)
        return late_answer(self.cells, wanted, level)

    def save(self, directory: str | Path) -> Path:
        """Write histogram.json and histogram.html, each in one step."""

        return save_release(self, directory)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; counts are estimated numbers of participants."""
        return {
            "format": FORMAT,
            "consumers": [c.to_json() for c in self.consumers],
            "epsilon_asked": self.epsilon_asked,
            "epsilon_achieved": self.epsilon_achieved,
            "bits_per_report": self.bits_per_report,
            "mechanism": self.mechanism,
            "frequency_mechanisms": list(self.frequency_mechanisms),
            "participants": self.participants,
            "range": [self.low, self.high],
            "partition": list(self.partition),
            "consistent": self.consistent,
            "private": self.seed is None,
            "seed": self.seed,
            "noise": self.noise,
            "path": self.path,
            "notes": self.notes,
            "warnings": [warning.to_json() for warning in self.warnings],
        }


# --------------------
# A release as files: histogram.json and one self-contained HTML page with a chart a consumer.

_INK, _LINE, _FILL, _MARK = "#25313c", "#d9dfe5", "#9cc8e3", "#00507d"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 48rem; padding: 1rem; color: #25313c;
background: #fff; } h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } figure { margin: 0; } svg {
max-width: 100%; height: auto; background: #fff; } table { border-collapse: collapse; width: 100%;
font-variant-numeric: tabular-nums; } th, td { text-align: right; padding: .2rem .5rem; border-bottom: 1px solid
#d9dfe5; } th:first-child { text-align: left; } .scroll { overflow-x: auto; } .warning { border-left: 4px solid
#b84c00; padding-left: .75rem; } @media (prefers-color-scheme: dark) { body { color: #e6ebf0; background: #14191e; }
th, td { border-color: #3a4550; } }
"""


def save_release(release: HistogramRelease, directory: str | Path) -> Path:
    """Write both files, each under a temporary name first and then moved into place."""
    from dither.schema.files import write_atomically

    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder for the histograms", where=str(folder))
    # Everything is made before anything is written, so that a failure leaves no half of a release.
    document = json.dumps(release.to_json(), indent=1, allow_nan=False) + "\n"
    page = render(release)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "histogram.json", lambda path: path.write_text(document, encoding="utf-8"))
    write_atomically(folder / "histogram.html", lambda path: path.write_text(page, encoding="utf-8"))
    return folder


def render(release: HistogramRelease) -> str:
    """The page; it fetches nothing and runs no script."""
    facts = (
        f"{release.participants:,} simulated participants, each with epsilon {shown_epsilon(release.epsilon_achieved)} at most "
        f"for everything sent (asked: {shown_epsilon(release.epsilon_asked)}); collected by {release.mechanism} "
        f"({', '.join(release.frequency_mechanisms) or 'nothing to ask'}), "
        f"{release.bits_per_report:,} bits a participant. Whoever ran the simulation held the values. "
        f"The noise: {release.noise[:1].lower()}{release.noise[1:]}"
    )
    notes = "".join(f'<p class="warning">{escape(w.message)}</p>' for w in release.warnings)
    parts = "".join(_section(i, c, release.consistent) for i, c in enumerate(release.consumers))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Histograms</title><style>{_STYLE}</style></head><body><main><h1>Histograms</h1>"
        f"<p>{escape(facts)}</p>{notes}{parts}</main></body></html>\n"
    )


def _section(number: int, consumer: ConsumerHistogram, consistent: bool) -> str:
    low, high = consumer.interval()
    rows = "".join(
        f'<tr><th scope="row">{escape(label)}</th><td>{estimate:,.1f}</td><td>{error:,.1f}</td>'
        f"<td>{a:,.1f} to {b:,.1f}</td></tr>"
        for label, estimate, error, a, b in zip(
            labels(consumer), consumer.estimates, consumer.standard_errors, low, high, strict=True
        )
    )
    kind = "count (consistent)" if consistent else "count"
    return (
        f'<section aria-labelledby="c{number}"><h2 id="c{number}">{escape(consumer.name)}</h2>'
        f"<figure>{chart(consumer)}</figure>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="Figures of {escape(consumer.name)}">'
        "<table><thead><tr>"
        f'<th scope="col">bin</th><th scope="col">{kind}</th><th scope="col">standard error</th>'
        f'<th scope="col">95 % interval</th></tr></thead><tbody>{rows}</tbody></table></div></section>'
    )


def labels(consumer: ConsumerHistogram) -> list[str]:
    """Each bin in words; the last one is closed."""
    edges = [f"{edge:,.10g}" for edge in consumer.edges]
    last = len(edges) - 2
    return [f"[{edges[i]}, {edges[i + 1]}{']' if i == last else ')'}" for i in range(last + 1)]


def chart(consumer: ConsumerHistogram) -> str:
    """Bars between the bins' edges with 95 % intervals, as inline SVG with a text alternative."""
    import altair as alt

    low, high = consumer.interval()
    rows = [
        {
            "a": float(a),
            "b": float(b),
            "middle": float(a + b) / 2,
            "count": float(c),
            "low": float(lo),
            "high": float(hi),
        }
        for a, b, c, lo, hi in zip(consumer.edges, consumer.edges[1:], consumer.estimates, low, high, strict=False)
    ]
    base = alt.Chart(alt.InlineData(values=rows))
    x = alt.X("a:Q", title=None, scale=alt.Scale(domain=[rows[0]["a"], rows[-1]["b"]], nice=False, zero=False))
    bars = base.mark_bar(color=_FILL, stroke="#ffffff").encode(x=x, x2="b:Q", y=alt.Y("count:Q", title="people"))
    rules = base.mark_rule(color=_MARK, strokeWidth=2).encode(x="middle:Q", y="low:Q", y2="high:Q")
    dots = base.mark_point(color=_MARK, filled=True, size=30, opacity=1).encode(x="middle:Q", y="count:Q")
    top = max(range(len(rows)), key=lambda i: rows[i]["count"])
    words = (
        f"Histogram for {consumer.name}, {len(rows)} bins. Largest: {labels(consumer)[top]} with about "
        f"{rows[top]['count']:,.0f} people (95 % interval {rows[top]['low']:,.0f} to {rows[top]['high']:,.0f}). "
        "All figures are in the table below."
    )
    return to_svg(alt.layer(bars, rules, dots).properties(width=520, height=220), words)


def to_svg(drawing: Any, words: str) -> str:
    """An Altair chart as inline SVG with a text alternative."""
    import vl_convert

    spec = drawing.to_dict()
    axis = {"labelColor": _INK, "titleColor": _INK, "gridColor": _LINE, "domainColor": _LINE, "tickColor": _LINE}
    spec["config"] = {
        "aria": False,
        "font": "sans-serif",
        "view": {"stroke": None},
        "axis": axis,
        "background": "#ffffff",
    }
    svg = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", vl_convert.vegalite_to_svg(spec))
    mark = f"h{zlib.crc32(words.encode()):x}-"
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{mark}\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{mark}\1)", svg)
    shown = escape(words, quote=True)
    return re.sub(
        r"<svg\b([^>]*)>",
        lambda m: f'<svg role="img" aria-label="{shown}"{m.group(1)}><title>{shown}</title>',
        svg,
        count=1,
    )
