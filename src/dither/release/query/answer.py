"""Answers to questions, and how they show themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from dither.display import (
    Bar,
    Picture,
    as_pandas,
    as_polars,
    bar_chart,
    html_list,
    html_table,
    printable,
    share,
    short_number,
    stand_alone,
)
from dither.errors import ParameterError
from dither.notice import Notice
from dither.release.intervals import Basis
from dither.release.query.quantities import Difference, Quantity, Ratio
from dither.types import JsonObject, NativeTable

if TYPE_CHECKING:
    import pyarrow as pa

Unit = Literal["share", "number"]
# Rows of a table on a page or in a chart.
_SHOWN = 40


class Source(Protocol):
    """Answers questions; two answers of one source can be subtracted or divided."""

    def answer(self, quantity: Quantity, level: float, asked: str) -> Answer:
        """The figure with its interval."""


@dataclass(frozen=True, repr=False)
class Answer:
    """A figure with its uncertainty.

    `a - b` and `a / b` are answers too and account for the covariance of both.

    Attributes:
        low: Lower end of the interval of the given `level`; None without an interval,
            with the reason in `warnings`.
        high: Upper end.
        standard_error: Root mean squared error, scatter and bias together.
        people: Number of participants that the figure is about.
        basis: Source of the figure: the fitted model, the reports about these
            attributes, or both.
    """

    asked: str
    estimate: float
    low: float | None
    high: float | None
    standard_error: float | None
    level: float
    people: float | None
    basis: Basis
    unit: Unit = "share"
    warnings: tuple[Notice, ...] = ()
    _quantity: Quantity | None = field(default=None, compare=False)
    _source: Source | None = field(default=None, compare=False)

    def __sub__(self, other: Answer) -> Answer:
        return self._against(other, "-", Difference)

    def __truediv__(self, other: Answer) -> Answer:
        return self._against(other, "/", Ratio)

    def _against(self, other: Answer, sign: str, kind: type[Difference] | type[Ratio]) -> Answer:
        if not isinstance(other, Answer):
            return NotImplemented
        for answer in (self, other):
            if answer._quantity is None:
                raise ParameterError(
                    f"{answer.asked} cannot be set against another answer: "
                    "only shares can, and means of a table",
                    where=sign,
                )
        if self._source is None or self._source is not other._source:
            raise ParameterError(
                "only answers of one release can be set against each other", where="release"
            )
        assert self._quantity is not None
        assert other._quantity is not None
        asked = f"({self.asked}) {sign} ({other.asked})"
        return self._source.answer(kind(self._quantity, other._quantity), self.level, asked)

    def to_json(self) -> JsonObject:
        """As `dither query --json` prints it."""
        return {
            "estimate": _plain(self.estimate),
            "low": self.low,
            "high": self.high,
            "standard_error": self.standard_error,
            "people": self.people,
            "warnings": [warning.to_json() for warning in self.warnings],
        }

    def to_arrow(self) -> pa.Table:
        """A PyArrow table of one row."""
        names = ("asked", "estimate", "low", "high", "standard_error", "people")
        return _arrow({name: [getattr(self, name)] for name in names})

    def to_pandas(self) -> NativeTable:
        """A pandas DataFrame of one row."""
        return as_pandas(self.to_arrow())

    def to_polars(self) -> NativeTable:
        """A polars DataFrame of one row."""
        return as_polars(self.to_arrow())

    def plot(self) -> Picture:
        """The figure and its interval, a picture for a notebook."""
        return _picture([Bar(self.asked, self.estimate, self.low, self.high)], str(self), self.unit)

    def __str__(self) -> str:
        people = "" if self.people is None else f", about {self.people:,.0f} people"
        texts = figure_texts(self.estimate, self.low, self.high, self.unit)
        return f"{_joined(texts, self.level)}{people}"

    def __repr__(self) -> str:
        lines = [f"Answer({self.asked}: {self})", *(f"  {warning}" for warning in self.warnings)]
        return printable("\n".join(lines))

    def _repr_html_(self) -> str:
        headings = ("", "estimate", interval_heading(self.level), "people")
        people = "" if self.people is None else f"{self.people:,.0f}"
        row = (self.asked, *figure_texts(self.estimate, self.low, self.high, self.unit), people)
        return html_table(headings, [row], "", 3) + html_list(
            [str(w) for w in self.warnings], "Read with care:"
        )


@dataclass(frozen=True)
class AnswerRow:
    """One row of a table of answers: the labels that it is about, or a quantile's level."""

    values: tuple[str | float, ...]
    estimate: float
    low: float | None
    high: float | None
    standard_error: float | None

    def to_json(self) -> JsonObject:
        """As `dither query --json` prints it."""
        return {
            "values": list(self.values),
            "estimate": _plain(self.estimate),
            "low": self.low,
            "high": self.high,
        }


