"""The most memory that a process held since a mark. Standard library only.

`ru_maxrss` is not suitable where the kernel reports more: on Linux a process inherits that figure from the one that started it,
so that a small child of a large parent seems never to grow.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """Marks the memory held now; `extra_mb` is how much more was held at the worst moment since."""

    def __init__(self) -> None:
        # Not Linux, or not allowed: then the mark is the highest so far, and growth below it stays unseen.
        with suppress(OSError):
            CLEAR.write_text("5")  # reset the high-water mark
        self._before = _kilobytes("VmRSS")

    def extra_mb(self) -> float:
        return max(0.0, (_kilobytes("VmHWM") - self._before) / 1024)


def _kilobytes(field: str) -> float:
    if STATUS.is_file():
        for line in STATUS.read_text().splitlines():
            if line.startswith(field):
                return float(line.split()[1])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1024 if sys.platform == "darwin" else float(most)
