"""Bundled tables, and opening what a user names."""

import json
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dither
from dither.datasets import NAMES, load_dataset, open_table
from dither.errors import SchemaError, TableError
from dither.notice import Notice
from dither.schema import LEAK_WARNING, Attribute, ReadOptions, Schema, decode, encode

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data" / "adult.parquet"


@pytest.fixture(scope="module")
def adult():
    return load_dataset("adult")


def test_adult_has_the_known_shape(adult):
    assert NAMES == ("adult",)
    assert (adult.table.num_rows, adult.table.num_columns) == (45_222, 15)
    assert adult.schema.names == tuple(adult.table.column_names)
    assert "Becker and Kohavi" in adult.source
    # 24.78 % above 50,000 dollars is what adult.names says (without unknowns); the other two pin the table as built.
    assert adult.table["income"].to_pylist().count(">50K") == 11_208
    assert adult.table["sex"].to_pylist().count("Male") == 30_527
    assert sum(adult.table["age"].to_pylist()) == pytest.approx(38.547941 * 45_222, rel=1e-6)


def test_adult_fits_its_schema_and_comes_back(adult):
    encoded = encode(adult.table, adult.schema)
    numeric = [a for a in adult.schema if a.kind == "numeric"]
    assert [a.name for a in numeric] == [
        "age",
        "fnlwgt",
        "capital_gain",
        "capital_loss",
        "hours_per_week",
    ]
    assert all(a.cardinality <= 16 for a in numeric)
    again = decode(encoded.codes, adult.schema, encoded.layout, np.random.default_rng(0))
    assert again.schema.types == adult.table.schema.types
    np.testing.assert_array_equal(encode(again, adult.schema).codes, encoded.codes)
    for name, value in [
        ("capital_gain", 0),
        ("capital_gain", 99999),
        ("capital_loss", 0),
        ("hours_per_week", 40),
    ]:
        real, synthetic = (np.asarray(t[name]) for t in (adult.table, again))
        np.testing.assert_array_equal(real == value, synthetic == value)


def test_notice_gives_credit():
    notice = (ROOT / "NOTICE").read_text()
    for part in (
        "Becker",
        "Kohavi",
        "1996",
        "UCI Machine Learning Repository",
        "CC BY 4.0",
        "Changes made",
    ):
        assert part in notice


def test_the_tool_makes_the_schema_that_is_bundled(adult):
    tool = runpy.run_path(str(ROOT / "tools" / "make_adult.py"))
    text = (ROOT / "src" / "dither" / "datasets" / "adult.schema.json").read_text()
    assert tool["make_schema"](adult.table) == json.loads(text)


def test_the_tool_cleans_rows_and_orders_labels():
    tool = runpy.run_path(str(ROOT / "tools" / "make_adult.py"))
    base = [
        "39",
        "Private",
        "77516",
        "Bachelors",
        "13",
        "a",
        "b",
        "c",
        "d",
        "Male",
        "0",
        "0",
        "40",
        "x",
        "<=50K",
    ]
    table = tool["make_table"]([base, [*base[:3], "9th", "5", *base[5:]]])
    assert table["education"].chunk(0).dictionary.to_pylist() == ["9th", "Bachelors"]
    assert table.column_names == list(load_dataset("adult").schema.names)


@pytest.mark.needs_shared
@pytest.mark.skipif(
    not SHARED.exists(), reason="the benchmark tables are not beside the repository"
)
def test_adult_equals_the_benchmark_table(adult):
    other = pq.read_table(SHARED)
    assert other.schema.equals(adult.table.schema)
    for name in other.column_names:
        pair = [table[name] for table in (other, adult.table)]
        texts = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in pair]
        assert texts[0].equals(texts[1]), name


def test_unknown_names():
    with pytest.raises(TableError, match=r"adult, not 'adlt'"):
        load_dataset("adlt")
    with pytest.raises(TableError, match=r"file not found: adlt;.*adult"):
        open_table("adlt")
    with pytest.raises(TableError, match=r"file not found: nope\.csv"):
        open_table("nope.csv", Schema((Attribute("a", "boolean", values=(False, True)),)))


def test_open_a_bundled_name(adult):
    table, schema, notes = open_table("adult")
    assert table == adult.table
    assert schema == adult.schema
    assert notes == []
    mine = Schema((Attribute("a", "boolean", values=(False, True)),))
    assert open_table("adult", mine)[1] == mine


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_open_a_frame(make):
    frame = make({"a": [True, False]})
    table, schema, notes = open_table(frame)
    assert table is frame
    assert schema["a"].kind == "boolean"
    assert notes == [Notice("inferred-domain", LEAK_WARNING)]
    assert (
        open_table(frame, schema) == (frame, schema, [])
        if make is pa.table
        else open_table(frame, schema)[2] == []
    )
    with pytest.raises(TableError, match="not list"):
        open_table([1, 2], schema)


