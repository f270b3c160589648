"""The collector's harness and the pages' own."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[1] / "collector"):
    sys.path.insert(0, str(folder))

from collector_harness import caller, closed_connections, running  # noqa: E402, F401
