"""Two tables read by one schema, so that their codes mean the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dither.errors import TableError
from dither.schema import Schema
from dither.types import Codes


@dataclass(frozen=True)
class CommonTables:
    """A real and a synthetic table under one schema: as they were read, and in its codes."""

    real: Any
    synthetic: Any
    real_codes: Codes
    synthetic_codes: Codes
    schema: Schema


def common_tables(real: Any, synthetic: Any, schema: Schema | str | Path | None) -> CommonTables:
    """Both tables and the schema used.

    Without a schema: that of the real table if it is bundled or has one beside it, else inferred from both tables
    together, so that a label which only one of them has is no error. A value outside a given domain names its table.
    """
    from dither.datasets import open_table, read_named
    from dither.datasets.opening import INFERRED
    from dither.schema.infer import infer_schema

    first, domain, notes = open_table(real, schema)
    if schema is None and any(note.code == INFERRED for note in notes):
        # Read as it stands, like the first: the labels of one table must not decide how the other's file is read.
        second = read_named(synthetic) if isinstance(synthetic, (str, Path)) else synthetic
        domain = infer_schema(_stack(first, second))
    else:
        second, _, _ = open_table(synthetic, domain)
    return CommonTables(first, second, _codes(first, domain, "real"), _codes(second, domain, "synthetic"), domain)


def _stack(first: Any, second: Any) -> Any:
    """Both tables' rows under the first one's columns, in the plainest types that hold both."""
    import pyarrow as pa

    from dither.schema.native import to_arrow

    upper, lower = to_arrow(first), to_arrow(second)
    for name in upper.column_names:
        if name not in lower.column_names:
            raise TableError(f"the synthetic table has no column {name!r}, which the real one has", where=name)
    for name in lower.column_names:
        if name not in upper.column_names:
            raise TableError(f"the synthetic table has a column {name!r}, which the real one lacks", where=name)
    try:
        tables = [_plain(upper), _plain(lower.select(upper.column_names))]
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())[:200]
        raise TableError(f"the two tables' columns have types that do not go together: {reason}") from None


def _plain(table: Any) -> Any:
    """The same table with dictionary-encoded labels as the labels themselves, which always go together."""
    import pyarrow as pa

    columns = []
    for column in table.columns:
        kind = column.type
        columns.append(column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column)
    return pa.table(columns, names=table.column_names)


def _codes(table: Any, schema: Schema, which: str) -> Codes:
    from dither.schema.table import encode

    try:
        return encode(table, schema).codes
    except TableError as error:
        raise TableError(f"{which} table: {error}", where=error.where, value=error.value) from None
