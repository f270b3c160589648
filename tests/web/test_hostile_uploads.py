"""Files that somebody uploads are read in the bounded process: the collector's own memory hardly grows."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from collector_harness import KEY, Caller, ServerProcess, envelope_of, plan_of, token_of
from web_harness import Visitor

from dither.tally import pack, zero

pytestmark = pytest.mark.slow
MIB = 1 << 20
LIMIT = 1024 * MIB  # of the bounded process here; 4 GiB as shipped
MAX_GROWTH = 300 * MIB  # of the collector: the body it was sent and copies of that


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    before = (
        "from dither.collector.pages import add_pages; from dither.collector.questions import Questions; "
        f"Questions.__init__.__defaults__ = ({LIMIT},)"
    )
    store = tmp_path_factory.mktemp("uploads") / "c.db"
    with ServerProcess(store, before=before, options=", pages=add_pages") as server:
        yield server


@pytest.fixture(scope="module")
def curator(running: ServerProcess) -> Visitor:
    visitor = Visitor(running.url)
    assert visitor.post("/console/sign-in", {"key": KEY, "wanted": "/console"}).status == 303
    return visitor


def csrf(visitor: Visitor) -> dict[str, str]:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', visitor.get("/console/keys").text)
    assert found is not None
    return {"csrf": found[1]}


def fault_in(page: str) -> str:
    found = re.search(r'role="alert"><p>(.*?)</p>', page)
    assert found is not None
    return found[1]


class Memory:
    """The resident memory of a process, and its peak since this was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        Path(f"/proc/{pid}/clear_refs").write_text(
            "5"
        )  # the peak starts again from what is resident
        self._before = self._read("VmRSS")

    def growth(self) -> int:
        return self._read("VmHWM") - self._before

    def _read(self, name: str) -> int:
        text = Path(f"/proc/{self._pid}/status").read_text()
        return int(re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)[1]) * 1024  # type: ignore[index]


def parquet_bomb() -> bytes:
    """2.4 GB of text in a few kB: one long word in a dictionary, and that 2,400 times."""
    words = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(2400, np.int32)), pa.array(["x" * 1_000_000])
    )
    out = io.BytesIO()
    pq.write_table(pa.table({"a": words}), out, compression="zstd", store_schema=False)
    return out.getvalue()


def test_a_table_that_expands_to_gigabytes_is_refused_in_one_line(
    running: ServerProcess, curator: Visitor
) -> None:
    bomb = parquet_bomb()
    assert len(bomb) < MIB
    fields = csrf(curator)
    memory = Memory(running.process.pid)
    answer = curator.upload("/console/new/file", fields, "t.parquet", bomb)
    assert memory.growth() < MAX_GROWTH
    assert answer.status == 422
    assert "memory" in fault_in(answer.text)
    assert "/tmp" not in answer.text
    sound = curator.upload(
        "/console/new/file", fields, "t.csv", b"way,age\n" + b"foot,31\nbus,44\n" * 30
    )
    assert sound.status == 200, "the next file is read"


def test_a_schema_larger_than_a_form_is_refused(running: ServerProcess, curator: Visitor) -> None:
    attributes = [
        {"name": f"a{i}", "kind": "categorical", "values": [f"{j:06}" for j in range(60_000)]}
        for i in range(16)
    ]
    data = json.dumps({"format": "dither-schema-1", "attributes": attributes}).encode()
    fields = csrf(curator)
    memory = Memory(running.process.pid)
    answer = curator.upload("/console/new/file", fields, "s.json", data)
    assert memory.growth() < MAX_GROWTH
    assert answer.status == 422
    assert re.search(r"s\.json takes [\d,]+ bytes; at most 1,048,576", fault_in(answer.text))


def test_a_tally_whose_header_expands_to_gigabytes_is_refused(running: ServerProcess) -> None:
    caller = Caller(running.url, 120.0)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    header = b'{"arrays":[],"meta":{"digest":"0","reports":[' + b"[]," * (16 * MIB) + b"[]]}}"
    archive = pack({}, {})[:17] + len(header).to_bytes(8, "little") + header
    path = f"/v1/admin/campaigns/{campaign}/rounds/0/tally"
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/octet-stream"}
    memory = Memory(running.process.pid)
    answer = caller.connection.request("POST", path, archive, headers)
    assert memory.growth() < MAX_GROWTH
    assert answer.status == 413, answer
    assert "1,024 MiB" in json.loads(answer.body)["detail"]
    refused = caller.connection.request("POST", path, archive[:100], headers)
    assert refused.status == 400
    assert json.loads(refused.body)["detail"].startswith("a damaged Dither archive")
    assert caller.upload(campaign, envelope_of(campaign, plan, [token_of(1)])).status == 201
    # A sound tally is read: it is refused for what it counts.
    meta = {"reports": 7, "digest": "00" * 32}
    sound = pack(meta, {"tally": np.frombuffer(zero(plan).to_bytes(), np.uint8)})
    counted = caller.connection.request("POST", path, sound, headers)
    assert counted.status == 409
    assert "counts 7 reports" in json.loads(counted.body)["detail"]
