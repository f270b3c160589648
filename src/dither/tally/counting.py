"""Count reports in any order, repeated or malformed, into one tally with a digest.

A report is malformed if no participant can have sent it under the plan. Of several reports
with one id the smallest by question and bytes counts, so the order of files does not matter.
The digest is the sum of the SHA-256 of all counted reports, as four numbers modulo 2^64. Sums
of parts add up, and a database can compute it without exporting reports. It detects
accidental differences; an attacker who chooses reports freely could construct a collision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from dither.errors import ReportError
from dither.mechanisms import PackedReports
from dither.reports import Plan
from dither.reports.plan import check_payload
from dither.tally.tally import RoundTally, zero
from dither.types import Bytes, Flags

COLUMNS = pa.schema(
    [("report_id", pa.binary()), ("question", pa.int32()), ("payload", pa.binary())]
)
ID_BYTES = 32
# Reports in memory; more are first partitioned by id into temporary files.
AT_ONCE = 4_000_000
# Answers of up to this many bytes have few distinct values; each is checked once.
_SHORT = 8
_WORDS = 4  # of 64 bits, in a digest


@dataclass(frozen=True)
class Counted:
    """A tally, which reports it counts, and how many were left out."""

    tally: RoundTally
    reports: int = 0
    digest: int = 0
    malformed: int = 0
    repeated: int = 0

    def merge(self, other: Counted) -> Counted:
        """Both together; they must have no id in common."""
        return Counted(
            self.tally.merge(other.tally),  # type: ignore[arg-type]
            self.reports + other.reports,
            add_digests(self.digest, other.digest),
            self.malformed + other.malformed,
            self.repeated + other.repeated,
        )


def add_digests(first: int, second: int) -> int:
    """The digest of two sets of reports that have none in common."""
    words = (
        np.frombuffer(part.to_bytes(8 * _WORDS, "big"), ">u8").astype(np.uint64)
        for part in (first, second)
    )
    return digest_of_words([int(word) for word in sum(words, np.zeros(_WORDS, np.uint64))])


def digest_hex(digest: int) -> str:
    """A digest as it is written down."""
    return f"{digest:064x}"


def digest_of(rows: Iterable[tuple[bytes, int, bytes]]) -> int:
    """The sum of the reports' digests: SHA-256 of id, question (four bytes, big-endian), answer."""
    hashes = b"".join(
        hashlib.sha256(report_id + question.to_bytes(4, "big", signed=True) + payload).digest()
        for report_id, question, payload in rows
    )
    words = np.frombuffer(hashes, ">u8").reshape(-1, _WORDS).sum(axis=0, dtype=np.uint64)
    return digest_of_words([int(word) for word in words])


def digest_of_words(sums: Iterable[int]) -> int:
    """A digest from the sums of its 64-bit words, most significant first, each modulo 2^64."""
    return int.from_bytes(b"".join((word % (1 << 64)).to_bytes(8, "big") for word in sums), "big")


def possible(plan: Plan, table: pa.Table) -> Flags:
    """Which reports a participant can have sent under the plan."""
    ids, questions, payloads = (table.column(name).combine_chunks() for name in COLUMNS.names)
    complete = pc.and_(pc.is_valid(ids), pc.and_(pc.is_valid(questions), pc.is_valid(payloads)))
    proper = pc.and_(complete, pc.equal(pc.binary_length(ids), ID_BYTES)).fill_null(False)
    good: Flags = np.asarray(proper.to_numpy(zero_copy_only=False), dtype=np.bool_).copy()
    numbers = questions.fill_null(-2).to_numpy(zero_copy_only=False)
    lengths = pc.binary_length(payloads).fill_null(-1).to_numpy(zero_copy_only=False)
    for question in np.unique(numbers[good]):
        exists = question == -1 if plan.split else 0 <= question < len(plan.questions)
        mine = good & (numbers == question)
        good[mine] = False
        if not exists:
            continue
        width = (
            plan.report_offsets[-1]
            if plan.split
            else plan.questions[question].mechanism.report_bytes
        )
        fits = np.flatnonzero(mine & (lengths == width))
        good[fits] = _possible_answers(
            plan, int(question), packed(payloads.take(pa.array(fits)), width)
        )
    return good


