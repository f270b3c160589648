"""The benchmark of discovery at its smallest."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import discover
from dither.lab.harness import execute


def test_strings_of_ranks_are_all_different() -> None:
    assert len({discover.code(rank, 10_000) for rank in range(10_000)}) == 10_000
    assert len({discover.word(rank) for rank in range(10_000)}) == 10_000


@pytest.mark.slow
def test_every_method_is_measured(tmp_path: Path) -> None:
    outcome = execute(discover.bench("smoke"), tmp_path)
    at = {"strings": 10_000, "people": 20_000, "epsilon": 4.0}
    for method in ("dither, words", "dither, bits", "fixed list"):
        assert outcome.mean("zipf", "f1_top_20", method=method, **at) > 0.2
    assert outcome.mean("zipf", "false", method="dither, words", **at) == 0
