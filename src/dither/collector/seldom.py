"""Log lines about what a stranger can bring about at will: at most one a minute, so that nobody fills a disk with them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

SECONDS = 60.0


class Seldom:
    """Logs a warning now and then, and says how many times it kept quiet in between."""

    def __init__(
        self, log: logging.Logger, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}
        self._kept: dict[str, int] = {}

    def warn(self, kind: str, message: str) -> None:
        """Log this now unless something of its kind was logged a short while ago. Kinds are few and ours."""
        with self._lock:
            now = self._clock()
            if now - self._said.get(kind, -self._seconds) < self._seconds:
                self._kept[kind] = self._kept.get(kind, 0) + 1
                return
            self._said[kind] = now
            kept = self._kept.pop(kind, 0)
        more = f" ({kept:,} more of this kind since the line before)" if kept else ""
        self._log.warning("%s%s", " ".join(message.split()), more)
