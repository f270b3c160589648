"""A schema guessed from a table, for data that are public or for a first look."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dither.checks import check_choice, check_whole
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
from dither.schema.columns import as_floats, is_text, line_numbers, moment_numbers
from dither.schema.formats import (
    Ambiguous,
    DateOrder,
    MomentFormat,
    NumberFormat,
    detect_moment,
    detect_number,
    is_mark,
)
from dither.schema.schema import DEFAULT_BINS, Schema, numeric
from dither.schema.table import column_names, constant_value, read_columns, select_columns
from dither.types import Counts, Floats, NativeTable


@dataclass(frozen=True)
class InferSettings:
    """Tuned constants of the inference; `dither bench any_table` counts the tables that open."""

    # Atoms of one attribute: each is a code of its own, which makes questions larger.
    max_atoms: int = 16
    # Share of all values that makes one an atom; rarer ones are left to their bin.
    atom_share: float = 0.02
    # Rows that an atom needs besides; fewer repeats can be chance.
    atom_rows: int = 20
    # An atom is at least this many times as frequent as the values around it.
    atom_ratio: float = 4.0
    # Bins follow the quantiles if one even bin would have more than this share.
    crowded: float = 0.5
    # Two further edges at quantiles of 1 - tail and 1 - tail / 10.
    tail: float = 0.01
    # Finest decimal of a unit: beyond it rounded numbers and measured ones look alike.
    max_decimals: int = 4
    # Bins of a date: days or weeks if that few suffice, else months, quarters or years.
    max_periods: int = 40
    # Numbers with at most this many distinct values are codes.
    max_codes: int = 16
    # Listed values of a text column with too many categories; the rest is "other".
    kept_categories: int = 500
    # A text is a category, not an identifier, from this mean number of rows per value.
    rows_per_category: int = 10
    # From this number of rows on, values that are all distinct are an identifier.
    key_rows: int = 64
    # Without a repeat at this exponent numbers are not independent draws: the chance is e^-10.
    key_exponent: float = 10.0
    # Whole numbers of one length from this number of digits on, none twice, are account
    # numbers and the like.
    key_digits: int = 8
    # Longer texts are no labels.
    max_label: int = 1000


SETTINGS = InferSettings()


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
    for digits in range(SETTINGS.max_decimals + 1):
        scaled = values * 10**digits
        if (np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(1.0, np.abs(scaled))).all():
            return float(f"1e-{digits}") if digits else 1.0
    return None


def _find_atoms(seen: Floats, counts: Counts) -> Floats:
    """The values that stand out from those around them, at most `max_atoms`, in order."""
    total = counts.sum()
    often = np.flatnonzero(counts >= max(SETTINGS.atom_share * total, SETTINGS.atom_rows))
    atoms_at = []
    for i in often:
        around = np.concatenate([counts[max(0, i - 5) : i], counts[i + 1 : i + 6]])
        if len(around) and counts[i] >= SETTINGS.atom_ratio * np.median(around):
            atoms_at.append(int(i))
    atoms_at.sort(key=lambda i: -int(counts[i]))
    return np.sort(seen[atoms_at[: SETTINGS.max_atoms]])


def _crowded(values: Floats, low: float, high: float) -> bool:
    # Halves, because the range may overflow.
    held, _ = np.histogram(values / 2, bins=DEFAULT_BINS, range=(low / 2, high / 2))
    return bool(held.max() > SETTINGS.crowded * len(values))


def _quantile_edges(
    values: Floats, low: float, high: float, unit: float | None
) -> tuple[float, ...]:
    """Edges at quantiles, and two more where the tail begins; three digits each."""
    levels = [
        *np.arange(1, DEFAULT_BINS - 2) / (DEFAULT_BINS - 2),
        1 - SETTINGS.tail,
        1 - SETTINGS.tail / 10,
    ]
    inner = [float(f"{q:.3g}") for q in np.quantile(values, levels)]
    if unit is not None:
        inner = [float(f"{np.rint(edge / unit) * unit:.12g}") for edge in inner]
    return (low, *sorted({edge for edge in inner if low < edge < high}), high)


def _propose_moments(
    name: str, kind: Literal["date", "datetime"], values: Floats, missing: bool
) -> Attribute:
    """The finest period with at most `max_periods` bins, and hours if times differ.

    `values` are days for a date, seconds for an instant; they are not all equal.
    """
    scale = 1 if kind == "date" else DAY
    first, last = float(np.floor(values.min() / scale)), float(np.floor(values.max() / scale))
    cycles: tuple[Cycle, ...] = ()
    most = SETTINGS.max_periods
    if kind == "datetime" and (values % DAY != 0).any():
        if last - first < 3:
            low, high = (
                np.floor(values.min() / 3600) * 3600,
                np.floor(values.max() / 3600 + 1) * 3600,
            )
            return Attribute(
                name, kind, edges=tuple(np.arange(low, high + 1, 3600).tolist()), missing=missing
            )
        cycles, most = ("hour",), SETTINGS.max_periods // 2
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
OTHER = "other"
# Names of identifiers: id, user_id, UserID, row number, key, index.
_KEY_NAME = re.compile(
    r"(?i:(^|[\W_])(ids?|key|index|idx|uuid|guid|row ?names?|serial|no|nr|number)$)|[a-z](ID|Id)$"
)
# Whole numbers in this range are years.
_FIRST_YEAR = 1000
_LAST_YEAR = 2200
# Rows of the table of decisions, and characters of a name in it.
_MAX_LISTED = 20
_MAX_NAME = 40


class _Unfit(Exception):
    """Why a column cannot be asked, and what to do about it.

    Args:
        reason: What the column holds.
        advice: What to type; by default the option that leaves it out.
        drop: Whether to suggest leaving it out.
    """

    def __init__(self, reason: str, advice: str = "", *, drop: bool = True) -> None:
        super().__init__(f"{reason}; {advice or 'drop it'}")
        self.reason = reason
        self.advice = advice
        self.drop = drop


class _Constant(Exception):
    """The column has one value, or none."""


def infer_schema(
    table: NativeTable,
    *,
    max_categories: int = _MAX_CATEGORIES,
    keep: Collection[str] = (),
    date_order: DateOrder | None = None,
) -> Schema:
    """Infer the schema of a pandas, polars or PyArrow table. Callers must show `LEAK_WARNING`.

    Booleans stay booleans. Text is categorical with sorted labels, or ordinal if the column's
    type is ordered; text that writes numbers, dates or times in one format ("$1,234.00",
    "31/12/2020", "56.0%", "09:30") is read as what it writes. Up to 16 distinct numbers are
    ordinal. Other numbers are numeric with atoms at frequent values and 16 even bins between
    minimum and maximum, or bins at quantiles if most values would fall into one. Dates and
    instants are cut by the calendar. Nulls and NaN make a column `missing`. Constant and empty
    columns are not asked and pass through.

    Args:
        table: The table.
        max_categories: The largest number of distinct texts of a category.
        keep: Columns to ask although they look like identifiers or free text.
        date_order: "dmy" or "mdy", for dates such as 03/09/2020 that can be read both ways.

    Returns:
        The schema, with an attribute for each column.

    Raises:
        TableError: Some columns need a decision (identifiers, free text, ambiguous dates, nested
            types). The message is a table of all of them, and what to type.

    >>> import dither, pyarrow
    >>> table = pyarrow.table({"town": ["Ulm", "Bonn", "Ulm"], "owns": [True, False, True]})
    >>> dither.infer_schema(table).cardinalities
    (2, 2)
    """
    schema, undecided = _draft(table, max_categories, keep, date_order)
    if not undecided:
        return schema
    raise _decisions(undecided)


def draft_schema(
    table: NativeTable,
    *,
    max_categories: int = _MAX_CATEGORIES,
    keep: Collection[str] = (),
    date_order: DateOrder | None = None,
) -> Schema:
    """Infer a schema; columns that need a decision are marked as dropped, with the reason.

    Raises:
        TableError: No column can be asked.
    """
    return _draft(table, max_categories, keep, date_order)[0]


def _draft(
    table: NativeTable, max_categories: int, keep: Collection[str], date_order: DateOrder | None
) -> tuple[Schema, dict[str, _Unfit]]:
    """The schema of a draft, and the columns that need a decision."""
    check_whole("max_categories", max_categories, 2)
    if date_order is not None:
        check_choice("date_order", date_order, get_args(DateOrder))
    fine: list[Attribute] = []
    unfit: dict[str, _Unfit] = {}
    constants: dict[str, Value | None] = {}
    for name in column_names(table):
        try:
            array = _column(table, name)
            rules = _Rules(max_categories, name in keep, date_order)
            fine.append(_infer(name, array, rules))
        except _Constant:
            constants[name] = constant_value(array)
        except _Unfit as reason:
            unfit[name] = reason
    if not fine and unfit:
        raise _decisions(unfit)
    if not fine:
        raise TableError(
            f"every column has one value only, so there is nothing to ask: {', '.join(constants)}",
            where=next(iter(constants)),
            value=list(constants),
        )
    dropped = tuple((name, str(reason)) for name, reason in unfit.items())
    return Schema(tuple(fine), (), dropped, tuple(constants.items())), unfit


def _decisions(unfit: Mapping[str, _Unfit]) -> TableError:
    """A short table of the columns that need a decision, and an option that leaves them out."""
    listed = list(unfit.items())
    count = f"{len(listed)} columns need" if len(listed) > 1 else "1 column needs"
    rows = [
        (_shortened(name), entry.reason, entry.advice or f"--drop {_shown_list([name])}")
        for name, entry in listed[:_MAX_LISTED]
    ]
    head = ("column", "why", "what to type")
    widths = [max(len(row[i]) for row in (head, *rows)) for i in (0, 1)]
    lines = [f"  {a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in (head, *rows)]
    if len(listed) > _MAX_LISTED:
        lines.append(f"  and {len(listed) - _MAX_LISTED} more")
    names = list(unfit)
    unwanted = [name for name, entry in listed if entry.drop]
    if unwanted:
        shown = f"--drop {_shown_list(unwanted)}  (Python: drop={unwanted!r})"
        lines.append(f"to leave out what identifies people or cannot be asked: {shown}")
    return TableError("\n".join([f"{count} a decision:", *lines]), where=names[0], value=names)


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"


def _shown_list(names: Sequence[str]) -> str:
    """Columns as the command line takes them: comma-separated, quoted for a shell."""
    quoted = [f'"{name}"' if "," in name or name != name.strip() else name for name in names]
    return shlex.quote(",".join(quoted))


@dataclass(frozen=True)
class _Rules:
    """How one column is inferred; see `infer_schema`."""

    max_categories: int
    keep: bool
    date_order: DateOrder | None


def _column(table: NativeTable, name: str) -> pa.ChunkedArray:
    narrow = select_columns(table, [name])
    if len(narrow) == 0:
        raise TableError("the table has no rows")
    try:
        return read_columns(narrow)[1][0]
    except TableError as error:
        raise _Unfit(str(error).removeprefix(f"column {name!r} ")) from None


def _infer(name: str, array: pa.ChunkedArray, rules: _Rules) -> Attribute:
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
        raise _Constant
    if pa.types.is_boolean(held):
        if not missing and len(pc.unique(present)) < 2:
            raise _Constant
        return Attribute(name, "boolean", values=(False, True), missing=missing)
    if ordered:
        return _listed(name, "ordinal", [value for value in declared if value is not None], missing)
    if is_text(held):
        return _infer_text(name, present, missing, rules)
    if pa.types.is_integer(held) or pa.types.is_floating(held) or pa.types.is_decimal(held):
        return _infer_number(name, present, held, missing, rules.keep)
    if pa.types.is_date(held) or pa.types.is_timestamp(held) or pa.types.is_duration(held):
        return _infer_moment(name, present, held, missing)
    if pa.types.is_nested(held):
        raise _Unfit(f"nested values ({_shortened(str(held))})")
    raise _Unfit(f"values of type {held}, which cannot be asked")


def _infer_text(name: str, present: pa.ChunkedArray, missing: bool, rules: _Rules) -> Attribute:
    counted = pc.value_counts(present)
    labels = sorted(counted.field("values").to_pylist())
    formatted = _infer_formatted(name, present, labels, missing, rules)
    if formatted is not None:
        return formatted
    longest = max(map(len, labels))
    if longest > SETTINGS.max_label:
        raise _Unfit(f"free text: up to {longest:,} characters")
    distinct, rows = len(labels), len(present)
    if rules.keep or (
        distinct <= rules.max_categories and not distinct == rows >= SETTINGS.key_rows
    ):
        return _listed(name, "categorical", labels, missing)
    if distinct * SETTINGS.rows_per_category > rows or rules.max_categories < _MAX_CATEGORIES:
        raise _Unfit(
            f"an identifier or free text: {distinct:,} distinct texts in {rows:,} rows",
            _drop_or_keep(name),
        )
    pairs = zip(
        counted.field("counts").to_pylist(), counted.field("values").to_pylist(), strict=True
    )
    often = [
        label
        for _, label in sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[
            : SETTINGS.kept_categories
        ]
    ]
    return _listed(name, "categorical", [*sorted({*often} - {OTHER}), OTHER], missing)


def _drop_or_keep(name: str) -> str:
    shown = _shown_list([name])
    return f"--drop {shown}, or --keep {shown}"


def _infer_formatted(
    name: str, present: pa.ChunkedArray, labels: list[str], missing: bool, rules: _Rules
) -> Attribute | None:
    """The attribute of text that writes numbers, dates or times; None for other text."""
    texts = [label for label in labels if not is_mark(label)]
    marked = len(texts) < len(labels)
    if len(texts) < 2:
        return None
    number = detect_number(texts, codes=not marked)
    if number is not None and len(texts) > SETTINGS.max_codes:
        return _formatted_number(name, present, number, missing or marked)
    if number is not None:
        # Few amounts are labels in their order; a mark among them is a label too.
        ordered = sorted(texts, key=lambda text: number.read(text) or 0.0)
        return None if marked else _listed(name, "ordinal", ordered, missing)
    try:
        moment = detect_moment(texts, rules.date_order)
    except Ambiguous as example:
        raise _Unfit(
            f"day/month or month/day: {example} can be read both ways",
            "--date-order dmy, or --date-order mdy",
            drop=False,
        ) from None
    if moment is None:
        return None
    return _formatted_moment(name, present, moment, missing or marked)


def _formatted_number(
    name: str, present: pa.ChunkedArray, form: NumberFormat, missing: bool
) -> Attribute:
    probe = Attribute(name, "numeric", edges=(0.0, 1.0, 2.0), format=form.example)
    numbers = line_numbers(probe, present)
    numbers = numbers[~np.isnan(numbers)]
    whole = not form.digits and float(np.abs(numbers).max()) < 2**53
    proposed = _propose_numbers(name, numbers, missing, whole=whole)
    return replace(proposed, format=form.example)


def _formatted_moment(
    name: str, present: pa.ChunkedArray, form: MomentFormat, missing: bool
) -> Attribute | None:
    probe = Attribute(name, form.kind, edges=(0.0, 1.0, 2.0), format=form.pattern)
    numbers = line_numbers(probe, present)
    numbers = numbers[~np.isnan(numbers)]
    if form.kind == "duration":
        unit = 60.0 if (numbers % 60 == 0).all() else 1.0
        edges = tuple(3600.0 * hour for hour in range(25))
        return Attribute(
            name, "duration", edges=edges, missing=missing, unit=unit, format=form.pattern
        )
    _check_days(name, numbers if form.kind == "date" else numbers / DAY)
    if numbers.min() == numbers.max():
        # The same moment in different words, such as 1/2/2020 and 01/02/2020.
        return None
    if form.kind == "datetime" and (numbers % DAY == 0).all():
        dates = _propose_moments(name, "date", numbers / DAY, missing)
        return replace(dates, format=form.midnight)
    return replace(_propose_moments(name, form.kind, numbers, missing), format=form.pattern)


def _infer_number(
    name: str, present: pa.ChunkedArray, held: pa.DataType, missing: bool, keep: bool
) -> Attribute:
    whole = pa.types.is_integer(held)
    plain = as_floats(present)
    if not pc.all(pc.is_finite(plain)).as_py():
        raise _Unfit("an infinite value", f"correct it, or --drop {_shown_list([name])}")
    distinct = pc.unique(present if whole else plain)
    few = distinct.to_pylist() if len(distinct) <= SETTINGS.max_codes else []
    # pandas stores whole numbers with gaps as floats; they are codes too, and so are
    # prices that repeat.
    if whole and few and max(abs(code) for code in few) >= 2**63:
        raise _Unfit("whole numbers that do not fit in 64 bits")
    if len(distinct) < 2 and not missing:
        raise _Constant
    if few and all(float(code).is_integer() and abs(code) < 2**63 for code in few):
        return _listed(name, "ordinal", sorted(int(code) for code in few), missing)
    if few and (len(few) == 1 or len(present) >= SETTINGS.rows_per_category * len(few)):
        return _listed(name, "ordinal", sorted(few), missing)
    values = np.asarray(plain.to_numpy())
    low, high = float(values.min()), float(values.max())
    if math.isinf(high - low):
        raise _Unfit("numbers that span more than a double-precision number can hold")
    if not keep and len(distinct) == len(present) >= SETTINGS.key_rows:
        _check_key(name, values)
    return _propose_numbers(name, values, missing, whole=whole)


def _check_key(name: str, values: Floats) -> None:
    """Raise `_Unfit` if distinct numbers identify the rows.

    They do if the column's name says so, if they increase from row to row, if they are long and
    all of one length, or if independent draws from so narrow a range would almost surely repeat:
    n draws among m values have no repeat with a probability of at most exp(-n (n - 1) / 2 m) for
    every distribution. Years are not identifiers, unless the name says so.
    """
    low, high = float(values.min()), float(values.max())
    named = _KEY_NAME.search(name) is not None
    years = low >= _FIRST_YEAR and high <= _LAST_YEAR and not named
    if years or not (values == np.rint(values)).all():
        return
    count = len(values)
    steps = np.diff(values)
    if (steps > 0).all() or (steps < 0).all():
        reason = f"an identifier or the order of rows: {count:,} sorted numbers, none of them twice"
    elif low >= 10 ** (SETTINGS.key_digits - 1) and len(f"{low:.0f}") == len(f"{high:.0f}"):
        reason = (
            f"an identifier: {count:,} numbers of {len(f'{low:.0f}')} digits, none of them twice"
        )
    elif named or count * (count - 1) / 2 > SETTINGS.key_exponent * (high - low + 1):
        reason = f"an identifier: {count:,} whole numbers, none of them twice"
    else:
        return
    raise _Unfit(reason, _drop_or_keep(name))


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
    if kind != "duration":
        _check_days(name, numbers if kind == "date" else numbers / DAY)
    if numbers.min() == numbers.max() and not missing:
        raise _Constant
    if kind == "duration" and numbers.min() == numbers.max():
        only = float(numbers[0])
        return Attribute(name, kind, edges=(only, only + 1.0), missing=missing)
    if kind == "duration":
        return _propose_numbers(name, numbers, missing, whole=False, kind="duration")
    # Dates in a column of instants.
    if kind == "datetime" and (numbers % DAY == 0).all():
        return _propose_moments(name, "date", numbers / DAY, missing)
    return _propose_moments(name, "date" if kind == "date" else "datetime", numbers, missing)


def _check_days(name: str, days: Floats) -> None:
    if days.min() < FIRST_DAY or days.max() >= LAST_DAY + 1:
        raise _Unfit(
            "times before the year 1 or after 9998, perhaps as a code for missing",
            f"leave these empty, or --drop {_shown_list([name])}",
        )


def _listed(name: str, kind: Kind, values: Sequence[Value], missing: bool) -> Attribute:
    if len(values) + missing < 2:
        raise _Constant
    return Attribute(name, kind, values=tuple(values), missing=missing)
