"""A schema guessed from a table, for data that are public or for a first look."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dither.checks import check_whole
from dither.errors import TableError
from dither.schema.attribute import (
    DAY,
    FIRST_DAY,
    LAST_DAY,
    PERIODS,
    Attribute,
    Cycle,
    Kind,
    Period,
    Value,
    period_edges,
)
from dither.schema.columns import as_floats, is_text, moment_numbers
from dither.schema.schema import DEFAULT_BINS, Schema, numeric
from dither.schema.table import column_names, read_columns, select_columns
from dither.types import Counts, Floats, NativeTable

MAX_ATOMS = 16
_ATOM_SHARE = 0.02  # of all values: rarer ones are left to their bin
_ATOM_ROWS = 20  # fewer repeats can be chance
# An atom is at least this many times as frequent as the values around it.
_STANDS_OUT = 4.0
# Bins follow the quantiles if one even bin would have at least this share.
_CROWDED = 0.5
_MAX_DECIMALS = 4
_MAX_PERIODS = 40
_TAIL = (0.99, 0.999)


def _propose_numbers(
    name: str,
    values: Floats,
    missing: bool,
    *,
    whole: bool,
    kind: Literal["numeric", "duration"] = "numeric",
) -> Attribute:
    """Atoms at frequent values, the unit, and even bins unless most values fall into one.

    Args:
        values: At least two different finite values.
        whole: Whether the column's type is an integer.
    """
    unit = 1.0 if whole else _find_unit(values)
    seen, counts = np.unique(values, return_counts=True)
    atoms = _find_atoms(seen, counts)
    rest = values[~np.isin(values, atoms)]
    if len(rest) < 2 or rest.min() == rest.max():
        rest, atoms = values, atoms[:0]
    low, high = _settled(float(seen[0]), float(seen[-1]), unit)
    edges: tuple[float, ...]
    if _crowded(rest, low, high):
        edges = _quantile_edges(rest, low, high, unit)
    else:
        ends = (int(low), int(high)) if whole and max(abs(low), abs(high)) < 2**53 else (low, high)
        edges = numeric(name, low=ends[0], high=ends[1]).edges
    return Attribute(
        name, kind, edges=edges, missing=missing, atoms=tuple(float(a) for a in atoms), unit=unit
    )


def _settled(low: float, high: float, unit: float | None) -> tuple[float, float]:
    """Bounds that contain the values and the multiples of the unit nearest to them."""
    if unit is None:
        return low, high
    exact = [float(f"{round(bound / unit) * unit:.12g}") for bound in (low, high)]
    return min(low, exact[0]), max(high, exact[1])


def _find_unit(values: Floats) -> float | None:
    """The power of ten, from 1 to 0.0001, that divides all values; None if none does."""
    if np.abs(values).max() >= 2**50:
        return None
    for digits in range(_MAX_DECIMALS + 1):
        scaled = values * 10**digits
        if (np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(1.0, np.abs(scaled))).all():
            return float(f"1e-{digits}") if digits else 1.0
    return None


def _find_atoms(seen: Floats, counts: Counts) -> Floats:
    """The values that stand out from those around them, at most MAX_ATOMS, in order."""
    total = counts.sum()
    often = np.flatnonzero(counts >= max(_ATOM_SHARE * total, _ATOM_ROWS))
    atoms_at = []
    for i in often:
        around = np.concatenate([counts[max(0, i - 5) : i], counts[i + 1 : i + 6]])
        if len(around) and counts[i] >= _STANDS_OUT * np.median(around):
            atoms_at.append(int(i))
    atoms_at.sort(key=lambda i: -int(counts[i]))
    return np.sort(seen[atoms_at[:MAX_ATOMS]])


def _crowded(values: Floats, low: float, high: float) -> bool:
    # Halves, because the range may overflow.
    held, _ = np.histogram(values / 2, bins=DEFAULT_BINS, range=(low / 2, high / 2))
    return bool(held.max() > _CROWDED * len(values))


def _quantile_edges(
    values: Floats, low: float, high: float, unit: float | None
) -> tuple[float, ...]:
    """Edges at quantiles, and two more where the tail begins; three digits each."""
    levels = [*np.arange(1, DEFAULT_BINS - 2) / (DEFAULT_BINS - 2), *_TAIL]
    inner = [float(f"{q:.3g}") for q in np.quantile(values, levels)]
    if unit is not None:
        inner = [float(f"{np.rint(edge / unit) * unit:.12g}") for edge in inner]
    return (low, *sorted({edge for edge in inner if low < edge < high}), high)


def _propose_moments(
    name: str, kind: Literal["date", "datetime"], values: Floats, missing: bool
) -> Attribute:
    """The finest period with at most _MAX_PERIODS bins, and hours if times differ.

    `values` are days for a date, seconds for an instant; they are not all equal.
    """
    scale = 1 if kind == "date" else DAY
    first, last = float(np.floor(values.min() / scale)), float(np.floor(values.max() / scale))
    cycles: tuple[Cycle, ...] = ()
    most = _MAX_PERIODS
    if kind == "datetime" and (values % DAY != 0).any():
        if last - first < 3:
            low, high = (
                np.floor(values.min() / 3600) * 3600,
                np.floor(values.max() / 3600 + 1) * 3600,
            )
            return Attribute(
                name, kind, edges=tuple(np.arange(low, high + 1, 3600).tolist()), missing=missing
            )
        cycles, most = ("hour",), _MAX_PERIODS // 2
    return Attribute(
        name,
        kind,
        edges=tuple(day * scale for day in period_edges(first, last, _period(first, last, most))),
        missing=missing,
        cycles=cycles,
    )


def _period(first: float, last: float, most: int) -> Period | None:
    about = {"day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}
    for period in reversed(PERIODS):
        if (last - first) / about[period] <= most:
            return period
    return "year"


LEAK_WARNING = (
    "this schema was inferred from the table itself, which leaks private data: its bounds and labels (least and "
    "greatest values, rare labels) are facts about the people in it and are not protected; check it, widen it, and "
    "use a public schema for private data"
)
_MAX_CATEGORIES = 1000
# Numbers with at most this many distinct values are codes.
MAX_CODES = 16
# Listed values of a text column with more than _MAX_CATEGORIES; the rest is "other".
KEPT_CATEGORIES = 500
OTHER = "other"
# A text is a category, not an identifier, from this mean number of rows per value.
_REPEATED = 10
# From this number of rows on, values that are all distinct are an identifier.
_SURELY_ROWS = 64


class _Unfit(Exception):
    """Why a column cannot be asked, and what to do about it."""


def infer_schema(
    table: NativeTable, *, max_categories: int = _MAX_CATEGORIES, keep: Collection[str] = ()
) -> Schema:
    """Infer the schema of a pandas, polars or PyArrow table. Callers must show `LEAK_WARNING`.

    Booleans stay booleans. Text is categorical with sorted labels, or ordinal if the column's
    type is ordered. Up to 16 distinct numbers are ordinal. Other numbers are numeric with atoms
    at frequent values and 16 even bins between minimum and maximum, or bins at quantiles if most
    values would fall into one. Dates and instants are cut by the calendar. Nulls and NaN make a
    column `missing`.

    Args:
        table: The table.
        max_categories: The largest number of distinct texts of a category.
        keep: Text columns to ask for any number of distinct values.

    Returns:
        The schema, with an attribute for each column.

    Raises:
        TableError: Some columns cannot be asked (constants, identifiers, free text, only nulls,
            nested types); the message names all of them.

    >>> import dither, pyarrow
    >>> table = pyarrow.table({"town": ["Ulm", "Bonn", "Ulm"], "owns": [True, False, True]})
    >>> dither.infer_schema(table).cardinalities
    (2, 2)
    """
    schema = draft_schema(table, max_categories=max_categories, keep=keep)
    if not schema.dropped:
        return schema
    count = len(schema.dropped)
    listed = "; ".join(f"column {name!r} {why}" for name, why in schema.dropped)
    rest = "" if count == 1 else f" ({count} columns need a decision)"
    first = schema.dropped[0][0]
    raise TableError(f"{listed}{rest}", where=first, value=[name for name, _ in schema.dropped])


def draft_schema(
    table: NativeTable, *, max_categories: int = _MAX_CATEGORIES, keep: Collection[str] = ()
) -> Schema:
    """Infer a schema; columns that cannot be asked are marked as dropped, with the reason.

    Raises:
        TableError: No column can be asked.
    """
    check_whole("max_categories", max_categories, 2)
    fine: list[Attribute] = []
    unfit: list[tuple[str, str]] = []
    for name in column_names(table):
        try:
            fine.append(_infer(name, _column(table, name), max_categories, name in keep))
        except _Unfit as reason:
            unfit.append((name, str(reason)))
    if not fine:
        listed = "; ".join(f"column {name!r} {why}" for name, why in unfit)
        raise TableError(
            f"no column can be asked: {listed}",
            where=unfit[0][0],
            value=[name for name, _ in unfit],
        )
    return Schema(tuple(fine), dropped=tuple(unfit))


def _column(table: NativeTable, name: str) -> pa.ChunkedArray:
    narrow = select_columns(table, [name])
    if len(narrow) == 0:
        raise TableError("the table has no rows")
    try:
        return read_columns(narrow)[1][0]
    except TableError as error:
        raise _Unfit(
            str(error).removeprefix(f"column {name!r} ") + "; correct it or drop it"
        ) from None


def _infer(name: str, array: pa.ChunkedArray, max_categories: int, keep: bool) -> Attribute:
    held = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    ordered = pa.types.is_dictionary(array.type) and array.type.ordered
    if pa.types.is_dictionary(array.type):
        declared = (
            array.unify_dictionaries().chunk(0).dictionary.to_pylist() if array.num_chunks else []
        )
        array = array.cast(held)
    present = array.drop_null()
    if pa.types.is_floating(held):
        present = present.filter(pc.invert(pc.is_nan(present)))
    missing = len(present) < len(array)
    if not len(present):
        raise _Unfit("holds no values at all; drop it")
    if pa.types.is_boolean(held):
        if len(pc.unique(present)) < 2:
            raise _constant(present[0].as_py())
        return Attribute(name, "boolean", values=(False, True), missing=missing)
    if ordered:
        return _listed(name, "ordinal", [value for value in declared if value is not None], missing)
    if is_text(held):
        return _infer_text(name, present, missing, max_categories, keep)
    if pa.types.is_integer(held) or pa.types.is_floating(held) or pa.types.is_decimal(held):
        return _infer_number(name, present, held, missing, keep)
    if pa.types.is_date(held) or pa.types.is_timestamp(held) or pa.types.is_duration(held):
        return _infer_moment(name, present, held, missing)
    if pa.types.is_nested(held):
        raise _Unfit(f"holds nested values of type {held}; make a column of each part, or drop it")
    if pa.types.is_time(held):
        raise _Unfit(
            f"holds times of day of type {held}; turn them into hours (numbers) or durations, or drop it"
        )
    raise _Unfit(
        f"holds {held} values, which cannot be asked; turn them into text or numbers, or drop it"
    )


def _infer_text(
    name: str, present: pa.ChunkedArray, missing: bool, max_categories: int, keep: bool
) -> Attribute:
    counted = pc.value_counts(present)
    labels = sorted(counted.field("values").to_pylist())
    if keep or (len(labels) <= max_categories and not len(labels) == len(present) >= _SURELY_ROWS):
        return _listed(name, "categorical", labels, missing)
    if len(labels) * _REPEATED > len(present) or max_categories < _MAX_CATEGORIES:
        raise _Unfit(
            f"looks like an identifier or free text ({len(labels):,} distinct texts in {len(present):,} rows); drop it, group "
            "its values, or keep it as it is"
        )
    pairs = zip(
        counted.field("counts").to_pylist(), counted.field("values").to_pylist(), strict=True
    )
    often = [
        label for _, label in sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:KEPT_CATEGORIES]
    ]
    return _listed(name, "categorical", [*sorted({*often} - {OTHER}), OTHER], missing)


def _infer_number(
    name: str, present: pa.ChunkedArray, held: pa.DataType, missing: bool, keep: bool
) -> Attribute:
    whole = pa.types.is_integer(held)
    plain = as_floats(present)
    if not pc.all(pc.is_finite(plain)).as_py():
        raise _Unfit("holds an infinite value; correct it or drop the column")
    distinct = pc.unique(present if whole else plain)
    few = distinct.to_pylist() if len(distinct) <= MAX_CODES else []
    # pandas stores whole numbers with gaps as floats; they are codes too, and so are
    # prices that repeat.
    if whole and few and max(abs(code) for code in few) >= 2**63:
        raise _Unfit(
            "holds whole numbers that do not fit in 64 bits; write them as text or drop it"
        )
    if few and all(float(code).is_integer() and abs(code) < 2**63 for code in few):
        return _listed(name, "ordinal", sorted(int(code) for code in few), missing)
    if len(few) >= 2 and len(present) >= _REPEATED * len(few):
        return _listed(name, "ordinal", sorted(few), missing)
    if len(distinct) < 2:
        raise _constant(distinct[0].as_py())
    bounds = pc.min_max(plain).as_py()
    low, high = bounds["min"], bounds["max"]
    if math.isinf(high - low):
        raise _Unfit("spans more than a double-precision number can hold; correct it or drop it")
    if (
        whole
        and not keep
        and len(distinct) == len(present) >= _SURELY_ROWS
        and high - low + 1 == len(present)
    ):
        raise _Unfit(
            f"numbers the rows ({len(present):,} whole numbers without a gap or a repeat); drop it or keep it"
        )
    return _propose_numbers(name, np.asarray(plain.to_numpy()), missing, whole=whole)


def _infer_moment(
    name: str, present: pa.ChunkedArray, held: pa.DataType, missing: bool
) -> Attribute:
    kind: Kind = "duration"
    if pa.types.is_date(held):
        kind = "date"
    elif pa.types.is_timestamp(held):
        kind = "datetime"
    probe = Attribute(name, kind, edges=(0.0, 1.0, 2.0))
    numbers = moment_numbers(probe, present)
    assert numbers is not None
    days = numbers if kind == "date" else numbers / DAY
    if kind != "duration" and (days.min() < FIRST_DAY or days.max() >= LAST_DAY + 1):
        raise _Unfit(
            "holds times before the year 1 or after 9998, perhaps as a code for missing; leave these empty or drop the column"
        )
    if numbers.min() == numbers.max():
        raise _constant(present[0].as_py())
    if kind == "duration":
        return _propose_numbers(name, numbers, missing, whole=False, kind="duration")
    # Dates in a column of instants.
    if kind == "datetime" and (numbers % DAY == 0).all():
        return _propose_moments(name, "date", numbers / DAY, missing)
    return _propose_moments(name, "date" if kind == "date" else "datetime", numbers, missing)


def _listed(name: str, kind: Kind, values: Sequence[Value], missing: bool) -> Attribute:
    if len(values) < 2:
        raise _constant(values[0])
    return Attribute(name, kind, values=tuple(values), missing=missing)


def _constant(value: object) -> _Unfit:
    return _Unfit(f"holds one value only, {value!r}, so there is nothing to ask; drop it")
