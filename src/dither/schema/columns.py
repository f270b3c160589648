"""Columns of tables: values as codes of an attribute, and codes as values.

Numbers and times lie in bins and atoms. Listed values match as follows: numbers by value (1
equals 1.0), text exactly; otherwise a number matches a text that writes it if no other value
could be meant, so that a table survives a trip through CSV.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dither.errors import TableError
from dither.schema.attribute import (
    CYCLES,
    DAY,
    Attribute,
    Line,
    Value,
)
from dither.schema.formats import (
    Ambiguous,
    NumberFormat,
    detect_moment,
    detect_number,
    is_mark,
)
from dither.types import Codes, Counts, Flags, Floats, Indices, Integers, Reals

# The scale is logarithmic if the last bin is this many times as wide as the narrowest.
SKEWED = 10.0
# Beyond all bounds of integer draws; sums stay within 64 bits.
_FAR = 2.0**62


@dataclass(frozen=True)
class _Knots:
    """The density of every bin at its lower end, in its middle and at its upper end."""

    lower: Floats
    middle: Floats
    upper: Floats


def step_of(attribute: Attribute) -> float | None:
    """The unit of an attribute's synthetic values; None for real numbers."""
    return 1.0 if attribute.kind in ("date", "datetime") else attribute.unit


def knots(low: Floats, high: Floats, counts: Counts | Floats, joined: Flags) -> _Knots:
    """The density at the edges of bins, for linear interpolation.

    At an edge the density is a mean of the neighbours, weighted towards the narrower one, but at
    most twice the smaller of them: then no density is negative inside a bin. A bin without a
    neighbour on one side is extrapolated linearly.

    Args:
        joined: Whether bin i + 1 begins where bin i ends.
    """
    width = high - low
    # A bin far narrower than the widest has no width on a linear scale.
    mean = np.divide(counts, width, out=np.zeros(len(width)), where=width > 0)
    lower, upper = np.full(len(mean), np.nan), np.full(len(mean), np.nan)
    a, b = mean[:-1], mean[1:]
    both = width[:-1] + width[1:]
    weighted = a * width[1:] + b * width[:-1]
    at_edge = np.divide(weighted, both, out=np.zeros(len(both)), where=both > 0)
    shared = np.minimum(at_edge, 2 * np.minimum(a, b))
    upper[:-1], lower[1:] = np.where(joined, shared, np.nan), np.where(joined, shared, np.nan)
    alone = np.isnan(lower) & np.isnan(upper)
    lower, upper = np.where(alone, mean, lower), np.where(alone, mean, upper)
    lower = np.where(np.isnan(lower), 2 * mean - upper, lower)
    upper = np.where(np.isnan(upper), 2 * mean - lower, upper)
    return _Knots(lower, 2 * mean - (lower + upper) / 2, upper)


def draw_places(density: _Knots, bins: Indices, uniform: Floats) -> Floats:
    """The place of each draw in its bin, from 0 to 1, by the inverse cumulative density."""
    first, middle, last = density.lower[bins], density.middle[bins], density.upper[bins]
    left, right = first + middle, middle + last
    share = left / np.maximum(left + right, 1e-300)
    early = uniform < share
    begin, end = np.where(early, first, middle), np.where(early, middle, last)
    v = np.where(
        early,
        uniform / np.maximum(share, 1e-300),
        (uniform - share) / np.maximum(1 - share, 1e-300),
    )
    root = np.sqrt(np.maximum(begin * begin + (end * end - begin * begin) * v, 0.0))
    t = np.where(begin + root > 0, v * (begin + end) / np.maximum(begin + root, 1e-300), v)
    return np.clip(np.where(early, 0.0, 0.5) + np.clip(t, 0.0, 1.0) / 2, 0.0, 1.0)


