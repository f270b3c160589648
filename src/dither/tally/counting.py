"""Count reports into one tally with a digest, and exchange them as Parquet files.

A report is malformed if no participant can have sent it under the plan. Of several reports
with one id the smallest by question and bytes counts, so the order of files does not matter.
The digest is the sum of the SHA-256 of all counted reports, as four numbers modulo 2^64. Sums
of parts add up, and a database can compute it without exporting reports. It detects
accidental differences; an attacker who chooses reports freely could construct a collision.

Exported reports are partitioned by campaign, round and question:

    TARGET/campaign=ID/round=0/plan.json
    TARGET/campaign=ID/round=0/question=3/1f03a9c2-2b77c0de-36211-9c1d04ab.parquet

TARGET is a folder or an fsspec address. A file's name has the first and the last id in it
(their first eight digits), the number of reports, and a part of its digest. An export can
therefore be repeated while the round is open: reports that are already exported are skipped
by id, and written files never change. Readers see complete files only: each is written under
a name that begins with a dot, then moved. If a plan has more than 128 questions, neighbours
share a folder. `docs/how-to/operate-a-collector.md` describes the use.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyarrow import ipc

from dither.errors import InputError, ReportError
from dither.mechanisms import PackedReports
from dither.reports import Plan
from dither.reports.plan import check_payload
from dither.tally.tally import RoundTally, zero
from dither.types import AnyArray, Bytes, Flags

COLUMNS = pa.schema(
    [("report_id", pa.binary()), ("question", pa.int32()), ("payload", pa.binary())]
)
_ID_BYTES = 32
# Reports in memory; more are first partitioned by id into temporary files.
_AT_ONCE = 4_000_000
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
    proper = pc.and_(complete, pc.equal(pc.binary_length(ids), _ID_BYTES)).fill_null(False)
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
            plan, int(question), _packed(payloads.take(pa.array(fits)), width)
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


def _packed(payloads: pa.Array, width: int) -> Bytes:
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
        tally.add(int(question), PackedReports(_packed(mine, width)))


def _each_once(table: pa.Table) -> pa.Table:
    """The reports in the order of their ids, of each id the least by question and bytes."""
    ordered = table.sort_by([(name, "ascending") for name in COLUMNS.names])
    if ordered.num_rows < 2:
        return ordered
    ids = ordered.column("report_id").combine_chunks()
    new = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    return ordered.filter(pa.array(np.concatenate([[True], new])))


def _count_table(plan: Plan, table: pa.Table) -> Counted:
    """The tally of reports of which no other table has the ids."""
    good = table.filter(pa.array(possible(plan, table)))
    once = _each_once(good)
    tally = zero(plan)
    add_table(tally, once)
    rows = zip(*(once.column(name).to_pylist() for name in COLUMNS.names), strict=True)
    left_out = (table.num_rows - good.num_rows, good.num_rows - once.num_rows)
    return Counted(tally, once.num_rows, digest_of(rows), *left_out)


def count_all(
    plan: Plan, tables: Iterable[pa.Table], rows: int, at_once: int = _AT_ONCE
) -> Counted:
    """The tally of reports that arrive in pieces.

    Args:
        rows: The approximate total number of reports.
        at_once: The largest number of reports in memory.
    """
    if rows <= at_once:
        return _count_table(plan, pa.concat_tables([COLUMNS.empty_table(), *tables]))
    total = Counted(zero(plan))
    with TemporaryDirectory(prefix="dither-tally-") as scratch:
        for part in _partition_by_id(tables, -(-rows // at_once), Path(scratch)):
            total = total.merge(_count_table(plan, part))
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


BUFFER = 1_000_000  # reports gathered before files are written
_MAX_FOLDERS = 128
_NAME = re.compile(r"([0-9a-f]{8})-([0-9a-f]{8})-[0-9]+-[0-9a-f]{8}\.parquet")


def _place_of(address: str) -> tuple[Any, str]:
    """The file system of a path or an fsspec address, and the path in it."""
    if not address or any("\ud800" <= letter <= "\udfff" for letter in address):
        raise InputError(
            f"{address!r} is not a path in plain text; name a file or a folder", where="path"
        )
    if "://" not in address:
        return pafs.LocalFileSystem(), address
    try:
        import fsspec
    except ImportError:
        raise InputError(
            f"{address.split('://', maxsplit=1)[0]}:// addresses need fsspec: pip install 'dither[spark]'",
            where="path",
        ) from None
    try:
        filesystem, path = fsspec.core.url_to_fs(address)
    except (ImportError, OSError, ValueError) as error:
        raise InputError(
            f"cannot use {address.split('://', maxsplit=1)[0]}:// addresses: {_in_a_line(error)}",
            where="path",
        ) from None
    return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), path


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


@contextmanager
def _writing_to(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write to {address}: {_in_a_line(error)}", where="output", value=address
        ) from None


@dataclass
class _Held:
    """A file that is there already; its ids are read when a page first reaches them."""

    first: str
    last: str
    path: str


@dataclass
class _RoundExport:
    """The export of one round, and the files that already exist."""

    filesystem: Any
    folder: str
    plan: Plan
    metadata: dict[str, str]
    written: int = 0
    files: int = 0
    _pending: dict[str, list[pa.Table]] = field(default_factory=dict)
    _waiting: int = 0
    _ahead: list[_Held] = field(default_factory=list)
    _reached: list[tuple[str, AnyArray]] = field(default_factory=list)

    def add(self, page: pa.Table) -> None:
        """Take a page of reports; pages come in the order of ids."""
        ids = page.column("report_id").to_pylist()
        if not ids:
            return
        there = self._ids_between(ids[0].hex()[:8], ids[-1].hex()[:8])
        if len(there):
            page = page.filter(pa.array(~np.isin(np.array(ids, "S32"), there)))
        numbers = page.column("question").to_numpy()
        for question in np.unique(numbers):
            part = page.filter(pa.array(numbers == question))
            self._pending.setdefault(_folder_of(self.plan, int(question)), []).append(part)
        self._waiting += page.num_rows
        if self._waiting >= BUFFER:
            self.flush()

    def flush(self) -> None:
        """Write what has been gathered."""
        for name, parts in sorted(self._pending.items()):
            table = (
                pa.concat_tables(parts).sort_by("report_id").replace_schema_metadata(self.metadata)
            )
            rows = list(zip(*(table.column(c).to_pylist() for c in COLUMNS.names), strict=True))
            digest = digest_hex(digest_of(rows))
            first, last = rows[0][0].hex()[:8], rows[-1][0].hex()[:8]
            folder = f"{self.folder}/{name}"
            target = f"{first}-{last}-{len(rows)}-{digest[:8]}.parquet"
            temporary = f"{folder}/{_hidden(target)}"
            with _writing_to(folder):
                self.filesystem.create_dir(folder, recursive=True)
                pq.write_table(table, temporary, filesystem=self.filesystem, compression="zstd")
                self.filesystem.move(temporary, f"{folder}/{target}")
            self.files += 1
            self.written += len(rows)
        self._pending, self._waiting = {}, 0

    def _ids_between(self, first: str, last: str) -> AnyArray:
        """The exported ids in a range, and possibly more; ids before the range are released."""
        for held in [held for held in self._ahead if held.first <= last]:
            self._ahead.remove(held)
            try:
                column = pq.read_table(
                    held.path, columns=["report_id"], filesystem=self.filesystem, partitioning=None
                )
            except (pa.ArrowException, OSError) as error:
                raise InputError(
                    f"{held.path} is damaged; delete it, and its reports are written again ({_in_a_line(error)})",
                    where="output",
                    value=held.path,
                ) from None
            self._reached.append((held.last, np.array(column.column(0).to_pylist(), "S32")))
        self._reached = [(end, ids) for end, ids in self._reached if end >= first]
        return np.concatenate([np.zeros(0, "S32"), *(ids for _, ids in self._reached)])


def begin_export(address: str, campaign: str, plan: Plan) -> _RoundExport:
    """List the existing files of a round and write its plan."""
    filesystem, base = _place_of(address)
    folder = f"{base.rstrip('/')}/campaign={campaign}/round={plan.round}"
    text, temporary = json.dumps(plan.to_json()), f"{folder}/{_hidden('plan.json')}"
    with _writing_to(folder):
        filesystem.create_dir(folder, recursive=True)
        with filesystem.open_output_stream(temporary) as out:
            out.write(text.encode())
        filesystem.move(temporary, f"{folder}/plan.json")
    export = _RoundExport(
        filesystem,
        folder,
        plan,
        {"dither_campaign": campaign, "dither_plan_sha256": _sha256(plan.to_json())},
    )
    written = (path for path in _files_below(filesystem, folder) if path.endswith(".parquet"))
    for path in sorted(path for path in written if not _is_hidden(path)):
        named = _NAME.fullmatch(PurePosixPath(path).name)
        if named is None:
            raise InputError(
                f"{path} is not a file that an export writes; choose another folder", where="output"
            )
        export._ahead.append(_Held(named[1], named[2], path))
    return export


def _hidden(name: str) -> str:
    """A unique temporary name, because two exports may write the same reports at once."""
    return f".{secrets.token_hex(4)}-{name}"


def _folder_of(plan: Plan, question: int) -> str:
    width = -(-len(plan.questions) // _MAX_FOLDERS)
    if plan.split or width == 1:
        return f"question={'all' if question == -1 else question}"
    first = question // width * width
    return f"questions={first}-{min(first + width, len(plan.questions)) - 1}"


# Reading them again.


@dataclass(frozen=True)
class _ExportedFile:
    """A Parquet file of reports."""

    filesystem: Any
    path: str
    rows: int


def find_reports(paths: Sequence[str], plan: Plan) -> list[_ExportedFile]:
    """The files of reports at these paths, each once, of this plan and one campaign.

    Args:
        paths: Files of any name, folders, or patterns such as `reports/*`; also fsspec addresses.
        plan: The plan of the reports.

    Raises:
        InputError: A path has no file or no report, or a file is of another plan.
    """
    files: dict[tuple[str, str], _ExportedFile] = {}
    campaigns: dict[str, str] = {}
    wanted = _sha256(plan.to_json())
    for given in paths:
        filesystem, path = _place_of(given)
        try:
            named = report_files(
                given, _entries(filesystem, path), partial(_files_below, filesystem)
            )
        except OSError as error:
            raise InputError(
                f"cannot read {given[:200]}: {_in_a_line(error)}", where="PATHS", value=given
            ) from None
        total = 0
        for name in named:
            rows, campaign = _check_file(filesystem, name, wanted)
            real = os.path.realpath(name) if isinstance(filesystem, pafs.LocalFileSystem) else name
            files[filesystem.type_name, real] = _ExportedFile(filesystem, name, rows)
            total += rows
            if campaign is not None:
                campaigns.setdefault(campaign, name)
        if not total:
            raise InputError(f"{given} holds no reports", where="PATHS", value=given)
    if len(campaigns) > 1:
        first, second = list(campaigns.values())[:2]
        raise InputError(
            f"{first} and {second} hold reports of different campaigns; count each alone",
            where="PATHS",
        )
    return list(files.values())


def report_files(
    given: str, entries: Sequence[tuple[str, bool]], below: Callable[[str], list[str]]
) -> list[str]:
    """The files of reports that one path names, by the same rules for every engine.

    A file counts under any name; a folder means the Parquet files below it.

    Args:
        given: The path from the user: a file, a folder or a pattern.
        entries: The existing paths, each with whether it is a folder.
        below: Lists all files below a folder.

    Raises:
        InputError: No file can hold reports.
    """
    if not entries:
        raise InputError(f"there is nothing at {given}", where="PATHS", value=given)
    files: list[str] = []
    for path, is_folder in entries:
        if is_folder:
            files += sorted(
                file for file in below(path) if file.endswith(".parquet") and not _is_hidden(file)
            )
        elif _is_hidden(path):
            reason = "a name that begins with . or _ is that of an unfinished file; rename it"
            raise InputError(f"{path} is not counted: {reason}", where="PATHS", value=given)
        else:
            files.append(path)
    if not files:
        raise InputError(f"{given} holds no Parquet file", where="PATHS", value=given)
    return files


def _is_hidden(path: str) -> bool:
    """Spark passes over files with such names without a word, so no engine counts them."""
    return PurePosixPath(path).name.startswith((".", "_"))


def _entries(filesystem: Any, path: str) -> list[tuple[str, bool]]:
    """The existing path or else the matches of the pattern, each with whether it is a folder."""
    infos = [filesystem.get_file_info(path)]
    if infos[0].type == pafs.FileType.NotFound:
        matches = (
            glob.glob
            if isinstance(filesystem, pafs.LocalFileSystem)
            else filesystem.handler.fs.glob
        )
        infos = filesystem.get_file_info(sorted(matches(path))) if glob.has_magic(path) else []
    return [(info.path, info.type != pafs.FileType.File) for info in infos]


def _files_below(filesystem: Any, path: str) -> list[str]:
    chosen = pafs.FileSelector(path, recursive=True, allow_not_found=True)
    return [
        info.path for info in filesystem.get_file_info(chosen) if info.type == pafs.FileType.File
    ]


def _check_file(filesystem: Any, name: str, wanted: str) -> tuple[int, str | None]:
    try:
        with filesystem.open_input_file(name) as file:
            found = pq.ParquetFile(file)
            schema, rows = found.schema_arrow, found.metadata.num_rows
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise InputError(
            f"{name} cannot be read as Parquet: {_in_a_line(error)}", where="PATHS", value=name
        ) from None
    for column in COLUMNS:
        places = schema.get_all_field_indices(column.name)
        if len(places) > 1:
            raise InputError(
                f"{name} has more than one column {column.name!r}", where="PATHS", value=name
            )
        held = schema.field(places[0]).type if places else None
        whole = held is not None and pa.types.is_integer(held) and column.name == "question"
        if held is None or not (whole or (_is_bytes(held) and column.name != "question")):
            kind = "absent" if held is None else f"of type {held}"
            raise InputError(
                f"{name} holds no reports: column {column.name!r} is {kind}",
                where="PATHS",
                value=name,
            )
    metadata = schema.metadata or {}
    digest = metadata.get(b"dither_plan_sha256", b"").decode("ascii", "replace")
    whole = metadata.get(b"dither_plan")
    if whole is not None:
        digest = _sha256(_json_or_none(whole))
    if digest and digest != wanted:
        raise InputError(
            f"{name} holds reports of another plan than the one given", where="--plan", value=name
        )
    campaign = metadata.get(b"dither_campaign")
    return rows, None if campaign is None else campaign.decode("utf-8", "replace")


def _sha256(plan: object) -> str:
    """The hash of a plan, which files store because a plan can be longer than its reports."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


def _json_or_none(text: bytes) -> object:
    try:
        parsed: object = json.loads(text)
    except ValueError:
        return None
    return parsed


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def read_reports(files: Iterable[_ExportedFile]) -> Iterator[pa.Table]:
    """The reports in these files, some at a time."""
    for each in files:
        try:
            with each.filesystem.open_input_file(each.path) as file:
                for batch in pq.ParquetFile(file).iter_batches(1 << 18, columns=COLUMNS.names):
                    yield pa.Table.from_batches([batch]).select(COLUMNS.names).cast(COLUMNS)
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{each.path} cannot be read: {_in_a_line(error)}", where="PATHS", value=each.path
            ) from None
