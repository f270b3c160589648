"""Schemas inferred from tables, and the command that writes them."""

import json
from datetime import date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dither.cli import run
from dither.errors import ParameterError, TableError
from dither.schema import Attribute, load_schema, numeric
from dither.schema.infer import LEAK_WARNING, draft_schema, infer_schema
from dither.schema.table import decode, encode

COLUMNS = {
    "flag": [True, False] * 20,
    "city": ["Rome", "Oslo", None, "Bonn"] * 10,
    "code": [3, 1, 7, 3] * 10,
    "year": list(range(1980, 2020)),
    "pay": [k + 0.5 for k in range(39)] + [None],
    "whole": [1.0, 0.0, None, 1.0] * 10,
}
EXPECTED = (
    Attribute("flag", "boolean", values=(False, True)),
    Attribute("city", "categorical", values=("Bonn", "Oslo", "Rome"), missing=True),
    Attribute("code", "ordinal", values=(1, 3, 7)),
    numeric("year", low=1980, high=2019, unit=1.0),
    numeric("pay", low=0.5, high=38.5, missing=True, unit=0.1),
    Attribute("whole", "ordinal", values=(0, 1), missing=True),
)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_rules(make):
    table = make(COLUMNS)
    schema = infer_schema(table)
    assert schema.attributes == EXPECTED
    assert encode(table, schema).codes.shape == (40, 6)


def test_declared_orders_are_kept():
    for table in (
        pd.DataFrame(
            {"x": pd.Categorical(["lo", "hi"], categories=["lo", "mid", "hi"], ordered=True)}
        ),
        pl.DataFrame({"x": pl.Series(["lo", "hi"], dtype=pl.Enum(["lo", "mid", "hi"]))}),
    ):
        assert infer_schema(table)["x"] == Attribute("x", "ordinal", values=("lo", "mid", "hi"))
    unordered = pd.DataFrame({"x": pd.Categorical(["b", "a"], categories=["c", "b", "a"])})
    assert infer_schema(unordered)["x"] == Attribute("x", "categorical", values=("a", "b"))


@pytest.mark.parametrize(
    ("column", "part"),
    [
        (["same"] * 5, "'same'"),
        ([4] * 5, "4"),
        ([4.5] * 5, "4.5"),
        (["same", None], "'same'"),
        ([None, None], "no values"),
        ([float("nan"), None], "no values"),
        ([f"id{k}" for k in range(64)], "identifier"),
        ([f"id{k}" for k in range(1001)] * 2, "identifier"),
        ([1.0, float("inf")], "infinite"),
        ([-1.7e308, 1.7e308, 0.5], "spans"),
        (pa.array([1, 2], pa.time32("s")), "time32"),
        (list(range(1, 101)), "numbers the rows"),
        (pa.array([5, 5], pa.date32()), "one value only"),
        ([[1], [2]], "list"),
    ],
)
def test_columns_that_cannot_be_asked_are_named(column, part):
    with pytest.raises(TableError) as caught:
        infer_schema(pa.table({"fine": [k % 2 for k in range(len(column))], "culprit": column}))
    assert "'culprit'" in str(caught.value)
    assert part in str(caught.value)


def test_few_distinct_texts_are_no_identifier():
    assert infer_schema(pa.table({"x": [f"id{k}" for k in range(63)]}))["x"].cardinality == 63
    with pytest.raises(TableError, match="identifier"):
        infer_schema(pa.table({"x": ["a", "b", "c"]}), max_categories=2)
    with pytest.raises(ParameterError, match="max_categories"):
        infer_schema(pa.table({"x": ["a", "b"]}), max_categories=1)


def test_large_integers_fit_their_own_schema():
    table = pa.table({"x": np.arange(40) * 2**57})
    assert encode(table, infer_schema(table)).codes[:, 0].max() == 15


def test_command_prints_json_and_warns(tmp_path, capsys):
    path = tmp_path / "t.csv"
    pd.DataFrame(COLUMNS).to_csv(path, index=False)
    assert run(["schema", "infer", str(path)]) == 0
    printed = capsys.readouterr()
    assert LEAK_WARNING in printed.err
    assert json.loads(printed.out)["format"] == "dither-schema-1"
    target = tmp_path / "s.json"
    assert run(["schema", "infer", str(path), "-o", str(target)]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert LEAK_WARNING in printed.err
    assert load_schema(target).attributes == EXPECTED
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.json", "t.csv"]


def test_command_takes_a_bundled_name(capsys):
    assert run(["schema", "infer", "adult"]) == 0
    assert json.loads(capsys.readouterr().out)["attributes"][0]["name"] == "age"


@pytest.mark.parametrize(
    ("content", "part"), [(None, "file not found"), ("a,a\n1,2\n", "'a'"), ("a\nx\nx\n", "'a'")]
)
def test_command_fails_with_one_line(tmp_path, capsys, content, part):
    path = tmp_path / "t.csv"
    if content:
        path.write_text(content)
    assert run(["schema", "infer", str(path), "-o", str(tmp_path / "s.json")]) == 2
    complaint = capsys.readouterr().err
    assert part in complaint
    assert complaint.count("\n") == 1
    assert not (tmp_path / "s.json").exists()


def test_crumbs_of_sums_do_no_harm():
    """0.1 + 0.2 is not 0.3: bounds and atoms hold the numbers of the table and those that synthetic ones are rounded to."""
    values = np.concatenate([np.arange(1, 400) * 0.1 + 0.2, np.full(200, 0.1 + 0.2), [0.1 * 3]])
    table = pa.table({"x": values})
    schema = infer_schema(table)
    encoded = encode(table, schema)
    made = decode(encoded.codes, schema, encoded.layout, np.random.default_rng(0))
    np.testing.assert_array_equal(encode(made, schema).codes, encoded.codes)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([date(2024, 1, 1), date(9999, 12, 31)] * 40),
        pa.array([datetime(2024, 1, 1), datetime(9999, 12, 31, 23, 59, 59)] * 40),
        pa.array([0, 2**52] * 40, pa.timestamp("s")),
        pa.array([-(2**52)] * 40, pa.timestamp("s")),
    ],
)
def test_days_that_stand_for_no_day_are_a_column_to_decide_about(column):
    table = pa.table({"x": column, "y": ["a", "b"] * (len(column) // 2)})
    with pytest.raises(TableError, match="column 'x' holds times before the year 1 or after 9998"):
        infer_schema(table)
    assert draft_schema(table).names == ("y",)


def test_half_precision_and_whole_numbers_beyond_64_bits():
    halves = pa.array(np.arange(100, dtype=np.float16) + np.float16(0.5))
    assert infer_schema(pa.table({"x": halves}))["x"].kind == "numeric"
    far = pa.table({"x": pa.array([2**63, 2**64 - 1] * 40, pa.uint64()), "y": [2.0**70, 1.0] * 40})
    assert draft_schema(far)["y"].values == (1.0, 2.0**70)
    assert (
        draft_schema(far).dropped[0][1].startswith("holds whole numbers that do not fit in 64 bits")
    )