def _possible_answers(plan: Plan, question: int, rows: Bytes) -> Flags:
    distinct, back = (
        np.unique(rows, axis=0, return_inverse=True) if rows.shape[1] <= _SHORT else (rows, None)
    )
    fine = np.ones(len(distinct), bool)
    for i, row in enumerate(distinct):
        try:
            check_payload(plan, question, row.tobytes())
        except ReportError:
            fine[i] = False
    return fine if back is None else fine[back.ravel()]


def packed(payloads: pa.Array, width: int) -> Bytes:
    """Answers of one length, a row each."""
    joined = b"".join(payloads.to_pylist())
    return np.frombuffer(joined, np.uint8).reshape(len(payloads), width)


def add_table(tally: RoundTally, table: pa.Table) -> None:
    """Add possible reports, each id once, question by question."""
    numbers = table.column("question").to_numpy()
    payloads = table.column("payload").combine_chunks()
    for question in np.unique(numbers):
        mine = payloads.take(pa.array(np.flatnonzero(numbers == question)))
        plan = tally.plan
        width = (
            plan.report_offsets[-1]
            if plan.split
            else plan.questions[question].mechanism.report_bytes
        )
        tally.add(int(question), PackedReports(packed(mine, width)))


def _each_once(table: pa.Table) -> pa.Table:
    """The reports in the order of their ids, of each id the least by question and bytes."""
    ordered = table.sort_by([(name, "ascending") for name in COLUMNS.names])
    if ordered.num_rows < 2:
        return ordered
    ids = ordered.column("report_id").combine_chunks()
    new = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    return ordered.filter(pa.array(np.concatenate([[True], new])))


def count_table(plan: Plan, table: pa.Table) -> Counted:
    """The tally of reports of which no other table has the ids."""
    good = table.filter(pa.array(possible(plan, table)))
    once = _each_once(good)
    tally = zero(plan)
    add_table(tally, once)
    rows = zip(*(once.column(name).to_pylist() for name in COLUMNS.names), strict=True)
    left_out = (table.num_rows - good.num_rows, good.num_rows - once.num_rows)
    return Counted(tally, once.num_rows, digest_of(rows), *left_out)


def count_all(plan: Plan, tables: Iterable[pa.Table], rows: int, at_once: int = AT_ONCE) -> Counted:
    """The tally of reports that arrive in pieces.

    Args:
        rows: The approximate total number of reports.
        at_once: The largest number of reports in memory.
    """
    if rows <= at_once:
        return count_table(plan, pa.concat_tables([COLUMNS.empty_table(), *tables]))
    total = Counted(zero(plan))
    with TemporaryDirectory(prefix="dither-tally-") as scratch:
        for part in _partition_by_id(tables, -(-rows // at_once), Path(scratch)):
            total = total.merge(count_table(plan, part))
    return total


def _partition_by_id(tables: Iterable[pa.Table], parts: int, folder: Path) -> Iterator[pa.Table]:
    """Partition reports into `parts` tables by id."""
    parts = min(parts, 1 << 16)
    files = [folder / f"{i}.arrow" for i in range(parts)]
    writers = [ipc.new_stream(pa.OSFile(str(file), "wb"), COLUMNS) for file in files]
    for table in tables:
        # Ids are hashes, so their first bytes are uniform. Malformed ids go to the first
        # part, which drops them.
        heads = [
            int.from_bytes((i or b"")[:2].ljust(2, b"\0"), "big")
            for i in table.column("report_id").to_pylist()
        ]
        part_of = np.array(heads, np.int64) * parts >> 16
        for part in np.unique(part_of):
            writers[part].write_table(table.filter(pa.array(part_of == part)))
    for writer in writers:
        writer.close()
    for file in files:
        with pa.OSFile(str(file)) as held:
            yield ipc.open_stream(held).read_all()
        file.unlink()
