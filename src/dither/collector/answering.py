"""The bounded process beside a collector: it answers questions about releases, makes replicates and
reads files from outside. It never sees a report.

It is a process of its own so that a heavy question or a hostile file takes nothing from uploads:
other threads of the collector would wait for it between two steps, memory it asks for would be
theirs, and no thread can be stopped. It runs with a lower priority and within a memory limit, is
ended when a job takes too long, and is the first that the kernel ends when memory runs out.
Releases are held by the digest of their bytes, as many as fit into `HELD_BYTES`, without their
synthetic rows, which no question needs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import narwhals as nw

from dither.collector.campaigns import CountedElsewhere, read_counted
from dither.collector.finished import zip_release
from dither.errors import DitherError, ParameterError, ReportError, TableError
from dither.release import Release, load_release
from dither.release.folder import format_of
from dither.release.histogram import FORMAT as HISTOGRAM_FORMAT
from dither.release.histogram import HistogramRelease
from dither.release.number_questions import NumberQuestion, ask_number
from dither.release.number_report import number_body
from dither.release.query import Answer, AnswerTable
from dither.release.query.ask import Inquiry
from dither.release.report import ReportBody, report_body
from dither.reports import limits
from dither.schema import load_schema
from dither.schema.files import read_noted
from dither.schema.infer import draft_schema

HELD_BYTES = 256 << 20  # of releases, unpacked
MEMORY_BYTES = 4 << 30  # that the process may ask for
NICENESS = 10
REPLICATES = 20
NOT_MADE = "intervals are made when the release is published; until then there are none"


@dataclass(frozen=True)
class Question:
    """What is asked of a release: the share of people for whom `where` holds among those for whom `given` holds, in a table if
    there is something to go `by`; or something about the one number of a release that is about one (`number`)."""

    where: str | None = None
    given: str | None = None
    by: tuple[str, ...] = ()
    number: NumberQuestion | None = None


@dataclass(frozen=True)
class Report:
    """Asks for the report's content, without the page around it."""


@dataclass(frozen=True)
class Replicates:
    """Asks for the same release with replicates, from which every interval is read."""

    count: int = REPLICATES


@dataclass(frozen=True)
class DraftSchema:
    """Asks for the schema in a file that was uploaded as `name`: a schema file's own, or a draft from
    a table."""

    path: str
    name: str


@dataclass(frozen=True)
class DraftedSchema:
    """A schema as JSON, and whether it was read off data."""

    json: str
    from_data: bool


@dataclass(frozen=True)
class ReadTally:
    """Asks for the tally in a file that was counted elsewhere."""

    path: str


@dataclass(frozen=True)
class OutOfMemory:
    """The job needed more memory than the process may take."""


FileJob = DraftSchema | ReadTally
ReleaseJob = Question | Report | Replicates
Job = ReleaseJob | FileJob


@dataclass(frozen=True)
class Absent:
    """The release is not held; send its bytes."""


