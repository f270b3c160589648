"""Programs that some tests need: skipped by name without them on a developer's machine, a failure in CI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def require(program: Path | str | None, name: str) -> str:
    """The program; without it the test is skipped by name, except in CI, where its absence is a failure."""
    if program is not None and os.access(program, os.X_OK):
        return str(program)
    if os.environ.get("CI") == "true":
        pytest.fail(f"{name} is not installed, and in CI it has to be")
    pytest.skip(f"{name} is not installed")
