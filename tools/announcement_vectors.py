"""Golden vectors of a device's input: announcements, values as codes, answers to uploads.

Announcements are text, because some are not JSON, and because a schema's fingerprint is a
hash of its characters: 1 and 1.0 are different labels. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from dither.client.participant import code_of, rounded_code
from dither.mechanisms import GRR, BloomRappor, LocalHash, SetStrategy, SquareWave, oue
from dither.reports import limits
from dither.reports.codec import ACCEPTED, FINAL, PROBLEM_TYPE, verdict
from dither.reports.plan import Plan, Question
from dither.schema import Attribute, Impossible, Schema

Case = dict[str, Any]
Json = dict[str, Any]
_CAMPAIGN = bytes(range(16)).hex()
_SMALL = Schema(
    (Attribute("a", "categorical", ("x", "y", "z")), Attribute("b", "boolean", (False, True)))
)
_ODD = Schema(
    (
        Attribute("constructor", "categorical", ("toString", "__proto__", 'é "\\\n\x7f\u2028')),
        Attribute(
            "__proto__", "ordinal", (0, 1.0, -2.5, 1e16, 1e-07, 3e22, 123456789.125), missing=True
        ),
        Attribute("größe ☃ 𝄞", "numeric", edges=(-0.0, 1e-05, 0.1, 2, 1e21, 1.5e300)),
        Attribute("hasOwnProperty", "boolean", (False, True), missing=True),
    )
)

_CITIES = Attribute(
    "city",
    "categorical",
    ("Leeds", "York", "Bath", "Exeter"),
    missing=True,
    groups=("N", "N", "S", "S"),
)
_LINES = Schema(
    (
        Attribute("price", "numeric", edges=(0.0, 5.0, 100.0), atoms=(0.0, 4.99, 250.0), unit=0.01),
        Attribute("day", "date", edges=(19723.0, 19754.0, 19783.0), cycles=("weekday",)),
        Attribute(
            "at",
            "datetime",
            edges=(1704067200.0, 1706745600.0),
            cycles=("weekday", "hour"),
            missing=True,
        ),
        Attribute("stay", "duration", edges=(0.0, 60.0, 3600.0), atoms=(0.0,)),
        _CITIES,
    ),
    (Impossible((("city", ("York",)), ("stay", (0.0,)))),),
)


_PAY = Schema(
    (
        Attribute("pay", "numeric", edges=(0.0, 10.0, 250.0), clip=True),
        Attribute(
            "stay",
            "duration",
            edges=(0.0, 60.0, 3600.0),
            atoms=(-5.0, 7200.0),
            clip=True,
            missing=True,
        ),
        Attribute("change", "numeric", edges=(-1e300, 0.1, 1.7)),
    )
)


def announcements() -> Iterator[Case]:
    """Valid announcements, and invalid ones that differ in one respect, with the reason."""
    for schema, plan in _answered():
        body = _announce(schema, plan)
        yield {
            "kind": "announcement",
            "text": json.dumps(body),
            "fingerprint": schema.fingerprint,
            "epsilon": 0.0 if plan is None else plan.epsilon,
        }
    told = [
        {"name": "tax office", "edges": [0, 10.0, 250.0]},
        {"name": "é ☃", "edges": [0.0, 1.0], "epsilon": 0.5},
    ]
    for consumers in (None, [], told):
        yield {
            "kind": "announcement",
            "text": json.dumps(_announce(_PAY, _pay_plan()) | {"consumers": consumers}),
            "fingerprint": _PAY.fingerprint,
            "epsilon": _pay_plan().epsilon,
        }
    base = _announce(_SMALL, _small_plan())
    for why, change in (
        *_wrong_frames(),
        *_wrong_schemas(),
        *_wrong_lines(),
        *_wrong_plans(),
        *_reshaped_twice(),
        *_wrong_numbers(),
        *_bombs(),
    ):
        yield {"kind": "refuse-announcement", "why": why, "text": json.dumps(base | change)}
    for why, text in _wrong_texts(json.dumps(base)):
        yield {"kind": "refuse-announcement", "why": why, "text": text}


def codes() -> Iterator[Case]:
    """Values and their codes; the code is null outside the domain. A value may be absent."""
    for attribute, listed in (
        (
            Attribute("a", "categorical", ("x", "", "constructor")),
            [("x", 0), ("", 1), ("constructor", 2), ("X", None)],
        ),
        (
            Attribute("a", "ordinal", (1, 2.5, "1")),
            [(1, 0), (1.0, 0), (2.5, 1), ("1", 2), (2, None), ("2.5", None)],
        ),
        (
            Attribute("a", "categorical", ("x", "y"), missing=True),
            [(None, 2), ("z", None), (0, None), ([], None)],
        ),
        (
            Attribute("a", "boolean", (False, True)),
            [(False, 0), (True, 1), ("true", None), (None, None), ({}, None)],
        ),
        # 1 and 0 are true and false, as they are in tables; no other number is, and no text.
        (
            Attribute("a", "boolean", (False, True), missing=True),
            [(0, 0), (1, 1), (1.0, 1), (2, None), (0.5, None), ("1", None), ("", None)],
        ),
        (
            Attribute("a", "categorical", (0, 1, "1")),
            [(False, 0), (True, 1), (1, 1), ("1", 2), ("true", None)],
        ),
        (
            Attribute("a", "categorical", (True, "x", False)),
            [(1, 0), (0, 2), (True, 0), (False, 2), ("x", 1)],
        ),
        (
            Attribute("a", "numeric", edges=(0.0, 1.0, 5.0, 9.0)),
            [
                (0, 0),
                (0.99, 0),
                (1, 1),
                (5, 2),
                (9, 2),
                (-0.1, None),
                (9.1, None),
                ("1", None),
                (True, None),
                (1e300, None),
            ],
        ),
        (
            Attribute("a", "numeric", edges=(0.0, 1.0, 2.0), missing=True),
            [(None, 2), (1.5, 1), (3, None), ([1], None)],
        ),
        *(
            (attribute, _on_line(attribute))
            for attribute in (*_LINES.attributes[:4], *_PAY.attributes)
        ),
    ):
        for value, code in listed:
            yield {"kind": "code", "attribute": attribute.to_json(), "value": value, "code": code}


_MOMENTS = (
    *(
        "2024-01-01",
        "2024-01-31",
        "2024-02-01",
        "2024-02-29",
        "2024-02-30",
        "2024-03-01",
        "2023-12-31",
        "2024-1-1",
        "20240101",
    ),
    *(
        "2024-01-15T00:00:00",
        "2024-01-15 23:59:59.999999",
        "2024-01-15T12:30",
        "2024-01-15T12:30Z",
        "2024-01-15T24:00:00",
    ),
    *(
        "2024-01-15T12:30:00+02:00",
        "2024-01-31T23:30:00-01:00",
        "2024-01-15T12:61:00",
        "2024-01-15T12",
        "2024-01-15T12:30:60",
    ),
    *(
        "0000-01-01",
        "0001-01-01T00:00:00+01:00",
        "2024-01-15T12:30:00+24:00",
        "2024-01-15T12:30:00.1234567",
        "",
        "now",
        19723,
        None,
    ),
)
_NUMBERS = (
    0,
    0.001,
    4.98,
    4.99,
    4.991,
    5,
    59.9,
    60,
    100,
    100.5,
    250,
    249.9,
    3600,
    3601,
    -1,
    "0",
    True,
    None,
)


def _on_line(attribute: Attribute) -> list[tuple[object, int | None]]:
    """Values with their code; tests compare the codes with those of whole tables."""
    moments = attribute.kind in ("date", "datetime")
    return [(value, code_of(attribute, value)) for value in (_MOMENTS if moments else _NUMBERS)]


def cells() -> Iterator[Case]:
    """The cell of a question about groups of values, for every code."""
    questions = [
        Question(("city",), GRR.for_epsilon(3, 1.0), ("city",)),
        Question(("stay", "city"), GRR.for_epsilon(9, 1.0), ("city",)),
        Question(("city", "stay"), GRR.for_epsilon(15, 1.0)),
    ]
    for question in questions:
        for code in range(_CITIES.cardinality):
            cell = question.cell(_LINES, [0, 0, 0, 2, code])
            codes_by_name = {"stay": 2, "city": code}
            yield {
                "kind": "cell",
                "attributes": [_LINES[name].to_json() for name in ("stay", "city")],
                "question": question.to_json(),
                "codes": codes_by_name,
                "cell": cell,
            }


def levels() -> Iterator[Case]:
    """Numbers, 32-bit draws and the rounded level; the level is null outside the domain."""
    grid = Attribute("a", "numeric", edges=(-7.3, 0.1, 12.9))
    values = (
        -7.3,
        12.9,
        0,
        0.1,
        1 / 3,
        12.899999999999999,
        -7.300000000000001,
        13,
        1e300,
        "0",
        True,
        None,
    )
    for attribute in (grid, Attribute("a", "numeric", edges=grid.edges, clip=True), _PAY["change"]):
        for count in (2, 257):
            for i, value in enumerate(values):
                draw = (0, 2**32 - 1, 2**31, 1_234_567_891)[(i + count) % 4]
                level = rounded_code(attribute, value, count, draw)
                yield {
                    "kind": "level",
                    "attribute": attribute.to_json(),
                    "value": value,
                    "levels": count,
                    "draw": draw,
                    "level": level,
                }


def verdicts() -> Iterator[Case]:
    """Answers to an upload and the resulting state of its report."""
    page, plain = "<html>", "application/json"
    listed: list[tuple[int, str, str]] = [
        *(
            (status, plain, json.dumps({"results": [result]}))
            for status in (200, 201)
            for result in ACCEPTED
        ),
        *((status, plain, '{"results":["stored"]}') for status in (202, 204, 301, 302, 404, 500)),
        *(
            (status, "text/html", page)
            for status in (200, 201, 301, 302, 400, 401, 403, 404, 409, 413, 429, 502, 503)
        ),
        *(
            (200, plain, body)
            for body in (
                "",
                "{}",
                "[]",
                "null",
                '"stored"',
                '{"results":[]}',
                '{"results":"stored"}',
            )
        ),
        *(
            (201, plain, json.dumps({"results": r}))
            for r in (["conflict"], ["stored", "stored"], [["stored"]], [None])
        ),
    ]
    for cause in (
        *FINAL,
        "not-found",
        "no-campaign",
        "round-not-open",
        "wrong-state",
        "unauthorised",
        "overloaded",
        "new",
    ):
        body = json.dumps({"type": f"urn:dither:problem:{cause}", "title": "why"})
        listed += [
            (409, PROBLEM_TYPE, body),
            (422, f"{PROBLEM_TYPE.upper()} ; charset=utf-8", body),
            (409, plain, body),
        ]
        listed += [(503, PROBLEM_TYPE, body), (302, PROBLEM_TYPE, body), (200, PROBLEM_TYPE, body)]
    listed += [
        (409, PROBLEM_TYPE, json.dumps({"type": kind}))
        for kind in ("conflict", "about:blank", 5, None, ["conflict"])
    ]
    for status, content_type, body in listed:
        means = verdict(status, content_type, body.encode())
        yield {
            "kind": "verdict",
            "status": status,
            "content_type": content_type,
            "body": body,
            "means": means,
        }


def _announce(schema: Schema, plan: Plan | None) -> Json:
    return {
        "format": "dither-campaign-1",
        "campaign": _CAMPAIGN,
        "name": "",
        "state": "open" if plan else "collected",
        "epsilon": 1.0,
        "participation": "open",
        "schema": schema.to_json(),
        "schema_fingerprint": schema.fingerprint,
        "start": 0.0,
        "plan": None if plan is None else plan.to_json(),
    }


def _small_plan() -> Plan:
    a, b = Question(("a",), oue(3, 1.0)), Question(("b",), GRR.for_epsilon(2, 1.0))
    return Plan(0, (a, b, Question(("a", "b"), oue(6, 1.0))), (0.2, 0.5, 0.3))


def _answered() -> Iterator[tuple[Schema, Plan | None]]:
    yield _SMALL, _small_plan()
    yield _SMALL, None
    odd = [Question((name,), LocalHash.for_epsilon(_ODD.cells([name]), 0.2)) for name in _ODD.names]
    yield _ODD, Plan(65535, tuple(odd), split=True, population=0.5, tally="patterns")
    lines = [Question((name,), oue(_LINES.cells([name]), 0.1)) for name in _LINES.names]
    yield (
        _LINES,
        Plan(
            0,
            (*lines, Question(("city", "stay"), oue(9, 0.5), ("city",))),
            (0.2, 0.2, 0.2, 0.2, 0.1, 0.1),
        ),
    )
    yield _SMALL, Plan(1, (Question(("a",), BloomRappor.for_epsilon(3, 1.0, 65, 6)),), (1.0,))
    yield _PAY, _pay_plan()
    # Python sorts these names by code points, JavaScript by default by UTF-16 code units.
    wide = tuple(Attribute(name, "boolean", (False, True)) for name in ("\uff5e", "\U0001f600"))
    tied = Schema(wide, (Impossible((("\uff5e", (True,)), ("\U0001f600", (True,)))),))
    yield tied, Plan(0, (Question(("\uff5e",), GRR.for_epsilon(2, 1.0)),), (1.0,))


def _pay_plan() -> Plan:
    """One number through sets, through waves and rounded."""
    pay, stay = ("pay",), ("stay",)
    asked = (
        Question(pay, SetStrategy.for_epsilon(2, [1, 2], [0.25, 0.25], 0.9)),
        Question(stay, SquareWave.for_epsilon(_PAY.cells(stay), 0.9)),
        Question(pay, GRR.for_epsilon(2, 1.0), rounded=True),
        Question(("change",), SquareWave.for_epsilon(257, 0.8), rounded=True),
    )
    return Plan(0, asked, (0.25, 0.25, 0.25, 0.25))


def _wrong_frames() -> Iterator[tuple[str, Json]]:
    yield from (
        ("spends more than it announces", {"epsilon": 0.5}),
        ("announces text as epsilon", {"epsilon": "9"}),
        ("announces true as epsilon", {"epsilon": True}),
        ("announces no epsilon", {"epsilon": None}),
        ("another format", {"format": "dither-campaign-0"}),
        ("no campaign", {"campaign": "00"}),
        ("a campaign in capitals", {"campaign": _CAMPAIGN.upper()}),
        ("a number as campaign", {"campaign": 0}),
        ("an unknown state", {"state": "ajar"}),
        ("a list as state", {"state": ["open"]}),
        ("a number as name", {"name": 5}),
        ("an unknown way to take part", {"participation": "forced"}),
        ("starts beyond the end", {"start": 1.0}),
        ("starts before the beginning", {"start": -0.1}),
        ("starts at a text", {"start": "0"}),
        ("a plan that is text", {"plan": "plan"}),
        ("a plan that is a list", {"plan": []}),
        ("a plan that is false", {"plan": False}),
    )


def _wrong_schemas() -> Iterator[tuple[str, Json]]:
    """Schemas that do not have their fingerprint: another form, or another schema."""
    other = Schema((Attribute("a", "categorical", ("x", "y", "w")), _SMALL.attributes[1]))
    written = _SMALL.to_json()
    a, b = written["attributes"]

    def schema(*attributes: Any, **more: Any) -> Json:
        return {"schema": written | {"attributes": list(attributes)} | more}

    yield from (
        ("another schema's fingerprint", {"schema_fingerprint": other.fingerprint}),
        ("a fingerprint in capitals", {"schema_fingerprint": _SMALL.fingerprint.upper()}),
        ("no fingerprint", {"schema_fingerprint": None}),
        ("another schema", {"schema": other.to_json()}),
        ("no schema", {"schema": None}),
        ("a schema of another format", schema(a, b, format="dither-schema-0")),
        ("a schema with more to it", schema(a, b, more=1)),
        ("a schema without attributes", schema()),
        ("an attribute that is text", schema("a", b)),
        ("an attribute with more to it", schema(a | {"more": 1}, b)),
        ("an attribute that says missing is false", schema(a | {"missing": False}, b)),
        ("an attribute of another kind", schema(a | {"kind": "secret"}, b)),
        ("an attribute without a name", schema(a | {"name": ""}, b)),
        ("an attribute of one value", schema(a | {"values": ["x"]}, b)),
        ("a value twice", schema(a | {"values": ["x", "y", "x"]}, b)),
        ("a value that is a list", schema(a | {"values": ["x", "y", []]}, b)),
        ("values that are text", schema(a | {"values": "xyz"}, b)),
        ("one name twice", schema(a, b | {"name": "a"})),
        (
            "edges that do not rise",
            schema(a, {"name": "b", "kind": "numeric", "edges": [0.0, 0.0, 1.0]}),
        ),
        (
            "edges that are text",
            schema(a, {"name": "b", "kind": "numeric", "edges": ["0", "1", "2"]}),
        ),
        (
            "bins instead of edges",
            schema(a, {"name": "b", "kind": "numeric", "min": 0.0, "max": 1.0, "bins": 2}),
        ),
        (
            "thirty million bins",
            schema(a, {"name": "b", "kind": "numeric", "min": 0.0, "max": 1.0, "bins": 30_000_000}),
        ),
    )


def _wrong_lines() -> Iterator[tuple[str, Json]]:
    """Invalid schemas of numbers, times and groups with a correct fingerprint."""
    price, day, at, _, city = _LINES.to_json()["attributes"]
    wrong: list[tuple[str, Json]] = [
        ("atoms that do not rise", price | {"atoms": [4.99, 0.0]}),
        ("atoms that are text", price | {"atoms": ["0"]}),
        ("no atoms, listed", price | {"atoms": []}),
        ("a unit of nothing", price | {"unit": 0.0}),
        ("a unit that is text", price | {"unit": "cent"}),
        ("a number with cycles", price | {"cycles": ["hour"]}),
        ("days that do not rise", day | {"edges": ["2024-02-01", "2024-01-01"]}),
        ("days that are numbers", day | {"edges": [19723.0, 19754.0]}),
        ("a day that is none", day | {"edges": ["2024-01-01", "2024-02-30"]}),
        ("a day in another form", day | {"edges": ["2024-01-01", "2024-02-01T00:00:00"]}),
        ("hours of a day without any", day | {"cycles": ["hour"]}),
        ("a cycle twice", at | {"cycles": ["hour", "hour"]}),
        ("a cycle that is none", at | {"cycles": ["moon"]}),
        ("a date with atoms", day | {"atoms": [19723.0]}),
        ("too few groups", city | {"groups": ["N", "S"]}),
        ("one group", city | {"groups": ["N"] * 4}),
        ("groups that are numbers", city | {"groups": [1, 1, 2, 2]}),
    ]
    for why, attribute in wrong:
        schema = {"format": "dither-schema-1", "attributes": [attribute]}
        text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
        yield (
            why,
            {
                "schema": schema,
                "schema_fingerprint": hashlib.sha256(text.encode()).hexdigest(),
                "plan": None,
            },
        )
    plan = Plan(0, (Question(("city",), oue(3, 0.5), ("city",)),), (1.0,)).to_json()
    asked = plan["questions"][0]
    lines = {"schema": _LINES.to_json(), "schema_fingerprint": _LINES.fingerprint}
    for why, change in (
        ("groups of what has none", {"attributes": ["day"], "grouped": ["day"]}),
        ("groups of what is not asked", {"grouped": ["price"]}),
        ("groups of nothing", {"grouped": []}),
        ("groups that are text", {"grouped": "city"}),
        ("as many cells as values", {"mechanism": oue(5, 0.5).to_json()}),
    ):
        yield why, lines | {"plan": plan | {"questions": [asked | change]}}


def _wrong_plans() -> Iterator[tuple[str, Json]]:
    plan = _small_plan().to_json()
    question = {"attributes": ["a"], "mechanism": oue(3, 1.0).to_json()}
    split = plan | {"shares": [], "split": True}

    def asking(*changed: Json, **more: Any) -> Json:
        shares = [1.0] + [0.0] * (len(changed) - 1)
        return {"plan": plan | {"questions": list(changed), "shares": shares} | more}

    def mechanism(**change: Any) -> Json:
        return asking(question | {"mechanism": question["mechanism"] | change})  # type: ignore[operator]

    yield from (
        ("asks about what the schema lacks", asking(question | {"attributes": ["c"]})),
        ("asks about what every object has", asking(question | {"attributes": ["constructor"]})),
        ("asks about nothing", asking(question | {"attributes": []})),
        ("asks about a text", asking(question | {"attributes": "a"})),
        ("asks about a number", asking(question | {"attributes": [0]})),
        (
            "asks the same attribute twice in one question",
            asking(question | {"attributes": ["a", "a"]}),
        ),
        ("has another number of cells than the schema", asking(question | {"attributes": ["b"]})),
        ("shares that do not add up", {"plan": plan | {"shares": [0.5, 0.5, 0.5]}}),
        ("a negative share", {"plan": plan | {"shares": [1.5, -0.5, 0.0]}}),
        ("shares that are text", {"plan": plan | {"shares": ["0.2", "0.5", "0.3"]}}),
        ("too few shares", {"plan": plan | {"shares": [1.0]}}),
        ("shares and split", {"plan": plan | {"split": True}}),
        ("split that is a number", {"plan": split | {"split": 1}}),
        ("no question", {"plan": plan | {"questions": [], "shares": []}}),
        ("questions that are no list", {"plan": plan | {"questions": {"length": 3}}}),
        ("nobody asked", {"plan": plan | {"population": 0.0}}),
        ("more than everybody asked", {"plan": plan | {"population": 1.5}}),
        ("a text as population", {"plan": plan | {"population": "1"}}),
        ("an unknown tally", {"plan": split | {"tally": "secrets"}}),
        (
            "bits of several questions in one report that has one",
            {"plan": plan | {"tally": "gram"}},
        ),
        *(
            (f"round {number!r}", {"plan": plan | {"round": number}})
            for number in (-1, limits.MAX_ROUNDS, 2**32, 0.5, "0", True, None)
        ),
        ("no round", {"plan": {key: value for key, value in plan.items() if key != "round"}}),
        *(
            (f"draws of {bits!r} bits", mechanism(threshold_bits=bits))
            for bits in (0, 7, 12, 56, 64, -8, "32", 10**12)
        ),
        ("cells beyond what a browser counts", mechanism(cells=2**53)),
        ("negative thresholds", mechanism(other_set=-1)),
        ("a threshold that is text", mechanism(other_set="1")),
        ("a threshold that is true", mechanism(other_set=True)),
        ("a mechanism that is text", asking(question | {"mechanism": "oue"})),
        ("no mechanism", asking({"attributes": ["a"]})),
    )


def _reshaped_twice() -> Iterator[tuple[str, Json]]:
    """Split plans that round or group an attribute and ask it twice; each question alone is valid."""
    pay_rounded = Question(("pay",), GRR.for_epsilon(257, 0.1), rounded=True)
    pay_and_change = Question(
        ("pay", "change"), GRR.for_epsilon(_PAY.cells(["pay", "change"]), 0.1)
    )
    city_grouped = Question(("city",), GRR.for_epsilon(3, 0.1), ("city",))
    city_and_stay = Question(("city", "stay"), GRR.for_epsilon(_LINES.cells(["city", "stay"]), 0.1))
    both_grouped = Question(("city", "stay"), GRR.for_epsilon(9, 0.1), ("city",))
    for why, schema, questions in (
        ("rounds a number and asks it with another", _PAY, (pay_rounded, pay_and_change)),
        ("asks a number with another and rounds it", _PAY, (pay_and_change, pay_rounded)),
        ("asks an attribute in groups and with another", _LINES, (city_grouped, city_and_stay)),
        ("asks an attribute in groups, twice", _LINES, (city_grouped, both_grouped)),
    ):
        plan = Plan(0, questions[:1], split=True).to_json()
        plan["questions"] = [question.to_json() for question in questions]
        yield why, _announce(schema, None) | {"state": "open", "plan": plan}


def _wrong_numbers() -> Iterator[tuple[str, Json]]:
    """Plans about numbers that differ in one respect from a valid one."""
    plan = _pay_plan().to_json()
    sets, wave, level, _ = plan["questions"]
    known = {"schema": _PAY.to_json(), "schema_fingerprint": _PAY.fingerprint}

    def asking(question: Json, change: Json, **mechanism: Any) -> Json:
        asked = question | change | {"mechanism": question["mechanism"] | mechanism}
        return known | {"plan": plan | {"questions": [asked], "shares": [1.0]}}

    yield from (
        ("rounds what may be missing", asking(wave, {"rounded": True})),
        ("rounds two numbers", asking(level, {"attributes": ["pay", "change"]})),
        ("rounds groups", asking(level, {"grouped": ["pay"]})),
        ("says that it does not round", asking(level, {"rounded": False})),
        ("rounds a little", asking(level, {"rounded": 1})),
        ("rounds to a single level", asking(level, {}, cells=1)),
        ("a wave as wide as nobody can draw", asking(wave, {}, width=2**52)),
        ("a wave of no width", asking(wave, {}, width=0)),
        ("a wave that is flat", asking(wave, {}, base=2**31)),
        ("a wave of other cells than the schema", asking(wave, {}, cells=9)),
        ("a wave that spends more", asking(wave, {}, base=1)),
        (
            "sets that understate their epsilon",
            asking(sets, {}, high=[2**31, 2**31], low=[2**24, 2**24], rest=[2**31 - 2**24] * 2),
        ),
        ("sets that do not add up", asking(sets, {}, rest=[1, 2])),
        ("sets of other cells than the schema", asking(sets | {"attributes": ["stay"]}, {})),
        ("sets that are a number", asking(sets, {}, sets=3)),
        ("sets in a list of lists", asking(sets, {}, sets=[["1"], ["2"]])),
        ("a cell's draws in a list of lists", asking(sets, {}, rest=[[1], [2]])),
        ("a wave with a list", asking(wave, {}, base=[1])),
        ("a wave with sets", asking(wave, {}, sets=["1"])),
        ("a strategy whose cells are a list", asking(sets, {}, cells=[2])),
    )
    count = limits.MAX_PAIRS // 4096 + 1
    lists = {"sets": ["1"] * count, "high": [2] * count, "low": [1] * count}
    yield "more sets and cells than a device adds up", asking(sets, {}, cells=4096, **lists)
    yield "more cells than sets can be of", asking(sets, {}, cells=2**40)
    fine = {"name": "tax office", "edges": [0.0, 10.0]}
    for why, consumers in (
        ("consumers that are text", "tax office"),
        ("consumers that are an object", {"name": "x"}),
        ("a consumer that is text", ["tax office"]),
        ("a consumer without a name", [{"edges": [0.0, 1.0]}]),
        ("a consumer whose name is a number", [fine | {"name": 5}]),
        ("a consumer with one edge", [fine | {"edges": [0.0]}]),
        ("a consumer whose edges fall", [fine | {"edges": [1.0, 0.0]}]),
        ("a consumer whose edges are text", [fine | {"edges": ["0", "1"]}]),
        ("a consumer with an epsilon of nothing", [fine | {"epsilon": 0.0}]),
        ("a consumer whose epsilon is text", [fine | {"epsilon": "1"}]),
        ("a consumer with more to it", [fine | {"more": 1}]),
    ):
        yield why, known | {"plan": plan, "consumers": consumers}
    clip = _PAY.to_json()["attributes"][0]
    for why, attribute in (
        ("a number that does not clip, written", clip | {"clip": False}),
        ("a number that clips a little", clip | {"clip": 1}),
        ("a label that clips", {"name": "a", "kind": "boolean", "clip": True}),
        (
            "a day that clips",
            {
                "name": "a",
                "kind": "date",
                "edges": ["2024-01-01", "2024-02-01", "2024-03-01"],
                "clip": True,
            },
        ),
    ):
        schema = {"format": "dither-schema-1", "attributes": [attribute]}
        text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
        yield (
            why,
            {
                "schema": schema,
                "schema_fingerprint": hashlib.sha256(text.encode()).hexdigest(),
                "plan": None,
            },
        )


def _bombs() -> Iterator[tuple[str, Json]]:
    """Short announcements that cost much work, or spend more epsilon than they state."""
    sizes = {"n": 300, "m": 300, "k": 150}
    schema = Schema(
        tuple(Attribute(name, "ordinal", tuple(range(size))) for name, size in sizes.items())
    )
    small = Question(("a",), oue(3, 0.1)).to_json()
    plan = _small_plan().to_json()
    known = {"schema": schema.to_json(), "schema_fingerprint": schema.fingerprint}

    def bloom(names: list[str], bits: int, hashes: int, count: int = 1) -> Json:
        usual = BloomRappor(schema.cells(names), 100, 6, 1 << 30).to_json() | {
            "bits": bits,
            "hashes": hashes,
        }
        asked = [{"attributes": names, "mechanism": usual | {"seed": i}} for i in range(count)]
        shares = [1.0] + [0.0] * (count - 1)
        return known | {"epsilon": 1e6, "plan": plan | {"questions": asked, "shares": shares}}

    yield (
        "the same question twice in a split plan",
        {"plan": plan | {"questions": [small] * 2, "shares": [], "split": True}},
    )
    turned = [Question(names, oue(6, 0.1)).to_json() for names in (("a", "b"), ("b", "a"))]
    yield (
        "the same question turned round",
        {"plan": plan | {"questions": turned, "shares": [], "split": True}},
    )
    yield "a filter with all bits but one set", bloom(["n"], 300, 299)
    yield "more hashes than any filter needs", bloom(["n"], 1000, 65)
    yield "filters that take many digests", bloom(["n"], 65, 64, 29)
    yield "filters that take many comparisons", bloom(["n"], 600, 6, 47)
    yield "filters that take much memory", bloom(["n"], 131_072, 7, 8)
    whole, pair, other = (
        Question(names, oue(schema.cells(names), 0.1))
        for names in (("n", "m", "k"), ("n", "m"), ("n", "k"))
    )
    yield "a report too long to send", known | {"plan": Plan(0, (whole,), (1.0,)).to_json()}
    yield (
        "split reports too long to send",
        known | {"plan": Plan(0, (pair, other), split=True).to_json()},
    )


def _wrong_texts(good: str) -> Iterator[tuple[str, str]]:
    yield "no JSON", good[:-1]
    yield "something after the end", good + "x"
    yield "nothing", ""
    yield "null", "null"
    yield "a list", f"[{good}]"
    yield "deep lists", "[" * 20_000
    yield (
        "deep lists in the name",
        good.replace('"name": ""', f'"name": {"[" * 9_000}{"]" * 9_000}'),
    )
    yield "NaN", good.replace('"start": 0.0', '"start": NaN')
    yield "Infinity", good.replace('"epsilon": 1.0', '"epsilon": Infinity')
    yield "a number beyond floats", good.replace('"epsilon": 1.0', '"epsilon": 1e400')
    yield (
        "an integer of five thousand digits",
        good.replace('"epsilon": 1.0', f'"epsilon": {"9" * 5000}'),
    )
    yield "a key twice", good.replace('"epsilon": 1.0', '"epsilon": 1.0, "epsilon": 1.0')
    yield (
        "a key twice, written in two ways",
        good.replace('"epsilon": 1.0', '"epsilon": 1.0, "\\u0065psilon": 2.0'),
    )
    yield "a key twice in a mechanism", good.replace('"cells": 3', '"cells": 3, "cells": 3', 1)
    yield "another number in the schema", good.replace('["x", "y", "z"]', '["x", "y", 1]')
