"""The security tests of the collector use its harness."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "collector"))

from collector_harness import closed_connections  # noqa: F401
