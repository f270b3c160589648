"""Questions about releases, put to a process beside the collector that `answering` runs: bounded in number, time and memory.

Guarantee: whatever is asked, uploads go on. One question is answered at a time, `MOST_WAITING` may wait, and whoever comes after
hears at once that too many ask. A question that takes longer than `QUESTION_SECONDS` ends the process, and the next one starts
another. Replicates are made in a process of their own, one set at a time, so that questions need not wait for them.
"""

from __future__ import annotations

import logging
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dither.collector.answering import MEMORY_BYTES, Absent, Job, Question, Replicates, Report
from dither.errors import DitherError, ParameterError
from dither.release.query import Answer, AnswerTable
from dither.release.report import ReportBody

QUESTION_SECONDS = 20.0
REPORT_SECONDS = 120.0  # the content of a report, which is kept afterwards
START_SECONDS = 60.0  # for the process to come up, once
LOAD_SECONDS = 60.0  # for a release to be read, once; nobody who asks chooses how long that takes
REPLICATES_SECONDS = 3600.0
MOST_WAITING = 8
WAIT_SECONDS = 30.0  # for those before
log = logging.getLogger("dither.collector")


class TooManyQuestions(DitherError):
    """More questions wait than are taken; ask again a little later."""


class QuestionTooLong(ParameterError):
    """The answer would take longer than a question may."""


class _Attendant:
    """A process that answers, and the pipe to it."""

    def __init__(self, memory: int) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        # A program of its own rather than multiprocessing's: whatever runs the collector is not imported once more.
        code = "from dither.collector.answering import main; main()"
        command = [sys.executable, "-P", "-c", code, str(theirs.fileno()), str(memory)]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        try:
            if not self._pipe.poll(START_SECONDS):
                raise TooManyQuestions("the process that answers questions did not start; ask again in a moment")
            self._pipe.recv()
        except BaseException:
            self.end()
            raise

    def ask(self, digest: str, job: Job, data: bytes | None, seconds: float) -> object:
        """The result of a job; the process is of no more use if this raises `QuestionTooLong` or `OSError`."""
        self._pipe.send((digest, job, data))
        if not self._pipe.poll(seconds):
            raise QuestionTooLong(
                f"the answer would take longer than {seconds:g} s; ask about fewer attributes or values", where="where"
            )
        return self._pipe.recv()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()


class Questions:
    """The way to those processes. Every method may be called in any thread that can wait."""

    def __init__(self, memory: int = MEMORY_BYTES) -> None:
        self._memory = memory
        self._turn = threading.Lock()
        self._making = threading.Lock()
        self._room = threading.BoundedSemaphore(MOST_WAITING + 1)
        self._attendants: dict[str, _Attendant] = {}
        self._ended = False

    def answer(self, digest: str, question: Question, fetch: Callable[[], bytes]) -> Answer | AnswerTable:
        """The answer of a release, of which `fetch` brings the bytes should they be needed."""
        found = self._in_turn(digest, question, fetch, QUESTION_SECONDS)
        assert isinstance(found, Answer | AnswerTable)
        return found

    def report(self, digest: str, fetch: Callable[[], bytes]) -> ReportBody:
        """The content of a release's report."""
        found = self._in_turn(digest, Report(), fetch, REPORT_SECONDS)
        assert isinstance(found, ReportBody)
        return found

    def with_replicates(self, digest: str, data: bytes) -> bytes:
        """The same release with replicates, again as a zip file; this takes about as long as twenty fits."""
        if not self._making.acquire(blocking=False):
            raise TooManyQuestions("replicates of another release are being made; try again when they are done")
        try:
            made = self._asked("replicates", digest, Replicates(), lambda: data, REPLICATES_SECONDS)
            assert isinstance(made, bytes)
            return made
        finally:
            self._end("replicates")
            self._making.release()

    def stop(self) -> None:
        """End the processes; whoever waits for one hears that it is gone."""
        self._ended = True
        for name in list(self._attendants):
            self._end(name)

    def _in_turn(self, digest: str, job: Job, fetch: Callable[[], bytes], seconds: float) -> object:
        with self._my_turn():
            return self._asked("answers", digest, job, fetch, seconds)

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        if not self._room.acquire(blocking=False):
            raise TooManyQuestions(f"{MOST_WAITING} questions wait already; ask again in a moment")
        try:
            if not self._turn.acquire(timeout=WAIT_SECONDS):
                raise TooManyQuestions(f"the questions before took longer than {WAIT_SECONDS:g} s; ask again")
            try:
                yield
            finally:
                self._turn.release()
        finally:
            self._room.release()

    def _asked(self, name: str, digest: str, job: Job, fetch: Callable[[], bytes], seconds: float) -> object:
        """Ask, and once more with the release's bytes if the process does not hold it."""
        try:
            attendant = self._attendants.get(name) or self._start(name)
            found = attendant.ask(digest, job, None, seconds)
            if isinstance(found, Absent):
                found = attendant.ask(digest, job, fetch(), seconds + LOAD_SECONDS)
        except QuestionTooLong:
            self._end(name)
            raise
        except (EOFError, OSError):  # it was ended, or ran out of memory in a way that Python could not say
            self._end(name)
            if self._ended:
                raise TooManyQuestions("the collector is being stopped") from None
            raise QuestionTooLong("the question needs more memory than one may", where="by") from None
        if isinstance(found, DitherError):
            raise found
        if isinstance(found, Exception):
            log.error("a question met a defect: %s", found)
            raise found
        return found

    def _start(self, name: str) -> _Attendant:
        if self._ended:
            raise TooManyQuestions("the collector is being stopped")
        made = self._attendants[name] = _Attendant(self._memory)
        return made

    def _end(self, name: str) -> None:
        attendant = self._attendants.pop(name, None)
        if attendant is not None:
            with suppress(OSError):
                attendant.end()
