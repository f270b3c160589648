"""The C client's tests use the collector's harness, and one build with sanitizers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "collector"))

from collector_harness import closed_connections  # noqa: F401
from tests.programs import require

SOURCES = Path(__file__).parents[2] / "c"
FLAGS = (
    *("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-g"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)


def build(program: Path, *sources: Path) -> Path:
    """Compile and link with every warning an error."""
    compiler = require(shutil.which("gcc"), "gcc")
    command = [compiler, *FLAGS, f"-I{SOURCES}", *map(str, sources), "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that checks a file of vectors."""
    library = [path for path in sorted(SOURCES.glob("*.c")) if path.name != "answer.c"]
    own = Path(__file__).parent / "vectors.c"
    return build(tmp_path_factory.mktemp("c") / "vectors", own, *library)


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that answers a campaign."""
    return build(tmp_path_factory.mktemp("c") / "dither-answer", *sorted(SOURCES.glob("*.c")))
