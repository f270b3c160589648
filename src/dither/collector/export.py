"""Stored reports as a Parquet file: report id, question and the randomised answer, in the order of the ids."""

from __future__ import annotations

import json
import tempfile
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dither.collector.store import Store
from dither.reports import Plan

_SCHEMA = pa.schema([("report_id", pa.binary(32)), ("question", pa.int32()), ("payload", pa.binary())])


def export_reports(store: Store, campaign: str, plan: Plan, out: BinaryIO) -> int:
    """Write a round's reports; its plan is in the file's metadata, so that the file explains itself. Gives their number."""
    schema = _SCHEMA.with_metadata({"dither_campaign": campaign, "dither_plan": json.dumps(plan.to_json())})
    written = 0
    with pq.ParquetWriter(out, schema, compression="zstd") as file:
        for rows in store.reports(campaign, plan.round):
            columns = list(zip(*rows, strict=True))
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))
            written += len(rows)
    return written


def spool_reports(store: Store, campaign: str, plan: Plan) -> BinaryIO:
    """The same in a temporary file without a name, at its end: however the process ends, nothing stays behind."""
    file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        export_reports(store, campaign, plan, file)
    except BaseException:
        file.close()
        raise
    return file
