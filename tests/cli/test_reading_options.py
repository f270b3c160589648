"""Which columns are asked, how a file is written, drafts of schemas: as the command line says."""

from __future__ import annotations

import json
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
    assert complaint.count("\n") == 1
    for name, why in (
        ("id", "numbers the rows"),
        ("name", "identifier"),
        ("country", "one value"),
        ("fax", "no values"),
    ):
        assert f"column '{name}' " in complaint
        assert why in complaint
    assert "4 columns" in complaint
    assert not (tmp_path / "out").exists()


def test_a_draft_marks_them_and_can_be_used(messy: Path, tmp_path: Path, capsys) -> None:
    draft = tmp_path / "draft.json"
    assert run(["schema", "infer", str(messy), "-o", str(draft)]) == 0
    told = capsys.readouterr().err
    assert "semicolon-separated, with decimal commas" in told
    assert told.count("dither: note: column") == 4
    schema = load_schema(draft)
    assert schema.names == ("zip", "pay")
    assert [name for name, _ in schema.dropped] == ["id", "name", "country", "fax"]
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
    assert "the schema drops id, name, country, fax" in warned
    manifest = json.loads((tmp_path / "o" / "release.json").read_text())
    assert {"file-form", "columns-dropped"} <= {w["code"] for w in manifest["warnings"]}
    for entry in manifest["warnings"]:
        assert f"dither: warning: {entry['message']}\n" in warned
        assert entry["advice"]
        assert entry["message"][1:60] in (tmp_path / "o" / "report.html").read_text()
    lines = (tmp_path / "o" / "synthetic.csv").read_text().splitlines()
    assert lines[0] == '"zip","pay"'
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
