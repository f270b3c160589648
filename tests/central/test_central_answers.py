"""Counts and shares of a central release with intervals that cover, and the method that is taken by public facts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dither.cli
from dither.central import CENTRAL
from dither.central.curator import advise, central_release
from dither.errors import ParameterError
from dither.methods import describe_parameters
from dither.release import Release
from dither.schema import Attribute, Schema, numeric

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
    "where",
    [
        {"age": (25, 45)},
        {"age": (25, None)},
        {"age": "(missing)"},
        {"grade": ["high", "low"], "team": "blue"},
        "age >= 33 or team == 'red'",
        None,
    ],
)
def test_counts_and_shares_read_a_question_alike(where: Any) -> None:
    made = central_release(table(), epsilon=50.0, schema=SCHEMA, method="laplace", seed=1)
    share = made.query(where)
    assert made.count(where).estimate / made.count().estimate == pytest.approx(share.estimate)
    assert made.count(where).warnings == share.warnings


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"age": ("a", 25)}, "cannot be compared"),
        ({"age": (1, 2, 3)}, "a range is"),
        ({"grade": ("low", "high")}, "list the values instead"),
        ({"team": "green"}, "no value 'green'"),
        ({"nobody": 1}, "no attribute 'nobody'"),
    ],
)
def test_wrong_conditions_are_named(where: Any, words: str) -> None:
    made = central_release(
        table(50), epsilon=1.0, schema=SCHEMA, method="laplace", seed=1, replicates=0
    )
    for ask in (made.count, made.query):
        with pytest.raises(ParameterError, match=words):
            ask(where)


def test_answers_of_a_biased_method_warn_of_it(tmp_path: Path) -> None:
    made = central_release(table(500), epsilon=1.0, schema=SCHEMA, method="privbayes", seed=1)
    (bias,) = (warning for warning in made.warnings if warning.code == "bias")
    for release in (made, Release.load(made.save(tmp_path / "out"))):
        answers = [
            release.query("team == 'red'"),
            release.table("grade"),
            release.mean("age"),
            release.quantile("age", [0.5]),
            release.count({"team": "red"}),
        ]
        assert all(bias in answer.warnings for answer in answers)
    plain = central_release(table(500), epsilon=1.0, schema=SCHEMA, method="laplace", seed=1)
    assert bias not in plain.query("team == 'red'").warnings


def test_counts_add_up_and_survive_a_folder(tmp_path: Path) -> None:
    made = central_release(table(), epsilon=1.0, schema=SCHEMA, method="laplace", seed=1)
    young, old = made.count({"age": (20, 40)}), made.count({"age": (40, None)})
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
        ({"grade": ["mid", "high"]}, (grade != "low").sum()),
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
