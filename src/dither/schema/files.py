"""Tables in files: CSV and Parquet in and out, nothing ever half-written."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dither.errors import TableError
from dither.notice import Notice, assumed_form
from dither.private_files import make_private
from dither.schema.csv_files import CsvOptions, read_csv
from dither.schema.native import check_names, to_arrow
from dither.schema.schema import Schema, file_fault
from dither.types import NativeTable

TEXT_SUFFIXES = (".csv", ".tsv")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet")


def read_table(
    source: str | Path, schema: Schema | None = None, options: CsvOptions | None = None
) -> pa.Table:
    """The PyArrow table in a .csv, .tsv or .parquet file; it has rows, and columns with distinct names."""
    return read_noted(source, schema, options)[0]


def read_noted(
    source: str | Path, schema: Schema | None = None, options: CsvOptions | None = None
) -> tuple[pa.Table, list[Notice]]:
    """The same, and what was assumed about a CSV file that is not in the usual form.

    CSV does not say what is text: with a schema, columns whose domain lists text are read as text, so that "01" and "1" stay
    apart; without one, whole numbers of which some begin with a zero are.
    """
    path, given = Path(source), options or CsvOptions()
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TableError(
            f"cannot tell what {path} is; a table's name ends in {' or '.join(SUFFIXES)}",
            where=str(path),
        )
    if not path.exists():
        raise TableError(f"file not found: {path}", where=str(path))
    if path.is_dir():
        raise TableError(f"{path} is a folder, not a table", where=str(path))
    notes: list[Notice] = []
    try:
        if suffix in TEXT_SUFFIXES:
            table, form = read_csv(path, schema, given)
            assumed = form.assumed(given)
            if assumed and not (suffix == ".tsv" and assumed == "tab-separated"):
                notes.append(assumed_form(path, assumed))
        else:
            table = _read_parquet(path)
    except MemoryError:  # PyArrow's own is one of these
        raise TableError(
            f"{path} needs more memory than this process may use; take fewer columns or rows",
            where=str(path),
        ) from None
    except (pa.ArrowException, OSError, UnicodeError, csv.Error) as error:
        kind = "Parquet" if suffix == ".parquet" else "CSV"
        raise TableError(
            f"cannot read {path} as {kind}: {file_fault(error)}", where=str(path)
        ) from None
    check_names(table.column_names, str(path))
    if table.num_rows == 0:
        raise TableError(f"{path} has no rows", where=str(path))
    return table, notes


def write_table(table: NativeTable, path: str | Path) -> None:
    """Write a pandas, polars or PyArrow table as CSV if the name ends in .csv, else as Parquet; it appears whole or not at all."""
    arrow = to_arrow(table)
    if Path(path).suffix.lower() == ".csv":
        plain = [
            c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c
            for c in arrow.columns
        ]
        flat = pa.table(dict(zip(arrow.column_names, plain, strict=True)))
        write_atomically(path, lambda temporary: pa_csv.write_csv(flat, temporary))
        return
    write_atomically(path, lambda temporary: pq.write_table(arrow, temporary, compression="zstd"))


def write_atomically(
    path: str | Path, write: Callable[[Path], object], *, private: bool = False
) -> None:
    """Let `write` fill a file under a temporary name beside `path`, then move it into place; if private, for its owner alone."""
    path = Path(path)
    if not path.parent.is_dir():
        raise TableError(
            f"cannot write {path}: the folder {path.parent} does not exist", where=str(path)
        )
    if not path.name or (path.exists() and not (path.is_file() or path.is_dir())):
        # To move a file there would put it in the place of a device or a pipe.
        raise TableError(f"cannot write {path}: it is not a file; name one", where=str(path))
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
