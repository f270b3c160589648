"""Stored reports as a Parquet file: report id, question and the randomised answer, in the order of the ids."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dither.collector.store import Store
from dither.private_files import make_private
from dither.reports import Plan

_SCHEMA = pa.schema([("report_id", pa.binary(32)), ("question", pa.int32()), ("payload", pa.binary())])


def export_reports(store: Store, campaign: str, plan: Plan, path: Path) -> int:
    """Write a round's reports; its plan is in the file's metadata, so that the file explains itself. Gives their number.

    Only the file's owner may read it, and a failure leaves none behind.
    """
    schema = _SCHEMA.with_metadata({"dither_campaign": campaign, "dither_plan": json.dumps(plan.to_json())})
    written = 0
    make_private(path)
    try:
        with pq.ParquetWriter(path, schema, compression="zstd") as file:
            for rows in store.reports(campaign, plan.round):
                columns = list(zip(*rows, strict=True))
                arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                file.write_table(pa.Table.from_arrays(arrays, schema=schema))
                written += len(rows)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return written
