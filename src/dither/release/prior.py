"""Reading a public table as a prior: the same schema, every value in its domain, or one line that says what is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from dither.datasets import Reading, open_table
from dither.errors import InputError, TableError
from dither.protocols.prior import PublicRows
from dither.schema import Schema
from dither.schema.csv_files import CsvOptions
from dither.schema.table import encode
from dither.types import NativeTable

IN_MEMORY = "a table in memory"


def read_prior(
    table: NativeTable,
    schema: Schema,
    *,
    unknown: Literal["error", "other"] = "error",
    missing: Sequence[str] | None = None,
) -> PublicRows:
    """The rows of a public table (a file, a bundled dataset's name, or a table in memory) as codes of a schema.

    Columns that the schema does not have are left out; one that it lacks, or a value outside its domain, is an error that names
    it. The digest is that of the file, or of the codes where there is no file.
    """
    source = str(table) if isinstance(table, (str, Path)) else IN_MEMORY
    if isinstance(table, (str, Path)) and Path(table).is_dir():
        raise TableError(
            f"prior {source} is a folder; give a public table, not an earlier release, whose noise would be taken for fact",
            where="prior",
            value=source,
        )
    csv = CsvOptions(missing=None if missing is None else ("", *missing))
    try:
        native, _, _ = open_table(table, schema, Reading(columns=schema.names, csv=csv))
        codes = encode(native, schema, unknown=unknown, keep_rules=False).codes
    except InputError as error:
        raise TableError(f"prior {source}: {error}", where="prior", value=source) from None
    if not len(codes):
        raise TableError(f"prior {source} has no rows", where="prior", value=source)
    return PublicRows(codes, source, _digest(table, np.ascontiguousarray(codes)))


def _digest(table: NativeTable, codes: np.ndarray) -> str:
    if isinstance(table, (str, Path)) and Path(table).is_file():
        with Path(table).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(codes.tobytes()).hexdigest()
