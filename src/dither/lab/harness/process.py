"""Measurements in separate processes: each has its own peak memory, start-up and failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from dither.lab.harness.study import NotAvailable

# Not on Windows.
_resource: Any = import_module("resource") if find_spec("resource") else None

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_megabytes() -> float:
    """The peak memory of this process."""
    # Not `ru_maxrss`: on Linux a child inherits it from its parent.
    return _megabytes("VmHWM")


class PeakMemory:
    """The peak memory since this object was created, relative to the memory held then."""

    def __init__(self) -> None:
        # Writing 5 resets the peak. Where that is not possible (not Linux, no permission),
        # growth below the earlier peak is not seen.
        with suppress(OSError):
            CLEAR.write_text("5")
        self._before = _megabytes("VmRSS")

    def extra(self) -> float:
        """Megabytes beyond those held at the start."""
        return max(0.0, peak_megabytes() - self._before)


def _megabytes(field: str) -> float:
    if STATUS.is_file():
        for line in STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    if _resource is None:
        return 0.0
    peak: float = _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss / 1024
    # macOS counts bytes, other systems kilobytes.
    return peak / 1024 if sys.platform == "darwin" else peak


def run_isolated(
    function: Callable[..., Any],
    *arguments: Any,
    python: str = sys.executable,
    limit: float | None = None,
) -> Any:
    """Call a function in a new process, with one thread for linear algebra.

    Args:
        function: A function of a module that the child can import.
        arguments: Its arguments, in JSON values.
        python: The interpreter, which may be that of another environment.
        limit: Seconds after which the process is killed; None for no limit.

    Returns:
        The result, in JSON values.

    Raises:
        NotAvailable: If a library is missing or the limit is exceeded.
        RuntimeError: If the child fails, with the last line of its output.
    """
    call = [python, "-m", __name__, function.__module__, function.__name__, json.dumps(arguments)]
    # The child finds modules where this process does.
    path = os.pathsep.join(p for p in (os.getcwd(), *sys.path) if p)
    environment = os.environ | {"PYTHONPATH": path}
    try:
        done = subprocess.run(
            call, capture_output=True, text=True, check=False, env=environment, timeout=limit
        )
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"not finished after {limit:g} s") from None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        errors = done.stderr.strip().splitlines()
        reason = errors[-1] if errors else "killed by the system, perhaps out of memory"
        raise RuntimeError(f"{function.__name__}{arguments} failed: {reason}")
    # A library may have printed other lines before.
    answer = json.loads(lines[-1])
    if "missing" in answer:
        raise NotAvailable(f"{answer['missing']} is not installed")
    return answer["result"]


def _child(module: str, name: str, arguments: str) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    try:
        function = getattr(import_module(module), name)
        with threadpool_limits(1):
            return {"result": function(*json.loads(arguments))}
    except ImportError as error:
        return {"missing": error.name or str(error)}


if __name__ == "__main__":
    print(json.dumps(_child(*sys.argv[1:])))
