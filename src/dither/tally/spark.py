"""The same count on a Spark cluster: Parquet in, one tally out, by our own kernels in the workers. Needs the extra `spark`.

Reports are checked where they are read (`mapInArrow`), brought together by id, so that each counts once across all files, counted
where they then are, and the partial tallies merged in a tree. The workers need Dither installed. No formula lives here.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from dither.errors import DitherError, InputError
from dither.reports import Plan, plan_from_json
from dither.tally.counting import COLUMNS, Counted, add_digests, add_table, digest_of, possible
from dither.tally.tally import tally_from_bytes, zero

_REPORT = "report_id binary, question int, payload binary"
_PART = "tally binary, reports long, rows long, digest string"
Part = tuple[bytes, int, int, str]


def count_on_spark(paths: Sequence[str], plan: Plan, master: str | None = None) -> Counted:
    """The tally of the reports in all Parquet files at these paths, which the cluster must be able to read."""
    try:
        from pyspark.sql import SparkSession
        from pyspark.sql import functions as f
    except ImportError:
        raise InputError(
            "--engine spark needs the extra 'spark': pip install 'dither[spark]'", where="--engine"
        ) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    mine = SparkSession.getActiveSession() is None
    builder = SparkSession.builder.appName("dither tally").master(master or "local[*]")
    settings = {"spark.ui.enabled": "false", "spark.sql.execution.arrow.maxRecordsPerBatch": "100000"}
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # Java's, of many kinds
        raise DitherError(f"Spark cannot start: {' '.join(str(error).split())[:200]}") from None
    if mine:
        session.sparkContext.setLogLevel("ERROR")
    text = json.dumps(plan.to_json())
    try:
        # Folders are named like key=value; without the first option their names would stand in for the reports' own columns.
        options = {"recursiveFileLookup": "true", "pathGlobFilter": "[!._]*.parquet"}
        reports = session.read.schema(_REPORT).options(**options).parquet(*paths)
        rows = reports.count()
        kept = f.min(f.struct("question", "payload")).alias("kept")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*pandas.*")  # which is not used here
            once = reports.mapInArrow(_Check(text), _REPORT).groupBy("report_id").agg(kept, f.count("*").alias("rows"))
            columns = once.select("report_id", "kept.question", "kept.payload", "rows")
            parts = columns.mapInArrow(_Count(text), _PART).rdd.map(tuple)
        nothing: Part = (zero(plan).to_bytes(), 0, 0, "0")
        whole: Part = parts.treeAggregate(nothing, _merge, _merge)
    except Exception as error:
        raise DitherError(f"Spark could not count: {' '.join(str(error).split())[:300]}") from None
    finally:
        if mine:
            session.stop()
    tally, counted, sound_rows, digest = whole
    return Counted(tally_from_bytes(tally), counted, int(digest, 16), rows - sound_rows, sound_rows - counted)


class _Check:
    """In a worker: the reports that somebody can have sent under the plan."""

    def __init__(self, plan: str) -> None:
        self._text = plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = plan_from_json(json.loads(self._text))
        for batch in batches:
            table = pa.Table.from_batches([batch]).cast(COLUMNS)
            yield from table.filter(pa.array(possible(plan, table))).to_batches()


class _Count:
    """In a worker: one tally of all the reports of a partition, each id of which is there once."""

    def __init__(self, plan: str) -> None:
        self._text = plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally, reports, rows, digest = zero(plan_from_json(json.loads(self._text))), 0, 0, 0
        for batch in batches:
            table = pa.Table.from_batches([batch])
            add_table(tally, table.select(COLUMNS.names).cast(COLUMNS))
            reports += table.num_rows
            rows += sum(table.column("rows").to_pylist())
            digest = add_digests(
                digest, digest_of(zip(*(table.column(c).to_pylist() for c in COLUMNS.names), strict=True))
            )
        columns: list[Any] = [[tally.to_bytes()], [reports], [rows], [f"{digest:x}"]]
        names = ["tally", "reports", "rows", "digest"]
        yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names)


def _merge(first: Part, second: Part) -> Part:
    tally = tally_from_bytes(first[0]).merge(tally_from_bytes(second[0]))  # type: ignore[arg-type]
    digest = add_digests(int(first[3], 16), int(second[3], 16))
    return tally.to_bytes(), first[1] + second[1], first[2] + second[2], f"{digest:x}"
