"""The crash tests use the collector's harness."""

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


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A PostgreSQL that the test may stop and start."""
    running = Cluster()
    yield running
    running.remove()
