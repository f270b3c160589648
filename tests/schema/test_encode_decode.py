"""Tables to codes and back, for each kind of table."""

import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither.errors import ParameterError, TableError
from dither.schema import (
    Attribute,
    Schema,
    decode,
    encode,
    infer_schema,
    numeric,
    plain_layout,
    read_table,
    write_table,
)

RNG = np.random.default_rng


def one(name="x", **kwargs):
    return Schema((Attribute(name, **kwargs),))


SCHEMA = Schema(
    (
        Attribute("colour", "categorical", values=("red", "green", "blue"), missing=True),
        Attribute("size", "ordinal", values=(1, 2, 5), missing=True),
        Attribute("flag", "boolean", values=(False, True), missing=True),
        Attribute("age", "numeric", edges=(0, 10, 20, 30.5), missing=True),
        Attribute("income", "numeric", edges=(-1.5, 0.0, 1e-3, 2.25), missing=True),
    )
)
ROW = st.tuples(
    st.sampled_from(["red", "green", "blue", None]),
    st.sampled_from([1, 2, 5, None]),
    st.sampled_from([False, True, None]),
    st.one_of(st.integers(0, 30), st.none()),
    st.one_of(st.floats(-1.5, 2.25), st.none()),
)
ORDER = ["income", "flag", "colour", "age", "size"]
ARROW_TYPES = {
    "colour": [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    "size": [pa.int8(), pa.uint16(), pa.int64(), pa.float32(), pa.decimal128(8, 2), pa.string()],
    "flag": [pa.bool_(), pa.int8(), pa.string()],
    "age": [pa.int8(), pa.uint64(), pa.int64(), pa.float64(), pa.decimal128(8, 1)],
    "income": [pa.float64()],
}
TYPES = st.fixed_dictionaries({name: st.sampled_from(types) for name, types in ARROW_TYPES.items()})


def arrow_table(rows, types):
    columns = {}
    for i, name in enumerate(SCHEMA.names):
        values, wanted = [row[i] for row in rows], types[name]
        if wanted == pa.string() and name != "colour":
            values = [None if v is None else str(v) for v in values]
        elif pa.types.is_decimal(wanted):
            values = [None if v is None else decimal.Decimal(v) for v in values]
        elif pa.types.is_integer(wanted) or pa.types.is_floating(wanted):
            values = [
                None if v is None else (float if pa.types.is_floating(wanted) else int)(v)
                for v in values
            ]
        columns[name] = pa.array(values, wanted)
    return pa.table(columns).select(ORDER)


def expected_codes(rows):
    """The slow, obvious way."""
    codes = []
    for row in rows:
        line = []
        for attribute, value in zip(SCHEMA, row, strict=True):
            if value is None:
                line.append(attribute.answers)
            elif attribute.kind == "numeric":
                inside = [
                    k
                    for k in range(attribute.answers)
                    if attribute.edges[k] <= value < attribute.edges[k + 1]
                ]
                line.append(inside[0] if inside else attribute.answers - 1)
            else:
                line.append(attribute.values.index(value))
        codes.append(line)
    return np.array(codes, dtype=np.int32)


def check_round_trip(table, rows):
    encoded = encode(table, SCHEMA)
    assert encoded.codes.dtype == np.int32
    assert encoded.codes.flags.f_contiguous
    np.testing.assert_array_equal(encoded.codes, expected_codes(rows))
    again = decode(encoded.codes, SCHEMA, encoded.layout, RNG(1))
    assert type(again) is type(table)
    second = encode(again, SCHEMA)
    np.testing.assert_array_equal(second.codes, encoded.codes)
    assert second.layout.names == tuple(ORDER)
    return encoded, again, second


@given(st.lists(ROW, min_size=1, max_size=30), TYPES)
@settings(max_examples=80, deadline=None)
def test_pyarrow_round_trip(rows, types):
    table = arrow_table(rows, types)
    encoded, again, second = check_round_trip(table, rows)
    assert again.schema.types == table.schema.types
    assert second.layout == encoded.layout


@given(st.lists(ROW, min_size=1, max_size=30), TYPES)
@settings(max_examples=60, deadline=None)
def test_polars_round_trip(rows, types):
    table = pl.DataFrame(arrow_table(rows, types))
    _, again, _ = check_round_trip(table, rows)
    assert again.dtypes == table.dtypes


@given(
    st.lists(ROW, min_size=1, max_size=30),
    TYPES,
    st.sampled_from(["numpy", "nullable", "arrow", "object"]),
)
@settings(max_examples=80, deadline=None)
def test_pandas_round_trip(rows, types, backend):
    arrow = arrow_table(
        rows, {k: (pa.string() if v == pa.string_view() else v) for k, v in types.items()}
    )
    if backend == "numpy":
        table = arrow.to_pandas()
    elif backend == "nullable":
        table = arrow.to_pandas().convert_dtypes(dtype_backend="numpy_nullable")
    elif backend == "arrow":
        table = arrow.to_pandas(types_mapper=pd.ArrowDtype)
    else:
        table = pd.DataFrame(
            {name: pd.Series(arrow[name].to_pylist(), dtype=object) for name in ORDER}
        )
    table.index = range(5, 5 + len(table))
    _, again, _ = check_round_trip(table, rows)
    assert list(again.dtypes) == list(table.dtypes)


@pytest.mark.slow
@given(st.lists(ROW, min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_files_encode_like_the_table_they_were_written_from(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("files")
    types = {name: choices[0] for name, choices in ARROW_TYPES.items()}
    table = arrow_table(rows, types)
    pa_csv.write_csv(table, folder / "arrow.csv")
    table.to_pandas().to_csv(folder / "pandas.csv", index=False)
    pl.DataFrame(table).write_csv(folder / "polars.csv")
    write_table(table, folder / "t.parquet")
    for path in folder.iterdir():
        for schema in (SCHEMA, None):
            np.testing.assert_array_equal(
                encode(read_table(path, schema), SCHEMA).codes, expected_codes(rows)
            )


def test_categorical_types_come_back_as_they_were():
    schema = one(kind="categorical", values=("a", "b", "c"), missing=True)
    codes = np.array([[2], [0], [3]], dtype=np.int32)
    cases = [
        pd.DataFrame(
            {"x": pd.Categorical(["b", "a"], categories=["b", "a", "unused", "c"], ordered=True)}
        ),
        pl.DataFrame({"x": pl.Series(["b", "a"], dtype=pl.Enum(["b", "c", "a"]))}),
        pl.DataFrame({"x": pl.Series(["b", "a"], dtype=pl.Categorical)}),
        pa.table(
            {
                "x": pa.array(["b", "a"])
                .dictionary_encode()
                .cast(pa.dictionary(pa.int16(), pa.large_string()))
            }
        ),
    ]
    for table in cases:
        encoded = encode(table, schema)
        assert encoded.codes[:, 0].tolist() == [1, 0]
        again = decode(codes, schema, encoded.layout, RNG(0))
        values = again["x"].to_pylist() if isinstance(again, pa.Table) else again["x"].to_list()
        assert values[:2] == ["c", "a"]
        assert values[2] is None or values[2] != values[2]
        kind = again.schema.types if isinstance(again, pa.Table) else list(again.dtypes)
        assert kind == (table.schema.types if isinstance(table, pa.Table) else list(table.dtypes))


def test_a_domain_wider_than_the_type_widens_the_type():
    schema = one(kind="categorical", values=("a", "b", "new"))
    codes = np.array([[2], [1]], dtype=np.int32)
    enum = pl.DataFrame({"x": pl.Series(["b"], dtype=pl.Enum(["b", "a"]))})
    assert decode(codes, schema, encode(enum, schema).layout, RNG(0))["x"].to_list() == ["new", "b"]
    category = pd.DataFrame({"x": pd.Categorical(["b"])})
    assert decode(codes, schema, encode(category, schema).layout, RNG(0))["x"].tolist() == [
        "new",
        "b",
    ]
    mixed = one(kind="categorical", values=(1, 2, "other"))
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        encoded = encode(make({"x": [1, 2, 7]}), mixed, unknown="other")
        assert encoded.codes[:, 0].tolist() == [0, 1, 2]
        assert encoded.clipped == {"x": 1}
        again = decode(encoded.codes, mixed, encoded.layout, RNG(0))
        assert list(again["x"].to_pylist() if make is pa.table else again["x"]) == [
            "1",
            "2",
            "other",
        ]
    small = one(kind="ordinal", values=(1, 300))
    table = pa.table({"x": pa.array([1], pa.int8())})
    assert decode(np.array([[1]]), small, encode(table, small).layout, RNG(0))["x"].to_pylist() == [
        300
    ]


def test_missing_stays_integer_and_boolean_where_the_column_had_none():
    schema = Schema(
        (
            Attribute("i", "ordinal", values=(1, 2), missing=True),
            Attribute("b", "boolean", values=(False, True), missing=True),
            numeric("n", low=0, high=100, missing=True),
        )
    )
    table = pd.DataFrame(
        {"i": np.array([1, 2], np.int8), "b": [True, False], "n": np.array([3, 4], np.uint16)}
    )
    layout = encode(table, schema).layout
    gaps = decode(np.array([[2, 2, 16], [0, 1, 3]]), schema, layout, RNG(0))
    assert [str(t) for t in gaps.dtypes] == ["Int8", "boolean", "UInt16"]
    assert gaps.isna().all(axis=1).tolist() == [True, False]
    assert [str(t) for t in decode(np.array([[1, 0, 3]]), schema, layout, RNG(0)).dtypes] == [
        "int8",
        "bool",
        "uint16",
    ]
    frame = decode(
        np.array([[2, 2, 16], [0, 1, 3]]),
        schema,
        encode(pl.DataFrame(table), schema).layout,
        RNG(0),
    )
    assert frame.dtypes == [pl.Int8, pl.Boolean, pl.UInt16]
    assert frame.null_count().row(0) == (1, 1, 1)


def test_an_all_missing_column_comes_back_with_a_plain_type():
    schema = one(kind="ordinal", values=(1, 2), missing=True)
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        encoded = encode(make({"x": [None, None]}), schema)
        assert encoded.codes[:, 0].tolist() == [2, 2]
        again = decode(np.array([[0], [1]]), schema, encoded.layout, RNG(0))
        assert list(again["x"].to_pylist() if make is pa.table else again["x"]) == [1, 2]


@pytest.mark.parametrize(
    ("values", "cells", "codes"),
    [
        ((1, 2), [1.0, 2.0], [0, 1]),
        ((1, 2), ["1", "2"], [0, 1]),
        (("1", "2"), [1, 2], [0, 1]),
        (("1", "2"), [1.0, 2.0], [0, 1]),
        ((1.5, 2.0), ["1.5", "2"], [0, 1]),
        (("true", "false"), [True, False], [0, 1]),
        (("True", "False"), [True, False], [0, 1]),
        (("1", 1, "x"), ["1", "x"], [0, 2]),
        (("1", 1, 2), [1], [1]),
        ((0, 1), [True, False], [1, 0]),
        ((0.1, 0.2), pa.array([0.2, 0.1], pa.float32()), [1, 0]),
    ],
)
def test_values_match_by_number_or_by_text(values, cells, codes):
    schema = one(kind="categorical", values=values)
    encoded = encode(pa.table({"x": cells}), schema)
    assert encoded.codes[:, 0].tolist() == codes
    again = decode(encoded.codes, schema, encoded.layout, RNG(0))
    assert again["x"].to_pylist() == pa.table({"x": cells})["x"].to_pylist()


@pytest.mark.parametrize(
    "words", [("True", "False"), ("true", "false"), ("TRUE", "FALSE"), ("1", "0")]
)
def test_text_booleans_keep_their_spelling(words):
    schema = one(kind="boolean", values=(False, True))
    encoded = encode(pa.table({"x": [words[0]]}), schema)
    assert encoded.codes[:, 0].tolist() == [1]
    again = decode(np.array([[1], [0]]), schema, encoded.layout, RNG(0))
    assert tuple(again["x"].to_pylist()) == words


@pytest.mark.parametrize(
    ("values", "cell"),
    [(("01", "1"), "001"), (("1", "1.0"), 1.0), (("x", "y"), "X"), ((1, 2), "1 ")],
)
def test_what_could_mean_two_things_or_nothing_does_not_match(values, cell):
    with pytest.raises(TableError, match="'x': value"):
        encode(pa.table({"x": [cell]}), one(kind="categorical", values=values))


CATEGORIES = one("race", kind="categorical", values=("a", "b"))
WITH_OTHER = one("race", kind="categorical", values=("a", "b", "Other"))
AGE = Schema((numeric("age", low=0, high=100),))


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize(
    ("columns", "schema", "parts"),
    [
        (
            {"race": ["a", "zed", "b", "y", "zed"]},
            CATEGORIES,
            ["'race'", "'zed'", "3 rows", "row 2"],
        ),
        ({"race": ["a", "zed"]}, WITH_OTHER, ["'race'", "'zed'", "row 2", "'other'"]),
        ({"race": [3]}, CATEGORIES, ["'race'", "3"]),
        ({"race": ["a", None, None]}, CATEGORIES, ["'race'", "missing", "2 rows", "row 2"]),
        ({"age": [3, 101, 102]}, AGE, ["'age'", "101", "2 rows", "0 to 100"]),
        ({"age": [3.0, -0.5]}, AGE, ["'age'", "-0.5", "row 2"]),
        ({"age": [3.0, float("inf")]}, AGE, ["'age'", "inf"]),
        ({"age": [3.0, None]}, AGE, ["'age'", "missing", "row 2"]),
        ({"age": ["3", "?", "?"]}, AGE, ["'age'", "text '?'", "2 rows, first in row 2"]),
        ({"age": ["3", "4"]}, AGE, ["'age'", "written as text", "'3'"]),
        ({"age": [True, False]}, AGE, ["'age'", "bool", "True"]),
        ({"age": [[1], [2]]}, AGE, ["'age'", "list"]),
        ({"race": [[1], [2]]}, CATEGORIES, ["'race'", "list"]),
        ({"age": [1], "surname": ["x"]}, AGE, ["'surname'", "drop it or add it"]),
        ({"surname": ["x"]}, AGE, ["no column 'age'", "surname"]),
        ({"age": []}, AGE, ["no rows"]),
        ({}, AGE, ["no columns"]),
    ],
)
def test_errors_name_the_culprit(make, columns, schema, parts):
    with pytest.raises(TableError) as caught:
        encode(make(columns), schema)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_nan_is_missing_in_every_kind():
    schema = Schema((numeric("age", low=0, high=100, missing=True),))
    for table in (
        pl.DataFrame({"age": [1.0, float("nan")]}),
        pa.table({"age": [1.0, float("nan")]}),
    ):
        assert encode(table, schema).codes[1, 0] == 16


def test_unknown_as_other():
    table = pl.DataFrame({"race": ["a", "zed", "Other", "y"]})
    encoded = encode(table, WITH_OTHER, unknown="other")
    assert encoded.codes[:, 0].tolist() == [0, 2, 2, 2]
    assert encoded.clipped == {"race": 2}
    with pytest.raises(TableError, match=r"'race': value 'zed'.*lists no category 'other'"):
        encode(table, CATEGORIES, unknown="other")
    with pytest.raises(TableError, match=r"'age': value 200"):
        encode(pl.DataFrame({"age": [200]}), AGE, unknown="other")
    with pytest.raises(ParameterError, match="nothing"):
        encode(table, WITH_OTHER, unknown="nothing")


def test_unused_categories_outside_the_domain_do_no_harm():
    table = pd.DataFrame({"race": pd.Categorical(["a", "b"], categories=["zed", "b", "a"])})
    assert encode(table, CATEGORIES).codes[:, 0].tolist() == [0, 1]


def test_wrong_tables_are_named():
    two = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["age", "age"])
    for table, part in [
        (two, "two columns named 'age'"),
        (pd.DataFrame([[1, 2]], columns=["age", "age"]), "two columns named 'age'"),
        (pd.DataFrame([[1]]), "named 0"),
        (pd.DataFrame({"age": ["x", 1]}), "'age' cannot be read as values of one type"),
        (pl.LazyFrame({"age": [1]}), "collect()"),
        ([1, 2], "not list"),
        (5, "not int"),
        ({"age": [1], "more": [1, 2]}, "column 'more' has 2 rows, column 'age' has 1"),
        ({"age": "1"}, "column 'age' must be a list of values, not str"),
        ([{"age": 1}, {"age": "x"}], "column 'age' cannot be read as values of one type"),
    ]:
        with pytest.raises(TableError) as caught:
            encode(table, AGE)
        assert part in str(caught.value)


def test_dates_are_refused():
    table = pa.table({"age": pa.array([1], pa.date32())})
    with pytest.raises(TableError, match=r"'age'.*date32"):
        encode(table, AGE)
    with pytest.raises(TableError, match=r"'race'.*date32"):
        encode(table.rename_columns(["race"]), CATEGORIES)


def test_chunks_with_different_dictionaries():
    chunks = [
        pa.array(["b", "a"]).dictionary_encode(),
        pa.array(["a", None, "b"]).dictionary_encode(),
    ]
    schema = one("race", kind="categorical", values=("a", "b"), missing=True)
    assert encode(pa.table({"race": pa.chunked_array(chunks)}), schema).codes[:, 0].tolist() == [
        1,
        0,
        0,
        2,
        1,
    ]


def test_decode_refuses_codes_outside_the_domain():
    with pytest.raises(ValueError, match="race"):
        decode(np.array([[2]]), CATEGORIES, plain_layout(CATEGORIES), RNG(0))
    with pytest.raises(ValueError, match="race"):
        decode(np.array([[-1]]), CATEGORIES, plain_layout(CATEGORIES), RNG(0))
    with pytest.raises(ValueError, match="shape"):
        decode(np.array([[0, 0]]), CATEGORIES, plain_layout(CATEGORIES), RNG(0))


def test_the_same_seed_gives_the_same_table():
    codes = RNG(3).integers(0, 16, (100, 1))
    tables = [decode(codes, AGE, plain_layout(AGE), RNG(seed)) for seed in (5, 5, 6)]
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]


def _again(values, held):
    """A column, the schema inferred from it, and a synthetic column of the same codes."""
    table = pa.table({"x": pa.array(values, held)})
    schema = infer_schema(table, keep=["x"])
    encoded = encode(table, schema)
    made = decode(encoded.codes, schema, encoded.layout, np.random.default_rng(0))
    assert made.schema == table.schema
    assert (encode(made, schema).codes == encoded.codes).all()
    return made.column("x").to_pylist()


@pytest.mark.parametrize(
    ("most", "held"),
    [
        (2**64 - 1, pa.uint64()),
        (2**63 - 1, pa.int64()),
        (10**17, pa.decimal128(20, 0)),
        (10**30, pa.decimal256(50, 0)),
        (10**30, pa.decimal128(38, 5)),
    ],
)
def test_numbers_near_the_end_of_a_wide_type_are_not_cut_off(most, held):
    values = [i * most // 199 for i in range(0, 200)]
    drawn = _again(
        [decimal.Decimal(v) for v in values] if pa.types.is_decimal(held) else values, held
    )
    assert abs(float(np.mean([float(v) / most for v in drawn])) - 0.5) < 0.01


def test_decimals_are_written_and_read_to_their_last_digit():
    held = pa.decimal128(38, 20)
    tenths = [decimal.Decimal(i % 6) / 10 for i in range(120)]
    assert set(_again(tenths, held)) == set(tenths)
    drawn = _again([decimal.Decimal(i) / 1000 for i in range(-300, 300)], held)
    assert all(value * 1000 == int(value * 1000) for value in drawn)


def test_seconds_in_a_column_of_whole_numbers_stay_whole_numbers():
    table = pa.table({"x": pa.array([1, None, 90, 45], pa.int32())})
    schema = Schema((Attribute("x", "duration", edges=(0.0, 30.0, 60.0, 100.0), missing=True),))
    encoded = encode(table, schema)
    made = decode(encoded.codes, schema, encoded.layout, np.random.default_rng(0))
    assert made.schema == table.schema
    assert (encode(made, schema).codes == encoded.codes).all()


def test_a_time_that_python_cannot_say_is_outside_the_domain_all_the_same():
    table = pa.table({"x": pa.array([0, 2**52], pa.timestamp("s"))})
    with pytest.raises(TableError, match="column 'x': value 4503599627370496 lies outside"):
        encode(table, Schema((Attribute("x", "date", edges=(0.0, 1.0, 2.0)),)))
