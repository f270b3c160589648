"""CSV and Parquet files in, Parquet out."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from dither.errors import TableError
from dither.schema import Attribute, Schema
from dither.schema.files import read_table, write_atomically, write_table


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv_types_and_missing_cells(tmp_path):
    table = read_table(
        write(tmp_path / "t.csv", "i,f,s,b,d,e\n1,1.5,NA,True,2020-01-02,\n,,,,,\n3,2,y,false,2021-01-01,\n")
    )
    assert [str(t) for t in table.schema.types] == ["int64", "double", "string", "bool", "string", "null"]
    assert [c.null_count for c in table.columns] == [1, 1, 1, 1, 1, 3]
    assert table["s"].to_pylist() == ["NA", None, "y"]
    assert table["d"].to_pylist() == ["2020-01-02", None, "2021-01-01"]


def test_csv_of_one_column_keeps_its_empty_lines(tmp_path):
    assert read_table(write(tmp_path / "t.csv", 'a\n1\n\n""\n3\n'))["a"].to_pylist() == [1, None, None, 3]


def test_csv_with_byte_order_mark_and_line_breaks_inside_quotes(tmp_path):
    table = read_table(write(tmp_path / "t.csv", '\ufeffa,b\r\n"x\ny",1\r\nz,2\r\n'))
    assert table.to_pylist() == [{"a": "x\ny", "b": 1}, {"a": "z", "b": 2}]


def test_with_a_schema_text_stays_text(tmp_path):
    path = write(tmp_path / "t.csv", "zip,k\n01,1\n1,2\n")
    schema = Schema((Attribute("zip", "categorical", values=("01", "1")), Attribute("k", "ordinal", values=(1, 2))))
    table = read_table(path, schema)
    assert table["zip"].to_pylist() == ["01", "1"]
    assert table["k"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("none.csv", None, "file not found"),
        ("none.parquet", None, "file not found"),
        ("t.xlsx", "x", ".csv or .parquet"),
        ("t.csv", "", "Empty CSV"),
        ("t.csv", "a,b\n", "no rows"),
        ("t.csv", "a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("t.csv", "a,dup,dup\n1,2,3\n", "two columns named 'dup'"),
        ("t.csv", "a,\n1,2\n", "''"),
        ("t.csv", b"a,b\n\xff\xfe,1\n", "column 'a' is not UTF-8"),
        ("t.parquet", "not parquet at all", "as Parquet"),
    ],
)
def test_wrong_files_are_named(tmp_path, name, content, part):
    path = tmp_path / name
    if content is not None:
        write(path, content)
    with pytest.raises(TableError) as caught:
        read_table(path)
    assert name in str(caught.value)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_not_a_table(tmp_path):
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(TableError, match="is a folder"):
        read_table(tmp_path / "t.csv")


def test_parquet_without_rows_or_columns(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "rows.parquet")
    pq.write_table(pa.table({}), tmp_path / "columns.parquet")
    with pytest.raises(TableError, match=r"rows\.parquet has no rows"):
        read_table(tmp_path / "rows.parquet")
    with pytest.raises(TableError, match=r"columns\.parquet has no columns"):
        read_table(tmp_path / "columns.parquet")


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_every_kind_is_written(tmp_path, make):
    write_table(make({"a": [1, 2], "b": ["x", "y"]}), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


def test_a_pandas_index_is_not_written(tmp_path):
    write_table(pd.DataFrame({"a": [1, 2]}, index=[7, 9]), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").column_names == ["a"]


def test_nothing_is_left_when_writing_fails(tmp_path):
    target = write(tmp_path / "t.txt", "old")

    def fail(temporary):
        temporary.write_text("half")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write_atomically(target, fail)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["t.txt"]
    with pytest.raises(TableError, match="nowhere"):
        write_table(pa.table({"a": [1]}), tmp_path / "nowhere" / "t.parquet")


def test_csv_larger_than_one_block_changes_its_mind_about_types(tmp_path):
    values = ["1"] * 400_000 + ["x"]
    pa_csv.write_csv(pa.table({"a": values, "b": values}), tmp_path / "t.csv")
    assert str(read_table(tmp_path / "t.csv")["a"].type) == "string"
