"""A few bytes of an announcement cannot make a device work for long: what is costly is refused before it is built."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.small_collector import SCHEMA, announce, plan

import dither.mechanisms.bloom
import dither.mechanisms.probability
import dither.schema
from dither.client import read_announcement
from dither.errors import DitherError, ParameterError, SchemaError
from dither.mechanisms import (
    GRR,
    BloomRappor,
    SetStrategy,
    SubsetSelection,
    mechanism_from_json,
    oue,
)
from dither.reports import Plan, Question, limits, plan_from_json
from dither.schema import Attribute, Schema, numeric, schema_from_json


def refused(body: dict[str, Any] | str, said: str = ".") -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    with pytest.raises(DitherError, match=said) as error:
        read_announcement(text.encode())
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


def bloom(cells: int, bits: int, hashes: int, count: int = 1) -> tuple[Schema, dict[str, Any]]:
    """A plan of Bloom questions, each about an attribute of its own."""
    schema = Schema(tuple(Attribute(f"a{i}", "ordinal", tuple(range(cells))) for i in range(count)))
    usual = BloomRappor(cells, 100, 6, 2**30).to_json() | {"bits": bits, "hashes": hashes}
    asked = [{"attributes": [f"a{i}"], "mechanism": usual | {"seed": i}} for i in range(count)]
    shares = [1.0] + [0.0] * (count - 1)
    return schema, {
        "round": 0,
        "questions": asked,
        "shares": shares,
        "split": False,
        "population": 1.0,
        "tally": "counts",
    }


@pytest.mark.parametrize(
    ("cells", "bits", "hashes", "count"),
    [
        (3, 65, 64, 2900),
        (65536, 65, 64, 1),
        (65536, 129, 64, 1),
        (4096, 8, 6, 65),
        (1024, 80, 6, 5),
        (100, 80, 79, 1),
        (3000, 131_072, 64, 1),
        (16, 131_072, 7, 200),
    ],
)
def test_bloom_filters_are_counted_before_they_are_built(
    monkeypatch: pytest.MonkeyPatch, cells: int, bits: int, hashes: int, count: int
) -> None:
    schema, asked = bloom(cells, bits, hashes, count)
    body = announce(plan(), schema, epsilon=1e9) | {"plan": asked}
    digests, sha256 = 0, hashlib.sha256

    def counted(data: bytes) -> Any:
        nonlocal digests
        digests += 1
        return sha256(data)

    monkeypatch.setattr(dither.mechanisms.bloom.hashlib, "sha256", counted)
    refused(body, "Bloom|too much work")
    assert digests <= 1, "the schema's fingerprint, no filter"


def test_reasonable_bloom_filters_are_answered() -> None:
    schema, asked = bloom(40, 317, 6, 20)
    read_announcement(json.dumps(announce(plan(), schema, epsilon=1e9) | {"plan": asked}).encode())


@pytest.mark.parametrize(
    ("cells", "count", "said"),
    [
        (4096, 513, "too much work"),
        (4096, 300, "too much work"),
        (2**52, 600, "too much work"),
        (4097, 1, "4,097 cells"),
    ],
)
def test_sets_that_are_too_much_work_are_refused_before_anything_is_built_of_them(
    monkeypatch: pytest.MonkeyPatch, cells: int, count: int, said: str
) -> None:
    built = 0

    def counted(*arguments: object) -> None:
        nonlocal built
        built += 1

    monkeypatch.setattr(SetStrategy, "column", counted)
    asked = plan(names=("colour",)).to_json()
    lists = {"sets": ["1"] * count, "high": [2] * count, "low": [1] * count, "rest": [1]}
    mechanism = {"name": "strategy", "cells": cells, **lists, "threshold_bits": 32}
    mechanisms = [
        mechanism | {"rest": [1, i]} for i in range(2 if count == 300 else 1)
    ]  # of which one would do
    asked["questions"] = [{"attributes": ["colour"], "mechanism": m} for m in mechanisms]
    asked["shares"] = [1.0] + [0.0] * (len(mechanisms) - 1)
    refused(announce(plan()) | {"plan": asked}, said)
    assert built == 0


def test_the_largest_sets_are_checked_in_no_time_and_a_mask_of_a_million_bits_is_refused() -> None:
    cells, count = 2048, limits.MAX_PAIRS // 2048
    low = 2**20
    strategy = SetStrategy(
        cells, (1,) * count, (low,) * count, (low,) * count, (2**32 - count * low,) * cells
    )
    data = strategy.to_json()
    started = time.process_time()
    assert mechanism_from_json(data) == strategy
    assert time.process_time() - started < 10
    refused_sets = data | {"sets": ["f" * 1_000_000] + ["1"] * (count - 1)}
    with pytest.raises(DitherError):
        mechanism_from_json(refused_sets)


def test_many_different_mechanisms_are_refused_before_their_epsilon_is_worked_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = plan(names=("colour",)).to_json()
    mechanisms = [
        GRR(3, 1 << 20).to_json() | {"other": (1 << 20) + i}
        for i in range(limits.MAX_MECHANISMS + 1)
    ]
    asked["questions"] = [{"attributes": ["colour"], "mechanism": m} for m in mechanisms]
    asked["shares"] = [1.0] + [0.0] * (len(mechanisms) - 1)
    worked = 0

    def log_up(*arguments: object) -> float:
        nonlocal worked
        worked += 1
        return 0.0

    monkeypatch.setattr("dither.mechanisms.base.log_up", log_up)
    refused(announce(plan()) | {"plan": asked}, "different mechanisms")
    assert worked == 0
    same = asked | {"questions": [asked["questions"][0]] * 2000, "shares": asked["shares"][:2000]}
    read_announcement(json.dumps(announce(plan()) | {"plan": same}).encode())
    assert worked == 1, "equal mechanisms are worked out once"


def test_bins_are_bounded_before_edges_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built = 0
    real = dither.schema.Attribute.__post_init__

    def counted(self: Attribute) -> None:
        nonlocal built
        built += len(self.edges)
        real(self)

    monkeypatch.setattr(dither.schema.Attribute, "__post_init__", counted)
    one = {"kind": "numeric", "min": 0.0, "max": 1.0, "bins": 30_000_000}
    with pytest.raises(SchemaError, match="'salary' has 30,000,000 values or bins"):
        schema_from_json({"salary": one})
    assert built == 0
    many = {f"a{i}": one | {"bins": 65_536} for i in range(4000)}
    with pytest.raises(SchemaError, match="in total"):
        schema_from_json(many)
    assert built < 2 << 20
    with pytest.raises(SchemaError, match="attributes is too wide"):
        schema_from_json({f"a{i}": {"kind": "boolean"} for i in range(4097)})


def test_the_bounds_of_a_schema_hold_at_the_bound() -> None:
    assert numeric("a", low=0.0, high=1.0, bins=131_072).answers == 131_072
    assert Attribute("a", "ordinal", tuple(range(131_072))).answers == 131_072
    for wrong in (tuple(range(131_073)), ()):
        with pytest.raises(SchemaError):
            Attribute("a", "ordinal", wrong)
    with pytest.raises(SchemaError, match="131,073"):
        Attribute("a", "numeric", edges=tuple(float(i) for i in range(131_074)))
    for bound in (10**400, -(10**400), math.inf, math.nan):
        with pytest.raises(SchemaError):
            numeric("a", low=0, high=bound)
        with pytest.raises(SchemaError):
            Attribute("a", "numeric", edges=(0.0, bound))


@pytest.mark.parametrize("number", [-1, limits.MAX_ROUNDS, 10**18, 1.0, "1", True, None])
def test_a_round_is_a_number_that_fits_the_wire(number: Any) -> None:
    refused(announce(plan()) | {"plan": plan().to_json() | {"round": number}})
    with pytest.raises(ParameterError):
        Plan(number, plan().questions, plan().shares)


def test_a_split_plan_asks_nothing_twice() -> None:
    a, b = Question(("a", "b"), oue(4, 0.1)), Question(("b", "a"), oue(4, 0.1))
    with pytest.raises(ParameterError, match="twice"):
        Plan(0, (a, b), split=True)
    body = announce(plan(epsilon=0.1, split=True, shares=()))
    body["plan"]["questions"].append(body["plan"]["questions"][0])
    refused(body, "twice")
    assert Plan(0, (a, a), (0.5, 0.5)).epsilon == a.mechanism.epsilon, (
        "nobody answers two questions of this one"
    )


def test_a_split_plan_has_one_allowance_of_randomness() -> None:
    schema = Schema(tuple(Attribute(name, "ordinal", tuple(range(65_536))) for name in ("a", "b")))
    each = [Question((name,), SubsetSelection.for_epsilon(65_536, 0.5)) for name in schema.names]
    assert sum(q.mechanism.report_bytes for q in each) == limits.REPORT_BYTES, (
        "the report could be sent"
    )
    read_announcement(json.dumps(announce(Plan(0, tuple(each), (0.5, 0.5)), schema)).encode())
    refused(announce(Plan(0, tuple(each), split=True), schema), "too large for a device")


@pytest.mark.parametrize("bits", [0, 7, 9, 12, 56, 64, -8, 8.0, "32", 10**12])
def test_draws_have_one_of_the_known_widths(bits: Any) -> None:
    body = announce(plan())
    body["plan"]["questions"][0]["mechanism"]["threshold_bits"] = bits
    refused(body)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 200_000, "not an announcement"),
        ('{"a":' * 200_000, "not an announcement"),
        ("NaN", "NaN"),
        ('{"format": ' + "9" * 5000 + "}", "not an announcement"),
        ('{"format": "dither-campaign-1", "format": "dither-campaign-1"}', "same key twice"),
        ("\xff", "not an announcement"),
        ("", "not an announcement"),
    ],
)
def test_text_that_is_a_trap_is_refused(text: str, said: str) -> None:
    with pytest.raises(DitherError, match=said) as error:
        read_announcement(text.encode("latin-1"))
    assert len(str(error.value)) < 500


def with_text(old: str, new: str) -> str:
    text = json.dumps(announce(plan()))
    assert text.count(old) >= 1
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"epsilon": 2.0', '"epsilon": Infinity'),
        ('"epsilon": 2.0', '"epsilon": 1e400'),
        ('"epsilon": 2.0', '"epsilon": "9"'),
        ('"epsilon": 2.0', '"epsilon": true'),
        ('"epsilon": 2.0', '"epsilon": 2.0, "epsilon": 2.0'),
        ('"start": 0.0', '"start": "0"'),
        ('"start": 0.0', '"start": -1e-9'),
        ('"population": 1.0', '"population": "1"'),
        ('"population": 1.0', '"population": 1.0000001'),
        ('"population": 1.0', '"population": NaN'),
        ('"split": false', '"split": "no"'),
        ('"split": false', '"split": 0'),
        ('"tally": "counts"', '"tally": "secrets"'),
        ('"shares": [0.3333333333333333', '"shares": ["0.3333333333333333"'),
        ('"name": "n"', '"name": 5'),
        ('"participation": "open"', '"participation": "forced"'),
        ('"attributes": ["colour"]', '"attributes": "colour"'),
        ('"cells": 3', '"cells": true'),
        ('"cells": 3', '"cells": 3.0'),
        ('"cells": 3', '"cells": 9007199254740993'),
        ('"campaign": "0f', '"campaign": "0F'),
        ('"kind": "numeric"', '"missing": false, "kind": "numeric"'),
    ],
)
def test_what_is_not_what_it_should_be_is_refused(old: str, new: str) -> None:
    refused(with_text(old, new))


def test_a_schema_that_only_states_bins_is_not_announced() -> None:
    schema = Schema((numeric("a", low=0.0, high=4.0, bins=4),))
    asked = Plan(0, (Question(("a",), oue(4, 1.0)),), (1.0,))
    body = announce(asked, schema)
    read_announcement(json.dumps(body).encode())
    short = {
        "format": "dither-schema-1",
        "attributes": [{"name": "a", "kind": "numeric", "min": 0.0, "max": 4.0, "bins": 4}],
    }
    assert schema_from_json(short).fingerprint == schema.fingerprint
    refused(body | {"schema": short}, "canonical")


def test_a_question_about_many_attributes_is_bounded() -> None:
    schema = Schema(tuple(Attribute(f"a{i}", "boolean", (False, True)) for i in range(4096)))
    asked = {
        "attributes": list(schema.names),
        "mechanism": oue(4, 1.0).to_json() | {"cells": 2**31},
    }
    body = announce(plan(), schema)
    refused(
        body | {"plan": plan().to_json() | {"questions": [asked], "shares": [1.0]}},
        "does not fit the schema",
    )


def test_plans_read_elsewhere_are_as_strict() -> None:
    good = plan().to_json()
    assert plan_from_json(good) == plan()
    for wrong in (
        None,
        [],
        {},
        good | {"questions": {}},
        good | {"shares": "1"},
        good | {"population": 10**400},
    ):
        with pytest.raises(DitherError):
            plan_from_json(wrong)
    assert SCHEMA.cells(["colour"]) == 3


def repeated_names(size: int) -> dict[str, Any]:
    asked = {
        "attributes": ["a"] * size + ["b"],
        "grouped": ["b"] * size,
        "mechanism": GRR.for_epsilon(3, 1.0).to_json(),
    }
    whole = plan().to_json() | {"questions": [asked], "shares": [1.0]}
    return announce(plan()) | {"plan": whole}


def with_attribute(**entry: Any) -> dict[str, Any]:
    schema = {
        "format": "dither-schema-1",
        "attributes": [{"name": "a", "kind": "categorical", **entry}],
    }
    return announce(plan()) | {"schema": schema}


def mapped_groups(size: int) -> dict[str, Any]:
    return with_attribute(values=list(range(size)), groups={"g": list(range(size))})


def mapped_labels(size: int) -> dict[str, Any]:
    return with_attribute(
        values=[str(i) for i in range(size)], labels={f"-{i}": "l" for i in range(size)}
    )


def mapped_rule(size: int) -> dict[str, Any]:
    values = [str(i) for i in range(size)]
    body = with_attribute(values=values)
    body["schema"]["attributes"].append({"name": "b", "kind": "boolean"})
    body["schema"]["rules"] = [
        {"determines": "b", "by": "a", "map": {f"-{value}": True for value in values}}
    ]
    return body


@pytest.mark.parametrize("body", [repeated_names, mapped_groups, mapped_labels, mapped_rule])
def test_the_work_grows_no_faster_than_the_announcement(
    body: Callable[[int], dict[str, Any]],
) -> None:
    """Ten times the bytes took a hundred times the work: an announcement of 8 MiB kept a device busy for hours."""

    def work(size: int) -> float:
        text = json.dumps(body(size)).encode()
        best = math.inf
        for _ in range(3):
            begun = time.process_time()
            with pytest.raises(DitherError):
                read_announcement(text)
            best = min(best, time.process_time() - begun)
        return best

    # Nine times as many entries: nine times the work if it is linear, 81 times if it is quadratic.
    assert work(18_000) < 27 * work(2_000)
