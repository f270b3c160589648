"""CSV and Parquet files in and out."""

import gzip
import io
import json
import os
import tempfile

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from dither.errors import ParameterError, TableError
from dither.schema import (
    Attribute,
    ReadOptions,
    Schema,
    numeric,
    read_noted,
    read_table,
    write_atomically,
    write_table,
)


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
        ("t.xlsx", "x", "ends in .csv, .tsv, .jsonl"),
        ("t.csv", "", "the file is empty"),
        ("t.csv", "a,b\n", "no rows"),
        ("t.csv", "a,b\n1,2\n3\n", "line 3: fields: 1, in the first row: 2"),
        ("t.csv", "a,dup,dup\n1,2,3\n", "two columns named 'dup'"),
        (
            "t.csv",
            "1,1\n1,2\n",
            "two columns named '1'; rename or drop one; the first row looks like data (1, 1): give no_header",
        ),
        ("t.csv", b"a,b\n1,2\n3,\x004\n", "line 3 holds a NUL byte"),
        (
            "t.csv",
            "a,b\n1,\xe9\n".encode() + "2,\xe9\n".encode("cp1252"),
            "line 3 is not UTF-8, but line 2 is",
        ),
        (
            "t.csv",
            "a,b\n1," + "x" * 300_000 + "\n2,3\n",
            "row 1, column 'b' holds 300,000 bytes in one field",
        ),
        ("t.csv", 'a,b\n1,"x\n' + "2,3\n" * 50_000, "perhaps a quotation mark is not closed"),
        (
            "t.csv",
            "a" * 200_000 + ",b\n1,2\n",
            "line 1 begins a field of more than 131,072 characters",
        ),
        ("t.jsonl", '{"a": 1}\n{"a":\n', "as JSON"),
        ("t.jsonl", '{"a": 1}\n{"a": "x"}\n', "as JSON"),
        ("t.json", '{"a": 1}', "a list of records"),
        ("t.json", '[{"a": 1}, {"a": "x"}]', "column 'a' cannot be read as values of one type"),
        ("t.json", "[", "not JSON"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], "cannot unpack"),
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


R_FILE = '"","mpg","cyl"\n"Mazda RX4",21,6\n"Datsun 710",22.8,4\n'


@pytest.mark.parametrize(
    "content",
    [R_FILE, R_FILE.replace('"",', ""), R_FILE.replace('""', "Unnamed: 0")],
    ids=["write.csv", "write.table", "pandas"],
)
def test_an_unnamed_first_column_is_an_index(tmp_path, content):
    path = write(tmp_path / "t.csv", content)
    table, notes = read_noted(path)
    assert table.to_pylist() == [{"mpg": 21.0, "cyl": 6}, {"mpg": 22.8, "cyl": 4}]
    assert [note.code for note in notes] == ["index-dropped"]
    assert "--keep index" in notes[0].message
    for options in (
        ReadOptions(columns=["index", "mpg"]),
        ReadOptions(keep=["index"]),
        ReadOptions(drop=["index"]),
    ):
        kept, notes = read_noted(path, options=options)
        assert kept.column_names == ["index", "mpg", "cyl"]
        assert notes == []
    schema = Schema((Attribute("index", "categorical", ("Mazda RX4", "Datsun 710")),))
    assert read_table(path, schema).column_names == ["index", "mpg", "cyl"]


def test_other_names_that_are_missing(tmp_path):
    path = write(tmp_path / "t.csv", ",index,,b \n7,1,2,3\n8,1,,3\n")
    table, notes = read_noted(path)
    assert table.column_names == ["index", "column_3", "b"]
    assert [note.code for note in notes] == ["index-dropped"]
    assert read_table(path, options=ReadOptions(keep=["index_1"])).column_names[0] == "index_1"


def test_a_file_without_a_header(tmp_path):
    path = write(tmp_path / "t.csv", "\n5.1,3.5,x\n4.9,3.0,y\n")
    table, notes = read_noted(path, options=ReadOptions(no_header=True))
    assert table.to_pylist() == [
        {"column_1": 5.1, "column_2": 3.5, "column_3": "x"},
        {"column_1": 4.9, "column_2": 3.0, "column_3": "y"},
    ]
    assert notes == []
    _, notes = read_noted(path)
    assert ["--no-header" in note.message for note in notes] == [True]