@dataclass(frozen=True, repr=False)
class AnswerTable:
    """A figure for each combination of some attributes' values, the last one fastest.

    See `Answer`. With `simultaneous` all intervals cover together with probability
    `level`, otherwise each does.
    """

    asked: str
    by: tuple[str, ...]
    rows: tuple[AnswerRow, ...]
    level: float
    basis: Basis
    simultaneous: bool = False
    unit: Unit = "share"
    warnings: tuple[Notice, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def only(self) -> Answer:
        """The answer of a table of one row."""
        (row,) = self.rows
        values = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in row.values)
        return Answer(
            asked=f"{self.asked} at {values}",
            estimate=row.estimate,
            low=row.low,
            high=row.high,
            standard_error=row.standard_error,
            level=self.level,
            people=None,
            basis=self.basis,
            unit=self.unit,
            warnings=self.warnings,
        )

    def to_json(self) -> JsonObject:
        """As `dither query --json` prints it."""
        return {
            "by": list(self.by),
            "rows": [row.to_json() for row in self.rows],
            "warnings": [warning.to_json() for warning in self.warnings],
        }

    def to_arrow(self) -> pa.Table:
        """A PyArrow table: the attributes, `estimate`, `low`, `high` and `standard_error`."""
        columns: dict[str, list[object]] = {
            name: [row.values[i] for row in self.rows] for i, name in enumerate(self.by)
        }
        for name in ("estimate", "low", "high", "standard_error"):
            free = name
            while free in self.by:
                free += "_"
            columns[free] = [getattr(row, name) for row in self.rows]
        return _arrow(columns)

    def to_pandas(self) -> NativeTable:
        """A pandas DataFrame; see `to_arrow`."""
        return as_pandas(self.to_arrow())

    def to_polars(self) -> NativeTable:
        """A polars DataFrame; see `to_arrow`."""
        return as_polars(self.to_arrow())

    def plot(self) -> Picture:
        """A chart of the figures and their intervals for a notebook; of many rows the largest."""
        bars = [
            Bar(" | ".join(map(str, row.values)), row.estimate, row.low, row.high)
            for row in self._shown()
        ]
        return _picture(
            bars,
            f"{self.asked} by {', '.join(self.by)}: {len(bars)} of {len(self)} rows",
            self.unit,
        )

    def __repr__(self) -> str:
        lines = [f"AnswerTable({self.asked} by {', '.join(self.by)}, {len(self)} rows)"]
        for row in self._shown(12):
            texts = figure_texts(row.estimate, row.low, row.high, self.unit)
            lines.append(f"  {' | '.join(map(str, row.values))}  {_joined(texts, self.level)}")
        if len(self) > 12:
            lines.append(f"  … and {len(self) - 12:,} smaller ones")
        lines += [f"  {warning}" for warning in self.warnings]
        return printable("\n".join(lines))

    def _repr_html_(self) -> str:
        together = " (all of them together)" if self.simultaneous else ""
        headings = (*self.by, "estimate", interval_heading(self.level) + together)
        rows = [
            (
                *map(str, row.values),
                *figure_texts(row.estimate, row.low, row.high, self.unit),
            )
            for row in self._shown()
        ]
        left = f"; {len(self) - _SHOWN:,} smaller ones are not shown" if len(self) > _SHOWN else ""
        table = html_table(headings, rows, f"{self.asked}{left}", 2)
        return table + html_list([str(warning) for warning in self.warnings], "Read with care:")

    def _shown(self, most: int = _SHOWN) -> Sequence[AnswerRow]:
        if len(self) <= most:
            return self.rows
        return sorted(
            self.rows, key=lambda row: -row.estimate if not math.isnan(row.estimate) else math.inf
        )[:most]


def shown(value: float, unit: Unit) -> str:
    """A figure for people: shares in per cent."""
    if math.isnan(value):
        return "unknown"
    return f"{100 * value:.2f} %" if unit == "share" else f"{value:,.5g}"


def interval_heading(level: float) -> str:
    """The heading of a column of intervals."""
    return f"{100 * level:.4g} % interval"


def figure_texts(
    estimate: float, low: float | None, high: float | None, unit: Unit
) -> tuple[str, str]:
    """A figure and its interval for people, without digits that the interval blurs.

    The half-width keeps two digits: 16.7 % with 13.5 % to 19.9 %.
    """
    if low is None or high is None or math.isnan(estimate):
        return shown(estimate, unit), "none"
    scale = 100.0 if unit == "share" else 1.0
    half = scale * (high - low) / 2
    if half <= 0:
        return shown(estimate, unit), f"{shown(low, unit)} to {shown(high, unit)}"
    digits = max(0, 1 - math.floor(math.log10(half)))
    if unit == "share":
        digits = min(digits, 2)
    texts = [f"{scale * value:,.{min(digits, 9)}f}" for value in (estimate, low, high)]
    sign = " %" if unit == "share" else ""
    return f"{texts[0]}{sign}", f"{texts[1]}{sign} to {texts[2]}{sign}"


def _joined(texts: tuple[str, str], level: float) -> str:
    """A figure and its interval in one line."""
    estimate, interval = texts
    if interval == "none":
        return f"{estimate}, without an interval"
    return f"{estimate} ({interval_heading(level)} {interval})"


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value


def _picture(bars: Sequence[Bar], words: str, unit: Unit) -> Picture:
    known = [bar for bar in bars if not math.isnan(bar.estimate)]
    if not known:
        raise ParameterError("there is no figure to draw", where="plot")
    return stand_alone(bar_chart(known, words, share if unit == "share" else short_number))


def _arrow(columns: Mapping[str, list[object]]) -> pa.Table:
    import pyarrow as pa

    text = pa.string()
    kinds = {
        name: text if any(isinstance(v, str) for v in values) else pa.float64()
        for name, values in columns.items()
    }
    return pa.table(
        {name: pa.array(values, kinds[name], from_pandas=True) for name, values in columns.items()}
    )
