"""Text that writes numbers, dates and times: detected, read, written back, stated in a schema."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.errors import SchemaError, TableError
from dither.schema import (
    Attribute,
    Schema,
    attribute_from_json,
    decode,
    encode,
    infer_schema,
    numeric,
    schema_from_json,
    to_arrow,
)

RNG = np.random.default_rng


def amounts(count: int = 60) -> list[float]:
    return [round(float(x), 2) for x in RNG(0).uniform(3, 90_000, count)]


def days(form: str, count: int = 400) -> list[str]:
    start = pd.Timestamp("2019-11-05")
    return [(start + pd.Timedelta(days=i)).strftime(form) for i in range(count)]


COLUMNS = {
    "$1,234.00": [f"${x:,.2f}" for x in amounts()],
    "$0.00": [f"${x:.2f}" for x in amounts()],
    "1,234": [f"{int(x):,}" for x in amounts()],
    "1'234": [f"{int(x):,}".replace(",", "'") for x in amounts()],
    "1.234,00 €": [f"{x:,.2f}".translate({ord(","): ".", ord("."): ","}) + " €" for x in amounts()],
    "1 234,0": [f"{x:,.1f}".translate({ord(","): " ", ord("."): ","}) for x in amounts()],
    "EUR 1,234": [f"EUR {int(x):,}" for x in amounts()],
    "0.0%": [f"{x / 900:.1f}%" for x in amounts()],
    "0.00 %": [f"{x / 900:.2f} %" for x in amounts()],
    "(0)": [f"({int(x)})" if i % 3 else f"{int(x)}" for i, x in enumerate(amounts())],
    "($1,234.00)": [f"(${x:,.2f})" if i % 3 else f"${x:,.2f}" for i, x in enumerate(amounts())],
    "0,00": [f"{x:.2f}".replace(".", ",") for x in amounts()],
    "0.##": [f"{x:.2f}".rstrip("0").rstrip(".") for x in [*amounts(), 4.5, 8.0]],
    "%d/%m/%Y": days("%d/%m/%Y"),
    "%m/%d/%Y": days("%m/%d/%Y"),
    "%-m/%-d/%y": [f"{d.month}/{d.day}/{d:%y}" for d in map(pd.Timestamp, days("%Y-%m-%d"))],
    "%d.%m.%Y": days("%d.%m.%Y", 8),  # points: the day comes first
    "%Y/%m/%d": days("%Y/%m/%d"),
    "%Y-%m-%d": days("%Y-%m-%d"),
    "%Y/%m/%d 00:00:00": days("%Y/%m/%d 00:00:00"),
    "%Y/%m/%d %H:%M:%S": [
        f"{day} {i % 24:02d}:30:{i % 60:02d}" for i, day in enumerate(days("%Y/%m/%d"))
    ],
    "%b %-d %Y": [f"{d:%b} {d.day} {d.year}" for d in map(pd.Timestamp, days("%Y-%m-%d"))],
    "%d-%b-%y": days("%d-%b-%y"),
    "%Y-%m": [f"{2000 + i // 12}-{i % 12 + 1:02d}" for i in range(60)],
    "%H:%M": [f"{i % 24:02d}:{i * 7 % 60:02d}" for i in range(80)],
    "%H:%M:%S": [f"{i % 24:02d}:{i * 7 % 60:02d}:{i % 60:02d}" for i in range(80)],
    "%-I:%M %p": [f"{i % 12 + 1}:{i * 7 % 60:02d} {'AM' if i % 2 else 'PM'}" for i in range(80)],
}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("form", COLUMNS)
def test_text_is_read_as_what_it_writes_and_written_back(form, make):
    table = make({"x": COLUMNS[form], "y": [k % 2 for k in range(len(COLUMNS[form]))]})
    schema = infer_schema(table)
    attribute = schema["x"]
    assert attribute.format == form
    assert attribute.on_line
    encoded = encode(table, schema)
    made = decode(encoded.codes, schema, encoded.layout, RNG(1))
    assert type(made) is type(table)
    texts = to_arrow(made)["x"].to_pylist()
    read = attribute.form.read
    assert all(read(text) is not None for text in texts)
    # What is written is in the form of what was read.
    assert all(attribute.form.write(read(text)) == text for text in [*texts, *COLUMNS[form]])
    # Amounts near zero on either side are shorter.
    if form != "0.##" and "(" not in form and "-" not in form.removeprefix("%d-%b"):
        assert {len(text) for text in texts} <= {
            *range(min(map(len, COLUMNS[form])), max(map(len, COLUMNS[form])) + 1)
        }


@pytest.mark.parametrize(
    ("form", "text", "number"),
    [
        ("$1,234.00", "-$1,234.50", -1234.5),
        ("$1,234.00", "$-5.00", -5.0),
        ("$1,234.00", "$1234.5", 1234.5),
        ("1,234", "12,345,678", 12_345_678.0),
        ("0.0%", "+3.5%", 3.5),
        ("1.234,0", "1.234,5", 1234.5),
        ("$1,234.00", "1,234.00", None),
        ("$1,234.00", "$1,23.00", None),
        ("$1,234.00", "+-$1.00", None),
        ("$1,234.00", "-$-1.00", None),
        ("($1,234.00)", "($1,234.50)", -1234.5),
        ("($1,234.00)", "-$1.00", -1.0),
        ("($1,234.00)", "(-$1.00)", None),
        ("$1,234.00", "($1.00)", None),
        ("(0)", "(12", None),
        ("0.0%", "3.5", None),
        ("0", "1e5", None),
        ("0", "\N{ARABIC-INDIC DIGIT ONE}", None),
    ],
)
def test_numbers_in_a_format(form, text, number):
    attribute = Attribute("x", "numeric", edges=(0.0, 1.0, 2.0), format=form)
    assert attribute.form.read(text) == number


@given(st.floats(-1e9, 1e9), st.sampled_from(["$1,234.00", "0.0%", "1.234,000 €", "0", "1 234,##"]))
def test_a_written_number_is_read_back(number, form):
    written = Attribute("x", "numeric", edges=(0.0, 1.0, 2.0), format=form).form
    digits = form.count("0", form.find("3") + 1) if "3" in form else len(form.partition(".")[2]) - 1
    again = written.read(written.write(number))
    assert again == pytest.approx(number, abs=0.51 * 10.0 ** -max(0, min(digits, 3)))
    assert written.write(again) == written.write(number)


@given(
    st.integers(-700_000, 2_900_000),
    st.sampled_from(["%d/%m/%Y", "%-d %B %Y", "%Y%m%d", "%b %d, %Y"]),
)
def test_a_written_day_is_read_back(day, form):
    written = Attribute("x", "date", edges=(0.0, 1.0, 2.0), format=form).form
    assert written.read(written.write(float(day))) == day


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("31/02/2020", "%d/%m/%Y"),
        ("1/13/2020", "%d/%m/%Y"),
        ("24:00", "%H:%M"),
        ("13:00 PM", "%I:%M %p"),
        ("1 Foo 2020", "%d %b %Y"),
        ("01/02/2020 ", "%d/%m/%y"),
    ],
)
def test_moments_that_do_not_exist(text, pattern):
    kind = "duration" if "%M" in pattern else "date"
    assert Attribute("x", kind, edges=(0.0, 1.0, 2.0), format=pattern).form.read(text) is None


def test_the_order_of_day_and_month_is_asked_for():
    table = pa.table({"x": ["03/09/2020", "04/10/2020"], "y": ["03/09/2020", "13/10/2020"]})
    with pytest.raises(TableError) as caught:
        infer_schema(table)
    assert "03/09/2020 can be read both ways" in str(caught.value)
    assert "--date-order dmy" in str(caught.value)
    assert "--drop" not in str(caught.value)
    assert caught.value.value == ["x"]
    for order, form in (("dmy", "%d/%m/%Y"), ("mdy", "%m/%d/%Y")):
        schema = infer_schema(table, date_order=order)
        assert schema["x"].format == form
        # What the texts show is not asked for.
        assert schema["y"].format == "%d/%m/%Y"


@pytest.mark.parametrize(
    "texts",
    [
        ["1", "2", "17"],  # codes
        ["007", "008"],
        ["5 kg", "6 kg"],
        ["1.2.3", "1.2.4"],
        ["$5", "6"],
        ["$5", "€6"],
        ["10:30", "25:00"],
        ["2020-13-01", "2020-01-01"],
        ["5-6", "7-8"],
        ["1,2,3", "4,5,6"],
        ["a", "1"],
    ],
)
def test_other_text_stays_text(texts):
    attribute = infer_schema(pa.table({"x": texts * 20}))["x"]
    assert attribute.kind == "categorical"
    assert not attribute.format


def test_few_amounts_are_ordered_labels():
    attribute = infer_schema(pa.table({"x": ["$10", "$9", "$100"] * 9}))["x"]
    assert (attribute.kind, attribute.values) == ("ordinal", ("$9", "$10", "$100"))


def test_marks_among_formatted_values_are_missing():
    texts = [*COLUMNS["$1,234.00"], "-", "NA", "."]
    schema = infer_schema(pa.table({"x": texts}))
    assert (schema["x"].missing, schema["x"].format) == (True, "$1,234.00")
    codes = encode(pa.table({"x": texts}), schema).codes[:, 0]
    assert codes[-3:].tolist() == [schema["x"].answers] * 3
    numbers = infer_schema(pa.table({"x": [*map(str, range(50)), "."]}))["x"]
    assert (numbers.kind, numbers.format, numbers.missing) == ("numeric", "0", True)


MONEY = Attribute("pay", "numeric", edges=(0.0, 100.0, 10_000.0), unit=0.01, format="$1,234.00")
DAY = Attribute("day", "date", edges=(18262.0, 18293.0, 18322.0), format="%d/%m/%Y")


def test_a_format_is_part_of_the_file_and_of_nothing_else():
    schema = Schema((MONEY, DAY), constants=(("country", "DE"), ("fax", None)))
    assert schema_from_json(schema.file_json()) == schema
    plain = Schema((replace(MONEY, format=""), replace(DAY, format="")))
    assert schema.fingerprint == plain.fingerprint
    assert schema.to_json() == plain.to_json()


@pytest.mark.parametrize(
    ("more", "form"),
    [
        ({}, "$1,234.00"),
        ({"unit": 0.01}, "$1,234.00"),
        ({"unit": 1}, "$1,234"),
        ({"unit": 0.5}, "$1,234.0"),
    ],
)
def test_a_currency_is_a_format(more, form):
    entry = {"kind": "numeric", "min": 0, "max": 5000, "currency": "$", **more}
    assert attribute_from_json("pay", entry).format == form


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"kind": "numeric", "format": "money"}, "not a number such as"),
        ({"kind": "numeric", "format": ""}, "short text"),
        ({"kind": "numeric", "format": 5}, "short text"),
        ({"kind": "numeric", "format": "0.0#"}, "not a number such as"),
        ({"kind": "numeric", "format": "-0.00"}, "not a number such as"),
        ({"kind": "numeric", "format": "0\n"}, "short text"),
        ({"kind": "numeric", "format": "$0", "currency": "$"}, "not both"),
        ({"kind": "numeric", "currency": ""}, "symbol"),
        ({"kind": "date", "currency": "$"}, "symbol"),
        ({"kind": "date", "format": "%d/%m"}, "does not write one date"),
        ({"kind": "date", "format": "%d/%m/%Y %H:%M"}, "does not write one date"),
        ({"kind": "date", "format": "%d/%d/%Y"}, "does not write one date"),
        ({"kind": "date", "format": "%Q"}, "must be made of"),
        ({"kind": "date", "format": "%d/%m/%Y%"}, "must be made of"),
        ({"kind": "datetime", "format": "%d/%m/%Y"}, "does not write one datetime"),
        ({"kind": "boolean", "format": "0"}, "format goes with numbers"),
    ],
)
def test_formats_that_are_none(entry, part):
    ends = (
        {"min": "2020-01-01", "max": "2020-12-31"}
        if "date" in entry["kind"]
        else {"min": 0, "max": 9}
    )
    if entry["kind"] == "boolean":
        ends = {}
    with pytest.raises(SchemaError) as caught:
        attribute_from_json("x", {**ends, **entry})
    assert part in str(caught.value)
    assert "'x'" in str(caught.value)


@pytest.mark.parametrize(
    ("attribute", "texts", "part"),
    [
        (
            MONEY,
            ["$5.00", "5 dollars", "5 dollars"],
            "'5 dollars' (in 2 rows, first in row 2); correct it, or the schema's format '$1,234.00'",
        ),
        (
            numeric("pay", low=0, high=10_000),
            ["$5.00", "$1,000.00"],
            'add "format": "$1,234.00" to the schema',
        ),
        (DAY, ["31/12/2019x"], "holds the text '31/12/2019x' (in row 1)"),
        (
            Attribute("day", "date", edges=DAY.edges),
            ["31/01/2020"],
            'add "format": "%d/%m/%Y" to the schema',
        ),
        (Attribute("day", "date", edges=DAY.edges), ["01/02/2020"], 'such as "%d/%m/%Y"'),
        (DAY, ["01/01/2021"], "lies outside 2020-01-01"),
        (MONEY, ["-"], "missing values (in row 1)"),
    ],
)
def test_text_that_does_not_fit_is_named(attribute, texts, part):
    with pytest.raises(TableError) as caught:
        encode(pa.table({attribute.name: texts}), Schema((attribute,)))
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_format_does_not_apply_to_numbers_and_dates():
    table = pa.table({"pay": [5.0, 200.0], "day": pa.array([18262, 18300], pa.date32())})
    schema = Schema((MONEY, DAY))
    encoded = encode(table, schema)
    assert encoded.codes.tolist() == [[0, 0], [1, 1]]
    assert decode(encoded.codes, schema, encoded.layout, RNG(0)).schema == table.schema


def test_rules_hold_in_columns_of_text():
    schema = schema_from_json(
        {
            "attributes": [
                {
                    "name": name,
                    "kind": "numeric",
                    "min": 0,
                    "max": 100,
                    "bins": 5,
                    "unit": 1,
                    "currency": "$",
                }
                for name in "ab"
            ],
            "rules": [{"order": ["a", "b"], "strict": True}],
        }
    )
    low = RNG(0).integers(0, 99, 500)
    high = [RNG(i).integers(x + 1, 101) for i, x in enumerate(low)]
    table = pa.table({"a": [f"${x}" for x in low], "b": [f"${x}" for x in high]})
    encoded = encode(table, schema)
    made = decode(encoded.codes, schema, encoded.layout, RNG(1))
    read = schema["a"].form.read
    assert all(read(a) < read(b) for a, b in zip(*made.to_pydict().values(), strict=True))


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["$" + "9" * 400, "$1", "$2"] * 9, "categorical"),  # no double holds it
        ([f"$0.{'1' * 30}{k}" for k in range(30)], "categorical"),
        ([f"{k}" for k in range(10)] + ["."], "categorical"),  # few codes and a mark: labels
        ([f"{10**25 + k * 10**23:,}" for k in range(30)], "numeric"),
        ([f"{10**25 + k * 10**23}" for k in range(30)] + ["."], "numeric"),
    ],
)
def test_unusual_numbers_do_no_harm(texts, kind):
    table = pa.table({"x": texts})
    schema = infer_schema(table)
    assert schema["x"].kind == kind
    encoded = encode(table, schema)
    made = decode(encoded.codes, schema, encoded.layout, RNG(0))
    assert encode(made, schema).codes.shape == encoded.codes.shape


def test_years_that_no_calendar_has_need_a_decision():
    for texts in (["31/12/9999", "01/01/2020"], ["31/12/9999 10:00", "01/01/2020 11:00"]):
        with pytest.raises(TableError, match="times before the year 1 or after 9998"):
            infer_schema(pa.table({"x": texts}))


def test_codes_in_parentheses_are_no_numbers_below_zero() -> None:
    assert infer_schema({"x": [f"({i % 5})" for i in range(90)]})["x"].kind == "categorical"
