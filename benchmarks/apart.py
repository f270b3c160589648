"""A measurement in a process of its own, so that its peak memory and its start-up are nobody else's."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness import NotAvailable

ROOT = Path(__file__).resolve().parents[1]


def peak_megabytes() -> float:
    """The most memory that this process has held.

    Linux carries `ru_maxrss` over from the process that started this one, so its own high-water mark is read where there is one.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(function: Callable[..., Any], *arguments: Any, python: str = sys.executable) -> Any:
    """What a module's function returns in a fresh process, with one thread for linear algebra.

    Arguments and result pass as JSON. A library that is missing there raises `NotAvailable`, another failure `RuntimeError`
    with the child's last line. `python` may be the interpreter of another environment.
    """
    call = [python, "-m", "benchmarks.apart", function.__module__, function.__name__, json.dumps(arguments)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
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
