"""CSV for spreadsheets: text that would run is marked, everything else comes back as it was."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dither.collector.releases import copy_as_spreadsheet, write_spreadsheet

RISKY = ["=1+1", "+SUM(A1)", "-2+3", "@cmd", "\t=1", "\r=1", " =1", "-", "=", "+1x"]
SAFE = ["plain", "", "-5", "+3.5", "-1e-5", ".5", "a=b", "'=1", "−5", None]


def written(table: pa.Table) -> list[list[str]]:
    out = io.BytesIO()
    write_spreadsheet(table, out)
    return list(csv.reader(io.StringIO(out.getvalue().decode())))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_text_that_would_run_is_marked_and_no_other(kind: pa.DataType) -> None:
    column = pa.array(RISKY + SAFE, pa.string()).cast(kind)
    rows = written(pa.table({"=name": column, "number": pa.array([-1.5] * len(column))}))
    assert rows[0] == ["'=name", "number"]
    assert [row[0] for row in rows[1:]] == [f"'{text}" for text in RISKY] + [
        text or "" for text in SAFE
    ]
    assert {row[1] for row in rows[1:]} == {"-1.5"}, "numbers stay numbers"


def test_a_file_is_copied_in_parts_and_whole() -> None:
    count = (1 << 16) + 5
    parquet, out = io.BytesIO(), io.BytesIO()
    pq.write_table(pa.table({"a": ["=x"] * count, "b": list(range(count))}), parquet)
    parquet.seek(0)
    copy_as_spreadsheet(parquet, out)
    rows = list(csv.reader(io.StringIO(out.getvalue().decode())))
    assert rows[0] == ["a", "b"]
    assert rows[1:] == [["'=x", str(i)] for i in range(count)]
