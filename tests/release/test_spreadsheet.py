"""CSV for spreadsheets: text that would run is marked, everything else comes back as it was."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest

from dither.collector.releases import write_spreadsheet

RISKY = ["=1+1", "+SUM(A1)", "-2+3", "@cmd", "\t=1", "\r=1", " =1", "-", "=", "+1x"]
SAFE = ["plain", "", "-5", "+3.5", "-1e-5", ".5", "a=b", "'=1", "−5", None]


def written(table: pa.Table) -> list[list[str]]:
    out = io.BytesIO()
    write_spreadsheet([table], out)
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


def test_parts_are_written_as_one_file() -> None:
    out = io.BytesIO()
    parts = [pa.table({"a": ["=x"] * 3, "b": [i, i + 1, i + 2]}) for i in (0, 3)]
    write_spreadsheet(parts, out)
    rows = list(csv.reader(io.StringIO(out.getvalue().decode())))
    assert rows[0] == ["a", "b"]
    assert rows[1:] == [["'=x", str(i)] for i in range(6)]