def draw_reals(line: Line, codes: Codes, dtype: npt.DTypeLike, rng: np.random.Generator) -> Reals:
    """Draw a number in the cell of each code; an atom is its value.

    Rounding to `dtype` never moves a number into another cell if the cell contains a number of
    that type.
    """
    low, high = np.asarray(line.ends, dtype=np.float64).T
    values = _draw(low, high, line, codes, rng).astype(dtype)
    kind = values.dtype.type
    lowest, highest = low.astype(kind), high.astype(kind)
    open_low, open_high = _open_ends(line)
    wide_low, wide_high = lowest.astype(np.float64), highest.astype(np.float64)
    late = np.where(open_high, wide_high >= high, wide_high > high)
    early = np.where(open_low, wide_low <= low, wide_low < low)
    highest[late] = np.nextafter(highest[late], kind(-np.inf))
    lowest[early] = np.nextafter(lowest[early], kind(np.inf))
    atom = low == high
    lowest, highest = (
        np.where(atom, low.astype(kind), lowest),
        np.where(atom, high.astype(kind), highest),
    )
    drawn: Reals = np.clip(values, lowest[codes], np.maximum(highest, lowest)[codes])
    return drawn


def draw_multiples(
    line: Line, codes: Codes, unit: float, bounds: tuple[int, int], rng: np.random.Generator
) -> Integers:
    """Draw a multiple of the unit in the cell of each code, as a number of units.

    A bin without a multiple gets the one nearest to its middle. `bounds` are the smallest and
    the largest number of units that the column's type can represent.
    """
    first, last = multiples_in(line, unit, bounds)
    low, high = first.astype(np.float64) - 0.5, last.astype(np.float64) + 0.5
    drawn = np.rint(_draw(low, high, line, codes, rng))
    return np.clip(drawn.astype(np.int64), first[codes], last[codes])


def multiples_in(line: Line, unit: float, bounds: tuple[int, int]) -> tuple[Integers, Integers]:
    """The first and the last multiple of a unit in each cell.

    In a cell without a multiple both are the nearest one.
    """
    ends = np.asarray(line.ends, dtype=np.float64)
    scaled = np.clip(_settled(ends / unit), -_FAR, _FAR)
    low, high = scaled.T
    open_low, open_high = _open_ends(line)
    first = np.where(open_low, np.floor(low) + 1, np.ceil(low))
    last = np.where(open_high, np.ceil(high) - 1, np.floor(high))
    nearest = np.rint((low + high) / 2)
    if np.ceil(scaled.min()) <= np.floor(scaled.max()):
        nearest = np.clip(nearest, np.ceil(scaled.min()), np.floor(scaled.max()))
    none = first > last
    first, last = np.where(none, nearest, first), np.where(none, nearest, last)
    least, most = max(bounds[0], -int(_FAR)), min(bounds[1], int(_FAR))
    return np.clip(first.astype(np.int64), least, most), np.clip(last.astype(np.int64), least, most)


def decimals(unit: float) -> int:
    """How many digits after the point a multiple of a unit needs."""
    exponent = Decimal(repr(unit)).normalize().as_tuple().exponent
    return max(0, -int(exponent)) if isinstance(exponent, int) else 0


def from_multiples(number: Integers, unit: float) -> Floats:
    """A number of units as a number, without the rounding error of a product: 3 cents are 0.03."""
    return np.asarray(np.round(number * unit, decimals(unit)))


def _draw(low: Floats, high: Floats, line: Line, codes: Codes, rng: np.random.Generator) -> Floats:
    """Draw a number between the ends of each code's cell, by the density of these codes."""
    counts = np.bincount(codes, minlength=line.cells)
    ends = line.ends
    bins = np.array([i for i, (a, b) in enumerate(ends) if a != b], dtype=np.intp)
    place = np.zeros(line.cells, dtype=np.intp)
    place[bins] = np.arange(len(bins))
    joined = np.array([ends[i][1] == ends[j][0] for i, j in pairwise(bins)], dtype=bool)
    warp = _warp(low[bins], high[bins])
    first, last = warp.there(low[bins]), warp.there(high[bins])
    density = knots(first, last, counts[bins], joined)
    uniform = rng.random(len(codes))
    at = place[codes]
    drawn = warp.back(first[at] + (last - first)[at] * draw_places(density, at, uniform))
    return np.asarray(np.where(low[codes] == high[codes], low[codes], drawn))


@dataclass(frozen=True)
class _Warp:
    """A scale for drawing: linear in units of `width`, or logarithmic beyond `origin`.

    `sign` is the direction of the logarithmic scale, which has no kink at the origin.
    """

    origin: float
    width: float
    sign: float = 1.0
    logarithmic: bool = False

    def there(self, numbers: Floats) -> Floats:
        """Numbers on the scale."""
        steps = self.sign * (numbers / self.width - self.origin / self.width)
        if self.logarithmic:
            steps = np.where(steps > 0, np.log1p(np.maximum(steps, 0.0)), steps)
        return np.asarray(self.sign * steps)

    def back(self, places: Floats) -> Floats:
        """Places on the scale as numbers."""
        steps = self.sign * places
        if self.logarithmic:
            steps = np.where(steps > 0, np.expm1(np.maximum(steps, 0.0)), steps)
        return np.asarray(self.origin + self.sign * (steps * self.width))


