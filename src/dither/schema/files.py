"""Tables in files: CSV and Parquet in, Parquet out, nothing ever half-written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dither.errors import TableError
from dither.private_files import make_private
from dither.schema.native import check_names, to_arrow
from dither.schema.schema import Schema, file_fault
from dither.types import NativeTable

SUFFIXES = (".csv", ".parquet")


def read_table(source: str | Path, schema: Schema | None = None) -> pa.Table:
    """The PyArrow table in a .csv or .parquet file; it has rows, and columns with distinct names.

    Empty CSV cells are missing. CSV does not say what is text: with a schema, columns whose domain lists text are read
    as text, so that "01" and "1" stay apart.
    """
    path = Path(source)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TableError(f"cannot tell what {path} is; a table's name ends in {' or '.join(SUFFIXES)}", where=str(path))
    if not path.exists():
        raise TableError(f"file not found: {path}", where=str(path))
    if path.is_dir():
        raise TableError(f"{path} is a folder, not a table", where=str(path))
    try:
        table = _read_csv(path, schema) if suffix == ".csv" else _read_parquet(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        kind = "CSV" if suffix == ".csv" else "Parquet"
        raise TableError(f"cannot read {path} as {kind}: {file_fault(error)}", where=str(path)) from None
    check_names(table.column_names, str(path))
    if table.num_rows == 0:
        raise TableError(f"{path} has no rows", where=str(path))
    return table


def write_table(table: NativeTable, path: str | Path) -> None:
    """Write a pandas, polars or PyArrow table as Parquet; the file appears whole or not at all."""
    arrow = to_arrow(table)
    write_atomically(path, lambda temporary: pq.write_table(arrow, temporary, compression="zstd"))


def write_atomically(path: str | Path, write: Callable[[Path], object], *, private: bool = False) -> None:
    """Let `write` fill a file under a temporary name beside `path`, then move it into place; if private, for its owner alone."""
    path = Path(path)
    if not path.parent.is_dir():
        raise TableError(f"cannot write {path}: the folder {path.parent} does not exist", where=str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if private:
            make_private(temporary)
        write(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise TableError(f"cannot write {path}: {file_fault(error)}", where=str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def _read_parquet(path: Path) -> pa.Table:
    # A file, not the path: a path would make PyArrow add columns for folders named like key=value. And PyArrow's own file, not
    # Python's: its threads may still hold that when the interpreter ends, and then abort the process whatever its exit status.
    with pa.OSFile(str(path)) as file:
        return pq.read_table(file)


def _read_csv(path: Path, schema: Schema | None) -> pa.Table:
    text = {} if schema is None else {a.name: pa.string() for a in schema if any(isinstance(v, str) for v in a.values)}
    table = _parse_csv(path, text)
    dates = {field.name: pa.string() for field in table.schema if pa.types.is_temporal(field.type)}
    if dates:  # a day or an hour is a label to us, and labels come back as they were written
        table = _parse_csv(path, text | dates)
    for field in table.schema:
        if pa.types.is_binary(field.type):
            raise TableError(f"cannot read {path} as CSV: column {field.name!r} is not UTF-8 text", where=str(path))
    return table


def _parse_csv(path: Path, types: dict[str, pa.DataType]) -> pa.Table:
    with path.open("rb") as file:
        header = file.readline()
    return pa_csv.read_csv(
        path,
        # In a file of one column an empty line is a missing value, not a gap between rows.
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=b"," in header),
        convert_options=pa_csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True),
    )
