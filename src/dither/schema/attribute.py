"""One attribute: a public, finite, ordered list of codes 0..cardinality-1.

Dates, instants and durations are numbers: a date counts in days since 1970-01-01, an instant
in seconds since then (in UTC if it has an offset), a duration in seconds. Standard library
only.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from dither.checks import check_choice, check_text, is_finite
from dither.errors import DitherError, ParameterError, SchemaError
from dither.schema.formats import Format, parse_format

if TYPE_CHECKING:
    from dither.types import JsonObject


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


def _duration_number(value: object) -> float | None:
    """Seconds of a time span or a number; None for others."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)


def _shown_day(days: float) -> str:
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


def _period_label(low: str, high: str) -> str:
    """The label of an interval of time: a year or a month by name, else both ends."""
    a, b = (datetime.fromisoformat(text) for text in (low, high))
    if (a.time(), b.time(), a.day, b.day) == (_START.time(), _START.time(), 1, 1):
        months = (b.year - a.year) * 12 + b.month - a.month
        if months == 1:
            return f"{a.year}-{a.month:02d}"
        if months == 12 and a.month == 1:
            return str(a.year)
    return f"{low} to before {high}"


def _cycle_number(days: float, seconds: float, cycles: Sequence[Cycle]) -> int:
    """The place of an instant in the product of its cycles; 1970-01-01 was a Thursday."""
    number = 0
    for cycle in cycles:
        at = (int(days) + 3) % 7 if cycle == "weekday" else int(seconds // 3600)
        number = number * len(CYCLES[cycle]) + at
    return number


@dataclass(frozen=True)
class Line:
    """Bins and atoms in numeric order, so that neighbouring codes are neighbouring values.

    Bins are half-open. An atom is removed from the bin that contains it, and may lie outside all
    bins.

    Attributes:
        boundaries: All edges and atoms.
        points: The code of exactly the i-th boundary; -1 if it has no cell.
        gaps: The code of the numbers between the i-th boundary and the next; -1 if no cell.
        ends: The ends of each code's cell; equal for an atom.
    """

    boundaries: tuple[float, ...]
    points: tuple[int, ...]
    gaps: tuple[int, ...]
    ends: tuple[tuple[float, float], ...]  # of each code; equal for an atom

    @property
    def cells(self) -> int:
        """The number of codes."""
        return len(self.ends)

    def code(self, number: float) -> int | None:
        """The code of a number; None if it lies in no cell."""
        at = bisect_right(self.boundaries, number) - 1
        if at < 0 or number != number:  # noqa: PLR0124 - NaN; whole numbers too large for a float have no isnan
            return None
        code = self.points[at] if self.boundaries[at] == number else self.gaps[at]
        return None if code < 0 else code

    def is_atom(self, code: int) -> bool:
        """Whether a code is one exact value."""
        low, high = self.ends[code]
        return low == high


def build_line(edges: Sequence[float], atoms: Sequence[float] = (), *, closed: bool = True) -> Line:
    """The cells of increasing edges and of atoms.

    Args:
        edges: The edges of the bins.
        atoms: Exact values with their own cells.
        closed: Whether the last edge belongs to the last bin.
    """
    exact = set(atoms)
    boundaries = tuple(sorted({*edges, *exact}))
    points: list[int] = []
    gaps: list[int] = []
    ends: list[tuple[float, float]] = []
    for i, boundary in enumerate(boundaries):
        if boundary in exact:
            points.append(len(ends))
            ends.append((boundary, boundary))
        else:
            points.append(-1)
        if edges[0] <= boundary < edges[-1]:
            gaps.append(len(ends))
            ends.append((boundary, boundaries[i + 1]))
        else:
            gaps.append(-1)
        if points[-1] < 0 and boundary != edges[-1]:
            points[-1] = gaps[-1]
        elif points[-1] < 0 and closed:
            points[-1] = gaps[-2]
    return Line(boundaries, tuple(points), tuple(gaps), tuple(ends))


Kind = Literal["categorical", "ordinal", "boolean", "numeric", "date", "datetime", "duration"]
Value = str | int | float | bool
_LISTED: tuple[Kind, ...] = ("categorical", "ordinal", "boolean")
KINDS: tuple[Kind, ...] = (*_LISTED, "numeric", "date", "datetime", "duration")
MAX_VALUES = 1 << 17  # values or bins of one attribute
_MAX_UNITS = 2.0**64  # units of a number, the most that a column can count
# Characters of texts for people.
MAX_QUESTION, MAX_HELP, MAX_CAPTION = 500, 2000, 200
# Keys of a schema file for people; the fingerprint ignores them.
TEXTS = (
    "question",
    "help",
    "labels",
)
# The least distance of two bounds that can be divided in full precision.
_NEAREST = 1e-290


_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", re.ASCII)


@dataclass(frozen=True)
class Wording:
    """Those texts of an attribute that a schema has in several languages, in one of them."""

    language: str
    question: str = ""
    help: str = ""
    captions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attribute:
    """An attribute and its public domain.

    Categorical, ordinal and boolean attributes list their `values`. The other kinds lie on a
    line: numbers, or days and seconds since 1970.

    Attributes:
        name: The name; a column of a table.
        kind: "categorical", "ordinal", "boolean", "numeric", "date", "datetime" or "duration".
        values: The values of a listed attribute.
        edges: The edges of half-open bins. The last bin of numbers and durations is closed; days
            and instants end before the last edge.
        missing: Whether a missing answer has a code, the last one.
        atoms: Exact values with their own codes.
        unit: Every number is a multiple of it: 1 for whole numbers, 0.01 for cents.
        cycles: Cut every bin of a date or an instant by weekday or hour of the day.
        groups: The group of each value, such as the region of each city.
        clip: Whether a number outside the domain counts as the nearer end.
        question: The question, for people.
        help: A text below the question, for people.
        captions: A caption for each answer, for people (`labels` in a schema file), and
            optionally one for the missing answer. Two schemas that differ in texts only have the
            same codes.
        wordings: The same texts in several languages, if the schema has them; `question`, `help`
            and `captions` are then those of the first language.
        format: How a table writes numbers or times as text, such as "$1,234.00" or "%d/%m/%Y".
            It has no effect on codes, and devices do not get it.

    >>> from dither import Attribute
    >>> Attribute("age", "numeric", edges=(0.0, 18.0, 65.0, 120.0), missing=True).cardinality
    4
    """

    name: str
    kind: Kind
    values: tuple[Value, ...] = ()
    edges: tuple[float, ...] = ()
    missing: bool = False
    atoms: tuple[float, ...] = ()
    unit: float | None = None
    cycles: tuple[Cycle, ...] = ()
    groups: tuple[str, ...] = ()
    clip: bool = False
    question: str = ""
    help: str = ""
    captions: tuple[str, ...] = ()
    format: str = ""
    wordings: tuple[Wording, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(
                f"an attribute's name must be a non-empty string, not {self.name!r}",
                value=self.name,
            )
        if not _is_text(self.name):
            raise SchemaError(
                f"attribute {self.name!r}: its name has an unpaired surrogate, which is not text",
                where=ascii(self.name),
            )
        check_kind(self.name, self.kind)
        if self.on_line:
            self._check_edges()
            self._check_atoms()
            self._check_cycles()
        else:
            self._check_values()
        self._check_groups()
        if self.answers > MAX_VALUES:
            raise too_many(self.name, self.answers)
        if self.cardinality < 2:
            raise SchemaError(
                f"attribute {self.name!r} has one possible value, so there is nothing to ask; drop it or widen it",
                where=self.name,
            )
        self._check_texts()
        if self.format:
            parse_format(self.name, self.kind, self.format)

    def _check_texts(self) -> None:
        about = f"attribute {self.name!r}:"
        given: tuple[Attribute | Wording, ...] = (self, *self.wordings)
        for one in given:
            check_text(
                f"{about} question", one.question, MAX_QUESTION, where=self.name, error=SchemaError
            )
            check_text(
                f"{about} help", one.help, MAX_HELP, lines=True, where=self.name, error=SchemaError
            )
            if one.captions and len(one.captions) not in (self.answers, self.cardinality):
                raise SchemaError(
                    f"{about} {len(one.captions):,} labels do not fit its {self.answers:,} "
                    "answers; give one for each",
                    where=self.name,
                )
            for caption in one.captions:
                check_text(
                    f"{about} a label", caption, MAX_CAPTION, where=self.name, error=SchemaError
                )
        for wording in self.wordings:
            check_language(wording.language, where=self.name, error=SchemaError)

    def in_language(self, *languages: str) -> Attribute:
        """Return the attribute with its texts in the first of these languages that it has.

        A text that this language lacks stays as it is. The result has one language.
        """
        by_language = {wording.language: wording for wording in self.wordings}
        for language in languages:
            if language in by_language:
                found = by_language[language]
                return replace(
                    self,
                    question=found.question or self.question,
                    help=found.help or self.help,
                    captions=found.captions or self.captions,
                    wordings=(),
                )
        return replace(self, wordings=()) if self.wordings else self

    def _check_edges(self) -> None:
        if self.values:
            raise SchemaError(
                f"{self.kind} attribute {self.name!r} takes edges, not values", where=self.name
            )
        if len(self.edges) + 2 * len(self.atoms) > MAX_VALUES + 1:
            raise too_many(self.name, len(self.edges) + 2 * len(self.atoms) - 1)
        finite = all(is_finite(e) for e in self.edges)
        if (
            len(self.edges) < 2
            or not finite
            or any(a >= b for a, b in zip(self.edges, self.edges[1:], strict=False))
        ):
            raise SchemaError(
                f"{self.kind} attribute {self.name!r}: edges must be at least two finite, strictly increasing numbers",
                where=self.name,
                value=self.edges,
            )
        check_span(self.name, self.kind, self.edges[0], self.edges[-1])

    def _check_atoms(self) -> None:
        if (self.atoms or self.unit is not None) and self.kind not in ("numeric", "duration"):
            raise SchemaError(
                f"attribute {self.name!r} is a {self.kind}: atoms and unit go with numbers and durations",
                where=self.name,
            )
        if not all(is_finite(atom) and not isinstance(atom, bool) for atom in self.atoms):
            raise SchemaError(
                f"attribute {self.name!r}: atoms must be finite numbers", where=self.name
            )
        if any(a >= b for a, b in zip(self.atoms, self.atoms[1:], strict=False)):
            raise SchemaError(
                f"attribute {self.name!r}: atoms must increase strictly", where=self.name
            )
        check_unit(self.name, self.unit, (*self.edges, *self.atoms))
        if not isinstance(self.clip, bool) or (
            self.clip and self.kind not in ("numeric", "duration")
        ):
            raise SchemaError(
                f"attribute {self.name!r}: clip is true or false, and goes with numbers and durations",
                where=self.name,
            )

    def _check_cycles(self) -> None:
        allowed: dict[str, tuple[str, ...]] = {"date": ("weekday",), "datetime": tuple(CYCLES)}
        for cycle in self.cycles:
            if cycle not in allowed.get(self.kind, ()):
                raise SchemaError(
                    f"attribute {self.name!r} is a {self.kind}, which has no cycle {cycle!r}; dates have weekday, datetimes "
                    "weekday and hour",
                    where=self.name,
                    value=cycle,
                )
        if len(set(self.cycles)) < len(self.cycles):
            raise SchemaError(f"attribute {self.name!r} names a cycle twice", where=self.name)

    def _check_groups(self) -> None:
        if not self.on_line and (self.atoms or self.unit is not None or self.cycles or self.clip):
            raise SchemaError(
                f"attribute {self.name!r} is {self.kind}: atoms, unit, cycles and clip go with numbers and times",
                where=self.name,
            )
        if self.groups and (
            self.kind == "boolean" or len(self.groups) != self.answers or len(set(self.groups)) < 2
        ):
            raise SchemaError(
                f"attribute {self.name!r} needs one group for each of its answers, and at least two groups",
                where=self.name,
            )
        if not all(isinstance(group, str) and group and _is_text(group) for group in self.groups):
            raise SchemaError(
                f"attribute {self.name!r}: groups must be named by text", where=self.name
            )

    def _check_values(self) -> None:
        if self.edges:
            raise SchemaError(
                f"attribute {self.name!r} is {self.kind}: it takes values, not edges",
                where=self.name,
            )
        if self.kind == "boolean" and tuple(self.values) != (False, True):
            raise SchemaError(
                f"boolean attribute {self.name!r} has the values false, true in this order",
                where=self.name,
            )
        for value in self.values:
            if not isinstance(value, (str, int, float)) or (
                isinstance(value, float) and not math.isfinite(value)
            ):
                raise SchemaError(
                    f"attribute {self.name!r}: {value!r} cannot be a value; use text, whole or finite numbers",
                    where=self.name,
                    value=value,
                )
            if isinstance(value, str) and not _is_text(value):
                raise SchemaError(
                    f"attribute {self.name!r}: the value {value!r} has an unpaired surrogate, which is not text",
                    where=self.name,
                    value=value,
                )
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise SchemaError(
                    f"attribute {self.name!r}: the value {_shown(value)} does not fit in 64 bits; write it as text",
                    where=self.name,
                    value=value,
                )
        # 1, 1.0 and True are equal in Python; a table could not distinguish codes of equal
        # values.
        seen: set[object] = set()
        for value in self.values:
            if value in seen:
                raise SchemaError(
                    f"attribute {self.name!r} lists the value {value!r} twice",
                    where=self.name,
                    value=value,
                )
            seen.add(value)

    @cached_property
    def form(self) -> Format | None:
        """How a table writes the values as text; None for the plain form."""
        return parse_format(self.name, self.kind, self.format) if self.format else None

    @property
    def on_line(self) -> bool:
        """Whether answers are numbers or times, and codes are intervals."""
        return self.kind not in _LISTED

    @cached_property
    def line(self) -> Line:
        """The bins and atoms of an attribute on a line."""
        return build_line(self.edges, self.atoms, closed=self.kind in ("numeric", "duration"))

    @cached_property
    def turns(self) -> int:
        """The number of parts into which the cycles cut every bin."""
        return math.prod(len(CYCLES[cycle]) for cycle in self.cycles)

    @property
    def answers(self) -> int:
        """The number of answers without the missing one."""
        return self.line.cells * self.turns if self.on_line else len(self.values)

    @property
    def cardinality(self) -> int:
        """The number of codes; the missing one, if any, is the last."""
        return self.answers + int(self.missing)

    @property
    def ordered(self) -> bool:
        """Whether neighbouring codes are neighbouring values."""
        return self.kind == "ordinal" or (self.on_line and not self.cycles)

    @property
    def labels(self) -> tuple[str, ...]:
        """A readable label for each code."""
        if self.on_line:
            shown = self._line_labels()
        elif self.kind == "boolean":
            shown = ["false", "true"]
        else:
            shown = [str(v) for v in self.values]
        return (*shown, "(missing)") if self.missing else tuple(shown)

    def _line_labels(self) -> list[str]:
        ends = self.line.ends
        if self.kind in ("date", "datetime"):
            periods = [_period_label(self.shown(a), self.shown(b)) for a, b in ends]
            for cycle in self.cycles:
                periods = [f"{period} {part}" for period in periods for part in CYCLES[cycle]]
            return periods
        unit = " s" if self.kind == "duration" else ""
        exact, last = set(self.atoms), self.edges[-1]
        return [
            f"{_short(a)}{unit}"
            if a == b
            else f"{'(' if a in exact else '['}{_short(a)}, {_short(b)}{']' if b == last and b not in exact else ')'}{unit}"
            for a, b in ends
        ]

    def shown(self, number: float) -> str:
        """A number of the attribute's line as schema files write it."""
        if self.kind == "date":
            return _shown_day(number)
        return shown_instant(number) if self.kind == "datetime" else repr(number)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The smallest and the largest number of an answer; None if some answers are not numbers."""
        numbers = (*self.edges, *self.atoms) or self.values
        ends = [float(value) for value in numbers if not isinstance(value, (str, bool))]
        return (min(ends), max(ends)) if len(ends) == len(numbers) else None

    @cached_property
    def codes(self) -> dict[Value, int]:
        """The code of each value, for constant-time lookup."""
        return {value: code for code, value in enumerate(self.values)}

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """The groups in the order in which they first occur."""
        return tuple(dict.fromkeys(self.groups))

    @cached_property
    def group_codes(self) -> tuple[int, ...]:
        """The group of each code; the missing code has its own group, the last."""
        place = {group: i for i, group in enumerate(self.group_names)}
        return (*(place[group] for group in self.groups), *([len(place)] if self.missing else ()))

    def number(self, value: object) -> float | None:
        """The place of a date, an instant or a duration on the line; None for others.

        Texts are in the attribute's format or in ISO 8601.
        """
        if isinstance(value, str) and self.form is not None:
            number = self.form.read(value)
            if number is not None:
                return number
        read = {"date": day_number, "datetime": second_number, "duration": _duration_number}[
            self.kind
        ]
        return read(value)

    def clipped(self, number: float) -> float:
        """The number, or the end of the domain that it exceeds; NaN stays NaN."""
        low, high = self.line.boundaries[0], self.line.boundaries[-1]
        # In this order NaN passes both comparisons.
        return min(max(number, low), high)

    def line_code(self, number: float) -> int | None:
        """The code of a number on the attribute's line; None if it is outside the domain."""
        cell = self.line.code(self.clipped(number) if self.clip else number)
        if cell is None or not self.cycles:
            return cell
        days, seconds = (number, 0.0) if self.kind == "date" else divmod(number, DAY)
        return cell * self.turns + _cycle_number(days, seconds, self.cycles)

    def to_json(self) -> JsonObject:
        """The entry that devices get; defaults are left out."""
        out: JsonObject = {"name": self.name, "kind": self.kind}
        if self.kind in ("date", "datetime"):
            out["edges"] = [self.shown(edge) for edge in self.edges]
        elif self.on_line:
            out["edges"] = list(self.edges)
        elif self.kind != "boolean":
            out["values"] = list(self.values)
        for key in ("atoms", "cycles", "groups"):
            if getattr(self, key):
                out[key] = list(getattr(self, key))
        if self.unit is not None:
            out["unit"] = self.unit
        for key in ("missing", "clip"):
            if getattr(self, key):
                out[key] = True
        return out | self._texts_json()

    def _texts_json(self) -> JsonObject:
        """The texts for people, by language where languages differ."""
        out: JsonObject = {}
        for key, field in (("question", "question"), ("help", "help"), ("labels", "captions")):
            texts = {w.language: getattr(w, field) for w in self.wordings if getattr(w, field)}
            plain = {code: _plain(text) for code, text in texts.items()}
            if plain or getattr(self, field):
                out[key] = plain or _plain(getattr(self, field))
        return out

    def file_json(self) -> JsonObject:
        """The entry of a schema file, with the format of a table's column."""
        return {**self.to_json(), **({"format": self.format} if self.format else {})}


def _plain(text: str | tuple[str, ...]) -> str | list[str]:
    return text if isinstance(text, str) else list(text)


def check_language(
    code: object, *, where: str = "language", error: type[DitherError] = ParameterError
) -> str:
    """Check a language's code, such as "de" or "pt-BR" (BCP 47)."""
    if not isinstance(code, str) or len(code) > 35 or _LANGUAGE.fullmatch(code) is None:
        raise error(
            f"{str(code)[:40]!r} is not a language's code; write it as de or pt-BR", where=where
        )
    return code


def check_kind(name: str, kind: Any) -> Kind:
    """Check the kind of an attribute."""
    return check_choice(f"attribute {name!r}: kind", kind, KINDS, where=name, error=SchemaError)


def check_span(name: str, kind: str, low: float, high: float) -> None:
    """Check that the distance of two bounds is neither infinite nor too small to divide."""
    if not is_finite(high - low) or high - low < _NEAREST:
        raise SchemaError(
            f"{kind} attribute {name!r}: the difference of its bounds is too large or too small for a float",
            where=name,
        )


def check_unit(name: str, unit: float | None, numbers: Sequence[float]) -> None:
    """Check a unit against the numbers that are counted in it: not too wide, not too fine."""
    if unit is None:
        return
    if not (is_finite(unit) and unit > 0):
        raise SchemaError(f"attribute {name!r}: unit must be a number above 0", where=name)
    low, high = min(numbers), max(numbers)
    if unit > (high - low) * (1 + 1e-9):
        raise SchemaError(
            f"attribute {name!r}: its unit {unit:g} is wider than its whole range", where=name
        )
    if max(abs(low), abs(high)) > _MAX_UNITS * unit:
        raise SchemaError(
            f"attribute {name!r}: its unit {unit:g} is too fine for its range", where=name
        )


def too_many(name: str, count: int) -> SchemaError:
    """The error for an attribute with too many values or bins."""
    many = f"{count:,}" if count < 2**63 else "more than 2^63"
    return SchemaError(
        f"attribute {name!r} has {many} values or bins; at most {MAX_VALUES:,} are allowed",
        where=name,
        value=count,
    )


def _is_text(value: str) -> bool:
    """Whether UTF-8 can encode the text; an unpaired surrogate cannot be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: int) -> str:
    return str(value) if value.bit_length() <= 256 else f"of {value.bit_length():,} bits"


def _short(number: float) -> str:
    """A number with few digits and thousands separators."""
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.6g}"
