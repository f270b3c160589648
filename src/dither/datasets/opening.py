"""What a user names as a table: a bundled dataset, a file or a frame, together with the schema it is read by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from dither.datasets.bundled import NAMES, bundled_schema, load_dataset
from dither.errors import SchemaError, TableError
from dither.notice import Notice
from dither.schema import Schema, load_schema
from dither.schema.files import read_table
from dither.schema.infer import LEAK_WARNING, infer_schema
from dither.schema.native import Layout, public_layout, table_kind
from dither.types import NativeTable

SIDECARS = (".schema.json", ".domain.json")
INFERRED = "inferred-domain"


def open_table(
    table: NativeTable | str | Path, schema: Schema | str | Path | None = None
) -> tuple[NativeTable, Schema, list[Notice]]:
    """The table itself, its schema, and notes that the user has to see.

    Without a schema: the one that comes with the table's name (`named_schema`), and failing that the domain is inferred from the
    rows, which the notes say.
    """
    domain = _as_schema(schema)
    notes: list[Notice] = []
    if isinstance(table, (str, Path)):
        if domain is None:
            domain, notes = named_schema(table)
        table = read_named(table, domain)
    table_kind(table)
    if domain is None:
        return table, infer_schema(table), [Notice(INFERRED, LEAK_WARNING)]
    return table, domain, notes


def named_schema(table: str | Path) -> tuple[Schema | None, list[Notice]]:
    """The schema that comes with what a user names as a table, if any, and which file it was taken from.

    A bundled dataset has its own; a file may have one beside it, `<name>.schema.json` or `<name>.domain.json`.
    """
    if isinstance(table, str) and table in NAMES:
        return bundled_schema(table), []
    path = Path(table)
    for ending in SIDECARS:
        beside = path.with_name(path.stem + ending)
        if path.is_file() and beside.is_file():
            note = Notice("schema-beside", f"no schema given; using {beside}, which stands beside the table")
            return load_schema(beside), [note]
    return None, []


def published_layout(
    table: NativeTable | str | Path, layout: Layout, schema: Schema, notices: Sequence[Notice]
) -> Layout:
    """The columns and types of a synthetic table: decided by public facts (`public_layout`).

    Where the domain itself was inferred from the rows, which the notices say leaks it, the types are the input's own.
    """
    if any(notice.code == INFERRED for notice in notices):
        return layout
    declared = not isinstance(table, (str, Path)) or Path(table).suffix.lower() != ".csv"
    return public_layout(layout, schema, declared=declared)


def read_named(table: str | Path, schema: Schema | None = None) -> pa.Table:
    """The PyArrow table of a bundled dataset's name or a file's path."""
    if isinstance(table, str) and table in NAMES:
        return load_dataset(table).table
    if not Path(table).exists():
        raise TableError(
            f"file not found: {table}; it is no bundled dataset either (those are: {', '.join(NAMES)})",
            where=str(table),
            value=str(table),
        )
    return read_table(table, schema)


def _as_schema(schema: object) -> Schema | None:
    if schema is None or isinstance(schema, Schema):
        return schema
    if isinstance(schema, (str, Path)):
        return load_schema(schema)
    raise SchemaError(f"a schema is a dither.Schema or the path of a schema file, not {type(schema).__name__}")
