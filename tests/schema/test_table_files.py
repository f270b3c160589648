"""CSV and Parquet files in and out."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from dither.errors import ParameterError, TableError
from dither.schema import Attribute, Schema
from dither.schema.files import ReadOptions, read_noted, read_table, write_atomically, write_table


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv_types_and_missing_cells(tmp_path):
    table = read_table(
        write(
            tmp_path / "t.csv",
            "i,f,s,b,d,e\n1,1.5,NA,True,2020-01-02,\n,n/a,,,NULL,\n3,2,y,false,2021-01-01,?\n",
        )
    )
    assert [str(t) for t in table.schema.types] == [
        "int64",
        "double",
        "string",
        "bool",
        "date32[day]",
        "null",
    ]
    assert [c.null_count for c in table.columns] == [1, 1, 2, 1, 1, 3]
    assert table["s"].to_pylist() == [None, None, "y"]
    other = read_table(tmp_path / "t.csv", options=ReadOptions(missing=("", "n/a", "NULL", "?")))
    assert other["s"].to_pylist() == ["NA", None, "y"]


def test_what_a_schema_lists_is_an_answer(tmp_path):
    path = write(
        tmp_path / "t.csv", "country,day,n\nNA,2020-01-02,1\nDE,2020-01-03,NA\n,2020-01-02,2\n"
    )
    schema = Schema(
        (
            Attribute("country", "categorical", ("DE", "NA"), missing=True),
            Attribute("day", "categorical", ("2020-01-02", "2020-01-03")),
            Attribute("n", "ordinal", (1, 2), missing=True),
        )
    )
    table = read_table(path, schema)
    assert table["country"].to_pylist() == ["NA", "DE", None]
    assert table["day"].to_pylist() == ["2020-01-02", "2020-01-03", "2020-01-02"]
    assert table["n"].to_pylist() == [1, None, 2]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", "a;b\n1,5;Käse\n2,25;x\n", "semicolon-separated, with decimal commas"),
        ("t.csv", "a;b\n1,5;Käse\n2,25;x\n".encode("cp1252"), "in the encoding cp1252"),
        ("t.csv", "a\tb\n1.5\tKäse\n2.25\tx\n", "tab-separated"),
        ("t.csv", "a|b\n1.5|Käse\n2.25|x\n".encode("utf-16"), "in the encoding utf-16"),
        ("t.tsv", "a\tb\n1.5\tKäse\n2.25\tx\n", None),
        ("t.csv", "a,b\n1.5,Käse\n2.25,x\n", None),
        ("t.csv", 'a,b\n1.5,"Käse"\n2.25,"x"\n', None),
    ],
)
def test_the_form_of_a_file_is_found_and_said(tmp_path, name, content, said):
    table, notes = read_noted(write(tmp_path / name, content))
    assert table.to_pylist() == [{"a": 1.5, "b": "Käse"}, {"a": 2.25, "b": "x"}]
    assert [note.code for note in notes] == (["file-form"] if said else [])
    assert said is None or said in notes[0].message


def test_a_form_that_is_stated_is_believed(tmp_path):
    path = write(tmp_path / "t.csv", "a;b\n1,5;2\n")
    table, notes = read_noted(
        path, options=ReadOptions(delimiter=";", decimal=",", encoding="utf-8")
    )
    assert table.to_pylist() == [{"a": 1.5, "b": 2}]
    assert notes == []
    assert read_table(path, options=ReadOptions(delimiter="\t")).column_names == ["a;b"]
    for wrong in (
        {"delimiter": "::"},
        {"delimiter": "\n"},
        {"decimal": "'"},
        {"encoding": "klingon"},
        {"delimiter": ",", "decimal": ","},
    ):
        with pytest.raises(ParameterError):
            ReadOptions(**wrong)


def test_codes_with_leading_zeros_stay_text(tmp_path):
    table = read_table(
        write(tmp_path / "t.csv", "zip,year,half\n01003,2001,0.5\n99501,2002,00.25\n,0,1\n")
    )
    assert table["zip"].to_pylist() == ["01003", "99501", None]
    assert table["year"].to_pylist() == [2001, 2002, 0]
    assert str(table["half"].type) == "double"


def test_csv_of_one_column_keeps_its_empty_lines(tmp_path):
    assert read_table(write(tmp_path / "t.csv", 'a\n1\n\n""\n3\n'))["a"].to_pylist() == [
        1,
        None,
        None,
        3,
    ]


def test_csv_with_byte_order_mark_and_line_breaks_inside_quotes(tmp_path):
    table = read_table(write(tmp_path / "t.csv", '\ufeffa,b\r\n"x\ny",1\r\nz,2\r\n'))
    assert table.to_pylist() == [{"a": "x\ny", "b": 1}, {"a": "z", "b": 2}]


def test_with_a_schema_text_stays_text(tmp_path):
    path = write(tmp_path / "t.csv", "zip,k\n01,1\n1,2\n")
    schema = Schema(
        (
            Attribute("zip", "categorical", values=("01", "1")),
            Attribute("k", "ordinal", values=(1, 2)),
        )
    )
    table = read_table(path, schema)
    assert table["zip"].to_pylist() == ["01", "1"]
    assert table["k"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("none.csv", None, "file not found"),
        ("none.parquet", None, "file not found"),
        ("t.xlsx", "x", ".csv or .tsv or .parquet"),
        ("t.csv", "", "Empty CSV"),
        ("t.csv", "a,b\n", "no rows"),
        ("t.csv", "a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("t.csv", "a,dup,dup\n1,2,3\n", "two columns named 'dup'"),
        ("t.csv", "a,\n1,2\n", "''"),
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
    assert read_table(tmp_path / "t.parquet").to_pylist() == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "y"},
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


def test_csv_is_written_where_the_name_says_so(tmp_path):
    labels = pa.array(["x", "y"]).dictionary_encode()
    write_table(
        pa.table({"a": [1, None], "b": labels, "d": pa.array([0, 1], pa.date32())}),
        tmp_path / "t.csv",
    )
    assert (tmp_path / "t.csv").read_text().splitlines() == [
        '"a","b","d"',
        '1,"x",1970-01-01',
        ',"y",1970-01-02',
    ]


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
