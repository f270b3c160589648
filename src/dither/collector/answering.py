"""The bounded worker process of a collector: questions about releases, replicates, outside files.

It never sees a report. It is a separate process so that a heavy question or a hostile
file does not slow uploads down: other threads of the collector would wait for it, share
its memory, and no thread can be stopped. It runs with a lower priority and within a
memory limit, is ended if a job takes too long, and is the first process that the kernel
ends if memory runs out.

Releases are cached by the digest of their bytes, within `HELD_BYTES`, without their
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

from dither.checks import check_choice
from dither.collector import limits
from dither.collector.campaigns import CountedElsewhere, read_counted
from dither.collector.exploring import Explored, View, explore
from dither.collector.finished import zip_release
from dither.errors import DitherError, ParameterError, ReportError, TableError
from dither.release import Release, load_release
from dither.release.content import Questions
from dither.release.query import Answer, AnswerRow, AnswerTable
from dither.release.query.numbers import bin_rows
from dither.release.report import ReportBody
from dither.release.table import TableContent
from dither.reports import limits as wire_limits
from dither.schema import load_schema
from dither.schema.files import read_noted
from dither.schema.infer import draft_schema

NICENESS = 10
REPLICATES = 20
NOT_MADE = "intervals are made when the release is published; until then there are none"


LEVEL = 0.95
FIGURES = ("mean", "variance")
# Numbers in one question.
MAX_NUMBERS = 1000


@dataclass(frozen=True)
class Question:
    """A question about a release, as text of an address.

    Args:
        where: The people to count; the answer is their share.
        given: The reference group.
        by: The attributes of a table of shares.
        range: For one number: the share of people in each half-open range
            ("30000,50000").
        below: For one number: the share of people below each number.
        quantiles: For one number: levels ("0.1,0.5").
        bins: For one number: a number of bins, or their edges.
        figure: For one number: mean or variance.
    """

    where: str | None = None
    given: str | None = None
    by: tuple[str, ...] = ()
    range: tuple[str, ...] = ()
    below: str = ""
    quantiles: str = ""
    bins: str = ""
    figure: str = ""

    @property
    def number_parts(self) -> list[str]:
        """The parts that ask about one number."""
        return [name for name in _NUMBER_PARTS if getattr(self, name)]


_NUMBER_PARTS = ("range", "below", "quantiles", "bins", "figure")


@dataclass(frozen=True)
class _HeldRelease:
    """A release without its synthetic rows, and the questions to it."""

    release: Release
    questions: Questions


@dataclass(frozen=True)
class Report:
    """Asks for the report's content, without the page around it."""


@dataclass(frozen=True)
class Replicates:
    """Asks for the same release with replicates, from which every interval is read."""

    count: int = REPLICATES


@dataclass(frozen=True)
class DraftSchema:
    """Asks for the schema of a file uploaded as `name`, or a draft from a table."""

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
ReleaseJob = Question | View | Report | Replicates
Job = ReleaseJob | FileJob


@dataclass(frozen=True)
class Absent:
    """The release is not held; send its bytes."""