def _warp(low: Floats, high: Floats) -> _Warp:
    """A logarithmic scale if bins grow towards one end, else a linear one.

    Linear scales count in units of the widest bin, so that widths of 1e300 do not overflow.
    """
    width = high - low
    least, most = float(width.min()), float(width.max())
    narrow = int(width.argmin())
    for sign, end, origin in ((1.0, width[-1], low[narrow]), (-1.0, width[0], high[narrow])):
        if len(width) > 2 and end == most and most > SKEWED * least:
            return _Warp(float(origin), least, sign, True)
    return _Warp(float(low[0]), most)


def _open_ends(line: Line) -> tuple[Flags, Flags]:
    """Whether the lower and the upper end of each cell are outside it."""
    exact = {a for a, b in line.ends if a == b}
    point_codes = dict(zip(line.boundaries, line.points, strict=True))
    lower = np.array([a != b and a in exact for a, b in line.ends])
    upper = np.array([a != b and point_codes[b] != code for code, (a, b) in enumerate(line.ends)])
    return lower, upper


def _settled(numbers: Floats) -> Floats:
    """Numbers that miss a whole one by rounding alone, put there."""
    whole = np.rint(numbers)
    return np.where(
        np.abs(numbers - whole) <= 1e-9 * np.maximum(1.0, np.abs(whole)), whole, numbers
    )


_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def moment_numbers(attribute: Attribute, array: pa.ChunkedArray) -> Floats | None:
    """Each value on the attribute's line, NaN if missing; None for columns of other types."""
    held = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    plain = array.cast(held) if held is not array.type else array
    if is_text(held):
        return _from_text(attribute, plain)
    if attribute.kind == "duration":
        if pa.types.is_duration(held):
            return _floats(plain.cast(pa.int64())) / _PER_SECOND[held.unit]
        return _floats(plain) if pa.types.is_integer(held) or pa.types.is_floating(held) else None
    if pa.types.is_date(held):
        days = _floats(plain.cast(pa.date32()).cast(pa.int32()))
        return days if attribute.kind == "date" else days * DAY
    if pa.types.is_timestamp(held):
        seconds = _floats(plain.cast(pa.int64())) / _PER_SECOND[held.unit]
        return np.floor(seconds / DAY) if attribute.kind == "date" else seconds
    return None


def _floats(array: pa.ChunkedArray) -> Floats:
    return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _from_text(attribute: Attribute, array: pa.ChunkedArray) -> Floats:
    """Texts in the attribute's format or in ISO 8601 as numbers; each different one is read once."""
    indices, values = distinct_values(array)
    numbers = np.full(len(values) + 1, np.nan)
    for i, text in enumerate(values):
        assert isinstance(text, str)
        number = _read_text(attribute, text)
        if number is None:
            raise _unread_text(attribute, [str(value) for value in values], text, indices == i)
        numbers[i] = number
    return np.asarray(numbers[indices], dtype=np.float64)


def _read_text(attribute: Attribute, text: str) -> float | None:
    """A text as a number of the attribute's line, NaN for a mark of a missing answer."""
    if attribute.kind == "numeric":
        number = None if attribute.form is None else attribute.form.read(text)
    else:
        number = attribute.number(text)
    if number is None and attribute.form is not None and is_mark(text):
        return np.nan
    return number


def _unread_text(attribute: Attribute, texts: list[str], text: str, wrong: Flags) -> TableError:
    """The error for a text that is not a number or a time of the attribute, and its rows."""
    first = int(np.argmax(wrong))
    noun = "numeric" if attribute.kind == "numeric" else f"a {attribute.kind}"
    if attribute.format:
        advice = f"correct it, or the schema's format {attribute.format!r}"
    elif (found := _find_format(attribute, texts)) is not None:
        advice = f'add "format": "{found}" to the schema if that is how it is written'
    elif attribute.kind == "numeric":
        advice = "turn it into a number or leave it empty"
    else:
        advice = (
            "write it like 2024-02-29 or 2024-02-29T12:30:00, "
            'or add its "format" to the schema, such as "%d/%m/%Y"'
        )
    return TableError(
        f"column {attribute.name!r} is {noun} in the schema, but holds the text {text!r} "
        f"({shown_rows(int(wrong.sum()), first)}); {advice}",
        where=attribute.name,
        value=text,
    )


