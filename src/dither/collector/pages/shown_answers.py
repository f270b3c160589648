"""The answer of a release as a page shows it: a chart, a table, and why figures cannot be trusted where they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from dither.display import Bar, bar_chart
from dither.release.query import Answer, AnswerTable
from dither.release.query.answer import AnswerRow, Unit, interval_heading, shown

MAX_CHARTED = 40  # rows of an answer in its chart
MAX_ROWS = 500  # in its table on the page; the files have all of them
_NO_INTERVAL = ("no-interval", "divisor-unsure", "caution")


@dataclass(frozen=True)
class _ShownRow:
    """A row of an answer in words: what it is about, the figure, its interval, and why it cannot be trusted if it cannot."""

    about: tuple[str, ...]
    estimate: str
    interval: str
    remark: str


def shown_answer(answer: Answer | AnswerTable) -> dict[str, Any]:
    """What the page needs of an answer; only shares are drawn."""
    rows = _rows(answer)
    reason = next((str(w) for w in answer.warnings if w.code in _NO_INTERVAL), "")
    known = [row for row in rows if row.estimate == row.estimate] if answer.unit == "share" else []
    charted = (
        known
        if len(known) <= MAX_CHARTED
        else sorted(known, key=lambda row: -row.estimate)[:MAX_CHARTED]
    )
    between = " to " if isinstance(answer, AnswerTable) and answer.by == ("from", "to") else " · "
    bars = [Bar(between.join(_about(row)), row.estimate, row.low, row.high) for row in charted]
    words = f"{answer.asked}: " + ", ".join(f"{bar.label} {bar.estimate:.1%}" for bar in bars[:5])
    listed = (
        rows if len(rows) <= MAX_ROWS else sorted(rows, key=lambda row: -row.estimate)[:MAX_ROWS]
    )
    return {
        "asked": answer.asked,
        "head": list(answer.by)
        if isinstance(answer, AnswerTable)
        else ["Whom"]
        if answer.unit == "share"
        else ["What"],
        "interval": interval_heading(answer.level),
        "chart": bar_chart(bars, words) if bars else Markup(""),
        "rows": _shown_rows(listed, reason, answer.unit),
        "left": len(rows) - len(listed),
        "uncharted": len(known) - len(charted),
        "warnings": answer.warnings,
        "people": None if isinstance(answer, AnswerTable) else answer.people,
    }


def _rows(answer: Answer | AnswerTable) -> list[AnswerRow]:
    if isinstance(answer, AnswerTable):
        return list(answer.rows)
    return [
        AnswerRow((answer.asked,), answer.estimate, answer.low, answer.high, answer.standard_error)
    ]


def _about(row: AnswerRow) -> tuple[str, ...]:
    return tuple(value if isinstance(value, str) else f"{value:,.6g}" for value in row.values)


def _shown_rows(rows: Sequence[AnswerRow], reason: str, unit: Unit) -> list[_ShownRow]:
    """Why there is no interval stands in full in the first row without one."""
    out, said = [], reason or "no interval can be had for this figure"
    for row in rows:
        out.append(_row(row, said, unit))
        if row.low is None:
            said = "as above"
    return out


def _row(row: AnswerRow, reason: str, unit: Unit) -> _ShownRow:
    about, estimate = _about(row), shown(row.estimate, unit)
    if row.low is None or row.high is None:
        return _ShownRow(about, estimate, "none", reason)
    interval = f"{shown(row.low, unit)} to {shown(row.high, unit)}"
    if unit != "share":
        return _ShownRow(about, estimate, interval, "")
    if row.low <= 0.0:
        return _ShownRow(about, estimate, interval, "cannot be told from none")
    return _ShownRow(
        about, estimate, interval, "cannot be told from all" if row.high >= 1.0 else ""
    )