def test_open_a_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n01,1\n1,2\n3,1\n")
    _, schema, notes = open_table(path)
    assert notes == [Notice("inferred-domain", LEAK_WARNING)]
    assert schema["b"].values == (1, 2)
    beside = tmp_path / "t.domain.json"
    text = {"kind": "categorical", "values": ["01", "1", "3"]}
    beside.write_text(json.dumps({"a": text, "b": {"kind": "ordinal", "values": [1, 2, 3]}}))
    table, schema, notes = open_table(str(path))
    assert schema["b"].values == (1, 2, 3)
    assert str(beside) in notes[0].message
    assert encode(table, schema).codes.tolist() == [[0, 0], [1, 1], [2, 0]]
    other = tmp_path / "mine.json"
    other.write_text(json.dumps({"a": text, "b": {"kind": "numeric", "min": 0, "max": 9.5}}))
    for given in (other, str(other)):
        _, schema, notes = open_table(path, given)
        assert schema["b"].kind == "numeric"
        assert notes == []
    with pytest.raises(SchemaError, match="'a' must be an object with a kind"):
        open_table(path, {"a": 1})
    with pytest.raises(SchemaError, match="not int"):
        open_table(path, 1)
    with pytest.raises(SchemaError, match=r"gone\.json"):
        open_table(path, "gone.json")


RECORDS = [{"sex": "F", "pay": "$1,200"}, {"sex": "M", "pay": "$900"}] * 40


@pytest.mark.parametrize(
    "table", [RECORDS, {name: [row[name] for row in RECORDS] for name in ("sex", "pay")}]
)
def test_python_s_own_tables_come_back_in_their_form(table):
    release = dither.publish(table, epsilon=8.0, method="independent", rows=30)
    assert type(release.synthetic) is type(table)
    arrow = release.to_arrow()
    assert (arrow.num_rows, arrow.column_names) == (30, ["sex", "pay"])
    assert set(arrow["pay"].to_pylist()) <= {"$1,200", "$900"}
    assert release.query("sex == 'F'").estimate == pytest.approx(0.5, abs=0.3)
    schema = release.schema
    public = dither.publish(table, epsilon=8.0, method="independent", rows=30, schema=schema)
    assert type(public.synthetic) is type(table)


def test_a_record_without_a_key_has_no_answer():
    table, schema, _ = open_table([{"a": 1, "b": "x"}, {"a": 2}, {"b": "y", "a": 1}])
    assert table.to_pydict() == {"a": [1, 2, 1], "b": ["x", None, "y"]}
    assert schema["b"].missing


def test_narrowing_keeps_formats_and_constants(tmp_path):
    path = tmp_path / "t.csv"
    rows = "".join(f"{i:02d}/05/2020,{i % 2},DE,x\n" for i in range(1, 32))
    path.write_text("day,x,country,unit\n" + rows)
    _, schema, _ = open_table(path)
    assert schema.constants == (("country", "DE"), ("unit", "x"))
    table, narrow, _ = open_table(path, schema, ReadOptions(columns=["day", "country"]))
    assert table.column_names == ["day", "country"]
    assert narrow["day"].format == "%d/%m/%Y"
    assert narrow.constants == (("country", "DE"),)


@pytest.mark.parametrize("method", ["independent", "bayesnet", "mixture"])
def test_formats_and_constants_survive_a_release(method, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "country": "DE",
            "pay": [f"${x:,.0f}" for x in rng.uniform(500, 5000, 300)],
            "sex": rng.choice(["F", "M"], 300),
            "fax": [None] * 300,
        }
    )
    release = dither.publish(frame, epsilon=8.0, method=method, rows=40)
    made = release.synthetic
    assert list(made.columns) == list(frame.columns)
    assert set(made["country"]) == {"DE"}
    assert made["fax"].isna().all()
    assert made["pay"].str.fullmatch(r"\$(\d,)?\d{3}").all()
    loaded = dither.load_release(release.save(tmp_path / "out"))
    assert loaded.schema == release.schema
    assert loaded.schema.constants == (("country", "DE"), ("fax", None))
    # Nothing about the table's text reaches a device.
    announced = json.dumps(release.schema.to_json())
    assert "$" not in announced
    assert "country" not in announced


def test_an_estimator_repeats_constants():
    frame = pd.DataFrame({"x": [0, 1] * 50, "unit": "kg"})
    schema = Schema((Attribute("x", "ordinal", (0, 1)),), constants=(("unit", "kg"),))
    model = dither.Synthesiser(epsilon=8.0, method="independent", schema=schema).fit(frame)
    made = model.sample(7)
    assert list(made.columns) == ["x", "unit"]
    assert set(made["unit"]) == {"kg"}
