"""Run one measurement in a fresh process, of this environment or of another one, and read back what it found.

Standard library only. A worker is a module that calls `serve(work)`: it reads one JSON object from its input, hands it to
`work` as keyword arguments and prints the result as the last line of its output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class ChildFailedError(Exception):
    """The worker ended without a result; the message is its last line."""


class MissingError(Exception):
    """The worker's environment lacks a library; the message is its name."""


def run(
    module: str, request: dict[str, Any], python: Path | None = None, limit: float | None = None
) -> dict[str, Any]:
    """The result of a worker in a separate process, one thread each for the linear algebra of every library."""
    environment = (
        os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    )
    command = [str(python or sys.executable), "-W", "ignore", "-m", module]
    try:
        done = subprocess.run(
            command, input=json.dumps(request), capture_output=True, text=True, cwd=ROOT, env=environment,
            timeout=limit, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise ChildFailedError(f"not finished after {late.timeout:.0f} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ChildFailedError(lines[-1])
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if "missing" in result:
        raise MissingError(result["missing"])
    return result


def serve(work: Callable[..., dict[str, Any]]) -> None:
    """Answer one request; a library that is not installed is an answer, everything else that goes wrong is not."""
    request = json.loads(sys.stdin.read())
    try:
        result = work(**request)
    except ModuleNotFoundError as error:
        result = {"missing": error.name or str(error)}
    print("\n" + json.dumps(result))
