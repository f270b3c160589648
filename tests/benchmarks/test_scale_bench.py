"""The scale benchmark at its smallest, and the process of its own that it measures in."""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from benchmarks import scale
from dither.datasets import generate_network
from dither.lab.harness import NotAvailable, execute, peak_megabytes, run_isolated

pytestmark = pytest.mark.slow


def test_growth_and_campaign(tmp_path: Path) -> None:
    outcome = execute(scale.bench("smoke"), tmp_path)
    assert not outcome.notes
    ratio = outcome.mean("growth", "pair_cells", attributes=8) / outcome.mean(
        "growth", "pair_cells", attributes=4
    )
    assert 4 < ratio < 5  # 28 pairs against 6
    for measure in ("simulate_cpu_s", "fit_cpu_s", "sample_million_rows_cpu_s"):
        assert outcome.mean("campaign", measure) > 0
    assert outcome.mean("campaign", "pairs_asked") == math.comb(5, 2)
    assert outcome.mean("campaign", "peak_mb") >= outcome.mean("campaign", "population_mb") > 10


def test_the_drawn_tally_asks_every_pair_alike() -> None:
    schema, tally = scale.drawn(4, 60_000, np.random.default_rng(1))
    assert [len(q.attributes) for q in tally.plan.questions] == [2] * math.comb(
        len(schema.names), 2
    )
    assert tally.n.tolist() == [10_000] * 6


def test_the_population_is_that_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "BLOCK", 300)
    network = generate_network([3, 4], strength=1.0, seed=3)
    codes = scale.population(network, 20_100, np.random.default_rng(2))
    found = np.bincount(codes[:, 0] * 4 + codes[:, 1], minlength=12) / len(codes)
    assert np.abs(found - network.marginal(network.schema.names).ravel()).max() < 4 * np.sqrt(
        0.25 / len(codes)
    )


def test_a_childs_peak_is_its_own() -> None:
    held = np.ones(300 << 17)  # 300 MB of the parent's, which a child must not be charged with
    assert run_isolated(peak_megabytes) < 250 < held.nbytes >> 20


def test_what_goes_wrong_in_a_child_is_said() -> None:
    assert run_isolated(math.factorial, 5) == 120
    with pytest.raises(NotAvailable, match="nowhere is not installed"):
        run_isolated(import_module, "nowhere")
    with pytest.raises(RuntimeError, match=r"sqrt.*math domain error"):
        run_isolated(math.sqrt, -1)
