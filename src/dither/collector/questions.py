"""Send questions about releases, and outside files, to the bounded process of `answering`.

Guarantee: uploads continue during any question or file. One question is answered at a
time, at most `MAX_WAITING` wait, and further ones are rejected at once. A question that
takes longer than `QUESTION_SECONDS` ends the process, and the next one starts another.
Replicates are made in a separate process, one set at a time, so questions need not wait
for them. Each file is read in a separate process that ends with it, so no part of the
file stays in memory.
"""

from __future__ import annotations

import logging
import multiprocessing
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dither.collector import limits
from dither.collector.answering import (
    Absent,
    DraftedSchema,
    DraftSchema,
    FileJob,
    Job,
    OutOfMemory,
    Question,
    ReadTally,
    Replicates,
    Report,
)
from dither.collector.campaigns import CountedElsewhere
from dither.collector.exploring import Explored, View
from dither.collector.problems import Problem
from dither.errors import DitherError, ParameterError
from dither.release.query import Answer, AnswerTable
from dither.release.report import ReportBody

log = logging.getLogger("dither.collector")


class _QuestionTooLong(ParameterError):
    """The answer would take longer than a question may."""


def _too_many(detail: str) -> Problem:
    """Return the error for a question that cannot be taken now."""
    return Problem("too-many-questions", detail)


