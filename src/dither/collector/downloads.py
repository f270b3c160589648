"""Stored reports as a Parquet file, in the order of their ids, and tallies counted elsewhere as an operator sends them."""

from __future__ import annotations

import json
import tempfile
from itertools import islice
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dither.collector.campaigns import CountedElsewhere
from dither.collector.store import Store
from dither.reports import Plan
from dither.tally import tally_from_bytes
from dither.tally.archive import decoding, unpack

_COLUMNS = pa.schema(
    [("report_id", pa.binary(32)), ("question", pa.int32()), ("payload", pa.binary())]
)


def export_reports(
    store: Store,
    campaign: str,
    plan: Plan,
    out: BinaryIO,
    after: bytes | None = None,
    most: int = 0,
) -> int:
    """Write a round's reports; its plan is in the file's metadata, so that the file explains itself. Gives their number.

    With `after`, one page: at most so many, of ids above this one.
    """
    schema = _COLUMNS.with_metadata(
        {"dither_campaign": campaign, "dither_plan": json.dumps(plan.to_json())}
    )
    written = 0
    pages = (
        store.reports(campaign, plan.round)
        if after is None
        else islice(store.reports(campaign, plan.round, most, after), 1)
    )
    with pq.ParquetWriter(out, schema, compression="zstd") as file:
        for rows in pages:
            columns = list(zip(*rows, strict=True))
            arrays = [
                pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
            ]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))
            written += len(rows)
    return written


def spool_reports(
    store: Store, campaign: str, plan: Plan, after: bytes | None = None, most: int = 0
) -> BinaryIO:
    """The same in a temporary file without a name, at its end: however the process ends, nothing stays behind."""
    file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        export_reports(store, campaign, plan, file, after, most)
    except BaseException:
        file.close()
        raise
    return file


def read_counted(data: bytes) -> CountedElsewhere:
    """A tally counted elsewhere, as `dither campaign close-round --tally` sends it; `ReportError` if it is not one."""
    meta, arrays = unpack(data)
    with decoding("tally counted elsewhere"):
        tally = tally_from_bytes(arrays["tally"].astype(np.uint8, copy=False).tobytes())
        return CountedElsewhere(tally, int(meta["reports"]), int(meta["digest"], 16))
