"""Spark counts what the local engine counts, to the integer and by digest, in every kind of tally."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
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
from dither.tally import zero

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def master() -> Iterator[str]:
    """Two executors, each a process of its own; one session for all tests."""
    require(shutil.which("java"), "Java")
    found = importlib.util.find_spec("pyspark")
    require(
        None if found is None or found.origin is None else Path(found.origin).parent / "bin" / "spark-submit", "PySpark"
    )
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Short-lived Java: compile little, collect garbage in one thread.
    brief = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--driver-java-options '{brief}' pyspark-shell")
    chosen = "local-cluster[2,1,1024]"
    # The executors are processes of a cluster: they find Dither where these tests do.
    paths = os.pathsep.join([str(Path(dither.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    settings = {"spark.ui.enabled": "false", "spark.executorEnv.PYTHONPATH": paths, "spark.sql.shuffle.partitions": "2"}
    settings |= {"spark.executor.extraJavaOptions": brief}
    session = SparkSession.builder.master(chosen).config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield chosen
    session.stop()


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["tally", *arguments, "--json"]) == 0, capsys.readouterr().err
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("kind", PLANS)
def test_spark_counts_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str], master: str, kind: str) -> None:
    plan = PLANS[kind]
    rows = spoilt(plan, reports(plan, 400))
    folder = tmp_path / "reports" / "question=7"  # a name that Spark would take for a column
    folder.mkdir(parents=True)
    for i in range(3):
        pq.write_table(table(rows[i::3]), folder / f"{i}.parquet")
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    given = [str(tmp_path / "reports"), "--plan", str(tmp_path / "plan.json")]
    local = call(capsys, *given, "-o", str(tmp_path / "local.bin"))
    spark = call(capsys, *given, "--engine", "spark", "--master", master, "-o", str(tmp_path / "spark.bin"))
    assert spark == local
    assert (tmp_path / "spark.bin").read_bytes() == (tmp_path / "local.bin").read_bytes()
    assert local["malformed"] == 7
    assert local["reports"] == 400 == local["participants"]


def test_spark_counts_nothing_as_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], master: str) -> None:
    plan = PLANS["counts"]
    pq.write_table(table([]), tmp_path / "none.parquet")
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    given = [str(tmp_path), "--plan", str(tmp_path / "plan.json"), "--engine", "spark", "--master", master]
    found = call(capsys, *given, "-o", str(tmp_path / "t"))
    assert (found["reports"], (tmp_path / "t").read_bytes()) == (0, zero(plan).to_bytes())
