"""`dither histogram`: the contract of its JSON, its files, and one clear line for each mistake."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dither
import dither.cli
from dither.errors import ParameterError
from dither.release import Release


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "pay.parquet"
    pay = np.round(rng.lognormal(10.5, 0.5, 2000).clip(1_800, 250_000), 2)
    messy = {"empty": pa.nulls(2000), "gaps": [1.0, None, 2.0, 3.0] * 500, "five": [5.0] * 2000}
    pq.write_table(pa.table({"pay": pay, "city": ["a", "b"] * 1000, **messy}), path)
    return path


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "public.json"
    path.write_text(json.dumps({"pay": {"kind": "numeric", "min": 1800, "max": 250000}}))
    return path


def run(*arguments: object) -> int:
    return dither.cli.run(["histogram", *map(str, arguments)])


@pytest.mark.parametrize("method", ["chp", "split", "sampled", "smart"])
def test_json_has_the_contract(
    table: Path, schema: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (
        "--column",
        "pay",
        "--bins",
        "3,5,7",
        "--epsilon",
        3,
        "--schema",
        schema,
        "--seed",
        7,
        "--json",
    )
    assert run(table, *given, "--method", method) == 0
    first = capsys.readouterr()
    document = json.loads(first.out)
    assert document["seed"] == 7
    assert [warning["code"] for warning in document["warnings"]] == ["replayable-noise"]
    assert first.err == f"dither: warning: {document['warnings'][0]['message']}\n"
    assert [c["name"] for c in document["consumers"]] == ["3 bins", "5 bins", "7 bins"]
    for consumer, bins in zip(document["consumers"], (3, 5, 7), strict=True):
        assert len(consumer["edges"]) == bins + 1
        assert len(consumer["estimates"]) == len(consumer["standard_errors"]) == bins
        assert consumer["edges"][0] == 1800
        assert consumer["edges"][-1] == 250000
        assert abs(sum(consumer["estimates"]) - 2000) < 1500
    assert 2.9 < document["epsilon_achieved"] <= 3
    assert document["bits_per_report"] > 0
    run(table, *given, "--method", method)
    assert capsys.readouterr().out == first.out


@pytest.mark.parametrize("path", ["counts", "reports"])
def test_a_mean_alone(
    table: Path, schema: Path, tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command, JSON and folder as for histograms, with a mean instead of consumers."""
    out, truth = tmp_path / "out", pq.read_table(table)["pay"].to_numpy().mean()
    given = (
        table,
        "--column",
        "pay",
        "--method",
        "mean",
        "--epsilon",
        2,
        "--schema",
        schema,
        "--path",
        path,
        "--seed",
        4,
    )
    assert run(*given, "--json", "-o", out) == 0
    document = json.loads(capsys.readouterr().out)
    mean = document["mean"]
    assert (document["consumers"], document["method"], document["participants"]) == (
        [],
        "mean",
        2000,
    )
    assert 1.99 < document["epsilon_achieved"] <= 2
    assert document["bits_per_report"] > 0
    assert mean["low"] < mean["estimate"] < mean["high"]
    assert abs(mean["estimate"] - truth) < 4 * mean["standard_error"]
    assert abs(mean["estimate"] - (251_800 - truth)) > 4 * mean["standard_error"], (
        "a mirrored scale would be seen"
    )
    assert json.loads((out / "release.json").read_text()) == document | {"files": {}}
    loaded = Release.load(out)
    answer = loaded.mean()
    assert (answer.estimate, answer.low, answer.high) == (
        mean["estimate"],
        mean["low"],
        mean["high"],
    )
    wider = loaded.mean(level=0.99)
    assert wider.low is not None
    assert wider.low < mean["low"]
    with pytest.raises(ParameterError, match="level"):
        loaded.mean(level=1.0)
    assert run(*given) == 0
    assert f"mean  {mean['estimate']:,.6g}  (95 % interval" in capsys.readouterr().out
    assert run("ask", out, "--bins", 4) == 2
    assert "keeps no cells" in capsys.readouterr().err


@pytest.mark.parametrize(
    "epsilon",
    [pytest.param(0.5, marks=pytest.mark.slow), 1.0, pytest.param(4.0, marks=pytest.mark.slow)],
)
def test_a_mean_is_better_known_than_a_histogram_s(table: Path, epsilon: float) -> None:
    pay = pq.read_table(table)["pay"].to_numpy()
    given = {"epsilon": epsilon, "low": 0, "high": 250_000, "seed": 1}
    alone, read_off = (
        dither.histogram(pay, method=method, **given).mean() for method in ("mean", "ranges")
    )
    assert alone.standard_error < 0.8 * read_off.standard_error