def _find_format(attribute: Attribute, texts: list[str]) -> str | None:
    """The format that all texts of a column have, if it suits the attribute's kind."""
    present = [text for text in texts if not is_mark(text)]
    if attribute.kind == "numeric":
        number = detect_number(present)
        return None if number is None else number.example
    try:
        moment = detect_moment(present)
    except Ambiguous:
        return None
    return None if moment is None or moment.kind != attribute.kind else moment.pattern


def _written(attribute: Attribute, numbers: Floats, missing: Flags | None) -> pa.Array:
    """Numbers of an attribute's line as texts in its format; each different one is written once."""
    form = attribute.form
    assert form is not None
    settled = numbers if missing is None else np.where(missing, attribute.edges[0], numbers)
    different, places = np.unique(settled, return_inverse=True)
    texts = pa.array([form.write(float(number)) for number in different], pa.string())
    return texts.take(pa.array(places.ravel(), mask=missing))


def _turns_of(attribute: Attribute, numbers: Floats) -> Integers:
    """The place of each instant in the product of the attribute's cycles."""
    days = np.floor(numbers if attribute.kind == "date" else numbers / DAY)
    place = np.zeros(len(numbers), dtype=np.int64)
    for cycle in attribute.cycles:
        part = (days + 3) % 7 if cycle == "weekday" else np.floor((numbers - days * DAY) / 3600)
        place = place * len(CYCLES[cycle]) + part.astype(np.int64)
    return place


def _settle_turns(attribute: Attribute, numbers: Floats, cells: Codes, turns: Integers) -> Floats:
    """Move instants to the nearest day of the right weekday, and to the right hour, in their bin.

    If a bin is too short for such a day, the nearest one outside it is taken, within the range if
    possible.
    """
    scale = 1 if attribute.kind == "date" else DAY
    day, rest = np.divmod(numbers, scale)
    left = turns.copy()
    for cycle in reversed(attribute.cycles):
        left, part = np.divmod(left, len(CYCLES[cycle]))
        if cycle == "hour":
            rest = rest % 3600 + part * 3600
        else:
            forward = (part - (day + 3)) % 7
            ends = np.asarray(attribute.line.ends)
            first, end = np.ceil(ends[cells, 0] / scale), np.ceil(ends[cells, 1] / scale)
            candidates = np.stack([day + forward, day + forward - 7])
            inside = (candidates >= first) & (candidates < end)
            whole = (candidates >= np.ceil(attribute.edges[0] / scale)) & (
                candidates < np.ceil(attribute.edges[-1] / scale)
            )
            cost = np.abs(candidates - day) + np.where(inside, 0, 100) + np.where(whole, 0, 10_000)
            day = candidates[cost.argmin(axis=0), np.arange(len(day))]
    return np.asarray(day * scale + rest)


def _moment_array(
    attribute: Attribute, numbers: Floats, missing: Flags | None, wanted: pa.DataType
) -> pa.Array:
    """Numbers of the line as a column of an Arrow type: the table's, or the plainest of the kind."""
    days = np.floor(numbers if attribute.kind == "date" else numbers / DAY).astype(np.int64)
    if pa.types.is_date(wanted) and attribute.kind != "duration":
        return pa.array(days.astype(np.int32), pa.date32(), mask=missing).cast(wanted)
    seconds = numbers * DAY if attribute.kind == "date" else numbers
    if pa.types.is_timestamp(wanted) or pa.types.is_duration(wanted):
        return pa.array(
            np.rint(seconds * _PER_SECOND[wanted.unit]).astype(np.int64), wanted, mask=missing
        )
    if attribute.kind == "duration" and pa.types.is_integer(wanted):
        return pa.array(np.rint(seconds).astype(wanted.to_pandas_dtype()), wanted, mask=missing)
    if attribute.kind == "duration":
        return pa.array(seconds, mask=missing).cast(
            wanted if pa.types.is_floating(wanted) else pa.float64()
        )
    if is_text(wanted):
        return _as_text(attribute, days, seconds, missing).cast(wanted)
    return _moment_array(attribute, numbers, missing, plain_type(attribute))


