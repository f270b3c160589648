"""A collected campaign becomes a release: the fitted model, a synthetic table, the guarantee and what was asked."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dither.checks import check_whole
from dither.collector.spec import CampaignSpec
from dither.collector.store import Store
from dither.protocols import ProtocolMachine
from dither.release import Call, Release
from dither.reports import Plan

MOST_ROWS = 10_000_000
DEFAULT_ROWS = 100_000


def make_release(machine: ProtocolMachine, participants: int, spec: CampaignSpec, rows: int | None) -> Release:
    """The release of a finished protocol; as many synthetic rows as participants, up to 100,000, unless said otherwise."""
    size = check_whole("rows", min(participants, DEFAULT_ROWS) if rows is None else rows, 1, MOST_ROWS)
    call = Call(method=machine.method, epsilon=spec.epsilon, rows=size, seed=spec.seed, holdout=spec.holdout)
    draw = np.random.default_rng([machine.campaign.seed, 2]), np.random.default_rng([machine.campaign.seed, 3])
    return Release.from_machine(machine, call, participants, draw)


def zip_release(release: Release) -> bytes:
    """The release's folder as one zip file."""
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch:
        folder = release.save(Path(scratch) / "release")
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, path.name)
    return out.getvalue()


# Stored reports as a Parquet file, in the order of their ids.
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
