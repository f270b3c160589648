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
from dither.schema import (
    LEAK_WARNING,
    Attribute,
    decode,
    draft_schema,
    encode,
    infer_schema,
    load_schema,
    numeric,
)

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
        ([f"id{k}" for k in range(64)], "identifier"),
        ([f"id{k}" for k in range(1001)] * 2, "identifier"),
        (["x" * 1001, "y"], "1,001 characters"),
        ([1.0, float("inf")], "infinite"),
        ([-1.7e308, 1.7e308, 0.5], "span"),
        (pa.array([1, 2], pa.time32("s")), "time32"),
        (list(range(1, 101)), "identifier"),
        ([[1], [2]], "nested"),
        (["03/09/2020", "04/09/2020"], "--date-order dmy, or --date-order mdy"),
    ],
)
def test_columns_that_need_a_decision_are_named(column, part):
    with pytest.raises(TableError) as caught:
        infer_schema(pa.table({"fine": [k % 2 for k in range(len(column))], "culprit": column}))
    title, head, line, *_ = str(caught.value).splitlines()
    assert title == "1 column needs a decision:"
    assert head.split() == ["column", "why", "what", "to", "type"]
    assert line.split()[0] == "culprit"
    assert part in line
    assert caught.value.value == ["culprit"]


def test_the_list_of_decisions_is_a_table_and_one_option():
    rows = 200
    table = pa.table(
        {
            "fine": [k % 3 for k in range(rows)],
            "member id": list(range(rows)),
            "a,b": [f"x{k}" for k in range(rows)],
            "day": [f"{k % 12 + 1:02d}/03/2020" for k in range(rows)],
        }
    )
    with pytest.raises(TableError) as caught:
        infer_schema(table)
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 columns need a decision:"
    assert len(lines) == 6
    assert max(map(len, lines)) < 160
    assert """--drop 'member id,"a,b"'  (Python: drop=['member id', 'a,b'])""" in lines[-1]


def test_a_long_list_of_decisions_is_cut():
    names = [f"text{k}" for k in range(50)]
    columns = {name: [f"{name} {k}" for k in range(70)] for name in names}
    with pytest.raises(TableError) as caught:
        infer_schema(pa.table({"fine": [k % 2 for k in range(70)], **columns}))
    message = str(caught.value)
    assert len(message.splitlines()) == 24
    assert "and 30 more" in message
    assert f"--drop {','.join(names)}  " in message


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (["same"] * 5, "same"),
        ([4] * 5, 4),
        ([4.5] * 5, 4.5),
        ([True] * 5, True),
        ([None] * 5, None),
        ([float("nan"), None, None, None, None], None),
        (pa.array([5] * 5, pa.date32()), "1970-01-06"),
        (pa.array(["a"] * 5).dictionary_encode(), "a"),
    ],
)
def test_constant_and_empty_columns_pass_through(column, value):
    table = pa.table({"fine": [0, 1, 0, 1, 1], "same": column})
    schema = infer_schema(table)
    assert schema.names == ("fine",)
    assert schema.constants == (("same", value),)
    encoded = encode(table, schema)
    assert encoded.codes.shape == (5, 1)
    made = decode(encoded.codes[:3], schema, encoded.layout, np.random.default_rng(0))
    assert made.column_names == ["fine", "same"]
    assert made["same"].type == table["same"].type
    assert made["same"].to_pylist()[1:] == table["same"].to_pylist()[:2] or value is None


def test_a_value_or_nothing_is_asked():
    """A column of one value with gaps says something: who has it."""
    schema = infer_schema(pa.table({"member": ["yes", None, "yes"], "n": [4, None, 4]}))
    assert schema.attributes == (
        Attribute("member", "categorical", ("yes",), missing=True),
        Attribute("n", "ordinal", (4,), missing=True),
    )


def test_nothing_but_constants_is_an_error():
    with pytest.raises(TableError, match=r"every column has one value only.*: a, b"):
        infer_schema(pa.table({"a": [1, 1], "b": ["x", "x"]}))


def test_a_constant_that_varies_is_an_error():
    schema = infer_schema(pa.table({"a": [1, 2], "b": ["x", "x"]}))
    with pytest.raises(
        TableError, match=r"'b' is constant in the schema \('x'\), but holds 'y' \(in row 2\)"
    ):
        encode(pa.table({"a": [1, 2], "b": ["x", "y"]}), schema)
    with pytest.raises(TableError, match=r"'b'.*holds None"):
        encode(pa.table({"a": [1, 2], "b": ["x", None]}), schema)


@pytest.mark.parametrize(
    ("name", "values", "identifier"),
    [
        ("n", np.random.default_rng(0).permutation(3000)[:500], True),  # narrow, no repeat
        ("n", np.random.default_rng(0).permutation(10**6)[:500], False),
        ("n", np.sort(np.random.default_rng(0).permutation(10**6)[:500]), True),
        ("customer_id", np.random.default_rng(0).permutation(10**6)[:500], True),
        ("customerId", np.random.default_rng(0).permutation(10**6)[:500], True),
        ("paid", np.random.default_rng(0).permutation(10**6)[:500], False),
        ("account", np.random.default_rng(0).integers(10**8, 10**9, 500), True),
        ("people", np.random.default_rng(0).integers(10**4, 10**9, 500), False),
        ("year", np.arange(1800, 2000), False),
        ("id", np.arange(1001, 1900, 2), True),
        ("n", np.arange(63), False),
        ("share", np.arange(500) / 7, False),
    ],
)
def test_distinct_numbers_are_identifiers_if_chance_would_repeat_them(name, values, identifier):
    draft = draft_schema(pa.table({name: values, "fine": np.arange(len(values)) % 2}))
    assert [entry[0] for entry in draft.dropped] == ([name] if identifier else [])
    kept = draft_schema(pa.table({name: values}), keep=[name])
    assert kept.names == (name,)


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
    ("content", "part"), [(None, "file not found"), ("a,a\n1,2\n", "'a'"), ("a\nx\nx\n", "a")]
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
    with pytest.raises(TableError, match=r"x +times before the year 1 or after 9998"):
        infer_schema(table)
    assert draft_schema(table).names == ("y",)


def test_half_precision_and_whole_numbers_beyond_64_bits():
    halves = pa.array(np.arange(100, dtype=np.float16) + np.float16(0.5))
    assert infer_schema(pa.table({"x": halves}))["x"].kind == "numeric"
    far = pa.table({"x": pa.array([2**63, 2**64 - 1] * 40, pa.uint64()), "y": [2.0**70, 1.0] * 40})
    assert draft_schema(far)["y"].values == (1.0, 2.0**70)
    assert draft_schema(far).dropped[0][1].startswith("whole numbers that do not fit in 64 bits")
