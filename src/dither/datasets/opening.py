"""What a user names as a table: a bundled dataset, a file or a frame, together with the schema it is read by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dither.datasets.bundled import NAMES, load_dataset
from dither.errors import SchemaError, TableError
from dither.notice import Notice
from dither.schema import Schema, load_schema

if TYPE_CHECKING:
    from dither.schema.native import Layout

SIDECARS = (".schema.json", ".domain.json")
INFERRED = "inferred-domain"


def open_table(table: Any, schema: Schema | str | Path | None = None) -> tuple[Any, Schema, list[Notice]]:
    """The table itself, its schema, and notes that the user has to see.

    Without a schema: a bundled dataset has its own, a file may have one beside it (`<name>.schema.json` or
    `<name>.domain.json`), and failing these the domain is inferred from the rows, which the notes say.
    """
    given = _as_schema(schema)
    if not isinstance(table, (str, Path)):
        return _with_schema(table, given)
    if isinstance(table, str) and table in NAMES:
        dataset = load_dataset(table)
        return dataset.table, given or dataset.schema, []
    if given is not None:
        return read_named(table, given), given, []
    path = Path(table)
    for ending in SIDECARS:
        beside = path.with_name(path.stem + ending)
        if path.is_file() and beside.is_file():
            found = load_schema(beside)
            return read_named(path, found), found, [schema_beside(beside)]
    return _with_schema(read_named(path), None)


def published_layout(table: Any, layout: Layout, schema: Schema, notices: Sequence[Notice]) -> Layout:
    """The columns and types of a synthetic table: decided by public facts (`schema.public_layout`).

    Where the domain itself was inferred from the rows, which the notices say leaks it, the types are the input's own.
    """
    from dither.schema.public_layout import public_layout

    if any(notice.code == INFERRED for notice in notices):
        return layout
    declared = not isinstance(table, (str, Path)) or Path(table).suffix.lower() != ".csv"
    return public_layout(layout, schema, declared=declared)


def schema_beside(path: Path) -> Notice:
    """Says which file was taken for the schema, since nobody named it."""
    return Notice("schema-beside", f"no schema given; using {path}, which stands beside the table")


def read_named(table: str | Path, schema: Schema | None = None) -> Any:
    """The PyArrow table of a bundled dataset's name or a file's path."""
    from dither.schema.files import read_table

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


def _with_schema(table: Any, schema: Schema | None) -> tuple[Any, Schema, list[Notice]]:
    from dither.schema.infer import LEAK_WARNING, infer_schema
    from dither.schema.native import table_kind

    table_kind(table)
    if schema is not None:
        return table, schema, []
    return table, infer_schema(table), [Notice(INFERRED, LEAK_WARNING)]
