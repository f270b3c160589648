"""Counts and shares of a central release with intervals that cover, and the method that is taken by public facts."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dither.cli
from dither.central import CENTRAL
from dither.central.curator import advise, central_release
from dither.errors import ParameterError
from dither.methods.machine import describe_parameters
from dither.release import Release
from dither.release.cells import covered
from dither.schema import Attribute, Schema, attribute_from_json, numeric

SCHEMA = Schema(
    (
        numeric("age", low=20, high=60, bins=4, missing=True),
        Attribute("grade", "ordinal", values=("low", "mid", "high")),
        Attribute("team", "categorical", values=("red", "blue")),
    )
)


def table(rows: int = 2000) -> pa.Table:
    rng = np.random.default_rng(0)
    age = rng.integers(20, 60, rows)
    grade = np.array(["low", "mid", "high"])[rng.integers(0, 3, rows)]
    return pa.table({"age": age, "grade": grade, "team": np.where(age < 40, "red", "blue")})


@pytest.mark.parametrize(
    ("name", "condition", "parts"),
    [
        ("age", (25, 45), [0.5, 1, 0.5, 0, 0]),
        ("age", (0, 100), [1, 1, 1, 1, 0]),
        ("age", (60, 70), [0, 0, 0, 0, 0]),
        ("grade", ("low", "mid"), [1, 1, 0]),
        ("grade", ["high", "low"], [1, 0, 1]),
        ("team", "blue", [0, 1]),
        ("age", "(missing)", [0, 0, 0, 0, 1]),
    ],
)
def test_conditions_cover_codes(name: str, condition: object, parts: list[float]) -> None:
    assert covered(SCHEMA[name], condition).tolist() == parts


@pytest.mark.parametrize(
    ("name", "condition", "parts"),
    [
        ("paid", (0, 50), [1, 0.5, 0, 0, 0]),
        ("paid", (10, 200), [0, 0.9, 1, 1, 0]),
        ("paid", (0, 100), [1, 1, 0, 0, 0]),
        ("paid", (0, 0), [1, 0, 0, 0, 0]),
        ("paid", 0, [1, 0, 0, 0, 0]),
        ("paid", [0, 200], [1, 0, 0, 1, 0]),
        ("paid", "(missing)", [0, 0, 0, 0, 1]),
        ("day", ("2024-01-01", "2024-01-06"), [0.5] * 7 + [0] * 7),
        ("day", (date(2024, 1, 11), date(2024, 1, 21)), [0] * 7 + [1] * 7),
    ],
)
def test_ranges_know_atoms_and_times(name: str, condition: object, parts: list[float]) -> None:
    known = {
        "paid": Attribute(
            "paid", "numeric", edges=(0.0, 100.0, 200.0), atoms=(0.0, 200.0), missing=True
        ),
        "day": attribute_from_json(
            "day",
            {
                "kind": "date",
                "edges": ["2024-01-01", "2024-01-11", "2024-01-21"],
                "cycles": ["weekday"],
            },
        ),
    }
    assert covered(known[name], condition).tolist() == pytest.approx(parts)


@pytest.mark.parametrize(
    ("name", "condition", "words"),
    [
        ("age", (45, 25), "no smaller"),
        ("age", ("a", 25), "no smaller"),
        ("age", (1, 2, 3), "a pair"),
        ("grade", ("high", "low"), "comes after"),
        ("team", ("red", "blue"), "no order"),
        ("team", "green", "no value 'green'; it has red, blue"),
        ("team", {}, "no value"),
    ],
)
def test_wrong_conditions_are_named(name: str, condition: object, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        covered(SCHEMA[name], condition)


def test_counts_add_up_and_survive_a_folder(tmp_path: Path) -> None:
    made = central_release(table(), epsilon=1.0, schema=SCHEMA, method="laplace", seed=1)
    young, old = made.count({"age": (20, 40)}), made.count({"age": (40, 60)})
    absent, everybody = made.count({"age": "(missing)"}), made.count()
    assert young.estimate + old.estimate + absent.estimate == pytest.approx(everybody.estimate)
    assert young.standard_error is not None
    assert young.low < young.estimate < young.high
    again = Release.load(made.save(tmp_path / "out"))
    assert again.count({"age": (20, 40)}) == young
    assert made.count({"age": (20, 40)}, level=0.5).high < young.high
    bare = central_release(
        table(), epsilon=1.0, schema=SCHEMA, method="laplace", seed=1, replicates=0
    )
    assert bare.count({"team": "red"}).low is None
    rows = central_release(table(), epsilon=50.0, schema=SCHEMA, method="csm-records", seed=1)
    assert rows.count({"team": "red"}).estimate == pytest.approx(
        np.mean(table()["age"].to_numpy() < 40) * 2000, abs=60
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["laplace", "hierarchical"])
def test_intervals_cover_at_their_level(method: str) -> None:
    """Over fresh noise. Three answers of one run hang together: at worst they are as good as one."""
    runs, data = 60, table(500)
    age, grade = data["age"].to_numpy(), np.asarray(data["grade"])
    questions = [
        ({"age": (20, 30)}, (age < 30).sum()),
        ({"team": "red", "grade": ["low", "high"]}, ((age < 40) & (grade != "mid")).sum()),
        ({"grade": ("mid", "high")}, (grade != "low").sum()),
    ]
    reaches = []
    for seed in range(runs):
        made = central_release(data, epsilon=0.5, schema=SCHEMA, method=method, seed=seed)
        for where, count in questions:
            found = made.count(where)
            assert found.high is not None
            reaches.append(abs(found.estimate - count) / (found.high - found.estimate))
    slack = 4 * math.sqrt(0.95 * 0.05 / runs)
    assert abs(np.mean(np.array(reaches) <= 1) - 0.95) < slack
    assert (
        np.mean(np.array(reaches) <= 0.5) < 0.95 - slack
    )  # intervals of half the width are rejected


def test_advice_needs_no_table() -> None:
    assert advise((2, 2), 1.0).method == "laplace"
    assert advise((1024,), 1.0).method == "laplace"
    assert advise((1024,), 0.001).method == "csm"
    assert advise((32, 32, 8), 0.1).method == "privbayes"
    assert advise((32, 32, 8), 0.1, records=10**6).method == "laplace"
    assert advise((1024,), 1.0, workload="ranges").method == "hierarchical"
    assert advise((64, 64), 1.0, workload="ranges").method == "agrid"
    assert advise((64, 2), 1.0, workload="ranges").method == "hierarchical"
    assert advise((2,) * 25, 1.0).method == "privbayes"
    for name in {advise((k,) * d, e, n, w).method for k in (2, 40) for d in (1, 2, 3) for e in (0.01, 1.0)
                 for n in (None, 10**6) for w in ("cells", "ranges")}:  # fmt: skip
        assert name in CENTRAL


def test_a_release_without_a_method_takes_the_advised_one_whatever_the_rows_say() -> None:
    few, many = table(10), table(4000)
    for options, name in (
        ({}, "laplace"),
        ({"workload": "ranges"}, "hierarchical"),
        ({"records": 1}, "privbayes"),
    ):
        made = [
            central_release(rows, epsilon=0.5, schema=SCHEMA, seed=2, replicates=0, **options)
            for rows in (few, many)
        ]
        assert [one.method for one in made] == [name, name]
        assert made[0].notes["method_chosen"] == made[1].notes["method_chosen"] != "given"
    with pytest.raises(ParameterError, match="workload must be one of cells, ranges"):
        central_release(few, epsilon=0.5, schema=SCHEMA, workload="all")
    with pytest.raises(ParameterError, match="records"):
        central_release(few, epsilon=0.5, schema=SCHEMA, records=0)


@pytest.mark.parametrize("method", [*CENTRAL])
def test_every_registered_parameter_can_be_set(method: str, tmp_path: Path) -> None:
    """By its default in words, so that each value is a right one."""
    shown = {name: "auto" if value is None else str(value) for name, value in
             describe_parameters(CENTRAL[method].parameters).items()}  # fmt: skip
    words = [
        "central",
        "adult",
        "--columns",
        "sex,income",
        "--epsilon",
        "1",
        "--method",
        method,
        "--seed",
        "1",
    ]
    for name, value in shown.items():
        words += ["--set", f"{name}={value}"]
    assert dither.cli.run([*words, "-o", str(tmp_path / "out")]) == 0


def test_a_release_says_first_that_a_curator_holds_the_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "central",
        "adult",
        "--columns",
        "sex,income",
        "--epsilon",
        "1",
        "--workload",
        "ranges",
    ]
    assert dither.cli.run([*words, "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("central: a curator holds the table")
    made = Release.load(tmp_path / "out")
    assert repr(made).startswith("Release(central: a curator holds the table")
    assert next(iter(made.to_json().values())) == "central: a curator holds the table"
    page = made.report()
    body = page[page.index("<body") :]
    assert body.lower().index("a curator holds the table") < body.index("Epsilon per record")
