"""Attributes and schema files."""

import json
import subprocess
import sys

import pytest

from dither.errors import SchemaError
from dither.schema import Attribute, Schema, load_schema, numeric, schema_from_json


def test_importing_the_schema_package_needs_only_the_standard_library():
    program = (
        "import sys, dither.schema\n"
        "heavy = {'numpy', 'narwhals', 'pyarrow', 'pandas', 'polars'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_exported_name_loads():
    import dither.schema

    for name in dither.schema.__all__:
        assert getattr(dither.schema, name) is not None
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = dither.schema.nothing_such


def test_equal_width_bins_end_at_the_bounds():
    attribute = numeric("age", low=17, high=90)
    assert attribute.edges[0] == 17
    assert attribute.edges[-1] == 90
    assert attribute.cardinality == 16


def test_few_integers_get_a_bin_each_and_stay_inside_the_bounds():
    attribute = numeric("grade", low=1, high=4)
    assert attribute.edges == (1.0, 1.5, 2.5, 3.5, 4.0)
    assert numeric("g", low=1.0, high=4.0).cardinality == 16


def test_schema_file_round_trip_in_both_forms(tmp_path):
    schema = Schema(
        (
            Attribute("b", "boolean", values=(False, True)),
            Attribute("c", "categorical", values=("x", "y"), missing=True),
            Attribute("o", "ordinal", values=(1, 2.5, 3)),
            numeric("n", low=0, high=1e6, missing=True),
        )
    )
    path = tmp_path / "s.json"
    path.write_text(json.dumps(schema.to_json()))
    assert load_schema(path) == schema
    assert load_schema(path).fingerprint == schema.fingerprint
    plain = {
        "n": {"kind": "numeric", "min": 0, "max": 10.5},
        "c": {"kind": "categorical", "values": ["x", "y"]},
    }
    assert schema_from_json(plain)["n"].edges[-1] == 10.5


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"kind": "categorical", "values": ["x"]}, "one possible value"),
        ({"kind": "categorical", "values": ["x", "x"]}, "twice"),
        ({"kind": "ordinal", "values": [1, 1.0]}, "twice"),
        ({"kind": "categorical", "values": [None, "x"]}, "None"),
        ({"kind": "categorical"}, "values must be a list"),
        ({"kind": "numeric", "min": 3}, "min and max"),
        ({"kind": "numeric", "min": 3, "max": 3}, "below"),
        ({"kind": "numeric", "min": 3, "max": 4, "bins": 0}, "bins"),
        ({"kind": "numeric", "edges": [1, 1]}, "strictly increasing"),
        ({"kind": "colour"}, "colour"),
        ({"kind": "boolean", "mising": True}, "mising"),
        ({"kind": "boolean", "missing": 1}, "missing must be"),
        ("text", "'text'"),
    ],
)
def test_wrong_attributes_are_named(entry, part):
    with pytest.raises(SchemaError) as caught:
        schema_from_json({"colname": entry})
    assert "'colname'" in str(caught.value)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_files_are_named(tmp_path):
    path = tmp_path / "s.json"
    with pytest.raises(SchemaError, match=r"s\.json"):
        load_schema(path)
    for text in (
        "{",
        "[]",
        "{}",
        '{"a": {"kind": "boolean"}, "a": {"kind": "boolean"}}',
        '{"attributes": [{}]}',
    ):
        path.write_text(text)
        with pytest.raises(SchemaError, match=r"s\.json"):
            load_schema(path)
    path.write_text('{"format": "dither-schema-9", "attributes": []}')
    with pytest.raises(SchemaError, match="dither-schema-9"):
        load_schema(path)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a": {"kind": "numeric", "min": 0, "max": 5, "bins": 1' + "0" * 5_000 + "}}"],
)
def test_json_that_python_cannot_hold_is_one_clear_error(text, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(text)
    with pytest.raises(SchemaError, match="too long a number or too many brackets"):
        load_schema(path)


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"kind": "numeric", "edges": [0, 1, 2], "atoms": [1, "x"]}, "atoms"),
        ({"kind": "numeric", "edges": [0, 1, 2], "atoms": 1}, "atoms must be a list"),
        ({"kind": "numeric", "edges": [0, 1, 2], "atoms": [1, 1]}, "increase"),
        ({"kind": "numeric", "edges": [0, 1, 2], "unit": []}, "unit"),
        ({"kind": "numeric", "edges": [0, 1, 2], "unit": -1}, "unit"),
        ({"kind": "numeric", "min": 0, "max": 9, "shape": "odd"}, "shape"),
        ({"kind": "categorical", "values": ["a", "b"], "groups": {"g": [["a"]]}}, "not a value"),
        ({"kind": "categorical", "values": ["a", "b"], "groups": {"g": ["a"], "h": ["c"]}}, "'c'"),
        ({"kind": "categorical", "values": ["a", "b"], "groups": {"g": ["a", "a"]}}, "two groups"),
        ({"kind": "categorical", "values": ["a", "b"], "groups": {"g": ["a", "b"]}}, "two groups"),
        ({"kind": "categorical", "values": ["a", "b"], "groups": ["g"]}, "one group for each"),
        ({"kind": "categorical", "values": ["a", "b"], "groups": ["g", 5]}, "text"),
        ({"kind": "categorical", "values": ["a", "b"], "groups": "g"}, "list"),
        (
            {"kind": "date", "edges": ["2024-01-01", "2024-02-01"], "cycles": [["weekday"]]},
            "no cycle",
        ),
        ({"kind": "date", "min": "2024-01-01", "max": "2024-02-01", "by": [["day"]]}, "by"),
        ({"kind": "date", "min": 5, "max": []}, "not a date"),
        (
            {"kind": "date", "min": "2024-01-01", "max": "2024-02-01", "by": []},
            "by names at least one",
        ),
        (
            {"kind": "numeric", "min": -1e308, "max": 1e308, "shape": "heaped"},
            "too large or too small",
        ),
        ({"kind": "numeric", "min": 0, "max": 5e-324, "shape": "heaped"}, "too large or too small"),
        ({"kind": "numeric", "min": 0, "max": 5e-324, "shape": "skewed"}, "too large or too small"),
        ({"kind": "numeric", "min": 0, "max": 9, "shape": "skewed", "unit": 1e-320}, "too fine"),
        ({"kind": "numeric", "edges": [0, 1, 2], "unit": 1e-300}, "too fine"),
        ({"kind": "numeric", "edges": [0, 1, 2], "unit": 1e300}, "wider than its whole range"),
    ],
)
def test_hostile_entries_are_one_clear_line(entry, part):
    with pytest.raises(SchemaError) as caught:
        schema_from_json({"x": entry})
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_groups_are_read_either_way():
    listed = {
        "kind": "categorical",
        "values": ["Leeds", "York", "Bath"],
        "groups": ["N", "N", "S"],
        "missing": True,
    }
    named = listed | {"groups": {"S": ["Bath"], "N": ["York", "Leeds"]}}
    one, two = (schema_from_json({"x": entry})["x"] for entry in (listed, named))
    assert one == two
    assert one.group_codes == (0, 0, 1, 2)


def test_dropped_columns_are_read_and_are_no_part_of_the_fingerprint():
    text = {
        "format": "dither-schema-1",
        "attributes": [{"name": "a", "kind": "boolean"}],
        "dropped": {"id": "numbers the rows"},
    }
    schema = schema_from_json(text)
    assert schema.dropped == (("id", "numbers the rows"),)
    assert schema.file_json() == text
    assert schema.fingerprint == schema_from_json({"a": {"kind": "boolean"}}).fingerprint
    for wrong in (["id"], {"id": 5}, {"a": "it is asked"}):
        with pytest.raises(SchemaError):
            schema_from_json(text | {"dropped": wrong})
