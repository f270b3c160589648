"""The regression benchmark at its smallest."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import regression
from dither.lab.harness import execute


@pytest.mark.slow
def test_each_way_of_inference_is_measured(tmp_path: Path) -> None:
    outcome = execute(regression.bench("smoke"), tmp_path)
    ways = {row["labels"]["way"] for row in outcome.summary}
    assert ways == {"regress", "one table as if real", "ten tables combined"}
    at = {
        "table": "generated",
        "family": "binomial",
        "method": "calm",
        "people": 20_000,
        "epsilon": 4.0,
    }
    widths = [
        outcome.mean("coverage", "half_width", way=way, **at)
        for way in ("one table as if real", "regress")
    ]
    assert widths[0] < widths[1]