class Releases:
    """Releases by digest, the least recently asked for forgotten first."""

    def __init__(self, most: int = HELD_BYTES) -> None:
        self._most = most
        self._held: OrderedDict[str, tuple[Inquiry | HistogramRelease, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, digest: str) -> Inquiry | HistogramRelease | None:
        """A release that is held."""
        found = self._held.get(digest)
        if found is None:
            return None
        self._held.move_to_end(digest)
        return found[0]

    def add(self, digest: str, data: bytes) -> Inquiry | HistogramRelease:
        """Hold a release; others are forgotten to make room."""
        release, size = _read_archive(data)
        inquiry: Inquiry | HistogramRelease
        if isinstance(release, HistogramRelease):
            inquiry = release
        else:
            empty = nw.from_native(release.synthetic, eager_only=True).head(0).to_native()
            release = replace(release, synthetic=empty)
            inquiry = Inquiry(release, reason="" if release.replicates is not None else NOT_MADE)
        self._held[digest] = (inquiry, size)
        while len(self._held) > 1 and sum(held for _, held in self._held.values()) > self._most:
            self._held.popitem(last=False)
        return inquiry


def _read_archive(data: bytes) -> tuple[Release | HistogramRelease, int]:
    """A release of a zip file that this collector made, and the bytes of its folder."""
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(scratch)
        size = sum(
            entry.file_size
            for entry in archive.infolist()
            if not entry.filename.startswith("synthetic.")
        )
        about_a_number = format_of(scratch) == HISTOGRAM_FORMAT
        return (HistogramRelease.load if about_a_number else load_release)(Path(scratch)), size


def do(
    job: ReleaseJob, inquiry: Inquiry | HistogramRelease, data: bytes | None
) -> Answer | AnswerTable | ReportBody | bytes:
    """A job's result, without what ties it to the release."""
    if isinstance(inquiry, HistogramRelease):
        return _about_a_number(job, inquiry, data)
    if isinstance(job, Replicates):
        assert data is not None
        release = _read_archive(data)[0]
        assert isinstance(release, Release)
        return zip_release(release.with_replicates(job.count))
    if isinstance(job, Report):
        return report_body(inquiry.release)
    if job.number is not None:
        raise ParameterError(
            "this release is about whole records, not about one number; ask with where= and by=",
            where="where",
        )
    if job.by:
        names = [
            name for given in job.by for name in _names_in(given, inquiry.release.schema.names)
        ]
        return inquiry.table(names, job.where, job.given, 0.95, False)
    if job.where is None:
        raise ParameterError("there is no question: give where=, by= or both", where="where")
    return replace(inquiry.query(job.where, job.given, 0.95), _quantity=None, _source=None)


def _about_a_number(
    job: ReleaseJob, release: HistogramRelease, data: bytes | None
) -> Answer | AnswerTable | ReportBody | bytes:
    """The same of a release about one number. Its figures have their errors without replicates."""
    if isinstance(job, Replicates):
        assert data is not None
        return data
    if isinstance(job, Report):
        return number_body(release)
    if job.number is None or job.where or job.given or job.by:
        raise ParameterError(
            "this release is about one number; ask with range=, below=, quantiles=, bins= or figure=",
            where="where",
        )
    return ask_number(release, job.number)


def _read_file(job: FileJob) -> DraftedSchema | CountedElsewhere:
    """What is in a file from outside; no more of it than the collector can use.

    Raises:
        DitherError: the file is not what it should be; the message has the name it was uploaded as.
    """
    path = Path(job.path)
    if isinstance(job, ReadTally):
        counted = read_counted(path.read_bytes())
        if len(json.dumps(counted.tally.plan.to_json())) > limits.PLAN_BYTES:
            raise ReportError("the plan of this tally is larger than any that devices read")
        return counted
    try:
        from_data = path.suffix != ".json"
        schema = draft_schema(read_noted(path)[0]) if from_data else load_schema(path)
    except DitherError as error:
        raise TableError(str(error).replace(job.path, job.name), where=job.name) from None
    text = json.dumps(schema.to_json())
    if len(text) > limits.BODY_BYTES:
        raise TableError(
            f"the schema of {job.name} takes {len(text):,} bytes; at most {limits.BODY_BYTES:,} can "
            "be sent to create a campaign: use fewer columns or fewer values",
            where=job.name,
        )
    return DraftedSchema(text, from_data)


def _serve_jobs(pipe: Connection, memory: int = MEMORY_BYTES, held: int = HELD_BYTES) -> None:
    """Do jobs from a pipe, one at a time, until its other end is closed."""
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # the collector ends this process itself, or dies
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with suppress(OSError):  # where the kernel runs out of memory, it ends this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    releases = Releases(held)
    pipe.send(None)  # it is up
    while True:
        try:
            digest, job, data = pipe.recv()
            pipe.send(
                _file_result(job)
                if isinstance(job, FileJob)
                else _result(releases, digest, job, data)
            )
        except (EOFError, BrokenPipeError):
            return


def _file_result(job: FileJob) -> object:
    """What a file holds, `OutOfMemory`, or the error to raise at the other end."""
    try:
        return _read_file(job)
    except (TableError, ReportError) as error:
        return type(error)(str(error), where=error.where)
    except MemoryError:
        return OutOfMemory()
    except Exception as error:  # a defect; its text may carry values of the file
        return RuntimeError(f"{type(error).__name__} while a file was read")


def _result(releases: Releases, digest: str, job: ReleaseJob, data: bytes | None) -> object:
    """What a job gives, `Absent`, or the error to raise at the other end."""
    try:
        inquiry = releases.get(digest)
        if inquiry is None or (isinstance(job, Replicates) and data is None):
            if data is None:
                return Absent()
            inquiry = releases.add(digest, data)
    except Exception as error:  # it says where files lay, which is nobody's business
        return RuntimeError(f"{type(error).__name__} while a release was read")
    try:
        return do(job, inquiry, data)
    except DitherError as error:
        return ParameterError(str(error), where=str(error.where or ""))
    except MemoryError:
        return ParameterError(
            "the question needs more memory than one may; ask by fewer attributes", where="by"
        )
    except (
        Exception
    ) as error:  # of whatever kind: it is told as a defect, without the values it may carry
        return RuntimeError(f"{type(error).__name__} while answering")


def digest_of(data: bytes) -> str:
    """What a release is known by."""
    return hashlib.sha256(data).hexdigest()


def _names_in(by: str, known: Sequence[str]) -> tuple[str, ...]:
    """Attributes with commas between them; an attribute whose name has commas may stand alone."""
    return (by,) if by in known else tuple(name.strip() for name in by.split(","))


def main() -> None:
    """The process: `Questions` gives it a pipe's number and its limit of memory."""
    _serve_jobs(Connection(int(sys.argv[1])), int(sys.argv[2]))
