"""Collectors in processes of their own without the seconds of processor time that loading their libraries takes.

One process loads them and forks for each collector that is asked for. What it forks has its own memory, files and signals, can be
killed like any other, and runs the same code; only the loading is shared. `Collector` looks like `subprocess.Popen` to a test.
`QuestionProcess` does the same for the process in which a collector answers questions and reads files.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

MOST = 1 << 18  # bytes of a request: arguments and environment


class Collector:
    """A forked collector: as much of `subprocess.Popen` as the tests use."""

    def __init__(self, code: str, *arguments: str) -> None:
        ends = [os.pipe(), os.pipe()]
        try:
            self._fork(code, arguments, [write for _, write in ends])
        finally:
            for _, write in ends:
                os.close(write)
        self.stdout, self.stderr = (os.fdopen(read, encoding="utf-8") for read, _ in ends)

    def _fork(self, code: str, arguments: Sequence[str], handles: list[int]) -> None:
        """Start it with standard output, standard error, and a handle to be kept under its number."""
        task = {"code": code, "arguments": arguments, "kept": handles[2:]}
        asked = json.dumps({**task, "environment": dict(os.environ)}).encode()
        assert len(asked) < MOST
        ended, write = os.pipe()
        try:
            socket.send_fds(nursery(), [asked], [write, *handles])
        finally:
            os.close(write)
        self._end = os.fdopen(ended, "rb", buffering=0)
        self.returncode: int | None = None
        self.pid = int(self._line())

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            part = self._end.read(1)
            assert part, "the process that forks collectors has ended"
            line += part
        return line

    def poll(self) -> int | None:
        """Its status as `Popen` gives it, None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        found = self._ended(timeout)
        if found is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("a forked collector", timeout)
        return found

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._end, selectors.EVENT_READ)
                if ready.select(timeout):
                    self.returncode = os.waitstatus_to_exitcode(int(self._line()))
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Everything that it still says, once it has ended."""
        until = None if timeout is None else time.monotonic() + timeout
        said: dict[Any, bytes] = {self.stdout: b"", self.stderr: b""}
        with selectors.DefaultSelector() as ready:
            for pipe in said:
                ready.register(pipe, selectors.EVENT_READ)
            while ready.get_map():
                left = None if until is None else until - time.monotonic()
                found = ready.select(left) if left is None or left > 0 else []
                if not found:
                    raise subprocess.TimeoutExpired("a forked collector", timeout or 0.0)
                for key, _ in found:
                    part = os.read(key.fd, 1 << 16)
                    said[key.fileobj] += part
                    if not part:
                        ready.unregister(key.fileobj)
        self.wait(None if until is None else max(until - time.monotonic(), 0.1))
        for pipe in (self.stdout, self.stderr, self._end):
            pipe.close()
        return said[self.stdout].decode(), said[self.stderr].decode()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class QuestionProcess(Collector):
    """Takes the place of `subprocess.Popen` in `dither.collector.questions`."""

    def __init__(self, command: Sequence[str], pass_fds: Sequence[int], **_: Any) -> None:
        code, *arguments = command[command.index("-c") + 1 :]
        self._fork(code, arguments, [1, 2, *pass_fds])

    def wait(self, timeout: float | None = None) -> int:
        status = super().wait(timeout)
        self._end.close()
        return status


@cache
def nursery() -> socket.socket:
    """The way to the process that forks, which is started when first needed and ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        running = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )

    def end() -> None:
        ours.close()
        running.wait()

    atexit.register(end)
    return ours


def next_collector(asked: socket.socket) -> dict[str, Any]:
    """Fork whenever somebody asks; returns in what was forked, with what it is to run."""
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # those that wait for collectors are waited for by nobody
    while True:
        message, handles, _, _ = socket.recv_fds(asked, MOST, 4)
        if not message:
            os._exit(0)
        while not message.endswith(b"}}"):  # the environment is last
            message += asked.recv(MOST)
        if os.fork() == 0:
            asked.close()
            return _minded(json.loads(message), *handles)
        for handle in handles:
            os.close(handle)


def _minded(task: dict[str, Any], end: int, out: int, err: int, *kept: int) -> dict[str, Any]:
    """Fork once more, so that somebody waits for the collector and tells how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    born = os.fork()
    if born == 0:
        os.close(end)
        for handle, place in zip((out, err, *kept), (1, 2, *task["kept"]), strict=True):
            if handle != place:
                os.dup2(handle, place)
                os.close(handle)
        return task
    for handle in (out, err, *kept):
        os.close(handle)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(end, f"{born}\n".encode())
    os.write(end, f"{os.waitpid(born, 0)[1]}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    from dither.collector import serve  # noqa: F401  (what is loaded here is loaded for all)

    work = next_collector(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(work["environment"])
    sys.argv = ["-c", *work["arguments"]]
    exec(work["code"])
