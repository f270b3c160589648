"""Small pieces of HTML that a report is put together from; everything that comes from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def text(value: object) -> str:
    """A value as escaped text."""
    return escape(str(value), quote=True)


def percent(share: float) -> str:
    """A share in per cent with two digits after the point; the sign stays on the number's line."""
    return f"{100 * share:.2f}\N{NO-BREAK SPACE}%"


def paragraph(words: str, css: str = "") -> str:
    """A paragraph of plain words."""
    kind = f' class="{css}"' if css else ""
    return f"<p{kind}>{text(words)}</p>"


def bullets(items: Iterable[str]) -> str:
    """A list of plain words."""
    return f"<ul>{''.join(f'<li>{text(item)}</li>' for item in items)}</ul>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "", css: str = "") -> str:
    """A table; the first cell of each row heads it."""
    kind = f' class="{css}"' if css else ""
    title = f"<caption>{text(caption)}</caption>" if caption else ""
    top = "".join(f'<th scope="col">{text(cell)}</th>' for cell in head)
    body = []
    for first, *others in rows:
        cells = "".join(f"<td>{text(cell)}</td>" for cell in others)
        body.append(f'<tr><th scope="row">{text(first)}</th>{cells}</tr>')
    return f"<table{kind}>{title}<thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def folded(summary: str, inside: str, label: str) -> str:
    """A part that opens on demand; its scrolling inside can be reached by keyboard."""
    return (
        f"<details><summary>{text(summary)}</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(label)}">{inside}</div></details>'
    )


def section(anchor: str, heading: str, inside: str) -> str:
    """A section with its heading."""
    head = f'<h2 id="{anchor}-h">{text(heading)}</h2>'
    return f'<section id="{anchor}" aria-labelledby="{anchor}-h">{head}{inside}</section>'
