"""Tables that come with the package, each with a public schema."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.resources import as_file, files
from pathlib import Path

import pyarrow as pa

from dither.checks import check_choice
from dither.errors import SchemaError, TableError
from dither.notice import (
    Notice,
    column_format,
    constant_columns,
    dropped_columns,
    rare_as_other,
)
from dither.plugins import plugin
from dither.schema import Schema, load_schema, schema_from_json
from dither.schema.files import INDEX, STDIN, ReadOptions, is_untyped, read_noted, read_table
from dither.schema.infer import LEAK_WARNING, OTHER, SETTINGS, infer_schema
from dither.schema.table import (
    Layout,
    adopt_table,
    column_names,
    public_layout,
    select_columns,
    table_kind,
)
from dither.types import JsonMapping, NativeTable


@dataclass(frozen=True)
class Dataset:
    """A table, the public domain of its columns, what it is and where it comes from."""

    name: str
    table: pa.Table
    schema: Schema
    description: str
    source: str

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, {self.table.num_rows:,} rows, {len(self.schema)} attributes)"
        )

    def _repr_html_(self) -> str:
        rows = f"{self.table.num_rows:,} rows"
        return f"<p><b>{escape(self.name)}</b>: {rows}. {escape(self.source)}</p>{self.schema._repr_html_()}"


# name -> description, source
_ABOUT: dict[str, tuple[str, str]] = {
    "adult": (
        "45,222 people of the 1994 census of the United States, 15 attributes: the complete rows of UCI Adult, the "
        "train file (rows 0 to 30,161) before the test file. education and education_num say the same thing twice. "
        "The bins of the numeric attributes are round figures, at most 16 for each, chosen by hand with the spread of "
        "this public table in view, and the labels are the ones its rows hold; no capital gain, no capital loss, 40 "
        "hours a week and the top code 99,999 of capital_gain have a bin of their own.",
        "Becker and Kohavi (1996), Adult, UCI Machine Learning Repository, CC BY 4.0; changed as NOTICE says",
    ),
}
NAMES: tuple[str, ...] = tuple(_ABOUT)


def load_dataset(name: str) -> Dataset:
    """A bundled dataset, or one of a plug-in, by name; its table is a PyArrow table.

    Args:
        name: `adult`, or the name of a plug-in's dataset.

    Returns:
        The table with its schema, description and source.

    >>> import dither
    >>> dither.load_dataset("adult").table.num_rows
    45222
    """
    if (added := _added(name)) is not None:
        return added
    schema = _bundled_schema(name)
    with as_file(files("dither.datasets") / f"{name}.parquet") as path:
        return Dataset(name, read_table(path), schema, *_ABOUT[name])


def _bundled_schema(name: str) -> Schema:
    """The public schema of a bundled dataset."""
    if (added := _added(name)) is not None:
        return added.schema
    check_choice("the name of a bundled dataset", name, NAMES, error=TableError)
    text = (files("dither.datasets") / f"{name}.schema.json").read_text(encoding="utf-8")
    return schema_from_json(json.loads(text))


def _is_dataset(name: object) -> bool:
    """Whether this is the name of a table that needs no file."""
    return isinstance(name, str) and (name in NAMES or plugin("datasets", name) is not None)


def _added(name: str) -> Dataset | None:
    """A plug-in's dataset: its entry point is a function that returns a `Dataset`."""
    added = None if name in NAMES else plugin("datasets", name)
    if added is None:
        return None
    make = added.load()
    if not callable(make):
        raise added.fault("is not a function that returns a dither.datasets.Dataset")
    try:
        made = make()
    except (Exception, SystemExit) as error:
        # Another package's code may raise anything.
        raise added.fault(f"cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(made, Dataset):
        raise added.fault(f"gives a {type(made).__name__}, not a dither.datasets.Dataset")
    return made


_SIDECARS = (".schema.json", ".domain.json")
INFERRED = "inferred-domain"


def open_table(
    table: NativeTable | str | Path,
    schema: Schema | JsonMapping | str | Path | None = None,
    options: ReadOptions | None = None,
) -> tuple[NativeTable, Schema, list[Notice]]:
    """Open a table: the table, its schema, and notices for the user.

    Without a schema the one that belongs to the table's name is used (`named_schema`). Otherwise
    the domain is inferred from the rows, which a notice says. Unwanted columns are left out of
    both.
    """
    how = options or ReadOptions()
    domain = _as_schema(schema)
    notes: list[Notice] = []
    if isinstance(table, (str, Path)):
        if domain is None:
            domain, notes = named_schema(table)
        table, more = read_named_noted(table, domain, how)
        notes = [*notes, *more]
    table = adopt_table(table)
    wanted = wanted_columns(table, how.columns, how.drop)
    if how.columns is not None or how.drop:
        table = select_columns(table, wanted)
        domain = None if domain is None else _narrow_schema(domain, wanted)
    if domain is None:
        # An index that is named among the columns is wanted, although it numbers the rows.
        keep = {*how.keep, *({INDEX} & {*(how.columns or ())})}
        domain = infer_schema(table, keep=keep, date_order=how.date_order)
        return table, domain, [*notes, *inferred_notices(domain)]
    dropped = [name for name, _ in domain.dropped if name in set(column_names(table))]
    return table, domain, [*notes, *([dropped_columns(dropped)] if dropped else [])]


def inferred_notices(schema: Schema) -> list[Notice]:
    """That a schema was inferred, and what was assumed about its columns."""
    notes = [Notice(INFERRED, LEAK_WARNING)]
    notes += [column_format(a.name, a.kind, a.format) for a in schema if a.format]
    if schema.constants:
        notes.append(constant_columns([name for name, _ in schema.constants]))
    rare = [
        a.name
        for a in schema
        if a.kind == "categorical"
        and len(a.values) > SETTINGS.kept_categories
        and a.values[-1] == OTHER
    ]
    return [*notes, *([rare_as_other(rare)] if rare else [])]


def schema_of(given: Schema | NativeTable | str | Path) -> tuple[Schema, list[Notice]]:
    """The schema of a schema file, a bundled dataset, a table or a table's file.

    Rows are read only if a table has no schema, which a notice says.
    """
    if isinstance(given, Schema):
        return given, []
    if isinstance(given, (str, Path)):
        if Path(given).suffix.lower() == ".json":
            return load_schema(given), []
        named, notes = named_schema(given)
        if named is not None:
            return named, notes
    _, domain, notes = open_table(given)
    return domain, notes


def wanted_columns(
    table: NativeTable, columns: Sequence[str] | None, drop: Sequence[str]
) -> list[str]:
    """The columns to read, in the table's order.

    Raises:
        TableError: The table lacks a named column.
    """
    names = column_names(table)
    for name in (*(columns or ()), *drop):
        if name not in names:
            raise TableError(
                f"the table has no column {name!r}; its columns are {', '.join(names[:20])}",
                where=name,
            )
    wanted = [name for name in names if (columns is None or name in columns) and name not in drop]
    if not wanted:
        raise TableError("no column is left to ask", where="columns")
    return wanted


def _narrow_schema(schema: Schema, names: Collection[str]) -> Schema:
    """The schema of some columns, with the rules that are about these alone."""
    kept = tuple(a for a in schema if a.name in names)
    if not kept:
        raise SchemaError("the schema has none of the columns asked for", where="columns")
    rules = tuple(rule for rule in schema.rules if set(rule.names) <= set(names))
    dropped = tuple(entry for entry in schema.dropped if entry[0] in names)
    constants = tuple(entry for entry in schema.constants if entry[0] in names)
    return Schema(kept, rules, dropped, constants)


def named_schema(table: str | Path) -> tuple[Schema | None, list[Notice]]:
    """The schema that belongs to a table's name, if any, and the file it was read from.

    A bundled dataset has a schema; a file may have one in the same folder, `<name>.schema.json`
    or `<name>.domain.json`.
    """
    if isinstance(table, str) and (
        table in NAMES or (not Path(table).exists() and _is_dataset(table))
    ):
        return _bundled_schema(table), []
    path = Path(table)
    for ending in _SIDECARS if path.is_file() else ():
        beside = path.with_name(path.stem + ending)
        if beside.is_file():
            note = Notice(
                "schema-beside", f"no schema given; using {beside}, which stands beside the table"
            )
            return load_schema(beside), [note]
    return None, []


def published_layout(
    table: NativeTable | str | Path, layout: Layout, schema: Schema, notices: Sequence[Notice]
) -> Layout:
    """The columns and types of a synthetic table, determined by public facts (`public_layout`).

    If the domain was inferred from the rows, which a notice says, the types are the input's.
    """
    named = isinstance(table, (str, Path))
    kind = layout.kind if named else table_kind(table)
    if not any(notice.code == INFERRED for notice in notices):
        layout = public_layout(layout, schema, declared=not is_untyped(table))
    return replace(layout, kind=kind)


def read_named(table: str | Path, schema: Schema | None = None) -> pa.Table:
    """The PyArrow table of a bundled dataset's name or a file's path."""
    return read_named_noted(table, schema)[0]


def read_named_noted(
    table: str | Path, schema: Schema | None = None, options: ReadOptions | None = None
) -> tuple[pa.Table, list[Notice]]:
    """The same, and what was assumed about how a file is written."""
    if isinstance(table, str) and (
        table in NAMES or (not Path(table).exists() and _is_dataset(table))
    ):
        return load_dataset(table).table, []
    if not Path(table).exists() and str(table) != STDIN:
        raise TableError(
            f"file not found: {table}; it is not a bundled dataset either (those are: {', '.join(NAMES)})",
            where=str(table),
            value=str(table),
        )
    return read_noted(table, schema, options)


def _as_schema(schema: object) -> Schema | None:
    if schema is None or isinstance(schema, Schema):
        return schema
    if isinstance(schema, (str, Path)):
        return load_schema(schema)
    if isinstance(schema, Mapping):
        return schema_from_json(schema)
    raise SchemaError(
        "a schema is a dither.Schema, the path of a schema file or the dict that such a file "
        f"holds, not {type(schema).__name__}"
    )
