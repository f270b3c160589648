"""The record of a call: nothing that changes a release is missing from it, and a rerun states all of it."""

from __future__ import annotations

import ast
import inspect
import json
import math
import shlex
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

import dither
from dither.cli import build
from dither.release import Call, call_from_json, campaign_command, command, python_code

CALL = Call(epsilon=2.0, method="mixture", table="adult", simulated=True)
OTHER: dict[str, Any] = {
    "epsilon": 1 / 3,
    "method": "lopub",
    "table": "my people.csv",
    "schema": "a'b.json",
    "population": 50,
    "rows": 7,
    "seed": 11,
    "parameters": {"encoding": "bloom", "flip": None, "bits": 20},
    "path": "reports",
    "unknown": "other",
    "no_privacy": True,
    "holdout": 0.05,
    "replicates": 20,
    "prior": "public.csv",
    "as_published": True,
    "columns": ("a", "b"),
    "drop": ("c",),
    "keep": ("d",),
    "delimiter": ";",
    "encoding": "cp1252",
    "decimal": ",",
    "missing": ("NA", "-"),
    "no_header": True,
    "date_order": "dmy",
}


def test_the_record_has_every_argument_of_publish() -> None:
    arguments = set(inspect.signature(dither.publish).parameters) - {"progress"}
    of_campaigns = {"name", "participants", "participation", "campaign", "created", "finalised"}
    of_campaigns |= {
        "title",
        "purpose",
        "epsilon_reason",
        "contact",
        "closes",
        "closes_at_reports",
        "assignment",
    }
    assert arguments == {f.name for f in fields(Call)} - {"simulated", "record"} - of_campaigns
    assert arguments == set(OTHER)


@pytest.mark.parametrize("name", OTHER)
def test_no_rerun_forgets_an_option(name: str) -> None:
    changed = replace(CALL, **{name: OTHER[name]})
    assert command(changed) != command(CALL)
    assert python_code(changed) != python_code(CALL)
    assert call_from_json(json.loads(json.dumps(changed.to_json()))) == replace(
        changed, epsilon=math.inf if changed.no_privacy else changed.epsilon
    )


@pytest.mark.parametrize("name", OTHER)
def test_the_command_line_knows_every_option_of_a_rerun(name: str) -> None:
    words = shlex.split(command(replace(CALL, **{name: OTHER[name]})))
    group = get_command(build("publish"))
    known = {option for parameter in group.commands["publish"].params for option in parameter.opts}  # type: ignore[attr-defined]
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("name", OTHER)
def test_the_python_code_calls_publish_with_the_same_arguments(name: str) -> None:
    changed = replace(CALL, **{name: OTHER[name]})
    (call,) = [
        n
        for n in ast.walk(ast.parse(python_code(changed)))
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "dither.publish"
    ]
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    inspect.signature(dither.publish).bind(ast.literal_eval(call.args[0]), **given)
    if name == "table":
        assert ast.literal_eval(call.args[0]) == OTHER["table"]
    elif name == "parameters":
        assert given["parameters"] == {"encoding": "bloom", "bits": 20}
    else:
        assert given[name] == OTHER[name]


def test_a_file_whose_name_begins_like_an_option_is_still_a_file() -> None:
    assert shlex.split(command(replace(CALL, table="-odd.csv")))[2] == "./-odd.csv"


def test_a_campaign_is_asked_again_with_its_holdout() -> None:
    create, finalise = campaign_command(
        replace(CALL, holdout=0.05, rows=7, parameters={"total": 200}), 1000
    ).split("\n")
    assert create == (
        "dither campaign create --schema schema.json --epsilon 2 --participants 1000 --method mixture --holdout 0.05 "
        "--assignment token --set total=200"
    )
    assert finalise == "dither campaign finalise CAMPAIGN --rows 7 -o out"


def test_the_same_seed_and_options_give_the_same_release() -> None:
    """What the report claims of a seeded release, with every option that used to be forgotten."""
    first = dither.publish(
        "adult", epsilon=3.0, method="independent", rows=50, seed=3, path="reports", holdout=0.1
    )
    code = python_code(first.call).replace('release.save("out")', "")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["release"].synthetic.equals(first.synthetic)
    assert names["release"].notes == first.notes


@pytest.mark.parametrize("columns", [[" lead"], ["a,b"], ["end "]])
def test_columns_that_the_command_line_cannot_name_are_left_to_python(columns: list[str]) -> None:
    call = {"function": "central_release", "table": "t.parquet", "epsilon": 1.0, "columns": columns}
    assert command(replace(CALL, record=call)) is None
    assert repr(columns) in python_code(replace(CALL, record=call))
    assert (
        command(replace(CALL, record=call | {"columns": ["a"]}))
        == "dither central t.parquet --epsilon 1 --columns a -o out"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (pd.Index(["a", "b"]), ["a", "b"]),
        (pd.Series([0, 2, 4]), [0, 2, 4]),
        (range(0, 101, 50), [0, 50, 100]),
        (np.array([0.5, np.int64(1)]), [0.5, 1.0]),
        (np.float64(0.25), 0.25),
        ({"share": np.float32(0.5)}, {"share": 0.5}),
        ("text", "text"),
    ],
)
def test_columns_of_tables_ranges_and_arrays_are_recorded_as_lists(
    value: object, expected: object
) -> None:
    release = dither.publish("adult", epsilon=1.0, method="independent", columns=["sex"], rows=1)
    noted = replace(release, notes={"value": value})
    found = noted.to_json()["notes"]["value"]
    assert found == expected
    assert json.loads(json.dumps(found)) == expected
