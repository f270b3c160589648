"""Spark counts what the local engine counts, to the integer and by digest, in every kind of tally."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from test_counting import PLANS, reports, spoilt, table
from tests.programs import require

import dither
from dither.cli import run

pytestmark = pytest.mark.slow
# Short-lived Java: compile little, collect garbage in one thread.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module")
def master() -> Iterator[str]:
    """Two executors, each a process of its own; one session for all tests."""
    require(shutil.which("java"), "Java")
    found = importlib.util.find_spec("pyspark")
    require(
        None
        if found is None or found.origin is None
        else Path(found.origin).parent / "bin" / "spark-submit",
        "PySpark",
    )
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--driver-java-options '{BRIEF}' pyspark-shell")
    chosen = "local-cluster[2,1,1024]"
    # The executors are processes of a cluster: they find Dither where these tests do.
    paths = os.pathsep.join(
        [str(Path(dither.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    settings = {
        "spark.ui.enabled": "false",
        "spark.executorEnv.PYTHONPATH": paths,
        "spark.sql.shuffle.partitions": "2",
    }
    settings |= {"spark.executor.extraJavaOptions": BRIEF}
    session = SparkSession.builder.master(chosen).config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield chosen
    session.stop()


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["tally", *arguments, "--json"]) == 0, capsys.readouterr().err
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("kind", PLANS)
def test_spark_counts_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], master: str, kind: str
) -> None:
    plan = PLANS[kind]
    rows = spoilt(plan, reports(plan, 400))
    folder = tmp_path / "reports" / "question=7"  # a name that Spark would take for a column
    folder.mkdir(parents=True)
    for i in range(3):
        pq.write_table(table(rows[i::3]), folder / f"{i}.parquet")
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    given = [str(tmp_path / "reports"), "--plan", str(tmp_path / "plan.json")]
    local = call(capsys, *given, "-o", str(tmp_path / "local.bin"))
    spark = call(
        capsys, *given, "--engine", "spark", "--master", master, "-o", str(tmp_path / "spark.bin")
    )
    assert spark == local
    assert (tmp_path / "spark.bin").read_bytes() == (tmp_path / "local.bin").read_bytes()
    assert local["malformed"] == 7
    assert local["reports"] == 400 == local["participants"]


def write_reports(place: Path) -> list[str]:
    """Files with names that each engine has its own ideas about; gives the arguments that count them all."""
    plan = PLANS["counts"]
    rows = reports(plan, 240)
    inner = place / "folder" / "question=7"
    inner.mkdir(parents=True)
    odd = [
        place / "reports",
        place / "per cent %20 [1].{a,b}",
        place / "part-0",
        place / "part-1.parq",
    ]
    for i, path in enumerate([*odd, inner / "a.parquet", inner / "b?*.parquet"]):
        pq.write_table(table(rows[i::6]), path)
    pq.write_table(table(rows[:50]), inner / ".a.parquet.tmp.parquet")  # unfinished
    (inner / "notes.txt").write_text("no reports")
    (place / "plan.json").write_text(json.dumps(plan.to_json()))
    paths = [odd[0], odd[1], place / "part-*", place / "folder", odd[0]]
    return [*map(str, paths), "--plan", str(place / "plan.json")]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_both_engines_read_the_same_files_whatever_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], master: str, scheme: str
) -> None:
    """Hadoop takes braces and brackets in an address for a pattern, so that file is left out there."""
    given = write_reports(tmp_path)
    if scheme:
        given = [f"{scheme}{given[0]}", *(f"{scheme}{path}" for path in given[2:4]), *given[-2:]]
    local = call(capsys, *given, "-o", str(tmp_path / "local.bin"))
    spark = call(
        capsys, *given, "--engine", "spark", "--master", master, "-o", str(tmp_path / "spark.bin")
    )
    assert spark == local
    assert (tmp_path / "spark.bin").read_bytes() == (tmp_path / "local.bin").read_bytes()
    assert (local["reports"], local["repeated"]) == (200 if scheme else 240, 0)


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("absent", "there is nothing at {path}"),
        ("absent-*", "there is nothing at {path}"),
        ("texts", "{path} holds no Parquet file"),
        ("empty", "{path} holds no reports"),
        ("_hidden", "is not counted: a name that begins with . or _"),
    ],
)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_path_that_yields_nothing_is_an_input_error(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    master: str,
    engine: str,
    given: str,
    reason: str,
    scheme: str,
) -> None:
    plan = PLANS["counts"]
    pq.write_table(table([]), tmp_path / "empty")
    pq.write_table(table(reports(plan, 5)), tmp_path / "_hidden")
    pq.write_table(table(reports(plan, 5)), tmp_path / "full")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "notes.txt").write_text("no reports")
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    paths = [f"{scheme}{tmp_path / 'full'}", f"{scheme}{tmp_path / given}"]
    if scheme and given == "empty":
        paths = paths[1:]  # at an address Spark sees the sum only
    where = ["--engine", "spark", "--master", master] if engine == "spark" else []
    asked = [
        "tally",
        *paths,
        "--plan",
        str(tmp_path / "plan.json"),
        "-o",
        str(tmp_path / "out"),
        *where,
    ]
    assert run(asked) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert reason.format(path=paths[-1]) in lines[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_reports_of_which_none_fits_the_plan_are_an_input_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], master: str, engine: str
) -> None:
    plan = PLANS["counts"]
    pq.write_table(table([(b"short", 0, b"")] * 3), tmp_path / "bad")
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    where = ["--engine", "spark", "--master", master] if engine == "spark" else []
    asked = [
        "tally",
        str(tmp_path / "bad"),
        "--plan",
        str(tmp_path / "plan.json"),
        "-o",
        str(tmp_path / "out"),
    ]
    assert run([*asked, *where]) == 2
    assert "none of the 3 reports is valid under this plan" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("submitted", "option", "used"),
    [("local[1]", None, "local[1]"), ("local[1]", "local[2]", "local[2]")],
)
@pytest.mark.usefixtures("master")
def test_spark_submit_s_settings_are_kept_unless_options_give_others(
    tmp_path: Path, submitted: str | None, option: str | None, used: str
) -> None:
    """In a process of its own, started as a cluster's operator starts it; Spark's event log says which master it used.

    The cluster's Python is a script that records its arguments: it is named by `PYSPARK_PYTHON`
    first, and by --conf in the second case.
    """
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    import pyspark

    plan = PLANS["counts"]
    pq.write_table(table(reports(plan, 20)), tmp_path / "reports.parquet")
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    (tmp_path / "log").mkdir()
    (tmp_path / "program.py").write_text(
        "import sys\nfrom dither.cli import run\nsys.exit(run(sys.argv[1:]))\n"
    )
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit")]
    submit += [] if submitted is None else ["--master", submitted]
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{tmp_path / 'log'}",
    }
    settings |= {"spark.eventLog.compress": "false", "spark.sql.shuffle.partitions": "1"}
    settings |= {"spark.driver.extraJavaOptions": BRIEF}
    submit += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    asked = [
        "tally",
        str(tmp_path / "reports.parquet"),
        "--plan",
        str(tmp_path / "plan.json"),
        "--engine",
        "spark",
    ]
    asked += ["-o", str(tmp_path / "out"), "--json"]
    if option:
        asked += ["--master", option, "--conf", f"spark.pyspark.python={python}"]
        asked += ["--conf", "spark.network.timeout=77s"]
    paths = os.pathsep.join(
        [str(Path(dither.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"}
    environment |= {
        "PYTHONPATH": paths,
        "PYSPARK_PYTHON": sys.executable if option else str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [*submit, str(tmp_path / "program.py"), *asked],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["reports"] == 20
    logs = [
        file
        for file in (tmp_path / "log").rglob("*")
        if file.is_file() and not file.name.startswith(("app", "."))
    ]
    events = [
        json.loads(line) for file in logs for line in file.read_text(encoding="utf-8").splitlines()
    ]
    (properties,) = [e["Spark Properties"] for e in events if "Spark Properties" in e]
    assert properties["spark.master"] == used
    assert properties.get("spark.network.timeout") == ("77s" if option else None)
    assert "-m pyspark.daemon" in calls.read_text(), "the workers run the chosen Python"


@pytest.mark.parametrize("setting", ["spark.x", "x=1", "=", ""])
def test_a_setting_of_spark_has_a_name_and_a_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLANS["counts"].to_json()))
    asked = ["tally", str(tmp_path), "--plan", str(tmp_path / "plan.json"), "-o", "out"]
    assert run([*asked, "--engine", "spark", "--conf", setting]) == 2
    assert "write --conf spark.NAME=VALUE" in capsys.readouterr().err
    assert run([*asked, "--conf", "spark.a=b"]) == 2
    assert "--conf is for --engine spark" in capsys.readouterr().err
