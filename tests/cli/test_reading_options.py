"""Which columns are asked, how a file is written, drafts of schemas: as the command line says."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dither.cli import run
from dither.schema import load_schema


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    """300 people, with an identifier, a name, a constant and an empty column among what can be asked; semicolons and commas."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": np.arange(1, 301),
            "name": [f"person {i}" for i in range(300)],
            "zip": rng.choice(["01003", "02139", "99501"], 300),
            "pay": np.where(rng.random(300) < 0.5, 0, np.round(rng.uniform(5, 99, 300), 2)),
            "country": ["DE"] * 300,
            "fax": [None] * 300,
        }
    )
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False, sep=";", decimal=",", encoding="cp1252")
    return path


def test_everything_that_needs_a_decision_is_said_at_once(
    messy: Path, tmp_path: Path, capsys
) -> None:
    assert run(["publish", str(messy), "--epsilon", "4", "-o", str(tmp_path / "out")]) == 2
    complaint = capsys.readouterr().err
    title, _, first, second, option = complaint.splitlines()
    assert title == "dither: 2 columns need a decision:"
    assert first.split()[0] == "id"
    assert second.split()[0] == "name"
    assert not (tmp_path / "out").exists()
    # The option can be pasted as it stands; what has one value or none passes through.
    pasted = shlex.split(option.partition(": ")[2].partition("  (")[0])
    assert pasted == ["--drop", "id,name"]
    words = ["publish", str(messy), "--epsilon", "4", *pasted, "--format", "csv"]
    assert run([*words, "-o", str(tmp_path / "out")]) == 0
    assert "not asked, because they have one value or none: country, fax" in capsys.readouterr().err
    lines = (tmp_path / "out" / "synthetic.csv").read_text().splitlines()
    assert lines[0] == '"zip","pay","country","fax"'
    assert all(line.endswith(',"DE",') for line in lines[1:])


def publish(tmp_path: Path, table: str, *options: str) -> int:
    words = ["publish", table, "--epsilon", "8", "--method", "independent", "-q", "--overwrite"]
    return run([*words, "--format", "csv", "-o", str(tmp_path / "out"), *options])


def test_a_file_with_formats_comes_back_in_them(tmp_path: Path, capsys) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "pay": [f"${x:,.2f}" for x in rng.lognormal(8, 1, 200)],
            "share": [f"{x:.1f}%" for x in rng.uniform(0, 100, 200)],
            "day": [
                f"{d.month:02d}/{d.day:02d}/2020" for d in pd.date_range("2020-01-01", periods=200)
            ],
            "at": [f"{i % 24:02d}:{i * 7 % 60:02d}" for i in range(200)],
            "score": [".", "-", *(str(x) for x in rng.integers(0, 500, 198))],
        }
    )
    path = tmp_path / "t.csv"
    frame.to_csv(path)
    assert publish(tmp_path, str(path)) == 0
    warned = capsys.readouterr().err
    for line in (
        "the first column has no name and is left out as the rows' index",
        "t.csv: '-', '.' was read as missing in score",
        "pay was read as numbers written as $1,234.00",
        "share was read as numbers written as 0.0%",
        "day was read as dates written as %m/%d/%Y",
        "at was read as times of day written as %H:%M",
    ):
        assert sum(line in each for each in warned.splitlines()) == 1
    assert "inferred from the table itself" in warned
    out = tmp_path / "out"
    made = pd.read_csv(out / "synthetic.csv")
    assert made["pay"].str.fullmatch(r"\$(\d{1,3},)*\d{1,3}\.\d\d").all()
    assert made["share"].str.fullmatch(r"\d{1,3}\.\d%").all()
    assert pd.to_datetime(made["day"], format="%m/%d/%Y").dt.year.eq(2020).all()
    assert made["at"].str.fullmatch(r"\d\d:\d\d").all()
    # The release's schema reads the table again, and a loaded release is asked in its words.
    assert publish(tmp_path, str(path), "--schema", str(out / "schema.json")) == 0
    assert "was read as" not in capsys.readouterr().err
    assert run(["evaluate", str(path), str(out / "synthetic.csv"), "--json"]) == 0
    capsys.readouterr()
    assert (
        run(["query", str(out), "day >= '06/01/2020' and at < '12:00' and pay > 0", "--json"]) == 0
    )
    assert 0 <= json.loads(capsys.readouterr().out)["estimate"] <= 1


def test_an_index_is_used_where_it_is_named(tmp_path: Path, capsys) -> None:
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": [0, 1] * 50}).to_csv(path)
    for options, header in (
        ([], '"x"'),
        (["--columns", "index,x"], '"index","x"'),
        (["--keep", "index"], '"index","x"'),
        (["--drop", "index"], '"x"'),
    ):
        assert publish(tmp_path, str(path), *options) == 0
        assert (tmp_path / "out" / "synthetic.csv").read_text().splitlines()[0] == header
        assert ("left out as the rows' index" in capsys.readouterr().err) == (options == [])


def test_ambiguous_dates_are_asked_for(tmp_path: Path, capsys) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"{i % 12 + 1:02d}/{i % 7 + 1:02d}/2020,{i % 3}\n" for i in range(90))
    path.write_text("day,x\n" + rows)
    assert publish(tmp_path, str(path)) == 2
    assert "--date-order dmy, or --date-order mdy" in capsys.readouterr().err
    assert publish(tmp_path, str(path), "--date-order", "mdy") == 0
    assert "--date-order mdy" in (tmp_path / "out" / "report.html").read_text()


