"""Dates, instants and durations: cut by the calendar, coded alike everywhere, and given back in the type they came in."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dither
from dither.client import code_of
from dither.errors import SchemaError, TableError
from dither.schema import Attribute, Schema, attribute_from_json, decode, encode, plain_layout

RNG = np.random.default_rng


def made(**entry: object) -> Attribute:
    return attribute_from_json("t", dict(entry))


@pytest.mark.parametrize(
    ("by", "cells", "first", "last"),
    [
        ("year", 2, "2023-03-10 to before 2024-01-01", "2024-01-01 to before 2024-06-21"),
        ("quarter", 6, "2023-03-10 to before 2023-04-01", "2024-04-01 to before 2024-06-21"),
        ("month", 16, "2023-03-10 to before 2023-04-01", "2024-06-01 to before 2024-06-21"),
        ("week", 68, "2023-03-10 to before 2023-03-13", "2024-06-17 to before 2024-06-21"),
        ("day", 469, "2023-03-10 to before 2023-03-11", "2024-06-20 to before 2024-06-21"),
        (
            "weekday",
            7,
            "2023-03-10 to before 2024-06-21 Mon",
            "2023-03-10 to before 2024-06-21 Sun",
        ),
        (
            ["month", "weekday"],
            112,
            "2023-03-10 to before 2023-04-01 Mon",
            "2024-06-01 to before 2024-06-21 Sun",
        ),
    ],
)
def test_days_are_cut_by_the_calendar(by: object, cells: int, first: str, last: str) -> None:
    attribute = made(kind="date", min="2023-03-10", max="2024-06-20", by=by)
    assert attribute.answers == cells
    assert (attribute.labels[0], attribute.labels[-1]) == (first, last)
    # Every day of the range, counted one by one by the standard library, has the code of its period and weekday.
    day, codes = dt.date(2023, 3, 10), []
    while day <= dt.date(2024, 6, 20):
        code = code_of(attribute, day)
        assert code is not None
        assert (
            code
            == code_of(attribute, day.isoformat())
            == code_of(attribute, dt.datetime(day.year, day.month, day.day, 23, 59))
        )
        if "weekday" in str(by):
            assert code % 7 == day.weekday()
        codes.append(code)
        day += dt.timedelta(days=1)
    assert code_of(attribute, day) is None
    assert code_of(attribute, "2023-03-09") is None
    if by != "weekday":
        assert set(codes) <= set(range(cells))
        assert attribute.ordered == (by != ["month", "weekday"])
    again = attribute_from_json("t", attribute.to_json())
    assert again == attribute


def test_months_and_years_are_named() -> None:
    assert made(kind="date", min="2023-01-01", max="2024-12-31", by="year").labels == (
        "2023",
        "2024",
    )
    assert made(kind="date", min="2023-01-01", max="2023-02-28", by="month").labels == (
        "2023-01",
        "2023-02",
    )
    one = made(kind="date", min="1970-01-01", max="1970-01-01", by="year", missing=True)
    assert one.edges == (0, 1)


def test_hours_and_instants() -> None:
    attribute = made(kind="datetime", min="2024-01-01", max="2024-01-31", by=["weekday", "hour"])
    assert attribute.answers == 7 * 24
    assert code_of(attribute, "2024-01-03T17:45:00") == 2 * 24 + 17
    assert (
        code_of(
            attribute, dt.datetime(2024, 1, 3, 19, 45, tzinfo=dt.timezone(dt.timedelta(hours=2)))
        )
        == 2 * 24 + 17
    )
    assert code_of(attribute, "2024-02-01T00:00:00") is None
    for value in ("2024-01-03T25:00", "yesterday", 5, None, True):
        assert code_of(attribute, value) is None


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"kind": "date", "min": "2024-02-30", "max": "2024-03-01"}, "2024-02-30"),
        ({"kind": "date", "min": "2024-03-02", "max": "2024-03-01"}, "after"),
        ({"kind": "date", "min": "2024-01-01"}, "min and max"),
        ({"kind": "date", "min": "2024-01-01", "max": "2024-03-01", "by": "moon"}, "moon"),
        (
            {"kind": "date", "min": "2024-01-01", "max": "2024-03-01", "by": "hour"},
            "no cycle 'hour'",
        ),
        (
            {"kind": "date", "min": "2024-01-01", "max": "2024-03-01", "by": ["year", "month"]},
            "one of",
        ),
        ({"kind": "date", "min": "0001-01-01", "max": "9998-01-01", "by": "day"}, "values or bins"),
        ({"kind": "date", "min": "2024-01-01", "max": "9999-12-31", "by": "year"}, "9998"),
        ({"kind": "date", "edges": ["2024-01-01", 5]}, "not a date"),
        ({"kind": "date", "values": ["a"]}, "no 'values'"),
        (
            {
                "kind": "datetime",
                "edges": ["2024-01-01T00:00:00", "2024-01-02T00:00:00"],
                "atoms": [1],
            },
            "no 'atoms'",
        ),
    ],
)
def test_wrong_times_are_named(entry: dict[str, object], part: str) -> None:
    with pytest.raises(SchemaError) as caught:
        attribute_from_json("t", entry)
    assert part in str(caught.value)


def columns(rows: int = 400) -> dict[str, np.ndarray]:
    rng = RNG(1)
    days = np.datetime64("2023-01-01") + rng.integers(0, 700, rows)
    return {
        "day": days,
        "at": days.astype("datetime64[s]") + rng.integers(0, 86400, rows),
        "stay": rng.integers(0, 7200, rows).astype("timedelta64[s]"),
    }


def tables() -> list[object]:
    data = columns()
    arrow = pa.table(
        {"day": pa.array(data["day"]), "at": pa.array(data["at"]), "stay": pa.array(data["stay"])}
    )
    frame = pl.from_arrow(arrow)
    assert isinstance(frame, pl.DataFrame)
    return [
        arrow,
        frame,
        arrow.to_pandas(),
        arrow.to_pandas().assign(at=lambda f: f["at"].dt.tz_localize("UTC")),
    ]


@pytest.mark.parametrize("which", range(4))
def test_a_synthetic_table_has_the_same_types_and_plausible_days(which: int) -> None:
    table = tables()[which]
    schema = dither.infer_schema(table)
    assert [a.kind for a in schema] == ["date", "datetime", "duration"]
    encoded = encode(table, schema)
    out = decode(encoded.codes, schema, encoded.layout, RNG(2))
    types = (
        (lambda t: t.schema)
        if which == 0
        else (lambda t: dict(t.schema))
        if which == 1
        else (lambda t: list(t.dtypes))
    )
    assert types(out) == types(table)
    np.testing.assert_array_equal(encode(out, schema).codes, encoded.codes)


def test_the_codes_of_a_table_are_those_of_a_device() -> None:
    data = columns(60)
    schema = Schema(
        (
            attribute_from_json(
                "day",
                {
                    "kind": "date",
                    "min": "2023-01-01",
                    "max": "2024-12-31",
                    "by": ["quarter", "weekday"],
                },
            ),
            attribute_from_json(
                "at", {"kind": "datetime", "min": "2023-01-01", "max": "2024-12-31", "by": ["hour"]}
            ),
            attribute_from_json(
                "stay", {"kind": "duration", "min": 0, "max": 7200, "atoms": [0], "unit": 1}
            ),
        )
    )
    table = pa.table({name: pa.array(values) for name, values in data.items()})
    codes = encode(table, schema).codes
    for row, record in enumerate(table.to_pylist()):
        assert codes[row].tolist() == [code_of(a, record[a.name]) for a in schema]
    texts = pa.table(
        {
            "day": pa.array([str(d) for d in data["day"]]),
            "at": pa.array([str(t) for t in data["at"]]),
            "stay": table["stay"],
        }
    )
    np.testing.assert_array_equal(encode(texts, schema).codes, codes)
    back = decode(codes, schema, encode(texts, schema).layout, RNG(0))
    assert all(dt.date.fromisoformat(text) is not None for text in back["day"].to_pylist())
    np.testing.assert_array_equal(encode(back, schema).codes, codes)


def test_csv_with_dates_goes_through(tmp_path) -> None:
    path = tmp_path / "t.csv"
    data = columns()
    pd.DataFrame({"day": data["day"], "at": data["at"], "x": RNG(0).integers(0, 2, 400)}).to_csv(
        path, index=False
    )
    release = dither.publish(path, epsilon=8.0, seed=1)
    assert [str(t) for t in release.synthetic.schema.types][:2] == ["date32[day]", "timestamp[s]"]
    assert release.synthetic["day"].to_pandas().min() >= dt.date(2023, 1, 1)
    folder = release.save(tmp_path / "out", form="csv")
    assert (folder / "synthetic.csv").read_text().splitlines()[0] == '"day","at","x"'
    assert not (folder / "synthetic.parquet").exists()
    assert dither.load_release(folder).synthetic.num_rows == 400


def test_what_is_no_time_is_named() -> None:
    schema = Schema((made(kind="date", min="2023-01-01", max="2024-12-31"),))
    for column, part in (
        (["2023-01-01", "soon"], "'soon'"),
        ([1, 2], "int64"),
        (pa.array([dt.date(2031, 1, 1)]), "outside 2023-01-01 to before 2025-01-01"),
        ([None, "2023-02-01"], "missing"),
    ):
        with pytest.raises(TableError) as caught:
            encode(pa.table({"t": column}), schema)
        assert part in str(caught.value)
    assert (
        decode(np.array([[0]]), schema, plain_layout(schema), RNG(0))["t"][0].as_py().year == 2023
    )


def test_decimals_stay_decimals() -> None:
    prices = (
        pa.array(RNG(0).integers(0, 9999, 300), pa.int64())
        .cast(pa.decimal128(19, 0))
        .cast(pa.decimal128(24, 2))
    )
    table = pa.table({"price": prices})
    schema = dither.infer_schema(table)
    encoded = encode(table, schema)
    out = decode(encoded.codes, schema, encoded.layout, RNG(0))
    assert out.schema == table.schema
    np.testing.assert_array_equal(encode(out, schema).codes, encoded.codes)


def test_days_in_a_column_of_instants_stay_midnights() -> None:
    frame = pd.DataFrame({"day": pd.date_range("2023-01-01", periods=90).repeat(3)})
    schema = dither.infer_schema(frame)
    assert schema["day"].kind == "date"
    encoded = encode(frame, schema)
    made = decode(encoded.codes, schema, encoded.layout, RNG(0))
    assert made.dtypes.tolist() == frame.dtypes.tolist()
    assert (made["day"] == made["day"].dt.normalize()).all()
