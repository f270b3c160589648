"""The security tests of the collector use its harness."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "collector"))

from collector_harness import (
    Cluster,
    closed_connections,  # noqa: F401
)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL for tests that only use it; each takes a fresh database."""
    running = Cluster()
    yield running
    running.remove()
