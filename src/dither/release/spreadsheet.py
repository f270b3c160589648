"""CSV that a spreadsheet may open: no cell of text or heading is taken for a formula.

Excel, LibreOffice and others run a cell that begins with = + - or @ (OWASP, "CSV Injection"), and labels are whatever the schema's
author wrote. Such text gets an apostrophe before it, which they take as the mark of text; numbers, also as text, stay as they are.
"""

from __future__ import annotations

from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

_FORMULA = r"^[\s\x00]*[=+\-@\t\r]"
_NUMBER = r"^[+\-]?(\d+(\.\d*)?|\.\d+)([eE][+\-]?\d+)?$"


def _without_formulas(table: pa.Table) -> pa.Table:
    """The same table with its text and headings made safe; dictionaries become plain text."""
    columns = []
    for column in table.columns:
        plain = (
            column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        )
        columns.append(_marked(plain) if _is_text(plain.type) else plain)
    names = _marked(pa.chunked_array([pa.array(table.column_names, pa.string())])).to_pylist()
    return pa.Table.from_arrays(columns, names=names)


def write_spreadsheet(table: pa.Table, out: BinaryIO) -> None:
    """A small table as CSV."""
    pa_csv.write_csv(_without_formulas(table), out)


def copy_as_spreadsheet(parquet: BinaryIO, out: BinaryIO) -> None:
    """A Parquet file as CSV, some rows at a time."""
    source = pq.ParquetFile(parquet)
    writer: pa_csv.CSVWriter | None = None
    for batch in source.iter_batches(batch_size=1 << 16):
        rows = _without_formulas(pa.Table.from_batches([batch]))
        writer = writer or pa_csv.CSVWriter(out, rows.schema)
        writer.write_table(rows)
    if writer is not None:
        writer.close()


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _marked(text: pa.ChunkedArray) -> pa.ChunkedArray:
    risky = pc.and_(
        pc.match_substring_regex(text, _FORMULA), pc.invert(pc.match_substring_regex(text, _NUMBER))
    )
    mark, nothing = (pa.scalar(sign, text.type) for sign in ("'", ""))
    return pc.if_else(risky, pc.binary_join_element_wise(mark, text, nothing), text)
