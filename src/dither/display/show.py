"""Pictures and tables for a notebook. Everything that comes from outside (names, labels) is escaped before it stands in HTML."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from dither.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from dither.types import NativeTable

# A picture on its own has no page to paint it: the same colours as the pages'.
_STYLE = """svg { background: #ffffff; font-family: system-ui, sans-serif; --ink: #25313c; --line: #d9dfe5; --estimate: #0072b2; }
@media (prefers-color-scheme: dark) { svg { background: #1b232b; --ink: #e4eaf0; --line: #38444f; --estimate: #56b4e9; } }
text { fill: var(--ink); font-size: 12px; } .e { text-anchor: end; } .m { text-anchor: middle; }
.rule { fill: none; stroke: var(--line); } .bar { fill: var(--estimate); opacity: .22; } .dot { fill: var(--estimate); }
.reach { fill: none; stroke: var(--estimate); stroke-width: 1.8; } .node { fill: var(--ink); }
.edge { fill: none; stroke: var(--estimate); stroke-linecap: round; }"""
_OPENING = re.compile(r'<svg role="img" aria-label="([^"]*)" viewBox="0 0 ([\d.]+) ([\d.]+)">')


@dataclass(frozen=True)
class Picture:
    """A picture that shows itself in a notebook; `svg` is the whole file, `words` what it says to whoever cannot see it."""

    svg: str
    words: str

    def save(self, path: str | Path) -> Path:
        """Write it as an SVG file."""
        Path(path).write_text(self.svg, encoding="utf-8")
        return Path(path)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        # As an image: its style stays its own, and nothing in it can act on the page.
        data = base64.b64encode(self.svg.encode()).decode()
        return f'<img alt="{escape(self.words)}" src="data:image/svg+xml;base64,{data}">'

    def __repr__(self) -> str:
        return f"Picture({self.words})"


def stand_alone(chart: Markup) -> Picture:
    """A chart of a page as a picture with a style of its own."""
    found = _OPENING.match(chart)
    if found is None:
        raise ValueError("not a chart")
    words, width, height = found.groups()
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{words}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{_STYLE}</style>'
    )
    return Picture(head + str(chart)[found.end() :], str(Markup(words).unescape()))


def html_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str, figures: int
) -> str:
    """A table of text; the last `figures` columns are numbers and stand to the right."""
    words = len(headings) - figures

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ["left"] * words + ["right"] * figures
        return "".join(
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    head = f"<thead><tr>{line(headings, 'th')}</tr></thead>" if any(headings) else ""
    title = f'<caption style="text-align:left">{escape(caption)}</caption>'
    return f"<table>{title}{head}<tbody>{body}</tbody></table>"


def html_list(items: Sequence[str], title: str) -> str:
    """Sentences under a title; nothing if there are none."""
    if not items:
        return ""
    return f"<p>{escape(title)}</p><ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


def as_pandas(table: pa.Table) -> NativeTable:
    """A pandas DataFrame of a PyArrow table."""
    _needed("pandas")
    return table.to_pandas()


def as_polars(table: pa.Table) -> NativeTable:
    """A polars DataFrame of a PyArrow table."""
    return _needed("polars").from_arrow(table)


def _needed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InputError(
            f"{name} is not installed: pip install {name}, or use to_arrow()", where=name
        ) from None