def test_marks_of_missing_answers_in_numbers_only(tmp_path):
    path = write(
        tmp_path / "t.csv", "whole,real,text,code\n1,.,-,01\n-,2.5,a,-\nNA,--,.,02\n3,..,b,03\n"
    )
    table, notes = read_noted(path)
    assert table["whole"].to_pylist() == [1, None, None, 3]
    assert table["real"].to_pylist() == [None, 2.5, None, None]
    assert table["text"].to_pylist() == ["-", "a", ".", "b"]
    assert table["code"].to_pylist() == ["01", "-", "02", "03"]
    assert len(notes) == 1
    assert "read as missing in whole, real" in notes[0].message
    # The user's own list is complete.
    stated = read_table(path, options=ReadOptions(missing=["NA"]))
    assert stated["whole"].to_pylist() == ["1", "-", None, "3"]
    # With a schema nothing that depends on the rows is said.
    schema = Schema((numeric("whole", low=0, high=9, missing=True),))
    table, notes = read_noted(path, schema)
    assert table["whole"].to_pylist() == [1, None, None, 3]
    assert notes == []


def test_packed_files(tmp_path):
    path = write(tmp_path / "t.csv.gz", gzip.compress(b"a;b\n1,5;x\n2,5;y\n", mtime=0))
    table, notes = read_noted(path)
    assert table.to_pylist() == [{"a": 1.5, "b": "x"}, {"a": 2.5, "b": "y"}]
    assert "t.csv.gz was read as semicolon-separated" in notes[0].message
    lines = b'{"a": 1}\n{"a": 2}\n'
    assert read_table(write(tmp_path / "t.jsonl.gz", gzip.compress(lines, mtime=0)))[
        "a"
    ].to_pylist() == [
        1,
        2,
    ]


def test_a_packed_file_does_not_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    bomb = gzip.compress(b"a,b\n" + b"1,2\n" * (1 << 25))
    assert len(bomb) < 200_000
    path = write(tmp_path / "t.csv.gz", bomb)
    with pytest.raises(TableError, match=r"t\.csv\.gz unpacks to more than 64 MB"):
        read_table(path)
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,x\n2,y\n",
        gzip.compress(b"a,b\n1,x\n2,y\n", mtime=0),
        b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n',
        b'[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]',
    ],
    ids=["csv", "gzip", "lines", "json"],
)
def test_standard_input(monkeypatch, content):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert read_table("-").to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_json_lines_and_records(tmp_path):
    records = [{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": 3, "c": True}]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    expected = [
        {"a": 1, "b": "x", "c": None},
        {"a": None, "b": "y", "c": None},
        {"a": 3, "b": None, "c": True},
    ]
    assert read_table(write(tmp_path / "t.jsonl", lines)).to_pylist() == expected
    assert read_table(write(tmp_path / "t.json", json.dumps(records))).to_pylist() == expected
    columns = {name: [row[name] for row in expected] for name in "abc"}
    assert read_table(write(tmp_path / "u.json", json.dumps(columns))).to_pylist() == expected


def test_a_stated_encoding_that_is_wrong_names_the_line(tmp_path):
    path = write(tmp_path / "t.csv", "a,b\n1,x\n2,\xe9\n".encode("cp1252"))
    with pytest.raises(TableError, match="line 3 is not utf-8 text"):
        read_table(path, options=ReadOptions(encoding="utf-8"))


def test_a_comma_before_a_point_is_no_decimal_comma(tmp_path):
    table, notes = read_noted(write(tmp_path / "t.csv", "a;b\n1,234.50;x\n7.25;y\n"))
    assert table["a"].to_pylist() == ["1,234.50", "7.25"]
    assert "decimal commas" not in notes[0].message


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_what_is_unpacked_belongs_to_its_owner(tmp_path, monkeypatch):
    modes = []

    def parse(path, *arguments, **options):
        modes.append(os.stat(path).st_mode & 0o777)
        return pa_csv.read_csv(path, *arguments, **options)

    monkeypatch.setattr("dither.schema.files.pa_csv", _Patched(parse))
    read_table(write(tmp_path / "t.csv.gz", gzip.compress(b"a,b\n1,x\n2,y\n", mtime=0)))
    assert set(modes) == {0o600}


class _Patched:
    """PyArrow's module for CSV files with another reader."""

    def __init__(self, read):
        self.read_csv = read

    def __getattr__(self, name):
        return getattr(pa_csv, name)
