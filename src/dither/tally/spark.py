"""Count reports on a Spark cluster: Parquet in, one tally out. Needs the extra `spark`.

Reports are checked where they are read (`mapInArrow`), grouped by id so that each counts once
across all files, counted in their partitions, and the partial tallies are merged in a tree.
The workers run Dither's own kernels and need Dither installed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dither.errors import DitherError, InputError
from dither.reports import Plan, plan_from_json
from dither.tally.counting import (
    COLUMNS,
    Counted,
    add_digests,
    add_table,
    digest_of,
    find_reports,
    possible,
    report_files,
)
from dither.tally.tally import tally_from_bytes, zero

_REPORT = "report_id binary, question int, payload binary"
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PART = "tally binary, reports long, rows long, digest string"
Part = tuple[bytes, int, int, str]


def count_on_spark(
    paths: Sequence[str],
    plan: Plan,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Counted:
    """Count reports on a Spark cluster, from the same files as the local engine.

    Args:
        paths: Files, folders, patterns or addresses that the cluster can read. Paths without
            `://` are local files and are checked first.
        plan: The plan of the reports.
        master: Spark's address; by default that of spark-submit or Spark's configuration, else
            `local[*]`.
        conf: Further settings of Spark by name. `spark.pyspark.python` is the interpreter of the
            workers; by default the cluster's (`PYSPARK_PYTHON`), on this machine the running one.

    Raises:
        InputError: A path has no file or no report, or PySpark is missing.
        DitherError: Spark cannot start or fails.
    """
    try:
        from pyspark.sql import SparkSession
        from pyspark.sql import functions as f
    except ImportError:
        raise InputError(
            "--engine spark needs the extra 'spark': pip install 'dither[spark]'", where="--engine"
        ) from None
    local = find_reports([path for path in paths if "://" not in path], plan)
    addresses = [path for path in paths if "://" in path]
    mine = SparkSession.getActiveSession() is None
    session = _start_session(SparkSession.builder, master, conf or {})
    if mine:
        session.sparkContext.setLogLevel("ERROR")
    text = json.dumps(plan.to_json())
    try:
        files = [f"file://{os.path.realpath(file.path)}" for file in local]
        files += dict.fromkeys(file for given in addresses for file in _files_at(session, given))
        # Folders are named like key=value; without the option their names would replace
        # columns of the reports.
        reader = session.read.schema(_REPORT).option("recursiveFileLookup", "true")
        reports = reader.parquet(*(_literal(file) for file in files))
        rows = reports.count()
        _check_rows(rows, sum(file.rows for file in local), addresses)
        kept = f.min(f.struct("question", "payload")).alias("kept")
        with warnings.catch_warnings():
            # Which is not used here.
            warnings.filterwarnings("ignore", message=".*pandas.*")
            once = (
                reports.mapInArrow(_Check(text), _REPORT)
                .groupBy("report_id")
                .agg(kept, f.count("*").alias("rows"))
            )
            columns = once.select("report_id", "kept.question", "kept.payload", "rows")
            parts = columns.mapInArrow(_Count(text), _PART).rdd.map(tuple)
        nothing: Part = (zero(plan).to_bytes(), 0, 0, "0")
        whole: Part = parts.treeAggregate(nothing, _merge, _merge)
    except DitherError:
        raise
    except Exception as error:
        raise DitherError(f"Spark could not count: {' '.join(str(error).split())[:300]}") from None
    finally:
        if mine:
            session.stop()
    tally, counted, sound_rows, digest = whole
    return Counted(
        tally_from_bytes(tally), counted, int(digest, 16), rows - sound_rows, sound_rows - counted
    )


def _start_session(builder: Any, master: str | None, conf: Mapping[str, str]) -> Any:
    """The active Spark session, or a new one."""
    builder = builder.appName("dither tally")
    # Otherwise spark-submit's, by default local[*].
    if master is not None:
        builder = builder.master(master)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not started by spark-submit
        builder = builder.config("spark.ui.enabled", "false")
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # Java's, of many kinds
        raise DitherError(f"Spark cannot start: {' '.join(str(error).split())[:200]}") from None
    context = session.sparkContext
    if not context.getConf().contains(_BATCH_ROWS) and _BATCH_ROWS not in conf:
        # Larger batches than Spark's 10,000 rows: counting one costs a few NumPy calls.
        session.conf.set(_BATCH_ROWS, "100000")
    python = context.getConf().get("spark.pyspark.python", "")
    if python:
        context.pythonExec = python
    elif "PYSPARK_PYTHON" not in os.environ and context.master.startswith("local"):
        # On a cluster this path may not exist, or be another Python.
        context.pythonExec = sys.executable
    return session


def _files_at(session: Any, given: str) -> list[str]:
    """The files of reports at an address, as Hadoop's file systems list them."""
    hadoop = session._jvm.org.apache.hadoop.fs

    def below(folder: str) -> list[str]:
        files, listed = [], filesystem.listFiles(hadoop.Path(folder), True)
        while listed.hasNext():
            files.append(str(listed.next().getPath().toString()))
        return files

    try:
        path = hadoop.Path(given)
        filesystem = path.getFileSystem(session._jsc.hadoopConfiguration())
        statuses = filesystem.globStatus(path) or ()
        entries = [
            (str(status.getPath().toString()), bool(status.isDirectory())) for status in statuses
        ]
        return report_files(given, entries, below)
    except DitherError:
        raise
    except Exception as error:  # Java's, of many kinds
        reason = " ".join(str(getattr(error, "java_exception", error)).split())[:200]
        raise InputError(
            f"Spark cannot read {given[:200]}: {reason}", where="PATHS", value=given
        ) from None


def _literal(path: str) -> str:
    """A path for Spark's reader, which would take some letters for a pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _check_rows(rows: int, expected: int, addresses: Sequence[str]) -> None:
    """Reject a count of other files than the listed ones: Spark can be set to skip files."""
    if addresses and rows <= expected:
        raise InputError(f"{addresses[0]} holds no reports", where="PATHS", value=addresses[0])
    if not addresses and rows != expected:
        raise DitherError(
            f"Spark read {rows:,} of {expected:,} reports; can every worker read the files?"
        )


class _Check:
    """In a worker: keep the reports that a participant can have sent under the plan."""

    def __init__(self, plan: str) -> None:
        self._text = plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = plan_from_json(json.loads(self._text))
        for batch in batches:
            table = pa.Table.from_batches([batch]).cast(COLUMNS)
            yield from table.filter(pa.array(possible(plan, table))).to_batches()


class _Count:
    """In a worker: one tally of the reports of a partition, in which ids are unique."""

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
                digest,
                digest_of(zip(*(table.column(c).to_pylist() for c in COLUMNS.names), strict=True)),
            )
        columns: list[Any] = [[tally.to_bytes()], [reports], [rows], [f"{digest:x}"]]
        names = ["tally", "reports", "rows", "digest"]
        yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names)


def _merge(first: Part, second: Part) -> Part:
    tally = tally_from_bytes(first[0]).merge(tally_from_bytes(second[0]))  # type: ignore[arg-type]
    digest = add_digests(int(first[3], 16), int(second[3], 16))
    return tally.to_bytes(), first[1] + second[1], first[2] + second[2], f"{digest:x}"
