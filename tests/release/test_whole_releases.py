"""Every kind of release is saved and loaded whole: a field that is not written, or a new one that no test sets, fails here."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither import several_values
from dither.cli import run
from dither.methods.mean import MeanAnswer
from dither.notice import Notice
from dither.release import Release, command, python_code
from dither.schema import Attribute, Schema

VALUES = np.random.default_rng(7).beta(2, 5, 2000) * 10
TABLE = pa.table({"a": ["x", "y"] * 150, "b": ["u", "v", "w"] * 100})
SCHEMA = Schema(
    (
        Attribute("a", "categorical", values=("x", "y")),
        Attribute("b", "ordinal", values=("u", "v", "w")),
    )
)
CONSUMERS = [3, [0, 1, 4, 10], {"name": "mine", "width": 2.5, "epsilon": 1.5}]
WRITTEN_NOWHERE = {"truth", "clipped"}  # true figures, for whoever holds the data
COMMON = ("method", "parameters", "dither_version", "warnings", "notes", "save", "load", "report")
CARE = Notice("care", "careful")


def synthetic_release() -> Release:
    made = dither.publish(
        TABLE, epsilon=2.0, method="independent", schema=SCHEMA, rows=40, path="reports"
    )
    made = made.with_replicates(5)
    return replace(made, warnings=(*made.warnings, CARE), dither_version="0.0.1")


def histogram_release(consumers: list[Any] = CONSUMERS, **options: Any) -> Release:
    given = {
        "consumers": consumers,
        "epsilon": 2.0,
        "low": 0,
        "high": 10,
        "method": "sampled",
        "out_of_range": "clip",
    }
    given |= {
        "parameters": {"share": 0.5},
        "consistent": True,
        "path": "reports",
        "seed": 3,
        **options,
    }
    return replace(dither.histogram(VALUES, **given), dither_version="0.0.1")


def central_release() -> dither.Release:
    made = dither.central_release(
        TABLE,
        epsilon=1.0,
        method="csm",
        schema=SCHEMA,
        columns=["b", "a"],
        seed=3,
        neighbours="replace",
    )
    return replace(made, warnings=(*made.warnings, CARE), dither_version="0.0.1")


def whole_histogram() -> Release:
    """With every field that there is, of simulations and of campaigns."""
    made = histogram_release()
    call = replace(
        made.call,
        simulated=False,
        campaign="0f" * 16,
        title="Pay",
        purpose="Wages",
        created="2027-01-01",
    )
    mean = MeanAnswer(1.5, 0.25, 900)
    content = replace(made.number, attribute="pay", clip=True, collected_mean=mean)
    return replace(
        made,
        call=call,
        content=content,
        schema=SCHEMA,
        rounds=2,
        rows=3,
        seconds={"read": 1.0},
        notes={"asked": 3},
    )


KINDS: list[Callable[[], Any]] = [synthetic_release, histogram_release, central_release]


def same(was: Any, now: Any) -> bool:
    """Equal in value; arrays, tables and models by what they hold."""
    if type(was) is not type(now):
        return False
    if hasattr(was, "to_bytes") and not isinstance(was, int):
        return bool(was.to_bytes() == now.to_bytes())
    if isinstance(was, np.ndarray):
        return bool(np.array_equal(was, now))
    if isinstance(was, pa.Table):
        return bool(was.equals(now))
    if is_dataclass(was):
        return all(same(getattr(was, f.name), getattr(now, f.name)) for f in fields(was))
    if isinstance(was, (list, tuple)):
        return len(was) == len(now) and all(map(same, was, now))
    if isinstance(was, dict):
        return was.keys() == now.keys() and all(same(was[key], now[key]) for key in was)
    return bool(was == now)


def default_of(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


@pytest.mark.parametrize("make", [synthetic_release, whole_histogram, central_release])
def test_a_release_reads_back_field_by_field(make: Callable[[], Any], tmp_path: Path) -> None:
    release = make()
    again = type(release).load(release.save(tmp_path / "out"))
    assert same(release.content, again.content)
    for field in fields(release):
        was, now = getattr(release, field.name), getattr(again, field.name)
        if field.name in WRITTEN_NOWHERE:
            assert same(now, default_of(field)), field.name
            continue
        assert was is not None, field.name
        assert not same(was, default_of(field)), (
            f"{field.name} has its default, so this test would not see it lost"
        )
        if (
            field.name == "seconds"
        ):  # writing has its own; of a curator's release only those that tell nothing of the records
            both = was.keys() & now.keys()
            assert both
            assert all(same(was[stage], now[stage]) for stage in both)
        else:
            assert same(was, now), field.name
    assert "Made with dither 0.0.1." in again.report()


@pytest.mark.parametrize("make", KINDS)
def test_all_kinds_have_the_same_nouns(make: Callable[[], Any], tmp_path: Path) -> None:
    release = make()
    for name in COMMON:
        assert hasattr(release, name), name
    assert hasattr(release, "marginal") or hasattr(release, "answer")
    manifest = release.to_json()
    assert {
        "method",
        "parameters",
        "dither_version",
        "warnings",
        "notes",
        "call",
        "seed",
    } <= manifest.keys()


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (dither.histogram, histogram_release),
        (dither.central_release, central_release),
        (
            several_values,
            lambda: several_values(
                [[0.1], [0.7, 0.2]], consumers=[2], epsilon=1.0, low=0, high=1, most=2, seed=1
            ),
        ),
    ],
)
def test_the_record_has_every_argument_and_python_takes_it(
    function: Any, make: Callable[[], Any]
) -> None:
    release = make()
    data, *options = inspect.signature(function).parameters
    record = release.call.record
    assert set(record) == {"function", *options} - {"name", "attribute", "clock", "progress"}
    names: dict[str, Any] = {data: {"values": VALUES, "table": TABLE}[data]}
    if release.method.startswith("several"):
        names["values"] = [[0.1], [0.7, 0.2]]
    code = (
        python_code(release.call)
        .replace('release.save("out")', "")
        .replace("'schema.json'", "SCHEMA")
    )
    exec(code, names | {"SCHEMA": SCHEMA}, names)
    assert names["release"].to_json()["call"]["record"] == record | (
        {"schema": "schema.json"} if data == "table" else {}
    )
    if data == "table":
        assert same(names["release"].cells.estimate, release.cells.estimate)
    else:
        assert same(names["release"].consumers, release.consumers)


def rerun(release: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run what a saved release's page says, in another folder."""
    words = command(release.call)
    assert words is not None
    assert words in release.report().replace("&#39;", "'")
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert run(shlex.split(words)[1:]) == 0


