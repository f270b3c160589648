"""dither compare: methods on one's own table, judged against truths that are known."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.cli import run
from dither.errors import InputError, ParameterError, TableError
from dither.lab.comparison import PRODUCT, REDRAWN, Comparison, Peer, Task, coverage, measure, peers
from dither.lab.comparison import run as comparing
from dither.release import Interval
from dither.schema import Attribute, Schema

ROWS = 4000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Two columns that agree for nine people of ten, and one of its own; half of the table says yes."""
    rng = np.random.default_rng(3)
    first = rng.random(ROWS) < 0.5
    second = np.where(rng.random(ROWS) < 0.9, first, ~first)
    return pa.table({"a": first, "b": rng.choice(["x", "y", "z"], ROWS), "c": second})


@pytest.fixture(scope="module")
def schema() -> Schema:
    both = (False, True)
    return Schema(
        (
            Attribute("a", "boolean", both),
            Attribute("b", "categorical", ("x", "y", "z")),
            Attribute("c", "boolean", both),
        )
    )


def thrice(codes: Any, domain: Any, epsilon: float, seed: int) -> Any:
    """A peer that gives the table itself away."""
    return lambda rows: codes[np.random.default_rng(seed).integers(0, len(codes), rows)]


def fails(codes: Any, domain: Any, epsilon: float, seed: int) -> Any:
    raise ParameterError("only tables with a king in them")


@pytest.fixture(scope="module")
def found(
    table: pa.Table, schema: Schema, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Comparison, Path]:
    folder = tmp_path_factory.mktemp("compare")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(peers.PEERS, "leaky", Peer("leaky", "math", thrice))
        patch.setitem(peers.PEERS, "kingly", Peer("kingly", "math", fails))
        names = ["mixture", "independent", "lopub", "leaky", "kingly"]
        made = dither.compare(
            table,
            epsilons=(4.0, 1.0),
            methods=names,
            schema=schema,
            isolated=False,
            output=folder,
            quiet=True,
        )
    return made, folder


def result(found: Comparison, method: str, epsilon: float = 4.0) -> dict[str, Any]:
    return next(r for r in found.results if r["method"] == method and r["epsilon"] == epsilon)


def test_every_method_has_every_figure_at_every_epsilon(found: tuple[Comparison, Path]) -> None:
    comparison, _ = found
    assert comparison.about["epsilons"] == [1.0, 4.0]
    assert (comparison.about["participants"], comparison.about["test_rows"]) == (3200, 800)
    assert comparison.about["target"] == "c"
    for method in ("mixture", "independent"):
        for epsilon in (1.0, 4.0):
            told = result(comparison, method, epsilon)
            assert told["trust"] == "local"
            assert set(told["tvd"]) == {"1", "2", "3"}
            assert 0.8 < told["coverage"] <= 1.0
            assert told["cpu_seconds"] > 0
            assert told["peak_megabytes"] >= 0
            assert 0.3 < told["accuracy"] < 1
    assert "whole reports" in result(comparison, "lopub")["no_intervals"]
    assert result(comparison, "lopub")["coverage"] is None


def test_the_figures_are_those_of_known_tables(found: tuple[Comparison, Path]) -> None:
    comparison, _ = found
    redrawn, product = result(comparison, REDRAWN), result(comparison, PRODUCT)
    # Two samples of n rows with k cells differ by at most sqrt(k/n)/2 in the mean, and hardly ever by twice that.
    assert redrawn["tvd"]["2"] < 2 * math.sqrt(6 / 3200)
    # Shuffled columns are 0.4 from a pair that agrees for nine of ten; the other two pairs are independent.
    assert product["worst_pair"]["attributes"] == ["a", "c"]
    assert product["worst_pair"]["tvd"] == pytest.approx(0.4, abs=0.03)
    assert product["tvd"]["1"] == pytest.approx(0.0)
    assert redrawn["accuracy"] == pytest.approx(0.9, abs=0.04)
    assert product["accuracy"] < 0.7  # nothing to learn from: a guess in each of six cells
    # A method that learns the pair is told from one that does not.
    assert (
        result(comparison, "mixture")["tvd"]["2"]
        < 0.5 * result(comparison, "independent")["tvd"]["2"]
    )
    assert comparison.best(4.0) in ("mixture", "lopub")
    assert "epsilon 4" in repr(comparison)


def test_peers_run_by_name_and_what_cannot_run_is_named(found: tuple[Comparison, Path]) -> None:
    comparison, folder = found
    assert result(comparison, "leaky")["trust"] == "central"
    assert result(comparison, "leaky")["tvd"]["2"] < 0.1
    reason = "only tables with a king in them"
    assert {(r["method"], r["reason"]) for r in comparison.not_run} == {("kingly", reason)}
    assert reason in (folder / "index.html").read_text(encoding="utf-8")


def test_page_json_and_csv_say_the_same(found: tuple[Comparison, Path]) -> None:
    comparison, folder = found
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "as confidential as the table" in page
    # In a process that has held more before, no method adds to the peak, and a logarithmic chart has nothing to draw.
    more = any((r["peak_megabytes"] or 0) > 0 for r in comparison.results)
    assert page.count("<svg") == (8 if more else 7)
    plain = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    assert plain == json.loads(json.dumps(comparison.to_json()))
    lines = list(
        csv.DictReader(io.StringIO((folder / "comparison.csv").read_text(encoding="utf-8")))
    )
    assert len(lines) == len(comparison.results)
    mixture = next(
        line for line in lines if line["method"] == "mixture" and line["epsilon"] == "4.0"
    )
    assert float(mixture["tvd_2"]) == result(comparison, "mixture")["tvd"]["2"]