class Releases:
    """Releases by digest, the least recently asked for forgotten first."""

    def __init__(self, most: int = limits.HELD_BYTES) -> None:
        self._most = most
        self._held: OrderedDict[str, tuple[_HeldRelease, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, digest: str) -> _HeldRelease | None:
        """A release that is held."""
        found = self._held.get(digest)
        if found is None:
            return None
        self._held.move_to_end(digest)
        return found[0]

    def add(self, digest: str, data: bytes) -> _HeldRelease:
        """Hold a release; others are forgotten to make room."""
        release, size = _read_archive(data)
        content, reason = release.content, ""
        if isinstance(content, TableContent):
            empty = nw.from_native(content.synthetic, eager_only=True).head(0).to_native()
            content = replace(content, synthetic=empty)
            release = replace(release, content=content)
            reason = "" if content.replicates is not None else NOT_MADE
        held = _HeldRelease(release, content.questions(release, reason=reason))
        self._held[digest] = (held, size)
        while len(self._held) > 1 and sum(size for _, size in self._held.values()) > self._most:
            self._held.popitem(last=False)
        return held


def _read_archive(data: bytes) -> tuple[Release, int]:
    """A release of a zip file that this collector made, and the bytes of its folder."""
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(scratch)
        size = sum(
            entry.file_size
            for entry in archive.infolist()
            if not entry.filename.startswith("synthetic.")
        )
        return load_release(Path(scratch)), size


def _do(
    job: ReleaseJob, held: _HeldRelease, data: bytes | None
) -> Answer | AnswerTable | Explored | ReportBody | bytes:
    """A job's result, detached from the release."""
    if isinstance(job, Replicates):
        assert data is not None
        if held.release.kind != "table":
            return data
        return zip_release(_read_archive(data)[0].with_replicates(job.count))
    if isinstance(job, Report):
        return held.release.content.report(held.release)
    if isinstance(job, View):
        return explore(job, held.release, held.questions)
    answer = _answer(job, held)
    if isinstance(answer, Answer):
        return replace(answer, _quantity=None, _source=None)
    return answer


def _answer(job: Question, held: _HeldRelease) -> Answer | AnswerTable:
    if job.number_parts:
        if job.where or job.given or job.by or len(job.number_parts) > 1:
            raise ParameterError(
                f"ask for one of where, by, {', '.join(_NUMBER_PARTS)} at a time",
                where=" ".join(job.number_parts),
            )
        return _answer_number(job, held)
    if job.by:
        names = [name for given in job.by for name in _names_in(given, held.release.schema.names)]
        return held.questions.table(names, job.where, job.given, LEVEL, False)
    if job.where is None:
        raise ParameterError("there is no question: give where=, by= or both", where="where")
    return held.questions.query(job.where, job.given, LEVEL)


def _answer_number(job: Question, held: _HeldRelease) -> Answer | AnswerTable:
    """An answer about one number, with 95 % intervals; shares are of the participants."""
    number = held.release.number
    if job.figure:
        check_choice("figure", job.figure, FIGURES)
        return held.release.mean() if job.figure == "mean" else number.variance(LEVEL)
    if job.quantiles:
        levels = _numbers("quantiles", job.quantiles)
        return held.questions.quantiles(number.attribute, levels, None, None, LEVEL)
    if job.below:
        rows = [((value,), number.cdf(value, LEVEL)) for value in _numbers("below", job.below)]
        return _table("share below", ("below",), rows)
    if job.range:
        ranges = _ranges(job.range)
        shares = [(ends, number.range(*ends, LEVEL)) for ends in ranges]
        return _table("share of people in a range", ("from", "to"), shares)
    return _bins(held.release, job.bins)


def _ranges(texts: Sequence[str]) -> list[tuple[float, float]]:
    if len(texts) > MAX_NUMBERS:
        raise ParameterError(
            f"at most {MAX_NUMBERS:,} ranges can be asked for at once", where="range"
        )
    ranges = []
    for text in texts:
        ends = _numbers("range", text)
        if len(ends) != 2:
            raise ParameterError(
                f"range: write two numbers such as 30000,50000, not {text[:80]!r}", where="range"
            )
        ranges.append((ends[0], ends[1]))
    return ranges


def _bins(release: Release, text: str) -> AnswerTable:
    numbers = _numbers("bins", text)
    if len(numbers) == 1 and not (numbers[0].is_integer() and 1 <= numbers[0] <= MAX_NUMBERS):
        raise ParameterError(
            f"bins: write a number of them from 1 to {MAX_NUMBERS:,}, or edges", where="bins"
        )
    late = release.number.answer(int(numbers[0]) if len(numbers) == 1 else numbers, LEVEL)
    rows = tuple(bin_rows(late, release.people))
    return AnswerTable("share of people in a bin", ("from", "to"), rows, LEVEL, "reports")


def _table(
    asked: str, by: tuple[str, ...], answers: Sequence[tuple[tuple[float, ...], Answer]]
) -> AnswerTable:
    rows = tuple(
        AnswerRow(values, a.estimate, a.low, a.high, a.standard_error) for values, a in answers
    )
    warnings = tuple(dict.fromkeys(warning for _, answer in answers for warning in answer.warnings))
    return AnswerTable(asked, by, rows, LEVEL, answers[0][1].basis, warnings=warnings)


def _numbers(name: str, text: str) -> list[float]:
    """Numbers with commas between them."""
    parts = text.split(",")
    if len(parts) > MAX_NUMBERS:
        raise ParameterError(f"{name}: at most {MAX_NUMBERS:,} numbers", where=name)
    try:
        return [float(part) for part in parts]
    except ValueError:
        raise ParameterError(
            f"{name}: write numbers with commas between them, not {text[:80]!r}", where=name
        ) from None


def _read_file(job: FileJob) -> DraftedSchema | CountedElsewhere:
    """Read an outside file, within the collector's limits.

    Raises:
        DitherError: The file is invalid; the message has the name under which it was
            uploaded.
    """
    path = Path(job.path)
    if isinstance(job, ReadTally):
        counted = read_counted(path.read_bytes())
        if len(json.dumps(counted.tally.plan.to_json())) > wire_limits.PLAN_BYTES:
            raise ReportError("the plan of this tally is larger than any that devices read")
        return counted
    try:
        from_data = path.suffix != ".json"
        schema = draft_schema(read_noted(path)[0]) if from_data else load_schema(path)
    except DitherError as error:
        raise TableError(str(error).replace(job.path, job.name), where=job.name) from None
    text = json.dumps(schema.to_json())
    if len(text) > wire_limits.BODY_BYTES:
        raise TableError(
            f"the schema of {job.name} takes {len(text):,} bytes; at most {wire_limits.BODY_BYTES:,} can "
            "be sent to create a campaign: use fewer columns or fewer values",
            where=job.name,
        )
    return DraftedSchema(text, from_data)


def _serve_jobs(
    pipe: Connection, memory: int = limits.MEMORY_BYTES, held: int = limits.HELD_BYTES
) -> None:
    """Do jobs from a pipe, one at a time, until its other end is closed."""
    # The collector ends this process explicitly, or by its own end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    # The kernel ends this process first if memory runs out.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    releases = Releases(held)
    # Report that the process is ready.
    pipe.send(None)
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
    """The file's content, `OutOfMemory`, or the error to raise in the collector."""
    try:
        return _read_file(job)
    except (TableError, ReportError) as error:
        return type(error)(str(error), where=error.where)
    except MemoryError:
        return OutOfMemory()
    # The text of an unexpected error may carry values of the file.
    except Exception as error:
        return RuntimeError(f"{type(error).__name__} while a file was read")


def _result(releases: Releases, digest: str, job: ReleaseJob, data: bytes | None) -> object:
    """The job's result, `Absent`, or the error to raise in the collector."""
    try:
        held = releases.get(digest)
        if held is None or (isinstance(job, Replicates) and data is None):
            if data is None:
                return Absent()
            held = releases.add(digest, data)
    # The text of the error may carry paths of this machine.
    except Exception as error:
        return RuntimeError(f"{type(error).__name__} while a release was read")
    try:
        return _do(job, held, data)
    except DitherError as error:
        return ParameterError(str(error), where=str(error.where or ""))
    except MemoryError:
        return ParameterError(
            "the question needs more memory than one may; ask by fewer attributes", where="by"
        )
    # The text of an unexpected error may carry values.
    except Exception as error:
        return RuntimeError(f"{type(error).__name__} while answering")


def digest_of(data: bytes) -> str:
    """The digest that identifies a release."""
    return hashlib.sha256(data).hexdigest()


def _names_in(by: str, known: Sequence[str]) -> tuple[str, ...]:
    """Comma-separated attributes; a single attribute's name may contain commas."""
    return (by,) if by in known else tuple(name.strip() for name in by.split(","))


def main() -> None:
    """The process: `Questions` gives it a pipe's number and its limit of memory."""
    _serve_jobs(Connection(int(sys.argv[1])), int(sys.argv[2]))
