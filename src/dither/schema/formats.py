"""How a table writes numbers, dates and times as text: the schema key `format`.

A number's format is an example of it: "$1,234.00", "0.0%", "1.234,50 €". Dates and times have
a pattern of `strftime` codes: "%d/%m/%Y", "%H:%M"; a hyphen ("%-d") means without leading
zeros. A format has no effect on codes. Standard library only.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import chain
from typing import Literal, get_args

from dither.errors import SchemaError

DateOrder = Literal["dmy", "mdy"]
_MomentKind = Literal["date", "datetime", "duration"]
# Texts that mean no answer in a CSV file.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "NaN", "nan", "?")
# Texts that mean no answer in a column of numbers, and nowhere else.
MISSING_MARKS = (".", "..", "-", "--", "\N{EN DASH}", "\N{EM DASH}")
# Characters of the text before or after a number, such as "$" or " EUR".
_MAX_AFFIX = 8
_MAX_LENGTH = 64
# Digits after the decimal mark; a double has fewer.
_MAX_DIGITS = 20
_THOUSANDS = ",.' \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{RIGHT SINGLE QUOTATION MARK}"
# An example of a number; "#" is a digit that is written only if it is not zero.
_EXAMPLE = re.compile(
    rf"(?P<prefix>[^\d#]*?)(?:[1-9]\d{{0,2}}(?P<sep>[{_THOUSANDS}])\d{{3}}(?:(?P=sep)\d{{3}})*|\d+)"
    r"(?P<fraction>[.,]\d*#*)?(?P<suffix>[^\d#]*)",
    re.ASCII,
)
_CURRENCY_CODES = ("USD", "EUR", "GBP", "CHF", "JPY", "CAD", "AUD", "SEK", "NOK", "DKK", "INR")
_EPOCH = date(1970, 1, 1)
_DAY = 86_400
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MONTH_NUMBERS = {name.lower(): i for i, name in enumerate(_MONTHS, start=1)} | {
    name[:3].lower(): i for i, name in enumerate(_MONTHS, start=1)
}
_DIRECTIVE = re.compile(r"%(-?[A-Za-z])")
# What each code reads; those with a hyphen read the same.
_READS = {
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d{2})",
    "m": r"(?P<m>\d{1,2})",
    "d": r"(?P<d>\d{1,2})",
    "b": r"(?P<b>[A-Za-z]{3})",
    "B": r"(?P<B>[A-Za-z]{3,9})",
    "H": r"(?P<H>\d{1,2})",
    "I": r"(?P<I>\d{1,2})",
    "M": r"(?P<M>\d{2})",
    "S": r"(?P<S>\d{2})",
    "p": r"(?P<p>[AaPp][Mm])",
}
_CLOCK = frozenset("HIMSp")
_CALENDAR = frozenset("YymdbB")
# Two-digit years from here on belong to the last century, as in POSIX.
_PIVOT = 69


@dataclass(frozen=True)
class NumberFormat:
    """How numbers are written.

    Attributes:
        prefix: Text before the number, such as "$".
        thousands: What separates groups of three digits; empty for none.
        decimal: The decimal mark.
        digits: Digits after the decimal mark.
        fixed: Whether they are written if they are zero.
        suffix: Text after the number, such as "%".
        accounting: Whether numbers below zero are written in parentheses.
    """

    prefix: str = ""
    thousands: str = ""
    decimal: str = "."
    digits: int = 0
    fixed: bool = True
    suffix: str = ""
    accounting: bool = False

    @property
    def example(self) -> str:
        """The format as schema files write it."""
        whole = f"1{self.thousands}234" if self.thousands else "0"
        fraction = ("0" if self.fixed else "#") * self.digits
        text = f"{self.prefix}{whole}{self.decimal if fraction else ''}{fraction}{self.suffix}"
        return f"({text})" if self.accounting else text

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        separator = re.escape(self.thousands)
        whole = rf"(?:\d{{1,3}}(?:{separator}\d{{3}})+|\d+)" if self.thousands else r"\d+"
        return re.compile(
            rf"([+-]?){re.escape(self.prefix)}([+-]?)({whole}(?:{re.escape(self.decimal)}\d*)?)"
            rf"{re.escape(self.suffix)}",
            re.ASCII,
        )

    def read(self, text: str) -> float | None:
        """The number that a text writes; None if it is not in this format."""
        bare = _without_parentheses(text) if self.accounting else None
        match = self._pattern.fullmatch((text if bare is None else bare).strip())
        signs = "" if match is None else match[1] + match[2]
        if match is None or len(signs) > (bare is None):
            return None
        digits = match[3].replace(self.thousands, "") if self.thousands else match[3]
        number = float(digits.replace(self.decimal, "."))
        if math.isinf(number):
            return None
        return -number if bare is not None or "-" in signs else number

    def write(self, number: float) -> str:
        """The number as text, rounded to the digits of the format."""
        text = f"{abs(number):,.{self.digits}f}"
        whole, _, fraction = text.partition(".")
        if not self.fixed:
            fraction = fraction.rstrip("0")
        whole = whole.replace(",", self.thousands)
        sign = "-" if number < 0 and text.strip("0,.") else ""
        decimals = f"{self.decimal}{fraction}" if fraction else ""
        if self.accounting and sign:
            return f"({self.prefix}{whole}{decimals}{self.suffix})"
        return f"{sign}{self.prefix}{whole}{decimals}{self.suffix}"


@dataclass(frozen=True)
class MomentFormat:
    """How dates, instants or times of day are written.

    Attributes:
        pattern: Text with `strftime` codes.
        kind: "date" for days since 1970, "datetime" for seconds since 1970, "duration" for
            seconds since midnight.
    """

    pattern: str
    kind: _MomentKind

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        parts = _DIRECTIVE.split(self.pattern)
        pieces = [
            _READS[part.lstrip("-")] if i % 2 else re.escape(part) for i, part in enumerate(parts)
        ]
        return re.compile("".join(pieces), re.ASCII)

    @property
    def midnight(self) -> str:
        """The pattern of a date whose clock always shows midnight, as a literal text."""

        def without_clock(code: re.Match[str]) -> str:
            return code[0] if code[1][-1] in _CALENDAR else _written(code[1], datetime(1970, 1, 1))

        return _DIRECTIVE.sub(without_clock, self.pattern)

    def match(self, text: str) -> re.Match[str] | None:
        """The parts of a text that may be in this format."""
        return self._regex.fullmatch(text.strip())

    def read(self, text: str) -> float | None:
        """The text's number on an attribute's line; None if it is not in this format."""
        match = self.match(text)
        return None if match is None else self.number(match.groupdict())

    def number(self, parts: dict[str, str]) -> float | None:
        """The number of matched parts; None for a day or an hour that does not exist."""
        seconds = _clock_seconds(parts)
        if seconds is None or self.kind == "duration":
            return seconds
        month = parts.get("m")
        name = parts.get("b") or parts.get("B")
        month_number = int(month) if month else _MONTH_NUMBERS.get((name or "").lower(), 0)
        try:
            day = date(_year(parts), month_number, int(parts.get("d") or 1))
        except ValueError:
            return None
        days = float((day - _EPOCH).days)
        return days if self.kind == "date" else days * _DAY + seconds

    def write(self, number: float) -> str:
        """A number of the attribute's line as text."""
        if self.kind == "date":
            moment = datetime(1970, 1, 1) + timedelta(days=number)
        else:
            moment = datetime(1970, 1, 1) + timedelta(seconds=number)
        parts = _DIRECTIVE.split(self.pattern)
        return "".join(_written(part, moment) if i % 2 else part for i, part in enumerate(parts))


