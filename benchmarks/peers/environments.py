"""Virtual environments for libraries whose pins clash with ours, made on demand from a pinned list.

    python -m benchmarks.peers.environments [NAME ...]

The lists are requirements-NAME.txt in this folder and are complete: nothing is resolved at install time. Environments
are kept under bench-out (or where DITHER_PEERS says) and reused until their list changes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks.peers.child import ROOT
from dither.lab.harness import NotAvailable

HERE = Path(__file__).parent
NAMES = tuple(sorted(p.stem.removeprefix("requirements-") for p in HERE.glob("requirements-*.txt")))
PATIENCE = 1200.0
BIN = "Scripts" if os.name == "nt" else "bin"


def folder() -> Path:
    """Where the environments live."""
    return Path(os.environ.get("DITHER_PEERS", ROOT / "bench-out"))


def interpreter(name: str, build: bool = True) -> Path:
    """The Python of an environment, made first if need be; `NotAvailable` says in one line why there is none."""
    wanted = HERE / f"requirements-{name}.txt"
    place = folder() / f"venv-{name}"
    python = place / BIN / "python"
    stamp, digest = place / "made-from", hashlib.sha256(wanted.read_bytes()).hexdigest()
    if python.exists() and stamp.is_file() and stamp.read_text() == digest:
        return python
    if not build:
        raise NotAvailable(
            f"the environment for {name} is not there; python -m benchmarks.peers.environments {name} makes it"
        )
    with tempfile.TemporaryDirectory(dir=_made(folder()), prefix=f"venv-{name}-") as temporary:
        half = Path(temporary, "venv")
        _install(name, half, wanted)
        (half / stamp.name).write_text(digest)
        shutil.rmtree(place, ignore_errors=True)
        half.replace(
            place
        )  # whole or not at all; its Python finds its packages from where it stands
    return python


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _install(name: str, place: Path, wanted: Path) -> None:
    venv.create(place, with_pip=True)
    command = [
        str(place / BIN / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    try:
        subprocess.run(
            [*command, "-r", str(wanted)],
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.CalledProcessError as failed:
        errors = [line for line in failed.stderr.splitlines() if line.startswith("ERROR")] or [
            "pip failed"
        ]
        raise NotAvailable(f"the environment for {name} could not be made: {errors[-1]}") from None
    except subprocess.TimeoutExpired:
        raise NotAvailable(
            f"the environment for {name} was not installed within {PATIENCE:.0f} s"
        ) from None


if __name__ == "__main__":
    for each in sys.argv[1:] or NAMES:
        print(f"{each}: {interpreter(each)}")
