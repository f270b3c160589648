"""The panels' benchmark at its smallest size, and the laws of its rivals."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import panels
from dither.lab.harness import execute


@pytest.mark.slow
def test_the_bench_runs(tmp_path: Path) -> None:
    outcome = execute(panels.bench("smoke"), tmp_path)
    for method in ("L-SUE", "L-OSUE", "dBitFlipPM"):
        own = outcome.mean("errors", "MSE", method="panel", waves=2)
        assert own < outcome.mean("errors", "MSE", method=method, waves=2)
    assert outcome.mean("coverage", "waves covered") > 0.85


@pytest.mark.parametrize("method", panels.METHODS)
def test_drawn_errors_have_the_variance_of_the_formula(method: str) -> None:
    found = [panels.wave_error(method, 20, 10_000, 6, seed) for seed in range(5)]
    drawn = sum(one["MSE"] for one in found) / len(found)
    # 2,000 squared errors, of which those of the frequent values differ a little.
    assert drawn == pytest.approx(found[0]["variance"], rel=0.2)


def test_rivals_spend_the_lifetime_epsilon_on_their_permanent_answers() -> None:
    cells = 20
    for method in ("L-SUE", "L-OSUE"):
        p, q, _ = panels.bit_law(method, cells, 6)
        one = math.log(p * (1 - q) / ((1 - p) * q))
        assert one == pytest.approx(panels.FIRST_SHARE * panels.EPSILON / cells)
    p, q, share = panels.bit_law("dBitFlipPM", cells, 6)
    # A changed value may change the one bit from p to q: half of epsilon_inf, here 1.
    assert math.log(p / q) == pytest.approx(panels.EPSILON / 4)
    assert share == 1 / cells