def test_the_paper_s_mechanism_sends_one_bit_per_cell(
    table: Path, schema: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--column", "pay", "--bins", "3,5,7", "--epsilon", 15, "--schema", schema, "--json")
    assert run(table, *given, "--set", "mechanism=sue") == 0
    assert json.loads(capsys.readouterr().out)["bits_per_report"] == 13


def test_files_are_whole_and_need_nothing_else(
    table: Path, schema: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "out"
    given = (
        "--column",
        "pay",
        "--bins",
        "3",
        "--edges",
        "1800,20000,250000",
        "--epsilon",
        1,
        "--schema",
        schema,
    )
    assert run(table, *given, "-o", out, "--consistent", "--path", "reports") == 0
    assert "report.html" in capsys.readouterr().out
    assert sorted(p.name for p in out.iterdir()) == [
        "cells.bin",
        "consumers",
        "release.json",
        "report.html",
        "schema.json",
    ]
    document = json.loads((out / "release.json").read_text())
    assert document["consistent"] is True
    page = (out / "report.html").read_text()
    assert len(re.findall(r'<svg role="img" aria-label="Histogram for', page)) == 2
    assert not re.search(r"<script|https?://|src=", page)
    names = [
        f"{name}.{ending}" for name in ("2-bins", "3-bins") for ending in ("csv", "html", "json")
    ]
    assert sorted(p.name for p in (out / "consumers").iterdir()) == names
    own = json.loads((out / "consumers" / "3-bins.json").read_text())
    assert own["estimates"] == document["consumers"][0]["estimates"]
    rows = (out / "consumers" / "3-bins.csv").read_text().splitlines()
    assert rows[0] == "from,to,count,standard_error,low,high"
    assert [float(row.split(",")[2]) for row in rows[1:]] == own["estimates"]
    page = (out / "consumers" / "2-bins.html").read_text()
    assert len(re.findall(r'<svg role="img" aria-label="Histogram for', page)) == 1


def test_a_range_from_the_data_is_warned_of(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(table, "--column", "pay", "--bins", "3", "--epsilon", 1) == 0
    assert "reveals" in capsys.readouterr().err


def test_a_public_range_can_be_given(
    table: Path, schema: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (table, "--column", "pay", "--bins", "3", "--epsilon", 1, "--json", "--high", 300000)
    assert run(*given, "--low", 0) == 0
    shown = capsys.readouterr()
    assert "reveals" not in shown.err
    assert json.loads(shown.out)["range"] == [0, 300000]
    assert run(*given, "--schema", schema) == 0
    assert json.loads(capsys.readouterr().out)["range"] == [1800, 300000]


def test_parameters_are_those_of_the_method(
    table: Path, schema: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (table, "--column", "pay", "--bins", "3", "--epsilon", 1, "--schema", schema, "--json")
    assert run(*given, "--method", "sampled", "--set", "share=0.25", "--set", "mechanism=oue") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["notes"]["asked"] == 500
    assert document["mechanisms"] == ["oue"]
    assert run(*given, "--method", "smart", "--set", "objective=worst") == 0
    assert json.loads(capsys.readouterr().out)["notes"]["objective"] == "worst"


def test_a_schema_beside_the_table_is_used(
    table: Path, schema: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.with_name("pay.domain.json").write_text(schema.read_text())
    assert run(table, "--column", "pay", "--bins", "3", "--epsilon", 1, "--json") == 0
    shown = capsys.readouterr()
    assert "beside" in shown.err
    assert json.loads(shown.out)["range"] == [1800, 250000]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--column", "nope", "--bins", "3", "--epsilon", "1"), "no column 'nope'"),
        (("--column", "city", "--bins", "3", "--epsilon", "1"), "not numbers"),
        (("--column", "pay", "--bins", "0", "--epsilon", "1"), "--bins 0"),
        (("--column", "pay", "--bins", "3,x", "--epsilon", "1"), "'x'"),
        (("--column", "pay", "--bins", "-3", "--epsilon", "1"), "'-3'"),
        (("--column", "pay", "--bins", "3", "--epsilon", "0"), "epsilon"),
        (("--column", "pay", "--bins", "3", "--epsilon", "nan"), "epsilon"),
        (("--column", "pay", "--bins", "3", "--epsilon", "x"), "epsilon"),
        (("--column", "pay", "--epsilon", "1"), "--bins or --edges"),
        (("--column", "pay", "--edges", "1,b", "--epsilon", "1"), "--edges"),
        (("--column", "pay", "--bins", "3,5", "--epsilon", "1", "--method", "shp"), "one consumer"),
        (
            ("--column", "pay", "--bins", "3", "--epsilon", "1", "--method", "lap"),
            "method must be one of",
        ),
        (
            ("--column", "pay", "--bins", "3", "--epsilon", "1", "--set", "share=0.5"),
            "no parameter 'share'",
        ),
        (("--column", "pay", "--bins", "3", "--epsilon", "1", "--set", "share"), "KEY=VALUE"),
        (("--column", "pay", "--bins", "3", "--epsilon", "1", "--low", "20000"), "outside"),
        (("--column", "pay", "--bins", "3", "--epsilon", "1", "--path", "far"), "--path"),
        (("--bins", "3", "--epsilon", "1"), "--column"),
        (
            ("--column", "pay", "--bins", "3", "--epsilon", "1", "--method", "mean"),
            "a mean and no bins",
        ),
        (
            ("--column", "pay", "--epsilon", "1", "--method", "mean", "--consistent"),
            "no counts to be consistent",
        ),
        (
            ("--column", "pay", "--epsilon", "1", "--method", "mean", "--range", "3,5"),
            "--method ranges",
        ),
        (
            ("--column", "pay", "--epsilon", "1", "--method", "mean", "--quantiles", "0.5"),
            "--method ranges",
        ),
        (
            ("--column", "pay", "--epsilon", "1", "--method", "mean", "--set", "mechanism=grr"),
            "mechanism must be one of",
        ),
        (
            ("--column", "pay", "--epsilon", "1", "--method", "mean", "--high", "9000"),
            "--out-of-range=clip",
        ),
        (("--column", "empty", "--bins", "3", "--epsilon", "1"), "column 'empty' is empty"),
        (
            ("--column", "gaps", "--bins", "3", "--epsilon", "1"),
            "row 2 has no number; fill it in, or take --out-of-range=drop",
        ),
        (
            ("--column", "five", "--bins", "3", "--epsilon", "1"),
            "every number of column 'five' is 5",
        ),
    ],
)
def test_mistakes_are_one_line_and_status_two(
    table: Path, options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(table, *options) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_values_outside_the_range(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = tmp_path / "narrow.json"
    narrow.write_text(json.dumps({"pay": {"kind": "numeric", "min": 1800, "max": 40000}}))
    given = ("--column", "pay", "--bins", "3", "--epsilon", 1, "--schema", narrow)
    assert run(table, *given) == 2
    assert "outside [1800, 40000]" in capsys.readouterr().err
    for policy in ("clip", "drop"):
        assert run(table, *given, "--out-of-range", policy) == 0
        assert (
            f"values outside the range were {'moved' if policy == 'clip' else 'left out'}"
            in capsys.readouterr().err
        )


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    """Rows of 4,000 riders: none, one, two or three distances each, in no order; a rider without a distance has one row."""
    rng = np.random.default_rng(5)
    riders = np.repeat(np.arange(4000), rng.integers(1, 4, 4000))
    km = np.where(riders % 10 == 0, np.nan, rng.uniform(0, 40, len(riders)))
    order = rng.permutation(len(riders))
    path = tmp_path / "trips.parquet"
    names = pa.array([f"r{rider}" for rider in riders[order]])
    pq.write_table(pa.table({"rider": names, "km": pa.array(km[order], from_pandas=True)}), path)
    return path


SEVERAL = (
    "--column",
    "km",
    "--person",
    "rider",
    "--low",
    0,
    "--high",
    40,
    "--bins",
    "4",
    "--epsilon",
    6,
)


@pytest.mark.parametrize("method", [None, "independent", "summed"])
def test_a_person_may_have_several_rows(
    trips: Path, tmp_path: Path, method: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = () if method is None else ("--method", method)
    out = tmp_path / "out"
    assert run(trips, *SEVERAL, "--values-per-person", 3, *chosen, "--seed", 1, "-o", out) == 0
    capsys.readouterr()
    release = dither.load_release(out)
    assert release.participants == 4000
    assert release.epsilon_achieved <= 6
    data = pq.read_table(trips)
    held: dict[str, list[float]] = {}
    for rider, km in zip(data["rider"].to_pylist(), data["km"].to_pylist(), strict=True):
        held.setdefault(rider, []).extend([] if km is None else [km])
    true = np.histogram(np.concatenate(list(held.values())), 4, (0, 40))[0]
    histogram = release.consumers[0]
    z = (histogram.estimates - true) / histogram.standard_errors
    assert np.abs(z).max() < 4, z
    # One row per person would be refused by the limit, and another grouping would have other counts.
    again = dither.release.call.command(release.call)
    assert again is not None
    assert "--values-per-person 3" in again
    assert "--person rider" in again


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--values-per-person", 2), "has 3 values, more than 2"),
        ((), "--person and --values-per-person belong together"),
        (("--values-per-person", 3, "--consistent"), "--consistent cannot be used"),
        (("--values-per-person", 3, "--as-published"), "--method independent and summed"),
        (("--values-per-person", 3, "--out-of-range", "clip"), "--out-of-range cannot be used"),
        (("--values-per-person", 3, "--unit", 1), "--unit cannot be used"),
        (("--values-per-person", 3, "--method", "chp"), "one, independent, summed"),
        (("--values-per-person", 0), "--values-per-person must be"),
        (("--values-per-person", 3, "--person", "driver"), "no column 'driver'"),
    ],
)
def test_wrong_options_of_several_values_are_one_line(
    trips: Path, tmp_path: Path, change: tuple, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(trips, *SEVERAL, *change, "-o", out) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_rows_without_a_person_and_a_missing_range_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("who,km\na,1\n,2\n")
    given = (
        path,
        "--column",
        "km",
        "--person",
        "who",
        "--values-per-person",
        1,
        "--bins",
        2,
        "--epsilon",
        1,
    )
    assert run(*given, "--low", 0, "--high", 5) == 2
    assert "row 2 names no participant in column 'who'" in capsys.readouterr().err
    assert run(*given) == 2
    assert "--low and --high" in capsys.readouterr().err