class _Line:
    """The queue of a process: one caller is served, few wait, others are rejected."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.turn = threading.Lock()
        self._room = threading.BoundedSemaphore(limits.MAX_WAITING + 1)

    @contextmanager
    def my_turn(self) -> Iterator[None]:
        """Wait for the turn and keep it."""
        if not self._room.acquire(blocking=False):
            raise _too_many(
                f"{limits.MAX_WAITING} {self._what} wait already; try again in a moment"
            )
        try:
            if not self.turn.acquire(timeout=limits.WAIT_SECONDS):
                raise _too_many(
                    f"the {self._what} before took longer than {limits.WAIT_SECONDS:g} s; try again"
                )
            try:
                yield
            finally:
                self.turn.release()
        finally:
            self._room.release()


class _Worker:
    """A process that does jobs, and the pipe to it."""

    def __init__(self, memory: int) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        # A separate program instead of multiprocessing, which would import the main module again.
        code = "from dither.collector.answering import main; main()"
        command = [sys.executable, "-P", "-c", code, str(theirs.fileno()), str(memory)]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()
        try:
            if not self._pipe.poll(limits.PROCESS_START_SECONDS):
                raise _too_many("the bounded process did not start; try again in a moment")
            self._pipe.recv()
        except BaseException:
            self.end()
            raise

    def ask(self, digest: str, job: Job, data: bytes | None, seconds: float) -> object:
        """The result of a job; after `_QuestionTooLong` or `OSError` the process is unusable."""
        self._pipe.send((digest, job, data))
        if not self._pipe.poll(seconds):
            raise _QuestionTooLong(
                f"the answer would take longer than {seconds:g} s; ask about fewer attributes or values",
                where="where",
            )
        return self._pipe.recv()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()


class Questions:
    """Access to the processes. All methods may be called in any thread that can block."""

    def __init__(self, memory: int = limits.MEMORY_BYTES) -> None:
        self._memory = memory
        self._asking = _Line("questions")
        self._reading = _Line("files")
        self._making = threading.Lock()
        self._workers: dict[str, _Worker] = {}
        self._ended = False

    def answer(
        self, digest: str, question: Question, fetch: Callable[[], bytes]
    ) -> Answer | AnswerTable:
        """Answer a question about a release; `fetch` loads its bytes if they are needed."""
        found = self._in_turn(digest, question, fetch, limits.QUESTION_SECONDS)
        assert isinstance(found, Answer | AnswerTable)
        return found

    def explore(self, digest: str, view: View, fetch: Callable[[], bytes]) -> Explored:
        """The figures of a view of the explorer."""
        found = self._in_turn(digest, view, fetch, limits.QUESTION_SECONDS)
        assert isinstance(found, Explored)
        return found

    def report(self, digest: str, fetch: Callable[[], bytes]) -> ReportBody:
        """The content of a release's report."""
        found = self._in_turn(digest, Report(), fetch, limits.REPORT_SECONDS)
        assert isinstance(found, ReportBody)
        return found

    def with_replicates(self, digest: str, data: bytes) -> bytes:
        """The release with replicates as a zip file; takes about as long as twenty fits."""
        if not self._making.acquire(blocking=False):
            raise _too_many(
                "replicates of another release are being made; try again when they are done"
            )
        try:
            made = self._asked(
                "replicates", digest, Replicates(), lambda: data, limits.REPLICATES_SECONDS
            )
            assert isinstance(made, bytes)
            return made
        finally:
            self._end("replicates")
            self._making.release()

    def draft_schema(self, path: str, name: str) -> DraftedSchema:
        """The schema of the file at `path`, uploaded as `name`, or a draft from a table.

        Raises:
            InputError: The file is neither.
            Problem: Reading it takes too much.
        """
        found = self._read(DraftSchema(path, name))
        assert isinstance(found, DraftedSchema)
        return found

    def read_tally(self, data: bytes) -> CountedElsewhere:
        """A tally that was counted elsewhere.

        Raises:
            ReportError: the bytes are not one.
            Problem: reading it takes too much.
        """
        with tempfile.NamedTemporaryFile(prefix="dither-upload-") as file:
            file.write(data)
            file.flush()
            found = self._read(ReadTally(file.name))
        assert isinstance(found, CountedElsewhere)
        return found

    def stop(self) -> None:
        """End the processes; a caller that waits for one gets an error."""
        self._ended = True
        for name in list(self._workers):
            self._end(name)

    def _in_turn(self, digest: str, job: Job, fetch: Callable[[], bytes], seconds: float) -> object:
        with self._asking.my_turn():
            return self._asked("answers", digest, job, fetch, seconds)

    def _read(self, job: FileJob) -> object:
        with self._reading.my_turn():
            try:
                worker = self._workers.get("files") or self._start("files")
                found = worker.ask("", job, None, limits.FILE_SECONDS)
            except _QuestionTooLong:
                raise Problem(
                    "too-large",
                    f"reading the file takes longer than {limits.FILE_SECONDS:g} s; send a smaller one",
                ) from None
            except (EOFError, OSError):
                # The process ran out of memory without a Python error.
                if self._ended:
                    raise _too_many("the collector is being stopped") from None
                found = OutOfMemory()
            finally:
                self._end("files")
        if isinstance(found, OutOfMemory):
            raise Problem(
                "too-large",
                f"reading the file needs more memory than the "
                f"{self._memory >> 20:,} MiB it may take; send a smaller one",
            )
        return _checked(found)

    def _asked(
        self, name: str, digest: str, job: Job, fetch: Callable[[], bytes], seconds: float
    ) -> object:
        """Ask, and once more with the release's bytes if the process does not hold it."""
        try:
            worker = self._workers.get(name) or self._start(name)
            found = worker.ask(digest, job, None, seconds)
            if isinstance(found, Absent):
                found = worker.ask(digest, job, fetch(), seconds + limits.LOAD_SECONDS)
        except _QuestionTooLong:
            self._end(name)
            raise
        except (EOFError, OSError):
            # The process was ended, or ran out of memory without a Python error.
            self._end(name)
            if self._ended:
                raise _too_many("the collector is being stopped") from None
            raise _QuestionTooLong(
                "the question needs more memory than one may", where="by"
            ) from None
        return _checked(found)

    def _start(self, name: str) -> _Worker:
        if self._ended:
            raise _too_many("the collector is being stopped")
        made = self._workers[name] = _Worker(self._memory)
        return made

    def _end(self, name: str) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            with suppress(OSError):
                worker.end()


def _checked(found: object) -> object:
    """A job's result; the error that it is, raised."""
    if isinstance(found, Exception):
        if not isinstance(found, DitherError):
            log.error("the bounded process met a defect: %s", found)
        raise found
    return found
