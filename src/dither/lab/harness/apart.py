"""A measurement in a process of its own, so that its peak memory, its start-up and its failure are nobody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from dither.lab.harness.study import NotAvailable

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_megabytes() -> float:
    """The most memory that this process has held.

    Linux carries `ru_maxrss` over from the process that started this one, so its own high-water mark is read where there is one.
    """
    return _megabytes("VmHWM")


class Peak:
    """Marks the memory held now; `extra` is how many megabytes more were held at the worst moment since."""

    def __init__(self) -> None:
        # Not Linux, or not allowed: then the mark is the highest so far, and growth below it stays unseen.
        with suppress(OSError):
            CLEAR.write_text("5")  # the high-water mark begins anew
        self._before = _megabytes("VmRSS")

    def extra(self) -> float:
        """Megabytes held at most beyond the mark."""
        return max(0.0, peak_megabytes() - self._before)


def _megabytes(field: str) -> float:
    if STATUS.is_file():
        for line in STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    import resource  # not on every system, and only asked where there is no /proc

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return most / 1024 if sys.platform == "darwin" else most


def apart(
    function: Callable[..., Any],
    *arguments: Any,
    python: str = sys.executable,
    limit: float | None = None,
) -> Any:
    """What a module's function returns in a fresh process, with one thread for linear algebra.

    Arguments and result pass as JSON. A library that is missing there, or a process that has not finished after `limit` seconds,
    raises `NotAvailable`, another failure `RuntimeError` with the child's last line. `python` may be the interpreter of another
    environment. The child finds modules where this process does.
    """
    call = [python, "-m", __name__, function.__module__, function.__name__, json.dumps(arguments)]
    own = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in (os.getcwd(), *sys.path) if p)}
    try:
        done = subprocess.run(
            call, capture_output=True, text=True, check=False, env=own, timeout=limit
        )
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"not finished after {limit:g} s") from None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines()
        reason = said[-1] if said else "ended by the system, perhaps for want of memory"
        raise RuntimeError(f"{function.__name__}{arguments} failed: {reason}")
    answer = json.loads(lines[-1])  # a library may have printed lines of its own before
    if "missing" in answer:
        raise NotAvailable(f"{answer['missing']} is not installed")
    return answer["found"]


def _child(module: str, name: str, arguments: str) -> dict[str, Any]:
    from threadpoolctl import threadpool_limits

    warnings.simplefilter("ignore")
    try:
        function = getattr(import_module(module), name)
        with threadpool_limits(1):
            return {"found": function(*json.loads(arguments))}
    except ImportError as error:
        return {"missing": error.name or str(error)}


if __name__ == "__main__":
    print(json.dumps(_child(*sys.argv[1:])))