def _as_text(
    attribute: Attribute, days: Integers, seconds: Floats, missing: Flags | None
) -> pa.Array:
    if attribute.kind == "date":
        texts = [(date(1970, 1, 1) + timedelta(days=int(day))).isoformat() for day in days]
        return pa.array(texts, pa.string(), mask=missing)
    instants = pa.array(np.floor(seconds).astype(np.int64), pa.timestamp("s"), mask=missing)
    return pc.strftime(instants, format="%Y-%m-%dT%H:%M:%S")


def line_codes(attribute: Attribute, array: pa.ChunkedArray) -> Integers:
    """Codes of numbers and times."""
    values, line = line_numbers(attribute, array), attribute.line
    if attribute.clip:
        values = np.clip(values, line.boundaries[0], line.boundaries[-1])
    boundaries = np.asarray(line.boundaries, dtype=np.float64)
    at = np.searchsorted(boundaries, values, side="right") - 1
    exact = boundaries[at] == values
    codes: Integers = np.where(
        exact, np.asarray(line.points)[at], np.asarray(line.gaps)[at]
    ).astype(np.int64)
    missing = np.isnan(values)
    outside = ~missing & ((codes < 0) | (at < 0))
    if outside.any():
        first = int(np.argmax(outside))
        value = _plain_value(array[first])
        raise TableError(
            f"column {attribute.name!r}: value {_shown(value)} lies outside {_span(attribute)} "
            f"({shown_rows(int(outside.sum()), first)}); correct the table or widen the schema",
            where=attribute.name,
            value=value,
        )
    if attribute.cycles:
        codes = codes * attribute.turns + _turns_of(attribute, np.where(missing, 0.0, values))
    fill_missing(attribute, codes, missing)
    return codes


def line_numbers(attribute: Attribute, array: pa.ChunkedArray) -> Floats:
    """Each value on the attribute's line, NaN if missing.

    Raises:
        TableError: The column has another kind of values.
    """
    held = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if array.null_count == len(array) or pa.types.is_null(held):
        return np.full(len(array), np.nan)
    if attribute.kind != "numeric":
        numbers = moment_numbers(attribute, array)
        if numbers is None:
            raise TableError(
                f"column {attribute.name!r} is a {attribute.kind} in the schema, but holds {held} values such as "
                f"{_first_value(array)!r}; turn them into {attribute.kind}s",
                where=attribute.name,
            )
        return numbers
    if is_text(held):
        if attribute.format:
            return _from_text(attribute, array)
        raise _text_for_numbers(attribute, array)
    if not (pa.types.is_integer(held) or pa.types.is_floating(held) or pa.types.is_decimal(held)):
        raise TableError(
            f"column {attribute.name!r} is numeric in the schema, but holds {held} values such as {_first_value(array)!r}; "
            "turn them into numbers",
            where=attribute.name,
        )
    plain = array.cast(held) if held is not array.type else array
    return np.asarray(as_floats(plain).to_numpy(), dtype=np.float64)