def _year(parts: dict[str, str]) -> int:
    if "Y" in parts:
        return int(parts["Y"])
    short = int(parts["y"])
    return short + (1900 if short >= _PIVOT else 2000)


def _clock_seconds(parts: dict[str, str]) -> float | None:
    """Seconds since midnight; None if the clock has no such time."""
    hour = int(parts.get("H") or 0)
    if "I" in parts:
        hour = int(parts["I"])
        if not 1 <= hour <= 12:
            return None
        afternoon = (parts.get("p") or "am").lower() == "pm"
        hour = hour % 12 + (12 if afternoon else 0)
    minute, second = int(parts.get("M") or 0), int(parts.get("S") or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return float(hour * 3600 + minute * 60 + second)


def _written(code: str, moment: datetime) -> str:
    """One part of a moment. Names are English, and years before 1000 have four digits."""
    letter = code[-1]
    if letter in "bB":
        name = _MONTHS[moment.month - 1]
        return name[:3] if letter == "b" else name
    if letter == "p":
        return "AM" if moment.hour < 12 else "PM"
    number = {
        "Y": moment.year,
        "y": moment.year % 100,
        "m": moment.month,
        "d": moment.day,
        "H": moment.hour,
        "I": (moment.hour - 1) % 12 + 1,
        "M": moment.minute,
        "S": moment.second,
    }[letter]
    if code.startswith("-"):
        return str(number)
    return f"{number:04d}" if letter == "Y" else f"{number:02d}"


Format = NumberFormat | MomentFormat


@lru_cache(maxsize=1024)
def parse_format(name: str, kind: str, text: str) -> Format:
    """Read the key `format` of an attribute.

    Args:
        name: The attribute's name, for errors.
        kind: The attribute's kind.
        text: The format.

    Raises:
        SchemaError: The attribute's kind has no format, or the text is not one.
    """
    if not isinstance(text, str) or not text or len(text) > _MAX_LENGTH or _has_controls(text):
        raise SchemaError(f"attribute {name!r}: format must be a short text", where=name)
    if kind == "numeric":
        return _parse_number(name, text)
    for moment in get_args(_MomentKind):
        if kind == moment:
            return _parse_moment(name, moment, text)
    raise SchemaError(
        f"attribute {name!r} is {kind}: format goes with numbers, dates and times", where=name
    )


def _has_controls(text: str) -> bool:
    return any(unicodedata.category(character).startswith("C") for character in text)


def _parse_number(name: str, text: str) -> NumberFormat:
    bare = _without_parentheses(text)
    match = _EXAMPLE.fullmatch(text if bare is None else bare)
    wrong = SchemaError(
        f"attribute {name!r}: format {text!r} is not a number such as $1,234.00 or 0.0%",
        where=name,
        value=text,
    )
    if match is None:
        raise wrong
    prefix, suffix, fraction = match["prefix"], match["suffix"], match["fraction"] or ""
    thousands = match["sep"] or ""
    signs = any(sign in prefix + suffix for sign in "+-()")
    if signs or max(len(prefix), len(suffix)) > _MAX_AFFIX or fraction[:1] == thousands != "":
        raise wrong
    digits = fraction[1:]
    if "#" in digits and "0" in digits:
        raise wrong
    decimal = fraction[:1] or ("," if thousands == "." else ".")
    fixed = "#" not in digits
    return NumberFormat(prefix, thousands, decimal, len(digits), fixed, suffix, bare is not None)


def _parse_moment(name: str, kind: _MomentKind, text: str) -> MomentFormat:
    codes = [code.lstrip("-") for code in _DIRECTIVE.findall(text)]
    rest = _DIRECTIVE.sub("", text)
    example = {"date": "%d/%m/%Y", "datetime": "%d/%m/%Y %H:%M", "duration": "%H:%M"}[kind]
    if not codes or "%" in rest or any(code not in _READS for code in codes):
        known = " ".join(f"%{code}" for code in _READS)
        raise SchemaError(
            f"attribute {name!r}: format {text!r} must be made of {known}, such as {example}",
            where=name,
            value=text,
        )
    used = set(codes)
    calendar = len(used & {"Y", "y"}) == 1 and len(used & {"m", "b", "B"}) == 1
    clock = bool(used & {"H", "I"}) and ("I" in used) == ("p" in used) and not {"H", "I"} <= used
    fits = {
        "date": calendar and not used & _CLOCK,
        "datetime": calendar and clock and "d" in used,
        "duration": clock and not used & _CALENDAR,
    }[kind]
    if len(used) < len(codes) or not fits:
        raise SchemaError(
            f"attribute {name!r}: format {text!r} does not write one {kind}; an example is {example}",
            where=name,
            value=text,
        )
    return MomentFormat(text, kind)


def is_mark(text: str) -> bool:
    """Whether a text among numbers or times means no answer."""
    return text.strip() in MISSING or text.strip() in MISSING_MARKS


class Ambiguous(Exception):
    """Day and month of a column's dates cannot be told apart; holds an example."""


def _without_parentheses(text: str) -> str | None:
    """What parentheses around a whole text hold; None if there are none."""
    text = text.strip()
    return text[1:-1] if text[:1] == "(" and text[-1:] == ")" else None


def detect_number(texts: Sequence[str], *, codes: bool = True) -> NumberFormat | None:
    """The format of texts that are all numbers; None for other texts.

    Args:
        texts: Different texts of a column.
        codes: Whether plain whole numbers are codes, which have no format.
    """
    if not texts:
        return None
    inside = [_without_parentheses(text) for text in texts]
    bare = [text if inner is None else inner for text, inner in zip(texts, inside, strict=True)]
    first = _split(bare[0])
    if first is None:
        return None
    prefix, suffix = first[0], first[2]
    bodies: list[str] = []
    for text in bare:
        parts = _split(text)
        if parts is None or (parts[0], parts[2]) != (prefix, suffix):
            return None
        bodies.append(parts[1])
    inner = _inner_format(bodies)
    if inner is None:
        return None
    # Codes such as (1) to (5) are no numbers below zero.
    accounting = any(text is not None for text in inside)
    if accounting and None not in inside:
        return None
    form = replace(inner, prefix=prefix, suffix=suffix, accounting=accounting)
    if (codes and form == NumberFormat()) or form.digits > _MAX_DIGITS:
        return None
    # Hundreds of digits are no number.
    return None if any(form.read(text) is None for text in texts) else form


# No ASCII flag: a separator may be a no-break space.
_AFFIX = re.compile(r"([+-]?)([^\d+\-.,]*)([+-]?)([0-9][0-9.,'\s\u2019]*?)(\s?[^\d\s.,]*)")


def _split(text: str) -> tuple[str, str, str] | None:
    """Prefix, digits with their marks, and suffix of a number; None if it is no number."""
    match = _AFFIX.fullmatch(text.strip())
    if match is None or (match[1] and match[3]):
        return None
    prefix, suffix = match[2], match[5]
    if not _is_currency(prefix) or not (suffix.strip() == "%" or _is_currency(suffix)):
        return None
    if prefix and suffix:
        return None
    return prefix, match[4], suffix


def _is_currency(text: str) -> bool:
    """Whether a text is empty, a currency's symbol or its code."""
    bare = text.strip()
    if not bare:
        return not text
    if bare in _CURRENCY_CODES:
        return True
    symbol = bare.removeprefix("US").removeprefix("C").removeprefix("A")
    return len(symbol) == 1 and unicodedata.category(symbol) == "Sc"


_POINT = re.compile(r"\d+(?:\.(\d+))?", re.ASCII)
_COMMA = re.compile(r"\d+(?:,(\d+))?", re.ASCII)


def _inner_format(bodies: Sequence[str]) -> NumberFormat | None:
    """The thousands separator, the decimal mark and the digits after it."""
    if any(_leading_zero(body) for body in bodies):
        return None
    for thousands in _THOUSANDS:
        for decimal in ".,":
            separated = _grouped(bodies, thousands, decimal) if thousands != decimal else None
            if separated is not None:
                return _with_digits(separated, thousands, decimal)
    for pattern, decimal in ((_POINT, "."), (_COMMA, ",")):
        matches = [pattern.fullmatch(body) for body in bodies]
        if all(matches):
            return _with_digits([match[1] or "" for match in matches if match], "", decimal)
    return None


def _leading_zero(body: str) -> bool:
    """Whether a number is a code such as 007."""
    return len(body) > 1 and body[0] == "0" and body[1].isdigit()


def _grouped(bodies: Sequence[str], thousands: str, decimal: str) -> list[str] | None:
    """The digits after the decimal mark, if some number has groups of three digits.

    None if some number has another form. "1.234" alone is a decimal number: a point separates
    thousands only if a decimal comma or a second point shows it.
    """
    mark, point = re.escape(thousands), re.escape(decimal)
    pattern = re.compile(rf"(\d{{1,3}}(?:{mark}\d{{3}})+|\d{{1,3}})(?:{point}(\d+))?", re.ASCII)
    matches = [pattern.fullmatch(body) for body in bodies]
    if not all(matches):
        return None
    found = [match for match in matches if match]
    groups = max(match[1].count(thousands) for match in found)
    fractions = [match[2] or "" for match in found]
    shown = groups > 1 or (groups == 1 and (thousands != "." or any(fractions)))
    return fractions if shown else None


def _with_digits(fractions: Sequence[str], thousands: str, decimal: str) -> NumberFormat:
    lengths = {len(fraction) for fraction in fractions}
    return NumberFormat(
        thousands=thousands, decimal=decimal, digits=max(lengths), fixed=len(lengths) == 1
    )


_CLOCKS = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p", "%I:%M:%S%p")
_DATES = (
    *(f"%Y{mark}%m{mark}%d" for mark in "-/."),
    *(f"%d{mark}%m{mark}%Y" for mark in "/-."),
    *(f"%m{mark}%d{mark}%Y" for mark in "/-"),
    *(f"%d{mark}%m{mark}%y" for mark in "/-."),
    *(f"%m{mark}%d{mark}%y" for mark in "/-"),
    *("%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d %b %y", "%b %d %Y", "%b-%d-%Y", "%b %d, %Y"),
    *("%d %B %Y", "%B %d %Y", "%B %d, %Y"),
)
# A first look, before hundreds of formats are tried.
_MOMENT = re.compile(r"[A-Za-z]{0,9} ?\d[\w ,:./-]{3,40}", re.ASCII)
_MONTHLY = ("%Y-%m", "%Y/%m", "%m/%Y", "%b %Y", "%B %Y", "%b-%y", "%b-%Y")


def detect_moment(texts: Sequence[str], order: DateOrder | None = None) -> MomentFormat | None:
    """The format of texts that are all dates, instants or times of day; None for other texts.

    Args:
        texts: Different texts of a column.
        order: Whether the day comes before the month where the texts do not show it.

    Raises:
        Ambiguous: Day and month cannot be told apart, and no order is given.
    """
    if not texts or _MOMENT.fullmatch(texts[0].strip()) is None:
        return None
    fitting = [found for form in _candidates() if (found := _fitted(form, texts)) is not None]
    if not fitting:
        return None
    first = fitting[0]
    rivals = [form for form in fitting[1:] if _day_first(form) != _day_first(first)]
    if _day_first(first) is None or not rivals:
        return first
    if order is None:
        raise Ambiguous(texts[0].strip())
    return first if _day_first(first) == (order == "dmy") else rivals[0]


@lru_cache(maxsize=1)
def _candidates() -> tuple[MomentFormat, ...]:
    """Every format that is detected; shorter ones first."""
    instants = (f"{day}{gap}{clock}" for gap in " T" for day in _DATES for clock in _CLOCKS)
    return tuple(
        chain(
            (MomentFormat(clock, "duration") for clock in _CLOCKS),
            (MomentFormat(day, "date") for day in (*_DATES, *_MONTHLY)),
            (MomentFormat(instant, "datetime") for instant in instants),
        )
    )


def _day_first(form: MomentFormat) -> bool | None:
    """Whether the day's number comes before the month's; None where nobody would mix them up."""
    day, month = form.pattern.replace("-", "").find("%d"), form.pattern.replace("-", "").find("%m")
    year_first = form.pattern.startswith("%Y")
    return None if min(day, month) < 0 or year_first else day < month


def _fitted(form: MomentFormat, texts: Sequence[str]) -> MomentFormat | None:
    """The format with codes without leading zeros where texts have none; None if one does not fit."""
    short: set[str] = set()
    for text in texts:
        match = form.match(text)
        if match is None:
            return None
        parts = match.groupdict()
        if form.number(parts) is None:
            return None
        short.update(code for code in "dmHI" if len(parts.get(code) or "00") == 1)
    pattern = form.pattern
    for code in short:
        pattern = pattern.replace(f"%{code}", f"%-{code}")
    return replace(form, pattern=pattern)