def test_standard_input_and_a_file_without_a_header(tmp_path: Path, monkeypatch, capsys) -> None:
    rows = "".join(f"{i % 3},{i % 5}\n" for i in range(90)).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(rows)))
    assert publish(tmp_path, "-", "--no-header") == 0
    header = (tmp_path / "out" / "synthetic.csv").read_text().splitlines()[0]
    assert header == '"column_1","column_2"'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert publish(tmp_path, "-") == 2
    assert "dither: standard input: the file is empty\n" in capsys.readouterr().err


def test_a_draft_marks_them_and_can_be_used(messy: Path, tmp_path: Path, capsys) -> None:
    draft = tmp_path / "draft.json"
    assert run(["schema", "infer", str(messy), "-o", str(draft)]) == 0
    told = capsys.readouterr().err
    assert "semicolon-separated, with decimal commas" in told
    assert told.count("dither: note: column") == 2
    assert "one value or none: country, fax" in told
    schema = load_schema(draft)
    assert schema.names == ("zip", "pay")
    assert [name for name, _ in schema.dropped] == ["id", "name"]
    assert schema.constants == (("country", "DE"), ("fax", None))
    assert schema["zip"].values == ("01003", "02139", "99501")
    assert schema["pay"].atoms == (0.0,)
    assert schema["pay"].unit == 0.01
    assert (
        run(
            [
                "publish",
                str(messy),
                "--epsilon",
                "4",
                "--schema",
                str(draft),
                "--format",
                "csv",
                "-o",
                str(tmp_path / "o"),
            ]
        )
        == 0
    )
    warned = capsys.readouterr().err
    assert "the schema drops id, name:" in warned
    manifest = json.loads((tmp_path / "o" / "release.json").read_text())
    assert {"file-form", "columns-dropped"} <= {w["code"] for w in manifest["warnings"]}
    for entry in manifest["warnings"]:
        assert f"dither: warning: {entry['message']}\n" in warned
        assert entry["advice"]
        assert entry["message"][1:60] in (tmp_path / "o" / "report.html").read_text()
    lines = (tmp_path / "o" / "synthetic.csv").read_text().splitlines()
    assert lines[0] == '"zip","pay","country","fax"'
    assert len(lines) == 301


def test_columns_are_chosen(messy: Path, tmp_path: Path, capsys) -> None:
    base = ["publish", str(messy), "--epsilon", "4", "--overwrite", "-o", str(tmp_path / "out")]
    assert run([*base, "--drop", "id,name,country,fax"]) == 0
    assert pq.read_table(tmp_path / "out" / "synthetic.parquet").column_names == ["zip", "pay"]
    assert run([*base, "--columns", "zip,name", "--keep", "name"]) == 0
    table = pq.read_table(tmp_path / "out" / "synthetic.parquet")
    assert table.column_names == ["name", "zip"]
    assert set(table["name"].to_pylist()) <= {f"person {i}" for i in range(300)}
    assert run([*base, "--columns", "zip,nme"]) == 2
    assert "'nme'" in capsys.readouterr().err
    for option in ("--columns", "--drop", "--keep"):
        assert run([*base, option, "zip, pay,zip"]) == 2
        assert capsys.readouterr().err == "dither: 'zip' is listed twice in 'zip, pay,zip'\n"
    assert (
        run(
            [
                "publish",
                "adult",
                "--columns",
                "sex,age",
                "--method",
                "independent",
                "--epsilon",
                "4",
                "-o",
                str(tmp_path / "a"),
            ]
        )
        == 0
    )
    assert pq.read_table(tmp_path / "a" / "synthetic.parquet").column_names == ["age", "sex"]


def test_the_form_can_be_stated(messy: Path, tmp_path: Path, capsys) -> None:
    args = [
        "schema",
        "infer",
        str(messy),
        "--columns",
        "pay",
        "--delimiter",
        ";",
        "--decimal",
        ",",
        "--encoding",
        "cp1252",
    ]
    assert run(args) == 0
    printed = capsys.readouterr()
    assert "was read as" not in printed.err
    assert json.loads(printed.out)["attributes"][0]["atoms"] == [0.0]
    assert run([*args[:-1], "klingon"]) == 2
    assert "klingon" in capsys.readouterr().err
    assert run(["schema", "infer", str(messy), "--delimiter", "ab"]) == 2


@pytest.mark.parametrize(
    ("shape", "atoms", "cells"),
    [("even", [], 16), ("skewed", [0.0], None), ("heaped", [i * 50.0 for i in range(21)], None)],
)
def test_an_attribute_from_a_range_and_a_shape(
    shape: str, atoms: list[float], cells: int | None, capsys
) -> None:
    assert (
        run(
            [
                "schema",
                "attribute",
                "pay",
                "--min",
                "0",
                "--max",
                "1000",
                "--shape",
                shape,
                "--unit",
                "1",
            ]
        )
        == 0
    )
    made = json.loads(capsys.readouterr().out)
    assert made.get("atoms", []) == atoms
    assert made["unit"] == 1.0
    assert (made["edges"][0], made["edges"][-1]) == (0.0, 1000.0)
    if cells is not None:
        assert len(made["edges"]) - 1 + len(atoms) == cells
    if shape == "skewed":
        widths = np.diff(made["edges"])
        assert widths[0] == 2.0
        assert widths[-1] > 200.0, "bins grow away from zero"
        assert all(edge.is_integer() for edge in made["edges"]), (
            "and hold whole numbers of the unit"
        )
    assert run(["schema", "attribute", "pay", "--min", "0", "--max", "1", "--shape", "odd"]) == 2
    assert "even, skewed, heaped" in capsys.readouterr().err