def as_floats(array: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers as the nearest floats.

    Arrow's cast from decimals is often wrong in the last digit, so decimals are parsed from text.
    """
    return (array.cast(pa.string()) if pa.types.is_decimal(array.type) else array).cast(
        pa.float64(), safe=False
    )


def _text_for_numbers(attribute: Attribute, array: pa.ChunkedArray) -> TableError:
    """The error for text in a numeric column; it names the first text that is not a number."""
    indices, values = distinct_values(array)
    wrong = np.array([isinstance(v, str) and not _is_number(v) for v in values] + [False])
    bad = wrong[indices]
    if not bad.any():
        return TableError(
            f"column {attribute.name!r} is numeric in the schema, but holds numbers written as text such as "
            f"{_first_value(array)!r}; turn them into numbers",
            where=attribute.name,
        )
    text = str(values[indices[int(np.argmax(bad))]])
    return _unread_text(attribute, [str(value) for value in values], text, bad)


def draw_line(
    attribute: Attribute,
    codes: Codes,
    missing: Flags | None,
    wanted: pa.DataType,
    rng: np.random.Generator,
) -> pa.Array:
    """A value in the cell of each code, as a column of an Arrow type.

    Text is written in the attribute's format, if it has one.
    """
    if attribute.format and is_text(wanted):
        plain = draw_line(attribute, codes, missing, _unwritten_type(attribute), rng)
        numbers = line_numbers(attribute, pa.chunked_array([plain]))
        return _written(attribute, numbers, missing).cast(wanted)
    cells, turns = np.divmod(
        codes if missing is None else np.where(missing, 0, codes), attribute.turns
    )
    line = attribute.line
    if attribute.kind != "numeric":
        numbers = draw_reals(line, cells, np.float64, rng).astype(np.float64, copy=False)
        unit = attribute.unit or 1.0  # whole days, whole seconds
        if (
            attribute.kind != "duration"
            or attribute.unit is not None
            or not pa.types.is_floating(wanted)
        ):
            first, last = multiples_in(line, unit, (-(2**62), 2**62))
            numbers = from_multiples(
                np.clip(np.floor(numbers / unit), first[cells], last[cells]).astype(np.int64), unit
            )
        if attribute.cycles:
            numbers = _settle_turns(attribute, numbers, cells, turns)
        return _moment_array(attribute, numbers, missing, wanted)
    if pa.types.is_integer(wanted):
        limits = np.iinfo(wanted.to_pandas_dtype())
        unit = _countable(
            attribute.unit if attribute.unit is not None and attribute.unit.is_integer() else 1.0,
            line,
        )
        reach = int(limits.min) // int(unit), int(limits.max) // int(unit)
        whole = draw_multiples(line, cells, unit, reach, rng).astype(wanted.to_pandas_dtype())
        return pa.array(whole * whole.dtype.type(int(unit)), wanted, mask=missing)
    if pa.types.is_decimal(wanted):
        unit = _countable(max(attribute.unit or 0.0, 10.0**-wanted.scale), line)
        most = (10**wanted.precision - 1) * Fraction(10) ** -wanted.scale // Fraction(repr(unit))
        exact = from_multiples(draw_multiples(line, cells, unit, (-most, most), rng), unit)
        return _decimals(exact, missing, wanted)
    dtype = wanted.to_pandas_dtype() if pa.types.is_floating(wanted) else np.float64
    if attribute.unit is not None:
        unit = _countable(attribute.unit, line)
        multiples = draw_multiples(line, cells, unit, (-(2**62), 2**62), rng)
        low, high = np.asarray(line.ends, dtype=np.float64).T
        exact = np.where((low == high)[cells], low[cells], from_multiples(multiples, unit))
        return pa.array(exact.astype(dtype), mask=missing)
    return pa.array(draw_reals(line, cells, dtype, rng), mask=missing)


def _unwritten_type(attribute: Attribute) -> pa.DataType:
    """The Arrow type of values that are then written in a format."""
    if attribute.kind != "numeric":
        return pa.int64() if attribute.kind == "duration" else plain_type(attribute)
    form = attribute.form
    assert isinstance(form, NumberFormat)
    low, high = attribute.line.boundaries[0], attribute.line.boundaries[-1]
    countable = max(abs(low), abs(high)) < _FAR
    whole = attribute.unit is None and not form.digits and countable
    return pa.int64() if whole else pa.float64()


def _countable(unit: float, line: Line) -> float:
    """The unit, or its smallest power-of-ten multiple in which every number fits 62 bits."""
    most = max(abs(line.boundaries[0]), abs(line.boundaries[-1]))
    while most > 2.0**62 * unit:
        unit *= 10.0
    return unit


def _decimals(numbers: Floats, missing: Flags | None, wanted: pa.DataType) -> pa.Array:
    """Numbers as decimals as they are written, without the errors of binary fractions."""
    last, context = Decimal(1).scaleb(-wanted.scale), Context(prec=wanted.precision + 1)
    seen, place = np.unique(
        numbers if missing is None else np.where(missing, 0.0, numbers), return_inverse=True
    )
    exact = pa.array(
        [Decimal(repr(float(v))).quantize(last, context=context) for v in seen], wanted
    )
    return exact.take(pa.array(place.ravel(), mask=missing))


def line_array(attribute: Attribute, numbers: Floats, like: pa.Array) -> pa.Array:
    """Numbers of an attribute's line as a column of the same type as another."""
    held = like.type.value_type if pa.types.is_dictionary(like.type) else like.type
    missing = np.isnan(numbers)
    settled = np.where(missing, attribute.edges[0], numbers)
    if attribute.format and is_text(held):
        array = _written(attribute, settled, missing).cast(held)
    elif attribute.kind != "numeric":
        array = _moment_array(attribute, settled, missing, held)
    elif pa.types.is_integer(held):
        array = pa.array(np.rint(settled).astype(held.to_pandas_dtype()), held, mask=missing)
    elif pa.types.is_floating(held):
        array = pa.array(settled.astype(held.to_pandas_dtype()), held, mask=missing)
    else:
        array = _decimals(settled, missing, held)
    return array.dictionary_encode() if pa.types.is_dictionary(like.type) else array


def column_step(attribute: Attribute, held: pa.DataType) -> float | None:
    """The steps of an attribute's numbers in a column of an Arrow type; None for real numbers."""
    kind, unit = held.value_type if pa.types.is_dictionary(held) else held, step_of(attribute)
    if not attribute.on_line:
        return None
    if attribute.kind == "datetime" and pa.types.is_date(kind):
        return float(DAY)
    if attribute.kind == "duration" and not pa.types.is_floating(kind):
        return max(unit or 1.0, 1 / _PER_SECOND[kind.unit] if pa.types.is_duration(kind) else 1.0)
    if pa.types.is_integer(kind):
        return unit if unit is not None and unit.is_integer() else 1.0
    return max(unit or 0.0, 10.0**-kind.scale) if pa.types.is_decimal(kind) else unit


def float_tolerance(held: pa.DataType) -> float:
    """The relative rounding error of an Arrow type; 0 unless it is a float."""
    if not pa.types.is_floating(held):
        return 0.0
    return 4 * float(np.finfo(held.to_pandas_dtype()).eps)


def fill_missing(attribute: Attribute, codes: Integers, missing: Flags) -> None:
    """Give missing values their code; an error where the schema has none."""
    count = int(missing.sum())
    if not count:
        return
    if not attribute.missing:
        raise TableError(
            f"column {attribute.name!r}: missing values ({shown_rows(count, int(np.argmax(missing)))}), but the schema does "
            'not allow them; fill them or set "missing": true',
            where=attribute.name,
        )
    codes[missing] = attribute.answers


def distinct_values(array: pa.ChunkedArray) -> tuple[Integers, list[object]]:
    """Each row's place in a list of values; nulls have the place after the last."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype=np.int64), []
    encoded = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array)
    encoded = encoded.combine_chunks()
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    if len(chunks) != 1:
        raise TableError("a column of more than 2 GB of distinct text cannot be read")
    values = chunks[0].dictionary
    listed = values.to_pylist()
    if pa.types.is_float32(values.type) or pa.types.is_float16(values.type):
        # 0.1 in single precision is 0.1 to the reader, although it is another number in
        # double precision.
        listed = [None if v is None else float(str(np.float32(v))) for v in listed]
    indices = chunks[0].indices.cast(pa.int64()).fill_null(len(listed))
    return indices.to_numpy(zero_copy_only=False), listed


def _first_value(array: pa.ChunkedArray) -> object:
    """The first value that is not missing."""
    return _plain_value(array.drop_null()[0])


def _plain_value(scalar: pa.Scalar) -> object:
    """A value as Python has it; the bare number of a time that Python cannot say."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value


def shown_rows(count: int, first: int) -> str:
    """How many rows, and which is the first."""
    return (
        f"in {count:,} rows, first in row {first + 1:,}" if count > 1 else f"in row {first + 1:,}"
    )


def _span(attribute: Attribute) -> str:
    if attribute.kind in ("date", "datetime"):
        return f"{attribute.shown(attribute.edges[0])} to before {attribute.shown(attribute.edges[-1])}"
    low, high = (f"{edge:.15g}" for edge in attribute.bounds or ())
    return f"{low} to {high}"


def _shown(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else repr(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Listed values: categorical, ordinal and boolean attributes.


def _text_forms(value: object) -> tuple[str, ...]:
    """The texts by which tables write a value, the most common first."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bool):
        word = "true" if value else "false"
        return (word, word.capitalize(), word.upper(), str(int(value)))
    if isinstance(value, float) and value.is_integer():
        return (repr(value), str(int(value)))
    return (str(value),)


class Matcher:
    """Looks up the code of a value in one attribute's domain."""

    def __init__(self, attribute: Attribute) -> None:
        self._exact: dict[object, int] = dict(attribute.codes.items())
        self._forms: dict[str, tuple[int, int]] = {}
        for code, value in enumerate(attribute.values):
            if isinstance(value, str):
                continue
            for style, form in enumerate(_text_forms(value)):
                self._forms[form] = (-1, 0) if form in self._forms else (code, style)

    def code(self, value: object) -> int:
        """The value's code; -1 if it is outside the domain."""
        return self.match(value)[0]

    def match(self, value: object) -> tuple[int, int]:
        """The code, and the style in which a text writes it."""
        if isinstance(value, Decimal):
            value = int(value) if value == int(value) else float(value)
        if value in self._exact:
            return self._exact[value], 0
        if isinstance(value, str):
            return self._forms.get(value, (-1, 0))
        meant = {self._exact[form] for form in _text_forms(value) if form in self._exact}
        return (meant.pop(), 0) if len(meant) == 1 else (-1, 0)


def label_array(attribute: Attribute, wanted: pa.DataType, style: int) -> tuple[pa.Array, bool]:
    """Each answer as a value of an Arrow type, and whether that type fits them all.

    If it does not (a category "other" in a column of integers) the answers have the plainest
    type that does.
    """
    try:
        return _labels_as(attribute, wanted, style), True
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return pa.array(_plain(attribute.values, style)), False


def plain_type(attribute: Attribute) -> pa.DataType:
    """The plainest Arrow type of an attribute."""
    if attribute.on_line:
        return {
            "date": pa.date32(),
            "datetime": pa.timestamp("s"),
            "duration": pa.duration("s"),
        }.get(attribute.kind, pa.float64())
    return pa.array(_plain(attribute.values, 0)).type


def other_code(attribute: Attribute) -> int | None:
    """The code of the category named "other", in any case, if the attribute has one."""
    for code, value in enumerate(attribute.values):
        if isinstance(value, str) and value.casefold() == "other":
            return code
    return None


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether an Arrow type is one of the text types."""
    return bool(
        pa.types.is_string(arrow_type)
        or pa.types.is_large_string(arrow_type)
        or pa.types.is_string_view(arrow_type)
    )


def _labels_as(attribute: Attribute, wanted: pa.DataType, style: int) -> pa.Array:
    values: list[object]
    if is_text(wanted):
        return pa.array(_texts(attribute.values, style), pa.large_string()).cast(wanted)
    if pa.types.is_boolean(wanted):
        matcher = Matcher(attribute)
        truth = {matcher.code(answer): answer for answer in (False, True)}
        values = [truth.get(code) for code in range(attribute.answers)]
    elif pa.types.is_integer(wanted):
        values = [_whole(value) for value in attribute.values]
    elif pa.types.is_floating(wanted):
        values = [float(value) for value in attribute.values]
    elif pa.types.is_decimal(wanted):
        values = [
            Decimal(str(int(value) if isinstance(value, bool) else value))
            for value in attribute.values
        ]
    else:
        raise TypeError(str(wanted))
    if None in values:
        raise ValueError("not every answer can be written")
    if pa.types.is_float16(wanted):
        return pa.array(values, pa.float32()).cast(wanted)
    return pa.array(values, wanted)


def _plain(values: Sequence[Value], style: int) -> Sequence[Value]:
    """Values of one type: unchanged if they share one, numbers as floats, else text."""
    kinds = {type(value) for value in values}
    if len(kinds) == 1:
        return values
    if kinds <= {int, float}:
        return [float(value) for value in values]
    return _texts(values, style)


def _texts(values: Sequence[Value], style: int) -> list[str]:
    """Each value in a style, or in the plain one if the style is ambiguous."""
    forms = [_text_forms(value) for value in values]
    styled = [form[min(style, len(form) - 1)] for form in forms]
    return styled if len(set(styled)) == len(styled) else [form[0] for form in forms]


def _whole(value: Value) -> int:
    number = int(value)
    # "01" or " 1": the text is not this number written out.
    if isinstance(value, str) and str(number) != value:
        raise ValueError(value)
    if number != (value if not isinstance(value, str) else number):
        raise ValueError(value)
    return number
