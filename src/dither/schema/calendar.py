"""Dates and instants as numbers, and periods of time. Standard library only.

A date counts in days since 1970-01-01, an instant in seconds since then (in UTC if it has an
offset), a duration in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Literal, get_args

Period = Literal["year", "quarter", "month", "week", "day"]
Cycle = Literal["weekday", "hour"]
PERIODS: tuple[Period, ...] = get_args(Period)
CYCLES: dict[Cycle, tuple[str, ...]] = {
    "weekday": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    "hour": tuple(f"{hour:02d}h" for hour in range(24)),
}
DAY = 86_400
FIRST_DAY = -719_162  # 0001-01-01
LAST_DAY = 2_932_531  # 9998-12-31: a day and a year later still have a name
_EPOCH = date(1970, 1, 1)
_START = datetime(1970, 1, 1)
# What device and browser both read; other forms of ISO 8601 are not read anywhere.
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_INSTANT = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)


def day_number(value: object) -> float | None:
    """Days since 1970-01-01 of a date, an instant or text such as "2024-02-29"; None for others."""
    if isinstance(value, str):
        seconds = second_number(value)
        return None if seconds is None else float(seconds // DAY)
    if isinstance(value, datetime):
        seconds = second_number(value)
        return None if seconds is None else float(seconds // DAY)
    return float((value - _EPOCH).days) if isinstance(value, date) else None


def second_number(value: object) -> float | None:
    """Seconds since 1970-01-01 of an instant, a date or ISO text; None for others."""
    if isinstance(value, str):
        if _INSTANT.fullmatch(value) is None:
            return None
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            try:
                value = value.astimezone(UTC).replace(tzinfo=None)
            except OverflowError:  # before the year 1 or after 9999
                return None
        return (value - _START) / timedelta(seconds=1)
    return float((value - _EPOCH).days * DAY) if isinstance(value, date) else None


def duration_number(value: object) -> float | None:
    """Seconds of a time span or a number; None for others."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)


def shown_day(days: float) -> str:
    """A day in ISO 8601."""
    return (_EPOCH + timedelta(days=days)).isoformat()


def shown_instant(seconds: float) -> str:
    """An instant in ISO 8601, in whole seconds."""
    return (_START + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def period_edges(first: float, last: float, period: Period | None) -> list[float]:
    """The first days of the periods from `first` to `last`, then the day after `last`.

    Without a period all days are one period. The first and the last period are cut at the ends
    of the range.
    """
    end = last + 1
    if period is None:
        return [first, end]
    edges, day = [first], _EPOCH + timedelta(days=first)
    while True:
        day = _next_period(day, period)
        start = float((day - _EPOCH).days)
        if start >= end:
            return [*edges, end]
        edges.append(start)


def _next_period(day: date, period: Period) -> date:
    if period == "day":
        return day + timedelta(days=1)
    if period == "week":  # ISO weeks begin on Mondays
        return day + timedelta(days=7 - day.weekday())
    months = {"year": 12, "quarter": 3, "month": 1}[period]
    number = (day.year * 12 + day.month - 1) // months * months + months
    return date(number // 12, number % 12 + 1, 1)


def period_label(low: str, high: str) -> str:
    """The label of an interval of time: a year or a month by name, else both ends."""
    a, b = (datetime.fromisoformat(text) for text in (low, high))
    if (a.time(), b.time(), a.day, b.day) == (_START.time(), _START.time(), 1, 1):
        months = (b.year - a.year) * 12 + b.month - a.month
        if months == 1:
            return f"{a.year}-{a.month:02d}"
        if months == 12 and a.month == 1:
            return str(a.year)
    return f"{low} to before {high}"


def cycle_number(days: float, seconds: float, cycles: Sequence[Cycle]) -> int:
    """The place of an instant in the product of its cycles; 1970-01-01 was a Thursday."""
    number = 0
    for cycle in cycles:
        at = (int(days) + 3) % 7 if cycle == "weekday" else int(seconds // 3600)
        number = number * len(CYCLES[cycle]) + at
    return number
