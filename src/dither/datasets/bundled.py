"""Tables that come with the package, each with a public schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import pyarrow as pa

from dither.checks import check_choice
from dither.errors import SchemaError, TableError
from dither.notice import Notice
from dither.schema import Schema, load_schema, schema_from_json
from dither.schema.files import read_table
from dither.schema.infer import LEAK_WARNING, infer_schema
from dither.schema.native import Layout, public_layout, table_kind
from dither.types import NativeTable


@dataclass(frozen=True)
class Dataset:
    """A table, the public domain of its columns, what it is and where it comes from."""

    name: str
    table: pa.Table
    schema: Schema
    description: str
    source: str


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
    """A bundled dataset by its name; the table is a PyArrow one."""
    schema = bundled_schema(name)
    with as_file(files("dither.datasets") / f"{name}.parquet") as path:
        return Dataset(name, read_table(path), schema, *_ABOUT[name])


def bundled_schema(name: str) -> Schema:
    """The public schema of a bundled dataset."""
    check_choice("the name of a bundled dataset", name, NAMES, error=TableError)
    text = (files("dither.datasets") / f"{name}.schema.json").read_text(encoding="utf-8")
    return schema_from_json(json.loads(text))


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
    for ending in SIDECARS if path.is_file() else ():
        beside = path.with_name(path.stem + ending)
        if beside.is_file():
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