def test_the_command_of_a_histogram_makes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = [
        "histogram",
        "adult",
        "--column",
        "age",
        "--bins",
        "3,5",
        "--edges",
        "17,30.5,90",
        "--epsilon",
        "1.25",
    ]
    words += [
        "--method",
        "sampled",
        "--set",
        "share=0.25",
        "--consistent",
        "--seed",
        "5",
        "--path",
        "reports",
    ]
    assert (
        run([*words, "--out-of-range", "clip", "--low", "17", "--high", "90", "-o", str(out)]) == 0
    )
    release = dither.load_release(out)
    rerun(release, tmp_path / "elsewhere", monkeypatch)
    assert same(dither.load_release("out"), release)


def test_the_command_of_a_central_release_makes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = [
        "central",
        "adult",
        "--columns",
        "sex,income",
        "--epsilon",
        "0.5",
        "--method",
        "hierarchical",
    ]
    words += [
        "--set",
        "branching=3",
        "--neighbours",
        "replace",
        "--replicates",
        "5",
        "--seed",
        "6",
        "-o",
        str(out),
    ]
    assert run(words) == 0
    release = dither.load_release(out)
    rerun(release, tmp_path / "elsewhere", monkeypatch)
    assert same(replace(dither.load_release("out"), seconds=release.seconds), release)


@pytest.mark.parametrize(
    "call", [{"table": None}, {"consumers": CONSUMERS}, {"consumers": [[0, 1], 3]}]
)
def test_a_command_that_could_not_say_all_is_not_written(call: dict[str, Any]) -> None:
    made = histogram_release([3]).call
    whole = {**(made.record or {}), "table": "people.csv", "column": "age"}
    assert command(replace(made, record=whole)) is not None
    assert command(replace(made, record=whole | call)) is None
