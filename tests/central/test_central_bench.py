"""The CSM benchmark's parts: histograms of the sizes asked for, errors that tell better from worse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import csm
from benchmarks.tables import GENERATED, load
from dither.lab.harness import NotAvailable


@pytest.mark.parametrize("cells", csm.SIZES)
def test_histograms_have_the_sizes_asked_for(cells: int) -> None:
    for dataset, people in (("Adult", 45_222), (GENERATED, len(load(GENERATED).codes))):
        counts, shape = csm.counts_of(dataset, cells, None)
        assert np.prod(shape) == cells == counts.size
        assert counts.sum() == people


def test_a_missing_table_is_said_and_left_out(tmp_path: Path) -> None:
    with pytest.raises(NotAvailable, match="retail50"):
        csm.counts_of("Retail", 128, tmp_path)
    assert all(
        study.axes.get("dataset", ("Adult",))[0] == "Adult"
        for study in csm.bench("quick", tmp_path).studies
    )


def test_measuring_tells_better_from_worse() -> None:
    methods, effort = ("csm", "laplace", "privbayes", "uniform", csm.PAPER), csm.Effort(2, 200)
    rows, raw = csm.released(methods, GENERATED, 128, 1.0, 0.4, effort)
    assert [(row["method"], row["seed"]) for row in rows] == [
        (m, run) for m in methods for run in range(2)
    ]
    assert raw["csm"].shape == (200, 2)
    mean = {m: np.mean([row["mse"] for row in rows if row["method"] == m]) for m in methods}
    assert mean["laplace"] < mean["uniform"]
    assert mean["csm"] < mean["uniform"]
    again, _ = csm.released(("csm",), GENERATED, 128, 1.0, 0.4, effort)
    assert [row["mse"] for row in again] == pytest.approx(
        [row["mse"] for row in rows[:2]], rel=1e-9
    )  # sums in other orders


def test_the_papers_noise_is_not_what_it_claims() -> None:
    counts, _ = csm.counts_of(GENERATED, 128, None)
    real = csm.paper_noise(counts, 1.0, 0.4, np.random.default_rng(0))[1]
    assert real == pytest.approx(0.4 * np.sqrt(52), rel=0.01)  # tau sqrt(s) times what it claims
