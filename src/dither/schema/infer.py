"""A schema guessed from a table, for data that are public or for a first look."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dither.checks import check_whole
from dither.errors import TableError
from dither.schema.attribute import Attribute, Kind, Value
from dither.schema.calendar import DAY, FIRST_DAY, LAST_DAY
from dither.schema.labels import is_text
from dither.schema.line_columns import as_floats
from dither.schema.moments import moment_numbers
from dither.schema.native import column_names, read_columns, select_columns
from dither.schema.propose import propose_moments, propose_numbers
from dither.schema.schema import Schema
from dither.types import NativeTable

LEAK_WARNING = (
    "this schema was inferred from the table itself, which leaks private data: its bounds and labels (least and "
    "greatest values, rare labels) are facts about the people in it and are not protected; check it, widen it, and "
    "use a public schema for private data"
)
MAX_CATEGORIES = 1000
MAX_CODES = 16  # numbers with at most so many distinct values are taken as codes
KEPT_CATEGORIES = 500  # of a text column with more than MAX_CATEGORIES; the rest is "other"
OTHER = "other"
_REPEATED = (
    10  # so many rows per distinct text, in the mean, and it is a category and no identifier
)
_SURELY_ROWS = 64  # from so many rows on, what differs in every row is taken as an identifier


class Unfit(Exception):
    """Why a column cannot be asked, and what to do about it."""


def infer_schema(
    table: NativeTable, *, max_categories: int = MAX_CATEGORIES, keep: Collection[str] = ()
) -> Schema:
    """The schema of a pandas, polars or PyArrow table; whoever calls this must pass on `LEAK_WARNING`.

    Booleans stay booleans; text is categorical with sorted labels (ordinal where the column's type orders them); up
    to 16 distinct numbers are ordinal; other numbers are numeric, with atoms where they heap up and 16 even bins between the least
    and the greatest, or bins that follow the quantiles where most would crowd into one; dates and instants are cut by the
    calendar. Nulls and NaN make a column `missing`. Columns that cannot be asked (constants, identifiers, free text, nothing but
    nulls, nested types) are one error that names them all; text in `keep` is asked however many values it has.

    >>> import dither, pyarrow
    >>> dither.infer_schema(pyarrow.table({"town": ["Ulm", "Bonn", "Ulm"], "owns": [True, False, True]})).cardinalities
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
    table: NativeTable, *, max_categories: int = MAX_CATEGORIES, keep: Collection[str] = ()
) -> Schema:
    """The same without an error as long as one column can be asked: the others are marked as dropped, with the reason."""
    check_whole("max_categories", max_categories, 2)
    fine: list[Attribute] = []
    unfit: list[tuple[str, str]] = []
    for name in column_names(table):
        try:
            fine.append(_infer(name, _column(table, name), max_categories, name in keep))
        except Unfit as reason:
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
        raise Unfit(str(error).removeprefix(f"column {name!r} ") + "; mend it or drop it") from None


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
        raise Unfit("holds no values at all; drop it")
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
        raise Unfit(f"holds nested values of type {held}; make a column of each part, or drop it")
    if pa.types.is_time(held):
        raise Unfit(
            f"holds times of day of type {held}; turn them into hours (numbers) or durations, or drop it"
        )
    raise Unfit(
        f"holds {held} values, which cannot be asked; turn them into text or numbers, or drop it"
    )


def _infer_text(
    name: str, present: pa.ChunkedArray, missing: bool, max_categories: int, keep: bool
) -> Attribute:
    counted = pc.value_counts(present)
    labels = sorted(counted.field("values").to_pylist())
    if keep or (len(labels) <= max_categories and not len(labels) == len(present) >= _SURELY_ROWS):
        return _listed(name, "categorical", labels, missing)
    if len(labels) * _REPEATED > len(present) or max_categories < MAX_CATEGORIES:
        raise Unfit(
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
        raise Unfit("holds an infinite value; mend it or drop the column")
    distinct = pc.unique(present if whole else plain)
    few = distinct.to_pylist() if len(distinct) <= MAX_CODES else []
    # Whole numbers with gaps reach us as floats from pandas; they are codes all the same. Prices are, if they repeat.
    if whole and few and max(abs(code) for code in few) >= 2**63:
        raise Unfit("holds whole numbers that do not fit in 64 bits; write them as text or drop it")
    if few and all(float(code).is_integer() and abs(code) < 2**63 for code in few):
        return _listed(name, "ordinal", sorted(int(code) for code in few), missing)
    if len(few) >= 2 and len(present) >= _REPEATED * len(few):
        return _listed(name, "ordinal", sorted(few), missing)
    if len(distinct) < 2:
        raise _constant(distinct[0].as_py())
    bounds = pc.min_max(plain).as_py()
    low, high = bounds["min"], bounds["max"]
    if math.isinf(high - low):
        raise Unfit("spans more than a double-precision number can hold; mend it or drop it")
    if (
        whole
        and not keep
        and len(distinct) == len(present) >= _SURELY_ROWS
        and high - low + 1 == len(present)
    ):
        raise Unfit(
            f"numbers the rows ({len(present):,} whole numbers without a gap or a repeat); drop it or keep it"
        )
    return propose_numbers(name, np.asarray(plain.to_numpy()), missing, whole=whole)


def _infer_moment(
    name: str, present: pa.ChunkedArray, held: pa.DataType, missing: bool
) -> Attribute:
    kind: Kind = (
        "date"
        if pa.types.is_date(held)
        else "datetime"
        if pa.types.is_timestamp(held)
        else "duration"
    )
    probe = Attribute(name, kind, edges=(0.0, 1.0, 2.0))
    numbers = moment_numbers(probe, present)
    assert numbers is not None
    days = numbers if kind == "date" else numbers / DAY
    if kind != "duration" and (days.min() < FIRST_DAY or days.max() >= LAST_DAY + 1):
        raise Unfit(
            "holds times before the year 1 or after 9998, which may stand for none at all; leave those empty or drop it"
        )
    if numbers.min() == numbers.max():
        raise _constant(present[0].as_py())
    if kind == "duration":
        return propose_numbers(name, numbers, missing, whole=False, kind="duration")
    if kind == "datetime" and (numbers % DAY == 0).all():  # days in a column of instants
        return propose_moments(name, "date", numbers / DAY, missing)
    return propose_moments(name, "date" if kind == "date" else "datetime", numbers, missing)


def _listed(name: str, kind: Kind, values: Sequence[Value], missing: bool) -> Attribute:
    if len(values) < 2:
        raise _constant(values[0])
    return Attribute(name, kind, values=tuple(values), missing=missing)


def _constant(value: object) -> Unfit:
    return Unfit(f"holds one value only, {value!r}, so there is nothing to ask; drop it")
