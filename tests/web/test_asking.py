"""The form of a question: its address is read into an expression that means what was ticked, whatever the names and values."""

from __future__ import annotations

import pytest

from dither.collector.pages.asking import MAX_BOXES, read_form
from dither.release import Reader
from dither.schema import schema_from_json

SCHEMA = schema_from_json(
    {
        "attributes": [
            {"name": "sex", "kind": "categorical", "values": ["Female", "Male"], "missing": True},
            {
                "name": "age",
                "kind": "numeric",
                "edges": [0, 30, 50, 100],
                "unit": 1,
                "missing": True,
            },
            {"name": 'it\'s "odd" – <b>', "kind": "categorical", "values": ["a'b", 'c"d', "\\"]},
            {"name": "since", "kind": "date", "edges": ["2000-01-01", "2010-01-01", "2020-01-01"]},
            {"name": "class", "kind": "boolean"},
            {"name": "city", "kind": "categorical", "values": [f"City {i}" for i in range(600)]},
        ]
    }
)


@pytest.mark.parametrize(
    ("asked", "where", "given"),
    [
        ([("by", "sex")], None, None),
        ([("w0", "0")], "sex == 'Female'", None),
        ([("w0", "0"), ("w0", "2")], "sex in ['Female', None]", None),
        ([("w1from", "30"), ("w1below", "50")], "age >= 30 and age < 50", None),
        ([("w1from", "30"), ("w1", "3")], "(age >= 30 or age == None)", None),
        ([("g4", "1")], None, "attr['class'] == True"),
        ([("w3from", "2010-01-01")], "since >= '2010-01-01'", None),
        (
            [("w0", "1"), ("where", "age > 4 or age < 2")],
            "sex == 'Male' and (age > 4 or age < 2)",
            None,
        ),
        ([("given", "age > 4")], None, "age > 4"),
        (
            [
                ("w0", "7"),
                ("w99", "1"),
                ("w0", "-1"),
                ("w1", "0"),
                ("nothing", "x"),
                ("w0from", "3"),
            ],
            None,
            None,
        ),
    ],
)
def test_what_is_ticked_is_what_is_asked(
    asked: list[tuple[str, str]], where: str | None, given: str | None
) -> None:
    form = read_form(SCHEMA, asked)
    assert (form.question.where, form.question.given) == (where, given)
    reader = Reader(SCHEMA, {"age": 1.0})
    reader.read(form.question.where)  # and it can be read
    reader.read(form.question.given)


def test_any_name_and_any_value_can_be_asked_for() -> None:
    reader = Reader(SCHEMA)
    for i, attribute in enumerate(SCHEMA):
        for field in (read_form(SCHEMA, []).filters[i],):
            for box in field.boxes[:3]:
                text = read_form(SCHEMA, [(field.name, str(box.code))]).question.where
                node = reader.read(text)
                assert getattr(node, "attribute", None) == attribute.name
                if not attribute.on_line:
                    assert getattr(node, "codes", None) == {box.code}
    for name, written in (
        ("age", "age"),
        ("class", "attr['class']"),
        ("attr", "attr['attr']"),
        ("a b", "attr['a b']"),
        ("é", "attr['é']"),
    ):
        schema = schema_from_json({"attributes": [{"name": name, "kind": "boolean"}]})
        assert read_form(schema, [("w0", "1")]).question.where == f"{written} == True"


def test_the_form_comes_back_as_it_was_filled_in() -> None:
    form = read_form(
        SCHEMA,
        [("by", "age"), ("by", "nowhere"), ("w0", "1"), ("g1below", "50"), ("where", "age > 4")],
    )
    assert (form.by, form.where) == (("age",), "age > 4")
    assert [box.code for box in form.filters[0].boxes if box.ticked] == [1]
    assert form.conditions[1].below == "50"
    assert form.conditions[1].used
    assert not form.filters[1].used
    assert form.filters[5].listed
    assert not form.filters[0].listed
    assert MAX_BOXES < len(form.filters[5].boxes) < 600
    assert form.question.by == ("age", "nowhere"), (
        "an unknown name is for the release to refuse, with a suggestion"
    )