def test_an_interrupted_comparison_goes_on_where_it_stopped(
    table: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = comparing.measure, []

    def stopping(task: Task, method: str, epsilon: float, seed: int) -> Any:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(method)
        return real(task, method, epsilon, seed)

    options = {"epsilons": 2.0, "methods": "independent", "schema": schema, "replicates": 0}
    options |= {"isolated": False, "output": tmp_path, "quiet": True}
    monkeypatch.setattr(comparing, "measure", stopping)
    with pytest.raises(KeyboardInterrupt):
        dither.compare(table, **options)
    assert not (tmp_path / "comparison.json").exists()
    monkeypatch.setattr(comparing, "measure", real)
    rest = dither.compare(table, **options)
    assert rest.resumed == 2
    assert len(rest.results) == 3
    assert dither.compare(table, **options).resumed == 3
    # Other rows are another comparison: nothing of the old one may stand in it.
    assert dither.compare(table.slice(0, 3000), **options).resumed == 0


def test_repeats_average_and_spread(table: pa.Table, schema: Schema) -> None:
    told = dither.compare(
        table,
        epsilons=2.0,
        methods="independent",
        schema=schema,
        repeats=3,
        replicates=0,
        isolated=False,
        quiet=True,
    )
    own = result(told, "independent", 2.0)
    assert own["runs"] == 3
    assert own["spread"]["tvd_2"] > 0
    assert own["coverage"] is None


def test_coverage_is_not_flattered(schema: Schema, table: pa.Table) -> None:
    """Intervals around the truth hold it, intervals beside it do not, and none at all are counted apart."""
    codes = dither.schema.encode(table, schema).codes

    class Around:
        def __init__(self, shift: float) -> None:
            self.shift = shift

        def interval(self, names: list[str]) -> Interval:
            at = [schema.index(n) for n in names]
            exact = dither.evaluation.marginal(codes, schema.cardinalities, at)
            low = exact + self.shift
            return Interval(tuple(names), (), exact, exact, low, low + 0.01, 0.95)

    assert coverage(schema, Around(-0.005), codes)["coverage"] == 1.0  # type: ignore[arg-type]
    assert coverage(schema, Around(0.001), codes)["coverage"] == 0.0  # type: ignore[arg-type]
    nothing = coverage(schema, Around(float("nan")), codes)  # type: ignore[arg-type]
    assert nothing == {"without_interval": 1.0}


def test_population_draws_people_from_the_rows(table: pa.Table, schema: Schema) -> None:
    codes = np.asarray(dither.schema.encode(table, schema).codes)
    task = Task(schema, codes, codes[:100], None, population=20_000)
    assert len(task.participants(0)) == 20_000
    few, many = (
        measure(t, "independent", 1.0, 0)["tvd_1"] for t in (Task(schema, codes, codes, None), task)
    )
    assert many < few


@pytest.mark.slow
def test_in_a_process_of_its_own_a_method_that_takes_too_long_is_given_up(
    table: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    begun = time.monotonic()
    told = dither.compare(
        table,
        epsilons=2.0,
        methods="independent",
        schema=schema,
        replicates=0,
        limit=0.05,
        output=tmp_path,
        quiet=True,
    )
    assert [r["reason"] for r in told.not_run] == ["not finished after 0.05 s"]
    assert time.monotonic() - begun < 300
    own = dither.compare(
        table,
        epsilons=2.0,
        methods="independent",
        schema=schema,
        replicates=0,
        output=tmp_path,
        quiet=True,
    )
    assert own.not_run == ()
    alike = dither.compare(
        table,
        epsilons=2.0,
        methods="independent",
        schema=schema,
        replicates=0,
        isolated=False,
        quiet=True,
    )
    assert result(own, "independent", 2.0)["tvd"] == result(alike, "independent", 2.0)["tvd"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"methods": "nothing"}, "no method 'nothing'"),
        ({"methods": "chp"}, "histograms of one number"),
        ({"methods": "dpmm-mst"}, "needs the library dpmm"),
        ({"methods": "peers"}, "no peer is installed"),
        ({"epsilons": ()}, "at least one number"),
        ({"epsilons": -1.0}, "epsilon"),
        ({"target": "king"}, "no column 'king'"),
        ({"repeats": 0}, "repeats"),
        ({"replicates": 2}, "replicates"),
        ({"limit": 0.0}, "limit"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    table: pa.Table, schema: Schema, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        dither.compare(table, schema=schema, isolated=False, quiet=True, **options)
    assert "\n" not in str(caught.value)


def test_too_few_rows_and_a_file_for_a_folder(
    table: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    with pytest.raises(TableError, match="at least 10"):
        dither.compare(table.slice(0, 5), schema=schema)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ParameterError, match="not a folder"):
        dither.compare(table, schema=schema, output=tmp_path / "file")


def test_the_command_prints_json(
    table: pa.Table,
    schema: Schema,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    dither.schema.write_table(table.slice(0, 500), "people.csv")
    Path("people.schema.json").write_text(json.dumps(schema.to_json()), encoding="utf-8")
    monkeypatch.setattr(comparing, "run_isolated", lambda function, *given, limit: function(*given))
    order = [
        "compare",
        "people.csv",
        "--epsilon",
        "1,2",
        "--methods",
        "independent,calm",
        "--replicates",
        "0",
    ]
    assert run([*order, "--json"]) == 0
    told = capsys.readouterr()
    assert [r["method"] for r in json.loads(told.out)["results"][:4]] == ["independent"] * 2 + [
        "calm"
    ] * 2
    assert "as confidential as the table" in told.err
    assert Path("compare-out/people/index.html").is_file()
    assert run(order) == 0
    assert "worst pair" in capsys.readouterr().out
    assert run([*order, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["compare", "people.csv", "--epsilon", "1,two"]) == 2
    assert "such as 1,2,4" in capsys.readouterr().err
