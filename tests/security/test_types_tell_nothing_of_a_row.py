"""Column types, categories and the spelling of labels in a synthetic table are the same for tables that differ in one record.

They carry no noise: whatever decides them is published exactly, so it must not be a row.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dither
from dither.central.curator import central_release
from dither.schema import Attribute, Schema, encode, numeric, schema_type, to_arrow

SCHEMA = Schema(
    (
        Attribute("sex", "categorical", values=("F", "M"), missing=True),
        Attribute("age", "numeric", edges=(0, 30, 60, 90), missing=True),
        Attribute("code", "categorical", values=(1, 2, 3), missing=True),
        Attribute("ill", "boolean", values=(False, True), missing=True),
    )
)
USUAL = {"sex": "F", "age": 41, "code": 1, "ill": True}
# Each differs from the usual last record in one value, and most of them stay in the same cell.
RECORDS = [
    {},
    {"age": 41.5},
    {"age": None},
    {"code": None},
    {"code": 2},
    {"ill": None},
    {"sex": None},
]
SPELLINGS = [{}, {"ill": "True"}, {"ill": "1"}, {"code": "1.0"}]


def rows(last: dict[str, Any]) -> list[dict[str, Any]]:
    others = [
        {"sex": "F", "age": 20, "code": 3, "ill": False},
        {"sex": "M", "age": 70, "code": 1, "ill": True},
    ]
    return [*others * 150, {**USUAL, **last}]


def csv_file(last: dict[str, Any], folder: Path) -> Path:
    lines = [",".join("" if v is None else str(v) for v in row.values()) for row in rows(last)]
    (folder / "t.csv").write_text("\n".join(["sex,age,code,ill", *lines]))
    return folder / "t.csv"


def pandas_frame(last: dict[str, Any], folder: Path) -> Any:
    return pd.DataFrame(rows(last))


def pandas_objects(last: dict[str, Any], folder: Path) -> Any:
    return pd.DataFrame(rows(last), dtype=object)


def pandas_categories(last: dict[str, Any], folder: Path) -> Any:
    return pd.DataFrame(rows(last)).astype(
        {"sex": "category", "code": "category", "age": "category"}
    )


def pandas_csv(last: dict[str, Any], folder: Path) -> Any:
    return pd.read_csv(csv_file(last, folder))


DECLARED = pa.schema(
    [("sex", pa.string()), ("age", pa.float32()), ("code", pa.int8()), ("ill", pa.bool_())]
)


def parquet_file(last: dict[str, Any], folder: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(rows(last), DECLARED), folder / "t.parquet")
    return folder / "t.parquet"


def polars_frame(last: dict[str, Any], folder: Path) -> Any:
    return pl.from_arrow(pa.Table.from_pylist(rows(last), DECLARED))


def json_lines(last: dict[str, Any], folder: Path) -> Path:
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(last)))
    return folder / "t.jsonl"


def records(last: dict[str, Any], folder: Path) -> Any:
    return rows(last)


def lists(last: dict[str, Any], folder: Path) -> Any:
    return {name: [row[name] for row in rows(last)] for name in USUAL}


def published(table: Any) -> Any:
    return dither.publish(
        table, epsilon=0.5, schema=SCHEMA, method="independent", rows=50, seed=3
    ).synthetic


def curated(table: Any) -> Any:
    return central_release(
        table, epsilon=0.5, method="laplace", schema=SCHEMA, seed=3, replicates=0
    ).synthetic


def shape(table: Any) -> list[Any]:
    """Names and types, categories included."""
    if isinstance(table, (pa.Table, list, dict)):
        table = to_arrow(table)
        return list(zip(table.column_names, table.schema.types, strict=True))
    types = list(table.dtypes)
    details = [list(getattr(t, "categories", [])) for t in types]
    return list(zip(table.columns, map(str, types), details, strict=True))


MAKERS = [
    csv_file,
    pandas_frame,
    pandas_objects,
    pandas_categories,
    pandas_csv,
    parquet_file,
    polars_frame,
    json_lines,
    records,
    lists,
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("release", [published, curated])
def test_one_record_moves_no_type(
    make: Callable[[dict[str, Any], Path], Any], release: Callable[[Any], Any], tmp_path: Path
) -> None:
    shapes = [shape(release(make(last, tmp_path))) for last in RECORDS]
    for last, found in zip(RECORDS, shapes, strict=True):
        assert found == shapes[0], last


@pytest.mark.parametrize("release", [published, curated])
def test_one_record_moves_no_spelling(release: Callable[[Any], Any], tmp_path: Path) -> None:
    """The same codes, whichever way the last record writes them; as text, with the same seed."""
    texts = pa.schema(
        [("sex", pa.string()), ("age", pa.float64()), ("code", pa.string()), ("ill", pa.string())]
    )
    plain = [{**row, "code": str(row["code"]), "ill": str(row["ill"]).lower()} for row in rows({})]
    first, *others = (
        release(pa.Table.from_pylist([*plain[:-1], {**plain[-1], **last}], texts))
        for last in ({}, {"ill": "True"}, {"ill": "1"})
    )
    for other in others:
        assert other["ill"].to_pylist() == first["ill"].to_pylist()
    assert set(first["ill"].to_pylist()) <= {"true", "false", None}
    written = [release(csv_file(last, tmp_path)) for last in SPELLINGS]
    for table in written:
        assert table["code"].to_pylist() == written[0]["code"].to_pylist()
        assert table["ill"].to_pylist() == written[0]["ill"].to_pylist()


def test_what_the_schema_says_and_what_is_declared(tmp_path: Path) -> None:
    by_schema = published(csv_file({}, tmp_path)).schema.types
    assert by_schema == [pa.string(), pa.int64(), pa.int64(), pa.bool_()]
    assert published(parquet_file({}, tmp_path)).schema.types == list(DECLARED.types)
    frame = published(pandas_frame({}, tmp_path))
    assert [str(t) for t in frame.dtypes[1:]] == ["Int64", "Int64", "boolean"]
    assert frame.dtypes["sex"] == pd.Series(["F"]).dtype
    assert not frame["age"].dropna().between(0, 90, inclusive="both").eq(False).any()
    nullable = pandas_frame({}, tmp_path).astype({"age": "Float32", "code": "Int8"})
    assert [str(t) for t in published(nullable).dtypes[1:3]] == ["Float32", "Int8"]
    filled = Schema(
        (
            Attribute("code", "categorical", values=(1, 2, 3)),
            Attribute("ill", "boolean", (False, True)),
        )
    )
    plain = dither.publish(
        pandas_frame({}, tmp_path)[["code", "ill"]],
        epsilon=1.0,
        schema=filled,
        method="independent",
        rows=5,
    )
    assert [str(t) for t in plain.synthetic.dtypes] == ["int64", "bool"]


@pytest.mark.parametrize(
    ("attribute", "whole"),
    [
        (numeric("x", low=17, high=90), True),
        (numeric("x", low=0, high=5), True),  # a bin for each whole number, with edges between them
        (numeric("x", low=0, high=1), True),
        (numeric("x", low=0.0, high=1.0), False),
        (numeric("x", low=0.0, high=7.5), False),
        (numeric("x", low=-1e17, high=1e17), False),
        (Attribute("x", "numeric", edges=(0, 30, 60, 90)), True),
        (Attribute("x", "numeric", edges=(0, 0.25, 0.75, 1)), False),
    ],
)
def test_numbers_are_whole_where_every_bin_holds_one(attribute: Attribute, whole: bool) -> None:
    assert pa.types.is_integer(schema_type(attribute)) is whole
    if whole:
        table = pa.table({"x": np.linspace(attribute.edges[0], attribute.edges[-1], 500)})
        made = dither.publish(
            table.to_pandas(),
            epsilon=4.0,
            schema=Schema((attribute,)),
            method="independent",
            rows=500,
        ).synthetic
        again = encode(made, Schema((attribute,))).codes
        assert len(set(again[:, 0])) == attribute.answers, (
            "a bin without a value would be empty in every table"
        )
