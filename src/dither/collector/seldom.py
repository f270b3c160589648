"""Log lines about what a stranger can bring about at will: at most one a minute, so that nobody fills a disk with them."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable

SECONDS = 60.0


class Seldom:
    """Logs a warning now and then, and says how many times it kept quiet in between."""

    def __init__(
        self, log: logging.Logger, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._turn = _Turn(seconds, clock)

    def warn(self, kind: str, message: str) -> None:
        """Log this now unless something of its kind was logged a short while ago. Kinds are few and ours."""
        more = self._turn.take(kind)
        if more is not None:
            self._log.warning("%s%s", " ".join(message.split()), more)


class SeldomFilter(logging.Filter):
    """For loggers that write tracebacks: of each line of code that logs, and each that failed, one record a minute."""

    def __init__(self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._turn = _Turn(seconds, clock)

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        more = self._turn.take(f"{record.pathname}:{record.lineno} {_place(error)}")
        if more:
            record.msg, record.args = record.getMessage().rstrip() + more, ()
        return more is not None


class _Turn:
    """Whose turn it is to be logged, by kind."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}
        self._kept: dict[str, int] = {}

    def take(self, kind: str) -> str | None:
        """None if something of the kind was logged a short while ago; else what to say of those kept quiet since."""
        with self._lock:
            now = self._clock()
            if now - self._said.get(kind, -self._seconds) < self._seconds:
                self._kept[kind] = self._kept.get(kind, 0) + 1
                return None
            self._said[kind] = now
            kept = self._kept.pop(kind, 0)
        return f" ({kept:,} more of this kind since the line before)" if kept else ""


def _place(error: BaseException | None) -> str:
    """The kind of an error and the line of code that raised it: there are only so many of them."""
    if error is None:
        return ""
    lines = list(traceback.walk_tb(error.__traceback__))
    where = f"{lines[-1][0].f_code.co_filename}:{lines[-1][1]}" if lines else ""
    return f"{type(error).__name__} {where}"
