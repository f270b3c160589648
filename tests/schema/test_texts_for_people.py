"""Questions, help and labels are for people: bounded, kept in files, and nothing to codes, tables or the fingerprint."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from dither.errors import SchemaError
from dither.schema import Schema, load_schema, schema_from_json

BARE: dict[str, Any] = {
    "format": "dither-schema-1",
    "attributes": [
        {"name": "often", "kind": "ordinal", "values": [1, 2, 3], "missing": True},
        {"name": "member", "kind": "boolean"},
        {"name": "age", "kind": "numeric", "edges": [0.0, 50.0, 100.0]},
    ],
}


def told(**by_name: dict[str, Any]) -> Schema:
    entries = [{**entry, **by_name.get(entry["name"], {})} for entry in BARE["attributes"]]
    return schema_from_json({**BARE, "attributes": entries})


def test_they_change_no_fingerprint_and_survive_a_file(tmp_path: Path) -> None:
    bare = schema_from_json(BARE)
    schema = told(
        often={
            "question": "How often?",
            "help": "In a week.\nOr so.",
            "labels": {"1": "never", "3": "<often>"},
        },
        member={"labels": ["No", "Yes"]},
        age={"question": "How old?", "labels": ["young", "old"]},
    )
    assert schema.fingerprint == bare.fingerprint
    assert schema != bare
    (tmp_path / "schema.json").write_text(json.dumps(schema.file_json()))
    assert load_schema(tmp_path / "schema.json") == schema
    assert schema["often"].captions == ("never", "2", "<often>")
    assert schema["member"].captions == ("No", "Yes")
    assert schema["often"].labels == bare["often"].labels == ("1", "2", "3", "(missing)"), (
        "tables have the values"
    )
    assert told(often={"labels": ["a", "b", "c", "no answer"]})["often"].captions[-1] == "no answer"


def test_a_file_of_before_keeps_its_fingerprint() -> None:
    canonical = json.dumps(BARE, sort_keys=True, separators=(",", ":"))
    assert schema_from_json(BARE).fingerprint == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"question": 5}, "question must be text"),
        ({"question": "q" * 501}, "at most 500 characters, not 501"),
        ({"question": "a\nb"}, "one line"),
        ({"help": "a\x1b"}, "control"),
        ({"labels": ["a", "b"]}, "2 labels do not fit its 3 answers"),
        ({"labels": {"4": "four"}}, "no value '4'"),
        ({"labels": "abc"}, "must be a list"),
        ({"labels": ["a", "b", 3]}, "a label must be text"),
    ],
)
def test_wrong_ones_are_named(texts: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError, match=said) as error:
        told(often=texts)
    assert "'often'" in str(error.value)
    assert error.value.where == "often"


def test_answers_on_a_line_are_labelled_in_order() -> None:
    with pytest.raises(SchemaError, match="a list of labels"):
        told(age={"labels": {"[0, 50)": "young"}})
